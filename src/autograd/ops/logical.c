/* SPDX-License-Identifier: Apache-2.0 */
/* logical - and, or, xor of bools; not, and what a float is: bool, no gradient. Shapes broadcast.
 * Oracle: torch.logical_and, logical_or, logical_xor, logical_not, isnan, isinf, isfinite. */
#include "autograd/op.h"

#include <math.h>

static int infer(cti_node *n)
{
    for (int i = 0; i < 2; i++)
        if (cti_x(n, i)->dtype != CT_BOOL)
            return cti_op_fail(n, CT_EDTYPE, "input %d is %s; bool is needed (ct_ne with zeros)", i,
                               ct_dtype_name(cti_x(n, i)->dtype));
    return cti_binary_infer(n, CT_BOOL, false);
}

static int forward(cti_node *n)
{
    return cti_math2_forward(n, *(const ct_math2 *)cti_attr(n));
}

/* arg: 0 to 2 and, or, xor; 3 not; 4 to 6 isnan, isinf, isfinite of x / x. */
static const ct_case cases[] = {
    {.name = "and", .in = {CT_IN(BOOL, 3, 5), CT_IN(BOOL, 3, 5)}},
    {.name = "or", .arg = {1}, .in = {CT_IN(BOOL, 7, 1), CT_IN(BOOL, 1, 5)}},
    {.name = "xor", .arg = {2}, .in = {CT_IN(BOOL, 5), CT_IN(BOOL, 2, 3, 5)}},
    {.name = "not", .arg = {3}, .in = {CT_IN(BOOL, 3, 5)}},
    {.name = "not a number", .arg = {4}, .in = {CT_IN_FIXED(NORMAL, 3, 5)}},
    {.name = "infinite", .arg = {5}, .in = {CT_IN_FIXED(NORMAL, 3, 5)}},
    {.name = "finite", .arg = {6}, .in = {CT_IN_FIXED(NORMAL, 3, 5)}},
    {.name = "empty", .in = {CT_IN(BOOL, 0, 5), CT_IN(BOOL, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    switch ((int)c->arg[0]) {
    case 0:
        return ct_logical_and(in[0], in[1]);
    case 1:
        return ct_logical_or(in[0], in[1]);
    case 2:
        return ct_logical_xor(in[0], in[1]);
    case 3:
        return ct_logical_not(in[0]);
    case 4:
        return ct_isnan(in[0]);
    case 5:
        return ct_isinf(in[0]);
    default:
        return ct_isfinite(in[0]);
    }
}

const ct_op cti_op_logical = {.name = "logical",
                              .torch_name = "LogicalBackward0",
                              .infer = infer,
                              .forward = forward,
                              CT_CASES(cases),
                              .call = call};

static ct_tensor *apply(ct_math2 fn, ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_logical, &fn, sizeof fn, 2, (ct_tensor *[]){a, b});
}

ct_tensor *ct_logical_and(ct_tensor *a, ct_tensor *b)
{
    return apply(CT_MA2_AND, a, b);
}

ct_tensor *ct_logical_or(ct_tensor *a, ct_tensor *b)
{
    return apply(CT_MA2_OR, a, b);
}

ct_tensor *ct_logical_xor(ct_tensor *a, ct_tensor *b)
{
    return apply(CT_MA2_XOR, a, b);
}

ct_tensor *ct_logical_not(ct_tensor *x)
{
    return ct_eq(x, ct_zeros_like(x));
}

ct_tensor *ct_isnan(ct_tensor *x)
{
    return ct_ne(x, x);
}

ct_tensor *ct_isinf(ct_tensor *x)
{
    return ct_eq(ct_abs(x), ct_full_like(x, INFINITY));
}

ct_tensor *ct_isfinite(ct_tensor *x)
{
    return ct_lt(ct_abs(x), ct_full_like(x, INFINITY));
}
