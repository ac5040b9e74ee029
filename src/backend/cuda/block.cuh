/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels share that join many elements to one: a block of CTI_BLOCK threads is split into
 * `lanes` that share the elements of one output and CTI_BLOCK / lanes outputs. Neighbouring threads
 * go along the dimension that is dense: rows, where that one is joined, else columns. All follows
 * from shapes and strides alone, and partial results are joined in a tree: the same bytes on each
 * device and in each run. */
#ifndef BACKEND_CUDA_BLOCK_CUH
#define BACKEND_CUDA_BLOCK_CUH

#include "backend/cuda/loop.cuh"

namespace cti
{

inline int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The least power of two that is n or more, at most `most`. */
inline int pow2_up(int64_t n, int most)
{
    int p = 1;
    while (p < n && p < most)
        p *= 2;
    return p;
}

/* Elements of T that a thread has in flight: 16 bytes. */
template <class T> constexpr int each = 16 / (int)sizeof(T);

struct lanes {
    int n;
    bool columns;
};

/* Strides: of neighbouring outputs, and of neighbouring elements of one. */
inline lanes lanes_of(int64_t outputs, int64_t elements, int64_t out_stride, int64_t stride,
                      int in_flight)
{
    const int line = 32; /* outputs next to each other: a cache line of f32 */
    int64_t share = div_up(elements, in_flight);
    lanes l;
    l.columns = outputs > 1 && cti_abs64(out_stride) < cti_abs64(stride);
    l.n = pow2_up(share, l.columns ? CTI_BLOCK / pow2_up(outputs, line) : CTI_BLOCK);
    return l;
}

/* This thread's lane, and its output among the block's; the threads from one lane to the next. */
struct place {
    int lane, out, step;
};

__device__ inline place place_of(lanes l)
{
    int t = threadIdx.x, outs = CTI_BLOCK / l.n;
    place p;
    p.lane = l.columns ? t / outs : t % l.n;
    p.out = l.columns ? t % outs : t / l.n;
    p.step = l.columns ? outs : 1;
    return p;
}

/* The lanes' values joined, for all of them; `part` is shared and free again afterwards. */
template <class OP, class A, class S>
__device__ inline A join_lanes(S &part, lanes l, place p, A v, OP op)
{
    int t = threadIdx.x;
    part[t] = v;
    for (int half = l.n / 2; half > 0; half /= 2) {
        __syncthreads();
        if (p.lane < half) {
            A a = part[t], b = part[t + half * p.step];
            part[t] = op(a, b);
        }
    }
    __syncthreads();
    A all = part[t - p.lane * p.step];
    __syncthreads();
    return all;
}

struct add_op {
    template <class A> __device__ A operator()(A a, A b) const
    {
        return a + b;
    }
};

/* Rows to work on along one dimension, in N operands. */
template <int N> struct rows {
    loop<N> at;           /* the first element of each row */
    int64_t n, stride[N]; /* of the rows' elements; in elements */
    lanes l;
    int64_t groups() const /* as many rows as a block takes at once */
    {
        return div_up(at.numel, CTI_BLOCK / l.n);
    }
};

/* Along `dim` of v[0..N), of one shape; `sort` as for loops. The last operand is the one to go
 * along. */
template <int N>
inline rows<N> rows_of(const ct_view *const (&v)[N], int dim, bool sort, int in_flight)
{
    ct_view one[N];
    const ct_view *w[N];
    rows<N> r;
    cti_loop c;

    for (int o = 0; o < N; o++) {
        one[o] = *v[o];
        if (v[o]->ndim == 0) { /* a row of one */
            one[o].ndim = 1;
            one[o].shape[0] = one[o].stride[0] = 1;
            dim = 0;
        }
        w[o] = &one[o];
        r.stride[o] = one[o].stride[dim];
    }
    cti_loop_init_dims(&c, N, w, ~(1u << dim), sort);
    r.at = loop_of<N>(c);
    r.n = one[0].shape[dim];
    r.l = lanes_of(c.numel, r.n, c.stride[N - 1][c.ndim - 1],
                   r.stride[N - 1] * (int64_t)ct_dtype_bytes(one[N - 1].dtype), in_flight);
    return r;
}

/* ---- a value for each channel ---- in f32 or a 16-bit dtype, told apart at run time. */
struct vec {
    void *p; /* NULL: none */
    ct_dtype dtype;
    int64_t stride;
};

inline vec vec_of(const ct_view *v)
{
    vec r = {v ? v->data : nullptr, v ? v->dtype : CT_F32, v && v->ndim ? v->stride[0] : 1};
    return r;
}

__device__ inline float vec_get(const vec &v, int64_t i, float none)
{
    if (!v.p)
        return none;
    i *= v.stride;
    if (v.dtype == CT_BF16)
        return load((const __nv_bfloat16 *)v.p + i);
    if (v.dtype == CT_F16)
        return load((const __half *)v.p + i);
    return ((const float *)v.p)[i];
}

__device__ inline void vec_set(const vec &v, int64_t i, float x)
{
    if (!v.p)
        return;
    i *= v.stride;
    if (v.dtype == CT_BF16)
        store((__nv_bfloat16 *)v.p + i, x);
    else if (v.dtype == CT_F16)
        store((__half *)v.p + i, x);
    else
        ((float *)v.p)[i] = x;
}

/* ---- sums of exponentials ---- Relative to the largest element so far: one pass over the data. */
struct expsum {
    float max, sum;
};

struct expsum_op {
    __device__ expsum operator()(expsum a, expsum b) const
    {
        expsum r;
        r.max = a.max > b.max ? a.max : b.max;
        float fa = a.max == r.max ? 1.0f : cti_exp_f32(a.max - r.max);
        float fb = b.max == r.max ? 1.0f : cti_exp_f32(b.max - r.max);
        r.sum = a.sum * fa + b.sum * fb;
        return r;
    }
};

/* Of this lane's elements. A NaN isn't the largest, but makes the sum a NaN. */
template <class T>
__device__ inline expsum expsum_row(const T *x, int64_t stride, int64_t n, int64_t lane,
                                    int64_t lanes)
{
    const int E = each<T>;
    expsum r = {-INFINITY, 0};
    for (int64_t i = lane; i < n; i += E * lanes) {
        float v[E], max = r.max, sum = 0;
#pragma unroll
        for (int k = 0; k < E; k++)
            v[k] = i + k * lanes < n ? load(x + (i + k * lanes) * stride) : -INFINITY;
#pragma unroll
        for (int k = 0; k < E; k++)
            max = v[k] > max ? v[k] : max;
        if (max > r.max) {
            r.sum *= cti_exp_f32(r.max - max);
            r.max = max;
        }
        float shift = max == -INFINITY ? 0.0f : max; /* exp(-inf - 0) is 0, not NaN */
#pragma unroll
        for (int k = 0; k < E; k++)
            sum += cti_exp_f32(v[k] - shift);
        r.sum += sum;
    }
    return r;
}

/* Of a whole row: as if the largest had been known before. NaN for a row of -inf, or with inf. */
__device__ inline float expsum_total(expsum e)
{
    return isinf(e.max) ? NAN : e.sum;
}

} // namespace cti

#endif
