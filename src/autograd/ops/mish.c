/* SPDX-License-Identifier: Apache-2.0 */
/* mish - y = x tanh(softplus(x)). Shape: as x. Gradient: dx = dy (t + x sigmoid(x) (1 - t^2)), t = tanh(softplus(x)).
 * Oracle: torch.nn.functional.mish. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    ct_tensor *t = ct_tanh(ct_softplus(x, 1, 20));
    dx[0] =
        ct_mul(dy[0], ct_add(t, ct_mul(x, ct_mul(ct_sigmoid(x), ct_affine(ct_square(t), -1, 1)))));
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
    return ct_mish(in[0]);
}

const ct_op cti_op_mish = {.name = "mish",
                           .torch_name = "MishBackward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_math_forward,
                           .backward = cti_math_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_mish(ct_tensor *x)
{
    return cti_apply_math(&cti_op_mish, CT_MA_MISH, 0, 0, x);
}
