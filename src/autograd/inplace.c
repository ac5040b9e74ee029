/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that change their first operand, and what that means for views of the same memory.
 *
 * The operand takes over the new node. Where it is a view, the change is said of its base: base becomes
 * put(base, changed view), and each view of it, this one too, is region(base) from then on, told when somebody
 * next looks at it (cti_tensor_sync). So a base and all its views always agree, as in PyTorch. */
#include "autograd/internal.h"

#include <string.h>

/* ---- a window on a dense base ---- */

typedef struct window {
    int ndim;
    int64_t shape[CT_MAX_DIMS], stride[CT_MAX_DIMS], offset; /* in elements */
} window;

_Static_assert(sizeof(window) <= CTI_ATTR_BYTES, "a window must fit into a node");

/* The window on memory that is laid out as the base is. */
static ct_view on(const window *w, const ct_view *base)
{
    ct_view v = {.dtype = base->dtype, .ndim = w->ndim};
    v.data = (char *)base->data + w->offset * (int64_t)ct_dtype_bytes(v.dtype);
    memcpy(v.shape, w->shape, sizeof v.shape);
    memcpy(v.stride, w->stride, sizeof v.stride);
    return v;
}

static window window_of(const ct_tensor *view)
{
    window w = {.ndim = view->view.ndim};
    size_t size = ct_dtype_bytes(view->view.dtype);
    memcpy(w.shape, view->view.shape, sizeof w.shape);
    memcpy(w.stride, view->view.stride, sizeof w.stride);
    w.offset = ((char *)view->view.data - (char *)view->base->view.data) / (int64_t)size;
    return w;
}

static int infer_region(cti_node *n)
{
    const window *w = cti_attr(n);
    return cti_out_view(n, 0, 0, w->ndim, w->shape, w->stride, w->offset);
}

/* dx is 0 but in the window. */
static int backward_region(cti_node *n)
{
    const ct_k_ew *ew = cti_be(n)->ew;
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    ct_view in = on(cti_attr(n), dx);
    int r = ew->fill(cti_stream(n), dx, 0);
    return r ? r : ew->copy(cti_stream(n), &in, cti_dy(n, 0));
}

/* Memory is as it shall be already: the base's. */
static int infer_put(cti_node *n)
{
    const ct_view *x = cti_x(n, 0);
    return cti_out_view(n, 0, 0, x->ndim, x->shape, x->stride, 0);
}

/* The base's gradient passes outside of the window, the window's is the view's. */
static int backward_put(cti_node *n)
{
    const ct_k_ew *ew = cti_be(n)->ew;
    int beta, r = CT_OK;
    const ct_view *dy = cti_dy_like(n, 0, cti_in_meta(n, 0));
    if (!dy)
        return cti_pending(n);
    const ct_view *dbase = cti_dx(n, 0, &beta), *dview = cti_dx(n, 1, &beta);
    if (cti_pending(n))
        return cti_pending(n);
    if (dbase) {
        ct_view hole = on(cti_attr(n), dbase);
        r = ew->copy(cti_stream(n), dbase, dy);
        r = r ? r : ew->fill(cti_stream(n), &hole, 0);
    }
    ct_view in = on(cti_attr(n), dy);
    return dview && !r ? ew->copy(cti_stream(n), dview, &in) : r;
}

#define NO_SECOND "it stands for a change in place through a view; change a ct_clone instead"
static const ct_op op_region = {.name = "as_strided",
                                .torch_name = "AsStridedBackward0",
                                .infer = infer_region,
                                .backward = backward_region,
                                .no_second = NO_SECOND,
                                .autocast = CTI_AS_IS};
static const ct_op op_put = {.name = "copy_slices",
                             .torch_name = "CopySlices",
                             .infer = infer_put,
                             .backward = backward_put,
                             .no_second = NO_SECOND,
                             .autocast = CTI_AS_IS};

/* ---- whose graph a tensor has ---- */

static int set_grad_fn(ct_tensor *t, cti_node *fn, int nr)
{
    bool keeps = t->keeps_grad;
    if (keeps) {
        cti_hooks_forget_keeper(t);
        t->keeps_grad = false;
    }
    cti_node *old = t->grad_fn;
    cti_node_retain(fn);
    t->grad_fn = fn;
    t->output_nr = nr;
    t->requires_grad = true;
    if (old)
        cti_node_release(old);
    return keeps ? ct_tensor_retain_grad(t->ctx, t) : CT_OK;
}

/* t takes over the graph of y, a result that nobody else sees. */
static int take_over(ct_tensor *t, ct_tensor *y)
{
    return y && y->grad_fn ? set_grad_fn(t, y->grad_fn, y->output_nr) : t->ctx->err.code;
}

