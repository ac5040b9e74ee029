/* SPDX-License-Identifier: Apache-2.0 */
/* One run of one case: leaves in a layout, the call, backward, what came out. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const h_layout_names[H_LAYOUTS] = {"plain", "reversed strides", "narrowed",
                                               "channels-last"};

bool h_differentiable(const ct_op *op)
{
    return op->backward || op->vjp || !op->infer;
}

bool h_is_float(const ct_case_in *in)
{
    return in->kind != CT_IN_NONE && in->kind != CT_IN_CLASS && in->kind != CT_IN_BOOL &&
           in->kind != CT_IN_I64;
}

unsigned h_wants(const ct_op *op, const ct_case *c)
{
    unsigned wants = 0;
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        if (h_differentiable(op) && h_is_float(&c->in[i]) && !c->in[i].no_grad)
            wants |= 1u << i;
    return wants;
}

ts_tol h_tol_f32(const ct_case *c)
{
    return c->tol_f32 > 0 ? (ts_tol){c->tol_f32, c->tol_f32 / 10} : TS_F32;
}

ts_tol h_tol_main(const harness *h)
{
    return h->main_dtype == CT_F64 ? TS_F64 : h_tol_f32(h->c);
}

h_data h_data_random(const harness *h, const ct_case *c)
{
    h_data d = {0};
    uint64_t seed = ts_hash(c->name, ts_hash(h->op->name, 1));
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        d.in[i] = ts_random(&c->in[i], &seed);
    return d;
}

void h_data_free(h_data *d)
{
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        ts_array_free(&d->in[i]);
    ts_array_free(&d->dy);
}

/* ---- layouts: a leaf is a base array; the argument is a window on it ---- */

static bool is_float(const ts_array *a)
{
    return ct_dtype_is_float(a->dtype);
}

/* reversed: [d..b,a,2], narrowed: first dimension 1 longer, last one 3. */
static ts_array base_shape(const ts_array *a, h_layout layout)
{
    int64_t shape[CT_MAX_DIMS];
    int ndim = a->ndim;
    memcpy(shape, a->shape, sizeof(shape));
    if (layout == H_REVERSED && ndim < CT_MAX_DIMS) {
        for (int d = 0; d < ndim; d++)
            shape[d] = a->shape[ndim - 1 - d];
        shape[ndim++] = 2;
    } else if (layout == H_NARROWED && ndim > 0) {
        if (ndim > 1)
            shape[0] += 1;
        shape[ndim - 1] += 3;
    }
    return ts_array_new(a->dtype, ndim, shape);
}

static int64_t base_index(const ts_array *a, const ts_array *base, h_layout layout, int64_t flat)
{
    int64_t at[CT_MAX_DIMS] = {0}, in_base[CT_MAX_DIMS] = {0}, k = 0;
    for (int d = a->ndim - 1; d >= 0; d--) {
        at[d] = flat % a->shape[d];
        flat /= a->shape[d];
    }
    for (int d = 0; d < a->ndim; d++)
        in_base[d] = layout == H_REVERSED ? at[a->ndim - 1 - d] : at[d];
    if (layout == H_REVERSED)
        in_base[a->ndim] = 1;
    if (layout == H_NARROWED && a->ndim > 0) {
        if (a->ndim > 1)
            in_base[0] += 1;
        in_base[a->ndim - 1] += 2;
    }
    for (int d = 0; d < base->ndim; d++)
        k = k * base->shape[d] + in_base[d];
    return k;
}

static bool windowed(h_layout layout)
{
    return layout == H_REVERSED || layout == H_NARROWED;
}

static ct_tensor *window(ct_tensor *leaf, const ts_array *a, h_layout layout)
{
    ct_tensor *t = leaf;
    if (layout == H_REVERSED) {
        int dims[CT_MAX_DIMS];
        for (int d = 0; d < a->ndim; d++)
            dims[d] = a->ndim - 1 - d;
        t = ct_squeeze(ct_narrow(t, -1, 1, 1), -1);
        return a->ndim > 1 ? ct_permute(t, a->ndim, dims) : t;
    }
    if (layout == H_NARROWED && a->ndim > 0) {
        if (a->ndim > 1)
            t = ct_narrow(t, 0, 1, a->shape[0]);
        return ct_narrow(t, -1, 2, a->shape[a->ndim - 1]);
    }
    if (layout == H_CHANNELS_LAST && a->ndim == 4)
        return ct_channels_last(t);
    return t;
}

/* One leaf and its argument. What lies outside the window is NaN: whoever reads it shows. */
static bool make_leaf(ct_ctx *ctx, const ts_array *a, ct_dtype dtype, h_layout layout, bool wanted,
                      ct_tensor **leaf, ct_tensor **arg)
{
    ct_dtype as = is_float(a) ? dtype : a->dtype;
    if (windowed(layout)) {
        ts_array base = base_shape(a, layout);
        for (int64_t i = 0; is_float(a) && i < base.n; i++)
            base.v[i] = NAN;
        for (int64_t i = 0; i < a->n; i++)
            base.v[base_index(a, &base, layout, i)] = a->v[i];
        *leaf = ts_tensor(ctx, as, &base);
        ts_array_free(&base);
    } else {
        *leaf = ts_tensor(ctx, as, a);
    }
    if (!*leaf || (wanted && ct_tensor_set_requires_grad(ctx, *leaf, true)))
        return false;
    *arg = window(*leaf, a, layout);
    return *arg != NULL;
}

bool h_leaves_make(ct_ctx *ctx, const h_data *d, ct_dtype dtype, h_layout layout, unsigned wants,
                   h_leaves *out)
{
    memset(out, 0, sizeof(*out));
    out->layout = layout;
    out->wants = wants;
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        if (!d->in[i].v)
            continue;
        if (!make_leaf(ctx, &d->in[i], dtype, layout, wants >> i & 1, &out->leaf[i], &out->arg[i]))
            return false;
    }
    return true;
}

