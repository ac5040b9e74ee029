/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong around an op: missing inputs, pending errors, memory that runs out; and what
 * it leaves. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

/* The case still gives what it gave: the context is usable. */
static void still_works(harness *h, ct_ctx *ctx, h_data *d, ct_dtype dtype, const h_result *want,
                        const char *after)
{
    h_result r;
    char what[96];
    snprintf(what, sizeof(what), "after %s", after);
    bool ok = h_run(h, ctx, d, dtype, H_PLAIN, h_wants(h->op, h->c), &r);
    if (h_expect(h, ok, "%s: %s", what, r.msg))
        h_expect_same(h, what, &r, want, TS_EXACT);
    h_result_free(&r);
}

/* ---- NULL ---- */

static void one_null(harness *h, ct_ctx *ctx, ct_tensor *const *args, int i)
{
    ct_tensor *in[CT_CASE_MAX_IN];
    bool others = false, required = !(h->op->optional >> i & 1);
    for (int k = 0; k < CT_CASE_MAX_IN; k++) {
        in[k] = k == i ? NULL : args[k];
        others = others || in[k];
    }
    ct_tensor *y = h_call(h, ctx, in);
    int code = ct_error_code(ctx);
    if (!required) {
        h_expect(h, y ? !code : code < 0, "input %d NULL, which is optional: no result, no error",
                 i);
    } else {
        h_expect(h, !y, "input %d NULL gives a result", i);
        h_expect(h, code == (others ? CT_EINVAL : CT_OK), "input %d NULL gives %s: \"%s\"", i,
                 ct_status_name(code), ct_error_get(ctx)->text);
        h_expect(h, !others || !h->op->infer || strstr(ct_error_get(ctx)->text, h->op->name),
                 "the error doesn't name the op: \"%s\"", ct_error_get(ctx)->text);
    }
    ct_error_clear(ctx);
}

void h_check_null(harness *h)
{
    ct_tensor *none[CT_CASE_MAX_IN] = {NULL};
    h_expect(h, !h_call(h, h->main, none), "all inputs NULL give a result");
    h_expect(h, !ct_error_code(h->main), "all inputs NULL and yet a context with an error");
    h_data d = h_data_random(h, h->c);
    h_result before;
    h_leaves l = {0};
    if (!h_expect(h, h_run(h, h->main, &d, h->main_dtype, H_PLAIN, h_wants(h->op, h->c), &before),
                  "%s", before.msg))
        goto done;
    if (!h_expect(h, !ct_scope_begin(h->main, CT_SCOPE_PLAIN), "no scope"))
        goto done;
    if (h_leaves_make(h->main, &d, h->main_dtype, H_PLAIN, h_wants(h->op, h->c), &l))
        for (int i = 0; i < CT_CASE_MAX_IN; i++)
            if (l.arg[i])
                one_null(h, h->main, l.arg, i);
    h_expect(h, !ct_scope_end(h->main), "%s", ct_error_get(h->main)->text);
    still_works(h, h->main, &d, h->main_dtype, &before, "a NULL input");
done:
    h_leaves_free(&l);
    h_result_free(&before);
    h_data_free(&d);
}

/* ---- pending ---- */

void h_check_pending(harness *h)
{
    ct_ctx *ctx = h->main;
    unsigned wants = h_wants(h->op, h->c);
    h_data d = h_data_random(h, h->c);
    h_result before;
    h_leaves l = {0};
    if (!h_expect(h, h_run(h, ctx, &d, h->main_dtype, H_PLAIN, wants, &before), "%s", before.msg))
        goto done;
    if (!h_expect(h, !ct_scope_begin(ctx, CT_SCOPE_PLAIN), "no scope"))
        goto done;
    if (h_leaves_make(ctx, &d, h->main_dtype, H_PLAIN, wants, &l)) {
        ct_error_raise(ctx, CT_EDATA, "harness", "the first error");
        ct_counters a = ct_ctx_counters(ctx);
        ct_tensor *y = h_call(h, ctx, l.arg);
        ct_counters b = ct_ctx_counters(ctx);
        h_expect(h, !y, "a result under a pending error");
        h_expect(h,
                 ct_error_code(ctx) == CT_EDATA &&
                     !strcmp(ct_error_get(ctx)->text, "the first error"),
                 "the pending error became \"%s\"", ct_error_get(ctx)->text);
        h_expect(h,
                 a.live_tensors == b.live_tensors && a.live_nodes == b.live_nodes &&
                     a.allocs == b.allocs,
                 "work was done under a pending error");
        ct_error_clear(ctx);
    }
    h_expect(h, !ct_scope_end(ctx), "%s", ct_error_get(ctx)->text);
    still_works(h, ctx, &d, h->main_dtype, &before, "a pending error");
done:
    h_leaves_free(&l);
    h_result_free(&before);
    h_data_free(&d);
}

/* ---- live things ---- */

