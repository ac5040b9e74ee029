/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar math, once for all backends: plain expressions that C and CUDA C++ both compile. f32 has its own
 * exp, erf and tanh: straight-line code that a compiler vectorises, within 2 ulp, right at 0,
 * denormals, infinities and NaN. f64 is libm's: it is the side that is compared with PyTorch. */
#ifndef BACKEND_SCALAR_H
#define BACKEND_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define CTI_SCALAR static inline __host__ __device__
#elif defined(__GNUC__)
#define CTI_SCALAR static inline __attribute__((always_inline, unused))
#else
#define CTI_SCALAR static inline
#endif

CTI_SCALAR uint32_t cti_bits_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

CTI_SCALAR float cti_f32_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The loss scale after a step: torch.amp.GradScaler's rule. `overflow`: of loss or gradients. */
CTI_SCALAR void cti_scale_next(double *scale, int64_t *clean, int overflow, double growth,
                               double backoff, int64_t interval)
{
    if (overflow) {
        *scale *= backoff;
        *clean = 0;
    } else if (++*clean >= interval) {
        *clean = 0;
        *scale = (float)(*scale * growth) < INFINITY ? *scale * growth : *scale;
    }
}

#if defined(__CUDA_ARCH__)
CTI_SCALAR float cti_exp_f32(float x)
{
    return expf(x);
}
CTI_SCALAR float cti_erf_f32(float x)
{
    return erff(x);
}
CTI_SCALAR float cti_tanh_f32(float x)
{
    return tanhf(x);
}
#else
/* exp(x) = 2^n exp(r), |r| <= ln(2)/2. n comes out of the low bits of x/ln2 + 1.5 * 2^23, and 2^n is
 * applied in two halves so that results down to the denormals round once. Beyond the clamps the
 * result is 0 or inf anyway; NaN passes both comparisons. */
CTI_SCALAR float cti_exp_f32(float x)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504f + 12582912.0f;
    float n = t - 12582912.0f;
    float r = c - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 0.001392692661f;
    p = p * r + 0.008363773874f;
    p = p * r + 0.04166655011f;
    p = p * r + 0.1666657338f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    int32_t k = (int32_t)(cti_bits_f32(t) - 0x4b400000u);
    int32_t half = k >> 1;
    float a = cti_f32_bits((uint32_t)(half + 127) << 23);
    float b = cti_f32_bits((uint32_t)(k - half + 127) << 23);
    return p * a * b;
}

/* Minimax polynomials: erf(x)/x in x^2 below 0.92, log(erfc(x)) above. */
CTI_SCALAR float cti_erf_f32(float x)
{
    float a = fabsf(x);
    float z = a * a;
    float p = 8.334718615e-5f;
    p = p * z - 0.0008134709332f;
    p = p * z + 0.005200368587f;
    p = p * z - 0.02685915147f;
    p = p * z + 0.1128369152f;
    p = p * z - 0.3761263352f;
    p = p * z + 1.128379167f;
    p = p * x;
    float c = a > 4.0f ? 4.0f : a;
    float q = 1.643569654e-6f;
    q = q * c - 4.617791279e-5f;
    q = q * c + 0.000597743472f;
    q = q * c - 0.004763575249f;
    q = q * c + 0.0264310176f;
    q = q * c - 0.1100944808f;
    q = q * c - 0.6318145167f;
    q = q * c - 1.130237616f;
    q = q * c + 0.0003204415313f;
    q = 1.0f - cti_exp_f32(q);
    q = x < 0 ? -q : q;
    return a < 0.92f ? p : q;
}

/* A minimax polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above. */
CTI_SCALAR float cti_tanh_f32(float x)
{
    float a = fabsf(x);
    float z = a * a;
    float p = -0.006045165097f;
    p = p * z + 0.02096132911f;
    p = p * z - 0.05384326318f;
    p = p * z + 0.1333271885f;
    p = p * z - 0.3333332843f;
    p = p * z * x + x;
    float q = 1.0f - 2.0f / (cti_exp_f32(2.0f * a) + 1.0f);
    q = x < 0 ? -q : q;
    return a < 0.625f ? p : q;
}
#endif

CTI_SCALAR double cti_exp_f64(double x)
{
    return exp(x);
}
CTI_SCALAR double cti_erf_f64(double x)
{
    return erf(x);
}
CTI_SCALAR double cti_tanh_f64(double x)
{
    return tanh(x);
}
CTI_SCALAR float cti_log_f32(float x)
{
    return logf(x);
}
CTI_SCALAR double cti_log_f64(double x)
{
    return log(x);
}
CTI_SCALAR float cti_sqrt_f32(float x)
{
    return sqrtf(x);
}
CTI_SCALAR double cti_sqrt_f64(double x)
{
    return sqrt(x);
}
CTI_SCALAR float cti_abs_f32(float x)
{
    return fabsf(x);
}
CTI_SCALAR double cti_abs_f64(double x)
{
    return fabs(x);
}

