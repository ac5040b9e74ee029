/* SPDX-License-Identifier: Apache-2.0 */
/* sum - y = sum of x over `dims` (none: all). Shape: x's without the dims, or with 1 there
 * (keepdim). Integers and bool are summed into i64. Gradient: dy expanded, a view with strides 0.
 * Also here: what sum, mean and amax share. Oracle: torch.sum. */
#include "autograd/op.h"

ct_tensor *cti_apply_reduction(const ct_op *op, ct_reduce fn, ct_tensor *x, const int *dims,
                               int n_dims, bool keepdim)
{
    cti_reduction r = {.fn = fn, .keepdim = keepdim, .n_dims = n_dims};
    if (!x)
        return NULL;
    if (n_dims < 0 || n_dims > CT_MAX_DIMS || (n_dims > 0 && !dims))
        return cti_raise(ct_tensor_ctx(x), op, CT_EINVAL,
                         "n_dims is %d: give 0 (all) to %d dimensions, and dims", n_dims,
                         CT_MAX_DIMS);
    for (int i = 0; i < n_dims; i++)
        r.dims[i] = dims[i];
    return cti_apply(op, &r, sizeof r, 1, &x);
}

int cti_reduction_infer(cti_node *n, ct_dtype out)
{
    cti_reduction *r = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    int64_t shape[CT_MAX_DIMS];
    int ndim = 0;
    r->mask = r->n_dims == 0 ? (1U << x->ndim) - 1 : 0;
    for (int i = 0; i < r->n_dims; i++) {
        int dim = r->dims[i];
        if (x->ndim == 0 && (dim == 0 || dim == -1))
            continue; /* PyTorch takes these of a scalar */
        int rc = cti_check_dim(n, 0, &dim);
        if (rc)
            return rc;
        if (r->mask & (1U << dim))
            return cti_op_fail(n, CT_EINVAL, "dimension %d is named twice in dims", dim);
        r->mask |= 1U << dim;
    }
    r->count = 1;
    for (int i = 0; i < x->ndim; i++) {
        bool reduced = r->mask & (1U << i);
        if (reduced)
            r->count *= x->shape[i];
        if (!reduced || r->keepdim)
            shape[ndim++] = reduced ? 1 : x->shape[i];
    }
    return cti_out(n, 0, out, ndim, shape);
}

/* y as the kernel wants it: with 1 in the reduced dimensions. */
static ct_view restore_view(const cti_reduction *r, const ct_view *y, int ndim)
{
    ct_view v = {.data = y->data, .dtype = y->dtype, .ndim = ndim};
    for (int i = 0, k = 0; i < ndim; i++) {
        bool reduced = r->mask & (1U << i);
        bool there = !reduced || r->keepdim;
        v.shape[i] = reduced ? 1 : y->shape[k];
        v.stride[i] = there ? y->stride[k] : 0;
        k += there;
    }
    return v;
}

int cti_reduction_forward(cti_node *n, double scale)
{
    const cti_reduction *r = cti_attr(n);
    const ct_backend *be = cti_be(n);
    const ct_view *x = cti_x(n, 0);
    ct_view y = restore_view(r, cti_y(n, 0), x->ndim);
    size_t bytes = be->reduce->workspace(cti_stream(n), r->fn, &y, x);
    void *ws = cti_workspace(n, bytes);
    if (bytes && !ws)
        return cti_pending(n);
    return be->reduce->reduce(cti_stream(n), r->fn, &y, 0, x, scale, ws);
}

ct_tensor *cti_reduction_restore(cti_node *n, ct_tensor *y)
{
    const cti_reduction *r = cti_attr(n);
    const ct_view *x = cti_in_meta(n, 0);
    int64_t shape[CT_MAX_DIMS] = {0};
    if (r->keepdim || r->mask == 0)
        return y;
    for (int i = 0; i < x->ndim; i++)
        shape[i] = r->mask & (1U << i) ? 1 : x->shape[i];
    return ct_reshape(y, x->ndim, shape);
}

static int infer(cti_node *n)
{
    ct_dtype t = cti_x(n, 0)->dtype;
    if ((t == CT_F16 || t == CT_BF16) && !cti_is_compute_dtype(n, t))
        return cti_op_fail(n, CT_EDTYPE, "%s can't be summed: convert with ct_cast to float32",
                           ct_dtype_name(t));
    return cti_reduction_infer(n, ct_dtype_is_float(t) ? t : CT_I64);
}

static int forward(cti_node *n)
{
    return cti_reduction_forward(n, 1);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const ct_view *x = cti_in_meta(n, 0);
    dx[0] = ct_expand(cti_reduction_restore(n, dy[0]), x->ndim, x->shape);
    return cti_pending(n);
}

/* arg: keepdim, n_dims, dims... */
static const ct_case cases[] = {
    {.name = "all", .arg = {0, 0}, .in = {CT_IN(NORMAL, 3, 5, 7)}},
    {.name = "all, keepdim", .arg = {1, 0}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "last", .arg = {0, 1, -1}, .in = {CT_IN(NORMAL, 3, 5, 7)}},
    {.name = "first, keepdim", .arg = {1, 1, 0}, .in = {CT_IN(NORMAL, 33, 5)}},
    {.name = "all but channels", .arg = {0, 3, 0, 2, -1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {0, 0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {0, 1, 0}, .in = {CT_IN(NORMAL, 0, 5)}},
    {.name = "int64", .arg = {0, 1, 1}, .in = {CT_IN(I64, 3, 5)}},
    {.name = "bool", .arg = {0, 0}, .in = {CT_IN(BOOL, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int dims[3] = {(int)c->arg[2], (int)c->arg[3], (int)c->arg[4]};
    return ct_sum(in[0], dims, (int)c->arg[1], c->arg[0] != 0);
}

const ct_op cti_op_sum = {.name = "sum",
                          .torch_name = "SumBackward0",
                          .autocast = CTI_F32,
                          .infer = infer,
                          .forward = forward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_sum(ct_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return cti_apply_reduction(&cti_op_sum, CT_RED_SUM, x, dims, n_dims, keepdim);
}
