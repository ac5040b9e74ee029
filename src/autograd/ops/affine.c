/* SPDX-License-Identifier: Apache-2.0 */
/* affine - y = mul x + add, with numbers. Shape: as x.
 * Gradient: dx = mul dy; dy itself when mul is 1. Oracle: torch's x * mul + add. */
#include "autograd/op.h"

#include <math.h>

typedef struct attrs {
    double mul, add;
} attrs;

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    ct_dtype t = cti_x(n, 0)->dtype;
    if (t == CT_I32 || t == CT_I64) {
        /* floor(x) == x is false for NaN, true for inf */
        if (!(floor(a->mul) == a->mul && floor(a->add) == a->add && isfinite(a->mul) &&
              isfinite(a->add)))
            return cti_op_fail(n, CT_EDTYPE,
                               "%s times %g plus %g is no integer: convert with ct_cast",
                               ct_dtype_name(t), a->mul, a->add);
    } else if (t != CT_F64 && !cti_is_compute_dtype(n, t)) {
        return cti_op_fail(n, CT_EDTYPE,
                           "takes float32, float64, int32 and int64, not %s: convert with ct_cast",
                           ct_dtype_name(t));
    }
    return cti_out_like(n, 0, 0);
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    return cti_be(n)->ew->affine(cti_stream(n), cti_y(n, 0), 0, cti_x(n, 0), a->mul, a->add);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const attrs *a = cti_attr(n);
    dx[0] = a->mul == 1 ? dy[0] : ct_affine(dy[0], a->mul, 0);
    return cti_pending(n);
}

/* arg: mul, add. */
static const ct_case cases[] = {
    {.name = "both", .arg = {-2.5, 0.75}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "add alone", .arg = {1, 3}, .in = {CT_IN(NORMAL, 37)}},
    {.name = "mul alone", .arg = {0.1, 0}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {2, 1}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {2, 1}, .in = {CT_IN(NORMAL, 3, 0)}},
    {.name = "int64", .arg = {-3, 2}, .in = {CT_IN(I64, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_affine(in[0], c->arg[0], c->arg[1]);
}

const ct_op cti_op_affine = {.name = "affine",
                             .torch_name = "MulBackward0",
                             .infer = infer,
                             .forward = forward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

ct_tensor *ct_affine(ct_tensor *x, double mul, double add)
{
    attrs a = {mul, add};
    return cti_apply(&cti_op_affine, &a, sizeof a, 1, &x);
}

ct_tensor *ct_affine_(ct_tensor *x, double mul, double add)
{
    attrs a = {mul, add};
    return cti_apply_inplace(&cti_op_affine, &a, sizeof a, 1, &x);
}
