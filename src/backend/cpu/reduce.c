/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions. Dimensions are split into kept and reduced ones. Either runs of reduced elements are folded
 * into one value ("rows"), or, where the innermost dimension is kept, whole rows are added up
 * ("columns": bias gradients of channels-last tensors).
 *
 * The reduced elements are cut into chunks whose size follows from the shape alone, each chunk is summed
 * in lanes of its own dtype with a double for every block, and chunks are joined in order: the result
 * is the same for any number of threads. */
#include "backend/cpu/copy.h"
#include "backend/cpu/loop.h"
#include "backend/cpu/rows.h"

typedef union acc {
    double f;
    int64_t i;
} acc;

typedef struct kernels {
    /* acc[0] takes n elements with stride s. */
    void (*row)(acc *a, const char *p, int64_t n, int64_t s);
    /* acc[0..n) take `rows` rows of n dense elements. NULL: by row alone. */
    void (*col)(acc *a, const char *p, int64_t rows, int64_t rs, int64_t n);
    void (*join)(acc *a, const acc *b, int64_t n);
    void (*store)(char *y, const acc *a, int beta, double scale);
    acc init;
} kernels;

enum {
    BLOCK = 1024, /* elements that are summed before a double takes them */
    LANES = 16,
    ROW_BLOCK = 64, /* the same for columns, in rows */
    WIDE = 64,      /* columns worked on at a time */
    TILE = 256,     /* columns of one task */
    TASKS = 64,     /* enough for any team */
    MIN_CHUNK = 4096
};

/* ---- sums of floats ---- */
#define FOLD(T, t)                                                           \
    (((t[0] + t[8]) + (t[4] + t[12])) + ((t[2] + t[10]) + (t[6] + t[14]))) + \
        (((t[1] + t[9]) + (t[5] + t[13])) + ((t[3] + t[11]) + (t[7] + t[15])))

