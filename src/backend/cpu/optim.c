/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers in two passes over fixed chunks, which never cross a parameter: bytes don't depend on the
 * threads. Rules: PyTorch's SGD, Adam and AdamW. A parameter without gradient (g NULL) is untouched. */
#include "backend/cpu/parallel.h"
#include "backend/cpu/template.h"
#include "backend/scalar.h"

enum { CHUNK = 4096, LANES = 16 };

enum { BAD_GRADIENT = 1, BAD_WEIGHT = 2, BAD_LOSS = 4 };

/* The numbers of one parameter in this step. */
typedef struct hyper {
    double factor; /* of the gradient: clip coefficient / window weight */
    double decay;  /* AdamW: of the parameter */
    double l2;     /* else: of the parameter into the gradient */
    double beta1, beta2, eps, dampening, step_size;
    double root; /* of the second bias correction */
    bool first, nesterov;
} hyper;

#define T   float
#define S   f32
#define ISA CTI_ISA
#include "backend/cpu/optim_t.h"
#define T double
#define S f64
#define ISA
#include "backend/cpu/optim_t.h"

static int64_t chunks_of(const ct_opt_param *p)
{
    return p->g ? cti_ceil_div(p->n, CHUNK) : 0;
}

static int64_t chunks_all(int n, const ct_opt_param *params, int64_t *elements)
{
    int64_t chunks = 0;

    *elements = 0;
    for (int i = 0; i < n; i++) {
        chunks += chunks_of(&params[i]);
        *elements += params[i].g ? params[i].n : 0;
    }
    return chunks;
}

/* ---- pass 1 ---- */
typedef struct norm_part {
    double squares;
    int64_t bad;
} norm_part;

typedef struct norm_job {
    const ct_opt_param *params;
    norm_part *parts;
    bool f64;
} norm_job;

static size_t optim_workspace(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params)
{
    int64_t elements;

    (void)s;
    (void)dtype;
    return (size_t)chunks_all(n, params, &elements) * sizeof(norm_part);
}

static norm_part norm_chunk(const norm_job *j, const ct_opt_param *p, int64_t at)
{
    int64_t n = CTI_MIN(CHUNK, p->n - at);
    const void *g = (const char *)p->g + at * (j->f64 ? 8 : 4);
    norm_part r = {0};

    r.squares = j->f64 ? sum_squares_f64(g, n) : sum_squares_f32(g, n);
    if (!isfinite(r.squares)) /* a NaN or Inf, or an f64 whose square is too large */
        r.bad = !(j->f64 ? all_finite_f64(g, n) : all_finite_f32(g, n));
    return r;
}

static void norm_task(void *ctx, int64_t begin, int64_t end)
{
    const norm_job *j = ctx;
    const ct_opt_param *p = j->params;
    int64_t first = 0;

    for (int64_t t = begin; t < end; t++) {
        while (t - first >= chunks_of(p))
            first += chunks_of(p++);
        j->parts[t] = norm_chunk(j, p, (t - first) * CHUNK);
    }
}

static double scalar_of(ct_dtype dtype, const void *p)
{
    return dtype == CT_F32 ? (double)*(const float *)p : *(const double *)p;
}

static double scale_of(const ct_opt_scalars *sc)
{
    return sc->scale_interval ? sc->loss_scale : 1;
}

static int norm(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params, const void *weight,
                const void *loss, ct_opt_scalars *sc, void *workspace)
{
    norm_job j = {params, workspace, dtype == CT_F64};
    int64_t elements, chunks;
    double sum = 0;
    int bad = 0;

    if (dtype != CT_F32 && dtype != CT_F64)
        return CT_EDTYPE;
    chunks = chunks_all(n, params, &elements);
    cti_parallel(s, chunks, elements, norm_task, &j);
    for (int64_t i = 0; i < chunks; i++) {
        sum += j.parts[i].squares;
        bad |= j.parts[i].bad ? BAD_GRADIENT : 0;
    }
    sc->weight = weight ? scalar_of(dtype, weight) : 1;
    if (!isfinite(sc->weight) || sc->weight == 0)
        bad |= BAD_WEIGHT;
    if (loss && !isfinite(scalar_of(dtype, loss)))
        bad |= BAD_LOSS;
    sc->grad_norm = sqrt(sum) / fabs(sc->weight * scale_of(sc));
    sc->nonfinite = bad;
    /* A window without weight (all labels ignored) is skipped, but is no reason to stop. */
    if (sc->latch && (bad & (sc->scale_interval ? BAD_LOSS : BAD_GRADIENT | BAD_LOSS)))
        sc->latched = 1;
    return CT_OK;
}

