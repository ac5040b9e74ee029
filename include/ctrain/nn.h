/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: named parameters, buffers and children, with PyTorch's names and default inits. Every
 * built-in layer is written with these public calls alone; an application's layers are their equals. */
#ifndef CTRAIN_NN_H
#define CTRAIN_NN_H

#include <ctrain/autograd.h>
#include <ctrain/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_module ct_module;

/* ---- writing a module ---- */

typedef struct ct_module_ops {
    const char *name; /* "Linear" */
    /* x is of the innermost scope or NULL (pass it on); returns a scope tensor or NULL. */
    ct_tensor *(*forward)(ct_module *m, void *self, ct_tensor *x);
    /* "in_features=64, out_features=10, bias=true" into buf. Optional. */
    void (*describe)(ct_module *m, const void *self, char *buf, size_t cap);
    void (*free)(void *self); /* what self owns beyond its own bytes. Optional. */
} ct_module_ops;

/* A module with `self_bytes` zeroed bytes of its own. Owned until it becomes a child. */
CT_NODISCARD ct_module *ct_module_new(ct_ctx *ctx, const ct_module_ops *ops, size_t self_bytes);
/* Frees it with its children, parameters and buffers. NULL is fine. Not for a child. */
void ct_module_free(ct_module *m);
void *ct_module_self(ct_module *m);
ct_ctx *ct_module_ctx(const ct_module *m);

/* Each takes ownership of the tensor (child) when it succeeds and releases (frees) it when it fails, so
 * `ct_module_add_param(m, "weight", ct_tensor_new(...))` needs no check between: NULL gives the
 * pending error. Names have no dots and are unique in m. Parameters get requires_grad. */
int ct_module_add_param(ct_module *m, const char *name, ct_tensor *t);
int ct_module_add_buffer(ct_module *m, const char *name, ct_tensor *t);
int ct_module_add_child(ct_module *m, const char *name, ct_module *child);

/* ---- using modules ---- */

ct_tensor *ct_module_forward(ct_module *m, ct_tensor *x);
void ct_module_train(ct_module *m, bool training); /* with all below; true at the start */
bool ct_module_is_training(const ct_module *m);
const char *ct_module_name(const ct_module *m); /* its ops' name */
int ct_module_n_children(const ct_module *m);
ct_module *ct_module_child(const ct_module *m, int i, const char **name); /* borrowed */
/* Borrowed; by path: "0.weight". NULL when there is none. */
ct_tensor *ct_module_get_param(ct_module *m, const char *path);

/* One named tensor of a module: a parameter or a buffer. Names are PyTorch's state_dict keys. */
typedef struct ct_named_tensor {
    char name[128];
    ct_tensor *tensor; /* borrowed */
    bool is_buffer;
} ct_named_tensor;

/* Fills out[0..cap) in state_dict order and returns how many there are (call with cap 0 first). */
int ct_module_state(ct_module *m, ct_named_tensor *out, int cap); /* parameters and buffers */
int64_t ct_module_n_params(ct_module *m);                         /* elements of all parameters */
/* Freezing: requires_grad of all parameters in m. */
int ct_module_set_requires_grad(ct_module *m, bool requires_grad);
void ct_module_zero_grad(ct_module *m);
/* Probability and similar of all dropout layers below m: used by overfit-one-batch. Returns how many. */
int ct_module_set_dropout(ct_module *m, double p);

/* Activation checkpointing of m's forward (ct_checkpoint), where gradients are recorded: less memory, a second
 * forward in backward. */
void ct_module_set_checkpoint(ct_module *m, bool on);

/* ---- hooks ---- They belong to the module, which must live as long as the graph, and run in the order of
 * registration. The number of the hook, or 0 and an error. */
