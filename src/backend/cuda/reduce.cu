/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions. Dimensions are split into kept and reduced ones, and a block of threads into `lanes`
 * that share the reduced elements of one output and 256 / lanes outputs. Neighbouring threads go
 * along the dimension that is dense: rows, where that one is reduced, else columns.
 *
 * Where the outputs alone are too few to fill a device the reduced elements are cut into chunks,
 * whose results go to the workspace and are reduced by the same kernel. Lanes, chunks and the trees
 * in which partial results are joined follow from the shapes alone: a sum has the same bytes on
 * each device and in each run. */
#include "backend/cuda/loop.cuh"

namespace cti
{

enum {
    LANES_COLUMNS = 32,   /* outputs next to each other: one cache line of f32 */
    EACH = 4,             /* elements that a lane has in flight */
    LEAST = 16,           /* elements of a lane in a chunk, at least */
    MOST = 4096,          /* at most: long chains of additions lose bits */
    ENOUGH_BLOCKS = 1024, /* fill any device */
};

/* ---- the plan ---- */
struct plan {
    loop<2> kept; /* x, y */
    loop<1> red;  /* x */
    int lanes;
    bool columns;
    int64_t chunk, chunks;
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int power_of_two(int64_t n, int most)
{
    int p = 1;
    while (p < n && p < most)
        p *= 2;
    return p;
}

static void plan_lanes(plan *p, int64_t in_kept, int64_t in_red)
{
    int64_t share = ceil_div(p->red.numel, EACH);

    p->columns = p->kept.numel > 1 && cti_abs64(in_kept) < cti_abs64(in_red);
    if (p->columns)
        p->lanes = power_of_two(share, CTI_BLOCK / power_of_two(p->kept.numel, LANES_COLUMNS));
    else
        p->lanes = power_of_two(share, CTI_BLOCK);
}

static plan plan_of(const ct_view *y, const ct_view *x)
{
    const ct_view *v[] = {x, y};
    unsigned kept = 0, all = (1u << x->ndim) - 1;
    cti_loop k, r;
    plan p;

    for (int d = 0; d < x->ndim; d++)
        if (y->shape[d] == x->shape[d])
            kept |= 1u << d;
    cti_loop_init_dims(&k, 2, v, kept, true);
    cti_loop_init_dims(&r, 1, v, all & ~kept, true);
    p.kept = loop_of<2>(k);
    p.red = loop_of<1>(r);
    plan_lanes(&p, k.stride[0][k.ndim - 1], r.stride[0][r.ndim - 1]);
    int64_t blocks = ceil_div(p.kept.numel, CTI_BLOCK / p.lanes);
    int64_t least = (int64_t)p.lanes * LEAST;
    int64_t pieces = blocks > 0 ? ceil_div(ENOUGH_BLOCKS, blocks) : 1;
    p.chunk = ceil_div(ceil_div(p.red.numel, pieces), least) * least;
    if (p.chunk > (int64_t)p.lanes * MOST)
        p.chunk = (int64_t)p.lanes * MOST;
    p.chunks = p.red.numel > 0 ? ceil_div(p.red.numel, p.chunk) : 1;
    return p;
}

/* The second stage: a dense matrix of partial results, one row for each output. */
static plan plan_of_partials(const plan &first, void *partials)
{
    plan p = first;
    int64_t row = first.chunks * (int64_t)sizeof(double);
    p.kept.data[0] = (char *)partials;
    for (int d = p.kept.ndim - 1; d >= 0; d--) {
        p.kept.stride[0][d] = row;
        row *= p.kept.shape[d];
    }
    p.red.ndim = 1;
    p.red.numel = p.red.shape[0] = first.chunks;
    p.red.stride[0][0] = sizeof(double);
    p.columns = false;
    p.lanes = power_of_two(ceil_div(first.chunks, EACH), CTI_BLOCK);
    p.chunk = first.chunks;
    p.chunks = 1;
    return p;
}

/* ---- operations ---- init and join; NaN wins max and min. */
template <class A> struct sum_op {
    typedef A acc;
    static __device__ A init()
    {
        return 0;
    }
    static __device__ A join(A a, A b)
    {
        return a + b;
    }
};
template <class A> struct max_op {
    typedef A acc;
    static __device__ A init()
    {
        return -(A)INFINITY;
    }
    static __device__ A join(A a, A b)
    {
        return b > a || b != b ? b : a;
    }
};
template <class A> struct min_op {
    typedef A acc;
    static __device__ A init()
    {
        return (A)INFINITY;
    }
    static __device__ A join(A a, A b)
    {
        return b < a || b != b ? b : a;
    }
};

/* Where results go: partials (8 bytes each: a double, or an integer), or y. */
struct finish {
    void *partials; /* or NULL */
    ct_dtype dtype;
    int beta;
    double scale;
};

__device__ inline void put_partial(void *p, double v)
{
    *(double *)p = v;
}
__device__ inline void put_partial(void *p, uint64_t v)
{
    *(uint64_t *)p = v;
}

template <class T> __device__ inline void put_float(char *y, const finish &f, double v)
{
    math_t<T> r = (math_t<T>)(v * f.scale);
    store((T *)y, f.beta ? load((const T *)y) + r : r);
}

__device__ inline void put_result(char *y, const finish &f, double v)
{
    switch (f.dtype) {
    case CT_F32:
        put_float<float>(y, f, v);
        break;
    case CT_BF16:
        put_float<__nv_bfloat16>(y, f, v);
        break;
    case CT_F16:
        put_float<__half>(y, f, v);
        break;
    default:
        put_float<double>(y, f, v);
    }
}
__device__ inline void put_result(char *y, const finish &f, uint64_t v)
{
    if (f.scale != 1)
        v = (uint64_t)i64_of((double)(int64_t)v * f.scale);
    *(uint64_t *)y = f.beta ? *(const uint64_t *)y + v : v;
}

/* What is kept between the stages. */
template <class A> struct wide {
    typedef double type;
};
template <> struct wide<uint64_t> {
    typedef uint64_t type;
};

/* ---- the kernel ---- Block x: outputs; block y: a chunk. */
template <class T, class OP>
__global__ void __launch_bounds__(CTI_BLOCK) reduce_kernel(plan p, finish f)
{
    typedef typename OP::acc A;
    CTI_SHARED(A, part, CTI_BLOCK);
    int t = threadIdx.x, outs = CTI_BLOCK / p.lanes;
    int lane = p.columns ? t / outs : t % p.lanes, mine = p.columns ? t % outs : t / p.lanes;
    int step = p.columns ? outs : 1; /* from one lane of an output to the next, in threads */
    int64_t out = (int64_t)blockIdx.x * outs + mine;
    int64_t i = blockIdx.y * p.chunk + lane, end = min((blockIdx.y + 1) * p.chunk, p.red.numel);
    A a[EACH];
    char *at[2] = {nullptr, nullptr};

    for (int k = 0; k < EACH; k++)
        a[k] = OP::init();
    if (out < p.kept.numel) {
        locate(p.kept, out, at);
        for (; i < end; i += (int64_t)EACH * p.lanes) {
            A v[EACH];
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                int64_t j = i + k * p.lanes;
                v[k] = j < end ? (A)load((const T *)(at[0] + offset(p.red, 0, j))) : OP::init();
            }
#pragma unroll
            for (int k = 0; k < EACH; k++)
                a[k] = OP::join(a[k], v[k]);
        }
    }
    part[t] = OP::join(OP::join(a[0], a[1]), OP::join(a[2], a[3]));
    for (int half = p.lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
            A u = part[t], v = part[t + half * step];
            part[t] = OP::join(u, v);
        }
    }
    if (lane > 0 || out >= p.kept.numel)
        return;
    A all = part[t];
    typename wide<A>::type result = (typename wide<A>::type)all;
    if (f.partials)
        put_partial((double *)f.partials + out * gridDim.y + blockIdx.y, result);
    else
        put_result(at[1], f, result);
}

