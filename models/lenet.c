/* SPDX-License-Identifier: Apache-2.0 */
/* LeNet-5 (LeCun et al., 1998, "Gradient-based learning applied to document recognition") as it is used for
 * 28x28 MNIST today: padding 2 in the first layer stands for the original's 32x32 images, and max pooling and
 * ReLU are the defaults. On 28x28 in one channel it has 61,706 parameters. */
#include "models.h"

enum { ACTIVATION, POOL };

static const char *const pools[] = {"max", "avg", NULL};

static ct_module *pool_new(ct_ctx *ctx, int which)
{
    ct_pool2d_opts two = ct_pool2d_defaults(2);

    return which == 0 ? ct_nn_maxpool2d_new(ctx, two) : ct_nn_avgpool2d_new(ctx, two);
}

static ct_module *build(ct_ctx *ctx, const ct_model_spec *spec)
{
    ct_conv2d_opts plain = ct_conv2d_defaults(), padded = ct_conv2d_defaults();
    const int64_t *s = spec->shape;
    ct_module *seq;
    int64_t h, w;
    int act, pool;

    if (model_image(ctx, &model_lenet, spec, 12, "for digits take model.name = convnet") != CT_OK ||
        model_choice(ctx, &model_lenet, spec, ACTIVATION, model_activations, &act) != CT_OK ||
        model_choice(ctx, &model_lenet, spec, POOL, pools, &pool) != CT_OK)
        return NULL;
    padded.padding[0] = padded.padding[1] = 2;
    h = (s[1] / 2 - 4) / 2; /* pool halves, the 5x5 kernel takes 4, pool halves */
    w = (s[2] / 2 - 4) / 2;

    /* A failed call leaves its error in the context; those after it do nothing. */
    seq = ct_nn_sequential_new(ctx);
    ct_nn_sequential_add(seq, ct_nn_conv2d_new(ctx, s[0], 6, 5, 5, padded, true));
    ct_nn_sequential_add(seq, model_activation(ctx, act));
    ct_nn_sequential_add(seq, pool_new(ctx, pool));
    ct_nn_sequential_add(seq, ct_nn_conv2d_new(ctx, 6, 16, 5, 5, plain, true));
    ct_nn_sequential_add(seq, model_activation(ctx, act));
    ct_nn_sequential_add(seq, pool_new(ctx, pool));
    ct_nn_sequential_add(seq, ct_nn_flatten_new(ctx, 1, -1));
    ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, 16 * h * w, 120, true));
    ct_nn_sequential_add(seq, model_activation(ctx, act));
    ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, 120, 84, true));
    ct_nn_sequential_add(seq, model_activation(ctx, act));
    ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, 84, spec->n_classes, true));
    return model_done(seq, ct_error_code(ctx));
}

const ct_model_def model_lenet = {
    .name = "lenet",
    .doc = "LeNet-5 for images of 12x12 and more (made for MNIST)",
    .keys = {[ACTIVATION] = {"activation", "relu", "relu, gelu, silu or tanh (the original's)"},
             [POOL] = {"pool", "max", "max or avg (the original's)"}},
    .build = build,
};
