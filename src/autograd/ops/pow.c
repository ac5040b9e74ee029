/* SPDX-License-Identifier: Apache-2.0 */
/* pow - y = a^b, shapes broadcast. Gradient: da = dy b a^(b-1) (0 where b is 0), db = dy y log a
 * (0 where a is 0 and b not negative), each summed over what was broadcast. Oracle: torch.pow. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_binary_infer(n, CT_DTYPE_COUNT, true);
}

static int forward(cti_node *n)
{
    cti_save_in(n, 0, 0);
    cti_save_in(n, 1, 1);
    if (cti_wants(n, 1))
        cti_save_out(n, 2, 0);
    return cti_math2_forward(n, CT_MA2_POW);
}

static ct_tensor *of_base(ct_tensor *dy, ct_tensor *a, ct_tensor *b)
{
    ct_tensor *none = ct_zeros_like(b);
    ct_tensor *g = ct_mul(dy, ct_mul(b, ct_pow(a, ct_affine(b, 1, -1))));
    return ct_where(ct_eq(b, none), ct_zeros_like(g), g);
}

static ct_tensor *of_exponent(ct_tensor *dy, ct_tensor *a, ct_tensor *b, ct_tensor *y)
{
    ct_tensor *zero = ct_logical_and(ct_eq(a, ct_zeros_like(a)), ct_ge(b, ct_zeros_like(b)));
    ct_tensor *safe = ct_where(ct_eq(a, ct_zeros_like(a)), ct_ones_like(a), a);
    ct_tensor *infinite = ct_mul(dy, ct_mul(y, ct_log(a))),
              *g = ct_mul(dy, ct_mul(y, ct_log(safe)));
    ct_tensor *at_zero = ct_where(zero, ct_zeros_like(g), infinite);
    return ct_where(ct_eq(a, ct_zeros_like(a)), at_zero, g);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *a = cti_saved_tensor(n, 0);
    ct_tensor *b = cti_saved_tensor(n, 1);
    if (cti_wants(n, 0))
        dx[0] = cti_sum_to_input(n, of_base(dy[0], a, b), 0);
    if (cti_wants(n, 1))
        dx[1] = cti_sum_to_input(n, of_exponent(dy[0], a, b, cti_saved_tensor(n, 2)), 1);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(POSITIVE, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "row and column", .in = {CT_IN(POSITIVE, 7, 1), CT_IN(NORMAL, 1, 5)}},
    {.name = "fewer dimensions", .in = {CT_IN(POSITIVE, 5), CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "one side wants", .in = {CT_IN_FIXED(POSITIVE, 3, 5), CT_IN(NORMAL, 5)}},
    {.name = "empty", .in = {CT_IN(POSITIVE, 0, 5), CT_IN(NORMAL, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_pow(in[0], in[1]);
}

const ct_op cti_op_pow = {.name = "pow",
                          .torch_name = "PowBackward1",
                          .autocast = CTI_F32,
                          .infer = infer,
                          .forward = forward,
                          .vjp = vjp,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_pow(ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_pow, NULL, 0, 2, (ct_tensor *[]){a, b});
}
