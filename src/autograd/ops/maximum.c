/* SPDX-License-Identifier: Apache-2.0 */
/* maximum - y = the larger (minimum: the smaller) of a and b; NaN wins. Shapes broadcast; also of i32 and i64.
 * Gradient: dy to the one taken, halves where they are equal, each summed over what was broadcast.
 * Oracle: torch.maximum, torch.minimum. */
#include "autograd/op.h"

static ct_math2 fn_of(const cti_node *n)
{
    return *(const ct_math2 *)cti_attr(n);
}

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, false);
}

static int forward(cti_node *n)
{
    cti_save_in(n, 0, 0);
    cti_save_in(n, 1, 1);
    return cti_math2_forward(n, fn_of(n));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *in[2] = {cti_saved_tensor(n, 0), cti_saved_tensor(n, 1)};
    ct_tensor *shared = ct_where(ct_eq(in[0], in[1]), ct_affine(dy[0], 0.5, 0), dy[0]);
    bool largest = fn_of(n) == CT_MA2_MAXIMUM;
    for (int i = 0; i < 2; i++) {
        if (!cti_wants(n, i))
            continue;
        ct_tensor *other_taken = largest ? ct_lt(in[i], in[1 - i]) : ct_gt(in[i], in[1 - i]);
        dx[i] = cti_sum_to_input(n, ct_where(other_taken, ct_zeros_like(dy[0]), shared), i);
    }
    return cti_pending(n);
}

/* arg: 1 for minimum. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "minimum", .arg = {1}, .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "row and column", .in = {CT_IN(NORMAL, 7, 1), CT_IN(NORMAL, 1, 5)}},
    {.name = "minimum, fewer dimensions",
     .arg = {1},
     .in = {CT_IN(NORMAL, 5), CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "one side wants", .in = {CT_IN_FIXED(NORMAL, 3, 5), CT_IN(NORMAL, 5)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return c->arg[0] != 0 ? ct_minimum(in[0], in[1]) : ct_maximum(in[0], in[1]);
}

const ct_op cti_op_maximum = {.name = "maximum",
                              .torch_name = "MaximumBackward0",
                              .infer = infer,
                              .forward = forward,
                              .vjp = vjp,
                              CT_CASES(cases),
                              .call = call};

static ct_tensor *apply(ct_math2 fn, ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_maximum, &fn, sizeof fn, 2, (ct_tensor *[]){a, b});
}

ct_tensor *ct_maximum(ct_tensor *a, ct_tensor *b)
{
    return apply(CT_MA2_MAXIMUM, a, b);
}

ct_tensor *ct_minimum(ct_tensor *a, ct_tensor *b)
{
    return apply(CT_MA2_MINIMUM, a, b);
}