#define FLOAT_SUM(T, S)                                                                            \
    CTI_INLINE double block_##S(const T *x, int64_t n)                                             \
    {                                                                                              \
        T t[LANES] = {0};                                                                          \
        int64_t i = 0;                                                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int j = 0; j < LANES; j++)                                                        \
                t[j] += x[i + j];                                                                  \
        for (int j = 0; i + j < n; j++)                                                            \
            t[j] += x[i + j];                                                                      \
        return (double)(FOLD(T, t));                                                               \
    }                                                                                              \
    static CTI_ISA void sum_dense_##S(acc *a, const T *x, int64_t n)                               \
    {                                                                                              \
        double total = 0;                                                                          \
        if (n < LANES) {                                                                           \
            for (int64_t i = 0; i < n; i++)                                                        \
                total += (double)x[i];                                                             \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i += BLOCK)                                                 \
                total += block_##S(x + i, CTI_MIN(BLOCK, n - i));                                  \
        }                                                                                          \
        a->f += total;                                                                             \
    }                                                                                              \
    static void sum_row_##S(acc *a, const char *p, int64_t n, int64_t s)                           \
    {                                                                                              \
        T buf[BLOCK];                                                                              \
        if (s == (int64_t)sizeof(T)) {                                                             \
            sum_dense_##S(a, (const T *)p, n);                                                     \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i += BLOCK) {                                                   \
            int64_t m = CTI_MIN(BLOCK, n - i);                                                     \
            for (int64_t j = 0; j < m; j++)                                                        \
                buf[j] = *(const T *)(p + (i + j) * s);                                            \
            sum_dense_##S(a, buf, m);                                                              \
        }                                                                                          \
    }                                                                                              \
    /* t[0..w) = the sums of up to ROW_BLOCK rows, eight at a time in a tree. */                   \
    CTI_INLINE void col_block_##S(T *restrict t, const char *p, int64_t rows, int64_t rs,          \
                                  int64_t w)                                                       \
    {                                                                                              \
        int64_t r = 0;                                                                             \
        for (int64_t j = 0; j < w; j++)                                                            \
            t[j] = 0;                                                                              \
        for (; r + 8 <= rows; r += 8) {                                                            \
            const T *x0 = (const T *)(p + r * rs), *x1 = (const T *)(p + (r + 1) * rs);            \
            const T *x2 = (const T *)(p + (r + 2) * rs), *x3 = (const T *)(p + (r + 3) * rs);      \
            const T *x4 = (const T *)(p + (r + 4) * rs), *x5 = (const T *)(p + (r + 5) * rs);      \
            const T *x6 = (const T *)(p + (r + 6) * rs), *x7 = (const T *)(p + (r + 7) * rs);      \
            for (int64_t j = 0; j < w; j++)                                                        \
                t[j] += ((x0[j] + x1[j]) + (x2[j] + x3[j])) + ((x4[j] + x5[j]) + (x6[j] + x7[j])); \
        }                                                                                          \
        for (; r < rows; r++) {                                                                    \
            const T *x0 = (const T *)(p + r * rs);                                                 \
            for (int64_t j = 0; j < w; j++)                                                        \
                t[j] += x0[j];                                                                     \
        }                                                                                          \
    }                                                                                              \
    static CTI_ISA void sum_col_##S(acc *a, const char *p, int64_t rows, int64_t rs, int64_t n)    \
    {                                                                                              \
        T t[WIDE];                                                                                 \
        int64_t fold = rs == n * (int64_t)sizeof(T) ? WIDE / n : 0;                                \
        if (fold > 1) { /* narrow dense rows: several side by side */                              \
            int64_t w = fold * n, many = rows / fold;                                              \
            for (int64_t r = 0; r < many; r += ROW_BLOCK) {                                        \
                col_block_##S(t, p + r * fold * rs, CTI_MIN(ROW_BLOCK, many - r), fold * rs, w);   \
                for (int64_t k = 0; k < fold; k++)                                                 \
                    for (int64_t j = 0; j < n; j++)                                                \
                        a[j].f += (double)t[k * n + j];                                            \
            }                                                                                      \
            p += many * fold * rs;                                                                 \
            rows -= many * fold;                                                                   \
        }                                                                                          \
        for (int64_t c = 0; c < n; c += WIDE) {                                                    \
            int64_t w = CTI_MIN(WIDE, n - c);                                                      \
            for (int64_t r = 0; r < rows; r += ROW_BLOCK) {                                        \
                col_block_##S(t, p + c * (int64_t)sizeof(T) + r * rs,                              \
                              CTI_MIN(ROW_BLOCK, rows - r), rs, w);                                \
                for (int64_t j = 0; j < w; j++)                                                    \
                    a[c + j].f += (double)t[j];                                                    \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void store_##S(char *y, const acc *a, int beta, double scale)                           \
    {                                                                                              \
        T v = (T)(a->f * scale);                                                                   \
        *(T *)y = beta ? *(T *)y + v : v;                                                          \
    }

FLOAT_SUM(float, f32)
FLOAT_SUM(double, f64)
#undef FLOAT_SUM
#undef FOLD

/* ---- max, min: NaN wins ---- */
#define EXTREME(name, OP, T, S)                                                            \
    static CTI_ISA void name##_dense_##S(acc *a, const T *x, int64_t n)                    \
    {                                                                                      \
        T best = (T)a->f, t[LANES];                                                        \
        int64_t i = 0;                                                                     \
        for (int j = 0; j < LANES; j++)                                                    \
            t[j] = best;                                                                   \
        for (; i + LANES <= n; i += LANES)                                                 \
            for (int j = 0; j < LANES; j++)                                                \
                t[j] = x[i + j] OP t[j] || x[i + j] != x[i + j] ? x[i + j] : t[j];         \
        for (; i < n; i++)                                                                 \
            best = x[i] OP best || x[i] != x[i] ? x[i] : best;                             \
        for (int j = 0; j < LANES; j++)                                                    \
            best = t[j] OP best || t[j] != t[j] ? t[j] : best;                             \
        a->f = (double)best;                                                               \
    }                                                                                      \
    static void name##_row_##S(acc *a, const char *p, int64_t n, int64_t s)                \
    {                                                                                      \
        T best = (T)a->f;                                                                  \
        if (s == (int64_t)sizeof(T)) {                                                     \
            name##_dense_##S(a, (const T *)p, n);                                          \
            return;                                                                        \
        }                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                  \
            T v = *(const T *)(p + i * s);                                                 \
            best = v OP best || v != v ? v : best;                                         \
        }                                                                                  \
        a->f = (double)best;                                                               \
    }                                                                                      \
    static void name##_col_##S(acc *a, const char *p, int64_t rows, int64_t rs, int64_t n) \
    {                                                                                      \
        for (int64_t r = 0; r < rows; r++) {                                               \
            const T *x = (const T *)(p + r * rs);                                          \
            for (int64_t j = 0; j < n; j++) {                                              \
                double v = (double)x[j];                                                   \
                a[j].f = v OP a[j].f || v != v ? v : a[j].f;                               \
            }                                                                              \
        }                                                                                  \
    }

EXTREME(max, >, float, f32)
EXTREME(max, >, double, f64)
EXTREME(min, <, float, f32)
EXTREME(min, <, double, f64)
#undef EXTREME

/* ---- sums of integers ---- */
#define INT_SUM(T, S)                                                    \
    static void sum_row_##S(acc *a, const char *p, int64_t n, int64_t s) \
    {                                                                    \
        uint64_t t = (uint64_t)a->i;                                     \
        for (int64_t i = 0; i < n; i++)                                  \
            t += (uint64_t) * (const T *)(p + i * s);                    \
        a->i = (int64_t)t;                                               \
    }

INT_SUM(uint8_t, u8)
INT_SUM(int32_t, i32)
INT_SUM(int64_t, i64)
#undef INT_SUM

static void store_i64(char *y, const acc *a, int beta, double scale)
{
    int64_t v = scale == 1 ? a->i : cti_i64_from_f64((double)a->i * scale);
    *(int64_t *)y = beta ? *(int64_t *)y + v : v;
}

static void join_sum(acc *a, const acc *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i].f += b[i].f;
}

