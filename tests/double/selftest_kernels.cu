/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the double's own test, right ones and wrong ones, in the dialect. */
#include "backend/cuda/launch.h"

#include "selftest.h"

template <class T, int N>
__global__ void __launch_bounds__(256) axpy(T *y, const T *x, float a, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        y[i] = (T)((float)y[i] + a * (float)x[i] * N);
}

template <bool BARRIER> __device__ float block_sum(float v)
{
    CTI_SHARED(float, part, 32);
    CTI_SHARED(float, total, 1);
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, warps = (int)blockDim.x >> 5;
    for (int d = 16; d; d >>= 1)
        v += __shfl_down_sync(0xffffffffu, v, d);
    if (lane == 0)
        part[warp] = v;
    if (BARRIER)
        __syncthreads();
    if (warp == 0) {
        v = lane < warps ? (float)part[lane] : 0.f;
        for (int d = 16; d; d >>= 1)
            v += __shfl_xor_sync(0xffffffffu, v, d);
        if (lane == 0)
            total[0] = v;
    }
    __syncthreads();
    v = total[0];
    __syncthreads();
    return v;
}

template <bool BARRIER> __global__ void sum(float *out, const float *x, int n)
{
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        s += x[i];
    s = block_sum<BARRIER>(s);
    if (threadIdx.x == 0)
        out[blockIdx.x] = s;
}

/* Reverses each block's 64 integers in shared memory, counts even ones, and so on. */
__global__ void features(int *x, unsigned *counts)
{
    CTI_DYN_SHARED(int, a);
    CTI_SHARED(unsigned, n, 2);
    int i = threadIdx.x;
    if (i < 2)
        n[i] = 0;
    a[i] = x[blockIdx.x * 64 + i];
    __syncthreads();
    if (i < 32)
        swap(a[i], a[63 - i]);
    int v = x[blockIdx.x * 64 + i];
    unsigned ballot = __ballot_sync(0xffffffffu, v % 2 == 0);
    if ((i & 31) == 0)
        atomicAdd(&n[0], (unsigned)__popc(ballot));
    if (__any_sync(0xffffffffu, v == 7))
        atomicMax(&n[1], 1u);
    int all = __syncthreads_count(v >= 0);
    x[blockIdx.x * 64 + i] = a[i] + __shfl_up_sync(0xffffffffu, 0 * v, 1) + (all - 64);
    if (i == 0) {
        atomicAdd(&counts[0], (unsigned)n[0]);
        atomicAdd(&counts[1], (unsigned)n[1]);
    }
}

__global__ void overrun(float *x, int n)
{
    if (threadIdx.x == 0)
        x[n] = 1.f;
}

__global__ void divergent(float *x)
{
    if (threadIdx.x < 16)
        __syncthreads();
    x[threadIdx.x] = 1.f;
}

__global__ void half_warp(float *x)
{
    float v = 1.f;
    if (threadIdx.x < 16)
        v = __shfl_down_sync(0xffffffffu, v, 1);
    x[threadIdx.x] = v;
}

__global__ void bounds(float *x)
{
    CTI_SHARED(float, a, 8);
    a[threadIdx.x] = 1.f;
    x[threadIdx.x] = a[threadIdx.x];
}

cudaError_t k_axpy(float *y, const float *x, float a, int64_t n, cudaStream_t s)
{
    return CTI_LAUNCH((axpy<float, 1>), (unsigned)((n + 255) / 256), 256, 0, s, y, x, a, n);
}

cudaError_t k_axpy_bf16(__nv_bfloat16 *y, const __nv_bfloat16 *x, float a, int64_t n,
                        cudaStream_t s)
{
    return CTI_LAUNCH((axpy<__nv_bfloat16, 2>), 2, 32, 0, s, y, x, a, n);
}

cudaError_t k_sum(float *out, const float *x, int n, int blocks, cudaStream_t s)
{
    return CTI_LAUNCH((sum<true>), blocks, 128, 0, s, out, x, n);
}

cudaError_t k_features(int *x, unsigned *counts, int blocks, cudaStream_t s)
{
    return CTI_LAUNCH((features), blocks, 64, 64 * sizeof(int), s, x, counts);
}

cudaError_t k_wrong(int which, float *x, int n, cudaStream_t s)
{
    switch (which) {
    case WRONG_RACE:
        return CTI_LAUNCH((sum<false>), 1, 128, 0, s, x, x, n);
    case WRONG_OVERRUN:
        return CTI_LAUNCH((overrun), 1, 32, 0, s, x, n);
    case WRONG_DIVERGENT:
        return CTI_LAUNCH((divergent), 1, 32, 0, s, x);
    case WRONG_MASK:
        return CTI_LAUNCH((half_warp), 1, 32, 0, s, x);
    default:
        return CTI_LAUNCH((bounds), 1, 32, 0, s, x);
    }
}
