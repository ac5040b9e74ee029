/* SPDX-License-Identifier: Apache-2.0 */
/* mul - y = a * b. Shape: broadcast(a, b), in the stride order of the operand that has it.
 * Gradient: da = dy * b, db = dy * a, each summed over what was broadcast.
 * Oracle: torch.mul. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, false);
}

static int forward(cti_node *n)
{
    if (cti_wants(n, 1))
        cti_save_in(n, 0, 0);
    if (cti_wants(n, 0))
        cti_save_in(n, 1, 1);
    return cti_binary_forward(n, CT_BIN_MUL);
}

static int backward(cti_node *n)
{
    const ct_view *dy = cti_dy(n, 0);
    for (int i = 0; i < 2; i++) {
        int beta;
        const ct_view *dx = cti_wants(n, i) ? cti_dx(n, i, &beta) : NULL;
        if (!dx && cti_pending(n))
            return cti_pending(n);
        if (!dx)
            continue;
        ct_view other = cti_view_expand(cti_saved(n, 1 - i), dy->ndim, dy->shape);
        int rc = cti_mul_into(n, dx, beta, dy, &other);
        if (rc)
            return rc;
    }
    return CT_OK;
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    for (int i = 0; i < 2; i++)
        if (cti_wants(n, i))
            dx[i] = cti_sum_to_input(n, ct_mul(dy[0], cti_saved_tensor(n, 1 - i)), i);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "row and column", .in = {CT_IN(NORMAL, 7, 1), CT_IN(NORMAL, 1, 5)}},
    {.name = "fewer dimensions", .in = {CT_IN(NORMAL, 5), CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "scalar", .in = {CT_IN(NORMAL, 2, 3), CT_IN_SCALAR(NORMAL)}},
    {.name = "one channel each", .in = {CT_IN(NORMAL, 2, 3, 5, 7), CT_IN(NORMAL, 3, 1, 1)}},
    {.name = "one side wants", .in = {CT_IN_FIXED(NORMAL, 3, 5), CT_IN(NORMAL, 5)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 1, 5)}},
    {.name = "int64", .in = {CT_IN(I64, 3, 5), CT_IN(I64, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_mul(in[0], in[1]);
}

const ct_op cti_op_mul = {.name = "mul",
                          .torch_name = "MulBackward0",
                          .accumulates = 3,
                          .infer = infer,
                          .forward = forward,
                          .backward = backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_mul(ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_mul, NULL, 0, 2, (ct_tensor *[]){a, b});
}

ct_tensor *ct_mul_(ct_tensor *a, ct_tensor *b)
{
    return cti_apply_inplace(&cti_op_mul, NULL, 0, 2, (ct_tensor *[]){a, b});
}
