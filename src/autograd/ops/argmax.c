/* SPDX-License-Identifier: Apache-2.0 */
/* argmax - y = index (i64) along dim of the first largest element; NaN is largest. Shape: x's
 * without dim, or with 1 there (keepdim). No gradient: the output never requires one. Oracle:
 * torch.argmax. */
#include "autograd/op.h"

typedef struct attrs {
    int dim;
    bool keepdim;
} attrs;

static int infer(cti_node *n)
{
    attrs *a = cti_attr_mut(n);
    const ct_view *x = cti_x(n, 0);
    int64_t shape[CT_MAX_DIMS];
    int ndim = 0;
    char s[64];
    int rc = cti_check_float(n, 0);
    if (rc)
        return rc;
    if (x->ndim == 0 && (a->dim == 0 || a->dim == -1))
        return cti_out(n, 0, CT_I64, 0, NULL);
    rc = cti_check_dim(n, 0, &a->dim);
    if (rc)
        return rc;
    if (x->shape[a->dim] == 0)
        return cti_op_fail(n, CT_ESHAPE, "largest of nothing: dimension %d of x %s has size 0",
                           a->dim, cti_shape_str(x, s, sizeof s));
    for (int i = 0; i < x->ndim; i++)
        if (i != a->dim || a->keepdim)
            shape[ndim++] = i == a->dim ? 1 : x->shape[i];
    return cti_out(n, 0, CT_I64, ndim, shape);
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, 0), *y = cti_y(n, 0);
    if (x->ndim == 0)
        return cti_be(n)->ew->fill(cti_stream(n), y, 0);
    ct_view keep = {.data = y->data, .dtype = y->dtype, .ndim = x->ndim};
    for (int i = 0, k = 0; i < x->ndim; i++) {
        bool there = i != a->dim || a->keepdim;
        keep.shape[i] = i == a->dim ? 1 : x->shape[i];
        keep.stride[i] = there ? y->stride[k] : 0;
        k += there;
    }
    return cti_be(n)->reduce->argmax(cti_stream(n), &keep, x, a->dim);
}

/* arg: dim, keepdim. */
static const ct_case cases[] = {
    {.name = "last", .arg = {-1, 0}, .in = {CT_IN(DISTINCT, 7, 10)}},
    {.name = "first, keepdim", .arg = {0, 1}, .in = {CT_IN(DISTINCT, 7, 3, 5)}},
    {.name = "channels", .arg = {1, 0}, .in = {CT_IN(DISTINCT, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {0, 0}, .in = {CT_IN_SCALAR(DISTINCT)}},
    {.name = "empty", .arg = {1, 0}, .in = {CT_IN(DISTINCT, 0, 10)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_argmax(in[0], (int)c->arg[0], c->arg[1] != 0);
}

const ct_op cti_op_argmax = {.name = "argmax",
                             .torch_name = "ArgmaxBackward0",
                             .infer = infer,
                             .forward = forward,
                             CT_CASES(cases),
                             .call = call};

ct_tensor *ct_argmax(ct_tensor *x, int dim, bool keepdim)
{
    attrs a = {dim, keepdim};
    return cti_apply(&cti_op_argmax, &a, sizeof a, 1, &x);
}
