/* SPDX-License-Identifier: Apache-2.0 */
/* permute - dimension i of y is dimension dims[i] of x; also transpose. A view.
 * Gradient: dy permuted back. Oracle: torch.permute, transpose. */
#include "autograd/op.h"

typedef struct attrs {
    int ndim;
    int dims[CT_MAX_DIMS]; /* made non-negative by infer */
} attrs;

static int infer(cti_node *n)
{
    attrs *a = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    int64_t shape[CT_MAX_DIMS], stride[CT_MAX_DIMS];
    unsigned seen = 0;
    char s[64];
    if (a->ndim != x->ndim)
        return cti_op_fail(n, CT_EINVAL, "%d dims for x %s of %d dimensions", a->ndim,
                           cti_shape_str(x, s, sizeof s), x->ndim);
    for (int i = 0; i < a->ndim; i++) {
        int rc = cti_check_dim(n, 0, &a->dims[i]);
        if (rc)
            return rc;
        if (seen & (1U << a->dims[i]))
            return cti_op_fail(n, CT_EINVAL, "dimension %d is named twice in dims", a->dims[i]);
        seen |= 1U << a->dims[i];
        shape[i] = x->shape[a->dims[i]];
        stride[i] = x->stride[a->dims[i]];
    }
    return cti_out_view(n, 0, 0, a->ndim, shape, stride, 0);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const attrs *a = cti_attr(n);
    int back[CT_MAX_DIMS] = {0};
    for (int i = 0; i < a->ndim; i++)
        back[a->dims[i]] = i;
    dx[0] = ct_permute(dy[0], a->ndim, back);
    return cti_pending(n);
}

/* arg: ndim, dims...; ndim -1: transpose of the next two. */
static const ct_case cases[] = {
    {.name = "turn", .arg = {3, 2, 0, 1}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "negative", .arg = {4, 0, -2, -1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "transpose", .arg = {-1, 0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "transpose the last", .arg = {-1, -1, -2}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "scalar", .arg = {0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {2, 1, 0}, .in = {CT_IN(NORMAL, 0, 3)}},
    {.name = "bool", .arg = {2, 1, 0}, .in = {CT_IN(BOOL, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[CT_MAX_DIMS];
    if (c->arg[0] < 0)
        return ct_transpose(in[0], (int)c->arg[1], (int)c->arg[2]);
    for (int i = 0; i < CT_MAX_DIMS; i++)
        dims[i] = (int)c->arg[1 + i];
    return ct_permute(in[0], (int)c->arg[0], dims);
}

const ct_op cti_op_permute = {.name = "permute",
                              .torch_name = "PermuteBackward0",
                              .infer = infer,
                              .vjp = vjp,
                              CT_CASES(cases),
                              .call = call};

ct_tensor *ct_permute(ct_tensor *x, int ndim, const int *dims)
{
    attrs a = {.ndim = ndim};
    if (!x)
        return NULL;
    if (ndim < 0 || ndim > CT_MAX_DIMS || (ndim > 0 && !dims))
        return cti_raise(ct_tensor_ctx(x), &cti_op_permute, CT_EINVAL,
                         "ndim is %d: give x's %d dimensions", ndim, ct_tensor_ndim(x));
    for (int i = 0; i < ndim; i++)
        a.dims[i] = dims[i];
    return cti_apply(&cti_op_permute, &a, sizeof a, 1, &x);
}

ct_tensor *ct_transpose(ct_tensor *x, int dim0, int dim1)
{
    int dims[CT_MAX_DIMS], d[2] = {dim0, dim1};
    char s[96];
    if (!x)
        return NULL;
    int ndim = ct_tensor_ndim(x), n = ndim > 0 ? ndim : 1;
    for (int i = 0; i < 2; i++) {
        if (d[i] < -n || d[i] >= n)
            return cti_raise(ct_tensor_ctx(x), &cti_op_permute, CT_EINVAL,
                             "transpose: dimension %d of x %s must be from %d to %d", d[i],
                             ct_tensor_describe(x, s, sizeof s), -n, n - 1);
        d[i] += d[i] < 0 ? n : 0;
    }
    for (int i = 0; i < ndim; i++)
        dims[i] = i == d[0] ? d[1] : i == d[1] ? d[0] : i;
    return ct_permute(x, ndim, dims);
}
