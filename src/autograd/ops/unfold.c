/* SPDX-License-Identifier: Apache-2.0 */
/* unfold - the windows of images as columns (im2col). Shape: x [N,C,H,W], kernel [R,S] -> [N, C R S, P Q], with
 * P = (H + 2 pad - dilation (R - 1) - 1) / stride + 1; 0 in the padding. Gradient: fold of dy. Oracle:
 * torch.nn.functional.unfold. */
#include "autograd/op.h"

int cti_unfold_args(cti_node *n, const ct_unfold_opts *o, const int64_t *image,
                    ct_unfold_args *args)
{
    for (int i = 0; i < 2; i++) {
        if (!cti_in_int32(o->kernel[i], 1) || !cti_in_int32(o->stride[i], 1) ||
            !cti_in_int32(o->dilation[i], 1) || !cti_in_int32(o->padding[i], 0))
            return cti_op_fail(n, CT_EINVAL,
                               "kernel %lld, stride %lld, dilation %lld must be 1 or more, padding "
                               "%lld 0 or more",
                               (long long)o->kernel[i], (long long)o->stride[i],
                               (long long)o->dilation[i], (long long)o->padding[i]);
        int64_t room = image[i] + 2 * o->padding[i] - o->dilation[i] * (o->kernel[i] - 1) - 1;
        if (room < 0)
            return cti_op_fail(n, CT_ESHAPE,
                               "a window of %lld cells (dilation %lld) is larger than the padded "
                               "image's %s, %lld + 2 * %lld",
                               (long long)o->kernel[i], (long long)o->dilation[i],
                               i ? "width" : "height", (long long)image[i],
                               (long long)o->padding[i]);
        args->kernel[i] = o->kernel[i];
        args->stride[i] = o->stride[i];
        args->pad[i] = o->padding[i];
        args->dilation[i] = o->dilation[i];
        args->out[i] = room / o->stride[i] + 1;
    }
    return CT_OK;
}

static int infer(cti_node *n)
{
    const ct_view *x = cti_x(n, 0);
    ct_unfold_args args;
    char s[64];
    int rc = cti_check_float(n, 0);
    if (rc)
        return rc;
    if (x->ndim != 4)
        return cti_op_fail(n, CT_ESHAPE, "x %s must be [N,C,H,W]", cti_shape_str(x, s, sizeof s));
    rc = cti_unfold_args(n, cti_attr(n), x->shape + 2, &args);
    if (rc)
        return rc;
    const int64_t shape[3] = {x->shape[0], x->shape[1] * args.kernel[0] * args.kernel[1],
                              args.out[0] * args.out[1]};
    return cti_out(n, 0, x->dtype, 3, shape);
}

static int forward(cti_node *n)
{
    ct_unfold_args args = {.x = *cti_x(n, 0), .y = *cti_y(n, 0)};
    cti_unfold_args(n, cti_attr(n), args.x.shape + 2, &args);
    return cti_be(n)->image->unfold(cti_stream(n), &args);
}

static int backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    ct_unfold_args args = {.x = *dx, .y = *cti_dy(n, 0)};
    cti_unfold_args(n, cti_attr(n), args.x.shape + 2, &args);
    return cti_be(n)->image->fold(cti_stream(n), &args, beta);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const int64_t *shape = cti_in_meta(n, 0)->shape;
    dx[0] = ct_fold(dy[0], shape[2], shape[3], *(const ct_unfold_opts *)cti_attr(n));
    return cti_pending(n);
}

ct_unfold_opts cti_unfold_case(const ct_case *c)
{
    ct_unfold_opts o;
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = (int64_t)c->arg[i];
        o.stride[i] = (int64_t)c->arg[2 + i];
        o.padding[i] = (int64_t)c->arg[4 + i];
        o.dilation[i] = (int64_t)c->arg[6 + i];
    }
    return o;
}

/* arg: kernel, stride, padding, dilation, each h, w. */
static const ct_case cases[] = {
    {.name = "plain", .arg = {2, 3, 1, 1, 0, 0, 1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "strides, padding",
     .arg = {3, 2, 2, 3, 1, 2, 1, 1},
     .in = {CT_IN(NORMAL, 1, 2, 5, 4)}},
    {.name = "dilation", .arg = {2, 2, 1, 2, 0, 1, 3, 2}, .in = {CT_IN(NORMAL, 1, 2, 5, 4)}},
    {.name = "one window", .arg = {3, 3, 1, 1, 0, 0, 1, 1}, .in = {CT_IN(NORMAL, 2, 1, 3, 3)}},
    {.name = "empty", .arg = {2, 2, 1, 1, 0, 0, 1, 1}, .in = {CT_IN(NORMAL, 0, 2, 3, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_unfold(in[0], cti_unfold_case(c));
}

const ct_op cti_op_unfold = {.name = "unfold",
                             .torch_name = "Im2ColBackward0",
                             .accumulates = 1,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

ct_unfold_opts ct_unfold_defaults(int64_t kernel)
{
    return (ct_unfold_opts){.kernel = {kernel, kernel}, .stride = {1, 1}, .dilation = {1, 1}};
}

ct_tensor *ct_unfold(ct_tensor *x, ct_unfold_opts opts)
{
    return cti_apply(&cti_op_unfold, &opts, sizeof opts, 1, &x);
}
