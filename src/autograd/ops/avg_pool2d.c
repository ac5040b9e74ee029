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
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_avg_pool2d(ct_tensor *x, ct_pool2d_opts opts)
{
    return cti_apply(&cti_op_avg_pool2d, &opts, sizeof opts, 1, &x);
}
