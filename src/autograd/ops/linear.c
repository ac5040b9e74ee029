/* SPDX-License-Identifier: Apache-2.0 */
/* linear - y = x W^T + b. Shape: x [..., in], W [out, in], b [out] -> [..., out]; the leading
 * dimensions of x are rows of one matrix. Gradient: dx = dy W, dW = dy^T x, db = dy summed over
 * rows. Oracle: torch.nn.functional.linear. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    const ct_view *x = cti_x(n, 0), *w = cti_x(n, 1), *b = cti_x(n, 2);
    int64_t shape[CT_MAX_DIMS];
    char s[64], t[64];
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_check_same_dtype(n);
    if (rc)
        return rc;
    if (w->ndim != 2)
        return cti_op_fail(n, CT_ESHAPE, "weight %s must be [out, in]",
                           cti_shape_str(w, s, sizeof s));
    if (x->ndim < 1)
        return cti_op_fail(n, CT_ESHAPE, "x is a scalar, weight %s expects [..., %lld]",
                           cti_shape_str(w, s, sizeof s), (long long)w->shape[1]);
    if (x->shape[x->ndim - 1] != w->shape[1])
        return cti_op_fail(n, CT_ESHAPE, "x %s has %lld features, weight %s expects %lld",
                           cti_shape_str(x, s, sizeof s), (long long)x->shape[x->ndim - 1],
                           cti_shape_str(w, t, sizeof t), (long long)w->shape[1]);
    if (b && (b->ndim != 1 || b->shape[0] != w->shape[0]))
        return cti_op_fail(n, CT_ESHAPE, "bias %s must be [%lld], as weight %s has %lld outputs",
                           cti_shape_str(b, s, sizeof s), (long long)w->shape[0],
                           cti_shape_str(w, t, sizeof t), (long long)w->shape[0]);
    for (int i = 0; i < x->ndim - 1; i++)
        shape[i] = x->shape[i];
    shape[x->ndim - 1] = w->shape[0];
    return cti_out(n, 0, x->dtype, x->ndim, shape);
}

static int forward(cti_node *n)
{
    ct_view x, y, wt = cti_view_t(cti_x(n, 1));
    cti_view_rows(cti_x(n, 0), &x); /* ct_linear made sure that it can */
    cti_view_rows(cti_y(n, 0), &y);
    if (cti_wants(n, 1))
        cti_save_in(n, 0, 0);
    if (cti_wants(n, 0))
        cti_save_in(n, 1, 1);
    return cti_matmul_into(n, &y, 0, &x, &wt, cti_x(n, 2), NULL);
}

static int backward_data(cti_node *n, const ct_view *dy)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    ct_view rows;
    if (cti_view_rows(dx, &rows))
        return cti_matmul_into(n, &rows, beta, dy, cti_saved(n, 1), NULL, NULL);
    ct_view t = *dx;
    cti_row_major(t.ndim, t.shape, t.stride);
    const ct_view *tmp = cti_temp_like(n, dx->dtype, &t);
    if (!tmp)
        return cti_pending(n);
    cti_view_rows(tmp, &rows);
    int rc = cti_matmul_into(n, &rows, 0, dy, cti_saved(n, 1), NULL, NULL);
    return rc ? rc : cti_sum_into(n, dx, beta, tmp, 1);
}

static int backward_params(cti_node *n, const ct_view *dy)
{
    const ct_view *dw = NULL, *db = NULL;
    const ct_view dyt = cti_view_t(dy);
    int rc = CT_OK, beta_w = 0, beta_b = 0;
    if (cti_wants(n, 1) && !(dw = cti_dx(n, 1, &beta_w)))
        return cti_pending(n);
    if (cti_wants(n, 2) && !(db = cti_dx(n, 2, &beta_b)))
        return cti_pending(n);
    /* db on the way of dW: dy is read once. */
    const bool both = dw && db && !beta_b && cti_matmul_sums(dw, &dyt, db);
    if (dw) {
        ct_view x;
        cti_view_rows(cti_saved(n, 0), &x);
        rc = cti_matmul_into(n, dw, beta_w, &dyt, &x, NULL, both ? db : NULL);
    }
    return rc || !db || both ? rc : cti_sum_into(n, db, beta_b, dy, 1);
}

