/* SPDX-License-Identifier: Apache-2.0 */
/* mse_loss - (x - t)^2 as it is (none), summed, or averaged. Shape: broadcast(x, t), or a scalar.
 * The mean over nothing is NaN. Gradient: dx = 2 dy (x - t) / divisor, dt = -dx, each summed over
 * what was broadcast. Oracle: torch.nn.functional.mse_loss. */
#include "autograd/op.h"

#include <math.h>

static int infer(cti_node *n)
{
    ct_reduction r = *(const ct_reduction *)cti_attr(n);
    if ((unsigned)r > CT_REDUCE_MEAN)
        return cti_op_fail(n, CT_EINVAL, "reduction %d is none of CT_REDUCE_*", (int)r);
    if (r == CT_REDUCE_NONE)
        return cti_binary_infer(n, CT_DTYPE_COUNT, true);
    int ndim;
    int64_t shape[CT_MAX_DIMS];
    int rc = cti_check_float(n, 0);
    rc = rc ? rc : cti_check_same_dtype(n);
    rc = rc ? rc : cti_broadcast(n, 0, 1, &ndim, shape);
    return rc ? rc : cti_out(n, 0, cti_x(n, 0)->dtype, 0, NULL);
}

/* The shape in which the differences are kept: that of the operand which has the broadcast one. */
static ct_view difference(cti_node *n, const ct_view *x, const ct_view *t)
{
    ct_view d = {.dtype = x->dtype};
    cti_broadcast(n, 0, 1, &d.ndim, d.shape);
    cti_row_major(d.ndim, d.shape, d.stride);
    return cti_same_shape(x, &d) ? *x : cti_same_shape(t, &d) ? *t : d;
}

/* x - t in a temporary; NULL: recorded. */
static const ct_view *subtract(cti_node *n, const ct_view *x, const ct_view *t)
{
    ct_view like = difference(n, x, t);
    ct_view a = cti_view_expand(x, like.ndim, like.shape),
            b = cti_view_expand(t, like.ndim, like.shape);
    const ct_view *d = cti_temp_like(n, like.dtype, &like);
    int rc = d ? cti_be(n)->ew->binary(cti_stream(n), CT_BIN_SUB, d, &a, &b) : CT_OK;
    if (rc)
        cti_op_fail(n, rc, "subtracting failed (%s)", ct_status_name(rc));
    return rc ? NULL : d;
}

static int forward(cti_node *n)
{
    ct_reduction r = *(const ct_reduction *)cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    cti_save_in(n, 0, 0);
    cti_save_in(n, 1, 1);
    const ct_view *y = cti_y(n, 0), *d = subtract(n, cti_x(n, 0), cti_x(n, 1));
    if (!d)
        return cti_pending(n);
    int64_t numel = ct_view_numel(d);
    if (r == CT_REDUCE_NONE)
        return ew->unary(cti_stream(n), CT_UN_SQUARE, y, d);
    if (numel == 0)
        return ew->fill(cti_stream(n), y, r == CT_REDUCE_MEAN ? (double)NAN : 0);
    int rc = ew->unary(cti_stream(n), CT_UN_SQUARE, d, d);
    return rc ? rc : cti_sum_into(n, y, 0, d, r == CT_REDUCE_MEAN ? 1 / (double)numel : 1);
}

static int backward(cti_node *n)
{
    ct_reduction r = *(const ct_reduction *)cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    const ct_view *d = subtract(n, cti_saved(n, 0), cti_saved(n, 1)), *dy = cti_dy(n, 0);
    if (!d)
        return cti_pending(n);
    int64_t numel = ct_view_numel(d);
    double factor = r == CT_REDUCE_MEAN && numel ? 2 / (double)numel : 2;
    const ct_view *g = cti_temp_like(n, dy->dtype, dy);
    if (!g)
        return cti_pending(n);
    for (int i = 0; i < 2; i++) {
        int beta;
        const ct_view *dx = cti_wants(n, i) ? cti_dx(n, i, &beta) : NULL;
        if (!dx && cti_pending(n))
            return cti_pending(n);
        if (!dx)
            continue;
        int rc = ew->affine(cti_stream(n), g, 0, dy, i ? -factor : factor, 0);
        ct_view wide = cti_view_expand(g, d->ndim, d->shape);
        rc = rc ? rc : cti_mul_into(n, dx, beta, d, &wide);
        if (rc)
            return rc;
    }
    return CT_OK;
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_reduction r = *(const ct_reduction *)cti_attr(n);
    ct_tensor *d = ct_sub(cti_saved_tensor(n, 0), cti_saved_tensor(n, 1));
    double numel = d ? (double)ct_tensor_numel(d) : 0;
    ct_tensor *g = ct_mul(ct_affine(d, r == CT_REDUCE_MEAN && numel > 0 ? 2 / numel : 2, 0), dy[0]);
    if (cti_wants(n, 0))
        dx[0] = cti_sum_to_input(n, g, 0);
    if (cti_wants(n, 1))
        dx[1] = ct_neg(cti_sum_to_input(n, g, 1));
    return cti_pending(n);
}

/* arg: reduction (0 none, 1 sum, 2 mean). in: x, target. */
static const ct_case cases[] = {
    {.name = "mean", .arg = {2}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "sum", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "none", .arg = {0}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "mean, broadcast", .arg = {2}, .in = {CT_IN(NORMAL, 7, 1), CT_IN(NORMAL, 1, 5)}},
    {.name = "none, broadcast", .arg = {0}, .in = {CT_IN(NORMAL, 5), CT_IN(NORMAL, 7, 5)}},
    {.name = "target needs none", .arg = {2}, .in = {CT_IN(NORMAL, 7), CT_IN_FIXED(NORMAL, 7)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_mse_loss(in[0], in[1], (ct_reduction)c->arg[0]);
}

const ct_op cti_op_mse_loss = {.name = "mse_loss",
                               .torch_name = "MseLossBackward0",
                               .accumulates = 3,
                               .autocast = CTI_F32,
                               .infer = infer,
                               .forward = forward,
                               .backward = backward,
                               .vjp = vjp,
                               CT_CASES(cases),
                               .call = call};

ct_tensor *ct_mse_loss(ct_tensor *x, ct_tensor *target, ct_reduction reduction)
{
    return cti_apply(&cti_op_mse_loss, &reduction, sizeof reduction, 2, (ct_tensor *[]){x, target});
}
