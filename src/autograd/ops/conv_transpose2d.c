/* SPDX-License-Identifier: Apache-2.0 */
/* conv_transpose2d - the gradient of conv2d's input, as an op of its own:
 *   y[n,c,h,w] = b[c] + sum over k, r, s of x[n,k,p,q] w[k,c,r,s] where h = p*stride + r*dilation - pad, ...
 * Shape: x [N,K,P,Q], w [K,C/groups,R,S] -> [N,C,H,W], channels-last in memory, with
 *   H = (P - 1) stride - 2 pad + dilation (R - 1) + output_padding + 1.
 * Gradient: dx = conv2d(dy, w), dw = conv2d's gradient of the weight for image dy and gradient x, db = dy summed.
 * Oracle: torch.nn.functional.conv_transpose2d. */
#include "autograd/op.h"

enum { IN_X, IN_W, IN_BIAS };

static int infer(cti_node *n)
{
    const cti_conv *c = cti_attr(n);
    const ct_view *x = cti_x(n, IN_X), *w = cti_x(n, IN_W), *b = cti_x(n, IN_BIAS);
    char s[64], t[64];
    int rc = cti_conv_check(n, &c->o);
    rc = rc ? rc : cti_check_float(n, IN_X);
    rc = rc ? rc : cti_check_same_dtype(n);
    if (rc)
        return rc;
    cti_shape_str(x, s, sizeof s);
    cti_shape_str(w, t, sizeof t);
    if (x->ndim != 4 || w->ndim != 4 || ct_view_numel(w) == 0)
        return cti_op_fail(
            n, CT_ESHAPE,
            "x %s must be [N,C,H,W], weight %s [C,outputs/groups,R,S] without a size of 0", s, t);
    if (x->shape[1] != w->shape[0] || w->shape[0] % c->o.groups)
        return cti_op_fail(
            n, CT_ESHAPE,
            "x %s has %lld channels: weight %s must have as many rows, divisible by %lld groups", s,
            (long long)x->shape[1], t, (long long)c->o.groups);
    int64_t shape[4] = {x->shape[0], w->shape[1] * c->o.groups, c->size[0], c->size[1]};
    if (b && (b->ndim != 1 || b->shape[0] != shape[1]))
        return cti_op_fail(n, CT_ESHAPE, "bias %s must be [%lld], as weight %s has %lld outputs",
                           cti_shape_str(b, s, sizeof s), (long long)shape[1], t,
                           (long long)shape[1]);
    for (int i = 0; i < 2; i++)
        if (shape[2 + i] < 1)
            return cti_op_fail(n, CT_ESHAPE, "the output of x %s with weight %s would have %s %lld",
                               s, t, i ? "width" : "height", (long long)shape[2 + i]);
    return cti_out_channels_last(n, 0, x->dtype, shape);
}

static int forward(cti_node *n)
{
    const ct_view *x = cti_x(n, IN_X), *w = cti_x(n, IN_W), *b = cti_x(n, IN_BIAS),
                  *y = cti_y(n, 0);
    if (cti_wants(n, IN_W))
        cti_save_in(n, 0, IN_X);
    if (cti_wants(n, IN_X))
        cti_save_in(n, 1, IN_W);
    if (ct_view_numel(y) == 0)
        return CT_OK;
    int rc = ct_view_numel(x) == 0 ? cti_be(n)->ew->fill(cti_stream(n), y, 0) :
                                     cti_conv_run(n, CT_CONV_BACKWARD_DATA, y, w, x, NULL);
    if (rc || !b)
        return rc;
    ct_view wide = {.data = b->data, .dtype = b->dtype, .ndim = 4};
    for (int i = 0; i < 4; i++)
        wide.shape[i] = y->shape[i];
    wide.stride[1] = b->stride[0];
    return cti_be(n)->ew->binary(cti_stream(n), CT_BIN_ADD, y, y, &wide);
}

static int backward(cti_node *n)
{
    int beta, rc = cti_wants(n, IN_BIAS) ? cti_conv_bias_grad(n, IN_BIAS) : CT_OK;
    bool empty = ct_view_numel(cti_in_meta(n, IN_X)) == 0;
    if (rc || (!cti_wants(n, IN_X) && !cti_wants(n, IN_W)))
        return rc;
    const ct_view *dy = cti_dy_channels_last(n, 0);
    if (!dy)
        return cti_pending(n);
    if (cti_wants(n, IN_W)) {
        const ct_view *dw = cti_dx(n, IN_W, &beta);
        if (!dw)
            return cti_pending(n);
        rc = empty ? cti_be(n)->ew->fill(cti_stream(n), dw, 0) :
                     cti_conv_run(n, CT_CONV_BACKWARD_WEIGHT, dy, dw, cti_saved(n, 0), NULL);
    }
    if (!rc && cti_wants(n, IN_X)) {
        const ct_view *dx = cti_dx(n, IN_X, &beta);
        if (!dx)
            return cti_pending(n);
        rc = empty ? CT_OK : cti_conv_run(n, CT_CONV_FORWARD, dy, cti_saved(n, 1), dx, NULL);
    }
    return rc;
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_conv *c = cti_attr(n);
    if (cti_wants(n, IN_X))
        dx[IN_X] = cti_conv_forward(dy[0], cti_saved_tensor(n, 1), NULL, c);
    if (cti_wants(n, IN_W))
        dx[IN_W] =
            cti_conv_weight(dy[0], cti_saved_tensor(n, 0), c, &cti_in_meta(n, IN_W)->shape[2]);
    if (cti_wants(n, IN_BIAS))
        dx[IN_BIAS] = ct_sum(dy[0], (int[]){0, 2, 3}, 3, false);
    return cti_pending(n);
}

