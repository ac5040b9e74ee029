/* SPDX-License-Identifier: Apache-2.0 */
/* exp - y = e^x. Shape: as x. Gradient: dx = dy y. Oracle: torch.exp. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_mul(dy[0], cti_saved_tensor(n, 1));
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
    return ct_exp(in[0]);
}

const ct_op cti_op_exp = {.name = "exp",
                          .torch_name = "ExpBackward0",
                          .accumulates = 1,
                          .autocast = CTI_F32,
                          .infer = cti_unary_infer,
                          .forward = cti_unary_forward,
                          .backward = cti_unary_backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_exp(ct_tensor *x)
{
    return cti_apply_unary(&cti_op_exp, CT_UN_EXP, x);
}

ct_tensor *ct_exp_(ct_tensor *x)
{
    return cti_apply_unary_inplace(&cti_op_exp, CT_UN_EXP, x);
}
