/* SPDX-License-Identifier: Apache-2.0 */
/* take_along_dim - gather with x and index broadcast to each other outside dim. A formula of expand and gather.
 * Oracle: torch.take_along_dim. */
#include "autograd/op.h"

/* arg: dim. in: x, index. */
static const ct_case cases[] = {
    {.name = "columns", .arg = {1}, .in = {CT_IN(NORMAL, 5, 7), CT_IN_LABELS(7, 5, 3)}},
    {.name = "one index for all",
     .arg = {-1},
     .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN_LABELS(5, 1, 1, 4)}},
    {.name = "one x for all", .arg = {0}, .in = {CT_IN(NORMAL, 5, 1), CT_IN_LABELS(5, 3, 7)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5), CT_IN_LABELS(5, 1, 2)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_take_along_dim(in[0], in[1], (int)c->arg[0]);
}

const ct_op cti_op_take_along_dim = {.name = "take_along_dim", CT_CASES(cases), .call = call};

ct_tensor *ct_take_along_dim(ct_tensor *x, ct_tensor *index, int dim)
{
    int64_t xs[CT_MAX_DIMS], is[CT_MAX_DIMS];
    char s[96], t[96];
    if (!x || !index)
        return ct_gather(x, dim, index);
    int ndim = ct_tensor_ndim(x);
    if (!cti_wrap_dim(x, &cti_op_take_along_dim, &dim))
        return NULL;
    bool fits = ct_tensor_ndim(index) == ndim;
    for (int d = 0; fits && d < ndim; d++) {
        xs[d] = ct_tensor_shape(x)[d];
        is[d] = ct_tensor_shape(index)[d];
        if (d == dim)
            continue;
        fits = xs[d] == is[d] || xs[d] == 1 || is[d] == 1;
        xs[d] = is[d] = xs[d] == 1 ? is[d] : xs[d];
    }
    if (!fits)
        return cti_raise(ct_tensor_ctx(x), &cti_op_take_along_dim, CT_ESHAPE,
                         "index, %s, and x, %s, don't broadcast outside dimension %d",
                         ct_tensor_describe(index, s, sizeof s), ct_tensor_describe(x, t, sizeof t),
                         dim);
    return ct_gather(ct_expand(x, ndim, xs), dim, ct_expand(index, ndim, is));
}