static void join_int(acc *a, const acc *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i].i = (int64_t)((uint64_t)a[i].i + (uint64_t)b[i].i);
}

static void join_max(acc *a, const acc *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i].f = b[i].f > a[i].f || b[i].f != b[i].f ? b[i].f : a[i].f;
}

static void join_min(acc *a, const acc *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i].f = b[i].f < a[i].f || b[i].f != b[i].f ? b[i].f : a[i].f;
}

static const kernels *kernels_of(ct_reduce op, ct_dtype t)
{
    static const kernels k[CT_RED_COUNT][2] = {
        [CT_RED_SUM] = {{sum_row_f32, sum_col_f32, join_sum, store_f32, {.f = 0}},
                        {sum_row_f64, sum_col_f64, join_sum, store_f64, {.f = 0}}},
        [CT_RED_MAX] = {{max_row_f32, max_col_f32, join_max, store_f32, {.f = -INFINITY}},
                        {max_row_f64, max_col_f64, join_max, store_f64, {.f = -INFINITY}}},
        [CT_RED_MIN] = {{min_row_f32, min_col_f32, join_min, store_f32, {.f = INFINITY}},
                        {min_row_f64, min_col_f64, join_min, store_f64, {.f = INFINITY}}}};
    static const kernels u8 = {sum_row_u8, NULL, join_int, store_i64, {.i = 0}};
    static const kernels i32 = {sum_row_i32, NULL, join_int, store_i64, {.i = 0}};
    static const kernels i64 = {sum_row_i64, NULL, join_int, store_i64, {.i = 0}};

    if (t == CT_F32 || t == CT_F64)
        return &k[op][t == CT_F64];
    if (op != CT_RED_SUM)
        return NULL;
    if (t == CT_BOOL || t == CT_U8)
        return &u8;
    return t == CT_I32 ? &i32 : t == CT_I64 ? &i64 : NULL;
}

/* ---- the plan ---- */
typedef struct plan {
    const kernels *k;
    cti_loop kept; /* x, y */
    cti_loop red;  /* x */
    int64_t width; /* columns: kept elements in a row; rows: 1 */
    int64_t outs, tiles, chunk, chunks;
    bool columns;
    int beta;
    double scale;
    acc *partial; /* [outs][chunks][width] */
} plan;

