/* SPDX-License-Identifier: Apache-2.0 */
/* prelu - y = x above 0, else weight x; the weight [1] or one for each channel, [C] of x [N,C,...]. Gradient: dx = dy
 * above 0, else weight dy (at 0 too); dweight = sum of dy x where x is not above 0. A formula.
 * Oracle: torch.nn.functional.prelu. */
#include "autograd/op.h"

#include <inttypes.h>

/* No arg. */
static const ct_case cases[] = {
    {.name = "one weight", .in = {CT_IN(AWAY, 3, 5), CT_IN(NORMAL, 1)}},
    {.name = "a weight each", .in = {CT_IN(AWAY, 7, 5), CT_IN(NORMAL, 5)}},
    {.name = "images", .in = {CT_IN(AWAY, 2, 3, 5, 7), CT_IN(NORMAL, 3)}},
    {.name = "empty", .in = {CT_IN(AWAY, 0, 5), CT_IN(NORMAL, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_prelu(in[0], in[1]);
}

const ct_op cti_op_prelu = {.name = "prelu", .autocast = CTI_LOW, CT_CASES(cases), .call = call};

ct_tensor *ct_prelu(ct_tensor *x, ct_tensor *weight)
{
    int64_t shape[CT_MAX_DIMS];
    char s[128];
    if (!x || !weight)
        return ct_mul(x, weight);
    x = cti_operand(&cti_op_prelu, x);
    weight = cti_operand(&cti_op_prelu, weight);
    if (!x || !weight)
        return NULL;
    int ndim = ct_tensor_ndim(x);
    int64_t n = ct_tensor_numel(weight), channels = ndim > 1 ? ct_tensor_size(x, 1) : 1;
    if (n != 1 && n != channels) {
        ct_view v = cti_meta(x);
        return cti_raise(ct_tensor_ctx(x), &cti_op_prelu, CT_ESHAPE,
                         "%" PRId64 " weights for x %s: 1 or %" PRId64 " (its channels) are needed",
                         n, cti_shape_str(&v, s, sizeof s), channels);
    }
    for (int i = 0; i < ndim; i++)
        shape[i] = i == 1 ? n : 1;
    ct_tensor *w = ct_reshape(weight, ndim > 1 ? ndim : 0, shape);
    return ct_where(ct_gt(x, ct_zeros_like(x)), x, ct_mul(w, x));
}
