/* SPDX-License-Identifier: Apache-2.0 */
/* bce_with_logits - with s the sigmoid, per element w [-(p t log s(x) + (1 - t) log(1 - s(x)))], in the stable form
 * (1 - t) x + (1 + (p - 1) t) softplus(-x); bce of probabilities, their logs not below -100. Shapes broadcast to x's.
 * Formulas; weight w and pos_weight p may be absent. Oracle: F.binary_cross_entropy_with_logits, binary_cross_entropy. */
#include "autograd/op.h"

/* arg: reduction, 1 for bce. in: x, target, weight, pos_weight. */
static const ct_case cases[] = {
    {.name = "mean", .arg = {2}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(PROBS, 7, 5)}},
    {.name = "none, weights",
     .arg = {0},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_FIXED(PROBS, 7, 5), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "sum, positive weights",
     .arg = {1},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_FIXED(PROBS, 7, 5), CT_IN_FIXED(POSITIVE, 7, 1),
            CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "probabilities", .arg = {2, 1}, .in = {CT_IN(PROBS, 7, 5), CT_IN_FIXED(PROBS, 7, 5)}},
    {.name = "probabilities, none, weights",
     .arg = {0, 1},
     .in = {CT_IN(PROBS, 7, 5), CT_IN_FIXED(PROBS, 7, 5), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5), CT_IN_FIXED(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_reduction r = (ct_reduction)c->arg[0];
    return c->arg[1] != 0 ? ct_bce(in[0], in[1], in[2], r) :
                            ct_bce_with_logits(in[0], in[1], in[2], in[3], r);
}

const ct_op cti_op_bce_with_logits = {
    .name = "bce_with_logits", .optional = 12, .autocast = CTI_F32, CT_CASES(cases), .call = call};

ct_tensor *cti_reduce_loss(const ct_op *op, ct_tensor *loss, ct_reduction reduction)
{
    if (loss && (unsigned)reduction > CT_REDUCE_MEAN)
        return cti_raise(ct_tensor_ctx(loss), op, CT_EINVAL, "reduction %d is none of CT_REDUCE_*",
                         (int)reduction);
    return reduction == CT_REDUCE_NONE ? loss :
           reduction == CT_REDUCE_SUM  ? ct_sum(loss, NULL, 0, false) :
                                         ct_mean(loss, NULL, 0, false);
}

static ct_tensor *weighted(ct_tensor *loss, ct_tensor *weight)
{
    return weight ? ct_mul(loss, weight) : loss;
}

ct_tensor *ct_bce_with_logits(ct_tensor *x, ct_tensor *target, ct_tensor *weight,
                              ct_tensor *pos_weight, ct_reduction reduction)
{
    x = cti_operand(&cti_op_bce_with_logits, x);
    target = cti_operand(&cti_op_bce_with_logits, target);
    ct_tensor *log_s = ct_logsigmoid(x), *other = ct_affine(target, -1, 1);
    if (pos_weight)
        log_s = ct_mul(ct_affine(ct_mul(ct_affine(pos_weight, 1, -1), target), 1, 1), log_s);
    ct_tensor *loss = weighted(ct_sub(ct_mul(other, x), log_s), weight);
    return cti_reduce_loss(&cti_op_bce_with_logits, loss, reduction);
}

ct_tensor *ct_bce(ct_tensor *p, ct_tensor *target, ct_tensor *weight, ct_reduction reduction)
{
    p = cti_operand(&cti_op_bce_with_logits, p);
    target = cti_operand(&cti_op_bce_with_logits, target);
    const double least = 3.7200759760208361e-44; /* exp(-100) */
    ct_tensor *yes = ct_log(ct_clamp(p, &least, NULL)),
              *no = ct_log(ct_clamp(ct_affine(p, -1, 1), &least, NULL));
    ct_tensor *loss = ct_add(ct_mul(target, yes), ct_mul(ct_affine(target, -1, 1), no));
    return cti_reduce_loss(&cti_op_bce_with_logits, weighted(ct_neg(loss), weight), reduction);
}
