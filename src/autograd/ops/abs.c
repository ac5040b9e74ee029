/* SPDX-License-Identifier: Apache-2.0 */
/* abs - y = |x|. Shape: as x. Gradient: dx = dy sign(x), 0 at 0. Oracle: torch.abs. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_mul(dy[0], ct_sign(cti_saved_tensor(n, 0)));
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
    return ct_abs(in[0]);
}

const ct_op cti_op_abs = {.name = "abs",
                          .torch_name = "AbsBackward0",
                          .accumulates = 1,
                          .infer = cti_unary_infer,
                          .forward = cti_unary_forward,
                          .backward = cti_unary_backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_abs(ct_tensor *x)
{
    return cti_apply_unary(&cti_op_abs, CT_UN_ABS, x);
}

ct_tensor *ct_abs_(ct_tensor *x)
{
    return cti_apply_unary_inplace(&cti_op_abs, CT_UN_ABS, x);
}
