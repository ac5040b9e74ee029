/* SPDX-License-Identifier: Apache-2.0 */
/* median - the lower of the two middle elements, of all of x, or along dim with its place. NaN wins. Gradient: of all: shared
 * evenly by the elements equal to it; along dim: to the place that is told. Formulas. Oracle: torch.median. */
#include "autograd/op.h"

/* arg: what (0 all, 1 along dim, 2 its place), dim, keepdim. */
static const ct_case cases[] = {
    {.name = "all", .in = {CT_IN(DISTINCT, 3, 5)}},
    {.name = "all of an even number", .in = {CT_IN(DISTINCT, 4, 3, 2)}},
    {.name = "last", .arg = {1, -1}, .in = {CT_IN(DISTINCT, 3, 6)}},
    {.name = "first, keepdim", .arg = {1, 0, 1}, .in = {CT_IN(DISTINCT, 7, 3, 5)}},
    {.name = "place", .arg = {2, 1}, .in = {CT_IN_FIXED(DISTINCT, 3, 6)}},
    {.name = "empty", .arg = {1, 1}, .in = {CT_IN(DISTINCT, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_tensor *values = NULL, *indices = NULL;
    int what = (int)c->arg[0];
    if (what == 0)
        return ct_median_all(in[0]);
    int rc = ct_median(in[0], (int)c->arg[1], c->arg[2] != 0, &values, &indices);
    return rc ? NULL : what == 1 ? values : indices;
}

const ct_op cti_op_median = {.name = "median", CT_CASES(cases), .call = call};

ct_tensor *ct_median_all(ct_tensor *x)
{
    int64_t flat = -1, n = x ? ct_tensor_numel(x) : 0;
    ct_tensor *sorted;
    if (x && n == 0)
        return ct_mean(x, NULL, 0, false); /* NaN */
    ct_tensor *rows = x ? ct_reshape(ct_detach(x), 1, &flat) : NULL;
    if (!rows || ct_sort(rows, 0, false, &sorted, NULL))
        return NULL;
    ct_tensor *middle = ct_select(sorted, 0, (n - 1) / 2), *last = ct_select(sorted, 0, n - 1);
    ct_tensor *y = ct_where(ct_isnan(last), last, middle);
    ct_tensor *equal = ct_cast(ct_eq(x, y), ct_tensor_dtype(x));
    ct_tensor *rest =
        ct_where(ct_eq(x, y), ct_sub(x, ct_detach(x)), ct_zeros_like(x)); /* 0, with a gradient */
    return ct_add(y, ct_div(ct_sum(rest, NULL, 0, false), ct_sum(equal, NULL, 0, false)));
}

int ct_median(ct_tensor *x, int dim, bool keepdim, ct_tensor **values, ct_tensor **indices)
{
    ct_tensor *v = NULL, *i = NULL;
    if (values)
        *values = NULL;
    if (indices)
        *indices = NULL;
    int rc = ct_sort(x, dim, false, &v, &i);
    if (rc || !x)
        return rc ? rc : CT_EINVAL;
    int64_t n = ct_tensor_ndim(x) ? ct_tensor_size(x, dim) : 1, at = n > 0 ? (n - 1) / 2 : 0;
    if (ct_tensor_ndim(x) > 0) { /* a row with a NaN has it last */
        ct_tensor *last = ct_narrow(v, dim, n - 1, 1), *nan = ct_isnan(last);
        v = ct_where(nan, last, ct_narrow(v, dim, at, 1));
        i = ct_where(nan, ct_narrow(i, dim, n - 1, 1), ct_narrow(i, dim, at, 1));
        v = keepdim ? v : ct_squeeze(v, dim);
        i = keepdim ? i : ct_squeeze(i, dim);
    }
    if (values)
        *values = v;
    if (indices)
        *indices = v ? i : NULL;
    return ct_error_code(ct_tensor_ctx(x));
}
