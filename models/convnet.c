/* SPDX-License-Identifier: Apache-2.0 */
/* A small convolutional network for small images: (3x3 convolution, batch norm, ReLU) for each width, a 2x2
 * max pool between them, then a classifier. It is what `configs/digits.ini` trains. */
#include "models.h"

enum { CHANNELS, HIDDEN, DROPOUT, MAX_LAYERS = 16 };

static ct_module *build(ct_ctx *ctx, const ct_model_spec *spec)
{
    int64_t channels[MAX_LAYERS], hidden[MAX_LAYERS], in = spec->shape[0];
    ct_conv2d_opts padded = ct_conv2d_defaults();
    ct_module *seq;
    int64_t h = spec->shape[1], w = spec->shape[2];
    int n, n_hidden;
    double p;

    if (model_image(ctx, &model_convnet, spec, 2, "take model.name = mlp") != CT_OK ||
        model_sizes(ctx, &model_convnet, spec, CHANNELS, MAX_LAYERS, channels, &n) != CT_OK ||
        model_sizes(ctx, &model_convnet, spec, HIDDEN, MAX_LAYERS, hidden, &n_hidden) != CT_OK ||
        model_probability(ctx, &model_convnet, spec, DROPOUT, &p) != CT_OK)
        return NULL;
    padded.padding[0] = padded.padding[1] = 1; /* keeps the size */

    /* A failed call leaves its error in the context; those after it do nothing. */
    seq = ct_nn_sequential_new(ctx);
    for (int i = 0; i < n; i++) {
        if (i > 0 && h >= 2 && w >= 2) {
            ct_nn_sequential_add(seq, ct_nn_maxpool2d_new(ctx, ct_pool2d_defaults(2)));
            h /= 2;
            w /= 2;
        }
        /* No bias: batch norm takes it away again. */
        ct_nn_sequential_add(seq, ct_nn_conv2d_new(ctx, in, channels[i], 3, 3, padded, false));
        ct_nn_sequential_add(seq,
                             ct_nn_batchnorm2d_new(ctx, channels[i], ct_nn_batchnorm_defaults()));
        ct_nn_sequential_add(seq, ct_nn_relu_new(ctx));
        in = channels[i];
    }
    ct_nn_sequential_add(seq, ct_nn_flatten_new(ctx, 1, -1));
    in *= h * w;
    for (int i = 0; i < n_hidden; i++) {
        if (p > 0)
            ct_nn_sequential_add(seq, ct_nn_dropout_new(ctx, p));
        ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, in, hidden[i], true));
        ct_nn_sequential_add(seq, ct_nn_relu_new(ctx));
        in = hidden[i];
    }
    if (p > 0)
        ct_nn_sequential_add(seq, ct_nn_dropout_new(ctx, p));
    ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, in, spec->n_classes, true));
    return model_done(seq, ct_error_code(ctx));
}

const ct_model_def model_convnet = {
    .name = "convnet",
    .doc =
        "3x3 convolutions with batch norm, pools between them, a classifier; for small images (digits)",
    .keys = {[CHANNELS] = {"channels", "32, 64", "widths of the convolutions"},
             [HIDDEN] = {"hidden", "128", "sizes of the hidden linear layers; empty: none"},
             [DROPOUT] = {"dropout", "0", "probability before each linear layer"}},
    .build = build,
};
