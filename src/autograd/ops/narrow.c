/* SPDX-License-Identifier: Apache-2.0 */
/* narrow - elements [start, start + length) of dim. A view. A negative start counts from the end.
 * Gradient: zeros of x's shape with dy in that place. Oracle: torch.narrow. */
#include "autograd/op.h"

typedef struct attrs {
    int dim;
    int64_t start, length;
} attrs;

static int infer(cti_node *n)
{
    attrs *a = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    int64_t shape[CT_MAX_DIMS];
    char s[64];
    int rc = cti_check_dim(n, 0, &a->dim);
    if (rc)
        return rc;
    if (x->ndim == 0)
        return cti_op_fail(n, CT_ESHAPE, "x is a scalar: it has no dimension to take from");
    int64_t size = x->shape[a->dim], start = a->start < 0 ? a->start + size : a->start;
    if (start < 0 || start > size || a->length < 0 || a->length > size - start)
        return cti_op_fail(
            n, CT_EINVAL, "%lld elements from %lld do not lie in dimension %d of x %s",
            (long long)a->length, (long long)a->start, a->dim, cti_shape_str(x, s, sizeof s));
    a->start = start;
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == a->dim ? a->length : x->shape[i];
    int64_t offset = ct_view_numel(x) == 0 ? 0 : start * x->stride[a->dim];
    return cti_out_view(n, 0, 0, x->ndim, shape, x->stride, offset);
}

static int backward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_k_ew *ew = cti_be(n)->ew;
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta), *dy = cti_dy(n, 0);
    if (!dx)
        return cti_pending(n);
    if (!beta) {
        int rc = ew->fill(cti_stream(n), dx, 0);
        if (rc)
            return rc;
    }
    if (ct_view_numel(dy) == 0)
        return CT_OK;
    ct_view part = *dx;
    part.shape[a->dim] = a->length;
    part.data =
        (char *)dx->data + (size_t)(a->start * dx->stride[a->dim]) * ct_dtype_bytes(dx->dtype);
    return beta ? ew->affine(cti_stream(n), &part, 1, dy, 1, 0) :
                  ew->copy(cti_stream(n), &part, dy);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_in_meta(n, 0);
    int64_t pads[2 * CT_MAX_DIMS] = {0};
    int at = 2 * (x->ndim - 1 - a->dim);
    pads[at] = a->start;
    pads[at + 1] = x->shape[a->dim] - a->start - a->length;
    dx[0] = cti_constant_pad(dy[0], at + 2, pads, 0);
    return cti_pending(n);
}

/* arg: dim, start, length. */
static const ct_case cases[] = {
    {.name = "rows", .arg = {0, 2, 3}, .in = {CT_IN(NORMAL, 7, 5)}},
    {.name = "columns", .arg = {-1, 1, 4}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "from the end", .arg = {1, -2, 2}, .in = {CT_IN(NORMAL, 2, 5, 3)}},
    {.name = "channels", .arg = {1, 1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "nothing", .arg = {0, 7, 0}, .in = {CT_IN(NORMAL, 7, 5)}},
    {.name = "empty", .arg = {1, 1, 2}, .in = {CT_IN(NORMAL, 0, 5)}},
    {.name = "int64", .arg = {0, 1, 2}, .in = {CT_IN(I64, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_narrow(in[0], (int)c->arg[0], (int64_t)c->arg[1], (int64_t)c->arg[2]);
}

const ct_op cti_op_narrow = {.name = "narrow",
                             .torch_name = "SliceBackward0",
                             .accumulates = 1,
                             .infer = infer,
                             .backward = backward,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

ct_tensor *ct_narrow(ct_tensor *x, int dim, int64_t start, int64_t length)
{
    attrs a = {dim, start, length};
    return cti_apply(&cti_op_narrow, &a, sizeof a, 1, &x);
}
