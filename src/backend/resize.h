/* SPDX-License-Identifier: Apache-2.0 */
/* Which cells of an axis a resized image is made of, once for all backends; PyTorch's rule to the last bit: nearest is
 * always computed in f32, linear in the data's type. */
#ifndef BACKEND_RESIZE_H
#define BACKEND_RESIZE_H

#include "backend/scalar.h"
#include <stdbool.h>

/* One axis: `in` cells become `out`; step: cells of the input for one of the output. */
typedef struct cti_axis {
    int64_t in, out;
    double step;
    bool linear, align;
} cti_axis;

/* Output cell = (1 - w) * low + w * high. */
typedef struct cti_tap_f32 {
    int64_t low, high;
    float w;
} cti_tap_f32;

typedef struct cti_tap_f64 {
    int64_t low, high;
    double w;
} cti_tap_f64;

CTI_SCALAR int64_t cti_nearest(const cti_axis *a, int64_t at)
{
    if (a->out == a->in)
        return at;
    if (a->out == 2 * a->in)
        return at >> 1;
    int64_t i = (int64_t)floorf((float)at * (float)a->step);
    return i < a->in - 1 ? i : a->in - 1;
}

#define CTI_DEFINE_TAP(S, T, FLOOR)                                                             \
    CTI_SCALAR cti_tap_##S cti_tap_of_##S(const cti_axis *a, int64_t at)                        \
    {                                                                                           \
        cti_tap_##S t = {at, at, 0};                                                            \
        if (!a->linear)                                                                         \
            t.low = t.high = cti_nearest(a, at);                                                \
        if (!a->linear || a->in == a->out)                                                      \
            return t;                                                                           \
        T step = (T)a->step, real = a->align ? step * (T)at : step * ((T)at + (T)0.5) - (T)0.5; \
        real = real < 0 ? 0 : real;                                                             \
        t.low = (int64_t)FLOOR(real);                                                           \
        t.low = t.low < a->in - 1 ? t.low : a->in - 1;                                          \
        t.high = t.low < a->in - 1 ? t.low + 1 : t.low;                                         \
        t.w = real - (T)t.low;                                                                  \
        t.w = t.w > 1 ? 1 : t.w;                                                                \
        return t;                                                                               \
    }
CTI_DEFINE_TAP(f32, float, floorf)
CTI_DEFINE_TAP(f64, double, floor)
#undef CTI_DEFINE_TAP

#endif
