/* SPDX-License-Identifier: Apache-2.0 */
/* acos - y = arc cosine of x. Shape: as x. Gradient: dx = -dy / sqrt(1 - x^2).
 * Oracle: torch.acos. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_neg(ct_div(dy[0], ct_sqrt(ct_affine(ct_square(x), -1, 1))));
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
    return ct_acos(ct_affine(in[0], 0.5, -0.5));
}

const ct_op cti_op_acos = {.name = "acos",
                           .torch_name = "AcosBackward0",
                           .accumulates = 1,
                           .autocast = CTI_F32,
                           .infer = cti_unary_infer,
                           .forward = cti_math_forward,
                           .backward = cti_math_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_acos(ct_tensor *x)
{
    return cti_apply_math(&cti_op_acos, CT_MA_ACOS, 0, 0, x);
}