/* Before forward; may return another input, or NULL to keep it. */
typedef ct_tensor *(*ct_module_pre_hook)(ct_module *m, ct_tensor *x, void *user);
/* After forward; may return another output, or NULL to keep it. */
typedef ct_tensor *(*ct_module_hook)(ct_module *m, ct_tensor *x, ct_tensor *y, void *user);
/* With a gradient, as ct_grad_hook; may return another one, or NULL to keep it. */
typedef ct_tensor *(*ct_module_grad_hook)(ct_module *m, ct_tensor *grad, void *user);
uint64_t ct_module_register_forward_pre_hook(ct_module *m, ct_module_pre_hook fn, void *user);
uint64_t ct_module_register_forward_hook(ct_module *m, ct_module_hook fn, void *user);
/* The gradient of the output, before the module's backward (PyTorch: register_full_backward_pre_hook). */
uint64_t ct_module_register_backward_pre_hook(ct_module *m, ct_module_grad_hook fn, void *user);
/* The gradient of the input, after it (PyTorch: register_full_backward_hook, its grad_input). */
uint64_t ct_module_register_backward_hook(ct_module *m, ct_module_grad_hook fn, void *user);
CT_NODISCARD int ct_module_remove_hook(ct_module *m, uint64_t id);

/* A table: path, layer, output shape for input `shape`, parameters. Into buf, as snprintf. Runs a
 * forward pass in evaluation mode on zeros. Negative on error. */
int ct_module_summary(ct_module *m, int ndim, const int64_t *shape, char *buf, size_t cap);

/* ---- layers ---- Owned; NULL on error. Parameters and inits are PyTorch's: weight U(+-1/sqrt(fan_in))
 * (kaiming_uniform with a = sqrt 5), bias the same bound. */
CT_NODISCARD ct_module *ct_nn_linear_new(ct_ctx *ctx, int64_t in, int64_t out, bool bias);
CT_NODISCARD ct_module *ct_nn_conv2d_new(ct_ctx *ctx, int64_t in, int64_t out, int64_t kernel_h,
                                         int64_t kernel_w, ct_conv2d_opts opts, bool bias);
/* x [N,C,L]; weight [out, in / groups, kernel]. The transposed ones: weight [in, out / groups, kernel...]. */
CT_NODISCARD ct_module *ct_nn_conv1d_new(ct_ctx *ctx, int64_t in, int64_t out, int64_t kernel,
                                         ct_conv1d_opts opts, bool bias);
CT_NODISCARD ct_module *ct_nn_conv_transpose1d_new(ct_ctx *ctx, int64_t in, int64_t out,
                                                   int64_t kernel, ct_conv_transpose1d_opts opts,
                                                   bool bias);
CT_NODISCARD ct_module *ct_nn_conv_transpose2d_new(ct_ctx *ctx, int64_t in, int64_t out,
                                                   int64_t kernel_h, int64_t kernel_w,
                                                   ct_conv_transpose2d_opts opts, bool bias);

typedef struct ct_nn_batchnorm_opts {
    double eps, momentum; /* 1e-5, 0.1 */
    bool affine, track_running_stats;
} ct_nn_batchnorm_opts;
ct_nn_batchnorm_opts ct_nn_batchnorm_defaults(void);
/* 1d: [N,C] or [N,C,L]; 2d: [N,C,H,W]. Buffers running_mean, running_var, num_batches_tracked (i64). */
CT_NODISCARD ct_module *ct_nn_batchnorm1d_new(ct_ctx *ctx, int64_t features,
                                              ct_nn_batchnorm_opts opts);
CT_NODISCARD ct_module *ct_nn_batchnorm2d_new(ct_ctx *ctx, int64_t features,
                                              ct_nn_batchnorm_opts opts);
CT_NODISCARD ct_module *ct_nn_dropout_new(ct_ctx *ctx, double p);
CT_NODISCARD ct_module *ct_nn_maxpool2d_new(ct_ctx *ctx, ct_pool2d_opts opts);
CT_NODISCARD ct_module *ct_nn_avgpool2d_new(ct_ctx *ctx, ct_pool2d_opts opts);
CT_NODISCARD ct_module *ct_nn_adaptive_avgpool2d_new(ct_ctx *ctx, int64_t out_h, int64_t out_w);
CT_NODISCARD ct_module *ct_nn_maxpool1d_new(ct_ctx *ctx, ct_pool1d_opts opts);
CT_NODISCARD ct_module *ct_nn_avgpool1d_new(ct_ctx *ctx, ct_pool1d_opts opts);
CT_NODISCARD ct_module *ct_nn_adaptive_avgpool1d_new(ct_ctx *ctx, int64_t out);
/* weight [V,D], N(0,1), zeros in the row padding_idx (negative counts from the end; CT_NO_PADDING: none), which stays
 * without gradient. Ids i64 or i32 of any shape -> their shape and D; of bags [B,L] -> [B,D]. */
