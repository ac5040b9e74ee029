/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d - cross-correlation:
 *   y[n,k,p,q] = b[k] + sum_{c,r,s} x[n, c, p*stride + r*dilation - pad, ...] w[k,c,r,s].
 * Shape: x [N,C,H,W], w [K,C/groups,R,S] -> [N,K,P,Q], channels-last in memory, with
 *   P = (H + pads - dilation (R-1) - 1) / stride + 1.
 * 'same': P = H, Q = W; an odd total of padding has its extra zero at the end.
 * Gradient: dx and dw by the backend's kernels, db = dy summed over N, H, W.
 * Oracle: torch.nn.functional.conv2d. */
#include "autograd/op.h"

enum { IN_X, IN_W, IN_BIAS };

int cti_conv_check(cti_node *n, const ct_conv2d_opts *o)
{
    for (int i = 0; i < 2; i++) {
        const char *side = i ? "width" : "height";
        if (!cti_in_int32(o->stride[i], 1) || !cti_in_int32(o->dilation[i], 1))
            return cti_op_fail(n, CT_EINVAL,
                               "stride %lld, dilation %lld in %s: must be 1 or more, in 31 bits",
                               (long long)o->stride[i], (long long)o->dilation[i], side);
        if (!o->same && !cti_in_int32(o->padding[i], 0))
            return cti_op_fail(n, CT_EINVAL, "padding %lld in %s: must be 0 or more, in 31 bits",
                               (long long)o->padding[i], side);
        if (o->same && o->stride[i] != 1)
            return cti_op_fail(n, CT_EINVAL, "padding 'same' needs stride 1, not %lld in %s",
                               (long long)o->stride[i], side);
    }
    if (o->groups < 1)
        return cti_op_fail(n, CT_EINVAL, "groups is %lld: must be 1 or more", (long long)o->groups);
    return CT_OK;
}

static int check_shapes(cti_node *n, const ct_conv2d_opts *o)
{
    const ct_view *x = cti_x(n, IN_X), *w = cti_x(n, IN_W), *b = cti_x(n, IN_BIAS);
    char s[64], t[64];
    int rc = cti_check_float(n, IN_X);
    rc = rc ? rc : cti_check_same_dtype(n);
    if (rc)
        return rc;
    cti_shape_str(x, s, sizeof s);
    cti_shape_str(w, t, sizeof t);
    if (x->ndim != 4 || w->ndim != 4)
        return cti_op_fail(n, CT_ESHAPE, "x %s must be [N,C,H,W], weight %s [K,C/groups,R,S]", s,
                           t);
    for (int i = 0; i < 4; i++)
        if (w->shape[i] < 1)
            return cti_op_fail(n, CT_ESHAPE, "weight %s has a size of 0", t);
    if (w->shape[0] % o->groups)
        return cti_op_fail(n, CT_ESHAPE,
                           "%lld output channels (weight %s) don't divide by %lld groups",
                           (long long)w->shape[0], t, (long long)o->groups);
    if (x->shape[1] % o->groups || x->shape[1] / o->groups != w->shape[1])
        return cti_op_fail(
            n, CT_ESHAPE, "x %s has %lld channels, weight %s with %lld groups expects %lld", s,
            (long long)x->shape[1], t, (long long)o->groups, (long long)(w->shape[1] * o->groups));
    if (b && (b->ndim != 1 || b->shape[0] != w->shape[0]))
        return cti_op_fail(n, CT_ESHAPE, "bias %s must be [%lld], as weight %s has %lld outputs",
                           cti_shape_str(b, s, sizeof s), (long long)w->shape[0], t,
                           (long long)w->shape[0]);
    return CT_OK;
}

static int infer(cti_node *n)
{
    cti_conv *a = cti_attr_mut(n);
    const ct_view *x = cti_x(n, IN_X), *w = cti_x(n, IN_W);
    char s[64];
    int rc = cti_conv_check(n, &a->o);
    rc = rc ? rc : check_shapes(n, &a->o);
    if (rc)
        return rc;
    int64_t shape[4] = {x->shape[0], w->shape[0]};
    for (int i = 0; i < 2; i++) {
        int64_t size = x->shape[2 + i], extent = a->o.dilation[i] * (w->shape[2 + i] - 1) + 1;
        a->begin[i] = a->o.same ? (extent - 1) / 2 : a->o.padding[i];
        a->end[i] = a->o.same ? extent - 1 - a->begin[i] : a->o.padding[i];
        int64_t padded = size + a->begin[i] + a->end[i];
        if (size < 1 || extent > padded)
            return cti_op_fail(
                n, CT_ESHAPE,
                "kernel of %lld (dilated: %lld) is larger than the padded %s %lld of "
                "x %s",
                (long long)w->shape[2 + i], (long long)extent, i ? "width" : "height",
                (long long)padded, cti_shape_str(x, s, sizeof s));
        shape[2 + i] = (padded - extent) / a->o.stride[i] + 1;
    }
    return cti_out_channels_last(n, 0, x->dtype, shape);
}

