/* SPDX-License-Identifier: Apache-2.0 */
/* A multi-layer perceptron: flatten, then (linear, activation, dropout) for each hidden size, then linear. */
#include "models.h"

enum { HIDDEN, ACTIVATION, DROPOUT, MAX_LAYERS = 16 };

static ct_module *build(ct_ctx *ctx, const ct_model_spec *spec)
{
    int64_t hidden[MAX_LAYERS], in = 1;
    ct_module *seq;
    double p;
    int n, act;

    if (model_sizes(ctx, &model_mlp, spec, HIDDEN, MAX_LAYERS, hidden, &n) != CT_OK ||
        model_choice(ctx, &model_mlp, spec, ACTIVATION, model_activations, &act) != CT_OK ||
        model_probability(ctx, &model_mlp, spec, DROPOUT, &p) != CT_OK)
        return NULL;
    for (int d = 0; d < spec->ndim; d++)
        in *= spec->shape[d];

    /* A failed call leaves its error in the context; those after it do nothing. */
    seq = ct_nn_sequential_new(ctx);
    ct_nn_sequential_add(seq, ct_nn_flatten_new(ctx, 1, -1));
    for (int i = 0; i < n; i++) {
        ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, in, hidden[i], true));
        ct_nn_sequential_add(seq, model_activation(ctx, act));
        if (p > 0)
            ct_nn_sequential_add(seq, ct_nn_dropout_new(ctx, p));
        in = hidden[i];
    }
    ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, in, spec->n_classes, true));
    return model_done(seq, ct_error_code(ctx));
}

const ct_model_def model_mlp = {
    .name = "mlp",
    .doc = "multi-layer perceptron on any input, flattened",
    .keys = {[HIDDEN] = {"hidden", "256, 128", "sizes of the hidden layers; empty: a linear model"},
             [ACTIVATION] = {"activation", "relu", "relu, gelu, silu or tanh"},
             [DROPOUT] = {"dropout", "0", "probability after each hidden layer"}},
    .build = build,
};
