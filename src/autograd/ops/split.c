/* SPDX-License-Identifier: Apache-2.0 */
/* split, chunk - pieces of x along dim, views: of `size` elements each but the last, of given sizes, or about
 * equal ones. Formulas of narrow. Oracle: torch.split, chunk. */
#include "autograd/op.h"

/* arg: dim, size (0: as follows), n chunks, or sizes... The pieces are joined in reverse order. */
static const ct_case cases[] = {
    {.name = "by size", .arg = {0, 3}, .in = {CT_IN(NORMAL, 7, 5)}},
    {.name = "by size, evenly", .arg = {-1, 2}, .in = {CT_IN(NORMAL, 3, 6)}},
    {.name = "chunks", .arg = {1, 0, 3}, .in = {CT_IN(NORMAL, 2, 7, 3)}},
    {.name = "fewer chunks", .arg = {0, 0, 4}, .in = {CT_IN(NORMAL, 6, 2)}},
    {.name = "by sizes", .arg = {1, 0, 0, 2, 0, 3}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "empty", .arg = {0, 2}, .in = {CT_IN(NORMAL, 5, 0)}},
    {.name = "of nothing", .arg = {0, 0, 3}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_tensor *out[8], *back[8];
    int dim = (int)c->arg[0], n = 3;
    const int64_t sizes[3] = {(int64_t)c->arg[3], (int64_t)c->arg[4], (int64_t)c->arg[5]};
    if (c->arg[1])
        n = ct_split(in[0], (int64_t)c->arg[1], dim, out, 8);
    else if (c->arg[2])
        n = ct_chunk(in[0], (int)c->arg[2], dim, out);
    else if (ct_split_sizes(in[0], 3, sizes, dim, out) < 0)
        return NULL;
    for (int i = 0; i < n; i++)
        back[n - 1 - i] = out[i];
    return n > 0 ? ct_cat(back, n, dim) : NULL;
}

const ct_op cti_op_split = {.name = "split", CT_CASES(cases), .call = call};

/* n pieces of `size`, but for the last. */
static int pieces(ct_tensor *x, int64_t size, int64_t n, int dim, ct_tensor **out)
{
    ct_ctx *ctx = ct_tensor_ctx(x);
    int64_t all = ct_tensor_size(x, dim);
    for (int64_t i = 0; i < n && ct_error_code(ctx) == CT_OK; i++)
        out[i] = ct_narrow(x, dim, i * size, i == n - 1 ? all - i * size : size);
    return ct_error_code(ctx) ? ct_error_code(ctx) : (int)n;
}

int ct_split(ct_tensor *x, int64_t size, int dim, ct_tensor **out, int cap)
{
    char s[96];
    if (!x)
        return CT_EINVAL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    if (!cti_wrap_dim(x, &cti_op_split, &dim))
        return ct_error_code(ctx);
    int64_t all = ct_tensor_size(x, dim), n = 1;
    if (size < 0 || (size == 0 && all > 0))
        cti_raise(ctx, &cti_op_split, CT_EINVAL,
                  "size is %lld, dimension %d of %s: must be %d or more", (long long)size, dim,
                  ct_tensor_describe(x, s, sizeof s), all > 0);
    else if (all > 0)
        n = (all - 1) / size + 1;
    if (n > cap || !out)
        cti_raise(ctx, &cti_op_split, CT_EINVAL, "%lld pieces, out has room for %d", (long long)n,
                  out ? cap : 0);
    return ct_error_code(ctx) ? ct_error_code(ctx) : pieces(x, size, n, dim, out);
}

int ct_split_sizes(ct_tensor *x, int n, const int64_t *sizes, int dim, ct_tensor **out)
{
    char s[96];
    if (!x)
        return CT_EINVAL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    if (!cti_wrap_dim(x, &cti_op_split, &dim))
        return ct_error_code(ctx);
    int64_t left = ct_tensor_size(x, dim), start = 0;
    bool fits = n >= 1 && sizes && out;
    for (int i = 0; fits && i < n; i++) {
        fits = sizes[i] >= 0 && sizes[i] <= left;
        left -= sizes[i];
    }
    if (!fits || left != 0)
        cti_raise(ctx, &cti_op_split, CT_EINVAL,
                  "the %d sizes must add up to %lld, dimension %d of %s", n,
                  (long long)ct_tensor_size(x, dim), dim, ct_tensor_describe(x, s, sizeof s));
    for (int i = 0; i < n && ct_error_code(ctx) == CT_OK; i++) {
        out[i] = ct_narrow(x, dim, start, sizes[i]);
        start += sizes[i];
    }
    return ct_error_code(ctx);
}

int ct_chunk(ct_tensor *x, int chunks, int dim, ct_tensor **out)
{
    if (!x)
        return CT_EINVAL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    if (!cti_wrap_dim(x, &cti_op_split, &dim))
        return ct_error_code(ctx);
    if (chunks < 1 || !out)
        cti_raise(ctx, &cti_op_split, CT_EINVAL, "%d chunks: must be 1 or more, and out be there",
                  chunks);
    int64_t all = ct_tensor_size(x, dim);
    if (ct_error_code(ctx))
        return ct_error_code(ctx);
    int64_t size = (all + chunks - 1) / chunks;
    return pieces(x, size, size > 0 ? (all - 1) / size + 1 : chunks, dim, out);
}
