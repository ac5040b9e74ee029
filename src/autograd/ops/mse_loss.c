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
static ct_view difference(cti_node *n)
{
    const ct_view *x = cti_x(n, 0), *t = cti_x(n, 1);
    ct_view d = {.dtype = x->dtype};
    cti_broadcast(n, 0, 1, &d.ndim, d.shape);
    cti_row_major(d.ndim, d.shape, d.stride);
    return cti_same_shape(x, &d) ? *x : cti_same_shape(t, &d) ? *t : d;
}

static int forward(cti_node *n)
{
    ct_reduction r = *(const ct_reduction *)cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    ct_view like = difference(n);
    int64_t numel = ct_view_numel(&like);
    ct_view x = cti_view_expand(cti_x(n, 0), like.ndim, like.shape);
    ct_view t = cti_view_expand(cti_x(n, 1), like.ndim, like.shape);
    const ct_view *d = cti_save_new_like(n, 0, like.dtype, &like);
    const ct_view *y = cti_y(n, 0), *sq = d;
    if (!d)
        return cti_pending(n);
    int rc = ew->binary(cti_stream(n), CT_BIN_SUB, d, &x, &t);
    if (rc)
        return rc;
    if (r == CT_REDUCE_NONE)
        return ew->unary(cti_stream(n), CT_UN_SQUARE, y, d);
    if (numel == 0)
        return ew->fill(cti_stream(n), y, r == CT_REDUCE_MEAN ? (double)NAN : 0);
    if (cti_recording(n)) /* else the differences aren't needed any more */
        sq = cti_temp_like(n, d->dtype, d);
    if (!sq)
        return cti_pending(n);
    rc = ew->unary(cti_stream(n), CT_UN_SQUARE, sq, d);
    return rc ? rc : cti_sum_into(n, y, 0, sq, r == CT_REDUCE_MEAN ? 1 / (double)numel : 1);
}

static int backward(cti_node *n)
{
    ct_reduction r = *(const ct_reduction *)cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    const ct_view *d = cti_saved(n, 0), *dy = cti_dy(n, 0);
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
                               .infer = infer,
                               .forward = forward,
                               .backward = backward,
                               CT_CASES(cases),
                               .call = call};

ct_tensor *ct_mse_loss(ct_tensor *x, ct_tensor *target, ct_reduction reduction)
{
    return cti_apply(&cti_op_mse_loss, &reduction, sizeof reduction, 2, (ct_tensor *[]){x, target});
}
