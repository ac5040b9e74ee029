/* SPDX-License-Identifier: Apache-2.0 */
/* The three oracles of numbers: PyTorch's files, finite differences, f32 against f64. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- golden ---- */

static const ts_array *entry(const harness *h, const char *what, int i)
{
    return i < 0 ? ts_golden_get(h->golden, "%s/%s", h->c->name, what) :
                   ts_golden_get(h->golden, "%s/%s%d", h->c->name, what, i);
}

static void against_golden(harness *h, ct_ctx *ctx, ct_dtype dtype, h_data *d)
{
    h_result got;
    const char *name = dtype == CT_F64 ? "f64" : "f32";
    ts_tol tol = dtype == CT_F64 ? TS_F64 : h_tol_f32(h->c);
    char label[96];
    if (!h_expect(h, h_run(h, ctx, d, dtype, H_PLAIN, h_wants(h->op, h->c), &got), "%s: %s", name,
                  got.msg)) {
        h_result_free(&got);
        return;
    }
    const ts_array *y = entry(h, "y", -1);
    if (h_expect(h, y != NULL, "the golden file has no output")) {
        ct_dtype want = y->dtype == CT_F64 && dtype == CT_F32 ? CT_F32 : y->dtype;
        h_expect(h, got.y.dtype == want, "%s: output is %s, PyTorch's %s", name,
                 ct_dtype_name(got.y.dtype), ct_dtype_name(want));
        bool real = y->dtype == CT_F64 || y->dtype == CT_F32;
        snprintf(label, sizeof(label), "%s: output", name);
        h_expect_close(h, label, &got.y, y, real ? tol : TS_EXACT);
    }
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        const ts_array *dx = entry(h, "dx", i), *after = entry(h, "after", i);
        if (got.dx[i].v &&
            h_expect(h, dx != NULL, "the golden file has no gradient of input %d", i)) {
            snprintf(label, sizeof(label), "%s: gradient of input %d", name, i);
            h_expect_close(h, label, &got.dx[i], dx, tol);
        }
        if (after) {
            snprintf(label, sizeof(label), "%s: input %d afterwards", name, i);
            h_expect_close(h, label, &got.after[i], after, tol);
        }
    }
    h_result_free(&got);
}

void h_check_golden(harness *h)
{
    if (h->op->no_golden) {
        h_expect(h, h->op->no_golden[0] != '\0', "no_golden must say why");
        return;
    }
    if (!h_expect(h, h->golden != NULL, "%s", h->golden_msg))
        return;
    char signature[2048];
    ts_case_signature(h->c, signature, sizeof(signature));
    const char *made_from = ts_golden_meta(h->golden, h->c->name);
    if (!h_expect(h, made_from != NULL, "the case isn't in the golden file: run make.py") ||
        !h_expect(h, !strcmp(made_from, signature),
                  "the golden file is of another form of this "
                  "case (%s; now %s): run make.py",
                  made_from, signature))
        return;
    h_data d = {0};
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        const ts_array *in = entry(h, "in", i);
        h_expect(h, (in != NULL) == (h->c->in[i].kind != CT_IN_NONE),
                 "input %d is in the case or in the golden file, but not in both", i);
        if (in)
            d.in[i] = ts_array_copy(in);
    }
    const ts_array *dy = entry(h, "dy", -1);
    if (dy)
        d.dy = ts_array_copy(dy);
    h_expect(h, dy || !h_wants(h->op, h->c), "the golden file has no upstream gradient");
    if (!ts_on_cuda())
        against_golden(h, h->f64, CT_F64, &d);
    against_golden(h, h->f32, CT_F32, &d);
    h_data_free(&d);
}

/* ---- finite differences ---- */

#define EPS        1e-6
#define ALL_UP_TO  160 /* elements; beyond that random directions */
#define DIRECTIONS 24

static bool eval(const harness *h, h_data *d, ts_array *y)
{
    h_result r;
    bool ok = h_run(h, h->f64, d, CT_F64, H_PLAIN, 0, &r);
    *y = r.y;
    r.y = (ts_array){0};
    h_result_free(&r);
    return ok;
}

