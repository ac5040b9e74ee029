/* SPDX-License-Identifier: Apache-2.0 */
/* What an op's backward sees: gradients that came, where to write its own, what was saved. */
#include "autograd/internal.h"

#include <string.h>

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
    if (!cti_edge_wanted(n, i))
        return NULL;
    ct_tensor *there = n->edge[i].fn->dy[n->edge[i].nr];
    ct_tensor *leaf = n->edge[i].fn->leaf;
    ct_view like = n->in_view[i];
    const ct_view *meta = &like;
    if (leaf && n->op->f32_grads >> i & 1u && n->ctx->device.be->f32_of_half)
        like.dtype = leaf->view.dtype; /* autocast cast the leaf */
    bool chosen = n->ctx->run->got;    /* ct_grad: nothing goes to a leaf's own gradient */
    if (there && (n->op->accumulates >> i & 1u) && cti_is_exclusive(there) &&
        there->view.dtype == meta->dtype) {
        *beta = 1;
        return &there->view;
    }
    if (!n->dx[i]) {
        int64_t stride[CT_MAX_DIMS];
        cti_dense_order(meta, stride);
        ct_tensor *home = leaf && !chosen ? leaf->grad_home : NULL;
        if (home && !there && !leaf->grad && cti_home_is_free(leaf, NULL) &&
            home->view.dtype == meta->dtype && cti_view_dense_like(&home->view, meta)) {
            n->dx[i] = ct_tensor_retain(home);
            return &home->view;
        }
        n->dx[i] = cti_tensor_alloc(n->ctx, meta->dtype, meta->ndim, meta->shape, stride);
    }
    return n->dx[i] ? &n->dx[i]->view : NULL;
}

/* What was saved of input i or output o, as a part of the graph that led to it. */
static void link_to_graph(cti_node *n, const cti_slot *s, ct_tensor *t)
{
    cti_edge from = s->kind == 'x' ? n->edge[s->index] : (cti_edge){n, s->index};
    if (!from.fn || s->kind == 'n')
        return;
    cti_node_retain(from.fn);
    t->grad_fn = from.fn;
    t->output_nr = from.nr;
    t->requires_grad = true;
}

static ct_tensor *saved(cti_node *n, int slot, bool graph)
{
    cti_slot *s = &n->saved[slot];
    if (!s->storage)
        return NULL;
    cti_node *from = graph && s->kind == 'x' ? n->edge[s->index].fn : NULL;
    if (from && from->leaf) /* cast as it was */
        return ct_cast(from->leaf, s->view.dtype);
    ct_tensor *t = cti_tensor_view_of(n->ctx, s->storage, &s->view);
    if (!t)
        return NULL;
    if (graph)
        link_to_graph(n, s, t);
    cti_scope_adopt(n->ctx, t);
    return t;
}

ct_tensor *cti_saved_tensor(cti_node *n, int slot)
{
    return saved(n, slot, n->ctx->run->flags & CT_CREATE_GRAPH);
}

ct_tensor *cti_saved_in_graph(cti_node *n, int slot)
{
    return saved(n, slot, true);
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
