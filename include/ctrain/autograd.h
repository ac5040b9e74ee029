/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode automatic differentiation with PyTorch's semantics. */
#ifndef CTRAIN_AUTOGRAD_H
#define CTRAIN_AUTOGRAD_H

#include <ctrain/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Only float leaves can be told; a non-leaf is CT_ESTATE, another dtype CT_EDTYPE. */
CT_NODISCARD int ct_tensor_set_requires_grad(ct_ctx *ctx, ct_tensor *t, bool requires_grad);
bool ct_tensor_requires_grad(const ct_tensor *t);
bool ct_tensor_is_leaf(const ct_tensor *t);
bool ct_tensor_is_inference(const ct_tensor *t); /* made in a CT_SCOPE_INFERENCE scope */

/* The gradient accumulated so far: borrowed, until the next backward or zero_grad; NULL before the
 * first backward. Of leaves, and of results with ct_tensor_retain_grad. */
ct_tensor *ct_tensor_grad(const ct_tensor *t);
/* Replaces the gradient (retained; NULL: none). Shape, dtype and device must be t's. */
CT_NODISCARD int ct_tensor_set_grad(ct_ctx *ctx, ct_tensor *t, ct_tensor *grad);
/* Sets the gradient of t to none (PyTorch: zero_grad(set_to_none=True)). */
void ct_zero_grad(ct_tensor *t);

typedef enum ct_backward_flags {
    CT_BACKWARD_DEFAULT = 0,
    CT_RETAIN_GRAPH = 1, /* keep what a second backward needs */
    /* of ct_grad alone */
    CT_CREATE_GRAPH = 2,     /* the gradients have a graph themselves; implies CT_RETAIN_GRAPH */
    CT_ALLOW_UNUSED = 4,     /* NULL for an input that the outputs don't depend on */
    CT_ZEROS_FOR_UNUSED = 8, /* zeros for it (PyTorch: materialize_grads) */
} ct_backward_flags;

/* Adds d sum(output * grad) / d leaf into the grad of each leaf that requires it. `grad` has output's
 * shape and dtype; NULL stands for 1 and needs a one-element output. Frees the graph unless told
 * otherwise. CT_ESTATE: no graph leads to output; it was freed by an earlier backward; a saved tensor was
 * changed in place. On failure no gradient is trustworthy: zero them. */
CT_NODISCARD int ct_backward(ct_ctx *ctx, ct_tensor *output, ct_tensor *grad, unsigned flags);

/* torch.autograd.grad: d sum_o sum(outputs[o] * grads[o]) / d inputs[k] into out[k], tensors of the innermost
 * scope; no leaf's grad is touched. Inputs are leaves or results; `grads`, or an entry of it, may be NULL as in
 * ct_backward. Only nodes on the way from outputs to inputs run. With CT_CREATE_GRAPH the gradients can be
 * differentiated again, to any order; an op that can't be is an error that names it. CT_ESTATE: as
 * ct_backward, and for an input that isn't used, unless allowed. On failure all of out is NULL. */
CT_NODISCARD int ct_grad(ct_ctx *ctx, int n_outputs, ct_tensor *const *outputs,
                         ct_tensor *const *grads, int n_inputs, ct_tensor *const *inputs,
                         unsigned flags, ct_tensor **out);

/* ---- hooks ---- */
/* Gets a gradient when all of it has come, before anything is done with it; returns one to take its place
 * (same shape, dtype), or NULL to keep it. Its tensors are of a scope that ends with it. It must not call
 * ct_backward or ct_grad. An error that it leaves pending ends the backward. */
typedef ct_tensor *(*ct_grad_hook)(ct_ctx *ctx, ct_tensor *grad, void *user);
typedef void (*ct_leaf_hook)(ct_ctx *ctx, ct_tensor *leaf, void *user);
/* The hook's number, or 0 and an error. Hooks of a leaf stay with the leaf; those of a result with the graph
 * that made it. They run in the order of registration. (PyTorch: Tensor.register_hook) */
uint64_t ct_tensor_register_hook(ct_ctx *ctx, ct_tensor *t, ct_grad_hook fn, void *user);
/* Called after a backward has added to the leaf's gradient, not by ct_grad. */
uint64_t ct_tensor_register_post_accumulate_hook(ct_ctx *ctx, ct_tensor *leaf, ct_leaf_hook fn,
                                                 void *user);
CT_NODISCARD int ct_tensor_remove_hook(ct_ctx *ctx, ct_tensor *t, uint64_t id);
/* A result's gradient is kept too, as ct_tensor_grad gives it (PyTorch: retain_grad). Nothing for leaves. */
CT_NODISCARD int ct_tensor_retain_grad(ct_ctx *ctx, ct_tensor *t);

