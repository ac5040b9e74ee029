/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm: sums over each channel in fixed chunks, their joining by channel, then one
 * elementwise pass with a few numbers for each channel. Channels-last goes along the channels,
 * other layouts along the rest.
 *
 * Statistics are taken around one of the values at hand, in small groups that are joined in doubles
 * (Chan et al. 1979): nothing cancels however far from zero the values are. */
#include "backend/cuda/norm.h"

#include "backend/cuda/block.cuh"

namespace cti
{

enum {
    GROUP = 32,           /* elements of a lane summed in f32 */
    EACH = 4,             /* of these in flight */
    ENOUGH_BLOCKS = 1024, /* fill any device */
};

/* ---- what chunks give ---- */
struct moments {
    double n, mean, m2;
};

struct moments_op {
    __device__ moments operator()(moments a, moments b) const
    {
        if (b.n == 0)
            return a;
        if (a.n == 0)
            return b;
        double n = a.n + b.n, share = b.n / n, delta = b.mean - a.mean;
        moments r = {n, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.n * share};
        return r;
    }
};

struct dots { /* of dy, and of dy (x - mean) */
    double sum, dot;
};

struct dots_op {
    __device__ dots operator()(dots a, dots b) const
    {
        dots r = {a.sum + b.sum, a.dot + b.dot};
        return r;
    }
};

/* The elementwise pass: y = (x - mean) scale + shift; dx = (dy - shift - (x - mean) slope)
 * scale. */
struct coef {
    float mean, scale, shift, slope;
};

/* ---- the plan ---- x, and dy in backward. */
struct plan {
    loop<2> rest;                /* all dimensions but the channels */
    int64_t channels, stride[2]; /* from channel to channel, in bytes */
    lanes l;
    int64_t chunk, chunks;
};

static plan plan_of(const ct_view *x, const ct_view *dy)
{
    const ct_view *v[] = {x, dy};
    cti_loop c;
    plan p;

    cti_loop_init_dims(&c, 2, v, ~2u, true);
    p.rest = loop_of<2>(c);
    p.channels = x->shape[1];
    for (int o = 0; o < 2; o++)
        p.stride[o] = v[o]->stride[1] * (int64_t)ct_dtype_bytes(v[o]->dtype);
    p.l = lanes_of(p.channels, c.numel, p.stride[0], c.stride[0][c.ndim - 1], EACH);
    int64_t blocks = div_up(p.channels, CTI_BLOCK / p.l.n), least = (int64_t)p.l.n * GROUP;
    int64_t pieces = div_up(ENOUGH_BLOCKS, blocks > 0 ? blocks : 1);
    p.chunk = div_up(div_up(c.numel, pieces), least) * least;
    p.chunks = c.numel > 0 ? div_up(c.numel, p.chunk) : 0;
    return p;
}

/* In the workspace: the coefficients, then what chunks give, [channels][chunks]. */
static coef *coefs_in(void *workspace)
{
    return (coef *)workspace;
}

template <class A> static A *parts_in(void *workspace, const plan &p)
{
    return (A *)(coefs_in(workspace) + p.channels);
}

/* ---- sums ---- Block x: channels; block y: a chunk. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK, 2) moments_kernel(plan p, moments *parts)
{
    CTI_SHARED(moments, part, CTI_BLOCK);
    place at = place_of(p.l);
    int64_t channel = (int64_t)blockIdx.x * (CTI_BLOCK / p.l.n) + at.out;
    int64_t i = blockIdx.y * p.chunk + at.lane, end = min((blockIdx.y + 1) * p.chunk, p.rest.numel);
    moments all = {0, 0, 0};

    if (channel < p.channels) {
        const char *x = p.rest.data[0] + channel * p.stride[0];
        while (i < end) {
            float around = load((const T *)(x + offset(p.rest, 0, i))), d = 0, q = 0;
            int n = 0;
            for (int k = 0; k < GROUP && i < end; k += EACH, i += EACH * p.l.n) {
                float v[EACH];
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    int64_t e = i + j * p.l.n;
                    n += e < end;
                    v[j] = e < end ? load((const T *)(x + offset(p.rest, 0, e))) - around : 0.0f;
                }
                d += (v[0] + v[1]) + (v[2] + v[3]);
                q += (v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3]);
            }
            double shift = (double)d / n;
            moments group = {(double)n, (double)around + shift, (double)q - (double)d * shift};
            all = moments_op()(all, group);
        }
    }
    all = join_lanes(part, p.l, at, all, moments_op());
    if (at.lane == 0 && channel < p.channels)
        parts[channel * gridDim.y + blockIdx.y] = all;
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) dots_kernel(plan p, vec mean, dots *parts)
{
    CTI_SHARED(dots, part, CTI_BLOCK);
    place at = place_of(p.l);
    int64_t channel = (int64_t)blockIdx.x * (CTI_BLOCK / p.l.n) + at.out;
    int64_t i = blockIdx.y * p.chunk + at.lane, end = min((blockIdx.y + 1) * p.chunk, p.rest.numel);
    dots all = {0, 0};

    if (channel < p.channels) {
        float m = vec_get(mean, channel, 0);
        while (i < end) {
            float sum = 0, dot = 0;
            for (int k = 0; k < GROUP && i < end; k += EACH, i += EACH * p.l.n) {
                float v[EACH], g[EACH];
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    char *e[2];
                    bool in = i + j * p.l.n < end;
                    locate(p.rest, in ? i + j * p.l.n : i, e);
                    v[j] = load((const T *)(e[0] + channel * p.stride[0])) - m;
                    g[j] = in ? load((const T *)(e[1] + channel * p.stride[1])) : 0.0f;
                }
                sum += (g[0] + g[1]) + (g[2] + g[3]);
                dot += (g[0] * v[0] + g[1] * v[1]) + (g[2] * v[2] + g[3] * v[3]);
            }
            all.sum += (double)sum;
            all.dot += (double)dot;
        }
    }
    all = join_lanes(part, p.l, at, all, dots_op());
    if (at.lane == 0 && channel < p.channels)
        parts[channel * gridDim.y + blockIdx.y] = all;
}

/* ---- by channel ---- What each channel has besides x. */
struct channels {
    int64_t n;     /* of them */
    int64_t count; /* elements of one */
    vec weight, bias, mean, invstd, running_mean, running_var, dw, db;
    double momentum, eps;
};

/* A channel's parts joined, by the lanes of the channel; for all of them. */
template <class A, class OP, class S>
__device__ inline A join_parts(S &part, lanes l, place at, int64_t channel, int64_t n,
                               const A *parts, int64_t chunks, A all, OP op)
{
    if (channel < n)
        for (int64_t k = at.lane; k < chunks; k += l.n)
            all = op(all, parts[channel * chunks + k]);
    return join_lanes(part, l, at, all, op);
}

__device__ inline void running_update(const vec &v, int64_t c, double momentum, double x)
{
    if (v.p)
        vec_set(v, c, (float)((1 - momentum) * (double)vec_get(v, c, 0) + momentum * x));
}

__global__ void __launch_bounds__(CTI_BLOCK)
    train_kernel(channels ch, lanes l, const moments *parts, int64_t chunks, coef *out)
{
    CTI_SHARED(moments, part, CTI_BLOCK);
    place at = place_of(l);
    int64_t c = (int64_t)blockIdx.x * (CTI_BLOCK / l.n) + at.out;
    moments m = {0, 0, 0};

    m = join_parts(part, l, at, c, ch.n, parts, chunks, m, moments_op());
    if (at.lane > 0 || c >= ch.n)
        return;
    double invstd = 1 / sqrt(m.m2 / m.n + ch.eps);
    vec_set(ch.mean, c, (float)m.mean);
    vec_set(ch.invstd, c, (float)invstd);
    running_update(ch.running_mean, c, ch.momentum, m.mean);
    running_update(ch.running_var, c, ch.momentum, m.m2 / (m.n > 1 ? m.n - 1 : 1));
    coef k = {(float)m.mean, (float)(invstd * (double)vec_get(ch.weight, c, 1)),
              vec_get(ch.bias, c, 0), 0};
    out[c] = k;
}

__global__ void __launch_bounds__(CTI_BLOCK) eval_kernel(channels ch, coef *out)
{
    int64_t c = (int64_t)blockIdx.x * CTI_BLOCK + threadIdx.x;
    if (c >= ch.n)
        return;
    float mean = vec_get(ch.running_mean, c, 0);
    double invstd = 1 / sqrt((double)vec_get(ch.running_var, c, 1) + ch.eps);
    vec_set(ch.mean, c, mean);
    vec_set(ch.invstd, c, (float)invstd);
    coef k = {mean, (float)(invstd * (double)vec_get(ch.weight, c, 1)), vec_get(ch.bias, c, 0), 0};
    out[c] = k;
}

/* `through`: dx has what comes through the statistics. */
__global__ void __launch_bounds__(CTI_BLOCK)
    grad_kernel(channels ch, lanes l, const dots *parts, int64_t chunks, bool through, coef *out)
{
    CTI_SHARED(dots, part, CTI_BLOCK);
    place at = place_of(l);
    int64_t c = (int64_t)blockIdx.x * (CTI_BLOCK / l.n) + at.out;
    dots d = {0, 0};

    d = join_parts(part, l, at, c, ch.n, parts, chunks, d, dots_op());
    if (at.lane > 0 || c >= ch.n)
        return;
    double inv = (double)vec_get(ch.invstd, c, 1), n = (double)ch.count;
    vec_set(ch.dw, c, (float)(d.dot * inv));
    vec_set(ch.db, c, (float)d.sum);
    coef k = {vec_get(ch.mean, c, 0), (float)(inv * (double)vec_get(ch.weight, c, 1)),
              through ? (float)(d.sum / n) : 0, through ? (float)(d.dot * inv * inv / n) : 0};
    out[c] = k;
}

/* ---- the elementwise pass ---- Operands: y, x, the channel's coef; or dx, x, coef, dy. In units
 * of V elements along the innermost dimension, whose coefs are neighbours (channels-last), or
 * one. */
template <class T, int V, int N>
__global__ void __launch_bounds__(CTI_BLOCK) apply_kernel(loop<N> l, int beta)
{
    const int DY = N > 3 ? 3 : 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    int next = l.stride[2][l.ndim - 1] != 0; /* for the coefs */
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < l.numel; i += step) {
        char *p[N];
        float x[V], dy[V] = {}, old[V] = {};
        pack<T, V> r;
        locate(l, i, p);
        load_pack<V>(x, (const T *)p[1], 1);
        if (DY)
            load_pack<V>(dy, (const T *)p[DY], 1);
        if (beta)
            load_pack<V>(old, (const T *)p[0], 1);
#pragma unroll
        for (int j = 0; j < V; j++) {
            coef k = ((const coef *)p[2])[j * next];
            float d = x[j] - k.mean;
            float v = DY ? (dy[j] - k.shift - d * k.slope) * k.scale : d * k.scale + k.shift;
            store(&r.v[j], beta ? old[j] + v : v);
        }
        *(pack<T, V> *)p[0] = r;
    }
}

