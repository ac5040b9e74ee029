/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise kernels over views of one shape.
 *
 * map: y = f(a, b) or y += f(a, b), by a struct with the types of memory `out` and `in`, the number
 * of `inputs` (0, 1 or 2), and `math_t<out> operator()(math_t<in> a, math_t<in> b) const`. Where
 * the innermost dimension is dense a thread takes several neighbours of each operand at once:
 * bandwidth needs that much in flight.
 *
 * for_each: `void operator()(char *const *p) const`, given the address of one element of each
 * operand. */
#ifndef BACKEND_CUDA_LOOP_CUH
#define BACKEND_CUDA_LOOP_CUH

#include "backend/cuda/types.cuh"
#include "backend/loop.h"

namespace cti
{

/* What a kernel gets of a cti_loop with N operands, by value: a captured launch keeps it. */
template <int N> struct loop {
    int ndim;
    int64_t numel;
    int64_t shape[CT_MAX_DIMS];     /* outermost first */
    int64_t stride[N][CT_MAX_DIMS]; /* in bytes */
    char *data[N];
};

/* a / b for a >= 0, b > 0: nearly always by the far cheaper 32-bit division. */
__host__ __device__ inline int64_t quotient(int64_t a, int64_t b)
{
    if (((uint64_t)a | (uint64_t)b) >> 32 == 0)
        return (int64_t)((uint32_t)a / (uint32_t)b);
    return a / b;
}

/* The addresses of element i. */
template <int N> __device__ inline void locate(const loop<N> &l, int64_t i, char *(&p)[N])
{
    for (int o = 0; o < N; o++)
        p[o] = l.data[o];
#pragma unroll 1 /* few registers: more threads in flight */
    for (int d = l.ndim - 1; d > 0; d--) {
        int64_t q = quotient(i, l.shape[d]), r = i - q * l.shape[d];
        for (int o = 0; o < N; o++)
            p[o] += r * l.stride[o][d];
        i = q;
    }
    for (int o = 0; o < N; o++)
        p[o] += i * l.stride[o][0];
}

/* The offset of element i in operand o, in bytes. */
template <int N> __device__ inline int64_t offset(const loop<N> &l, int o, int64_t i)
{
    int64_t sum = 0;
#pragma unroll 1
    for (int d = l.ndim - 1; d > 0; d--) {
        int64_t q = quotient(i, l.shape[d]);
        sum += (i - q * l.shape[d]) * l.stride[o][d];
        i = q;
    }
    return sum + i * l.stride[o][0];
}

template <int N> inline loop<N> loop_of(const cti_loop &c)
{
    loop<N> l;
    l.ndim = c.ndim;
    l.numel = c.numel;
    for (int d = 0; d < CT_MAX_DIMS; d++) {
        l.shape[d] = d < c.ndim ? c.shape[d] : 1;
        for (int o = 0; o < N; o++)
            l.stride[o][d] = d < c.ndim ? c.stride[o][d] : 0;
    }
    for (int o = 0; o < N; o++)
        l.data[o] = c.data[o];
    return l;
}

/* ---- for_each ---- */
template <int N, class F> __global__ void __launch_bounds__(CTI_BLOCK) loop_kernel(loop<N> l, F f)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < l.numel; i += step) {
        char *p[N];
        locate(l, i, p);
        f(p);
    }
}

/* f for each element of the views, which have one shape; v[0] is the output. */
template <int N, class F>
inline int for_each(ct_stream *s, const char *what, const ct_view *const (&v)[N], F f)
{
    cti_loop c;
    cti_loop_init(&c, N, v);
    if (c.numel == 0)
        return CT_OK;
    return cti_cuda_check(s,
                          CTI_LAUNCH((loop_kernel<N, F>), cti_blocks(s, c.numel), CTI_BLOCK, 0,
                                     s->compute, loop_of<N>(c), f),
                          what);
}

/* ---- map ---- */
template <class T, int V> struct alignas(sizeof(T) * V) pack {
    T v[V];
};

/* V neighbours, or (step 0) one element V times. */
template <int V, class T>
__device__ inline void load_pack(math_t<T> (&r)[V], const T *p, int64_t step)
{
    if (V > 1 && step != 0) {
        pack<T, V> k = *(const pack<T, V> *)p;
#pragma unroll
        for (int j = 0; j < V; j++)
            r[j] = load(&k.v[j]);
    } else {
        math_t<T> one = load(p);
#pragma unroll
        for (int j = 0; j < V; j++)
            r[j] = one;
    }
}

