/* SPDX-License-Identifier: Apache-2.0 */
/* hardtanh - y = x clamped to [min, max]. Shape: as x. Gradient: dx = dy between, 0 at both ends and beyond.
 * Oracle: torch.nn.functional.hardtanh. */
#include "autograd/op.h"

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_math *m = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0);
    dx[0] = ct_where(ct_le(x, ct_full_like(x, m->a)), ct_zeros_like(dy[0]),
                     ct_where(ct_ge(x, ct_full_like(x, m->b)), ct_zeros_like(dy[0]), dy[0]));
    return cti_pending(n);
}

/* arg: min_val, max_val. */
static const ct_case cases[] = {
    {.name = "vector", .arg = {-1, 1}, .in = {CT_IN(NORMAL, 37)}},
    {.name = "images", .arg = {0, 6}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {-1, 1}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {0, 6}, .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_hardtanh(in[0], c->arg[0], c->arg[1]);
}

const ct_op cti_op_hardtanh = {.name = "hardtanh",
                               .torch_name = "HardtanhBackward0",
                               .accumulates = 1,
                               .infer = cti_unary_infer,
                               .forward = cti_math_forward,
                               .backward = cti_math_backward,
                               .vjp = vjp,
                               CT_CASES(cases),
                               .call = call};

ct_tensor *ct_hardtanh(ct_tensor *x, double min_val, double max_val)
{
    return cti_apply_math(&cti_op_hardtanh, CT_MA_HARDTANH, min_val, max_val, x);
}

ct_tensor *ct_relu6(ct_tensor *x)
{
    return ct_hardtanh(x, 0, 6);
}
