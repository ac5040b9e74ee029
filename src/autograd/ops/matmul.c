/* SPDX-License-Identifier: Apache-2.0 */
/* matmul - y[..., i, j] = sum_k a[..., i, k] b[..., k, j].
 * Shape: [..., M, K] x [..., K, N] -> [..., M, N], batch dimensions broadcast; a vector is a row on the left,
 * a column on the right, and its dimension goes from the result. Gradient: da = dy b^T, db = a^T dy,
 * each summed over the batch dimensions that were broadcast. Oracle: torch.matmul. */
#include "autograd/op.h"

/* ---- shared with linear ---- */

ct_view cti_view_t(const ct_view *v)
{
    ct_view t = *v;
    int r = v->ndim - 2, c = v->ndim - 1;
    t.shape[r] = v->shape[c];
    t.shape[c] = v->shape[r];
    t.stride[r] = v->stride[c];
    t.stride[c] = v->stride[r];
    return t;
}

/* Gives size-1 dimensions the stride that makes an ordinary matrix of it. */
static ct_view settled(const ct_view *v)
{
    ct_view m = *v;
    int r = v->ndim - 2, c = v->ndim - 1;
    if (m.shape[c] == 1 && m.stride[r] != 1)
        m.stride[c] = 1;
    if (m.shape[r] == 1)
        m.stride[r] = m.stride[c] == 1 ? m.shape[c] : 1;
    else if (m.shape[c] == 1 && m.stride[c] != 1)
        m.stride[c] = m.shape[r];
    return m;
}

bool cti_view_matrix(const ct_view *v)
{
    int r = v->ndim - 2, c = v->ndim - 1;
    if (ct_view_numel(v) == 0)
        return true;
    ct_view m = settled(v);
    return (m.stride[c] == 1 && m.stride[r] >= m.shape[c]) ||
           (m.stride[r] == 1 && m.stride[c] >= m.shape[r]);
}

bool cti_view_rows(const ct_view *v, ct_view *out)
{
    int last = v->ndim - 1;
    int64_t rows = 1, step = 0;
    for (int i = last - 1; i >= 0; i--) {
        if (v->shape[i] == 1)
            continue;
        if (rows > 1 && v->stride[i] != step * rows)
            return false;
        if (rows == 1)
            step = v->stride[i];
        rows *= v->shape[i];
        if (rows == 0)
            break;
    }
    if (ct_view_numel(v) == 0) {
        rows = 1;
        for (int i = 0; i < last; i++)
            rows *= v->shape[i];
    }
    *out = (ct_view){.data = v->data, .dtype = v->dtype, .ndim = 2};
    out->shape[0] = rows;
    out->shape[1] = v->shape[last];
    out->stride[0] = step;
    out->stride[1] = v->stride[last];
    *out = settled(out);
    return true;
}

/* A sum over nothing: y = beta * y + bias. */
static int nothing_into(cti_node *n, const ct_view *y, int beta, const ct_view *bias)
{
    const ct_k_ew *ew = cti_be(n)->ew;
    if (bias) {
        ct_view wide = cti_view_expand(bias, y->ndim, y->shape);
        return ew->affine(cti_stream(n), y, beta, &wide, 1, 0);
    }
    return beta ? CT_OK : ew->fill(cti_stream(n), y, 0);
}

int cti_matmul_into(cti_node *n, const ct_view *y, int beta, const ct_view *a, const ct_view *b,
                    const ct_view *bias)
{
    const ct_k_matmul *k = cti_be(n)->matmul;
    if (ct_view_numel(y) == 0)
        return CT_OK;
    if (a->shape[a->ndim - 1] == 0)
        return nothing_into(n, y, beta, bias);
    ct_view y0 = settled(y);
    ct_matmul_args args = {.y = y0, .a = settled(a), .b = settled(b), .bias = bias, .beta = beta};
    int r = y->ndim - 2, c = y->ndim - 1;
    if (y0.stride[c] != 1 && y0.stride[r] == 1 && !bias) {
        /* The gradient of a transposed operand: y^T = b^T a^T has contiguous rows. */
        args.y = cti_view_t(&y0);
        args.a = cti_view_t(&args.b);
        ct_view a0 = settled(a);
        args.b = cti_view_t(&a0);
    } else if (y0.stride[c] != 1) {
        ct_view rows = y0;
        cti_row_major(y->ndim, y->shape, rows.stride);
        const ct_view *t = cti_temp_like(n, y->dtype, &rows);
        if (!t)
            return cti_pending(n);
        int rc = cti_matmul_into(n, t, 0, a, b, bias);
        return rc ? rc : cti_be(n)->ew->affine(cti_stream(n), y, beta, t, 1, 0);
    }
    size_t bytes = 0;
    int rc = k->workspace(cti_stream(n), &args, &bytes);
    if (rc)
        return rc;
    args.workspace = cti_workspace(n, bytes);
    if (bytes && !args.workspace)
        return cti_pending(n);
    return k->matmul(cti_stream(n), &args);
}

