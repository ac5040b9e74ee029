/* SPDX-License-Identifier: Apache-2.0 */
/* fill - every element of x becomes a number, in place. No gradient goes to what x was. Oracle: torch.Tensor.fill_. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_out_like(n, 0, 0);
}

static int forward(cti_node *n)
{
    return cti_be(n)->ew->fill(cti_stream(n), cti_y(n, 0), *(const double *)cti_attr(n));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_zeros_like(dy[0]);
    return cti_pending(n);
}

/* arg: value. */
static const ct_case cases[] = {
    {.name = "matrix", .arg = {2}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "images", .arg = {-1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_fill_(ct_clone(in[0]), c->arg[0]);
}

const ct_op cti_op_fill = {.name = "fill",
                           .torch_name = "FillBackward0",
                           .makes_inf = true,
                           .infer = infer,
                           .forward = forward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_fill_(ct_tensor *x, double value)
{
    return cti_apply_inplace(&cti_op_fill, &value, sizeof value, 1, &x);
}
