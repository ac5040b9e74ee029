/* SPDX-License-Identifier: Apache-2.0 */
/* max_pool2d - y = largest of each window. Shape: [N,C,H,W] -> [N,C,P,Q], with
 *   P = (H + 2 pad - dilation (k-1) - 1) / stride + 1,
 * rounded down; or, with ceil_mode, up, less a last window that would begin in the padding behind
 * the input. Padding is never chosen, NaN wins.
 * Gradient: dy to the first largest of the window in row-major order.
 * Also here: what the pools share. Oracle: torch.nn.functional.max_pool2d. */
#include "autograd/op.h"

/* ---- shared by the pools ---- */

static int64_t windows(int64_t size, int64_t pad, int64_t extent, int64_t stride, bool ceil_mode)
{
    int64_t room = size + 2 * pad - extent;
    if (room < 0 && !(ceil_mode && room + stride > 0))
        return 0;
    int64_t count = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    if (ceil_mode && (count - 1) * stride >= size + pad)
        count--;
    return count;
}

int cti_pool_check(cti_node *n, ct_pool2d_opts *o, int64_t *out)
{
    const ct_view *x = cti_x(n, 0);
    char s[64];
    int rc = cti_check_float(n, 0);
    if (rc)
        return rc;
    cti_shape_str(x, s, sizeof s);
    if (x->ndim != 4)
        return cti_op_fail(n, CT_ESHAPE, "x %s must be [N,C,H,W]", s);
    for (int i = 0; i < 2; i++) {
        const char *side = i ? "width" : "height";
        if (o->stride[i] == 0)
            o->stride[i] = o->kernel[i];
        if (!cti_in_int32(o->kernel[i], 1) || !cti_in_int32(o->stride[i], 1) ||
            !cti_in_int32(o->dilation[i], 1))
            return cti_op_fail(
                n, CT_EINVAL,
                "kernel %lld, stride %lld, dilation %lld in %s: must be 1 or more, in 31 bits",
                (long long)o->kernel[i], (long long)o->stride[i], (long long)o->dilation[i], side);
        if (o->padding[i] < 0 || o->padding[i] > o->kernel[i] / 2)
            return cti_op_fail(n, CT_EINVAL,
                               "padding %lld in %s: must be from 0 to half of the kernel %lld",
                               (long long)o->padding[i], side, (long long)o->kernel[i]);
        int64_t extent = o->dilation[i] * (o->kernel[i] - 1) + 1;
        out[i] = x->shape[2 + i] < 1 ?
                     0 :
                     windows(x->shape[2 + i], o->padding[i], extent, o->stride[i], o->ceil_mode);
        if (out[i] < 1)
            return cti_op_fail(n, CT_ESHAPE,
                               "kernel of %lld (dilated: %lld) is larger than the %s of x %s with "
                               "padding %lld",
                               (long long)o->kernel[i], (long long)extent, side, s,
                               (long long)o->padding[i]);
    }
    return CT_OK;
}

int cti_pool_out(cti_node *n, int64_t p, int64_t q)
{
    ct_view y = *cti_x(n, 0);
    bool channels_last = cti_view_channels_last(&y);
    y.shape[2] = p;
    y.shape[3] = q;
    return channels_last ? cti_out_channels_last(n, 0, y.dtype, y.shape) :
                           cti_out_shaped_like(n, 0, y.dtype, &y);
}

void cti_pool_args(const ct_pool2d_opts *o, ct_pool_args *args)
{
    for (int i = 0; i < 2; i++) {
        args->kernel[i] = o->kernel[i];
        args->stride[i] = o->stride[i];
        args->pad[i] = o->padding[i];
        args->dilation[i] = o->dilation[i];
    }
    args->count_include_pad = o->count_include_pad;
}

ct_pool2d_opts cti_pool_case(const ct_case *c)
{
    ct_pool2d_opts o = ct_pool2d_defaults(1);
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = (int64_t)c->arg[i];
        o.stride[i] = (int64_t)c->arg[2 + i];
        o.padding[i] = (int64_t)c->arg[4 + i];
        o.dilation[i] = (int64_t)c->arg[6 + i];
    }
    o.ceil_mode = c->arg[8] != 0;
    o.count_include_pad = c->arg[9] != 0;
    return o;
}

ct_pool2d_opts ct_pool2d_defaults(int64_t kernel)
{
    return (ct_pool2d_opts){.kernel = {kernel, kernel},
                            .stride = {kernel, kernel},
                            .dilation = {1, 1},
                            .count_include_pad = true};
}

/* ---- the op ---- */

