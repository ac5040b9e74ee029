/* SPDX-License-Identifier: Apache-2.0 */
#include "semantics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

ct_ctx *sem_ctx;
ts_golden *sem_golden;

static ct_tensor *owned[256];
static int n_owned;

void sem_open(void)
{
    sem_ctx = ts_ctx(CT_F64, true);
    sem_golden = ts_golden_must_open("behaviours.safetensors");
    n_owned = 0;
}

void sem_close(void)
{
    ts_at_end(ct_error_code(sem_ctx) == CT_OK, "pending: %s", ct_error_get(sem_ctx)->text);
    for (int i = 0; i < n_owned; i++)
        ct_tensor_release(owned[i]);
    ts_golden_close(sem_golden);
    ct_ctx_free(sem_ctx);
}

static ct_tensor *own(ct_tensor *t)
{
    cr_assert(t != NULL, "no leaf: %s", ct_error_get(sem_ctx)->text);
    cr_assert(n_owned < TS_LEN(owned), "more leaves than semantics_base.c has room for");
    return owned[n_owned++] = t;
}

ct_tensor *sem_leaf(const char *name, ...)
{
    char full[128];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof(full), name, args);
    va_end(args);
    const ts_array *a = ts_golden_must_get(sem_golden, "%s", full);
    cr_assert(a->v != NULL, "no golden value %s", full);
    return own(ts_tensor(sem_ctx, a->dtype, a));
}

ct_tensor *sem_x(const char *name)
{
    return ts_param(sem_ctx, sem_leaf("%s/x", name));
}

void sem_expect(const char *name, ct_tensor *x, ct_tensor *y, ct_tensor *dy)
{
    char what[128];
    ts_tol tol = {1e-12, 1e-14};
    cr_expect(y != NULL, "%s: %s", name, ct_error_get(sem_ctx)->text);
    if (!y) {
        ct_error_clear(sem_ctx);
        return;
    }
    ts_array got = ts_values(sem_ctx, y);
    snprintf(what, sizeof(what), "%s: value", name);
    ts_expect_close(what, &got, ts_golden_must_get(sem_golden, "%s/y", name), tol);
    const ts_array *want = ts_golden_get(sem_golden, "%s/dx", name);
    if (want) {
        if (!dy) {
            for (int64_t i = 0; i < got.n; i++)
                got.v[i] = 1;
            dy = own(ts_tensor(sem_ctx, CT_F64, &got));
        }
        ct_zero_grad(x);
        int rc = ct_backward(sem_ctx, y, dy, CT_BACKWARD_DEFAULT);
        cr_expect(!rc, "%s: backward: %s", name, ct_error_get(sem_ctx)->text);
        ts_array dx = ts_values(sem_ctx, ct_tensor_grad(x));
        snprintf(what, sizeof(what), "%s: gradient", name);
        ts_expect_close(what, &dx, want, tol);
        ts_array_free(&dx);
    }
    ts_array_free(&got);
    ct_error_clear(sem_ctx);
}

ct_tensor *sem_counting(int64_t n)
{
    ts_array a = ts_array_new(CT_F64, 1, &n);
    for (int64_t i = 0; i < n; i++)
        a.v[i] = (double)(i + 1);
    ct_tensor *t = own(ts_tensor(sem_ctx, CT_F64, &a));
    ts_array_free(&a);
    return t;
}

ct_tensor *sem_cosines(const ct_tensor *x)
{
    ts_array a = ts_array_new(CT_F64, ct_tensor_ndim(x), ct_tensor_shape(x));
    for (int64_t i = 0; i < a.n; i++)
        a.v[i] = cos((double)i);
    ct_tensor *t = own(ts_tensor(sem_ctx, CT_F64, &a));
    ts_array_free(&a);
    return t;
}
