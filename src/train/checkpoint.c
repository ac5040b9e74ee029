/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and verifying one checkpoint; finding, pointing and deleting are in ckpt_dir.c.
 *
 * A save writes a temporary directory, syncs its files and itself, renames it, syncs the parent,
 * and then moves the pointer by rename: at every moment the pointer names a complete checkpoint. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "train/checkpoint.h"

#include "base/error.h"
#include "base/file.h"
#include "train/safetensors.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MODEL    "model.safetensors"
#define OPTIM    "optimizer.safetensors"
#define STATE    "state.json"
#define MANIFEST "MANIFEST"

void cti_tell(const cti_say *say, ct_log_level level, const char *fmt, ...)
{
    char text[2400];
    va_list args;

    if (!say || !say->line)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    say->line(level, text, say->user);
}

void cti_ckpt_name(char out[CTI_CKPT_NAME_CAP], int64_t step)
{
    snprintf(out, CTI_CKPT_NAME_CAP, "step-%08" PRId64, step);
}

bool cti_ckpt_step(const char *name, int64_t *step)
{
    char again[CTI_CKPT_NAME_CAP];
    size_t n = strlen(name);

    if (strncmp(name, "step-", 5) != 0 || n < 13 || n > 23 ||
        strspn(name + 5, "0123456789") != n - 5)
        return false;
    *step = strtoll(name + 5, NULL, 10);
    cti_ckpt_name(again, *step);
    return strcmp(again, name) == 0;
}

/* ---- writing ---- */

typedef struct manifest {
    char text[1024];
    size_t used;
} manifest;

static void list_file(manifest *mf, const char *name, uint64_t hash, uint64_t bytes)
{
    mf->used += (size_t)snprintf(mf->text + mf->used, sizeof mf->text - mf->used,
                                 "%" PRIu64 " %016" PRIx64 " %s\n", bytes, hash, name);
}

static const char *const file_names[CTI_CKPT_FILES] = {MODEL, OPTIM, STATE};

int cti_ckpt_image_make(ct_ctx *ctx, cti_mem *m, const cti_ckpt_parts *parts, cti_ckpt_image *out,
                        ct_error *err)
{
    int r;

    *out = (cti_ckpt_image){.step = parts->state->step};
    if ((r = cti_st_image(ctx, m, MODEL, parts->model, parts->n_model, &out->data[0],
                          &out->bytes[0], err)) == CT_OK &&
        (r = cti_st_image(ctx, m, OPTIM, parts->optim, parts->n_optim, &out->data[1],
                          &out->bytes[1], err)) == CT_OK) {
        out->data[2] = cti_state_print(m, parts->state, &out->bytes[2]);
        if (!out->data[2])
            r = cti_fail(err, CT_ENOMEM, "out of memory for " STATE);
    }
    if (r < 0)
        cti_ckpt_image_free(m, out);
    return r;
}

void cti_ckpt_image_free(cti_mem *m, cti_ckpt_image *image)
{
    for (int i = 0; i < CTI_CKPT_FILES; i++)
        cti_free(m, image->data[i]);
    *image = (cti_ckpt_image){0};
}

static int write_one(const char *dir, const char *name, const void *data, size_t bytes,
                     ct_error *err)
{
    char path[CTI_PATH_CAP];
    int r;

    if ((r = cti_path(path, sizeof path, err, "%s/%s", dir, name)) < 0)
        return r;
    return cti_file_write(path, data, bytes, err);
}

static int write_files(const char *dir, const cti_ckpt_image *image, ct_error *err)
{
    manifest mf = {.used = 0};
    int r;

    if ((r = cti_dir_make(dir, err)) < 0)
        return r;
    for (int i = 0; i < CTI_CKPT_FILES; i++) {
        list_file(&mf, file_names[i], cti_hash(image->data[i], image->bytes[i], 0),
                  image->bytes[i]);
        if ((r = write_one(dir, file_names[i], image->data[i], image->bytes[i], err)) < 0)
            return r;
    }
    if ((r = write_one(dir, MANIFEST, mf.text, mf.used, err)) < 0)
        return r;
    return cti_dir_sync(dir, err);
}

/* Two renames when one of that step is there (a run that went back to an earlier checkpoint): the
 * sweep puts the old one back when only the first was done. */
static int put_in_place(const char *dir, const char *tmp, const char *name, ct_error *err)
{
    char path[CTI_PATH_CAP], old[CTI_PATH_CAP];
    int r;

    if ((r = cti_path(path, sizeof path, err, "%s/%s", dir, name)) < 0 ||
        (r = cti_path(old, sizeof old, err, "%s/.old-%s", dir, name)) < 0)
        return r;
    if (!cti_path_exists(path))
        return cti_rename_sync(tmp, path, err);
    if ((r = cti_dir_remove(old, err)) < 0 || (r = cti_rename_sync(path, old, err)) < 0)
        return r;
    if ((r = cti_rename_sync(tmp, path, err)) < 0) {
        cti_rename_sync(old, path, NULL);
        return r;
    }
    cti_dir_remove(old, NULL); /* else the next sweep does it */
    return CT_OK;
}

