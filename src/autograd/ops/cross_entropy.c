/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy - with lp = log_softmax(x) along dimension 1, w class weights, e smoothing and
 * K classes:
 *   class targets:  mean = [(1-e) sum w_y (-lp_y) + (e/K) sum_n sum_c w_c (-lp_c)] / sum w_y
 *   probabilities:  mean = sum_n sum_c w_c t_c (-lp_c) / N, with t smoothed by e
 * over the positions that aren't ignored; `sum` has no divisor, `none` has 0 at ignored positions.
 * Shape: x [N,C,...], target i64 [N,...] or x's shape -> scalar, or [N,...] for none.
 * Gradient: of x alone: dy (softmax - target), weighted alike. Oracle: torch's cross_entropy. */
#include "autograd/op.h"

#include <stdint.h>

typedef struct attrs {
    int64_t ignore_index;
    double smoothing;
    ct_reduction reduction;
    bool want_total;
} attrs;

enum { IN_LOGITS, IN_TARGET, IN_WEIGHT };
enum { SAVE_LOGITS, SAVE_TARGET, SAVE_WEIGHT, SAVE_LSE, SAVE_TOTAL };

static int check_target(cti_node *n, const ct_view *x, const ct_view *t)
{
    const attrs *a = cti_attr(n);
    char s[64], u[64];
    if (t->dtype == CT_I64) {
        bool fits = t->ndim == x->ndim - 1 && t->shape[0] == x->shape[0];
        for (int i = 1; fits && i < t->ndim; i++)
            fits = t->shape[i] == x->shape[i + 1];
        if (!fits)
            return cti_op_fail(n, CT_ESHAPE,
                               "logits %s [N,C,...] need class numbers [N,...], target is %s",
                               cti_shape_str(x, s, sizeof s), cti_shape_str(t, u, sizeof u));
        return CT_OK;
    }
    if (t->dtype != x->dtype)
        return cti_op_fail(n, CT_EDTYPE,
                           "target is %s: class numbers must be int64, probabilities %s like the "
                           "logits (see ct_cast)",
                           ct_dtype_name(t->dtype), ct_dtype_name(x->dtype));
    if (!cti_same_shape(x, t))
        return cti_op_fail(n, CT_ESHAPE,
                           "target %s of probabilities must have the shape of the logits %s; class "
                           "numbers must be int64",
                           cti_shape_str(t, s, sizeof s), cti_shape_str(x, u, sizeof u));
    if (a->ignore_index >= 0)
        return cti_op_fail(n, CT_EINVAL,
                           "ignore_index %lld can't be used with probabilities as target",
                           (long long)a->ignore_index);
    return CT_OK;
}

/* x's shape without dimension 1. */
static int row_shape(const ct_view *x, int64_t *shape)
{
    int k = 0;
    for (int i = 0; i < x->ndim; i++)
        if (i != 1)
            shape[k++] = x->shape[i];
    return k;
}

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, IN_LOGITS), *w = cti_x(n, IN_WEIGHT);
    int64_t shape[CT_MAX_DIMS];
    char s[64];
    int rc = cti_check_float(n, IN_LOGITS);
    if (rc)
        return rc;
    if (x->ndim < 2)
        return cti_op_fail(n, CT_ESHAPE, "logits %s must be [N,C] or [N,C,...]",
                           cti_shape_str(x, s, sizeof s));
    rc = check_target(n, x, cti_x(n, IN_TARGET));
    if (rc)
        return rc;
    if (w && w->dtype != x->dtype)
        return cti_op_fail(n, CT_EDTYPE, "class weights are %s, logits %s: they must be the same",
                           ct_dtype_name(w->dtype), ct_dtype_name(x->dtype));
    if (w && (w->ndim != 1 || w->shape[0] != x->shape[1]))
        return cti_op_fail(n, CT_ESHAPE, "class weights %s must be [%lld], one for each class",
                           cti_shape_str(w, s, sizeof s), (long long)x->shape[1]);
    if (!(a->smoothing >= 0 && a->smoothing <= 1))
        return cti_op_fail(n, CT_EINVAL, "label_smoothing is %g: must be from 0 to 1",
                           a->smoothing);
    if ((unsigned)a->reduction > CT_REDUCE_MEAN)
        return cti_op_fail(n, CT_EINVAL, "reduction %d is none of CT_REDUCE_*", (int)a->reduction);
    int ndim = a->reduction == CT_REDUCE_NONE ? row_shape(x, shape) : 0;
    rc = cti_out(n, 0, x->dtype, ndim, shape);
    if (!rc && a->want_total)
        rc = cti_out(n, 1, cti_stat_dtype(x->dtype), 0, NULL);
    return rc;
}

static void kernel_options(const attrs *a, ct_cross_entropy_args *args)
{
    args->ignore_index = a->ignore_index;
    args->smoothing = a->smoothing;
    args->reduction = a->reduction == CT_REDUCE_NONE ? CT_CE_NONE :
                      a->reduction == CT_REDUCE_SUM  ? CT_CE_SUM :
                                                       CT_CE_MEAN;
}

