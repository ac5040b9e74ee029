/* SPDX-License-Identifier: Apache-2.0 */
/* mean - y = sum of x over `dims` (none: all) / count. Shape: as sum's. Of nothing: NaN.
 * Gradient: dy / count expanded, a view with strides 0. Oracle: torch.mean. */
#include "autograd/op.h"

#include <math.h>

static int infer(cti_node *n)
{
    int rc = cti_check_float(n, 0);
    return rc ? rc : cti_reduction_infer(n, cti_x(n, 0)->dtype);
}

static int forward(cti_node *n)
{
    const cti_reduction *r = cti_attr(n);
    if (r->count == 0)
        return cti_be(n)->ew->fill(cti_stream(n), cti_y(n, 0), (double)NAN);
    return cti_reduction_forward(n, 1 / (double)r->count);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_reduction *r = cti_attr(n);
    const ct_view *x = cti_in_meta(n, 0);
    ct_tensor *each =
        ct_affine(cti_reduction_restore(n, dy[0]), r->count ? 1 / (double)r->count : 1, 0);
    dx[0] = ct_expand(each, x->ndim, x->shape);
    return cti_pending(n);
}

/* arg: keepdim, n_dims, dims... */
static const ct_case cases[] = {
    {.name = "all", .arg = {0, 0}, .in = {CT_IN(NORMAL, 3, 5, 7)}},
    {.name = "last", .arg = {0, 1, -1}, .in = {CT_IN(NORMAL, 3, 5, 7)}},
    {.name = "first, keepdim", .arg = {1, 1, 0}, .in = {CT_IN(NORMAL, 33, 5)}},
    {.name = "pixels", .arg = {0, 2, 2, 3}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {0, 0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {0, 1, 0}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[3] = {(int)c->arg[2], (int)c->arg[3], (int)c->arg[4]};
    return ct_mean(in[0], dims, (int)c->arg[1], c->arg[0] != 0);
}

const ct_op cti_op_mean = {.name = "mean",
                           .torch_name = "MeanBackward0",
                           .autocast = CTI_F32,
                           .infer = infer,
                           .forward = forward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_mean(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return cti_apply_reduction(&cti_op_mean, CT_RED_SUM, x, dims, n_dims, keepdim);
}
