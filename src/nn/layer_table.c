/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of `layers`: arguments and defaults, and how each is built from them and from the running
 * shape. A new layer is one row of the table and one function. */
#include "nn/layers.h"

#define MAX_FLAT ((int64_t)1 << 40)

static ct_module *build_linear(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    int64_t in = f->ndim > 0 ? f->shape[f->ndim - 1] : 0;

    if (in < 1)
        return cti_layers_fail_shape(p, f, "[..., in_features]");
    f->shape[f->ndim - 1] = a[0].i[0];
    return ct_nn_linear_new(p->ctx, in, a[0].i[0], a[1].word);
}

/* Sizes after a window went over [C,H,W]; false with the error set when it doesn't fit. */
static bool slide(cti_layers *p, cti_flow *f, const int64_t *kernel, const int64_t *stride,
                  const int64_t *pad, const int64_t *dilation, bool ceil_mode)
{
    char in[192];

    cti_shape_text(f->ndim, f->shape, in, sizeof in);
    for (int d = 0; d < 2; d++) {
        int64_t size = f->shape[1 + d],
                room = size + 2 * pad[d] - dilation[d] * (kernel[d] - 1) - 1;
        int64_t out;

        if (room < 0) {
            cti_layers_fail(p, p->layer_at,
                            "a kernel of (%lld, %lld) with padding (%lld, %lld) doesn't fit "
                            "into its input %s",
                            (long long)kernel[0], (long long)kernel[1], (long long)pad[0],
                            (long long)pad[1], in);
            return false;
        }
        out = (room + (ceil_mode ? stride[d] - 1 : 0)) / stride[d] + 1;
        if (ceil_mode && (out - 1) * stride[d] >= size + pad[d])
            out--;
        f->shape[1 + d] = out;
    }
    return true;
}

static ct_module *build_conv2d(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    ct_conv2d_opts o = ct_conv2d_defaults();
    int64_t in = f->ndim == 3 ? f->shape[0] : 0;

    if (f->ndim != 3)
        return cti_layers_fail_shape(p, f, "[C,H,W]");
    for (int d = 0; d < 2; d++) {
        o.stride[d] = a[2].i[d];
        o.padding[d] = a[3].i[d];
        o.dilation[d] = a[4].i[d];
    }
    o.same = a[3].word;
    o.groups = a[5].i[0];
    if (!o.same && !slide(p, f, a[1].i, o.stride, o.padding, o.dilation, false))
        return NULL;
    f->shape[0] = a[0].i[0];
    return ct_nn_conv2d_new(p->ctx, in, a[0].i[0], a[1].i[0], a[1].i[1], o, a[6].word);
}

static ct_nn_batchnorm_opts batchnorm_opts(const cti_arg *a)
{
    return (ct_nn_batchnorm_opts){a[0].real, a[1].real, a[2].word, a[3].word};
}

static ct_module *build_batchnorm1d(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    if (f->ndim != 1 && f->ndim != 2)
        return cti_layers_fail_shape(p, f, "[C] or [C,L]");
    return ct_nn_batchnorm1d_new(p->ctx, f->shape[0], batchnorm_opts(a));
}

static ct_module *build_batchnorm2d(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    if (f->ndim != 3)
        return cti_layers_fail_shape(p, f, "[C,H,W]");
    return ct_nn_batchnorm2d_new(p->ctx, f->shape[0], batchnorm_opts(a));
}

/* kernel, stride, padding of both pools. */
static ct_pool2d_opts pool_opts(const cti_arg *a)
{
    ct_pool2d_opts o = ct_pool2d_defaults(a[0].i[0]);

    for (int d = 0; d < 2; d++) {
        o.kernel[d] = a[0].i[d];
        o.stride[d] = a[1].i[d] ? a[1].i[d] : a[0].i[d];
        o.padding[d] = a[2].i[d];
    }
    return o;
}

