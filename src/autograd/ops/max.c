/* SPDX-License-Identifier: Apache-2.0 */
/* max - the largest element of x along dim (min: the smallest) and where it stands, the first of ties; NaN wins. Shape: x's
 * without dim, or with 1 there (keepdim), twice. Gradient: dy to that element alone. Also argmin. Formulas.
 * Oracle: torch.max, min with a dimension, argmin. */
#include "autograd/op.h"

/* arg: what (0 max, 1 min; 2, 3 their indices; 4 argmin), dim, keepdim. */
static const ct_case cases[] = {
    {.name = "max", .arg = {0, -1}, .in = {CT_IN(DISTINCT, 3, 17)}},
    {.name = "min, keepdim", .arg = {1, 0, 1}, .in = {CT_IN(DISTINCT, 7, 3, 5)}},
    {.name = "channels", .arg = {0, 1}, .in = {CT_IN(DISTINCT, 2, 3, 5, 7)}},
    {.name = "its place", .arg = {2, 1}, .in = {CT_IN_FIXED(DISTINCT, 7, 5)}},
    {.name = "the place of min", .arg = {3, 0, 1}, .in = {CT_IN_FIXED(DISTINCT, 7, 5)}},
    {.name = "argmin", .arg = {4, 1}, .in = {CT_IN_FIXED(DISTINCT, 7, 5)}},
    {.name = "empty", .arg = {0, 1}, .in = {CT_IN(DISTINCT, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_tensor *values = NULL, *indices = NULL;
    int what = (int)c->arg[0], dim = (int)c->arg[1];
    bool keepdim = c->arg[2] != 0;
    if (what == 4)
        return ct_argmin(in[0], dim, keepdim);
    int rc = (what % 2 ? ct_min : ct_max)(in[0], dim, keepdim, &values, &indices);
    return rc ? NULL : what < 2 ? values : indices;
}

const ct_op cti_op_max = {.name = "max", CT_CASES(cases), .call = call};

ct_tensor *ct_argmin(ct_tensor *x, int dim, bool keepdim)
{
    return ct_argmax(ct_neg(x), dim, keepdim);
}

static int extremum(ct_tensor *x, ct_tensor *at, int dim, bool keepdim, ct_tensor **values,
                    ct_tensor **indices)
{
    bool scalar = x && ct_tensor_ndim(x) == 0;
    ct_tensor *v = scalar ? x : at ? ct_gather(x, dim, at) : NULL;
    if (!keepdim && !scalar) {
        v = v ? ct_squeeze(v, dim) : NULL;
        at = v ? ct_squeeze(at, dim) : NULL;
        v = at ? v : NULL;
    }
    if (values)
        *values = v;
    if (indices)
        *indices = v ? at : NULL;
    return x ? ct_error_code(ct_tensor_ctx(x)) : CT_EINVAL;
}

int ct_max(ct_tensor *x, int dim, bool keepdim, ct_tensor **values, ct_tensor **indices)
{
    return extremum(x, ct_argmax(x, dim, true), dim, keepdim, values, indices);
}

int ct_min(ct_tensor *x, int dim, bool keepdim, ct_tensor **values, ct_tensor **indices)
{
    return extremum(x, ct_argmin(x, dim, true), dim, keepdim, values, indices);
}
