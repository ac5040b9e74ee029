/* SPDX-License-Identifier: Apache-2.0 */
/* elu - y = x above 0, else alpha (exp(x) - 1). Shape: as x. Gradient: dx = dy above 0, else dy alpha exp(x).
 * Oracle: torch.nn.functional.elu. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_math *m = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_where(ct_le(x, ct_zeros_like(x)),
                     ct_mul(dy[0], ct_affine(ct_exp(ct_neg(ct_relu(ct_neg(x)))), m->a, 0)), dy[0]);
    return cti_pending(n);
}

/* arg: alpha. */
static const ct_case cases[] = {
    {.name = "vector", .arg = {1}, .in = {CT_IN(AWAY, 37)}},
    {.name = "images", .arg = {0.5}, .in = {CT_IN(AWAY, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {1}, .in = {CT_IN_SCALAR(AWAY)}},
    {.name = "empty", .arg = {0.5}, .in = {CT_IN(AWAY, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_elu(in[0], c->arg[0]);
}

const ct_op cti_op_elu = {.name = "elu",
                          .torch_name = "EluBackward0",
                          .accumulates = 1,
                          .infer = cti_unary_infer,
                          .forward = cti_math_forward,
                          .backward = cti_math_backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_elu(ct_tensor *x, double alpha)
{
    return cti_apply_math(&cti_op_elu, CT_MA_ELU, alpha, 0, x);
}