template <class T, int V, int N> static int apply_by(ct_stream *s, const cti_loop &c, int beta)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((apply_kernel<T, V, N>), cti_blocks(s, c.numel), CTI_BLOCK, 0,
                                     s->compute, loop_of<N>(c), beta),
                          "batch_norm");
}

/* out: y, or dx where dy isn't NULL. */
template <class T, int N>
static int apply(ct_stream *s, const ct_view *out, int beta, const ct_view *x, const ct_view *dy,
                 coef *coefs)
{
    const int V = each<T>;
    ct_view k = *x;
    cti_loop c;

    k.data = coefs;
    k.dtype = CT_F32;
    for (int d = 0; d < k.ndim; d++)
        k.stride[d] = d == 1 ? (int64_t)(sizeof(coef) / sizeof(float)) : 0;
    const ct_view *const v[] = {out, x, &k, dy};
    cti_loop_init(&c, N, v);
    int last = c.ndim - 1;
    bool packs = c.shape[last] % V == 0;
    for (int o = 0; o < N; o++)
        for (int d = 0; o != 2 && d < c.ndim; d++)
            packs = packs &&
                    (d == last ? c.stride[o][d] == (int64_t)sizeof(T) : c.stride[o][d] % 16 == 0);
    for (int o = 0; o < N; o++)
        packs = packs && (uintptr_t)c.data[o] % 16 == 0;
    if (!packs)
        return apply_by<T, 1, N>(s, c, beta);
    c.shape[last] /= V;
    c.numel /= V;
    for (int o = 0; o < N; o++)
        c.stride[o][last] *= V;
    return apply_by<T, V, N>(s, c, beta);
}