static ct_module *build_maxpool2d(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    ct_pool2d_opts o = pool_opts(a);

    if (f->ndim != 3)
        return cti_layers_fail_shape(p, f, "[C,H,W]");
    o.dilation[0] = a[3].i[0];
    o.dilation[1] = a[3].i[1];
    o.ceil_mode = a[4].word;
    if (!slide(p, f, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode))
        return NULL;
    return ct_nn_maxpool2d_new(p->ctx, o);
}

static ct_module *build_avgpool2d(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    ct_pool2d_opts o = pool_opts(a);

    if (f->ndim != 3)
        return cti_layers_fail_shape(p, f, "[C,H,W]");
    o.ceil_mode = a[3].word;
    o.count_include_pad = a[4].word;
    if (!slide(p, f, o.kernel, o.stride, o.padding, (int64_t[]){1, 1}, o.ceil_mode))
        return NULL;
    return ct_nn_avgpool2d_new(p->ctx, o);
}

static ct_module *build_adaptive(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    if (f->ndim != 3)
        return cti_layers_fail_shape(p, f, "[C,H,W]");
    f->shape[1] = a[0].i[0];
    f->shape[2] = a[0].i[1];
    return ct_nn_adaptive_avgpool2d_new(p->ctx, f->shape[1], f->shape[2]);
}

static ct_module *build_upsample(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    ct_interpolate_opts o = {.mode = a[1].word ? CT_INTERPOLATE_BILINEAR : CT_INTERPOLATE_NEAREST,
                             .align_corners = a[2].word};

    if (f->ndim != 3)
        return cti_layers_fail_shape(p, f, "[C,H,W]");
    for (int d = 0; d < 2; d++) {
        o.scale[d] = (double)a[0].i[d];
        if (f->shape[1 + d] > MAX_FLAT / a[0].i[d])
            return cti_layers_fail_shape(p, f, "with fewer than 2^40 elements");
        f->shape[1 + d] *= a[0].i[d];
    }
    return ct_nn_upsample_new(p->ctx, o);
}

static ct_module *build_pixelshuffle(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    int64_t r = a[0].i[0];

    if (f->ndim != 3 || r > INT32_MAX || f->shape[0] % (r * r) || f->shape[1] > MAX_FLAT / r ||
        f->shape[2] > MAX_FLAT / r)
        return cti_layers_fail_shape(p, f, "[C,H,W] with C a multiple of upscale_factor^2");
    f->shape[0] /= r * r;
    f->shape[1] *= r;
    f->shape[2] *= r;
    return ct_nn_pixel_shuffle_new(p->ctx, r);
}

static ct_module *build_flatten(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    int64_t n = f->ndim + 1, start = a[0].i[0], end = a[1].i[0], size = 1;
    int first, last;

    if (f->ndim == 0 && start == 1 && end == -1) { /* as PyTorch: [N] stays */
        return ct_nn_flatten_new(p->ctx, 0, -1);
    }
    start += start < 0 ? n : 0;
    end += end < 0 ? n : 0;
    if (start < 1 || end < start || end >= n) {
        cti_layers_fail(p, p->layer_at,
                        "start_dim %lld and end_dim %lld: expected 1 <= start_dim <= end_dim "
                        "<= %lld (dimension 0 is the batch)",
                        (long long)a[0].i[0], (long long)a[1].i[0], (long long)n - 1);
        return NULL;
    }
    first = (int)start - 1;
    last = (int)end - 1;
    for (int d = first; d <= last; d++) {
        if (f->shape[d] > 0 && size > MAX_FLAT / f->shape[d])
            return cti_layers_fail_shape(p, f, "with fewer than 2^40 elements");
        size *= f->shape[d];
    }
    f->shape[first] = size;
    for (int d = last + 1; d < f->ndim; d++)
        f->shape[first + d - last] = f->shape[d];
    f->ndim -= last - first;
    return ct_nn_flatten_new(p->ctx, (int)a[0].i[0], (int)a[1].i[0]);
}

