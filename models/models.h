/* SPDX-License-Identifier: Apache-2.0 */
/* The zoo: every model here is written with the public headers alone, as an application's would be. */
#ifndef MODELS_H
#define MODELS_H

#include <ctrain/nn.h>

/* All models; ends with NULL. */
extern const ct_model_def *const ct_zoo[];

extern const ct_model_def model_mlp;
extern const ct_model_def model_lenet;
extern const ct_model_def model_convnet;

/* Readers of a model's keys. Each records CT_ECONFIG that names model, key, value and what was expected, and
 * returns it. `key` is an index into the model's keys. */

/* Whole numbers from 1, separated by commas or blanks: out[0..max), how many in *n. */
int model_sizes(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int key, int max,
                int64_t *out, int *n);
/* A number in 0..1, 1 excluded. */
int model_probability(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int key,
                      double *out);
/* One of the words (NULL-terminated): its index. */
int model_choice(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int key,
                 const char *const *words, int *out);
/* The input must be an image [C,H,W] of at least `least` x `least`. `hint`: what to do with a smaller one. */
int model_image(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int64_t least,
                const char *hint);

/* relu, gelu, silu or tanh: the words, and the module of one. */
extern const char *const model_activations[];
ct_module *model_activation(ct_ctx *ctx, int which);

/* seq when status is CT_OK; else frees it and returns NULL. */
ct_module *model_done(ct_module *seq, int status);

#endif
