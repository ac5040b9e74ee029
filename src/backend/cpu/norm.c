/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm. Channels-last (and [N,C]) goes by rows of channels at memory speed; narrow rows are taken
 * several side by side. Any other layout goes channel by channel. Blocks and tasks follow from the shape
 * alone, so bytes don't depend on the threads. */
#include "backend/cpu/loop.h"
#include "backend/cpu/template.h"
#include "backend/cpu/rows.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 1024,
    ROW_BLOCK = 64,
    WIDE = 64, /* columns of a block: a block stays in the first cache for its second pass */
    TASKS = 16 /* along the rows */
};

/* One channel: statistics, and what the elementwise passes need. */
typedef struct channel {
    int64_t n;
    double mean, m2;        /* forward */
    double scale, shift;    /* y = (x - mean) scale + shift */
    double sum, dot, gm, k; /* backward: sums of dy, dy (x - mean); see grad_rows */
    int beta;
} channel;

#define T   float
#define S   f32
#define ISA CTI_ISA
#include "backend/cpu/norm_t.h"
#define T double
#define S f64
#define ISA
#include "backend/cpu/norm_t.h"

typedef struct job {
    bool f64, rows_path;
    int nop;
    cti_loop l;                        /* over all but the channels */
    int64_t channels, n;               /* n: elements of a channel */
    int64_t cs[3];                     /* channel strides of the operands, in bytes */
    int64_t fold, width, rows, blocks; /* rows of `width` columns */
    int64_t tasks, task_rows, tiles;
    double *a, *b; /* [tasks][width]: mean, m2, or sum, dot */
    char *vectors; /* 4 x [width] of T */
    channel *ch;   /* [channels] */
    int beta;
    int phase;
} job;

static int64_t esize(const job *j)
{
    return j->f64 ? 8 : 4;
}

/* Channels-last rows can be folded while they divide evenly. */
static void job_init(job *j, int nop, const ct_view *const *v, void *workspace)
{
    int64_t width;

    *j = (job){.f64 = v[0]->dtype == CT_F64, .nop = nop, .channels = v[0]->shape[1], .fold = 1};
    cti_loop_init_dims(&j->l, nop, v, ~2u, true);
    j->n = j->l.numel;
    j->rows_path = j->l.ndim == 1 && j->channels > 1;
    bool dense = true;
    for (int o = 0; o < nop; o++) {
        j->cs[o] = v[o]->stride[1] * esize(j);
        j->rows_path = j->rows_path && v[o]->stride[1] == 1;
        dense = dense && j->l.stride[o][0] == j->channels * esize(j);
    }
    if (dense && j->rows_path)
        for (int64_t f = WIDE / CTI_MAX(1, j->channels); f > 1 && j->fold == 1; f--)
            j->fold = j->n % f == 0 ? f : 1;
    j->width = width = j->channels * j->fold;
    j->rows = j->n / j->fold;
    j->blocks = cti_ceil_div(j->rows, ROW_BLOCK);
    j->task_rows = CTI_MAX(1, cti_ceil_div(j->blocks, TASKS)) * ROW_BLOCK;
    j->tasks = cti_ceil_div(j->rows, j->task_rows);
    j->tiles = cti_ceil_div(width, WIDE);
    j->ch = workspace;
    j->a = (double *)(j->ch + j->channels);
    j->b = j->a + TASKS * width;
    j->vectors = (char *)(j->b + TASKS * width);
    for (int64_t c = 0; c < j->channels; c++)
        j->ch[c] = (channel){0};
}

static size_t batchnorm_workspace(ct_stream *s, const ct_view *x)
{
    int64_t c = x->shape[1], width = CTI_MAX(c, WIDE);

    (void)s;
    return (size_t)c * sizeof(channel) + (size_t)((2 * TASKS + 4) * width) * sizeof(double);
}

static char *row_of(const job *j, int op, int64_t row)
{
    return j->l.data[op] + row * j->l.stride[op][0] * j->fold;
}

static int64_t row_stride(const job *j, int op)
{
    return j->l.stride[op][0] * j->fold;
}

