/* SPDX-License-Identifier: Apache-2.0 */
/* sign - y = -1, 0 or 1, as x is below, at or above 0 (NaN gives 0). Shape: as x. Gradient: dx = 0.
 * Oracle: torch.sign. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_zeros_like(dy[0]);
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
    return ct_sign(in[0]);
}

const ct_op cti_op_sign = {.name = "sign",
                           .torch_name = "SignBackward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_math_forward,
                           .backward = cti_math_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_sign(ct_tensor *x)
{
    return cti_apply_math(&cti_op_sign, CT_MA_SIGN, 0, 0, x);
}