/* ---- the op: operands of two or more dimensions ---- */

static int infer(cti_node *n)
{
    const ct_view *a = cti_x(n, 0), *b = cti_x(n, 1);
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t shape[CT_MAX_DIMS];
    char s[64], t[64];
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_check_same_dtype(n);
    if (rc)
        return rc;
    if (a->shape[a->ndim - 1] != b->shape[b->ndim - 2])
        return cti_op_fail(n, CT_ESHAPE,
                           "%s x %s: the left one's last size must be the right one's last but one",
                           cti_shape_str(a, s, sizeof s), cti_shape_str(b, t, sizeof t));
    for (int i = 0; i < ndim - 2; i++) {
        int ia = i - (ndim - a->ndim), ib = i - (ndim - b->ndim);
        int64_t da = ia >= 0 ? a->shape[ia] : 1, db = ib >= 0 ? b->shape[ib] : 1;
        if (da != db && da != 1 && db != 1)
            return cti_op_fail(n, CT_ESHAPE, "%s x %s: batch dimension %d doesn't broadcast",
                               cti_shape_str(a, s, sizeof s), cti_shape_str(b, t, sizeof t), i);
        shape[i] = da == 1 ? db : da;
    }
    shape[ndim - 2] = a->shape[a->ndim - 2];
    shape[ndim - 1] = b->shape[b->ndim - 1];
    return cti_out(n, 0, a->dtype, ndim, shape);
}

/* m with its batch dimensions broadcast to those of `like`. */
static ct_view batched(const ct_view *m, const ct_view *like)
{
    int64_t shape[CT_MAX_DIMS] = {0};
    for (int i = 0; i < like->ndim - 2; i++)
        shape[i] = like->shape[i];
    for (int i = 1; i <= 2; i++)
        shape[like->ndim - i] = m->shape[m->ndim - i];
    return cti_view_expand(m, like->ndim, shape);
}

static int forward(cti_node *n)
{
    const ct_view *y = cti_y(n, 0);
    ct_view a = batched(cti_x(n, 0), y), b = batched(cti_x(n, 1), y);
    if (cti_wants(n, 1))
        cti_save_in(n, 0, 0);
    if (cti_wants(n, 0))
        cti_save_in(n, 1, 1);
    return cti_matmul_into(n, y, 0, &a, &b, NULL);
}

/* dx = beta * dx + l r, summed over broadcast batches. */
static int product_into(cti_node *n, int i, const ct_view *l, const ct_view *r)
{
    int beta;
    const ct_view *dx = cti_dx(n, i, &beta);
    if (!dx)
        return cti_pending(n);
    ct_view full = *l;
    full.shape[l->ndim - 1] = r->shape[r->ndim - 1];
    if (cti_same_shape(dx, &full))
        return cti_matmul_into(n, dx, beta, l, r, NULL);
    cti_row_major(full.ndim, full.shape, full.stride);
    const ct_view *t = cti_temp_like(n, dx->dtype, &full);
    if (!t)
        return cti_pending(n);
    int rc = cti_matmul_into(n, t, 0, l, r, NULL);
    return rc ? rc : cti_sum_into(n, dx, beta, t, 1);
}

static int backward(cti_node *n)
{
    const ct_view *dy = cti_dy(n, 0);
    int rc = CT_OK;
    if (!cti_view_matrix(dy)) {
        ct_view rows = *dy;
        cti_row_major(dy->ndim, dy->shape, rows.stride);
        dy = cti_dy_like(n, 0, &rows);
        if (!dy)
            return cti_pending(n);
    }
    if (cti_wants(n, 0)) {
        ct_view b = batched(cti_saved(n, 1), dy), bt = cti_view_t(&b);
        rc = product_into(n, 0, dy, &bt);
    }
    if (!rc && cti_wants(n, 1)) {
        ct_view a = batched(cti_saved(n, 0), dy), at = cti_view_t(&a);
        rc = product_into(n, 1, &at, dy);
    }
    return rc;
}

