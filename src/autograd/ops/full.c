/* SPDX-License-Identifier: Apache-2.0 */
/* full - one value everywhere: in the shape of x (full_like, zeros_like, ones_like) or in another one (new_full);
 * x's dtype. No gradient. Oracle: torch.full_like, Tensor.new_full. */
#include "autograd/op.h"

typedef struct attrs {
    double value;
    int ndim; /* -1: as x */
    int64_t shape[CT_MAX_DIMS];
} attrs;

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    return a->ndim < 0 ? cti_out_like(n, 0, 0) :
                         cti_out(n, 0, cti_x(n, 0)->dtype, a->ndim, a->shape);
}

static int forward(cti_node *n)
{
    return cti_be(n)->ew->fill(cti_stream(n), cti_y(n, 0), ((const attrs *)cti_attr(n))->value);
}

/* arg: value, ndim (-1: as x), shape... */
static const ct_case cases[] = {
    {.name = "like", .arg = {2.5, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "zeros, channels", .arg = {0, -1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "another shape", .arg = {1, 2, 4, 3}, .in = {CT_IN(NORMAL, 5)}},
    {.name = "integers", .arg = {7, 1, 3}, .in = {CT_IN(I64, 2)}},
    {.name = "bool", .arg = {1, -1}, .in = {CT_IN(BOOL, 2)}},
    {.name = "empty", .arg = {1, -1}, .in = {CT_IN(NORMAL, 0, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t shape[CT_MAX_DIMS];
    for (int i = 0; i < CT_MAX_DIMS; i++)
        shape[i] = (int64_t)c->arg[2 + i];
    return c->arg[1] < 0 ? ct_full_like(in[0], c->arg[0]) :
                           ct_new_full(in[0], (int)c->arg[1], shape, c->arg[0]);
}

const ct_op cti_op_full = {.name = "full",
                           .torch_name = "FullLikeBackward0",
                           .makes_inf = true,
                           .infer = infer,
                           .forward = forward,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_new_full(ct_tensor *x, int ndim, const int64_t *shape, double value)
{
    attrs a = {.value = value, .ndim = ndim};
    if (!x)
        return NULL;
    bool fits = ndim >= 0 && ndim <= CT_MAX_DIMS && (ndim == 0 || shape);
    for (int i = 0; fits && i < ndim; i++) {
        a.shape[i] = shape[i];
        fits = shape[i] >= 0;
    }
    if (!fits)
        return cti_raise(ct_tensor_ctx(x), &cti_op_full, CT_EINVAL,
                         "a shape of 0 to %d sizes of 0 or more is needed", CT_MAX_DIMS);
    return cti_apply(&cti_op_full, &a, sizeof a, 1, &x);
}

ct_tensor *ct_full_like(ct_tensor *x, double value)
{
    attrs a = {.value = value, .ndim = -1};
    return cti_apply(&cti_op_full, &a, sizeof a, 1, &x);
}

ct_tensor *ct_zeros_like(ct_tensor *x)
{
    return ct_full_like(x, 0);
}

ct_tensor *ct_ones_like(ct_tensor *x)
{
    return ct_full_like(x, 1);
}
