/* SPDX-License-Identifier: Apache-2.0 */
/* upsample_bilinear2d - images of another size, between the four cells around step (p + 1/2) - 1/2 (align_corners:
 * p (H - 1) / (P - 1)), clamped to the image; step = H / P or 1 / scale; no antialias. Shape: [N,C,H,W] ->
 * [N,C,P,Q]. Gradient: dy with the same weights. Oracle: torch.nn.functional.interpolate. */
#include "autograd/op.h"

static int shape_of(cti_node *n, const int64_t *size)
{
    const ct_view *x = cti_x(n, 0);
    const int64_t shape[4] = {x->shape[0], x->shape[1], size[0], size[1]};
    return cti_view_channels_last(x) ? cti_out_channels_last(n, 0, x->dtype, shape) :
                                       cti_out(n, 0, x->dtype, 4, shape);
}

int cti_upsample_infer(cti_node *n)
{
    const cti_upsample *a = cti_attr(n);
    const ct_view *x = cti_x(n, 0);
    char s[64];
    int rc = cti_check_float(n, 0);
    if (rc)
        return rc;
    if (x->ndim != 4 || x->shape[2] == 0 || x->shape[3] == 0)
        return cti_op_fail(n, CT_ESHAPE, "x %s must be [N,C,H,W] with H and W 1 or more",
                           cti_shape_str(x, s, sizeof s));
    return shape_of(n, a->out);
}

static void args_of(const cti_upsample *a, ct_resize_args *args)
{
    args->step[0] = a->step[0];
    args->step[1] = a->step[1];
    args->linear = a->linear;
    args->align_corners = a->align;
}

int cti_upsample_forward(cti_node *n)
{
    ct_resize_args args = {.x = *cti_x(n, 0), .y = *cti_y(n, 0)};
    args_of(cti_attr(n), &args);
    return cti_be(n)->image->resize(cti_stream(n), &args);
}

int cti_upsample_backward(cti_node *n)
{
    int beta;
    const ct_view *dx = cti_dx(n, 0, &beta);
    if (!dx)
        return cti_pending(n);
    ct_resize_args args = {.x = *dx, .y = *cti_dy(n, 0)};
    args_of(cti_attr(n), &args);
    return cti_be(n)->image->resize_grad(cti_stream(n), &args, beta);
}

/* ---- the gradient as an op: its own gradient is the resizing ---- */

static int back_infer(cti_node *n)
{
    return shape_of(n, ((const cti_upsample *)cti_attr(n))->in);
}

static int back_forward(cti_node *n)
{
    ct_resize_args args = {.x = *cti_y(n, 0), .y = *cti_x(n, 0)};
    args_of(cti_attr(n), &args);
    return cti_be(n)->image->resize_grad(cti_stream(n), &args, 0);
}

static int back_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_apply_upsample(dy[0], *(const cti_upsample *)cti_attr(n));
    return cti_pending(n);
}

static const ct_op back = {.name = "upsample2d",
                           .torch_name = "UpsampleBackward2DBackward0",
                           .infer = back_infer,
                           .forward = back_forward,
                           .vjp = back_vjp};

int cti_upsample_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = cti_apply(&back, cti_attr(n), sizeof(cti_upsample), 1, &dy[0]);
    return cti_pending(n);
}

/* arg: align_corners, size h, w, scale h, w (where size is 0). In f32 places are rounded, as PyTorch's are: enlarged
 * cases are further from f64. */
static const ct_case cases[] = {
    {.name = "larger", .arg = {0, 7, 9}, .in = {CT_IN(NORMAL, 2, 3, 4, 5)}},
    {.name = "smaller", .arg = {0, 3, 2}, .in = {CT_IN(NORMAL, 1, 2, 7, 5)}},
    {.name = "corners", .arg = {1, 7, 3}, .in = {CT_IN(NORMAL, 2, 3, 4, 5)}},
    {.name = "one cell", .arg = {1, 1, 4}, .in = {CT_IN(NORMAL, 1, 2, 5, 1)}},
    {.name = "scale",
     .arg = {0, 0, 0, 1.7, 0.6},
     .in = {CT_IN(NORMAL, 1, 2, 5, 7)},
     .tol_f32 = 1e-4},
    {.name = "scale and corners", .arg = {1, 0, 0, 2, 3}, .in = {CT_IN(NORMAL, 1, 3, 3, 2)}},
    {.name = "channels", .arg = {0, 5, 4}, .in = {CT_IN(NORMAL, 2, 9, 3, 2)}, .tol_f32 = 1e-4},
    {.name = "same size", .arg = {0, 3, 5}, .in = {CT_IN(NORMAL, 1, 2, 3, 5)}, .tol_f32 = 1e-4},
    {.name = "empty", .arg = {0, 7, 9}, .in = {CT_IN_FIXED(NORMAL, 0, 3, 4, 5)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    ct_interpolate_opts o = {.mode = CT_INTERPOLATE_BILINEAR, .align_corners = c->arg[0] != 0};
    for (int i = 0; i < 2; i++) {
        o.size[i] = (int64_t)c->arg[1 + i];
        o.scale[i] = c->arg[3 + i];
    }
    return ct_interpolate(in[0], o);
}

const ct_op cti_op_upsample_bilinear2d = {.name = "upsample_bilinear2d",
                                          .torch_name = "UpsampleBilinear2DBackward0",
                                          .accumulates = 1,
                                          .infer = cti_upsample_infer,
                                          .forward = cti_upsample_forward,
                                          .backward = cti_upsample_backward,
                                          .vjp = cti_upsample_vjp,
                                          CT_CASES(cases),
                                          .call = call};