/* The kernel has found a class out of range. */
static void report_bad(ct_ctx *ctx, const ct_op *op, const int64_t found[2], int64_t classes)
{
    cti_raise(ctx, op, CT_EDATA,
              "target %lld at row %lld is out of range for %lld classes (0..%lld)%s",
              (long long)found[1], (long long)found[0], (long long)classes, (long long)classes - 1,
              found[1] == classes ? "; 1-based?" :
              found[1] < 0        ? "; rows to skip are marked by ignore_index" :
                                    "");
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, IN_LOGITS), *t = cti_x(n, IN_TARGET), *w = cti_x(n, IN_WEIGHT);
    const ct_view none = {.dtype = CT_I64}, *bad = &none;
    ct_dtype stat = cti_stat_dtype(x->dtype);
    int64_t shape[CT_MAX_DIMS];
    int ndim = row_shape(x, shape);
    if (cti_wants(n, IN_TARGET) || cti_wants(n, IN_WEIGHT))
        return cti_op_fail(n, CT_ENOTIMPL,
                           "%s requires grad, which is only there for the logits: "
                           "use ct_detach",
                           cti_wants(n, IN_TARGET) ? "target" : "weight");
    const ct_view *lse = cti_save_new(n, SAVE_LSE, stat, ndim, shape);
    const ct_view *total = a->want_total ? cti_y(n, 1) : cti_save_new(n, SAVE_TOTAL, stat, 0, NULL);
    if (t->dtype == CT_I64)
        bad = cti_late(n, report_bad, x->shape[1]);
    if (!lse || !total || !bad)
        return cti_pending(n);
    ct_cross_entropy_args args = {.logits = *x,
                                  .target = *t,
                                  .weight = w,
                                  .loss = *cti_y(n, 0),
                                  .lse = *lse,
                                  .total_weight = *total,
                                  .bad = *bad};
    kernel_options(a, &args);
    const ct_k_loss *k = cti_be(n)->loss;
    size_t bytes = k->cross_entropy_workspace(cti_stream(n), &args);
    args.workspace = cti_workspace(n, bytes);
    if (bytes && !args.workspace)
        return cti_pending(n);
    int rc = k->cross_entropy(cti_stream(n), &args);
    if (rc)
        return rc;
    cti_save_in(n, SAVE_LOGITS, IN_LOGITS);
    cti_save_in(n, SAVE_TARGET, IN_TARGET);
    if (w)
        cti_save_in(n, SAVE_WEIGHT, IN_WEIGHT);
    if (a->want_total)
        cti_save_out(n, SAVE_TOTAL, 1);
    return CT_OK;
}

static int backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, IN_LOGITS, &beta);
    const ct_view *dy = cti_dy(n, 0);
    if (!dx)
        return cti_pending(n);
    if (!dy) /* total_weight alone was used: it doesn't depend on the logits */
        return beta ? CT_OK : cti_be(n)->ew->fill(cti_stream(n), dx, 0);
    ct_cross_entropy_args args = {.logits = *cti_saved(n, SAVE_LOGITS),
                                  .target = *cti_saved(n, SAVE_TARGET),
                                  .weight = cti_saved(n, SAVE_WEIGHT),
                                  .loss = {.dtype = dx->dtype}, /* not looked at but for this */
                                  .lse = *cti_saved(n, SAVE_LSE),
                                  .total_weight = *cti_saved(n, SAVE_TOTAL)};
    kernel_options(cti_attr(n), &args);
    const ct_k_loss *k = cti_be(n)->loss;
    size_t bytes = k->cross_entropy_workspace(cti_stream(n), &args);
    args.workspace = cti_workspace(n, bytes);
    if (bytes && !args.workspace)
        return cti_pending(n);
    return k->cross_entropy_grad(cti_stream(n), &args, dx, beta, dy);
}

/* Class numbers as probabilities along dimension 1, zeros where they are ignored. */
static ct_tensor *hot(ct_tensor *target, ct_tensor *kept, const ct_view *x)
{
    ct_tensor *t = ct_one_hot(ct_where(kept, target, ct_zeros_like(target)), x->shape[1]);
    int dims[CT_MAX_DIMS], k = 0;
    dims[k++] = 0;
    dims[k++] = x->ndim - 1;
    for (int i = 1; i < x->ndim - 1; i++)
        dims[k++] = i;
    ct_tensor *in_place = ct_permute(t, x->ndim, dims);
    return ct_mul(ct_cast(in_place, x->dtype), ct_unsqueeze(ct_cast(kept, x->dtype), 1));
}

