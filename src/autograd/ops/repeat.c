/* SPDX-License-Identifier: Apache-2.0 */
/* repeat, tile, repeat_interleave - x several times along its dimensions: as a whole, or each element. Formulas of
 * reshape and expand. Shape: dimension d has repeats[d] * size elements. Oracle: torch.Tensor.repeat, tile,
 * repeat_interleave. */
#include "autograd/op.h"

/* arg: 0 repeat, 1 tile, 2 repeat_interleave; n and repeats...; repeats, dim. */
static const ct_case cases[] = {
    {.name = "repeat", .arg = {0, 2, 2, 3}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "repeat, new dimension", .arg = {0, 3, 2, 1, 3}, .in = {CT_IN(NORMAL, 2, 3)}},
    {.name = "repeat once", .arg = {0, 1, 1}, .in = {CT_IN(NORMAL, 3)}},
    {.name = "repeat no times", .arg = {0, 2, 0, 2}, .in = {CT_IN(NORMAL, 3, 2)}},
    {.name = "repeat, empty", .arg = {0, 2, 2, 2}, .in = {CT_IN(NORMAL, 0, 3)}},
    {.name = "tile", .arg = {1, 1, 2}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "tile, scalar", .arg = {1, 2, 2, 3}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "interleave rows", .arg = {2, 3, 0}, .in = {CT_IN(NORMAL, 2, 5)}},
    {.name = "interleave the last", .arg = {2, 2, -1}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "interleave integers", .arg = {2, 2, 0}, .in = {CT_IN(I64, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t repeats[4];
    if (c->arg[0] == 2)
        return ct_repeat_interleave(in[0], (int64_t)c->arg[1], (int)c->arg[2]);
    for (int i = 0; i < 4; i++)
        repeats[i] = (int64_t)c->arg[2 + i];
    return (c->arg[0] ? ct_tile : ct_repeat)(in[0], (int)c->arg[1], repeats);
}

const ct_op cti_op_repeat = {.name = "repeat", CT_CASES(cases), .call = call};

static int64_t product(const int64_t *v, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++)
        p *= v[i];
    return p;
}

/* Each run of what starts at dimension `from` n times; then as `shape`. */
static ct_tensor *runs(ct_tensor *x, int from, int64_t n, int ndim, const int64_t *shape)
{
    const int64_t *s = ct_tensor_shape(x);
    const int64_t a = product(s, 0, from), b = product(s, from, ct_tensor_ndim(x));
    const int64_t one[3] = {a, 1, b}, many[3] = {a, n, b};
    return ct_reshape(ct_expand(ct_reshape(x, 3, one), 3, many), ndim, shape);
}

ct_tensor *ct_repeat(ct_tensor *x, int ndim, const int64_t *repeats)
{
    int64_t shape[CT_MAX_DIMS];
    char s[96];
    if (!x)
        return NULL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    int lead = ndim - ct_tensor_ndim(x);
    if (ndim > CT_MAX_DIMS || lead < 0 || (ndim > 0 && !repeats))
        return cti_raise(ctx, &cti_op_repeat, CT_EINVAL,
                         "%d repeats for %s: from one for each dimension to %d are needed", ndim,
                         ct_tensor_describe(x, s, sizeof s), CT_MAX_DIMS);
    for (int i = 0; i < ndim; i++) {
        if (!cti_in_int32(repeats[i], 0))
            return cti_raise(ctx, &cti_op_repeat, CT_EINVAL,
                             "%lld repeats of dimension %d: from 0 to 2^31 - 1 are possible",
                             (long long)repeats[i], i);
        shape[i] = i < lead ? 1 : ct_tensor_shape(x)[i - lead];
    }
    ct_tensor *y = ct_reshape(x, ndim, shape);
    for (int i = ndim - 1; y && i >= 0; i--) {
        shape[i] *= repeats[i];
        if (repeats[i] != 1)
            y = runs(y, i, repeats[i], ndim, shape);
    }
    return y && ct_tensor_shares_storage(x, y) ? ct_clone(y) : y;
}

ct_tensor *ct_tile(ct_tensor *x, int n, const int64_t *repeats)
{
    int64_t all[CT_MAX_DIMS];
    if (!x || n >= ct_tensor_ndim(x) || n < 0 || !repeats)
        return ct_repeat(x, n, repeats);
    int lead = ct_tensor_ndim(x) - n;
    for (int i = 0; i < ct_tensor_ndim(x); i++)
        all[i] = i < lead ? 1 : repeats[i - lead];
    return ct_repeat(x, ct_tensor_ndim(x), all);
}

ct_tensor *ct_repeat_interleave(ct_tensor *x, int64_t repeats, int dim)
{
    int64_t shape[CT_MAX_DIMS];
    if (!x || !cti_wrap_dim(x, &cti_op_repeat, &dim))
        return NULL;
    if (!cti_in_int32(repeats, 0))
        return cti_raise(ct_tensor_ctx(x), &cti_op_repeat, CT_EINVAL,
                         "%lld repeats: from 0 to 2^31 - 1 are possible", (long long)repeats);
    for (int i = 0; i < ct_tensor_ndim(x); i++)
        shape[i] = ct_tensor_shape(x)[i] * (i == dim ? repeats : 1);
    ct_tensor *y = runs(x, dim + 1, repeats, ct_tensor_ndim(x), shape);
    return y && ct_tensor_shares_storage(x, y) ? ct_clone(y) : y;
}
