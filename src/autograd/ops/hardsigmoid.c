/* SPDX-License-Identifier: Apache-2.0 */
/* hardsigmoid - y = x + 3 clamped to [0, 6], / 6. Shape: as x. Gradient: dx = dy / 6 between -3 and 3, else 0.
 * Oracle: torch.nn.functional.hardsigmoid. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_where(
        ct_gt(x, ct_full_like(x, -3)),
        ct_where(ct_lt(x, ct_full_like(x, 3)), ct_affine(dy[0], 1.0f / 6, 0), ct_zeros_like(dy[0])),
        ct_zeros_like(dy[0]));
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
    return ct_hardsigmoid(in[0]);
}

const ct_op cti_op_hardsigmoid = {.name = "hardsigmoid",
                                  .torch_name = "HardsigmoidBackward0",
                                  .accumulates = 1,
                                  .infer = cti_unary_infer,
                                  .forward = cti_math_forward,
                                  .backward = cti_math_backward,
                                  .vjp = vjp,
                                  CT_CASES(cases),
                                  .call = call};

ct_tensor *ct_hardsigmoid(ct_tensor *x)
{
    return cti_apply_math(&cti_op_hardsigmoid, CT_MA_HARDSIGMOID, 0, 0, x);
}
