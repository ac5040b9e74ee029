/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of doubles, and tensors made from them and read into them. */
#include "support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *ts_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p)
        cr_assert(false, "the test is out of memory");
    return p;
}

ts_array ts_array_new(ct_dtype dtype, int ndim, const int64_t *shape)
{
    ts_array a = {.dtype = dtype, .ndim = ndim, .n = 1};
    for (int i = 0; i < ndim; i++) {
        a.shape[i] = shape[i];
        a.n *= shape[i];
    }
    a.v = ts_alloc((size_t)a.n * sizeof(double));
    return a;
}

ts_array ts_array_copy(const ts_array *a)
{
    if (!a->v)
        return (ts_array){0};
    ts_array c = ts_array_new(a->dtype, a->ndim, a->shape);
    memcpy(c.v, a->v, (size_t)a->n * sizeof(double));
    return c;
}

void ts_array_free(ts_array *a)
{
    free(a->v);
    memset(a, 0, sizeof(*a));
}

const char *ts_array_describe(const ts_array *a, char *buf, size_t cap)
{
    size_t at = (size_t)snprintf(buf, cap, "%s [", ct_dtype_name(a->dtype));
    for (int i = 0; i < a->ndim && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%lld", i ? "," : "", (long long)a->shape[i]);
    if (at < cap)
        snprintf(buf + at, cap - at, "]");
    return buf;
}

/* ---- bytes of each dtype ---- */

static double half_to_double(uint16_t h)
{
    int exponent = (h >> 10) & 31, mantissa = h & 1023;
    double sign = h >> 15 ? -1 : 1;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, -24);
    return sign * ldexp(1024 + mantissa, exponent - 25);
}

static double load(const unsigned char *p, ct_dtype dtype)
{
    union {
        float f;
        double d;
        int32_t i;
        int64_t l;
        uint16_t h;
        uint32_t u;
    } u;
    memset(&u, 0, sizeof(u));
    switch (dtype) {
    case CT_BOOL:
    case CT_U8:
        return *p;
    case CT_I32:
        memcpy(&u, p, 4);
        return u.i;
    case CT_I64:
        memcpy(&u, p, 8);
        return (double)u.l;
    case CT_F16:
        memcpy(&u, p, 2);
        return half_to_double(u.h);
    case CT_BF16:
        memcpy(&u, p, 2);
        u.u = (uint32_t)u.h << 16;
        return u.f;
    case CT_F32:
        memcpy(&u, p, 4);
        return u.f;
    case CT_F64:
        memcpy(&u, p, 8);
        return u.d;
    default:
        return NAN;
    }
}

/* To nearest, ties to even. */
static uint16_t bf16_of(double v)
{
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    if (isnan(f))
        return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static uint16_t f16_of(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    if (isnan(v))
        return 0x7e00;
    if (a >= 65520)
        return sign | 0x7c00;
    int e = a > 0 ? ilogb(a) : -14;
    e = e < -14 ? -14 : e;
    double q = rint(ldexp(a, 10 - e)); /* below 1024: denormal; 2048: the next exponent */
    return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + (uint32_t)q));
}

static void store(unsigned char *p, ct_dtype dtype, double v)
{
    float f = (float)v;
    uint16_t h;
    int32_t i = dtype == CT_I32 ? (int32_t)v : 0;
    int64_t l = dtype == CT_I64 ? (int64_t)v : 0;
    switch (dtype) {
    case CT_BOOL:
        *p = v != 0;
        break;
    case CT_U8:
        *p = (unsigned char)v;
        break;
    case CT_I32:
        memcpy(p, &i, 4);
        break;
    case CT_I64:
        memcpy(p, &l, 8);
        break;
    case CT_BF16:
    case CT_F16:
        h = dtype == CT_BF16 ? bf16_of(v) : f16_of(v);
        memcpy(p, &h, 2);
        break;
    case CT_F32:
        memcpy(p, &f, 4);
        break;
    case CT_F64:
        memcpy(p, &v, 8);
        break;
    default:
        cr_assert(false, "tests can't store %s", ct_dtype_name(dtype));
    }
}

void ts_load_bytes(ts_array *a, const void *bytes); /* golden.c */
void ts_load_bytes(ts_array *a, const void *bytes)
{
    size_t size = ct_dtype_bytes(a->dtype);
    for (int64_t i = 0; i < a->n; i++)
        a->v[i] = load((const unsigned char *)bytes + (size_t)i * size, a->dtype);
}

ct_tensor *ts_tensor(ct_ctx *ctx, ct_dtype dtype, const ts_array *a)
{
    size_t size = ct_dtype_bytes(dtype);
    unsigned char *host = ts_alloc((size_t)a->n * size);
    for (int64_t i = 0; i < a->n; i++)
        store(host + (size_t)i * size, dtype, a->v[i]);
    ct_tensor *t = ct_tensor_from(ctx, dtype, a->ndim, a->shape, host);
    free(host);
    return t;
}

ts_array ts_values(ct_ctx *ctx, const ct_tensor *t)
{
    if (!t)
        return (ts_array){0};
    ts_array a = ts_array_new(ct_tensor_dtype(t), ct_tensor_ndim(t), ct_tensor_shape(t));
    size_t bytes = (size_t)a.n * ct_dtype_bytes(a.dtype);
    void *host = ts_alloc(bytes);
    if (ct_tensor_read(ctx, t, host, bytes))
        ts_array_free(&a);
    else
        ts_load_bytes(&a, host);
    free(host);
    return a;
}

ct_tensor *ts_vec(ct_ctx *ctx, ct_dtype dtype, int64_t n, const double *v)
{
    ts_array a = ts_array_new(dtype, 1, &n);
    memcpy(a.v, v, (size_t)n * sizeof(double));
    ct_tensor *t = ts_tensor(ctx, dtype, &a);
    ts_array_free(&a);
    return t;
}

ct_tensor *ts_mat(ct_ctx *ctx, ct_dtype dtype, int64_t rows, int64_t cols, const double *v)
{
    ts_array a = ts_array_new(dtype, 2, (int64_t[]){rows, cols});
    memcpy(a.v, v, (size_t)a.n * sizeof(double));
    ct_tensor *t = ts_tensor(ctx, dtype, &a);
    ts_array_free(&a);
    return t;
}

ct_tensor *ts_param(ct_ctx *ctx, ct_tensor *t)
{
    if (!t || ct_tensor_set_requires_grad(ctx, t, true))
        cr_assert(false, "a leaf that requires grad can't be made: %s", ct_error_get(ctx)->text);
    return t;
}