/* Strides of size-1 dimensions say nothing; the kernels get the ordinary ones. */
static ct_view exact(const ct_view *v, bool channels_last)
{
    static const int order[2][4] = {{3, 2, 1, 0}, {1, 3, 2, 0}};
    ct_view e = *v;
    int64_t step = 1;
    for (int k = 0; k < 4; k++) {
        int i = order[channels_last][k];
        e.stride[i] = step;
        step *= e.shape[i] > 1 ? e.shape[i] : 1;
    }
    return e;
}

int cti_conv_run(cti_node *n, ct_conv_pass pass, const ct_view *x, const ct_view *w,
                 const ct_view *y, const ct_view *bias)
{
    const cti_conv *a = cti_attr(n);
    const ct_k_conv *k = cti_be(n)->conv;
    ct_conv_args args = {.x = exact(x, true),
                         .w = exact(w, false),
                         .y = exact(y, true),
                         .bias = bias,
                         .groups = a->o.groups};
    for (int i = 0; i < 2; i++) {
        args.stride[i] = a->o.stride[i];
        args.dilation[i] = a->o.dilation[i];
        args.pad_begin[i] = a->begin[i];
        args.pad_end[i] = a->end[i];
    }
    size_t bytes = 0;
    int rc = k->workspace(cti_stream(n), pass, &args, &bytes);
    if (rc)
        return rc;
    args.workspace = cti_workspace(n, bytes);
    if (bytes && !args.workspace)
        return cti_pending(n);
    return k->run(cti_stream(n), pass, &args);
}

static int forward(cti_node *n)
{
    const ct_view *x = cti_x(n, IN_X), *w = cti_x(n, IN_W);
    if (cti_wants(n, IN_W))
        cti_save_in(n, 0, IN_X);
    if (cti_wants(n, IN_X))
        cti_save_in(n, 1, IN_W);
    if (ct_view_numel(x) == 0)
        return CT_OK;
    return cti_conv_run(n, CT_CONV_FORWARD, x, w, cti_y(n, 0), cti_x(n, IN_BIAS));
}

int cti_conv_bias_grad(cti_node *n, int bias)
{
    const ct_view *dy = cti_dy(n, 0);
    int beta;
    const ct_view *db = cti_dx(n, bias, &beta);
    if (!db)
        return cti_pending(n);
    ct_view channels = {.data = db->data, .dtype = db->dtype, .ndim = 4, .shape = {1, 0, 1, 1}};
    channels.shape[1] = db->shape[0];
    channels.stride[1] = db->stride[0];
    return cti_sum_into(n, &channels, beta, dy, 1);
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
                     cti_conv_run(n, CT_CONV_BACKWARD_WEIGHT, cti_saved(n, 0), dw, dy, NULL);
    }
    if (!rc && cti_wants(n, IN_X)) {
        const ct_view *dx = cti_dx(n, IN_X, &beta);
        if (!dx)
            return cti_pending(n);
        rc = empty ? CT_OK : cti_conv_run(n, CT_CONV_BACKWARD_DATA, dx, cti_saved(n, 1), dy, NULL);
    }
    return rc;
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_conv *a = cti_attr(n);
    if (cti_wants(n, IN_X))
        dx[IN_X] =
            cti_conv_data(dy[0], cti_saved_tensor(n, 1), NULL, a, &cti_in_meta(n, IN_X)->shape[2]);
    if (cti_wants(n, IN_W))
        dx[IN_W] =
            cti_conv_weight(cti_saved_tensor(n, 0), dy[0], a, &cti_in_meta(n, IN_W)->shape[2]);
    if (cti_wants(n, IN_BIAS))
        dx[IN_BIAS] = ct_sum(dy[0], (int[]){0, 2, 3}, 3, false);
    return cti_pending(n);
}

