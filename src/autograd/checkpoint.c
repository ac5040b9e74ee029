/* SPDX-License-Identifier: Apache-2.0 */
/* Activation checkpointing. The node keeps a segment's inputs alone. Its backward runs the segment again on them,
 * recorded, with their own places in the graph, and hands the gradients that came to the new nodes: those are
 * newer than all that waits in the heap, so they run next, and what they pass on goes where it would have gone
 * without a checkpoint. No second backward runs inside the first: so parameters, nesting, ct_grad and
 * graphs of gradients need nothing of their own. */
#include "autograd/internal.h"

#include <string.h>

typedef struct attrs {
    ct_segment fn;
    void *user;
    uint32_t step, micro, ordinal; /* of random numbers at the begin */
    bool autocast;
    ct_dtype autocast_dtype;
} attrs;

/* ---- forward ---- */

/* Output o of the segment as an output of the node. */
static int give(cti_node *n, int o, ct_tensor *t)
{
    if (!t)
        return cti_op_fail(n, CT_EINVAL, "the segment gave no output %d", o);
    n->y[o] = cti_tensor_view_of(n->ctx, t->storage, &t->view);
    if (!n->y[o])
        return n->ctx->err.code;
    for (int i = 0; i < n->n_in; i++)
        n->y[o]->untracked |= n->x[i] && n->x[i]->storage == t->storage;
    n->out_view[o] = t->view;
    return CT_OK;
}

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    ct_ctx *ctx = n->ctx;
    ct_tensor *out[CTI_MAX_OUT] = {NULL};
    bool outer = ctx->saw_grad, wanted = false;
    int r = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    ctx->saw_grad = false;
    r = a->fn(ctx, n->n_in, n->x, n->n_out, out, a->user);
    for (int o = 0; o < n->n_out && r >= 0 && !ctx->err.code; o++)
        r = give(n, o, out[o]);
    ct_scope_end(ctx);
    for (int i = 0; i < n->n_in; i++)
        wanted |= n->x[i] && n->x[i]->requires_grad;
    n->recording = wanted || ctx->saw_grad;
    ctx->saw_grad |= outer;
    for (int i = 0; i < n->n_in; i++)
        cti_save_in(n, i, i);
    return r < 0 ? r : ctx->err.code;
}

/* ---- backward ---- */

static int check_output(cti_node *n, int o, const ct_tensor *y)
{
    char a[160], b[128];
    const ct_view *was = &n->out_view[o];
    if (y && y->view.dtype == was->dtype && cti_same_shape(&y->view, was))
        return CT_OK;
    return cti_op_fail(
        n, CT_ESTATE,
        "the segment gave %s for output %d when it was run again, %s %s before: it must "
        "compute the same from the same inputs",
        ct_tensor_describe(y, a, sizeof a), o, ct_dtype_name(was->dtype),
        cti_shape_str(was, b, sizeof b));
}

static int run_again(cti_node *n, ct_tensor *const *dy)
{
    const attrs *a = cti_attr(n);
    ct_ctx *ctx = n->ctx;
    ct_tensor *in[CTI_MAX_SLOTS] = {NULL}, *out[CTI_MAX_OUT] = {NULL};
    for (int i = 0; i < n->n_in; i++)
        in[i] = cti_saved_in_graph(n, i);
    int r = ctx->err.code ? ctx->err.code : a->fn(ctx, n->n_in, in, n->n_out, out, a->user);
    for (int o = 0; o < n->n_out && r >= 0 && !ctx->err.code; o++) {
        r = check_output(n, o, out[o]);
        if (r >= 0 && dy[o] && out[o]->requires_grad)
            r = cti_deliver_to(out[o], ct_tensor_retain(dy[o]));
    }
    return r < 0 ? r : ctx->err.code;
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const attrs *a = cti_attr(n);
    ct_ctx *ctx = n->ctx;
    uint32_t step = ctx->step, micro = ctx->micro, ordinal = ctx->dropout_ordinal;
    bool outer = ctx->recomputing;
    (void)dx;
    int r = ct_scope_begin(ctx, CT_SCOPE_GRAD);
    if (r < 0)
        return r;
    if (!ctx->grad_mode) {
        cti_op_fail(n, CT_ESTATE,
                    "a backward through a checkpoint can't run in CT_SCOPE_INFERENCE");
        ct_scope_end(ctx);
        return ctx->err.code;
    }
    ctx->step = a->step;
    ctx->micro = a->micro;
    ctx->dropout_ordinal = a->ordinal;
    ctx->recomputing = true;
    ctx->autocast = a->autocast;
    ctx->autocast_dtype = a->autocast_dtype;
    r = run_again(n, dy);
    ctx->recomputing = outer;
    ctx->step = step;
    ctx->micro = micro;
    ctx->dropout_ordinal = ordinal;
    ct_scope_end(ctx);
    return r;
}

static const ct_op op_checkpoint = {.name = "checkpoint",
                                    .torch_name = "CheckpointFunctionBackward",
                                    .optional = ~0u,
                                    .infer = infer,
                                    .vjp = vjp,
                                    .recomputes = true,
                                    .autocast = CTI_AS_IS};

int ct_checkpoint(ct_ctx *ctx, ct_segment fn, void *user, int n_in, ct_tensor *const *in, int n_out,
                  ct_tensor **out)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!fn || !in || !out || n_in < 1 || n_in > CTI_MAX_SLOTS || n_out < 1 || n_out > CTI_MAX_OUT)
        return cti_fail(
            &ctx->err, CT_EINVAL,
            "checkpoint: a segment is a function of 1 to %d inputs with 1 to %d outputs",
            CTI_MAX_SLOTS, CTI_MAX_OUT);
    if (!cti_ctx_of(n_in, in))
        return cti_fail(&ctx->err, CT_EINVAL, "checkpoint: all inputs are NULL");
    if (!ctx->grad_mode)
        return fn(ctx, n_in, in, n_out, out, user);
    ct_tensor *x[CTI_MAX_SLOTS]; /* out may be in */
    memcpy(x, in, (size_t)n_in * sizeof *in);
    attrs a = {.fn = fn,
               .user = user,
               .step = ctx->step,
               .micro = ctx->micro,
               .ordinal = ctx->dropout_ordinal,
               .autocast = ctx->autocast,
               .autocast_dtype = ctx->autocast_dtype};
    return cti_apply_run(
        &(cti_apply_call){&op_checkpoint, &a, sizeof a, n_in, x, .always_record = true}, n_out,
        out);
}

bool ct_recomputing(const ct_ctx *ctx)
{
    return ctx && ctx->recomputing;
}
