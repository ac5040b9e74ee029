/* SPDX-License-Identifier: Apache-2.0 */
/* any - is any element of x over dims (none: all) not 0; all: are all; count_nonzero: how many (i64). Any dtype, no gradient.
 * Shape: as sum's. Formulas. Oracle: torch.any, all, count_nonzero. */
#include "autograd/op.h"

/* arg: what (0 any, 1 all, 2 count_nonzero), keepdim, n_dims, dims (two places). */
static const ct_case cases[] = {
    {.name = "any", .arg = {0, 0, 1, -1}, .in = {CT_IN(BOOL, 7, 2)}},
    {.name = "all", .arg = {1, 1, 1, 0}, .in = {CT_IN(BOOL, 2, 7)}},
    {.name = "all of all", .arg = {1}, .in = {CT_IN_FIXED(NORMAL, 3, 5)}},
    {.name = "count", .arg = {2, 0, 1, 1}, .in = {CT_IN(I64, 3, 5)}},
    {.name = "count of all", .arg = {2}, .in = {CT_IN(BOOL, 3, 5)}},
    {.name = "empty", .arg = {0, 0, 1, 1}, .in = {CT_IN(BOOL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[2] = {(int)c->arg[3], (int)c->arg[4]}, n = (int)c->arg[2];
    bool keepdim = c->arg[1] != 0;
    return c->arg[0] == 0 ? ct_any(in[0], dims, n, keepdim) :
           c->arg[0] == 1 ? ct_all(in[0], dims, n, keepdim) :
                            ct_count_nonzero(in[0], dims, n, keepdim);
}

const ct_op cti_op_any = {.name = "any", CT_CASES(cases), .call = call};

static ct_tensor *count(ct_tensor *flags, const int *dims, int n_dims, bool keepdim)
{
    return ct_sum(flags, dims, n_dims, keepdim);
}

ct_tensor *ct_count_nonzero(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return count(ct_ne(x, ct_zeros_like(x)), dims, n_dims, keepdim);
}

ct_tensor *ct_any(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    ct_tensor *n = ct_count_nonzero(x, dims, n_dims, keepdim);
    return ct_gt(n, ct_zeros_like(n));
}

ct_tensor *ct_all(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    ct_tensor *n = count(ct_eq(x, ct_zeros_like(x)), dims, n_dims, keepdim);
    return ct_eq(n, ct_zeros_like(n));
}
