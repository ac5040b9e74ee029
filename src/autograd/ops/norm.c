/* SPDX-License-Identifier: Apache-2.0 */
/* norm - the p-norm of x over dims (none: all): (sum |x|^p)^(1/p); p = 0 counts what isn't 0, +-inf takes the largest or
 * smallest |x|. Shape: as sum's. Gradient: 0 where the norm is 0; of inf shared by ties. Formulas.
 * Also normalize and cosine_similarity. Oracle: torch.linalg.vector_norm, F.normalize, F.cosine_similarity. */
#include "autograd/op.h"

#include <math.h>

/* arg: what (0 norm, 1 normalize, 2 cosine_similarity), p (999 is infinite), keepdim, n_dims or dim, dims (two places). */
static const ct_case cases[] = {
    {.name = "all", .arg = {0, 2}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "of rows, keepdim", .arg = {0, 2, 1, 1, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "1", .arg = {0, 1, 0, 1, 0}, .in = {CT_IN(AWAY, 7, 5)}},
    {.name = "3", .arg = {0, 3, 0, 2, 2, 3}, .in = {CT_IN(AWAY, 2, 3, 5, 7)}},
    {.name = "0", .arg = {0, 0, 0, 1, 1}, .in = {CT_IN_FIXED(NORMAL, 3, 5)}},
    {.name = "infinite", .arg = {0, 999, 0, 1, 1}, .in = {CT_IN(AWAY, 3, 5)}},
    {.name = "minus infinite", .arg = {0, -999}, .in = {CT_IN(AWAY, 3, 5)}},
    {.name = "normalize", .arg = {1, 2, 0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "normalize by 1", .arg = {1, 1, 0, 0}, .in = {CT_IN(AWAY, 3, 5)}},
    {.name = "cosine", .arg = {2, 0, 0, 1}, .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "empty", .arg = {0, 2, 0, 1, 1}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[2] = {(int)c->arg[4], (int)c->arg[5]}, dim = (int)c->arg[3];
    double p = fabs(c->arg[1]) == 999 ? c->arg[1] * HUGE_VAL : c->arg[1];
    return c->arg[0] == 0 ? ct_norm(in[0], p, dims, dim, c->arg[2] != 0) :
           c->arg[0] == 1 ? ct_normalize(in[0], c->arg[1], dim, 1e-12) :
                            ct_cosine_similarity(in[0], in[1], dim, 1e-8);
}

const ct_op cti_op_norm = {.name = "norm", .autocast = CTI_F32, CT_CASES(cases), .call = call};

ct_tensor *ct_norm(ct_tensor *x, double p, const int *dims, int n_dims, bool keepdim)
{
    x = cti_operand(&cti_op_norm, x);
    if (!x)
        return NULL;
    if (isnan(p))
        return cti_raise(ct_tensor_ctx(x), &cti_op_norm, CT_EINVAL, "p is NaN");
    if (p == 2)
        return cti_root(ct_sum(ct_square(x), dims, n_dims, keepdim));
    ct_tensor *size = ct_abs(x);
    if (p == 1)
        return ct_sum(size, dims, n_dims, keepdim);
    if (isinf(p))
        return (p > 0 ? ct_amax : ct_amin)(size, dims, n_dims, keepdim);
    if (p == 0)
        return ct_sum(ct_cast(ct_ne(x, ct_zeros_like(x)), ct_tensor_dtype(x)), dims, n_dims,
                      keepdim);
    ct_tensor *sum = ct_sum(ct_pow_scalar(size, p), dims, n_dims, keepdim);
    ct_tensor *zero = ct_eq(sum, ct_zeros_like(sum));
    ct_tensor *root = ct_pow_scalar(ct_where(zero, ct_ones_like(sum), sum), 1 / p);
    return ct_where(zero, ct_zeros_like(sum), root);
}

static ct_tensor *at_least(ct_tensor *x, double eps)
{
    return ct_clamp(x, &eps, NULL);
}

ct_tensor *ct_normalize(ct_tensor *x, double p, int dim, double eps)
{
    x = cti_operand(&cti_op_norm, x);
    return ct_div(x, at_least(ct_norm(x, p, &dim, 1, true), eps));
}

ct_tensor *ct_cosine_similarity(ct_tensor *a, ct_tensor *b, int dim, double eps)
{
    a = cti_operand(&cti_op_norm, a);
    b = cti_operand(&cti_op_norm, b);
    ct_tensor *dot = ct_sum(ct_mul(a, b), &dim, 1, false);
    ct_tensor *na = at_least(ct_norm(a, 2, &dim, 1, false), eps),
              *nb = at_least(ct_norm(b, 2, &dim, 1, false), eps);
    return ct_div(dot, ct_mul(na, nb));
}
