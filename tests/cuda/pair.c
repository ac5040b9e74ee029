/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions go through the CPU backend's copy, which has tests of its own. */
#include "pair.h"

#include "base/mem.h"
#include "double/hooks.h"

/* Not there in the programs for a real device. */
#pragma weak ctd_count
#pragma weak ctd_fail

void pair_open(pair *p)
{
    memset(p, 0, sizeof *p);
    p->be = &cti_backend_cpu;
    p->oracle = CT_F64;
    p->mem = cti_mem_new(NULL);
    cr_assert_not_null(p->mem);
    const ct_stream_opts cpu = {.threads = 1, .mem = p->mem, .err = &p->cpu_err};
    cr_assert_eq(p->be->mem->open(&cpu, &p->cpu), CT_OK, "%s", p->cpu_err.text);
    const ct_stream_opts cuda = {.mem = p->mem, .err = &p->err};
    cr_assert_eq(cti_cuda_mem.open(&cuda, &p->cuda), CT_OK, "%s", p->err.text);
}

void pair_close(pair *p)
{
    pair_ok(p, cti_cuda_mem.sync(p->cuda));
    cti_cuda_mem.close(p->cuda);
    p->be->mem->close(p->cpu);
    cr_assert_eq(cti_mem_get_stats(p->mem).live_blocks, 0);
    cti_mem_free(p->mem, NULL, NULL);
}

/* ---- host side ---- */
static bool is_float(ct_dtype t)
{
    return t == CT_F16 || t == CT_BF16 || t == CT_F32 || t == CT_F64;
}

static int64_t extent(const ct_view *v)
{
    int64_t last = 0;
    for (int i = 0; i < v->ndim; i++) {
        if (!v->shape[i])
            return 0;
        last += (v->shape[i] - 1) * v->stride[i];
    }
    return last + 1;
}

static int64_t place(const ct_view *v, int64_t index)
{
    int64_t at = 0;
    for (int i = v->ndim - 1; i >= 0; i--) {
        at += index % v->shape[i] * v->stride[i];
        index /= v->shape[i];
    }
    return at;
}

static ct_view element(const ct_view *v, int64_t i)
{
    char *data = (char *)v->data + place(v, i) * (int64_t)ct_dtype_bytes(v->dtype);
    return (ct_view){.data = data, .dtype = v->dtype};
}

static void convert(const pair *p, const ct_view *dst, const ct_view *src)
{
    cr_assert_eq(p->be->ew->copy(p->cpu, dst, src), CT_OK);
}

/* A dense row-major view of v's shape over new memory. */
static ct_view dense_like(const ct_view *v, ct_dtype t)
{
    ct_view d = *v;
    int64_t n = 1;
    d.dtype = t;
    for (int i = v->ndim - 1; i >= 0; i--) {
        d.stride[i] = n;
        n *= v->shape[i];
    }
    d.data = malloc((size_t)(n + 1) * ct_dtype_bytes(t));
    cr_assert_not_null(d.data);
    return d;
}

double view_get(const pair *p, const ct_view *host, int64_t i)
{
    double x;
    ct_view from = element(host, i), to = {.data = &x, .dtype = CT_F64};
    convert(p, &to, &from);
    return x;
}

double noise(uint64_t seed, int64_t i)
{
    uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15u + (uint64_t)i * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-52 - 1;
}

/* ---- twins ---- */
twin twin_strided(pair *p, ct_dtype t, int ndim, const int64_t *shape, const int64_t *stride)
{
    twin w = {.v = {.dtype = t, .ndim = ndim}};
    for (int i = 0; i < ndim; i++) {
        w.v.shape[i] = shape[i];
        w.v.stride[i] = stride[i];
    }
    w.h = w.o = w.v;
    w.o.dtype = is_float(t) ? p->oracle : t;
    w.bytes = (size_t)extent(&w.v) * ct_dtype_bytes(t);
    w.o_bytes = (size_t)extent(&w.o) * ct_dtype_bytes(w.o.dtype);
    w.h.data = malloc(w.bytes + 1);
    w.o.data = malloc(w.o_bytes + 1);
    cr_assert(w.h.data && w.o.data);
    memset(w.h.data, 0xff, w.bytes);
    memset(w.o.data, 0xff, w.o_bytes);
    w.v.data = cti_cuda_mem.alloc(p->cuda, w.bytes);
    cr_assert_not_null(w.v.data);
    twin_upload(p, &w);
    return w;
}

