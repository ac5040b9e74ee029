/* SPDX-License-Identifier: Apache-2.0 */
/* THE boundary: what a device can do, one struct of kernels per family.
 *
 * Contract of every kernel:
 *  - arguments are already checked (shapes fit, no NULL where none is allowed, enums in range);
 *  - it sees views and a stream, never a tensor or a context;
 *  - it is asynchronous on the stream (on the CPU: done when it returns);
 *  - it allocates nothing: workspace is asked for by the family's `workspace` and passed in;
 *  - it returns CT_OK or a status: CT_EDTYPE for a dtype it doesn't take, CT_EDEVICE for a failure of
 *    the device or its library. It may put a text into the stream's error record; when it does not,
 *    the caller makes one from op, dtypes and device;
 *  - `beta` is 0 (write) or 1 (add to what is there);
 *  - zero-size views are allowed everywhere and mean no work (a sum over nothing is 0);
 *  - no operand overlaps an output, unless the kernel says so ("in place": same data and strides).
 * All members are there: a plug-in without one is refused (plugin.c).
 *
 * Dtypes: unless a kernel says otherwise all its float operands have one dtype, one of the backend's
 * float_dtypes. bf16 and f16 are storage: sums and the math between load and store are f32. What a
 * kernel keeps about such data (mean, invstd, lse, total_weight) is f32 then; per-channel parameters
 * and statistics (weight, bias, running_*) may have the data's dtype or f32. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/mem.h"
#include "base/rng.h"
#include <ctrain/dtype.h>
#include <ctrain/error.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_BACKEND_ABI 4

/* A strided window on device memory. Strides are in elements and may be 0 (broadcast); channels-last
 * is a stride order, nothing else. */
typedef struct ct_view {
    void *data;
    ct_dtype dtype;
    int ndim;
    int64_t shape[CT_MAX_DIMS];
    int64_t stride[CT_MAX_DIMS];
} ct_view;

static inline int64_t ct_view_numel(const ct_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->ndim; i++)
        n *= v->shape[i];
    return n;
}

/* A device in use by one context: its handle, queue, primitive cache and counters. */
typedef struct ct_stream ct_stream;

typedef struct ct_stream_opts {
    int index;   /* which device of this kind */
    int threads; /* CPU threads; 0: as many as the process may run on */
    bool tf32;   /* CUDA: f32 products may round their operands to 10 bits of mantissa */
    cti_mem *mem;
    ct_error *err; /* where kernels may put a text; outlives the stream */
} ct_stream_opts;

typedef struct ct_device_info {
    char name[64];      /* "cpu" */
    char isa[64];       /* what the math library uses: "avx512_core_bf16" */
    char libraries[96]; /* "oneDNN 2.6.3" */
    int threads;        /* the team the device really runs */
} ct_device_info;

typedef struct ct_device_counters {
    uint64_t primitives;        /* library primitives, plans, descriptors created so far */
    uint64_t syncs;             /* waits for the device so far */
    uint64_t bytes, peak_bytes; /* of device memory, where it isn't the host's */
} ct_device_counters;

/* ---- memory, queues ---- A stream has two queues: compute, where kernels run, and copy, for copies that
 * run beside them. Work of one queue runs in order; an event orders the two. */
typedef enum ct_queue { CT_QUEUE_COMPUTE, CT_QUEUE_COPY } ct_queue;
typedef struct ct_mark ct_mark;   /* a point in a queue */
typedef struct ct_graph ct_graph; /* captured work of the compute queue */

