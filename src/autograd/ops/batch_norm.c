/* SPDX-License-Identifier: Apache-2.0 */
/* batch_norm - y = (x - mean) / sqrt(var + eps) * weight + bias, per channel (dimension 1).
 * Training: mean and biased variance of the batch; running <- (1 - m) running + m new, with the
 * unbiased variance. Evaluation: the running ones.
 * Shape: x [N,C] or [N,C,...] -> as x; the others [C].
 * Gradient: with the batch's statistics as functions of x (training), or constants (evaluation);
 * dweight = sum of dy xhat, dbias = sum of dy. Oracle: torch.nn.functional.batch_norm. */
#include "autograd/op.h"

typedef struct attrs {
    ct_batch_norm_opts o;
    bool batch_stats; /* of this batch, not the running ones */
} attrs;

enum { IN_X, IN_WEIGHT, IN_BIAS, IN_MEAN, IN_VAR, N_IN };
enum { SAVE_X, SAVE_WEIGHT, SAVE_MEAN, SAVE_INVSTD };

static const char *const names[N_IN] = {"x", "weight", "bias", "running_mean", "running_var"};

/* What is kept of half-precision data may be float32. */
static int check_dtypes(cti_node *n)
{
    const ct_dtype d = cti_x(n, IN_X)->dtype;
    for (int i = IN_WEIGHT; i < N_IN; i++) {
        const ct_view *v = cti_x(n, i);
        if (v && v->dtype != d && v->dtype != cti_stat_dtype(d))
            return cti_op_fail(n, CT_EDTYPE, "dtypes differ: x is %s, %s is %s (ct_cast)",
                               ct_dtype_name(d), names[i], ct_dtype_name(v->dtype));
    }
    return CT_OK;
}

static int check_channels(cti_node *n)
{
    const ct_view *x = cti_x(n, IN_X);
    char s[64], t[64];
    for (int i = IN_WEIGHT; i < N_IN; i++) {
        const ct_view *v = cti_x(n, i);
        if (v && (v->ndim != 1 || v->shape[0] != x->shape[1]))
            return cti_op_fail(n, CT_ESHAPE, "%s %s must be [%lld], as x %s has %lld channels",
                               names[i], cti_shape_str(v, s, sizeof s), (long long)x->shape[1],
                               cti_shape_str(x, t, sizeof t), (long long)x->shape[1]);
    }
    if (!cti_x(n, IN_MEAN) != !cti_x(n, IN_VAR))
        return cti_op_fail(n, CT_EINVAL, "running_mean and running_var: give both or none");
    return CT_OK;
}

static int infer(cti_node *n)
{
    attrs *a = cti_attr_mut(n);
    const ct_view *x = cti_x(n, IN_X);
    char s[64];
    int rc = cti_check_float(n, IN_X);
    rc = rc ? rc : check_dtypes(n);
    if (rc)
        return rc;
    if (x->ndim < 2)
        return cti_op_fail(n, CT_ESHAPE, "x %s must be [N,C] or [N,C,...]",
                           cti_shape_str(x, s, sizeof s));
    rc = check_channels(n);
    if (rc)
        return rc;
    if (!(a->o.eps >= 0) || !(a->o.momentum >= 0 && a->o.momentum <= 1))
        return cti_op_fail(n, CT_EINVAL, "eps %g must be 0 or more, momentum %g from 0 to 1",
                           a->o.eps, a->o.momentum);
    a->batch_stats = a->o.training || !cti_x(n, IN_MEAN);
    int64_t each = x->shape[0];
    for (int i = 2; i < x->ndim; i++)
        each *= x->shape[i];
    if (a->o.training && each == 1)
        return cti_op_fail(n, CT_ESHAPE,
                           "expected more than 1 value per channel when training, x is %s",
                           cti_shape_str(x, s, sizeof s));
    return cti_out_like(n, 0, IN_X);
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, IN_X);
    const ct_k_norm *k = cti_be(n)->norm;
    ct_dtype stat = cti_stat_dtype(x->dtype);
    const ct_view *mean = cti_save_new(n, SAVE_MEAN, stat, 1, &x->shape[1]);
    const ct_view *invstd = cti_save_new(n, SAVE_INVSTD, stat, 1, &x->shape[1]);
    if (!mean || !invstd)
        return cti_pending(n);
    cti_save_in(n, SAVE_X, IN_X);
    if (cti_x(n, IN_WEIGHT))
        cti_save_in(n, SAVE_WEIGHT, IN_WEIGHT);
    if (ct_view_numel(x) == 0) /* nothing seen: the running statistics stay, as PyTorch's do */
        return CT_OK;
    bool update = a->o.training && cti_x(n, IN_MEAN);
    bool given = update || !a->batch_stats;
    ct_batchnorm_args args = {.x = *x,
                              .y = *cti_y(n, 0),
                              .weight = cti_x(n, IN_WEIGHT),
                              .bias = cti_x(n, IN_BIAS),
                              .mean = *mean,
                              .invstd = *invstd,
                              .running_mean = given ? cti_x(n, IN_MEAN) : NULL,
                              .running_var = given ? cti_x(n, IN_VAR) : NULL,
                              .momentum = a->o.momentum,
                              .eps = a->o.eps};
    size_t bytes = k->batchnorm_workspace(cti_stream(n), x);
    args.workspace = cti_workspace(n, bytes);
    if (bytes && !args.workspace)
        return cti_pending(n);
    if (!a->batch_stats)
        return k->batchnorm_eval(cti_stream(n), &args);
    int rc = k->batchnorm_train(cti_stream(n), &args);
    if (!rc && update) {
        cti_mark_changed(n, IN_MEAN);
        cti_mark_changed(n, IN_VAR);
    }
    return rc;
}

