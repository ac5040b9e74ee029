/* SPDX-License-Identifier: Apache-2.0 */
/* arange, linspace - first, first + step, ... (below `end`); `steps` numbers from start to end, both among them. A
 * vector of f32, f64, i32, i64, or by way of f32 of bf16 and f16. No gradient. Oracle: torch.arange, linspace. */
#include "autograd/op.h"

#include <math.h>

typedef struct attrs {
    int64_t n;
    double first, last, step;
} attrs;

static int infer(cti_node *n)
{
    return cti_out(n, 0, cti_x(n, 0)->dtype, 1, &((const attrs *)cti_attr(n))->n);
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    return cti_be(n)->index->iota(cti_stream(n), cti_y(n, 0), a->first, a->last, a->step);
}

/* arg: 0 arange, 1 linspace; start, end, step or steps. in: of the dtype. */
static const ct_case cases[] = {
    {.name = "integers", .arg = {0, 0, 7, 1}, .in = {CT_IN(I64, 1)}},
    {.name = "integers, downwards", .arg = {0, 5, -6, -3}, .in = {CT_IN(I64, 1)}},
    {.name = "floats", .arg = {0, -1, 2.1, 0.25}, .in = {CT_IN(NORMAL, 1)}},
    {.name = "linspace", .arg = {1, -3, 4, 9}, .in = {CT_IN(NORMAL, 1)}},
    {.name = "linspace, one", .arg = {1, 2, 4, 1}, .in = {CT_IN(NORMAL, 1)}},
    {.name = "empty", .arg = {0, 3, 3, 1}, .in = {CT_IN(NORMAL, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    if (!in[0])
        return NULL;
    ct_ctx *ctx = ct_tensor_ctx(in[0]);
    ct_dtype t = ct_tensor_dtype(in[0]);
    return c->arg[0] ? ct_linspace(ctx, t, c->arg[1], c->arg[2], (int64_t)c->arg[3]) :
                       ct_arange(ctx, t, c->arg[1], c->arg[2], c->arg[3]);
}

const ct_op cti_op_arange = {.name = "arange",
                             .torch_name = "ArangeBackward0",
                             .infer = infer,
                             .forward = forward,
                             CT_CASES(cases),
                             .call = call};

ct_tensor *cti_apply_new(const ct_op *op, const void *attr, size_t bytes, ct_ctx *ctx,
                         ct_dtype dtype)
{
    ct_tensor *x = ctx ? ct_tensor_new(ctx, dtype, 0, NULL) : NULL;
    ct_tensor *y = x ? cti_apply(op, attr, bytes, 1, &x) : NULL;
    ct_tensor_release(x);
    return y;
}

static ct_tensor *numbers(ct_ctx *ctx, ct_dtype dtype, attrs a)
{
    if (dtype != CT_BF16 && dtype != CT_F16)
        return cti_apply_new(&cti_op_arange, &a, sizeof a, ctx, dtype);
    return ct_cast(cti_apply_new(&cti_op_arange, &a, sizeof a, ctx, CT_F32), dtype);
}

static bool numeric(ct_dtype t)
{
    return t == CT_I32 || t == CT_I64 || ct_dtype_is_float(t);
}

ct_tensor *ct_arange(ct_ctx *ctx, ct_dtype dtype, double start, double end, double step)
{
    double n = ceil((end - start) / step);
    if (!numeric(dtype))
        return cti_raise(ctx, &cti_op_arange, CT_EDTYPE,
                         "%s isn't possible: floats, int32 and int64", ct_dtype_name(dtype));
    if (!(step != 0 && n >= 0 && n < 0x1p53))
        return cti_raise(ctx, &cti_op_arange, CT_EINVAL,
                         "from %g to %g by %g: step must lead from start to end", start, end, step);
    return numbers(ctx, dtype, (attrs){(int64_t)n, start, start + (n - 1) * step, step});
}

ct_tensor *ct_linspace(ct_ctx *ctx, ct_dtype dtype, double start, double end, int64_t steps)
{
    if (!numeric(dtype))
        return cti_raise(ctx, &cti_op_arange, CT_EDTYPE,
                         "%s isn't possible: floats, int32 and int64", ct_dtype_name(dtype));
    if (steps < 0)
        return cti_raise(ctx, &cti_op_arange, CT_EINVAL, "linspace: %lld steps", (long long)steps);
    attrs a = {steps, start, steps > 1 ? end : start, 0};
    a.step = steps > 1 ? (end - start) / (double)(steps - 1) : 0;
    return numbers(ctx, dtype, a);
}
