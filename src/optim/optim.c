/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: their state and the two-pass step; the update rules are the backend's (family optim).
 * All device memory is in tensors of the context, so nothing is lost when only the context is freed. A steady
 * step allocates nothing. */
#include "optim/optim.h"

#include "backend/device.h"
#include "base/ctxmem.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_SUFFIX ".momentum_buffer"

ct_step_opts ct_step_defaults(void)
{
    return (ct_step_opts){0};
}

const char *cti_optim_kind_name(ct_opt_kind kind)
{
    return kind == CT_OPT_SGD ? "sgd" : kind == CT_OPT_ADAM ? "adam" : "adamw";
}

int cti_optim_check_range(ct_ctx *ctx, ct_opt_kind kind, const char *name, double v, bool below_one)
{
    if (isfinite(v) && v >= 0 && (!below_one || v < 1))
        return CT_OK;
    return ct_error_raise(ctx, CT_EINVAL, cti_optim_kind_name(kind), "%s: %s is %g: must be %s",
                          cti_optim_kind_name(kind), name, v,
                          below_one ? "at least 0 and less than 1" : "a number of at least 0");
}

/* ---- making ---- */

static int check_param(ct_ctx *ctx, ct_opt_kind kind, const ct_named_tensor *e, ct_dtype *dtype)
{
    const char *who = cti_optim_kind_name(kind);
    const ct_tensor *t = e->tensor;

    if (!memchr(e->name, '\0', sizeof e->name) || !e->name[0] ||
        strlen(e->name) + sizeof LONGEST_SUFFIX > sizeof e->name)
        return ct_error_raise(ctx, CT_EINVAL, who, "%s: '%.40s' is no name of 1 to %d bytes", who,
                              e->name, (int)(sizeof e->name - sizeof LONGEST_SUFFIX));
    if (!t)
        return ct_error_raise(ctx, CT_EINVAL, who, "%s: %s is NULL", who, e->name);
    if (ct_tensor_ctx(t) != ctx)
        return ct_error_raise(ctx, CT_EINVAL, who, "%s: %s is of another context", who, e->name);
    if (!ct_tensor_is_contiguous(t))
        return ct_error_raise(ctx, CT_EINVAL, who, "%s: %s is not dense and row-major", who,
                              e->name);
    if (e->is_buffer)
        return CT_OK;
    if (!ct_tensor_is_leaf(t))
        return ct_error_raise(ctx, CT_EINVAL, who,
                              "%s: %s is no leaf: only what no op has made can be optimized", who,
                              e->name);
    if (*dtype == CT_DTYPE_COUNT)
        *dtype = ct_tensor_dtype(t);
    if (ct_tensor_dtype(t) != *dtype || (*dtype != CT_F32 && *dtype != CT_F64))
        return ct_error_raise(ctx, CT_EDTYPE, who,
                              "%s: %s is %s: parameters must all be float32 or all float64", who,
                              e->name, ct_dtype_name(ct_tensor_dtype(t)));
    return CT_OK;
}

/* Is the tensor of params[i] in the list before i? (Shared by two layers.) */
static bool again(const ct_named_tensor *params, int i)
{
    for (int k = 0; k < i; k++)
        if (params[k].tensor == params[i].tensor)
            return true;
    return false;
}

static ct_tensor *zeros_like(ct_ctx *ctx, const ct_tensor *t)
{
    return ct_tensor_new(ctx, ct_tensor_dtype(t), ct_tensor_ndim(t), ct_tensor_shape(t));
}

static int add_param(ct_optim *o, const ct_named_tensor *from)
{
    const int64_t one = 1;
    cti_optim_entry *e = &o->entries[o->n++];

    snprintf(e->name, sizeof e->name, "%s", from->name);
    e->p = ct_tensor_retain(from->tensor);
    if (o->kind != CT_OPT_SGD) {
        e->s0 = zeros_like(o->ctx, e->p);
        e->s1 = zeros_like(o->ctx, e->p);
    } else if (o->set.beta1 > 0) {
        e->s0 = zeros_like(o->ctx, e->p);
    }
    e->step = ct_tensor_new(o->ctx, CT_I64, 1, &one);
    return ct_error_code(o->ctx);
}

