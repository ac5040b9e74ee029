/* SPDX-License-Identifier: Apache-2.0 */
/* diag_embed, diag - zeros with the last dimension of x on the diagonal `offset` of the new dimensions dim1 and dim2:
 * square, as large as it takes; of a vector, or a matrix' diagonal. All dtypes. Gradient: dy's diagonal. Oracle:
 * torch.diag_embed, diag. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    cti_diagonal *d = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    char s[64];
    if (d->ndim < 0) { /* the shape follows from x */
        int64_t size;
        if (x->ndim < 1 || x->ndim == CT_MAX_DIMS)
            return cti_op_fail(n, CT_ESHAPE, "x %s must have from 1 to %d dimensions",
                               cti_shape_str(x, s, sizeof s), CT_MAX_DIMS - 1);
        d->ndim = x->ndim + 1;
        int rc = cti_check_diagonal(n, d->ndim, d);
        if (rc)
            return rc;
        size = x->shape[x->ndim - 1] + (d->offset < 0 ? -d->offset : d->offset);
        for (int i = 0, k = 0; i < d->ndim; i++)
            d->shape[i] = i == d->dim1 || i == d->dim2 ? size : x->shape[k++];
    }
    return cti_out(n, 0, x->dtype, d->ndim, d->shape);
}

static int forward(cti_node *n)
{
    const ct_view *y = cti_y(n, 0);
    const ct_k_ew *ew = cti_be(n)->ew;
    int64_t start;
    ct_view to = cti_diagonal_view(y, cti_attr(n), &start);
    to.data = (char *)to.data + start * (int64_t)ct_dtype_bytes(y->dtype);
    int rc = ew->fill(cti_stream(n), y, 0);
    return rc || ct_view_numel(&to) == 0 ? rc : ew->copy(cti_stream(n), &to, cti_x(n, 0));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const cti_diagonal *d = cti_attr(n);
    dx[0] = ct_diagonal(dy[0], d->offset, d->dim1, d->dim2);
    return cti_pending(n);
}

/* arg: offset, dim1, dim2 (both 0: diag). */
static const ct_case cases[] = {
    {.name = "last two", .arg = {0, -2, -1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "above", .arg = {2, 0, 1}, .in = {CT_IN(NORMAL, 3)}},
    {.name = "below, apart", .arg = {-1, 0, 2}, .in = {CT_IN(NORMAL, 2, 3)}},
    {.name = "diag", .arg = {1, 0, 0}, .in = {CT_IN(NORMAL, 5)}},
    {.name = "diag of integers", .arg = {0, 0, 0}, .in = {CT_IN(I64, 3)}},
    {.name = "empty", .arg = {0, 0, 1}, .in = {CT_IN(NORMAL, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return c->arg[1] == c->arg[2] ?
               ct_diag(in[0], (int64_t)c->arg[0]) :
               ct_diag_embed(in[0], (int64_t)c->arg[0], (int)c->arg[1], (int)c->arg[2]);
}

const ct_op cti_op_diag_embed = {.name = "diag_embed",
                                 .torch_name = "DiagEmbedBackward0",
                                 .infer = infer,
                                 .forward = forward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *cti_diagonal_back(ct_tensor *dy, cti_diagonal d)
{
    return cti_apply(&cti_op_diag_embed, &d, sizeof d, 1, &dy);
}

ct_tensor *ct_diag_embed(ct_tensor *x, int64_t offset, int dim1, int dim2)
{
    cti_diagonal d = {.offset = offset, .dim1 = dim1, .dim2 = dim2, .ndim = -1};
    if (x && (offset > INT32_MAX || offset < -INT32_MAX))
        return cti_raise(ct_tensor_ctx(x), &cti_op_diag_embed, CT_EINVAL, "offset is %lld",
                         (long long)offset);
    return cti_diagonal_back(x, d);
}

ct_tensor *ct_diag(ct_tensor *x, int64_t diagonal)
{
    char s[96];
    if (x && ct_tensor_ndim(x) != 1 && ct_tensor_ndim(x) != 2)
        return cti_raise(ct_tensor_ctx(x), &cti_op_diag_embed, CT_ESHAPE,
                         "diag: x, %s, must be a vector or a matrix",
                         ct_tensor_describe(x, s, sizeof s));
    return x && ct_tensor_ndim(x) == 2 ? ct_diagonal(x, diagonal, 0, 1) :
                                         ct_diag_embed(x, diagonal, 0, 1);
}
