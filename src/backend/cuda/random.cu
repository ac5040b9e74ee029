/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by logical index: element i takes word i % 4 of Philox counter (i / 4, step,
 * micro, ordinal), wherever it lies in memory; the same numbers as on the CPU
 * (src/backend/cpu/random.c has the rules). In dense row-major memory a thread makes the four
 * elements of a counter; in any other layout it goes in the order of memory and each element draws
 * by itself. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/philox.cuh"

#include <math.h>

namespace cti
{

/* ---- what is made of words ---- Of the element's own one, the other one of its pair (words 2k and
 * 2k + 1; is the own one the odd one?), and x. Products and sums are rounded one by one: the CPU's
 * bytes. */
struct dropout_op {
    float scale;
    uint32_t threshold; /* keeps words >> 8 from here on */
    int beta;
    __device__ float operator()(uint32_t own, uint32_t, bool, float x) const
    {
        return own >> 8 >= threshold ? __fmul_rn(x, scale) : 0.0f;
    }
};

struct uniform_op {
    float low, width;
    int beta;
    __device__ float operator()(uint32_t own, uint32_t, bool, float) const
    {
        return __fadd_rn(__fmul_rn(u01(own), width), low);
    }
};

/* cos (or sin) of v turns, 0 <= v <= 1, to a few units of 1e-16: v is brought into an eighth of a
 * turn around 0 exactly, and the series is short there. The library's sin and cos need local
 * memory. */
__device__ inline double of_turns(double v, bool sine)
{
    int quarter = (int)(4 * v + 0.5);
    double a = 6.283185307179586477 * (v - 0.25 * quarter), q = a * a, c = 1, s = 1;
#pragma unroll
    for (int k = 16; k > 0; k -= 2) {
        c = 1 - c * q * (1.0 / (k * (k - 1)));
        s = 1 - s * q * (1.0 / (k * (k + 1)));
    }
    s *= a;
    quarter += sine ? 3 : 0; /* sin(t) = cos(t - a quarter) */
    double r = quarter & 1 ? s : c;
    return (quarter & 3) == 1 || (quarter & 3) == 2 ? -r : r;
}

/* Box-Muller in double: a pair is r cos and r sin. */
struct normal_op {
    double mean, std;
    int beta;
    __device__ float operator()(uint32_t own, uint32_t pair, bool odd, float) const
    {
        double u = ((double)(odd ? pair : own) + 0.5) * 0x1p-32;
        double v = ((double)(odd ? own : pair) + 0.5) * 0x1p-32;
        double z = sqrt(-2 * log(u)) * of_turns(v, odd);
        return (float)__dadd_rn(__dmul_rn(z, std), mean);
    }
};

template <class T> __device__ inline void put(T *y, int beta, float v)
{
    store(y, beta ? load(y) + v : v);
}

/* y and x (or NULL) are dense, row-major and aligned for packs of four. */
template <class T, class OP>
__global__ void __launch_bounds__(CTI_BLOCK)
    dense_kernel(T *y, const T *x, int64_t n, ct_rng g, OP op)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x * 4;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n; i += step) {
        bool whole = i + 4 <= n;
        float a[4] = {}, v[4];
        words w = words_of(g, (uint32_t)(i / 4));
        if (x && whole)
            load_pack<4>(a, x + i, 1);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (x && !whole && i + k < n)
                a[k] = load(x + i + k);
            v[k] = op(w.v[k], w.v[k ^ 1], k & 1, a[k]);
        }
        if (whole && !op.beta) {
            pack<T, 4> r;
#pragma unroll
            for (int k = 0; k < 4; k++)
                store(&r.v[k], v[k]);
            *(pack<T, 4> *)(y + i) = r;
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k < n)
                    put(y + i + k, op.beta, v[k]);
        }
    }
}

/* Operands: y, x, and bytes whose addresses are logical indices. */
template <class T, class OP> struct anywhere {
    ct_rng g;
    OP op;
    bool input;
    __device__ void operator()(char *const *p) const
    {
        uint64_t i = (uint64_t)(uintptr_t)p[2];
        words w = words_of(g, (uint32_t)(i / 4));
        bool odd = i & 1, high = i & 2;
        uint32_t first = high ? w.v[2] : w.v[0], second = high ? w.v[3] : w.v[1];
        float x = input ? load((const T *)p[1]) : 0.0f;
        put((T *)p[0], op.beta, op(odd ? second : first, odd ? first : second, odd, x));
    }
};

template <class T> static bool dense(const ct_view *v)
{
    int64_t n = 1;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->shape[d] != 1 && v->stride[d] != n)
            return false;
        n *= v->shape[d];
    }
    return (uintptr_t)v->data % sizeof(pack<T, 4>) == 0;
}

/* x NULL: there is none. */
template <class T, class OP>
static int run(ct_stream *s, const char *what, const ct_view *y, const ct_view *x, const ct_rng &g,
               OP op)
{
    int64_t n = ct_view_numel(y);
    ct_view index = *y;

    if (n == 0)
        return CT_OK;
    if (dense<T>(y) && (!x || dense<T>(x)))
        return cti_cuda_check(s,
                              CTI_LAUNCH((dense_kernel<T, OP>), cti_blocks(s, div_up(n, 4)),
                                         CTI_BLOCK, 0, s->compute, (T *)y->data,
                                         x ? (const T *)x->data : nullptr, n, g, op),
                              what);
    index.data = nullptr;
    index.dtype = CT_U8;
    n = 1;
    for (int k = y->ndim - 1; k >= 0; k--) {
        index.stride[k] = n;
        n *= y->shape[k];
    }
    const ct_view *const v[] = {y, x ? x : y, &index};
    anywhere<T, OP> f = {g, op, x != nullptr};
    return for_each<3>(s, what, v, f);
}

template <class OP>
static int by_dtype(ct_stream *s, const char *what, const ct_view *y, const ct_view *x,
                    const ct_rng *rng, OP op)
{
    switch (!x || x->dtype == y->dtype ? y->dtype : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return run<T>(s, what, y, x, *rng, op))
    default:
        return cti_cuda_no_dtype(s, what, y->dtype);
    }
}

} // namespace cti

using namespace cti;

int cti_cuda_dropout(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double p,
                     const ct_rng *rng)
{
    /* u >= p with u = (w >> 8) / 2^24. At p = 1 nothing is kept, and the scale isn't inf. */
    dropout_op op = {p < 1 ? (float)(1 / (1 - p)) : 0,
                     p <= 0 ? 0 :
                     p >= 1 ? UINT32_MAX :
                              (uint32_t)ceil(p * 0x1p24),
                     beta};
    return by_dtype(s, "dropout", y, x, rng, op);
}

int cti_cuda_uniform(ct_stream *s, const ct_view *y, double low, double high, const ct_rng *rng)
{
    uniform_op op = {(float)low, (float)(high - low), 0};
    return by_dtype(s, "uniform", y, nullptr, rng, op);
}

int cti_cuda_normal(ct_stream *s, const ct_view *y, double mean, double std, const ct_rng *rng)
{
    normal_op op = {mean, std, 0};
    return by_dtype(s, "normal", y, nullptr, rng, op);
}
