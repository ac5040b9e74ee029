/* SPDX-License-Identifier: Apache-2.0 */
/* Making, sharing and looking at tensors. Reading and changing them: access.c. */
#include "autograd/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static ct_tensor *tensor_shell(ct_ctx *ctx)
{
    ct_tensor *t = cti_cache_get(ctx->cache, sizeof *t, "tensor");
    if (!t) {
        cti_fail(&ctx->err, CT_ENOMEM, "out of memory for a tensor");
        return NULL;
    }
    t->ctx = ctx;
    t->refs = 1;
    ctx->n_live_tensors++;
    return t;
}

/* Bytes of a shape; SIZE_MAX when they can't be counted. */
static size_t shape_bytes(ct_dtype dtype, int ndim, const int64_t *shape)
{
    uint64_t n = ct_dtype_bytes(dtype);
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0)
            empty = true;
        else if (n > (uint64_t)PTRDIFF_MAX / (uint64_t)shape[i])
            return SIZE_MAX;
        else
            n *= (uint64_t)shape[i];
    }
    return empty ? 0 : (size_t)n;
}

ct_tensor *cti_tensor_alloc(ct_ctx *ctx, ct_dtype dtype, int ndim, const int64_t *shape,
                            const int64_t *stride)
{
    ct_tensor *t = tensor_shell(ctx);
    if (!t)
        return NULL;
    t->storage = cti_storage_new(ctx, shape_bytes(dtype, ndim, shape));
    if (!t->storage) {
        ct_tensor_release(t);
        return NULL;
    }
    t->view.data = t->storage->data;
    t->view.dtype = dtype;
    t->view.ndim = ndim;
    for (int i = 0; i < ndim; i++)
        t->view.shape[i] = shape[i];
    if (stride)
        memcpy(t->view.stride, stride, (size_t)ndim * sizeof *stride);
    else
        cti_row_major(ndim, shape, t->view.stride);
    return t;
}

ct_tensor *cti_tensor_view_of(ct_ctx *ctx, cti_storage *st, const ct_view *view)
{
    ct_tensor *t = tensor_shell(ctx);
    if (!t)
        return NULL;
    cti_storage_retain(st);
    t->storage = st;
    t->view = *view;
    return t;
}

static int check_new(ct_ctx *ctx, ct_dtype dtype, int ndim, const int64_t *shape)
{
    if (ctx->err.code)
        return ctx->err.code;
    if ((unsigned)dtype >= CT_DTYPE_COUNT)
        return cti_fail(&ctx->err, CT_EINVAL, "tensor: dtype %d is unknown", (int)dtype);
    if (ndim < 0 || ndim > CT_MAX_DIMS)
        return cti_fail(&ctx->err, CT_EINVAL, "tensor: %d dimensions; allowed: 0 to %d", ndim,
                        CT_MAX_DIMS);
    if (ndim > 0 && !shape)
        return cti_fail(&ctx->err, CT_EINVAL, "tensor: shape is NULL");
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return cti_fail(&ctx->err, CT_EINVAL,
                            "tensor: size %" PRId64 " in dimension %d is "
                            "negative",
                            shape[i], i);
    }
    if (shape_bytes(dtype, ndim, shape) == SIZE_MAX)
        return cti_fail(&ctx->err, CT_ENOMEM,
                        "tensor: the shape has more elements than any memory");
    cti_enter(ctx);
    return CT_OK;
}

ct_tensor *ct_tensor_new(ct_ctx *ctx, ct_dtype dtype, int ndim, const int64_t *shape)
{
    if (!ctx || check_new(ctx, dtype, ndim, shape) < 0)
        return NULL;
    ct_tensor *t = cti_tensor_alloc(ctx, dtype, ndim, shape, NULL);
    if (t && ctx->device.be->ew->fill(ctx->device.stream, &t->view, 0) < 0) {
        cti_fail(&ctx->err, CT_EDEVICE, "tensor: filling failed on %s", ctx->device.be->name);
        ct_tensor_release(t);
        return NULL;
    }
    return t;
}

ct_tensor *ct_tensor_from(ct_ctx *ctx, ct_dtype dtype, int ndim, const int64_t *shape,
                          const void *host)
{
    if (!ctx || check_new(ctx, dtype, ndim, shape) < 0)
        return NULL;
    ct_tensor *t = cti_tensor_alloc(ctx, dtype, ndim, shape, NULL);
    size_t bytes = shape_bytes(dtype, ndim, shape);
    if (t && bytes && !host) {
        cti_fail(&ctx->err, CT_EINVAL, "tensor: the data to copy is NULL");
        ct_tensor_release(t);
        return NULL;
    }
    if (t && bytes &&
        ctx->device.be->mem->upload(ctx->device.stream, t->view.data, host, bytes) < 0) {
        cti_fail(&ctx->err, CT_EDEVICE, "tensor: copying to %s failed", ctx->device.be->name);
        ct_tensor_release(t);
        return NULL;
    }
    return t;
}

ct_tensor *ct_tensor_scalar(ct_ctx *ctx, ct_dtype dtype, double value)
{
    ct_tensor *t = ct_tensor_new(ctx, dtype, 0, NULL);
    if (t && ctx->device.be->ew->fill(ctx->device.stream, &t->view, value) < 0) {
        cti_fail(&ctx->err, CT_EDEVICE, "tensor: filling failed on %s", ctx->device.be->name);
        ct_tensor_release(t);
        return NULL;
    }
    return t;
}

ct_tensor *ct_tensor_retain(ct_tensor *t)
{
    if (t)
        t->refs++;
    return t;
}

