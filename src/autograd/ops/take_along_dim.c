/* SPDX-License-Identifier: Apache-2.0 */
/* take_along_dim - gather with x and index broadcast to each other outside dim; negative indices count from the
 * end. A formula of expand, arithmetic and gather. Oracle: torch.take_along_dim. */
#include "autograd/op.h"

/* arg: dim. in: x, index. */
static const ct_case cases[] = {
    {.name = "columns", .arg = {1}, .in = {CT_IN(NORMAL, 5, 7), CT_IN_LABELS(7, 5, 3)}},
    {.name = "one index for all",
     .arg = {-1},
     .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN_LABELS(5, 1, 1, 4)}},
    {.name = "one x for all", .arg = {0}, .in = {CT_IN(NORMAL, 5, 1), CT_IN_LABELS(5, 3, 7)}},
    {.name = "from the end", .arg = {0}, .in = {CT_IN(NORMAL, 9, 2), CT_IN(I64, 7, 2)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 5), CT_IN_LABELS(5, 1, 2)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_take_along_dim(in[0], in[1], (int)c->arg[0]);
}

const ct_op cti_op_take_along_dim = {.name = "take_along_dim", CT_CASES(cases), .call = call};

/* index + size where it is in [-size, 0). */
static ct_tensor *wrapped(ct_tensor *index, int64_t size)
{
    if (ct_tensor_dtype(index) != CT_I64) /* gather says what is wrong */
        return index;
    ct_tensor *below = ct_lt(index, ct_zeros_like(index));
    ct_tensor *within = ct_ge(index, ct_full_like(index, -(double)size));
    if (!below || !within)
        return NULL;
    ct_tensor *both = ct_mul(ct_cast(below, CT_I64), ct_cast(within, CT_I64));
    return both ? ct_add(index, ct_affine(both, (double)size, 0)) : NULL;
}

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
    index = wrapped(index, xs[dim]);
    return index ? ct_gather(ct_expand(x, ndim, xs), dim, ct_expand(index, ndim, is)) : NULL;
}
