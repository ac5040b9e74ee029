/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of gradients: the gradient as a graph equals the kernels' gradient, and its own gradient is
 * finite differences'. With g_i = d sum(u y) / d x_i and L = sum_i sum(v_i g_i), v random, the second pass gives
 * d L / d x_i and d L / d u. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EPS        1e-6
#define DIRECTIONS 4

enum { U = CT_CASE_MAX_IN, PARTS }; /* what is differentiated: the inputs, the upstream gradient */

typedef struct second {
    unsigned wants;
    ts_array g[CT_CASE_MAX_IN]; /* first gradients, made as a graph */
    ts_array v[CT_CASE_MAX_IN]; /* their weights in L */
    ts_array h[PARTS];          /* gradients of L */
    char msg[512];
} second;

static void second_free(second *s)
{
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        ts_array_free(&s->g[i]);
        ts_array_free(&s->v[i]);
    }
    for (int i = 0; i < PARTS; i++)
        ts_array_free(&s->h[i]);
}

/* L of the gradients in dx. */
static double weighted(const second *s, const ts_array *dx)
{
    double sum = 0;
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        for (int64_t k = 0; dx[i].v && k < dx[i].n; k++)
            sum += s->v[i].v[k] * dx[i].v[k];
    return sum;
}

/* L as a tensor of the scope; the weights are random where s->v has none. */
static ct_tensor *loss_of(const harness *h, ct_ctx *ctx, second *s, ct_tensor *const *g)
{
    ct_tensor *loss = NULL;
    uint64_t seed = ts_hash(h->c->name, ts_hash(h->op->name, 5));
    for (int i = 0, k = 0; i < CT_CASE_MAX_IN; i++) {
        if (!(s->wants >> i & 1))
            continue;
        s->g[i] = ts_values(ctx, g[k]);
        if (!s->v[i].v)
            s->v[i] = ts_random_normal(CT_F64, ct_tensor_ndim(g[k]), ct_tensor_shape(g[k]), &seed);
        ct_tensor *v = ts_tensor(ctx, ct_tensor_dtype(g[k]), &s->v[i]);
        ct_tensor *part = ct_sum(ct_mul(g[k], v), NULL, 0, false);
        ct_tensor_release(v);
        loss = loss ? ct_add(loss, part) : part;
        k++;
    }
    return loss;
}

static bool run_twice(const harness *h, ct_ctx *ctx, h_data *d, second *s, h_leaves *l)
{
    ct_tensor *in[PARTS], *g[PARTS], *h2[PARTS];
    int n = 0;
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        if (s->wants >> i & 1)
            in[n++] = l->leaf[i];
    ct_tensor *y = h_call(h, ctx, l->arg);
    if (y && ct_tensor_is_leaf(y)) /* an op may hand x itself through */
        y = ct_clone(y);
    ct_tensor *u = y ? ts_tensor(ctx, ct_tensor_dtype(y), &d->dy) : NULL;
    bool ok = u && !ct_tensor_set_requires_grad(ctx, u, true) &&
              !ct_grad(ctx, 1, &y, &u, n, in, CT_CREATE_GRAPH, g);
    ct_tensor *loss = ok ? loss_of(h, ctx, s, g) : NULL;
    in[n] = u;
    if (loss &&
        !ct_tensor_requires_grad(loss)) { /* a constant gradient: nothing to differentiate */
        for (int i = 0; i < PARTS; i++)
            if (i == U || s->wants >> i & 1)
                s->h[i] = ts_values(ctx, ct_zeros_like(i == U ? u : l->leaf[i]));
        ct_tensor_release(u);
        return !ct_error_code(ctx);
    }
    ok = loss && !ct_grad(ctx, 1, &loss, NULL, n + 1, in, CT_ZEROS_FOR_UNUSED, h2);
    for (int i = 0, k = 0; ok && i < PARTS; i++)
        if (i == U || s->wants >> i & 1)
            s->h[i] = ts_values(ctx, h2[k++]);
    ct_tensor_release(u);
    return ok;
}

static bool second_make(const harness *h, ct_ctx *ctx, h_data *d, ct_dtype dtype, unsigned wants,
                        second *s)
{
    h_leaves l = {0};
    s->wants = wants;
    bool ok = !ct_scope_begin(ctx, CT_SCOPE_PLAIN) &&
              h_leaves_make(ctx, d, dtype, H_PLAIN, wants, &l) && run_twice(h, ctx, d, s, &l);
    if (!ok)
        snprintf(s->msg, sizeof(s->msg), "%.500s", ct_error_get(ctx)->text);
    ct_error_clear(ctx);
    if (ct_scope_end(ctx)) {
        ct_error_clear(ctx);
        ok = false;
    }
    h_leaves_free(&l);
    return ok;
}

/* L by the kernels' gradients. */
static bool eval(const harness *h, h_data *d, const second *s, double *out)
{
    h_result r;
    bool ok = h_run(h, h->f64, d, CT_F64, H_PLAIN, s->wants, &r);
    *out = ok ? weighted(s, r.dx) : 0;
    h_result_free(&r);
    return ok;
}