typedef struct ct_k_mem {
    int (*open)(const ct_stream_opts *opts, ct_stream **out);
    void (*close)(ct_stream *s);
    /* Before work of a thread that may have used another device; NULL: no need. */
    void (*enter)(ct_stream *s);
    void *(*alloc)(ct_stream *s, size_t bytes); /* at least 64-byte aligned; NULL: out of memory */
    void (*free)(ct_stream *s, void *p);
    int (*upload)(ct_stream *s, void *dst, const void *host,
                  size_t bytes); /* compute queue; host may be reused on return */
    int (*download)(ct_stream *s, void *host, const void *src,
                    size_t bytes); /* complete on return */
    int (*sync)(ct_stream *s);
    void (*info)(ct_stream *s, ct_device_info *out);
    void (*counters)(ct_stream *s, ct_device_counters *out);
    /* Bytes of device memory that are free, and in all. */
    int (*room)(ct_stream *s, size_t *free, size_t *total);

    /* The members below are NULL on a device with host_memory, where all work is done when its call
     * returns. Pinned memory is host memory that copy_in and copy_out take; NULL: out of memory. */
    void *(*pinned_alloc)(ct_stream *s, size_t bytes);
    void (*pinned_free)(ct_stream *s, void *p);
    /* Copies that the host must not disturb before a mark after them is done. */
    int (*copy_in)(ct_stream *s, ct_queue q, void *dst, const void *pinned, size_t bytes);
    int (*copy_out)(ct_stream *s, ct_queue q, void *pinned, const void *src, size_t bytes);
    int (*mark_new)(ct_stream *s, ct_mark **out);
    void (*mark_free)(ct_stream *s, ct_mark *m); /* NULL is fine */
    int (*mark_set)(ct_stream *s, ct_queue q, ct_mark *m);
    /* Later work of q runs after the mark; a mark never set is done. The host doesn't wait. */
    int (*mark_wait)(ct_stream *s, ct_queue q, ct_mark *m);
    int (*mark_done)(ct_stream *s, ct_mark *m); /* 1, 0, or a status; never waits */
    int (*mark_sync)(ct_stream *s, ct_mark *m); /* the host waits: counted */
    /* Between begin and end work of the compute queue is taken down instead of run; alloc, free, upload,
     * download and sync are errors there. end with out NULL drops it. */
    int (*capture_begin)(ct_stream *s);
    int (*capture_end)(ct_stream *s, ct_graph **out);
    int (*graph_launch)(ct_stream *s, ct_graph *g);
    void (*graph_free)(ct_stream *s, ct_graph *g);
} ct_k_mem;

/* ---- elementwise ---- The scalar math is in backend/scalar.h, once for all backends. */
typedef enum ct_unary {
    CT_UN_NEG,
    CT_UN_ABS,
    CT_UN_EXP,
    CT_UN_LOG,
    CT_UN_SQRT,
    CT_UN_SQUARE,
    CT_UN_RELU,
    CT_UN_GELU,
    CT_UN_GELU_TANH,
    CT_UN_SILU,
    CT_UN_SIGMOID,
    CT_UN_TANH,
    CT_UN_COUNT
} ct_unary;

typedef enum ct_binary {
    CT_BIN_ADD,
    CT_BIN_SUB,
    CT_BIN_MUL,
    CT_BIN_DIV, /* arithmetic: f32, f64, i32, i64 */
    CT_BIN_EQ,
    CT_BIN_NE,
    CT_BIN_LT,
    CT_BIN_LE,
    CT_BIN_GT,
    CT_BIN_GE, /* y: bool; a, b: any equal dtype */
    CT_BIN_COUNT
} ct_binary;

/* Less often used functions, with up to two parameters a and b; in backend/scalar_math.h. */
typedef enum ct_math {
    CT_MA_SIN,
    CT_MA_COS,
    CT_MA_TAN,
    CT_MA_ASIN,
    CT_MA_ACOS,
    CT_MA_ATAN,
    CT_MA_SINH,
    CT_MA_COSH,
    CT_MA_ASINH,
    CT_MA_ACOSH,
    CT_MA_ATANH,
    CT_MA_EXP2,
    CT_MA_EXPM1,
    CT_MA_LOG2,
    CT_MA_LOG10,
    CT_MA_LOG1P,
    CT_MA_RSQRT,
    CT_MA_RECIPROCAL,
    CT_MA_SIGN,
    CT_MA_FLOOR,
    CT_MA_CEIL,
    CT_MA_ROUND, /* half to even */
    CT_MA_TRUNC,
    CT_MA_FRAC,
    CT_MA_ERF,
    CT_MA_ERFC,
    CT_MA_LEAKY_RELU, /* a: slope */
    CT_MA_ELU,        /* a: alpha */
    CT_MA_SELU,
    CT_MA_CELU,     /* a: alpha */
    CT_MA_SOFTPLUS, /* a: beta, b: threshold */
    CT_MA_CLAMP,    /* a: min, b: max; NaN: none */
    CT_MA_HARDTANH, /* a: min, b: max; as clamp, but a NaN lets its gradient through */
    CT_MA_HARDSIGMOID,
    CT_MA_HARDSWISH,
    CT_MA_SOFTSIGN,
    CT_MA_MISH,
    CT_MA_LOGSIGMOID,
    CT_MA_HARDSHRINK, /* a: lambda */
    CT_MA_SOFTSHRINK, /* a: lambda */
    CT_MA_THRESHOLD,  /* a: threshold, b: value */
    CT_MA_POW,        /* a: exponent */
    CT_MA_COUNT
} ct_math;

