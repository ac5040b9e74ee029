/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks on gradients. A leaf keeps its own (its end of the graph comes and goes); those of a result are its
 * node's, so that they outlive the tensor. */
#include "autograd/internal.h"

#include <inttypes.h>

/* ---- lists ---- */

static cti_hook **list_of(ct_tensor *t)
{
    return t->grad_fn ? &t->grad_fn->hooks : &t->hooks;
}

/* Hooks run in the order in which they were registered, gradients are kept last. */
static cti_hook *append(ct_tensor *t, const cti_hook *what)
{
    ct_ctx *ctx = t->ctx;
    cti_hook *h = cti_cache_get(ctx->cache, sizeof *h, "hook");
    if (!h) {
        cti_fail(&ctx->err, CT_ENOMEM, "hook: out of memory");
        return NULL;
    }
    *h = *what;
    h->id = ++ctx->last_hook;
    h->nr = t->grad_fn ? t->output_nr : 0;
    cti_hook **at = list_of(t);
    while (*at && (what->keeper || !(*at)->keeper))
        at = &(*at)->next;
    h->next = *at;
    *at = h;
    return h;
}

void cti_hooks_free(ct_ctx *ctx, cti_hook **list)
{
    while (*list) {
        cti_hook *h = *list;
        *list = h->next;
        if (h->keeper)
            h->keeper->keeps_grad = false;
        cti_cache_put(ctx->cache, h, sizeof *h);
    }
}

void cti_hooks_forget_keeper(ct_tensor *t)
{
    for (cti_hook **at = list_of(t); *at; at = &(*at)->next) {
        cti_hook *h = *at;
        if (h->keeper != t)
            continue;
        *at = h->next;
        cti_cache_put(t->ctx->cache, h, sizeof *h);
        return;
    }
}

/* ---- registering ---- */

static int check(ct_ctx *ctx, const ct_tensor *t, const char *who)
{
    if (ctx->err.code)
        return ctx->err.code;
    if (!t || t->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "%s: the tensor is %s", who,
                        t ? "of another context" : "NULL");
    if (!ct_tensor_requires_grad(t))
        return cti_fail(&ctx->err, CT_ESTATE,
                        "%s: the tensor doesn't require grad: no gradient will ever come", who);
    return cti_tensor_sync((ct_tensor *)t);
}

uint64_t ct_tensor_register_hook(ct_ctx *ctx, ct_tensor *t, ct_grad_hook fn, void *user)
{
    if (!ctx || check(ctx, t, "register_hook") < 0)
        return 0;
    if (!fn) {
        cti_fail(&ctx->err, CT_EINVAL, "register_hook: the function is NULL");
        return 0;
    }
    cti_hook *h = append(t, &(cti_hook){.fn = fn, .user = user});
    return h ? h->id : 0;
}

uint64_t ct_tensor_register_post_accumulate_hook(ct_ctx *ctx, ct_tensor *leaf, ct_leaf_hook fn,
                                                 void *user)
{
    if (!ctx || check(ctx, leaf, "register_post_accumulate_hook") < 0)
        return 0;
    if (!fn || leaf->grad_fn) {
        cti_fail(&ctx->err, CT_EINVAL, "register_post_accumulate_hook: %s",
                 fn ? "only leaves accumulate a gradient, and this is a result" :
                      "the function is NULL");
        return 0;
    }
    cti_hook *h = append(leaf, &(cti_hook){.after = fn, .user = user});
    return h ? h->id : 0;
}

int ct_tensor_remove_hook(ct_ctx *ctx, ct_tensor *t, uint64_t id)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    cti_hook *none = NULL,
             **lists[2] = {t ? &t->hooks : &none, t && t->grad_fn ? &t->grad_fn->hooks : &none};
    for (int k = 0; k < 2; k++)
        for (cti_hook **at = lists[k]; *at; at = &(*at)->next) {
            cti_hook *h = *at;
            if (h->id != id || h->keeper)
                continue;
            *at = h->next;
            cti_cache_put(ctx->cache, h, sizeof *h);
            return CT_OK;
        }
    return cti_fail(&ctx->err, CT_EINVAL, "remove_hook: the tensor has no hook %" PRIu64, id);
}

int ct_tensor_retain_grad(ct_ctx *ctx, ct_tensor *t)
{
    if (!ctx)
        return CT_EINVAL;
    if (check(ctx, t, "retain_grad") < 0)
        return ctx->err.code;
    if (!t->grad_fn || t->keeps_grad)
        return CT_OK;
    if (!append(t, &(cti_hook){.keeper = t}))
        return ctx->err.code;
    t->keeps_grad = true;
    return CT_OK;
}

/* ---- running ---- */

static int keep(ct_ctx *ctx, ct_tensor *t, ct_tensor *g)
{
    if (t->grad) { /* as a leaf would: added to */
        ct_tensor *sum = ct_add(t->grad, g);
        ct_tensor_retain(sum);
        ct_tensor_release(t->grad);
        t->grad = sum;
        return ctx->err.code;
    }
    t->grad = ct_tensor_retain(g);
    return CT_OK;
}

static int replace(ct_ctx *ctx, ct_tensor **slot, ct_tensor *with)
{
    char a[160], b[160];
    if (with == *slot)
        return CT_OK;
    if (with->ctx != ctx || with->view.dtype != (*slot)->view.dtype ||
        !cti_same_shape(&with->view, &(*slot)->view))
        return cti_fail(&ctx->err, CT_ESHAPE, "a hook replaced a gradient %s by %s",
                        ct_tensor_describe(*slot, a, sizeof a),
                        ct_tensor_describe(with, b, sizeof b));
    ct_tensor_retain(with);
    ct_tensor_release(*slot);
    *slot = with;
    return CT_OK;
}

static int call(cti_node *n, const cti_hook *h)
{
    ct_ctx *ctx = n->ctx;
    ct_tensor **slot = &n->dy[h->nr];
    if (!*slot || h->after)
        return CT_OK;
    if (h->keeper)
        return keep(ctx, h->keeper, *slot);
    ct_tensor *with = h->fn(ctx, *slot, h->user);
    return ctx->err.code ? ctx->err.code : with ? replace(ctx, slot, with) : CT_OK;
}

int cti_run_hooks(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    cti_hook *first = n->leaf ? n->leaf->hooks : n->hooks;
    if (!first)
        return CT_OK;
    int r = cti_capture_refuse(ctx, "a gradient has hooks, which a replay would not call");
    if (r >= 0)
        r = ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    if (r < 0)
        return r;
    for (cti_hook *h = first, *next; h && r >= 0; h = next) {
        next = h->next; /* a hook may remove itself */
        r = call(n, h);
    }
    ct_scope_end(ctx);
    return ctx->err.code;
}

int cti_run_leaf_hooks(ct_tensor *leaf)
{
    ct_ctx *ctx = leaf->ctx;
    for (cti_hook *h = leaf->hooks, *next; h && !ctx->err.code; h = next) {
        next = h->next;
        if (h->after)
            h->after(ctx, leaf, h->user);
    }
    return ctx->err.code;
}
