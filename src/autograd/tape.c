/* SPDX-License-Identifier: Apache-2.0 */
/* Backward: nodes run by falling sequence number (a consumer is always newer than what it consumes),
 * taken from a heap, so that no recursion and no pass of discovery is needed. */
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
static bool is_exclusive(const ct_tensor *t)
{
    return t->refs == 1 && t->storage->refs == 1 && !t->scope && cti_view_is_dense(&t->view);
}

static int add_into(ct_ctx *ctx, ct_tensor *dst, const ct_tensor *src)
{
    return ctx->device.be->ew->affine(ctx->device.stream, &dst->view, 1, &src->view, 1, 0);
}

/* Adds g (the caller's reference, taken over) to output nr of fn. */
static int deliver(ct_ctx *ctx, cti_edge to, ct_tensor *g)
{
    ct_tensor **slot = &to.fn->dy[to.nr];
    int r = CT_OK;
    if (!*slot) {
        *slot = g;
    } else if (is_exclusive(*slot)) {
        r = add_into(ctx, *slot, g);
        ct_tensor_release(g);
    } else if (is_exclusive(g)) {
        r = add_into(ctx, g, *slot);
        ct_tensor_release(*slot);
        *slot = g;
    } else {
        int64_t stride[CT_MAX_DIMS];
        cti_dense_order(&(*slot)->view, stride);
        ct_tensor *sum = cti_tensor_alloc(ctx, g->view.dtype, g->view.ndim, g->view.shape, stride);
        r = !sum ? ctx->err.code :
                   ctx->device.be->ew->binary(ctx->device.stream, CT_BIN_ADD, &sum->view,
                                              &(*slot)->view, &g->view);
        ct_tensor_release(g);
        if (sum) {
            ct_tensor_release(*slot);
            *slot = sum;
        }
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

/* A new gradient of the leaf, in its stride order, with g's values. */
static int set_copy(cti_node *n, ct_tensor *g)
{
    ct_ctx *ctx = n->ctx;
    ct_tensor *leaf = n->leaf;
    int64_t stride[CT_MAX_DIMS];
    cti_dense_order(&leaf->view, stride);
    ct_tensor *copy =
        cti_tensor_alloc(ctx, leaf->view.dtype, leaf->view.ndim, leaf->view.shape, stride);
    if (!copy)
        return ctx->err.code;
    int r = ctx->device.be->ew->copy(ctx->device.stream, &copy->view, &g->view);
    ct_tensor_release(leaf->grad);
    leaf->grad = copy;
    return cti_kernel_status(n, "accumulation", r);
}

/* Captured work writes to fixed addresses: the gradient is kept in the leaf's home. */
static int attach_home(cti_node *n, ct_tensor *g)
{
    ct_ctx *ctx = n->ctx;
    ct_tensor *leaf = n->leaf;
    if (!leaf->grad_home) {
        int64_t stride[CT_MAX_DIMS];
        cti_dense_order(&leaf->view, stride);
        cti_pool *pool = ctx->pool;
        ctx->pool = &ctx->main_pool;
        leaf->grad_home =
            cti_tensor_alloc(ctx, leaf->view.dtype, leaf->view.ndim, leaf->view.shape, stride);
        ctx->pool = pool;
        if (!leaf->grad_home)
            return ctx->err.code;
    }
    cti_capture_uses(ctx, leaf->grad_home->storage);
    if (g != leaf->grad_home) {
        int r = ctx->device.be->ew->copy(ctx->device.stream, &leaf->grad_home->view, &g->view);
        if (cti_kernel_status(n, "accumulation", r) < 0)
            return ctx->err.code;
    }
    leaf->grad = ct_tensor_retain(leaf->grad_home);
    cti_capture_attached(leaf);
    return CT_OK;
}

/* Does somebody else hold the last gradient? */
static bool home_is_free(const ct_tensor *leaf, const ct_tensor *g)
{
    const ct_tensor *home = leaf->grad_home;
    return home && home->refs == (g == home ? 2 : 1) && home->storage->refs == 1;
}

static int accumulate(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    ct_tensor *leaf = n->leaf, *g = n->dy[0];
    if (!leaf->grad && (ctx->capture || home_is_free(leaf, g)))
        return attach_home(n, g);
    if (ctx->capture && leaf->grad != leaf->grad_home)
        return cti_op_fail(n, CT_ESTATE,
                           "captured work would add to a gradient that was made outside of it; "
                           "zero the gradients before");
    if (!leaf->grad) {
        if (!cti_view_dense_like(&g->view, &leaf->view) || !is_exclusive(g))
            return set_copy(n, g);
        leaf->grad = ct_tensor_retain(g);
        return CT_OK;
    }
    /* One that the application set may be an expanded view, which can't be added to. */
    if (!cti_view_is_dense(&leaf->grad->view) && set_copy(n, leaf->grad) < 0)
        return ctx->err.code;
    int r = add_into(ctx, leaf->grad, g);
    cti_storage_changed(leaf->grad->storage);
    return cti_kernel_status(n, "accumulation", r);
}

/* ---- what an op's backward sees ---- */

const ct_view *cti_dy(const cti_node *n, int o)
{
    return n->dy[o] ? &n->dy[o]->view : NULL;
}

/* dy itself, or a dense temporary with its values and the given strides. */
static const ct_view *dy_with_stride(cti_node *n, int o, const int64_t *stride)
{
    if (n->n_temps == CTI_MAX_TEMPS) {
        cti_op_fail(n, CT_EINTERNAL, "too many temporaries");
        return NULL;
    }
    const ct_view *dy = &n->dy[o]->view;
    ct_tensor *t = cti_tensor_alloc(n->ctx, dy->dtype, dy->ndim, dy->shape, stride);
    if (!t)
        return NULL;
    n->temp[n->n_temps++] = t;
    int r = n->ctx->device.be->ew->copy(n->ctx->device.stream, &t->view, dy);
    return cti_kernel_status(n, "copying a gradient", r) < 0 ? NULL : &t->view;
}

const ct_view *cti_dy_like(cti_node *n, int o, const ct_view *like)
{
    int64_t stride[CT_MAX_DIMS];
    const ct_view *dy = cti_dy(n, o);
    if (!dy || cti_view_dense_like(dy, like))
        return dy;
    cti_dense_order(like, stride);
    return dy_with_stride(n, o, stride);
}

const ct_view *cti_dy_channels_last(cti_node *n, int o)
{
    const ct_view *dy = cti_dy(n, o);
    if (!dy || cti_view_channels_last(dy))
        return dy;
    int64_t w = dy->shape[1], h = w * dy->shape[3];
    int64_t stride[4] = {h * dy->shape[2], 1, h, w};
    return dy_with_stride(n, o, stride);
}

const ct_view *cti_dx(cti_node *n, int i, int *beta)
{
    *beta = 0;
    if (!n->edge[i].fn)
        return NULL;
    ct_tensor *there = n->edge[i].fn->dy[n->edge[i].nr];
    const ct_view *meta = &n->in_view[i];
    if (there && (n->op->accumulates >> i & 1u) && is_exclusive(there) &&
        there->view.dtype == meta->dtype) {
        *beta = 1;
        return &there->view;
    }
    if (!n->dx[i]) {
        int64_t stride[CT_MAX_DIMS];
        cti_dense_order(meta, stride);
        ct_tensor *leaf = n->edge[i].fn->leaf, *home = leaf ? leaf->grad_home : NULL;
        if (home && !there && !leaf->grad && home_is_free(leaf, NULL) &&
            cti_view_dense_like(&home->view, meta)) {
            n->dx[i] = ct_tensor_retain(home);
            return &home->view;
        }
        n->dx[i] = cti_tensor_alloc(n->ctx, meta->dtype, meta->ndim, meta->shape, stride);
    }
    return n->dx[i] ? &n->dx[i]->view : NULL;
}

ct_tensor *cti_saved_tensor(cti_node *n, int slot)
{
    cti_slot *s = &n->saved[slot];
    if (!s->storage)
        return NULL;
    ct_tensor *t = cti_tensor_view_of(n->ctx, s->storage, &s->view);
    if (t)
        cti_scope_adopt(n->ctx, t);
    return t;
}

ct_tensor *cti_sum_to_input(cti_node *n, ct_tensor *grad, int i)
{
    const ct_view *to = &n->in_view[i];
    if (!grad)
        return NULL;
    int lead = grad->view.ndim - to->ndim, n_dims = 0, dims[CT_MAX_DIMS];
    for (int d = 0; d < grad->view.ndim; d++) {
        bool summed = d < lead || (to->shape[d - lead] == 1 && grad->view.shape[d] != 1);
        if (summed)
            dims[n_dims++] = d;
    }
    if (n_dims == 0)
        return grad;
    ct_tensor *s = ct_sum(grad, dims, n_dims, true);
    return lead > 0 ? ct_reshape(s, to->ndim, to->shape) : s;
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

static int run_kernel_form(cti_node *n)
{
    int r = cti_kernel_status(n, "backward", n->op->backward(n));
    cti_node_drop_temps(n);
    for (int i = 0; i < n->n_in; i++) {
        ct_tensor *g = n->dx[i];
        n->dx[i] = NULL;
        if (g && r >= 0)
            r = deliver(n->ctx, n->edge[i], g);
        else
            ct_tensor_release(g);
    }
    return r;
}

static int run_vjp(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    int r = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    r = n->op->vjp(n, n->dy, n->dx);
    if (r < 0 && !ctx->err.code)
        cti_op_fail(n, r, "backward failed (%s)", ct_status_name(r));
    for (int i = 0; i < n->n_in; i++)
        ct_tensor_retain(n->dx[i]);
    ct_scope_end(ctx);
    cti_node_drop_temps(n);
    r = ctx->err.code;
    for (int i = 0; i < n->n_in; i++) {
        ct_tensor *g = n->dx[i];
        n->dx[i] = NULL;
        if (g && n->edge[i].fn && r >= 0)
            r = deliver(ctx, n->edge[i], g);
        else
            ct_tensor_release(g);
    }
    return r;
}

static void drop_dy(cti_node *n)
{
    for (int o = 0; o < n->n_out; o++) {
        ct_tensor_release(n->dy[o]);
        n->dy[o] = NULL;
    }
}

static int run_node(cti_node *n, unsigned flags)
{
    int r;
    n->ctx->running = n->op;
    if (n->leaf) {
        r = accumulate(n);
    } else {
        r = check_saved(n);
        if (r >= 0)
            r = n->op->backward ? run_kernel_form(n) : run_vjp(n);
        if (r >= 0 && !(flags & CT_RETAIN_GRAPH))
            cti_node_release_saved(n);
    }
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

static int start(ct_ctx *ctx, ct_tensor *output, ct_tensor *grad)
{
    cti_edge to = {output->grad_fn, output->output_nr};
    cti_node *own = NULL;
    ct_tensor *g = seed_gradient(ctx, output, grad);
    if (g && !to.fn)
        to.fn = own = cti_accumulator_of(output);
    if (!g || !to.fn) {
        ct_tensor_release(g);
        return ctx->err.code;
    }
    int r = deliver(ctx, to, g);
    if (own)
        cti_node_release(own);
    return r;
}

int ct_backward(ct_ctx *ctx, ct_tensor *output, ct_tensor *grad, unsigned flags)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!output || output->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "backward: the output is %s",
                        output ? "of another context" : "NULL");
    if (!output->requires_grad)
        return cti_fail(
            &ctx->err, CT_ESTATE,
            "backward: no graph leads to the output: no operand required grad, or it was "
            "made in a CT_SCOPE_NO_GRAD scope or by ct_detach");
    if (ctx->in_backward)
        return cti_fail(&ctx->err, CT_ESTATE, "backward: called from inside a backward");
    int r = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    cti_enter(ctx);
    const ct_op *running = ctx->running;
    ctx->in_backward = true;
    r = start(ctx, output, grad);
    while (ctx->heap_n > 0) {
        cti_node *n = heap_pop(ctx);
        if (r >= 0)
            r = run_node(n, flags);
        else
            drop_dy(n);
        cti_node_release(n);
    }
    ctx->in_backward = false;
    ctx->running = running;
    ct_scope_end(ctx);
    return ctx->err.code;
}

/* ---- looking at the graph ---- */

const ct_grad_fn *ct_tensor_grad_fn(const ct_tensor *t)
{
    return t ? (const ct_grad_fn *)t->grad_fn : NULL;
}

const char *ct_grad_fn_name(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->op->torch_name : NULL;
}

int ct_grad_fn_inputs(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->n_in : 0;
}

const ct_grad_fn *ct_grad_fn_next(const ct_grad_fn *fn, int i)
{
    const cti_node *n = (const cti_node *)fn;
    return n && i >= 0 && i < n->n_in ? (const ct_grad_fn *)n->edge[i].fn : NULL;
}

uint64_t ct_grad_fn_sequence(const ct_grad_fn *fn)
{
    return fn ? ((const cti_node *)fn)->seq : 0;
}
