/* SPDX-License-Identifier: Apache-2.0 */
/* outer, dot - y[i, j] = a[i] b[j]; y = sum_i a[i] b[i]. Shape: [M] and [N] -> [M,N]; [N] and [N] -> scalar.
 * Formulas of mul and matmul. Oracle: torch.outer, dot. */
#include "autograd/op.h"

/* arg: is it dot? */
static const ct_case cases[] = {
    {.name = "outer", .arg = {0}, .in = {CT_IN(NORMAL, 3), CT_IN(NORMAL, 7)}},
    {.name = "outer of one", .arg = {0}, .in = {CT_IN(NORMAL, 1), CT_IN(NORMAL, 5)}},
    {.name = "outer, integers", .arg = {0}, .in = {CT_IN(I64, 3), CT_IN(I64, 2)}},
    {.name = "outer, empty", .arg = {0}, .in = {CT_IN(NORMAL, 0), CT_IN(NORMAL, 5)}},
    {.name = "dot", .arg = {1}, .in = {CT_IN(NORMAL, 17), CT_IN(NORMAL, 17)}},
    {.name = "dot, empty", .arg = {1}, .in = {CT_IN(NORMAL, 0), CT_IN(NORMAL, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return (c->arg[0] ? ct_dot : ct_outer)(in[0], in[1]);
}

const ct_op cti_op_outer = {.name = "outer", CT_CASES(cases), .call = call};

static bool vectors(const char *who, ct_tensor *a, ct_tensor *b)
{
    char s[96], t[96];
    if (!a || !b || (ct_tensor_ndim(a) == 1 && ct_tensor_ndim(b) == 1))
        return true;
    cti_raise(ct_tensor_ctx(a), &cti_op_outer, CT_ESHAPE, "%s of %s and %s: vectors are needed",
              who, ct_tensor_describe(a, s, sizeof s), ct_tensor_describe(b, t, sizeof t));
    return false;
}

ct_tensor *ct_outer(ct_tensor *a, ct_tensor *b)
{
    return vectors("outer product", a, b) ? ct_mul(a ? ct_unsqueeze(a, 1) : NULL, b) : NULL;
}

ct_tensor *ct_dot(ct_tensor *a, ct_tensor *b)
{
    return vectors("dot product", a, b) ? ct_matmul(a, b) : NULL;
}
