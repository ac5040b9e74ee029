/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder, files in it, and lines that were told. */
#ifndef TRAIN_FIXTURE_H
#define TRAIN_FIXTURE_H

#include "base/file.h"

#include <criterion/criterion.h>
#include <ctrain/ctrain.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[256]; /* made by enter_folder, removed by leave_folder */

static inline void enter_folder(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%s/ctrain-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    cr_assert_not_null(mkdtemp(folder));
}

static inline void leave_folder(void)
{
    cti_file_fail_write_at(0);
    if (folder[0])
        cti_dir_remove(folder, NULL);
}

/* "FOLDER/name", in one of four buffers. */
static inline const char *in_folder(const char *name)
{
    static char path[4][600];
    static int next;
    char *p = path[next = (next + 1) % 4];

    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static inline void put_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");

    cr_assert_not_null(f, "%s", path);
    cr_assert_eq(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

/* The whole content with a zero after it; to be freed. */
static inline char *get_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *p;
    long n;

    cr_assert_not_null(f, "%s", path);
    fseek(f, 0, SEEK_END);
    n = ftell(f);
    rewind(f);
    p = calloc(1, (size_t)n + 1);
    cr_assert_eq(fread(p, 1, (size_t)n, f), (size_t)n);
    fclose(f);
    if (bytes)
        *bytes = (size_t)n;
    return p;
}

static inline ct_ctx *new_ctx(ct_dtype dtype)
{
    ct_ctx_opts o = ct_ctx_defaults();
    ct_error err = {0};
    ct_ctx *ctx;

    o.device = "cpu";
    o.threads = 1;
    o.dtype = dtype;
    ctx = ct_ctx_new(o, &err);
    cr_assert_not_null(ctx, "%s", err.text);
    return ctx;
}

static inline void assert_has(const char *text, const char *part)
{
    cr_assert_not_null(strstr(text, part), "'%s' has no '%s'", text, part);
}

#endif
