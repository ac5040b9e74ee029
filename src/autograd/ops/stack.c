/* SPDX-License-Identifier: Apache-2.0 */
/* stack - tensors of one shape, one after the other along a new dimension. A formula of unsqueeze and cat.
 * Oracle: torch.stack. */
#include "autograd/op.h"

enum { FEW = 32 };

/* arg: dim. in: the tensors. */
static const ct_case cases[] = {
    {.name = "first", .arg = {0}, .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "last",
     .arg = {-1},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "middle", .arg = {1}, .in = {CT_IN(NORMAL, 2, 7), CT_IN(NORMAL, 2, 7)}},
    {.name = "scalars", .arg = {0}, .in = {CT_IN_SCALAR(NORMAL), CT_IN_SCALAR(NORMAL)}},
    {.name = "one", .arg = {1}, .in = {CT_IN(I64, 3)}},
    {.name = "empty", .arg = {0}, .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int n = 0;
    while (n < CT_CASE_MAX_IN && c->in[n].kind != CT_IN_NONE)
        n++;
    return ct_stack(in, n, (int)c->arg[0]);
}

const ct_op cti_op_stack = {.name = "stack", CT_CASES(cases), .call = call};

ct_tensor *ct_stack(ct_tensor *const *xs, int n, int dim)
{
    ct_tensor *few[FEW], *joined = NULL;
    char s[96], t[96];
    if (!xs || n < 1)
        return NULL;
    ct_ctx *ctx = cti_ctx_of(n, xs);
    for (int i = 0; i < n; i++) {
        if (!xs[i])
            return cti_raise(ctx, &cti_op_stack, CT_EINVAL, "input %d is NULL", i);
        ct_view v = cti_meta(xs[i]), first = cti_meta(xs[0]);
        if (!cti_same_shape(&v, &first))
            return cti_raise(ctx, &cti_op_stack, CT_ESHAPE, "tensor %d %s and tensor 0 %s differ",
                             i, ct_tensor_describe(xs[i], s, sizeof s),
                             ct_tensor_describe(xs[0], t, sizeof t));
    }
    /* In groups: a call of cat has as many operands as fit here. */
    for (int at = 0; at < n;) {
        int k = 0;
        if (joined)
            few[k++] = joined;
        for (; k < FEW && at < n; at++)
            few[k++] = ct_unsqueeze(xs[at], dim);
        for (int i = 0; i < k; i++)
            if (!few[i])
                return NULL;
        joined = ct_cat(few, k, dim);
        if (!joined)
            return NULL;
    }
    return joined;
}
