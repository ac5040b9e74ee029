/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.utils.clip_grad_norm_: c = min(1, max_norm / (norm + 1e-6)), always multiplied. */
#include "backend/backend.h"
#include "backend/device.h"
#include "base/ctxmem.h"
#include "base/mem.h"
#include <ctrain/optim.h>

#include <math.h>
#include <string.h>

typedef struct clip {
    ct_ctx *ctx;
    int n;
    ct_dtype dtype;
    ct_tensor **grads; /* borrowed from their parameters; dense */
    ct_opt_param *list;
} clip;

static ct_view view_of(ct_tensor *t)
{
    ct_view v = {.data = cti_tensor_ptr(t), .dtype = ct_tensor_dtype(t), .ndim = ct_tensor_ndim(t)};

    memcpy(v.shape, ct_tensor_shape(t), (size_t)v.ndim * sizeof *v.shape);
    memcpy(v.stride, ct_tensor_strides(t), (size_t)v.ndim * sizeof *v.stride);
    return v;
}

/* The gradient of p as a tensor that is dense and may be written; NULL with the error set. */
static ct_tensor *dense_grad(ct_ctx *ctx, ct_tensor *p)
{
    ct_tensor *g = ct_tensor_grad(p);

    if (ct_tensor_is_contiguous(g) || ct_tensor_is_channels_last(g))
        return g;
    if (ct_tensor_set_grad(ctx, p, ct_contiguous(g)) != CT_OK)
        return NULL;
    return ct_tensor_grad(p);
}

static int collect(clip *c, const ct_named_tensor *params, int n)
{
    for (int i = 0; i < n; i++) {
        ct_tensor *p = params[i].tensor, *g;
        bool again = false;

        if (params[i].is_buffer || !p || !ct_tensor_grad(p))
            continue;
        if (ct_tensor_ctx(p) != c->ctx)
            return ct_error_raise(c->ctx, CT_EINVAL, "ct_clip_grad_norm",
                                  "clip_grad_norm: %s is of another context", params[i].name);
        g = dense_grad(c->ctx, p);
        if (!g)
            return ct_error_code(c->ctx);
        if (c->n == 0)
            c->dtype = ct_tensor_dtype(g);
        if (ct_tensor_dtype(g) != c->dtype)
            return ct_error_raise(c->ctx, CT_EDTYPE, "ct_clip_grad_norm",
                                  "clip_grad_norm: %s is %s, others are %s", params[i].name,
                                  ct_dtype_name(ct_tensor_dtype(g)), ct_dtype_name(c->dtype));
        for (int k = 0; k < c->n && !again; k++)
            again = c->grads[k] == g;
        if (again)
            continue;
        c->grads[c->n] = g;
        c->list[c->n++] = (ct_opt_param){.g = cti_tensor_ptr(g), .n = ct_tensor_numel(g)};
    }
    return CT_OK;
}

static int failed(const clip *c, int rc)
{
    if (rc == CT_OK || ct_error_code(c->ctx) != CT_OK)
        return rc == CT_OK ? CT_OK : ct_error_code(c->ctx);
    return ct_error_raise(
        c->ctx, rc, "ct_clip_grad_norm", "clip_grad_norm: a kernel for %s failed on device %s (%s)",
        ct_dtype_name(c->dtype), cti_ctx_device(c->ctx)->be->name, ct_status_name(rc));
}

static int measure(const clip *c, double *norm)
{
    const cti_device *dev = cti_ctx_device(c->ctx);
    const int64_t sc_bytes = sizeof(ct_opt_scalars);
    int64_t work_bytes = (int64_t)dev->be->optim->workspace(dev->stream, c->dtype, c->n, c->list);
    ct_tensor *sc = ct_tensor_new(c->ctx, CT_U8, 1, &sc_bytes);
    ct_tensor *work = ct_tensor_new(c->ctx, CT_U8, 1, &work_bytes);
    ct_opt_scalars out;
    int rc = ct_error_code(c->ctx);

    if (sc && work) {
        rc = dev->be->optim->norm(dev->stream, c->dtype, c->n, c->list, NULL, NULL,
                                  cti_tensor_ptr(sc), cti_tensor_ptr(work));
        if (rc == CT_OK)
            rc = dev->be->mem->download(dev->stream, &out, cti_tensor_ptr(sc), sizeof out);
        if (rc == CT_OK)
            *norm = out.grad_norm;
        rc = failed(c, rc);
    }
    ct_tensor_release(sc);
    ct_tensor_release(work);
    return rc;
}

static int scale(const clip *c, double factor)
{
    const cti_device *dev = cti_ctx_device(c->ctx);
    int rc = CT_OK;

    for (int i = 0; i < c->n && rc == CT_OK; i++) {
        ct_view g = view_of(c->grads[i]);

        rc = dev->be->ew->affine(dev->stream, &g, 0, &g, factor, 0);
        cti_tensor_bump(c->grads[i]);
    }
    return failed(c, rc);
}

static int run(clip *c, const ct_named_tensor *params, int n, double max_norm, double *norm)
{
    double factor;
    int rc = collect(c, params, n);

    if (rc == CT_OK && c->n > 0)
        rc = measure(c, norm);
    if (rc != CT_OK || c->n == 0)
        return rc;
    factor = max_norm / (*norm + 1e-6); /* NaN stays NaN */
    return scale(c, factor > 1 ? 1 : factor);
}

int ct_clip_grad_norm(ct_ctx *ctx, const ct_named_tensor *params, int n, double max_norm,
                      double *norm)
{
    clip c = {.ctx = ctx};
    double unused;
    int rc, end;

    if (!ctx)
        return CT_EINVAL;
    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    if (n < 0 || (n > 0 && !params) || !(max_norm >= 0))
        return ct_error_raise(
            ctx, CT_EINVAL, __func__,
            "clip_grad_norm: max_norm is %g: must be at least 0; or no parameters", max_norm);
    norm = norm ? norm : &unused;
    *norm = 0;
    rc = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    if (rc != CT_OK)
        return rc;
    c.grads = cti_alloc(cti_ctx_mem(ctx), (size_t)n * sizeof *c.grads, __func__);
    c.list = cti_alloc(cti_ctx_mem(ctx), (size_t)n * sizeof *c.list, __func__);
    if (!c.grads || !c.list)
        rc = ct_error_raise(ctx, CT_ENOMEM, __func__, "clip_grad_norm: out of memory");
    else
        rc = run(&c, params, n, max_norm, norm);
    cti_free(cti_ctx_mem(ctx), c.grads);
    cti_free(cti_ctx_mem(ctx), c.list);
    end = ct_scope_end(ctx);
    return rc != CT_OK ? rc : end;
}
