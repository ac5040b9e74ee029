/* SPDX-License-Identifier: Apache-2.0 */
/* The folder `checkpoints` of a run: pointers, the newest valid one, what to keep, what to sweep.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "train/checkpoint.h"

#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- pointers ---- */

void cti_ckpt_pointer(cti_mem *m, const char *dir, const char *pointer,
                      char name[CTI_CKPT_NAME_CAP])
{
    char path[CTI_PATH_CAP];
    void *text;
    size_t bytes, n;
    int64_t step;

    name[0] = '\0';
    if (cti_path(path, sizeof path, NULL, "%s/%s", dir, pointer) < 0 ||
        cti_file_read(m, path, 0, &text, &bytes, NULL) < 0)
        return;
    n = strcspn(text, " \t\r\n");
    if (n < CTI_CKPT_NAME_CAP) {
        memcpy(name, text, n);
        name[n] = '\0';
    }
    if (!cti_ckpt_step(name, &step))
        name[0] = '\0';
    cti_free(m, text);
}

int cti_ckpt_point(const char *dir, const char *pointer, const char *name, ct_error *err)
{
    char path[CTI_PATH_CAP], text[CTI_CKPT_NAME_CAP + 1];
    int r;

    if ((r = cti_path(path, sizeof path, err, "%s/%s", dir, pointer)) < 0)
        return r;
    snprintf(text, sizeof text, "%s\n", name);
    return cti_file_write_atomic(path, text, strlen(text), err);
}

/* ---- listing ---- */

typedef struct steps {
    cti_mem *m;
    int64_t *step; /* rising */
    size_t n, cap;
    bool failed;
} steps;

static int add_step(const char *name, void *user)
{
    steps *s = user;
    void *p = s->step;
    int64_t step;

    if (!cti_ckpt_step(name, &step))
        return 0;
    if (cti_grow(s->m, &p, &s->cap, s->n + 1, sizeof *s->step, "checkpoint list") < 0)
        return CT_ENOMEM;
    s->step = p;
    s->step[s->n++] = step;
    return 0;
}

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static int list_steps(cti_mem *m, const char *dir, steps *out, ct_error *err)
{
    int r;

    *out = (steps){.m = m};
    if (!cti_path_is_dir(dir))
        return CT_OK;
    r = cti_dir_list(m, dir, add_step, out, err);
    if (r == CT_ENOMEM)
        cti_fail(err, r, "list %s: out of memory", dir);
    if (r == CT_OK && out->n > 1)
        qsort(out->step, out->n, sizeof *out->step, by_step);
    if (r < 0)
        cti_free(m, out->step);
    return r;
}

bool cti_ckpt_any(cti_mem *m, const char *dir)
{
    steps s;
    bool any;

    if (list_steps(m, dir, &s, NULL) < 0)
        return true; /* not readable: not to be reused */
    any = s.n > 0;
    cti_free(m, s.step);
    return any;
}

/* ---- finding ---- */

static int verify_named(cti_mem *m, const char *dir, const char *name, ct_error *err)
{
    char path[CTI_PATH_CAP];
    int r;

    if ((r = cti_path(path, sizeof path, err, "%s/%s", dir, name)) < 0)
        return r;
    return cti_ckpt_verify(m, path, err);
}

/* The newest valid one, not newer than `limit` if there is such a one: what is newer may belong to
 * a line of the run that was left when it went back. */
static int newest_valid(cti_mem *m, const char *dir, int64_t limit, const cti_say *say,
                        char name[CTI_CKPT_NAME_CAP], ct_error *err)
{
    ct_error first = {0};
    steps s;
    int r;

    if ((r = list_steps(m, dir, &s, err)) < 0)
        return r;
    r = CT_EDATA;
    for (int pass = 0; pass < 2 && r < 0; pass++)
        for (size_t i = s.n; i-- > 0 && r < 0;) {
            ct_error why = {0};
            if ((s.step[i] <= limit) != (pass == 0))
                continue;
            cti_ckpt_name(name, s.step[i]);
            r = verify_named(m, dir, name, &why);
            if (r < 0)
                cti_tell(say, CT_LOG_WARN, "%s; trying an older one", why.text);
            if (r < 0 && !first.code)
                first = why;
        }
    if (r < 0 && s.n == 0)
        r = cti_fail(err, CT_EDATA, "%s has no checkpoint", dir);
    else if (r < 0)
        r = cti_fail(err, CT_EFORMAT, "%s has no valid checkpoint: %s", dir, first.text);
    cti_free(m, s.step);
    return r < 0 ? r : CT_OK;
}