static ct_module *build_dropout(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    (void)f;
    return ct_nn_dropout_new(p->ctx, a[0].real);
}

static ct_module *build_gelu(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    (void)f;
    return ct_nn_gelu_new(p->ctx, a[0].word);
}

#define BUILD_PLAIN(fn)                                                        \
    static ct_module *build_##fn(cti_layers *p, const cti_arg *a, cti_flow *f) \
    {                                                                          \
        (void)a;                                                               \
        (void)f;                                                               \
        return ct_nn_##fn##_new(p->ctx);                                       \
    }
BUILD_PLAIN(relu)
BUILD_PLAIN(silu)
BUILD_PLAIN(sigmoid)
BUILD_PLAIN(tanh)
BUILD_PLAIN(relu6)
BUILD_PLAIN(selu)
BUILD_PLAIN(hardsigmoid)
BUILD_PLAIN(hardswish)
BUILD_PLAIN(softsign)
BUILD_PLAIN(mish)
BUILD_PLAIN(logsigmoid)

#define BUILD_NUMBER(fn)                                                       \
    static ct_module *build_##fn(cti_layers *p, const cti_arg *a, cti_flow *f) \
    {                                                                          \
        (void)f;                                                               \
        return ct_nn_##fn##_new(p->ctx, a[0].real);                            \
    }
BUILD_NUMBER(leaky_relu)
BUILD_NUMBER(elu)
BUILD_NUMBER(celu)

static ct_module *build_softplus(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    (void)f;
    return ct_nn_softplus_new(p->ctx, a[0].real, a[1].real);
}

/* Over the last dimension. */
static ct_module *build_layernorm(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    if (f->ndim < 1)
        return cti_layers_fail_shape(p, f, "[..., features]");
    return ct_nn_layer_norm_new(p->ctx, 1, &f->shape[f->ndim - 1], a[0].real, a[1].word, true);
}

static ct_module *build_rmsnorm(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    if (f->ndim < 1)
        return cti_layers_fail_shape(p, f, "[..., features]");
    return ct_nn_rms_norm_new(p->ctx, 1, &f->shape[f->ndim - 1], a[0].real, a[1].word);
}

static ct_module *build_groupnorm(cti_layers *p, const cti_arg *a, cti_flow *f)
{
    if (f->ndim < 1 || f->shape[0] % a[0].i[0])
        return cti_layers_fail_shape(p, f, "[C,...] with C a multiple of num_groups");
    return ct_nn_group_norm_new(p->ctx, a[0].i[0], f->shape[0], a[1].real, a[2].word);
}

/* ---- the table ---- PyTorch's names, order and defaults, without the size of the input. */

#define BATCHNORM_ARGS                                                                        \
    {                                                                                         \
        {"eps", CTI_ARG_REAL, "1e-5", 0, false}, {"momentum", CTI_ARG_REAL, "0.1", 0, false}, \
            {"affine", CTI_ARG_BOOL, "true", 0, false},                                       \
            {"track_running_stats", CTI_ARG_BOOL, "true", 0, false},                          \
    }