CT_NODISCARD ct_module *ct_nn_embedding_new(ct_ctx *ctx, int64_t num_embeddings,
                                            int64_t embedding_dim, int64_t padding_idx);
CT_NODISCARD ct_module *ct_nn_embedding_bag_new(ct_ctx *ctx, int64_t num_embeddings,
                                                int64_t embedding_dim, ct_bag_mode mode,
                                                int64_t padding_idx);
/* Of ct_interpolate's options. */
CT_NODISCARD ct_module *ct_nn_upsample_new(ct_ctx *ctx, ct_interpolate_opts opts);
CT_NODISCARD ct_module *ct_nn_pixel_shuffle_new(ct_ctx *ctx, int64_t upscale_factor);
CT_NODISCARD ct_module *ct_nn_flatten_new(ct_ctx *ctx, int start_dim, int end_dim); /* 1, -1 */
CT_NODISCARD ct_module *ct_nn_relu_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_gelu_new(ct_ctx *ctx, bool tanh_approx);
CT_NODISCARD ct_module *ct_nn_silu_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_sigmoid_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_tanh_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_relu6_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_selu_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_hardsigmoid_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_hardswish_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_softsign_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_mish_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_logsigmoid_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_tanhshrink_new(ct_ctx *ctx);
CT_NODISCARD ct_module *ct_nn_leaky_relu_new(ct_ctx *ctx, double negative_slope);       /* 0.01 */
CT_NODISCARD ct_module *ct_nn_elu_new(ct_ctx *ctx, double alpha);                       /* 1 */
CT_NODISCARD ct_module *ct_nn_celu_new(ct_ctx *ctx, double alpha);                      /* 1 */
CT_NODISCARD ct_module *ct_nn_hardshrink_new(ct_ctx *ctx, double lambda);               /* 0.5 */
CT_NODISCARD ct_module *ct_nn_softshrink_new(ct_ctx *ctx, double lambda);               /* 0.5 */
CT_NODISCARD ct_module *ct_nn_softplus_new(ct_ctx *ctx, double beta, double threshold); /* 1, 20 */
CT_NODISCARD ct_module *ct_nn_hardtanh_new(ct_ctx *ctx, double min, double max);        /* -1, 1 */
CT_NODISCARD ct_module *ct_nn_threshold_new(ct_ctx *ctx, double threshold, double value);
CT_NODISCARD ct_module *ct_nn_prelu_new(ct_ctx *ctx, int64_t num_parameters,
                                        double init); /* 1, 0.25 */
CT_NODISCARD ct_module *ct_nn_softmax_new(ct_ctx *ctx, int dim);
CT_NODISCARD ct_module *ct_nn_log_softmax_new(ct_ctx *ctx, int dim);
CT_NODISCARD ct_module *ct_nn_softmin_new(ct_ctx *ctx, int dim);
CT_NODISCARD ct_module *ct_nn_glu_new(ct_ctx *ctx, int dim); /* -1 */
/* Over the last `dims` dimensions, whose sizes are `shape`; eps 1e-5. */
CT_NODISCARD ct_module *ct_nn_layer_norm_new(ct_ctx *ctx, int dims, const int64_t *shape,
                                             double eps, bool affine, bool bias);
CT_NODISCARD ct_module *ct_nn_rms_norm_new(ct_ctx *ctx, int dims, const int64_t *shape, double eps,
                                           bool affine); /* eps below 0: the dtype's own */
CT_NODISCARD ct_module *ct_nn_group_norm_new(ct_ctx *ctx, int64_t groups, int64_t channels,
                                             double eps, bool affine);
/* [N,C,...], without running statistics (PyTorch's default); affine is false there. */
CT_NODISCARD ct_module *ct_nn_instance_norm_new(ct_ctx *ctx, int64_t channels, double eps,
                                                bool affine);

/* RNN, LSTM, GRU by opts.mode. Their forward gives y alone; ct_nn_rnn_forward is ct_rnn with the module's parameters. */
CT_NODISCARD ct_module *ct_nn_rnn_new(ct_ctx *ctx, int64_t in, int64_t hidden, ct_rnn_opts opts,
                                      bool bias);
