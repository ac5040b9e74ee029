/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm by our own kernels: every layout and dtype that ct_k_norm promises. */
#ifndef BACKEND_CUDA_NORM_H
#define BACKEND_CUDA_NORM_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t cti_cuda_bn_native_workspace(ct_stream *s, const ct_view *x);
int cti_cuda_bn_native_train(ct_stream *s, const ct_batchnorm_args *args);
int cti_cuda_bn_native_eval(ct_stream *s, const ct_batchnorm_args *args);
int cti_cuda_bn_native_grad(ct_stream *s, bool train, const ct_view *dx, int beta,
                            const ct_view *dw, const ct_view *db, const ct_view *dy,
                            const ct_view *x, const ct_view *weight, const ct_view *mean,
                            const ct_view *invstd, void *workspace);

#ifdef __cplusplus
}
#endif
#endif
