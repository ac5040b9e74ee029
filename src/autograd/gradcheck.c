/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against central differences, for applications: every element of every output by every element of
 * every input. (The ops' own harness is tests/ops.) */
#include "autograd/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_IN  16
#define MAX_OUT 16

typedef struct check {
    ct_ctx *ctx;
    const char *who;
    ct_segment fn;
    void *user;
    int n_in, n_out;
    ct_tensor *const *in;
    ct_gradcheck_opts opts;
    /* one input in hand */
    double *host;               /* its values */
    double *numeric, *analytic; /* [elements of all outputs][elements of the input] */
    int64_t out_n[MAX_OUT], rows;
} check;

ct_gradcheck_opts ct_gradcheck_defaults(void)
{
    return (ct_gradcheck_opts){.eps = 1e-6, .atol = 1e-5, .rtol = 1e-3};
}

static int no_memory(check *c)
{
    return cti_fail(&c->ctx->err, CT_ENOMEM, "%s: out of memory", c->who);
}

static int call(check *c, ct_tensor **out)
{
    memset(out, 0, MAX_OUT * sizeof *out);
    int r = c->fn(c->ctx, c->n_in, c->in, c->n_out, out, c->user);
    if (r < 0 || c->ctx->err.code)
        return r < 0 && !c->ctx->err.code ?
                   cti_fail(&c->ctx->err, r, "%s: the function failed (%s)", c->who,
                            ct_status_name(r)) :
                   c->ctx->err.code;
    for (int o = 0; o < c->n_out; o++)
        if (!out[o] || out[o]->view.dtype != CT_F64)
            return cti_fail(&c->ctx->err, CT_EDTYPE, "%s: output %d is %s; float64 is needed",
                            c->who, o, out[o] ? ct_dtype_name(out[o]->view.dtype) : "missing");
    return CT_OK;
}

/* The values of all outputs, one after the other. */
static int values(check *c, double *to)
{
    ct_tensor *out[MAX_OUT];
    int r = ct_scope_begin(c->ctx, CT_SCOPE_GRAD); /* the function may take gradients itself */
    if (r < 0)
        return r;
    r = call(c, out);
    for (int o = 0; o < c->n_out && r >= 0; to += c->out_n[o++])
        r = ct_tensor_read(c->ctx, out[o], to, (size_t)c->out_n[o] * sizeof *to);
    int end = ct_scope_end(c->ctx);
    return r < 0 ? r : end;
}

static int set_input(check *c, ct_tensor *x)
{
    int r = ct_scope_begin(c->ctx, CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    r = ct_tensor_write(c->ctx, x, c->host, (size_t)ct_tensor_numel(x) * sizeof *c->host);
    ct_scope_end(c->ctx);
    return r;
}

static int fill_numeric(check *c, ct_tensor *x)
{
    int64_t n = ct_tensor_numel(x);
    double *up = cti_alloc(c->ctx->mem, (size_t)(2 * c->rows + 1) * sizeof *up, "gradcheck");
    if (!up)
        return no_memory(c);
    double *down = up + c->rows;
    int r = CT_OK;
    for (int64_t j = 0; j < n && r >= 0; j++) {
        double keep = c->host[j];
        c->host[j] = keep + c->opts.eps;
        r = set_input(c, x);
        r = r < 0 ? r : values(c, up);
        c->host[j] = keep - c->opts.eps;
        r = r < 0 ? r : set_input(c, x);
        r = r < 0 ? r : values(c, down);
        c->host[j] = keep;
        for (int64_t i = 0; i < c->rows && r >= 0; i++)
            c->numeric[i * n + j] = (up[i] - down[i]) / (2 * c->opts.eps);
    }
    if (r >= 0)
        r = set_input(c, x);
    cti_free(c->ctx->mem, up);
    return r;
}

/* Row `row` of the Jacobian: the gradient of element i of output o. */
static int one_row(check *c, ct_tensor *x, ct_tensor *y, int64_t i, double *row)
{
    ct_ctx *ctx = c->ctx;
    ct_tensor *g = NULL, *u = ct_tensor_new(ctx, CT_F64, y->view.ndim, y->view.shape);
    if (!u)
        return ctx->err.code;
    ct_view one = {.data = (double *)u->view.data + i, .dtype = CT_F64, .ndim = 0};
    if (ctx->device.be->ew->fill(ctx->device.stream, &one, 1) < 0)
        cti_fail(&ctx->err, CT_EDEVICE, "%s: filling failed", c->who);
    int r = ct_grad(ctx, 1, &y, &u, 1, &x, CT_RETAIN_GRAPH | CT_ZEROS_FOR_UNUSED, &g);
    if (r >= 0)
        r = ct_tensor_read(ctx, g, row, (size_t)ct_tensor_numel(x) * sizeof *row);
    ct_tensor_release(u);
    return r;
}

static int fill_analytic(check *c, ct_tensor *x, double *to)
{
    ct_tensor *out[MAX_OUT];
    int64_t n = ct_tensor_numel(x);
    int r = ct_scope_begin(c->ctx, CT_SCOPE_GRAD);
    if (r < 0)
        return r;
    r = call(c, out);
    for (int o = 0; o < c->n_out && r >= 0; o++)
        for (int64_t i = 0; i < c->out_n[o] && r >= 0; i++, to += n) {
            r = ct_scope_begin(c->ctx, CT_SCOPE_PLAIN);
            if (r < 0)
                break;
            if (out[o]->requires_grad)
                r = one_row(c, x, out[o], i, to);
            else
                memset(to, 0, (size_t)n * sizeof *to);
            ct_scope_end(c->ctx);
        }
    int end = ct_scope_end(c->ctx);
    return r < 0 ? r : end;
}

/* ---- verdicts ---- */

static int output_of(const check *c, int64_t *row)
{
    int o = 0;
    for (; o < c->n_out - 1 && *row >= c->out_n[o]; o++)
        *row -= c->out_n[o];
    return o;
}

static int compare(check *c, int input, int64_t n)
{
    int64_t worst = -1, bad = 0;
    double most = 0;
    for (int64_t k = 0; k < c->rows * n; k++) {
        double a = c->analytic[k], b = c->numeric[k], off = fabs(a - b);
        bool nan = isnan(a) != isnan(b);
        if (!nan && !(off > c->opts.atol + c->opts.rtol * fabs(b)))
            continue;
        bad++;
        if (worst < 0 || nan || off > most) {
            worst = k;
            most = nan ? INFINITY : off;
        }
    }
    if (worst < 0)
        return CT_OK;
    int64_t row = worst / n, o = output_of(c, &row);
    return cti_fail(&c->ctx->err, CT_ECHECK,
                    "%s: d output %d[%" PRId64 "] / d input %d[%" PRId64
                    "] is %.9g by backward, %.9g by "
                    "differences: the largest of %" PRId64 " that differ, of %" PRId64,
                    c->who, (int)o, row, input, worst % n, c->analytic[worst], c->numeric[worst],
                    bad, c->rows * n);
}

static int check_again(check *c, ct_tensor *x, int input, double *again)
{
    int64_t n = ct_tensor_numel(x);
    int r = fill_analytic(c, x, again);
    if (r >= 0 && memcmp(again, c->analytic, (size_t)(c->rows * n) * sizeof *again) != 0)
        return cti_fail(
            &c->ctx->err, CT_ECHECK,
            "%s: backward gives other values for input %d when it runs again: something "
            "in it is random or keeps state",
            c->who, input);
    return r;
}

static int check_input(check *c, int input)
{
    ct_tensor *x = c->in[input];
    cti_mem *mem = c->ctx->mem;
    int64_t n = ct_tensor_numel(x);
    size_t one = (size_t)(c->rows * n + 1), bytes = (3 * one + (size_t)n + 1) * sizeof(double);
    double *all = cti_alloc(mem, bytes, "gradcheck");
    if (!all)
        return no_memory(c);
    c->numeric = all;
    c->analytic = all + one;
    c->host = all + 3 * one;
    int r = ct_tensor_read(c->ctx, x, c->host, (size_t)n * sizeof *c->host);
    r = r < 0 ? r : fill_analytic(c, x, c->analytic);
    r = r < 0 ? r : check_again(c, x, input, all + 2 * one);
    r = r < 0 ? r : fill_numeric(c, x);
    r = r < 0 ? r : compare(c, input, n);
    cti_free(mem, all);
    return r;
}

static int check_arguments(check *c)
{
    char d[160];
    ct_error *err = &c->ctx->err;
    int wanting = 0;
    if (c->ctx->err.code)
        return c->ctx->err.code;
    if (!c->fn || !c->in || c->n_in < 1 || c->n_in > MAX_IN || c->n_out < 1 || c->n_out > MAX_OUT)
        return cti_fail(err, CT_EINVAL,
                        "%s: a function of 1 to %d inputs with 1 to %d outputs is needed", c->who,
                        MAX_IN, MAX_OUT);
    if (!c->ctx->device.be->host_memory)
        return cti_fail(err, CT_ENOTIMPL,
                        "%s: float64 gradients are computed on the cpu alone, this is %s", c->who,
                        c->ctx->device.be->name);
    for (int i = 0; i < c->n_in; i++) {
        const ct_tensor *x = c->in[i];
        if (!x || !x->requires_grad)
            continue;
        wanting++;
        if (x->view.dtype != CT_F64 || x->grad_fn)
            return cti_fail(err, CT_EDTYPE, "%s: input %d is %s %s; a float64 leaf is needed",
                            c->who, i, x->grad_fn ? "a result," : "a leaf,",
                            ct_tensor_describe(x, d, sizeof d));
    }
    return wanting ? CT_OK : cti_fail(err, CT_EINVAL, "%s: no input requires grad", c->who);
}

static int run(check *c)
{
    ct_tensor *out[MAX_OUT];
    if (check_arguments(c) < 0)
        return c->ctx->err.code;
    int r = ct_scope_begin(c->ctx, CT_SCOPE_GRAD);
    if (r < 0)
        return r;
    r = call(c, out);
    for (int o = 0; o < c->n_out && r >= 0; o++) {
        c->out_n[o] = ct_tensor_numel(out[o]);
        c->rows += c->out_n[o];
    }
    ct_scope_end(c->ctx);
    for (int i = 0; i < c->n_in && r >= 0; i++)
        if (c->in[i] && c->in[i]->requires_grad)
            r = check_input(c, i);
    return r < 0 ? r : c->ctx->err.code;
}

int ct_gradcheck(ct_ctx *ctx, ct_segment fn, void *user, int n_in, ct_tensor *const *in, int n_out,
                 ct_gradcheck_opts opts)
{
    check c = {ctx, "gradcheck", fn, user, n_in, n_out, in, .opts = opts};
    return ctx ? run(&c) : CT_EINVAL;
}

/* ---- second order: the check of what ct_grad gives ---- */

typedef struct gradient {
    ct_segment fn;
    void *user;
    int n_in, n_out; /* of fn; its inputs come first, then an upstream gradient for each output */
} gradient;

static int gradient_of(ct_ctx *ctx, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                       void *user)
{
    const gradient *g = user;
    ct_tensor *y[MAX_OUT] = {NULL}, *x[MAX_IN];
    (void)n_in;
    int r = g->fn(ctx, g->n_in, in, g->n_out, y, g->user), n = 0;
    for (int i = 0; i < g->n_in; i++)
        if (in[i] && in[i]->requires_grad)
            x[n++] = in[i];
    (void)n_out;
    return r < 0 ? r :
                   ct_grad(ctx, g->n_out, y, in + g->n_in, n, x,
                           CT_CREATE_GRAPH | CT_ZEROS_FOR_UNUSED, out);
}

/* Upstream gradients: leaves of random numbers, shaped as the outputs. */
static int upstream(check *c, ct_tensor **u)
{
    ct_tensor *out[MAX_OUT];
    int r = ct_scope_begin(c->ctx, CT_SCOPE_NO_GRAD);
    if (r < 0)
        return r;
    r = call(c, out);
    for (int o = 0; o < c->n_out && r >= 0; o++) {
        u[o] = ct_tensor_new(c->ctx, CT_F64, out[o]->view.ndim, out[o]->view.shape);
        r = u[o] ? ct_tensor_normal(c->ctx, u[o], 0, 1) : c->ctx->err.code;
        r = r < 0 ? r : ct_tensor_set_requires_grad(c->ctx, u[o], true);
    }
    ct_scope_end(c->ctx);
    return r;
}

int ct_gradgradcheck(ct_ctx *ctx, ct_segment fn, void *user, int n_in, ct_tensor *const *in,
                     int n_out, ct_gradcheck_opts opts)
{
    check first = {ctx, "gradgradcheck", fn, user, n_in, n_out, in, .opts = opts};
    if (!ctx)
        return CT_EINVAL;
    if (check_arguments(&first) < 0)
        return ctx->err.code;
    if (n_in + n_out > MAX_IN)
        return cti_fail(&ctx->err, CT_EINVAL,
                        "gradgradcheck: at most %d inputs and outputs together", MAX_IN);
    ct_tensor *all[MAX_IN] = {NULL};
    int wanting = 0;
    for (int i = 0; i < n_in; i++) {
        all[i] = in[i];
        wanting += in[i] && in[i]->requires_grad;
    }
    gradient g = {fn, user, n_in, n_out};
    check c = {ctx, "gradgradcheck", gradient_of, &g, n_in + n_out, wanting, all, .opts = opts};
    int r = upstream(&first, all + n_in);
    r = r < 0 ? r : run(&c);
    for (int o = 0; o < n_out; o++)
        ct_tensor_release(all[n_in + o]);
    return r;
}