static int add_guard(ct_optim *o, const ct_named_tensor *from)
{
    cti_optim_guard *g = &o->guards[o->n_guards++];
    ct_opt_guard *k = &o->guard_list[o->n_guards - 1];

    g->t = ct_tensor_retain(from->tensor);
    g->backup = zeros_like(o->ctx, g->t);
    if (!g->backup)
        return ct_error_code(o->ctx);
    k->p = cti_tensor_ptr(g->t);
    k->backup = cti_tensor_ptr(g->backup);
    k->bytes = (size_t)ct_tensor_numel(g->t) * ct_dtype_bytes(ct_tensor_dtype(g->t));
    return ct_tensor_copy(o->ctx, g->backup, g->t);
}

static const ct_k_optim *kernels(const ct_optim *o)
{
    return cti_ctx_device(o->ctx)->be->optim;
}

/* A kernel's status: the text is the kernel's, or made here. */
int cti_optim_launched(ct_optim *o, int rc, const char *what)
{
    if (rc == CT_OK)
        return CT_OK;
    if (ct_error_code(o->ctx) != CT_OK)
        return ct_error_code(o->ctx);
    return ct_error_raise(o->ctx, rc, cti_optim_kind_name(o->kind),
                          "%s: %s of %s failed on device %s (%s)", cti_optim_kind_name(o->kind),
                          what, ct_dtype_name(o->dtype), cti_ctx_device(o->ctx)->be->name,
                          ct_status_name(rc));
}

static int fit_workspace(ct_optim *o, int n)
{
    size_t need = kernels(o)->workspace(cti_ctx_device(o->ctx)->stream, o->dtype, n, o->list);
    int64_t bytes = (int64_t)need;

    if (o->workspace && ct_tensor_numel(o->workspace) >= bytes)
        return CT_OK;
    ct_tensor_release(o->workspace);
    o->workspace = ct_tensor_new(o->ctx, CT_U8, 1, &bytes);
    return o->workspace ? CT_OK : ct_error_code(o->ctx);
}

/* All but the gradients of a parameter's row. */
static void fill_row(const ct_optim *o, const cti_optim_entry *e, ct_opt_param *row)
{
    *row = (ct_opt_param){
        .p = cti_tensor_ptr(e->p),
        .s0 = e->s0 ? cti_tensor_ptr(e->s0) : NULL,
        .s1 = e->s1 ? cti_tensor_ptr(e->s1) : NULL,
        .n = ct_tensor_numel(e->p),
        .step = cti_tensor_ptr(e->step),
        .weight_decay = o->weight_decay,
        .lr_scale = 1,
    };
}

static int fill(ct_optim *o, const ct_named_tensor *params, int n)
{
    const int64_t bytes = sizeof(ct_opt_scalars);
    int rc = CT_OK;

    for (int i = 0; i < n && rc == CT_OK; i++) {
        if (again(params, i))
            continue;
        rc = params[i].is_buffer ? add_guard(o, &params[i]) : add_param(o, &params[i]);
    }
    if (rc != CT_OK)
        return rc;
    o->scalars = ct_tensor_new(o->ctx, CT_U8, 1, &bytes); /* zeros */
    if (!o->scalars)
        return ct_error_code(o->ctx);
    /* As if all had a gradient: the most that a step needs. */
    for (int i = 0; i < o->n; i++) {
        fill_row(o, &o->entries[i], &o->list[i]);
        o->list[i].g = o->list[i].p;
    }
    return fit_workspace(o, o->n);
}

/* Memory for n entries, after all checks. NULL with the error set. */
static ct_optim *make_empty(ct_ctx *ctx, ct_opt_kind kind, int n_params, int n_buffers)
{
    cti_mem *mem = cti_ctx_mem(ctx);
    ct_optim *o = cti_alloc(mem, sizeof *o, "ct_optim");

    if (o) {
        o->ctx = ctx;
        o->kind = kind;
        o->entries = cti_alloc(mem, (size_t)n_params * sizeof *o->entries, "ct_optim");
        o->list = cti_alloc(mem, (size_t)n_params * sizeof *o->list, "ct_optim");
        o->guards = cti_alloc(mem, (size_t)n_buffers * sizeof *o->guards, "ct_optim");
        o->guard_list = cti_alloc(mem, (size_t)n_buffers * sizeof *o->guard_list, "ct_optim");
    }
    if (!o || !o->entries || !o->list || !o->guards || !o->guard_list) {
        ct_error_raise(ctx, CT_ENOMEM, cti_optim_kind_name(kind), "%s: out of memory",
                       cti_optim_kind_name(kind));
        ct_optim_free(o);
        return NULL;
    }
    return o;
}