int cti_ckpt_write(const char *dir, const cti_ckpt_image *image, ct_error *err)
{
    char name[CTI_CKPT_NAME_CAP], tmp[CTI_PATH_CAP];
    int r;

    cti_ckpt_name(name, image->step);
    if ((r = cti_path(tmp, sizeof tmp, err, "%s/.tmp-%s", dir, name)) < 0 ||
        (r = cti_dir_remove(tmp, err)) < 0)
        return r;
    if ((r = write_files(tmp, image, err)) < 0 || (r = put_in_place(dir, tmp, name, err)) < 0) {
        cti_dir_remove(tmp, NULL);
        return r;
    }
    return cti_ckpt_point(dir, "last", name, err);
}

int cti_ckpt_save(const char *dir, const cti_ckpt_image *image, const cti_say *say, ct_error *err)
{
    enum { TRIES = 3 };
    int r = CT_OK;

    for (int i = 1; i <= TRIES; i++) {
        ct_error failed = {0};
        struct timespec pause = {.tv_nsec = 50 * 1000 * 1000 * i};

        r = cti_ckpt_write(dir, image, &failed);
        if (r == CT_OK)
            return CT_OK;
        cti_tell(say, CT_LOG_ERROR, "checkpoint of step %" PRId64 " not saved (try %d of %d): %s",
                 image->step, i, TRIES, failed.text);
        if (i == TRIES || r != CT_EIO)
            return cti_fail(err, r, "%s", failed.text);
        nanosleep(&pause, NULL);
    }
    return r;
}

/* ---- verifying ---- */

/* One line of the manifest: size, hash, name. */
static bool parse_line(const char *line, uint64_t *bytes, uint64_t *hash, char name[64])
{
    size_t digits = strspn(line, "0123456789"), n;

    if (digits == 0 || digits > 19 || line[digits] != ' ')
        return false;
    *bytes = strtoull(line, NULL, 10);
    line += digits + 1;
    if (strspn(line, "0123456789abcdef") != 16 || line[16] != ' ')
        return false;
    *hash = strtoull(line, NULL, 16);
    line += 17;
    n = strcspn(line, "\n");
    if (n == 0 || n >= 64 || line[n] != '\n' || memchr(line, '/', n) || line[0] == '.')
        return false;
    memcpy(name, line, n);
    name[n] = '\0';
    return true;
}

static int verify_file(const char *path, const char *name, uint64_t bytes, uint64_t hash,
                       ct_error *err)
{
    uint64_t real_bytes, real_hash;
    char file[CTI_PATH_CAP];
    int r;

    if ((r = cti_path(file, sizeof file, err, "%s/%s", path, name)) < 0)
        return r;
    if (!cti_path_exists(file))
        return cti_fail(err, CT_EFORMAT, "checkpoint %s: %s is missing", path, name);
    if ((r = cti_file_hash(file, &real_hash, &real_bytes, err)) < 0)
        return r;
    if (real_bytes != bytes)
        return cti_fail(err, CT_EFORMAT,
                        "checkpoint %s: %s has %" PRIu64 " bytes, its MANIFEST says %" PRIu64, path,
                        name, real_bytes, bytes);
    if (real_hash != hash)
        return cti_fail(err, CT_EFORMAT,
                        "checkpoint %s: %s is damaged: its checksum is %016" PRIx64
                        ", its MANIFEST says %016" PRIx64,
                        path, name, real_hash, hash);
    return CT_OK;
}

static int verify_listed(const char *path, const char *text, size_t bytes, ct_error *err)
{
    unsigned seen = 0;
    int r;

    for (const char *line = text; line < text + bytes; line = strchr(line, '\n') + 1) {
        uint64_t size, hash;
        char name[64];

        if (!parse_line(line, &size, &hash, name))
            return cti_fail(err, CT_EFORMAT, "checkpoint %s: its MANIFEST is damaged", path);
        if ((r = verify_file(path, name, size, hash, err)) < 0)
            return r;
        for (unsigned i = 0; i < 3; i++)
            if (strcmp(name, file_names[i]) == 0)
                seen |= 1u << i;
    }
    for (unsigned i = 0; i < 3; i++)
        if (!(seen & 1u << i))
            return cti_fail(err, CT_EFORMAT, "checkpoint %s: its MANIFEST doesn't list %s", path,
                            file_names[i]);
    return CT_OK;
}

int cti_ckpt_verify(cti_mem *m, const char *path, ct_error *err)
{
    char file[CTI_PATH_CAP];
    void *text;
    size_t bytes;
    int r;

    if (!cti_path_is_dir(path))
        return cti_fail(err, CT_EDATA, "checkpoint %s: there is no such directory", path);
    if ((r = cti_path(file, sizeof file, err, "%s/" MANIFEST, path)) < 0)
        return r;
    if (!cti_path_exists(file))
        return cti_fail(err, CT_EFORMAT, "checkpoint %s: it has no MANIFEST", path);
    if ((r = cti_file_read(m, file, CT_EFORMAT, &text, &bytes, err)) < 0)
        return r;
    r = verify_listed(path, text, bytes, err);
    cti_free(m, text);
    return r;
}

int cti_ckpt_read_state(cti_mem *m, const char *path, cti_state *out, ct_error *err)
{
    char file[CTI_PATH_CAP];
    void *text;
    size_t bytes;
    int r;

    if ((r = cti_path(file, sizeof file, err, "%s/" STATE, path)) < 0 ||
        (r = cti_file_read(m, file, CT_EFORMAT, &text, &bytes, err)) < 0)
        return r;
    r = cti_state_parse(m, text, bytes, file, out, err);
    cti_free(m, text);
    return r;
}
