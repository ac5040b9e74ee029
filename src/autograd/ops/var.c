/* SPDX-License-Identifier: Apache-2.0 */
/* var - the mean of the squared distances from the mean over dims (none: all), with n - correction for n; std its root, whose
 * gradient is 0 where it is 0. Shape: as sum's. NaN where n - correction is not above 0. Formulas, in two passes over x.
 * Oracle: torch.var, std, var_mean. */
#include "autograd/op.h"

#include <math.h>

/* arg: 1 for std, correction, keepdim, n_dims, dims (two places). */
static const ct_case cases[] = {
    {.name = "all", .arg = {0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "biased, last", .arg = {0, 0, 0, 1, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "first, keepdim", .arg = {0, 1, 1, 1, 0}, .in = {CT_IN(NORMAL, 7, 3, 5)}},
    {.name = "pixels", .arg = {0, 1, 0, 2, 2, 3}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "std, all", .arg = {1, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "std, last, keepdim", .arg = {1, 0, 1, 1, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "empty", .arg = {0, 1, 0, 1, 1}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[2] = {(int)c->arg[4], (int)c->arg[5]};
    return (c->arg[0] != 0 ? ct_std : ct_var)(in[0], dims, (int)c->arg[3], c->arg[1],
                                              c->arg[2] != 0);
}

const ct_op cti_op_var = {.name = "var", .autocast = CTI_F32, CT_CASES(cases), .call = call};

ct_tensor *ct_var(ct_tensor *x, const int *dims, int n_dims, double correction, bool keepdim)
{
    x = cti_operand(&cti_op_var, x);
    ct_tensor *mean = ct_mean(x, dims, n_dims, true);
    if (!mean)
        return NULL;
    int64_t groups = ct_tensor_numel(mean), all = ct_tensor_numel(x);
    double n = groups ? (double)(all / groups) - correction : 1;
    ct_tensor *sum = ct_sum(ct_square(ct_sub(x, mean)), dims, n_dims, keepdim);
    return ct_affine(sum, n > 0 ? 1 / n : (double)NAN, 0);
}

ct_tensor *ct_std(ct_tensor *x, const int *dims, int n_dims, double correction, bool keepdim)
{
    return cti_root(ct_var(x, dims, n_dims, correction, keepdim));
}

int ct_var_mean(ct_tensor *x, const int *dims, int n_dims, double correction, bool keepdim,
                ct_tensor **var, ct_tensor **mean)
{
    *var = ct_var(x, dims, n_dims, correction, keepdim);
    *mean = *var ? ct_mean(x, dims, n_dims, keepdim) : NULL;
    return *mean ? CT_OK : x ? ct_error_code(ct_tensor_ctx(x)) : CT_EINVAL;
}

/* The infinite slope at 0 is not taken: its argument is another one there. */
ct_tensor *cti_root(ct_tensor *x)
{
    ct_tensor *zero = x ? ct_eq(x, ct_zeros_like(x)) : NULL;
    return x ? ct_where(zero, ct_zeros_like(x), ct_sqrt(ct_where(zero, ct_ones_like(x), x))) : NULL;
}