/* ---- statistics ---- */
static void stats_rows_task(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;

    for (int64_t t = begin; t < end; t++) {
        int64_t task = t % j->tasks, col = t / j->tasks * WIDE, w = CTI_MIN(WIDE, j->width - col);
        int64_t first = task * j->task_rows, last = CTI_MIN(first + j->task_rows, j->rows);
        double *mean = j->a + task * j->width + col, *m2 = j->b + task * j->width + col;
        memset(mean, 0, (size_t)w * sizeof *mean);
        memset(m2, 0, (size_t)w * sizeof *m2);
        for (int64_t r = first; r < last; r += ROW_BLOCK)
            (j->f64 ? stats_block_f64 :
                      stats_block_f32)(row_of(j, 0, r) + col * esize(j), row_stride(j, 0),
                                       CTI_MIN(ROW_BLOCK, last - r), w, r - first, mean, m2);
    }
}

static CTI_ISA void join_stats(double *mean, double *m2, const double *mean2, const double *m22,
                               int64_t w, double n1, double n2)
{
    double share = n2 / (n1 + n2), both = n1 * share;

    for (int64_t i = 0; i < w; i++) {
        double delta = mean2[i] - mean[i];
        m2[i] += m22[i] + delta * delta * both;
        mean[i] += delta * share;
    }
}

static void stats_channels_task(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;

    for (int64_t c = begin; c < end; c++) {
        channel *at = &j->ch[c];
        cti_loop l = j->l;
        l.data[0] += c * j->cs[0];
        cti_loop_range(&l, 0, l.numel, j->f64 ? stats_span_f64 : stats_span_f32, &at);
    }
}

static void statistics(const ct_stream *s, job *j)
{
    if (!j->rows_path) {
        cti_parallel(s, j->channels, j->channels * j->n, stats_channels_task, j);
        return;
    }
    cti_parallel(s, j->tasks * j->tiles, j->channels * j->n, stats_rows_task, j);
    for (int64_t t = 1; t < j->tasks; t++) {
        int64_t n2 = CTI_MIN(j->task_rows, j->rows - t * j->task_rows);
        join_stats(j->a, j->b, j->a + t * j->width, j->b + t * j->width, j->width,
                   (double)(t * j->task_rows), (double)n2);
    }
    for (int64_t f = 1; f < j->fold; f++)
        join_stats(j->a, j->b, j->a + f * j->channels, j->b + f * j->channels, j->channels,
                   (double)(f * j->rows), (double)j->rows);
    for (int64_t c = 0; c < j->channels; c++) {
        j->ch[c].mean = j->a[c];
        j->ch[c].m2 = j->b[c];
    }
}

/* ---- the elementwise passes ---- */
static void vectors_set(job *j, int which, int64_t c, double value)
{
    void *v = j->vectors + which * j->width * esize(j);
    (j->f64 ? vector_set_f64 : vector_set_f32)(v, c, j->channels, j->fold, value);
}

static void apply_rows_task(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    int64_t step = j->width * esize(j);
    char *v = j->vectors;

    (j->f64 ? apply_rows_f64 : apply_rows_f32)(row_of(j, 1, begin), row_stride(j, 1),
                                               row_of(j, 0, begin), row_stride(j, 0), end - begin,
                                               j->width, v, v + step, v + 2 * step);
}

static void apply_channels_task(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;

    for (int64_t c = begin; c < end; c++) {
        cti_loop l = j->l;
        l.data[0] += c * j->cs[0];
        l.data[1] += c * j->cs[1];
        cti_loop_range(&l, 0, l.numel, j->f64 ? apply_span_f64 : apply_span_f32, &j->ch[c]);
    }
}

static void apply(const ct_stream *s, job *j)
{
    if (!j->rows_path) {
        cti_parallel(s, j->channels, j->channels * j->n, apply_channels_task, j);
        return;
    }
    for (int64_t c = 0; c < j->channels; c++) {
        vectors_set(j, 0, c, j->ch[c].mean);
        vectors_set(j, 1, c, j->ch[c].scale);
        vectors_set(j, 2, c, j->ch[c].shift);
    }
    cti_parallel(s, j->rows, j->channels * j->n, apply_rows_task, j);
}