/* arg: stride h, w, padding h, w, dilation h, w, groups, same. in: x, weight, bias. */
static const ct_case cases[] = {
    {.name = "3x3, padding 1",
     .arg = {1, 1, 1, 1, 1, 1, 1, 0},
     .in = {CT_IN(NORMAL, 2, 3, 5, 7), CT_IN(NORMAL, 4, 3, 3, 3), CT_IN(NORMAL, 4)}},
    {.name = "1x1, no bias",
     .arg = {1, 1, 0, 0, 1, 1, 1, 0},
     .in = {CT_IN(NORMAL, 2, 3, 5, 4), CT_IN(NORMAL, 5, 3, 1, 1)}},
    {.name = "stride 2, groups 2",
     .arg = {2, 2, 1, 1, 1, 1, 2, 0},
     .in = {CT_IN(NORMAL, 2, 4, 7, 6), CT_IN(NORMAL, 6, 2, 3, 3), CT_IN(NORMAL, 6)}},
    {.name = "oblong, stride 1 and 3, padding 0 and 2",
     .arg = {1, 3, 0, 2, 1, 1, 1, 0},
     .in = {CT_IN(NORMAL, 1, 2, 6, 9), CT_IN(NORMAL, 3, 2, 2, 5), CT_IN(NORMAL, 3)}},
    {.name = "dilation 2 and 3",
     .arg = {1, 1, 2, 0, 2, 3, 1, 0},
     .in = {CT_IN(NORMAL, 2, 2, 7, 8), CT_IN(NORMAL, 3, 2, 3, 2), CT_IN(NORMAL, 3)}},
    {.name = "depthwise",
     .arg = {1, 1, 1, 1, 1, 1, 3, 0},
     .in = {CT_IN(NORMAL, 2, 3, 5, 5), CT_IN(NORMAL, 3, 1, 3, 3), CT_IN(NORMAL, 3)}},
    {.name = "same, even kernel",
     .arg = {1, 1, 0, 0, 1, 1, 1, 1},
     .in = {CT_IN(NORMAL, 1, 2, 5, 6), CT_IN(NORMAL, 3, 2, 2, 4), CT_IN(NORMAL, 3)}},
    {.name = "same, dilation 3",
     .arg = {1, 1, 0, 0, 3, 1, 1, 1},
     .in = {CT_IN(NORMAL, 1, 2, 5, 6), CT_IN(NORMAL, 3, 2, 2, 3)}},
    {.name = "stride leaves a rest",
     .arg = {3, 3, 0, 0, 1, 1, 1, 0},
     .in = {CT_IN(NORMAL, 2, 1, 7, 8), CT_IN(NORMAL, 2, 1, 2, 2), CT_IN(NORMAL, 2)}},
    {.name = "frozen weight",
     .arg = {1, 1, 1, 1, 1, 1, 1, 0},
     .in = {CT_IN(NORMAL, 2, 3, 4, 4), CT_IN_FIXED(NORMAL, 4, 3, 3, 3), CT_IN_FIXED(NORMAL, 4)}},
    {.name = "input needs none",
     .arg = {1, 1, 1, 1, 1, 1, 1, 0},
     .in = {CT_IN_FIXED(NORMAL, 2, 3, 4, 4), CT_IN(NORMAL, 4, 3, 3, 3), CT_IN(NORMAL, 4)}},
    {.name = "empty",
     .arg = {1, 1, 1, 1, 1, 1, 1, 0},
     .in = {CT_IN(NORMAL, 0, 3, 5, 7), CT_IN(NORMAL, 4, 3, 3, 3), CT_IN(NORMAL, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_conv2d_opts o = ct_conv2d_defaults();
    for (int i = 0; i < 2; i++) {
        o.stride[i] = (int64_t)c->arg[i];
        o.padding[i] = (int64_t)c->arg[2 + i];
        o.dilation[i] = (int64_t)c->arg[4 + i];
    }
    o.groups = (int64_t)c->arg[6];
    o.same = c->arg[7] != 0;
    return ct_conv2d(in[0], in[1], in[2], o);
}

const ct_op cti_op_conv2d = {.name = "conv2d",
                             .torch_name = "ConvolutionBackward0",
                             .optional = 1U << IN_BIAS,
                             .accumulates = 1U << IN_BIAS,
                             .f32_grads = 1U << IN_W | 1U << IN_BIAS,
                             .autocast = CTI_LOW,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

ct_conv2d_opts ct_conv2d_defaults(void)
{
    return (ct_conv2d_opts){.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
}

ct_tensor *cti_conv_image(ct_tensor *x)
{
    return x && ct_tensor_ndim(x) == 4 ? ct_channels_last(x) : cti_itself(x);
}

ct_tensor *cti_conv_forward(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, const cti_conv *conv)
{
    ct_tensor *in[3] = {x, weight, bias};
    if (x && weight) { /* what the kernels need, made once and on the record */
        in[0] = cti_conv_image(x);
        in[1] = ct_contiguous(weight);
        in[2] = bias ? ct_contiguous(bias) : NULL;
        if (!in[0] || !in[1] || (bias && !in[2]))
            return NULL;
    }
    return cti_apply(&cti_op_conv2d, conv, sizeof *conv, 3, in);
}

ct_tensor *ct_conv2d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, ct_conv2d_opts opts)
{
    cti_conv conv = {.o = opts};
    return cti_conv_forward(x, weight, bias, &conv);
}
