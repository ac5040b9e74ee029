/* SPDX-License-Identifier: Apache-2.0 */
/* reciprocal - y = 1 / x. Shape: as x. Gradient: dx = -dy y^2.
 * Oracle: torch.reciprocal. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *y = cti_saved_tensor(n, 1);
    dx[0] = ct_mul(dy[0], ct_neg(ct_square(y)));
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "vector", .in = {CT_IN(POSITIVE, 37)}},
    {.name = "images", .in = {CT_IN(POSITIVE, 2, 3, 5, 7)}},
    {.name = "scalar", .in = {CT_IN_SCALAR(POSITIVE)}},
    {.name = "empty", .in = {CT_IN(POSITIVE, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_reciprocal(in[0]);
}

const ct_op cti_op_reciprocal = {.name = "reciprocal",
                                 .torch_name = "ReciprocalBackward0",
                                 .accumulates = 1,
                                 .autocast = CTI_F32,
                                 .infer = cti_unary_infer,
                                 .forward = cti_math_forward,
                                 .backward = cti_math_backward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_reciprocal(ct_tensor *x)
{
    return cti_apply_math(&cti_op_reciprocal, CT_MA_RECIPROCAL, 0, 0, x);
}