static bool expect_level(harness *h, ct_ctx *ctx, ct_counters was, const char *after)
{
    ct_counters is = ct_ctx_counters(ctx);
    return h_expect(
        h,
        is.live_tensors == was.live_tensors && is.live_nodes == was.live_nodes &&
            is.live_blocks == was.live_blocks && is.live_bytes == was.live_bytes &&
            is.saved_bytes == was.saved_bytes,
        "%s: tensors %lld, nodes %lld, blocks %lld, bytes %lld, saved bytes %lld more "
        "than before",
        after, (long long)(is.live_tensors - was.live_tensors),
        (long long)(is.live_nodes - was.live_nodes), (long long)(is.live_blocks - was.live_blocks),
        (long long)(is.live_bytes - was.live_bytes), (long long)(is.saved_bytes - was.saved_bytes));
}

/* ---- allocations failing ---- */

#define EACH_UP_TO 400
#define FAIL_LIMIT 100000

/* Each allocation of an op; of long formulas, beyond the first hundreds, some. */
static uint64_t after(uint64_t n)
{
    return n < EACH_UP_TO ? n + 1 : n + n / 8;
}

/* Forward and backward with the n-th allocation failing. False once there is no n-th. */
static bool fail_once(harness *h, ct_ctx *ctx, h_data *d, ct_dtype dtype, uint64_t n, bool sticky)
{
    unsigned wants = h_wants(h->op, h->c);
    h_leaves l = {0};
    bool reached = false;
    char after[96];
    snprintf(after, sizeof(after), "%s allocation %llu failed%s", ct_dtype_name(dtype),
             (unsigned long long)n, sticky ? " and all later ones" : "");
    ct_counters was = ct_ctx_counters(ctx);
    if (!h_expect(h, !ct_scope_begin(ctx, CT_SCOPE_PLAIN), "no scope"))
        return false;
    if (h_expect(h, h_leaves_make(ctx, d, dtype, H_PLAIN, wants, &l), "%s",
                 ct_error_get(ctx)->text)) {
        ct_tensor *dy = d->dy.v ? ts_tensor(ctx, dtype, &d->dy) : NULL;
        ct_ctx_fail_alloc_at(ctx, n, sticky);
        ct_tensor *y = h_call(h, ctx, l.arg);
        int code = ct_error_code(ctx);
        if (y && wants && dy && !ct_tensor_is_leaf(y) && ct_tensor_dtype(y) == dtype) {
            int rc = ct_backward(ctx, y, dy, CT_BACKWARD_DEFAULT);
            code = ct_error_code(ctx);
            h_expect(h, rc == code, "%s: backward returned %s, pending is %s", after,
                     ct_status_name(rc), ct_status_name(code));
        }
        reached = ct_ctx_alloc_failed(ctx);
        ct_ctx_fail_alloc_at(ctx, 0, false);
        h_expect(h, y || code, "%s: no result and no error", after);
        h_expect(h, !code || code == CT_ENOMEM, "%s: %s: %s", after, ct_status_name(code),
                 ct_error_get(ctx)->text);
        h_expect(h, reached == (code != CT_OK), "%s: %s", after, ct_status_name(code));
        ct_error_clear(ctx);
        ct_tensor_release(dy);
    }
    h_expect(h, !ct_scope_end(ctx), "%s: scope: %s", after, ct_error_get(ctx)->text);
    ct_error_clear(ctx);
    h_leaves_free(&l);
    if (reached)
        expect_level(h, ctx, was, after);
    return reached;
}

/* The first use of an op makes primitives and grows tables: those can fail too. Levels may rise
 * by a cache's entry, so codes alone are looked at. False once there is no n-th allocation. */
static bool fail_fresh(harness *h, const h_data *d, uint64_t n)
{
    ct_ctx *ctx = ts_ctx(CT_F32, true);
    h_leaves l = {0};
    bool reached = false;
    if (!ct_scope_begin(ctx, CT_SCOPE_PLAIN) &&
        h_leaves_make(ctx, d, CT_F32, H_PLAIN, h_wants(h->op, h->c), &l)) {
        ct_ctx_fail_alloc_at(ctx, n, false);
        ct_tensor *y = h_call(h, ctx, l.arg);
        reached = ct_ctx_alloc_failed(ctx);
        ct_ctx_fail_alloc_at(ctx, 0, false);
        int code = ct_error_code(ctx);
        h_expect(h, reached ? !y && code == CT_ENOMEM : y && !code,
                 "fresh context, allocation %llu: %s: \"%s\"", (unsigned long long)n,
                 ct_status_name(code), ct_error_get(ctx)->text);
        ct_error_clear(ctx);
        h_expect(h, h_call(h, ctx, l.arg) != NULL, "fresh context, after allocation %llu: %s",
                 (unsigned long long)n, ct_error_get(ctx)->text);
        ct_error_clear(ctx);
    }
    h_expect(h, !ct_scope_end(ctx), "%s", ct_error_get(ctx)->text);
    h_leaves_free(&l);
    ct_ctx_free(ctx);
    return reached;
}

