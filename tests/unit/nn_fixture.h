/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of nn and optim share. */
#ifndef TESTS_UNIT_NN_FIXTURE_H
#define TESTS_UNIT_NN_FIXTURE_H

#include "support/support.h"
#include <criterion/criterion.h>
#include <ctrain/nn.h>
#include <ctrain/optim.h>
#include <string.h>

#define STATE_MAX 64

static inline ct_ctx *open_ctx(ct_dtype dtype)
{
    ct_ctx_opts o = ct_ctx_defaults();
    ct_error err = {0};
    ct_ctx *ctx;

    o.device = "cpu";
    o.threads = 1;
    o.dtype = dtype;
    o.seed = 7;
    ctx = ct_ctx_new(o, &err);
    cr_assert_not_null(ctx, "%s", err.text);
    return ctx;
}

/* Nothing is pending and nothing is left alive. */
static inline void close_ctx(ct_ctx *ctx)
{
    ts_at_end(ct_error_code(ctx) == CT_OK, "pending: %s", ct_error_get(ctx)->text);
    ts_at_end(ct_ctx_counters(ctx).live_tensors == 0, "%d tensors are left",
              (int)ct_ctx_counters(ctx).live_tensors);
    ct_ctx_free(ctx);
}

/* The error pending is exactly this; clears it. */
static inline void expect_text(ct_ctx *ctx, int code, const char *text)
{
    cr_expect_eq(ct_error_code(ctx), code, "got %s, want %s", ct_status_name(ct_error_code(ctx)),
                 ct_status_name(code));
    cr_expect_str_eq(ct_error_get(ctx)->text, text, "got  \"%s\"\nwant \"%s\"",
                     ct_error_get(ctx)->text, text);
    ct_error_clear(ctx);
}

/* The names of m's state, "weight bias | running_mean": buffers are in brackets. Frees nothing. */
static inline void expect_names(ct_module *m, const char *want)
{
    static ct_named_tensor t[STATE_MAX];
    char got[2048] = "";
    int n;

    cr_assert_not_null(m);
    n = ct_module_state(m, t, STATE_MAX);
    cr_assert_leq(n, STATE_MAX);
    cr_expect_eq(n, ct_module_state(m, NULL, 0));
    for (int i = 0; i < n; i++) {
        strcat(got, i ? " " : "");
        strcat(got, t[i].is_buffer ? "[" : "");
        strcat(got, t[i].name);
        strcat(got, t[i].is_buffer ? "]" : "");
    }
    cr_expect_str_eq(got, want, "got  \"%s\"\nwant \"%s\"", got, want);
}

/* One parameter p = 1 and its optimizer. */
typedef struct one {
    ct_ctx *ctx;
    ct_named_tensor p;
    ct_optim *o;
} one;

static inline ct_named_tensor named(const char *name, ct_tensor *t, bool is_buffer)
{
    ct_named_tensor n = {.tensor = t, .is_buffer = is_buffer};

    strcpy(n.name, name);
    return n;
}

static inline one open_one(void)
{
    one f = {.ctx = open_ctx(CT_F64)};

    f.p = named("w", ts_param(f.ctx, ts_vec(f.ctx, CT_F64, 1, (double[]){1})), false);
    return f;
}

static inline void close_one(one *f)
{
    ct_optim_free(f->o);
    ct_tensor_release(f->p.tensor);
    close_ctx(f->ctx);
}

static inline void set_grad(ct_ctx *ctx, ct_tensor *p, double g)
{
    ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    ct_tensor *t = ct_affine(ct_detach(p), 0, g);
    cr_assert_eq(ct_tensor_set_grad(ctx, p, t), CT_OK, "%s", ct_error_get(ctx)->text);
    ct_scope_end(ctx);
}

#endif
