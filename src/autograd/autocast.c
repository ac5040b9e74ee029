/* SPDX-License-Identifier: Apache-2.0 */
/* Autocast: what an op gets in place of its operands inside a CT_SCOPE_AUTOCAST_* scope, by its policy (op.h). A
 * float leaf that lasts (a parameter) keeps its low-precision copy, the shadow, for as long as it isn't changed;
 * the graph's edge goes to the leaf itself, whose gradient is float32. All else is cast on the record. */
#include "autograd/internal.h"

#include <string.h>

bool ct_autocast_enabled(const ct_ctx *ctx, ct_dtype *dtype)
{
    if (dtype)
        *dtype = ctx && ctx->autocast ? ctx->autocast_dtype : CT_F32;
    return ctx && ctx->autocast;
}

/* float64 is never cast, as in PyTorch. */
static bool is_eligible(const ct_tensor *t)
{
    return t && (t->view.dtype == CT_F32 || t->view.dtype == CT_BF16 || t->view.dtype == CT_F16);
}

/* ---- shadows ---- */

static bool lasts(const ct_tensor *t)
{
    return !t->grad_fn && !t->base && !t->origin && (t->requires_grad || !t->scope) &&
           !t->storage->inference;
}

static ct_tensor *shadow_new(ct_tensor *t, ct_dtype dtype)
{
    ct_ctx *ctx = t->ctx;
    int64_t stride[CT_MAX_DIMS];
    cti_pool *pool = ctx->pool;
    cti_dense_order(&t->view, stride);
    ctx->pool = &ctx->main_pool;
    ct_tensor *s = cti_tensor_alloc(ctx, dtype, t->view.ndim, t->view.shape, stride);
    ctx->pool = pool;
    if (s)
        s->origin = t;
    return s;
}

/* Which capture is being recorded; 0: called work. */
static uint64_t serial(const ct_ctx *ctx)
{
    return cti_capture_is_recording(ctx) ? ctx->capture_serial : 0;
}

/* Captured work casts once in each replay: what changed the leaf before may be another replay. Called work
 * doesn't rely on a cast that was only recorded: the capture may have broken. */
static bool is_stale(const ct_tensor *t)
{
    return t->shadow_version != t->storage->version || t->shadow_serial != serial(t->ctx);
}

static ct_tensor *shadow_of(ct_tensor *t, ct_dtype dtype)
{
    ct_ctx *ctx = t->ctx;
    bool made = !t->shadow || t->shadow->view.dtype != dtype;
    if (made) {
        ct_tensor *s = shadow_new(t, dtype);
        if (!s)
            return NULL;
        ct_tensor_release(t->shadow);
        t->shadow = s;
    }
    t->shadow->requires_grad = t->requires_grad;
    cti_capture_uses(ctx, t->storage);
    cti_capture_uses(ctx, t->shadow->storage);
    if (!made && !is_stale(t))
        return t->shadow;
    int r = ctx->device.be->ew->copy(ctx->device.stream, &t->shadow->view, &t->view);
    if (r < 0) {
        cti_fail(&ctx->err, r, "autocast: casting a parameter to %s failed on %s (%s)",
                 ct_dtype_name(dtype), ctx->device.be->name, ct_status_name(r));
        return NULL;
    }
    if (!made && t->shadow_version != t->storage->version)
        cti_storage_changed(t->shadow->storage);
    t->shadow_version = t->storage->version;
    t->shadow_serial = serial(ctx);
    return t->shadow;
}

static ct_tensor *cast(ct_tensor *t, ct_dtype dtype)
{
    if (!is_eligible(t) || t->view.dtype == dtype)
        return t;
    if (t->view.dtype == CT_F32 && lasts(t))
        return shadow_of(t, dtype);
    return ct_cast(t, dtype);
}

/* ---- policies ---- */

/* The widest of the operands' dtypes; CT_DTYPE_COUNT: they have one. */
static ct_dtype widest(int n, ct_tensor *const *in)
{
    ct_dtype found = CT_DTYPE_COUNT;
    bool differ = false;
    for (int i = 0; i < n; i++) {
        if (!is_eligible(in[i]))
            continue;
        differ |= found != CT_DTYPE_COUNT && in[i]->view.dtype != found;
        found = found == CT_DTYPE_COUNT ? in[i]->view.dtype : found;
    }
    return differ ? CT_F32 : CT_DTYPE_COUNT;
}

static ct_dtype target(const cti_apply_call *call)
{
    const ct_ctx *ctx = cti_ctx_of(call->n_in, call->in);
    if (call->inplace)
        return is_eligible(call->in[0]) ? call->in[0]->view.dtype : CT_DTYPE_COUNT;
    switch (call->op->autocast) {
    case CTI_LOW:
        return ctx->autocast_dtype;
    case CTI_F32:
        return CT_F32;
    case CTI_WIDEST:
        return widest(call->n_in, call->in);
    default:
        return CT_DTYPE_COUNT;
    }
}

bool cti_autocast_changes(const cti_apply_call *call)
{
    if (call->op->autocast == CTI_AS_IS)
        return false;
    ct_dtype to = target(call);
    bool differs = false;
    for (int i = 0; i < call->n_in && to != CT_DTYPE_COUNT; i++)
        differs |= is_eligible(call->in[i]) && call->in[i]->view.dtype != to;
    return differs;
}

int cti_autocast(const cti_apply_call *call, ct_tensor **in)
{
    ct_ctx *ctx = cti_ctx_of(call->n_in, call->in);
    ct_dtype to = target(call);
    for (int i = 0; i < call->n_in; i++) {
        in[i] = call->in[i] ? cast(call->in[i], to) : NULL;
        if (call->in[i] && !in[i])
            return ctx->err.code;
    }
    return CT_OK;
}

ct_tensor *cti_operand(const ct_op *formula, ct_tensor *x)
{
    if (!x || !x->ctx->autocast || x->ctx->err.code)
        return x;
    return cast(x, formula->autocast == CTI_LOW ? x->ctx->autocast_dtype : CT_F32);
}

/* ---- gradients ---- */

/* g, of an operand that autocast cast, as the leaf's own dtype: g is taken over. */
ct_tensor *cti_uncast_gradient(cti_node *n, ct_tensor *g, const ct_tensor *leaf)
{
    ct_ctx *ctx = n->ctx;
    ct_tensor *wide;
    if (ctx->run->flags & CT_CREATE_GRAPH) {
        wide = ct_tensor_retain(ct_cast(g, leaf->view.dtype));
    } else {
        int64_t stride[CT_MAX_DIMS];
        cti_dense_order(&g->view, stride);
        wide = cti_tensor_alloc(ctx, leaf->view.dtype, g->view.ndim, g->view.shape, stride);
        if (wide && cti_kernel_status(
                        n, "casting a gradient",
                        ctx->device.be->ew->copy(ctx->device.stream, &wide->view, &g->view)) < 0) {
            ct_tensor_release(wide);
            wide = NULL;
        }
    }
    ct_tensor_release(g);
    return wide;
}
