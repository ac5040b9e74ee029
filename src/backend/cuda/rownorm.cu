/* SPDX-License-Identifier: Apache-2.0 */
/* Layer and RMS norm: a block a row of a row-major matrix; sums in a tree. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/types.cuh"

namespace cti
{

/* The sum of v over the block, for all its threads. */
template <class A> __device__ inline float block_sum(A &shared, float v)
{
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int half = CTI_BLOCK / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    float sum = shared[0];
    __syncthreads();
    return sum;
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    rownorm_kernel(T *y, const T *x, const T *w, const T *b, float *mean, float *invstd,
                   int64_t rows, int64_t n, float eps, bool rms)
{
    CTI_SHARED(float, shared, CTI_BLOCK);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *from = x + r * n;
        float sum = 0, sq = 0, m = 0;
        if (!rms) {
            for (int64_t i = threadIdx.x; i < n; i += CTI_BLOCK)
                sum += load(from + i);
            m = block_sum(shared, sum) / (float)n;
        }
        for (int64_t i = threadIdx.x; i < n; i += CTI_BLOCK) {
            float d = load(from + i) - m;
            sq += d * d;
        }
        float s = 1.0f / sqrtf(block_sum(shared, sq) / (float)n + eps);
        if (threadIdx.x == 0) {
            mean[r] = m;
            invstd[r] = s;
        }
        for (int64_t i = threadIdx.x; i < n; i += CTI_BLOCK) {
            float v = (load(from + i) - m) * s;
            v = w ? v * load(w + i) : v;
            store(y + r * n + i, b ? v + load(b + i) : v);
        }
    }
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    rownorm_grad_kernel(T *dx, int beta, T *t, const T *dy, const T *x, const T *w,
                        const float *mean, const float *invstd, int64_t rows, int64_t n, bool rms)
{
    CTI_SHARED(float, shared, CTI_BLOCK);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float m = mean[r], s = invstd[r], sum = 0, along = 0;
        for (int64_t i = threadIdx.x; i < n; i += CTI_BLOCK) {
            float d = load(dy + r * n + i), xhat = (load(x + r * n + i) - m) * s;
            float g = w ? d * load(w + i) : d;
            sum += g;
            along += g * xhat;
            if (t)
                store(t + r * n + i, d * xhat);
        }
        sum = rms ? 0.0f : block_sum(shared, sum) / (float)n;
        along = block_sum(shared, along) / (float)n;
        for (int64_t i = threadIdx.x; i < n && dx; i += CTI_BLOCK) {
            float d = load(dy + r * n + i), xhat = (load(x + r * n + i) - m) * s;
            float v = s * ((w ? d * load(w + i) : d) - sum - xhat * along);
            store(dx + r * n + i, beta ? load(dx + r * n + i) + v : v);
        }
    }
}

static unsigned blocks_of(int64_t rows)
{
    return (unsigned)(rows < 65535 ? rows : 65535);
}

template <class T> static const T *pointer(const ct_view *v)
{
    return v ? (const T *)v->data : nullptr;
}

template <class T> static int run(ct_stream *s, const ct_rownorm_args *a, int64_t rows)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((rownorm_kernel<T>), blocks_of(rows), CTI_BLOCK, 0, s->compute,
                                     (T *)a->y.data, (const T *)a->x.data, pointer<T>(a->weight),
                                     pointer<T>(a->bias), (float *)a->mean.data,
                                     (float *)a->invstd.data, rows, a->n, (float)a->eps, a->rms),
                          "rownorm");
}

template <class T>
static int run_grad(ct_stream *s, const ct_rownorm_args *a, int64_t rows, const ct_view *dx,
                    int beta, const ct_view *t, const ct_view *dy)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((rownorm_grad_kernel<T>), blocks_of(rows), CTI_BLOCK, 0,
                                     s->compute, (T *)pointer<T>(dx), beta, (T *)pointer<T>(t),
                                     (const T *)dy->data, (const T *)a->x.data,
                                     pointer<T>(a->weight), (const float *)a->mean.data,
                                     (const float *)a->invstd.data, rows, a->n, a->rms),
                          "rownorm backward");
}

} // namespace cti

using namespace cti;

int cti_cuda_rownorm(ct_stream *s, const ct_rownorm_args *a)
{
    int64_t numel = ct_view_numel(&a->x);

    switch (a->x.dtype) {
        CTI_CASES_FLOAT(return numel ? run<T>(s, a, numel / a->n) : CT_OK)
    default:
        return cti_cuda_no_dtype(s, "rownorm", a->x.dtype);
    }
}

int cti_cuda_rownorm_grad(ct_stream *s, const ct_rownorm_args *a, const ct_view *dx, int beta,
                          const ct_view *t, const ct_view *dy)
{
    int64_t numel = ct_view_numel(&a->x);

    switch (a->x.dtype) {
        CTI_CASES_FLOAT(return numel ? run_grad<T>(s, a, numel / a->n, dx, beta, t, dy) : CT_OK)
    default:
        return cti_cuda_no_dtype(s, "rownorm backward", a->x.dtype);
    }
}
