/* SPDX-License-Identifier: Apache-2.0 */
/* Elements by CUDA data type; the libraries compute in f32, or in f64 where all is f64. */
#ifndef DOUBLE_NUM_H
#define DOUBLE_NUM_H

#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

namespace ctd
{
inline size_t size_of(cudaDataType t)
{
    switch (t) {
    case CUDA_R_64F:
    case CUDA_R_64I:
        return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
        return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
        return 2;
    case CUDA_R_8I:
        return 1;
    default:
        return 0;
    }
}

template <class T = float> inline T load(cudaDataType t, const void *p, size_t i)
{
    switch (t) {
    case CUDA_R_32F:
        return ((const float *)p)[i];
    case CUDA_R_16BF:
        return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    case CUDA_R_16F:
        return __half2float(((const __half *)p)[i]);
    case CUDA_R_64F:
        return (T)((const double *)p)[i];
    default:
        return 0;
    }
}

template <class T> inline void store(cudaDataType t, void *p, size_t i, T v)
{
    switch (t) {
    case CUDA_R_32F:
        ((float *)p)[i] = (float)v;
        break;
    case CUDA_R_16BF:
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16((float)v);
        break;
    case CUDA_R_16F:
        ((__half *)p)[i] = __float2half((float)v);
        break;
    case CUDA_R_64F:
        ((double *)p)[i] = v;
        break;
    default:
        break;
    }
}

/* TF32 keeps 10 bits of the mantissa, rounded to nearest even. */
inline float tf32(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7f800000u) != 0x7f800000u)
        u += 0xfffu + (u >> 13 & 1);
    u &= ~0x1fffu;
    memcpy(&x, &u, 4);
    return x;
}
} // namespace ctd

#endif
