/* SPDX-License-Identifier: Apache-2.0 */
/* How a layer above the tape (the optimizers) reaches a context's device. Implemented by autograd. */
#ifndef BACKEND_DEVICE_H
#define BACKEND_DEVICE_H

#include "backend/backend.h"

struct ct_ctx;
struct ct_tensor;

typedef struct cti_device {
    const ct_backend *be;
    ct_stream *stream;
} cti_device;

/* Ready for work of this thread. */
cti_device *cti_ctx_device(struct ct_ctx *ctx);
/* Errors that only the device knew of so far (an index out of range): the context's error code. */
int cti_ctx_verdicts(struct ct_ctx *ctx);
/* The device address of the tensor's first element. */
void *cti_tensor_ptr(const struct ct_tensor *t);
/* The tensor was changed in place: its storage's version + 1. */
void cti_tensor_bump(struct ct_tensor *t);

#endif
