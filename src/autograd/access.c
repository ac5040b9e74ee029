/* SPDX-License-Identifier: Apache-2.0 */
/* Reading tensors to the host and changing them in place. */
#include "autograd/internal.h"

#include <string.h>

static int check_no_repeat(const ct_tensor *t, const char *who)
{
    for (int i = 0; i < t->view.ndim; i++) {
        if (t->view.shape[i] > 1 && t->view.stride[i] == 0)
            return cti_fail(&t->ctx->err, CT_EINVAL,
                            "%s: the tensor is expanded: several of its elements are one place in "
                            "memory; ct_clone it first",
                            who);
    }
    return CT_OK;
}

int cti_check_inplace(ct_ctx *ctx, ct_tensor *t, const char *who)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!t || t->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "%s: the tensor is %s", who,
                        t ? "of another context" : "NULL");
    if (ct_tensor_requires_grad(t) && ctx->grad_mode)
        return cti_fail(&ctx->err, CT_ESTATE,
                        "%s: a %s that requires grad can't be changed in place while gradients are "
                        "recorded; do it inside a CT_SCOPE_NO_GRAD scope",
                        who, t->grad_fn ? "result" : "leaf");
    if (t->storage->inference && !ctx->inference)
        return cti_fail(
            &ctx->err, CT_ESTATE,
            "%s: the tensor was made in inference mode (CT_SCOPE_INFERENCE): it can't be "
            "changed in place outside of it; ct_clone it",
            who);
    cti_enter(ctx);
    return check_no_repeat(t, who);
}

static int done(ct_ctx *ctx, ct_tensor *t, const char *who, int status)
{
    if (status < 0 && !ctx->err.code)
        return cti_fail(&ctx->err, status, "%s: %s isn't possible on %s (%s)", who,
                        ct_dtype_name(t->view.dtype), ctx->device.be->name, ct_status_name(status));
    cti_storage_changed(t->storage);
    return ctx->err.code;
}

static int check_bytes(ct_ctx *ctx, const ct_tensor *t, size_t bytes, const char *who)
{
    char d[160];
    size_t want = (size_t)ct_tensor_numel(t) * ct_dtype_bytes(t->view.dtype);
    if (bytes != want)
        return cti_fail(&ctx->err, CT_EINVAL, "%s: the buffer has %zu bytes, %s has %zu", who,
                        bytes, ct_tensor_describe(t, d, sizeof d), want);
    return CT_OK;
}

/* t itself when row-major, else a row-major temporary with its values. A new reference. */
static ct_tensor *row_major_copy(ct_ctx *ctx, const ct_tensor *t, bool fill)
{
    if (cti_view_is_row_major(&t->view))
        return ct_tensor_retain((ct_tensor *)t);
    ct_tensor *c = cti_tensor_alloc(ctx, t->view.dtype, t->view.ndim, t->view.shape, NULL);
    if (c && fill && ctx->device.be->ew->copy(ctx->device.stream, &c->view, &t->view) < 0) {
        cti_fail(&ctx->err, CT_EDEVICE, "copying a tensor failed on %s", ctx->device.be->name);
        ct_tensor_release(c);
        return NULL;
    }
    return c;
}

int ct_tensor_read(ct_ctx *ctx, const ct_tensor *t, void *host, size_t bytes)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!t || t->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "read: the tensor is %s",
                        t ? "of another context" : "NULL");
    if (check_bytes(ctx, t, bytes, "read") < 0 || bytes == 0)
        return ctx->err.code;
    cti_enter(ctx);
    ct_tensor *c = row_major_copy(ctx, t, true);
    if (!c)
        return ctx->err.code;
    int r = ctx->device.be->mem->download(ctx->device.stream, host, c->view.data, bytes);
    ct_tensor_release(c);
    if (r < 0 && !ctx->err.code)
        cti_fail(&ctx->err, CT_EDEVICE, "read: copying from %s failed", ctx->device.be->name);
    return cti_late_look(ctx);
}

int ct_tensor_item(ct_ctx *ctx, const ct_tensor *t, double *out)
{
    char d[160];
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!t || t->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "item: the tensor is %s",
                        t ? "of another context" : "NULL");
    if (ct_tensor_numel(t) != 1)
        return cti_fail(&ctx->err, CT_ESHAPE, "item: %s has not one element",
                        ct_tensor_describe(t, d, sizeof d));
    int64_t i = 0;
    double f = 0;
    bool is_float = ct_dtype_is_float(t->view.dtype);
    ct_view v = {.dtype = is_float ? CT_F64 : CT_I64, .ndim = t->view.ndim};
    memcpy(v.shape, t->view.shape, sizeof v.shape);
    cti_enter(ctx);
    cti_storage *st = cti_storage_new(ctx, 8);
    if (!st)
        return ctx->err.code;
    v.data = st->data;
    int r = ctx->device.be->ew->copy(ctx->device.stream, &v, &t->view);
    if (r == CT_OK)
        r = ctx->device.be->mem->download(ctx->device.stream, is_float ? (void *)&f : (void *)&i,
                                          st->data, 8);
    cti_storage_release(st);
    if (r < 0 && !ctx->err.code)
        cti_fail(&ctx->err, CT_EDEVICE, "item: copying from %s failed", ctx->device.be->name);
    if (cti_late_look(ctx) == CT_OK)
        *out = is_float ? f : (double)i;
    return ctx->err.code;
}

