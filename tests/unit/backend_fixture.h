/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the CPU backend's kernels share: a stream, and views over guarded memory. */
#ifndef TESTS_UNIT_BACKEND_FIXTURE_H
#define TESTS_UNIT_BACKEND_FIXTURE_H

#include "backend/cpu/copy.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct fixture {
    cti_mem *mem;
    ct_error err;
    ct_stream *s;
    const ct_backend *be;
} fixture;

static inline void fixture_open(fixture *f, int threads)
{
    memset(f, 0, sizeof *f);
    f->be = &cti_backend_cpu;
    f->mem = cti_mem_new(NULL);
    cr_assert_not_null(f->mem);
    const ct_stream_opts opts = {.threads = threads, .mem = f->mem, .err = &f->err};
    cr_assert_eq(f->be->mem->open(&opts, &f->s), CT_OK, "%s", f->err.text);
}

static inline void fixture_close(fixture *f)
{
    f->be->mem->close(f->s);
    cr_assert_eq(cti_mem_get_stats(f->mem).live_blocks, 0);
    cti_mem_free(f->mem, NULL, NULL);
}

static inline uint64_t primitives(const fixture *f)
{
    ct_device_counters c;
    f->be->mem->counters(f->s, &c);
    return c.primitives;
}

static inline uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static inline int64_t pick(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(next(state) % (uint64_t)(high - low + 1));
}

/* In [-1, 1), with few enough bits to be an f32. */
static inline double value(uint64_t *state)
{
    return (double)(next(state) >> 41) * 0x1p-22 - 1;
}

static inline double load(const ct_view *v, int64_t at)
{
    switch (v->dtype) {
    case CT_F64:
        return ((const double *)v->data)[at];
    case CT_BF16:
        return (double)cti_f32_from_bf16(((const uint16_t *)v->data)[at]);
    case CT_F16:
        return (double)cti_f32_from_f16(((const uint16_t *)v->data)[at]);
    default:
        return (double)((const float *)v->data)[at];
    }
}

static inline void store(const ct_view *v, int64_t at, double x)
{
    if (v->dtype == CT_F64)
        ((double *)v->data)[at] = x;
    else if (v->dtype == CT_BF16)
        ((uint16_t *)v->data)[at] = cti_bf16_from_f32((float)x);
    else if (v->dtype == CT_F16)
        ((uint16_t *)v->data)[at] = cti_f16_from_f32((float)x);
    else
        ((float *)v->data)[at] = (float)x;
}

/* How far a result of `dtype` may be from x, the sum of `terms` products of numbers in [-1, 1). */
static inline double tolerance(ct_dtype dtype, double x, double terms)
{
    const double sums = (dtype == CT_F64 ? 1e-14 : 2e-6) * terms;
    return dtype == CT_BF16 ? 0x1p-8 * fabs(x) + sums :
           dtype == CT_F16  ? 0x1p-11 * fabs(x) + 0x1p-25 + sums :
                              sums;
}

/* Elements from the first to the last that the view sees. */
static inline int64_t extent(const ct_view *v)
{
    int64_t last = 0;
    for (int i = 0; i < v->ndim; i++) {
        if (!v->shape[i])
            return 0;
        last += (v->shape[i] - 1) * v->stride[i];
    }
    return last + 1;
}

/* Gives a view memory of its own, all of it NaN. */
static inline void back(fixture *f, ct_view *v, ct_dtype dtype)
{
    v->dtype = dtype;
    int64_t n = extent(v);
    v->data = f->be->mem->alloc(f->s, (size_t)(n ? n : 1) * ct_dtype_bytes(dtype));
    cr_assert_not_null(v->data);
    for (int64_t i = 0; i < n; i++)
        store(v, i, NAN);
}

/* The element with a row-major logical index. */
static inline int64_t place(const ct_view *v, int64_t index)
{
    int64_t at = 0;
    for (int i = v->ndim - 1; i >= 0; i--) {
        at += index % v->shape[i] * v->stride[i];
        index /= v->shape[i];
    }
    return at;
}

static inline void fill(const ct_view *v, uint64_t seed)
{
    int64_t n = ct_view_numel(v);
    for (int64_t i = 0; i < n; i++)
        store(v, place(v, i), value(&seed));
}

/* How many elements of the memory under `v` the view doesn't see, and which are no longer NaN. */
static inline int64_t overwritten_gaps(const ct_view *v)
{
    int64_t n = extent(v), numel = ct_view_numel(v), seen = 0, gaps = 0;
    for (int64_t i = 0; i < n; i++)
        gaps += !isnan(load(v, i));
    for (int64_t i = 0; i < numel; i++)
        seen += !isnan(load(v, place(v, i)));
    return gaps - seen;
}

enum { GUARD = 4096 }; /* bytes of 0xff after a workspace: a library's own code has no sanitizer */

static inline bool untouched(const void *workspace, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)workspace + bytes;
    for (int i = 0; i < GUARD; i++)
        if (p[i] != 0xff)
            return false;
    return true;
}

#endif