/* The gradient is p sum_c(C) - C for C, the weight of each class in the loss times what comes. */
static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_in_meta(n, IN_LOGITS);
    ct_tensor *t = cti_saved_tensor(n, SAVE_TARGET), *w = cti_saved_tensor(n, SAVE_WEIGHT),
              *kept = NULL;
    double classes = (double)x->shape[1];
    if (!dy[0] || !t) { /* of total_weight alone, which doesn't depend on the logits */
        dx[IN_LOGITS] = ct_zeros_like(cti_saved_tensor(n, SAVE_LOGITS));
        return cti_pending(n);
    }
    if (ct_tensor_dtype(t) == CT_I64) {
        kept = ct_ne(t, ct_full_like(t, (double)a->ignore_index));
        t = hot(t, kept, x);
    }
    if (a->smoothing > 0)
        t = ct_affine(t, 1 - a->smoothing, a->smoothing / classes);
    if (w) {
        int64_t shape[CT_MAX_DIMS];
        for (int i = 0; i < x->ndim; i++)
            shape[i] = i == 1 ? x->shape[1] : 1;
        t = ct_mul(t, ct_reshape(w, x->ndim, shape));
    }
    ct_tensor *g = dy[0];
    if (a->reduction == CT_REDUCE_NONE)
        g = ct_unsqueeze(g, 1);
    if (a->reduction == CT_REDUCE_MEAN)
        g = ct_div(g, ct_cast(cti_saved_tensor(n, SAVE_TOTAL), x->dtype));
    ct_tensor *c = ct_mul(t, g);
    if (kept) /* also where the divisor is 0 */
        c = ct_where(ct_unsqueeze(kept, 1), c, ct_zeros_like(c));
    int dim = 1;
    ct_tensor *p = ct_softmax(cti_saved_tensor(n, SAVE_LOGITS), 1);
    dx[IN_LOGITS] = ct_sub(ct_mul(p, ct_sum(c, &dim, 1, true)), c);
    return cti_pending(n);
}

/* arg: reduction (0 none, 1 sum, 2 mean), label_smoothing, ignore_index. in: logits, target,
 * weight. */
static const ct_case cases[] = {
    {.name = "mean", .arg = {2, 0, -100}, .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(5, 7)}},
    {.name = "sum", .arg = {1, 0, -100}, .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(5, 7)}},
    {.name = "none", .arg = {0, 0, -100}, .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(5, 7)}},
    {.name = "weights, smoothing, ignored class",
     .arg = {2, 0.1, 2},
     .in = {CT_IN(NORMAL, 17, 5), CT_IN_LABELS(5, 17), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "sum of weighted",
     .arg = {1, 0.25, -100},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_LABELS(5, 7), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "positions",
     .arg = {2, 0.1, 1},
     .in = {CT_IN(NORMAL, 2, 5, 3, 4), CT_IN_LABELS(5, 2, 3, 4), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "positions, none",
     .arg = {0, 0, 1},
     .in = {CT_IN(NORMAL, 2, 5, 3), CT_IN_LABELS(5, 2, 3)}},
    {.name = "probabilities",
     .arg = {2, 0, -100},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_FIXED(PROBS, 7, 5)}},
    {.name = "probabilities, weights, smoothing, none",
     .arg = {0, 0.1, -100},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_FIXED(PROBS, 7, 5), CT_IN_FIXED(POSITIVE, 5)}},
    {.name = "probabilities of positions",
     .arg = {2, 0.1, -100},
     .in = {CT_IN(NORMAL, 2, 5, 3), CT_IN_FIXED(PROBS, 2, 5, 3)}},
    {.name = "empty", .arg = {1, 0, -100}, .in = {CT_IN(NORMAL, 0, 5), CT_IN_LABELS(5, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();
    o.reduction = (ct_reduction)c->arg[0];
    o.label_smoothing = c->arg[1];
    o.ignore_index = (int64_t)c->arg[2];
    o.weight = in[2];
    return ct_cross_entropy(in[0], in[1], o);
}

const ct_op cti_op_cross_entropy = {.name = "cross_entropy",
                                    .torch_name = "NllLossBackward0",
                                    .optional = 1U << IN_WEIGHT,
                                    .accumulates = 1U << IN_LOGITS,
                                    .autocast = CTI_F32,
                                    .infer = infer,
                                    .forward = forward,
                                    .backward = backward,
                                    .vjp = vjp,
                                    CT_CASES(cases),
                                    .call = call};

ct_cross_entropy_opts ct_cross_entropy_defaults(void)
{
    return (ct_cross_entropy_opts){.ignore_index = -100, .reduction = CT_REDUCE_MEAN};
}

ct_tensor *ct_cross_entropy(ct_tensor *logits, ct_tensor *target, ct_cross_entropy_opts opts)
{
    ct_tensor *in[3] = {logits, target, opts.weight}, *out[2] = {NULL, NULL};
    attrs a = {.ignore_index = opts.ignore_index,
               .smoothing = opts.label_smoothing,
               .reduction = opts.reduction,
               .want_total = opts.total_weight != NULL};
    cti_apply_multi(&cti_op_cross_entropy, &a, sizeof a, 3, in, a.want_total ? 2 : 1, out);
    if (opts.total_weight) /* a constant to the tape: sums of it over steps keep no graph */
        *opts.total_weight = out[1] ? ct_detach(out[1]) : NULL;
    return out[0];
}
