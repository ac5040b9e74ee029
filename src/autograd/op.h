/* SPDX-License-Identifier: Apache-2.0 */
/* All that an op file may see. An op is one file with one `const ct_op` and its public function(s):
 *
 *     static int infer(cti_node *n) { return cti_out_like(n, 0, 0); }
 *     static int forward(cti_node *n)
 *     {
 *         cti_save_out(n, 0, 0);
 *         return cti_be(n)->ew->unary(cti_stream(n), CT_UN_RELU, cti_y(n, 0), cti_x(n, 0));
 *     }
 *     static int backward(cti_node *n) { ... cti_dx(n, 0, &beta) ... cti_dy(n, 0) ... cti_saved(n, 0) ... }
 *     const ct_op cti_op_relu = {.name = "relu", .torch_name = "ReluBackward0", ...};
 *     ct_tensor *ct_relu(ct_tensor *x) { return cti_apply(&cti_op_relu, NULL, 0, 1, &x); }
 *
 * `vjp` is the gradient said in public ops: it is what gradients of gradients go through, and the backward
 * of an op that gives no `backward`. An op without any gradient (argmax, eq) gives neither. A formula of
 * ops has a ct_op of its name, cases and call alone, for the harness. */
#ifndef AUTOGRAD_OP_H
#define AUTOGRAD_OP_H

#include "backend/backend.h"
#include "base/error.h"
#include <ctrain/ops.h>

typedef struct cti_node cti_node;

/* ---- test cases ---- The harness runs each op's cases; tests/golden/make.py runs them in PyTorch. */
typedef enum ct_case_kind {
    CT_IN_NONE,     /* an absent optional input */
    CT_IN_NORMAL,   /* N(0,1) */
    CT_IN_POSITIVE, /* U(0.5, 2) */
    CT_IN_AWAY, /* N(0,1) moved away from 0 by 0.1: no kink within reach of finite differences */
    CT_IN_DISTINCT, /* a shuffled grid with gaps of 0.1: no ties */
    CT_IN_PROBS,    /* rows along dim 1 sum to 1 */
    CT_IN_CLASS,    /* i64 in [0, `classes`); the harness never differentiates it */
    CT_IN_BOOL,
    CT_IN_I64, /* small integers, -4..4 */
} ct_case_kind;

typedef struct ct_case_in {
    ct_case_kind kind;
    int ndim;
    int64_t shape[CT_MAX_DIMS];
    int64_t classes; /* CT_IN_CLASS */
    bool no_grad;    /* a float input that gets no gradient (running statistics) */
} ct_case_in;

#define CT_CASE_MAX_IN  6
#define CT_CASE_MAX_ARG 12

typedef struct ct_case {
    const char *name;            /* unique in the op: "stride 2, groups 2" */
    double arg[CT_CASE_MAX_ARG]; /* the op's own arguments, read by `call` and by make.py's line */
    ct_case_in in[CT_CASE_MAX_IN];
    double tol_f32;        /* relative; 0: the harness's default 1e-5 */
    const char *skip_diff; /* no finite differences for this case, and why */
} ct_case;

/* ---- the op ---- */
/* What autocast does with float32, bfloat16 and float16 operands (PyTorch's lists for CUDA, and means and
 * variances with the sums). */
typedef enum cti_autocast_policy {
    CTI_WIDEST, /* of several dtypes: the widest; one stays */
    CTI_LOW,    /* the scope's: products of matrices, convolutions */
    CTI_F32,    /* reductions, norms, losses, functions that lose digits */
    CTI_AS_IS,
} cti_autocast_policy;

