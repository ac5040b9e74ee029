/* SPDX-License-Identifier: Apache-2.0 */
/* index_select - the slices of x along dim that index [n] (i64 or i32) names, in its order. Shape: x's with n along
 * dim. All dtypes. Gradient: dy added to the slices it came from, in the order of index. Oracle:
 * torch.index_select. */
#include "autograd/op.h"

ct_view cti_index_along(const ct_view *index, const ct_view *y, int dim)
{
    ct_view wide = *y;
    wide.dtype = CT_I64;
    wide.data = index->data;
    for (int d = 0; d < y->ndim; d++)
        wide.stride[d] = 0;
    wide.stride[dim] = index->ndim ? index->stride[0] : 1;
    return wide;
}

int cti_check_index_vector(cti_node *n, int i)
{
    const ct_view *index = cti_x(n, i);
    char s[64];
    int rc = cti_check_index_dtype(n, i);
    return rc || index->ndim == 1 ? rc :
                                    cti_op_fail(n, CT_ESHAPE, "index %s must be a vector",
                                                cti_shape_str(index, s, sizeof s));
}

static int infer(cti_node *n)
{
    int *dim = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    ct_view y = *x;
    int rc = cti_check_index_vector(n, 1);
    rc = rc ? rc : cti_check_dim(n, 0, dim);
    if (rc)
        return rc;
    if (x->ndim == 0)
        return cti_op_fail(n, CT_ESHAPE, "x is a scalar: it has no dimension to take from");
    y.shape[*dim] = cti_x(n, 1)->shape[0];
    return cti_view_channels_last(x) ? cti_out_channels_last(n, 0, x->dtype, y.shape) :
                                       cti_out_shaped_like(n, 0, x->dtype, &y);
}

static int forward(cti_node *n)
{
    const int dim = *(const int *)cti_attr(n);
    const ct_view *x = cti_x(n, 0), *y = cti_y(n, 0);
    ct_view index = cti_index_along(cti_x(n, 1), y, dim);
    int rc = cti_check_indices(n, cti_x(n, 1), x->shape[dim], dim);
    if (rc)
        return rc;
    cti_save_in(n, 0, 1);
    return cti_be(n)->index->gather(cti_stream(n), y, x, dim, &index);
}

static int backward(cti_node *n)
{
    const int dim = *(const int *)cti_attr(n);
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta), *dy = cti_dy(n, 0);
    if (!dx)
        return cti_pending(n);
    ct_view index = cti_index_along(cti_saved(n, 0), dy, dim);
    int rc = beta ? CT_OK : cti_be(n)->ew->fill(cti_stream(n), dx, 0);
    return rc ? rc : cti_scatter_into(n, dx, dy, dim, &index, true, -1);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const ct_view *x = cti_in_meta(n, 0);
    dx[0] = ct_index_add(ct_new_full(dy[0], x->ndim, x->shape, 0), *(const int *)cti_attr(n),
                         cti_saved_tensor(n, 0), dy[0], 1);
    return cti_pending(n);
}

/* arg: dim. in: x, index. */
static const ct_case cases[] = {
    {.name = "rows", .arg = {0}, .in = {CT_IN(NORMAL, 5, 7), CT_IN_LABELS(5, 9)}},
    {.name = "columns", .arg = {-1}, .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(5, 3)}},
    {.name = "channels", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7), CT_IN_LABELS(3, 4)}},
    {.name = "of a vector", .arg = {0}, .in = {CT_IN(NORMAL, 7), CT_IN_LABELS(7, 17)}},
    {.name = "one row, wide", .arg = {0}, .in = {CT_IN(NORMAL, 2, 300), CT_IN_LABELS(2, 5)}},
    {.name = "integers", .arg = {0}, .in = {CT_IN(I64, 5, 2), CT_IN_LABELS(5, 3)}},
    {.name = "none", .arg = {0}, .in = {CT_IN(NORMAL, 5, 3), CT_IN_LABELS(5, 0)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 3), CT_IN_LABELS(3, 2)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_index_select(in[0], (int)c->arg[0], in[1]);
}

const ct_op cti_op_index_select = {.name = "index_select",
                                   .torch_name = "IndexSelectBackward0",
                                   .accumulates = 1,
                                   .infer = infer,
                                   .forward = forward,
                                   .backward = backward,
                                   .vjp = vjp,
                                   CT_CASES(cases),
                                   .call = call};

ct_tensor *cti_index_i64(ct_tensor *index)
{
    return index && ct_tensor_dtype(index) == CT_I32 ? ct_cast(index, CT_I64) : index;
}

ct_tensor *ct_index_select(ct_tensor *x, int dim, ct_tensor *index)
{
    ct_tensor *in[2] = {x, cti_index_i64(index)};
    return index && !in[1] ? NULL : cti_apply(&cti_op_index_select, &dim, sizeof dim, 2, in);
}
