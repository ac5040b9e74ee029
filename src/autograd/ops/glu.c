/* SPDX-License-Identifier: Apache-2.0 */
/* glu - y = a sigmoid(b), a and b the halves of x along dim; and tanhshrink, x - tanh x. Formulas.
 * Oracle: torch.nn.functional.glu, tanhshrink. */
#include "autograd/op.h"

#include <inttypes.h>

/* arg: dim; 1 for tanhshrink. */
static const ct_case cases[] = {
    {.name = "last", .arg = {-1}, .in = {CT_IN(NORMAL, 3, 10)}},
    {.name = "channels", .arg = {1}, .in = {CT_IN(NORMAL, 2, 6, 5, 7)}},
    {.name = "tanhshrink", .arg = {0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "empty", .arg = {1}, .in = {CT_IN(NORMAL, 0, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return c->arg[1] != 0 ? ct_tanhshrink(in[0]) : ct_glu(in[0], (int)c->arg[0]);
}

const ct_op cti_op_glu = {.name = "glu", CT_CASES(cases), .call = call};

ct_tensor *ct_glu(ct_tensor *x, int dim)
{
    if (!x)
        return NULL;
    int64_t n = ct_tensor_size(x, dim);
    if (n % 2)
        return cti_raise(ct_tensor_ctx(x), &cti_op_glu, CT_ESHAPE,
                         "dimension %d of x has %" PRId64 " elements: an even number is needed",
                         dim, n);
    return ct_mul(ct_narrow(x, dim, 0, n / 2), ct_sigmoid(ct_narrow(x, dim, n / 2, n / 2)));
}

ct_tensor *ct_tanhshrink(ct_tensor *x)
{
    return ct_sub(x, ct_tanh(x));
}
