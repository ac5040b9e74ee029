/* SPDX-License-Identifier: Apache-2.0 */
/* compare - y = a == b, a != b, a < b, a <= b, a > b, a >= b, as bool. Shape: broadcast(a, b). Any
 * dtype, the same for both. NaN is unequal to all. No gradient: the output never requires one.
 * Oracle: torch.eq, ne, lt, le, gt, ge. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_BOOL, false);
}

static int forward(cti_node *n)
{
    return cti_binary_forward(n, *(const ct_binary *)cti_attr(n));
}

/* arg: 0 eq, 1 ne, 2 lt, 3 le, 4 gt, 5 ge. */
static const ct_case cases[] = {
    {.name = "eq", .arg = {0}, .in = {CT_IN(I64, 7, 9), CT_IN(I64, 7, 9)}},
    {.name = "ne", .arg = {1}, .in = {CT_IN(I64, 7, 1), CT_IN(I64, 9)}},
    {.name = "lt", .arg = {2}, .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "le", .arg = {3}, .in = {CT_IN(I64, 2, 3, 5), CT_IN_SCALAR(I64)}},
    {.name = "gt", .arg = {4}, .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 5)}},
    {.name = "ge", .arg = {5}, .in = {CT_IN(I64, 7, 9), CT_IN(I64, 7, 9)}},
    {.name = "bool", .arg = {0}, .in = {CT_IN(BOOL, 7, 9), CT_IN(BOOL, 7, 9)}},
    {.name = "empty", .arg = {0}, .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_tensor *(*const fns[])(ct_tensor *, ct_tensor *) = {ct_eq, ct_ne, ct_lt,
                                                           ct_le, ct_gt, ct_ge};
    return fns[(int)c->arg[0]](in[0], in[1]);
}

const ct_op cti_op_compare = {.name = "compare",
                              .torch_name = "EqBackward0",
                              .infer = infer,
                              .forward = forward,
                              CT_CASES(cases),
                              .call = call};

static ct_tensor *compare(ct_binary fn, ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_compare, &fn, sizeof fn, 2, (ct_tensor *[]){a, b});
}

ct_tensor *ct_eq(ct_tensor *a, ct_tensor *b)
{
    return compare(CT_BIN_EQ, a, b);
}

ct_tensor *ct_ne(ct_tensor *a, ct_tensor *b)
{
    return compare(CT_BIN_NE, a, b);
}

ct_tensor *ct_lt(ct_tensor *a, ct_tensor *b)
{
    return compare(CT_BIN_LT, a, b);
}

ct_tensor *ct_le(ct_tensor *a, ct_tensor *b)
{
    return compare(CT_BIN_LE, a, b);
}

ct_tensor *ct_gt(ct_tensor *a, ct_tensor *b)
{
    return compare(CT_BIN_GT, a, b);
}

ct_tensor *ct_ge(ct_tensor *a, ct_tensor *b)
{
    return compare(CT_BIN_GE, a, b);
}
