/* SPDX-License-Identifier: Apache-2.0 */
/* pad - more elements at the ends of the last dimensions, in all modes: constant_pad and border_pad. Oracle:
 * torch.nn.functional.pad. */
#include "autograd/op.h"

/* arg: mode, value, n, pads... (in PyTorch's order: the last dimension's begin, end, then the one before). */
static const ct_case cases[] = {
    {.name = "constant", .arg = {0, 0.5, 4, 1, 2, 0, 3}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "reflect", .arg = {1, 0, 2, 1, 2}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "replicate", .arg = {2, 0, 2, 1, 2}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "circular", .arg = {3, 0, 2, 1, 2}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "empty", .arg = {0, 2, 2, 1, 1}, .in = {CT_IN(NORMAL, 3, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int64_t pads[6];
    for (int i = 0; i < 6; i++)
        pads[i] = (int64_t)c->arg[3 + i];
    return ct_pad(in[0], (int)c->arg[2], pads, (ct_pad_mode)c->arg[0], c->arg[1]);
}

const ct_op cti_op_pad = {.name = "pad", CT_CASES(cases), .call = call};

static bool fits(ct_tensor *x, int dim, int64_t begin, int64_t end, ct_pad_mode mode)
{
    char s[96];
    int64_t size = ct_tensor_size(x, dim);
    int64_t most = mode == CT_PAD_CIRCULAR ? size : mode == CT_PAD_REFLECT ? size - 1 : INT32_MAX;
    if (begin >= 0 && end >= 0 && begin <= most && end <= most && size > 0)
        return true;
    cti_raise(ct_tensor_ctx(x), &cti_op_pad, CT_EINVAL,
              "%lld and %lld for dimension %d of %s: must be from 0 to %lld in this mode",
              (long long)begin, (long long)end, dim, ct_tensor_describe(x, s, sizeof s),
              (long long)(size ? most : 0));
    return false;
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
    cti_border a = {.mode = mode, .n = n / 2};
    for (int i = 0; i < a.n; i++) {
        if (!fits(x, ct_tensor_ndim(x) - 1 - i, pads[2 * i], pads[2 * i + 1], mode))
            return NULL;
        a.begin[i] = pads[2 * i];
        a.end[i] = pads[2 * i + 1];
    }
    return cti_border_pad(x, a);
}
