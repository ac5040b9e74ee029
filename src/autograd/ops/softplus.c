/* SPDX-License-Identifier: Apache-2.0 */
/* softplus - y = log(1 + exp(beta x)) / beta, x where beta x is above the threshold. Shape: as x. Gradient: dx = dy sigmoid(beta x), dy above the threshold.
 * Oracle: torch.nn.functional.softplus. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_math *m = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_where(ct_gt(ct_affine(x, m->a, 0), ct_full_like(x, m->b)), dy[0],
                     ct_mul(dy[0], ct_sigmoid(ct_affine(x, m->a, 0))));
    return cti_pending(n);
}

/* arg: beta, threshold. */
static const ct_case cases[] = {
    {.name = "vector", .arg = {1, 20}, .in = {CT_IN(NORMAL, 37)}},
    {.name = "images", .arg = {2, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {1, 20}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {2, 1}, .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_softplus(in[0], c->arg[0], c->arg[1]);
}

const ct_op cti_op_softplus = {.name = "softplus",
                               .torch_name = "SoftplusBackward0",
                               .accumulates = 1,
                               .autocast = CTI_F32,
                               .infer = cti_unary_infer,
                               .forward = cti_math_forward,
                               .backward = cti_math_backward,
                               .vjp = vjp,
                               CT_CASES(cases),
                               .call = call};

ct_tensor *ct_softplus(ct_tensor *x, double beta, double threshold)
{
    if (x && !(beta != 0))
        return cti_raise(ct_tensor_ctx(x), &cti_op_softplus, CT_EINVAL,
                         "beta is %g: it must not be 0", beta);
    return cti_apply_math(&cti_op_softplus, CT_MA_SOFTPLUS, beta, threshold, x);
}
