/* SPDX-License-Identifier: Apache-2.0 */
/* bmm - y[i] = a[i] b[i]. Shape: [B,M,K] x [B,K,N] -> [B,M,N]; nothing broadcasts. A formula of matmul.
 * Oracle: torch.bmm. */
#include "autograd/op.h"

/* No arg. */
static const ct_case cases[] = {
    {.name = "batches", .in = {CT_IN(NORMAL, 4, 3, 5), CT_IN(NORMAL, 4, 5, 7)}},
    {.name = "one batch", .in = {CT_IN(NORMAL, 1, 3, 5), CT_IN(NORMAL, 1, 5, 1)}},
    {.name = "no batch", .in = {CT_IN(NORMAL, 0, 3, 5), CT_IN(NORMAL, 0, 5, 7)}},
    {.name = "sum over nothing", .in = {CT_IN(NORMAL, 2, 3, 0), CT_IN(NORMAL, 2, 0, 7)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_bmm(in[0], in[1]);
}

const ct_op cti_op_bmm = {.name = "bmm", CT_CASES(cases), .call = call};

ct_tensor *ct_bmm(ct_tensor *a, ct_tensor *b)
{
    char s[96], t[96];
    if (a && b &&
        (ct_tensor_ndim(a) != 3 || ct_tensor_ndim(b) != 3 ||
         ct_tensor_size(a, 0) != ct_tensor_size(b, 0)))
        return cti_raise(ct_tensor_ctx(a), &cti_op_bmm, CT_ESHAPE,
                         "%s x %s: [B,M,K] x [B,K,N] is needed; ct_matmul broadcasts",
                         ct_tensor_describe(a, s, sizeof s), ct_tensor_describe(b, t, sizeof t));
    return ct_matmul(a, b);
}
