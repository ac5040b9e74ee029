/* SPDX-License-Identifier: Apache-2.0 */
/* dropout - y = x / (1 - p) with probability 1 - p, else 0; p = 1 gives zeros. Shape: as x.
 * Gradient: the same mask and scale on dy, drawn again from the position that the node keeps.
 * Oracle: torch.nn.functional.dropout, but for the random numbers. */
#include "autograd/op.h"

typedef struct attrs {
    double p;
    ct_rng rng; /* set by forward, unless */
    bool drawn; /* it is the gradient of another one */
} attrs;

extern const ct_op cti_op_dropout;

static int infer(cti_node *n)
{
    int rc = cti_check_float(n, 0);
    return rc ? rc : cti_out_like(n, 0, 0);
}

static int forward(cti_node *n)
{
    attrs *a = cti_attr_mut(n);
    if (!a->drawn)
        a->rng = cti_next_rng(cti_node_ctx(n));
    a->drawn = true;
    return cti_be(n)->random->dropout(cti_stream(n), cti_y(n, 0), 0, cti_x(n, 0), a->p, &a->rng);
}

static int backward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    return cti_be(n)->random->dropout(cti_stream(n), dx, beta, cti_dy(n, 0), a->p, &a->rng);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_apply(&cti_op_dropout, cti_attr(n), sizeof(attrs), 1, dy);
    return cti_pending(n);
}

/* arg: p, training. Each call draws anew: set the context's position before it to repeat a mask. */
static const ct_case cases[] = {
    {.name = "a half", .arg = {0.5, 1}, .in = {CT_IN(NORMAL, 7, 9)}},
    {.name = "a tenth", .arg = {0.1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "all", .arg = {1, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "none", .arg = {0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "evaluation", .arg = {0.5, 0}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "empty", .arg = {0.5, 1}, .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_dropout(in[0], c->arg[0], c->arg[1] != 0);
}

const ct_op cti_op_dropout = {.name = "dropout",
                              .torch_name = "NativeDropoutBackward0",
                              .accumulates = 1,
                              .infer = infer,
                              .forward = forward,
                              .backward = backward,
                              .vjp = vjp,
                              CT_CASES(cases),
                              .call = call,
                              .no_golden = "the random numbers are ctrain's own"};

ct_tensor *ct_dropout(ct_tensor *x, double p, bool training)
{
    attrs a = {.p = p};
    if (!x)
        return NULL;
    if (!(p >= 0 && p <= 1)) /* NaN too */
        return cti_raise(ct_tensor_ctx(x), &cti_op_dropout, CT_EINVAL,
                         "p is %g: must be a probability, from 0 to 1", p);
    if (!training || p == 0)
        return cti_itself(x);
    return cti_apply(&cti_op_dropout, &a, sizeof a, 1, &x);
}
