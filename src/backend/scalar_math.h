/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of ct_math, once for all backends, as scalar.h has those of ct_unary: less often the bottleneck, so they
 * call the C library, and take up to two parameters, a and b. */
#ifndef BACKEND_SCALAR_MATH_H
#define BACKEND_SCALAR_MATH_H

#include "backend/scalar.h"

#define CTI_LIBM(name)                           \
    CTI_SCALAR float cti_##name##_f32(float x)   \
    {                                            \
        return name##f(x);                       \
    }                                            \
    CTI_SCALAR double cti_##name##_f64(double x) \
    {                                            \
        return name(x);                          \
    }
CTI_LIBM(sin)
CTI_LIBM(cos)
CTI_LIBM(tan)
CTI_LIBM(asin)
CTI_LIBM(acos)
CTI_LIBM(atan)
CTI_LIBM(sinh)
CTI_LIBM(cosh)
CTI_LIBM(asinh)
CTI_LIBM(acosh)
CTI_LIBM(atanh)
CTI_LIBM(exp2)
CTI_LIBM(expm1)
CTI_LIBM(log2)
CTI_LIBM(log10)
CTI_LIBM(log1p)
CTI_LIBM(floor)
CTI_LIBM(ceil)
CTI_LIBM(rint)
CTI_LIBM(trunc)
CTI_LIBM(erfc)
#undef CTI_LIBM
CTI_SCALAR float cti_pow_f32(float x, float y)
{
    return powf(x, y);
}
CTI_SCALAR double cti_pow_f64(double x, double y)
{
    return pow(x, y);
}
CTI_SCALAR float cti_fmod_f32(float x, float y)
{
    return fmodf(x, y);
}
CTI_SCALAR double cti_fmod_f64(double x, double y)
{
    return fmod(x, y);
}
CTI_SCALAR float cti_atan2_f32(float x, float y)
{
    return atan2f(x, y);
}
CTI_SCALAR double cti_atan2_f64(double x, double y)
{
    return atan2(x, y);
}

#define CTI_LN2        0.69314718055994530942
#define CTI_LN10       2.30258509299404568402
#define CTI_2_SQRTPI   1.12837916709551257390
#define CTI_SELU_SCALE 1.05070098735548049342
#define CTI_SELU_ALPHA 1.67326324235437728482

