/* SPDX-License-Identifier: Apache-2.0 */
/* Networks from text: what is built, and every kind of mistake with its whole text. */
#include "nn/layers.h"
#include "nn_fixture.h"

#include <stdio.h>

static const int64_t image[] = {3, 8, 8};

static void expect_built(const char *text, int ndim, const int64_t *shape, const char *names,
                         const char *out)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_module *m = ct_nn_layers_new(ctx, text, ndim, shape);
    int64_t batch[CT_MAX_DIMS] = {2};
    ct_tensor *x;
    char got[96];

    cr_assert_not_null(m, "%s: %s", text, ct_error_get(ctx)->text);
    expect_names(m, names);
    memcpy(batch + 1, shape, (size_t)ndim * sizeof *shape);
    x = ct_tensor_new(ctx, CT_F32, ndim + 1, batch);
    ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    ct_tensor *y = ct_module_forward(m, x);
    cr_assert_not_null(y, "%s: %s", text, ct_error_get(ctx)->text);
    cr_expect_str_eq(ct_tensor_describe(y, got, sizeof got), out, "%s: got %s", text, got);
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_module_free(m);
    close_ctx(ctx);
}

/* The sizes that the text infers must be those that the ops give. */
Test(nn_text, builds)
{
    expect_built("conv2d(32, 3, padding=1) batchnorm2d relu maxpool2d(2) flatten linear(10)", 3,
                 image,
                 "0.weight 0.bias 1.weight 1.bias [1.running_mean] [1.running_var] "
                 "[1.num_batches_tracked] 5.weight 5.bias",
                 "float32 [2,10]");
    expect_built("  linear ( out_features = 5 , bias = False )\n\trelu()\n", 1, (int64_t[]){4},
                 "0.weight", "float32 [2,5]");
}

Test(nn_text, every_layer)
{
    expect_built(
        "conv2d(6, (3, 5), stride=(1, 2), padding=(1, 0), dilation=1, groups=3, bias=false)", 3,
        (int64_t[]){3, 6, 9}, "0.weight", "float32 [2,6,6,3]");
    expect_built("conv2d(6, 3, padding='same', dilation=2)", 3, image, "0.weight 0.bias",
                 "float32 [2,6,8,8]");
    expect_built("maxpool2d(3, 2, 1, ceil_mode=true)", 3, image, "", "float32 [2,3,5,5]");
    expect_built("maxpool2d((2, 3), None, 0, (2, 1))", 3, image, "", "float32 [2,3,3,2]");
    expect_built("avgpool2d(3, 2, 1, True, count_include_pad=false)", 3, image, "",
                 "float32 [2,3,5,5]");
    expect_built("avgpool2d(2)", 3, image, "", "float32 [2,3,4,4]");
    expect_built("adaptiveavgpool2d((1, 2)) flatten(2) flatten(start_dim=-2, end_dim=-1)", 3, image,
                 "", "float32 [2,6]");
    expect_built("flatten(1, 2) linear(4)", 3, image, "1.weight 1.bias", "float32 [2,24,4]");
    expect_built(
        "batchnorm1d(1e-3, momentum=0.2, affine=false) gelu gelu(tanh) gelu(approximate=none) "
        "silu sigmoid tanh dropout dropout(p=0.1)",
        1, (int64_t[]){4}, "[0.running_mean] [0.running_var] [0.num_batches_tracked]",
        "float32 [2,4]");
    expect_built("batchnorm1d(track_running_stats=false)", 2, (int64_t[]){4, 3}, "0.weight 0.bias",
                 "float32 [2,4,3]");
    expect_built("upsample(2) upsample((1, 3), mode=bilinear, align_corners=true)", 3, image, "",
                 "float32 [2,3,16,48]");
    expect_built("conv2d(8, 1) pixelshuffle(2)", 3, image, "0.weight 0.bias",
                 "float32 [2,2,16,16]");
    expect_built(
        "relu6 selu hardsigmoid hardswish softsign mish logsigmoid leakyrelu leakyrelu(0.2) elu celu(0.5) "
        "softplus(2, threshold=10)",
        1, (int64_t[]){4}, "", "float32 [2,4]");
    expect_built("layernorm rmsnorm(eps=1e-6) layernorm(elementwise_affine=false)", 1,
                 (int64_t[]){4}, "0.weight 0.bias 1.weight", "float32 [2,4]");
    expect_built("groupnorm(3) conv2d(8, 1) groupnorm(num_groups=2, affine=false)", 3, image,
                 "0.weight 0.bias 1.weight 1.bias", "float32 [2,8,8,8]");
    expect_built("flatten relu", 0, image, "", "float32 [2]");
    expect_built("residual(conv2d(3, 3, padding=1) residual( relu ) )\nflatten linear(2)", 3, image,
                 "0.body.0.weight 0.body.0.bias 2.weight 2.bias", "float32 [2,2]");
}

