/* SPDX-License-Identifier: Apache-2.0 */
/* clamp - y = x between lo and hi, either may be absent; where lo > hi, hi. Shape: as x. Gradient: dx = dy
 * strictly between, 0 at the bounds and beyond. By tensors: minimum(maximum(x, lo), hi) with their gradients.
 * Oracle: torch.clamp (2.15; before mid-2026 the gradient at the bounds was 1). */
#include "autograd/op.h"

#include <math.h>

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_math *m = cti_attr(n);
    ct_tensor *x = cti_saved_tensor(n, 0), *none = ct_zeros_like(dy[0]);
    dx[0] = dy[0];
    if (!isnan(m->a))
        dx[0] = ct_where(ct_gt(x, ct_full_like(x, m->a)), dx[0], none);
    if (!isnan(m->b))
        dx[0] = ct_where(ct_lt(x, ct_full_like(x, m->b)), dx[0], none);
    return cti_pending(n);
}

/* arg: lo, hi, 1 without lo, 1 without hi. */
static const ct_case cases[] = {
    {.name = "both", .arg = {-0.5, 0.7}, .in = {CT_IN(NORMAL, 37)}},
    {.name = "from below", .arg = {-0.5, 0, 0, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "from above", .arg = {0, 0.5, 1, 0}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "lo above hi", .arg = {1, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "scalar", .arg = {-0.5, 0.7}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {0, 1}, .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_clamp(in[0], c->arg[2] != 0 ? NULL : &c->arg[0], c->arg[3] != 0 ? NULL : &c->arg[1]);
}

const ct_op cti_op_clamp = {.name = "clamp",
                            .torch_name = "ClampBackward1",
                            .accumulates = 1,
                            .infer = cti_unary_infer,
                            .forward = cti_math_forward,
                            .backward = cti_math_backward,
                            .vjp = vjp,
                            CT_CASES(cases),
                            .call = call};

static bool has_bounds(ct_tensor *x, const double *lo, const double *hi)
{
    bool wrong = x && ((!lo && !hi) || (lo && isnan(*lo)) || (hi && isnan(*hi)));
    if (wrong)
        cti_raise(ct_tensor_ctx(x), &cti_op_clamp, CT_EINVAL, "%s",
                  lo || hi ? "a bound is NaN" : "at least one of lo and hi is needed");
    return !wrong;
}

ct_tensor *ct_clamp(ct_tensor *x, const double *lo, const double *hi)
{
    if (!has_bounds(x, lo, hi))
        return NULL;
    return cti_apply_math(&cti_op_clamp, CT_MA_CLAMP, lo ? *lo : NAN, hi ? *hi : NAN, x);
}

ct_tensor *ct_clamp_(ct_tensor *x, const double *lo, const double *hi)
{
    if (!has_bounds(x, lo, hi))
        return NULL;
    return cti_apply_math_inplace(&cti_op_clamp, CT_MA_CLAMP, lo ? *lo : NAN, hi ? *hi : NAN, x);
}

ct_tensor *ct_clamp_tensor(ct_tensor *x, ct_tensor *lo, ct_tensor *hi)
{
    x = lo ? ct_maximum(x, lo) : x;
    return hi ? ct_minimum(x, hi) : cti_itself(x);
}
