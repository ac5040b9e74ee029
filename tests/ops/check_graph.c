/* SPDX-License-Identifier: Apache-2.0 */
/* How an op behaves in a graph: strided inputs, accumulation, grad modes. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

void h_check_strided(harness *h)
{
    unsigned wants = h_wants(h->op, h->c);
    h_data d = h_data_random(h, h->c);
    h_result plain, got;
    bool four = false;
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        four = four || (d.in[i].v && d.in[i].ndim == 4);
    if (!h_expect(h, h_run(h, h->f64, &d, CT_F64, H_PLAIN, wants, &plain), "%s", plain.msg))
        goto done;
    for (int k = H_REVERSED; k < H_LAYOUTS; k++) {
        if (k == H_CHANNELS_LAST && !four)
            continue;
        for (int f32 = h->first_pass; f32 < 2; f32++) {
            char what[64];
            snprintf(what, sizeof(what), "%s, %s", h_layout_names[k], f32 ? "f32" : "f64");
            bool ok = h_run(h, f32 ? h->f32 : h->f64, &d, f32 ? CT_F32 : CT_F64, (h_layout)k, wants,
                            &got);
            if (h_expect(h, ok, "%s: %s", what, got.msg)) {
                h_expect_same(h, what, &got, &plain, f32 ? h_tol_f32(h->c) : TS_F64);
                h_expect(h, !got.stray, "%s: a gradient outside the window", what);
            }
            h_result_free(&got);
        }
    }
done:
    h_result_free(&plain);
    h_data_free(&d);
}

/* ---- accumulation ---- */

typedef enum { TWICE, RETAINED, TWO_USERS, WAYS } accum_way;
static const char *const way_names[WAYS] = {"backward twice", "retain_graph", "two users"};

/* Backward of twice the loss in one of the ways. */
static int accumulate(harness *h, ct_ctx *ctx, h_data *d, h_leaves *l, accum_way way)
{
    int rc = CT_OK;
    if (way == TWICE) {
        for (int i = 0; i < 2 && !rc; i++)
            rc = h_backward(h, ctx, h_call(h, ctx, l->arg), d, CT_BACKWARD_DEFAULT);
        return rc;
    }
    if (way == RETAINED) {
        ct_tensor *y = h_call(h, ctx, l->arg);
        rc = h_backward(h, ctx, y, d, CT_RETAIN_GRAPH);
        return rc ? rc : h_backward(h, ctx, y, d, CT_BACKWARD_DEFAULT);
    }
    /* The users share inner nodes: the engine adds into buffers of its own, not into leaves. */
    ct_tensor *in[CT_CASE_MAX_IN];
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        in[i] = l->wants >> i & 1 ? ct_affine(l->arg[i], 1, 0) : l->arg[i];
    ct_tensor *a = h_call(h, ctx, in), *b = h_call(h, ctx, in);
    if (a && ct_tensor_dtype(a) != ct_tensor_dtype(l->leaf[0]))
        return h_backward(h, ctx, a, d, CT_RETAIN_GRAPH) ||
               h_backward(h, ctx, b, d, CT_BACKWARD_DEFAULT);
    return h_backward(h, ctx, ct_add(a, b), d, CT_BACKWARD_DEFAULT);
}

static void accum_way_of(harness *h, ct_dtype dtype, h_data *d, const h_result *once, accum_way way)
{
    ct_ctx *ctx = dtype == CT_F64 ? h->f64 : h->f32;
    unsigned wants = h_wants(h->op, h->c);
    ts_tol tol = dtype == CT_F64 ? TS_F64 : h_tol_f32(h->c);
    h_leaves l = {0};
    int rc = ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    if (!rc && h_leaves_make(ctx, d, dtype, H_PLAIN, wants, &l))
        rc = accumulate(h, ctx, d, &l, way);
    rc = rc ? rc : ct_error_code(ctx);
    h_expect(h, !rc, "%s, %s: %s", way_names[way], ct_dtype_name(dtype), ct_error_get(ctx)->text);
    for (int i = 0; i < CT_CASE_MAX_IN && !rc; i++) {
        if (!once->dx[i].v)
            continue;
        ts_array want = ts_array_copy(&once->dx[i]);
        for (int64_t k = 0; k < want.n; k++)
            want.v[k] *= 2;
        ts_array got = ts_values(ctx, ct_tensor_grad(l.leaf[i]));
        char what[96];
        snprintf(what, sizeof(what), "%s, %s: gradient of input %d", way_names[way],
                 ct_dtype_name(dtype), i);
        h_expect_close(h, what, &got, &want, tol);
        ts_array_free(&want);
        ts_array_free(&got);
    }
    ct_error_clear(ctx);
    h_expect(h, !ct_scope_end(ctx), "%s: %s", way_names[way], ct_error_get(ctx)->text);
    ct_error_clear(ctx);
    h_leaves_free(&l);
}