typedef struct ct_op {
    const char *name;       /* "max_pool2d": file name, error prefix */
    const char *torch_name; /* "MaxPool2DWithIndicesBackward0": what grad_fn says */
    unsigned optional;      /* bit i: input i may be NULL */
    unsigned accumulates;   /* bit i: backward takes beta 1 for dx i; else the engine adds */
    unsigned f32_grads; /* bit i: backward of half-precision operands can write dx i as float32 */
    cti_autocast_policy autocast;
    int (*infer)(cti_node *n);    /* checks shapes and dtypes, declares the outputs */
    int (*forward)(cti_node *n);  /* launches kernels, saves; NULL for pure views */
    int (*backward)(cti_node *n); /* writes each dx that is wanted */
    /* The gradient in public ops: dx[i] for each input with cti_wants(n, i); NULL entries are none. dy[i] is
     * NULL where no gradient came. It may return dy itself. */
    int (*vjp)(cti_node *n, ct_tensor *const *dy, ct_tensor **dx);
    const ct_case *cases;
    int n_cases;
    /* Runs a case. in[i] is NULL for CT_IN_NONE. */
    ct_tensor *(*call)(ct_tensor *const *in, const ct_case *c);
    const char *no_golden; /* why PyTorch can't be the oracle (dropout's random numbers) */
    const char *no_empty;  /* why no case has an empty input */
    const char *no_second; /* why there is no vjp though there is a backward */
    bool makes_inf;        /* on purpose: masked_fill */
    bool recomputes;       /* backward makes graph of its own: it may lead to any leaf */
} ct_op;

#define CT_CASES(array) .cases = (array), .n_cases = (int)(sizeof(array) / sizeof((array)[0]))

/* ---- running ---- Checks NULL and pending errors, infers, runs, records on the tape if any input
 * requires grad and recording is on. attr (up to 160 bytes, copied) is the op's own parameters. */
ct_tensor *cti_apply(const ct_op *op, const void *attr, size_t attr_bytes, int n_in,
                     ct_tensor *const *in);
/* The same for several outputs: out[0..n_out), all NULL on failure. Returns the status. */
int cti_apply_multi(const ct_op *op, const void *attr, size_t attr_bytes, int n_in,
                    ct_tensor *const *in, int n_out, ct_tensor **out);

/* The op written over in[0], which it returns: relu_(x). For ops whose kernel may write over its input. What
 * forward saves of that memory is a copy made before. */
ct_tensor *cti_apply_inplace(const ct_op *op, const void *attr, size_t attr_bytes, int n_in,
                             ct_tensor *const *in);

/* What autocast makes of an operand of a formula, by the formula's policy. NULL passes. */
ct_tensor *cti_operand(const ct_op *formula, ct_tensor *x);

/* The context of the first operand that isn't NULL; NULL when all are. */
ct_ctx *cti_ctx_of(int n, ct_tensor *const *in);
/* For public functions that check before they apply: records "op: text", returns NULL. */
ct_tensor *cti_raise(ct_ctx *ctx, const ct_op *op, int code, const char *fmt, ...) CT_PRINTF(4, 5);
/* cti_fail for infer and forward: records "op: text", returns the code. */
int cti_op_fail(cti_node *n, int code, const char *fmt, ...) CT_PRINTF(3, 4);

/* ---- inside infer and forward ---- Valid there: */
int cti_n_in(const cti_node *n);
const void *cti_attr(const cti_node *n);
void *cti_attr_mut(cti_node *n); /* infer and forward may note things for backward */
const ct_backend *cti_be(const cti_node *n);
ct_stream *cti_stream(const cti_node *n);
ct_ctx *cti_node_ctx(const cti_node *n);
bool cti_recording(const cti_node *n);          /* will a backward come? */
const ct_view *cti_x(const cti_node *n, int i); /* input i; NULL when absent */
const ct_view *cti_y(const cti_node *n, int i); /* output i, after infer declared it */
const char *cti_shape_str(const ct_view *v, char *buf, size_t cap); /* "[64,10]" */