/* ---- the three functions for one type ---- */
static dim3 grid_of(const plan &p)
{
    return dim3((unsigned)div_up(p.channels, CTI_BLOCK / p.l.n), (unsigned)p.chunks);
}

static lanes lanes_by_chunk(const plan &p)
{
    lanes l = {pow2_up(p.chunks, CTI_BLOCK), false};
    return l;
}

static unsigned blocks_by_channel(const plan &p, lanes l)
{
    return (unsigned)div_up(p.channels, CTI_BLOCK / l.n);
}

static channels channels_of(const ct_batchnorm_args *a)
{
    channels c = {};
    c.n = a->x.shape[1];
    c.weight = vec_of(a->weight);
    c.bias = vec_of(a->bias);
    c.mean = vec_of(&a->mean);
    c.invstd = vec_of(&a->invstd);
    c.running_mean = vec_of(a->running_mean);
    c.running_var = vec_of(a->running_var);
    c.momentum = a->momentum;
    c.eps = a->eps;
    return c;
}

template <class T> static int train(ct_stream *s, const ct_batchnorm_args *a)
{
    plan p = plan_of(&a->x, &a->x);
    coef *coefs = coefs_in(a->workspace);
    moments *parts = parts_in<moments>(a->workspace, p);
    lanes l = lanes_by_chunk(p);

    if (p.rest.numel == 0 || p.channels == 0)
        return CT_OK;
    int rc = cti_cuda_check(
        s, CTI_LAUNCH((moments_kernel<T>), grid_of(p), CTI_BLOCK, 0, s->compute, p, parts),
        "batch_norm");
    if (rc >= 0)
        rc = cti_cuda_check(s,
                            CTI_LAUNCH((train_kernel), blocks_by_channel(p, l), CTI_BLOCK, 0,
                                       s->compute, channels_of(a), l, parts, p.chunks, coefs),
                            "batch_norm");
    return rc < 0 ? rc : apply<T, 3>(s, &a->y, 0, &a->x, nullptr, coefs);
}

