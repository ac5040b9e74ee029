/* SPDX-License-Identifier: Apache-2.0 */
/* Writes checkpoints in a thread of its own while training goes on: a durable save is mostly
 * waiting for the disk. Jobs run in the order they were handed over, so `best` never moves before
 * its checkpoint is there. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include "base/thread.h"
#include "train/checkpoint.h"
#include "train/metrics.h"

enum { CTI_SAVE_LINES = 4 };

typedef struct cti_save_job {
    /* what to do */
    bool write; /* the image, which the job owns; else only `best` is moved */
    cti_ckpt_image image;
    char best[CTI_CKPT_NAME_CAP]; /* points here afterwards when it is there; "": leave it */
    cti_state state;              /* for retention; without its config */
    int64_t keep_last, keep_best;
    char resumed_from[CTI_CKPT_NAME_CAP];
    cti_metrics
        *metrics; /* synced first: what the step has logged must be there with the checkpoint */
    /* what came of it */
    int result;
    ct_error err;
    int n_lines;
    struct {
        ct_log_level level;
        char text[800];
    } line[CTI_SAVE_LINES]; /* told when the job is taken back, in the run's thread */
} cti_save_job;

typedef struct cti_saver cti_saver;
cti_saver *cti_saver_start(cti_mem *m, const char *dir, ct_error *err);
/* Finishes what was handed over, then frees. NULL is fine. */
void cti_saver_free(cti_saver *s);

/* A job to fill, zeroed: cti_saver_submit hands it over. NULL while one of its kind is under way.
 */
cti_save_job *cti_saver_job(cti_saver *s, bool write);
void cti_saver_submit(cti_saver *s, cti_save_job *job);
/* Waits for the next job in order and takes it back until the next call; NULL: none is under way.
 */
const cti_save_job *cti_saver_wait(cti_saver *s);

#endif
