/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over the cases of an op, and what it reports. */
#include "harness.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const h_check_names[H_CHECKS] = {"golden", "diff",   "second", "f32=f64", "strided",
                                             "accum",  "modes",  "null",   "pending", "alloc",
                                             "leak",   "steady", "low",    "empty"};

void h_open(harness *h, const ct_op *op, bool quiet)
{
    memset(h, 0, sizeof(*h));
    h->op = op;
    h->quiet = quiet;
    h->f64 = ts_ctx(CT_F64, true);
    h->f32 = ts_ctx(CT_F32, true);
    h->main = ts_on_cuda() ? h->f32 : h->f64;
    h->main_dtype = ts_on_cuda() ? CT_F32 : CT_F64;
    h->first_pass = ts_on_cuda();
    char file[128];
    snprintf(file, sizeof(file), "ops/%s.safetensors", op->name);
    h->golden = ts_golden_open(file, h->golden_msg, sizeof(h->golden_msg));
}

void h_close(harness *h)
{
    ts_golden_close(h->golden);
    ct_ctx_free(h->cached_f32);
    ct_ctx_free(h->cached_f64);
    ct_ctx_free(h->f32);
    ct_ctx_free(h->f64);
}

bool h_expect(harness *h, bool ok, const char *fmt, ...)
{
    h->done[h->check]++;
    if (ok)
        return true;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (h->failed[h->check]++ == 0)
        snprintf(h->first[h->check], sizeof(h->first[0]), "%s", text);
    if (!h->quiet && h->failed[h->check] <= 8)
        cr_expect(false, "op %s, case \"%s\", check %s: %s", h->op->name, h->c ? h->c->name : "-",
                  h_check_names[h->check], text);
    return false;
}

bool h_expect_close(harness *h, const char *what, const ts_array *got, const ts_array *want,
                    ts_tol tol)
{
    char msg[400] = "";
    bool ok = ts_close(got, want, tol, msg, sizeof(msg));
    return h_expect(h, ok, "%s: %s", what, msg);
}

/* Where a crash is found: the last line of the log. */
static void breadcrumb(const harness *h)
{
    if (!h->log)
        return;
    FILE *f = fopen(h->log, "a");
    if (!f)
        return;
    fprintf(f, "at\t%s\t%s\t%s\n", h->op->name, h_check_names[h->check], h->c ? h->c->name : "-");
    fclose(f);
}

static void (*const checks[H_CHECKS])(harness *) = {
    h_check_golden, h_check_diff,   h_check_second, h_check_f32,     h_check_strided,
    h_check_accum,  h_check_modes,  h_check_null,   h_check_pending, h_check_alloc,
    h_check_leak,   h_check_steady, h_check_low,    h_check_empty};

void h_run_check(harness *h, h_check check)
{
    h->check = check;
    h->c = NULL;
    if (check == H_EMPTY) {
        breadcrumb(h);
        checks[check](h);
        return;
    }
    for (int i = 0; i < h->op->n_cases; i++) {
        h->c = &h->op->cases[i];
        breadcrumb(h);
        checks[check](h);
        /* Nothing of a check may reach the next one. */
        if (ct_error_code(h->f64) || ct_error_code(h->f32)) {
            h_expect(h, false, "an error stayed pending: %s%s", ct_error_get(h->f64)->text,
                     ct_error_get(h->f32)->text);
            ct_error_clear(h->f64);
            ct_error_clear(h->f32);
        }
    }
}

void h_run_all(harness *h)
{
    const char *only = getenv("CT_CHECK");
    for (int k = 0; k < H_CHECKS; k++)
        if (!only || !strcmp(only, h_check_names[k]))
            h_run_check(h, (h_check)k);
}