static ct_tensor *transposed(ct_tensor *m)
{
    return ct_transpose(m, -2, -1);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    if (cti_wants(n, 0))
        dx[0] = cti_sum_to_input(n, ct_matmul(dy[0], transposed(cti_saved_tensor(n, 1))), 0);
    if (cti_wants(n, 1))
        dx[1] = cti_sum_to_input(n, ct_matmul(transposed(cti_saved_tensor(n, 0)), dy[0]), 1);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "matrices", .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 5, 7)}},
    {.name = "one row, one column", .in = {CT_IN(NORMAL, 1, 5), CT_IN(NORMAL, 5, 1)}},
    {.name = "outer", .in = {CT_IN(NORMAL, 3, 1), CT_IN(NORMAL, 1, 7)}},
    {.name = "batches", .in = {CT_IN(NORMAL, 4, 3, 5), CT_IN(NORMAL, 4, 5, 2)}},
    {.name = "batch by matrix", .in = {CT_IN(NORMAL, 2, 4, 3, 5), CT_IN(NORMAL, 5, 7)}},
    {.name = "matrix by batch", .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 2, 5, 7)}},
    {.name = "broadcast", .in = {CT_IN(NORMAL, 2, 1, 3, 5), CT_IN(NORMAL, 4, 5, 7)}},
    {.name = "dot", .in = {CT_IN(NORMAL, 9), CT_IN(NORMAL, 9)}},
    {.name = "vector by matrix", .in = {CT_IN(NORMAL, 5), CT_IN(NORMAL, 5, 7)}},
    {.name = "batch by vector", .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN(NORMAL, 5)}},
    {.name = "vector by batch", .in = {CT_IN(NORMAL, 5), CT_IN(NORMAL, 2, 5, 3)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 5, 7)}},
    {.name = "sum over nothing", .in = {CT_IN(NORMAL, 3, 0), CT_IN(NORMAL, 0, 7)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_matmul(in[0], in[1]);
}

const ct_op cti_op_matmul = {.name = "matmul",
                             .torch_name = "MmBackward0",
                             .accumulates = 3,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

/* What the kernel can't walk is copied once, on the record. */
static ct_tensor *walkable(ct_tensor *t)
{
    ct_view v = cti_meta(t);
    return cti_view_matrix(&v) ? t : ct_contiguous(t);
}

/* [..., M, K] x [K, N] is one product of [... * M, K] where the strides allow it; else NULL. */
static ct_tensor *matmul_rows(ct_tensor *a, ct_tensor *b)
{
    ct_view v = cti_meta(a), rows;
    if (v.ndim < 3 || ct_tensor_ndim(b) != 2 || !cti_view_rows(&v, &rows) ||
        !cti_view_matrix(&rows) || rows.shape[1] != ct_tensor_size(b, 0))
        return NULL;
    ct_tensor *a2 = ct_reshape(a, 2, rows.shape);
    ct_tensor *y = cti_apply(&cti_op_matmul, NULL, 0, 2, (ct_tensor *[]){a2, b});
    v.shape[v.ndim - 1] = ct_tensor_size(b, 1);
    return ct_reshape(y, v.ndim, v.shape);
}

ct_tensor *ct_matmul(ct_tensor *a, ct_tensor *b)
{
    char sa[96], sb[96];
    if (!a || !b)
        return cti_apply(&cti_op_matmul, NULL, 0, 2, (ct_tensor *[]){a, b});
    int na = ct_tensor_ndim(a), nb = ct_tensor_ndim(b);
    if (na == 0 || nb == 0 || ct_tensor_size(a, -1) != ct_tensor_size(b, nb == 1 ? 0 : -2))
        return cti_raise(ct_tensor_ctx(a), &cti_op_matmul, CT_ESHAPE,
                         "%s x %s: needs vectors or matrices, the left one's last size equal to the "
                         "right one's %s",
                         ct_tensor_describe(a, sa, sizeof sa), ct_tensor_describe(b, sb, sizeof sb),
                         nb == 1 ? "length" : "last but one");
    ct_tensor *l = walkable(na == 1 ? ct_unsqueeze(a, 0) : a);
    ct_tensor *r = walkable(nb == 1 ? ct_unsqueeze(b, 1) : b);
    if (!l || !r)
        return NULL;
    ct_tensor *y = matmul_rows(l, r);
    if (!y)
        y = cti_apply(&cti_op_matmul, NULL, 0, 2, (ct_tensor *[]){l, r});
    if (nb == 1)
        y = ct_squeeze(y, -1);
    if (na == 1)
        y = ct_squeeze(y, nb == 1 ? -1 : -2);
    return y;
}
