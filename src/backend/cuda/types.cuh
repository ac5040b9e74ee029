/* SPDX-License-Identifier: Apache-2.0 */
/* Element types in kernels: what is stored, and what is computed with. bf16 and f16 are loaded to
 * f32 and rounded to nearest even when stored. */
#ifndef BACKEND_CUDA_TYPES_CUH
#define BACKEND_CUDA_TYPES_CUH

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "backend/scalar.h"

namespace cti
{

template <class T> struct math {
    typedef T type;
};
template <> struct math<__nv_bfloat16> {
    typedef float type;
};
template <> struct math<__half> {
    typedef float type;
};
template <class T> using math_t = typename math<T>::type;

template <class T> __host__ __device__ inline math_t<T> load(const T *p)
{
    return *p;
}
template <> __host__ __device__ inline float load<__nv_bfloat16>(const __nv_bfloat16 *p)
{
    return __bfloat162float(*p);
}
template <> __host__ __device__ inline float load<__half>(const __half *p)
{
    return __half2float(*p);
}

template <class T> __host__ __device__ inline void store(T *p, math_t<T> v)
{
    *p = v;
}
template <> __host__ __device__ inline void store<__nv_bfloat16>(__nv_bfloat16 *p, float v)
{
    *p = __float2bfloat16(v);
}
template <> __host__ __device__ inline void store<__half>(__half *p, float v)
{
    *p = __float2half(v);
}

/* Truncates; what doesn't fit gives INT64_MIN, as on the CPU. */
__host__ __device__ inline int64_t i64_of(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

} // namespace cti

/* Cases of a switch over a dtype: the statement with T its type. A statement with commas outside
 * parentheses must be in a lambda or a call. */
#define CTI_CASE(D, type, ...) \
    case D: {                  \
        typedef type T;        \
        __VA_ARGS__;           \
        break;                 \
    }
#define CTI_CASES_FLOAT(...)                      \
    CTI_CASE(CT_F32, float, __VA_ARGS__)          \
    CTI_CASE(CT_BF16, __nv_bfloat16, __VA_ARGS__) \
    CTI_CASE(CT_F16, __half, __VA_ARGS__)
#define CTI_CASES_WIDE(...) CTI_CASE(CT_F64, double, __VA_ARGS__)
#define CTI_CASES_INT(...)                 \
    CTI_CASE(CT_I32, int32_t, __VA_ARGS__) \
    CTI_CASE(CT_I64, int64_t, __VA_ARGS__)

#endif
