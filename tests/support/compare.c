/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison with a message that says where and by how much. */
#include "support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same(double got, double want, double allowed)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got;
    return fabs(got - want) <= allowed;
}

static void index_text(const ts_array *a, int64_t flat, char *buf, size_t cap)
{
    int64_t at[CT_MAX_DIMS] = {0};
    for (int d = a->ndim - 1; d >= 0; d--) {
        at[d] = flat % a->shape[d];
        flat /= a->shape[d];
    }
    size_t len = (size_t)snprintf(buf, cap, "[");
    for (int d = 0; d < a->ndim && len < cap; d++)
        len += (size_t)snprintf(buf + len, cap - len, "%s%lld", d ? "," : "", (long long)at[d]);
    if (len < cap)
        snprintf(buf + len, cap - len, "]");
}

static bool close_flat(const ts_array *got, int64_t n, const double *want, ts_tol tol, char *msg,
                       size_t cap)
{
    double scale = 1;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(want[i]) && fabs(want[i]) > scale)
            scale = fabs(want[i]);
    int64_t bad = 0, worst = -1;
    double worst_by = -1;
    for (int64_t i = 0; i < n; i++) {
        double allowed = tol.rtol * fabs(want[i]) + tol.atol * scale;
        if (same(got->v[i], want[i], allowed))
            continue;
        bad++;
        double by = fabs(got->v[i] - want[i]);
        if (!isfinite(by))
            by = INFINITY;
        if (by > worst_by) {
            worst_by = by;
            worst = i;
        }
    }
    if (!bad)
        return true;
    char where[96];
    index_text(got, worst, where, sizeof(where));
    snprintf(msg, cap, "element %s: got %.17g, want %.17g (%lld of %lld differ; rtol %g, atol %g)",
             where, got->v[worst], want[worst], (long long)bad, (long long)n, tol.rtol,
             tol.atol * scale);
    return false;
}

bool ts_close(const ts_array *got, const ts_array *want, ts_tol tol, char *msg, size_t cap)
{
    if (!got->v || !want->v) {
        snprintf(msg, cap, "%s is missing", got->v ? "what is wanted" : "what was got");
        return false;
    }
    bool shapes = got->ndim == want->ndim;
    for (int d = 0; shapes && d < got->ndim; d++)
        shapes = got->shape[d] == want->shape[d];
    if (!shapes) {
        char a[128], b[128];
        snprintf(msg, cap, "shape: got %s, want %s", ts_array_describe(got, a, sizeof(a)),
                 ts_array_describe(want, b, sizeof(b)));
        return false;
    }
    return close_flat(got, want->n, want->v, tol, msg, cap);
}

bool ts_close_values(const ts_array *got, int64_t n, const double *want, ts_tol tol, char *msg,
                     size_t cap)
{
    if (!got->v || got->n != n) {
        snprintf(msg, cap, "got %lld elements, want %lld", got->v ? (long long)got->n : -1LL,
                 (long long)n);
        return false;
    }
    return close_flat(got, n, want, tol, msg, cap);
}

bool ts_expect_close(const char *what, const ts_array *got, const ts_array *want, ts_tol tol)
{
    char msg[512] = "";
    bool ok = ts_close(got, want, tol, msg, sizeof(msg));
    cr_expect(ok, "%s: %s", what, msg);
    return ok;
}

bool ts_expect_values(const char *what, ct_ctx *ctx, const ct_tensor *t, int64_t n,
                      const double *want, ts_tol tol)
{
    char msg[512] = "";
    ts_array got = ts_values(ctx, t);
    bool ok = ts_close_values(&got, n, want, tol, msg, sizeof(msg));
    cr_expect(ok, "%s: %s%s%s", what, msg, ct_error_code(ctx) ? "; pending: " : "",
              ct_error_get(ctx)->text);
    ts_array_free(&got);
    return ok;
}

bool ts_expect_error(ct_ctx *ctx, int code, const char *part, ...)
{
    const ct_error *e = ct_error_get(ctx);
    bool ok = ct_error_code(ctx) == code;
    cr_expect(ok, "wanted %s, got %s: \"%s\"", ct_status_name(code),
              ct_status_name(ct_error_code(ctx)), e->text);
    va_list args;
    va_start(args, part);
    for (; part; part = va_arg(args, const char *)) {
        bool found = strstr(e->text, part) != NULL;
        cr_expect(found, "wanted \"%s\" in the error \"%s\"", part, e->text);
        ok = ok && found;
    }
    va_end(args);
    ct_error_clear(ctx);
    return ok;
}

bool ts_expect_ok(ct_ctx *ctx, const char *what)
{
    bool ok = ct_error_code(ctx) == CT_OK;
    cr_expect(ok, "%s: %s: %s", what, ct_status_name(ct_error_code(ctx)), ct_error_get(ctx)->text);
    return ok;
}

void ts_at_end(bool ok, const char *fmt, ...)
{
    if (ok)
        return;
    va_list args;
    va_start(args, fmt);
    fputs("at the end of a test: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}
