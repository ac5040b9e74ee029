/* SPDX-License-Identifier: Apache-2.0 */
/* triu - x where column - row is at least `diagonal`, else 0, in the last two dimensions. All dtypes. Gradient: dy
 * likewise. Oracle: torch.triu. */
#include "autograd/op.h"

/* arg: diagonal. */
static const ct_case cases[] = {
    {.name = "main", .arg = {0}, .in = {CT_IN(NORMAL, 5, 7)}},
    {.name = "above", .arg = {2}, .in = {CT_IN(NORMAL, 7, 5)}},
    {.name = "none of it", .arg = {9}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "batches", .arg = {-1}, .in = {CT_IN(NORMAL, 2, 3, 5, 4)}},
    {.name = "integers", .arg = {1}, .in = {CT_IN(I64, 5, 5)}},
    {.name = "empty", .arg = {0}, .in = {CT_IN(NORMAL, 5, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_triu(in[0], (int64_t)c->arg[0]);
}

const ct_op cti_op_triu = {.name = "triu",
                           .torch_name = "TriuBackward0",
                           .infer = cti_tri_infer,
                           .forward = cti_tri_forward,
                           .vjp = cti_tri_vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_triu(ct_tensor *x, int64_t diagonal)
{
    cti_tri_attrs a = {.diagonal = diagonal, .upper = true};
    return cti_apply(&cti_op_triu, &a, sizeof a, 1, &x);
}