/* Vectors of [C]; NULL reads as `otherwise`. */
static double vec_get(const ct_view *v, int64_t c, double otherwise)
{
    if (!v)
        return otherwise;
    if (v->dtype == CT_F32)
        return (double)((const float *)v->data)[c * v->stride[0]];
    return ((const double *)v->data)[c * v->stride[0]];
}

static void vec_set(const ct_view *v, int64_t c, double x)
{
    if (v->dtype == CT_F32)
        ((float *)v->data)[c * v->stride[0]] = (float)x;
    else
        ((double *)v->data)[c * v->stride[0]] = x;
}

static bool dtypes_fit(ct_dtype t, int n, const ct_view *const *v)
{
    for (int i = 0; i < n; i++)
        if (v[i] && v[i]->dtype != t)
            return false;
    return t == CT_F32 || t == CT_F64;
}

static int args_fit(const ct_batchnorm_args *a)
{
    const ct_view *v[] = {&a->y,      a->weight,       a->bias,       &a->mean,
                          &a->invstd, a->running_mean, a->running_var};
    return dtypes_fit(a->x.dtype, 7, v);
}

static void running_update(const ct_view *v, int64_t c, double momentum, double x)
{
    if (v)
        vec_set(v, c, (1 - momentum) * vec_get(v, c, 0) + momentum * x);
}

static int batchnorm_train(ct_stream *s, const ct_batchnorm_args *a)
{
    const ct_view *v[] = {&a->x, &a->y};
    double n;
    job j;

    if (!args_fit(a))
        return CT_EDTYPE;
    job_init(&j, 2, v, a->workspace);
    if (j.n == 0 || j.channels == 0)
        return CT_OK;
    statistics(s, &j);
    n = (double)j.n;
    for (int64_t c = 0; c < j.channels; c++) {
        channel *k = &j.ch[c];
        double invstd = 1 / sqrt(k->m2 / n + a->eps);
        vec_set(&a->mean, c, k->mean);
        vec_set(&a->invstd, c, invstd);
        running_update(a->running_mean, c, a->momentum, k->mean);
        running_update(a->running_var, c, a->momentum, k->m2 / (n > 1 ? n - 1 : 1));
        k->scale = invstd * vec_get(a->weight, c, 1);
        k->shift = vec_get(a->bias, c, 0);
    }
    apply(s, &j);
    return CT_OK;
}

static int batchnorm_eval(ct_stream *s, const ct_batchnorm_args *a)
{
    const ct_view *v[] = {&a->x, &a->y};
    job j;

    if (!args_fit(a))
        return CT_EDTYPE;
    job_init(&j, 2, v, a->workspace);
    for (int64_t c = 0; c < j.channels; c++) {
        channel *k = &j.ch[c];
        double invstd = 1 / sqrt(vec_get(a->running_var, c, 1) + a->eps);
        k->mean = vec_get(a->running_mean, c, 0);
        vec_set(&a->mean, c, k->mean);
        vec_set(&a->invstd, c, invstd);
        k->scale = invstd * vec_get(a->weight, c, 1);
        k->shift = vec_get(a->bias, c, 0);
    }
    if (j.n > 0)
        apply(s, &j);
    return CT_OK;
}

/* ---- backward ---- Operands: dy, x, and dx where wanted. */
static void grad_sum_rows_task(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;

    for (int64_t t = begin; t < end; t++) {
        int64_t task = t % j->tasks, col = t / j->tasks * WIDE, w = CTI_MIN(WIDE, j->width - col);
        int64_t first = task * j->task_rows, last = CTI_MIN(first + j->task_rows, j->rows);
        double *sum = j->a + task * j->width + col, *dot = j->b + task * j->width + col;
        int64_t off = col * esize(j);
        memset(sum, 0, (size_t)w * sizeof *sum);
        memset(dot, 0, (size_t)w * sizeof *dot);
        for (int64_t r = first; r < last; r += ROW_BLOCK)
            (j->f64 ? grad_block_f64 : grad_block_f32)(
                row_of(j, 0, r) + off, row_stride(j, 0), row_of(j, 1, r) + off, row_stride(j, 1),
                CTI_MIN(ROW_BLOCK, last - r), w, j->vectors + off, sum, dot);
    }
}

