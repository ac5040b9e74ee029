/* SPDX-License-Identifier: Apache-2.0 */
/* clone - a copy of x, in x's stride order, row-major (contiguous) or channels-last. Shape, dtype:
 * as x, any. Gradient: dy itself. Oracle: torch.clone, contiguous. */
#include "autograd/op.h"

typedef enum layout { LAYOUT_KEEP, LAYOUT_ROW_MAJOR, LAYOUT_CHANNELS_LAST } layout;

static int infer(cti_node *n)
{
    const ct_view *x = cti_x(n, 0);
    char s[64];
    switch (*(const layout *)cti_attr(n)) {
    case LAYOUT_ROW_MAJOR:
        return cti_out(n, 0, x->dtype, x->ndim, x->shape);
    case LAYOUT_CHANNELS_LAST:
        if (x->ndim != 4)
            return cti_op_fail(n, CT_ESHAPE, "channels-last is of [N,C,H,W], x is %s",
                               cti_shape_str(x, s, sizeof s));
        return cti_out_channels_last(n, 0, x->dtype, x->shape);
    case LAYOUT_KEEP:
    default:
        return cti_out_like(n, 0, 0);
    }
}

static int forward(cti_node *n)
{
    return cti_be(n)->ew->copy(cti_stream(n), cti_y(n, 0), cti_x(n, 0));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = dy[0];
    return cti_pending(n);
}

/* arg: 0 clone, 1 contiguous, 2 channels_last: of the transpose of the last two dimensions if
 * arg[1]. */
static const ct_case cases[] = {
    {.name = "clone", .arg = {0, 0}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "clone of a transpose", .arg = {0, 1}, .in = {CT_IN(NORMAL, 3, 5)}},
    {.name = "contiguous", .arg = {1, 1}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "channels-last", .arg = {2, 0}, .in = {CT_IN(NORMAL, 2, 3, 5, 7)}},
    {.name = "scalar", .arg = {0, 0}, .in = {CT_IN_SCALAR(NORMAL)}},
    {.name = "empty", .arg = {0, 0}, .in = {CT_IN(NORMAL, 0, 3)}},
    {.name = "bool", .arg = {1, 1}, .in = {CT_IN(BOOL, 3, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_tensor *x = c->arg[1] != 0 ? ct_transpose(in[0], -1, -2) : in[0];
    return c->arg[0] == 0 ? ct_clone(x) : c->arg[0] == 1 ? ct_contiguous(x) : ct_channels_last(x);
}

const ct_op cti_op_clone = {.name = "clone",
                            .torch_name = "CloneBackward0",
                            .infer = infer,
                            .forward = forward,
                            .vjp = vjp,
                            CT_CASES(cases),
                            .call = call};

static ct_tensor *copy(layout to, ct_tensor *x)
{
    return cti_apply(&cti_op_clone, &to, sizeof to, 1, &x);
}

ct_tensor *ct_clone(ct_tensor *x)
{
    return copy(LAYOUT_KEEP, x);
}

ct_tensor *ct_contiguous(ct_tensor *x)
{
    return x && ct_tensor_is_contiguous(x) ? cti_itself(x) : copy(LAYOUT_ROW_MAJOR, x);
}

ct_tensor *ct_channels_last(ct_tensor *x)
{
    return x && ct_tensor_is_channels_last(x) ? cti_itself(x) : copy(LAYOUT_CHANNELS_LAST, x);
}
