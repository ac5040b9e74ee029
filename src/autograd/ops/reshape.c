/* SPDX-License-Identifier: Apache-2.0 */
/* reshape - x's elements in row-major order under another shape; also flatten, squeeze and
 * unsqueeze. Shape: as asked, one size may be -1. A view where PyTorch's rule gives one (each new
 * dimension lies in old ones that follow each other in memory), else of a contiguous copy.
 * Gradient: dy reshaped back. Oracle: torch.reshape, flatten, squeeze, unsqueeze. */
#include "autograd/op.h"

typedef struct attrs {
    int ndim;
    int64_t shape[CT_MAX_DIMS];
} attrs;

/* The strides of v's memory seen under `shape` (of as many elements); false: it must be copied.
 * PyTorch's computeStride. */
static bool view_strides(const ct_view *v, int ndim, const int64_t *shape, int64_t *stride)
{
    int d = ndim - 1;
    if (v->ndim == 0 || ct_view_numel(v) == 0) {
        cti_row_major(ndim, shape, stride);
        return true;
    }
    int64_t base = v->stride[v->ndim - 1], in = 1, out = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        in *= v->shape[i];
        if (i > 0 && (v->shape[i - 1] == 1 || v->stride[i - 1] == in * base))
            continue;
        /* dimensions i.. are one run of memory with step `base`: new ones must fill it exactly */
        for (; d >= 0 && (out < in || shape[d] == 1); d--) {
            stride[d] = out * base;
            out *= shape[d];
        }
        if (out != in)
            return false;
        if (i > 0)
            base = v->stride[i - 1];
        in = out = 1;
    }
    return d == -1;
}

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    int64_t stride[CT_MAX_DIMS];
    if (!view_strides(cti_x(n, 0), a->ndim, a->shape, stride))
        return cti_op_fail(n, CT_EINTERNAL, "no view of this shape exists");
    return cti_out_view(n, 0, 0, a->ndim, a->shape, stride, 0);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const ct_view *x = cti_in_meta(n, 0);
    dx[0] = ct_reshape(dy[0], x->ndim, x->shape);
    return cti_pending(n);
}