/* The gradient of input i when there is one to write; *rc tells of a failure. */
static const ct_view *wanted(cti_node *n, int i, int *beta, int *rc)
{
    const ct_view *dx = *rc == CT_OK && cti_wants(n, i) ? cti_dx(n, i, beta) : NULL;
    if (!dx && *rc == CT_OK)
        *rc = cti_pending(n);
    return dx;
}

static int backward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_k_norm *k = cti_be(n)->norm;
    const ct_view *x = cti_saved(n, SAVE_X);
    int beta = 0, none, rc = CT_OK;
    const ct_view *dx = wanted(n, IN_X, &beta, &rc);
    const ct_view *dw = wanted(n, IN_WEIGHT, &none, &rc), *db = wanted(n, IN_BIAS, &none, &rc);
    if (rc)
        return rc;
    if (ct_view_numel(x) == 0) {
        rc = dw ? cti_be(n)->ew->fill(cti_stream(n), dw, 0) : CT_OK;
        return !rc && db ? cti_be(n)->ew->fill(cti_stream(n), db, 0) : rc;
    }
    const ct_view *dy = cti_dy_like(n, 0, x);
    if (!dy)
        return cti_pending(n);
    size_t bytes = k->batchnorm_workspace(cti_stream(n), x);
    void *ws = cti_workspace(n, bytes);
    if (bytes && !ws)
        return cti_pending(n);
    return k->batchnorm_grad(cti_stream(n), a->batch_stats, dx, beta, dw, db, dy, x,
                             cti_saved(n, SAVE_WEIGHT), cti_saved(n, SAVE_MEAN),
                             cti_saved(n, SAVE_INVSTD), ws);
}

