/* SPDX-License-Identifier: Apache-2.0 */
/* matmul - y[..., i, j] = sum_k a[..., i, k] b[..., k, j].
 * Shape: [..., M, K] x [..., K, N] -> [..., M, N], batch dimensions broadcast; a vector is a row on
 * the left, a column on the right, and its dimension goes from the result. Gradient: da = dy b^T,
 * db = a^T dy, each summed over the batch dimensions that were broadcast. Oracle: torch.matmul. */
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

bool cti_matmul_sums(const ct_view *y, const ct_view *a, const ct_view *a_sum)
{
    ct_view y0 = settled(y);
    return y->ndim == 2 && ct_view_numel(y) > 0 && a->shape[1] > 0 && y0.stride[1] == 1 &&
           (a_sum->stride[0] == 1 || a_sum->shape[0] == 1);
}

/* Is there a batch dimension in which both are broadcast (an expanded gradient)? The libraries take one. */
static bool both_broadcast(const ct_view *y, const ct_view *a, const ct_view *b)
{
    bool both = false;
    for (int i = 0; i < y->ndim - 2; i++)
        both = both || (y->shape[i] > 1 && (a->shape[i] == 1 || a->stride[i] == 0) &&
                        (b->shape[i] == 1 || b->stride[i] == 0));
    return both;
}