/* Declaring outputs: fresh memory, ... */
int cti_out(cti_node *n, int o, ct_dtype dtype, int ndim, const int64_t *shape); /* row-major */
int cti_out_like(cti_node *n, int o, int i); /* as input i: dtype, shape, stride order, dense */
int cti_out_shaped_like(cti_node *n, int o, ct_dtype dtype, const ct_view *like);    /* as a view */
int cti_out_channels_last(cti_node *n, int o, ct_dtype dtype, const int64_t *shape); /* 4-D */
/* ... or a view of input i's storage (shares its version), offset in elements from input i's data. */
int cti_out_view(cti_node *n, int o, int i, int ndim, const int64_t *shape, const int64_t *stride,
                 int64_t offset);

/* Checks shared by many ops; each records its error. */
int cti_check_float(cti_node *n, int i); /* what the device computes with */
bool cti_is_compute_dtype(const cti_node *n, ct_dtype dtype);
/* Of what is kept about data of `dtype` (mean, log-sum-exp): f32 for bf16 and f16. */
ct_dtype cti_stat_dtype(ct_dtype dtype);
int cti_check_same_dtype(cti_node *n); /* all present inputs */
/* The broadcast of inputs a and b: shape into *ndim, shape; CT_ESHAPE when there is none. */
int cti_broadcast(cti_node *n, int a, int b, int *ndim, int64_t *shape);
/* dim in -ndim..ndim-1 made non-negative; CT_EINVAL with the range in the text. */
int cti_check_dim(cti_node *n, int i, int *dim);
/* v widened to `shape` by strides 0; the shapes must fit. */
ct_view cti_view_expand(const ct_view *v, int ndim, const int64_t *shape);

/* Keeping things for backward (no-ops when none will come). slot 0..5 is the op's own numbering. */
void cti_save_in(cti_node *n, int slot, int i);
void cti_save_out(cti_node *n, int slot, int o);
/* Fresh memory that forward fills: a temporary when no backward will come. NULL: out of memory (recorded). */
const ct_view *cti_save_new(cti_node *n, int slot, ct_dtype dtype, int ndim, const int64_t *shape);
const ct_view *cti_save_new_like(cti_node *n, int slot, ct_dtype dtype, const ct_view *like);

/* ---- verdicts ---- What only the device knows (an index out of range) and the host must tell. A kernel
 * writes [3] i64: the first number stays -1 unless something is wrong; an earlier finding stays. `report`
 * gets them and `arg` (of the op's last call) and records the error: at once where memory is the host's, else when the host next
 * reads something. NULL: out of memory (recorded). */
typedef void (*cti_late_report)(ct_ctx *ctx, const ct_op *op, const int64_t found[3], int64_t arg);
const ct_view *cti_late(cti_node *n, cti_late_report report, int64_t arg);

/* forward changes input i in place (running statistics): its version is bumped. */
void cti_mark_changed(cti_node *n, int i);

/* ---- inside backward (and forward: workspace) ---- */
bool cti_wants(const cti_node *n, int i); /* is the gradient of input i needed? */
const ct_view *cti_in_meta(const cti_node *n,
                           int i); /* dtype, shape, strides of input i; data NULL */
const ct_view *cti_saved(const cti_node *n, int slot); /* NULL when never saved */
const ct_view *cti_dy(const cti_node *n, int o);       /* any strides; NULL when no gradient came */
/* dy made dense in the order wanted, by a copy when it isn't so. NULL: out of memory (recorded). */
const ct_view *cti_dy_like(cti_node *n, int o, const ct_view *like);
const ct_view *cti_dy_channels_last(cti_node *n, int o);
/* Where to write the gradient of input i, dense, input i's shape and stride order. *beta is 1 when it must be
 * added to what is there (only if the op `accumulates`). NULL: not wanted, or out of memory (recorded). */
const ct_view *cti_dx(cti_node *n, int i, int *beta);
/* Scratch until the op returns; one at a time. NULL: out of memory (recorded); bytes 0 gives NULL. */
void *cti_workspace(cti_node *n, size_t bytes);
/* A dense temporary of the op's own, freed when it returns. */
const ct_view *cti_temp_like(cti_node *n, ct_dtype dtype, const ct_view *like);