/* (L(x + eps v) - L(x - eps v)) / 2 eps with L = sum(dy * y). */
static bool slope(const harness *h, h_data *d, int i, const double *v, double *out)
{
    ts_array *x = &d->in[i], keep = ts_array_copy(x), up = {0}, down = {0};
    for (int64_t k = 0; k < x->n; k++)
        x->v[k] = keep.v[k] + EPS * v[k];
    bool ok = eval(h, d, &up);
    for (int64_t k = 0; k < x->n; k++)
        x->v[k] = keep.v[k] - EPS * v[k];
    ok = ok && eval(h, d, &down);
    *out = 0;
    for (int64_t k = 0; ok && k < d->dy.n; k++)
        *out += d->dy.v[k] * ((up.v[k] - down.v[k]) / (2 * EPS));
    memcpy(x->v, keep.v, (size_t)x->n * sizeof(double));
    ts_array_free(&keep);
    ts_array_free(&up);
    ts_array_free(&down);
    return ok;
}

static void diff_input(harness *h, h_data *d, int i, const ts_array *dx, double scale)
{
    int64_t n = d->in[i].n;
    bool all = n <= ALL_UP_TO;
    uint64_t seed = ts_hash(h->c->name, 3);
    ts_array v = ts_array_new(CT_F64, 1, &n);
    for (int64_t k = 0; k < (all ? n : DIRECTIONS); k++) {
        double want = 0, got;
        for (int64_t j = 0; j < n; j++) {
            v.v[j] = all ? j == k : (ts_next(&seed) >> 63 ? 1 : -1);
            want += v.v[j] * dx->v[j];
        }
        bool ran = slope(h, d, i, v.v, &got);
        double allowed = 1e-6 * fabs(got) + 2e-7 * scale * (all ? 1 : sqrt((double)n));
        if (!h_expect(h, ran && fabs(got - want) <= allowed,
                      "input %d, %s %lld: backward says %.12g, finite differences %.12g "
                      "(allowed %.3g)",
                      i, all ? "element" : "direction", (long long)k, want, got, allowed))
            break;
    }
    ts_array_free(&v);
}

void h_check_diff(harness *h)
{
    unsigned wants = h_wants(h->op, h->c);
    if (!wants || ts_on_cuda()) /* f64 is the CPU's */
        return;
    if (h->c->skip_diff) {
        h_expect(h, h->c->skip_diff[0] != '\0', "skip_diff must say why");
        return;
    }
    h_data d = h_data_random(h, h->c);
    h_result r;
    if (h_expect(h, h_run(h, h->f64, &d, CT_F64, H_PLAIN, wants, &r), "%s", r.msg)) {
        double scale = 1;
        for (int64_t k = 0; k < r.y.n; k++)
            scale = fmax(scale, fabs(r.y.v[k]));
        for (int i = 0; i < CT_CASE_MAX_IN; i++)
            for (int64_t k = 0; r.dx[i].v && k < r.dx[i].n; k++)
                scale = fmax(scale, fabs(r.dx[i].v[k]));
        for (int i = 0; i < CT_CASE_MAX_IN; i++)
            if (r.dx[i].v)
                diff_input(h, &d, i, &r.dx[i], scale);
    }
    h_result_free(&r);
    h_data_free(&d);
}

/* ---- f32 against f64 ---- */

static void f32_equals_f64(harness *h, const char *what)
{
    h_data d = h_data_random(h, h->c);
    unsigned wants = h_wants(h->op, h->c);
    h_result a, b;
    bool ran = h_run(h, h->f64, &d, CT_F64, H_PLAIN, wants, &b);
    h_expect(h, ran, "%s, f64: %s", what, b.msg);
    if (h_expect(h, h_run(h, h->f32, &d, CT_F32, H_PLAIN, wants, &a), "%s, f32: %s", what, a.msg) &&
        ran)
        h_expect_same(h, what, &a, &b, h_tol_f32(h->c));
    h_result_free(&a);
    h_result_free(&b);
    h_data_free(&d);
}

