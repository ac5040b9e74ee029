/* SPDX-License-Identifier: Apache-2.0 */
/* hardswish - y = x hardsigmoid(x). Shape: as x. Gradient: dx = 0 up to -3, dy (x / 3 + 1/2) below 3, else dy.
 * Oracle: torch.nn.functional.hardswish. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_where(
        ct_le(x, ct_full_like(x, -3)), ct_zeros_like(dy[0]),
        ct_where(ct_lt(x, ct_full_like(x, 3)), ct_mul(dy[0], ct_affine(x, 1.0 / 3, 0.5)), dy[0]));
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
    return ct_hardswish(in[0]);
}

const ct_op cti_op_hardswish = {.name = "hardswish",
                                .torch_name = "HardswishBackward0",
                                .accumulates = 1,
                                .infer = cti_unary_infer,
                                .forward = cti_math_forward,
                                .backward = cti_math_backward,
                                .vjp = vjp,
                                CT_CASES(cases),
                                .call = call};

ct_tensor *ct_hardswish(ct_tensor *x)
{
    return cti_apply_math(&cti_op_hardswish, CT_MA_HARDSWISH, 0, 0, x);
}