/* ---- ops of an application ---- torch.autograd.Function */
typedef struct ct_call ct_call;
typedef struct ct_function {
    const char *name;  /* "clip_smooth": in errors; its grad_fn is clip_smoothBackward */
    unsigned optional; /* bit i: input i may be NULL */
    bool once;         /* the backward can't be differentiated (PyTorch: once_differentiable) */
    /* Computes from ct_call_input with ops (nothing is recorded) or on host memory, gives each output to
     * ct_call_set_output, keeps with ct_call_save what backward needs. Returns a status. */
    int (*forward)(ct_call *c);
    /* From ct_call_grad_output and ct_call_saved to ct_call_set_grad for each input that
     * ct_call_needs_grad, in ops: under CT_CREATE_GRAPH they are recorded. NULL: no gradient. */
    int (*backward)(ct_call *c);
} ct_function;
/* Its outputs, at most 4, into out (all NULL on failure), of the innermost scope. `user` is for both functions
 * and must live as long as the graph. At most 32 inputs; out may be in. */
CT_NODISCARD int ct_function_apply(ct_ctx *ctx, const ct_function *fn, void *user, int n_in,
                                   ct_tensor *const *in, int n_out, ct_tensor **out);
ct_ctx *ct_call_ctx(const ct_call *c);
void *ct_call_user(const ct_call *c);
ct_tensor *ct_call_input(const ct_call *c, int i);       /* in forward; NULL: absent */
int ct_call_set_output(ct_call *c, int o, ct_tensor *t); /* in forward */
/* In forward: keeps t in slot 0 to 5. An input, or an output that was set, stays a part of the graph; all
 * else is a constant to gradients of gradients. */
int ct_call_save(ct_call *c, int slot, ct_tensor *t);
ct_tensor *ct_call_saved(ct_call *c, int slot);          /* in backward; of the scope */
ct_tensor *ct_call_grad_output(const ct_call *c, int o); /* in backward; NULL: none came */
bool ct_call_needs_grad(const ct_call *c, int i);
int ct_call_set_grad(ct_call *c, int i, ct_tensor *grad); /* in backward; NULL: none */

/* ---- activation checkpointing ---- torch.utils.checkpoint */
/* A part of a network: outputs, made of the inputs by ops, into out. */
typedef int (*ct_segment)(ct_ctx *ctx, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                          void *user);
/* Runs the segment without keeping what its backward needs; backward runs it again, with the same dropout
 * masks. At most 6 inputs and 4 outputs. Parameters that it reaches through `user`, which must live as long as
 * the graph, get their gradients as ever. Segments nest, and gradients of gradients go through. */
CT_NODISCARD int ct_checkpoint(ct_ctx *ctx, ct_segment fn, void *user, int n_in,
                               ct_tensor *const *in, int n_out, ct_tensor **out);
/* Is a segment being run again? Its side effects (counting, running statistics) happened before. */
bool ct_recomputing(const ct_ctx *ctx);

/* ---- checking gradients ---- torch.autograd.gradcheck */
typedef struct ct_gradcheck_opts {
    double eps, atol, rtol; /* 1e-6, 1e-5, 1e-3 */
} ct_gradcheck_opts;
ct_gradcheck_opts ct_gradcheck_defaults(void);
/* Compares the gradients of each element of each output by each element of each input that requires grad with
 * central differences. Inputs are float64 leaves; they are changed while it runs and put back. CT_ECHECK names
 * output, input, elements and both values of the largest difference; also when a second run of backward gives
 * other values. Not on a device without float64. */
CT_NODISCARD int ct_gradcheck(ct_ctx *ctx, ct_segment fn, void *user, int n_in,
                              ct_tensor *const *in, int n_out, ct_gradcheck_opts opts);
/* The same for the gradients that ct_grad gives of fn, with random upstream gradients. */
CT_NODISCARD int ct_gradgradcheck(ct_ctx *ctx, ct_segment fn, void *user, int n_in,
                                  ct_tensor *const *in, int n_out, ct_gradcheck_opts opts);

/* ---- looking at the graph ---- */
/* "ReluBackward0" as in PyTorch; "AccumulateGrad" for a leaf's end of the graph; NULL: no graph. */
typedef struct ct_grad_fn ct_grad_fn;
const ct_grad_fn *ct_tensor_grad_fn(const ct_tensor *t); /* borrowed from t; NULL for leaves */
const char *ct_grad_fn_name(const ct_grad_fn *fn);
int ct_grad_fn_inputs(const ct_grad_fn *fn);
/* The function that made input i, or the leaf's AccumulateGrad; NULL when it needs no gradient. */
const ct_grad_fn *ct_grad_fn_next(const ct_grad_fn *fn, int i);
uint64_t ct_grad_fn_sequence(const ct_grad_fn *fn);
size_t ct_grad_fn_saved_bytes(const ct_grad_fn *fn); /* kept for backward */

/* Writes the graph that leads to the outputs to a file, for Graphviz (`dot -Tsvg`): a box for each op with what it
 * keeps, an ellipse for each leaf with its shape. CT_EIO. */
CT_NODISCARD int ct_graph_dot(ct_ctx *ctx, int n, ct_tensor *const *outputs, const char *path);

#ifdef __cplusplus
}
#endif
#endif
