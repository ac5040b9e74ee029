/* SPDX-License-Identifier: Apache-2.0 */
/* cumprod - y[..., i] = product of x[..., 0..i] along dim. Shape: as x. Gradient: dx_i = sum over k >= i of dy_k times the
 * product of x_0..x_k without x_i; exact also with zeros, for n^2 memory in the row's length n. A formula around an op on
 * rows. Oracle: torch.cumprod. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    int rc = cti_check_float(n, 0);
    return rc ? rc : cti_out_like(n, 0, 0);
}

static int forward(cti_node *n)
{
    cti_save_in(n, 0, 0);
    return cti_be(n)->reduce->scan(cti_stream(n), CT_SCAN_PROD, cti_y(n, 0), cti_x(n, 0));
}

/* [.., k, j] = x_j where j <= k, else 1: row k has the factors of y_k. Of each the product without x_i. */
static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *x = cti_saved_tensor(n, 0);
    if (!x)
        return cti_pending(n);
    int64_t length = ct_tensor_size(x, -1), shape[CT_MAX_DIMS];
    int ndim = ct_tensor_ndim(x), rows = -2;
    for (int i = 0; i < ndim - 1; i++)
        shape[i] = ct_tensor_size(x, i);
    shape[ndim - 1] = shape[ndim] = length;
    if (ndim == CT_MAX_DIMS)
        return cti_op_fail(n, CT_ENOTIMPL, "its gradient needs a dimension more than there are");
    ct_tensor *ones = ct_new_full(x, 2, (int64_t[]){length, length}, 1);
    ct_tensor *used = ct_ne(ct_tril(ones, 0), ct_zeros_like(ones));
    ct_tensor *factors =
        ct_where(used, ct_expand(ct_unsqueeze(x, -2), ndim + 1, shape), ct_new_full(x, 0, NULL, 1));
    ct_tensor *without = ct_mul(cti_products_without(factors), ct_cast(used, ct_tensor_dtype(x)));
    dx[0] = ct_sum(ct_mul(without, ct_unsqueeze(dy[0], -1)), &rows, 1, false);
    return cti_pending(n);
}

static const ct_op op_rows = {.name = "cumprod",
                              .torch_name = "CumprodBackward0",
                              .autocast = CTI_F32,
                              .infer = infer,
                              .forward = forward,
                              .vjp = vjp};

/* arg: dim. */
static const ct_case cases[] = {
    {.name = "last", .arg = {-1}, .in = {CT_IN(AWAY, 3, 5)}},
    {.name = "first", .arg = {0}, .in = {CT_IN(POSITIVE, 11, 5)}},
    {.name = "channels", .arg = {1}, .in = {CT_IN(AWAY, 2, 3, 2, 4)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(AWAY, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_cumprod(in[0], (int)c->arg[0]);
}

const ct_op cti_op_cumprod = {.name = "cumprod", CT_CASES(cases), .call = call};

static ct_tensor *on_rows(ct_tensor *rows)
{
    return cti_apply(&op_rows, NULL, 0, 1, &rows);
}

/* Products of all that stands before each element: 1, x_0, x_0 x_1, ... */
static ct_tensor *before(ct_tensor *x)
{
    if (!x)
        return NULL;
    int64_t n = ct_tensor_size(x, -1);
    ct_tensor *first = ct_ones_like(ct_narrow(x, -1, 0, 1));
    ct_tensor *parts[2] = {first, on_rows(ct_contiguous(ct_narrow(x, -1, 0, n - 1)))};
    return n > 1 ? ct_cat(parts, 2, -1) : first;
}

ct_tensor *cti_products_without(ct_tensor *x)
{
    int last = -1;
    if (!x || ct_tensor_numel(x) == 0)
        return x;
    return ct_mul(before(x), ct_flip(before(ct_flip(x, 1, &last)), 1, &last));
}

ct_tensor *ct_cumprod(ct_tensor *x, int dim)
{
    return cti_rows_back(on_rows(cti_rows_of(x, dim)), dim);
}