template <class T, class OP> static int launch(ct_stream *s, const plan &p, const finish &f)
{
    dim3 grid((unsigned)ceil_div(p.kept.numel, CTI_BLOCK / p.lanes), (unsigned)p.chunks);
    return cti_cuda_check(
        s, CTI_LAUNCH((reduce_kernel<T, OP>), grid, CTI_BLOCK, 0, s->compute, p, f), "reduce");
}

/* OP on T gives partial results of type W, which OP2 joins. */
template <class T, class OP, class W, class OP2>
static int run(ct_stream *s, const plan &p, finish f, void *workspace)
{
    if (p.chunks == 1)
        return launch<T, OP>(s, p, f);
    finish partial = f;
    partial.partials = workspace;
    int r = launch<T, OP>(s, p, partial);
    if (r < 0)
        return r;
    plan second = plan_of_partials(p, workspace);
    return launch<W, OP2>(s, second, f);
}

template <class T>
static int run_float(ct_stream *s, ct_reduce op, const plan &p, const finish &f, void *workspace)
{
    switch (op) {
    case CT_RED_SUM:
        return run<T, sum_op<float>, double, sum_op<double>>(s, p, f, workspace);
    case CT_RED_MAX:
        return run<T, max_op<float>, double, max_op<double>>(s, p, f, workspace);
    default:
        return run<T, min_op<float>, double, min_op<double>>(s, p, f, workspace);
    }
}

template <class T> static int run_whole(ct_stream *s, const plan &p, const finish &f, void *ws)
{
    return run<T, sum_op<uint64_t>, uint64_t, sum_op<uint64_t>>(s, p, f, ws);
}