/* arg: stride h, w, padding h, w, output_padding h, w, dilation h, w, groups. in: x, weight, bias. */
static const ct_case cases[] = {
    {.name = "3x3, padding 1",
     .arg = {1, 1, 1, 1, 0, 0, 1, 1, 1},
     .in = {CT_IN(NORMAL, 2, 4, 5, 7), CT_IN(NORMAL, 4, 3, 3, 3), CT_IN(NORMAL, 3)}},
    {.name = "stride 2, output padding 1",
     .arg = {2, 2, 1, 1, 1, 1, 1, 1, 1},
     .in = {CT_IN(NORMAL, 2, 3, 4, 5), CT_IN(NORMAL, 3, 2, 3, 3), CT_IN(NORMAL, 2)}},
    {.name = "2x2, stride 2, no bias",
     .arg = {2, 2, 0, 0, 0, 0, 1, 1, 1},
     .in = {CT_IN(NORMAL, 1, 3, 4, 5), CT_IN(NORMAL, 3, 4, 2, 2)}},
    {.name = "groups 2, oblong",
     .arg = {1, 3, 0, 1, 0, 0, 1, 1, 2},
     .in = {CT_IN(NORMAL, 2, 4, 4, 3), CT_IN(NORMAL, 4, 3, 2, 5), CT_IN(NORMAL, 6)}},
    {.name = "dilation 2 and 3",
     .arg = {1, 1, 2, 0, 0, 0, 2, 3, 1},
     .in = {CT_IN(NORMAL, 2, 2, 5, 4), CT_IN(NORMAL, 2, 3, 3, 2), CT_IN(NORMAL, 3)}},
    {.name = "frozen weight",
     .arg = {2, 2, 0, 0, 1, 0, 1, 1, 1},
     .in = {CT_IN(NORMAL, 2, 3, 4, 4), CT_IN_FIXED(NORMAL, 3, 4, 3, 3), CT_IN_FIXED(NORMAL, 4)}},
    {.name = "empty",
     .arg = {1, 1, 1, 1, 0, 0, 1, 1, 1},
     .in = {CT_IN(NORMAL, 0, 4, 5, 7), CT_IN(NORMAL, 4, 3, 3, 3), CT_IN(NORMAL, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_conv_transpose2d_opts o = ct_conv_transpose2d_defaults();
    for (int i = 0; i < 2; i++) {
        o.stride[i] = (int64_t)c->arg[i];
        o.padding[i] = (int64_t)c->arg[2 + i];
        o.output_padding[i] = (int64_t)c->arg[4 + i];
        o.dilation[i] = (int64_t)c->arg[6 + i];
    }
    o.groups = (int64_t)c->arg[8];
    return ct_conv_transpose2d(in[0], in[1], in[2], o);
}

const ct_op cti_op_conv_transpose2d = {.name = "conv_transpose2d",
                                       .torch_name = "ConvolutionBackward0",
                                       .optional = 1U << IN_BIAS,
                                       .accumulates = 1U << IN_BIAS,
                                       .autocast = CTI_LOW,
                                       .infer = infer,
                                       .forward = forward,
                                       .backward = backward,
                                       .vjp = vjp,
                                       CT_CASES(cases),
                                       .call = call};

ct_tensor *cti_conv_data(ct_tensor *y, ct_tensor *weight, ct_tensor *bias, const cti_conv *conv,
                         const int64_t *size)
{
    cti_conv c = *conv;
    c.size[0] = size[0];
    c.size[1] = size[1];
    ct_tensor *in[3] = {cti_conv_image(y), weight ? ct_contiguous(weight) : NULL,
                        bias ? ct_contiguous(bias) : NULL};
    if ((y && !in[0]) || (weight && !in[1]) || (bias && !in[2]))
        return NULL;
    return cti_apply(&cti_op_conv_transpose2d, &c, sizeof c, 3, in);
}

ct_conv_transpose2d_opts ct_conv_transpose2d_defaults(void)
{
    return (ct_conv_transpose2d_opts){.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
}

ct_tensor *ct_conv_transpose2d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias,
                               ct_conv_transpose2d_opts opts)
{
    cti_conv c = {.o = {.groups = opts.groups}};
    int64_t size[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        c.o.stride[i] = opts.stride[i];
        c.o.padding[i] = c.begin[i] = opts.padding[i];
        c.o.dilation[i] = opts.dilation[i];
        c.end[i] = opts.padding[i];
        int64_t least = opts.stride[i] > opts.dilation[i] ? opts.stride[i] : opts.dilation[i];
        if (x && (opts.output_padding[i] < 0 || opts.output_padding[i] >= least))
            return cti_raise(
                ct_tensor_ctx(x), &cti_op_conv_transpose2d, CT_EINVAL,
                "output_padding %lld in %s: must be from 0 to below stride or dilation (%lld)",
                (long long)opts.output_padding[i], i ? "width" : "height", (long long)least);
        if (x && weight && ct_tensor_ndim(x) == 4 && ct_tensor_ndim(weight) == 4)
            size[i] = (ct_tensor_size(x, 2 + i) - 1) * opts.stride[i] - 2 * opts.padding[i] +
                      opts.dilation[i] * (ct_tensor_size(weight, 2 + i) - 1) +
                      opts.output_padding[i] + 1;
    }
    return cti_conv_data(x, weight, bias, &c, size);
}
