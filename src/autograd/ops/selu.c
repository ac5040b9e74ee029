/* SPDX-License-Identifier: Apache-2.0 */
/* selu - y = s x above 0, else s alpha (exp(x) - 1), s = 1.0507..., alpha = 1.6733.... Shape: as x. Gradient: dx = dy s above 0, else dy s alpha exp(x).
 * Oracle: torch.nn.functional.selu. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_affine(ct_where(ct_le(x, ct_zeros_like(x)),
                               ct_mul(dy[0], ct_affine(ct_exp(ct_neg(ct_relu(ct_neg(x)))),
                                                       1.67326324235437728482, 0)),
                               dy[0]),
                      1.05070098735548049342, 0);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "vector", .in = {CT_IN(AWAY, 37)}},
    {.name = "images", .in = {CT_IN(AWAY, 2, 3, 5, 7)}},
    {.name = "scalar", .in = {CT_IN_SCALAR(AWAY)}},
    {.name = "empty", .in = {CT_IN(AWAY, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_selu(in[0]);
}

const ct_op cti_op_selu = {.name = "selu",
                           .torch_name = "EluBackward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_math_forward,
                           .backward = cti_math_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_selu(ct_tensor *x)
{
    return cti_apply_math(&cti_op_selu, CT_MA_SELU, 0, 0, x);
}
