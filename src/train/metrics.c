/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "train/metrics.h"

#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- writing ---- */

int cti_metrics_open(cti_metrics *mt, cti_mem *m, const char *path, ct_error *err)
{
    struct stat st;
    int r;

    *mt = (cti_metrics){.mem = m, .fd = -1};
    if ((r = cti_path(mt->path, sizeof mt->path, err, "%s", path)) < 0)
        return r;
    mt->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (mt->fd < 0 || fstat(mt->fd, &st) != 0)
        r = cti_fail_errno(err, 0, errno, "open", path);
    else if (!(mt->line = cti_jw_new(m, false)))
        r = cti_fail(err, CT_ENOMEM, "open %s: out of memory", path);
    else
        mt->size = st.st_size;
    if (r < 0)
        cti_metrics_close(mt);
    return r;
}

void cti_metrics_close(cti_metrics *mt)
{
    if (mt->fd >= 0)
        close(mt->fd);
    mt->fd = -1;
    cti_jw_free(mt->line);
    mt->line = NULL;
}

cti_jw *cti_metrics_begin(cti_metrics *mt, const char *event)
{
    cti_jw_reset(mt->line);
    cti_jw_object(mt->line, NULL);
    cti_jw_string(mt->line, "event", event);
    return mt->line;
}

static int append(cti_metrics *mt, const char *p, size_t n, ct_error *err)
{
    while (n > 0) {
        ssize_t wrote = write(mt->fd, p, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return cti_fail_errno(err, 0, wrote < 0 ? errno : EIO, "write", mt->path);
        p += wrote;
        n -= (size_t)wrote;
    }
    return CT_OK;
}

int cti_metrics_end(cti_metrics *mt, ct_error *err)
{
    char small[1024];
    const char *text;
    size_t n;
    int r;

    cti_jw_end(mt->line);
    text = cti_jw_text(mt->line, &n);
    if (!text)
        return cti_fail(err, CT_ENOMEM, "write %s: out of memory", mt->path);
    /* In one write where it fits: a reader that follows the file sees whole lines. */
    if (n < sizeof small) {
        memcpy(small, text, n);
        small[n] = '\n';
        r = append(mt, small, n + 1, err);
    } else if ((r = append(mt, text, n, err)) == CT_OK) {
        r = append(mt, "\n", 1, err);
    }
    if (r == CT_OK)
        mt->size += (int64_t)n + 1;
    else if (ftruncate(mt->fd, (off_t)mt->size) != 0)
        return r; /* the cut tail is dropped when the file is cut on resume */
    return r;
}

int cti_metrics_sync(cti_metrics *mt, ct_error *err)
{
    int r;

    if (mt->fd < 0)
        return CT_OK;
    do
        r = fsync(mt->fd);
    while (r != 0 && errno == EINTR);
    if (r != 0 && errno != EINVAL && errno != ENOTSUP)
        return cti_fail_errno(err, 0, errno, "fsync", mt->path);
    return CT_OK;
}

/* ---- cutting ---- */

typedef enum verdict { KEEP, DROP, BAD } verdict;

static verdict judge_line(const char *line, size_t n, int64_t step, bool keep_eval)
{
    cti_json *j = cti_json_parse(line, n, "metrics", NULL);
    const char *event = j ? cti_json_string(cti_json_get(j, "event")) : NULL;
    int64_t at = 0;
    verdict v = KEEP;

    if (!event)
        v = BAD;
    else if (strcmp(event, "start") == 0)
        v = KEEP;
    else if (strcmp(event, "end") == 0)
        v = DROP;
    else if (!cti_json_i64(cti_json_get(j, "step"), &at))
        v = BAD;
    else if (at > step)
        v = DROP;
    else if (at == step && strcmp(event, "eval") == 0)
        v = keep_eval ? KEEP : DROP;
    else if (at == step && strcmp(event, "checkpoint") == 0)
        v = DROP;
    cti_json_free(j);
    return v;
}

/* Moves the lines to keep to the front of `text`; returns their bytes, or SIZE_MAX with the bad
 * line. */
static size_t cut_text(char *text, size_t bytes, int64_t step, bool keep_eval, int *bad_line)
{
    size_t out = 0, at = 0;

    for (int n = 1; at < bytes; n++) {
        char *end = memchr(text + at, '\n', bytes - at);
        size_t len = end ? (size_t)(end - (text + at)) + 1 : 0;
        if (!end) /* cut in the middle of a line */
            break;
        switch (judge_line(text + at, len - 1, step, keep_eval)) {
        case KEEP:
            memmove(text + out, text + at, len);
            out += len;
            break;
        case BAD:
            *bad_line = n;
            return SIZE_MAX;
        case DROP:
            break;
        }
        at += len;
    }
    return out;
}

int cti_metrics_cut(cti_mem *m, const char *path, int64_t step, bool keep_eval, ct_error *err)
{
    void *text;
    size_t bytes, kept;
    int r, bad = 0;

    if (!cti_path_exists(path))
        return CT_OK;
    if ((r = cti_file_read(m, path, 0, &text, &bytes, err)) < 0)
        return r;
    kept = cut_text(text, bytes, step, keep_eval, &bad);
    if (kept == SIZE_MAX)
        r = cti_fail(err, CT_EFORMAT,
                     "%s:%d: this line is no event; move the file away to go on without its past",
                     path, bad);
    else if (kept != bytes)
        r = cti_file_write_atomic(path, text, kept, err);
    cti_free(m, text);
    return r;
}

static void read_end(const char *line, size_t n, cti_end *end)
{
    cti_json *j = cti_json_parse(line, n, "metrics", NULL);
    const char *event = j ? cti_json_string(cti_json_get(j, "event")) : NULL;
    const char *status = j ? cti_json_string(cti_json_get(j, "status")) : NULL;

    if (event && strcmp(event, "end") == 0 && status && strlen(status) < sizeof end->status &&
        cti_json_i64(cti_json_get(j, "step"), &end->step) &&
        cti_json_i64(cti_json_get(j, "epoch"), &end->epoch)) {
        end->there = true;
        memcpy(end->status, status, strlen(status) + 1);
        if (!cti_json_f64(cti_json_get(j, "train_loss"), &end->train_loss))
            end->train_loss = NAN;
        if (!cti_json_f64(cti_json_get(j, "val_loss"), &end->val_loss))
            end->val_loss = NAN;
        if (!cti_json_f64(cti_json_get(j, "val_acc"), &end->val_acc))
            end->val_acc = NAN;
        end->has_best = cti_json_f64(cti_json_get(j, "best"), &end->best) &&
                        cti_json_i64(cti_json_get(j, "best_step"), &end->best_step);
    }
    cti_json_free(j);
}

void cti_metrics_last(cti_mem *m, const char *path, cti_end *end)
{
    void *data;
    size_t bytes, from;
    char *text;

    *end = (cti_end){.train_loss = NAN, .val_loss = NAN, .val_acc = NAN};
    if (cti_file_read(m, path, 0, &data, &bytes, NULL) < 0)
        return;
    text = data;
    if (bytes > 0 && text[bytes - 1] == '\n') {
        for (from = bytes - 1; from > 0 && text[from - 1] != '\n'; from--)
            ;
        read_end(text + from, bytes - 1 - from, end);
    }
    cti_free(m, data);
}
