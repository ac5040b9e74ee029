/* SPDX-License-Identifier: Apache-2.0 */
/* attention - softmax(q k^T scale + mask) v, for q [...,L,E], k [...,S,E], v [...,S,V] -> [...,L,V]. mask broadcasts to [...,L,S]:
 * bool, true where a key may be looked at, or floats that are added; causal: key j for query i where j <= i. scale 0 stands
 * for 1 / sqrt(E). A query that may look at nothing gives 0, and no gradient (PyTorch's safe softmax). A formula.
 * Oracle: torch.nn.functional.scaled_dot_product_attention. */
#include "autograd/op.h"

#include <math.h>

/* arg: causal, scale. in: q, k, v, mask. */
static const ct_case cases[] = {
    {.name = "plain",
     .in = {CT_IN(NORMAL, 2, 5, 4), CT_IN(NORMAL, 2, 7, 4), CT_IN(NORMAL, 2, 7, 3)}},
    {.name = "heads, causal",
     .arg = {1},
     .in = {CT_IN(NORMAL, 2, 3, 5, 4), CT_IN(NORMAL, 2, 3, 5, 4), CT_IN(NORMAL, 2, 3, 5, 4)}},
    {.name = "causal, more keys",
     .arg = {1},
     .in = {CT_IN(NORMAL, 3, 4), CT_IN(NORMAL, 6, 4), CT_IN(NORMAL, 6, 2)}},
    {.name = "causal, more queries",
     .arg = {1},
     .in = {CT_IN(NORMAL, 6, 4), CT_IN(NORMAL, 3, 4), CT_IN(NORMAL, 3, 2)}},
    {.name = "bool mask",
     .in = {CT_IN(NORMAL, 2, 3, 5, 4), CT_IN(NORMAL, 2, 3, 7, 4), CT_IN(NORMAL, 2, 3, 7, 4),
            CT_IN(BOOL, 2, 1, 5, 7)}},
    {.name = "added mask",
     .arg = {0, 0.3},
     .in = {CT_IN(NORMAL, 2, 5, 4), CT_IN(NORMAL, 2, 7, 4), CT_IN(NORMAL, 2, 7, 4),
            CT_IN(NORMAL, 5, 7)}},
    {.name = "empty",
     .in = {CT_IN(NORMAL, 0, 5, 4), CT_IN(NORMAL, 0, 7, 4), CT_IN(NORMAL, 0, 7, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_attention_opts o = ct_attention_defaults();
    o.mask = in[3];
    o.causal = c->arg[0] != 0;
    o.scale = c->arg[1];
    return ct_attention(in[0], in[1], in[2], o);
}

const ct_op cti_op_attention = {.name = "attention", .optional = 8, CT_CASES(cases), .call = call};

ct_attention_opts ct_attention_defaults(void)
{
    return (ct_attention_opts){0};
}

/* true where query i may look at key j. */
static ct_tensor *lower_left(ct_tensor *scores)
{
    const int64_t shape[2] = {ct_tensor_size(scores, -2), ct_tensor_size(scores, -1)};
    ct_tensor *ones = ct_new_full(scores, 2, shape, 1);
    return ct_ne(ct_tril(ones, 0), ct_zeros_like(ones));
}

static ct_tensor *masked(ct_tensor *scores, ct_tensor *allowed)
{
    return ct_where(allowed, scores, ct_new_full(scores, 0, NULL, -INFINITY));
}

ct_tensor *ct_attention(ct_tensor *q, ct_tensor *k, ct_tensor *v, ct_attention_opts o)
{
    if (!q || !k)
        return ct_matmul(q, k);
    if (ct_tensor_ndim(q) < 2 || ct_tensor_ndim(k) < 2 || (v && ct_tensor_ndim(v) < 2))
        return cti_raise(ct_tensor_ctx(q), &cti_op_attention, CT_ESHAPE,
                         "q, k and v need two dimensions or more: [...,length,features]");
    int64_t width = ct_tensor_size(q, -1);
    double scale = o.scale != 0 ? o.scale : width > 0 ? 1 / sqrt((double)width) : 1;
    ct_tensor *s = ct_matmul(ct_affine(q, scale, 0), ct_transpose(k, -2, -1));
    if (!s)
        return NULL;
    bool masks = o.mask || o.causal;
    if (o.causal)
        s = masked(s, lower_left(s));
    if (o.mask)
        s = ct_tensor_dtype(o.mask) == CT_BOOL ? masked(s, o.mask) : ct_add(s, o.mask);
    if (!masks || (s && ct_tensor_size(s, -1) == 0))
        return ct_matmul(ct_dropout(ct_softmax(s, -1), o.dropout, o.training), v);
    int last = -1;
    ct_tensor *most = ct_amax(s ? ct_detach(s) : NULL, &last, 1, true);
    ct_tensor *blind = most ? ct_eq(most, ct_full_like(most, -INFINITY)) : NULL;
    ct_tensor *none = s ? ct_new_full(s, 0, NULL, 0) : NULL;
    ct_tensor *p = ct_where(blind, none, ct_softmax(ct_where(blind, none, s), -1));
    return ct_matmul(ct_dropout(p, o.dropout, o.training), v);
}