/* Every size above 1 becomes another odd one, equal sizes equal ones. Convolution and pooling:
 * batch, height and width of the images alone. The op may refuse the result: then the next way. */
static bool enlarge(const ct_case *c, int way, ct_case *out)
{
    *out = *c;
    bool images = c->in[0].ndim == 4;
    int64_t n = 0;
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        ct_case_in *in = &out->in[i];
        if (in->kind == CT_IN_NONE)
            continue;
        bool as_first = in->ndim == 4 && !memcmp(in->shape, c->in[0].shape, 4 * sizeof(int64_t));
        int64_t numel = 1;
        for (int d = 0; d < in->ndim; d++) {
            int64_t s = in->shape[d];
            if (images && way == 0)
                s = !as_first || s < 2 || d == 1 ? s : d == 0 ? 2 * s + 1 : 2 * s + 11 + s % 2;
            else if (way == 1)
                s = s > 1 ? 4 * s + 3 : s;
            else if (way == 2)
                s = s > 1 && d == 0 && (i == 0 || s == c->in[0].shape[0]) ? 8 * s + 5 : s;
            else
                return false;
            in->shape[d] = s;
            numel *= s;
        }
        if (in->kind == CT_IN_CLASS && way == 1)
            in->classes = in->classes > 1 ? 4 * in->classes + 3 : in->classes;
        n = numel > n ? numel : n;
    }
    return n > 0 && n <= 20000 && memcmp(out->in, c->in, sizeof(c->in)) != 0;
}

static bool accepts(harness *h, const ct_case *c)
{
    h_data d = h_data_random(h, c);
    h_result r;
    bool ok = h_run(h, h->f64, &d, CT_F64, H_PLAIN, 0, &r);
    h_result_free(&r);
    h_data_free(&d);
    return ok;
}

void h_check_f32(harness *h)
{
    const ct_case *c = h->c;
    f32_equals_f64(h, "f32 against f64");
    for (int way = 0; way < 3; way++) {
        ct_case big;
        if (!enlarge(c, way, &big) || !accepts(h, &big))
            continue;
        h->c = &big;
        f32_equals_f64(h, "f32 against f64, enlarged");
        h->c = c;
        return;
    }
}

/* ---- bf16 and f16 ---- */

static void round_to(ts_array *a, ct_ctx *ctx, ct_dtype low)
{
    if (!a->v || (a->dtype != CT_F64 && a->dtype != CT_F32))
        return;
    ct_tensor *t = ts_tensor(ctx, low, a);
    ts_array rounded = ts_values(ctx, t);
    ct_tensor_release(t);
    if (rounded.v)
        memcpy(a->v, rounded.v, (size_t)a->n * sizeof(double));
    ts_array_free(&rounded);
}

static void low_equals_f64(harness *h, ct_dtype low, ts_tol tol)
{
    unsigned wants = h_wants(h->op, h->c);
    h_data d = h_data_random(h, h->c);
    h_result a, b;
    const char *name = ct_dtype_name(low);
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        round_to(&d.in[i], h->f64, low);
    bool ran = h_run(h, h->f64, &d, CT_F64, H_PLAIN, wants, &b);
    if (ran && d.dy.v) { /* its upstream gradient was drawn just now: again with a rounded one */
        round_to(&d.dy, h->f64, low);
        h_result_free(&b);
        ran = h_run(h, h->f64, &d, CT_F64, H_PLAIN, wants, &b);
    }
    h_expect(h, ran, "%s, f64: %s", name, b.msg);
    if (h_expect(h, h_run(h, h->f32, &d, low, H_PLAIN, wants, &a), "%s: %s", name, a.msg) && ran)
        h_expect_same(h, name, &a, &b, tol);
    h_result_free(&a);
    h_result_free(&b);
    h_data_free(&d);
}

void h_check_low(harness *h)
{
    bool floats = false;
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        floats = floats || h_is_float(&h->c->in[i]);
    if (!floats)
        return;
    low_equals_f64(h, CT_BF16, (ts_tol){1.6e-2, 4e-3});
    low_equals_f64(h, CT_F16, (ts_tol){2e-3, 1e-3});
}