typedef enum ct_math2 {
    CT_MA2_MAXIMUM, /* also i32, i64 */
    CT_MA2_MINIMUM,
    CT_MA2_POW,
    CT_MA2_ATAN2,
    CT_MA2_FMOD,
    CT_MA2_REMAINDER,
    CT_MA2_FLOOR_DIVIDE,
    CT_MA2_AND, /* bool alone */
    CT_MA2_OR,
    CT_MA2_XOR,
    CT_MA2_COUNT
} ct_math2;

typedef struct ct_k_ew {
    /* dst = src with conversion; src may broadcast by strides 0. All dtypes to all. Float to bool is
     * x != 0; float to integer truncates; f32 to bf16/f16 rounds to nearest even. */
    int (*copy)(ct_stream *s, const ct_view *dst, const ct_view *src);
    int (*fill)(ct_stream *s, const ct_view *dst, double value); /* all dtypes */
    int (*unary)(ct_stream *s, ct_unary fn, const ct_view *y,
                 const ct_view *x); /* in place allowed */
    /* dx = beta * dx + dy * fn'(x, y). x or y is NULL where scalar.h says fn' doesn't need it. dx may be
     * dy in place. */
    int (*unary_grad)(ct_stream *s, ct_unary fn, const ct_view *dx, int beta, const ct_view *dy,
                      const ct_view *x, const ct_view *y);
    /* y, a, b of one shape (broadcast by strides 0). In place on a or b allowed. */
    int (*binary)(ct_stream *s, ct_binary fn, const ct_view *y, const ct_view *a, const ct_view *b);
    /* y = beta * y + mul * x + add; f32, f64, i32, i64. In place allowed. */
    int (*affine)(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double mul,
                  double add);
    /* y = beta * y + a * b. */
    int (*mul_add)(ct_stream *s, const ct_view *y, int beta, const ct_view *a, const ct_view *b);
    /* As unary, unary_grad and binary, for the functions of ct_math and ct_math2. */
    int (*math)(ct_stream *s, ct_math fn, double a, double b, const ct_view *y, const ct_view *x);
    int (*math_grad)(ct_stream *s, ct_math fn, double a, double b, const ct_view *dx, int beta,
                     const ct_view *dy, const ct_view *x, const ct_view *y);
    int (*math2)(ct_stream *s, ct_math2 fn, const ct_view *y, const ct_view *a, const ct_view *b);
    /* y = cond ? a : b; cond bool, the others of one dtype, any. In place on a or b allowed. */
    int (*where)(ct_stream *s, const ct_view *y, const ct_view *cond, const ct_view *a,
                 const ct_view *b);
} ct_k_ew;

/* ---- reductions ---- y has x's ndim, with 1 in the reduced dimensions. */
typedef enum ct_reduce { CT_RED_SUM, CT_RED_MAX, CT_RED_MIN, CT_RED_COUNT } ct_reduce;

typedef enum ct_scan { CT_SCAN_SUM, CT_SCAN_PROD } ct_scan;

typedef struct ct_k_reduce {
    /* Scratch that `reduce` needs, in bytes. */
    size_t (*workspace)(ct_stream *s, ct_reduce op, const ct_view *y, const ct_view *x);
    /* y = beta * y + scale * reduce(x) (beta, scale for sums alone; otherwise 0 and 1). Sums of f32 are
     * f32 in fixed chunks, the same for any number of threads. Dtypes: f32, f64; sums of i64, i32, bool,
     * u8 into i64. NaN wins max and min. A max over nothing never comes. */
    int (*reduce)(ct_stream *s, ct_reduce op, const ct_view *y, int beta, const ct_view *x,
                  double scale, void *workspace);
    /* y (i64) = index of the largest along `dim` (1 there in y); the first of ties; NaN is largest. */
    int (*argmax)(ct_stream *s, const ct_view *y, const ct_view *x, int dim);
    /* Along rows: x and y row-major of one shape and dtype; f32, f64 (bf16, f16 where they are). Sums of f32 are kept in
     * more precision. */
    int (*scan)(ct_stream *s, ct_scan fn, const ct_view *y, const ct_view *x);
    /* Each row of x (row-major) in rising or falling order into y, and where each stood (i64) into index; equal elements
     * keep their order; NaN is largest. workspace: 8 bytes an element on a device that asks for it (sort_workspace). */
    size_t (*sort_workspace)(ct_stream *s, const ct_view *x);
    int (*sort)(ct_stream *s, const ct_view *y, const ct_view *index, const ct_view *x,
                bool descending, void *workspace);
} ct_k_reduce;

