/* SPDX-License-Identifier: Apache-2.0 */
/* Backward: nodes run by falling sequence number (a consumer is always newer than what it consumes),
 * taken from a heap, so that no recursion and no pass of discovery is needed. ct_grad looks first which
 * nodes lead to its inputs; all others are left out. */
#include "autograd/internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- the heap of nodes whose gradients have begun to arrive ---- */

static int heap_push(ct_ctx *ctx, cti_node *n)
{
    if (n->queued)
        return CT_OK;
    if (cti_grow(ctx->mem, (void **)&ctx->heap, &ctx->heap_cap, ctx->heap_n + 1, sizeof *ctx->heap,
                 "backward") < 0)
        return cti_fail(&ctx->err, CT_ENOMEM, "backward: out of memory");
    n->queued = true;
    cti_node_retain(n);
    size_t i = ctx->heap_n++;
    for (; i > 0 && ctx->heap[(i - 1) / 2]->seq < n->seq; i = (i - 1) / 2)
        ctx->heap[i] = ctx->heap[(i - 1) / 2];
    ctx->heap[i] = n;
    return CT_OK;
}

static cti_node *heap_pop(ct_ctx *ctx)
{
    cti_node *top = ctx->heap[0], *last = ctx->heap[--ctx->heap_n];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c + 1 < ctx->heap_n && ctx->heap[c + 1]->seq > ctx->heap[c]->seq)
            c++;
        if (c >= ctx->heap_n || ctx->heap[c]->seq <= last->seq)
            break;
        ctx->heap[i] = ctx->heap[c];
        i = c;
    }
    ctx->heap[i] = last;
    top->queued = false;
    return top;
}

/* ---- delivering gradients ---- */

/* May we write into it? One owner, its memory its own, each element once. */
bool cti_is_exclusive(const ct_tensor *t)
{
    return t->refs == 1 && t->storage->refs == 1 && !t->scope && cti_view_is_dense(&t->view);
}

int cti_add_into(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src)
{
    return ctx->device.be->ew->affine(ctx->device.stream, &dst->view, 1, &src->view, 1, 0);
}

/* *slot + g in a tensor of its own; with a graph, if one is being made. */
static int add_apart(ct_ctx *ctx, ct_tensor **slot, ct_tensor *g)
{
    ct_tensor *sum;
    int r = CT_OK;
    if (ctx->run->flags & CT_CREATE_GRAPH) {
        sum = ct_tensor_retain(ct_add(*slot, g));
    } else {
        int64_t stride[CT_MAX_DIMS];
        cti_dense_order(&(*slot)->view, stride);
        sum = cti_tensor_alloc(ctx, g->view.dtype, g->view.ndim, g->view.shape, stride);
        if (sum)
            r = ctx->device.be->ew->binary(ctx->device.stream, CT_BIN_ADD, &sum->view,
                                           &(*slot)->view, &g->view);
    }
    ct_tensor_release(g);
    if (!sum)
        return ctx->err.code;
    ct_tensor_release(*slot);
    *slot = sum;
    return r;
}

/* Adds g (the caller's reference, taken over) to output nr of fn. */
int cti_deliver(ct_ctx *ctx, cti_edge to, ct_tensor *g)
{
    ct_tensor **slot = &to.fn->dy[to.nr];
    bool apart = ctx->run->flags & CT_CREATE_GRAPH;
    int r = CT_OK;
    if (!*slot) {
        *slot = g;
    } else if (!apart && cti_is_exclusive(*slot)) {
        r = cti_add_into(ctx, *slot, g);
        ct_tensor_release(g);
    } else if (!apart && cti_is_exclusive(g)) {
        r = cti_add_into(ctx, g, *slot);
        ct_tensor_release(*slot);
        *slot = g;
    } else {
        r = add_apart(ctx, slot, g);
    }
    if (r < 0)
        return ctx->err.code ? ctx->err.code :
                               cti_fail(&ctx->err, r, "backward: adding gradients failed (%s)",
                                        ct_status_name(r));
    r = heap_push(ctx, to.fn);
    if (r < 0) { /* not in the heap, nobody would drop it: the next backward must not find it */
        ct_tensor_release(*slot);
        *slot = NULL;
    }
    return r;
}