void ct_tensor_release(ct_tensor *t)
{
    if (!t || --t->refs > 0)
        return;
    ct_ctx *ctx = t->ctx;
    if (t->scope)
        cti_scope_leave(t);
    ct_tensor_release(t->grad);
    ct_tensor_release(t->grad_home);
    ct_tensor_release(t->shadow);
    cti_storage_release(t->storage);
    if (t->keeps_grad)
        cti_hooks_forget_keeper(t);
    cti_hooks_free(ctx, &t->hooks);
    ct_tensor *base = t->base;
    cti_node *fn = t->grad_fn;
    ctx->n_live_tensors--;
    cti_cache_put(ctx->cache, t, sizeof *t);
    if (fn)
        cti_node_release(fn);
    ct_tensor_release(base);
}

ct_tensor *ct_detach(ct_tensor *x)
{
    if (!x || x->ctx->err.code)
        return NULL;
    ct_tensor *t = cti_tensor_view_of(x->ctx, x->storage, &x->view);
    if (t)
        cti_scope_adopt(x->ctx, t);
    return t;
}

ct_ctx *ct_tensor_ctx(const ct_tensor *t)
{
    return t->ctx;
}

ct_dtype ct_tensor_dtype(const ct_tensor *t)
{
    return t->view.dtype;
}

int ct_tensor_ndim(const ct_tensor *t)
{
    return t->view.ndim;
}

const int64_t *ct_tensor_shape(const ct_tensor *t)
{
    return t->view.shape;
}

const int64_t *ct_tensor_strides(const ct_tensor *t)
{
    return t->view.stride;
}

int64_t ct_tensor_size(const ct_tensor *t, int dim)
{
    if (dim < 0)
        dim += t->view.ndim;
    return dim >= 0 && dim < t->view.ndim ? t->view.shape[dim] : 0;
}

int64_t ct_tensor_numel(const ct_tensor *t)
{
    return ct_view_numel(&t->view);
}

bool ct_tensor_is_contiguous(const ct_tensor *t)
{
    return cti_view_is_row_major(&t->view);
}

bool ct_tensor_is_channels_last(const ct_tensor *t)
{
    return cti_view_channels_last(&t->view);
}

uint64_t ct_tensor_version(const ct_tensor *t)
{
    return t->storage->version;
}

bool ct_tensor_shares_storage(const ct_tensor *a, const ct_tensor *b)
{
    return a->storage == b->storage;
}

void *ct_tensor_data(const ct_tensor *t)
{
    return t->ctx->device.be->host_memory ? t->view.data : NULL;
}

void *cti_tensor_ptr(const struct ct_tensor *t)
{
    return t->view.data;
}

void cti_tensor_bump(struct ct_tensor *t)
{
    cti_storage_changed(t->storage);
}

const char *ct_tensor_describe(const ct_tensor *t, char *buf, size_t cap)
{
    char shape[128];
    if (!t)
        snprintf(buf, cap, "none");
    else
        snprintf(buf, cap, "%s %s", ct_dtype_name(t->view.dtype),
                 cti_shape_str(&t->view, shape, sizeof shape));
    return buf;
}

/* ---- gradients of leaves ---- */

int ct_tensor_set_requires_grad(ct_ctx *ctx, ct_tensor *t, bool requires_grad)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!t || t->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "set_requires_grad: the tensor is %s",
                        t ? "of another context" : "NULL");
    if (t->grad_fn)
        return cti_fail(&ctx->err, CT_ESTATE,
                        "set_requires_grad: only leaves can be told; this is a result of '%s': use "
                        "ct_detach for a leaf that shares its data",
                        t->grad_fn->op->name);
    if (requires_grad && !ct_dtype_is_float(t->view.dtype))
        return cti_fail(&ctx->err, CT_EDTYPE,
                        "set_requires_grad: %s tensors have no gradient, only "
                        "floating-point ones",
                        ct_dtype_name(t->view.dtype));
    if (requires_grad && t->storage->inference && !ctx->inference)
        return cti_fail(&ctx->err, CT_ESTATE,
                        "set_requires_grad: the tensor was made in inference mode "
                        "(CT_SCOPE_INFERENCE); ct_clone it outside of that scope");
    t->requires_grad = requires_grad;
    return CT_OK;
}

bool ct_tensor_requires_grad(const ct_tensor *t)
{
    return t->requires_grad || (t->base && t->base_changes != t->base->changes);
}

bool ct_tensor_is_leaf(const ct_tensor *t)
{
    return !t->grad_fn && !(t->base && t->base_changes != t->base->changes);
}

bool ct_tensor_is_inference(const ct_tensor *t)
{
    return t->storage->inference;
}

ct_tensor *ct_tensor_grad(const ct_tensor *t)
{
    return t ? t->grad : NULL;
}

int ct_tensor_set_grad(ct_ctx *ctx, ct_tensor *t, ct_tensor *grad)
{
    char a[160], b[160];
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!t || t->ctx != ctx || (grad && grad->ctx != ctx))
        return cti_fail(&ctx->err, CT_EINVAL, "set_grad: the tensor is NULL or of another context");
    if (grad && (!cti_same_shape(&t->view, &grad->view) || t->view.dtype != grad->view.dtype))
        return cti_fail(&ctx->err, CT_ESHAPE, "set_grad: the gradient is %s, its tensor %s",
                        ct_tensor_describe(grad, a, sizeof a), ct_tensor_describe(t, b, sizeof b));
    if (grad && grad->requires_grad)
        return cti_fail(&ctx->err, CT_ESTATE,
                        "set_grad: the gradient requires grad itself; detach it");
    ct_tensor_retain(grad);
    ct_tensor_release(t->grad);
    t->grad = grad;
    return CT_OK;
}

void ct_zero_grad(ct_tensor *t)
{
    if (!t)
        return;
    ct_tensor_release(t->grad);
    t->grad = NULL;
}
