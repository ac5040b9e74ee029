/* SPDX-License-Identifier: Apache-2.0 */
/* floor_divide - y = a / b rounded down. Shapes broadcast. No gradient. Oracle: torch.floor_divide. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, true);
}

static int forward(cti_node *n)
{
    return cti_math2_forward(n, CT_MA2_FLOOR_DIVIDE);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN_FIXED(NORMAL, 3, 5), CT_IN_FIXED(POSITIVE, 3, 5)}},
    {.name = "row and column", .in = {CT_IN_FIXED(NORMAL, 7, 1), CT_IN_FIXED(AWAY, 1, 5)}},
    {.name = "scalar", .in = {CT_IN_FIXED(NORMAL, 2, 3), {.kind = CT_IN_AWAY, .no_grad = true}}},
    {.name = "empty", .in = {CT_IN_FIXED(NORMAL, 0, 5), CT_IN_FIXED(POSITIVE, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_floor_divide(in[0], in[1]);
}

const ct_op cti_op_floor_divide = {.name = "floor_divide",
                                   .torch_name = "FloorDivideBackward0",
                                   .infer = infer,
                                   .forward = forward,
                                   CT_CASES(cases),
                                   .call = call};

ct_tensor *ct_floor_divide(ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_floor_divide, NULL, 0, 2, (ct_tensor *[]){a, b});
}
