/* SPDX-License-Identifier: Apache-2.0 */
/* cat - tensors one after the other along dim. Shape: equal but for dim, whose sizes add up. All of
 * one dtype, any. Channels-last if all are, else the stride order of the first.
 * Gradient: each its part of dy, a view. Oracle: torch.cat. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    int *dim = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    ct_view y = *x;
    bool channels_last = true;
    char s[64], t[64];
    int rc = cti_check_same_dtype(n);
    rc = rc ? rc : cti_check_dim(n, 0, dim);
    if (rc)
        return rc;
    if (x->ndim == 0)
        return cti_op_fail(n, CT_ESHAPE, "scalars can't be joined: ct_reshape them to [1]");
    for (int i = 0; i < cti_n_in(n); i++) {
        const ct_view *v = cti_x(n, i);
        bool fits = v->ndim == x->ndim;
        for (int d = 0; fits && d < x->ndim; d++)
            fits = d == *dim || v->shape[d] == x->shape[d];
        if (!fits)
            return cti_op_fail(n, CT_ESHAPE,
                               "tensor %d %s and tensor 0 %s differ outside dimension %d", i,
                               cti_shape_str(v, s, sizeof s), cti_shape_str(x, t, sizeof t), *dim);
        if (i > 0)
            y.shape[*dim] += v->shape[*dim];
        channels_last = channels_last && cti_view_channels_last(v);
    }
    return channels_last ? cti_out_channels_last(n, 0, x->dtype, y.shape) :
                           cti_out_shaped_like(n, 0, x->dtype, &y);
}

static int forward(cti_node *n)
{
    int dim = *(const int *)cti_attr(n);
    const ct_view *y = cti_y(n, 0);
    ct_view part = *y;
    for (int i = 0; i < cti_n_in(n); i++) {
        const ct_view *x = cti_x(n, i);
        part.shape[dim] = x->shape[dim];
        int rc = ct_view_numel(x) ? cti_be(n)->ew->copy(cti_stream(n), &part, x) : CT_OK;
        if (rc)
            return rc;
        part.data =
            (char *)part.data + (size_t)(x->shape[dim] * y->stride[dim]) * ct_dtype_bytes(y->dtype);
    }
    return CT_OK;
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    int dim = *(const int *)cti_attr(n);
    int64_t start = 0;
    for (int i = 0; i < cti_n_in(n); i++) {
        int64_t length = cti_in_meta(n, i)->shape[dim];
        if (cti_wants(n, i))
            dx[i] = ct_narrow(dy[0], dim, start, length);
        start += length;
    }
    return cti_pending(n);
}

/* arg: dim. in: the tensors. */
static const ct_case cases[] = {
    {.name = "rows", .arg = {0}, .in = {CT_IN(NORMAL, 2, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "three, last",
     .arg = {-1},
     .in = {CT_IN(NORMAL, 3, 1), CT_IN(NORMAL, 3, 4), CT_IN(NORMAL, 3, 2)}},
    {.name = "channels", .arg = {1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7), CT_IN(NORMAL, 2, 1, 5, 7)}},
    {.name = "one", .arg = {0}, .in = {CT_IN(NORMAL, 7)}},
    {.name = "empty", .arg = {0}, .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "int64", .arg = {0}, .in = {CT_IN(I64, 2), CT_IN(I64, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int n = 0;
    while (n < CT_CASE_MAX_IN && c->in[n].kind != CT_IN_NONE)
        n++;
    return ct_cat(in, n, (int)c->arg[0]);
}

const ct_op cti_op_cat = {.name = "cat",
                          .torch_name = "CatBackward0",
                          .infer = infer,
                          .forward = forward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_cat(ct_tensor *const *xs, int n, int dim)
{
    if (!xs || n < 1) /* no operand: no context to tell */
        return NULL;
    return cti_apply(&cti_op_cat, &dim, sizeof dim, n, xs);
}
