/* SPDX-License-Identifier: Apache-2.0 */
/* div - y = a / b, floats alone. Shape: broadcast(a, b), in the stride order of the operand that
 * has it. Gradient: da = dy / b, db = -dy a / b^2, each summed over what was broadcast.
 * Oracle: torch.div. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, true);
}

static int forward(cti_node *n)
{
    if (cti_wants(n, 1))
        cti_save_in(n, 0, 0);
    if (cti_wants(n, 0) || cti_wants(n, 1))
        cti_save_in(n, 1, 1);
    return cti_binary_forward(n, CT_BIN_DIV);
}

static int backward_a(cti_node *n, const ct_view *dy, const ct_view *b)
{
    const ct_k_ew *ew = cti_be(n)->ew;
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    if (!beta && cti_same_shape(dx, dy))
        return ew->binary(cti_stream(n), CT_BIN_DIV, dx, dy, b);
    const ct_view *t = cti_temp_like(n, dx->dtype, dy);
    if (!t)
        return cti_pending(n);
    int rc = ew->binary(cti_stream(n), CT_BIN_DIV, t, dy, b);
    return rc ? rc : cti_sum_into(n, dx, beta, t, 1);
}

static int backward_b(cti_node *n, const ct_view *dy, const ct_view *a, const ct_view *b)
{
    const ct_k_ew *ew = cti_be(n)->ew;
    ct_stream *s = cti_stream(n);
    int beta;
    const ct_view *dx = cti_dx(n, 1, &beta);
    const ct_view *t = dx ? cti_temp_like(n, dx->dtype, dy) : NULL;
    if (!t)
        return cti_pending(n);
    int rc = ew->binary(s, CT_BIN_DIV, t, a, b);
    rc = rc ? rc : ew->binary(s, CT_BIN_DIV, t, t, b);
    rc = rc ? rc : ew->binary(s, CT_BIN_MUL, t, t, dy);
    return rc ? rc : cti_sum_into(n, dx, beta, t, -1);
}

static int backward(cti_node *n)
{
    const ct_view *dy = cti_dy(n, 0);
    ct_view b = cti_view_expand(cti_saved(n, 1), dy->ndim, dy->shape);
    int rc = cti_wants(n, 0) ? backward_a(n, dy, &b) : CT_OK;
    if (rc || !cti_wants(n, 1))
        return rc;
    ct_view a = cti_view_expand(cti_saved(n, 0), dy->ndim, dy->shape);
    return backward_b(n, dy, &a, &b);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *b = cti_saved_tensor(n, 1);
    if (cti_wants(n, 0))
        dx[0] = cti_sum_to_input(n, ct_div(dy[0], b), 0);
    if (cti_wants(n, 1)) {
        ct_tensor *y_over_b = ct_div(ct_div(cti_saved_tensor(n, 0), b), b);
        dx[1] = ct_neg(cti_sum_to_input(n, ct_mul(dy[0], y_over_b), 1));
    }
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(NORMAL, 3, 5), CT_IN(POSITIVE, 3, 5)}},
    {.name = "row and column", .in = {CT_IN(NORMAL, 7, 1), CT_IN(POSITIVE, 1, 5)}},
    {.name = "fewer dimensions", .in = {CT_IN(NORMAL, 5), CT_IN(POSITIVE, 2, 3, 5)}},
    {.name = "scalar", .in = {CT_IN(NORMAL, 2, 3), CT_IN_SCALAR(POSITIVE)}},
    {.name = "one side wants", .in = {CT_IN_FIXED(NORMAL, 3, 5), CT_IN(POSITIVE, 5)}},
    {.name = "empty", .in = {CT_IN(NORMAL, 0, 5), CT_IN(POSITIVE, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_div(in[0], in[1]);
}

const ct_op cti_op_div = {.name = "div",
                          .torch_name = "DivBackward0",
                          .accumulates = 3,
                          .infer = infer,
                          .forward = forward,
                          .backward = backward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_div(ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_div, NULL, 0, 2, (ct_tensor *[]){a, b});
}

ct_tensor *ct_div_(ct_tensor *a, ct_tensor *b)
{
    return cti_apply_inplace(&cti_op_div, NULL, 0, 2, (ct_tensor *[]){a, b});
}