int cti_tensor_sync(ct_tensor *t)
{
    ct_ctx *ctx = t->ctx;
    if (!t->base || t->base_changes == t->base->changes)
        return CT_OK;
    if (ctx->err.code)
        return ctx->err.code;
    window w = window_of(t);
    if (ct_scope_begin(ctx, CT_SCOPE_PLAIN) < 0)
        return ctx->err.code;
    bool mode = ctx->grad_mode;
    ctx->grad_mode = true;
    t->base_changes = t->base->changes;
    take_over(t, cti_apply(&op_region, &w, sizeof w, 1, &t->base));
    ctx->grad_mode = mode;
    ct_scope_end(ctx);
    return ctx->err.code;
}

/* ---- checks ---- */

static bool overlap(const ct_view *a, const ct_view *b)
{
    int64_t end[2] = {0, 0};
    const ct_view *v[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        if (ct_view_numel(v[k]) == 0)
            return false;
        for (int i = 0; i < v[k]->ndim; i++)
            end[k] += (v[k]->shape[i] - 1) * v[k]->stride[i];
        end[k] = (end[k] + 1) * (int64_t)ct_dtype_bytes(v[k]->dtype);
    }
    return (char *)a->data < (char *)b->data + end[1] && (char *)b->data < (char *)a->data + end[0];
}

static bool same_window(const ct_view *a, const ct_view *b)
{
    bool same = a->data == b->data && cti_same_shape(a, b);
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] <= 1 || a->stride[i] == b->stride[i];
    return same;
}

static int check_target(const ct_op *op, ct_tensor *t, bool recorded)
{
    ct_ctx *ctx = t->ctx;
    const ct_tensor *leaf = t->base ? t->base : t;
    const char *why = NULL;
    for (int i = 0; i < t->view.ndim; i++)
        if (t->view.shape[i] > 1 && t->view.stride[i] == 0)
            why =
                "it is expanded: several of its elements are one place in memory; ct_clone it first";
    if (t->storage->inference && !ctx->inference)
        why =
            "it was made in inference mode (CT_SCOPE_INFERENCE); ct_clone it outside of that scope";
    else if (ctx->grad_mode && !leaf->grad_fn && leaf->requires_grad)
        why = t->base ?
                  "it is a view of a leaf that requires grad; do it in a CT_SCOPE_NO_GRAD scope" :
                  "it is a leaf that requires grad; do it in a CT_SCOPE_NO_GRAD scope";
    else if (recorded && t->untracked)
        why = "it is a view that was made while nothing was recorded, so its base would not know; "
              "make the view again, or ct_clone it";
    else if (recorded && t->base && !cti_view_is_dense(&t->base->view))
        why = "it is a view of a tensor that is not dense; ct_clone it";
    if (why)
        cti_raise(ctx, op, CT_ESTATE, "the tensor can't be changed in place: %s", why);
    return ctx->err.code;
}

/* ---- apply ---- */

/* The graph after t became y: of t itself, or of what it is a view of. */
static int rebase(ct_tensor *t, ct_tensor *y)
{
    ct_ctx *ctx = t->ctx;
    if (!t->base) {
        t->changes++;
        return take_over(t, y);
    }
    window w = window_of(t);
    ct_tensor *base = t->base;
    if (take_over(base, cti_apply(&op_put, &w, sizeof w, 2, (ct_tensor *[]){base, y})) < 0)
        return ctx->err.code;
    base->changes++;
    return CT_OK;
}

ct_tensor *cti_apply_inplace(const ct_op *op, const void *attr, size_t attr_bytes, int n_in,
                             ct_tensor *const *in)
{
    ct_tensor *t = in[0], *y = NULL;
    ct_ctx *ctx = cti_ctx_of(n_in, in);
    if (!ctx || ctx->err.code)
        return NULL;
    if (!t)
        return cti_raise(ctx, op, CT_EINVAL, "input 0 is NULL");
    bool recorded = false;
    for (int i = 0; i < n_in && ctx->grad_mode; i++)
        recorded = recorded || (in[i] && ct_tensor_requires_grad(in[i]));
    if (check_target(op, t, recorded) < 0)
        return NULL;
    if (recorded && !op->backward && !op->vjp)
        return cti_raise(ctx, op, CT_ESTATE,
                         "it has no gradient, and the tensor changed in place is part of a graph");
    for (int i = 1; i < n_in; i++)
        if (in[i] && in[i]->storage == t->storage && overlap(&in[i]->view, &t->view) &&
            !same_window(&in[i]->view, &t->view))
            return cti_raise(ctx, op, CT_EINVAL,
                             "input %d is partly the memory that is changed in place; ct_clone it",
                             i);
    if (ct_scope_begin(ctx, CT_SCOPE_PLAIN) < 0)
        return NULL;
    cti_apply_call call = {op, attr, attr_bytes, n_in, in, .inplace = true};
    if (cti_apply_run(&call, 1, &y) >= 0 && y->grad_fn)
        rebase(t, y);
    ct_scope_end(ctx);
    return ctx->err.code ? NULL : t;
}
