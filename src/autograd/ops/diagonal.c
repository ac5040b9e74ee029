/* SPDX-License-Identifier: Apache-2.0 */
/* diagonal - the elements of dim1 and dim2 whose column - row is `offset`, as a new last dimension. A view. All
 * dtypes. Gradient: diag_embed of dy. Oracle: torch.diagonal. */
#include "autograd/op.h"

ct_view cti_diagonal_view(const ct_view *x, const cti_diagonal *d, int64_t *start)
{
    const int64_t row = x->stride[d->dim1], column = x->stride[d->dim2], o = d->offset;
    int64_t rows = x->shape[d->dim1] + (o < 0 ? o : 0),
            columns = x->shape[d->dim2] - (o > 0 ? o : 0);
    ct_view v = {.data = x->data, .dtype = x->dtype};
    for (int i = 0; i < x->ndim; i++) {
        if (i == d->dim1 || i == d->dim2)
            continue;
        v.shape[v.ndim] = x->shape[i];
        v.stride[v.ndim++] = x->stride[i];
    }
    int64_t n = rows < columns ? rows : columns;
    v.shape[v.ndim] = n > 0 ? n : 0;
    v.stride[v.ndim++] = row + column;
    *start = ct_view_numel(&v) == 0 ? 0 : o > 0 ? o * column : -o * row;
    return v;
}

int cti_check_diagonal(cti_node *n, int ndim, cti_diagonal *d)
{
    int *dims[2] = {&d->dim1, &d->dim2};
    for (int i = 0; i < 2; i++) {
        if (*dims[i] < -ndim || *dims[i] >= ndim)
            return cti_op_fail(n, CT_EINVAL, "dimension %d is out of range; allowed: %d to %d",
                               *dims[i], -ndim, ndim - 1);
        *dims[i] += *dims[i] < 0 ? ndim : 0;
    }
    return d->dim1 != d->dim2 ?
               CT_OK :
               cti_op_fail(n, CT_EINVAL, "dim1 and dim2 are both %d: two dimensions are needed",
                           d->dim1);
}

static int infer(cti_node *n)
{
    cti_diagonal *d = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    char s[64];
    int64_t start;
    if (x->ndim < 2)
        return cti_op_fail(n, CT_ESHAPE, "x %s has no two dimensions",
                           cti_shape_str(x, s, sizeof s));
    int rc = cti_check_diagonal(n, x->ndim, d);
    if (rc)
        return rc;
    ct_view v = cti_diagonal_view(x, d, &start);
    return cti_out_view(n, 0, 0, v.ndim, v.shape, v.stride, start);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    cti_diagonal d = *(const cti_diagonal *)cti_attr(n);
    const ct_view *x = cti_in_meta(n, 0);
    d.ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++)
        d.shape[i] = x->shape[i];
    dx[0] = cti_diagonal_back(dy[0], d);
    return cti_pending(n);
}

/* arg: offset, dim1, dim2. */
static const ct_case cases[] = {
    {.name = "square", .arg = {0, 0, 1}, .in = {CT_IN(NORMAL, 5, 5)}},
    {.name = "above", .arg = {2, 0, 1}, .in = {CT_IN(NORMAL, 3, 7)}},
    {.name = "below, batches", .arg = {-1, -1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "none", .arg = {9, 0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "integers", .arg = {0, 0, 1}, .in = {CT_IN(I64, 3, 2)}},
    {.name = "empty", .arg = {0, 1, 2}, .in = {CT_IN(NORMAL, 0, 3, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_diagonal(in[0], (int64_t)c->arg[0], (int)c->arg[1], (int)c->arg[2]);
}

const ct_op cti_op_diagonal = {.name = "diagonal",
                               .torch_name = "DiagonalBackward0",
                               .infer = infer,
                               .vjp = vjp,
                               CT_CASES(cases),
                               .call = call};

ct_tensor *ct_diagonal(ct_tensor *x, int64_t offset, int dim1, int dim2)
{
    cti_diagonal d = {.offset = offset, .dim1 = dim1, .dim2 = dim2};
    if (x && (offset > INT32_MAX || offset < -INT32_MAX))
        return cti_raise(ct_tensor_ctx(x), &cti_op_diagonal, CT_EINVAL, "offset is %lld",
                         (long long)offset);
    return cti_apply(&cti_op_diagonal, &d, sizeof d, 1, &x);
}
