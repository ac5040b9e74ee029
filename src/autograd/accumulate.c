/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the graph at a leaf: its gradient is set or added to. */
#include "autograd/internal.h"

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
bool cti_home_is_free(const ct_tensor *leaf, const ct_tensor *g)
{
    const ct_tensor *home = leaf->grad_home;
    return home && home->refs == (g == home ? 2 : 1) && home->storage->refs == 1;
}

static int accumulate(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    ct_tensor *leaf = n->leaf, *g = n->dy[0];
    if (!leaf->grad && (ctx->capture || cti_home_is_free(leaf, g)))
        return attach_home(n, g);
    if (ctx->capture && leaf->grad != leaf->grad_home)
        return cti_op_fail(n, CT_ESTATE,
                           "captured work would add to a gradient that was made outside of it; "
                           "zero the gradients before");
    if (!leaf->grad) {
        if (!cti_view_dense_like(&g->view, &leaf->view) || !cti_is_exclusive(g))
            return set_copy(n, g);
        leaf->grad = ct_tensor_retain(g);
        return CT_OK;
    }
    /* One that the application set may be an expanded view, which can't be added to. */
    if (!cti_view_is_dense(&leaf->grad->view) && set_copy(n, leaf->grad) < 0)
        return ctx->err.code;
    int r = cti_add_into(ctx, leaf->grad, g);
    cti_storage_changed(leaf->grad->storage);
    return cti_kernel_status(n, "accumulation", r);
}

int cti_accumulate(cti_node *n)
{
    int r = accumulate(n);
    return r >= 0 && n->leaf->hooks ? cti_run_leaf_hooks(n->leaf) : r;
}
