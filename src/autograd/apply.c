/* SPDX-License-Identifier: Apache-2.0 */
/* Running an op forward: check, infer, run, record. */
#include "autograd/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors of ops ---- */

static int vfail(ct_ctx *ctx, const ct_op *op, int code, const char *fmt, va_list args)
{
    if (!ctx->err.code && cti_vfail(&ctx->err, code, op->name, fmt, args) < 0)
        cti_error_prefix(&ctx->err, "%s", op->name);
    return ctx->err.code;
}

int cti_op_fail(cti_node *n, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int r = vfail(n->ctx, n->op, code, fmt, args);
    va_end(args);
    return r;
}

ct_tensor *cti_raise(ct_ctx *ctx, const ct_op *op, int code, const char *fmt, ...)
{
    va_list args;
    if (!ctx)
        return NULL;
    va_start(args, fmt);
    vfail(ctx, op, code, fmt, args);
    va_end(args);
    return NULL;
}

int cti_kernel_status(cti_node *n, const char *what, int status)
{
    ct_ctx *ctx = n->ctx;
    if (status >= 0)
        return ctx->err.code;
    if (!ctx->err.code) {
        const char *dtype = n->n_in ? ct_dtype_name(n->in_view[0].dtype) : "?";
        cti_op_fail(n, status, "%s failed for %s on %s (%s)", what, dtype, ctx->device.be->name,
                    ct_status_name(status));
    }
    return ctx->err.code;
}

ct_ctx *cti_ctx_of(int n, ct_tensor *const *in)
{
    for (int i = 0; i < n; i++) {
        if (in[i])
            return in[i]->ctx;
    }
    return NULL;
}

/* ---- what infer and forward see ---- */

int cti_n_in(const cti_node *n)
{
    return n->n_in;
}

const void *cti_attr(const cti_node *n)
{
    return n->attr;
}

void *cti_attr_mut(cti_node *n)
{
    return n->attr;
}

const ct_backend *cti_be(const cti_node *n)
{
    return n->ctx->device.be;
}

ct_stream *cti_stream(const cti_node *n)
{
    return n->ctx->device.stream;
}

ct_ctx *cti_node_ctx(const cti_node *n)
{
    return n->ctx;
}

bool cti_recording(const cti_node *n)
{
    return n->recording;
}

const ct_view *cti_x(const cti_node *n, int i)
{
    return n->x[i] ? &n->in_view[i] : NULL;
}

const ct_view *cti_y(const cti_node *n, int i)
{
    return &n->out_view[i];
}

bool cti_wants(const cti_node *n, int i)
{
    return n->recording && (n->x ? n->x[i] && n->x[i]->requires_grad : cti_edge_wanted(n, i));
}

const ct_view *cti_in_meta(const cti_node *n, int i)
{
    return &n->in_view[i];
}

void cti_mark_changed(cti_node *n, int i)
{
    if (n->x[i])
        cti_storage_changed(n->x[i]->storage);
}

/* The memory of input 0 as output, if what is declared is like it. */
static ct_tensor *over_input(cti_node *n, ct_dtype dtype, int ndim, const int64_t *shape)
{
    const ct_view *x = &n->in_view[0];
    ct_view want = {.dtype = dtype, .ndim = ndim};
    char a[160], b[128];
    memcpy(want.shape, shape, (size_t)ndim * sizeof *shape);
    if (x->dtype == dtype && cti_same_shape(x, &want)) {
        cti_storage_changed(n->x[0]->storage);
        return cti_tensor_view_of(n->ctx, n->x[0]->storage, x);
    }
    cti_op_fail(n, CT_ESHAPE,
                "the result, %s %s, doesn't fit into %s, which is to be changed in place",
                ct_dtype_name(dtype), cti_shape_str(&want, b, sizeof b),
                ct_tensor_describe(n->x[0], a, sizeof a));
    return NULL;
}

/* Row-major where stride is NULL. */
static ct_tensor *output(cti_node *n, int o, ct_dtype dtype, int ndim, const int64_t *shape,
                         const int64_t *stride)
{
    return n->inplace && o == 0 ? over_input(n, dtype, ndim, shape) :
                                  cti_tensor_alloc(n->ctx, dtype, ndim, shape, stride);
}

static int declare(cti_node *n, int o, ct_tensor *t)
{
    n->y[o] = t;
    if (!t)
        return n->ctx->err.code;
    n->out_view[o] = t->view;
    return CT_OK;
}

int cti_out(cti_node *n, int o, ct_dtype dtype, int ndim, const int64_t *shape)
{
    return declare(n, o, output(n, o, dtype, ndim, shape, NULL));
}

int cti_out_shaped_like(cti_node *n, int o, ct_dtype dtype, const ct_view *like)
{
    int64_t stride[CT_MAX_DIMS];
    cti_dense_order(like, stride);
    return declare(n, o, output(n, o, dtype, like->ndim, like->shape, stride));
}

int cti_out_like(cti_node *n, int o, int i)
{
    return cti_out_shaped_like(n, o, n->in_view[i].dtype, &n->in_view[i]);
}

