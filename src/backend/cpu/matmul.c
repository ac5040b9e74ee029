/* SPDX-License-Identifier: Apache-2.0 */
/* f32 and bf16 by oneDNN, f64 by our own tiles; f16, and bf16 where oneDNN has none, in f32. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/dnnl.h"
#include "backend/cpu/half.h"
#include "backend/cpu/tile.h"

#include <string.h>

/* ---- the problem, in few dimensions ---- */

/* Rows of a batch that follow each other are more rows of one matrix, when b is the same for all:
 * a linear layer on [B,T,C] is one large product. */
static bool fold_into_rows(cti_dnnl_matmul *p)
{
    const int last = p->n_batch - 1, row = p->n_batch, col = row + 1;
    if (last < 0 || p->b[last] != 0 || p->a[last] == 0)
        return false;
    if (p->m != 1) {
        if (p->a[last] != p->m * p->a[row] || p->y[last] != p->m * p->y[row])
            return false;
        p->m *= p->batch[last];
    } else {
        if (p->a[col] != 1 && p->k != 1)
            return false;
        p->m = p->batch[last];
        p->a[row] = p->a[last];
        p->y[row] = p->y[last];
    }
    int64_t *stride[3] = {p->a, p->b, p->y};
    for (int i = 0; i < 3; i++) {
        stride[i][last] = stride[i][row];
        stride[i][row] = stride[i][col];
        stride[i][col] = 0;
    }
    p->batch[last] = 0;
    p->n_batch--;
    return true;
}

static bool joins(const int64_t *stride, int i, int64_t inner)
{
    return stride[i] == inner * stride[i + 1];
}

/* Makes one batch dimension of i and i + 1 when they are one in all three operands. */
static bool join_batch(cti_dnnl_matmul *p, int i)
{
    int64_t inner = p->batch[i + 1];
    if (!joins(p->a, i, inner) || !joins(p->b, i, inner) || !joins(p->y, i, inner))
        return false;
    int64_t *stride[3] = {p->a, p->b, p->y};
    for (int t = 0; t < 3; t++) {
        memmove(stride[t] + i, stride[t] + i + 1, (size_t)(p->n_batch + 1 - i) * sizeof(int64_t));
        stride[t][p->n_batch + 1] = 0;
    }
    p->batch[i + 1] *= p->batch[i];
    memmove(p->batch + i, p->batch + i + 1, (size_t)(p->n_batch - 1 - i) * sizeof(int64_t));
    p->batch[--p->n_batch] = 0;
    return true;
}

/* Strides of dimensions of size 1 say nothing: gives them the values of an ordinary matrix. */
static void settle(int64_t rows, int64_t cols, int64_t *row, int64_t *col)
{
    if (cols == 1 && (rows == 1 || *row >= 1)) {
        *col = 1;
        if (rows == 1)
            *row = 1;
    } else if (rows == 1) {
        *row = *col == 1 ? cols : 1;
    }
}

/* oneDNN 3.7 takes a vector for contiguous, whatever its strides say. */
static bool is_matrix(int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    if (rows == 1)
        return col == 1;
    if (cols == 1)
        return row == 1;
    return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

static void reduce_problem(const ct_matmul_args *args, cti_dnnl_matmul *p)
{
    const int nd = args->y.ndim;
    for (int i = 0; i < nd - 2; i++) {
        if (args->y.shape[i] == 1)
            continue;
        p->batch[p->n_batch] = args->y.shape[i];
        p->a[p->n_batch] = args->a.shape[i] == 1 ? 0 : args->a.stride[i];
        p->b[p->n_batch] = args->b.shape[i] == 1 ? 0 : args->b.stride[i];
        p->y[p->n_batch++] = args->y.stride[i];
    }
    for (int i = 0; i < 2; i++) {
        p->a[p->n_batch + i] = args->a.stride[nd - 2 + i];
        p->b[p->n_batch + i] = args->b.stride[nd - 2 + i];
        p->y[p->n_batch + i] = args->y.stride[nd - 2 + i];
    }
    p->m = args->y.shape[nd - 2];
    p->n = args->y.shape[nd - 1];
    p->k = args->a.shape[nd - 1];
    p->bias = args->bias != NULL;
    p->bf16 = (args->a.dtype == CT_BF16 ? CTI_BF16_IN : 0) |
              (args->y.dtype == CT_BF16 ? CTI_BF16_OUT : 0) |
              (args->bias && args->bias->dtype == CT_BF16 ? CTI_BF16_BIAS : 0);
    p->add = args->beta != 0;
    while (fold_into_rows(p))
        ;
    for (int i = p->n_batch - 2; i >= 0; i--)
        join_batch(p, i);
    const int r = p->n_batch;
    settle(p->m, p->k, &p->a[r], &p->a[r + 1]);
    settle(p->k, p->n, &p->b[r], &p->b[r + 1]);
    settle(p->m, p->n, &p->y[r], &p->y[r + 1]);
}

static int64_t batches(const cti_dnnl_matmul *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->n_batch; i++)
        n *= p->batch[i];
    return n;
}