/* A final '@' in `error` stands for the names of all layers. */
static void expect_refused(const char *text, const char *error)
{
    char want[1024];
    ct_ctx *ctx = open_ctx(CT_F32);
    size_t n = (size_t)snprintf(want, sizeof want, "%s", error);

    if (n > 0 && want[n - 1] == '@') {
        n--;
        for (const cti_layer_spec *l = cti_layer_table; l->name; l++)
            n += (size_t)snprintf(want + n, sizeof want - n, "%s, ", l->name);
        snprintf(want + n, sizeof want - n, "residual");
    }
    ct_module *m = ct_nn_layers_new(ctx, text, 3, image);

    cr_expect_null(m, "%s", text);
    expect_text(ctx, CT_ECONFIG, want);
    ct_module_free(m);
    close_ctx(ctx);
}

Test(nn_text, wrong_words)
{
    expect_refused("", "layers, column 1: there is no layer");
    expect_refused(
        "conv2d(8, 3) rellu",
        "layers, column 14: layer 1: unknown layer 'rellu'; did you mean 'relu'? there are @");
    expect_refused(
        "Conv2d(8, 3)",
        "layers, column 1: layer 0: unknown layer 'Conv2d'; did you mean 'conv2d'? there "
        "are @");
    expect_refused("transformer",
                   "layers, column 1: layer 0: unknown layer 'transformer'; there are @");
    expect_refused(
        "relu, relu",
        "layers, column 5: layer 1: layers are separated by blanks or new lines, not by ','");
    expect_refused("relu )", "layers, column 6: layer 1: expected a layer's name, got ')'");
    expect_refused("relu\n  relu\n   +3",
                   "layers, line 3, column 4: layer 2: expected a layer's name, got '+3'");
    expect_refused("relu \xc3\xa4 x",
                   "layers, column 6: layer 1: expected a layer's name, got '\xc3\xa4'");
}

Test(nn_text, wrong_arguments)
{
    const char *conv =
        "conv2d(out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, "
        "bias=true)";
    char want[512];

    snprintf(want, sizeof want, "layers, column 1: layer 0 (conv2d): kernel_size is missing: %s",
             conv);
    expect_refused("conv2d(8)", want);
    snprintf(want, sizeof want, "layers, column 1: layer 0 (conv2d): out_channels is missing: %s",
             conv);
    expect_refused("conv2d", want);
    snprintf(
        want, sizeof want,
        "layers, column 14: layer 0 (conv2d): no argument 'paddin' in %s; did you mean 'padding'?",
        conv);
    expect_refused("conv2d(8, 3, paddin=1)", want);
    snprintf(want, sizeof want,
             "layers, column 8: layer 0 (conv2d): no argument 'in_channels' in %s", conv);
    expect_refused("conv2d(in_channels=3, out_channels=8)", want);
    expect_refused("linear(3, true, 4)",
                   "layers, column 17: layer 0 (linear): too many arguments: '4' is one more than "
                   "linear(out_features, bias=true) takes by position");
    expect_refused("relu(inplace)",
                   "layers, column 6: layer 0 (relu): too many arguments: 'inplace' is "
                   "one more than relu() takes by position");
    expect_refused(
        "maxpool2d(2, 2, 0, 1, true)",
        "layers, column 23: layer 0 (maxpool2d): too many arguments: 'true' is one more than "
        "maxpool2d(kernel_size, stride=none, padding=0, dilation=1, ceil_mode=false) takes by "
        "position");
    expect_refused("linear(bias=true, 3)",
                   "layers, column 19: layer 0 (linear): an argument by position "
                   "can't follow one by name");
    expect_refused("linear(3, out_features=4)",
                   "layers, column 24: layer 0 (linear): out_features is given twice");
    expect_refused("relu linear(3", "layers, column 12: layer 1 (linear): the '(' is never closed");
    expect_refused("linear(3 4)",
                   "layers, column 10: layer 0 (linear): expected ',' or ')', got '4'");
}

Test(nn_text, wrong_values)
{
    expect_refused("linear(ten)",
                   "layers, column 8: layer 0 (linear): out_features: expected an integer, "
                   "at least 1, got 'ten'");
    expect_refused("linear(3.5)",
                   "layers, column 8: layer 0 (linear): out_features: expected an integer, "
                   "at least 1, got '3.5'");
    expect_refused("linear(0)",
                   "layers, column 8: layer 0 (linear): out_features: expected an integer, "
                   "at least 1, got '0'");
    expect_refused("linear(99999999999999999999)",
                   "layers, column 8: layer 0 (linear): out_features: "
                   "expected an integer, at least 1, got '99999999999999999999'");
    expect_refused(
        "linear(3, maybe)",
        "layers, column 11: layer 0 (linear): bias: expected true or false, got 'maybe'");
    expect_refused(
        "conv2d(3, (3, 3, 3))",
        "layers, column 11: layer 0 (conv2d): kernel_size: expected an integer or a pair "
        "(height, width), at least 1, got '(3, 3, 3)'");
    expect_refused(
        "conv2d(3, 3, padding=sane)",
        "layers, column 22: layer 0 (conv2d): padding: expected an integer, a pair (height, "
        "width) or same, at least 0, got 'sane'");
    expect_refused(
        "maxpool2d(2, 0)",
        "layers, column 14: layer 0 (maxpool2d): stride: expected an integer, a pair (height, "
        "width) or none, at least 1, got '0'");
    expect_refused("dropout(half)",
                   "layers, column 9: layer 0 (dropout): p: expected a number, got 'half'");
    expect_refused("dropout(nan)",
                   "layers, column 9: layer 0 (dropout): p: expected a number, got 'nan'");
    expect_refused("gelu(erf)",
                   "layers, column 6: layer 0 (gelu): approximate: expected none or tanh, "
                   "got 'erf'");
    expect_refused("linear(out_features=)",
                   "layers, column 21: layer 0 (linear): out_features: expected an "
                   "integer, at least 1, got ')'");
    expect_refused("linear(out_features=",
                   "layers, column 21: layer 0 (linear): out_features: expected an "
                   "integer, at least 1, got the end");
}