int cti_out_channels_last(cti_node *n, int o, ct_dtype dtype, const int64_t *shape)
{
    int64_t c = shape[1] > 1 ? shape[1] : 1, w = shape[3] > 1 ? shape[3] : 1,
            h = shape[2] > 1 ? shape[2] : 1;
    int64_t stride[4] = {h * w * c, 1, w * c, c};
    return declare(n, o, output(n, o, dtype, 4, shape, stride));
}

int cti_out_view(cti_node *n, int o, int i, int ndim, const int64_t *shape, const int64_t *stride,
                 int64_t offset)
{
    ct_view v = {.dtype = n->in_view[i].dtype, .ndim = ndim};
    v.data = (char *)n->in_view[i].data + offset * (int64_t)ct_dtype_bytes(v.dtype);
    memcpy(v.shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(v.stride, stride, (size_t)ndim * sizeof *stride);
    ct_tensor *x = n->x[i], *y = cti_tensor_view_of(n->ctx, x->storage, &v);
    if (y && n->ctx->grad_mode && !x->untracked) {
        y->base = ct_tensor_retain(x->base ? x->base : x);
        y->base_changes = y->base->changes;
    } else if (y) {
        y->untracked = true;
    }
    return declare(n, o, y);
}

/* ---- shared checks ---- */

bool cti_is_compute_dtype(const cti_node *n, ct_dtype dtype)
{
    return n->ctx->device.be->float_dtypes >> dtype & 1u;
}

ct_dtype cti_stat_dtype(ct_dtype dtype)
{
    return dtype == CT_BF16 || dtype == CT_F16 ? CT_F32 : dtype;
}

int cti_check_float(cti_node *n, int i)
{
    ct_dtype d = n->in_view[i].dtype;
    if (cti_is_compute_dtype(n, d))
        return CT_OK;
    return cti_op_fail(n, CT_EDTYPE, "input %d is %s; %s is needed (ct_cast)", i, ct_dtype_name(d),
                       n->ctx->device.be->host_memory ? "float32 or float64" :
                                                        "float32, bfloat16 or float16");
}

int cti_check_same_dtype(cti_node *n)
{
    int first = -1;
    for (int i = 0; i < n->n_in; i++) {
        if (!n->x[i])
            continue;
        if (first < 0)
            first = i;
        else if (n->in_view[i].dtype != n->in_view[first].dtype)
            return cti_op_fail(
                n, CT_EDTYPE, "dtypes differ: input %d is %s, input %d is %s (ct_cast)", first,
                ct_dtype_name(n->in_view[first].dtype), i, ct_dtype_name(n->in_view[i].dtype));
    }
    return CT_OK;
}

int cti_broadcast(cti_node *n, int a, int b, int *ndim, int64_t *shape)
{
    const ct_view *va = &n->in_view[a], *vb = &n->in_view[b];
    char sa[128], sb[128];
    *ndim = va->ndim > vb->ndim ? va->ndim : vb->ndim;
    for (int i = 0; i < *ndim; i++) {
        int ia = i - (*ndim - va->ndim), ib = i - (*ndim - vb->ndim);
        int64_t da = ia < 0 ? 1 : va->shape[ia], db = ib < 0 ? 1 : vb->shape[ib];
        if (da != db && da != 1 && db != 1)
            return cti_op_fail(
                n, CT_ESHAPE,
                "shapes %s and %s don't broadcast: dimension %d has %" PRId64 " and %" PRId64,
                cti_shape_str(va, sa, sizeof sa), cti_shape_str(vb, sb, sizeof sb), i, da, db);
        shape[i] = da == 1 ? db : da;
    }
    return CT_OK;
}

int cti_check_dim(cti_node *n, int i, int *dim)
{
    int nd = n->in_view[i].ndim, span = nd > 0 ? nd : 1;
    char s[128];
    if (*dim < -span || *dim >= span)
        return cti_op_fail(n, CT_EINVAL, "dimension %d is out of range for %s; allowed: %d to %d",
                           *dim, cti_shape_str(&n->in_view[i], s, sizeof s), -span, span - 1);
    if (*dim < 0)
        *dim += span;
    return CT_OK;
}

/* ---- apply ---- */

static int check_inputs(ct_ctx *ctx, const ct_op *op, int n_in, ct_tensor *const *in)
{
    if (ctx->err.code)
        return ctx->err.code;
    for (int i = 0; i < n_in; i++) {
        if (!in[i] && (i >= 32 || !(op->optional >> i & 1u))) {
            cti_raise(ctx, op, CT_EINVAL, "input %d is NULL", i);
            return ctx->err.code;
        }
        if (in[i] && in[i]->ctx != ctx) {
            cti_raise(ctx, op, CT_EINVAL, "input %d is of another context", i);
            return ctx->err.code;
        }
        if (in[i] && in[i]->base && ctx->grad_mode && cti_tensor_sync(in[i]) < 0)
            return ctx->err.code;
    }
    return CT_OK;
}

static bool will_record(ct_ctx *ctx, const ct_op *op, int n_in, ct_tensor *const *in)
{
    bool wanted = false;
    if (!op->backward && !op->vjp)
        return false;
    for (int i = 0; i < n_in && !wanted; i++)
        wanted = in[i] && in[i]->requires_grad;
    ctx->saw_grad |= wanted;
    return wanted && ctx->grad_mode;
}

/* Makes the node a part of the tape: edges to where its inputs came from, outputs that know it. */
static int record(cti_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        ct_tensor *t = n->x[i];
        if (!t || !t->requires_grad)
            continue;
        if (t->grad_fn) {
            cti_node_retain(t->grad_fn);
            n->edge[i] = (cti_edge){t->grad_fn, t->output_nr};
        } else if (!(n->edge[i].fn = cti_accumulator_of(t->origin ? t->origin : t))) {
            return n->ctx->err.code;
        }
    }
    for (int o = 0; o < n->n_out; o++) {
        if (!ct_dtype_is_float(n->out_view[o].dtype))
            continue;
        cti_node_retain(n);
        n->y[o]->grad_fn = n;
        n->y[o]->output_nr = o;
        n->y[o]->requires_grad = true;
    }
    cti_node_set_live(n);
    return CT_OK;
}

