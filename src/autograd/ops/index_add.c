/* SPDX-License-Identifier: Apache-2.0 */
/* index_add - x with the slices of alpha src added to those along dim that index [n] (i64 or i32) names, in its
 * order. Shape: x's; src has it too, but for n along dim. Gradient: dx = dy, dsrc = alpha dy's slices. Oracle:
 * torch.index_add. */
#include "autograd/op.h"

enum { IN_X, IN_INDEX, IN_SRC };

int cti_index_add_infer(cti_node *n)
{
    int *dim = cti_attr_mut(n);
    const ct_view *x = cti_x(n, IN_X), *src = cti_x(n, IN_SRC);
    char s[64], t[64], u[64];
    int rc = cti_check_index_vector(n, IN_INDEX);
    rc = rc ? rc : cti_check_dim(n, IN_X, dim);
    if (rc)
        return rc;
    if (src->dtype != x->dtype)
        return cti_op_fail(n, CT_EDTYPE, "x is %s, src %s: one dtype is needed (ct_cast)",
                           ct_dtype_name(x->dtype), ct_dtype_name(src->dtype));
    bool fits = x->ndim > 0 && src->ndim == x->ndim;
    for (int d = 0; fits && d < x->ndim; d++)
        fits = src->shape[d] == (d == *dim ? cti_x(n, IN_INDEX)->shape[0] : x->shape[d]);
    if (!fits)
        return cti_op_fail(
            n, CT_ESHAPE,
            "src %s must have the shape of x %s, but along dimension %d that of index "
            "%s",
            cti_shape_str(src, s, sizeof s), cti_shape_str(x, t, sizeof t), *dim,
            cti_shape_str(cti_x(n, IN_INDEX), u, sizeof u));
    return cti_out_like(n, 0, IN_X);
}

int cti_index_add_run(cti_node *n, bool add)
{
    const int dim = *(const int *)cti_attr(n);
    const ct_view *y = cti_y(n, 0), *src = cti_x(n, IN_SRC);
    ct_view index = cti_index_along(cti_x(n, IN_INDEX), src, dim);
    int rc = cti_start_as(n, IN_X);
    rc = rc ? rc : cti_check_indices(n, cti_x(n, IN_INDEX), y->shape[dim], dim);
    if (rc)
        return rc;
    cti_save_in(n, 0, IN_INDEX);
    return cti_scatter_into(n, y, src, dim, &index, add, -1);
}

static int infer(cti_node *n)
{
    ct_dtype t = cti_x(n, IN_X)->dtype;
    int rc = t == CT_I64 || t == CT_I32 ? CT_OK : cti_check_float(n, IN_X);
    return rc ? rc : cti_index_add_infer(n);
}

static int forward(cti_node *n)
{
    return cti_index_add_run(n, true);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    if (cti_wants(n, IN_X))
        dx[IN_X] = dy[0];
    if (cti_wants(n, IN_SRC))
        dx[IN_SRC] = ct_index_select(dy[0], *(const int *)cti_attr(n), cti_saved_tensor(n, 0));
    return cti_pending(n);
}

/* arg: dim, alpha. in: x, index, src. */
static const ct_case cases[] = {
    {.name = "rows",
     .arg = {0, 1},
     .in = {CT_IN(NORMAL, 5, 7), CT_IN_LABELS(5, 9), CT_IN(NORMAL, 9, 7)}},
    {.name = "columns, scaled",
     .arg = {-1, -0.5},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(5, 2), CT_IN(NORMAL, 3, 2)}},
    {.name = "channels",
     .arg = {1, 1},
     .in = {CT_IN(NORMAL, 2, 3, 5, 4), CT_IN_LABELS(3, 4), CT_IN(NORMAL, 2, 4, 5, 4)}},
    {.name = "vector",
     .arg = {0, 1},
     .in = {CT_IN(NORMAL, 5), CT_IN_LABELS(5, 19), CT_IN(NORMAL, 19)}},
    {.name = "integers", .arg = {0, 2}, .in = {CT_IN(I64, 5), CT_IN_LABELS(5, 7), CT_IN(I64, 7)}},
    {.name = "empty",
     .arg = {0, 1},
     .in = {CT_IN(NORMAL, 5, 3), CT_IN_LABELS(5, 0), CT_IN(NORMAL, 0, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_index_add(in[0], (int)c->arg[0], in[1], in[2], c->arg[1]);
}

const ct_op cti_op_index_add = {.name = "index_add",
                                .torch_name = "IndexAddBackward0",
                                .infer = infer,
                                .forward = forward,
                                .vjp = vjp,
                                CT_CASES(cases),
                                .call = call};

/* Operands with an index of i64 and src scaled; false: one of them failed. */
static bool operands(ct_tensor *x, ct_tensor *index, ct_tensor *src, double alpha, ct_tensor **in)
{
    in[0] = x;
    in[1] = cti_index_i64(index);
    in[2] = alpha == 1 || !src ? src : ct_affine(src, alpha, 0);
    return (in[1] || !index) && (in[2] || !src);
}

ct_tensor *ct_index_add(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src, double alpha)
{
    ct_tensor *in[3];
    return operands(x, index, src, alpha, in) ?
               cti_apply(&cti_op_index_add, &dim, sizeof dim, 3, in) :
               NULL;
}

ct_tensor *ct_index_add_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src, double alpha)
{
    ct_tensor *in[3];
    return operands(x, index, src, alpha, in) ?
               cti_apply_inplace(&cti_op_index_add, &dim, sizeof dim, 3, in) :
               NULL;
}
