/* SPDX-License-Identifier: Apache-2.0 */
/* sinh - y = sinh x. Shape: as x. Gradient: dx = dy cosh x.
 * Oracle: torch.sinh. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_mul(dy[0], ct_cosh(x));
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
    return ct_sinh(in[0]);
}

const ct_op cti_op_sinh = {.name = "sinh",
                           .torch_name = "SinhBackward0",
                           .accumulates = 1,
                           .autocast = CTI_F32,
                           .infer = cti_unary_infer,
                           .forward = cti_math_forward,
                           .backward = cti_math_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_sinh(ct_tensor *x)
{
    return cti_apply_math(&cti_op_sinh, CT_MA_SINH, 0, 0, x);
}
