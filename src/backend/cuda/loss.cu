/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy. The rows are the positions of [N,C,...], in row-major order, each along the
 * classes. Forward: a fixed number of rows to each block, whose sums go to the workspace and are
 * joined by one block; sums of rows are doubles, in a fixed order. Backward: row by row, from the
 * log-sum-exp of forward. */
#include "backend/cuda/block.cuh"

namespace cti
{

enum { MOST_BLOCKS = 2048 }; /* of the forward pass: what one block can join quickly */

/* What both passes know. */
struct ce {
    int64_t classes, groups, per_block; /* groups of rows: all, and a block's */
    int64_t x_stride, t_stride;         /* of the classes */
    int64_t ignore_index;
    vec weight;
    float keep, share;            /* of smoothing: the target's part, and each class's */
    double smoothing, each_class; /* smoothing / classes */
    bool probabilities, each, mean;
    const float *total; /* mean's divisor, for backward */
};

/* What rows add up to. */
struct tally {
    double loss, weight;
    int64_t bad_row, bad_class; /* INT64_MAX: none */
};

struct tally_op {
    __device__ tally operator()(tally a, tally b) const
    {
        tally r = a.bad_row <= b.bad_row ? a : b;
        r.loss = a.loss + b.loss;
        r.weight = a.weight + b.weight;
        return r;
    }
};

__device__ inline tally tally_none()
{
    tally t = {0, 0, INT64_MAX, 0};
    return t;
}

/* This lane's part of the sum over classes of w_c t_c log p_c, where t is the target, or 1. */
template <class T>
__device__ inline float weighted_logs(const ce &c, place p, lanes l, const T *x, const T *t,
                                      float max, float ls)
{
    float sum = 0;
#pragma unroll 4
    for (int64_t i = p.lane; i < c.classes; i += l.n) {
        float v = (load(x + i * c.x_stride) - max - ls) * vec_get(c.weight, i, 1);
        if (t)
            v *= load(t + i * c.t_stride) * c.keep + c.share;
        sum += v;
    }
    return sum;
}

/* The loss of a row by its class; `logs` is weighted_logs over the row. Adds to `all`. */
template <class T>
__device__ inline double class_loss(const ce &c, tally *all, int64_t row, int64_t y, const T *x,
                                    float max, float ls, float logs)
{
    if (y == c.ignore_index)
        return 0;
    if (y < 0 || y >= c.classes) {
        if (all->bad_row == INT64_MAX) {
            all->bad_row = row;
            all->bad_class = y;
        }
        return NAN;
    }
    float w = vec_get(c.weight, y, 1);
    double loss = -(double)(w * (load(x + y * c.x_stride) - max - ls));
    all->weight += (double)w;
    if (c.smoothing != 0)
        loss = (1 - c.smoothing) * loss - c.each_class * (double)logs;
    return loss;
}

/* Operands: loss (if each), lse, target, logits. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) ce_kernel(rows<4> r, ce c, tally *tallies)
{
    CTI_SHARED(expsum, part, CTI_BLOCK);
    CTI_SHARED(float, logs_part, CTI_BLOCK);
    CTI_SHARED(tally, tally_part, CTI_BLOCK);
    place p = place_of(r.l);
    tally all = tally_none();
    int64_t first = blockIdx.x * c.per_block, last = min(first + c.per_block, c.groups);

    for (int64_t group = first; group < last; group++) {
        int64_t row = group * (CTI_BLOCK / r.l.n) + p.out;
        bool mine = row < r.at.numel;
        char *at[4] = {nullptr, nullptr, nullptr, nullptr};
        expsum e = {-INFINITY, 0};
        if (mine) {
            locate(r.at, row, at);
            e = expsum_row((const T *)at[3], c.x_stride, c.classes, p.lane, r.l.n);
        }
        e = join_lanes(part, r.l, p, e, expsum_op());
        float ls = cti_log_f32(expsum_total(e)), logs = 0;
        const T *x = (const T *)at[3], *t = c.probabilities ? (const T *)at[2] : nullptr;
        if (c.probabilities || c.smoothing != 0) {
            if (mine)
                logs = weighted_logs(c, p, r.l, x, t, e.max, ls);
            logs = join_lanes(logs_part, r.l, p, logs, add_op());
        }
        if (!mine || p.lane > 0)
            continue;
        double loss = -(double)logs;
        if (c.probabilities)
            all.weight += 1;
        else
            loss = class_loss(c, &all, row, *(const int64_t *)at[2], x, e.max, ls, logs);
        all.loss += loss;
        *(float *)at[1] = e.max + ls;
        if (c.each)
            store((T *)at[0], (float)loss);
    }
    lanes block = {CTI_BLOCK, false};
    all = join_lanes(tally_part, block, place_of(block), all, tally_op());
    if (threadIdx.x == 0)
        tallies[blockIdx.x] = all;
}

/* One block: the results. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    ce_end_kernel(ce c, const tally *tallies, int64_t n, T *loss, float *total, int64_t *bad,
                  int64_t bad_stride)
{
    CTI_SHARED(tally, part, CTI_BLOCK);
    lanes block = {CTI_BLOCK, false};
    tally all = tally_none();

    for (int64_t i = threadIdx.x; i < n; i += CTI_BLOCK)
        all = tally_op()(all, tallies[i]);
    all = join_lanes(part, block, place_of(block), all, tally_op());
    if (threadIdx.x > 0)
        return;
    *total = (float)all.weight;
    if (!c.each)
        store(loss, (float)(c.mean ? all.loss / all.weight : all.loss));
    if (all.bad_row != INT64_MAX && bad[0] == -1) { /* the first finding stays until it is read */
        bad[0] = all.bad_row;
        bad[bad_stride] = all.bad_class;
    }
}

