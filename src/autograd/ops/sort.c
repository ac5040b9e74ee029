/* SPDX-License-Identifier: Apache-2.0 */
/* sort - the elements of x along dim in rising (or falling) order, and where each stood. Shape: as x, twice. Equal elements
 * keep their order; NaN is largest. Gradient: dy to where the element stood. Around an op on rows.
 * Also argsort and topk. Oracle: torch.sort (stable), argsort, topk. */
#include "autograd/op.h"

#include <inttypes.h>

static int infer(cti_node *n)
{
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_out_like(n, 0, 0);
    return rc ? rc : cti_out(n, 1, CT_I64, cti_x(n, 0)->ndim, cti_x(n, 0)->shape);
}

static int forward(cti_node *n)
{
    const ct_k_reduce *k = cti_be(n)->reduce;
    size_t bytes = k->sort_workspace(cti_stream(n), cti_x(n, 0));
    void *ws = cti_workspace(n, bytes);
    if (bytes && !ws)
        return cti_pending(n);
    cti_save_out(n, 0, 1);
    return k->sort(cti_stream(n), cti_y(n, 0), cti_y(n, 1), cti_x(n, 0), *(const bool *)cti_attr(n),
                   ws);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *index = cti_saved_tensor(n, 0);
    dx[0] = ct_scatter_add(ct_zeros_like(dy[0]), -1, index, dy[0]);
    return cti_pending(n);
}

static const ct_op op_rows = {
    .name = "sort", .torch_name = "SortBackward0", .infer = infer, .forward = forward, .vjp = vjp};

/* arg: what (0 values, 1 indices, 2 topk's values, 3 its indices), dim, descending (largest), k. */
static const ct_case cases[] = {
    {.name = "last", .arg = {0, -1}, .in = {CT_IN(DISTINCT, 3, 17)}},
    {.name = "falling", .arg = {0, 0, 1}, .in = {CT_IN(DISTINCT, 7, 3, 5)}},
    {.name = "indices", .arg = {1, 1}, .in = {CT_IN_FIXED(DISTINCT, 2, 3, 5, 7)}},
    {.name = "falling indices", .arg = {1, -1, 1}, .in = {CT_IN_FIXED(DISTINCT, 37)}},
    {.name = "top 3", .arg = {2, -1, 1, 3}, .in = {CT_IN(DISTINCT, 3, 17)}},
    {.name = "least 2", .arg = {2, 0, 0, 2}, .in = {CT_IN(DISTINCT, 7, 5)}},
    {.name = "places of the top 3", .arg = {3, -1, 1, 3}, .in = {CT_IN_FIXED(DISTINCT, 3, 17)}},
    {.name = "empty", .arg = {0, 1}, .in = {CT_IN(DISTINCT, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_tensor *values = NULL, *indices = NULL;
    int what = (int)c->arg[0], dim = (int)c->arg[1];
    int rc = what < 2 ? ct_sort(in[0], dim, c->arg[2] != 0, &values, &indices) :
                        ct_topk(in[0], (int64_t)c->arg[3], dim, c->arg[2] != 0, &values, &indices);
    return rc ? NULL : what % 2 ? indices : values;
}

const ct_op cti_op_sort = {.name = "sort", CT_CASES(cases), .call = call};

int ct_sort(ct_tensor *x, int dim, bool descending, ct_tensor **values, ct_tensor **indices)
{
    ct_tensor *rows = cti_rows_of(x, dim), *out[2];
    int rc = cti_apply_multi(&op_rows, &descending, sizeof descending, 1, &rows, 2, out);
    ct_tensor *v = cti_rows_back(out[0], dim), *i = cti_rows_back(out[1], dim);
    if (values)
        *values = v;
    if (indices)
        *indices = v ? i : NULL;
    return rc ? rc : ct_error_code(ct_tensor_ctx(x));
}

ct_tensor *ct_argsort(ct_tensor *x, int dim, bool descending)
{
    ct_tensor *indices;
    return ct_sort(x, dim, descending, NULL, &indices) ? NULL : indices;
}

int ct_topk(ct_tensor *x, int64_t k, int dim, bool largest, ct_tensor **values, ct_tensor **indices)
{
    ct_tensor *v = NULL, *i = NULL;
    if (values)
        *values = NULL;
    if (indices)
        *indices = NULL;
    if (!x)
        return CT_EINVAL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    int64_t n = ct_tensor_ndim(x) ? ct_tensor_size(x, dim) : 1;
    if (k < 0 || k > n)
        return cti_raise(ctx, &cti_op_sort, CT_EINVAL,
                         "top %" PRId64 " of %" PRId64 " elements in dimension %d", k, n, dim),
               ct_error_code(ctx);
    int rc = ct_sort(x, dim, largest, &v, &i);
    if (rc)
        return rc;
    if (values)
        *values = ct_narrow(v, dim, 0, k);
    if (indices)
        *indices = ct_narrow(i, dim, 0, k);
    return ct_error_code(ctx);
}
