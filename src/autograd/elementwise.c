/* SPDX-License-Identifier: Apache-2.0 */
/* Parts shared by elementwise ops: one input (attr: a ct_unary), two inputs that broadcast, and the
 * sums over broadcast dimensions that their gradients need. */
#include "autograd/op.h"
#include "backend/scalar_math.h"

CTI_DEFINE_UNARY_NEEDS(unary_needs)

ct_view cti_meta(const ct_tensor *t)
{
    ct_view v = {.dtype = ct_tensor_dtype(t), .ndim = ct_tensor_ndim(t)};
    for (int i = 0; i < v.ndim; i++) {
        v.shape[i] = ct_tensor_shape(t)[i];
        v.stride[i] = ct_tensor_strides(t)[i];
    }
    return v;
}

ct_tensor *cti_itself(ct_tensor *x)
{
    return x && ct_error_code(ct_tensor_ctx(x)) == CT_OK ? x : NULL;
}

/* ---- one input ---- */

static ct_unary unary_fn(const cti_node *n)
{
    return *(const ct_unary *)cti_attr(n);
}

int cti_unary_infer(cti_node *n)
{
    int rc = cti_check_float(n, 0);
    return rc ? rc : cti_out_like(n, 0, 0);
}

int cti_unary_forward(cti_node *n)
{
    ct_unary fn = unary_fn(n);
    int needs = unary_needs((int)fn);
    if (needs == CTI_NEEDS_X)
        cti_save_in(n, 0, 0);
    if (needs == CTI_NEEDS_Y)
        cti_save_out(n, 1, 0);
    return cti_be(n)->ew->unary(cti_stream(n), fn, cti_y(n, 0), cti_x(n, 0));
}

int cti_unary_backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    return cti_be(n)->ew->unary_grad(cti_stream(n), unary_fn(n), dx, beta, cti_dy(n, 0),
                                     cti_saved(n, 0), cti_saved(n, 1));
}

ct_tensor *cti_apply_unary(const ct_op *op, ct_unary fn, ct_tensor *x)
{
    return cti_apply(op, &fn, sizeof fn, 1, &x);
}

ct_tensor *cti_apply_unary_inplace(const ct_op *op, ct_unary fn, ct_tensor *x)
{
    return cti_apply_inplace(op, &fn, sizeof fn, 1, &x);
}

CTI_DEFINE_MATH_NEEDS(math_needs)

int cti_math_forward(cti_node *n)
{
    const cti_math *m = cti_attr(n);
    int needs = math_needs((int)m->fn);
    if (needs == CTI_NEEDS_X)
        cti_save_in(n, 0, 0);
    if (needs == CTI_NEEDS_Y)
        cti_save_out(n, 1, 0);
    return cti_be(n)->ew->math(cti_stream(n), m->fn, m->a, m->b, cti_y(n, 0), cti_x(n, 0));
}

int cti_math_backward(cti_node *n)
{
    const cti_math *m = cti_attr(n);
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    return cti_be(n)->ew->math_grad(cti_stream(n), m->fn, m->a, m->b, dx, beta, cti_dy(n, 0),
                                    cti_saved(n, 0), cti_saved(n, 1));
}

ct_tensor *cti_apply_math(const ct_op *op, ct_math fn, double a, double b, ct_tensor *x)
{
    cti_math m = {fn, a, b};
    return cti_apply(op, &m, sizeof m, 1, &x);
}

ct_tensor *cti_apply_math_inplace(const ct_op *op, ct_math fn, double a, double b, ct_tensor *x)
{
    cti_math m = {fn, a, b};
    return cti_apply_inplace(op, &m, sizeof m, 1, &x);
}

/* ---- two inputs ---- */

/* float64 sums and products are on every device. */
static bool arithmetic(const cti_node *n, ct_dtype t, bool floats)
{
    return t == CT_F64 || cti_is_compute_dtype(n, t) || (!floats && (t == CT_I32 || t == CT_I64));
}

