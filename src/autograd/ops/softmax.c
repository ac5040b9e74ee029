/* SPDX-License-Identifier: Apache-2.0 */
/* softmax - y = e^x / sum of e^x along dim. Shape: as x. Gradient: dx = y (dy - sum of dy y along
 * dim). Also here: what softmax and log_softmax share. Oracle: torch.softmax. */
#include "autograd/op.h"

int cti_softmax_infer(cti_node *n)
{
    cti_softmax *a = cti_attr_mut(n);
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_check_dim(n, 0, &a->dim);
    return rc ? rc : cti_out_like(n, 0, 0);
}

/* A scalar is a row of one. */
static ct_view row(const ct_view *v)
{
    ct_view r = *v;
    if (r.ndim == 0) {
        r.ndim = 1;
        r.shape[0] = r.stride[0] = 1;
    }
    return r;
}

int cti_softmax_forward(cti_node *n)
{
    const cti_softmax *a = cti_attr(n);
    ct_view x = row(cti_x(n, 0)), y = row(cti_y(n, 0));
    cti_save_out(n, 0, 0);
    return cti_be(n)->loss->softmax(cti_stream(n), &y, &x, a->dim, a->log);
}

int cti_softmax_backward(cti_node *n)
{
    const cti_softmax *a = cti_attr(n);
    int beta;
    const ct_view *to = cti_dx(n, 0, &beta);
    if (!to)
        return cti_pending(n);
    ct_view dx = row(to), dy = row(cti_dy(n, 0)), y = row(cti_saved(n, 0));
    return cti_be(n)->loss->softmax_grad(cti_stream(n), &dx, beta, &dy, &y, a->dim, a->log);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_softmax *a = cti_attr(n);
    ct_tensor *y = cti_saved_tensor(n, 0);
    ct_tensor *mean = ct_sum(ct_mul(dy[0], y), &a->dim, 1, true);
    dx[0] = ct_mul(y, ct_sub(dy[0], mean));
    return cti_pending(n);
}

/* arg: dim. */
static const ct_case cases[] = {
    {.name = "last", .arg = {-1}, .in = {CT_IN(NORMAL, 7, 10)}},
    {.name = "first", .arg = {0}, .in = {CT_IN(NORMAL, 7, 3)}},
    {.name = "channels", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "one class", .arg = {1}, .in = {CT_IN(NORMAL, 3, 1)}},
    {.name = "scalar", .arg = {0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_softmax(in[0], (int)c->arg[0]);
}

const ct_op cti_op_softmax = {.name = "softmax",
                              .torch_name = "SoftmaxBackward0",
                              .accumulates = 1,
                              .autocast = CTI_F32,
                              .infer = cti_softmax_infer,
                              .forward = cti_softmax_forward,
                              .backward = cti_softmax_backward,
                              .vjp = vjp,
                              CT_CASES(cases),
                              .call = call};

ct_tensor *ct_softmax(ct_tensor *x, int dim)
{
    cti_softmax a = {.dim = dim};
    return cti_apply(&cti_op_softmax, &a, sizeof a, 1, &x);
}
