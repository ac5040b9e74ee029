/* SPDX-License-Identifier: Apache-2.0 */
/* logsumexp - y = log(sum exp(x)) over dims, without overflow; softmin(x) = softmax(-x). Shape: as sum's. Gradient: dy
 * exp(x - y); NaN where all are -inf, whose y is -inf. Formulas. Oracle: torch.logsumexp, F.softmin. */
#include "autograd/op.h"

#include <math.h>

/* arg: 1 for softmin, keepdim, n_dims or dim, dims (two places). */
static const ct_case cases[] = {
    {.name = "last", .arg = {0, 0, 1, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "first, keepdim", .arg = {0, 1, 1, 0}, .in = {CT_IN(NORMAL, 7, 3, 5)}},
    {.name = "pixels", .arg = {0, 0, 2, 2, 3}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "softmin", .arg = {1, 0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "empty", .arg = {0, 0, 1, 1}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[2] = {(int)c->arg[3], (int)c->arg[4]}, n = (int)c->arg[2];
    return c->arg[0] != 0 ? ct_softmin(in[0], n) : ct_logsumexp(in[0], dims, n, c->arg[1] != 0);
}

const ct_op cti_op_logsumexp = {
    .name = "logsumexp", .autocast = CTI_F32, CT_CASES(cases), .call = call};

ct_tensor *ct_logsumexp(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    x = cti_operand(&cti_op_logsumexp, x);
    ct_tensor *most = ct_amax(x ? ct_detach(x) : NULL, dims, n_dims, true);
    if (!most)
        return NULL;
    ct_tensor *shift = ct_where(ct_isinf(most), ct_zeros_like(most), most);
    ct_tensor *y = ct_add(ct_log(ct_sum(ct_exp(ct_sub(x, shift)), dims, n_dims, true)), shift);
    if (!y || keepdim)
        return y;
    ct_tensor *flat = ct_sum(ct_zeros_like(x), dims, n_dims, false); /* for its shape */
    return flat ? ct_reshape(y, ct_tensor_ndim(flat), ct_tensor_shape(flat)) : NULL;
}

ct_tensor *ct_softmin(ct_tensor *x, int dim)
{
    return ct_softmax(ct_neg(x), dim);
}