/* ---- running nodes ---- */

static int check_saved(cti_node *n)
{
    char shape[128];
    if (n->released && n->had_saved)
        return cti_op_fail(n, CT_ESTATE,
                           "backward went through this graph before and freed it; pass "
                           "CT_RETAIN_GRAPH to every backward but the last");
    for (int s = 0; s < CTI_MAX_SLOTS; s++) {
        const cti_slot *v = &n->saved[s];
        if (!v->storage || v->version == v->storage->version)
            continue;
        return cti_op_fail(n, CT_ESTATE,
                           "its %s %d (%s %s), needed for backward, was changed in place: it is at "
                           "version %" PRIu64 ", version %" PRIu64
                           " was saved; change a ct_clone instead, or change it after backward",
                           v->kind == 'x' ? "input" :
                           v->kind == 'y' ? "output" :
                                            "saved tensor",
                           v->index, ct_dtype_name(v->view.dtype),
                           cti_shape_str(&v->view, shape, sizeof shape), v->storage->version,
                           v->version);
    }
    return CT_OK;
}

/* Hands what the op wrote on; r < 0: drops it. */
static int deliver_all(cti_node *n, int r)
{
    for (int i = 0; i < n->n_in; i++) {
        ct_tensor *g = n->dx[i];
        n->dx[i] = NULL;
        const ct_tensor *leaf = g && cti_edge_wanted(n, i) ? n->edge[i].fn->leaf : NULL;
        if (leaf && g->view.dtype != leaf->view.dtype && r >= 0) {
            g = cti_uncast_gradient(n, g, leaf);
            r = g ? r : n->ctx->err.code;
        }
        if (g && r >= 0 && n->ctx->anomaly && cti_edge_wanted(n, i))
            r = cti_anomaly_gave(n, i, g, n->ctx->run->came);
        if (g && cti_edge_wanted(n, i) && r >= 0)
            r = cti_deliver(n->ctx, n->edge[i], g);
        else
            ct_tensor_release(g);
    }
    return r;
}

static int run_kernel_form(cti_node *n)
{
    int r = cti_kernel_status(n, "backward", n->op->backward(n));
    cti_node_drop_temps(n);
    return deliver_all(n, r);
}