/* ---- f32, bf16 ---- */

/* An operand that oneDNN doesn't take goes through a dense copy: matrices that overlap themselves (rows
 * broadcast), and vectors with gaps. */
typedef struct dense_copy {
    bool needed;
    ct_view to; /* data is set when the workspace is there */
    ct_view from;
    size_t bytes;
} dense_copy;

static size_t round64(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Other matrices of the batch stand between the lines of one (heads of attention): oneDNN 3.7 goes astray
 * in such operands where there are two batch dimensions. */
static bool is_woven(const cti_dnnl_matmul *p, const int64_t *stride)
{
    const int r = p->n_batch;
    const int64_t line = CTI_MAX(stride[r], stride[r + 1]);
    bool woven = false;
    for (int i = 0; i < r; i++)
        woven = woven || (stride[i] != 0 && stride[i] < line);
    return woven;
}

static void plan_copy(cti_dnnl_matmul *p, int64_t *stride, int64_t rows, int64_t cols,
                      const ct_view *v, dense_copy *c)
{
    const int r = p->n_batch;
    memset(c, 0, sizeof *c);
    c->needed = !is_matrix(rows, cols, stride[r], stride[r + 1]) || is_woven(p, stride);
    if (!c->needed)
        return;
    c->from.data = v->data;
    c->from.dtype = v->dtype;
    c->from.ndim = r + 2;
    c->to = c->from;
    int64_t n = 1;
    for (int i = r + 1; i >= 0; i--) {
        int64_t d = i < r ? (stride[i] ? p->batch[i] : 1) : i == r ? rows : cols;
        c->from.shape[i] = c->to.shape[i] = d;
        c->from.stride[i] = stride[i];
        c->to.stride[i] = n;
        if (i >= r || stride[i])
            stride[i] = n;
        n *= d;
    }
    c->bytes = round64((size_t)n * ct_dtype_bytes(v->dtype));
}

typedef struct plan {
    cti_dnnl_key key;
    dense_copy a, b, y;
    cti_dnnl_op *op;
} plan;

static int make_plan(ct_stream *s, const ct_matmul_args *args, plan *pl)
{
    cti_dnnl_key_init(&pl->key, CTI_DNNL_MATMUL);
    cti_dnnl_matmul *p = &pl->key.u.matmul;
    reduce_problem(args, p);
    plan_copy(p, p->a, p->m, p->k, &args->a, &pl->a);
    plan_copy(p, p->b, p->k, p->n, &args->b, &pl->b);
    plan_copy(p, p->y, p->m, p->n, &args->y, &pl->y);
    return cti_dnnl_get(s, &pl->key, &pl->op);
}

static int matmul_dnnl(ct_stream *s, const ct_matmul_args *args)
{
    plan pl;
    int rc = make_plan(s, args, &pl);
    if (rc)
        return rc;
    char *ws = args->workspace;
    cti_dnnl_data data = {.in = args->a.data,
                          .w = args->b.data,
                          .bias = args->bias ? args->bias->data : NULL,
                          .out = args->y.data};
    if (pl.a.needed) {
        data.in = pl.a.to.data = ws;
        rc = cti_cpu_ew.copy(s, &pl.a.to, &pl.a.from);
        ws += pl.a.bytes;
    }
    if (!rc && pl.b.needed) {
        data.w = pl.b.to.data = ws;
        rc = cti_cpu_ew.copy(s, &pl.b.to, &pl.b.from);
        ws += pl.b.bytes;
    }
    if (!rc && pl.y.needed) {
        data.out = pl.y.to.data = ws;
        if (args->beta)
            rc = cti_cpu_ew.copy(s, &pl.y.to, &pl.y.from);
        ws += pl.y.bytes;
    }
    if (!rc)
        rc = cti_dnnl_run(s, pl.op, &data, ws);
    return !rc && pl.y.needed ? cti_cpu_ew.copy(s, &pl.y.from, &pl.y.to) : rc;
}

/* ---- f64 ---- */

/* Panels of CTI_TILE_COLS columns of b, [panel][k][column], the last one filled up with zeros. */
static int64_t panels(int64_t n)
{
    return cti_ceil_div(n, CTI_TILE_COLS);
}

static void pack_panel(const double *b, int64_t row, int64_t col, int64_t k, int64_t n, double *to)
{
    const int cols = n < CTI_TILE_COLS ? (int)n : CTI_TILE_COLS;
    for (int64_t i = 0; i < k; i++) {
        for (int j = 0; j < cols; j++)
            to[i * CTI_TILE_COLS + j] = b[i * row + j * col];
        for (int j = cols; j < CTI_TILE_COLS; j++)
            to[i * CTI_TILE_COLS + j] = 0;
    }
}

typedef struct f64_matrix {
    const double *a, *bias;
    double *y;
    int64_t m, n, k, a_row, a_col, y_row;
    bool add;
} f64_matrix;

static void multiply_tile(const f64_matrix *p, int64_t i0, int64_t j0, const double *panel)
{
    double acc[CTI_TILE_ROWS][CTI_TILE_COLS] = {{0}};
    const double *row[CTI_TILE_ROWS];
    const int rows = p->m - i0 < CTI_TILE_ROWS ? (int)(p->m - i0) : CTI_TILE_ROWS;
    const int cols = p->n - j0 < CTI_TILE_COLS ? (int)(p->n - j0) : CTI_TILE_COLS;
    for (int i = 0; i < CTI_TILE_ROWS; i++)
        row[i] = p->a + (i0 + (i < rows ? i : 0)) * p->a_row;
    cti_cpu_tile(p->k, row, p->a_col, panel, CTI_TILE_COLS, acc);
    for (int i = 0; i < rows; i++) {
        double *y = p->y + (i0 + i) * p->y_row + j0;
        for (int j = 0; j < cols; j++)
            y[j] = (p->add ? y[j] : 0) + (p->bias ? acc[i][j] + p->bias[j0 + j] : acc[i][j]);
    }
}

static void offsets(const cti_dnnl_matmul *p, int64_t at, int64_t out[3])
{
    out[0] = out[1] = out[2] = 0;
    for (int i = p->n_batch - 1; i >= 0; i--) {
        int64_t c = at % p->batch[i];
        at /= p->batch[i];
        out[0] += c * p->a[i];
        out[1] += c * p->b[i];
        out[2] += c * p->y[i];
    }
}

static void matmul_f64(ct_stream *s, const ct_matmul_args *args, const cti_dnnl_matmul *p)
{
    const int r = p->n_batch;
    const int64_t count = batches(p), np = panels(p->n);
    const int64_t blocks = cti_ceil_div(p->m, CTI_TILE_ROWS);
    double *packed = args->workspace;
#pragma omp parallel num_threads(cti_cpu_team(s, count * p->m * p->n * p->k / 4))
    for (int64_t t = 0; t < count; t++) {
        int64_t off[3];
        offsets(p, t, off);
        const double *b = (const double *)args->b.data + off[1];
        const f64_matrix mat = {.a = (const double *)args->a.data + off[0],
                                .bias = args->bias ? args->bias->data : NULL,
                                .y = (double *)args->y.data + off[2],
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .a_row = p->a[r],
                                .a_col = p->a[r + 1],
                                .y_row = p->y[r],
                                .add = p->add};
#pragma omp for schedule(static)
        for (int64_t j = 0; j < np; j++)
            pack_panel(b + j * CTI_TILE_COLS * p->b[r + 1], p->b[r], p->b[r + 1], p->k,
                       p->n - j * CTI_TILE_COLS, packed + j * p->k * CTI_TILE_COLS);
#pragma omp for collapse(2) schedule(static)
        for (int64_t j = 0; j < np; j++)
            for (int64_t i = 0; i < blocks; i++)
                multiply_tile(&mat, i * CTI_TILE_ROWS, j * CTI_TILE_COLS,
                              packed + j * p->k * CTI_TILE_COLS);
    }
}

/* ---- the family ---- */

/* K = 0: the sum is empty. */
static void bias_alone(const ct_matmul_args *args, const cti_dnnl_matmul *p)
{
    const size_t elem = ct_dtype_bytes(args->y.dtype);
    const int64_t count = batches(p);
    for (int64_t t = 0; t < count && !p->add; t++) {
        int64_t off[3];
        offsets(p, t, off);
        for (int64_t i = 0; i < p->m; i++) {
            char *y = (char *)args->y.data + (size_t)(off[2] + i * p->y[p->n_batch]) * elem;
            if (args->bias)
                memcpy(y, args->bias->data, (size_t)p->n * elem);
            else
                memset(y, 0, (size_t)p->n * elem);
        }
    }
}

/* Another family's kernel sums a; the product's workspace is free for it. */
static ct_view sum_view(const ct_matmul_args *args)
{
    ct_view v = {.data = args->a_sum->data, .dtype = args->a_sum->dtype, .ndim = 2};
    v.shape[0] = args->a_sum->shape[0];
    v.shape[1] = v.stride[0] = v.stride[1] = 1;
    return v;
}

static int check_dtype(const ct_matmul_args *args)
{
    const ct_dtype d = args->a.dtype, wide = cti_wide_dtype(d);
    const ct_view *results[] = {&args->y, args->bias, args->a_sum};
    bool fit = args->b.dtype == d && (wide == CT_F32 || wide == CT_F64);
    for (int i = 0; i < 3; i++)
        fit = fit && (!results[i] || results[i]->dtype == d || results[i]->dtype == wide);
    return fit ? CT_OK : CT_EDTYPE;
}

static bool is_empty(const ct_matmul_args *args)
{
    return !ct_view_numel(&args->y) || !args->a.shape[args->a.ndim - 1];
}

static int product(ct_stream *s, const ct_matmul_args *args);
static int product_workspace(ct_stream *s, const ct_matmul_args *args, size_t *bytes);

/* In f32. */
static int wide_product(ct_stream *s, const ct_matmul_args *args)
{
    cti_half h = {.s = s};
    ct_matmul_args w = *args;
    w.a = *cti_half_in(&h, &args->a);
    w.b = *cti_half_in(&h, &args->b);
    w.bias = cti_half_in(&h, args->bias);
    w.y = *cti_half_out(&h, &args->y, args->beta != 0);
    return cti_half_done(&h, h.rc ? h.rc : product(s, &w));
}

static int wide_workspace(ct_stream *s, const ct_matmul_args *args, size_t *bytes)
{
    ct_matmul_args w = *args;
    ct_view bias;
    w.a = cti_wide_meta(&args->a);
    w.b = cti_wide_meta(&args->b);
    w.y = cti_wide_meta(&args->y);
    if (args->bias) {
        bias = cti_wide_meta(args->bias);
        w.bias = &bias;
    }
    return product_workspace(s, &w, bytes);
}

static int product_workspace(ct_stream *s, const ct_matmul_args *args, size_t *bytes)
{
    if (args->a.dtype == CT_F16 && !is_empty(args))
        return wide_workspace(s, args, bytes);
    if (is_empty(args))
        return CT_OK;
    if (args->y.dtype == CT_F64) {
        int64_t n = args->y.shape[args->y.ndim - 1], k = args->a.shape[args->a.ndim - 1];
        *bytes = (size_t)(panels(n) * CTI_TILE_COLS * k) * sizeof(double);
        return CT_OK;
    }
    plan pl;
    int rc = make_plan(s, args, &pl);
    if (rc == CT_EDTYPE)
        return wide_workspace(s, args, bytes);
    if (!rc)
        *bytes = pl.a.bytes + pl.b.bytes + pl.y.bytes + cti_dnnl_workspace(pl.op);
    return rc;
}

static int workspace(ct_stream *s, const ct_matmul_args *args, size_t *bytes)
{
    *bytes = 0;
    int rc = check_dtype(args);
    if (!rc)
        rc = product_workspace(s, args, bytes);
    if (!rc && args->a_sum) {
        ct_view sum = sum_view(args);
        *bytes = CTI_MAX(*bytes, cti_half_reduce.workspace(s, CT_RED_SUM, &sum, &args->a));
    }
    return rc;
}

static int product(ct_stream *s, const ct_matmul_args *args)
{
    if (!ct_view_numel(&args->y))
        return CT_OK;
    const ct_dtype d = args->a.dtype;
    if ((d == CT_F32 || d == CT_BF16) && !is_empty(args)) {
        int rc = matmul_dnnl(s, args);
        return rc == CT_EDTYPE ? wide_product(s, args) : rc;
    }
    if (cti_is_half(d))
        return wide_product(s, args);
    cti_dnnl_matmul p;
    memset(&p, 0, sizeof p);
    reduce_problem(args, &p);
    if (is_empty(args))
        bias_alone(args, &p);
    else
        matmul_f64(s, args, &p);
    return CT_OK;
}

static int matmul(ct_stream *s, const ct_matmul_args *args)
{
    int rc = check_dtype(args);
    if (!rc)
        rc = product(s, args);
    if (rc || !args->a_sum)
        return rc;
    ct_view sum = sum_view(args);
    return cti_half_reduce.reduce(s, CT_RED_SUM, &sum, 0, &args->a, 1, args->workspace);
}

const ct_k_matmul cti_cpu_matmul = {
    .workspace = workspace,
    .matmul = matmul,
};