int ct_nn_rnn_forward(ct_module *m, ct_tensor *x, ct_tensor *h0, ct_tensor *c0, ct_tensor *lengths,
                      ct_tensor **y, ct_tensor **h_n, ct_tensor **c_n);

typedef struct ct_nn_mha_opts {
    double dropout;
    bool bias; /* true */
    bool batch_first;
} ct_nn_mha_opts;
ct_nn_mha_opts ct_nn_mha_defaults(void);
/* As PyTorch's: bool masks are true where a key must NOT be looked at, float ones are added. */
typedef struct ct_nn_mha_call {
    ct_tensor *key_padding_mask; /* [N,S] or NULL */
    ct_tensor *attn_mask;        /* [L,S], [N*heads,L,S] or NULL */
    bool is_causal;
    ct_tensor **weights; /* when not NULL: the weights, averaged over heads, [N,L,S] */
} ct_nn_mha_call;
/* Its forward is self-attention. [L,N,E], or [N,L,E] with batch_first. */
CT_NODISCARD ct_module *ct_nn_mha_new(ct_ctx *ctx, int64_t embed, int64_t heads,
                                      ct_nn_mha_opts opts);
ct_tensor *ct_nn_mha_forward(ct_module *m, ct_tensor *query, ct_tensor *key, ct_tensor *value,
                             ct_nn_mha_call call);

typedef struct ct_nn_transformer_opts {
    int64_t heads, feedforward; /* 8, 2048 */
    double dropout, eps;        /* 0.1, 1e-5 */
    bool gelu;                  /* else relu */
    bool norm_first, batch_first;
} ct_nn_transformer_opts;
ct_nn_transformer_opts ct_nn_transformer_defaults(void);
CT_NODISCARD ct_module *ct_nn_transformer_encoder_layer_new(ct_ctx *ctx, int64_t width,
                                                            ct_nn_transformer_opts opts);
CT_NODISCARD ct_module *ct_nn_transformer_decoder_layer_new(ct_ctx *ctx, int64_t width,
                                                            ct_nn_transformer_opts opts);
/* With masks; memory is what a decoder layer looks at, NULL for an encoder layer. */
ct_tensor *ct_nn_transformer_forward(ct_module *m, ct_tensor *x, ct_tensor *memory,
                                     ct_nn_mha_call self_call, ct_nn_mha_call memory_call);
/* Children are named "0", "1", ... as they are added (ct_module_add_child with any other name too). */
CT_NODISCARD ct_module *ct_nn_sequential_new(ct_ctx *ctx);
int ct_nn_sequential_add(ct_module *seq,
                         ct_module *child); /* takes child; NULL: the pending error */
/* x -> body(x) + shortcut(x); shortcut NULL is the identity. Children "body", "shortcut". Takes both. */
CT_NODISCARD ct_module *ct_nn_residual_new(ct_ctx *ctx, ct_module *body, ct_module *shortcut);

/* An nn.Sequential from text: layer names in lower case with their arguments but the input size, which
 * is inferred from `shape` (of one sample, without N): "conv2d(32, 3, padding=1) relu flatten linear(10)".
 * Separated by blanks or new lines; arguments by position or by PyTorch's keyword; residual( ... ) nests.
 * CT_ECONFIG names the layer, its place in the text, what was expected and what it got. */
CT_NODISCARD ct_module *ct_nn_layers_new(ct_ctx *ctx, const char *text, int ndim,
                                         const int64_t *shape);

/* ---- models ---- A model of the zoo, or of an application: how to build it from a config. */
#define CT_MODEL_MAX_KEYS 16

typedef struct ct_model_key {
    const char *name;          /* a key of [model] */
    const char *default_value; /* as text */
    const char *doc;
} ct_model_key;

typedef struct ct_model_spec {
    int ndim; /* of one input sample, without N */
    int64_t shape[CT_MAX_DIMS];
    int64_t n_classes;         /* outputs wanted */
    const char *const *values; /* of the model's keys, in their order */
} ct_model_spec;

typedef struct ct_model_def {
    const char *name; /* [model] name */
    const char *doc;
    ct_model_key keys[CT_MODEL_MAX_KEYS]; /* ends at a NULL name */
    /* NULL with the context's error set when the spec doesn't fit. */
    ct_module *(*build)(ct_ctx *ctx, const ct_model_spec *spec);
} ct_model_def;

#ifdef __cplusplus
}
#endif
#endif