int cti_ckpt_find(cti_mem *m, const char *dir, const char *pointer, const cti_say *say,
                  char name[CTI_CKPT_NAME_CAP], ct_error *err)
{
    char pointed[CTI_CKPT_NAME_CAP];
    ct_error why = {0};
    int64_t step;
    int r;

    cti_ckpt_pointer(m, dir, pointer, pointed);
    if (!pointed[0] && strcmp(pointer, "best") == 0)
        return cti_fail(err, CT_EDATA, "%s has no best checkpoint yet; use last", dir);
    if (pointed[0] && verify_named(m, dir, pointed, &why) == CT_OK) {
        memcpy(name, pointed, CTI_CKPT_NAME_CAP);
        return CT_OK;
    }
    if (!pointed[0])
        return newest_valid(m, dir, INT64_MAX, say, name, err);
    cti_ckpt_step(pointed, &step);
    cti_tell(say, CT_LOG_WARN, "the %s checkpoint can't be used: %s", pointer, why.text);
    if ((r = newest_valid(m, dir, step - 1, say, name, err)) == CT_OK)
        cti_tell(say, CT_LOG_WARN, "going on from %s/%s, the newest valid one, instead", dir, name);
    return r;
}

/* ---- sweeping ---- */

typedef struct sweep {
    const char *dir;
    const cti_say *say;
    ct_error *err;
} sweep;

static int sweep_one(const char *name, void *user)
{
    const sweep *s = user;
    char path[CTI_PATH_CAP], back[CTI_PATH_CAP];
    size_t n = strlen(name);
    int r;

    if ((r = cti_path(path, sizeof path, s->err, "%s/%s", s->dir, name)) < 0)
        return r;
    if (strncmp(name, ".old-", 5) == 0) {
        if ((r = cti_path(back, sizeof back, s->err, "%s/%s", s->dir, name + 5)) < 0)
            return r;
        if (!cti_path_exists(back))
            return cti_rename_sync(path, back, s->err);
    } else if (n > 4 && strcmp(name + n - 4, ".tmp") == 0) {
        unlink(path);
        return CT_OK;
    } else if (strncmp(name, ".tmp-", 5) != 0) {
        return CT_OK;
    }
    cti_tell(s->say, CT_LOG_DETAIL, "removing %s, left by a save that was cut off", path);
    return cti_dir_remove(path, s->err);
}

int cti_ckpt_sweep(cti_mem *m, const char *dir, const cti_say *say, ct_error *err)
{
    sweep s = {.dir = dir, .say = say, .err = err};

    return cti_path_is_dir(dir) ? cti_dir_list(m, dir, sweep_one, &s, err) : CT_OK;
}

/* ---- keeping ---- */

int cti_ckpt_retain(cti_mem *m, const char *dir, const cti_state *state, int64_t keep_last,
                    int64_t keep_best, const char *resumed_from, ct_error *err)
{
    char last[CTI_CKPT_NAME_CAP], best[CTI_CKPT_NAME_CAP], name[CTI_CKPT_NAME_CAP];
    int64_t newer = 0;
    steps s;
    int r;

    cti_ckpt_pointer(m, dir, "last", last);
    cti_ckpt_pointer(m, dir, "best", best);
    if ((r = list_steps(m, dir, &s, err)) < 0)
        return r;
    for (size_t i = s.n; i-- > 0;) {
        char path[CTI_PATH_CAP], gone[CTI_PATH_CAP];
        if (s.step[i] > state->step)
            continue;
        cti_ckpt_name(name, s.step[i]);
        if (newer++ < keep_last || cti_state_is_top(state, keep_best, s.step[i]) ||
            strcmp(name, last) == 0 || strcmp(name, best) == 0 || strcmp(name, resumed_from) == 0)
            continue;
        /* Under another name first: cut off in the middle, it must not look like a damaged one. */
        if (cti_path(path, sizeof path, err, "%s/%s", dir, name) < 0 ||
            cti_path(gone, sizeof gone, err, "%s/.tmp-%s", dir, name) < 0 ||
            cti_dir_remove(gone, err) < 0)
            r = CT_EIO;
        else if (rename(path, gone) != 0)
            r = cti_fail_errno(err, 0, errno, "rename", path);
        else if (cti_dir_remove(gone, err) < 0)
            r = CT_EIO;
    }
    cti_free(m, s.step);
    return r;
}
