/* SPDX-License-Identifier: Apache-2.0 */
/* upsample_nearest2d - images of another size, each cell the one at floor(p step); step = H / P or 1 / scale. Shape:
 * [N,C,H,W] -> [N,C,P,Q]. Gradient: the sum of dy over the cells that were taken from there. Oracle:
 * torch.nn.functional.interpolate. */
#include "autograd/op.h"

#include <math.h>

extern const ct_op cti_op_upsample_bilinear2d;

/* arg: size h, w, scale h, w (where size is 0). */
static const ct_case cases[] = {
    {.name = "larger", .arg = {7, 9}, .in = {CT_IN(NORMAL, 2, 3, 4, 5)}},
    {.name = "twice", .arg = {0, 0, 2, 2}, .in = {CT_IN(NORMAL, 1, 2, 3, 5)}},
    {.name = "smaller", .arg = {3, 2}, .in = {CT_IN(NORMAL, 1, 2, 7, 5)}},
    {.name = "scale", .arg = {0, 0, 1.7, 0.6}, .in = {CT_IN(NORMAL, 1, 2, 5, 7)}},
    {.name = "channels", .arg = {5, 4}, .in = {CT_IN(NORMAL, 2, 9, 3, 2)}},
    {.name = "same size", .arg = {3, 5}, .in = {CT_IN(NORMAL, 1, 2, 3, 5)}},
    {.name = "empty", .arg = {7, 9}, .in = {CT_IN_FIXED(NORMAL, 0, 3, 4, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_interpolate_opts o = {.mode = CT_INTERPOLATE_NEAREST};
    for (int i = 0; i < 2; i++) {
        o.size[i] = (int64_t)c->arg[i];
        o.scale[i] = c->arg[2 + i];
    }
    return ct_interpolate(in[0], o);
}

const ct_op cti_op_upsample_nearest2d = {.name = "upsample_nearest2d",
                                         .torch_name = "UpsampleNearest2DBackward0",
                                         .accumulates = 1,
                                         .infer = cti_upsample_infer,
                                         .forward = cti_upsample_forward,
                                         .backward = cti_upsample_backward,
                                         .vjp = cti_upsample_vjp,
                                         CT_CASES(cases),
                                         .call = call};

ct_tensor *cti_apply_upsample(ct_tensor *x, cti_upsample a)
{
    const ct_op *op = a.linear ? &cti_op_upsample_bilinear2d : &cti_op_upsample_nearest2d;
    return cti_apply(op, &a, sizeof a, 1, &x);
}

static double step_of(const ct_interpolate_opts *o, int axis, int64_t in, int64_t out)
{
    if (o->align_corners)
        return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    return o->size[axis] ? (double)in / (double)out : 1 / o->scale[axis];
}

ct_tensor *ct_interpolate(ct_tensor *x, ct_interpolate_opts o)
{
    cti_upsample a = {.linear = o.mode == CT_INTERPOLATE_BILINEAR, .align = o.align_corners};
    const ct_op *op = a.linear ? &cti_op_upsample_bilinear2d : &cti_op_upsample_nearest2d;
    char s[96];
    if (!x)
        return NULL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    if ((unsigned)o.mode > CT_INTERPOLATE_BILINEAR)
        return cti_raise(ctx, op, CT_EINVAL, "mode %d is none of CT_INTERPOLATE_*", (int)o.mode);
    if (o.align_corners && !a.linear)
        return cti_raise(ctx, op, CT_EINVAL, "align_corners is for bilinear alone");
    if (ct_tensor_ndim(x) != 4)
        return cti_raise(ctx, op, CT_ESHAPE, "x, %s, must be [N,C,H,W]",
                         ct_tensor_describe(x, s, sizeof s));
    for (int i = 0; i < 2; i++) {
        a.in[i] = ct_tensor_shape(x)[2 + i];
        double out = o.size[i] ? (double)o.size[i] : floor((double)a.in[i] * o.scale[i]);
        if ((o.size[i] != 0) == (o.scale[i] != 0))
            return cti_raise(ctx, op, CT_EINVAL,
                             "size %lld and scale %g: one of them must be given",
                             (long long)o.size[i], o.scale[i]);
        if (!(out >= 1 && out <= INT32_MAX))
            return cti_raise(
                ctx, op, CT_EINVAL,
                "size %lld, scale %g of %lld cells: from 1 to 2^31 - 1 cells are needed",
                (long long)o.size[i], o.scale[i], (long long)a.in[i]);
        a.out[i] = (int64_t)out;
        a.step[i] = step_of(&o, i, a.in[i], a.out[i]);
    }
    return cti_apply_upsample(x, a);
}
