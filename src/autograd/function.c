/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that an application brings. A ct_op is made of each ct_function when a context first sees it, so that errors
 * and graphs call it by its name; a ct_call is the node. */
#include "autograd/internal.h"

#include <stdio.h>
#include <string.h>

#define MAX_IN 32

struct cti_function {
    struct cti_function *next;
    ct_op op;
    ct_function fn;
    char name[64], torch_name[72];
};

typedef struct attrs {
    const cti_function *f;
    void *user;
} attrs;

static cti_node *node_of(const ct_call *c)
{
    return (cti_node *)c;
}

static const attrs *attrs_of(const ct_call *c)
{
    return (const attrs *)node_of(c)->attr;
}

/* ---- forward ---- */

static int infer(cti_node *n)
{
    const cti_function *f = ((const attrs *)n->attr)->f;
    int r = ct_scope_begin(n->ctx, CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    r = f->fn.forward((ct_call *)n);
    ct_scope_end(n->ctx);
    if (r < 0 || n->ctx->err.code)
        return r < 0 ? r : n->ctx->err.code;
    for (int o = 0; o < n->n_out; o++)
        if (!n->y[o])
            return cti_op_fail(n, CT_EINVAL, "forward set no output %d", o);
    return CT_OK;
}

int ct_call_set_output(ct_call *c, int o, ct_tensor *t)
{
    cti_node *n = node_of(c);
    if (n->ctx->err.code)
        return n->ctx->err.code;
    if (!n->x || o < 0 || o >= n->n_out || !t || t->ctx != n->ctx)
        return cti_op_fail(n, CT_EINVAL, "set_output: %s",
                           !n->x ? "not in a forward" :
                           t     ? "there is no such output, or the tensor is of another context" :
                                   "the tensor is NULL");
    ct_tensor_release(n->y[o]);
    n->y[o] = cti_tensor_view_of(n->ctx, t->storage, &t->view);
    if (!n->y[o])
        return n->ctx->err.code;
    for (int i = 0; i < n->n_in;
         i++) /* a view, without a graph that in-place changes could follow */
        n->y[o]->untracked |= n->x[i] && n->x[i]->storage == t->storage;
    n->out_view[o] = t->view;
    return CT_OK;
}

static bool is_same(const ct_tensor *a, const ct_tensor *b)
{
    return a && a->storage == b->storage && a->view.data == b->view.data &&
           cti_same_shape(&a->view, &b->view);
}

int ct_call_save(ct_call *c, int slot, ct_tensor *t)
{
    cti_node *n = node_of(c);
    if (n->ctx->err.code)
        return n->ctx->err.code;
    if (!n->x || slot < 0 || slot >= CTI_MAX_SLOTS || !t || t->ctx != n->ctx)
        return cti_op_fail(n, CT_EINVAL,
                           "save: slots are 0 to %d, in a forward, and the tensor is %s",
                           CTI_MAX_SLOTS - 1, t ? "of this context" : "not NULL");
    for (int i = 0; i < n->n_in; i++)
        if (n->x[i] == t) {
            cti_save_in(n, slot, i);
            return n->ctx->err.code;
        }
    for (int o = 0; o < n->n_out; o++)
        if (is_same(n->y[o], t)) {
            cti_save_out(n, slot, o);
            return n->ctx->err.code;
        }
    cti_save_tensor(n, slot, t);
    return n->ctx->err.code;
}

/* ---- backward ---- */

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_function *f = ((const attrs *)n->attr)->f;
    (void)dy;
    (void)dx;
    if (f->fn.once && n->ctx->run->flags & CT_CREATE_GRAPH)
        return cti_op_fail(n, CT_ESTATE,
                           "its backward can't be differentiated: the function says `once`");
    int r = f->fn.backward((ct_call *)n);
    return r < 0 ? r : n->ctx->err.code;
}

