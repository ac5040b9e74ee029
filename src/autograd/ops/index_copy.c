/* SPDX-License-Identifier: Apache-2.0 */
/* index_copy - x with the slices along dim that index [n] (i64 or i32) names replaced by those of src; of equal
 * indices the last one stays. All dtypes. Shapes: as index_add's. Gradient: dx = dy, 0 where replaced; dsrc = dy's
 * slices (as if each one stayed). Oracle: torch.index_copy. */
#include "autograd/op.h"

static int forward(cti_node *n)
{
    return cti_index_add_run(n, false);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const int dim = *(const int *)cti_attr(n);
    ct_tensor *index = cti_saved_tensor(n, 0);
    if (cti_wants(n, 0)) {
        ct_view src = *cti_in_meta(n, 2);
        dx[0] = ct_index_copy(dy[0], dim, index, ct_new_full(dy[0], src.ndim, src.shape, 0));
    }
    if (cti_wants(n, 2))
        dx[2] = ct_index_select(dy[0], dim, index);
    return cti_pending(n);
}

/* arg: dim. in: x, index, src. The indices are all different: PyTorch leaves open which one stays. */
static const ct_case cases[] = {
    {.name = "a row",
     .arg = {0},
     .in = {CT_IN(NORMAL, 5, 7), CT_IN_LABELS(5, 1), CT_IN(NORMAL, 1, 7)}},
    {.name = "a column",
     .arg = {-1},
     .in = {CT_IN(NORMAL, 3, 5), CT_IN_LABELS(5, 1), CT_IN(NORMAL, 3, 1)}},
    {.name = "a channel",
     .arg = {1},
     .in = {CT_IN(NORMAL, 2, 3, 5, 4), CT_IN_LABELS(3, 1), CT_IN(NORMAL, 2, 1, 5, 4)}},
    {.name = "bool", .arg = {0}, .in = {CT_IN(BOOL, 5, 2), CT_IN_LABELS(5, 1), CT_IN(BOOL, 1, 2)}},
    {.name = "empty",
     .arg = {0},
     .in = {CT_IN(NORMAL, 5, 3), CT_IN_LABELS(5, 0), CT_IN(NORMAL, 0, 3)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_index_copy(in[0], (int)c->arg[0], in[1], in[2]);
}

const ct_op cti_op_index_copy = {.name = "index_copy",
                                 .torch_name = "IndexCopyBackward0",
                                 .infer = cti_index_add_infer,
                                 .forward = forward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_index_copy(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src)
{
    ct_tensor *in[3] = {x, cti_index_i64(index), src};
    return index && !in[1] ? NULL : cti_apply(&cti_op_index_copy, &dim, sizeof dim, 3, in);
}

ct_tensor *ct_index_copy_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src)
{
    ct_tensor *in[3] = {x, cti_index_i64(index), src};
    return index && !in[1] ? NULL : cti_apply_inplace(&cti_op_index_copy, &dim, sizeof dim, 3, in);
}