int cti_matmul_into(cti_node *n, const ct_view *y, int beta, const ct_view *a, const ct_view *b,
                    const ct_view *bias, const ct_view *a_sum)
{
    const ct_k_matmul *k = cti_be(n)->matmul;
    if (ct_view_numel(y) == 0)
        return CT_OK;
    if (a->shape[a->ndim - 1] == 0)
        return nothing_into(n, y, beta, bias);
    if (both_broadcast(y, a, b)) {
        ct_view whole = *a;
        for (int i = 0; i < y->ndim - 2; i++)
            whole.shape[i] = y->shape[i];
        cti_row_major(whole.ndim, whole.shape, whole.stride);
        ct_view wide = cti_view_expand(a, whole.ndim, whole.shape);
        const ct_view *t = cti_temp_like(n, a->dtype, &whole);
        if (!t)
            return cti_pending(n);
        int rc = cti_be(n)->ew->copy(cti_stream(n), t, &wide);
        return rc ? rc : cti_matmul_into(n, y, beta, t, b, bias, a_sum);
    }
    ct_view y0 = settled(y);
    ct_matmul_args args = {
        .y = y0, .a = settled(a), .b = settled(b), .bias = bias, .a_sum = a_sum, .beta = beta};
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
        int rc = cti_matmul_into(n, t, 0, a, b, bias, NULL);
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

/* ---- the op ---- */

/* The operands as matrices: a vector is a row on the left, a column on the right. */
static ct_view left(const ct_view *a)
{
    ct_view m = *a;
    if (a->ndim == 1) {
        m.ndim = 2;
        m.shape[0] = 1;
        m.shape[1] = a->shape[0];
        m.stride[0] = a->shape[0] * a->stride[0];
        m.stride[1] = a->stride[0];
    }
    return m;
}

static ct_view right(const ct_view *b)
{
    ct_view m = *b;
    if (b->ndim == 1) {
        m.ndim = 2;
        m.shape[1] = m.stride[1] = 1;
    }
    return m;
}

/* y or dy with the sizes of 1 that vectors have taken away. */
static ct_view product(const cti_node *n, const ct_view *y)
{
    ct_view m = *y;
    if (cti_in_meta(n, 1)->ndim == 1) {
        m.shape[m.ndim] = m.stride[m.ndim] = 1;
        m.ndim++;
    }
    if (cti_in_meta(n, 0)->ndim == 1) {
        int last = m.ndim - 1;
        m.shape[m.ndim] = m.shape[last];
        m.stride[m.ndim] = m.stride[last];
        m.stride[last] *= m.shape[last];
        m.shape[last] = 1;
        m.ndim++;
    }
    return m;
}

static int infer(cti_node *n)
{
    const ct_view *x = cti_x(n, 0), *z = cti_x(n, 1);
    int64_t shape[CT_MAX_DIMS];
    char s[64], t[64];
    int rc = cti_check_float(n, 0), ndim = 0;
    rc = rc ? rc : cti_check_same_dtype(n);
    if (rc)
        return rc;
    cti_shape_str(x, s, sizeof s);
    cti_shape_str(z, t, sizeof t);
    if (x->ndim == 0 || z->ndim == 0)
        return cti_op_fail(n, CT_ESHAPE, "%s x %s: scalars are multiplied by ct_mul", s, t);
    ct_view a = left(x), b = right(z);
    if (a.shape[a.ndim - 1] != b.shape[b.ndim - 2])
        return cti_op_fail(n, CT_ESHAPE,
                           "%s x %s: the left one's last size must be the right one's %s", s, t,
                           z->ndim == 1 ? "length" : "last but one");
    for (int i = (a.ndim > b.ndim ? a.ndim : b.ndim) - 2; i > 0; i--) {
        int ia = a.ndim - 2 - i, ib = b.ndim - 2 - i;
        int64_t da = ia >= 0 ? a.shape[ia] : 1, db = ib >= 0 ? b.shape[ib] : 1;
        if (da != db && da != 1 && db != 1)
            return cti_op_fail(n, CT_ESHAPE, "%s x %s: batch sizes %lld and %lld don't broadcast",
                               s, t, (long long)da, (long long)db);
        shape[ndim++] = da == 1 ? db : da;
    }
    if (x->ndim > 1)
        shape[ndim++] = a.shape[a.ndim - 2];
    if (z->ndim > 1)
        shape[ndim++] = b.shape[b.ndim - 1];
    return cti_out(n, 0, x->dtype, ndim, shape);
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
    ct_view y = product(n, cti_y(n, 0)), l = left(cti_x(n, 0)), r = right(cti_x(n, 1));
    ct_view a = batched(&l, &y), b = batched(&r, &y);
    if (cti_wants(n, 1))
        cti_save_in(n, 0, 0);
    if (cti_wants(n, 0))
        cti_save_in(n, 1, 1);
    return cti_matmul_into(n, &y, 0, &a, &b, NULL, NULL);
}

/* dx = beta * dx + l r, summed over the batches that dx hasn't. */
static int sum_of_products(cti_node *n, const ct_view *dx, int beta, const ct_view *l,
                           const ct_view *r)
{
    ct_view full = *l;
    full.shape[l->ndim - 1] = r->shape[r->ndim - 1];
    if (cti_same_shape(dx, &full))
        return cti_matmul_into(n, dx, beta, l, r, NULL, NULL);
    cti_row_major(full.ndim, full.shape, full.stride);
    const ct_view *t = cti_temp_like(n, dx->dtype, &full);
    if (!t)
        return cti_pending(n);
    int rc = cti_matmul_into(n, t, 0, l, r, NULL, NULL);
    return rc ? rc : cti_sum_into(n, dx, beta, t, 1);
}

static int backward_a(cti_node *n, const ct_view *dy)
{
    int beta;
    const ct_view *to = cti_dx(n, 0, &beta);
    if (!to)
        return cti_pending(n);
    ct_view dx = left(to), r = right(cti_saved(n, 1));
    ct_view b = batched(&r, dy), bt = cti_view_t(&b);
    return sum_of_products(n, &dx, beta, dy, &bt);
}

static int backward_b(cti_node *n, const ct_view *dy)
{
    int beta;
    const ct_view *to = cti_dx(n, 1, &beta);
    if (!to)
        return cti_pending(n);
    ct_view dx = right(to), l = left(cti_saved(n, 0)), rows, dy_rows;
    /* One matrix for all batches: their rows are one long matrix, and the sum is in the product. */
    if (dx.ndim == 2 && dy->ndim > 2 && cti_view_rows(&l, &rows) && cti_view_rows(dy, &dy_rows) &&
        cti_view_matrix(&rows) && cti_view_matrix(&dy_rows)) {
        ct_view rows_t = cti_view_t(&rows);
        return cti_matmul_into(n, &dx, beta, &rows_t, &dy_rows, NULL, NULL);
    }
    ct_view a = batched(&l, dy), at = cti_view_t(&a);
    return sum_of_products(n, &dx, beta, &at, dy);
}

static int backward(cti_node *n)
{
    ct_view dy = product(n, cti_dy(n, 0));
    if (!cti_view_matrix(&dy)) {
        ct_view like = *cti_dy(n, 0);
        cti_row_major(like.ndim, like.shape, like.stride);
        const ct_view *copy = cti_dy_like(n, 0, &like);
        if (!copy)
            return cti_pending(n);
        dy = product(n, copy);
    }
    int rc = cti_wants(n, 0) ? backward_a(n, &dy) : CT_OK;
    return !rc && cti_wants(n, 1) ? backward_b(n, &dy) : rc;
}

static ct_tensor *transposed(ct_tensor *m)
{
    return ct_transpose(m, -2, -1);
}

/* In matrices: what vectors lack is put in, and taken out by the sum and reshape at the end. */
static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const ct_view *x = cti_in_meta(n, 0), *z = cti_in_meta(n, 1);
    ct_tensor *g = z->ndim == 1 ? ct_unsqueeze(dy[0], -1) : dy[0];
    g = x->ndim == 1 ? ct_unsqueeze(g, -2) : g;
    if (cti_wants(n, 0)) {
        ct_tensor *b = cti_saved_tensor(n, 1);
        ct_tensor *da = ct_matmul(g, transposed(z->ndim == 1 ? ct_unsqueeze(b, 1) : b));
        dx[0] = cti_sum_to_input(n, x->ndim == 1 ? ct_squeeze(da, -2) : da, 0);
    }
    if (cti_wants(n, 1)) {
        ct_tensor *a = cti_saved_tensor(n, 0);
        ct_tensor *db = ct_matmul(transposed(x->ndim == 1 ? ct_unsqueeze(a, 0) : a), g);
        dx[1] = cti_sum_to_input(n, z->ndim == 1 ? ct_squeeze(db, -1) : db, 1);
    }
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
                             .f32_grads = 3,
                             .autocast = CTI_LOW,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

/* What the kernel can't walk is copied once, on the record. */
static ct_tensor *walkable(ct_tensor *t, ct_view (*as_matrix)(const ct_view *))
{
    if (!t || ct_tensor_ndim(t) == 0)
        return t;
    ct_view v = cti_meta(t), m = as_matrix(&v);
    return cti_view_matrix(&m) ? t : ct_contiguous(t);
}

ct_tensor *ct_matmul(ct_tensor *a, ct_tensor *b)
{
    ct_tensor *in[2] = {a, b};
    if (a && b) {
        in[0] = walkable(a, left);
        in[1] = walkable(b, right);
        if (!in[0] || !in[1])
            return NULL;
    }
    return cti_apply(&cti_op_matmul, NULL, 0, 2, in);
}