static int backward(cti_node *n)
{
    const ct_view *dy = cti_dy(n, 0);
    ct_view rows;
    if (!cti_view_rows(dy, &rows) || !cti_view_matrix(&rows)) {
        ct_view like = *dy;
        cti_row_major(like.ndim, like.shape, like.stride);
        dy = cti_dy_like(n, 0, &like);
        if (!dy)
            return cti_pending(n);
        cti_view_rows(dy, &rows);
    }
    int rc = cti_wants(n, 0) ? backward_data(n, &rows) : CT_OK;
    return rc ? rc : backward_params(n, &rows);
}

/* dy or x as rows of one matrix. */
static ct_tensor *rows_of(ct_tensor *t)
{
    if (!t)
        return NULL;
    int64_t shape[2] = {1, ct_tensor_size(t, -1)};
    for (int i = 0; i < ct_tensor_ndim(t) - 1; i++)
        shape[0] *= ct_tensor_shape(t)[i];
    return ct_reshape(t, 2, shape);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    if (cti_wants(n, 0))
        dx[0] = ct_matmul(dy[0], cti_saved_tensor(n, 1));
    if (cti_wants(n, 1))
        dx[1] = ct_matmul(ct_transpose(rows_of(dy[0]), 0, 1), rows_of(cti_saved_tensor(n, 0)));
    if (cti_wants(n, 2))
        dx[2] = cti_sum_to_input(n, dy[0], 2);
    return cti_pending(n);
}

/* No arg: x, weight, bias. */
static const ct_case cases[] = {
    {.name = "rows", .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7)}},
    {.name = "no bias", .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "one vector", .in = {CT_IN(NORMAL, 5), CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7)}},
    {.name = "sequences", .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN(NORMAL, 4, 5), CT_IN(NORMAL, 4)}},
    {.name = "one output", .in = {CT_IN(NORMAL, 9, 5), CT_IN(NORMAL, 1, 5), CT_IN(NORMAL, 1)}},
    {.name = "one feature", .in = {CT_IN(NORMAL, 9, 1), CT_IN(NORMAL, 3, 1), CT_IN(NORMAL, 3)}},
    {.name = "frozen weight", .in = {CT_IN(NORMAL, 3, 5), CT_IN_FIXED(NORMAL, 7, 5)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7)}},
    {.name = "no features", .in = {CT_IN(NORMAL, 3, 0), CT_IN(NORMAL, 7, 0), CT_IN(NORMAL, 7)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_linear(in[0], in[1], in[2]);
}

const ct_op cti_op_linear = {.name = "linear",
                             .torch_name = "AddmmBackward0",
                             .optional = 4,
                             .accumulates = 7,
                             .f32_grads = 6,
                             .autocast = CTI_LOW,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

ct_tensor *ct_linear(ct_tensor *x, ct_tensor *weight, ct_tensor *bias)
{
    ct_tensor *in[3] = {x, weight, bias};
    ct_view v, rows;
    if (!x || !weight)
        return cti_apply(&cti_op_linear, NULL, 0, 3, in);
    /* What the kernel can't walk is copied once, on the record. */
    if (ct_tensor_ndim(x) >= 1) {
        v = cti_meta(x);
        if (!cti_view_rows(&v, &rows) || !cti_view_matrix(&rows))
            in[0] = ct_contiguous(x);
    }
    v = cti_meta(weight);
    if (v.ndim == 2 && !cti_view_matrix(&v))
        in[1] = ct_contiguous(weight);
    if (bias && !ct_tensor_is_contiguous(bias))
        in[2] = ct_contiguous(bias);
    if (!in[0] || !in[1] || (bias && !in[2]))
        return NULL;
    return cti_apply(&cti_op_linear, NULL, 0, 3, in);
}