static int infer(cti_node *n)
{
    const ct_view *x = cti_x(n, 0);
    int64_t out[2];
    char s[64];
    int rc = cti_pool_check(n, cti_attr_mut(n), out);
    if (rc)
        return rc;
    if (x->shape[2] > INT32_MAX / x->shape[3])
        return cti_op_fail(n, CT_ESHAPE, "an image of x %s has more than %lld pixels",
                           cti_shape_str(x, s, sizeof s), (long long)INT32_MAX);
    return cti_pool_out(n, out[0], out[1]);
}

static int forward(cti_node *n)
{
    ct_pool_args args = {.x = *cti_x(n, 0), .y = *cti_y(n, 0)};
    const ct_view *index = NULL;
    if (cti_wants(n, 0)) {
        index = cti_save_new_like(n, 0, CT_I32, cti_y(n, 0));
        if (!index)
            return cti_pending(n);
    }
    cti_pool_args(cti_attr(n), &args);
    return cti_be(n)->pool->max(cti_stream(n), &args, index);
}

static int backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    ct_pool_args args = {.x = *cti_in_meta(n, 0), .y = *cti_saved(n, 0)};
    args.x.data = args.y.data = NULL;
    args.y.dtype = dx->dtype;
    cti_pool_args(cti_attr(n), &args);
    return cti_be(n)->pool->max_grad(cti_stream(n), &args, dx, beta, cti_dy(n, 0), cti_saved(n, 0));
}

/* The places that won are constants: dy goes there. */
static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    const ct_view *x = cti_in_meta(n, 0);
    int64_t pixels = x->shape[2] * x->shape[3], windows = 0;
    if (dy[0])
        windows = ct_tensor_size(dy[0], 2) * ct_tensor_size(dy[0], 3);
    const int64_t flat_y[3] = {x->shape[0], x->shape[1], windows},
                  flat_x[3] = {x->shape[0], x->shape[1], pixels};
    ct_tensor *at = ct_reshape(ct_contiguous(ct_cast(cti_saved_tensor(n, 0), CT_I64)), 3, flat_y);
    ct_tensor *none = ct_new_full(dy[0], 3, flat_x, 0);
    dx[0] = ct_reshape(ct_scatter_add(none, 2, at, ct_reshape(ct_contiguous(dy[0]), 3, flat_y)), 4,
                       x->shape);
    return cti_pending(n);
}

/* arg: kernel h, w, stride h, w, padding h, w, dilation h, w, ceil_mode. */
static const ct_case cases[] = {
    {.name = "2x2", .arg = {2, 2, 2, 2, 0, 0, 1, 1, 0}, .in = {CT_IN(DISTINCT, 2, 3, 6, 8)}},
    {.name = "3x3, stride 2, padding 1",
     .arg = {3, 3, 2, 2, 1, 1, 1, 1, 0},
     .in = {CT_IN(DISTINCT, 2, 3, 7, 9)}},
    {.name = "ceil", .arg = {2, 2, 2, 2, 0, 0, 1, 1, 1}, .in = {CT_IN(DISTINCT, 1, 2, 5, 7)}},
    {.name = "ceil, padding",
     .arg = {3, 2, 3, 2, 1, 1, 1, 1, 1},
     .in = {CT_IN(DISTINCT, 1, 2, 6, 7)}},
    {.name = "ceil, last window dropped",
     .arg = {1, 1, 3, 2, 0, 0, 1, 1, 1},
     .in = {CT_IN(DISTINCT, 1, 2, 6, 6)}},
    {.name = "oblong, overlapping, dilated",
     .arg = {2, 3, 1, 2, 0, 1, 2, 1, 0},
     .in = {CT_IN(DISTINCT, 2, 2, 6, 7)}},
    {.name = "stride 0 is the kernel",
     .arg = {2, 3, 0, 0, 0, 0, 1, 1, 0},
     .in = {CT_IN(DISTINCT, 1, 3, 5, 6)}},
    {.name = "empty", .arg = {2, 2, 2, 2, 0, 0, 1, 1, 0}, .in = {CT_IN(DISTINCT, 0, 3, 4, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_max_pool2d(in[0], cti_pool_case(c));
}

const ct_op cti_op_max_pool2d = {.name = "max_pool2d",
                                 .torch_name = "MaxPool2DWithIndicesBackward0",
                                 .accumulates = 1,
                                 .infer = infer,
                                 .forward = forward,
                                 .backward = backward,
                                 .vjp = vjp,
                                 CT_CASES(cases),
                                 .call = call};

ct_tensor *ct_max_pool2d(ct_tensor *x, ct_pool2d_opts opts)
{
    return cti_apply(&cti_op_max_pool2d, &opts, sizeof opts, 1, &x);
}