/* l is in units of V elements. */
template <int V, class F>
__global__ void __launch_bounds__(CTI_BLOCK) map_kernel(loop<F::inputs + 1> l, int beta, F f)
{
    typedef typename F::in X;
    typedef typename F::out Y;
    const int N = F::inputs + 1, A = N > 1 ? 1 : 0, B = N > 2 ? 2 : 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < l.numel; i += step) {
        char *p[N];
        math_t<X> a[V] = {}, b[V] = {};
        math_t<Y> old[V] = {};
        pack<Y, V> r;
        locate(l, i, p);
        if (A)
            load_pack<V>(a, (const X *)p[A], l.stride[A][l.ndim - 1]);
        if (B)
            load_pack<V>(b, (const X *)p[B], l.stride[B][l.ndim - 1]);
        if (beta)
            load_pack<V>(old, (const Y *)p[0], 1);
#pragma unroll
        for (int j = 0; j < V; j++) {
            math_t<Y> v = f(a[j], b[j]);
            store(&r.v[j], beta ? (math_t<Y>)(old[j] + v) : v);
        }
        *(pack<Y, V> *)p[0] = r;
    }
}

template <int V, class F>
inline int map_launch(ct_stream *s, const char *what, const cti_loop &c, int beta, F f)
{
    if (c.numel == 0)
        return CT_OK;
    return cti_cuda_check(s,
                          CTI_LAUNCH((map_kernel<V, F>), cti_blocks(s, c.numel), CTI_BLOCK, 0,
                                     s->compute, loop_of<F::inputs + 1>(c), beta, f),
                          what);
}

/* Is each operand's innermost dimension dense (or one value, but for y), and all aligned? */
inline bool packs(const cti_loop &c, const int64_t *esize, int V)
{
    for (int o = 0; o < c.nop; o++) {
        int64_t last = c.stride[o][c.ndim - 1], whole = esize[o] * V;
        if (last == 0 && o > 0)
            continue;
        if (last != esize[o] || (uintptr_t)c.data[o] % (size_t)whole != 0)
            return false;
        for (int d = 0; d + 1 < c.ndim; d++)
            if (c.stride[o][d] % whole != 0)
                return false;
    }
    return c.ndim == 1 || c.shape[c.ndim - 1] % V == 0;
}

/* v: y, then the inputs. `any` does what f does and serves other layouts: one for several f keeps
 * the number of kernels down. */
template <class F, class G>
inline int map(ct_stream *s, const char *what, const ct_view *const (&v)[F::inputs + 1], int beta,
               F f, G any)
{
    const int N = F::inputs + 1, in = F::inputs ? (int)sizeof(typename F::in) : 1,
              out = (int)sizeof(typename F::out), wide = in > out ? in : out;
    const int V = wide < 4 ? 4 : 16 / wide; /* more costs registers and time to compile */
    const int64_t esize[3] = {out, in, in};
    cti_loop c;

    cti_loop_init(&c, N, v);
    if (c.numel == 0)
        return CT_OK;
    if (!packs(c, esize, V))
        return map_launch<1>(s, what, c, beta, any);
    cti_loop rest = c; /* what is left of a single dimension */
    int last = c.ndim - 1;
    int64_t body = c.numel - (c.ndim == 1 ? c.numel % V : 0);
    rest.numel = rest.shape[last] = c.numel - body;
    for (int o = 0; o < N; o++) {
        rest.data[o] += body * rest.stride[o][last];
        c.stride[o][last] *= V;
    }
    c.shape[last] = c.ndim == 1 ? body / V : c.shape[last] / V;
    c.numel = body / V;
    int r = map_launch<V>(s, what, c, beta, f);
    return r < 0 || rest.numel == 0 ? r : map_launch<1>(s, what, rest, beta, any);
}

template <class F>
inline int map(ct_stream *s, const char *what, const ct_view *const (&v)[F::inputs + 1], int beta,
               F f)
{
    return map(s, what, v, beta, f, f);
}

} // namespace cti

#endif
