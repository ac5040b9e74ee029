/* SPDX-License-Identifier: Apache-2.0 */
/* threshold - y = x above the threshold, else value. Shape: as x. Gradient: dx = dy above, else 0.
 * Oracle: torch.nn.functional.threshold. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_math *m = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_where(ct_le(x, ct_full_like(x, m->a)), ct_zeros_like(dy[0]), dy[0]);
    return cti_pending(n);
}

/* arg: threshold, value. */
static const ct_case cases[] = {
    {.name = "vector", .arg = {0.1, 20}, .in = {CT_IN(NORMAL, 37)}},
    {.name = "images", .arg = {-0.5, 0}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {0.1, 20}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {-0.5, 0}, .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_threshold(in[0], c->arg[0], c->arg[1]);
}

const ct_op cti_op_threshold = {.name = "threshold",
                                .torch_name = "ThresholdBackward0",
                                .accumulates = 1,
                                .infer = cti_unary_infer,
                                .forward = cti_math_forward,
                                .backward = cti_math_backward,
                                .vjp = vjp,
                                CT_CASES(cases),
                                .call = call};

ct_tensor *ct_threshold(ct_tensor *x, double threshold, double value)
{
    return cti_apply_math(&cti_op_threshold, CT_MA_THRESHOLD, threshold, value, x);
}
