/* SPDX-License-Identifier: Apache-2.0 */
/* gelu - y = x Phi(x), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Shape: as x.
 * Gradient: dx = dy (Phi(x) + x phi(x)), or the tanh form's own derivative.
 * Oracle: torch.nn.functional.gelu, approximate 'none' and 'tanh'. */
#include "autograd/op.h"

/* Phi(x) + x phi(x). */
static ct_tensor *slope(ct_tensor *x)
{
    ct_tensor *phi = ct_affine(ct_exp(ct_affine(ct_square(x), -0.5, 0)), 0.39894228040143267794, 0);
    ct_tensor *below = ct_affine(ct_erf(ct_affine(x, 0.70710678118654752440, 0)), 0.5, 0.5);
    return ct_add(below, ct_mul(x, phi));
}

/* (1 + t) / 2 + x (1 - t^2) u' / 2, with t = tanh(u), u = k (x + 0.044715 x^3). */
static ct_tensor *slope_tanh(ct_tensor *x)
{
    const double k = 0.79788456080286535588, c = 0.044715;
    ct_tensor *sq = ct_square(x);
    ct_tensor *t = ct_tanh(ct_mul(x, ct_affine(sq, k * c, k)));
    ct_tensor *rest = ct_mul(ct_affine(ct_square(t), -1, 1), ct_affine(sq, 3 * k * c, k));
    return ct_add(ct_affine(t, 0.5, 0.5), ct_mul(ct_affine(x, 0.5, 0), rest));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    bool tanh_form = *(const ct_unary *)cti_attr(n) == CT_UN_GELU_TANH;
    dx[0] = ct_mul(dy[0], tanh_form ? slope_tanh(x) : slope(x));
    return cti_pending(n);
}

/* arg: 1 for the tanh approximation, 0 for erf. */
static const ct_case cases[] = {
    {.name = "vector", .in = {CT_IN(NORMAL, 37)}},
    {.name = "images", .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "tanh, vector", .arg = {1}, .in = {CT_IN(NORMAL, 37)}},
    {.name = "tanh, images", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_gelu(in[0], c->arg[0] != 0);
}

const ct_op cti_op_gelu = {.name = "gelu",
                           .torch_name = "GeluBackward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_unary_forward,
                           .backward = cti_unary_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_gelu(ct_tensor *x, bool tanh_approx)
{
    return cti_apply_unary(&cti_op_gelu, tanh_approx ? CT_UN_GELU_TANH : CT_UN_GELU, x);
}