ct_optim *cti_optim_make(ct_ctx *ctx, ct_opt_kind kind, const ct_named_tensor *params, int n,
                         const ct_opt_scalars *set, double weight_decay)
{
    const ct_k_optim *k = cti_ctx_device(ctx)->be->optim;
    ct_dtype dtype = CT_DTYPE_COUNT;
    int n_buffers = 0;
    ct_optim *o;

    for (int i = 0; params && i < n; i++) {
        if (check_param(ctx, kind, &params[i], &dtype) != CT_OK)
            return NULL;
        n_buffers += params[i].is_buffer;
    }
    if (dtype == CT_DTYPE_COUNT) {
        ct_error_raise(ctx, CT_EINVAL, cti_optim_kind_name(kind),
                       "%s: there is no parameter to optimize", cti_optim_kind_name(kind));
        return NULL;
    }
    if (!k || !k->workspace || !k->norm || !k->step) {
        ct_error_raise(ctx, CT_ENOTIMPL, cti_optim_kind_name(kind), "%s: not on device %s",
                       cti_optim_kind_name(kind), cti_ctx_device(ctx)->be->name);
        return NULL;
    }
    o = make_empty(ctx, kind, n - n_buffers, n_buffers);
    if (!o)
        return NULL;
    o->dtype = dtype;
    o->set = *set;
    o->weight_decay = weight_decay;
    if (fill(o, params, n) != CT_OK) {
        ct_optim_free(o);
        return NULL;
    }
    return o;
}

void ct_optim_free(ct_optim *o)
{
    cti_mem *mem;

    if (!o)
        return;
    mem = cti_ctx_mem(o->ctx);
    for (int i = 0; i < o->n; i++) {
        const cti_optim_entry *e = &o->entries[i];

        ct_tensor_release(e->p);
        ct_tensor_release(e->s0);
        ct_tensor_release(e->s1);
        ct_tensor_release(e->step);
        ct_tensor_release(e->dense);
    }
    for (int i = 0; i < o->n_guards; i++) {
        ct_tensor_release(o->guards[i].t);
        ct_tensor_release(o->guards[i].backup);
    }
    ct_tensor_release(o->scalars);
    ct_tensor_release(o->scale);
    ct_tensor_release(o->workspace);
    cti_free(mem, o->entries);
    cti_free(mem, o->list);
    cti_free(mem, o->guards);
    cti_free(mem, o->guard_list);
    cti_free(mem, o);
}

const char *ct_optim_name(const ct_optim *o)
{
    return o ? cti_optim_kind_name(o->kind) : "";
}

void ct_optim_set_lr(ct_optim *o, double lr)
{
    if (o)
        o->set.lr = lr;
}

void ct_optim_set_momentum(ct_optim *o, double momentum)
{
    if (!o)
        return;
    o->set.beta1 = momentum;
    /* SGD made without momentum has no buffers yet. Out of memory: pending, so the next step fails. */
    for (int i = 0; o->kind == CT_OPT_SGD && momentum > 0 && i < o->n; i++)
        if (!o->entries[i].s0)
            o->entries[i].s0 = zeros_like(o->ctx, o->entries[i].p);
}

/* ---- the step ---- */

static bool same_layout(const ct_tensor *a, const ct_tensor *b)
{
    const int64_t *shape = ct_tensor_shape(a);

    for (int d = 0; d < ct_tensor_ndim(a); d++)
        if (shape[d] > 1 && ct_tensor_strides(a)[d] != ct_tensor_strides(b)[d])
            return false;
    return true;
}

/* The gradient's memory, in the order of the parameter's, into *out. */
static int gradient(ct_optim *o, cti_optim_entry *e, ct_tensor *g, void **out)
{
    int rc = CT_OK;

    if (!same_layout(g, e->p)) {
        if (!e->dense)
            e->dense = zeros_like(o->ctx, e->p);
        rc = e->dense ? ct_tensor_copy(o->ctx, e->dense, g) : ct_error_code(o->ctx);
        g = e->dense;
    }
    if (rc == CT_OK)
        *out = cti_tensor_ptr(g);
    return rc;
}

/* The rows of the parameters that have a gradient; how many, or a status. */
static int gather(ct_optim *o)
{
    int n = 0;

    for (int i = 0; i < o->n; i++) {
        cti_optim_entry *e = &o->entries[i];
        ct_tensor *g = ct_tensor_grad(e->p);
        int rc;

        if (!g)
            continue;
        fill_row(o, e, &o->list[n]);
        rc = gradient(o, e, g, &o->list[n++].g);
        if (rc != CT_OK)
            return rc;
    }
    return n;
}

