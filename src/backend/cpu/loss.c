/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross entropy. Rules: PyTorch's, see cross_entropy in the semantics: class weights, an ignored
 * class number, smoothing, probabilities as targets; a mean over nothing is NaN,
 * its gradient 0 in ignored rows and NaN in rows of weight 0 (PyTorch 2.15). */
#include "backend/cpu/loop.h"
#include "backend/cpu/template.h"
#include "backend/scalar.h"

enum { PIECE = 256, LANES = 16 };

typedef struct softmax_arg {
    int64_t n, stride[3];
    int beta;
    bool log;
} softmax_arg;

typedef struct ce_job {
    cti_loop l;
    int64_t classes, x_stride, t_stride, d_stride, weight_stride;
    const void *weight;
    int64_t ignore_index;
    double smoothing, weight_sum, scale;
    bool probabilities, each;
    int beta;
    int64_t rows; /* of a chunk */
    struct ce_chunk *chunks;
    cti_span_fn fn;
} ce_job;

/* What a chunk of rows adds. */
typedef struct ce_chunk {
    const ce_job *job;
    int64_t row;
    int64_t bad[2]; /* row and class; row -1: none */
    double loss, weight;
} ce_chunk;

#define T   float
#define S   f32
#define ISA CTI_ISA
#include "backend/cpu/loss_t.h"
#define T double
#define S f64
#define ISA
#include "backend/cpu/loss_t.h"

static bool is_float(ct_dtype t)
{
    return t == CT_F32 || t == CT_F64;
}

/* ---- softmax ---- */
typedef struct softmax_job {
    cti_loop l;
    cti_span_fn fn;
    softmax_arg arg;
} softmax_job;

static void softmax_task(void *ctx, int64_t begin, int64_t end)
{
    const softmax_job *j = ctx;
    cti_loop_range(&j->l, begin, end, j->fn, &j->arg);
}

/* An exponential is worth this many elements of a plain loop. */
enum { EXP_COST = 8 };

static void softmax_run(ct_stream *s, softmax_job *j, int nop, const ct_view *const *v, int dim)
{
    ct_view scalar[3];
    const ct_view *w[3];

    for (int o = 0; o < nop; o++) { /* a scalar is a row of one */
        scalar[o] = *v[o];
        if (v[o]->ndim == 0) {
            scalar[o].ndim = 1;
            scalar[o].shape[0] = scalar[o].stride[0] = 1;
            dim = 0;
        }
        w[o] = &scalar[o];
        j->arg.stride[o] = scalar[o].stride[dim];
    }
    j->arg.n = scalar[0].shape[dim];
    cti_loop_init_dims(&j->l, nop, w, ~(1u << dim), true);
    if (j->arg.n > 0)
        cti_parallel(s, j->l.numel, j->l.numel * j->arg.n * EXP_COST, softmax_task, j);
}

static int softmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim, bool log)
{
    const ct_view *v[] = {y, x};
    softmax_job j = {.fn = y->dtype == CT_F32 ? softmax_span_f32 : softmax_span_f64,
                     .arg = {.log = log}};

    if (!is_float(y->dtype) || x->dtype != y->dtype)
        return CT_EDTYPE;
    softmax_run(s, &j, 2, v, dim);
    return CT_OK;
}

static int softmax_grad(ct_stream *s, const ct_view *dx, int beta, const ct_view *dy,
                        const ct_view *y, int dim, bool log)
{
    const ct_view *v[] = {dx, dy, y};
    softmax_job j = {.fn = dx->dtype == CT_F32 ? softmax_grad_span_f32 : softmax_grad_span_f64,
                     .arg = {.log = log, .beta = beta}};

    if (!is_float(dx->dtype) || dy->dtype != dx->dtype || y->dtype != dx->dtype)
        return CT_EDTYPE;
    softmax_run(s, &j, 3, v, dim);
    return CT_OK;
}

/* ---- cross entropy ---- */

/* The positions of [N,C,...]: dimension 1 away. */
static ct_view positions(const ct_view *v)
{
    ct_view p = *v;
    p.ndim--;
    for (int d = 1; d < p.ndim; d++) {
        p.shape[d] = v->shape[d + 1];
        p.stride[d] = v->stride[d + 1];
    }
    return p;
}

/* v read at every position. */
static ct_view everywhere(const ct_view *v, const ct_view *like)
{
    ct_view p = *like;
    p.data = v->data;
    p.dtype = v->dtype;
    for (int d = 0; d < p.ndim; d++)
        p.stride[d] = 0;
    return p;
}

static int ce_init(ce_job *c, const ct_cross_entropy_args *a)
{
    ct_dtype t = a->logits.dtype;
    bool probabilities = a->target.dtype == t;

    if (!is_float(t) || (!probabilities && a->target.dtype != CT_I64) || a->loss.dtype != t ||
        a->lse.dtype != t || a->total_weight.dtype != t || (a->weight && a->weight->dtype != t))
        return CT_EDTYPE;
    *c = (ce_job){.classes = a->logits.shape[1],
                  .x_stride = a->logits.stride[1],
                  .t_stride = probabilities ? a->target.stride[1] : 0,
                  .weight = a->weight ? a->weight->data : NULL,
                  .weight_stride = a->weight ? a->weight->stride[0] : 0,
                  .ignore_index = a->ignore_index,
                  .smoothing = a->smoothing,
                  .probabilities = probabilities,
                  .each = a->reduction == CT_CE_NONE};
    c->weight_sum = (double)c->classes;
    if (a->weight && c->smoothing != 0) {
        c->weight_sum = 0;
        for (int64_t k = 0; k < c->classes; k++)
            c->weight_sum += t == CT_F32 ?
                                 (double)((const float *)c->weight)[k * c->weight_stride] :
                                 ((const double *)c->weight)[k * c->weight_stride];
    }
    c->rows = CTI_MAX(1, 16384 / CTI_MAX(1, c->classes));
    return CT_OK;
}

