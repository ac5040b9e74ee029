/* SPDX-License-Identifier: Apache-2.0 */
/* scatter - x with y[.., index[.., i, ..], ..] = src[.., i, ..] along dim; src may be one number (scatter_value). Of
 * equal indices the last one stays. Shape: x's; index has as many dimensions, is nowhere larger than src and but
 * along dim nowhere larger than x. Gradient: dx = dy, 0 where it was overwritten; dsrc = dy gathered (as if each
 * element stayed). Oracle: torch.scatter. */
#include "autograd/op.h"

enum { IN_X, IN_INDEX, IN_SRC };

int cti_scatter_infer(cti_node *n)
{
    cti_scatter_attrs *a = cti_attr_mut(n);
    const ct_view *x = cti_x(n, IN_X), *index = cti_x(n, IN_INDEX), *src = cti_x(n, IN_SRC);
    char s[64], t[64];
    int rc = cti_check_index_dtype(n, IN_INDEX);
    rc = rc ? rc : cti_check_dim(n, IN_X, &a->dim);
    if (rc)
        return rc;
    if (src && src->dtype != x->dtype)
        return cti_op_fail(n, CT_EDTYPE, "x is %s, src %s: one dtype is needed (ct_cast)",
                           ct_dtype_name(x->dtype), ct_dtype_name(src->dtype));
    if (a->add && x->dtype != CT_I64 && x->dtype != CT_I32 && (rc = cti_check_float(n, IN_X)))
        return rc;
    bool fits = x->ndim == index->ndim && (!src || src->ndim == index->ndim);
    for (int d = 0; fits && d < x->ndim; d++)
        fits = (d == a->dim || index->shape[d] <= x->shape[d]) &&
               (!src || index->shape[d] <= src->shape[d]);
    if (!fits)
        return cti_op_fail(n, CT_ESHAPE,
                           "index %s must have as many dimensions as x %s%s and be no larger, but "
                           "than x along dimension %d",
                           cti_shape_str(index, s, sizeof s), cti_shape_str(x, t, sizeof t),
                           src ? " and src" : "", a->dim);
    return cti_out_like(n, 0, IN_X);
}

int cti_scatter_forward(cti_node *n)
{
    const cti_scatter_attrs *a = cti_attr(n);
    const ct_view *y = cti_y(n, 0), *index = cti_x(n, IN_INDEX), *src = cti_x(n, IN_SRC);
    int rc = cti_start_as(n, IN_X);
    rc = rc ? rc : cti_check_indices(n, index, y->ndim ? y->shape[a->dim] : 1, a->dim);
    if (rc)
        return rc;
    cti_save_in(n, 0, IN_INDEX);
    if (src) {
        ct_view part = *src; /* as much of it as there are indices */
        for (int d = 0; d < index->ndim; d++)
            part.shape[d] = index->shape[d];
        rc = cti_scatter_into(n, y, &part, a->dim, index, a->add, -1);
    } else {
        ct_scatter_args args = {.y = cti_at_least_1d(y),
                                .value = a->value,
                                .index = cti_at_least_1d(index),
                                .dim = a->dim,
                                .skip = -1};
        rc = cti_be(n)->index->scatter(cti_stream(n), &args);
    }
    return rc;
}

/* What of dy came from src, with zeros where src is larger than index. */
static ct_tensor *gathered(cti_node *n, ct_tensor *dy, int dim, ct_tensor *index)
{
    const ct_view *src = cti_in_meta(n, IN_SRC);
    ct_tensor *g = ct_gather(dy, dim, index);
    int64_t pads[2 * CT_MAX_DIMS] = {0};
    bool larger = false;
    for (int d = 0; g && d < src->ndim; d++) {
        int64_t more = src->shape[d] - ct_tensor_shape(g)[d];
        pads[2 * (src->ndim - 1 - d) + 1] = more;
        larger = larger || more;
    }
    return larger ? ct_pad(g, 2 * src->ndim, pads, CT_PAD_CONSTANT, 0) : g;
}

