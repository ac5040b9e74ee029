/* SPDX-License-Identifier: Apache-2.0 */
/* where - y = a where cond is true, else b. The three shapes broadcast; a and b of one dtype, any. Gradient: da = dy where
 * cond, db = dy elsewhere, 0 in the other's places, each summed over what was broadcast. Oracle: torch.where. */
#include "autograd/op.h"

/* The broadcast of all three, in the stride order of one of a and b that has it. */
static int infer(cti_node *n)
{
    const ct_view *c = cti_x(n, 0), *a = cti_x(n, 1), *b = cti_x(n, 2);
    char s[2][128];
    int64_t shape[CT_MAX_DIMS];
    ct_view y = {.dtype = a->dtype};
    if (c->dtype != CT_BOOL)
        return cti_op_fail(n, CT_EDTYPE, "the condition is %s; bool is needed (ct_ne with zeros)",
                           ct_dtype_name(c->dtype));
    if (a->dtype != b->dtype)
        return cti_op_fail(n, CT_EDTYPE, "dtypes differ: %s and %s (ct_cast)",
                           ct_dtype_name(a->dtype), ct_dtype_name(b->dtype));
    int rc = cti_broadcast(n, 1, 2, &y.ndim, y.shape);
    if (rc)
        return rc;
    int ndim = c->ndim > y.ndim ? c->ndim : y.ndim;
    for (int i = 0; i < ndim; i++) {
        int ic = i - (ndim - c->ndim), iy = i - (ndim - y.ndim);
        int64_t dc = ic < 0 ? 1 : c->shape[ic], d = iy < 0 ? 1 : y.shape[iy];
        if (dc != d && dc != 1 && d != 1)
            return cti_op_fail(n, CT_ESHAPE, "the condition %s and the values %s don't broadcast",
                               cti_shape_str(c, s[0], sizeof s[0]),
                               cti_shape_str(&y, s[1], sizeof s[1]));
        shape[i] = d == 1 ? dc : d;
    }
    y.ndim = ndim;
    for (int i = 0; i < ndim; i++)
        y.shape[i] = shape[i];
    if (cti_same_shape(a, &y))
        return cti_out_shaped_like(n, 0, y.dtype, a);
    if (cti_same_shape(b, &y))
        return cti_out_shaped_like(n, 0, y.dtype, b);
    return cti_out(n, 0, y.dtype, ndim, shape);
}

static int forward(cti_node *n)
{
    const ct_view *y = cti_y(n, 0);
    ct_view c = cti_view_expand(cti_x(n, 0), y->ndim, y->shape);
    ct_view a = cti_view_expand(cti_x(n, 1), y->ndim, y->shape);
    ct_view b = cti_view_expand(cti_x(n, 2), y->ndim, y->shape);
    cti_save_in(n, 0, 0);
    return cti_be(n)->ew->where(cti_stream(n), y, &c, &a, &b);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    ct_tensor *c = cti_saved_tensor(n, 0), *none = ct_zeros_like(dy[0]);
    if (cti_wants(n, 1))
        dx[1] = cti_sum_to_input(n, ct_where(c, dy[0], none), 1);
    if (cti_wants(n, 2))
        dx[2] = cti_sum_to_input(n, ct_where(c, none, dy[0]), 2);
    return cti_pending(n);
}

/* No arg. */
static const ct_case cases[] = {
    {.name = "same shape", .in = {CT_IN(BOOL, 3, 5), CT_IN(NORMAL, 3, 5), CT_IN(NORMAL, 3, 5)}},
    {.name = "a wide condition",
     .in = {CT_IN(BOOL, 2, 3, 5), CT_IN(NORMAL, 5), CT_IN(NORMAL, 3, 1)}},
    {.name = "a narrow condition",
     .in = {CT_IN(BOOL, 7, 1), CT_IN(NORMAL, 7, 5), CT_IN_SCALAR(NORMAL)}},
    {.name = "images",
     .in = {CT_IN(BOOL, 2, 3, 5, 7), CT_IN(NORMAL, 2, 3, 5, 7), CT_IN(NORMAL, 1, 3, 1, 1)}},
    {.name = "one side wants",
     .in = {CT_IN(BOOL, 3, 5), CT_IN(NORMAL, 3, 5), CT_IN_FIXED(NORMAL, 5)}},
    {.name = "integers", .in = {CT_IN(BOOL, 3, 5), CT_IN(I64, 3, 5), CT_IN(I64, 5)}},
    {.name = "empty", .in = {CT_IN(BOOL, 0, 5), CT_IN(NORMAL, 0, 5), CT_IN(NORMAL, 1, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    (void)c;
    return ct_where(in[0], in[1], in[2]);
}

const ct_op cti_op_where = {.name = "where",
                            .torch_name = "WhereBackward0",
                            .infer = infer,
                            .forward = forward,
                            .vjp = vjp,
                            CT_CASES(cases),
                            .call = call};

ct_tensor *ct_where(ct_tensor *cond, ct_tensor *a, ct_tensor *b)
{
    return cti_apply(&cti_op_where, NULL, 0, 3, (ct_tensor *[]){cond, a, b});
}
