/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the CPU's own loops share: views in several layouts, addressed by logical index. */
#ifndef TESTS_BACKEND_TEST_H
#define TESTS_BACKEND_TEST_H

#include "backend/cpu/copy.h"
#include "backend/cpu/cpu.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Row-major, channels-last, dimensions reversed in memory, row-major with gaps. */
enum layout { ROWS, LAST, REVERSED, GAPS, LAYOUTS };

typedef struct tv {
    ct_view v;
    char *mem;
    size_t bytes;
} tv;

static inline ct_stream stream_of(int threads)
{
    ct_stream s;
    memset(&s, 0, sizeof s);
    s.threads = threads;
    return s;
}

static inline tv tv_new(ct_dtype t, enum layout lay, int ndim, const int64_t *shape)
{
    tv a = {.v = {.dtype = t, .ndim = ndim}};
    int order[CT_MAX_DIMS], k = 0; /* innermost first */
    int64_t n = 1;

    if (lay == LAST && ndim >= 2)
        order[k++] = 1;
    for (int d = ndim - 1; d >= 0; d--)
        if (!(lay == LAST && ndim >= 2 && d == 1))
            order[k++] = lay == REVERSED ? ndim - 1 - d : d;
    for (int i = 0; i < ndim; i++) {
        a.v.shape[order[i]] = shape[order[i]];
        a.v.stride[order[i]] = n;
        n *= shape[order[i]] + (lay == GAPS ? i + 1 : 0);
    }
    if (lay == GAPS)
        for (int i = 0; i < ndim; i++)
            a.v.stride[i] *= 2;
    a.bytes = (size_t)(n * (lay == GAPS ? 2 : 1)) * ct_dtype_bytes(t) + 64;
    a.mem = calloc(1, a.bytes);
    a.v.data = a.mem;
    return a;
}

static inline void tv_free(tv *a)
{
    free(a->mem);
}

static inline char *at(const ct_view *v, int64_t i)
{
    int64_t off = 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        off += i % v->shape[d] * v->stride[d];
        i /= v->shape[d];
    }
    return (char *)v->data + off * (int64_t)ct_dtype_bytes(v->dtype);
}

static inline double get(const ct_view *v, int64_t i)
{
    const char *p = at(v, i);
    switch (v->dtype) {
    case CT_F32:
        return (double)*(const float *)p;
    case CT_F64:
        return *(const double *)p;
    case CT_I32:
        return *(const int32_t *)p;
    case CT_I64:
        return (double)*(const int64_t *)p;
    case CT_F16:
        return (double)cti_f32_from_f16(*(const uint16_t *)p);
    case CT_BF16:
        return (double)cti_f32_from_bf16(*(const uint16_t *)p);
    default:
        return *(const uint8_t *)p;
    }
}

static inline void put(const ct_view *v, int64_t i, double x)
{
    char *p = at(v, i);
    switch (v->dtype) {
    case CT_F32:
        *(float *)p = (float)x;
        break;
    case CT_F64:
        *(double *)p = x;
        break;
    case CT_I32:
        *(int32_t *)p = (int32_t)x;
        break;
    case CT_I64:
        *(int64_t *)p = (int64_t)x;
        break;
    case CT_F16:
        *(uint16_t *)p = cti_f16_from_f32((float)x);
        break;
    case CT_BF16:
        *(uint16_t *)p = cti_bf16_from_f32((float)x);
        break;
    default:
        *(uint8_t *)p = (uint8_t)x;
    }
}

/* (-1, 1), a function of seed and i. */
static inline double noise(uint64_t seed, int64_t i)
{
    uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15u + (uint64_t)i * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-52 - 1;
}

static inline void tv_noise(tv *a, uint64_t seed, double scale, double shift)
{
    for (int64_t i = 0; i < ct_view_numel(&a->v); i++)
        put(&a->v, i, noise(seed, i) * scale + shift);
}

static inline tv tv_rand(ct_dtype t, enum layout lay, int ndim, const int64_t *shape, uint64_t seed)
{
    tv a = tv_new(t, lay, ndim, shape);
    tv_noise(&a, seed, 2, 0);
    return a;
}

static inline double tol_of(ct_dtype t)
{
    return t == CT_F64 ? 1e-12 : t == CT_BF16 ? 0x1p-8 : t == CT_F16 ? 0x1p-11 : 2e-6;
}

/* Equal, also as NaN or infinity; else within tol, relative above 1. */
static inline bool near(double a, double b, double tol)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b))
        return a == b;
    return fabs(a - b) <= tol * fmax(1, fabs(b));
}

#define expect_near(a, b, tol, what, i)                                                          \
    do {                                                                                         \
        double a_ = (a), b_ = (b);                                                               \
        cr_assert(near(a_, b_, tol), "%s, element %lld: %.17g, not %.17g", what, (long long)(i), \
                  a_, b_);                                                                       \
    } while (0)

static inline void *workspace(size_t bytes)
{
    /* Never zero: kernels must not count on it. */
    void *p = malloc(bytes + 64);
    memset(p, 0xff, bytes + 64);
    return p;
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

#endif
