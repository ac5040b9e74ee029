/* SPDX-License-Identifier: Apache-2.0 */
/* eye - [n,m] with 1 on the diagonal, 0 elsewhere. All dtypes. No gradient. Oracle: torch.eye. */
#include "autograd/op.h"

static int infer(cti_node *n)
{
    return cti_out(n, 0, cti_x(n, 0)->dtype, 2, cti_attr(n));
}

static int forward(cti_node *n)
{
    const ct_view *y = cti_y(n, 0);
    const ct_k_ew *ew = cti_be(n)->ew;
    ct_view diagonal = {.data = y->data, .dtype = y->dtype, .ndim = 1};
    diagonal.shape[0] = y->shape[0] < y->shape[1] ? y->shape[0] : y->shape[1];
    diagonal.stride[0] = y->stride[0] + y->stride[1];
    int rc = ew->fill(cti_stream(n), y, 0);
    return rc || diagonal.shape[0] == 0 ? rc : ew->fill(cti_stream(n), &diagonal, 1);
}

/* arg: n, m. in: of the dtype. */
static const ct_case cases[] = {
    {.name = "square", .arg = {5, 5}, .in = {CT_IN(NORMAL, 1)}},
    {.name = "wide", .arg = {3, 7}, .in = {CT_IN(NORMAL, 1)}},
    {.name = "high, integers", .arg = {4, 1}, .in = {CT_IN(I64, 1)}},
    {.name = "empty", .arg = {0, 3}, .in = {CT_IN(NORMAL, 0)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return in[0] ? ct_eye(ct_tensor_ctx(in[0]), ct_tensor_dtype(in[0]), (int64_t)c->arg[0],
                          (int64_t)c->arg[1]) :
                   NULL;
}

const ct_op cti_op_eye = {.name = "eye",
                          .torch_name = "EyeBackward0",
                          .infer = infer,
                          .forward = forward,
                          CT_CASES(cases),
                          .call = call};

ct_tensor *ct_eye(ct_ctx *ctx, ct_dtype dtype, int64_t n, int64_t m)
{
    const int64_t shape[2] = {n, m};
    if (n < 0 || m < 0)
        return cti_raise(ctx, &cti_op_eye, CT_EINVAL, "[%lld,%lld]: sizes must be 0 or more",
                         (long long)n, (long long)m);
    return cti_apply_new(&cti_op_eye, shape, sizeof shape, ctx, dtype);
}
