/* SPDX-License-Identifier: Apache-2.0 */
/* atan2 - y = the angle of the point (b, a). Shapes broadcast. Gradient: da = dy b / (a^2 + b^2), db = -dy a /
 * (a^2 + b^2), each summed over what was broadcast. Oracle: torch.atan2. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, true);
}

static int forward(cti_node *n)
{
    cti_save_in(n, 0, 0);
    cti_save_in(n, 1, 1);
    return cti_math2_forward(n, CT_MA2_ATAN2);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *a = cti_saved_tensor(n, 0), *b = cti_saved_tensor(n, 1);
    ct_tensor *g = ct_div(dy[0], ct_add(ct_square(a), ct_square(b)));
    if (cti_wants(n, 0))
        dx[0] = cti_sum_to_input(n, ct_mul(g, b), 0);
    if (cti_wants(n, 1))
        dx[1] = cti_sum_to_input(n, ct_neg(ct_mul(g, a)), 1);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(AWAY, 3, 5), CT_IN(AWAY, 3, 5)}},
    {.name = "row and column", .in = {CT_IN(AWAY, 7, 1), CT_IN(AWAY, 1, 5)}},
    {.name = "one side wants", .in = {CT_IN_FIXED(AWAY, 3, 5), CT_IN(AWAY, 5)}},
    {.name = "empty", .in = {CT_IN(AWAY, 0, 5), CT_IN(AWAY, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_atan2(in[0], in[1]);
}

const ct_op cti_op_atan2 = {.name = "atan2",
                            .torch_name = "Atan2Backward0",
                            .infer = infer,
                            .forward = forward,
                            .vjp = vjp,
                            CT_CASES(cases),
                            .call = call};

ct_tensor *ct_atan2(ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_atan2, NULL, 0, 2, (ct_tensor *[]){a, b});
}
