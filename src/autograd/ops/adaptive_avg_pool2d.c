/* SPDX-License-Identifier: Apache-2.0 */
/* adaptive_avg_pool2d - y[..., i, j] = mean over rows floor(i H / P) to ceil((i+1) H / P), columns
 * alike. Shape: [N,C,H,W] -> [N,C,P,Q]. Gradient: dy / cells of the window to each cell.
 * Oracle: torch.nn.functional.adaptive_avg_pool2d. */
#include "autograd/op.h"

typedef struct attrs {
    int64_t out[2];
} attrs;

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, 0);
    char s[64];
    int rc = cti_check_float(n, 0);
    if (rc)
        return rc;
    if (x->ndim != 4 || x->shape[2] < 1 || x->shape[3] < 1)
        return cti_op_fail(n, CT_ESHAPE, "x %s must be [N,C,H,W] with pixels",
                           cti_shape_str(x, s, sizeof s));
    if (a->out[0] < 1 || a->out[1] < 1)
        return cti_op_fail(n, CT_EINVAL, "output of %lld x %lld: sizes must be 1 or more",
                           (long long)a->out[0], (long long)a->out[1]);
    return cti_pool_out(n, a->out[0], a->out[1]);
}

static int forward(cti_node *n)
{
    ct_pool_args args = {.x = *cti_x(n, 0), .y = *cti_y(n, 0), .adaptive = true};
    return cti_be(n)->pool->avg(cti_stream(n), &args);
}

static int backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta), *dy = cti_dy(n, 0);
    if (!dx)
        return cti_pending(n);
    ct_pool_args args = {.x = *cti_in_meta(n, 0), .y = *dy, .adaptive = true};
    args.x.data = args.y.data = NULL;
    return cti_be(n)->pool->avg_grad(cti_stream(n), &args, dx, beta, dy);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_avg_pool_spread(dy[0], NULL, cti_in_meta(n, 0));
    return cti_pending(n);
}

/* arg: out_h, out_w. */
static const ct_case cases[] = {
    {.name = "global", .arg = {1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "uneven", .arg = {3, 4}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "larger", .arg = {5, 3}, .in = {CT_IN(NORMAL, 1, 2, 3, 2)}},
    {.name = "empty", .arg = {2, 2}, .in = {CT_IN(NORMAL, 0, 3, 4, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_adaptive_avg_pool2d(in[0], (int64_t)c->arg[0], (int64_t)c->arg[1]);
}

const ct_op cti_op_adaptive_avg_pool2d = {.name = "adaptive_avg_pool2d",
                                          .torch_name = "AdaptiveAvgPool2DBackward0",
                                          .accumulates = 1,
                                          .infer = infer,
                                          .forward = forward,
                                          .backward = backward,
                                          .vjp = vjp,
                                          CT_CASES(cases),
                                          .call = call};

ct_tensor *ct_adaptive_avg_pool2d(ct_tensor *x, int64_t out_h, int64_t out_w)
{
    attrs a = {{out_h, out_w}};
    return cti_apply(&cti_op_adaptive_avg_pool2d, &a, sizeof a, 1, &x);
}
