/* SPDX-License-Identifier: Apache-2.0 */
/* log - y = ln x. Shape: as x. Gradient: dx = dy / x (inf at 0). Oracle: torch.log. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_div(dy[0], cti_saved_tensor(n, 0));
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "vector", .in = {CT_IN(POSITIVE, 37)}},
    {.name = "images", .in = {CT_IN(POSITIVE, 2, 3, 5, 7)}},
    {.name = "scalar", .in = {CT_IN_SCALAR(POSITIVE)}},
    {.name = "empty", .in = {CT_IN(POSITIVE, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_log(in[0]);
}

const ct_op cti_op_log = {.name = "log",
                          .torch_name = "LogBackward0",
                          .accumulates = 1,
                          .autocast = CTI_F32,
                          .infer = cti_unary_infer,
                          .forward = cti_unary_forward,
                          .backward = cti_unary_backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_log(ct_tensor *x)
{
    return cti_apply_unary(&cti_op_log, CT_UN_LOG, x);
}