twin twin_new(pair *p, ct_dtype t, enum layout lay, int ndim, const int64_t *shape)
{
    int64_t stride[CT_MAX_DIMS], n = 1;
    int order[CT_MAX_DIMS], k = 0; /* innermost first */

    if (lay == LAST && ndim >= 2)
        order[k++] = 1;
    for (int d = ndim - 1; d >= 0; d--)
        if (!(lay == LAST && ndim >= 2 && d == 1))
            order[k++] = lay == REVERSED ? ndim - 1 - d : d;
    for (int i = 0; i < ndim; i++) {
        stride[order[i]] = lay == GAPS ? 2 * n : n;
        n *= shape[order[i]] + (lay == GAPS ? i + 1 : 0);
    }
    return twin_strided(p, t, ndim, shape, stride);
}

void twin_free(pair *p, twin *t)
{
    cti_cuda_mem.free(p->cuda, t->v.data);
    free(t->h.data);
    free(t->o.data);
    memset(t, 0, sizeof *t);
}

static void see(ct_view *v, int64_t offset, int ndim, const int64_t *shape, const int64_t *stride)
{
    v->data = (char *)v->data + offset * (int64_t)ct_dtype_bytes(v->dtype);
    v->ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        v->shape[i] = shape[i];
        v->stride[i] = stride[i];
    }
}

twin twin_as(const twin *t, int64_t offset, int ndim, const int64_t *shape, const int64_t *stride)
{
    twin w = *t;
    see(&w.v, offset, ndim, shape, stride);
    see(&w.h, offset, ndim, shape, stride);
    see(&w.o, offset, ndim, shape, stride);
    w.bytes = (size_t)extent(&w.v) * ct_dtype_bytes(w.v.dtype);
    w.o_bytes = (size_t)extent(&w.o) * ct_dtype_bytes(w.o.dtype);
    return w;
}

void twin_put(pair *p, twin *t, int64_t i, double x)
{
    ct_view from = {.data = &x, .dtype = CT_F64}, h = element(&t->h, i), o = element(&t->o, i);
    convert(p, &h, &from);
    convert(p, &o, &h);
}

void twin_upload(pair *p, const twin *t)
{
    pair_ok(p, cti_cuda_mem.upload(p->cuda, t->v.data, t->h.data, t->bytes));
}

void twin_from_oracle(pair *p, twin *t)
{
    convert(p, &t->h, &t->o);
    convert(p, &t->o, &t->h);
    twin_upload(p, t);
}

void twin_noise(pair *p, twin *t, uint64_t seed, double scale, double shift)
{
    ct_view d = dense_like(&t->h, CT_F64);
    bool whole = !is_float(t->h.dtype), positive = t->h.dtype == CT_U8 || t->h.dtype == CT_BOOL;
    for (int64_t i = 0; i < ct_view_numel(&d); i++) {
        double x = noise(seed, i) * scale + (positive ? fabs(scale) : 0) + shift;
        if (t->h.dtype == CT_BOOL)
            x = noise(seed, i) > 0;
        ((double *)d.data)[i] = whole ? floor(x + 0.5) : x;
    }
    convert(p, &t->h, &d);
    convert(p, &t->o, &t->h);
    free(d.data);
    twin_upload(p, t);
}

twin twin_rand(pair *p, ct_dtype t, enum layout lay, int ndim, const int64_t *shape, uint64_t seed)
{
    twin w = twin_new(p, t, lay, ndim, shape);
    twin_noise(p, &w, seed, 2, 0);
    return w;
}