static int run(cti_node *n)
{
    ct_ctx *ctx = n->ctx;
    const ct_op *outer = ctx->running;
    ctx->running = n->op;
    for (int i = 0; ctx->capture && i < n->n_in; i++) {
        if (n->x[i])
            cti_capture_uses(ctx, n->x[i]->storage);
    }
    int r = n->op->infer(n);
    if (r >= 0 && n->op->forward)
        r = n->op->forward(n);
    r = cti_kernel_status(n, "forward", r);
    if (r >= 0 && ctx->anomaly)
        r = cti_anomaly_forward(n);
    if (r >= 0 && ctx->late_armed && ctx->device.be->host_memory)
        r = cti_late_look(ctx);
    ctx->running = outer;
    return r >= 0 && n->recording ? record(n) : r;
}

/* With the operands that autocast gives. */
static int run_cast(ct_ctx *ctx, const cti_apply_call *call, int n_out, ct_tensor **out)
{
    cti_apply_call cast = *call;
    cti_node_list list;
    ct_tensor **in = cti_list_begin(ctx, &list, call->n_in);
    if (!in)
        return ctx->err.code;
    int r = cti_autocast(call, in);
    ctx->autocast = false;
    cast.in = in;
    r = r < 0 ? r : cti_apply_run(&cast, n_out, out);
    ctx->autocast = true;
    for (int i = 0; i < call->n_in; i++) {
        if (!in[i] || in[i] == call->in[i] || in[i]->origin)
            continue;
        cti_scope_leave(in[i]);
        ct_tensor_release(in[i]);
    }
    cti_list_end(&list);
    return r;
}

int cti_apply_run(const cti_apply_call *call, int n_out, ct_tensor **out)
{
    ct_ctx *ctx = cti_ctx_of(call->n_in, call->in);
    for (int o = 0; o < n_out; o++)
        out[o] = NULL;
    if (!ctx)
        return CT_EINVAL;
    if (check_inputs(ctx, call->op, call->n_in, call->in) < 0)
        return ctx->err.code;
    cti_enter(ctx);
    if (ctx->autocast && cti_autocast_changes(call))
        return run_cast(ctx, call, n_out, out);
    cti_node *n = cti_node_new(ctx, call->op, call->n_in, n_out);
    if (!n)
        return ctx->err.code;
    n->x = call->in;
    n->inplace = call->inplace;
    n->recording = call->always_record || will_record(ctx, call->op, call->n_in, call->in);
    if (call->attr_bytes)
        memcpy(n->attr, call->attr, call->attr_bytes);
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i])
            n->in_view[i] = call->in[i]->view;
        else
            memset(&n->in_view[i], 0, sizeof n->in_view[i]);
    }
    int r = run(n);
    n->x = NULL;
    cti_node_drop_temps(n);
    for (int o = 0; o < n_out; o++) {
        ct_tensor *y = n->y[o];
        n->y[o] = NULL;
        if (r < 0) {
            ct_tensor_release(y);
        } else {
            cti_scope_adopt(ctx, y);
            out[o] = y;
        }
    }
    cti_node_release(n);
    return r;
}

int cti_apply_multi(const ct_op *op, const void *attr, size_t attr_bytes, int n_in,
                    ct_tensor *const *in, int n_out, ct_tensor **out)
{
    return cti_apply_run(&(cti_apply_call){op, attr, attr_bytes, n_in, in, .inplace = false}, n_out,
                         out);
}

ct_tensor *cti_apply(const ct_op *op, const void *attr, size_t attr_bytes, int n_in,
                     ct_tensor *const *in)
{
    ct_tensor *y;
    cti_apply_multi(op, attr, attr_bytes, n_in, in, 1, &y);
    return y;
}
