/* SPDX-License-Identifier: Apache-2.0 */
/* masked_fill - y = value where mask is true, else x. Shape: as x; the mask broadcasts to it. Gradient: dx = dy, 0 where
 * the mask is true. A formula. Oracle: torch.Tensor.masked_fill. */
#include "autograd/op.h"

/* arg: value. */
static const ct_case cases[] = {
    {.name = "same shape", .arg = {-2}, .in = {CT_IN(NORMAL, 3, 5), CT_IN(BOOL, 3, 5)}},
    {.name = "rows", .arg = {7}, .in = {CT_IN(NORMAL, 2, 3, 5), CT_IN(BOOL, 3, 1)}},
    {.name = "images", .in = {CT_IN(NORMAL, 2, 3, 5, 7), CT_IN(BOOL, 5, 7)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(BOOL, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_masked_fill(in[0], in[1], c->arg[0]);
}

const ct_op cti_op_masked_fill = {.name = "masked_fill", CT_CASES(cases), .call = call};

ct_tensor *ct_masked_fill(ct_tensor *x, ct_tensor *mask, double value)
{
    char a[128], b[128];
    if (x && mask) { /* else where says what is missing */
        ct_view vx = cti_meta(x), vm = cti_meta(mask);
        bool fits = vm.ndim <= vx.ndim;
        for (int i = 0; fits && i < vm.ndim; i++)
            fits = vm.shape[i] == 1 || vm.shape[i] == vx.shape[vx.ndim - vm.ndim + i];
        if (!fits && !ct_error_code(ct_tensor_ctx(x)))
            return cti_raise(ct_tensor_ctx(x), &cti_op_masked_fill, CT_ESHAPE,
                             "the mask %s doesn't broadcast to %s", cti_shape_str(&vm, b, sizeof b),
                             cti_shape_str(&vx, a, sizeof a));
    }
    return ct_where(mask, ct_new_full(x, 0, NULL, value), x);
}
