/* SPDX-License-Identifier: Apache-2.0 */
/* movedim, swapdims - dimension source[i] goes to place destination[i], the others keep their order; two change
 * places. Views: formulas of permute. Oracle: torch.movedim, swapdims. */
#include "autograd/op.h"

/* arg: n, source..., destination...; n 0: swapdims of the next two. */
static const ct_case cases[] = {
    {.name = "one", .arg = {1, 0, 2}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "from the end", .arg = {1, -1, 0}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "two", .arg = {2, 0, 1, -1, 0}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "swapdims", .arg = {0, 0, -1}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "empty", .arg = {1, 0, 1}, .in = {CT_IN(NORMAL, 0, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int n = (int)c->arg[0], from[2], to[2];
    if (n == 0)
        return ct_swapdims(in[0], (int)c->arg[1], (int)c->arg[2]);
    for (int i = 0; i < n; i++) {
        from[i] = (int)c->arg[1 + i];
        to[i] = (int)c->arg[1 + n + i];
    }
    return ct_movedim(in[0], n, from, to);
}

const ct_op cti_op_movedim = {.name = "movedim", CT_CASES(cases), .call = call};

ct_tensor *ct_movedim(ct_tensor *x, int n, const int *source, const int *destination)
{
    int dims[CT_MAX_DIMS], next = 0;
    unsigned taken = 0, placed = 0;
    if (!x)
        return NULL;
    int ndim = ct_tensor_ndim(x);
    if (n < 0 || n > ndim || (n > 0 && (!source || !destination)))
        return cti_raise(ct_tensor_ctx(x), &cti_op_movedim, CT_EINVAL,
                         "%d dimensions to move: x has %d", n, ndim);
    for (int i = 0; i < n; i++) {
        int from = source[i], to = destination[i];
        if (!cti_wrap_dim(x, &cti_op_movedim, &from) || !cti_wrap_dim(x, &cti_op_movedim, &to))
            return NULL;
        if ((taken >> from & 1) || (placed >> to & 1))
            return cti_raise(ct_tensor_ctx(x), &cti_op_movedim, CT_EINVAL,
                             "dimension %d is named twice", taken >> from & 1 ? from : to);
        taken |= 1u << from;
        placed |= 1u << to;
        dims[to] = from;
    }
    for (int to = 0; to < ndim; to++) {
        if (placed >> to & 1)
            continue;
        while (taken >> next & 1)
            next++;
        dims[to] = next++;
    }
    return ct_permute(x, ndim, dims);
}

ct_tensor *ct_swapdims(ct_tensor *x, int dim0, int dim1)
{
    return ct_transpose(x, dim0, dim1);
}

/* dim is checked by the op that gets the rows where x is a scalar. */
ct_tensor *cti_rows_of(ct_tensor *x, int dim)
{
    if (!x || ct_tensor_ndim(x) < 2)
        return x && ct_tensor_ndim(x) == 0 ? ct_unsqueeze(x, dim) :
               x && dim != 0 && dim != -1  ? ct_transpose(x, dim, dim) :
               x                           ? ct_contiguous(x) :
                                             NULL;
    return ct_contiguous(ct_transpose(x, dim, -1));
}

ct_tensor *cti_rows_back(ct_tensor *y, int dim)
{
    return y && ct_tensor_ndim(y) > 1 ? ct_transpose(y, dim, -1) : cti_itself(y);
}