/* ---- matmul ---- */
typedef struct ct_matmul_args {
    ct_view y;           /* [..., M, N], N contiguous */
    ct_view a, b;        /* [..., M, K] and [..., K, N]; of the last two strides of each one is 1 */
    const ct_view *bias; /* [N] contiguous, or NULL */
    const ct_view *a_sum; /* [M] contiguous, or NULL: written with the sums of a over K; ndim 2 */
    int beta;             /* with beta 1 there is no bias */
    void *workspace;
} ct_matmul_args; /* ndim 2 or more, equal; batch dimensions broadcast by strides 0, never of both a and b */

typedef struct ct_k_matmul {
    int (*workspace)(ct_stream *s, const ct_matmul_args *args, size_t *bytes);
    int (*matmul)(ct_stream *s, const ct_matmul_args *args);
} ct_k_matmul;

/* ---- convolution, 2-D, cross-correlation ---- */
typedef struct ct_conv_args {
    ct_view x;           /* [N,C,H,W], dense, channels-last */
    ct_view w;           /* [K,C/groups,R,S], row-major */
    ct_view y;           /* [N,K,P,Q], dense, channels-last */
    const ct_view *bias; /* [K] contiguous, or NULL; forward alone */
    int64_t stride[2], dilation[2];
    int64_t pad_begin[2], pad_end[2];
    int64_t groups;
    void *workspace;
} ct_conv_args;

typedef enum ct_conv_pass {
    CT_CONV_FORWARD,
    CT_CONV_BACKWARD_DATA,
    CT_CONV_BACKWARD_WEIGHT
} ct_conv_pass;

typedef struct ct_k_conv {
    int (*workspace)(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args, size_t *bytes);
    /* forward writes y; backward data writes x from w and y; backward weight writes w from x and y. Beta
     * is always 0. */
    int (*run)(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args);
} ct_k_conv;

/* ---- pooling, 2-D ---- */
typedef struct ct_pool_args {
    ct_view x; /* [N,C,H,W], any strides; fast when dense channels-last */
    ct_view y; /* [N,C,P,Q] */
    int64_t kernel[2], stride[2], pad[2], dilation[2]; /* dilation: max alone */
    bool count_include_pad; /* avg: divide by the window clipped to H + 2 pad, else by real cells */
    bool adaptive;          /* avg: window [floor(iH/P), ceil((i+1)H/P)); the rest is ignored */
} ct_pool_args;

typedef struct ct_k_pool {
    /* index (i32, y's shape, dense in y's order): h * W + w of the cell that won: the first maximum of
     * the window in row-major order, NaN wins (the last of several). NULL when not wanted. Padding is never
     * chosen: a window without a real cell gives -inf and index -1. */
    int (*max)(ct_stream *s, const ct_pool_args *args, const ct_view *index);
    int (*max_grad)(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                    const ct_view *dy, const ct_view *index);
    int (*avg)(ct_stream *s, const ct_pool_args *args);
    int (*avg_grad)(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                    const ct_view *dy);
} ct_k_pool; /* in the grads args->x and args->y give shapes alone (data NULL) */

/* ---- normalisation ---- Batch norm over dimension 1 of [N,C] or [N,C,...]. */
typedef struct ct_batchnorm_args {
    ct_view x, y;                              /* of one shape and stride order, dense */
    const ct_view *weight, *bias;              /* [C] or NULL */
    ct_view mean, invstd;                      /* [C], written by the training pass: for backward */
    const ct_view *running_mean, *running_var; /* [C]; training: updated unless NULL; eval: read */
    double momentum; /* running = (1 - momentum) * running + momentum * new; var unbiased */
    double eps;
    void *workspace;
} ct_batchnorm_args;

