/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <stdio.h>

ct_ctx *ctx;

static ct_tensor *owned[256];
static int n_owned;
static ts_golden *golden;

static void open_as(ct_dtype dtype)
{
    ctx = ts_ctx(dtype, true);
    n_owned = 0;
    golden = ts_golden_must_open("autograd.safetensors");
}

void engine_open(void)
{
    open_as(CT_F64);
}

void engine_open_f32(void)
{
    open_as(CT_F32);
}

void engine_close(void)
{
    ts_at_end(ct_error_code(ctx) == CT_OK, "pending: %s", ct_error_get(ctx)->text);
    for (int i = 0; i < n_owned; i++)
        ct_tensor_release(owned[i]);
    ct_ctx_free(ctx);
    ts_golden_close(golden);
    ctx = NULL;
}

void expect_values(const char *what, ct_tensor *t, int64_t n, const double *v)
{
    const ts_tol tol = {1e-12, 1e-14};
    char key[256], msg[256];
    const struct criterion_test *test = criterion_current_test;
    ts_expect_values(what, ctx, t, n, v, tol);
    snprintf(key, sizeof(key), "%s.%s/%s", test->category, test->name, what);
    const ts_array *torch = ts_golden_get(golden, "%s", key);
    if (torch)
        cr_expect(ts_close_values(torch, n, v, tol, msg, sizeof(msg)), "PyTorch, %s: %s", key, msg);
}

static ct_tensor *own(ct_tensor *t)
{
    cr_assert(t != NULL, "no leaf: %s", ct_error_get(ctx)->text);
    cr_assert(n_owned < TS_LEN(owned), "more leaves than engine.c has room for");
    owned[n_owned++] = t;
    return t;
}

ct_tensor *leaf(int64_t n, const double *v)
{
    return own(ts_vec(ctx, ct_ctx_dtype(ctx), n, v));
}

ct_tensor *leaf_matrix(int64_t rows, int64_t cols, const double *v)
{
    return own(ts_mat(ctx, ct_ctx_dtype(ctx), rows, cols, v));
}

ct_tensor *wanting(int64_t n, const double *v)
{
    return ts_param(ctx, leaf(n, v));
}

ct_tensor *total(ct_tensor *t)
{
    return ct_sum(t, NULL, 0, false);
}
