/* SPDX-License-Identifier: Apache-2.0 */
/* prod - y = product of x over dim, or over all. Shape: x's without dim, or with 1 there (keepdim). Gradient: dx = dy times
 * the product of the others: right with one zero and with several. A formula around an op on rows.
 * Oracle: torch.prod. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    int rc = cti_check_float(n, 0);
    const ct_view *x = cti_x(n, 0);
    return rc ? rc : cti_out(n, 0, x->dtype, x->ndim - 1, x->shape);
}

/* The last of the running products. */
static int forward(cti_node *n)
{
    const ct_view *x = cti_x(n, 0), *y = cti_y(n, 0);
    int64_t length = x->shape[x->ndim - 1];
    cti_save_in(n, 0, 0);
    if (length == 0 || ct_view_numel(y) == 0)
        return cti_be(n)->ew->fill(cti_stream(n), y, 1);
    const ct_view *all = cti_temp_like(n, x->dtype, x);
    if (!all)
        return cti_pending(n);
    int rc = cti_be(n)->reduce->scan(cti_stream(n), CT_SCAN_PROD, all, x);
    ct_view ends = *y;
    ends.data = (char *)all->data + (length - 1) * (int64_t)ct_dtype_bytes(x->dtype);
    for (int i = 0; i < y->ndim; i++)
        ends.stride[i] = all->stride[i];
    return rc ? rc : cti_be(n)->ew->copy(cti_stream(n), y, &ends);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_mul(ct_unsqueeze(dy[0], -1), cti_products_without(cti_saved_tensor(n, 0)));
    return cti_pending(n);
}

static const ct_op op_rows = {.name = "prod",
                              .torch_name = "ProdBackward0",
                              .autocast = CTI_F32,
                              .infer = infer,
                              .forward = forward,
                              .vjp = vjp};

/* arg: 1 for all, dim, keepdim. */
static const ct_case cases[] = {
    {.name = "all", .arg = {1}, .in = {CT_IN(AWAY, 3, 5)}},
    {.name = "last", .arg = {0, -1}, .in = {CT_IN(AWAY, 3, 5)}},
    {.name = "first, keepdim", .arg = {0, 0, 1}, .in = {CT_IN(POSITIVE, 7, 5)}},
    {.name = "channels", .arg = {0, 1}, .in = {CT_IN(AWAY, 2, 3, 5, 4)}},
    {.name = "empty", .arg = {0, 1}, .in = {CT_IN(AWAY, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return c->arg[0] != 0 ? ct_prod_all(in[0]) : ct_prod(in[0], (int)c->arg[1], c->arg[2] != 0);
}

const ct_op cti_op_prod = {.name = "prod", CT_CASES(cases), .call = call};

static ct_tensor *on_rows(ct_tensor *rows)
{
    return cti_apply(&op_rows, NULL, 0, 1, &rows);
}

ct_tensor *ct_prod_all(ct_tensor *x)
{
    int64_t flat = -1;
    return on_rows(x && ct_tensor_numel(x) == 0 ? ct_new_full(x, 1, (int64_t[]){0}, 0) :
                   x                            ? ct_contiguous(ct_reshape(x, 1, &flat)) :
                                                  NULL);
}

ct_tensor *ct_prod(ct_tensor *x, int dim, bool keepdim)
{
    ct_tensor *rows = cti_rows_of(x, dim), *y = on_rows(rows);
    if (!y || ct_tensor_ndim(rows) < 2)
        return y && keepdim && ct_tensor_ndim(x) > 0 ? ct_unsqueeze(y, -1) : y;
    y = ct_transpose(ct_unsqueeze(y, -1), dim, -1);
    return keepdim ? y : ct_squeeze(y, dim);
}
