/* SPDX-License-Identifier: Apache-2.0 */
/* nll_loss - of log-probabilities lp and classes: mean = sum of -w_y lp_y / sum of w_y over what isn't ignored. Shape: x [N,C,...],
 * target i64 [N,...]. A formula. Oracle: torch.nn.functional.nll_loss. */
#include "autograd/op.h"

/* arg: reduction, ignore_index. in: x, target, weight. */
static const ct_case cases[] = {
    {.name = "mean", .arg = {2, -100}, .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(5, 7)}},
    {.name = "weights, ignored class",
     .arg = {2, 2},
     .in = {CT_IN(NORMAL, 17, 5), CT_IN_LABELS(5, 17), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "none, positions",
     .arg = {0, 1},
     .in = {CT_IN(NORMAL, 2, 5, 3, 4), CT_IN_LABELS(5, 2, 3, 4)}},
    {.name = "sum",
     .arg = {1, -100},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(5, 7), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "empty", .arg = {1, -100}, .in = {CT_IN(NORMAL, 0, 5), CT_IN_LABELS(5, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_nll_loss(in[0], in[1], in[2], (int64_t)c->arg[1], (ct_reduction)c->arg[0]);
}

const ct_op cti_op_nll_loss = {
    .name = "nll_loss", .optional = 4, .autocast = CTI_F32, CT_CASES(cases), .call = call};

ct_tensor *ct_nll_loss(ct_tensor *x, ct_tensor *target, ct_tensor *weight, int64_t ignore_index,
                       ct_reduction reduction)
{
    x = cti_operand(&cti_op_nll_loss, x);
    weight = cti_operand(&cti_op_nll_loss, weight);
    ct_tensor *kept = ct_ne(target, target ? ct_full_like(target, (double)ignore_index) : NULL);
    ct_tensor *safe = kept ? ct_where(kept, target, ct_zeros_like(target)) : NULL;
    ct_tensor *lp = ct_gather(x, 1, safe ? ct_unsqueeze(safe, 1) : NULL);
    if (!lp)
        return NULL;
    lp = ct_squeeze(lp, 1);
    ct_tensor *w = ct_cast(kept, ct_tensor_dtype(x));
    if (weight) {
        int64_t flat = -1;
        ct_tensor *of = ct_index_select(weight, 0, ct_reshape(ct_contiguous(safe), 1, &flat));
        w = ct_mul(w, of ? ct_reshape(of, ct_tensor_ndim(target), ct_tensor_shape(target)) : NULL);
    }
    ct_tensor *loss = ct_where(kept, ct_neg(ct_mul(w, lp)), ct_zeros_like(lp));
    if (reduction != CT_REDUCE_MEAN)
        return cti_reduce_loss(&cti_op_nll_loss, loss, reduction);
    return ct_div(ct_sum(loss, NULL, 0, false), ct_sum(w, NULL, 0, false));
}
