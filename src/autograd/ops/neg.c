/* SPDX-License-Identifier: Apache-2.0 */
/* neg - y = -x. Shape: as x. Gradient: dx = -dy. Oracle: torch.neg. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_neg(dy[0]);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "vector", .in = {CT_IN(NORMAL, 37)}},
    {.name = "images", .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_neg(in[0]);
}

const ct_op cti_op_neg = {.name = "neg",
                          .torch_name = "NegBackward0",
                          .accumulates = 1,
                          .infer = cti_unary_infer,
                          .forward = cti_unary_forward,
                          .backward = cti_unary_backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_neg(ct_tensor *x)
{
    return cti_apply_unary(&cti_op_neg, CT_UN_NEG, x);
}

ct_tensor *ct_neg_(ct_tensor *x)
{
    return cti_apply_unary_inplace(&cti_op_neg, CT_UN_NEG, x);
}
