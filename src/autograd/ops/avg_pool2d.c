/* SPDX-License-Identifier: Apache-2.0 */
/* avg_pool2d - y = mean of each window. Shape: as max_pool2d's. Divisor: with count_include_pad the
 * window clipped to the padded input (padding counts, what ceil_mode adds doesn't), else its real
 * cells. Gradient: dy / divisor to each cell. Oracle: torch.nn.functional.avg_pool2d. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    ct_pool2d_opts *o = cti_attr_mut(n);
    int64_t out[2];
    int rc = cti_pool_check(n, o, out);
    if (rc)
        return rc;
    if (o->dilation[0] != 1 || o->dilation[1] != 1)
        return cti_op_fail(n, CT_EINVAL, "dilation is for max_pool2d alone: must be 1");
    return cti_pool_out(n, out[0], out[1]);
}

static int forward(cti_node *n)
{
    ct_pool_args args = {.x = *cti_x(n, 0), .y = *cti_y(n, 0)};
    cti_pool_args(cti_attr(n), &args);
    return cti_be(n)->pool->avg(cti_stream(n), &args);
}

static int backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta), *dy = cti_dy(n, 0);
    if (!dx)
        return cti_pending(n);
    ct_pool_args args = {.x = *cti_in_meta(n, 0), .y = *dy};
    args.x.data = args.y.data = NULL;
    cti_pool_args(cti_attr(n), &args);
    return cti_be(n)->pool->avg_grad(cti_stream(n), &args, dx, beta, dy);
}

/* ---- gradients of gradients ---- The mean is linear: its gradient spreads, the gradient of that is the mean again. */

typedef struct linear {
    ct_pool2d_opts o;
    bool adaptive;
    int64_t image[2], out[2];
} linear;

_Static_assert(sizeof(linear) <= 160, "the attr of an op");

static int infer_linear(cti_node *n, const int64_t *size)
{
    const ct_view *x = cti_x(n, 0);
    int64_t shape[4] = {x->shape[0], x->shape[1], size[0], size[1]};
    return cti_out(n, 0, x->dtype, 4, shape);
}

static int infer_spread(cti_node *n)
{
    return infer_linear(n, ((const linear *)cti_attr(n))->image);
}

static int infer_mean(cti_node *n)
{
    return infer_linear(n, ((const linear *)cti_attr(n))->out);
}

static ct_pool_args linear_args(cti_node *n, const ct_view *x, const ct_view *y)
{
    const linear *l = cti_attr(n);
    ct_pool_args args = {.x = *x, .y = *y};
    cti_pool_args(&l->o, &args);
    args.adaptive = l->adaptive;
    return args;
}

static int forward_spread(cti_node *n)
{
    ct_pool_args args = linear_args(n, cti_y(n, 0), cti_x(n, 0));
    args.x.data = args.y.data = NULL;
    return cti_be(n)->pool->avg_grad(cti_stream(n), &args, cti_y(n, 0), 0, cti_x(n, 0));
}

static int forward_mean(cti_node *n)
{
    ct_pool_args args = linear_args(n, cti_x(n, 0), cti_y(n, 0));
    return cti_be(n)->pool->avg(cti_stream(n), &args);
}

static int vjp_spread(cti_node *n, ct_tensor *const *dy, ct_tensor **dx);
static int vjp_mean(cti_node *n, ct_tensor *const *dy, ct_tensor **dx);

static const ct_op op_spread = {.name = "avg_pool2d_backward",
                                .torch_name = "AvgPool2DBackwardBackward0",
                                .infer = infer_spread,
                                .forward = forward_spread,
                                .vjp = vjp_spread};
static const ct_op op_mean = {.name = "avg_pool2d",
                              .torch_name = "AvgPool2DBackward0",
                              .infer = infer_mean,
                              .forward = forward_mean,
                              .vjp = vjp_mean};

static int vjp_spread(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_apply(&op_mean, cti_attr(n), sizeof(linear), 1, dy);
    return cti_pending(n);
}

static int vjp_mean(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_apply(&op_spread, cti_attr(n), sizeof(linear), 1, dy);
    return cti_pending(n);
}

ct_tensor *cti_avg_pool_spread(ct_tensor *dy, const ct_pool2d_opts *o, const ct_view *x)
{
    linear l = {.adaptive = !o, .image = {x->shape[2], x->shape[3]}};
    if (!dy)
        return NULL;
    l.o = o ? *o : ct_pool2d_defaults(1);
    l.out[0] = ct_tensor_size(dy, 2);
    l.out[1] = ct_tensor_size(dy, 3);
    return cti_apply(&op_spread, &l, sizeof l, 1, &dy);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_avg_pool_spread(dy[0], cti_attr(n), cti_in_meta(n, 0));
    return cti_pending(n);
}

/* arg: kernel h, w, stride h, w, padding h, w, 1, 1, ceil_mode, count_include_pad. */
static const ct_case cases[] = {
    {.name = "2x2", .arg = {2, 2, 2, 2, 0, 0, 1, 1, 0, 1}, .in = {CT_IN(NORMAL, 2, 3, 6, 8)}},
    {.name = "3x3, stride 2, padding counted",
     .arg = {3, 3, 2, 2, 1, 1, 1, 1, 0, 1},
     .in = {CT_IN(NORMAL, 2, 3, 7, 9)}},
    {.name = "3x3, stride 2, padding not counted",
     .arg = {3, 3, 2, 2, 1, 1, 1, 1, 0, 0},
     .in = {CT_IN(NORMAL, 2, 3, 7, 9)}},
    {.name = "ceil", .arg = {2, 2, 2, 2, 0, 0, 1, 1, 1, 1}, .in = {CT_IN(NORMAL, 1, 2, 5, 7)}},
    {.name = "ceil, padding counted",
     .arg = {3, 2, 3, 2, 1, 1, 1, 1, 1, 1},
     .in = {CT_IN(NORMAL, 1, 2, 6, 7)}},
    {.name = "ceil, padding not counted",
     .arg = {3, 2, 3, 2, 1, 1, 1, 1, 1, 0},
     .in = {CT_IN(NORMAL, 1, 2, 6, 7)}},
    {.name = "stride 0 is the kernel",
     .arg = {2, 3, 0, 0, 0, 0, 1, 1, 0, 1},
     .in = {CT_IN(NORMAL, 1, 3, 5, 6)}},
    {.name = "empty", .arg = {2, 2, 2, 2, 0, 0, 1, 1, 0, 1}, .in = {CT_IN(NORMAL, 0, 3, 4, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_avg_pool2d(in[0], cti_pool_case(c));
}

const ct_op cti_op_avg_pool2d = {.name = "avg_pool2d",
                                 .torch_name = "AvgPool2DBackward0",
                                 .accumulates = 1,
                                 .infer = infer,
                                 .forward = forward,
                                 .backward = backward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_avg_pool2d(ct_tensor *x, ct_pool2d_opts opts)
{
    return cti_apply(&cti_op_avg_pool2d, &opts, sizeof opts, 1, &x);
}
