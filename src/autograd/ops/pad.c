/* SPDX-License-Identifier: Apache-2.0 */
/* pad - more elements at the ends of the last dimensions: one value (constant_pad), the mirror image without the
 * edge (reflect), the edge again and again (replicate), or what comes at the other end (circular). The last three
 * are formulas of narrow, flip, expand and cat. Oracle: torch.nn.functional.pad. */
#include "autograd/op.h"

/* arg: mode, value, n, pads... (in PyTorch's order: the last dimension's begin, end, then the one before). */
static const ct_case cases[] = {
    {.name = "constant", .arg = {0, 0.5, 4, 1, 2, 0, 3}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "constant, cropped", .arg = {0, 0, 4, -1, 2, 1, -2}, .in = {CT_IN(NORMAL, 2, 5, 7)}},
    {.name = "constant, channels",
     .arg = {0, -1, 4, 1, 1, 2, 0},
     .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "constant, integers", .arg = {0, 9, 2, 1, 1}, .in = {CT_IN(I64, 3)}},
    {.name = "constant, empty", .arg = {0, 2, 2, 1, 1}, .in = {CT_IN(NORMAL, 3, 0)}},
    {.name = "reflect", .arg = {1, 0, 2, 3, 4}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "reflect, 2-D", .arg = {1, 0, 4, 1, 2, 2, 0}, .in = {CT_IN(NORMAL, 2, 3, 4, 5)}},
    {.name = "reflect, 3-D",
     .arg = {1, 0, 6, 1, 1, 0, 1, 1, 2},
     .in = {CT_IN(NORMAL, 1, 2, 3, 2, 3)}},
    {.name = "replicate", .arg = {2, 0, 4, 3, 1, 0, 2}, .in = {CT_IN(NORMAL, 2, 3, 2, 3)}},
    {.name = "replicate, 3-D",
     .arg = {2, 0, 6, 1, 1, 0, 1, 1, 2},
     .in = {CT_IN(NORMAL, 1, 2, 3, 1, 2)}},
    {.name = "circular", .arg = {3, 0, 4, 3, 1, 0, 2}, .in = {CT_IN(NORMAL, 2, 3, 4, 3)}},
    {.name = "circular, 1-D", .arg = {3, 0, 2, 2, 5}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t pads[6];
    for (int i = 0; i < 6; i++)
        pads[i] = (int64_t)c->arg[3 + i];
    return ct_pad(in[0], (int)c->arg[2], pads, (ct_pad_mode)c->arg[0], c->arg[1]);
}

const ct_op cti_op_pad = {.name = "pad", CT_CASES(cases), .call = call};

/* What comes before x along dim (begin) or after it. */
static ct_tensor *border(ct_tensor *x, int dim, int64_t n, bool begin, ct_pad_mode mode)
{
    int64_t size = ct_tensor_size(x, dim), shape[CT_MAX_DIMS];
    if (mode == CT_PAD_CIRCULAR)
        return ct_narrow(x, dim, begin ? size - n : 0, n);
    if (mode == CT_PAD_REFLECT)
        return ct_flip(ct_narrow(x, dim, begin ? 1 : size - 1 - n, n), 1, &dim);
    for (int i = 0; i < ct_tensor_ndim(x); i++)
        shape[i] = i == dim ? n : ct_tensor_shape(x)[i];
    return ct_expand(ct_narrow(x, dim, begin ? 0 : size - 1, 1), ct_tensor_ndim(x), shape);
}

static ct_tensor *along(ct_tensor *x, int dim, int64_t begin, int64_t end, ct_pad_mode mode)
{
    ct_tensor *parts[3];
    char s[96];
    int k = 0;
    if (!x)
        return NULL;
    int64_t size = ct_tensor_size(x, dim);
    int64_t most = mode == CT_PAD_CIRCULAR ? size : mode == CT_PAD_REFLECT ? size - 1 : INT32_MAX;
    if (begin < 0 || end < 0 || begin > most || end > most || size == 0)
        return cti_raise(
            ct_tensor_ctx(x), &cti_op_pad, CT_EINVAL,
            "%lld and %lld for dimension %d of %s: must be from 0 to %lld in this mode",
            (long long)begin, (long long)end, dim, ct_tensor_describe(x, s, sizeof s),
            (long long)(size ? most : 0));
    if (begin > 0)
        parts[k++] = border(x, dim, begin, true, mode);
    parts[k++] = x;
    if (end > 0)
        parts[k++] = border(x, dim, end, false, mode);
    for (int i = 0; i < k; i++)
        if (!parts[i])
            return NULL;
    return k == 1 ? x : ct_cat(parts, k, dim);
}

ct_tensor *ct_pad(ct_tensor *x, int n, const int64_t *pads, ct_pad_mode mode, double value)
{
    if (!x)
        return NULL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    if (n < 0 || n % 2 || n / 2 > ct_tensor_ndim(x) || (n > 0 && !pads))
        return cti_raise(ctx, &cti_op_pad, CT_EINVAL,
                         "%d pads: pairs of begin and end are needed, for at most %d dimensions", n,
                         ct_tensor_ndim(x));
    if ((unsigned)mode > CT_PAD_CIRCULAR)
        return cti_raise(ctx, &cti_op_pad, CT_EINVAL, "mode %d is none of CT_PAD_*", (int)mode);
    for (int i = 0; i < n; i++)
        if (pads[i] < -INT32_MAX || pads[i] > INT32_MAX)
            return cti_raise(ctx, &cti_op_pad, CT_EINVAL, "a pad of %lld", (long long)pads[i]);
    if (mode == CT_PAD_CONSTANT)
        return cti_constant_pad(x, n, pads, value);
    ct_tensor *y = x;
    for (int i = 0; i < n / 2; i++)
        y = along(y, ct_tensor_ndim(x) - 1 - i, pads[2 * i], pads[2 * i + 1], mode);
    return y == x ? ct_clone(x) : y;
}