int cti_scatter_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_scatter_attrs *a = cti_attr(n);
    ct_tensor *index = cti_saved_tensor(n, 0);
    if (cti_wants(n, IN_X))
        dx[IN_X] = a->add ? dy[0] : ct_scatter_value(dy[0], a->dim, index, 0);
    if (cti_wants(n, IN_SRC))
        dx[IN_SRC] = gathered(n, dy[0], a->dim, index);
    return cti_pending(n);
}

/* arg: dim, value (when there is no src). in: x, index, src. Indices are all different (one for each line), as PyTorch leaves open which one stays. */
static const ct_case cases[] = {
    {.name = "set one each",
     .arg = {1, 0},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(5, 7, 1), CT_IN(NORMAL, 7, 1)}},
    /* PyTorch 2.15 has no gradient of a larger src. */
    {.name = "set rows, src larger",
     .arg = {0, 0},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(3, 1, 4), CT_IN_FIXED(NORMAL, 2, 5)}},
    {.name = "set integers",
     .arg = {1, 0},
     .in = {CT_IN(I64, 3, 5), CT_IN_LABELS(5, 3, 1), CT_IN(I64, 3, 1)}},
    {.name = "value", .arg = {-1, 3.5}, .in = {CT_IN(NORMAL, 5, 7), CT_IN_LABELS(7, 5, 3)}},
    {.name = "value, bool", .arg = {1, 1}, .in = {CT_IN(BOOL, 5, 3), CT_IN_LABELS(3, 5, 1)}},
    {.name = "empty",
     .arg = {0},
     .in = {CT_IN(NORMAL, 5, 3), CT_IN_LABELS(5, 0, 3), CT_IN(NORMAL, 0, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dim = (int)c->arg[0];
    bool value = c->in[IN_SRC].kind == CT_IN_NONE;
    return value ? ct_scatter_value(in[0], dim, in[1], c->arg[1]) :
                   ct_scatter(in[0], dim, in[1], in[2]);
}

const ct_op cti_op_scatter = {.name = "scatter",
                              .torch_name = "ScatterBackward0",
                              .optional = 4,
                              .infer = cti_scatter_infer,
                              .forward = cti_scatter_forward,
                              .vjp = cti_scatter_vjp,
                              CT_CASES(cases),
                              .call = call};

ct_tensor *cti_apply_scatter(const ct_op *op, ct_tensor *x, ct_tensor *index, ct_tensor *src,
                             int dim, bool add)
{
    cti_scatter_attrs a = {.dim = dim, .add = add};
    ct_tensor *in[3] = {x, index, src};
    return src ? cti_apply(op, &a, sizeof a, 3, in) :
                 cti_raise(cti_ctx_of(3, in), op, CT_EINVAL, "input 2 is NULL");
}

ct_tensor *cti_apply_scatter_(const ct_op *op, ct_tensor *x, ct_tensor *index, ct_tensor *src,
                              int dim, bool add)
{
    cti_scatter_attrs a = {.dim = dim, .add = add};
    ct_tensor *in[3] = {x, index, src};
    return src ? cti_apply_inplace(op, &a, sizeof a, 3, in) :
                 cti_raise(cti_ctx_of(3, in), op, CT_EINVAL, "input 2 is NULL");
}

ct_tensor *ct_scatter(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src)
{
    return cti_apply_scatter(&cti_op_scatter, x, index, src, dim, false);
}

ct_tensor *ct_scatter_value(ct_tensor *x, int dim, ct_tensor *index, double value)
{
    cti_scatter_attrs a = {.dim = dim, .value = value};
    ct_tensor *in[3] = {x, index, NULL};
    return cti_apply(&cti_op_scatter, &a, sizeof a, 3, in);
}

ct_tensor *ct_scatter_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src)
{
    return cti_apply_scatter_(&cti_op_scatter, x, index, src, dim, false);
}
