/* SPDX-License-Identifier: Apache-2.0 */
/* pixel_shuffle, pixel_unshuffle - channels become pixels: [..., C r^2, H, W] -> [..., C, H r, W r], and back.
 * Formulas of reshape and permute. Oracle: torch.nn.functional.pixel_shuffle, pixel_unshuffle. */
#include "autograd/op.h"

/* arg: r; negative: unshuffle. */
static const ct_case cases[] = {
    {.name = "by 2", .arg = {2}, .in = {CT_IN(NORMAL, 2, 12, 3, 5)}},
    {.name = "by 3, one image", .arg = {3}, .in = {CT_IN(NORMAL, 9, 2, 1)}},
    {.name = "back by 2", .arg = {-2}, .in = {CT_IN(NORMAL, 2, 3, 4, 6)}},
    /* Without a gradient: PyTorch 2.15 gives one of the wrong shape here. */
    {.name = "empty", .arg = {2}, .in = {CT_IN_FIXED(NORMAL, 0, 4, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t r = (int64_t)c->arg[0];
    return r < 0 ? ct_pixel_unshuffle(in[0], -r) : ct_pixel_shuffle(in[0], r);
}

const ct_op cti_op_pixel_shuffle = {.name = "pixel_shuffle", CT_CASES(cases), .call = call};

/* x as [A, B, C, D, E, F], its dimensions in another order, then with these last three sizes. */
static ct_tensor *shuffled(ct_tensor *x, const int64_t *six, const int *order, const int64_t *last)
{
    int64_t shape[CT_MAX_DIMS];
    int ndim = ct_tensor_ndim(x);
    for (int i = 0; i < ndim; i++)
        shape[i] = i < ndim - 3 ? ct_tensor_shape(x)[i] : last[i - (ndim - 3)];
    return ct_reshape(ct_permute(ct_reshape(x, 6, six), 6, order), ndim, shape);
}

static int64_t images(const ct_tensor *x)
{
    int64_t n = 1;
    for (int i = 0; i < ct_tensor_ndim(x) - 3; i++)
        n *= ct_tensor_shape(x)[i];
    return n;
}

ct_tensor *ct_pixel_shuffle(ct_tensor *x, int64_t r)
{
    static const int order[6] = {0, 1, 4, 2, 5, 3};
    char s[96];
    if (!x)
        return NULL;
    int64_t c = ct_tensor_size(x, -3), h = ct_tensor_size(x, -2), w = ct_tensor_size(x, -1);
    if (ct_tensor_ndim(x) < 3 || !cti_in_int32(r, 1) || c % (r * r))
        return cti_raise(ct_tensor_ctx(x), &cti_op_pixel_shuffle, CT_ESHAPE,
                         "%s by %lld: [...,C,H,W] with C a multiple of %lld is needed",
                         ct_tensor_describe(x, s, sizeof s), (long long)r, (long long)(r * r));
    c /= r * r;
    return shuffled(x, (const int64_t[]){images(x), c, r, r, h, w}, order,
                    (const int64_t[]){c, h * r, w * r});
}

ct_tensor *ct_pixel_unshuffle(ct_tensor *x, int64_t r)
{
    static const int order[6] = {0, 1, 3, 5, 2, 4};
    char s[96];
    if (!x)
        return NULL;
    int64_t c = ct_tensor_size(x, -3), h = ct_tensor_size(x, -2), w = ct_tensor_size(x, -1);
    if (ct_tensor_ndim(x) < 3 || !cti_in_int32(r, 1) || h % r || w % r)
        return cti_raise(ct_tensor_ctx(x), &cti_op_pixel_shuffle, CT_ESHAPE,
                         "back, %s by %lld: [...,C,H,W] with H and W multiples of it is needed",
                         ct_tensor_describe(x, s, sizeof s), (long long)r);
    h /= r;
    w /= r;
    return shuffled(x, (const int64_t[]){images(x), c, h, r, w, r}, order,
                    (const int64_t[]){c * r * r, h, w});
}
