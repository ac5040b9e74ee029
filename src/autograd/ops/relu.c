/* SPDX-License-Identifier: Apache-2.0 */
/* relu - y = max(x, 0). Shape: as x. Gradient: dx = dy where y > 0, else 0 (0 at 0; NaN lets dy
 * through). Oracle: torch.relu. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *y = cti_saved_tensor(n, 1);
    dx[0] = ct_where(ct_le(y, ct_zeros_like(y)), ct_zeros_like(dy[0]), dy[0]);
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
    return ct_relu(in[0]);
}

const ct_op cti_op_relu = {.name = "relu",
                           .torch_name = "ReluBackward0",
                           .accumulates = 1,
                           .infer = cti_unary_infer,
                           .forward = cti_unary_forward,
                           .backward = cti_unary_backward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_relu(ct_tensor *x)
{
    return cti_apply_unary(&cti_op_relu, CT_UN_RELU, x);
}

ct_tensor *ct_relu_(ct_tensor *x)
{
    return cti_apply_unary_inplace(&cti_op_relu, CT_UN_RELU, x);
}