int ct_call_set_grad(ct_call *c, int i, ct_tensor *grad)
{
    cti_node *n = node_of(c);
    char a[128], b[128];
    if (n->ctx->err.code)
        return n->ctx->err.code;
    if (n->x || i < 0 || i >= n->n_in)
        return cti_op_fail(n, CT_EINVAL, "set_grad: %s",
                           n->x ? "not in a backward" : "there is no such input");
    const ct_view *want = &n->in_view[i];
    if (grad && (grad->view.dtype != want->dtype || !cti_same_shape(&grad->view, want)))
        return cti_op_fail(n, CT_ESHAPE, "the gradient of input %d is %s %s, the input %s %s", i,
                           ct_dtype_name(grad->view.dtype), cti_shape_str(&grad->view, a, sizeof a),
                           ct_dtype_name(want->dtype), cti_shape_str(want, b, sizeof b));
    n->dx[i] = grad;
    return CT_OK;
}

ct_tensor *ct_call_saved(ct_call *c, int slot)
{
    cti_node *n = node_of(c);
    bool ok = !n->x && slot >= 0 && slot < CTI_MAX_SLOTS && n->saved[slot].storage;
    if (!ok)
        cti_op_fail(n, CT_EINVAL, "saved: nothing is in slot %d", slot);
    return ok ? cti_saved_tensor(n, slot) : NULL;
}

/* ---- both ---- */

ct_ctx *ct_call_ctx(const ct_call *c)
{
    return node_of(c)->ctx;
}

void *ct_call_user(const ct_call *c)
{
    return attrs_of(c)->user;
}

ct_tensor *ct_call_input(const ct_call *c, int i)
{
    const cti_node *n = node_of(c);
    return n->x && i >= 0 && i < n->n_in ? n->x[i] : NULL;
}

ct_tensor *ct_call_grad_output(const ct_call *c, int o)
{
    const cti_node *n = node_of(c);
    return o >= 0 && o < n->n_out ? n->dy[o] : NULL;
}

bool ct_call_needs_grad(const ct_call *c, int i)
{
    const cti_node *n = node_of(c);
    return i >= 0 && i < n->n_in && cti_wants(n, i);
}

/* ---- applying ---- */

static const cti_function *function_of(ct_ctx *ctx, const ct_function *fn)
{
    for (cti_function *f = ctx->functions; f; f = f->next)
        if (f->fn.forward == fn->forward && f->fn.backward == fn->backward &&
            f->fn.once == fn->once && f->fn.optional == fn->optional &&
            !strcmp(f->fn.name, fn->name))
            return f;
    cti_function *f = cti_alloc(ctx->mem, sizeof *f, "function");
    if (!f) {
        cti_fail(&ctx->err, CT_ENOMEM, "%s: out of memory", fn->name);
        return NULL;
    }
    snprintf(f->name, sizeof f->name, "%s", fn->name);
    snprintf(f->torch_name, sizeof f->torch_name, "%sBackward", f->name);
    f->fn = *fn;
    f->fn.name = f->name;
    f->op = (ct_op){.name = f->name,
                    .torch_name = f->torch_name,
                    .optional = fn->optional,
                    .infer = infer,
                    .vjp = fn->backward ? vjp : NULL,
                    .autocast = CTI_AS_IS};
    f->next = ctx->functions;
    ctx->functions = f;
    return f;
}

void cti_functions_free(ct_ctx *ctx)
{
    while (ctx->functions) {
        cti_function *f = ctx->functions;
        ctx->functions = f->next;
        cti_free(ctx->mem, f);
    }
}

int ct_function_apply(ct_ctx *ctx, const ct_function *fn, void *user, int n_in,
                      ct_tensor *const *in, int n_out, ct_tensor **out)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!fn || !fn->name || !fn->forward || !out || n_out < 1 || n_out > CTI_MAX_OUT || !in ||
        n_in < 1 || n_in > MAX_IN)
        return cti_fail(&ctx->err, CT_EINVAL,
                        "function_apply: a function has a name and a forward, 1 to %d inputs and "
                        "1 to %d outputs",
                        MAX_IN, CTI_MAX_OUT);
    if (!cti_ctx_of(n_in, in))
        return cti_fail(&ctx->err, CT_EINVAL, "%s: all inputs are NULL", fn->name);
    ct_tensor *x[MAX_IN]; /* out may be in */
    memcpy(x, in, (size_t)n_in * sizeof *in);
    attrs a = {.user = user};
    a.f = function_of(ctx, fn);
    return a.f ? cti_apply_multi(&a.f->op, &a, sizeof a, n_in, x, n_out, out) : ctx->err.code;
}