static int run_vjp(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    int r =
        ct_scope_begin(ctx, ctx->run->flags & CT_CREATE_GRAPH ? CT_SCOPE_GRAD : CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    r = n->op->vjp(n, n->dy, n->dx);
    if (r < 0 && !ctx->err.code)
        cti_op_fail(n, r, "backward failed (%s)", ct_status_name(r));
    for (int i = 0; i < n->n_in; i++)
        ct_tensor_retain(n->dx[i]);
    ct_scope_end(ctx);
    cti_node_drop_temps(n);
    return deliver_all(n, ctx->err.code);
}

static int run_op(cti_node *n)
{
    bool create = n->ctx->run->flags & CT_CREATE_GRAPH, wanted = false;
    for (int i = 0; i < n->n_in && !wanted; i++)
        wanted = cti_edge_wanted(n, i);
    if (!wanted && !n->op->recomputes)
        return CT_OK;
    int r = check_saved(n);
    if (r < 0)
        return r;
    if (create && !n->op->vjp)
        return cti_op_fail(
            n, CT_ESTATE,
            "CT_CREATE_GRAPH needs the gradient as a graph, and this op has none (%s)",
            n->op->no_second ? n->op->no_second : "it has no vjp");
    if (n->ctx->anomaly)
        n->ctx->run->came = cti_anomaly_came(n);
    r = create || !n->op->backward ? run_vjp(n) : run_kernel_form(n);
    if (r >= 0 && !(n->ctx->run->flags & CT_RETAIN_GRAPH))
        cti_node_release_saved(n);
    return r;
}

static void drop_dy(cti_node *n)
{
    for (int o = 0; o < n->n_out; o++) {
        ct_tensor_release(n->dy[o]);
        n->dy[o] = NULL;
    }
}

static int run_node(cti_node *n)
{
    cti_run *run = n->ctx->run;
    n->ctx->running = n->op;
    int r = cti_run_hooks(n);
    for (int k = 0; r >= 0 && n->is_target && k < run->n_targets; k++) {
        if (run->target[k].fn == n)
            run->got[k] = ct_tensor_retain(n->dy[run->target[k].nr]);
    }
    if (r >= 0 && !n->leaf)
        r = run_op(n);
    else if (r >= 0 && !run->got)
        r = cti_accumulate(n);
    drop_dy(n);
    return r;
}

/* The gradient that backward starts from: a new reference. */
static ct_tensor *seed_gradient(ct_ctx *ctx, ct_tensor *output, ct_tensor *grad)
{
    char a[160], b[160];
    if (grad) {
        if (grad->ctx == ctx && grad->view.dtype == output->view.dtype &&
            cti_same_shape(&grad->view, &output->view))
            return ct_tensor_retain(grad);
        cti_fail(&ctx->err, CT_ESHAPE, "backward: the gradient given is %s, the output %s",
                 ct_tensor_describe(grad, a, sizeof a), ct_tensor_describe(output, b, sizeof b));
        return NULL;
    }
    if (ct_tensor_numel(output) != 1) {
        cti_fail(&ctx->err, CT_ESHAPE,
                 "backward: the output is %s; only a one-element output needs no "
                 "gradient: give one, or reduce the output (ct_sum)",
                 ct_tensor_describe(output, a, sizeof a));
        return NULL;
    }
    ct_tensor *one =
        cti_tensor_alloc(ctx, output->view.dtype, output->view.ndim, output->view.shape, NULL);
    if (one && ctx->device.be->ew->fill(ctx->device.stream, &one->view, 1) < 0) {
        cti_fail(&ctx->err, CT_EDEVICE, "backward: filling failed on %s", ctx->device.be->name);
        ct_tensor_release(one);
        return NULL;
    }
    return one;
}

/* Where the gradient of t goes: a new reference; fn NULL: recorded. */
static cti_edge edge_to(ct_tensor *t)
{
    if (!t->grad_fn)
        return (cti_edge){cti_accumulator_of(t), 0};
    cti_node_retain(t->grad_fn);
    return (cti_edge){t->grad_fn, t->output_nr};
}

int cti_deliver_to(ct_tensor *t, ct_tensor *g)
{
    cti_edge to = edge_to(t);
    if (!to.fn) {
        ct_tensor_release(g);
        return t->ctx->err.code;
    }
    int r = cti_deliver(t->ctx, to, g);
    cti_node_release(to.fn);
    return r;
}

static int start(ct_ctx *ctx, ct_tensor *output, ct_tensor *grad)
{
    ct_tensor *g = seed_gradient(ctx, output, grad);
    return g ? cti_deliver_to(output, g) : ctx->err.code;
}

/* Everything that backward and grad check of an output. */
static int check_output(ct_ctx *ctx, ct_tensor *output, const char *who)
{
    if (!output || output->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "%s: the output is %s", who,
                        output ? "of another context" : "NULL");
    if (cti_tensor_sync(output) < 0)
        return ctx->err.code;
    if (!output->requires_grad)
        return cti_fail(&ctx->err, CT_ESTATE,
                        "%s: no graph leads to the output: no operand required grad, or it was "
                        "made in a CT_SCOPE_NO_GRAD scope or by ct_detach",
                        who);
    if (ctx->run)
        return cti_fail(&ctx->err, CT_ESTATE, "%s: called from inside a backward", who);
    return CT_OK;
}

static int run_all(ct_ctx *ctx, cti_run *run, int n_outputs, ct_tensor *const *outputs,
                   ct_tensor *const *grads)
{
    int r = ct_scope_begin(ctx, run->flags & CT_CREATE_GRAPH ? CT_SCOPE_GRAD : CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    cti_enter(ctx);
    const ct_op *running = ctx->running;
    ctx->autocast = false;
    ctx->run = run;
    for (int o = 0; o < n_outputs && r >= 0; o++)
        r = cti_anomaly_start(ctx, outputs[o]);
    for (int o = 0; o < n_outputs && r >= 0; o++)
        r = start(ctx, outputs[o], grads ? grads[o] : NULL);
    while (ctx->heap_n > 0) {
        cti_node *n = heap_pop(ctx);
        if (r >= 0)
            r = run_node(n);
        else
            drop_dy(n);
        cti_node_release(n);
    }
    ctx->run = NULL;
    ctx->running = running;
    ct_scope_end(ctx);
    return ctx->err.code;
}

int ct_backward(ct_ctx *ctx, ct_tensor *output, ct_tensor *grad, unsigned flags)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code || check_output(ctx, output, "backward") < 0)
        return ctx->err.code;
    if (flags & ~(unsigned)CT_RETAIN_GRAPH)
        return cti_fail(&ctx->err, CT_EINVAL,
                        "backward: CT_RETAIN_GRAPH is the only flag; gradients with a graph "
                        "come from ct_grad");
    cti_run run = {.flags = flags};
    return run_all(ctx, &run, 1, &output, &grad);
}

