/* SPDX-License-Identifier: Apache-2.0 */
/* rsqrt - y = 1 / sqrt x. Shape: as x. Gradient: dx = -dy y^3 / 2 (-inf at 0).
 * Oracle: torch.rsqrt. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *y = cti_saved_tensor(n, 1);
    dx[0] = ct_mul(dy[0], ct_affine(ct_mul(ct_square(y), y), -0.5, 0));
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
    return ct_rsqrt(in[0]);
}

const ct_op cti_op_rsqrt = {.name = "rsqrt",
                            .torch_name = "RsqrtBackward0",
                            .accumulates = 1,
                            .autocast = CTI_F32,
                            .infer = cti_unary_infer,
                            .forward = cti_math_forward,
                            .backward = cti_math_backward,
                            .vjp = vjp,
                            CT_CASES(cases),
                            .call = call};

ct_tensor *ct_rsqrt(ct_tensor *x)
{
    return cti_apply_math(&cti_op_rsqrt, CT_MA_RSQRT, 0, 0, x);
}
