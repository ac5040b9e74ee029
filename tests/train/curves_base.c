/* SPDX-License-Identifier: Apache-2.0 */
#include "curves_base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void load_weights(curve *c)
{
    c->n_state = ct_module_state(c->net, c->state, CURVE_MAX_STATE);
    cr_assert(c->n_state > 0 && c->n_state <= CURVE_MAX_STATE, "%d tensors in the net", c->n_state);
    CURVE_OK(c, ct_scope_begin(c->ctx, CT_SCOPE_NO_GRAD));
    for (int i = 0; i < c->n_state; i++) {
        const ts_array *w = ts_golden_must_get(c->golden, "%s/0/%s", c->name, c->state[i].name);
        ct_tensor *from = ts_tensor(c->ctx, w->dtype, w);
        CURVE_OK(c, ct_tensor_copy(c->ctx, c->state[i].tensor, from));
        ct_tensor_release(from);
    }
    CURVE_OK(c, ct_scope_end(c->ctx));
    int in_file = 0;
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "%s/0/", c->name);
    for (int i = 0; i < ts_golden_count(c->golden); i++)
        in_file += !strncmp(ts_golden_name(c->golden, i), prefix, strlen(prefix));
    cr_expect_eq(c->n_state, in_file, "PyTorch's net has %d tensors, ours %d", in_file, c->n_state);
}

void curve_open(curve *c, const char *name, ct_dtype dtype, ct_module *(*build)(ct_ctx *))
{
    memset(c, 0, sizeof(*c));
    c->ctx = ts_ctx(dtype, false);
    c->dtype = dtype;
    c->name = name;
    c->golden = ts_golden_must_open("curves.safetensors");
    c->net = build(c->ctx);
    cr_assert(c->net != NULL, "no net: %s", ct_error_get(c->ctx)->text);
    load_weights(c);
}

void curve_close(curve *c)
{
    ct_module_free(c->net);
    ts_golden_close(c->golden);
    cr_expect_eq(ct_ctx_counters(c->ctx).live_nodes, 0);
    ct_ctx_free(c->ctx);
}

ct_tensor *curve_images(curve *c, int64_t first, int64_t n)
{
    const ts_array *x = ts_golden_must_get(c->golden, "%s/x", c->name);
    ts_array part = ts_array_new(c->dtype, 4, (int64_t[]){n, 1, 8, 8});
    for (int64_t i = 0; i < part.n; i++)
        part.v[i] = x->v[first * 64 + i] / 16;
    ct_tensor *t = ts_tensor(c->ctx, c->dtype, &part);
    ts_array_free(&part);
    cr_assert(t != NULL, "%s", ct_error_get(c->ctx)->text);
    return t;
}

ct_tensor *curve_labels(curve *c, int64_t first, int64_t n)
{
    const ts_array *y = ts_golden_must_get(c->golden, "%s/y", c->name);
    ct_tensor *t = ts_vec(c->ctx, CT_I64, n, y->v + first);
    cr_assert(t != NULL, "%s", ct_error_get(c->ctx)->text);
    return t;
}

void curve_expect_state(curve *c, int step, ts_tol tol)
{
    for (int i = 0; i < c->n_state; i++) {
        const ts_array *want =
            ts_golden_get(c->golden, "%s/%d/%s", c->name, step, c->state[i].name);
        if (!want)
            continue;
        char what[256];
        snprintf(what, sizeof(what), "%s, %s after step %d", c->name, c->state[i].name, step);
        ts_array got = ts_values(c->ctx, c->state[i].tensor);
        ts_expect_close(what, &got, want, tol);
        ts_array_free(&got);
    }
}

void curve_expect_series(curve *c, const char *what, const double *got, ts_tol tol)
{
    const ts_array *want = ts_golden_must_get(c->golden, "%s/%s", c->name, what);
    ts_array a = ts_array_new(CT_F64, 1, (int64_t[]){CURVE_STEPS});
    memcpy(a.v, got, CURVE_STEPS * sizeof(double));
    ts_expect_close(what, &a, want, tol);
    ts_array_free(&a);
}
