/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl: one JSON object a line, whole lines only. On resume it is cut to the restored
 * step, so that a run that was killed and resumed leaves the same values as one that was not; times
 * end in _ms. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "base/json.h"
#include "train/checkpoint.h"

typedef struct cti_metrics {
    cti_mem *mem;
    int fd; /* -1: closed */
    cti_jw *line;
    int64_t size; /* of the whole lines in it */
    bool failed;  /* the last write failed (and was told) */
    char path[CTI_PATH_CAP];
} cti_metrics;

/* Opens PATH for appending, made when missing. */
int cti_metrics_open(cti_metrics *mt, cti_mem *m, const char *path, ct_error *err);
void cti_metrics_close(cti_metrics *mt);

/* Begins a line with "event"; the caller adds members, then cti_metrics_end. */
cti_jw *cti_metrics_begin(cti_metrics *mt, const char *event);
/* Writes the line; a line that can't be written whole leaves no part of itself. */
int cti_metrics_end(cti_metrics *mt, ct_error *err);
int cti_metrics_sync(cti_metrics *mt, ct_error *err);

/* The last `end` event, when it is the file's last line. */
typedef struct cti_end {
    bool there;
    char status[16]; /* "done", "early_stop", "interrupted", "nonfinite", "failed" */
    int64_t step, epoch;
    double train_loss, val_loss, val_acc, best;
    bool has_best;
    int64_t best_step;
} cti_end;

/* Keeps what an uninterrupted run had written when the checkpoint of `step` was complete: all up to
 * the step, its evaluation only with `keep_eval`, no `end`, not the step's own checkpoint event, no
 * cut last line. A missing file is fine. CT_EFORMAT when a line in the middle is no event. */
int cti_metrics_cut(cti_mem *m, const char *path, int64_t step, bool keep_eval, ct_error *err);
/* Fills `end`; a file that can't be read gives there = false. */
void cti_metrics_last(cti_mem *m, const char *path, cti_end *end);

#endif