/* One leaf as inputs i and j: its gradient is the sum of both. */
static void aliased(harness *h, h_data *d, int i, int j)
{
    unsigned wants = h_wants(h->op, h->c);
    ts_array keep = d->in[j];
    d->in[j] = ts_array_copy(&d->in[i]);
    h_result apart;
    h_leaves l = {0};
    ts_array got = {0};
    bool ok = h_run(h, h->main, d, h->main_dtype, H_PLAIN, wants, &apart);
    ct_ctx *ctx = h->main;
    if (h_expect(h, ok, "%s", apart.msg) && !ct_scope_begin(ctx, CT_SCOPE_PLAIN)) {
        if (h_leaves_make(ctx, d, h->main_dtype, H_PLAIN, wants, &l)) {
            l.arg[j] = l.arg[i];
            ct_tensor *y = h_call(h, ctx, l.arg);
            if (y && !h_backward(h, ctx, y, d, CT_BACKWARD_DEFAULT))
                got = ts_values(ctx, ct_tensor_grad(l.leaf[i]));
        }
        char what[96];
        snprintf(what, sizeof(what), "inputs %d and %d one tensor", i, j);
        h_expect(h, !ct_error_code(ctx), "%s: %s", what, ct_error_get(ctx)->text);
        ts_array sum = ts_array_copy(&apart.dx[i]);
        for (int64_t k = 0; k < sum.n; k++)
            sum.v[k] += apart.dx[j].v[k];
        h_expect_close(h, what, &got, &sum, h_tol_main(h));
        ts_array_free(&sum);
        ct_error_clear(ctx);
        h_expect(h, !ct_scope_end(ctx), "%s", ct_error_get(ctx)->text);
    }
    h_leaves_free(&l);
    ts_array_free(&got);
    h_result_free(&apart);
    ts_array_free(&d->in[j]);
    d->in[j] = keep;
}

void h_check_accum(harness *h)
{
    unsigned wants = h_wants(h->op, h->c);
    if (!wants)
        return;
    h_data d = h_data_random(h, h->c);
    for (int f32 = h->first_pass; f32 < 2; f32++) {
        h_result once;
        ct_dtype dtype = f32 ? CT_F32 : CT_F64;
        bool ok = h_run(h, f32 ? h->f32 : h->f64, &d, dtype, H_PLAIN, wants, &once);
        if (h_expect(h, ok, "%s", once.msg))
            for (int way = 0; way < WAYS; way++)
                accum_way_of(h, dtype, &d, &once, (accum_way)way);
        h_result_free(&once);
    }
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        for (int j = i + 1; j < CT_CASE_MAX_IN; j++) {
            const ct_case_in *a = &h->c->in[i], *b = &h->c->in[j];
            if ((wants >> i & 1) && (wants >> j & 1) && a->kind == b->kind && a->ndim == b->ndim &&
                !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)))
                aliased(h, &d, i, j);
        }
    h_data_free(&d);
}

/* ---- modes ---- */

static void untouched(harness *h, const h_data *d, const h_result *r)
{
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        if (d->in[i].v && !h->c->in[i].no_grad) {
            char what[64];
            snprintf(what, sizeof(what), "input %d, which the op must not change", i);
            h_expect_close(h, what, &r->after[i], &d->in[i], TS_EXACT);
        }
}

static void one_at_a_time(harness *h, h_data *d, const h_result *all)
{
    unsigned wants = h_wants(h->op, h->c);
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        if (!(wants >> i & 1) || wants == 1u << i)
            continue;
        h_result one;
        char what[64];
        snprintf(what, sizeof(what), "input %d alone requires grad", i);
        bool ok = h_run(h, h->main, d, h->main_dtype, H_PLAIN, 1u << i, &one);
        if (h_expect(h, ok, "%s: %s", what, one.msg))
            h_expect_close(h, what, &one.dx[i], &all->dx[i], h_tol_main(h));
        h_result_free(&one);
    }
}

void h_check_modes(harness *h)
{
    unsigned wants = h_wants(h->op, h->c);
    h_data d = h_data_random(h, h->c);
    h_result none, all;
    bool ok = h_run(h, h->main, &d, h->main_dtype, H_PLAIN, 0, &none);
    if (h_expect(h, ok, "no_grad: %s", none.msg)) {
        h_expect(h, !none.requires_grad && none.is_leaf, "under no_grad the output is in a graph");
        untouched(h, &d, &none);
    }
    ok = h_run(h, h->main, &d, h->main_dtype, H_PLAIN, wants, &all);
    if (wants && h_expect(h, ok, "%s", all.msg)) {
        h_expect_same(h, "recording or not", &none, &(h_result){.y = all.y}, TS_EXACT);
        untouched(h, &d, &all);
        one_at_a_time(h, &d, &all);
        h_expect(h, all.is_leaf || !h->op->torch_name || !strcmp(all.grad_fn, h->op->torch_name),
                 "grad_fn is %s, the op's torch_name %s", all.grad_fn, h->op->torch_name);
    }
    if (!wants && !h_differentiable(h->op))
        h_expect(h, !all.requires_grad, "an op without gradient gives an output that requires it");
    h_result_free(&none);
    h_result_free(&all);
    h_data_free(&d);
}
