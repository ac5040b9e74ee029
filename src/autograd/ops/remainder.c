/* SPDX-License-Identifier: Apache-2.0 */
/* remainder - y = the rest of a / b, with the sign of b. Shapes broadcast. Gradient: da = dy, db = -dy floor(a / b), each summed over
 * what was broadcast. Oracle: torch.remainder. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, true);
}

static int forward(cti_node *n)
{
    if (cti_wants(n, 1)) {
        cti_save_in(n, 0, 0);
        cti_save_in(n, 1, 1);
    }
    return cti_math2_forward(n, CT_MA2_REMAINDER);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    if (cti_wants(n, 0))
        dx[0] = cti_sum_to_input(n, dy[0], 0);
    if (cti_wants(n, 1)) {
        ct_tensor *whole = ct_floor(ct_div(cti_saved_tensor(n, 0), cti_saved_tensor(n, 1)));
        dx[1] = cti_sum_to_input(n, ct_neg(ct_mul(dy[0], whole)), 1);
    }
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(NORMAL, 3, 5), CT_IN(POSITIVE, 3, 5)}},
    {.name = "row and column", .in = {CT_IN(NORMAL, 7, 1), CT_IN(AWAY, 1, 5)}},
    {.name = "one side wants", .in = {CT_IN(NORMAL, 3, 5), CT_IN_FIXED(AWAY, 5)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(POSITIVE, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_remainder(in[0], in[1]);
}

const ct_op cti_op_remainder = {.name = "remainder",
                                .torch_name = "RemainderBackward1",
                                .infer = infer,
                                .forward = forward,
                                .vjp = vjp,
                                CT_CASES(cases),
                                .call = call};

ct_tensor *ct_remainder(ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_remainder, NULL, 0, 2, (ct_tensor *[]){a, b});
}
