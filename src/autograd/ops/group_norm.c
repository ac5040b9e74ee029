/* SPDX-License-Identifier: Apache-2.0 */
/* group_norm - x [N,C,...] normalized over each of `groups` groups of channels, then weight and bias for each channel;
 * instance_norm: each channel its own group, or the running statistics. Shape: as x. Formulas around layer_norm.
 * Oracle: torch.nn.functional.group_norm, instance_norm. */
#include "autograd/op.h"

#include <inttypes.h>

/* arg: groups (0: instance_norm), eps. in: x, weight, bias. */
static const ct_case cases[] = {
    {.name = "images",
     .arg = {2, 1e-5},
     .in = {CT_IN(NORMAL, 2, 4, 3, 5), CT_IN(NORMAL, 4), CT_IN(NORMAL, 4)}},
    {.name = "rows",
     .arg = {3, 1e-3},
     .in = {CT_IN(NORMAL, 7, 6), CT_IN(NORMAL, 6), CT_IN(NORMAL, 6)}},
    {.name = "one group, no weight", .arg = {1, 1e-5}, .in = {CT_IN(NORMAL, 2, 3, 5)}},
    {.name = "instances",
     .arg = {0, 1e-5},
     .in = {CT_IN(NORMAL, 2, 3, 4, 5), CT_IN(NORMAL, 3), CT_IN(NORMAL, 3)}},
    {.name = "instances of sequences", .arg = {0, 1e-5}, .in = {CT_IN(NORMAL, 2, 3, 7)}},
    {.name = "empty",
     .arg = {2, 1e-5},
     .in = {CT_IN(NORMAL, 0, 4, 3), CT_IN(NORMAL, 4), CT_IN(NORMAL, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return c->arg[0] != 0 ? ct_group_norm(in[0], (int64_t)c->arg[0], in[1], in[2], c->arg[1]) :
                            ct_instance_norm(in[0], in[1], in[2], c->arg[1]);
}

const ct_op cti_op_group_norm = {
    .name = "group_norm", .optional = 6, .autocast = CTI_F32, CT_CASES(cases), .call = call};

/* v [C] as [1,C,1,...]. */
static ct_tensor *per_channel(ct_tensor *v, int ndim, int64_t channels)
{
    int64_t shape[CT_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        shape[i] = i == 1 ? channels : 1;
    return ct_reshape(v, ndim, shape);
}

ct_tensor *ct_group_norm(ct_tensor *x, int64_t groups, ct_tensor *weight, ct_tensor *bias,
                         double eps)
{
    char s[64];
    if (!x)
        return cti_raise(cti_ctx_of(2, (ct_tensor *[]){weight, bias}), &cti_op_group_norm,
                         CT_EINVAL, "x is NULL");
    x = cti_operand(&cti_op_group_norm, x);
    weight = cti_operand(&cti_op_group_norm, weight);
    bias = cti_operand(&cti_op_group_norm, bias);
    if (!x)
        return NULL;
    ct_view v = cti_meta(x);
    ct_ctx *ctx = ct_tensor_ctx(x);
    if (v.ndim < 2 || groups < 1 || v.shape[1] % groups || v.shape[1] == 0)
        return cti_raise(ctx, &cti_op_group_norm, CT_ESHAPE,
                         "x %s must be [N,C,...] with C a multiple of the %" PRId64 " groups",
                         cti_shape_str(&v, s, sizeof s), groups);
    for (int i = 0; i < 2; i++) {
        ct_tensor *p = i ? bias : weight;
        if (p && (ct_tensor_ndim(p) != 1 || ct_tensor_size(p, 0) != v.shape[1]))
            return cti_raise(ctx, &cti_op_group_norm, CT_ESHAPE,
                             "%s must be [%" PRId64 "], as x %s has %" PRId64 " channels",
                             i ? "bias" : "weight", v.shape[1], cti_shape_str(&v, s, sizeof s),
                             v.shape[1]);
    }
    int64_t each = v.shape[1] / groups, shape[3] = {v.shape[0], groups, each};
    for (int i = 2; i < v.ndim; i++)
        shape[2] *= v.shape[i];
    ct_tensor *y =
        ct_layer_norm(ct_reshape(ct_contiguous(x), 3, shape), 1, &shape[2], NULL, NULL, eps);
    y = ct_reshape(y, v.ndim, v.shape);
    if (weight)
        y = ct_mul(y, per_channel(weight, v.ndim, v.shape[1]));
    return bias ? ct_add(y, per_channel(bias, v.ndim, v.shape[1])) : y;
}

ct_tensor *ct_instance_norm(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, double eps)
{
    return ct_group_norm(x, x && ct_tensor_ndim(x) > 1 ? ct_tensor_size(x, 1) : 1, weight, bias,
                         eps);
}
