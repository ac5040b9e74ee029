/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_weight - the gradient of conv2d's weight, as an op of its own: gradients of gradients go through it.
 * Shape: x [N,C,H,W], dy [N,K,P,Q] -> [K,C/groups,R,S]. Gradient: dx = conv_transpose2d(dy, u), d(dy) = conv2d(x, u) for the
 * gradient u that comes. Oracle: torch.nn.grad.conv2d_weight. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    const cti_conv *c = cti_attr(n);
    const ct_view *x = cti_x(n, 0), *dy = cti_x(n, 1);
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_check_same_dtype(n);
    if (rc)
        return rc;
    bool fits = x->ndim == 4 && dy->ndim == 4 && x->shape[0] == dy->shape[0] &&
                x->shape[1] % c->o.groups == 0;
    for (int i = 0; fits && i < 2; i++) {
        int64_t room =
            x->shape[2 + i] + c->begin[i] + c->end[i] - c->o.dilation[i] * (c->size[i] - 1) - 1;
        fits = room >= 0 && dy->shape[2 + i] == room / c->o.stride[i] + 1;
    }
    if (!fits) {
        char s[64], t[64];
        return cti_op_fail(n, CT_ESHAPE,
                           "a %lld x %lld kernel makes no output like %s of an image like %s",
                           (long long)c->size[0], (long long)c->size[1],
                           cti_shape_str(dy, t, sizeof t), cti_shape_str(x, s, sizeof s));
    }
    int64_t shape[4] = {dy->shape[1], x->shape[1] / c->o.groups, c->size[0], c->size[1]};
    return cti_out(n, 0, x->dtype, 4, shape);
}

static int forward(cti_node *n)
{
    const ct_view *x = cti_x(n, 0), *dy = cti_x(n, 1);
    cti_save_in(n, 0, 0);
    cti_save_in(n, 1, 1);
    if (ct_view_numel(x) == 0)
        return cti_be(n)->ew->fill(cti_stream(n), cti_y(n, 0), 0);
    return cti_conv_run(n, CT_CONV_BACKWARD_WEIGHT, x, cti_y(n, 0), dy, NULL);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_conv *c = cti_attr(n);
    if (cti_wants(n, 0))
        dx[0] = cti_conv_data(cti_saved_tensor(n, 1), dy[0], NULL, c, &cti_in_meta(n, 0)->shape[2]);
    if (cti_wants(n, 1))
        dx[1] = cti_conv_forward(cti_saved_tensor(n, 0), dy[0], NULL, c);
    return cti_pending(n);
}

/* arg: stride, padding, dilation, groups, R, S. */
static const ct_case cases[] = {
    {.name = "3x3",
     .arg = {1, 1, 1, 1, 3, 3},
     .in = {CT_IN(NORMAL, 2, 3, 5, 7), CT_IN(NORMAL, 2, 4, 5, 7)}},
    {.name = "stride 2, groups 2",
     .arg = {2, 1, 1, 2, 3, 3},
     .in = {CT_IN(NORMAL, 2, 4, 7, 6), CT_IN(NORMAL, 2, 6, 4, 3)}},
    {.name = "dilation 2",
     .arg = {1, 0, 2, 1, 2, 3},
     .in = {CT_IN(NORMAL, 1, 2, 6, 8), CT_IN(NORMAL, 1, 3, 4, 4)}},
    {.name = "empty",
     .arg = {1, 1, 1, 1, 3, 3},
     .in = {CT_IN_FIXED(NORMAL, 0, 3, 5, 7), CT_IN_FIXED(NORMAL, 0, 4, 5, 7)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    cti_conv v = {.o = {.stride = {(int64_t)c->arg[0], (int64_t)c->arg[0]},
                        .padding = {(int64_t)c->arg[1], (int64_t)c->arg[1]},
                        .dilation = {(int64_t)c->arg[2], (int64_t)c->arg[2]},
                        .groups = (int64_t)c->arg[3]}};
    for (int i = 0; i < 2; i++)
        v.begin[i] = v.end[i] = v.o.padding[i];
    return cti_conv_weight(in[0], in[1], &v, (int64_t[]){(int64_t)c->arg[4], (int64_t)c->arg[5]});
}

const ct_op cti_op_conv2d_weight = {.name = "conv2d_weight",
                                    .torch_name = "ConvolutionBackwardBackward0",
                                    .autocast = CTI_LOW,
                                    .infer = infer,
                                    .forward = forward,
                                    .vjp = vjp,
                                    CT_CASES(cases),
                                    .call = call};

ct_tensor *cti_conv_weight(ct_tensor *x, ct_tensor *y, const cti_conv *conv, const int64_t *size)
{
    cti_conv c = *conv;
    c.size[0] = size[0];
    c.size[1] = size[1];
    ct_tensor *in[2] = {cti_conv_image(x), cti_conv_image(y)};
    if ((x && !in[0]) || (y && !in[1]))
        return NULL;
    return cti_apply(&cti_op_conv2d_weight, &c, sizeof c, 2, in);
}
