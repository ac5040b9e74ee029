/* SPDX-License-Identifier: Apache-2.0 */
/* tril - x where column - row is at most `diagonal`, else 0, in the last two dimensions. All dtypes.
 * Gradient: dy likewise. Oracle: torch.tril. */
#include "autograd/op.h"

int cti_tri_infer(cti_node *n)
{
    const ct_view *x = cti_x(n, 0);
    char s[64];
    if (x->ndim < 2)
        return cti_op_fail(n, CT_ESHAPE, "x %s must be [..., rows, columns]",
                           cti_shape_str(x, s, sizeof s));
    cti_tri_attrs *a = cti_attr_mut(n);
    const int64_t rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1];
    a->diagonal = a->diagonal > columns ? columns : a->diagonal;
    a->diagonal = a->diagonal < -rows ? -rows : a->diagonal;
    return cti_out_like(n, 0, 0);
}

int cti_tri_forward(cti_node *n)
{
    const cti_tri_attrs *a = cti_attr(n);
    return cti_be(n)->index->tri(cti_stream(n), cti_y(n, 0), cti_x(n, 0), a->diagonal, a->upper);
}

int cti_tri_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_tri_attrs *a = cti_attr(n);
    dx[0] = (a->upper ? ct_triu : ct_tril)(dy[0], a->diagonal);
    return cti_pending(n);
}

/* arg: diagonal. */
static const ct_case cases[] = {
    {.name = "main", .arg = {0}, .in = {CT_IN(NORMAL, 5, 7)}},
    {.name = "below", .arg = {-2}, .in = {CT_IN(NORMAL, 7, 5)}},
    {.name = "all of it", .arg = {9}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "batches", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5, 4)}},
    {.name = "bool", .arg = {0}, .in = {CT_IN(BOOL, 5, 5)}},
    {.name = "empty", .arg = {0}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_tril(in[0], (int64_t)c->arg[0]);
}

const ct_op cti_op_tril = {.name = "tril",
                           .torch_name = "TrilBackward0",
                           .infer = cti_tri_infer,
                           .forward = cti_tri_forward,
                           .vjp = cti_tri_vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_tril(ct_tensor *x, int64_t diagonal)
{
    cti_tri_attrs a = {.diagonal = diagonal};
    return cti_apply(&cti_op_tril, &a, sizeof a, 1, &x);
}