void h_leaves_free(h_leaves *l)
{
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        ct_tensor_release(l->leaf[i]);
    memset(l, 0, sizeof(*l));
}

ts_array h_leaf_grad(ct_ctx *ctx, const h_leaves *l, const h_data *d, int i, bool *stray)
{
    ts_array g = ts_values(ctx, ct_tensor_grad(l->leaf[i]));
    if (!g.v || !windowed(l->layout))
        return g;
    const ts_array *a = &d->in[i];
    ts_array out = ts_array_new(g.dtype, a->ndim, a->shape);
    for (int64_t k = 0; k < a->n; k++) {
        int64_t at = base_index(a, &g, l->layout, k);
        out.v[k] = g.v[at];
        g.v[at] = 0;
    }
    for (int64_t k = 0; k < g.n; k++)
        if (!(g.v[k] == 0))
            *stray = true;
    ts_array_free(&g);
    return out;
}

ct_tensor *h_call(const harness *h, ct_ctx *ctx, ct_tensor *const *in)
{
    ct_ctx_set_position(ctx, 3, 1);
    return h->op->call(in, h->c);
}

int h_backward(const harness *h, ct_ctx *ctx, ct_tensor *y, h_data *d, unsigned flags)
{
    if (!d->dy.v && y) {
        uint64_t seed = ts_hash(h->c->name, ts_hash(h->op->name, 2));
        d->dy = ts_random_normal(CT_F64, ct_tensor_ndim(y), ct_tensor_shape(y), &seed);
    }
    /* An op may hand x itself through (contiguous of a contiguous leaf). */
    if (y && ct_tensor_is_leaf(y))
        y = ct_clone(y);
    ct_tensor *dy = y ? ts_tensor(ctx, ct_tensor_dtype(y), &d->dy) : NULL;
    int rc = dy ? ct_backward(ctx, y, dy, flags) : ct_error_code(ctx);
    ct_tensor_release(dy);
    return rc;
}

static bool collect(const harness *h, ct_ctx *ctx, h_data *d, h_leaves *l, h_result *r)
{
    r->code = CT_OK;
    ct_tensor *y = h_call(h, ctx, l->arg);
    if (!y)
        return false;
    r->requires_grad = ct_tensor_requires_grad(y);
    r->is_leaf = ct_tensor_is_leaf(y);
    const char *name = ct_tensor_grad_fn(y) ? ct_grad_fn_name(ct_tensor_grad_fn(y)) : "";
    snprintf(r->grad_fn, sizeof(r->grad_fn), "%s", name);
    r->y = ts_values(ctx, y);
    if (!r->y.v)
        return false;
    for (int i = 0; i < CT_CASE_MAX_IN; i++)
        r->after[i] = ts_values(ctx, l->arg[i]);
    if (!l->wants)
        return true;
    if (!r->requires_grad) {
        snprintf(r->msg, sizeof(r->msg), "the output doesn't require grad");
        return false;
    }
    if (h_backward(h, ctx, y, d, CT_BACKWARD_DEFAULT))
        return false;
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        if (!(l->wants >> i & 1))
            continue;
        r->dx[i] = h_leaf_grad(ctx, l, d, i, &r->stray);
        if (!r->dx[i].v) {
            snprintf(r->msg, sizeof(r->msg), "no gradient came to input %d", i);
            return false;
        }
    }
    return true;
}

bool h_run(const harness *h, ct_ctx *ctx, h_data *d, ct_dtype dtype, h_layout layout,
           unsigned wants, h_result *out)
{
    memset(out, 0, sizeof(*out));
    h_leaves l = {0};
    bool ok = !ct_scope_begin(ctx, wants ? CT_SCOPE_PLAIN : CT_SCOPE_NO_GRAD) &&
              h_leaves_make(ctx, d, dtype, layout, wants, &l) && collect(h, ctx, d, &l, out);
    out->code = ct_error_code(ctx);
    if (!ok && !out->msg[0])
        snprintf(out->msg, sizeof(out->msg), "%s: %.440s", ct_status_name(out->code),
                 ct_error_get(ctx)->text);
    ct_error_clear(ctx);
    if (ct_scope_end(ctx)) {
        snprintf(out->msg, sizeof(out->msg), "the scope's end: %.400s", ct_error_get(ctx)->text);
        out->code = ct_error_code(ctx);
        ct_error_clear(ctx);
        ok = false;
    }
    h_leaves_free(&l);
    return ok;
}

void h_result_free(h_result *r)
{
    ts_array_free(&r->y);
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        ts_array_free(&r->dx[i]);
        ts_array_free(&r->after[i]);
    }
}

bool h_expect_same(harness *h, const char *what, const h_result *got, const h_result *want,
                   ts_tol tol)
{
    char label[160];
    snprintf(label, sizeof(label), "%s: output", what);
    ts_tol exact = got->y.v && !is_float(&got->y) ? TS_EXACT : tol;
    bool ok = h_expect_close(h, label, &got->y, &want->y, exact);
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        if (want->dx[i].v) {
            snprintf(label, sizeof(label), "%s: gradient of input %d", what, i);
            ok = h_expect_close(h, label, &got->dx[i], &want->dx[i], tol) && ok;
        }
        if (want->after[i].v && h->c->in[i].no_grad) {
            snprintf(label, sizeof(label), "%s: input %d afterwards", what, i);
            ok = h_expect_close(h, label, &got->after[i], &want->after[i], tol) && ok;
        }
    }
    return ok;
}