/* The sum of the class weights. One block. */
__global__ void __launch_bounds__(CTI_BLOCK) ce_weights_kernel(vec weight, int64_t n, double *sum)
{
    CTI_SHARED(double, part, CTI_BLOCK);
    lanes block = {CTI_BLOCK, false};
    double all = 0;

    for (int64_t i = threadIdx.x; i < n; i += CTI_BLOCK)
        all += (double)vec_get(weight, i, 1);
    all = join_lanes(part, block, place_of(block), all, add_op());
    if (threadIdx.x == 0)
        *sum = all;
}

struct ce_pair {
    float exps, mass;
};

struct ce_pair_op {
    __device__ ce_pair operator()(ce_pair a, ce_pair b) const
    {
        ce_pair r = {a.exps + b.exps, a.mass + b.mass};
        return r;
    }
};

/* This lane's part of what a row's gradient shares: the sum of exp(x - lse), which is not quite 1
 * as lse is rounded (it matters where the logits are f32), and the sum of w_c t_c. */
template <class T>
__device__ inline ce_pair grad_sums(const ce &c, place p, lanes l, const T *x, const T *t,
                                    float lse)
{
    ce_pair v = {0, 0};
    if (sizeof(T) > 2) {
#pragma unroll 4
        for (int64_t i = p.lane; i < c.classes; i += l.n)
            v.exps += cti_exp_f32(load(x + i * c.x_stride) - lse);
    } else if (p.lane == 0) {
        v.exps = 1;
    }
    for (int64_t i = p.lane; t && i < c.classes; i += l.n)
        v.mass += vec_get(c.weight, i, 1) * (load(t + i * c.t_stride) * c.keep + c.share);
    return v;
}

/* This lane's elements of d loss / d x_i = g (mass p_i - b_i): b_i = t_i w_i, or w_i share plus
 * `own` at i = y. `scale` is mass over the sum of exponentials. */
template <class T>
__device__ inline void grad_row(const ce &c, place p, lanes l, T *dx, int64_t dx_stride, int beta,
                                const T *x, const T *t, int64_t y, float lse, float scale,
                                float own, float g)
{
#pragma unroll 2
    for (int64_t i = p.lane; i < c.classes; i += l.n) {
        float v = cti_exp_f32(load(x + i * c.x_stride) - lse) * scale;
        T *to = dx + i * dx_stride;
        if (t)
            v -= vec_get(c.weight, i, 1) * (load(t + i * c.t_stride) * c.keep + c.share);
        else if (c.smoothing != 0)
            v -= vec_get(c.weight, i, 1) * c.share;
        v -= i == y ? own : 0.0f;
        store(to, beta ? load(to) + v * g : v * g);
    }
}

