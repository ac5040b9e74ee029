/* SPDX-License-Identifier: Apache-2.0 */
/* The convolutions of our own: for what cuDNN refuses. */
#ifndef BACKEND_CUDA_CONV_H
#define BACKEND_CUDA_CONV_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes all that the family's `run` takes; no workspace. */
int cti_cuda_conv_native(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args);

#ifdef __cplusplus
}
#endif
#endif