template <class T> static int eval(ct_stream *s, const ct_batchnorm_args *a)
{
    channels ch = channels_of(a);
    coef *coefs = coefs_in(a->workspace);

    if (ch.n == 0)
        return CT_OK;
    int rc = cti_cuda_check(s,
                            CTI_LAUNCH((eval_kernel), (unsigned)div_up(ch.n, CTI_BLOCK), CTI_BLOCK,
                                       0, s->compute, ch, coefs),
                            "batch_norm");
    if (rc < 0 || ct_view_numel(&a->x) == 0)
        return rc;
    return apply<T, 3>(s, &a->y, 0, &a->x, nullptr, coefs);
}

template <class T>
static int grad(ct_stream *s, bool through, const ct_view *dx, int beta, const ct_view *dy,
                const ct_view *x, const channels &ch, void *workspace)
{
    plan p = plan_of(x, dy);
    coef *coefs = coefs_in(workspace);
    dots *parts = parts_in<dots>(workspace, p);
    lanes l = lanes_by_chunk(p);
    int rc = CT_OK;

    if (ch.n == 0)
        return CT_OK;
    if (p.chunks > 0)
        rc = cti_cuda_check(
            s,
            CTI_LAUNCH((dots_kernel<T>), grid_of(p), CTI_BLOCK, 0, s->compute, p, ch.mean, parts),
            "batch_norm");
    if (rc >= 0)
        rc = cti_cuda_check(s,
                            CTI_LAUNCH((grad_kernel), blocks_by_channel(p, l), CTI_BLOCK, 0,
                                       s->compute, ch, l, parts, p.chunks, through, coefs),
                            "batch_norm");
    if (rc < 0 || !dx || p.chunks == 0)
        return rc;
    return apply<T, 4>(s, dx, beta, x, dy, coefs);
}

