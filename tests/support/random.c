/* SPDX-License-Identifier: Apache-2.0 */
/* Random inputs by kind, contexts, temporary folders. */
#define _POSIX_C_SOURCE 200809L
#include "support.h"

#include "base/file.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t ts_hash(const char *text, uint64_t seed)
{
    uint64_t h = 1469598103934665603u ^ seed;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

uint64_t ts_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double ts_uniform(uint64_t *state)
{
    return (double)(ts_next(state) >> 40) * 0x1p-24;
}

double ts_normal(uint64_t *state)
{
    double u = 1 - ts_uniform(state), v = ts_uniform(state);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static void shuffle(double *v, int64_t n, uint64_t *state)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)(ts_next(state) % (uint64_t)(i + 1));
        double t = v[i];
        v[i] = v[k];
        v[k] = t;
    }
}

/* Positive, and rows along dimension 1 sum to 1. */
static void fill_probs(ts_array *a, uint64_t *state)
{
    int64_t classes = a->ndim > 1 ? a->shape[1] : a->n, inner = 1;
    for (int d = 2; d < a->ndim; d++)
        inner *= a->shape[d];
    for (int64_t i = 0; i < a->n; i++)
        a->v[i] = 0.1 + ts_uniform(state);
    if (classes == 0)
        return;
    for (int64_t row = 0; row < a->n / classes; row++) {
        double *p = a->v + row / inner * classes * inner + row % inner, sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += p[c * inner];
        for (int64_t c = 0; c < classes; c++)
            p[c * inner] = (float)(p[c * inner] / sum);
    }
}

static double draw(const ct_case_in *in, int64_t i, int64_t n, uint64_t *state)
{
    double x;
    switch (in->kind) {
    case CT_IN_POSITIVE:
        return (float)(0.5 + 1.5 * ts_uniform(state));
    case CT_IN_AWAY:
        x = ts_normal(state);
        return (float)(x + (x < 0 ? -0.1 : 0.1));
    case CT_IN_DISTINCT:
        return (float)(0.1 * (double)(i - n / 2));
    case CT_IN_CLASS:
        return (double)(ts_next(state) % (uint64_t)(in->classes > 0 ? in->classes : 1));
    case CT_IN_BOOL:
        return (double)(ts_next(state) >> 63);
    case CT_IN_I64:
        return (double)(ts_next(state) % 9) - 4;
    default:
        return ts_normal(state);
    }
}

ts_array ts_random(const ct_case_in *in, uint64_t *state)
{
    if (in->kind == CT_IN_NONE)
        return (ts_array){0};
    bool whole = in->kind == CT_IN_CLASS || in->kind == CT_IN_I64;
    ct_dtype dtype = whole ? CT_I64 : in->kind == CT_IN_BOOL ? CT_BOOL : CT_F64;
    ts_array a = ts_array_new(dtype, in->ndim, in->shape);
    if (in->kind == CT_IN_PROBS) {
        fill_probs(&a, state);
        return a;
    }
    for (int64_t i = 0; i < a.n; i++)
        a.v[i] = draw(in, i, a.n, state);
    if (in->kind == CT_IN_DISTINCT)
        shuffle(a.v, a.n, state);
    return a;
}

ts_array ts_random_normal(ct_dtype dtype, int ndim, const int64_t *shape, uint64_t *state)
{
    ts_array a = ts_array_new(dtype, ndim, shape);
    for (int64_t i = 0; i < a.n; i++)
        a.v[i] = ts_normal(state);
    return a;
}

bool ts_on_cuda(void)
{
    const char *device = getenv("CT_TEST_DEVICE");
    return device && !strncmp(device, "cuda", 4);
}

ct_ctx *ts_ctx(ct_dtype dtype, bool direct)
{
    ct_ctx_opts o = ct_ctx_defaults();
    o.device = dtype == CT_F32 && ts_on_cuda() ? "cuda" : "cpu";
    o.threads = 2;
    o.dtype = dtype;
    o.seed = 7;
    o.direct_alloc = direct;
    ct_error err = {0};
    ct_ctx *ctx = ct_ctx_new(o, &err);
    if (!ctx)
        cr_assert(false, "no context: %s", err.text);
    return ctx;
}

const char *ts_temp_dir(char *buf, size_t cap)
{
    const char *base = getenv("TMPDIR");
    snprintf(buf, cap, "%s/ctrain-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(buf))
        cr_assert(false, "no temporary folder %s", buf);
    return buf;
}

void ts_temp_remove(const char *dir)
{
    ct_error err = {0};
    if (cti_dir_remove(dir, &err))
        cr_expect(false, "temporary folder %s stays: %s", dir, err.text);
}