typedef struct ct_rownorm_args {
    ct_view x, y;                 /* in the gradient y is not looked at */
    const ct_view *weight, *bias; /* n contiguous elements, x's dtype, or NULL */
    ct_view mean, invstd;
    int64_t n;
    double eps;
    bool rms; /* nothing is subtracted: the mean is 0 */
} ct_rownorm_args;

typedef struct ct_k_norm {
    size_t (*batchnorm_workspace)(ct_stream *s, const ct_view *x);
    int (*batchnorm_train)(ct_stream *s, const ct_batchnorm_args *args);
    int (*batchnorm_eval)(ct_stream *s,
                          const ct_batchnorm_args *args); /* also writes mean, invstd */
    /* dx, dw, db are NULL when not wanted. `train`: mean and invstd depended on x. */
    int (*batchnorm_grad)(ct_stream *s, bool train, const ct_view *dx, int beta, const ct_view *dw,
                          const ct_view *db, const ct_view *dy, const ct_view *x,
                          const ct_view *weight, const ct_view *mean, const ct_view *invstd,
                          void *workspace);
    /* y = (x - mean) invstd weight + bias along rows of n = args->n elements, x and y row-major of one shape; mean and invstd
     * (biased variance + eps) are written, one for each row. */
    int (*rownorm)(ct_stream *s, const ct_rownorm_args *args);
    /* dx = beta dx + the gradient; t (or NULL) = dy xhat, whose sums over rows are the weight's gradient. dx may be NULL. */
    int (*rownorm_grad)(ct_stream *s, const ct_rownorm_args *args, const ct_view *dx, int beta,
                        const ct_view *t, const ct_view *dy);
} ct_k_norm;

/* ---- softmax and losses ---- */
typedef struct ct_cross_entropy_args {
    ct_view logits; /* [N,C,...]: classes are dimension 1 */
    ct_view target; /* i64 [N,...] class numbers, or logits' shape and dtype: probabilities */
    const ct_view *weight; /* [C], logits' dtype, or NULL */
    int64_t ignore_index;  /* class targets alone */
    double smoothing;
    /* `loss`: with none [N,...]; else a scalar: the sum, divided by total_weight for mean. */
    enum { CT_CE_NONE, CT_CE_SUM, CT_CE_MEAN } reduction;
    ct_view loss;         /* logits' dtype */
    ct_view lse;          /* [N,...]: log-sum-exp per row, for backward */
    ct_view total_weight; /* scalar: what the mean divides by (PyTorch's rule) */
    ct_view bad; /* [2] i64: first flat row whose class is out of range, and that class; left alone
                  * when all are in range or it holds a finding (not -1). The loss of such a row is NaN */
    void *workspace;
} ct_cross_entropy_args;

typedef struct ct_k_loss {
    /* Along `dim`; log: log-softmax. */
    int (*softmax)(ct_stream *s, const ct_view *y, const ct_view *x, int dim, bool log);
    int (*softmax_grad)(ct_stream *s, const ct_view *dx, int beta, const ct_view *dy,
                        const ct_view *y, int dim, bool log);
    size_t (*cross_entropy_workspace)(ct_stream *s, const ct_cross_entropy_args *args);
    int (*cross_entropy)(ct_stream *s, const ct_cross_entropy_args *args);
    /* dlogits = beta * dlogits + dloss * d loss / d logits; args as in forward, with lse, total_weight. */
    int (*cross_entropy_grad)(ct_stream *s, const ct_cross_entropy_args *args,
                              const ct_view *dlogits, int beta, const ct_view *dloss);
} ct_k_loss;

/* ---- indices ---- i64. One that is out of range gives NaN in what is a float (gather: in the element; scatter: in
 * the first along dim), 0 or nothing elsewhere: no step is applied before the host is told. */
typedef struct ct_scatter_args {
    ct_view y;
    const ct_view *src; /* index's shape and y's dtype; NULL: `value` */
    double value;
    ct_view index; /* sizes but along dim at most y's; strides may be 0 */
    int dim;
    bool add;     /* f32, f64, i32, i64, and what is computed with; else it is set: all dtypes */
    int64_t skip; /* an index that is passed over; -1: none */
} ct_scatter_args;