/* log(1 + exp(x)) without overflow. */
#define CTI_SCALAR_SOFTPLUS(S, x) \
    (((x) > 0 ? (x) : 0) + cti_log1p_##S(cti_exp_##S(-cti_abs_##S(x))))

/* X(ID, name, T, S, needs, value of x, gradient of dy and (x or y)), as CTI_UNARY_LIST. What PyTorch has at kinks: 0 at
 * both ends of hardtanh and clamp, the slope at 0 of leaky_relu, 0 at -3 and 1 at 3 of hardswish; its float 1/6 in hardsigmoid's. */
#define CTI_MATH_LIST(X, T, S)                                                                    \
    X(CT_MA_SIN, sin, T, S, CTI_NEEDS_X, cti_sin_##S(x), dy *cti_cos_##S(x))                      \
    X(CT_MA_COS, cos, T, S, CTI_NEEDS_X, cti_cos_##S(x), -dy *cti_sin_##S(x))                     \
    X(CT_MA_TAN, tan, T, S, CTI_NEEDS_Y, cti_tan_##S(x), dy *(1 + y * y))                         \
    X(CT_MA_ASIN, asin, T, S, CTI_NEEDS_X, cti_asin_##S(x), dy / cti_sqrt_##S(1 - x * x))         \
    X(CT_MA_ACOS, acos, T, S, CTI_NEEDS_X, cti_acos_##S(x), -dy / cti_sqrt_##S(1 - x * x))        \
    X(CT_MA_ATAN, atan, T, S, CTI_NEEDS_X, cti_atan_##S(x), dy / (1 + x * x))                     \
    X(CT_MA_SINH, sinh, T, S, CTI_NEEDS_X, cti_sinh_##S(x), dy *cti_cosh_##S(x))                  \
    X(CT_MA_COSH, cosh, T, S, CTI_NEEDS_X, cti_cosh_##S(x), dy *cti_sinh_##S(x))                  \
    X(CT_MA_ASINH, asinh, T, S, CTI_NEEDS_X, cti_asinh_##S(x), dy / cti_sqrt_##S(x * x + 1))      \
    X(CT_MA_ACOSH, acosh, T, S, CTI_NEEDS_X, cti_acosh_##S(x), dy / cti_sqrt_##S(x * x - 1))      \
    X(CT_MA_ATANH, atanh, T, S, CTI_NEEDS_X, cti_atanh_##S(x), dy / (1 - x * x))                  \
    X(CT_MA_EXP2, exp2, T, S, CTI_NEEDS_Y, cti_exp2_##S(x), dy *y *(T)CTI_LN2)                    \
    X(CT_MA_EXPM1, expm1, T, S, CTI_NEEDS_Y, cti_expm1_##S(x), dy *(y + 1))                       \
    X(CT_MA_LOG2, log2, T, S, CTI_NEEDS_X, cti_log2_##S(x), dy / (x * (T)CTI_LN2))                \
    X(CT_MA_LOG10, log10, T, S, CTI_NEEDS_X, cti_log10_##S(x), dy / (x * (T)CTI_LN10))            \
    X(CT_MA_LOG1P, log1p, T, S, CTI_NEEDS_X, cti_log1p_##S(x), dy / (1 + x))                      \
    X(CT_MA_RSQRT, rsqrt, T, S, CTI_NEEDS_Y, 1 / cti_sqrt_##S(x), (T)-0.5 * dy * y * y * y)       \
    X(CT_MA_RECIPROCAL, reciprocal, T, S, CTI_NEEDS_Y, 1 / x, -dy * y * y)                        \
    X(CT_MA_SIGN, sign, T, S, CTI_NEEDS_NONE, (T)((x > 0) - (x < 0)), 0)                          \
    X(CT_MA_FLOOR, floor, T, S, CTI_NEEDS_NONE, cti_floor_##S(x), 0)                              \
    X(CT_MA_CEIL, ceil, T, S, CTI_NEEDS_NONE, cti_ceil_##S(x), 0)                                 \
    X(CT_MA_ROUND, round, T, S, CTI_NEEDS_NONE, cti_rint_##S(x), 0)                               \
    X(CT_MA_TRUNC, trunc, T, S, CTI_NEEDS_NONE, cti_trunc_##S(x), 0)                              \
    X(CT_MA_FRAC, frac, T, S, CTI_NEEDS_NONE, x - cti_trunc_##S(x), dy)                           \
    X(CT_MA_ERF, erf, T, S, CTI_NEEDS_X, cti_erf_##S(x), dy *(T)CTI_2_SQRTPI *cti_exp_##S(-x *x)) \
    X(CT_MA_ERFC, erfc, T, S, CTI_NEEDS_X, cti_erfc_##S(x),                                       \
      -dy *(T)CTI_2_SQRTPI *cti_exp_##S(-x *x))                                                   \
    X(CT_MA_LEAKY_RELU, leaky_relu, T, S, CTI_NEEDS_X, x > 0 ? x : a * x, x > 0 ? dy : a * dy)    \
    X(CT_MA_ELU, elu, T, S, CTI_NEEDS_X, x > 0 ? x : a * cti_expm1_##S(x),                        \
      x <= 0 ? dy * a * cti_exp_##S(x) : dy)                                                      \
    X(CT_MA_SELU, selu, T, S, CTI_NEEDS_X,                                                        \
      (T)CTI_SELU_SCALE *(x > 0 ? x : (T)CTI_SELU_ALPHA * cti_expm1_##S(x)),                      \
      dy *(T)CTI_SELU_SCALE *(x <= 0 ? (T)CTI_SELU_ALPHA * cti_exp_##S(x) : 1))                   \
    X(CT_MA_CELU, celu, T, S, CTI_NEEDS_X, x > 0 ? x : a * cti_expm1_##S(x / a),                  \
      x <= 0 ? dy * cti_exp_##S(x / a) : dy)                                                      \
    X(CT_MA_SOFTPLUS, softplus, T, S, CTI_NEEDS_X,                                                \
      x *a > b ? x : CTI_SCALAR_SOFTPLUS(S, x * a) / a,                                           \
      x * a > b ? dy : dy * CTI_SCALAR_SIGMOID(S, x * a))                                         \
    X(CT_MA_CLAMP, clamp, T, S, CTI_NEEDS_X, (x < a ? a : x) > b ? b : (x < a ? a : x),           \
      (a != a || x > a) && (b != b || x < b) ? dy : 0)                                            \
    X(CT_MA_HARDTANH, hardtanh, T, S, CTI_NEEDS_X, (x < a ? a : x) > b ? b : (x < a ? a : x),     \
      (x <= a || x >= b) ? 0 : dy)                                                                \
    X(CT_MA_HARDSIGMOID, hardsigmoid, T, S, CTI_NEEDS_X,                                          \
      (x < -3 ? 0 :                                                                               \
       x > 3  ? 6 :                                                                               \
                x + 3) /                                                                           \
          6,                                                                                      \
      (x > -3 && x < 3) ? dy * (T)(1.0f / 6) : 0)                                                 \
    X(CT_MA_HARDSWISH, hardswish, T, S, CTI_NEEDS_X,                                              \
      x *(x < -3 ? 0 :                                                                            \
          x > 3  ? 6 :                                                                            \
                   x + 3) /                                                                        \
          6,                                                                                      \
      x <= -3 ? 0 :                                                                               \
      x < 3   ? dy * (x / 3 + (T)0.5) :                                                           \
                dy)                                                                                 \
    X(CT_MA_SOFTSIGN, softsign, T, S, CTI_NEEDS_X, x / (1 + cti_abs_##S(x)),                      \
      dy / ((1 + cti_abs_##S(x)) * (1 + cti_abs_##S(x))))                                         \
    X(CT_MA_MISH, mish, T, S, CTI_NEEDS_X, x *cti_tanh_##S(CTI_SCALAR_SOFTPLUS(S, x)),            \
      dy *(cti_tanh_##S(CTI_SCALAR_SOFTPLUS(S, x)) +                                              \
           x * CTI_SCALAR_SIGMOID(S, x) *                                                         \
               (1 - cti_tanh_##S(CTI_SCALAR_SOFTPLUS(S, x)) *                                     \
                        cti_tanh_##S(CTI_SCALAR_SOFTPLUS(S, x)))))                                \
    X(CT_MA_LOGSIGMOID, logsigmoid, T, S, CTI_NEEDS_X, -CTI_SCALAR_SOFTPLUS(S, -x),               \
      dy *CTI_SCALAR_SIGMOID(S, -x))                                                              \
    X(CT_MA_HARDSHRINK, hardshrink, T, S, CTI_NEEDS_X, (x >= -a && x <= a) ? 0 : x,               \
      (x >= -a && x <= a) ? 0 : dy)                                                               \
    X(CT_MA_SOFTSHRINK, softshrink, T, S, CTI_NEEDS_X,                                            \
      x > a  ? x - a :                                                                            \
      x < -a ? x + a :                                                                            \
               x * 0,                                                                             \
      (x >= -a && x <= a) ? 0 : dy)                                                               \
    X(CT_MA_THRESHOLD, threshold, T, S, CTI_NEEDS_X, x <= a ? b : x, x <= a ? 0 : dy)             \
    X(CT_MA_POW, pow, T, S, CTI_NEEDS_X, cti_pow_##S(x, a),                                       \
      a == 0 ? 0 : dy * a * cti_pow_##S(x, a - 1))

#define CTI_DEFINE_MATH_NEEDS(fname)                        \
    static inline int fname(int fn)                         \
    {                                                       \
        switch (fn) {                                       \
            CTI_MATH_LIST(CTI_UNARY_NEEDS_CASE, float, f32) \
        default:                                            \
            return CTI_NEEDS_NONE;                          \
        }                                                   \
    }

/* a mod b with the sign of b; a / b rounded down, as PyTorch computes it. */
#define CTI_SCALAR_DIVISION(T, S)                                                \
    CTI_SCALAR T cti_remainder_##S(T a, T b)                                     \
    {                                                                            \
        T m = cti_fmod_##S(a, b);                                                \
        return m != 0 && (m < 0) != (b < 0) ? m + b : m;                         \
    }                                                                            \
    CTI_SCALAR T cti_floor_divide_##S(T a, T b)                                  \
    {                                                                            \
        if (b == 0)                                                              \
            return a / b;                                                        \
        T m = cti_fmod_##S(a, b), q = (a - m) / b;                               \
        q = m != 0 && (b < 0) != (m < 0) ? q - 1 : q;                            \
        T f = cti_floor_##S(q);                                                  \
        return q == 0 ? (a / b < 0 ? -(T)0 : (T)0) : q - f > (T)0.5 ? f + 1 : f; \
    }
CTI_SCALAR_DIVISION(float, f32)
CTI_SCALAR_DIVISION(double, f64)

/* X(ID, name, T, S, value of a and b). NaN wins maximum and minimum. */
#define CTI_MATH2_LIST(X, T, S)                                               \
    X(CT_MA2_MAXIMUM, maximum, T, S, a != a ? a : b != b ? b : a > b ? a : b) \
    X(CT_MA2_MINIMUM, minimum, T, S, a != a ? a : b != b ? b : a < b ? a : b) \
    X(CT_MA2_POW, pow, T, S, cti_pow_##S(a, b))                               \
    X(CT_MA2_ATAN2, atan2, T, S, cti_atan2_##S(a, b))                         \
    X(CT_MA2_FMOD, fmod, T, S, cti_fmod_##S(a, b))                            \
    X(CT_MA2_REMAINDER, remainder, T, S, cti_remainder_##S(a, b))             \
    X(CT_MA2_FLOOR_DIVIDE, floor_divide, T, S, cti_floor_divide_##S(a, b))

#endif
