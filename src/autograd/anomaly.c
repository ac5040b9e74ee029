/* SPDX-License-Identifier: Apache-2.0 */
/* Anomaly detection: who was first to make a NaN or an Inf. After each op its results are looked at; one that is
 * worse than all operands (finite, Inf, NaN, in this order) names the op. So what only hands a NaN on, and masks
 * of -inf that somebody gave, are no findings. */
#include "autograd/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum level { FINITE, HAS_INF, HAS_NAN } level;

/* ---- labels: where the computation is ---- */

void ct_label_begin(ct_ctx *ctx, const char *name)
{
    if (!ctx || !name)
        return;
    size_t n = strlen(ctx->label);
    if (ctx->n_labels < CTI_MAX_LABELS)
        ctx->label_end[ctx->n_labels] = (unsigned short)n;
    ctx->n_labels++;
    snprintf(ctx->label + n, sizeof ctx->label - n, "%s%s", n ? "." : "", name);
}

void ct_label_end(ct_ctx *ctx)
{
    if (ctx && ctx->n_labels > 0 && --ctx->n_labels < CTI_MAX_LABELS)
        ctx->label[ctx->label_end[ctx->n_labels]] = '\0';
}

bool ct_anomaly_enabled(const ct_ctx *ctx)
{
    return ctx && ctx->anomaly;
}

/* ---- looking ---- */

/* [min, max, sum] of v on the host; false when it can't be told. */
static bool reduce(ct_ctx *ctx, const ct_view *v, double out[3])
{
    static const ct_reduce ops[3] = {CT_RED_MIN, CT_RED_MAX, CT_RED_SUM};
    const ct_backend *be = ctx->device.be;
    ct_dtype dtype = v->dtype == CT_F64 && be->host_memory ? CT_F64 : CT_F32;
    int64_t flat = ct_view_numel(v);
    ct_tensor *x = cti_tensor_alloc(ctx, dtype, v->ndim, v->shape, NULL);
    ct_tensor *y = cti_tensor_alloc(ctx, dtype, 1, (int64_t[]){1}, NULL);
    bool ok = x && y && be->ew->copy(ctx->device.stream, &x->view, v) >= 0;
    for (int k = 0; k < 3 && ok; k++) {
        ct_view all = {
            .data = x->view.data, .dtype = dtype, .ndim = 1, .shape = {flat}, .stride = {1}};
        size_t bytes = be->reduce->workspace(ctx->device.stream, ops[k], &y->view, &all);
        cti_storage *ws = bytes ? cti_storage_new(ctx, bytes) : NULL;
        double d = 0;
        float f = 0;
        ok = (!bytes || ws) &&
             be->reduce->reduce(ctx->device.stream, ops[k], &y->view, 0, &all, 1,
                                ws ? ws->data : NULL) >= 0 &&
             be->mem->download(ctx->device.stream, dtype == CT_F64 ? (void *)&d : (void *)&f,
                               y->view.data, ct_dtype_bytes(dtype)) >= 0;
        out[k] = dtype == CT_F64 ? d : (double)f;
        cti_storage_release(ws);
    }
    ct_tensor_release(x);
    ct_tensor_release(y);
    return ok;
}

static level level_of(ct_ctx *ctx, const ct_view *v)
{
    double s[3];
    if (!v || !v->data || !ct_dtype_is_float(v->dtype) || ct_view_numel(v) == 0 ||
        !reduce(ctx, v, s))
        return FINITE;
    return isnan(s[0]) || isnan(s[1]) ? HAS_NAN : isinf(s[0]) || isinf(s[1]) ? HAS_INF : FINITE;
}

/* "float32 [3,5] from -1.2 to 3.4, mean 0.1" */
static void describe(ct_ctx *ctx, const ct_view *v, char *buf, size_t cap)
{
    char shape[128];
    double s[3];
    cti_shape_str(v, shape, sizeof shape);
    if (ct_dtype_is_float(v->dtype) && ct_view_numel(v) > 0 && reduce(ctx, v, s))
        snprintf(buf, cap, "%s %s from %g to %g, mean %g", ct_dtype_name(v->dtype), shape, s[0],
                 s[1], s[2] / (double)ct_view_numel(v));
    else
        snprintf(buf, cap, "%s %s", ct_dtype_name(v->dtype), shape);
}

/* ", in encoder.0" or nothing. */
static void where(const char *label, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s%s", label && *label ? ", in " : "", label ? label : "");
}

static void add_line(char *text, size_t cap, const char *what, int i, const char *described)
{
    size_t n = strlen(text);
    snprintf(text + n, cap - n, "\n  %s %d: %s", what, i, described);
}

