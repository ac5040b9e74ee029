/* SPDX-License-Identifier: Apache-2.0 */
/* copy - x becomes src, broadcast to its shape and converted to its dtype, in place. Gradient: none to what x
 * was; dsrc = dy summed over what was broadcast. Oracle: torch.Tensor.copy_. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    const ct_view *x = cti_x(n, 0), *src = cti_x(n, 1);
    char a[128], b[128];
    int lead = x->ndim - src->ndim;
    bool fits = lead >= 0;
    for (int i = 0; fits && i < src->ndim; i++)
        fits = src->shape[i] == x->shape[i + lead] || src->shape[i] == 1;
    if (!fits)
        return cti_op_fail(n, CT_ESHAPE, "the source %s doesn't broadcast to %s",
                           cti_shape_str(src, b, sizeof b), cti_shape_str(x, a, sizeof a));
    return cti_out_like(n, 0, 0);
}

static int forward(cti_node *n)
{
    const ct_view *y = cti_y(n, 0);
    ct_view src = cti_view_expand(cti_x(n, 1), y->ndim, y->shape);
    return cti_be(n)->ew->copy(cti_stream(n), y, &src);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    if (cti_wants(n, 1))
        dx[1] = ct_cast(cti_sum_to_input(n, dy[0], 1), cti_in_meta(n, 1)->dtype);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN_FIXED(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "a row", .in = {CT_IN_FIXED(NORMAL, 7, 5), CT_IN(NORMAL, 5)}},
    {.name = "a scalar", .in = {CT_IN_FIXED(NORMAL, 2, 3), CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .in = {CT_IN_FIXED(NORMAL, 0, 5), CT_IN(NORMAL, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return in[0] && in[1] ? ct_copy_(ct_clone(in[0]), in[1]) : ct_copy_(in[0], in[1]);
}

const ct_op cti_op_copy = {.name = "copy",
                           .torch_name = "CopyBackwards",
                           .autocast = CTI_AS_IS,
                           .infer = infer,
                           .forward = forward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_copy_(ct_tensor *x, ct_tensor *src)
{
    return cti_apply_inplace(&cti_op_copy, NULL, 0, 2, (ct_tensor *[]){x, src});
}