/* v [C] as [1,C,1,...]. */
static ct_tensor *per_channel(ct_tensor *v, int ndim)
{
    int64_t shape[CT_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        shape[i] = i == 1 && v ? ct_tensor_size(v, 0) : 1;
    return v ? ct_reshape(v, ndim, shape) : NULL;
}

/* The batch's statistics are made anew of x: so their own gradients count. */
static int vjp(cti_node *n, ct_tensor *const *dys, ct_tensor **dx)
{
    const attrs *a = cti_attr(n);
    ct_tensor *weight = cti_saved_tensor(n, SAVE_WEIGHT), *x = cti_saved_tensor(n, SAVE_X);
    if (!x)
        return cti_pending(n);
    const ct_dtype dtype = weight ? ct_tensor_dtype(weight) : ct_tensor_dtype(x);
    int dims[CT_MAX_DIMS], nd = 0, ndim = ct_tensor_ndim(x);
    ct_tensor *w = per_channel(weight, ndim), *dy = ct_cast(dys[0], dtype);
    x = ct_cast(x, dtype);
    for (int i = 0; i < ndim; i++)
        if (i != 1)
            dims[nd++] = i;
    ct_tensor *centred, *invstd;
    if (a->batch_stats) {
        centred = ct_sub(x, ct_mean(x, dims, nd, true));
        invstd = ct_rsqrt(ct_affine(ct_mean(ct_square(centred), dims, nd, true), 1, a->o.eps));
    } else {
        centred = ct_sub(x, per_channel(ct_cast(cti_saved_tensor(n, SAVE_MEAN), dtype), ndim));
        invstd = per_channel(ct_cast(cti_saved_tensor(n, SAVE_INVSTD), dtype), ndim);
    }
    ct_tensor *xhat = ct_mul(centred, invstd), *g = w ? ct_mul(dy, w) : dy;
    if (cti_wants(n, IN_WEIGHT))
        dx[IN_WEIGHT] = ct_sum(ct_mul(dy, xhat), dims, nd, false);
    if (cti_wants(n, IN_BIAS))
        dx[IN_BIAS] = ct_sum(dy, dims, nd, false);
    if (!cti_wants(n, IN_X))
        return cti_pending(n);
    if (a->batch_stats) {
        ct_tensor *along = ct_mul(xhat, ct_mean(ct_mul(g, xhat), dims, nd, true));
        g = ct_sub(ct_sub(g, ct_mean(g, dims, nd, true)), along);
    }
    dx[IN_X] = ct_cast(ct_mul(g, invstd), cti_in_meta(n, IN_X)->dtype);
    return cti_pending(n);
}

/* arg: training, momentum, eps. in: x, weight, bias, running_mean, running_var. */
static const ct_case cases[] = {
    {.name = "images, training",
     .arg = {1, 0.1, 1e-5},
     .in = {CT_IN(NORMAL, 3, 5, 4, 3), CT_IN(NORMAL, 5), CT_IN(NORMAL, 5), CT_IN_FIXED(NORMAL, 5),
            CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "images, evaluation",
     .arg = {0, 0.1, 1e-5},
     .in = {CT_IN(NORMAL, 3, 5, 4, 3), CT_IN(NORMAL, 5), CT_IN(NORMAL, 5), CT_IN_FIXED(NORMAL, 5),
            CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "rows, training",
     .arg = {1, 0.3, 1e-3},
     .in = {CT_IN(NORMAL, 7, 3), CT_IN(NORMAL, 3), CT_IN(NORMAL, 3), CT_IN_FIXED(NORMAL, 3),
            CT_IN_FIXED(POSITIVE, 3)}},
    {.name = "no weight, no running statistics",
     .arg = {1, 0.1, 1e-5},
     .in = {CT_IN(NORMAL, 4, 3, 5)}},
    {.name = "evaluation without running statistics",
     .arg = {0, 0.1, 1e-5},
     .in = {CT_IN(NORMAL, 4, 3, 5), CT_IN(NORMAL, 3), CT_IN(NORMAL, 3)}},
    {.name = "evaluation, rows, no weight",
     .arg = {0, 0.1, 1e-5},
     .in = {CT_IN(NORMAL, 1, 3),
            {.kind = CT_IN_NONE},
            {.kind = CT_IN_NONE},
            CT_IN_FIXED(NORMAL, 3),
            CT_IN_FIXED(POSITIVE, 3)}},
    {.name = "frozen weight",
     .arg = {1, 0.1, 1e-5},
     .in = {CT_IN(NORMAL, 3, 2, 3, 2), CT_IN_FIXED(NORMAL, 2), CT_IN(NORMAL, 2),
            CT_IN_FIXED(NORMAL, 2), CT_IN_FIXED(POSITIVE, 2)}},
    {.name = "empty",
     .arg = {1, 0.1, 1e-5},
     .in = {CT_IN(NORMAL, 0, 3, 2, 2), CT_IN(NORMAL, 3), CT_IN(NORMAL, 3), CT_IN_FIXED(NORMAL, 3),
            CT_IN_FIXED(POSITIVE, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_batch_norm_opts o = {c->arg[0] != 0, c->arg[1], c->arg[2]};
    return ct_batch_norm(in[0], in[1], in[2], in[3], in[4], o);
}

const ct_op cti_op_batch_norm = {.name = "batch_norm",
                                 .torch_name = "NativeBatchNormBackward0",
                                 .optional = (1U << N_IN) - 2,
                                 .accumulates = 1U << IN_X,
                                 .autocast = CTI_AS_IS,
                                 .infer = infer,
                                 .forward = forward,
                                 .backward = backward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_batch_norm_opts ct_batch_norm_defaults(bool training)
{
    return (ct_batch_norm_opts){.training = training, .momentum = 0.1, .eps = 1e-5};
}

ct_tensor *ct_batch_norm(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, ct_tensor *running_mean,
                         ct_tensor *running_var, ct_batch_norm_opts opts)
{
    attrs a = {.o = opts};
    ct_tensor *in[N_IN] = {x, weight, bias, running_mean, running_var};
    for (int i = IN_X; x && i <= IN_BIAS; i++) { /* what the kernels need, on the record */
        if (!in[i] || (i == IN_X && ct_tensor_is_channels_last(x)))
            continue;
        in[i] = ct_contiguous(in[i]);
        if (!in[i])
            return NULL;
    }
    return cti_apply(&cti_op_batch_norm, &a, sizeof a, N_IN, in);
}
