/* SPDX-License-Identifier: Apache-2.0 */
/* smooth_l1_loss - of d = |x - t|: d^2 / (2 beta) below beta, d - beta / 2 above; huber: d^2 / 2 up to delta, delta (d - delta /
 * 2) above; l1: d. Shapes broadcast. Gradient 0 where d is 0. Formulas.
 * Oracle: torch.nn.functional.smooth_l1_loss, huber_loss, l1_loss. */
#include "autograd/op.h"

/* arg: reduction, what (0 smooth_l1, 1 huber, 2 l1), beta or delta. */
static const ct_case cases[] = {
    {.name = "smooth l1", .arg = {2, 0, 1}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "smooth l1, beta 0.3, none",
     .arg = {0, 0, 0.3},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_FIXED(NORMAL, 7, 5)}},
    {.name = "smooth l1, beta 0",
     .arg = {1, 0, 0},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "huber", .arg = {2, 1, 1}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "huber, delta 0.5, sum",
     .arg = {1, 1, 0.5},
     .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "l1", .arg = {2, 2}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "l1, none",
     .arg = {0, 2},
     .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN_FIXED(NORMAL, 2, 3, 5)}},
    {.name = "empty", .arg = {1, 0, 1}, .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_reduction r = (ct_reduction)c->arg[0];
    return c->arg[1] == 0 ? ct_smooth_l1_loss(in[0], in[1], c->arg[2], r) :
           c->arg[1] == 1 ? ct_huber_loss(in[0], in[1], c->arg[2], r) :
                            ct_l1_loss(in[0], in[1], r);
}

const ct_op cti_op_smooth_l1_loss = {
    .name = "smooth_l1_loss", .autocast = CTI_F32, CT_CASES(cases), .call = call};

static ct_tensor *distance(ct_tensor *x, ct_tensor *target)
{
    return ct_abs(ct_sub(cti_operand(&cti_op_smooth_l1_loss, x),
                         cti_operand(&cti_op_smooth_l1_loss, target)));
}

ct_tensor *ct_l1_loss(ct_tensor *x, ct_tensor *target, ct_reduction reduction)
{
    return cti_reduce_loss(&cti_op_smooth_l1_loss, distance(x, target), reduction);
}

ct_tensor *ct_smooth_l1_loss(ct_tensor *x, ct_tensor *target, double beta, ct_reduction reduction)
{
    if (x && !(beta >= 0))
        return cti_raise(ct_tensor_ctx(x), &cti_op_smooth_l1_loss, CT_EINVAL,
                         "beta is %g: it must be 0 or more", beta);
    if (beta == 0)
        return ct_l1_loss(x, target, reduction);
    ct_tensor *d = distance(x, target);
    ct_tensor *loss =
        ct_where(ct_lt(d, ct_full_like(d, beta)), ct_affine(ct_square(d), 0.5 / beta, 0),
                 ct_affine(d, 1, -0.5 * beta));
    return cti_reduce_loss(&cti_op_smooth_l1_loss, loss, reduction);
}

ct_tensor *ct_huber_loss(ct_tensor *x, ct_tensor *target, double delta, ct_reduction reduction)
{
    if (x && !(delta > 0))
        return cti_raise(ct_tensor_ctx(x), &cti_op_smooth_l1_loss, CT_EINVAL,
                         "delta is %g: it must be above 0", delta);
    ct_tensor *d = distance(x, target);
    ct_tensor *loss = ct_where(ct_le(d, ct_full_like(d, delta)), ct_affine(ct_square(d), 0.5, 0),
                               ct_affine(d, delta, -0.5 * delta * delta));
    return cti_reduce_loss(&cti_op_smooth_l1_loss, loss, reduction);
}