int cti_binary_infer(cti_node *n, ct_dtype out, bool floats)
{
    const ct_view *a = cti_x(n, 0), *b = cti_x(n, 1);
    int ndim;
    int64_t shape[CT_MAX_DIMS];
    int rc = cti_check_same_dtype(n);
    if (rc)
        return rc;
    if (out == CT_DTYPE_COUNT) {
        out = a->dtype;
        if (!arithmetic(n, out, floats))
            return cti_op_fail(n, CT_EDTYPE, "takes %s, not %s: convert with ct_cast",
                               floats ? "float32 and float64" : "float32, float64, int32 and int64",
                               ct_dtype_name(out));
    }
    rc = cti_broadcast(n, 0, 1, &ndim, shape);
    if (rc)
        return rc;
    /* The stride order of the operand that has the output's shape: layouts flow through. */
    ct_view y = {.ndim = ndim};
    for (int i = 0; i < ndim; i++)
        y.shape[i] = shape[i];
    if (cti_same_shape(a, &y))
        return cti_out_shaped_like(n, 0, out, a);
    if (cti_same_shape(b, &y))
        return cti_out_shaped_like(n, 0, out, b);
    return cti_out(n, 0, out, ndim, shape);
}

int cti_math2_forward(cti_node *n, ct_math2 fn)
{
    const ct_view *y = cti_y(n, 0);
    ct_view a = cti_view_expand(cti_x(n, 0), y->ndim, y->shape);
    ct_view b = cti_view_expand(cti_x(n, 1), y->ndim, y->shape);
    return cti_be(n)->ew->math2(cti_stream(n), fn, y, &a, &b);
}

int cti_binary_forward(cti_node *n, ct_binary fn)
{
    const ct_view *y = cti_y(n, 0);
    ct_view a = cti_view_expand(cti_x(n, 0), y->ndim, y->shape);
    ct_view b = cti_view_expand(cti_x(n, 1), y->ndim, y->shape);
    return cti_be(n)->ew->binary(cti_stream(n), fn, y, &a, &b);
}

/* ---- sums over broadcast dimensions ---- */

/* dx with src's number of dimensions: leading ones of size 1. */
static ct_view with_leading(const ct_view *dx, int ndim)
{
    ct_view v = {.data = dx->data, .dtype = dx->dtype, .ndim = ndim};
    int lead = ndim - dx->ndim;
    for (int i = 0; i < ndim; i++) {
        v.shape[i] = i < lead ? 1 : dx->shape[i - lead];
        v.stride[i] = i < lead ? 0 : dx->stride[i - lead];
    }
    return v;
}

int cti_sum_into(cti_node *n, const ct_view *dx, int beta, const ct_view *src, double scale)
{
    const ct_backend *be = cti_be(n);
    if (cti_same_shape(dx, src) && dx->dtype == src->dtype)
        return be->ew->affine(cti_stream(n), dx, beta, src, scale, 0);
    ct_view y = with_leading(dx, src->ndim);
    size_t bytes = be->reduce->workspace(cti_stream(n), CT_RED_SUM, &y, src);
    void *ws = cti_workspace(n, bytes);
    if (bytes && !ws)
        return cti_pending(n);
    return be->reduce->reduce(cti_stream(n), CT_RED_SUM, &y, beta, src, scale, ws);
}

int cti_mul_into(cti_node *n, const ct_view *dx, int beta, const ct_view *a, const ct_view *b)
{
    const ct_backend *be = cti_be(n);
    if (cti_same_shape(dx, a))
        return be->ew->mul_add(cti_stream(n), dx, beta, a, b);
    const ct_view *t = cti_temp_like(n, dx->dtype, a);
    if (!t)
        return cti_pending(n);
    int rc = be->ew->mul_add(cti_stream(n), t, 0, a, b);
    return rc ? rc : cti_sum_into(n, dx, beta, t, 1);
}