#define CTI_SCALAR_SIGMOID(S, x) (1 / (1 + cti_exp_##S(-(x))))

/* GELU: x Phi(x); derivative Phi(x) + x phi(x). */
#define CTI_SCALAR_PHI(T, S, x) ((T)0.5 * (1 + cti_erf_##S((x) * (T)0.70710678118654752440)))
#define CTI_SCALAR_PDF(T, S, x) ((T)0.39894228040143267794 * cti_exp_##S((x) * (x) * (T)-0.5))

/* tanh of GELU's approximation, and the derivative of its argument: sqrt(2/pi) (x + 0.044715 x^3). */
#define CTI_SCALAR_GT(T, S, x) \
    cti_tanh_##S((T)0.79788456080286535588 * ((x) + (T)0.044715 * ((x) * (x) * (x))))
#define CTI_SCALAR_GT_D(T, x) ((T)0.79788456080286535588 * (1 + 3 * (T)0.044715 * ((x) * (x))))

/* What a derivative reads besides dy. */
#define CTI_NEEDS_NONE 0
#define CTI_NEEDS_X    1
#define CTI_NEEDS_Y    2

/* X(ID, name, T, S, needs, value of x, gradient of dy and (x or y)). Kinks as PyTorch has them: relu'(0)
 * = 0 and a NaN passes relu both ways; abs'(0) = 0; sqrt'(0) = inf. */
#define CTI_UNARY_LIST(X, T, S)                                                                 \
    X(CT_UN_NEG, neg, T, S, CTI_NEEDS_NONE, -x, -dy)                                            \
    X(CT_UN_ABS, abs, T, S, CTI_NEEDS_X, cti_abs_##S(x), dy *(T)((x > 0) - (x < 0)))            \
    X(CT_UN_EXP, exp, T, S, CTI_NEEDS_Y, cti_exp_##S(x), dy *y)                                 \
    X(CT_UN_LOG, log, T, S, CTI_NEEDS_X, cti_log_##S(x), dy / x)                                \
    X(CT_UN_SQRT, sqrt, T, S, CTI_NEEDS_Y, cti_sqrt_##S(x), dy / (2 * y))                       \
    X(CT_UN_SQUARE, square, T, S, CTI_NEEDS_X, x *x, dy *(2 * x))                               \
    X(CT_UN_RELU, relu, T, S, CTI_NEEDS_Y, x <= 0 ? 0 : x, y <= 0 ? 0 : dy)                     \
    X(CT_UN_GELU, gelu, T, S, CTI_NEEDS_X, x *CTI_SCALAR_PHI(T, S, x),                          \
      dy *(CTI_SCALAR_PHI(T, S, x) + x * CTI_SCALAR_PDF(T, S, x)))                              \
    X(CT_UN_GELU_TANH, gelu_tanh, T, S, CTI_NEEDS_X, (T)0.5 * x * (1 + CTI_SCALAR_GT(T, S, x)), \
      dy * (T)0.5 *                                                                             \
          (1 + CTI_SCALAR_GT(T, S, x) +                                                         \
           x * (1 - CTI_SCALAR_GT(T, S, x) * CTI_SCALAR_GT(T, S, x)) * CTI_SCALAR_GT_D(T, x)))  \
    X(CT_UN_SILU, silu, T, S, CTI_NEEDS_X, x / (1 + cti_exp_##S(-x)),                           \
      dy * CTI_SCALAR_SIGMOID(S, x) * (1 + x * (1 - CTI_SCALAR_SIGMOID(S, x))))                 \
    X(CT_UN_SIGMOID, sigmoid, T, S, CTI_NEEDS_Y, CTI_SCALAR_SIGMOID(S, x), dy *(1 - y) * y)     \
    X(CT_UN_TANH, tanh, T, S, CTI_NEEDS_Y, cti_tanh_##S(x), dy *(1 - y * y))

/* What the gradient of ct_unary `fn` reads; expand with CTI_UNARY_NEEDS as X. */
#define CTI_UNARY_NEEDS_CASE(ID, name, T, S, needs, value, grad) \
    case ID:                                                     \
        return needs;
#define CTI_DEFINE_UNARY_NEEDS(fname)                        \
    static inline int fname(int fn)                          \
    {                                                        \
        switch (fn) {                                        \
            CTI_UNARY_LIST(CTI_UNARY_NEEDS_CASE, float, f32) \
        default:                                             \
            return CTI_NEEDS_NONE;                           \
        }                                                    \
    }

#endif
