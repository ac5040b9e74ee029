/* SPDX-License-Identifier: Apache-2.0 */
/* kl_div - t (log t - x) for log-probabilities x, 0 where t is 0; with log_target exp(t) (t - x). The sum divided by the batch
 * (CT_KL_BATCHMEAN) is the divergence. Formulas. Oracle: torch.nn.functional.kl_div. */
#include "autograd/op.h"

/* arg: reduction (3 batchmean), log_target. */
static const ct_case cases[] = {
    {.name = "batchmean", .arg = {3}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(PROBS, 7, 5)}},
    {.name = "none", .arg = {0}, .in = {CT_IN(NORMAL, 7, 5), CT_IN_FIXED(PROBS, 7, 5)}},
    {.name = "sum, logs", .arg = {1, 1}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "mean", .arg = {2}, .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN_FIXED(PROBS, 2, 3, 5)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5), CT_IN_FIXED(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int r = (int)c->arg[0];
    return r == 3 ? ct_kl_div_batchmean(in[0], in[1], c->arg[1] != 0) :
                    ct_kl_div(in[0], in[1], c->arg[1] != 0, (ct_reduction)r);
}

const ct_op cti_op_kl_div = {.name = "kl_div", .autocast = CTI_F32, CT_CASES(cases), .call = call};

static ct_tensor *elements(ct_tensor *x, ct_tensor *t, bool log_target)
{
    if (log_target)
        return ct_mul(ct_exp(t), ct_sub(t, x));
    if (!t)
        return ct_sub(t, x);
    ct_tensor *none = ct_zeros_like(t), *zero = ct_eq(t, none);
    ct_tensor *t_log_t =
        ct_where(zero, none, ct_mul(t, ct_log(ct_where(zero, ct_ones_like(t), t))));
    return ct_sub(t_log_t, ct_mul(t, x));
}

ct_tensor *ct_kl_div(ct_tensor *x, ct_tensor *target, bool log_target, ct_reduction reduction)
{
    x = cti_operand(&cti_op_kl_div, x);
    target = cti_operand(&cti_op_kl_div, target);
    return cti_reduce_loss(&cti_op_kl_div, elements(x, target, log_target), reduction);
}

ct_tensor *ct_kl_div_batchmean(ct_tensor *x, ct_tensor *target, bool log_target)
{
    int64_t batch = x && ct_tensor_ndim(x) ? ct_tensor_size(x, 0) : 1;
    ct_tensor *sum = ct_kl_div(x, target, log_target, CT_REDUCE_SUM);
    return ct_affine(sum, batch ? 1 / (double)batch : 1, 0);
}
