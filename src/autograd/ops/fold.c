/* SPDX-License-Identifier: Apache-2.0 */
/* fold - columns back to images: each cell is the sum over the windows that it is in (col2im). Shape: x [N, C R S, L],
 * L as many as unfold gives for the image -> [N,C,H,W]. Gradient: unfold of dy. Oracle:
 * torch.nn.functional.fold. */
#include "autograd/op.h"

typedef struct attrs {
    ct_unfold_opts opts;
    int64_t image[2];
} attrs;

static int infer(cti_node *n)
{
    const attrs *a = cti_attr(n);
    const ct_view *x = cti_x(n, 0);
    ct_unfold_args args;
    char s[64];
    int rc = cti_check_float(n, 0);
    if (rc)
        return rc;
    if (!cti_in_int32(a->image[0], 1) || !cti_in_int32(a->image[1], 1))
        return cti_op_fail(n, CT_EINVAL, "an image of %lld x %lld: sizes must be 1 or more",
                           (long long)a->image[0], (long long)a->image[1]);
    rc = cti_unfold_args(n, &a->opts, a->image, &args);
    if (rc)
        return rc;
    int64_t cells = args.kernel[0] * args.kernel[1], windows = args.out[0] * args.out[1];
    if (x->ndim != 3 || x->shape[1] % cells || x->shape[2] != windows)
        return cti_op_fail(
            n, CT_ESHAPE,
            "x %s must be [N, C * %lld, %lld]: the cells of a window, and the windows "
            "of such an image",
            cti_shape_str(x, s, sizeof s), (long long)cells, (long long)windows);
    const int64_t shape[4] = {x->shape[0], x->shape[1] / cells, a->image[0], a->image[1]};
    return cti_out(n, 0, x->dtype, 4, shape);
}

static int forward(cti_node *n)
{
    const attrs *a = cti_attr(n);
    ct_unfold_args args = {.x = *cti_y(n, 0), .y = *cti_x(n, 0)};
    cti_unfold_args(n, &a->opts, a->image, &args);
    return cti_be(n)->image->fold(cti_stream(n), &args, 0);
}

static int vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx)
{
    dx[0] = ct_unfold(dy[0], ((const attrs *)cti_attr(n))->opts);
    return cti_pending(n);
}

/* arg: kernel, stride, padding, dilation, each h, w; height, width. */
static const ct_case cases[] = {
    {.name = "plain", .arg = {2, 3, 1, 1, 0, 0, 1, 1, 4, 5}, .in = {CT_IN(NORMAL, 2, 18, 9)}},
    {.name = "strides, padding",
     .arg = {3, 2, 2, 3, 1, 2, 1, 1, 5, 4},
     .in = {CT_IN(NORMAL, 1, 12, 9)}},
    {.name = "dilation", .arg = {2, 2, 1, 2, 0, 1, 3, 2, 5, 4}, .in = {CT_IN(NORMAL, 1, 8, 4)}},
    {.name = "one window", .arg = {3, 3, 1, 1, 0, 0, 1, 1, 3, 3}, .in = {CT_IN(NORMAL, 2, 9, 1)}},
    {.name = "empty", .arg = {2, 2, 1, 1, 0, 0, 1, 1, 3, 3}, .in = {CT_IN_FIXED(NORMAL, 0, 8, 4)}},
};

static ct_tensor *call(ct_tensor *const *in, const ct_case *c)
{
    return ct_fold(in[0], (int64_t)c->arg[8], (int64_t)c->arg[9], cti_unfold_case(c));
}

const ct_op cti_op_fold = {.name = "fold",
                           .torch_name = "Col2ImBackward0",
                           .infer = infer,
                           .forward = forward,
                           .vjp = vjp,
                           CT_CASES(cases),
                           .call = call};

ct_tensor *ct_fold(ct_tensor *x, int64_t height, int64_t width, ct_unfold_opts opts)
{
    attrs a = {opts, {height, width}};
    return cti_apply(&cti_op_fold, &a, sizeof a, 1, &x);
}