static void plan_init(plan *p, const kernels *k, const ct_view *y, const ct_view *x)
{
    const ct_view *v[] = {x, y};
    unsigned kept = 0, all = (1u << x->ndim) - 1;
    int64_t esize = (int64_t)ct_dtype_bytes(x->dtype), in_kept, in_red;

    for (int d = 0; d < x->ndim; d++)
        if (y->shape[d] == x->shape[d])
            kept |= 1u << d;
    p->k = k;
    cti_loop_init_dims(&p->kept, 2, v, kept, true);
    cti_loop_init_dims(&p->red, 1, v, all & ~kept, true);
    in_kept = p->kept.stride[0][p->kept.ndim - 1];
    in_red = p->red.stride[0][p->red.ndim - 1];
    p->width = p->kept.shape[p->kept.ndim - 1];
    p->columns = k->col && in_kept == esize && p->width >= 4 && cti_abs64(in_red) > in_kept;
    if (!p->columns)
        p->width = 1;
    p->outs = p->kept.numel / (p->width ? p->width : 1);
    p->tiles = cti_ceil_div(p->width, TILE);
    p->chunk = p->red.numel;
    if (p->outs * p->tiles < TASKS && p->red.numel * p->width >= 4 * MIN_CHUNK) {
        int64_t least = p->columns ? 4 * ROW_BLOCK : MIN_CHUNK;
        p->chunk = cti_ceil_div(cti_ceil_div(p->red.numel, TASKS), least) * least;
    }
    p->chunks = p->chunk > 0 ? cti_ceil_div(p->red.numel, p->chunk) : 1;
}

static size_t reduce_workspace(ct_stream *s, ct_reduce op, const ct_view *y, const ct_view *x)
{
    const kernels *k = kernels_of(op, x->dtype);
    plan p;

    (void)s;
    if (!k)
        return 0;
    plan_init(&p, k, y, x);
    return p.chunks > 1 ? (size_t)(p.outs * p.chunks * p.width) * sizeof(acc) : 0;
}

/* Spans of the reduced elements of one output. */
typedef struct fold_arg {
    const plan *p;
    acc *a;
    int64_t n;
} fold_arg;

static void fold_rows(const cti_span *sp, const void *arg)
{
    const fold_arg *f = arg;
    for (int64_t r = 0; r < sp->rows; r++)
        f->p->k->row(f->a, sp->p[0] + r * sp->rs[0], sp->n, sp->s[0]);
}

static void fold_columns(const cti_span *sp, const void *arg)
{
    const fold_arg *f = arg;
    for (int64_t r = 0; r < sp->rows; r++)
        f->p->k->col(f->a, sp->p[0] + r * sp->rs[0], sp->n, sp->s[0], f->n);
}

/* Task: an output (row), a tile of its columns, a chunk of the reduced elements. */
static void chunk_task(void *ctx, int64_t begin, int64_t end)
{
    const plan *p = ctx;
    int64_t esize = p->kept.stride[0][p->kept.ndim - 1],
            ysize = p->kept.stride[1][p->kept.ndim - 1];
    acc a[TILE];

    for (int64_t t = begin; t < end; t++) {
        int64_t chunk = t % p->chunks, tile = t / p->chunks % p->tiles;
        int64_t out = t / p->chunks / p->tiles, col = tile * TILE;
        int64_t n = CTI_MIN(TILE, p->width - col), first = out * p->width;
        fold_arg f = {p, a, n};
        cti_loop l = p->red;
        for (int64_t j = 0; j < n; j++)
            a[j] = p->k->init;
        l.data[0] = p->kept.data[0] + cti_loop_offset(&p->kept, 0, first) + col * esize;
        cti_loop_range(&l, chunk * p->chunk, CTI_MIN((chunk + 1) * p->chunk, l.numel),
                       p->columns ? fold_columns : fold_rows, &f);
        if (p->chunks > 1) {
            memcpy(p->partial + (out * p->chunks + chunk) * p->width + col, a,
                   (size_t)n * sizeof *a);
            continue;
        }
        char *y = p->kept.data[1] + cti_loop_offset(&p->kept, 1, first) + col * ysize;
        for (int64_t j = 0; j < n; j++)
            p->k->store(y + j * ysize, &a[j], p->beta, p->scale);
    }
}

/* Many outputs, one run of reduced elements each: no index arithmetic per output. */
static void short_rows(const cti_span *sp, const void *arg)
{
    const plan *p = arg;
    int64_t n = p->red.shape[0], s = p->red.stride[0][0];

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++) {
            acc a = p->k->init;
            p->k->row(&a, sp->p[0] + r * sp->rs[0] + i * sp->s[0], n, s);
            p->k->store(sp->p[1] + r * sp->rs[1] + i * sp->s[1], &a, p->beta, p->scale);
        }
}

static void short_rows_task(void *ctx, int64_t begin, int64_t end)
{
    const plan *p = ctx;
    cti_loop_range(&p->kept, begin, end, short_rows, p);
}