const cti_layer_spec cti_layer_table[] = {
    {"linear",
     {{"out_features", CTI_ARG_INT, NULL, 1, false}, {"bias", CTI_ARG_BOOL, "true", 0, false}},
     build_linear},
    {"conv2d",
     {{"out_channels", CTI_ARG_INT, NULL, 1, false},
      {"kernel_size", CTI_ARG_PAIR, NULL, 1, false},
      {"stride", CTI_ARG_PAIR, "1", 1, false},
      {"padding", CTI_ARG_PAD, "0", 0, false},
      {"dilation", CTI_ARG_PAIR, "1", 1, false},
      {"groups", CTI_ARG_INT, "1", 1, false},
      {"bias", CTI_ARG_BOOL, "true", 0, false}},
     build_conv2d},
    {"batchnorm1d", BATCHNORM_ARGS, build_batchnorm1d},
    {"batchnorm2d", BATCHNORM_ARGS, build_batchnorm2d},
    {"dropout", {{"p", CTI_ARG_REAL, "0.5", 0, false}}, build_dropout},
    {"maxpool2d",
     {{"kernel_size", CTI_ARG_PAIR, NULL, 1, false},
      {"stride", CTI_ARG_STRIDE, "none", 1, false},
      {"padding", CTI_ARG_PAIR, "0", 0, false},
      {"dilation", CTI_ARG_PAIR, "1", 1, false},
      {"ceil_mode", CTI_ARG_BOOL, "false", 0,
       true}}, /* return_indices comes before it in PyTorch */
     build_maxpool2d},
    {"avgpool2d",
     {{"kernel_size", CTI_ARG_PAIR, NULL, 1, false},
      {"stride", CTI_ARG_STRIDE, "none", 1, false},
      {"padding", CTI_ARG_PAIR, "0", 0, false},
      {"ceil_mode", CTI_ARG_BOOL, "false", 0, false},
      {"count_include_pad", CTI_ARG_BOOL, "true", 0, false}},
     build_avgpool2d},
    {"adaptiveavgpool2d", {{"output_size", CTI_ARG_PAIR, NULL, 1, false}}, build_adaptive},
    {"upsample",
     {{"scale_factor", CTI_ARG_PAIR, NULL, 1, false},
      {"mode", CTI_ARG_RESIZE, "nearest", 0, false},
      {"align_corners", CTI_ARG_BOOL, "false", 0, false}},
     build_upsample},
    {"pixelshuffle", {{"upscale_factor", CTI_ARG_INT, NULL, 1, false}}, build_pixelshuffle},
    {"flatten",
     {{"start_dim", CTI_ARG_INT, "1", -CT_MAX_DIMS, false},
      {"end_dim", CTI_ARG_INT, "-1", -CT_MAX_DIMS, false}},
     build_flatten},
    {"relu", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_relu},
    {"gelu", {{"approximate", CTI_ARG_APPROX, "none", 0, false}}, build_gelu},
    {"silu", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_silu},
    {"sigmoid", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_sigmoid},
    {"tanh", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_tanh},
    {"relu6", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_relu6},
    {"selu", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_selu},
    {"hardsigmoid", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_hardsigmoid},
    {"hardswish", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_hardswish},
    {"softsign", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_softsign},
    {"mish", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_mish},
    {"logsigmoid", {{NULL, CTI_ARG_INT, NULL, 0, false}}, build_logsigmoid},
    {"leakyrelu", {{"negative_slope", CTI_ARG_REAL, "0.01", 0, false}}, build_leaky_relu},
    {"elu", {{"alpha", CTI_ARG_REAL, "1", 0, false}}, build_elu},
    {"celu", {{"alpha", CTI_ARG_REAL, "1", 0, false}}, build_celu},
    {"softplus",
     {{"beta", CTI_ARG_REAL, "1", 0, false}, {"threshold", CTI_ARG_REAL, "20", 0, false}},
     build_softplus},
    {"layernorm",
     {{"eps", CTI_ARG_REAL, "1e-5", 0, false},
      {"elementwise_affine", CTI_ARG_BOOL, "true", 0, false}},
     build_layernorm},
    {"rmsnorm",
     {{"eps", CTI_ARG_REAL, "1e-5", 0, false},
      {"elementwise_affine", CTI_ARG_BOOL, "true", 0, false}},
     build_rmsnorm},
    {"groupnorm",
     {{"num_groups", CTI_ARG_INT, NULL, 1, false},
      {"eps", CTI_ARG_REAL, "1e-5", 0, false},
      {"affine", CTI_ARG_BOOL, "true", 0, false}},
     build_groupnorm},
    {NULL, {{NULL, CTI_ARG_INT, NULL, 0, false}}, NULL},
};