/* Operands: target, lse, dloss, logits, dlogits. `weights`: their sum, or NULL. (4 blocks: for more ptxas
 * would spill on sm_120.) */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK, 4)
    ce_grad_kernel(rows<5> r, ce c, int beta, const double *weights)
{
    CTI_SHARED(ce_pair, part, CTI_BLOCK);
    place p = place_of(r.l);
    int64_t row = (int64_t)blockIdx.x * (CTI_BLOCK / r.l.n) + p.out, y = -1;
    bool mine = row < r.at.numel, none = false;
    char *at[5] = {nullptr, nullptr, nullptr, nullptr, nullptr};
    const T *t = nullptr;
    float lse = 0;
    ce_pair sums = {0, 0};

    if (mine) {
        locate(r.at, row, at);
        if (c.probabilities)
            t = (const T *)at[0];
        else
            y = *(const int64_t *)at[0];
        none = !t && (y == c.ignore_index || y < 0 || y >= c.classes);
        lse = *(const float *)at[1];
    }
    if (mine && !none)
        sums = grad_sums(c, p, r.l, (const T *)at[3], t, lse);
    sums = join_lanes(part, r.l, p, sums, ce_pair_op());
    if (mine && none && !beta)
        for (int64_t i = p.lane; i < c.classes; i += r.l.n)
            store((T *)at[4] + i * r.stride[4], 0.0f);
    if (!mine || none)
        return;
    float g = load((const T *)at[2]);
    if (c.mean)
        g *= __fdividef(1.0f, *c.total);
    float own = 0;
    if (!t) {
        own = c.keep * vec_get(c.weight, y, 1);
        sums.mass = own + c.share * (weights ? (float)*weights : (float)c.classes);
    }
    grad_row(c, p, r.l, (T *)at[4], r.stride[4], beta, (const T *)at[3], t, y, lse,
             __fdividef(sums.mass, sums.exps), own, g);
}

/* ---- launches ---- */

/* v read at every class: what rows_of wants of a [N,...]. */
static ct_view with_classes(const ct_view *v, const ct_view *logits)
{
    ct_view w = *logits;
    w.data = v->data;
    w.dtype = v->dtype;
    for (int d = 0; d < w.ndim; d++) /* a scalar is read everywhere */
        w.stride[d] = d == 1 || v->ndim == 0 ? 0 : v->stride[d > 1 ? d - 1 : d];
    return w;
}

static bool takes(const ct_cross_entropy_args *a)
{
    ct_dtype t = a->logits.dtype, w = a->weight ? a->weight->dtype : t;
    return (t == CT_F32 || t == CT_BF16 || t == CT_F16) &&
           (a->target.dtype == CT_I64 || a->target.dtype == t) && (w == t || w == CT_F32) &&
           a->loss.dtype == t && a->lse.dtype == CT_F32 && a->total_weight.dtype == CT_F32;
}

static ce ce_of(const ct_cross_entropy_args *a)
{
    ce c;
    c.classes = a->logits.shape[1];
    c.probabilities = a->target.dtype != CT_I64;
    c.x_stride = a->logits.stride[1];
    c.t_stride = c.probabilities ? a->target.stride[1] : 0;
    c.ignore_index = a->ignore_index;
    c.weight = vec_of(a->weight);
    c.smoothing = a->smoothing;
    c.keep = (float)(1 - a->smoothing);
    c.each_class = a->smoothing / (double)c.classes;
    c.share = (float)c.each_class;
    c.each = a->reduction == ct_cross_entropy_args::CT_CE_NONE;
    c.mean = a->reduction == ct_cross_entropy_args::CT_CE_MEAN;
    c.total = (const float *)a->total_weight.data;
    c.groups = c.per_block = 0;
    return c;
}

static int in_flight(const ct_view *logits)
{
    return 16 / (int)ct_dtype_bytes(logits->dtype);
}