static void grad_channels_task(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;

    for (int64_t c = begin; c < end; c++) {
        channel *at = &j->ch[c];
        cti_loop l = j->l;
        for (int o = 0; o < j->nop; o++)
            l.data[o] += c * j->cs[o];
        if (j->phase == 0)
            cti_loop_range(&l, 0, l.numel, j->f64 ? grad_sum_span_f64 : grad_sum_span_f32, &at);
        else
            cti_loop_range(&l, 0, l.numel, j->f64 ? grad_span_f64 : grad_span_f32, at);
    }
}

static void grad_sums(const ct_stream *s, job *j)
{
    if (!j->rows_path) {
        j->phase = 0;
        cti_parallel(s, j->channels, j->channels * j->n, grad_channels_task, j);
        return;
    }
    for (int64_t c = 0; c < j->channels; c++)
        vectors_set(j, 0, c, j->ch[c].mean);
    cti_parallel(s, j->tasks * j->tiles, j->channels * j->n, grad_sum_rows_task, j);
    for (int64_t t = 0; t < j->tasks; t++)
        for (int64_t f = 0; f < j->fold; f++) {
            const double *a = j->a + t * j->width + f * j->channels;
            const double *b = j->b + t * j->width + f * j->channels;
            for (int64_t c = 0; c < j->channels; c++) {
                j->ch[c].sum += a[c];
                j->ch[c].dot += b[c];
            }
        }
}

static void grad_rows_task(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;

    (j->f64 ? grad_rows_f64 : grad_rows_f32)(
        row_of(j, 2, begin), row_stride(j, 2), j->beta, row_of(j, 0, begin), row_stride(j, 0),
        row_of(j, 1, begin), row_stride(j, 1), end - begin, j->width, j->vectors, j->width);
}

static void grad_apply(const ct_stream *s, job *j)
{
    if (!j->rows_path) {
        j->phase = 1;
        cti_parallel(s, j->channels, j->channels * j->n, grad_channels_task, j);
        return;
    }
    for (int64_t c = 0; c < j->channels; c++) {
        vectors_set(j, 0, c, j->ch[c].mean);
        vectors_set(j, 1, c, j->ch[c].scale);
        vectors_set(j, 2, c, j->ch[c].gm);
        vectors_set(j, 3, c, j->ch[c].k);
    }
    cti_parallel(s, j->rows, j->channels * j->n, grad_rows_task, j);
}

static int batchnorm_grad(ct_stream *s, bool train, const ct_view *dx, int beta, const ct_view *dw,
                          const ct_view *db, const ct_view *dy, const ct_view *x,
                          const ct_view *weight, const ct_view *mean, const ct_view *invstd,
                          void *workspace)
{
    const ct_view *v[] = {dy, x, dx}, *all[] = {dx, dw, db, dy, weight, mean, invstd};
    job j;

    if (!dtypes_fit(x->dtype, 7, all))
        return CT_EDTYPE;
    job_init(&j, dx ? 3 : 2, v, workspace);
    j.beta = beta;
    for (int64_t c = 0; c < j.channels; c++) {
        j.ch[c].mean = vec_get(mean, c, 0);
        j.ch[c].beta = beta;
    }
    if (j.n > 0 && (dw || db || train))
        grad_sums(s, &j);
    for (int64_t c = 0; c < j.channels; c++) {
        channel *k = &j.ch[c];
        double inv = vec_get(invstd, c, 1), n = (double)j.n;
        if (dw)
            vec_set(dw, c, k->dot * inv);
        if (db)
            vec_set(db, c, k->sum);
        k->scale = inv * vec_get(weight, c, 1);
        k->gm = train && j.n > 0 ? k->sum / n : 0;
        k->k = train && j.n > 0 ? k->dot * inv * inv / n : 0;
    }
    if (dx && j.n > 0)
        grad_apply(s, &j);
    return CT_OK;
}

const ct_k_norm cti_cpu_norm = {
    .batchnorm_workspace = batchnorm_workspace,
    .batchnorm_train = batchnorm_train,
    .batchnorm_eval = batchnorm_eval,
    .batchnorm_grad = batchnorm_grad,
    .rownorm = cti_cpu_rownorm,
    .rownorm_grad = cti_cpu_rownorm_grad,
};
