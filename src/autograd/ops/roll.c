/* SPDX-License-Identifier: Apache-2.0 */
/* roll - elements moved by shifts along dims, those that leave at one end come in at the other; without dims as
 * if x were flat. A formula of narrow and cat. Oracle: torch.roll. */
#include "autograd/op.h"

/* arg: n (0: flat), shifts..., dims... */
static const ct_case cases[] = {
    {.name = "rows", .arg = {1, 2, 0}, .in = {CT_IN(NORMAL, 5, 3)}},
    {.name = "backwards", .arg = {1, -1, -1}, .in = {CT_IN(NORMAL, 2, 7)}},
    {.name = "two dims", .arg = {2, 1, -9, 0, 2}, .in = {CT_IN(NORMAL, 3, 2, 5)}},
    {.name = "flat", .arg = {0, 4}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "by its size", .arg = {1, 5, 0}, .in = {CT_IN(NORMAL, 5)}},
    {.name = "empty", .arg = {1, 1, 0}, .in = {CT_IN(NORMAL, 0, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    int n = (int)c->arg[0], dims[2];
    int64_t shifts[2] = {(int64_t)c->arg[1], (int64_t)c->arg[2]};
    for (int i = 0; i < n; i++)
        dims[i] = (int)c->arg[1 + n + i];
    return ct_roll(in[0], n ? n : 1, shifts, n ? dims : NULL);
}

const ct_op cti_op_roll = {.name = "roll", CT_CASES(cases), .call = call};

static ct_tensor *along(ct_tensor *x, int64_t shift, int dim)
{
    if (!x || !cti_wrap_dim(x, &cti_op_roll, &dim))
        return NULL;
    int64_t size = ct_tensor_size(x, dim), by = size ? shift % size : 0;
    by += by < 0 ? size : 0;
    if (by == 0)
        return x;
    ct_tensor *parts[2] = {ct_narrow(x, dim, size - by, by), ct_narrow(x, dim, 0, size - by)};
    return parts[0] && parts[1] ? ct_cat(parts, 2, dim) : NULL;
}

ct_tensor *ct_roll(ct_tensor *x, int n, const int64_t *shifts, const int *dims)
{
    if (!x)
        return NULL;
    if (n < 1 || !shifts || (!dims && n != 1))
        return cti_raise(ct_tensor_ctx(x), &cti_op_roll, CT_EINVAL,
                         "%d shifts: one for each of dims is needed, or one alone", n);
    if (!dims) {
        ct_tensor *y = along(ct_reshape(x, 1, (const int64_t[]){-1}), shifts[0], 0);
        y = ct_reshape(y, ct_tensor_ndim(x), ct_tensor_shape(x));
        return y && ct_tensor_shares_storage(x, y) ? ct_clone(x) : y;
    }
    ct_tensor *y = x;
    for (int i = 0; i < n; i++)
        y = along(y, shifts[i], dims[i]);
    return y == x ? ct_clone(x) : y;
}
