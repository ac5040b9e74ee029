/* SPDX-License-Identifier: Apache-2.0 */
/* gather - y[.., i, ..] = x[.., index[.., i, ..], ..] along dim. Shape: index's, which has x's number of dimensions
 * and is nowhere but along dim larger. x of any dtype, index i64 in [0, size). Gradient: dy scattered by
 * addition. Oracle: torch.gather. */
#include "autograd/op.h"

void cti_report_index(ct_ctx *ctx, const ct_op *op, const int64_t found[3], int64_t dim)
{
    cti_raise(
        ctx, op, CT_EDATA,
        "index %lld at position %lld is out of range for %lld elements (0..%lld) of dimension %lld%s",
        (long long)found[1], (long long)found[0], (long long)found[2], (long long)found[2] - 1,
        (long long)dim, found[1] == found[2] ? "; 1-based?" : "");
}

int cti_check_indices(cti_node *n, const ct_view *index, int64_t bound, int dim)
{
    const ct_view *bad = cti_late(n, cti_report_index, dim);
    return bad ? cti_be(n)->index->check(cti_stream(n), index, bound, bad) : cti_pending(n);
}

int cti_check_index_dtype(cti_node *n, int i)
{
    const ct_view *v = cti_x(n, i);
    return v->dtype == CT_I64 ? CT_OK :
                                cti_op_fail(n, CT_EDTYPE, "index is %s: int64 is needed (ct_cast)",
                                            ct_dtype_name(v->dtype));
}

ct_view cti_at_least_1d(const ct_view *v)
{
    ct_view w = *v;
    if (v->ndim == 0) {
        w.ndim = 1;
        w.shape[0] = w.stride[0] = 1;
    }
    return w;
}

int cti_start_as(cti_node *n, int i)
{
    const ct_view *y = cti_y(n, 0), *x = cti_x(n, i);
    return y->data == x->data ? CT_OK : cti_be(n)->ew->copy(cti_stream(n), y, x);
}

int cti_scatter_into(cti_node *n, const ct_view *y, const ct_view *src, int dim,
                     const ct_view *index, bool add, int64_t skip)
{
    ct_view s = cti_at_least_1d(src);
    ct_scatter_args args = {.y = cti_at_least_1d(y),
                            .src = &s,
                            .index = cti_at_least_1d(index),
                            .dim = dim,
                            .add = add,
                            .skip = skip};
    return cti_be(n)->index->scatter(cti_stream(n), &args);
}

static int infer(cti_node *n)
{
    int *dim = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0), *index = cti_x(n, 1);
    char s[64], t[64];
    int rc = cti_check_index_dtype(n, 1);
    rc = rc ? rc : cti_check_dim(n, 0, dim);
    if (rc)
        return rc;
    bool fits = x->ndim == index->ndim;
    for (int d = 0; fits && d < x->ndim; d++)
        fits = d == *dim || index->shape[d] <= x->shape[d];
    if (!fits)
        return cti_op_fail(n, CT_ESHAPE,
                           "index %s must have as many dimensions as x %s and be no larger outside "
                           "dimension %d",
                           cti_shape_str(index, s, sizeof s), cti_shape_str(x, t, sizeof t), *dim);
    return cti_out_shaped_like(n, 0, x->dtype, index);
}

static int forward(cti_node *n)
{
    const int dim = *(const int *)cti_attr(n);
    ct_view x = cti_at_least_1d(cti_x(n, 0)), y = cti_at_least_1d(cti_y(n, 0));
    ct_view index = cti_at_least_1d(cti_x(n, 1));
    int rc = cti_check_indices(n, &index, x.shape[dim], dim);
    if (rc)
        return rc;
    cti_save_in(n, 0, 1);
    return cti_be(n)->index->gather(cti_stream(n), &y, &x, dim, &index);
}

static int backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    int rc = beta ? CT_OK : cti_be(n)->ew->fill(cti_stream(n), dx, 0);
    return rc ? rc :
                cti_scatter_into(n, dx, cti_dy(n, 0), *(const int *)cti_attr(n), cti_saved(n, 0),
                                 true, -1);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const ct_view *x = cti_in_meta(n, 0);
    dx[0] = ct_scatter_add(ct_new_full(dy[0], x->ndim, x->shape, 0), *(const int *)cti_attr(n),
                           cti_saved_tensor(n, 0), dy[0]);
    return cti_pending(n);
}

/* arg: dim. in: x, index. */
static const ct_case cases[] = {
    {.name = "columns", .arg = {1}, .in = {CT_IN(NORMAL, 5, 7), CT_IN_LABELS(7, 5, 3)}},
    {.name = "one each", .arg = {-1}, .in = {CT_IN(NORMAL, 17, 5), CT_IN_LABELS(5, 17, 1)}},
    {.name = "rows, fewer columns", .arg = {0}, .in = {CT_IN(NORMAL, 3, 7), CT_IN_LABELS(3, 9, 5)}},
    {.name = "channels",
     .arg = {1},
     .in = {CT_IN(NORMAL, 2, 3, 5, 4), CT_IN_LABELS(3, 2, 4, 5, 4)}},
    {.name = "vector", .arg = {0}, .in = {CT_IN(NORMAL, 5), CT_IN_LABELS(5, 19)}},
    {.name = "scalars",
     .arg = {0},
     .in = {CT_IN_SCALAR(NORMAL), {.kind = CT_IN_CLASS, .classes = 1}}},
    {.name = "integers", .arg = {0}, .in = {CT_IN(I64, 5), CT_IN_LABELS(5, 3)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(5, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_gather(in[0], (int)c->arg[0], in[1]);
}

const ct_op cti_op_gather = {.name = "gather",
                             .torch_name = "GatherBackward0",
                             .accumulates = 1,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

ct_tensor *ct_gather(ct_tensor *x, int dim, ct_tensor *index)
{
    ct_tensor *in[2] = {x, index};
    return cti_apply(&cti_op_gather, &dim, sizeof dim, 2, in);
}
