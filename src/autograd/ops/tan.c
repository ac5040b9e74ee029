/* SPDX-License-Identifier: Apache-2.0 */
/* tan - y = tan x. Shape: as x. Gradient: dx = dy (1 + y^2).
 * Oracle: torch.tan. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *y = cti_saved_tensor(n, 1);
    dx[0] = ct_mul(dy[0], ct_affine(ct_square(y), 1, 1));
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
    return ct_tan(in[0]);
}

const ct_op cti_op_tan = {.name = "tan",
                          .torch_name = "TanBackward0",
                          .accumulates = 1,
                          .autocast = CTI_F32,
                          .infer = cti_unary_infer,
                          .forward = cti_math_forward,
                          .backward = cti_math_backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_tan(ct_tensor *x)
{
    return cti_apply_math(&cti_op_tan, CT_MA_TAN, 0, 0, x);
}
