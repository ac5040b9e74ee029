/* SPDX-License-Identifier: Apache-2.0 */
/* gelu - y = x Phi(x), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Shape: as x.
 * Gradient: dx = dy (Phi(x) + x phi(x)), or the tanh form's own derivative.
 * Oracle: torch.nn.functional.gelu, approximate 'none' and 'tanh'. */
#include "autograd/op.h"

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
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_gelu(ct_tensor *x, bool tanh_approx)
{
    return cti_apply_unary(&cti_op_gelu, tanh_approx ? CT_UN_GELU_TANH : CT_UN_GELU, x);
}