/* Data of dtype t, vectors of t or f32. */
static bool fits(ct_dtype t, int n_data, const ct_view *const *data, int n, const ct_view *const *v)
{
    bool ok = true;
    for (int i = 0; i < n_data; i++)
        ok = ok && (!data[i] || data[i]->dtype == t);
    for (int i = 0; i < n; i++)
        ok = ok && (!v[i] || v[i]->dtype == t || v[i]->dtype == CT_F32);
    return ok;
}

static bool args_fit(const ct_batchnorm_args *a)
{
    const ct_view *data[] = {&a->y}, *v[] = {a->weight, a->bias, a->running_mean, a->running_var};
    return fits(a->x.dtype, 1, data, 4, v) && a->mean.dtype == CT_F32 && a->invstd.dtype == CT_F32;
}

} // namespace cti

using namespace cti;

size_t cti_cuda_bn_native_workspace(ct_stream *s, const ct_view *x)
{
    plan p = plan_of(x, x);
    (void)s;
    return (size_t)p.channels * (sizeof(coef) + (size_t)p.chunks * sizeof(moments));
}

int cti_cuda_bn_native_train(ct_stream *s, const ct_batchnorm_args *a)
{
    switch (args_fit(a) ? a->x.dtype : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return train<T>(s, a))
    default:
        return cti_cuda_no_dtype(s, "batch_norm", a->x.dtype);
    }
}

int cti_cuda_bn_native_eval(ct_stream *s, const ct_batchnorm_args *a)
{
    switch (args_fit(a) ? a->x.dtype : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return eval<T>(s, a))
    default:
        return cti_cuda_no_dtype(s, "batch_norm", a->x.dtype);
    }
}

int cti_cuda_bn_native_grad(ct_stream *s, bool train, const ct_view *dx, int beta,
                            const ct_view *dw, const ct_view *db, const ct_view *dy,
                            const ct_view *x, const ct_view *weight, const ct_view *mean,
                            const ct_view *invstd, void *workspace)
{
    const ct_view *data[] = {dx, dy}, *v[] = {dw, db, weight};
    bool ok = fits(x->dtype, 2, data, 3, v) && mean->dtype == CT_F32 && invstd->dtype == CT_F32;
    channels ch = {};

    ch.n = x->shape[1];
    ch.count = ch.n ? ct_view_numel(x) / ch.n : 0;
    ch.weight = vec_of(weight);
    ch.mean = vec_of(mean);
    ch.invstd = vec_of(invstd);
    ch.dw = vec_of(dw);
    ch.db = vec_of(db);
    bool through = train && ch.count > 0;
    switch (ok ? x->dtype : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return grad<T>(s, through, dx, beta, dy, x, ch, workspace))
    default:
        return cti_cuda_no_dtype(s, "batch_norm", x->dtype);
    }
}
