/* SPDX-License-Identifier: Apache-2.0 */
/* leaky_relu - y = x above 0, else slope x. Shape: as x. Gradient: dx = dy above 0, else slope dy (at 0 too).
 * Oracle: torch.nn.functional.leaky_relu. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_math *m = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_where(ct_gt(x, ct_zeros_like(x)), dy[0], ct_affine(dy[0], m->a, 0));
    return cti_pending(n);
}

/* arg: slope. */
static const ct_case cases[] = {
    {.name = "vector", .arg = {0.01}, .in = {CT_IN(AWAY, 37)}},
    {.name = "images", .arg = {0.3}, .in = {CT_IN(AWAY, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {0.01}, .in = {CT_IN_SCALAR(AWAY)}},
    {.name = "empty", .arg = {0.3}, .in = {CT_IN(AWAY, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_leaky_relu(in[0], c->arg[0]);
}

const ct_op cti_op_leaky_relu = {.name = "leaky_relu",
                                 .torch_name = "LeakyReluBackward0",
                                 .accumulates = 1,
                                 .infer = cti_unary_infer,
                                 .forward = cti_math_forward,
                                 .backward = cti_math_backward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_leaky_relu(ct_tensor *x, double slope)
{
    return cti_apply_math(&cti_op_leaky_relu, CT_MA_LEAKY_RELU, slope, 0, x);
}
