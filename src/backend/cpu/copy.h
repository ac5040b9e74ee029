/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and conversions between all dtypes. */
#ifndef BACKEND_CPU_COPY_H
#define BACKEND_CPU_COPY_H

#include "backend/cpu/loop.h"
#include "backend/scalar.h"

int cti_cpu_copy(ct_stream *s, const ct_view *dst, const ct_view *src);
/* The loop that converts in one step (f32 and bf16, f32 and f16: always), or NULL. */
cti_span_fn cti_cpu_convert(ct_dtype to, ct_dtype from);
int cti_cpu_fill(ct_stream *s, const ct_view *dst, double value);

CTI_INLINE float cti_f32_from_bf16(uint16_t h)
{
    return cti_f32_bits((uint32_t)h << 16);
}

/* Round to nearest even; a NaN stays one. */
CTI_INLINE uint16_t cti_bf16_from_f32(float x)
{
    uint32_t u = cti_bits_f32(x);
    uint32_t r = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return (uint16_t)(x != x ? (u >> 16 | 0x40u) : r);
}

/* Exponent and mantissa move up by 13 bits; a product by 2^112 repairs the exponent's bias, also for
 * denormals. Infinities and NaN get the largest exponent. */
CTI_INLINE float cti_f32_from_f16(uint16_t h)
{
    uint32_t m = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t u = cti_bits_f32(cti_f32_bits(m) * 0x1p112f);
    u = m >= 0x0f800000u ? (m | 0x7f800000u) : u;
    return cti_f32_bits(u | (uint32_t)(h & 0x8000u) << 16);
}

/* Round to nearest even: in the integers for normal results, by an addition whose last bit is the
 * denormals' 2^-24 below them. */
CTI_INLINE uint16_t cti_f16_from_f32(float x)
{
    uint32_t u = cti_bits_f32(x);
    uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t normal = (a + 0xc8000fffu + (a >> 13 & 1)) >> 13;
    uint32_t denormal = cti_bits_f32(cti_f32_bits(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? denormal : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return (uint16_t)(r | sign);
}

/* Truncates; what doesn't fit gives INT64_MIN, as x86 does (C leaves it undefined). */
CTI_INLINE int64_t cti_i64_from_f64(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

#endif
