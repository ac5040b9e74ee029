/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm - y = (x - mean) / sqrt(var + eps) * weight + bias, mean and biased variance of the last dimensions, those of
 * `shape`. Shape: as x; weight and bias have that shape. Gradient: with mean and variance as functions of x; dweight = sum
 * of dy xhat, dbias = sum of dy, over the leading dimensions. Also here: what it shares with rms_norm.
 * Oracle: torch.nn.functional.layer_norm. */
#include "autograd/op.h"

enum { IN_X, IN_WEIGHT, IN_BIAS };
enum { SAVE_X, SAVE_WEIGHT, SAVE_MEAN, SAVE_INVSTD };

/* The last dimensions of x, of which weight and bias have the shape. */
static int check(cti_node *n, int dims, const int64_t *shape)
{
    const ct_view *x = cti_x(n, IN_X);
    char s[64], t[64];
    ct_view want = {.ndim = dims};
    bool fits = dims >= 1 && dims <= x->ndim;
    for (int i = 0; i < dims && i < CT_MAX_DIMS; i++) {
        want.shape[i] = shape[i];
        fits = fits && x->shape[x->ndim - dims + i] == shape[i];
    }
    if (!fits)
        return cti_op_fail(n, CT_ESHAPE, "x %s does not end in the normalized shape %s",
                           cti_shape_str(x, s, sizeof s), cti_shape_str(&want, t, sizeof t));
    for (int i = IN_WEIGHT; i < cti_n_in(n); i++) {
        const ct_view *v = cti_x(n, i);
        if (v && !cti_same_shape(v, &want))
            return cti_op_fail(n, CT_ESHAPE, "%s %s must have the normalized shape %s",
                               i == IN_WEIGHT ? "weight" : "bias", cti_shape_str(v, s, sizeof s),
                               cti_shape_str(&want, t, sizeof t));
    }
    return CT_OK;
}

int cti_rownorm_infer(cti_node *n)
{
    cti_rownorm *a = cti_attr_mut(n);
    int rc = cti_check_float(n, IN_X);
    rc = rc ? rc : cti_check_same_dtype(n);
    if (!rc && !(a->eps >= 0))
        rc = cti_op_fail(n, CT_EINVAL, "eps is %g: must be 0 or more", a->eps);
    rc = rc ? rc : check(n, a->dims, a->shape);
    return rc ? rc : cti_out_like(n, 0, IN_X);
}

static ct_rownorm_args args_of(const cti_rownorm *a, const ct_view *x)
{
    ct_rownorm_args args = {.x = *x, .n = 1, .eps = a->eps, .rms = a->rms};
    for (int i = 0; i < a->dims; i++)
        args.n *= a->shape[i];
    return args;
}

int cti_rownorm_forward(cti_node *n)
{
    const cti_rownorm *a = cti_attr(n);
    const ct_view *x = cti_x(n, IN_X);
    ct_rownorm_args args = args_of(a, x);
    int64_t rows = args.n ? ct_view_numel(x) / args.n : 0;
    ct_dtype stat = cti_stat_dtype(x->dtype);
    const ct_view *mean = cti_save_new(n, SAVE_MEAN, stat, 1, &rows);
    const ct_view *invstd = cti_save_new(n, SAVE_INVSTD, stat, 1, &rows);
    if (!mean || !invstd)
        return cti_pending(n);
    cti_save_in(n, SAVE_X, IN_X);
    if (cti_x(n, IN_WEIGHT))
        cti_save_in(n, SAVE_WEIGHT, IN_WEIGHT);
    args.y = *cti_y(n, 0);
    args.weight = cti_x(n, IN_WEIGHT);
    args.bias = cti_n_in(n) > IN_BIAS ? cti_x(n, IN_BIAS) : NULL;
    args.mean = *mean;
    args.invstd = *invstd;
    return cti_be(n)->norm->rownorm(cti_stream(n), &args);
}

/* v as [rows, n], dx of a parameter as [1, n]. */
static ct_view matrix(const ct_view *v, int64_t rows, int64_t n)
{
    return (ct_view){
        .data = v->data, .dtype = v->dtype, .ndim = 2, .shape = {rows, n}, .stride = {n, 1}};
}

static int sum_rows(cti_node *n, int input, const ct_view *m)
{
    int beta;
    const ct_view *dx = cti_dx(n, input, &beta);
    if (!dx)
        return cti_pending(n);
    ct_view flat = matrix(dx, 1, m->shape[1]);
    return cti_sum_into(n, &flat, beta, m, 1);
}

int cti_rownorm_backward(cti_node *n)
{
    const ct_view *x = cti_saved(n, SAVE_X), *dy = cti_dy_like(n, 0, x), *t = NULL, *dx = NULL;
    int beta = 0, rc = CT_OK;
    if (!dy)
        return cti_pending(n);
    ct_rownorm_args args = args_of(cti_attr(n), x);
    int64_t rows = args.n ? ct_view_numel(x) / args.n : 0;
    args.weight = cti_saved(n, SAVE_WEIGHT);
    args.mean = *cti_saved(n, SAVE_MEAN);
    args.invstd = *cti_saved(n, SAVE_INVSTD);
    bool wants_weight = cti_wants(n, IN_WEIGHT);
    if (wants_weight && !(t = cti_temp_like(n, x->dtype, x)))
        return cti_pending(n);
    if (cti_wants(n, IN_X) && !(dx = cti_dx(n, IN_X, &beta)))
        return cti_pending(n);
    if (dx || t)
        rc = cti_be(n)->norm->rownorm_grad(cti_stream(n), &args, dx, beta, t, dy);
    if (!rc && wants_weight) {
        ct_view m = matrix(t, rows, args.n);
        rc = sum_rows(n, IN_WEIGHT, &m);
    }
    if (!rc && cti_n_in(n) > IN_BIAS && cti_wants(n, IN_BIAS)) {
        ct_view m = matrix(dy, rows, args.n);
        rc = sum_rows(n, IN_BIAS, &m);
    }
    return rc;
}

