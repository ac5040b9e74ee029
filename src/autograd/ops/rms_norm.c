/* SPDX-License-Identifier: Apache-2.0 */
/* rms_norm - y = x / sqrt(mean of x^2 + eps) * weight, over the last dimensions, those of `shape`. eps below 0 stands for the
 * dtype's own (PyTorch: None). Shape, gradient: as layer_norm's without a mean. Oracle: torch.nn.functional.rms_norm. */
#include "autograd/op.h"

#include <float.h>

/* arg: how many dimensions, eps. */
static const ct_case cases[] = {
    {.name = "rows", .arg = {1, 1e-5}, .in = {CT_IN(NORMAL, 7, 5), CT_IN(NORMAL, 5)}},
    {.name = "sequences", .arg = {1, 1e-3}, .in = {CT_IN(NORMAL, 2, 3, 11), CT_IN(NORMAL, 11)}},
    {.name = "two dimensions",
     .arg = {2, 1e-5},
     .in = {CT_IN(NORMAL, 3, 4, 5), CT_IN(NORMAL, 4, 5)}},
    {.name = "no weight", .arg = {1, 1e-5}, .in = {CT_IN(NORMAL, 3, 4, 5)}},
    {.name = "empty", .arg = {1, 1e-5}, .in = {CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    const int64_t *end = c->in[0].shape + c->in[0].ndim;
    int dims = (int)c->arg[0];
    return ct_rms_norm(in[0], dims, end - dims, in[1], c->arg[1]);
}

const ct_op cti_op_rms_norm = {.name = "rms_norm",
                               .torch_name = "RmsNormBackward0",
                               .optional = 2,
                               .accumulates = 3,
                               .autocast = CTI_F32,
                               .infer = cti_rownorm_infer,
                               .forward = cti_rownorm_forward,
                               .backward = cti_rownorm_backward,
                               .vjp = cti_rownorm_vjp,
                               CT_CASES(cases),
                               .call = call};

ct_tensor *ct_rms_norm(ct_tensor *x, int dims, const int64_t *shape, ct_tensor *weight, double eps)
{
    double own = x && ct_tensor_dtype(x) == CT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    return cti_apply_rownorm(&cti_op_rms_norm, x, dims, shape, weight, NULL, 2, eps < 0 ? own : eps,
                             true);
}