typedef struct ct_k_index {
    /* The first element of index, by its flat row-major position, that isn't in [0, bound): its position, itself
     * and bound into bad ([3] i64, dense), unless it holds a finding (not -1). */
    int (*check)(ct_stream *s, const ct_view *index, int64_t bound, const ct_view *bad);
    /* y[.., i, ..] = x[.., index[.., i, ..], ..] along dim. y and index have one shape, at most x's but along
     * dim; x and y one dtype, any. */
    int (*gather)(ct_stream *s, const ct_view *y, const ct_view *x, int dim, const ct_view *index);
    /* y[.., index[.., i, ..], ..] = or += src[.., i, ..] along dim, in the order of i: of equal indices the last
     * one stays, and sums have one order. y keeps its other elements. */
    int (*scatter)(ct_stream *s, const ct_scatter_args *args);
    /* y [n], dense, of f32, f64, i32 or i64: first + i * step in the first half, last - (n - 1 - i) * step in the
     * second. */
    int (*iota)(ct_stream *s, const ct_view *y, double first, double last, double step);
    /* y = x where column - row is at least (`upper`) or at most `diagonal`, else 0, in the last two dimensions. All
     * dtypes. */
    int (*tri)(ct_stream *s, const ct_view *y, const ct_view *x, int64_t diagonal, bool upper);
    /* Bags of consecutive positions 0..n-1: offsets [bags] tells where each one starts. bag [n] is the bag of each
     * position, or `bags` where ids [n] is `skip`. bad as in check: the first offset that is less than the one before (the first: not 0) or more
     * than n. All dense. */
    int (*bags)(ct_stream *s, const ct_view *bag, const ct_view *offsets, const ct_view *ids,
                int64_t skip, const ct_view *bad);
    /* index [bags, D]: the row of x [n, D] that has the first maximum of its column in the bag; n where the bag
     * has none. Rows where ids [n] is `skip` don't count. All dense; offsets are made to fit. */
    int (*bag_max)(ct_stream *s, const ct_view *index, const ct_view *x, const ct_view *offsets,
                   const ct_view *ids, int64_t skip);
} ct_k_index;

/* ---- images ---- [N,C,H,W], any strides. */
typedef struct ct_unfold_args {
    ct_view x; /* [N,C,H,W] */
    ct_view
        y; /* [N, C R S, P Q]: the windows of x (R x S cells, P x Q of them) as columns, 0 in the padding */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t out[2]; /* P, Q */
} ct_unfold_args;

typedef struct ct_resize_args {
    ct_view x, y;   /* of one N and C */
    double step[2]; /* cells of x for one of y: height, width */
    bool linear, align_corners;
} ct_resize_args;

typedef struct ct_k_image {
    int (*unfold)(ct_stream *s, const ct_unfold_args *args); /* y from x */
    /* x = beta * x + for each cell the sum over the windows that it is in. */
    int (*fold)(ct_stream *s, const ct_unfold_args *args, int beta);
    int (*resize)(ct_stream *s, const ct_resize_args *args); /* y from x; cells: backend/resize.h */
    /* x (that is, dx) = beta * x + the gradient of resize for y (that is, dy). */
    int (*resize_grad)(ct_stream *s, const ct_resize_args *args, int beta);
} ct_k_image;

/* ---- random numbers ---- Ordinals stay below 2^31 (f64 takes its second word from ordinal + 2^31). A
 * draw depends on the logical (row-major) index of an element, never on its place in memory: words 0..3 of counter (index / 4, step, micro, ordinal) serve 4 neighbours. */
typedef struct ct_rng {
    cti_rng_key key;
    uint32_t step, micro, ordinal;
    const uint32_t
        *position; /* device memory that holds step and micro instead (captured work), or NULL */
} ct_rng;

typedef struct ct_k_random {
    /* y = x / (1 - p) where u01 >= p, else 0; p = 1 gives zeros. f32, f64: u is always the 24-bit one, so
     * that both dtypes have one mask. backward is the same call on dy. beta as ever. */
    int (*dropout)(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double p,
                   const ct_rng *rng);
    int (*uniform)(ct_stream *s, const ct_view *y, double low, double high, const ct_rng *rng);
    int (*normal)(ct_stream *s, const ct_view *y, double mean, double std, const ct_rng *rng);
} ct_k_random;

