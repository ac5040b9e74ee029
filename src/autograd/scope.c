/* SPDX-License-Identifier: Apache-2.0 */
/* Scopes own the results of ops and the grad mode. */
#include "autograd/internal.h"

#include <inttypes.h>

int ct_scope_begin(ct_ctx *ctx, unsigned flags)
{
    if (!ctx)
        return CT_EINVAL;
    /* Opened also while an error is pending, so that begin and end always pair. */
    cti_scope *s = cti_cache_get(ctx->cache, sizeof *s, "scope");
    if (!s)
        return cti_fail(&ctx->err, CT_ENOMEM, "out of memory for a scope");
    s->parent = ctx->scope;
    s->flags = flags;
    s->outer_grad_mode = ctx->grad_mode;
    s->outer_inference = ctx->inference;
    s->outer_anomaly = ctx->anomaly;
    s->outer_autocast = ctx->autocast;
    s->outer_autocast_dtype = ctx->autocast_dtype;
    if (flags & (CT_SCOPE_AUTOCAST_BF16 | CT_SCOPE_AUTOCAST_F16)) {
        ctx->autocast = true;
        ctx->autocast_dtype = flags & CT_SCOPE_AUTOCAST_BF16 ? CT_BF16 : CT_F16;
    }
    if (flags & CT_SCOPE_AUTOCAST_OFF)
        ctx->autocast = false;
    s->live_nodes_at_begin = ctx->n_live_nodes;
    if (flags & CT_SCOPE_ANOMALY && !ctx->anomaly) {
        ctx->anomaly = true;
        ctx->passed_on[0] = '\0';
    }
    if (flags & CT_SCOPE_INFERENCE)
        ctx->inference = true;
    if (ctx->inference || flags & CT_SCOPE_NO_GRAD)
        ctx->grad_mode = false;
    else if (flags & CT_SCOPE_GRAD)
        ctx->grad_mode = true;
    ctx->scope = s;
    return CT_OK;
}

void cti_scope_adopt(ct_ctx *ctx, ct_tensor *t)
{
    cti_scope *s = ctx->scope;
    t->scope = s;
    t->scope_prev = NULL;
    t->scope_next = s->first;
    if (s->first)
        s->first->scope_prev = t;
    s->first = t;
}

void cti_scope_leave(ct_tensor *t)
{
    if (t->scope_prev)
        t->scope_prev->scope_next = t->scope_next;
    else
        t->scope->first = t->scope_next;
    if (t->scope_next)
        t->scope_next->scope_prev = t->scope_prev;
    t->scope = NULL;
    t->scope_prev = t->scope_next = NULL;
}

int ct_scope_end(ct_ctx *ctx)
{
    if (!ctx)
        return CT_EINVAL;
    cti_scope *s = ctx->scope;
    if (s == &ctx->root)
        return cti_fail(&ctx->err, CT_ESTATE,
                        "no scope is open: each ct_scope_end needs a "
                        "ct_scope_begin");
    while (s->first) {
        ct_tensor *t = s->first;
        cti_scope_leave(t);
        ct_tensor_release(t);
    }
    ctx->scope = s->parent;
    ctx->grad_mode = s->outer_grad_mode;
    ctx->inference = s->outer_inference;
    ctx->anomaly = s->outer_anomaly;
    ctx->autocast = s->outer_autocast;
    ctx->autocast_dtype = s->outer_autocast_dtype;
    if ((s->flags & CT_SCOPE_STEP) && ctx->n_live_nodes > s->live_nodes_at_begin)
        cti_fail(&ctx->err, CT_ESTATE,
                 "the step ended with %" PRIu64 " live graph nodes, it began with %" PRIu64
                 ": a result of '%s' is still held, and its whole graph with it; keep a number "
                 "(ct_tensor_item) or ct_detach(t) instead of the tensor",
                 ctx->n_live_nodes, s->live_nodes_at_begin, ctx->live_nodes->op->name);
    cti_cache_put(ctx->cache, s, sizeof *s);
    return ctx->err.code;
}

ct_tensor *ct_scope_return(ct_tensor *t)
{
    if (!t || !t->scope || !t->scope->parent)
        return t;
    ct_ctx *ctx = t->ctx;
    cti_scope *inner = ctx->scope, *to = t->scope->parent;
    cti_scope_leave(t);
    ctx->scope = to;
    cti_scope_adopt(ctx, t);
    ctx->scope = inner;
    return t;
}

bool ct_grad_enabled(const ct_ctx *ctx)
{
    return ctx && ctx->grad_mode;
}
