/* SPDX-License-Identifier: Apache-2.0 */
/* addmm, baddbmm - y = beta x + alpha a b; x broadcasts to the product's shape. With beta 0 x is not looked at
 * (a NaN in it doesn't count). A formula of matmul, affine and add. Oracle: torch.addmm, baddbmm. */
#include "autograd/op.h"

/* arg: alpha, beta. */
static const ct_case cases[] = {
    {.name = "matrices",
     .arg = {1, 1},
     .in = {CT_IN(NORMAL, 3, 7), CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 5, 7)}},
    {.name = "scaled, a row",
     .arg = {0.5, -2},
     .in = {CT_IN(NORMAL, 7), CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 5, 7)}},
    {.name = "batches",
     .arg = {2, 3},
     .in = {CT_IN(NORMAL, 2, 3, 7), CT_IN(NORMAL, 2, 3, 5), CT_IN(NORMAL, 2, 5, 7)}},
    {.name = "batches, a column",
     .arg = {1, 1},
     .in = {CT_IN(NORMAL, 3, 1), CT_IN(NORMAL, 2, 3, 5), CT_IN(NORMAL, 2, 5, 7)}},
    {.name = "empty",
     .arg = {1, 1},
     .in = {CT_IN(NORMAL, 0, 7), CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 5, 7)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    bool batches = c->in[1].ndim == 3;
    return (batches ? ct_baddbmm : ct_addmm)(in[0], in[1], in[2], c->arg[0], c->arg[1]);
}

const ct_op cti_op_addmm = {.name = "addmm", .autocast = CTI_LOW, CT_CASES(cases), .call = call};

static ct_tensor *sum(ct_tensor *x, ct_tensor *product, double alpha, double beta)
{
    char s[96], t[96];
    x = cti_operand(&cti_op_addmm, x);
    ct_tensor *y = alpha == 1 ? product : ct_affine(product, alpha, 0);
    if (!x || !y)
        return ct_add(x, y);
    int lead = ct_tensor_ndim(y) - ct_tensor_ndim(x);
    bool fits = lead >= 0;
    for (int i = 0; fits && i < ct_tensor_ndim(x); i++)
        fits = ct_tensor_shape(x)[i] == 1 || ct_tensor_shape(x)[i] == ct_tensor_shape(y)[i + lead];
    if (!fits)
        return cti_raise(ct_tensor_ctx(x), &cti_op_addmm, CT_ESHAPE,
                         "x, %s, doesn't broadcast to the product, %s",
                         ct_tensor_describe(x, s, sizeof s), ct_tensor_describe(y, t, sizeof t));
    return beta == 0 ? y : ct_add(beta == 1 ? x : ct_affine(x, beta, 0), y);
}

ct_tensor *ct_addmm(ct_tensor *x, ct_tensor *a, ct_tensor *b, double alpha, double beta)
{
    char s[96], t[96];
    if (a && b && (ct_tensor_ndim(a) != 2 || ct_tensor_ndim(b) != 2))
        return cti_raise(ct_tensor_ctx(a), &cti_op_addmm, CT_ESHAPE,
                         "%s x %s: matrices are needed (ct_baddbmm takes batches)",
                         ct_tensor_describe(a, s, sizeof s), ct_tensor_describe(b, t, sizeof t));
    return sum(x, ct_matmul(a, b), alpha, beta);
}

ct_tensor *ct_baddbmm(ct_tensor *x, ct_tensor *a, ct_tensor *b, double alpha, double beta)
{
    return sum(x, ct_bmm(a, b), alpha, beta);
}
