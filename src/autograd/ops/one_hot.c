/* SPDX-License-Identifier: Apache-2.0 */
/* one_hot - y[.., c] = 1 where ids[..] is c, else 0; i64. Shape: ids (i64) of any shape -> ids' shape and `classes`. No
 * gradient. Oracle: torch.nn.functional.one_hot. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    const int64_t *classes = cti_attr(n);
    const ct_view *ids = cti_x(n, 0);
    int64_t shape[CT_MAX_DIMS];
    char s[64];
    int rc = cti_check_index_dtype(n, 0);
    if (rc)
        return rc;
    if (*classes < 1)
        return cti_op_fail(n, CT_EINVAL, "classes is %lld: must be 1 or more (it isn't guessed)",
                           (long long)*classes);
    if (ids->ndim == CT_MAX_DIMS)
        return cti_op_fail(n, CT_ESHAPE, "ids %s leave no dimension for the classes",
                           cti_shape_str(ids, s, sizeof s));
    for (int d = 0; d < ids->ndim; d++)
        shape[d] = ids->shape[d];
    shape[ids->ndim] = *classes;
    return cti_out(n, 0, CT_I64, ids->ndim + 1, shape);
}

static int forward(cti_node *n)
{
    const ct_view *y = cti_y(n, 0), *ids = cti_x(n, 0);
    ct_scatter_args args = {.y = *y, .value = 1, .index = *ids, .dim = ids->ndim, .skip = -1};
    args.index.shape[args.index.ndim] = args.index.stride[args.index.ndim] = 1;
    args.index.ndim++;
    int rc = cti_be(n)->ew->fill(cti_stream(n), y, 0);
    rc = rc ? rc : cti_check_indices(n, ids, y->shape[ids->ndim], ids->ndim);
    return rc ? rc : cti_be(n)->index->scatter(cti_stream(n), &args);
}

/* arg: classes. */
static const ct_case cases[] = {
    {.name = "vector", .arg = {5}, .in = {CT_IN_LABELS(5, 7)}},
    {.name = "more classes", .arg = {9}, .in = {CT_IN_LABELS(3, 2, 5)}},
    {.name = "scalar", .arg = {3}, .in = {{.kind = CT_IN_CLASS, .classes = 3}}},
    {.name = "empty", .arg = {3}, .in = {CT_IN_LABELS(3, 0, 2)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_one_hot(in[0], (int64_t)c->arg[0]);
}

const ct_op cti_op_one_hot = {.name = "one_hot",
                              .torch_name = "OneHotBackward0",
                              .infer = infer,
                              .forward = forward,
                              CT_CASES(cases),
                              .call = call};

ct_tensor *ct_one_hot(ct_tensor *ids, int64_t classes)
{
    return cti_apply(&cti_op_one_hot, &classes, sizeof classes, 1, &ids);
}
