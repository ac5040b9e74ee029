/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers in two passes over fixed chunks, which never cross a parameter, as
 * src/backend/cpu/optim.c; a block for each chunk. The table of parameters goes by value, as many
 * of them to a launch as fit. All that changes from step to step (ct_opt_scalars, the parameters'
 * counters) is read in the kernels: a captured step sees new values. Counters change in a kernel of
 * their own, after all that read them. */
#include "backend/cuda/block.cuh"

namespace cti
{

enum {
    CHUNK = 8192,
    MOST_PARAMS = 56, /* a table of them stays under 4 KB of arguments */
    MOST_GUARDS = 160,
    MOST_COUNTERS = 480,
    BAD_GRADIENT = 1,
    BAD_WEIGHT = 2,
    BAD_LOSS = 4
};

struct param {
    float *p, *s0, *s1;
    const float *g;
    int64_t n;
    const int64_t *step;
    double weight_decay, lr_scale;
};

struct table {
    int n;
    int64_t chunks; /* all */
    param at[MOST_PARAMS];
    uint32_t first[MOST_PARAMS]; /* chunk */
};
static_assert(sizeof(table) + 64 <= 4096, "arguments of a kernel");

/* The parameter of a chunk: the last that begins at it or before. */
__device__ inline int param_of(const table &t, uint32_t chunk)
{
    int low = 0, high = t.n;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (t.first[mid] <= chunk)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Four neighbours from element i, those at n and beyond being 0; `packs`: as 16 bytes where all
 * four are. */
struct four {
    float v[4];
};

__device__ inline four load4(const float *p, int64_t i, int64_t n, bool packs)
{
    four r;
    if (packs && i + 4 <= n) {
        pack<float, 4> k = *(const pack<float, 4> *)(p + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.v[j] = k.v[j];
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.v[j] = i + j < n ? p[i + j] : 0.0f;
    }
    return r;
}

__device__ inline void store4(float *p, int64_t i, int64_t n, bool packs, const four &v)
{
    if (packs && i + 4 <= n) {
        pack<float, 4> k;
#pragma unroll
        for (int j = 0; j < 4; j++)
            k.v[j] = v.v[j];
        *(pack<float, 4> *)(p + i) = k;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j < n)
                p[i + j] = v.v[j];
    }
}

__device__ inline bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* ---- pass 1 ---- */

/* The sum of squares of each chunk, in doubles: the square of any finite f32 fits, so that the sum
 * is finite if all elements are. */
__global__ void __launch_bounds__(CTI_BLOCK) squares_kernel(table t, double *parts)
{
    CTI_SHARED(double, part, CTI_BLOCK);
    lanes block = {CTI_BLOCK, false};
    int k = param_of(t, blockIdx.x);
    const float *g = t.at[k].g;
    int64_t begin = (int64_t)(blockIdx.x - t.first[k]) * CHUNK;
    int64_t end = min(begin + CHUNK, t.at[k].n);
    bool packs = aligned(g);
    double sum[4] = {0, 0, 0, 0};

#pragma unroll 2
    for (int64_t i = begin + threadIdx.x * 4; i < end; i += CTI_BLOCK * 4) {
        four v = load4(g, i, end, packs);
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum[j] += (double)v.v[j] * (double)v.v[j];
    }
    double all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    all = join_lanes(part, block, place_of(block), all, add_op());
    if (threadIdx.x == 0)
        parts[blockIdx.x] = all;
}

__device__ inline double scale_of(const ct_opt_scalars *sc)
{
    return sc->scale_interval ? sc->loss_scale : 1;
}

/* One block. */
__global__ void __launch_bounds__(CTI_BLOCK)
    norm_kernel(const double *parts, int64_t n, const float *weight, const float *loss,
                ct_opt_scalars *sc)
{
    CTI_SHARED(double, part, CTI_BLOCK);
    lanes block = {CTI_BLOCK, false};
    double sum = 0;

#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += CTI_BLOCK)
        sum += parts[i];
    sum = join_lanes(part, block, place_of(block), sum, add_op());
    if (threadIdx.x > 0)
        return;
    double w = weight ? (double)*weight : 1;
    int bad = isfinite(sum) ? 0 : BAD_GRADIENT;
    if (!isfinite(w) || w == 0)
        bad |= BAD_WEIGHT;
    if (loss && !isfinite(*loss))
        bad |= BAD_LOSS;
    sc->weight = w;
    sc->grad_norm = sqrt(sum) / fabs(w * scale_of(sc));
    sc->nonfinite = bad;
    /* A window without weight (all labels ignored) is skipped, but is no reason to stop. */
    if (sc->latch && (bad & (sc->scale_interval ? BAD_LOSS : BAD_GRADIENT | BAD_LOSS)))
        sc->latched = 1;
}

/* ---- pass 2 ---- */

/* Will this step be applied? What it reads doesn't change in pass 2. */
__device__ inline bool applies(const ct_opt_scalars *sc)
{
    return !sc->nonfinite && !sc->latched;
}

/* The numbers of one parameter in this step; see src/backend/cpu/optim_t.h. */
struct hyper {
    float factor, decay, l2, b1, b1c, b2, b2c, root, eps, step, take;
    bool low, first, nesterov;
};

__device__ inline hyper hyper_of(ct_opt_kind kind, const param &p, const ct_opt_scalars *sc)
{
    double lr = sc->lr * p.lr_scale, t = (double)(*p.step + 1),
           factor = 1 / (sc->weight * scale_of(sc));
    hyper h = {};

    if (sc->max_norm > 0) /* always multiplied: a norm of exactly max_norm shrinks by 1e-6 */
        factor *= fmin(1.0, sc->max_norm / (sc->grad_norm + 1e-6));
    h.factor = (float)factor;
    h.decay = kind == CT_OPT_ADAMW ? (float)(1 - lr * p.weight_decay) : 1;
    h.l2 = kind == CT_OPT_ADAMW ? 0 : (float)p.weight_decay;
    h.b1c = (float)sc->beta1;
    h.eps = (float)sc->eps;
    h.step = (float)-lr;
    h.take = (float)(1 - sc->dampening);
    h.first = *p.step == 0;
    h.nesterov = sc->nesterov != 0;
    if (kind == CT_OPT_SGD)
        return h;
    h.b1 = (float)(1 - sc->beta1);
    h.b2 = (float)sc->beta2;
    h.b2c = (float)(1 - sc->beta2);
    h.low = 1 - sc->beta1 < 0.5; /* lerp has two forms */
    h.step = (float)(-lr / (1 - pow(sc->beta1, t)));
    h.root = (float)sqrt(1 - pow(sc->beta2, t));
    return h;
}

__device__ inline void adam(const hyper &h, float *p, float g, float *m, float *v)
{
    float w = *p * h.decay;
    float d = g * h.factor + h.l2 * w;
    float diff = d - *m;
    *m = h.low ? *m + h.b1 * diff : d - diff * h.b1c;
    *v = *v * h.b2 + h.b2c * d * d;
    *p = w + h.step * *m / (sqrtf(*v) / h.root + h.eps);
}

/* b: the momentum; `plain`: there is none. */
__device__ inline void sgd(const hyper &h, bool plain, float *p, float g, float *b)
{
    float d = g * h.factor + h.l2 * *p, m = d;
    if (!plain && !h.first) /* no dampening in the first step */
        m = *b * h.b1c + h.take * d;
    *b = m;
    *p += h.step * (!plain && h.nesterov ? d + h.b1c * m : m);
}

template <bool ADAM>
__global__ void __launch_bounds__(CTI_BLOCK)
    step_kernel(table t, ct_opt_kind kind, const ct_opt_scalars *sc)
{
    CTI_SHARED(hyper, shared, 1);
    if (!applies(sc))
        return;
    int k = param_of(t, blockIdx.x);
    const param &p = t.at[k];
    if (threadIdx.x == 0)
        shared[0] = hyper_of(kind, p, sc);
    __syncthreads();
    hyper h = shared[0];
    int64_t begin = (int64_t)(blockIdx.x - t.first[k]) * CHUNK, end = min(begin + CHUNK, p.n);
    bool packs = aligned(p.p) && aligned(p.g) && aligned(p.s0) && aligned(p.s1);
    bool plain = !ADAM && (!p.s0 || h.b1c == 0);

    for (int64_t i = begin + threadIdx.x * 4; i < end; i += CTI_BLOCK * 4) {
        four w = load4(p.p, i, end, packs), g = load4(p.g, i, end, packs), m = {}, v = {};
        if (!plain)
            m = load4(p.s0, i, end, packs);
        if (ADAM)
            v = load4(p.s1, i, end, packs);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (ADAM)
                adam(h, &w.v[j], g.v[j], &m.v[j], &v.v[j]);
            else
                sgd(h, plain, &w.v[j], g.v[j], &m.v[j]);
        }
        store4(p.p, i, end, packs, w);
        if (!plain)
            store4(p.s0, i, end, packs, m);
        if (ADAM)
            store4(p.s1, i, end, packs, v);
    }
}

/* Counters of parameters, and (in the last launch) of the optimizer. */
struct counters {
    int n;
    bool last;
    int64_t *at[MOST_COUNTERS];
};
static_assert(sizeof(counters) + 64 <= 4096, "arguments of a kernel");

__global__ void __launch_bounds__(CTI_BLOCK) count_kernel(counters c, ct_opt_scalars *sc)
{
    bool apply = applies(sc);
    for (int i = threadIdx.x; apply && i < c.n; i += CTI_BLOCK)
        ++*c.at[i];
    if (threadIdx.x > 0 || !c.last)
        return;
    ++*(apply ? &sc->applied : &sc->skipped);
    if (sc->scale_interval && !(sc->nonfinite & BAD_WEIGHT) && !sc->latched)
        cti_scale_next(&sc->loss_scale, &sc->scale_clean, sc->nonfinite, sc->scale_growth,
                       sc->scale_backoff, sc->scale_interval);
}

struct guards {
    ct_opt_guard at[MOST_GUARDS];
};
static_assert(sizeof(guards) + 64 <= 4096, "arguments of a kernel");

/* A block for each. */
__global__ void __launch_bounds__(CTI_BLOCK) guard_kernel(guards all, const ct_opt_scalars *sc)
{
    const ct_opt_guard &g = all.at[blockIdx.x];
    bool apply = applies(sc);
    char *to = (char *)(apply ? g.backup : g.p);
    const char *from = (const char *)(apply ? g.p : g.backup);
    size_t words = ((uintptr_t)to | (uintptr_t)from) % 4 == 0 ? g.bytes / 4 : 0;

    for (size_t i = threadIdx.x; i < words; i += CTI_BLOCK)
        ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
    for (size_t i = words * 4 + threadIdx.x; i < g.bytes; i += CTI_BLOCK)
        to[i] = from[i];
}

/* ---- launches ---- */
static int64_t chunks_of(const ct_opt_param *p)
{
    return p->g ? div_up(p->n, CHUNK) : 0;
}

/* Fills the table with parameters from *i on that have chunks; false when there are none any
 * more. */
static bool next_table(table *t, int n, const ct_opt_param *params, int *i)
{
    t->n = 0;
    t->chunks = 0;
    for (; *i < n && t->n < MOST_PARAMS; ++*i) {
        const ct_opt_param *p = &params[*i];
        if (chunks_of(p) == 0)
            continue;
        param one = {(float *)p->p, (float *)p->s0, (float *)p->s1,  (const float *)p->g,
                     p->n,          p->step,        p->weight_decay, p->lr_scale};
        t->first[t->n] = (uint32_t)t->chunks;
        t->at[t->n++] = one;
        t->chunks += chunks_of(p);
    }
    return t->n > 0;
}

static int step_params(ct_stream *s, ct_opt_kind kind, int n, const ct_opt_param *params,
                       ct_opt_scalars *sc)
{
    int rc = CT_OK;
    table t;

    for (int i = 0; rc >= 0 && next_table(&t, n, params, &i);) {
        cudaError_t e = kind == CT_OPT_SGD ? CTI_LAUNCH((step_kernel<false>), (unsigned)t.chunks,
                                                        CTI_BLOCK, 0, s->compute, t, kind, sc) :
                                             CTI_LAUNCH((step_kernel<true>), (unsigned)t.chunks,
                                                        CTI_BLOCK, 0, s->compute, t, kind, sc);
        rc = cti_cuda_check(s, e, "optimizer step");
    }
    return rc;
}

static int step_guards(ct_stream *s, int n, const ct_opt_guard *list, ct_opt_scalars *sc)
{
    int rc = CT_OK;

    for (int i = 0; rc >= 0 && i < n; i += MOST_GUARDS) {
        guards g = {};
        int m = n - i < MOST_GUARDS ? n - i : MOST_GUARDS;
        for (int k = 0; k < m; k++)
            g.at[k] = list[i + k];
        rc = cti_cuda_check(
            s, CTI_LAUNCH((guard_kernel), (unsigned)m, CTI_BLOCK, 0, s->compute, g, sc),
            "optimizer step");
    }
    return rc;
}

static int step_counters(ct_stream *s, int n, const ct_opt_param *params, ct_opt_scalars *sc)
{
    int rc = CT_OK;

    for (int i = 0; rc >= 0 && i <= n;) {
        counters c = {};
        for (; i < n && c.n < MOST_COUNTERS; i++)
            if (params[i].g)
                c.at[c.n++] = params[i].step;
        c.last = i == n;
        i += c.last;
        rc = cti_cuda_check(s, CTI_LAUNCH((count_kernel), 1, CTI_BLOCK, 0, s->compute, c, sc),
                            "optimizer step");
    }
    return rc;
}

} // namespace cti