/* ---- pass 2 ---- */
typedef struct step_job {
    const ct_opt_param *params;
    const ct_opt_scalars *sc;
    ct_opt_kind kind;
    double factor;
    bool f64;
} step_job;

static hyper hyper_of(const step_job *j, const ct_opt_param *p)
{
    const ct_opt_scalars *sc = j->sc;
    double lr = sc->lr * p->lr_scale, t = (double)(*p->step + 1);
    hyper h = {.factor = j->factor,
               .decay = 1,
               .l2 = p->weight_decay,
               .beta1 = sc->beta1,
               .beta2 = sc->beta2,
               .eps = sc->eps,
               .dampening = sc->dampening,
               .step_size = lr,
               .root = 1,
               .first = *p->step == 0,
               .nesterov = sc->nesterov != 0};

    if (j->kind == CT_OPT_SGD)
        return h;
    if (j->kind == CT_OPT_ADAMW) {
        h.decay = 1 - lr * p->weight_decay;
        h.l2 = 0;
    }
    h.step_size = lr / (1 - pow(sc->beta1, t));
    h.root = sqrt(1 - pow(sc->beta2, t));
    return h;
}

static void step_chunk(const step_job *j, const hyper *h, const ct_opt_param *p, int64_t at)
{
    int64_t n = CTI_MIN(CHUNK, p->n - at), off = at * (j->f64 ? 8 : 4);
    char *s0 = p->s0 ? (char *)p->s0 + off : NULL, *s1 = p->s1 ? (char *)p->s1 + off : NULL;
    char *w = (char *)p->p + off, *g = (char *)p->g + off;

    if (j->kind == CT_OPT_SGD)
        (j->f64 ? sgd_chunk_f64 : sgd_chunk_f32)(h, w, g, s0, n);
    else
        (j->f64 ? adam_chunk_f64 : adam_chunk_f32)(h, w, g, s0, s1, n);
}

static void step_task(void *ctx, int64_t begin, int64_t end)
{
    const step_job *j = ctx;
    const ct_opt_param *p = j->params, *of = NULL;
    int64_t first = 0;
    hyper h = {0};

    for (int64_t t = begin; t < end; t++) {
        while (t - first >= chunks_of(p))
            first += chunks_of(p++);
        if (of != p)
            h = hyper_of(j, p);
        of = p;
        step_chunk(j, &h, p, (t - first) * CHUNK);
    }
}

static int step(ct_stream *s, ct_opt_kind kind, ct_dtype dtype, int n, const ct_opt_param *params,
                int n_guards, const ct_opt_guard *guards, ct_opt_scalars *sc)
{
    step_job j = {params, sc, kind, 1, dtype == CT_F64};
    bool apply = !sc->nonfinite && !sc->latched;
    int64_t elements, chunks;

    if (dtype != CT_F32 && dtype != CT_F64)
        return CT_EDTYPE;
    for (int i = 0; i < n_guards; i++)
        memcpy(apply ? guards[i].backup : guards[i].p, apply ? guards[i].p : guards[i].backup,
               guards[i].bytes);
    j.factor = 1 / (sc->weight * scale_of(sc));
    if (sc->scale_interval && !(sc->nonfinite & BAD_WEIGHT) && !sc->latched)
        cti_scale_next(&sc->loss_scale, &sc->scale_clean, sc->nonfinite, sc->scale_growth,
                       sc->scale_backoff, sc->scale_interval);
    if (!apply) {
        sc->skipped++;
        return CT_OK;
    }
    if (sc->max_norm > 0) /* always multiplied: a norm of exactly max_norm shrinks by 1e-6 */
        j.factor *= fmin(1, sc->max_norm / (sc->grad_norm + 1e-6));
    chunks = chunks_all(n, params, &elements);
    cti_parallel(s, chunks, elements, step_task, &j);
    for (int i = 0; i < n; i++)
        if (params[i].g)
            ++*params[i].step;
    sc->applied++;
    return CT_OK;
}

const ct_k_optim cti_cpu_optim = {
    .workspace = optim_workspace,
    .norm = norm,
    .step = step,
};