/* Allocations of one call; 0 for a call that hands its input through. */
static uint64_t allocations(harness *h, ct_ctx *ctx, const h_data *d)
{
    h_leaves l = {0};
    uint64_t n = 0;
    if (!ct_scope_begin(ctx, CT_SCOPE_NO_GRAD)) {
        if (h_leaves_make(ctx, d, CT_F64, H_PLAIN, 0, &l)) {
            n = ct_ctx_counters(ctx).allocs;
            h_call(h, ctx, l.arg);
            n = ct_ctx_counters(ctx).allocs - n;
        }
        h_expect(h, !ct_scope_end(ctx), "%s", ct_error_get(ctx)->text);
    }
    h_leaves_free(&l);
    return n;
}

void h_check_alloc(harness *h)
{
    h_data d = h_data_random(h, h->c);
    uint64_t reached = 0;
    for (int mode = 0; mode < 4; mode++) {
        bool f32 = mode >> 1, sticky = mode & 1;
        ct_dtype dtype = f32 ? CT_F32 : CT_F64;
        ct_ctx *ctx = f32 ? h->f32 : h->f64;
        h_result before;
        bool ok = h_run(h, ctx, &d, dtype, H_PLAIN, h_wants(h->op, h->c), &before);
        if (h_expect(h, ok, "%s", before.msg)) {
            uint64_t n = 1;
            while (n < FAIL_LIMIT && fail_once(h, ctx, &d, dtype, n, sticky))
                n = after(n);
            reached += n - 1;
            h_expect(h, n < FAIL_LIMIT, "more than %d allocations", FAIL_LIMIT);
            still_works(h, ctx, &d, dtype, &before, "memory ran out");
        }
        h_result_free(&before);
    }
    for (uint64_t n = 1; h->c == &h->op->cases[0] && n < FAIL_LIMIT && fail_fresh(h, &d, n);
         n = after(n))
        reached++;
    h_expect(h, reached > 0 || !allocations(h, h->f64, &d), "no allocation could be made to fail");
    h_data_free(&d);
}

/* ---- leaks ---- */

void h_check_leak(harness *h)
{
    unsigned wants = h_wants(h->op, h->c);
    h_data d = h_data_random(h, h->c);
    for (int f32 = h->first_pass; f32 < 2; f32++) {
        ct_ctx *ctx = f32 ? h->f32 : h->f64;
        ct_dtype dtype = f32 ? CT_F32 : CT_F64;
        ct_counters was = {0};
        for (int k = 0; k < 4; k++) { /* the first warms up */
            h_result r;
            h_expect(h, h_run(h, ctx, &d, dtype, H_PLAIN, wants, &r), "%s", r.msg);
            h_result_free(&r);
            if (k == 0)
                was = ct_ctx_counters(ctx);
        }
        expect_level(h, ctx, was, "forward and backward");
        h_leaves l = {0};
        if (!ct_scope_begin(ctx, CT_SCOPE_PLAIN)) {
            /* A graph that no backward frees. */
            bool made = h_leaves_make(ctx, &d, dtype, H_PLAIN, wants, &l);
            h_expect(h, made && h_call(h, ctx, l.arg), "%s", ct_error_get(ctx)->text);
            ct_error_clear(ctx);
            h_expect(h, !ct_scope_end(ctx), "%s", ct_error_get(ctx)->text);
        }
        h_leaves_free(&l);
        expect_level(h, ctx, was, "forward alone");
    }
    h_data_free(&d);
}

/* ---- steady state ---- */

void h_check_steady(harness *h)
{
    unsigned wants = h_wants(h->op, h->c);
    h_data d = h_data_random(h, h->c);
    for (int f32 = h->first_pass; f32 < 2; f32++) {
        ct_dtype dtype = f32 ? CT_F32 : CT_F64;
        ct_ctx **keep = f32 ? &h->cached_f32 : &h->cached_f64;
        ct_ctx *ctx = *keep ? *keep : (*keep = ts_ctx(dtype, false));
        ct_counters was = {0};
        for (int k = 0; k < 8; k++) {
            h_result r;
            h_expect(h, h_run(h, ctx, &d, dtype, H_PLAIN, wants, &r), "%s", r.msg);
            h_result_free(&r);
            if (k == 2)
                was = ct_ctx_counters(ctx);
        }
        ct_counters is = ct_ctx_counters(ctx);
        h_expect(h, is.allocs == was.allocs, "%s: %lld allocations in 5 steady repetitions",
                 ct_dtype_name(dtype), (long long)(is.allocs - was.allocs));
        h_expect(h, is.primitives == was.primitives, "%s: %lld primitives in 5 steady repetitions",
                 ct_dtype_name(dtype), (long long)(is.primitives - was.primitives));
    }
    h_data_free(&d);
}

/* ---- empty ---- */

void h_check_empty(harness *h)
{
    bool empty = false;
    for (int i = 0; i < h->op->n_cases; i++)
        for (int k = 0; k < CT_CASE_MAX_IN; k++)
            for (int d = 0; d < h->op->cases[i].in[k].ndim; d++)
                empty = empty || (h->op->cases[i].in[k].kind != CT_IN_NONE &&
                                  h->op->cases[i].in[k].shape[d] == 0);
    h_expect(h, h->op->n_cases > 0, "the op has no cases");
    h_expect(h, empty || (h->op->no_empty && h->op->no_empty[0]),
             "no case has an empty input, and no_empty doesn't say why");
}