static const char *name_of(level l)
{
    return l == HAS_NAN ? "NaN" : "Inf";
}

/* ---- forward ---- */

/* The label stays with the node, for its backward. */
static void keep_label(cti_node *n)
{
    if (n->recording && !n->label && n->ctx->label[0])
        n->label = cti_strdup(n->ctx->mem, n->ctx->label);
}

static int report_forward(cti_node *n, int o, level found)
{
    char text[1500] = "", one[256], at[300];
    ct_ctx *ctx = n->ctx;
    for (int i = 0; i < n->n_in; i++) {
        if (!n->x[i])
            continue;
        describe(ctx, &n->in_view[i], one, sizeof one);
        add_line(text, sizeof text, "input", i, one);
    }
    describe(ctx, &n->out_view[o], one, sizeof one);
    add_line(text, sizeof text, "output", o, one);
    where(ctx->label, at, sizeof at);
    return cti_op_fail(n, CT_ENONFINITE, "made the first %s%s; what it was given has none:%s",
                       name_of(found), at, text);
}

int cti_anomaly_forward(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    level worst = FINITE, given = FINITE;
    int at = 0;
    keep_label(n);
    int r = cti_capture_refuse(ctx, "anomaly detection is on");
    if (r < 0)
        return r;
    for (int o = 0; o < n->n_out; o++) {
        level l = level_of(ctx, &n->out_view[o]);
        if (l > worst) {
            worst = l;
            at = o;
        }
    }
    if (worst == FINITE || n->op->makes_inf)
        return ctx->err.code;
    for (int i = 0; i < n->n_in; i++) {
        level l = n->x[i] ? level_of(ctx, &n->in_view[i]) : FINITE;
        given = l > given ? l : given;
    }
    if (worst > given)
        return report_forward(n, at, worst);
    if (!ctx->passed_on[0]) {
        char w[300];
        where(ctx->label, w, sizeof w);
        snprintf(ctx->passed_on, sizeof ctx->passed_on, "%s%s", n->op->name, w);
    }
    return ctx->err.code;
}

/* ---- backward ---- */

int cti_anomaly_start(ct_ctx *ctx, const ct_tensor *output)
{
    level l = ctx->anomaly ? level_of(ctx, &output->view) : FINITE;
    if (l == FINITE)
        return ctx->err.code;
    return cti_fail(
        &ctx->err, CT_ENONFINITE,
        "backward: the output has %s, which no op made: it was in the data, in a parameter or in "
        "what was made before anomaly detection began%s%s",
        name_of(l), ctx->passed_on[0] ? "; first handed on by " : "", ctx->passed_on);
}

/* What came, before it is used up. */
int cti_anomaly_came(cti_node *n)
{
    level given = FINITE;
    for (int o = 0; o < n->n_out; o++) {
        level l = n->dy[o] ? level_of(n->ctx, &n->dy[o]->view) : FINITE;
        given = l > given ? l : given;
    }
    for (int s = 0; s < CTI_MAX_SLOTS; s++) {
        level l = n->saved[s].storage ? level_of(n->ctx, &n->saved[s].view) : FINITE;
        given = l > given ? l : given;
    }
    return (int)given;
}

int cti_anomaly_gave(cti_node *n, int i, const ct_tensor *g, int came)
{
    char text[1500] = "", one[256], at[300];
    ct_ctx *ctx = n->ctx;
    level l = level_of(ctx, &g->view);
    if (l == FINITE || (int)l <= came)
        return ctx->err.code;
    for (int o = 0; o < n->n_out; o++) {
        if (!n->dy[o])
            continue;
        describe(ctx, &n->dy[o]->view, one, sizeof one);
        add_line(text, sizeof text, "gradient of output", o, one);
    }
    for (int s = 0; s < CTI_MAX_SLOTS; s++) {
        if (!n->saved[s].storage)
            continue;
        describe(ctx, &n->saved[s].view, one, sizeof one);
        add_line(text, sizeof text,
                 n->saved[s].kind == 'x' ? "input" :
                 n->saved[s].kind == 'y' ? "output" :
                                           "saved",
                 n->saved[s].index, one);
    }
    describe(ctx, &g->view, one, sizeof one);
    add_line(text, sizeof text, "gradient of input", i, one);
    where(n->label, at, sizeof at);
    return cti_op_fail(n, CT_ENONFINITE,
                       "its backward (%s, forward call %" PRIu64
                       "%s) made the first %s; what it was given "
                       "has none:%s",
                       n->op->torch_name, n->seq, at, name_of(l), text);
}