/* Sets groups and per_block; gives the number of blocks. */
static int64_t plan(const ct_cross_entropy_args *a, ce *c, rows<4> *r)
{
    ct_view target = c->probabilities ? a->target : with_classes(&a->target, &a->logits);
    ct_view lse = with_classes(&a->lse, &a->logits);
    ct_view loss = with_classes(c->each ? &a->loss : &a->lse, &a->logits);
    const ct_view *const v[] = {&loss, &lse, &target, &a->logits};
    *r = rows_of<4>(v, 1, false, in_flight(&a->logits));
    c->groups = r->groups();
    c->per_block = div_up(c->groups, MOST_BLOCKS);
    return c->groups > 0 ? div_up(c->groups, c->per_block) : 0;
}

template <class T> static int forward(ct_stream *s, const ct_cross_entropy_args *a)
{
    tally *tallies = (tally *)a->workspace;
    ce c = ce_of(a);
    rows<4> r;
    int64_t n = plan(a, &c, &r), *bad = (int64_t *)a->bad.data;
    int rc = CT_OK;

    if (n > 0)
        rc = cti_cuda_check(
            s, CTI_LAUNCH((ce_kernel<T>), (unsigned)n, CTI_BLOCK, 0, s->compute, r, c, tallies),
            "cross_entropy");
    if (rc < 0)
        return rc;
    return cti_cuda_check(s,
                          CTI_LAUNCH((ce_end_kernel<T>), 1, CTI_BLOCK, 0, s->compute, c, tallies, n,
                                     (T *)a->loss.data, (float *)a->total_weight.data, bad,
                                     a->bad.stride[0]),
                          "cross_entropy");
}

template <class T>
static int backward(ct_stream *s, const ct_cross_entropy_args *a, const ct_view *dlogits, int beta,
                    const ct_view *dloss)
{
    const double *weights = a->weight && a->smoothing != 0 ? (double *)a->workspace : nullptr;
    ce c = ce_of(a);
    ct_view target = c.probabilities ? a->target : with_classes(&a->target, &a->logits);
    ct_view lse = with_classes(&a->lse, &a->logits), g = with_classes(dloss, &a->logits);
    const ct_view *const v[] = {&target, &lse, &g, &a->logits, dlogits};
    rows<5> r = rows_of<5>(v, 1, false, in_flight(dlogits));
    int rc = CT_OK;

    if (r.n == 0 || r.at.numel == 0)
        return CT_OK;
    if (weights)
        rc = cti_cuda_check(s,
                            CTI_LAUNCH((ce_weights_kernel), 1, CTI_BLOCK, 0, s->compute, c.weight,
                                       c.classes, (double *)a->workspace),
                            "cross_entropy_grad");
    if (rc < 0)
        return rc;
    return cti_cuda_check(s,
                          CTI_LAUNCH((ce_grad_kernel<T>), (unsigned)r.groups(), CTI_BLOCK, 0,
                                     s->compute, r, c, beta, weights),
                          "cross_entropy_grad");
}

} // namespace cti

using namespace cti;

size_t cti_cuda_cross_entropy_workspace(ct_stream *s, const ct_cross_entropy_args *a)
{
    (void)s;
    if (!takes(a))
        return 0;
    ce c = ce_of(a);
    rows<4> r;
    int64_t n = plan(a, &c, &r);
    return (size_t)(n > 0 ? n : 1) * sizeof(tally); /* also the sum of the weights */
}

int cti_cuda_cross_entropy(ct_stream *s, const ct_cross_entropy_args *a)
{
    switch (takes(a) ? a->logits.dtype : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return forward<T>(s, a))
    default:
        return cti_cuda_no_dtype(s, "cross_entropy", a->logits.dtype);
    }
}

int cti_cuda_cross_entropy_grad(ct_stream *s, const ct_cross_entropy_args *a,
                                const ct_view *dlogits, int beta, const ct_view *dloss)
{
    ct_dtype t = a->logits.dtype;
    bool fits = takes(a) && dlogits->dtype == t && dloss->dtype == t;
    switch (fits ? t : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return backward<T>(s, a, dlogits, beta, dloss))
    default:
        return cti_cuda_no_dtype(s, "cross_entropy", t);
    }
}
