/* SPDX-License-Identifier: Apache-2.0 */
/* select, unbind - the slice at one index of dim, without dim: x[index]; all of them. Views. A negative index
 * counts from the end. A formula of narrow and squeeze. Oracle: torch.select, unbind. */
#include "autograd/op.h"

/* arg: dim, index; unbind: dim, 99 - its slices are joined in reverse order. */
static const ct_case cases[] = {
    {.name = "rows", .arg = {0, 2}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "from the end", .arg = {-1, -2}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "of a vector", .arg = {0, 4}, .in = {CT_IN(NORMAL, 5)}},
    {.name = "channels", .arg = {1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "empty", .arg = {1, 1}, .in = {CT_IN(NORMAL, 0, 3)}},
    {.name = "unbind", .arg = {1, 99}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_tensor *out[8], *back[8];
    if (c->arg[1] != 99)
        return ct_select(in[0], (int)c->arg[0], (int64_t)c->arg[1]);
    int n = ct_unbind(in[0], (int)c->arg[0], out, 8);
    for (int i = 0; i < n; i++)
        back[n - 1 - i] = out[i];
    return n > 0 ? ct_cat(back, n, 0) : NULL;
}

const ct_op cti_op_select = {.name = "select", CT_CASES(cases), .call = call};

bool cti_wrap_dim(ct_tensor *x, const ct_op *op, int *dim)
{
    int n = ct_tensor_ndim(x);
    char s[96];
    if (n == 0 || *dim < -n || *dim >= n) {
        ct_tensor_describe(x, s, sizeof s);
        if (n == 0)
            cti_raise(ct_tensor_ctx(x), op, CT_EINVAL, "dimension %d of x, %s: a scalar has none",
                      *dim, s);
        else
            cti_raise(ct_tensor_ctx(x), op, CT_EINVAL,
                      "dimension %d is out of range for %s; allowed: %d to %d", *dim, s, -n, n - 1);
        return false;
    }
    *dim += *dim < 0 ? n : 0;
    return true;
}

ct_tensor *ct_select(ct_tensor *x, int dim, int64_t index)
{
    char s[96];
    if (!x || !cti_wrap_dim(x, &cti_op_select, &dim))
        return NULL;
    int64_t size = ct_tensor_size(x, dim);
    if (index < -size || index >= size)
        return cti_raise(ct_tensor_ctx(x), &cti_op_select, CT_EINVAL,
                         "index %lld is out of range for dimension %d of %s; it has %lld elements",
                         (long long)index, dim, ct_tensor_describe(x, s, sizeof s),
                         (long long)size);
    return ct_squeeze(ct_narrow(x, dim, index, 1), dim);
}

int ct_unbind(ct_tensor *x, int dim, ct_tensor **out, int cap)
{
    if (!x)
        return CT_EINVAL;
    ct_ctx *ctx = ct_tensor_ctx(x);
    if (!cti_wrap_dim(x, &cti_op_select, &dim))
        return ct_error_code(ctx);
    int64_t n = ct_tensor_size(x, dim);
    if (n > cap || !out)
        cti_raise(ctx, &cti_op_select, CT_EINVAL, "unbind: %lld slices, out has room for %d",
                  (long long)n, out ? cap : 0);
    for (int i = 0; i < n && ct_error_code(ctx) == CT_OK; i++)
        out[i] = ct_select(x, dim, i);
    return ct_error_code(ctx) ? ct_error_code(ctx) : (int)n;
}
