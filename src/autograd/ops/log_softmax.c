/* SPDX-License-Identifier: Apache-2.0 */
/* log_softmax - y = x - log of the sum of e^x along dim. Shape: as x.
 * Gradient: dx = dy - e^y (sum of dy along dim). Oracle: torch.log_softmax. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_softmax *a = cti_attr(n);
    ct_tensor *sum = ct_sum(dy[0], &a->dim, 1, true);
    dx[0] = ct_sub(dy[0], ct_mul(ct_exp(cti_saved_tensor(n, 0)), sum));
    return cti_pending(n);
}

/* arg: dim. */
static const ct_case cases[] = {
    {.name = "last", .arg = {-1}, .in = {CT_IN(NORMAL, 7, 10)}},
    {.name = "first", .arg = {0}, .in = {CT_IN(NORMAL, 7, 3)}},
    {.name = "channels", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "one class", .arg = {1}, .in = {CT_IN(NORMAL, 3, 1)}},
    {.name = "scalar", .arg = {0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_log_softmax(in[0], (int)c->arg[0]);
}

const ct_op cti_op_log_softmax = {.name = "log_softmax",
                                  .torch_name = "LogSoftmaxBackward0",
                                  .accumulates = 1,
                                  .autocast = CTI_F32,
                                  .infer = cti_softmax_infer,
                                  .forward = cti_softmax_forward,
                                  .backward = cti_softmax_backward,
                                  .vjp = vjp,
                                  CT_CASES(cases),
                                  .call = call};

ct_tensor *ct_log_softmax(ct_tensor *x, int dim)
{
    cti_softmax a = {.dim = dim, .log = true};
    return cti_apply(&cti_op_log_softmax, &a, sizeof a, 1, &x);
}