/* In vjp: a tensor over what was saved, of the innermost scope. While a graph is being made (CT_CREATE_GRAPH)
 * it has the graph of the input or output that it is; memory of cti_save_new has none: what is made of it counts
 * as constant. */
ct_tensor *cti_saved_tensor(cti_node *n, int slot);
/* grad summed over broadcast dimensions down to input i's shape. */
ct_tensor *cti_sum_to_input(cti_node *n, ct_tensor *grad, int i);

/* ---- one-input elementwise ops ---- attr is a ct_unary; what backward needs is saved as backend/scalar.h
 * says. */
int cti_unary_infer(cti_node *n);
int cti_unary_forward(cti_node *n);
int cti_unary_backward(cti_node *n);
ct_tensor *cti_apply_unary(const ct_op *op, ct_unary fn, ct_tensor *x);
ct_tensor *cti_apply_unary_inplace(const ct_op *op, ct_unary fn, ct_tensor *x);
/* The same for the functions of ct_math; attr is a cti_math. x is saved in slot 0, or y in slot 1. */
typedef struct cti_math {
    ct_math fn;
    double a, b;
} cti_math;
int cti_math_forward(cti_node *n);
int cti_math_backward(cti_node *n);
ct_tensor *cti_apply_math(const ct_op *op, ct_math fn, double a, double b, ct_tensor *x);
ct_tensor *cti_apply_math_inplace(const ct_op *op, ct_math fn, double a, double b, ct_tensor *x);
/* y = fn(a, b), inputs 0 and 1, after cti_binary_infer. */
int cti_math2_forward(cti_node *n, ct_math2 fn);

/* Random position of the next draw in stream dropout (advances the ordinal). */
ct_rng cti_next_rng(ct_ctx *ctx);

/* ---- shared by op files ---- */
/* Inputs of a case: CT_IN(NORMAL, 3, 5); CT_IN_FIXED gets no gradient; CT_IN_LABELS(classes, 7). */
#define CT_IN_NDIM_(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define CT_IN(k, ...)                                                                 \
    {                                                                                 \
        .kind = CT_IN_##k, .ndim = CT_IN_NDIM_(__VA_ARGS__), .shape = { __VA_ARGS__ } \
    }
#define CT_IN_FIXED(k, ...)                                                          \
    {                                                                                \
        .kind = CT_IN_##k, .ndim = CT_IN_NDIM_(__VA_ARGS__), .shape = {__VA_ARGS__}, \
        .no_grad = true                                                              \
    }
#define CT_IN_LABELS(c, ...)                                                           \
    {                                                                                  \
        .kind = CT_IN_CLASS, .ndim = CT_IN_NDIM_(__VA_ARGS__), .shape = {__VA_ARGS__}, \
        .classes = (c), .no_grad = true                                                \
    }
#define CT_IN_SCALAR(k)   \
    {                     \
        .kind = CT_IN_##k \
    }

/* What a call that gave NULL has recorded; CT_OK when the gradient just isn't wanted. */
/* Is v from `least` to INT32_MAX? Kernels count windows in 32 bits, and sums of these don't overflow. */
static inline bool cti_in_int32(int64_t v, int64_t least)
{
    return v >= least && v <= INT32_MAX;
}

static inline int cti_pending(const cti_node *n)
{
    return ct_error_code(cti_node_ctx(n));
}
/* view.c */
bool cti_same_shape(const ct_view *a, const ct_view *b);
void cti_row_major(int ndim, const int64_t *shape, int64_t *stride);
/* elementwise.c: dtype, shape and strides of t; data NULL. */
ct_view cti_meta(const ct_tensor *t);
/* Two operands of one dtype that broadcast; CT_DTYPE_COUNT: the output has their dtype, which must be one
 * of f32, f64 and, unless `floats`, i32, i64. */