/* ---- comparisons ---- */
static ct_view fetch(pair *p, const twin *t)
{
    ct_view got = t->h;
    got.data = malloc(t->bytes + 1);
    cr_assert_not_null(got.data);
    pair_ok(p, cti_cuda_mem.download(p->cuda, got.data, t->v.data, t->bytes));
    return got;
}

double *twin_get_all(pair *p, const twin *t)
{
    ct_view got = fetch(p, t), d = dense_like(&got, CT_F64);
    convert(p, &d, &got);
    free(got.data);
    return d.data;
}

double pair_tol(ct_dtype t)
{
    switch (t) {
    case CT_F16:
        return 2e-3;
    case CT_BF16:
        return 1.6e-2;
    case CT_F32:
        return 1e-5;
    case CT_F64:
        return 1e-12;
    default:
        return 0;
    }
}

static bool near(double a, double b, double tol)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b) || tol == 0)
        return a == b;
    return fabs(a - b) <= tol * fmax(1, fabs(b));
}

/* Integers are compared as such: not all are doubles. */
static void same_elements(pair *p, const twin *t, const ct_view *got, double tol, const char *what)
{
    bool floats = is_float(t->v.dtype);
    ct_dtype wide = floats ? CT_F64 : CT_I64;
    ct_view a = dense_like(got, wide), b = dense_like(got, wide), r = dense_like(got, got->dtype);
    convert(p, &a, got);
    convert(p, &r, &t->o);
    convert(p, &b, &r);
    for (int64_t i = 0; i < ct_view_numel(got); i++) {
        if (floats) {
            double x = ((double *)a.data)[i], y = ((double *)b.data)[i];
            cr_assert(near(x, y, tol), "%s (%s), element %lld: %.9g, not %.9g", what,
                      ct_dtype_name(t->v.dtype), (long long)i, x, y);
        } else {
            long long x = ((int64_t *)a.data)[i], y = ((int64_t *)b.data)[i];
            cr_assert_eq(x, y, "%s (%s), element %lld: %lld, not %lld", what,
                         ct_dtype_name(t->v.dtype), (long long)i, x, y);
        }
    }
    free(a.data);
    free(b.data);
    free(r.data);
}

void twin_same(pair *p, const twin *t, double factor, const char *what)
{
    ct_view got = fetch(p, t);
    size_t esize = ct_dtype_bytes(got.dtype);
    char *covered = calloc(1, t->bytes + 1);

    cr_assert_not_null(covered);
    for (int64_t i = 0; i < ct_view_numel(&got); i++)
        memset(covered + (size_t)place(&got, i) * esize, 1, esize);
    for (size_t i = 0; i < t->bytes; i++)
        cr_assert(covered[i] || ((char *)got.data)[i] == ((char *)t->h.data)[i],
                  "%s (%s): byte %zu between elements was written", what, ct_dtype_name(got.dtype),
                  i);
    same_elements(p, t, &got, factor * pair_tol(got.dtype), what);
    free(covered);
    free(got.data);
}

void twin_untouched(pair *p, const twin *t, const char *what)
{
    ct_view got = fetch(p, t);
    cr_assert_eq(memcmp(got.data, t->h.data, t->bytes), 0, "%s: an input was written", what);
    free(got.data);
}

/* ---- the double ---- */
bool pair_on_double(void)
{
    return ctd_count != NULL;
}

long pair_work(const char *prefix)
{
    return pair_on_double() ? ctd_count(prefix) : 0;
}

bool pair_fail(const char *spec)
{
    if (pair_on_double())
        ctd_fail(spec);
    return pair_on_double();
}

/* ---- scratch ---- */
void *pair_scratch(pair *p, size_t bytes)
{
    void *d = cti_cuda_mem.alloc(p->cuda, bytes), *h = malloc(bytes + 1);
    cr_assert(d && h);
    memset(h, 0xff, bytes);
    pair_ok(p, cti_cuda_mem.upload(p->cuda, d, h, bytes));
    free(h);
    return d;
}

void pair_scratch_free(pair *p, void *scratch)
{
    cti_cuda_mem.free(p->cuda, scratch);
}