static void against_differences(harness *h, h_data *d, const second *s, int part, double scale)
{
    ts_array *x = part == U ? &d->dy : &d->in[part];
    ts_array keep = ts_array_copy(x), v = ts_array_copy(x);
    uint64_t seed = ts_hash(h->c->name, 7 + (uint64_t)part);
    int directions = x->n == 0 ? 0 : x->n == 1 ? 1 : DIRECTIONS;
    for (int k = 0; k < directions; k++) {
        double up, down, want = 0;
        for (int64_t j = 0; j < x->n; j++) {
            v.v[j] = ts_next(&seed) >> 63 ? 1 : -1;
            want += v.v[j] * s->h[part].v[j];
            x->v[j] = keep.v[j] + EPS * v.v[j];
        }
        bool ok = eval(h, d, s, &up);
        for (int64_t j = 0; j < x->n; j++)
            x->v[j] = keep.v[j] - EPS * v.v[j];
        ok = eval(h, d, s, &down) && ok;
        memcpy(x->v, keep.v, (size_t)x->n * sizeof(double));
        double got = (up - down) / (2 * EPS);
        double allowed = 2e-6 * fabs(got) + 1e-6 * scale * sqrt((double)x->n);
        if (!h_expect(h, ok && fabs(got - want) <= allowed,
                      "second gradient of %s %d, direction %d: the graph says %.12g, finite "
                      "differences %.12g (allowed %.3g)",
                      part == U ? "upstream gradient" : "input", part, k, want, got, allowed))
            break;
    }
    ts_array_free(&keep);
    ts_array_free(&v);
}

static double largest(const second *s)
{
    double m = 1;
    for (int i = 0; i < PARTS; i++)
        for (int64_t k = 0; s->h[i].v && k < s->h[i].n; k++)
            m = fmax(m, fabs(s->h[i].v[k]));
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        for (int64_t k = 0; s->g[i].v && k < s->g[i].n; k++)
            m = fmax(m, fabs(s->g[i].v[k]));
    return m;
}

/* On CUDA the oracle is the CPU's f64. */
static void against_f64(harness *h, h_data *d, const second *want)
{
    second got = {0};
    ts_tol tol = h_tol_f32(h->c);
    bool ok = second_make(h, h->f32, d, CT_F32, want->wants, &got);
    h_expect(h, ok, "f32: %s", got.msg);
    for (int i = 0; i < PARTS && ok; i++) {
        char what[64];
        snprintf(what, sizeof(what), "f32: second gradient of part %d", i);
        if (want->h[i].v)
            h_expect_close(h, what, &got.h[i], &want->h[i], tol);
    }
    second_free(&got);
}

/* PyTorch's, on its data. */
static void against_golden(harness *h, unsigned wants)
{
    const char *name = h->c->name;
    const ts_array *ddy = h->golden ? ts_golden_get(h->golden, "%s/ddy", name) : NULL;
    if (!ddy)
        return;
    h_data d = {0};
    second s = {0};
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        const ts_array *in = ts_golden_get(h->golden, "%s/in%d", name, i);
        const ts_array *v = ts_golden_get(h->golden, "%s/v%d", name, i);
        d.in[i] = in ? ts_array_copy(in) : d.in[i];
        s.v[i] = v ? ts_array_copy(v) : s.v[i];
    }
    d.dy = ts_array_copy(ts_golden_must_get(h->golden, "%s/dy", name));
    ct_ctx *ctx = ts_on_cuda() ? h->f32 : h->f64;
    if (h_expect(h, second_make(h, ctx, &d, h->main_dtype, wants, &s), "golden: %s", s.msg)) {
        ts_tol tol = h_tol_main(h);
        tol.atol *= ts_on_cuda() ? largest(&s) : 1;
        h_expect_close(h, "golden: second gradient of the upstream gradient", &s.h[U], ddy, tol);
        for (int i = 0; i < CT_CASE_MAX_IN; i++) {
            char what[64];
            snprintf(what, sizeof(what), "golden: second gradient of input %d", i);
            if (s.h[i].v)
                h_expect_close(h, what, &s.h[i], ts_golden_must_get(h->golden, "%s/ddx%d", name, i),
                               tol);
        }
    }
    second_free(&s);
    h_data_free(&d);
}

void h_check_second(harness *h)
{
    unsigned wants = h_wants(h->op, h->c);
    if (!wants)
        return;
    if (h->op->no_second) {
        h_expect(h, h->op->no_second[0] != '\0', "no_second must say why");
        return;
    }
    h_data d = h_data_random(h, h->c);
    h_result first;
    second s = {0};
    bool ok = h_run(h, h->f64, &d, CT_F64, H_PLAIN, wants, &first); /* draws dy */
    if (h_expect(h, ok, "%s", first.msg) &&
        h_expect(h, second_make(h, h->f64, &d, CT_F64, wants, &s), "%s", s.msg)) {
        for (int i = 0; i < CT_CASE_MAX_IN; i++)
            if (first.dx[i].v)
                h_expect_close(h, "the gradient as a graph", &s.g[i], &first.dx[i], TS_F64);
        for (int part = 0; part < PARTS && !ts_on_cuda() && !h->c->skip_diff; part++)
            if (part == U || wants >> part & 1)
                against_differences(h, &d, &s, part, largest(&s));
        if (ts_on_cuda() || h->c->skip_diff)
            against_f64(h, &d, &s);
    }
    second_free(&s);
    h_result_free(&first);
    h_data_free(&d);
    against_golden(h, wants);
}
