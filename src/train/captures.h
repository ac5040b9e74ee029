/* SPDX-License-Identifier: Apache-2.0 */
/* Captured pieces of a run, by what they depend on: the number of samples in the batch and a kind. */
#ifndef TRAIN_CAPTURES_H
#define TRAIN_CAPTURES_H

#include <ctrain/device.h>

enum { CTI_CAPTURES = 8 }; /* beyond them work is called, not replayed */

typedef enum cti_work { CTI_WORK_FIRST, CTI_WORK_MORE, CTI_WORK_STEP, CTI_WORK_EVAL } cti_work;

typedef struct cti_captures {
    ct_ctx *ctx;
    bool on;
    int n;
    struct {
        cti_work work;
        int64_t count;
        ct_tensor *x; /* the batch's tensor, owned: another one needs another capture */
        ct_capture *capture;
    } entry[CTI_CAPTURES];
} cti_captures;

void cti_captures_clear(cti_captures *c); /* before the context */
/* ct_capture_run of the piece that this is. */
int cti_captured(cti_captures *c, cti_work work, int64_t count, ct_tensor *x,
                 int (*fn)(void *user), void *user);
/* Why work is not captured: "" when it is. */
const char *cti_captures_refused(const cti_captures *c);

#endif