using namespace cti;

size_t cti_cuda_optim_workspace(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params)
{
    int64_t chunks = 0;

    (void)s;
    (void)dtype;
    for (int i = 0; i < n; i++)
        chunks += chunks_of(&params[i]);
    return (size_t)chunks * sizeof(double);
}

int cti_cuda_optim_norm(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params,
                        const void *weight, const void *loss, ct_opt_scalars *sc, void *workspace)
{
    double *parts = (double *)workspace;
    int64_t chunks = 0;
    int rc = CT_OK;
    table t;

    if (dtype != CT_F32)
        return cti_cuda_no_dtype(s, "optimizer", dtype);
    for (int i = 0; rc >= 0 && next_table(&t, n, params, &i); chunks += t.chunks)
        rc = cti_cuda_check(s,
                            CTI_LAUNCH((squares_kernel), (unsigned)t.chunks, CTI_BLOCK, 0,
                                       s->compute, t, parts + chunks),
                            "gradient norm");
    if (rc < 0)
        return rc;
    return cti_cuda_check(s,
                          CTI_LAUNCH((norm_kernel), 1, CTI_BLOCK, 0, s->compute, parts, chunks,
                                     (const float *)weight, (const float *)loss, sc),
                          "gradient norm");
}

int cti_cuda_optim_step(ct_stream *s, ct_opt_kind kind, ct_dtype dtype, int n,
                        const ct_opt_param *params, int n_guards, const ct_opt_guard *guards,
                        ct_opt_scalars *sc)
{
    if (dtype != CT_F32)
        return cti_cuda_no_dtype(s, "optimizer", dtype);
    int rc = step_guards(s, n_guards, guards, sc);
    if (rc >= 0)
        rc = step_params(s, kind, n, params, sc);
    return rc < 0 ? rc : step_counters(s, n, params, sc);
}