Test(nn_text, wrong_shapes)
{
    expect_refused("flatten conv2d(8, 3)",
                   "layers, column 9: layer 1 (conv2d): expected an input of shape "
                   "[C,H,W], got [192]");
    expect_refused("flatten\nbatchnorm2d",
                   "layers, line 2, column 1: layer 1 (batchnorm2d): expected an "
                   "input of shape [C,H,W], got [192]");
    expect_refused("batchnorm1d",
                   "layers, column 1: layer 0 (batchnorm1d): expected an input of shape [C] "
                   "or [C,L], got [3,8,8]");
    expect_refused("flatten maxpool2d(2)",
                   "layers, column 9: layer 1 (maxpool2d): expected an input of "
                   "shape [C,H,W], got [192]");
    expect_refused("flatten avgpool2d(2)",
                   "layers, column 9: layer 1 (avgpool2d): expected an input of "
                   "shape [C,H,W], got [192]");
    expect_refused("flatten adaptiveavgpool2d(2)",
                   "layers, column 9: layer 1 (adaptiveavgpool2d): expected "
                   "an input of shape [C,H,W], got [192]");
    expect_refused(
        "maxpool2d(2) maxpool2d(2) conv2d(4, 3)",
        "layers, column 27: layer 2 (conv2d): a kernel of (3, 3) with padding (0, 0) doesn't fit "
        "into its input [3,2,2]");
    expect_refused("flatten(0)",
                   "layers, column 1: layer 0 (flatten): start_dim 0 and end_dim -1: expected "
                   "1 <= start_dim <= end_dim <= 3 (dimension 0 is the batch)");
    expect_refused("flatten flatten(1, 2)",
                   "layers, column 9: layer 1 (flatten): start_dim 1 and end_dim "
                   "2: expected 1 <= start_dim <= end_dim <= 1 (dimension 0 is the batch)");
    expect_refused("conv2d(4, 1, groups=2)",
                   "layers, column 1: layer 0 (conv2d): Conv2d: groups is 2: must "
                   "divide in_channels (3) and out_channels (4)");
    expect_refused("dropout(2)",
                   "layers, column 1: layer 0 (dropout): Dropout: p is 2: must be in 0..1");
    expect_refused("maxpool2d(2, padding=2)",
                   "layers, column 1: layer 0 (maxpool2d): MaxPool2d: padding is "
                   "2: must be at most half of the kernel (2)");
    expect_refused("conv2d(4, 3, stride=2, padding=same)",
                   "layers, column 1: layer 0 (conv2d): Conv2d: "
                   "padding 'same' needs stride 1, not 2");
}

Test(nn_text, wrong_residuals)
{
    char deep[512] = "";

    expect_refused("relu residual",
                   "layers, column 6: layer 1 (residual): expected residual( layers ), got "
                   "no '('");
    expect_refused("relu residual(relu",
                   "layers, column 14: layer 1 (residual): the '(' is never closed");
    expect_refused("residual()", "layers, column 10: layer 0 (residual): there is no layer");
    expect_refused(
        "residual(relu conv2d(4, 3)) relu",
        "layers, column 1: layer 0 (residual): its layers give [4,6,6], its input is [3,8,8]: "
        "shapes must be equal");
    expect_refused(
        "relu residual(relu residual(rely))",
        "layers, column 29: layer 1.body.1.body.0: unknown layer 'rely'; did you mean 'relu'? "
        "there are @");
    for (int i = 0; i < 30; i++)
        strcat(deep, "residual(");
    ct_ctx *ctx = open_ctx(CT_F32);
    cr_expect_null(ct_nn_layers_new(ctx, deep, 3, image));
    ts_expect_error(ctx, CT_ECONFIG, "nested too deeply", NULL);
    cr_expect_null(ct_nn_layers_new(ctx, NULL, 3, image));
    ts_expect_error(ctx, CT_EINVAL, "no text", NULL);
    close_ctx(ctx);
}