/* arg: 0 reshape, ndim, shape... | 1 flatten, start, end | 2 squeeze, dim | 3 unsqueeze, dim. */
static const ct_case cases[] = {
    {.name = "split", .arg = {0, 3, 2, 3, 5}, .in = {CT_IN(NORMAL, 6, 5)}},
    {.name = "join, -1", .arg = {0, 2, 4, -1}, .in = {CT_IN(NORMAL, 2, 2, 3, 5)}},
    {.name = "across", .arg = {0, 2, 5, 6}, .in = {CT_IN(NORMAL, 6, 5)}},
    {.name = "to a scalar", .arg = {0, 0}, .in = {CT_IN(NORMAL, 1, 1)}},
    {.name = "from a scalar", .arg = {0, 2, 1, 1}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {0, 2, 5, 0}, .in = {CT_IN(NORMAL, 0, 3)}},
    {.name = "flatten all but rows", .arg = {1, 1, -1}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "flatten all", .arg = {1, 0, -1}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "flatten a scalar", .arg = {1, 0, -1}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "squeeze", .arg = {2, -2}, .in = {CT_IN(NORMAL, 3, 1, 5)}},
    {.name = "squeeze, size not 1", .arg = {2, 0}, .in = {CT_IN(NORMAL, 3, 1)}},
    {.name = "unsqueeze", .arg = {3, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "unsqueeze at the end", .arg = {3, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "int64", .arg = {0, 1, -1}, .in = {CT_IN(I64, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t shape[CT_MAX_DIMS] = {0};
    for (int i = 0; i < CT_MAX_DIMS; i++)
        shape[i] = (int64_t)c->arg[2 + i];
    switch ((int)c->arg[0]) {
    case 0:
        return ct_reshape(in[0], (int)c->arg[1], shape);
    case 1:
        return ct_flatten(in[0], (int)c->arg[1], (int)c->arg[2]);
    case 2:
        return ct_squeeze(in[0], (int)c->arg[1]);
    default:
        return ct_unsqueeze(in[0], (int)c->arg[1]);
    }
}

const ct_op cti_op_reshape = {.name = "reshape",
                              .torch_name = "ViewBackward0",
                              .infer = infer,
                              .vjp = vjp,
                              CT_CASES(cases),
                              .call = call};

static const char *describe(const attrs *a, char *buf, size_t cap)
{
    ct_view v = {.ndim = a->ndim};
    for (int i = 0; i < a->ndim; i++)
        v.shape[i] = a->shape[i];
    return cti_shape_str(&v, buf, cap);
}

/* Fills in a size of -1, checks the number of elements. */
static int settle(ct_tensor *x, attrs *a)
{
    ct_ctx *ctx = ct_tensor_ctx(x);
    int64_t known = 1, numel = ct_tensor_numel(x);
    int free_dim = -1;
    char s[96], t[96];
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] < -1 || (a->shape[i] == -1 && free_dim >= 0)) {
            cti_raise(ctx, &cti_op_reshape, CT_EINVAL,
                      "shape %s: sizes are 0 or more, one may be -1", describe(a, t, sizeof t));
            return CT_EINVAL;
        }
        if (a->shape[i] == -1) {
            free_dim = i;
        } else if (a->shape[i] > 0 && known > INT64_MAX / a->shape[i]) {
            cti_raise(ctx, &cti_op_reshape, CT_ESHAPE, "shape %s has more elements than x has",
                      describe(a, t, sizeof t));
            return CT_ESHAPE;
        } else {
            known *= a->shape[i];
        }
    }
    if (free_dim >= 0 && known == 0) {
        cti_raise(ctx, &cti_op_reshape, CT_ESHAPE,
                  "x %s into %s: with a size of 0 the -1 could be anything",
                  ct_tensor_describe(x, s, sizeof s), describe(a, t, sizeof t));
        return CT_ESHAPE;
    }
    if (free_dim >= 0 ? numel % known != 0 : numel != known) {
        cti_raise(ctx, &cti_op_reshape, CT_ESHAPE, "x %s has %lld elements, %s doesn't",
                  ct_tensor_describe(x, s, sizeof s), (long long)numel, describe(a, t, sizeof t));
        return CT_ESHAPE;
    }
    if (free_dim >= 0)
        a->shape[free_dim] = numel / known;
    return CT_OK;
}

ct_tensor *ct_reshape(ct_tensor *x, int ndim, const int64_t *shape)
{
    attrs a = {.ndim = ndim};
    int64_t stride[CT_MAX_DIMS];
    if (!x)
        return NULL;
    if (ndim < 0 || ndim > CT_MAX_DIMS || (ndim > 0 && !shape))
        return cti_raise(ct_tensor_ctx(x), &cti_op_reshape, CT_EINVAL,
                         "ndim is %d: give 0 to %d sizes", ndim, CT_MAX_DIMS);
    for (int i = 0; i < ndim; i++)
        a.shape[i] = shape[i];
    if (settle(x, &a))
        return NULL;
    ct_view v = cti_meta(x);
    if (!view_strides(&v, a.ndim, a.shape, stride))
        x = ct_contiguous(x);
    return cti_apply(&cti_op_reshape, &a, sizeof a, 1, &x);
}

/* dim of 0..n-1 or negative, made non-negative; false with the error recorded. */
static bool place(ct_tensor *x, const char *who, int n, int *dim)
{
    char s[96];
    int at = *dim < 0 ? *dim + n : *dim;
    if (at < 0 || at >= n) {
        cti_raise(ct_tensor_ctx(x), &cti_op_reshape, CT_EINVAL,
                  "%s: dimension %d of x %s must be from %d to %d", who, *dim,
                  ct_tensor_describe(x, s, sizeof s), -n, n - 1);
        return false;
    }
    *dim = at;
    return true;
}

ct_tensor *ct_flatten(ct_tensor *x, int start_dim, int end_dim)
{
    int64_t shape[CT_MAX_DIMS];
    int k = 0;
    if (!x)
        return NULL;
    ct_view v = cti_meta(x);
    int n = v.ndim > 0 ? v.ndim : 1;
    if (!place(x, "flatten", n, &start_dim) || !place(x, "flatten", n, &end_dim))
        return NULL;
    if (start_dim > end_dim)
        return cti_raise(ct_tensor_ctx(x), &cti_op_reshape, CT_EINVAL,
                         "flatten: start_dim %d comes after end_dim %d", start_dim, end_dim);
    if (v.ndim == 0)
        return ct_reshape(x, 1, (const int64_t[]){1});
    for (int i = 0; i < v.ndim; i++) {
        if (i > start_dim && i <= end_dim)
            shape[k - 1] *= v.shape[i];
        else
            shape[k++] = v.shape[i];
    }
    return ct_reshape(x, k, shape);
}

ct_tensor *ct_squeeze(ct_tensor *x, int dim)
{
    int64_t shape[CT_MAX_DIMS];
    int k = 0;
    if (!x)
        return NULL;
    ct_view v = cti_meta(x);
    if (!place(x, "squeeze", v.ndim > 0 ? v.ndim : 1, &dim))
        return NULL;
    for (int i = 0; i < v.ndim; i++)
        if (i != dim || v.shape[i] != 1)
            shape[k++] = v.shape[i];
    return ct_reshape(x, k, shape);
}

ct_tensor *ct_unsqueeze(ct_tensor *x, int dim)
{
    int64_t shape[CT_MAX_DIMS + 1];
    char s[96];
    if (!x)
        return NULL;
    ct_view v = cti_meta(x);
    if (!place(x, "unsqueeze", v.ndim + 1, &dim))
        return NULL;
    if (v.ndim == CT_MAX_DIMS)
        return cti_raise(ct_tensor_ctx(x), &cti_op_reshape, CT_ESHAPE,
                         "unsqueeze: x %s has the most dimensions there can be, %d",
                         ct_tensor_describe(x, s, sizeof s), CT_MAX_DIMS);
    for (int i = 0, k = 0; i < v.ndim + 1; i++)
        shape[i] = i == dim ? 1 : v.shape[k++];
    return ct_reshape(x, v.ndim + 1, shape);
}