/* ---- gradients of chosen inputs ---- */

int64_t cti_reachable(ct_ctx *ctx, int n_outputs, ct_tensor *const *outputs)
{
    int64_t n = 0;
    int r = CT_OK;
    for (int o = 0; o < n_outputs && r >= 0; o++)
        if (outputs[o]->grad_fn)
            r = heap_push(ctx, outputs[o]->grad_fn);
    while (ctx->heap_n > 0) {
        cti_node *node = heap_pop(ctx);
        if (r >= 0)
            r = cti_grow(ctx->mem, (void **)&ctx->order, &ctx->order_cap, (size_t)n + 1,
                         sizeof *ctx->order, "grad") < 0 ?
                    cti_fail(&ctx->err, CT_ENOMEM, "grad: out of memory") :
                    CT_OK;
        if (r >= 0) {
            ctx->order[n++] = node;
            for (int i = 0; i < node->n_in && r >= 0; i++)
                if (node->edge[i].fn)
                    r = heap_push(ctx, node->edge[i].fn);
        }
        cti_node_release(node); /* the outputs' graph owns it */
    }
    return r < 0 ? r : n;
}

/* Marks the nodes that lead to no target. */
static int mark(ct_ctx *ctx, cti_run *run, int n_outputs, ct_tensor *const *outputs)
{
    int64_t n = cti_reachable(ctx, n_outputs, outputs);
    run->skip = ++ctx->last_mark;
    for (int64_t k = 0; k < n; k++)
        ctx->order[k]->mark = run->skip;
    while (n > 0) {
        cti_node *node = ctx->order[--n];
        bool leads = node->is_target || node->op->recomputes;
        for (int i = 0; i < node->n_in && !leads; i++)
            leads = node->edge[i].fn && node->edge[i].fn->mark != run->skip;
        if (leads)
            node->mark = 0;
    }
    return ctx->err.code;
}

static int check_inputs(ct_ctx *ctx, int n_inputs, ct_tensor *const *inputs)
{
    char d[160];
    for (int k = 0; k < n_inputs; k++) {
        ct_tensor *t = inputs[k];
        if (!t || t->ctx != ctx)
            return cti_fail(&ctx->err, CT_EINVAL, "grad: input %d is %s", k,
                            t ? "of another context" : "NULL");
        if (cti_tensor_sync(t) < 0)
            return ctx->err.code;
        if (!t->requires_grad)
            return cti_fail(&ctx->err, CT_ESTATE,
                            "grad: input %d (%s) doesn't require grad: nothing that is "
                            "computed from it remembers it",
                            k, ct_tensor_describe(t, d, sizeof d));
    }
    return CT_OK;
}

