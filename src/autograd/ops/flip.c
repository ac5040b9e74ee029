/* SPDX-License-Identifier: Apache-2.0 */
/* flip - the order of elements along dims turned round; a copy. All dtypes. Gradient: dy flipped. Oracle:
 * torch.flip. */
#include "autograd/op.h"

typedef struct attrs {
    int n;
    int dims[CT_MAX_DIMS];
} attrs;

static int infer(cti_node *n)
{
    attrs *a = cti_attr_mut(n);
    unsigned seen = 0;
    for (int i = 0; i < a->n; i++) {
        int rc = cti_check_dim(n, 0, &a->dims[i]);
        if (rc)
            return rc;
        if (seen >> a->dims[i] & 1)
            return cti_op_fail(n, CT_EINVAL, "dimension %d is named twice in dims", a->dims[i]);
        seen |= 1u << a->dims[i];
    }
    return cti_out_like(n, 0, 0);
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    ct_view from = *cti_x(n, 0);
    if (ct_view_numel(&from) == 0)
        return CT_OK;
    for (int i = 0; i < a->n && from.ndim > 0; i++) {
        int d = a->dims[i];
        from.data = (char *)from.data +
                    (from.shape[d] - 1) * from.stride[d] * (int64_t)ct_dtype_bytes(from.dtype);
        from.stride[d] = -from.stride[d];
    }
    return cti_be(n)->ew->copy(cti_stream(n), cti_y(n, 0), &from);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const attrs *a = cti_attr(n);
    dx[0] = ct_flip(dy[0], a->n, a->dims);
    return cti_pending(n);
}

/* arg: n, dims... */
static const ct_case cases[] = {
    {.name = "rows", .arg = {1, 0}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "columns", .arg = {1, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "both ways, channels", .arg = {2, 2, 3}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "all", .arg = {3, 0, 1, 2}, .in = {CT_IN(NORMAL, 2, 17, 19)}},
    {.name = "none", .arg = {0}, .in = {CT_IN(NORMAL, 5)}},
    {.name = "integers", .arg = {1, 0}, .in = {CT_IN(I64, 7)}},
    {.name = "scalar", .arg = {1, 0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {1, 0}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    const int dims[3] = {(int)c->arg[1], (int)c->arg[2], (int)c->arg[3]};
    return ct_flip(in[0], (int)c->arg[0], dims);
}

const ct_op cti_op_flip = {.name = "flip",
                           .torch_name = "FlipBackward0",
                           .infer = infer,
                           .forward = forward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_flip(ct_tensor *x, int n, const int *dims)
{
    attrs a = {.n = n};
    if (!x)
        return NULL;
    if (n < 0 || n > CT_MAX_DIMS || (n > 0 && !dims))
        return cti_raise(ct_tensor_ctx(x), &cti_op_flip, CT_EINVAL,
                         "%d dims for x of %d dimensions", n, ct_tensor_ndim(x));
    for (int i = 0; i < n; i++)
        a.dims[i] = dims[i];
    return cti_apply(&cti_op_flip, &a, sizeof a, 1, &x);
}