int cti_binary_infer(cti_node *n, ct_dtype out, bool floats);
int cti_binary_forward(cti_node *n, ct_binary fn);
/* y = x as view or NULL when an error is pending: for public functions that may give x itself. */
ct_tensor *cti_itself(ct_tensor *x);
/* dx = beta * dx + scale * src, src summed over the dimensions that dx lacks or has with size 1. */
int cti_sum_into(cti_node *n, const ct_view *dx, int beta, const ct_view *src, double scale);
/* dx = beta * dx + a * b, a and b of one shape, summed likewise. */
int cti_mul_into(cti_node *n, const ct_view *dx, int beta, const ct_view *a, const ct_view *b);

/* bce_with_logits.c: none, sum or mean of the losses of elements. */
ct_tensor *cti_reduce_loss(const ct_op *op, ct_tensor *loss, ct_reduction reduction);

/* n pointers of NULL for as long as a formula needs them; NULL: out of memory (recorded), or n is 0. */
typedef struct cti_node_list {
    ct_ctx *ctx;
    void *at;
    size_t bytes;
} cti_node_list;
ct_tensor **cti_list_begin(ct_ctx *ctx, cti_node_list *list, int64_t n);
void cti_list_end(cti_node_list *list);

/* layer_norm.c: what it shares with rms_norm (attr: a cti_rownorm). */
typedef struct cti_rownorm {
    double eps;
    bool rms;
    int dims;
    int64_t shape[CT_MAX_DIMS]; /* the last dims of x */
} cti_rownorm;
int cti_rownorm_infer(cti_node *n);
int cti_rownorm_forward(cti_node *n);
int cti_rownorm_backward(cti_node *n);
int cti_rownorm_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx);
ct_tensor *cti_apply_rownorm(const ct_op *op, ct_tensor *x, int dims, const int64_t *shape,
                             ct_tensor *weight, ct_tensor *bias, int n_in, double eps, bool rms);

/* movedim.c: x with dim last and row-major, for kernels that work along rows, and back. NULL: recorded. */
ct_tensor *cti_rows_of(ct_tensor *x, int dim);
ct_tensor *cti_rows_back(ct_tensor *y, int dim);
/* var.c: the square root, with gradient 0 at 0. */
ct_tensor *cti_root(ct_tensor *x);
/* cumprod.c: for each element of a row the product of all others of the row. */
ct_tensor *cti_products_without(ct_tensor *x);

/* Reductions over dimensions: the attr of sum, mean and amax (sum.c). */
typedef struct cti_reduction {
    ct_reduce fn;
    bool keepdim;
    int n_dims;
    int dims[CT_MAX_DIMS];
    unsigned mask; /* bit i: dimension i is reduced; set by infer */
    int64_t count; /* elements that make one of y */
} cti_reduction;
ct_tensor *cti_apply_reduction(const ct_op *op, ct_reduce fn, ct_tensor *x, const int *dims,
                               int n_dims, bool keepdim);
int cti_reduction_infer(cti_node *n, ct_dtype out);
int cti_reduction_forward(cti_node *n, double scale);
ct_tensor *cti_reduction_restore(cti_node *n, ct_tensor *y); /* y, dy with the 1s of keepdim */

/* matmul.c: y = beta * y + a b (+ bias) for any strides of y; m of a view is its last two dimensions. a_sum
 * (or NULL): also the sums of a over its columns, where cti_matmul_sums says so. */
int cti_matmul_into(cti_node *n, const ct_view *y, int beta, const ct_view *a, const ct_view *b,
                    const ct_view *bias, const ct_view *a_sum);
