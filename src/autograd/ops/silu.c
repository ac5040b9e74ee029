/* SPDX-License-Identifier: Apache-2.0 */
/* silu - y = x s(x), s = sigmoid. Shape: as x. Gradient: dx = dy s (1 + x (1 - s)).
 * Oracle: torch.nn.functional.silu. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0), *s = ct_sigmoid(x);
    dx[0] = ct_mul(dy[0], ct_mul(s, ct_affine(ct_mul(x, ct_affine(s, -1, 1)), 1, 1)));
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
    return ct_silu(in[0]);
}

const ct_op cti_op_silu = {.name = "silu",
                           .torch_name = "SiluBackward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_unary_forward,
                           .backward = cti_unary_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_silu(ct_tensor *x)
{
    return cti_apply_unary(&cti_op_silu, CT_UN_SILU, x);
}

ct_tensor *ct_silu_(ct_tensor *x)
{
    return cti_apply_unary_inplace(&cti_op_silu, CT_UN_SILU, x);
}