/* Everything is made anew of x: so the statistics' own gradients count. */
int cti_rownorm_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_rownorm *a = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, SAVE_X), *w = cti_saved_tensor(n, SAVE_WEIGHT);
    int dims[CT_MAX_DIMS];
    for (int i = 0; i < a->dims; i++)
        dims[i] = i - a->dims;
    ct_tensor *centred = a->rms ? x : ct_sub(x, ct_mean(x, dims, a->dims, true));
    ct_tensor *invstd =
        ct_rsqrt(ct_affine(ct_mean(ct_square(centred), dims, a->dims, true), 1, a->eps));
    ct_tensor *xhat = ct_mul(centred, invstd), *g = w ? ct_mul(dy[0], w) : dy[0];
    if (cti_wants(n, IN_WEIGHT))
        dx[IN_WEIGHT] = cti_sum_to_input(n, ct_mul(dy[0], xhat), IN_WEIGHT);
    if (cti_n_in(n) > IN_BIAS && cti_wants(n, IN_BIAS))
        dx[IN_BIAS] = cti_sum_to_input(n, dy[0], IN_BIAS);
    if (!cti_wants(n, IN_X))
        return cti_pending(n);
    ct_tensor *along = ct_mul(xhat, ct_mean(ct_mul(g, xhat), dims, a->dims, true));
    ct_tensor *rest = a->rms ? g : ct_sub(g, ct_mean(g, dims, a->dims, true));
    dx[IN_X] = ct_mul(ct_sub(rest, along), invstd);
    return cti_pending(n);
}

ct_tensor *cti_apply_rownorm(const ct_op *op, ct_tensor *x, int dims, const int64_t *shape,
                             ct_tensor *weight, ct_tensor *bias, int n_in, double eps, bool rms)
{
    cti_rownorm a = {.eps = eps, .rms = rms, .dims = dims};
    ct_tensor *in[3] = {x, weight, bias};
    if (x && (dims < 1 || dims > CT_MAX_DIMS || !shape))
        return cti_raise(ct_tensor_ctx(x), op, CT_EINVAL,
                         "the normalized shape needs 1 to %d sizes", CT_MAX_DIMS);
    for (int i = 0; x && i < dims; i++)
        a.shape[i] = shape[i];
    for (int i = 0; x && i < 3; i++) { /* what the kernels need, on the record */
        if (in[i] && !(in[i] = ct_contiguous(in[i])))
            return NULL;
    }
    return cti_apply(op, &a, sizeof a, n_in, in);
}

/* ---- layer_norm ---- */

/* arg: how many dimensions, eps. */
static const ct_case cases[] = {
    {.name = "rows",
     .arg = {1, 1e-5},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 5), CT_IN(NORMAL, 5)}},
    {.name = "sequences",
     .arg = {1, 1e-3},
     .in = {CT_IN(NORMAL, 2, 3, 11), CT_IN(NORMAL, 11), CT_IN(NORMAL, 11)}},
    {.name = "images",
     .arg = {3, 1e-5},
     .in = {CT_IN(NORMAL, 2, 3, 4, 5), CT_IN(NORMAL, 3, 4, 5), CT_IN(NORMAL, 3, 4, 5)}},
    {.name = "no weight", .arg = {2, 1e-5}, .in = {CT_IN(NORMAL, 3, 4, 5)}},
    {.name = "no bias", .arg = {1, 1e-5}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 5)}},
    {.name = "frozen weight",
     .arg = {1, 1e-5},
     .in = {CT_IN(NORMAL, 7, 5), CT_IN_FIXED(NORMAL, 5), CT_IN(NORMAL, 5)}},
    {.name = "empty",
     .arg = {1, 1e-5},
     .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 5), CT_IN(NORMAL, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    const int64_t *end = c->in[0].shape + c->in[0].ndim;
    int dims = (int)c->arg[0];
    return ct_layer_norm(in[0], dims, end - dims, in[1], in[2], c->arg[1]);
}

const ct_op cti_op_layer_norm = {.name = "layer_norm",
                                 .torch_name = "NativeLayerNormBackward0",
                                 .optional = 6,
                                 .accumulates = 7,
                                 .autocast = CTI_F32,
                                 .infer = cti_rownorm_infer,
                                 .forward = cti_rownorm_forward,
                                 .backward = cti_rownorm_backward,
                                 .vjp = cti_rownorm_vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_layer_norm(ct_tensor *x, int dims, const int64_t *shape, ct_tensor *weight,
                         ct_tensor *bias, double eps)
{
    return cti_apply_rownorm(&cti_op_layer_norm, x, dims, shape, weight, bias, 3, eps, false);
}
