/* SPDX-License-Identifier: Apache-2.0 */
/* scatter_add - x with y[.., index[.., i, ..], ..] += src[.., i, ..] along dim, in the order of i. Shapes: as scatter's.
 * Gradient: dx = dy; dsrc = dy gathered. Oracle: torch.scatter_add. */
#include "autograd/op.h"

/* arg: dim. in: x, index, src. */
static const ct_case cases[] = {
    {.name = "columns",
     .arg = {1},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(5, 3, 9), CT_IN(NORMAL, 3, 9)}},
    {.name = "channels",
     .arg = {1},
     .in = {CT_IN(NORMAL, 2, 3, 5, 4), CT_IN_LABELS(3, 2, 4, 5, 4), CT_IN(NORMAL, 2, 4, 5, 4)}},
    {.name = "scalars",
     .arg = {0},
     .in = {CT_IN_SCALAR(NORMAL), {.kind = CT_IN_CLASS, .classes = 1}, CT_IN_SCALAR(NORMAL)}},
    {.name = "integers", .arg = {0}, .in = {CT_IN(I64, 5), CT_IN_LABELS(5, 9), CT_IN(I64, 9)}},
    /* PyTorch 2.15 has no gradient of a larger src. */
    {.name = "src larger",
     .arg = {0},
     .in = {CT_IN(NORMAL, 5, 4), CT_IN_LABELS(5, 2, 3), CT_IN_FIXED(NORMAL, 3, 5)}},
    {.name = "empty",
     .arg = {0},
     .in = {CT_IN(NORMAL, 5, 3), CT_IN_LABELS(5, 0, 3), CT_IN(NORMAL, 0, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_scatter_add(in[0], (int)c->arg[0], in[1], in[2]);
}

const ct_op cti_op_scatter_add = {.name = "scatter_add",
                                  .torch_name = "ScatterAddBackward0",
                                  .infer = cti_scatter_infer,
                                  .forward = cti_scatter_forward,
                                  .vjp = cti_scatter_vjp,
                                  CT_CASES(cases),
                                  .call = call};

ct_tensor *ct_scatter_add(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src)
{
    return cti_apply_scatter(&cti_op_scatter_add, x, index, src, dim, true);
}

ct_tensor *ct_scatter_add_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src)
{
    return cti_apply_scatter_(&cti_op_scatter_add, x, index, src, dim, true);
}