/* What came for input k, for the caller's scope. */
static ct_tensor *result(ct_ctx *ctx, const cti_run *run, int k, const ct_tensor *input)
{
    char d[160];
    ct_tensor *g = run->got[k];
    run->got[k] = NULL;
    if (!g && run->flags & CT_ZEROS_FOR_UNUSED) {
        g = ct_tensor_new(ctx, input->view.dtype, input->view.ndim, input->view.shape);
    } else if (!g && !(run->flags & CT_ALLOW_UNUSED)) {
        cti_fail(&ctx->err, CT_ESTATE,
                 "grad: input %d (%s) wasn't used to compute the outputs; CT_ALLOW_UNUSED gives "
                 "NULL for it, CT_ZEROS_FOR_UNUSED zeros",
                 k, ct_tensor_describe(input, d, sizeof d));
    }
    if (g && !g->scope)
        cti_scope_adopt(ctx, g);
    else if (g)
        ct_tensor_release(g); /* the caller's own, passed through: of its scope already */
    return g;
}

static int grad_into(ct_ctx *ctx, cti_run *run, int n_outputs, ct_tensor *const *outputs,
                     ct_tensor *const *grads, ct_tensor *const *inputs)
{
    int r = CT_OK, n = 0;
    for (; n < run->n_targets && r >= 0; n++) {
        run->target[n] = edge_to(inputs[n]);
        if (!run->target[n].fn)
            r = ctx->err.code;
        else
            run->target[n].fn->is_target = true;
    }
    if (r >= 0)
        r = mark(ctx, run, n_outputs, outputs);
    if (r >= 0)
        r = run_all(ctx, run, n_outputs, outputs, grads);
    for (int k = 0; k < n; k++) {
        if (!run->target[k].fn)
            continue;
        run->target[k].fn->is_target = false;
        cti_node_release(run->target[k].fn);
    }
    return r;
}

int ct_grad(ct_ctx *ctx, int n_outputs, ct_tensor *const *outputs, ct_tensor *const *grads,
            int n_inputs, ct_tensor *const *inputs, unsigned flags, ct_tensor **out)
{
    if (!ctx)
        return CT_EINVAL;
    for (int k = 0; out && k < n_inputs; k++)
        out[k] = NULL;
    if (ctx->err.code)
        return ctx->err.code;
    if (n_outputs < 1 || n_inputs < 1 || !outputs || !inputs || !out)
        return cti_fail(&ctx->err, CT_EINVAL, "grad: at least one output and one input are needed");
    for (int o = 0; o < n_outputs; o++)
        if (check_output(ctx, outputs[o], "grad") < 0)
            return ctx->err.code;
    if (check_inputs(ctx, n_inputs, inputs) < 0)
        return ctx->err.code;
    if (flags & CT_CREATE_GRAPH)
        flags |= CT_RETAIN_GRAPH;
    size_t bytes = (size_t)n_inputs * (sizeof(cti_edge) + sizeof(ct_tensor *));
    cti_run run = {.flags = flags, .n_targets = n_inputs};
    run.target = cti_cache_get(ctx->cache, bytes, "grad");
    if (!run.target)
        return cti_fail(&ctx->err, CT_ENOMEM, "grad: out of memory");
    run.got = (ct_tensor **)(run.target + n_inputs);
    grad_into(ctx, &run, n_outputs, outputs, grads, inputs);
    for (int k = 0; k < n_inputs; k++) {
        if (ctx->err.code)
            ct_tensor_release(run.got[k]);
        else
            out[k] = result(ctx, &run, k, inputs[k]);
    }
    for (int k = 0; k < n_inputs && ctx->err.code; k++)
        out[k] = NULL;
    cti_cache_put(ctx->cache, run.target, bytes);
    return ctx->err.code;
}
