/* SPDX-License-Identifier: Apache-2.0 */
/* celu - y = x above 0, else alpha (exp(x / alpha) - 1). Shape: as x. Gradient: dx = dy above 0, else dy exp(x / alpha).
 * Oracle: torch.nn.functional.celu. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_math *m = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] =
        ct_where(ct_le(x, ct_zeros_like(x)),
                 ct_mul(dy[0], ct_exp(ct_affine(ct_neg(ct_relu(ct_neg(x))), 1 / m->a, 0))), dy[0]);
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
    return ct_celu(in[0], c->arg[0]);
}

const ct_op cti_op_celu = {.name = "celu",
                           .torch_name = "EluBackward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_math_forward,
                           .backward = cti_math_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_celu(ct_tensor *x, double alpha)
{
    if (x && !(alpha != 0))
        return cti_raise(ct_tensor_ctx(x), &cti_op_celu, CT_EINVAL, "alpha is %g: it must not be 0",
                         alpha);
    return cti_apply_math(&cti_op_celu, CT_MA_CELU, alpha, 0, x);
}
