/* SPDX-License-Identifier: Apache-2.0 */
/* lerp - y = a + weight (b - a), and its relatives x + value a b, x + value a / b. Formulas: shapes broadcast, gradients
 * follow. Oracle: torch.lerp, addcmul, addcdiv. */
#include "autograd/op.h"

/* arg: 0 lerp, 1 addcmul, 2 addcdiv; weight or value. */
static const ct_case cases[] = {
    {.name = "lerp", .arg = {0, 0.3}, .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 5)}},
    {.name = "lerp, far", .arg = {0, 0.8}, .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN(NORMAL, 3, 1)}},
    {.name = "addcmul",
     .arg = {1, -2},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 5), CT_IN(NORMAL, 3, 1)}},
    {.name = "addcdiv",
     .arg = {2, 0.5},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 5), CT_IN(POSITIVE, 3, 1)}},
    {.name = "empty", .arg = {0, 0.3}, .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return c->arg[0] == 0 ? ct_lerp(in[0], in[1], c->arg[1]) :
           c->arg[0] == 1 ? ct_addcmul(in[0], in[1], in[2], c->arg[1]) :
                            ct_addcdiv(in[0], in[1], in[2], c->arg[1]);
}

const ct_op cti_op_lerp = {.name = "lerp", CT_CASES(cases), .call = call};

ct_tensor *ct_lerp(ct_tensor *a, ct_tensor *b, double weight)
{
    return ct_add(a, ct_affine(ct_sub(b, a), weight, 0));
}

ct_tensor *ct_addcmul(ct_tensor *x, ct_tensor *a, ct_tensor *b, double value)
{
    return ct_add(x, ct_affine(ct_mul(a, b), value, 0));
}

ct_tensor *ct_addcdiv(ct_tensor *x, ct_tensor *a, ct_tensor *b, double value)
{
    return ct_add(x, ct_affine(ct_div(a, b), value, 0));
}