/* ---- optimizers ---- Two passes over all parameters; see ARCHITECTURE, 'Life of a step'. */
typedef enum ct_opt_kind { CT_OPT_SGD, CT_OPT_ADAM, CT_OPT_ADAMW } ct_opt_kind;

/* One parameter, dense memory of `n` elements of `dtype` (f32 or f64) each. */
typedef struct ct_opt_param {
    void *p, *g;   /* g NULL: no gradient, left alone */
    void *s0, *s1; /* SGD: momentum buffer, NULL; Adam: exp_avg, exp_avg_sq */
    int64_t n;
    int64_t *step; /* device: updates applied so far; not shared between parameters */
    double weight_decay, lr_scale;
} ct_opt_param;

/* A tensor that a step changes besides the parameters (batch norm's running statistics): put back to
 * `backup` when the step is not applied, else copied to it. */
typedef struct ct_opt_guard {
    void *p, *backup;
    size_t bytes;
} ct_opt_guard;

/* In device memory: what changes from step to step, and what a step tells. */
typedef struct ct_opt_scalars {
    /* in */
    double lr;
    double beta1; /* or SGD's momentum */
    double beta2, eps, dampening;
    double max_norm; /* 0: don't clip */
    int32_t nesterov;
    int32_t latch; /* 1: after a non-finite step nothing is applied any more */
    /* Of the loss scale; scale_interval 0: there is none. */
    double scale_growth, scale_backoff;
    int64_t scale_interval;
    /* out */
    double weight;       /* the window's */
    double grad_norm;    /* of the gradients divided by the window's weight, before clipping */
    double loss_scale;   /* gradients are this many times too large; changed by pass 2 */
    int64_t scale_clean; /* steps since it changed */
    int32_t nonfinite;   /* this step: bit 0 a gradient, bit 1 the weight was 0 (or not finite:
                        * skipped, never latched), bit 2 the loss */
    int32_t latched;
    int64_t applied, skipped; /* totals */
} ct_opt_scalars;

typedef struct ct_k_optim {
    size_t (*workspace)(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params);
    /* Pass 1: weight (a scalar on the device of `dtype`, or NULL for 1), norm and non-finite flag, in a
     * fixed tree: the same for any number of threads. loss: a device scalar of `dtype`, or NULL. With a
     * loss scale gradients that overflowed are no reason to latch. */
    int (*norm)(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params, const void *weight,
                const void *loss, ct_opt_scalars *sc, void *workspace);
    /* Pass 2: unless flagged, divide by weight and loss scale, clip, step (PyTorch's update rules); then, flagged or
     * not, the next loss scale. */
    int (*step)(ct_stream *s, ct_opt_kind kind, ct_dtype dtype, int n, const ct_opt_param *params,
                int n_guards, const ct_opt_guard *guards, ct_opt_scalars *sc);
} ct_k_optim;

typedef struct ct_backend {
    int abi;             /* CT_BACKEND_ABI: a plug-in of another one is refused */
    const char *version; /* CT_VERSION: likewise */
    const char *name;    /* "cpu" */
    bool host_memory;    /* device memory can be read by the host */
    unsigned
        float_dtypes; /* bit 1 << dtype: what float kernels take. Copies, fills, affine, mul_add,
                            * arithmetic and sums take f64 everywhere. */
    /* May y and a_sum of a matmul, the weight gradient of a convolution and a sum be f32 where the operands are
     * bf16 or f16? */
    bool f32_of_half;
    /* Is device `index` there and usable? CT_OK with what it is ("NVIDIA H200, sm_90") in `what`, else
     * CT_EDEVICE with the reason. */
    int (*probe)(int index, char *what, size_t cap);
    const ct_k_mem *mem;
    const ct_k_ew *ew;
    const ct_k_reduce *reduce;
    const ct_k_matmul *matmul;
    const ct_k_conv *conv;
    const ct_k_pool *pool;
    const ct_k_norm *norm;
    const ct_k_loss *loss;
    const ct_k_index *index;
    const ct_k_image *image;
    const ct_k_random *random;
    const ct_k_optim *optim;
} ct_backend;

/* The CPU backend: always there. */
extern const ct_backend cti_backend_cpu;

/* What a plug-in exports: `const ct_backend ctrain_backend`. */
#define CT_BACKEND_SYMBOL "ctrain_backend"

#ifdef __cplusplus
}
#endif
#endif