static int check_scalar(ct_optim *o, const char *name, const ct_tensor *t)
{
    char got[96];

    if (!t || (ct_tensor_numel(t) == 1 && ct_tensor_dtype(t) == o->dtype))
        return CT_OK;
    return ct_error_raise(o->ctx, CT_EINVAL, "ct_optim_step",
                          "%s: %s is %s: expected one element of %s", cti_optim_kind_name(o->kind),
                          name, ct_tensor_describe(t, got, sizeof got), ct_dtype_name(o->dtype));
}

static int check_step(ct_optim *o, const ct_step_opts *opts)
{
    int rc = check_scalar(o, "weight", opts->weight);

    if (rc == CT_OK)
        rc = check_scalar(o, "loss", opts->loss);
    if (rc == CT_OK && !(opts->max_norm >= 0))
        rc = ct_error_raise(o->ctx, CT_EINVAL, "ct_optim_step",
                            "%s: max_norm is %g: must be at least 0", cti_optim_kind_name(o->kind),
                            opts->max_norm);
    if (rc == CT_OK)
        rc = cti_optim_check_range(o->ctx, o->kind, "lr", o->set.lr, false);
    if (rc == CT_OK)
        rc = cti_optim_check_range(o->ctx, o->kind, o->kind == CT_OPT_SGD ? "momentum" : "beta1",
                                   o->set.beta1, o->kind != CT_OPT_SGD);
    return rc;
}

/* The in-part of the scalars to the device, when it changed. */
static int send_scalars(ct_optim *o, const ct_step_opts *opts)
{
    const size_t in_bytes = offsetof(ct_opt_scalars, weight);
    const cti_device *dev = cti_ctx_device(o->ctx);
    int rc;

    o->set.max_norm = opts->max_norm;
    o->set.latch = opts->latch;
    if (memcmp(&o->set, &o->sent, in_bytes) == 0)
        return CT_OK;
    rc = dev->be->mem->upload(dev->stream, cti_tensor_ptr(o->scalars), &o->set, in_bytes);
    if (rc == CT_OK)
        memcpy(&o->sent, &o->set, in_bytes);
    return cti_optim_launched(o, rc, "sending hyper-parameters");
}

static void bump_all(ct_optim *o)
{
    for (int i = 0; i < o->n; i++)
        if (ct_tensor_grad(o->entries[i].p))
            cti_tensor_bump(o->entries[i].p);
    for (int i = 0; i < o->n_guards; i++)
        cti_tensor_bump(o->guards[i].t);
}

int ct_optim_prepare(ct_ctx *ctx, ct_optim *o, ct_step_opts opts)
{
    int rc;

    if (!ctx || !o || o->ctx != ctx) {
        if (ctx && ct_error_code(ctx) == CT_OK)
            ct_error_raise(ctx, CT_EINVAL, __func__, "no optimizer of this context");
        return ctx ? ct_error_code(ctx) : CT_EINVAL;
    }
    rc = ct_error_code(ctx);
    if (rc == CT_OK)
        rc = check_step(o, &opts);
    return rc == CT_OK ? send_scalars(o, &opts) : rc;
}

int ct_optim_step(ct_ctx *ctx, ct_optim *o, ct_step_opts opts)
{
    const cti_device *dev;
    void *work;
    ct_opt_scalars *sc;
    int n, rc = ct_optim_prepare(ctx, o, opts);

    if (rc != CT_OK)
        return rc;
    n = gather(o);
    if (n < 0)
        return n;
    rc = fit_workspace(o, n);
    if (rc != CT_OK)
        return rc;
    dev = cti_ctx_device(ctx);
    work = cti_tensor_ptr(o->workspace);
    sc = cti_tensor_ptr(o->scalars);
    rc = dev->be->optim->norm(dev->stream, o->dtype, n, o->list,
                              opts.weight ? cti_tensor_ptr(opts.weight) : NULL,
                              opts.loss ? cti_tensor_ptr(opts.loss) : NULL, sc, work);
    if (rc != CT_OK)
        return cti_optim_launched(o, rc, "the norm");
    bump_all(o);
    rc = dev->be->optim->step(dev->stream, o->kind, o->dtype, n, o->list, o->n_guards,
                              o->guard_list, sc);
    if (rc == CT_OK && o->scale)
        rc = cti_optim_publish_scale(o);
    return cti_optim_launched(o, rc, "the step");
}

void ct_optim_zero_grad(ct_optim *o)
{
    for (int i = 0; o && i < o->n; i++)
        ct_zero_grad(o->entries[i].p);
}

/* ---- looking in, restoring ---- */

