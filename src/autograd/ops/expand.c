/* SPDX-License-Identifier: Apache-2.0 */
/* expand - sizes of 1 are repeated and dimensions are added in front, by strides 0. A view.
 * Shape: as asked; -1 keeps a size. Gradient: dy summed over what was repeated. Oracle:
 * torch.expand. */
#include "autograd/op.h"

typedef struct attrs {
    int ndim;
    int64_t shape[CT_MAX_DIMS];
} attrs;

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, 0);
    ct_view y = {.ndim = a->ndim};
    int lead = a->ndim - x->ndim;
    char s[64], t[96];
    for (int i = 0; i < a->ndim; i++)
        y.shape[i] = a->shape[i];
    bool fits = lead >= 0;
    for (int i = 0; fits && i < a->ndim; i++) {
        if (y.shape[i] == -1 && i >= lead)
            y.shape[i] = x->shape[i - lead];
        fits = y.shape[i] >= 0 &&
               (i < lead || x->shape[i - lead] == 1 || x->shape[i - lead] == y.shape[i]);
    }
    if (!fits)
        return cti_op_fail(n, CT_ESHAPE,
                           "x %s into %s: only sizes of 1 grow, new dimensions come in front, -1 "
                           "keeps a size of x",
                           cti_shape_str(x, s, sizeof s), cti_shape_str(&y, t, sizeof t));
    y = cti_view_expand(x, a->ndim, y.shape);
    return cti_out_view(n, 0, 0, y.ndim, y.shape, y.stride, 0);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_sum_to_input(n, dy[0], 0);
    return cti_pending(n);
}

/* arg: ndim, shape... */
static const ct_case cases[] = {
    {.name = "rows", .arg = {2, 7, 5}, .in = {CT_IN(NORMAL, 1, 5)}},
    {.name = "new dimensions", .arg = {3, 2, 3, -1}, .in = {CT_IN(NORMAL, 5)}},
    {.name = "channels", .arg = {4, 2, -1, 5, 7}, .in = {CT_IN(NORMAL, 3, 1, 1)}},
    {.name = "scalar", .arg = {2, 3, 5}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "same", .arg = {2, 3, 5}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "empty", .arg = {2, 3, 0}, .in = {CT_IN(NORMAL, 1, 0)}},
    {.name = "to nothing", .arg = {2, 0, 5}, .in = {CT_IN(NORMAL, 1, 5)}},
    {.name = "int64", .arg = {2, 7, 5}, .in = {CT_IN(I64, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t shape[CT_MAX_DIMS];
    for (int i = 0; i < CT_MAX_DIMS; i++)
        shape[i] = (int64_t)c->arg[1 + i];
    return ct_expand(in[0], (int)c->arg[0], shape);
}

const ct_op cti_op_expand = {.name = "expand",
                             .torch_name = "ExpandBackward0",
                             .infer = infer,
                             .vjp = vjp,
                             CT_CASES(cases),
                             .call = call};

ct_tensor *ct_expand(ct_tensor *x, int ndim, const int64_t *shape)
{
    attrs a = {.ndim = ndim};
    if (!x)
        return NULL;
    if (ndim < 0 || ndim > CT_MAX_DIMS || (ndim > 0 && !shape))
        return cti_raise(ct_tensor_ctx(x), &cti_op_expand, CT_EINVAL,
                         "ndim is %d: give 0 to %d sizes", ndim, CT_MAX_DIMS);
    for (int i = 0; i < ndim; i++)
        a.shape[i] = shape[i];
    return cti_apply(&cti_op_expand, &a, sizeof a, 1, &x);
}