/* ---- argmax ---- One block does all of an output's elements. */
template <class M> __device__ inline bool larger(M v, int64_t at, M best, int64_t best_at)
{
    if (best_at < 0 || at < 0)
        return at >= 0;
    if (v != v || best != best)
        return v != v && (best == best || at < best_at);
    return v > best || (v == best && at < best_at);
}

template <class T> __global__ void __launch_bounds__(CTI_BLOCK) argmax_kernel(plan p)
{
    typedef math_t<T> M;
    CTI_SHARED(M, value, CTI_BLOCK);
    CTI_SHARED(int64_t, index, CTI_BLOCK);
    int t = threadIdx.x, outs = CTI_BLOCK / p.lanes;
    int lane = p.columns ? t / outs : t % p.lanes, mine = p.columns ? t % outs : t / p.lanes;
    int step = p.columns ? outs : 1;
    int64_t out = (int64_t)blockIdx.x * outs + mine, best_at = -1;
    char *at[2] = {nullptr, nullptr};
    M best = 0;

    if (out < p.kept.numel) {
        locate(p.kept, out, at);
#pragma unroll 4
        for (int64_t i = lane; i < p.red.numel; i += p.lanes) {
            M v = load((const T *)(at[0] + i * p.red.stride[0][0]));
            if (larger(v, i, best, best_at)) {
                best = v;
                best_at = i;
            }
        }
    }
    value[t] = best;
    index[t] = best_at;
    for (int half = p.lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
            M v = value[t + half * step];
            int64_t i = index[t + half * step];
            if (larger(v, i, best, best_at)) {
                value[t] = best = v;
                index[t] = best_at = i;
            }
        }
    }
    if (lane == 0 && out < p.kept.numel)
        *(int64_t *)at[1] = best_at;
}

template <class T> static int run_argmax(ct_stream *s, const plan &p)
{
    unsigned blocks = (unsigned)ceil_div(p.kept.numel, CTI_BLOCK / p.lanes);
    return cti_cuda_check(s, CTI_LAUNCH((argmax_kernel<T>), blocks, CTI_BLOCK, 0, s->compute, p),
                          "argmax");
}

} // namespace cti

using namespace cti;

size_t cti_cuda_reduce_workspace(ct_stream *s, ct_reduce op, const ct_view *y, const ct_view *x)
{
    plan p = plan_of(y, x);
    (void)s;
    (void)op;
    return p.chunks > 1 ? (size_t)(p.kept.numel * p.chunks) * sizeof(double) : 0;
}

int cti_cuda_reduce(ct_stream *s, ct_reduce op, const ct_view *y, int beta, const ct_view *x,
                    double scale, void *workspace)
{
    bool whole = x->dtype < CT_F16;
    finish f = {nullptr, y->dtype, beta, scale};

    if (y->dtype != (whole ? CT_I64 : x->dtype) ||
        (op != CT_RED_SUM && (whole || x->dtype == CT_F64)))
        return cti_cuda_no_dtype(s,
                                 op == CT_RED_SUM ? "sum" :
                                 op == CT_RED_MAX ? "max" :
                                                    "min",
                                 x->dtype);
    plan p = plan_of(y, x);
    if (p.kept.numel == 0)
        return CT_OK;
    switch (x->dtype) {
        CTI_CASES_FLOAT(return run_float<T>(s, op, p, f, workspace))
    case CT_F64:
        return run<double, sum_op<double>, double, sum_op<double>>(s, p, f, workspace);
        CTI_CASES_INT(return run_whole<T>(s, p, f, workspace))
    default: /* a bool is a byte */
        return run_whole<uint8_t>(s, p, f, workspace);
    }
}

int cti_cuda_argmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim)
{
    plan p;
    ct_view one = *x;

    if (y->dtype != CT_I64 || x->dtype == CT_F64)
        return cti_cuda_no_dtype(s, "argmax", x->dtype);
    if (x->ndim == 0) { /* as a row of one element */
        one.ndim = 1;
        one.shape[0] = one.stride[0] = 1;
        dim = 0;
    }
    const ct_view *const v[] = {&one, y};
    cti_loop kept, red;
    cti_loop_init_dims(&kept, 2, v, x->ndim ? ~(1u << dim) : 0, true);
    cti_loop_init_dims(&red, 1, v, 1u << dim, true);
    p.kept = loop_of<2>(kept);
    p.red = loop_of<1>(red);
    if (p.kept.numel == 0 || p.red.numel == 0)
        return CT_OK;
    plan_lanes(&p, kept.stride[0][kept.ndim - 1], red.stride[0][0]);
    p.chunks = 1;
    p.chunk = p.red.numel;
    switch (x->dtype) {
        CTI_CASES_FLOAT(return run_argmax<T>(s, p))
        CTI_CASES_INT(return run_argmax<T>(s, p))
    default:
        return run_argmax<uint8_t>(s, p);
    }
}
