/* SPDX-License-Identifier: Apache-2.0 */
/* add - y = a + b. Shape: broadcast(a, b), in the stride order of the operand that has it.
 * Gradient: dy, summed over what was broadcast; the same memory where nothing was.
 * Oracle: torch.add. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, false);
}

static int forward(cti_node *n)
{
    return cti_binary_forward(n, CT_BIN_ADD);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    for (int i = 0; i < 2; i++)
        if (cti_wants(n, i))
            dx[i] = cti_sum_to_input(n, dy[0], i);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "row and column", .in = {CT_IN(NORMAL, 7, 1), CT_IN(NORMAL, 1, 5)}},
    {.name = "fewer dimensions", .in = {CT_IN(NORMAL, 5), CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "scalar", .in = {CT_IN(NORMAL, 2, 3), CT_IN_SCALAR(NORMAL)}},
    {.name = "one channel each", .in = {CT_IN(NORMAL, 2, 3, 5, 7), CT_IN(NORMAL, 3, 1, 1)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 1, 5)}},
    {.name = "int64", .in = {CT_IN(I64, 3, 5), CT_IN(I64, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_add(in[0], in[1]);
}

const ct_op cti_op_add = {.name = "add",
                          .torch_name = "AddBackward0",
                          .infer = infer,
                          .forward = forward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_add(ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_add, NULL, 0, 2, (ct_tensor *[]){a, b});
}

ct_tensor *ct_add_(ct_tensor *a, ct_tensor *b)
{
    return cti_apply_inplace(&cti_op_add, NULL, 0, 2, (ct_tensor *[]){a, b});
}
