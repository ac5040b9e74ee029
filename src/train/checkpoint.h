/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: directories that are complete and verified, or not there. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "train/state.h"
#include <ctrain/train.h>

#define CTI_PATH_CAP      1400
#define CTI_CKPT_NAME_CAP 32 /* "step-00001200", up to 19 digits */

/* Where a run tells people something; the text has no final newline. */
typedef struct cti_say {
    void (*line)(ct_log_level level, const char *text, void *user);
    void *user;
} cti_say;
void cti_tell(const cti_say *say, ct_log_level level, const char *fmt, ...) CT_PRINTF(3, 4);

void cti_ckpt_name(char out[CTI_CKPT_NAME_CAP], int64_t step);
bool cti_ckpt_step(const char *name, int64_t *step); /* false: not the name of a checkpoint */

typedef struct cti_ckpt_parts {
    const ct_named_tensor *model, *optim;
    int n_model, n_optim;
    const cti_state *state;
} cti_ckpt_parts;

/* The content of a checkpoint's files in memory: taken in the context's thread, written in any. */
enum { CTI_CKPT_FILES = 3 };
typedef struct cti_ckpt_image {
    int64_t step;
    void *data[CTI_CKPT_FILES]; /* model, optimizer, state */
    size_t bytes[CTI_CKPT_FILES];
} cti_ckpt_image;

int cti_ckpt_image_make(ct_ctx *ctx, cti_mem *m, const cti_ckpt_parts *parts, cti_ckpt_image *out,
                        ct_error *err);
void cti_ckpt_image_free(cti_mem *m, cti_ckpt_image *image);

/* Writes DIR/step-N and points DIR/last at it, replacing one of the same step. A failure leaves
 * what was there. Once, no retry. */
int cti_ckpt_write(const char *dir, const cti_ckpt_image *image, ct_error *err);
/* Tries three times on CT_EIO, telling each failure. */
int cti_ckpt_save(const char *dir, const cti_ckpt_image *image, const cti_say *say, ct_error *err);

/* Every file that MANIFEST lists has its size and checksum, and none is missing. */
int cti_ckpt_verify(cti_mem *m, const char *path, ct_error *err);
int cti_ckpt_read_state(cti_mem *m, const char *path, cti_state *out, ct_error *err);

/* Pointers: files that hold a directory's name. name[0] == 0: there is none, or it is no name. */
void cti_ckpt_pointer(cti_mem *m, const char *dir, const char *pointer,
                      char name[CTI_CKPT_NAME_CAP]);
int cti_ckpt_point(const char *dir, const char *pointer, const char *name, ct_error *err);

/* The name of the checkpoint that `pointer` ("last", "best") means: what it points at when that is
 * valid, else the newest valid one that is not newer, loudly. CT_EDATA when DIR has no checkpoint
 * at all, CT_EFORMAT when none is valid. */
int cti_ckpt_find(cti_mem *m, const char *dir, const char *pointer, const cti_say *say,
                  char name[CTI_CKPT_NAME_CAP], ct_error *err);
/* True when DIR has a directory named like a checkpoint. */
bool cti_ckpt_any(cti_mem *m, const char *dir);

/* Removes what a killed save left behind. The caller holds the run's lock. */
int cti_ckpt_sweep(cti_mem *m, const char *dir, const cti_say *say, ct_error *err);

/* Deletes checkpoints but the keep_last newest up to state->step, the keep_best best, those that
 * `last` and `best` point at, and `resumed_from` ("": none). Later steps, of an abandoned line of
 * the run, are left alone. */
int cti_ckpt_retain(cti_mem *m, const char *dir, const cti_state *state, int64_t keep_last,
                    int64_t keep_best, const char *resumed_from, ct_error *err);

#endif
