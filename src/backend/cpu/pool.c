/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling. Windows as PyTorch has them: clipped to the input, in ceil mode they may hang over the padded
 * end; the divisor of avg counts padding only up to there. */
#include "backend/cpu/parallel.h"
#include "backend/cpu/template.h"

#include <math.h>

enum { LANES = 64, FEW = 16 };

typedef struct geometry {
    int64_t N, C, H, W, P, Q;
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t xs[4], ys[4], is[4]; /* strides in elements: of x or dx, y or dy, index */
    bool include_pad, adaptive, dense;
    int beta;
} geometry;

/* Cells [first, last) of one axis. */
typedef struct window {
    int64_t first, last, divisor;
} window;

/* The cells of window `at` that lie in the input. */
CTI_INLINE window window_of(const geometry *g, int axis, int64_t at)
{
    int64_t size = axis ? g->W : g->H, count = axis ? g->Q : g->P;
    int64_t k = g->kernel[axis], d = g->dilation[axis], pad = g->pad[axis];
    window r;

    if (g->adaptive) {
        r.first = at * size / count;
        r.last = cti_ceil_div((at + 1) * size, count);
        r.divisor = r.last - r.first;
        return r;
    }
    r.first = at * g->stride[axis] - pad;
    r.last = r.first + (k - 1) * d + 1;
    r.divisor = CTI_MIN(r.last, size + pad) - r.first;
    if (r.first < 0)
        r.first += cti_ceil_div(-r.first, d) * d;
    r.last = CTI_MIN(r.last, size);
    if (!g->include_pad)
        r.divisor = r.last - r.first;
    return r;
}

/* The windows [first, last) that may hold cell `at` (with dilation some don't). */
CTI_INLINE window covering(const geometry *g, int axis, int64_t at)
{
    int64_t size = axis ? g->W : g->H, count = axis ? g->Q : g->P;
    uint32_t s = (uint32_t)g->stride[axis]; /* 64-bit divisions would cost more than the sums */
    int64_t reach = (g->kernel[axis] - 1) * g->dilation[axis], from = at + g->pad[axis];
    window r = {0, 0, 0};

    if (g->adaptive) {
        r.first = at * count / size;
        r.last = CTI_MIN(count, cti_ceil_div((at + 1) * count, size));
        return r;
    }
    r.first = from > reach ? (int64_t)((uint32_t)(from - reach + s - 1) / s) : 0;
    r.last = CTI_MIN(count, (int64_t)((uint32_t)from / s) + 1);
    return r;
}

#define T   float
#define S   f32
#define ISA CTI_ISA
#include "backend/cpu/pool_t.h"
#define T double
#define S f64
#define ISA
#include "backend/cpu/pool_t.h"

typedef struct job {
    geometry g;
    bool f64, avg;
    char *x, *y;
    int32_t *index;
} job;

static int job_init(job *j, const ct_pool_args *a, const ct_view *x, const ct_view *y,
                    const ct_view *index, bool avg, int beta)
{
    geometry *g = &j->g;

    if ((x->dtype != CT_F32 && x->dtype != CT_F64) || y->dtype != x->dtype ||
        (index && index->dtype != CT_I32))
        return CT_EDTYPE;
    *j = (job){.f64 = x->dtype == CT_F64, .avg = avg, .x = x->data, .y = y->data};
    *g = (geometry){.N = x->shape[0],
                    .C = x->shape[1],
                    .H = x->shape[2],
                    .W = x->shape[3],
                    .P = y->shape[2],
                    .Q = y->shape[3],
                    .beta = beta};
    g->adaptive = avg && a->adaptive;
    g->include_pad = a->count_include_pad;
    for (int i = 0; i < 2; i++) {
        g->kernel[i] = a->kernel[i];
        g->stride[i] = g->adaptive ? 1 : a->stride[i];
        g->pad[i] = a->pad[i];
        g->dilation[i] = avg ? 1 : a->dilation[i];
    }
    for (int i = 0; i < 4; i++) {
        g->xs[i] = x->stride[i];
        g->ys[i] = y->stride[i];
        g->is[i] = index ? index->stride[i] : 0;
    }
    j->index = index ? index->data : NULL;
    g->dense = x->stride[1] == 1 && y->stride[1] == 1 && (!index || index->stride[1] == 1);
    return CT_OK;
}

static char *at_x(const job *j, int64_t off)
{
    return j->x + off * (j->f64 ? 8 : 4);
}

static char *at_y(const job *j, int64_t off)
{
    return j->y + off * (j->f64 ? 8 : 4);
}

/* Task: a row of windows of one image. */
static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    const geometry *g = &j->g;

    for (int64_t t = begin; t < end; t++) {
        int64_t n = t / g->P, p = t % g->P;
        char *x = at_x(j, n * g->xs[0]), *y = at_y(j, n * g->ys[0] + p * g->ys[2]);
        int32_t *index = j->index ? j->index + n * g->is[0] + p * g->is[2] : NULL;
        if (j->avg)
            (j->f64 ? avg_row_f64 : avg_row_f32)(g, x, y, p);
        else
            (j->f64 ? max_row_f64 : max_row_f32)(g, x, y, index, p);
    }
}

/* Task: a row of input cells of one image. */
static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    const geometry *g = &j->g;

    for (int64_t t = begin; t < end; t++) {
        int64_t n = t / g->H, h = t % g->H;
        char *dx = at_x(j, n * g->xs[0] + h * g->xs[2]), *dy = at_y(j, n * g->ys[0]);
        if (j->avg)
            (j->f64 ? avg_grad_row_f64 : avg_grad_row_f32)(g, dx, dy, h);
        else
            (j->f64 ? max_grad_row_f64 : max_grad_row_f32)(g, dx, dy, j->index + n * g->is[0], h);
    }
}

static int run(ct_stream *s, job *j, cti_task_fn fn, int64_t rows)
{
    const geometry *g = &j->g;
    int64_t cells = CTI_MAX(g->H * g->W, g->P * g->Q);

    cti_parallel(s, g->C > 0 ? g->N * rows : 0, g->N * g->C * cells, fn, j);
    return CT_OK;
}

static int pool_max(ct_stream *s, const ct_pool_args *a, const ct_view *index)
{
    job j;
    int rc = job_init(&j, a, &a->x, &a->y, index, false, 0);
    return rc == CT_OK ? run(s, &j, forward_task, j.g.P) : rc;
}

static int pool_max_grad(ct_stream *s, const ct_pool_args *a, const ct_view *dx, int beta,
                         const ct_view *dy, const ct_view *index)
{
    job j;
    int rc = job_init(&j, a, dx, dy, index, false, beta);
    return rc == CT_OK ? run(s, &j, backward_task, j.g.H) : rc;
}

static int pool_avg(ct_stream *s, const ct_pool_args *a)
{
    job j;
    int rc = job_init(&j, a, &a->x, &a->y, NULL, true, 0);
    return rc == CT_OK ? run(s, &j, forward_task, j.g.P) : rc;
}

static int pool_avg_grad(ct_stream *s, const ct_pool_args *a, const ct_view *dx, int beta,
                         const ct_view *dy)
{
    job j;
    int rc = job_init(&j, a, dx, dy, NULL, true, beta);
    return rc == CT_OK ? run(s, &j, backward_task, j.g.H) : rc;
}

const ct_k_pool cti_cpu_pool = {
    .max = pool_max,
    .max_grad = pool_max_grad,
    .avg = pool_avg,
    .avg_grad = pool_avg_grad,
};