bool cti_matmul_sums(const ct_view *y, const ct_view *a, const ct_view *a_sum);
ct_view cti_view_t(const ct_view *v);   /* the last two dimensions swapped */
bool cti_view_matrix(const ct_view *v); /* will the matmul kernel take it? */
/* All dimensions but the last as one, without a copy; false when the strides don't allow it. */
bool cti_view_rows(const ct_view *v, ct_view *out);

/* select.c: dim of -ndim..ndim-1 made non-negative; false with the error recorded. For public functions. */
bool cti_wrap_dim(ct_tensor *x, const ct_op *op, int *dim);

/* gather.c: what goes by index. cti_check_indices takes a verdict on index (of any strides): all in [0, bound) of
 * dimension `dim`? cti_scatter_into: y = or += src by index along dim; scalars are vectors of one. */
void cti_report_index(ct_ctx *ctx, const ct_op *op, const int64_t found[3], int64_t dim);
int cti_check_indices(cti_node *n, const ct_view *index, int64_t bound, int dim);
int cti_check_index_dtype(cti_node *n, int i);
ct_view cti_at_least_1d(const ct_view *v);
int cti_start_as(cti_node *n, int i); /* y starts as a copy of input i, or is it (in place) */
int cti_scatter_into(cti_node *n, const ct_view *y, const ct_view *src, int dim,
                     const ct_view *index, bool add, int64_t skip);
/* index_select.c: a vector of indices as an index of y's shape along dim. */
ct_view cti_index_along(const ct_view *index, const ct_view *y, int dim);
int cti_check_index_vector(cti_node *n, int i);
ct_tensor *cti_index_i64(ct_tensor *index); /* i32 is converted */
/* index_add.c, for index_copy (attr: dim). */
int cti_index_add_infer(cti_node *n);
int cti_index_add_run(cti_node *n, bool add);
/* scatter.c, for scatter_add. */
typedef struct cti_scatter_attrs {
    int dim;
    bool add;
    double value; /* when there is no src */
} cti_scatter_attrs;
int cti_scatter_infer(cti_node *n);
int cti_scatter_forward(cti_node *n);
int cti_scatter_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx);
ct_tensor *cti_apply_scatter(const ct_op *op, ct_tensor *x, ct_tensor *index, ct_tensor *src,
                             int dim, bool add);
ct_tensor *cti_apply_scatter_(const ct_op *op, ct_tensor *x, ct_tensor *index, ct_tensor *src,
                              int dim, bool add); /* in place */
/* embedding.c: padding_idx as a row of weight, or -1 for none; false with the error recorded. */
bool cti_padding_row(const ct_op *op, ct_tensor *weight, int64_t *padding);
/* tril.c, for triu. */
typedef struct cti_tri_attrs {
    int64_t diagonal;
    bool upper;
} cti_tri_attrs;
int cti_tri_infer(cti_node *n);
int cti_tri_forward(cti_node *n);
int cti_tri_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx);

/* diagonal.c, diag_embed.c. */
typedef struct cti_diagonal {
    int64_t offset;
    int dim1, dim2;
    int ndim; /* of what the diagonal is put into; -1: as diag_embed says */
    int64_t shape[CT_MAX_DIMS];
} cti_diagonal;
/* dim1 and dim2 made non-negative. */
int cti_check_diagonal(cti_node *n, int ndim, cti_diagonal *d);
/* The diagonal of x as a view, but for its start in elements. */
ct_view cti_diagonal_view(const ct_view *x, const cti_diagonal *d, int64_t *start);
ct_tensor *cti_diagonal_back(ct_tensor *dy, cti_diagonal d);
/* arange.c: an op that needs no input but its dtype. */
ct_tensor *cti_apply_new(const ct_op *op, const void *attr, size_t bytes, ct_ctx *ctx,
                         ct_dtype dtype);
/* unfold.c: options checked for an image of [H, W]. */
int cti_unfold_args(cti_node *n, const ct_unfold_opts *o, const int64_t *image,
                    ct_unfold_args *args);
