/* SPDX-License-Identifier: Apache-2.0 */
/* cast - x converted to another dtype: float to integer truncates, float to bool is x != 0, float32
 * to the 16-bit floats rounds to nearest even. Shape: as x. Gradient: dy converted back, between
 * floats; none to or from integers and bool. Oracle: torch.Tensor.to. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_out_shaped_like(n, 0, *(const ct_dtype *)cti_attr(n), cti_x(n, 0));
}

static int forward(cti_node *n)
{
    return cti_be(n)->ew->copy(cti_stream(n), cti_y(n, 0), cti_x(n, 0));
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_cast(dy[0], cti_in_meta(n, 0)->dtype);
    return cti_pending(n);
}

/* arg: the ct_dtype (0 bool, 1 uint8, 2 int32, 3 int64, 4 float16, 5 bfloat16, 6 float32, 7
 * float64). */
static const ct_case cases[] = {
    {.name = "to float32",
     .arg = {CT_F32},
     .in = {CT_IN(NORMAL, 3, 5)},
     .skip_diff = "float32 rounds off the differences"},
    {.name = "to bfloat16",
     .arg = {CT_BF16},
     .in = {CT_IN_FIXED(NORMAL, 37)},
     .skip_diff = "bfloat16 rounds off the differences"},
    {.name = "to int64", .arg = {CT_I64}, .in = {CT_IN_FIXED(NORMAL, 37)}},
    {.name = "to bool", .arg = {CT_BOOL}, .in = {CT_IN(I64, 37)}},
    {.name = "from bool", .arg = {CT_F32}, .in = {CT_IN(BOOL, 37)}},
    {.name = "empty", .arg = {CT_F32}, .in = {CT_IN(NORMAL, 0, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_cast(in[0], (ct_dtype)c->arg[0]);
}

const ct_op cti_op_cast = {.name = "cast",
                           .torch_name = "ToCopyBackward0",
                           .autocast = CTI_AS_IS,
                           .infer = infer,
                           .forward = forward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_cast(ct_tensor *x, ct_dtype dtype)
{
    if (!x)
        return NULL;
    if ((unsigned)dtype >= CT_DTYPE_COUNT)
        return cti_raise(ct_tensor_ctx(x), &cti_op_cast, CT_EINVAL, "%d is no ct_dtype",
                         (int)dtype);
    if (ct_tensor_dtype(x) == dtype)
        return cti_itself(x);
    return cti_apply(&cti_op_cast, &dtype, sizeof dtype, 1, &x);
}
