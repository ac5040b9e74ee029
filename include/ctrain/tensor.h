/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors: strided views of refcounted storages. */
#ifndef CTRAIN_TENSOR_H
#define CTRAIN_TENSOR_H

#include <ctrain/ctx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making ---- Owned by the caller; NULL on error. Leaves: no op made them. */

/* Zeros, row-major. ndim 0 is a scalar; sizes may be 0. */
CT_NODISCARD ct_tensor *ct_tensor_new(ct_ctx *ctx, ct_dtype dtype, int ndim, const int64_t *shape);
/* A copy of `host`: row-major elements of `dtype`. */
CT_NODISCARD ct_tensor *ct_tensor_from(ct_ctx *ctx, ct_dtype dtype, int ndim, const int64_t *shape,
                                       const void *host);
CT_NODISCARD ct_tensor *ct_tensor_scalar(ct_ctx *ctx, ct_dtype dtype, double value);

ct_tensor *ct_tensor_retain(ct_tensor *t); /* one more owner; NULL passes through */
void ct_tensor_release(ct_tensor *t);      /* one owner less; NULL is fine */

/* ---- looking ---- Getters borrow and never fail. */
ct_ctx *ct_tensor_ctx(const ct_tensor *t);
ct_dtype ct_tensor_dtype(const ct_tensor *t);
int ct_tensor_ndim(const ct_tensor *t);
const int64_t *ct_tensor_shape(const ct_tensor *t);
const int64_t *ct_tensor_strides(const ct_tensor *t); /* in elements */
int64_t ct_tensor_size(const ct_tensor *t, int dim);  /* dim may be negative; 0 when out of range */
int64_t ct_tensor_numel(const ct_tensor *t);
bool ct_tensor_is_contiguous(const ct_tensor *t);    /* row-major, dense */
bool ct_tensor_is_channels_last(const ct_tensor *t); /* 4-D, dense, C innermost */
uint64_t ct_tensor_version(const ct_tensor *t);      /* in-place changes of its storage so far */
/* True when both look at the same storage. */
bool ct_tensor_shares_storage(const ct_tensor *a, const ct_tensor *b);
/* The elements in host memory, by strides; NULL when the device's memory can't be read by the host.
 * Writing through it is for fresh leaves alone: it bypasses the version counter. */
void *ct_tensor_data(const ct_tensor *t);

/* ---- reading and changing ---- Acting calls: 0 or the error. In-place changes bump the version; on a
 * tensor that requires grad they are refused while grads are being recorded (CT_ESTATE). */

/* Row-major elements of the tensor's dtype; bytes must be exactly numel * size. Waits for the device. */
CT_NODISCARD int ct_tensor_read(ct_ctx *ctx, const ct_tensor *t, void *host, size_t bytes);
/* The one element of a one-element tensor, as a double. Waits for the device. */
CT_NODISCARD int ct_tensor_item(ct_ctx *ctx, const ct_tensor *t, double *out);
CT_NODISCARD int ct_tensor_write(ct_ctx *ctx, ct_tensor *t, const void *host, size_t bytes);
CT_NODISCARD int ct_tensor_fill(ct_ctx *ctx, ct_tensor *t, double value);
/* dst = src, converted to dst's dtype, broadcast to dst's shape. */
CT_NODISCARD int ct_tensor_copy(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src);
/* dst = dst + alpha * src (PyTorch: add_), broadcast to dst's shape, one dtype. */
CT_NODISCARD int ct_tensor_add(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src, double alpha);
/* Draws of stream `init`: the k-th such call of a context has ordinal k. */
CT_NODISCARD int ct_tensor_uniform(ct_ctx *ctx, ct_tensor *t, double low, double high);
CT_NODISCARD int ct_tensor_normal(ct_ctx *ctx, ct_tensor *t, double mean, double std);

/* "float32 [64,10]" into buf; returns buf. */
const char *ct_tensor_describe(const ct_tensor *t, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
