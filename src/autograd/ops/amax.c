/* SPDX-License-Identifier: Apache-2.0 */
/* amax - y = largest (amin: smallest) of x over `dims` (none: all); NaN wins. Shape: as sum's;
 * there must be an element to take. Gradient: dy shared evenly by the elements equal to y.
 * Oracle: torch.amax, amin. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    const cti_reduction *r = cti_attr(n);
    const ct_view *x = cti_x(n, 0);
    char s[64];
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_reduction_infer(n, x->dtype);
    for (int i = 0; !rc && i < x->ndim; i++)
        if ((r->mask & (1U << i)) && x->shape[i] == 0)
            rc = cti_op_fail(n, CT_ESHAPE, "%s of nothing: dimension %d of x %s has size 0",
                             r->fn == CT_RED_MAX ? "largest" : "smallest", i,
                             cti_shape_str(x, s, sizeof s));
    return rc;
}

static int forward(cti_node *n)
{
    cti_save_in(n, 0, 0);
    cti_save_out(n, 1, 0);
    if (ct_view_numel(cti_x(n, 0)) == 0)
        return CT_OK;
    return cti_reduction_forward(n, 1);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_reduction *r = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0);
    ct_tensor *y = cti_reduction_restore(n, cti_saved_tensor(n, 1));
    ct_tensor *mask = ct_cast(ct_eq(x, y), cti_in_meta(n, 0)->dtype);
    int dims[CT_MAX_DIMS], n_dims = 0;
    for (int i = 0; i < cti_in_meta(n, 0)->ndim; i++)
        if (r->mask & (1U << i))
            dims[n_dims++] = i;
    ct_tensor *ties = ct_sum(mask, dims, n_dims, true);
    dx[0] = ct_div(ct_mul(mask, cti_reduction_restore(n, dy[0])), ties);
    return cti_pending(n);
}

/* arg: keepdim, n_dims, dims (three places), 1 for amin. */
static const ct_case cases[] = {
    {.name = "all", .arg = {0, 0}, .in = {CT_IN(DISTINCT, 3, 5, 7)}},
    {.name = "last", .arg = {0, 1, -1}, .in = {CT_IN(DISTINCT, 3, 5, 7)}},
    {.name = "first, keepdim", .arg = {1, 1, 0}, .in = {CT_IN(DISTINCT, 33, 5)}},
    {.name = "pixels", .arg = {0, 2, 2, 3}, .in = {CT_IN(DISTINCT, 2, 3, 5, 7)}},
    {.name = "amin, all", .arg = {0, 0, 0, 0, 0, 1}, .in = {CT_IN(DISTINCT, 3, 5, 7)}},
    {.name = "amin, middle", .arg = {0, 1, 1, 0, 0, 1}, .in = {CT_IN(DISTINCT, 3, 5, 7)}},
    {.name = "scalar", .arg = {0, 0}, .in = {CT_IN_SCALAR(DISTINCT)}},
    {.name = "empty", .arg = {0, 1, 1}, .in = {CT_IN(DISTINCT, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[3] = {(int)c->arg[2], (int)c->arg[3], (int)c->arg[4]};
    return (c->arg[5] != 0 ? ct_amin : ct_amax)(in[0], dims, (int)c->arg[1], c->arg[0] != 0);
}

const ct_op cti_op_amax = {.name = "amax",
                           .torch_name = "AmaxBackward0",
                           .infer = infer,
                           .forward = forward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_amax(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return cti_apply_reduction(&cti_op_amax, CT_RED_MAX, x, dims, n_dims, keepdim);
}

ct_tensor *ct_amin(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return cti_apply_reduction(&cti_op_amax, CT_RED_MIN, x, dims, n_dims, keepdim);
}