int ct_tensor_write(ct_ctx *ctx, ct_tensor *t, const void *host, size_t bytes)
{
    if (cti_check_inplace(ctx, t, "write") < 0 || check_bytes(ctx, t, bytes, "write") < 0)
        return ctx ? ctx->err.code : CT_EINVAL;
    if (bytes == 0)
        return CT_OK;
    ct_tensor *c = row_major_copy(ctx, t, false);
    if (!c)
        return ctx->err.code;
    int r = ctx->device.be->mem->upload(ctx->device.stream, c->view.data, host, bytes);
    if (r == CT_OK && c != t)
        r = ctx->device.be->ew->copy(ctx->device.stream, &t->view, &c->view);
    ct_tensor_release(c);
    return done(ctx, t, "write", r);
}

int ct_tensor_fill(ct_ctx *ctx, ct_tensor *t, double value)
{
    int r = cti_check_inplace(ctx, t, "fill");
    return r < 0 ?
               r :
               done(ctx, t, "fill", ctx->device.be->ew->fill(ctx->device.stream, &t->view, value));
}

/* src broadcast to dst's shape; shared checks of copy and add. */
static int check_source(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src, const char *who,
                        ct_view *out)
{
    char a[160], b[160];
    if (cti_check_inplace(ctx, dst, who) < 0)
        return ctx ? ctx->err.code : CT_EINVAL;
    if (!src || src->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "%s: the source is %s", who,
                        src ? "of another context" : "NULL");
    if (src->requires_grad && ctx->grad_mode)
        return cti_fail(&ctx->err, CT_ESTATE,
                        "%s: the source requires grad and in-place calls are not "
                        "recorded; use an op, or ct_detach",
                        who);
    int lead = dst->view.ndim - src->view.ndim;
    bool fits = lead >= 0;
    for (int i = 0; fits && i < src->view.ndim; i++)
        fits = src->view.shape[i] == dst->view.shape[i + lead] || src->view.shape[i] == 1;
    if (!fits)
        return cti_fail(&ctx->err, CT_ESHAPE, "%s: %s doesn't broadcast to %s", who,
                        ct_tensor_describe(src, a, sizeof a), ct_tensor_describe(dst, b, sizeof b));
    *out = cti_view_expand(&src->view, dst->view.ndim, dst->view.shape);
    return CT_OK;
}

int ct_tensor_copy(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src)
{
    ct_view v;
    int r = check_source(ctx, dst, src, "copy", &v);
    return r < 0 ?
               r :
               done(ctx, dst, "copy", ctx->device.be->ew->copy(ctx->device.stream, &dst->view, &v));
}

int ct_tensor_add(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src, double alpha)
{
    ct_view v;
    int r = check_source(ctx, dst, src, "add", &v);
    if (r < 0)
        return r;
    if (v.dtype != dst->view.dtype)
        return cti_fail(&ctx->err, CT_EDTYPE, "add: dtypes differ: %s and %s",
                        ct_dtype_name(dst->view.dtype), ct_dtype_name(v.dtype));
    return done(ctx, dst, "add",
                ctx->device.be->ew->affine(ctx->device.stream, &dst->view, 1, &v, alpha, 0));
}

static ct_rng init_rng(ct_ctx *ctx)
{
    ct_rng rng = {.key = cti_rng_key_make(ctx->seed, CTI_STREAM_INIT),
                  .ordinal = ctx->init_ordinal++};
    return rng;
}

int ct_tensor_uniform(ct_ctx *ctx, ct_tensor *t, double low, double high)
{
    int r = cti_check_inplace(ctx, t, "uniform");
    if (r < 0)
        return r;
    ct_rng rng = init_rng(ctx);
    return done(ctx, t, "uniform",
                ctx->device.be->random->uniform(ctx->device.stream, &t->view, low, high, &rng));
}

int ct_tensor_normal(ct_ctx *ctx, ct_tensor *t, double mean, double std)
{
    int r = cti_check_inplace(ctx, t, "normal");
    if (r < 0)
        return r;
    ct_rng rng = init_rng(ctx);
    return done(ctx, t, "normal",
                ctx->device.be->random->normal(ctx->device.stream, &t->view, mean, std, &rng));
}
