/* SPDX-License-Identifier: Apache-2.0 */
/* softsign - y = x / (1 + |x|). Shape: as x. Gradient: dx = dy / (1 + |x|)^2.
 * Oracle: torch.nn.functional.softsign. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_div(dy[0], ct_square(ct_affine(ct_abs(x), 1, 1)));
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
    return ct_softsign(in[0]);
}

const ct_op cti_op_softsign = {.name = "softsign",
                               .torch_name = "",
                               .accumulates = 1,
                               .infer = cti_unary_infer,
                               .forward = cti_math_forward,
                               .backward = cti_math_backward,
                               .vjp = vjp,
                               CT_CASES(cases),
                               .call = call};

ct_tensor *ct_softsign(ct_tensor *x)
{
    return cti_apply_math(&cti_op_softsign, CT_MA_SOFTSIGN, 0, 0, x);
}