static ct_step_result result_of(const ct_opt_scalars *sc)
{
    return (ct_step_result){
        .weight = sc->weight,
        .grad_norm = sc->grad_norm,
        .nonfinite = (sc->nonfinite & 5) != 0 || sc->latched,
        .latched = sc->latched != 0,
        .empty = (sc->nonfinite & 2) != 0,
        .applied = sc->applied,
        .skipped = sc->skipped,
        .loss_scale = sc->scale_interval ? sc->loss_scale : 1,
        .growth_tracker = sc->scale_clean,
    };
}

_Static_assert(sizeof(ct_opt_scalars) <= CT_OPTIM_RESULT_BYTES, "a result must fit its buffer");

int ct_optim_result(ct_ctx *ctx, ct_optim *o, ct_step_result *out)
{
    const cti_device *dev;
    ct_opt_scalars sc;
    int rc;

    if (!ctx)
        return CT_EINVAL;
    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    if (!o || o->ctx != ctx || !out)
        return ct_error_raise(ctx, CT_EINVAL, __func__,
                              "no optimizer of this context, or no result");
    dev = cti_ctx_device(ctx);
    rc = dev->be->mem->download(dev->stream, &sc, cti_tensor_ptr(o->scalars), sizeof sc);
    if (rc != CT_OK)
        return cti_optim_launched(o, rc, "reading the result");
    *out = result_of(&sc);
    return cti_ctx_verdicts(ctx);
}

int ct_optim_result_async(ct_ctx *ctx, ct_optim *o, void *host, ct_event *done)
{
    if (!ctx)
        return CT_EINVAL;
    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    if (!o || o->ctx != ctx)
        return ct_error_raise(ctx, CT_EINVAL, __func__, "no optimizer of this context");
    return ct_tensor_read_async(ctx, o->scalars, host, sizeof(ct_opt_scalars), done);
}

ct_step_result ct_optim_result_of(const void *host)
{
    ct_opt_scalars sc;

    memcpy(&sc, host, sizeof sc);
    return result_of(&sc);
}

static void list(ct_named_tensor *out, int cap, int *n, const cti_optim_entry *e,
                 const char *suffix, ct_tensor *t)
{
    if (t && *n < cap) {
        ct_named_tensor *o = &out[*n];

        snprintf(o->name, sizeof o->name, "%.*s%s", (int)(sizeof o->name - sizeof LONGEST_SUFFIX),
                 e->name, suffix);
        o->tensor = t;
        o->is_buffer = true;
    }
    *n += t != NULL;
}

int ct_optim_state(ct_optim *o, ct_named_tensor *out, int cap)
{
    int n = 0;

    cap = out ? cap : 0;
    for (int i = 0; o && i < o->n; i++) {
        const cti_optim_entry *e = &o->entries[i];
        bool sgd = o->kind == CT_OPT_SGD;

        list(out, cap, &n, e, sgd ? LONGEST_SUFFIX : ".exp_avg", e->s0);
        list(out, cap, &n, e, ".exp_avg_sq", e->s1);
        list(out, cap, &n, e, ".step", e->step);
    }
    return n;
}

int cti_optim_read(ct_optim *o, ct_opt_scalars *sc)
{
    const cti_device *dev = cti_ctx_device(o->ctx);

    return cti_optim_launched(
        o, dev->be->mem->download(dev->stream, sc, cti_tensor_ptr(o->scalars), sizeof *sc),
        "reading the state");
}

int cti_optim_write(ct_optim *o, const ct_opt_scalars *sc)
{
    const cti_device *dev = cti_ctx_device(o->ctx);

    return cti_optim_launched(
        o, dev->be->mem->upload(dev->stream, cti_tensor_ptr(o->scalars), sc, sizeof *sc),
        "writing the state");
}

int ct_optim_set_counts(ct_ctx *ctx, ct_optim *o, int64_t applied, int64_t skipped)
{
    ct_opt_scalars sc;
    int rc;

    if (!ctx)
        return CT_EINVAL;
    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    if (!o || o->ctx != ctx || applied < 0 || skipped < 0)
        return ct_error_raise(ctx, CT_EINVAL, __func__,
                              "no optimizer of this context, or a negative count");
    rc = cti_optim_read(o, &sc);
    sc.applied = applied;
    sc.skipped = skipped;
    rc = rc == CT_OK ? cti_optim_write(o, &sc) : rc;
    /* What was restored into the buffers is what a skipped step goes back to. */
    for (int i = 0; i < o->n_guards && rc == CT_OK; i++)
        rc = ct_tensor_copy(ctx, o->guards[i].backup, o->guards[i].t);
    return rc;
}