static int64_t ce_positions(const ct_cross_entropy_args *a)
{
    ct_view p = positions(&a->logits);
    return ct_view_numel(&p);
}

static size_t cross_entropy_workspace(ct_stream *s, const ct_cross_entropy_args *a)
{
    int64_t rows = CTI_MAX(1, 16384 / CTI_MAX(1, a->logits.shape[1]));

    (void)s;
    return (size_t)cti_ceil_div(ce_positions(a), rows) * sizeof(ce_chunk);
}

static void ce_task(void *ctx, int64_t begin, int64_t end)
{
    const ce_job *c = ctx;

    for (int64_t i = begin; i < end; i++) {
        ce_chunk k = {.job = c, .row = i * c->rows, .bad = {-1, -1}}, *at = &k;
        cti_loop_range(&c->l, i * c->rows, CTI_MIN((i + 1) * c->rows, c->l.numel), c->fn, &at);
        c->chunks[i] = k;
    }
}

static void store(const ct_view *v, double x)
{
    if (v->dtype == CT_F32)
        *(float *)v->data = (float)x;
    else
        *(double *)v->data = x;
}

/* The first finding stays until it has been read. */
static void report(const ct_view *bad, const int64_t found[2])
{
    int64_t *row = bad->data, *class = row + bad->stride[0];

    if (*row != -1)
        return;
    *row = found[0];
    *class = found[1];
}

static int cross_entropy(ct_stream *s, const ct_cross_entropy_args *a)
{
    double loss = 0, weight = 0;
    const int64_t *bad = NULL;
    int64_t n;
    ce_job c;
    int rc = ce_init(&c, a);

    if (rc != CT_OK)
        return rc;
    ct_view x = positions(&a->logits);
    ct_view t = c.probabilities ? positions(&a->target) : a->target;
    const ct_view *v[] = {&x, &t, &a->lse, c.each ? &a->loss : &a->lse};
    cti_loop_init_dims(&c.l, 4, v, ~0u, false);
    c.fn = a->logits.dtype == CT_F32 ? ce_span_f32 : ce_span_f64;
    c.chunks = a->workspace;
    n = cti_ceil_div(c.l.numel, c.rows);
    cti_parallel(s, n, c.l.numel * c.classes * EXP_COST, ce_task, &c);
    for (int64_t i = 0; i < n; i++) {
        loss += c.chunks[i].loss;
        weight += c.chunks[i].weight;
        if (!bad && c.chunks[i].bad[0] >= 0)
            bad = c.chunks[i].bad;
    }
    if (a->reduction != CT_CE_NONE)
        store(&a->loss, a->reduction == CT_CE_MEAN ? loss / weight : loss);
    store(&a->total_weight, weight);
    if (bad)
        report(&a->bad, bad);
    return CT_OK;
}

static void ce_grad_task(void *ctx, int64_t begin, int64_t end)
{
    const ce_job *c = ctx;
    cti_loop_range(&c->l, begin, end, c->fn, c);
}

static int cross_entropy_grad(ct_stream *s, const ct_cross_entropy_args *a, const ct_view *dlogits,
                              int beta, const ct_view *dloss)
{
    ce_job c;
    int rc = ce_init(&c, a);

    if (rc != CT_OK)
        return rc;
    if (dlogits->dtype != a->logits.dtype || dloss->dtype != a->logits.dtype)
        return CT_EDTYPE;
    ct_view d = positions(dlogits), x = positions(&a->logits);
    ct_view t = c.probabilities ? positions(&a->target) : a->target;
    ct_view g = c.each ? *dloss : everywhere(dloss, &x);
    const ct_view *v[] = {&d, &x, &t, &a->lse, &g};
    c.d_stride = dlogits->stride[1];
    c.beta = beta;
    c.scale = 1;
    if (a->reduction == CT_CE_MEAN) {
        double w = a->logits.dtype == CT_F32 ? (double)*(const float *)a->total_weight.data :
                                               *(const double *)a->total_weight.data;
        c.scale = 1 / w;
    }
    c.fn = a->logits.dtype == CT_F32 ? ce_grad_span_f32 : ce_grad_span_f64;
    cti_loop_init(&c.l, 5, v);
    cti_parallel(s, c.l.numel, c.l.numel * c.classes * EXP_COST, ce_grad_task, &c);
    return CT_OK;
}

const ct_k_loss cti_cpu_loss = {
    .softmax = softmax,
    .softmax_grad = softmax_grad,
    .cross_entropy_workspace = cross_entropy_workspace,
    .cross_entropy = cross_entropy,
    .cross_entropy_grad = cross_entropy_grad,
};