static void join_chunks(const plan *p)
{
    for (int64_t out = 0; out < p->outs; out++) {
        acc *a = p->partial + out * p->chunks * p->width;
        int64_t ysize = p->kept.stride[1][p->kept.ndim - 1];
        char *y = p->kept.data[1] + cti_loop_offset(&p->kept, 1, out * p->width);
        for (int64_t c = 1; c < p->chunks; c++)
            p->k->join(a, a + c * p->width, p->width);
        for (int64_t j = 0; j < p->width; j++)
            p->k->store(y + j * ysize, &a[j], p->beta, p->scale);
    }
}

static int reduce(ct_stream *s, ct_reduce op, const ct_view *y, int beta, const ct_view *x,
                  double scale, void *workspace)
{
    const kernels *k = kernels_of(op, x->dtype);
    bool isfloat = x->dtype == CT_F32 || x->dtype == CT_F64;
    int64_t work;
    plan p;

    if (!k || y->dtype != (isfloat ? x->dtype : CT_I64))
        return CT_EDTYPE;
    plan_init(&p, k, y, x);
    if (p.kept.numel == 0)
        return CT_OK;
    p.beta = beta;
    p.scale = scale;
    p.partial = workspace;
    work = p.kept.numel * p.red.numel;
    if (!p.columns && p.chunks == 1 && p.red.ndim == 1 && p.red.numel > 0) {
        cti_parallel(s, p.outs, work, short_rows_task, &p);
        return CT_OK;
    }
    cti_parallel(s, p.outs * p.tiles * p.chunks, work, chunk_task, &p);
    if (p.chunks > 1)
        join_chunks(&p);
    return CT_OK;
}

/* ---- argmax ---- */
typedef struct argmax_arg {
    int64_t n, stride;
    ct_dtype dtype;
} argmax_arg;

#define ARGMAX(T, S)                                               \
    static int64_t argmax_##S(const char *p, int64_t n, int64_t s) \
    {                                                              \
        T best = *(const T *)p;                                    \
        int64_t at = 0;                                            \
        for (int64_t i = 1; i < n && best == best; i++) {          \
            T v = *(const T *)(p + i * s);                         \
            if (v > best || v != v) {                              \
                best = v;                                          \
                at = i;                                            \
            }                                                      \
        }                                                          \
        return at;                                                 \
    }

ARGMAX(uint8_t, u8)
ARGMAX(int32_t, i32)
ARGMAX(int64_t, i64)
ARGMAX(float, f32)
ARGMAX(double, f64)
#undef ARGMAX

static void argmax_span(const cti_span *sp, const void *arg)
{
    static int64_t (*const f[CT_DTYPE_COUNT])(const char *, int64_t, int64_t) = {
        [CT_BOOL] = argmax_u8, [CT_U8] = argmax_u8,   [CT_I32] = argmax_i32,
        [CT_I64] = argmax_i64, [CT_F32] = argmax_f32, [CT_F64] = argmax_f64};
    const argmax_arg *a = arg;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++)
            *(int64_t *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]) =
                f[a->dtype](sp->p[1] + r * sp->rs[1] + i * sp->s[1], a->n, a->stride);
}

typedef struct argmax_job {
    cti_loop l;
    argmax_arg arg;
} argmax_job;

static void argmax_task(void *ctx, int64_t begin, int64_t end)
{
    const argmax_job *j = ctx;
    cti_loop_range(&j->l, begin, end, argmax_span, &j->arg);
}

static int argmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim)
{
    const ct_view *v[] = {y, x};
    bool dim0 = x->ndim == 0;
    argmax_job j;

    if (y->dtype != CT_I64 || x->dtype == CT_F16 || x->dtype == CT_BF16)
        return CT_EDTYPE;
    j.arg.n = dim0 ? 1 : x->shape[dim];
    j.arg.stride = dim0 ? 0 : x->stride[dim] * (int64_t)ct_dtype_bytes(x->dtype);
    j.arg.dtype = x->dtype;
    cti_loop_init_dims(&j.l, 2, v, dim0 ? 0 : ~(1u << dim), true);
    if (j.arg.n > 0)
        cti_parallel(s, j.l.numel, j.l.numel * j.arg.n, argmax_task, &j);
    return CT_OK;
}

const ct_k_reduce cti_cpu_reduce = {
    .workspace = reduce_workspace,
    .reduce = reduce,
    .argmax = argmax,
    .scan = cti_cpu_scan,
    .sort_workspace = cti_cpu_sort_workspace,
    .sort = cti_cpu_sort,
};
