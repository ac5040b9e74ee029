/* SPDX-License-Identifier: Apache-2.0 */
/* exp2 - y = 2^x. Shape: as x. Gradient: dx = dy y ln 2.
 * Oracle: torch.exp2. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *y = cti_saved_tensor(n, 1);
    dx[0] = ct_mul(dy[0], ct_affine(y, 0.69314718055994530942, 0));
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
    return ct_exp2(in[0]);
}

const ct_op cti_op_exp2 = {.name = "exp2",
                           .torch_name = "Exp2Backward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_math_forward,
                           .backward = cti_math_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_exp2(ct_tensor *x)
{
    return cti_apply_math(&cti_op_exp2, CT_MA_EXP2, 0, 0, x);
}