ct_unfold_opts cti_unfold_case(const ct_case *c); /* arg: kernel, stride, padding, dilation, h, w */
/* upsample_*.c */
typedef struct cti_upsample {
    double step[2];
    int64_t in[2], out[2];
    bool linear, align;
} cti_upsample;
int cti_upsample_infer(cti_node *n);
int cti_upsample_forward(cti_node *n);
int cti_upsample_backward(cti_node *n);
int cti_upsample_vjp(cti_node *n, ct_tensor *const *dy, ct_tensor **dx);
ct_tensor *cti_apply_upsample(ct_tensor *x, cti_upsample a);

/* constant_pad.c: ct_pad of that mode; n pairs are checked. */
ct_tensor *cti_constant_pad(ct_tensor *x, int n, const int64_t *pads, double value);
/* border_pad.c: the other modes; pads that fit, from the last dimension on. */
typedef struct cti_border {
    ct_pad_mode mode;
    int n; /* of dimensions */
    int64_t begin[CT_MAX_DIMS], end[CT_MAX_DIMS];
} cti_border;
ct_tensor *cti_border_pad(ct_tensor *x, cti_border a);

/* softmax.c: softmax and log_softmax (attr: a cti_softmax). */
typedef struct cti_softmax {
    int dim;
    bool log;
} cti_softmax;
int cti_softmax_infer(cti_node *n);
int cti_softmax_forward(cti_node *n);
int cti_softmax_backward(cti_node *n);

/* conv2d.c: what the convolutions share. Each is the gradient of the others, with the same attr. */
typedef struct cti_conv {
    ct_conv2d_opts o;
    int64_t begin[2], end[2]; /* padding in use */
    int64_t size[2]; /* what can't be told from the operands: of the image, of the kernel */
} cti_conv;
int cti_conv_check(cti_node *n, const ct_conv2d_opts *o);
int cti_conv_run(cti_node *n, ct_conv_pass pass, const ct_view *x, const ct_view *w,
                 const ct_view *y, const ct_view *bias);
int cti_conv_bias_grad(cti_node *n, int bias); /* into input `bias` */
ct_tensor *cti_conv_image(ct_tensor *x);       /* channels-last */
ct_tensor *cti_conv_forward(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, const cti_conv *conv);
/* conv_transpose2d.c: the gradient of x, an image of `size`, from that of y (plus bias); conv2d_weight.c: the gradient of
 * the weight, a kernel of `size`. */
ct_tensor *cti_conv_data(ct_tensor *y, ct_tensor *weight, ct_tensor *bias, const cti_conv *conv,
                         const int64_t *size);
ct_tensor *cti_conv_weight(ct_tensor *x, ct_tensor *y, const cti_conv *conv, const int64_t *size);

/* max_pool2d.c: what the pools share. */
int cti_pool_check(cti_node *n, ct_pool2d_opts *o,
                   int64_t *out);                    /* options, x; output height, width */
int cti_pool_out(cti_node *n, int64_t p, int64_t q); /* declares y in x's stride order */
void cti_pool_args(const ct_pool2d_opts *o, ct_pool_args *args);
/* avg_pool2d.c: dy spread over the windows of an image like x, as an op; o NULL: adaptive windows. */
ct_tensor *cti_avg_pool_spread(ct_tensor *dy, const ct_pool2d_opts *o, const ct_view *x);
ct_pool2d_opts cti_pool_case(
    const ct_case *c); /* arg: kernel h, w, stride h, w, padding h, w, dilation h, w,
                                                 * ceil_mode, count_include_pad */
/* ---- end of: shared by op files ---- */

bool cti_view_dense_like(const ct_view *v, const ct_view *like); /* same shape, same strides */
bool cti_view_channels_last(const ct_view *v); /* 4-D, dense, C innermost (size-1 dims ignored) */

/* The op table, in the order of meson.build. */
extern const ct_op *const cti_ops[];
extern const int cti_n_ops;

#endif
