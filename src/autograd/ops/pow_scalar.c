/* SPDX-License-Identifier: Apache-2.0 */
/* pow_scalar - y = x^p, p a number. Shape: as x. Gradient: dx = dy p x^(p-1), 0 where p is 0. Oracle: torch.pow. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    double p = ((const cti_math *)cti_attr(n))->a;
    dx[0] = p == 0 ? ct_zeros_like(dy[0]) :
                     ct_mul(dy[0], ct_affine(ct_pow_scalar(cti_saved_tensor(n, 0), p - 1), p, 0));
    return cti_pending(n);
}

/* arg: p. */
static const ct_case cases[] = {
    {.name = "cube", .arg = {3}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "power 0", .arg = {0}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "power 1", .arg = {1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "power -1.5", .arg = {-1.5}, .in = {CT_IN(POSITIVE, 37)}},
    {.name = "scalar", .arg = {0.5}, .in = {CT_IN_SCALAR(POSITIVE)}},
    {.name = "empty", .arg = {2}, .in = {CT_IN(NORMAL, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_pow_scalar(in[0], c->arg[0]);
}

const ct_op cti_op_pow_scalar = {.name = "pow_scalar",
                                 .torch_name = "PowBackward0",
                                 .accumulates = 1,
                                 .autocast = CTI_F32,
                                 .infer = cti_unary_infer,
                                 .forward = cti_math_forward,
                                 .backward = cti_math_backward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_pow_scalar(ct_tensor *x, double p)
{
    return cti_apply_math(&cti_op_pow_scalar, CT_MA_POW, p, 0, x);
}
