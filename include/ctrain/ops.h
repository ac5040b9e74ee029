/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor expressions. Each returns a tensor of the innermost scope, or NULL when it fails, when an error is
 * pending, or when a required operand is NULL: so formulas nest, and the first error stays in the
 * context. Operands are of one context and, unless told otherwise, of one float dtype (f32, f64).
 * Broadcasting is PyTorch's. Names and rules are those of torch / torch.nn.functional. */
#ifndef CTRAIN_OPS_H
#define CTRAIN_OPS_H

#include <ctrain/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- arithmetic ---- Also of i32 and i64 (no gradient), but div. Shapes broadcast. */
ct_tensor *ct_add(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_sub(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_mul(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_div(ct_tensor *a, ct_tensor *b);
/* mul * x + add: torch's x * mul, x + add. */
ct_tensor *ct_affine(ct_tensor *x, double mul, double add);
ct_tensor *ct_neg(ct_tensor *x);
ct_tensor *ct_abs(ct_tensor *x);
ct_tensor *ct_exp(ct_tensor *x);
ct_tensor *ct_log(ct_tensor *x);
ct_tensor *ct_sqrt(ct_tensor *x);
ct_tensor *ct_square(ct_tensor *x);
/* Of floats, with PyTorch's names. floor to trunc and sign have the gradient 0; round goes half to even. */
ct_tensor *ct_sin(ct_tensor *x);
ct_tensor *ct_cos(ct_tensor *x);
ct_tensor *ct_tan(ct_tensor *x);
ct_tensor *ct_asin(ct_tensor *x);
ct_tensor *ct_acos(ct_tensor *x);
ct_tensor *ct_atan(ct_tensor *x);
ct_tensor *ct_sinh(ct_tensor *x);
ct_tensor *ct_cosh(ct_tensor *x);
ct_tensor *ct_asinh(ct_tensor *x);
ct_tensor *ct_acosh(ct_tensor *x);
ct_tensor *ct_atanh(ct_tensor *x);
ct_tensor *ct_exp2(ct_tensor *x);
ct_tensor *ct_expm1(ct_tensor *x);
ct_tensor *ct_log2(ct_tensor *x);
ct_tensor *ct_log10(ct_tensor *x);
ct_tensor *ct_log1p(ct_tensor *x);
ct_tensor *ct_rsqrt(ct_tensor *x);
ct_tensor *ct_reciprocal(ct_tensor *x);
ct_tensor *ct_sign(ct_tensor *x);
ct_tensor *ct_floor(ct_tensor *x);
ct_tensor *ct_ceil(ct_tensor *x);
ct_tensor *ct_round(ct_tensor *x);
ct_tensor *ct_trunc(ct_tensor *x);
ct_tensor *ct_frac(ct_tensor *x);
ct_tensor *ct_erf(ct_tensor *x);
ct_tensor *ct_erfc(ct_tensor *x);
ct_tensor *ct_pow(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_pow_scalar(ct_tensor *x, double p);
ct_tensor *ct_atan2(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_fmod(ct_tensor *a, ct_tensor *b);         /* the sign of a */
ct_tensor *ct_remainder(ct_tensor *a, ct_tensor *b);    /* the sign of b: Python's % */
ct_tensor *ct_floor_divide(ct_tensor *a, ct_tensor *b); /* no gradient */
/* Also of i32 and i64. Halves of the gradient where both are equal; NaN wins. */
ct_tensor *ct_maximum(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_minimum(ct_tensor *a, ct_tensor *b);
/* Either bound may be NULL, not both; the gradient at a bound is 0. By tensors it is halved there. */
ct_tensor *ct_clamp(ct_tensor *x, const double *lo, const double *hi);
ct_tensor *ct_clamp_tensor(ct_tensor *x, ct_tensor *lo, ct_tensor *hi);
ct_tensor *ct_lerp(ct_tensor *a, ct_tensor *b, double weight); /* a + weight (b - a) */
ct_tensor *ct_addcmul(ct_tensor *x, ct_tensor *a, ct_tensor *b, double value); /* x + value a b */
ct_tensor *ct_addcdiv(ct_tensor *x, ct_tensor *a, ct_tensor *b, double value); /* x + value a / b */
/* cond is bool; a and b of one dtype, any; the three broadcast. */
ct_tensor *ct_where(ct_tensor *cond, ct_tensor *a, ct_tensor *b);
ct_tensor *ct_masked_fill(ct_tensor *x, ct_tensor *mask,
                          double value); /* the mask broadcasts to x */
/* bool, no gradient: of bools, ... */
ct_tensor *ct_logical_and(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_logical_or(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_logical_xor(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_logical_not(ct_tensor *x); /* x == 0, any dtype */
ct_tensor *ct_isnan(ct_tensor *x);       /* ... of floats */
ct_tensor *ct_isinf(ct_tensor *x);
ct_tensor *ct_isfinite(ct_tensor *x);
/* bool, no gradient; any equal dtype. */
ct_tensor *ct_eq(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_ne(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_lt(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_le(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_gt(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_ge(ct_tensor *a, ct_tensor *b);

/* ---- activations ---- Subgradients: relu's is 0 at 0. */
ct_tensor *ct_relu(ct_tensor *x);
ct_tensor *ct_gelu(ct_tensor *x, bool tanh_approx); /* approximate='tanh' or 'none' */
ct_tensor *ct_silu(ct_tensor *x);
ct_tensor *ct_sigmoid(ct_tensor *x);
ct_tensor *ct_tanh(ct_tensor *x);
ct_tensor *ct_leaky_relu(ct_tensor *x, double slope);
ct_tensor *ct_elu(ct_tensor *x, double alpha);
ct_tensor *ct_selu(ct_tensor *x);
ct_tensor *ct_celu(ct_tensor *x, double alpha);
ct_tensor *ct_softplus(ct_tensor *x, double beta, double threshold);
ct_tensor *ct_hardtanh(ct_tensor *x, double min_val, double max_val);
ct_tensor *ct_hardsigmoid(ct_tensor *x);
ct_tensor *ct_hardswish(ct_tensor *x);
ct_tensor *ct_softsign(ct_tensor *x);
ct_tensor *ct_mish(ct_tensor *x);
ct_tensor *ct_logsigmoid(ct_tensor *x);
ct_tensor *ct_hardshrink(ct_tensor *x, double lambda);
ct_tensor *ct_softshrink(ct_tensor *x, double lambda);
ct_tensor *ct_threshold(ct_tensor *x, double threshold, double value);
ct_tensor *ct_relu6(ct_tensor *x);
ct_tensor *ct_tanhshrink(ct_tensor *x);
ct_tensor *ct_prelu(ct_tensor *x, ct_tensor *weight); /* weight [1], or [C] of x [N,C,...] */
ct_tensor *ct_glu(ct_tensor *x,
                  int dim); /* the first half along dim, times the sigmoid of the second */

/* ---- reductions ---- Over the dimensions of `dims` (negative count from the end; n_dims 0: all).
 * keepdim leaves them with size 1. sum and mean of nothing are 0 and NaN. */
ct_tensor *ct_sum(ct_tensor *x, const int *dims, int n_dims, bool keepdim);
ct_tensor *ct_mean(ct_tensor *x, const int *dims, int n_dims, bool keepdim);
/* Largest (smallest); ties share the gradient evenly; NaN wins. torch.amax, amin. */
ct_tensor *ct_amax(ct_tensor *x, const int *dims, int n_dims, bool keepdim);
ct_tensor *ct_amin(ct_tensor *x, const int *dims, int n_dims, bool keepdim);
/* i64 index of the first largest (smallest) along dim; no gradient. NaN is taken first. */
ct_tensor *ct_argmax(ct_tensor *x, int dim, bool keepdim);
ct_tensor *ct_argmin(ct_tensor *x, int dim, bool keepdim);
/* Along dim: the element and its i64 place, the first of ties, which alone gets the gradient. Each returns 0 or the
 * error; `values` or `indices` may be NULL. */
int ct_max(ct_tensor *x, int dim, bool keepdim, ct_tensor **values, ct_tensor **indices);
int ct_min(ct_tensor *x, int dim, bool keepdim, ct_tensor **values, ct_tensor **indices);
int ct_median(ct_tensor *x, int dim, bool keepdim, ct_tensor **values,
              ct_tensor **indices);     /* the lower one */
ct_tensor *ct_median_all(ct_tensor *x); /* ties share the gradient */
/* Stable, NaN last (descending: first). topk's elements are in order; k at most what there are. */
int ct_sort(ct_tensor *x, int dim, bool descending, ct_tensor **values, ct_tensor **indices);
int ct_topk(ct_tensor *x, int64_t k, int dim, bool largest, ct_tensor **values,
            ct_tensor **indices);
ct_tensor *ct_argsort(ct_tensor *x, int dim, bool descending);
ct_tensor *ct_cumsum(ct_tensor *x, int dim);
ct_tensor *ct_cumprod(ct_tensor *x, int dim); /* its gradient takes n^2 memory for rows of n */
ct_tensor *ct_prod(ct_tensor *x, int dim, bool keepdim);
ct_tensor *ct_prod_all(ct_tensor *x);
/* By n - correction (1: unbiased); NaN where that is not above 0. std's gradient is 0 where it is 0. */
ct_tensor *ct_var(ct_tensor *x, const int *dims, int n_dims, double correction, bool keepdim);
ct_tensor *ct_std(ct_tensor *x, const int *dims, int n_dims, double correction, bool keepdim);
int ct_var_mean(ct_tensor *x, const int *dims, int n_dims, double correction, bool keepdim,
                ct_tensor **var, ct_tensor **mean);
/* torch.linalg.vector_norm; p 0, +-INFINITY or any other number. The gradient is 0 where the norm is 0. */
ct_tensor *ct_norm(ct_tensor *x, double p, const int *dims, int n_dims, bool keepdim);
ct_tensor *ct_normalize(ct_tensor *x, double p, int dim,
                        double eps); /* x / max(norm, eps): 2, 1, 1e-12 */
ct_tensor *ct_cosine_similarity(ct_tensor *a, ct_tensor *b, int dim, double eps); /* 1, 1e-8 */
ct_tensor *ct_logsumexp(ct_tensor *x, const int *dims, int n_dims, bool keepdim);
ct_tensor *ct_softmin(ct_tensor *x, int dim);
/* Of any dtype, no gradient. */
ct_tensor *ct_any(ct_tensor *x, const int *dims, int n_dims, bool keepdim);
ct_tensor *ct_all(ct_tensor *x, const int *dims, int n_dims, bool keepdim);
ct_tensor *ct_count_nonzero(ct_tensor *x, const int *dims, int n_dims, bool keepdim); /* i64 */

/* ---- shapes ---- Views where strides allow, sharing storage and version. All dtypes. */
ct_tensor *ct_reshape(ct_tensor *x, int ndim, const int64_t *shape); /* one size may be -1 */
ct_tensor *ct_flatten(ct_tensor *x, int start_dim, int end_dim);
ct_tensor *ct_permute(ct_tensor *x, int ndim, const int *dims);
ct_tensor *ct_transpose(ct_tensor *x, int dim0, int dim1);
ct_tensor *ct_squeeze(ct_tensor *x, int dim);
ct_tensor *ct_unsqueeze(ct_tensor *x, int dim);
ct_tensor *ct_expand(ct_tensor *x, int ndim, const int64_t *shape); /* -1 keeps a size */
/* [start, start + length) of dim. */
ct_tensor *ct_narrow(ct_tensor *x, int dim, int64_t start, int64_t length);
/* x[index] along dim, without dim; a negative index counts from the end. */
ct_tensor *ct_select(ct_tensor *x, int dim, int64_t index);
/* Pieces of x along dim, views: of `size` elements but for the last; of given sizes, which must add up; at most
 * `chunks` of about one size; each slice, without dim. Into out[0..cap) (chunk: room for `chunks`). They return
 * how many there are (split_sizes: CT_OK), or the error. */
int ct_split(ct_tensor *x, int64_t size, int dim, ct_tensor **out, int cap);
int ct_split_sizes(ct_tensor *x, int n, const int64_t *sizes, int dim, ct_tensor **out);
int ct_chunk(ct_tensor *x, int chunks, int dim, ct_tensor **out);
int ct_unbind(ct_tensor *x, int dim, ct_tensor **out, int cap);
ct_tensor *ct_cat(ct_tensor *const *xs, int n, int dim);
/* Of one shape, along a new dimension. */
ct_tensor *ct_stack(ct_tensor *const *xs, int n, int dim);
/* Dimension source[i] becomes destination[i]; the others keep their order. */
ct_tensor *ct_movedim(ct_tensor *x, int n, const int *source, const int *destination);
ct_tensor *ct_swapdims(ct_tensor *x, int dim0, int dim1); /* ct_transpose */
/* Copies: with the elements along dims in reverse order; moved by shifts along dims, round the end (dims NULL:
 * one shift, of x as if it were flat). */
ct_tensor *ct_flip(ct_tensor *x, int n, const int *dims);
ct_tensor *ct_roll(ct_tensor *x, int n, const int64_t *shifts, const int *dims);
/* x repeats[i] times along each dimension i; there may be more repeats than dimensions (tile: also fewer). */
ct_tensor *ct_repeat(ct_tensor *x, int ndim, const int64_t *repeats);
ct_tensor *ct_tile(ct_tensor *x, int n, const int64_t *repeats);
/* Each element along dim `repeats` times. */
ct_tensor *ct_repeat_interleave(ct_tensor *x, int64_t repeats, int dim);

typedef enum ct_pad_mode {
    CT_PAD_CONSTANT, /* `value`; negative pads crop */
    CT_PAD_REFLECT,  /* less than the size */
    CT_PAD_REPLICATE,
    CT_PAD_CIRCULAR /* at most the size */
} ct_pad_mode;
/* torch.nn.functional.pad: n numbers, begin and end of the last dimension, then of the one before it, ... */
ct_tensor *ct_pad(ct_tensor *x, int n, const int64_t *pads, ct_pad_mode mode, double value);
/* [..., C r^2, H, W] <-> [..., C, H r, W r]. */
ct_tensor *ct_pixel_shuffle(ct_tensor *x, int64_t r);
ct_tensor *ct_pixel_unshuffle(ct_tensor *x, int64_t r);
/* One value everywhere, x's dtype and context: of x's shape, or of another one. No gradient. */
ct_tensor *ct_full_like(ct_tensor *x, double value);
ct_tensor *ct_zeros_like(ct_tensor *x);
ct_tensor *ct_ones_like(ct_tensor *x);
ct_tensor *ct_new_full(ct_tensor *x, int ndim, const int64_t *shape, double value);
/* New vectors of floats, i32, i64: start, start + step, ... below (above) end; `steps` numbers from start to end.
 * [n,m] with 1 on the diagonal. Of the innermost scope. */
ct_tensor *ct_arange(ct_ctx *ctx, ct_dtype dtype, double start, double end, double step);
ct_tensor *ct_linspace(ct_ctx *ctx, ct_dtype dtype, double start, double end, int64_t steps);
ct_tensor *ct_eye(ct_ctx *ctx, ct_dtype dtype, int64_t n, int64_t m);
/* The elements of dim1 and dim2 whose column - row is offset, as the last dimension: a view. */
ct_tensor *ct_diagonal(ct_tensor *x, int64_t offset, int dim1, int dim2);
/* The inverse: zeros with x's last dimension there. diag: of a vector, or the diagonal of a matrix. */
ct_tensor *ct_diag_embed(ct_tensor *x, int64_t offset, int dim1, int dim2);
ct_tensor *ct_diag(ct_tensor *x, int64_t diagonal);
/* x itself when it is so already, else a copy. */
ct_tensor *ct_contiguous(ct_tensor *x);
ct_tensor *ct_channels_last(ct_tensor *x); /* 4-D */
ct_tensor *ct_clone(ct_tensor *x);
/* Shares storage and sees later changes; no graph. */
ct_tensor *ct_detach(ct_tensor *x);
/* Conversion; the gradient is converted back. x itself when it has the dtype. */
ct_tensor *ct_cast(ct_tensor *x, ct_dtype dtype);

/* 0 above (below) the diagonal that starts at column (row) |diagonal|: where column - row > (<) diagonal. Of the last
 * two dimensions. */
ct_tensor *ct_tril(ct_tensor *x, int64_t diagonal);
ct_tensor *ct_triu(ct_tensor *x, int64_t diagonal);

/* ---- by index ---- index is i64 (where it is a vector also i32), in [0, size): negative ones are refused as PyTorch
 * does. One out of range is CT_EDATA with its value, its position and the bound: at once on the CPU, elsewhere
 * when the host next reads something, and floats are NaN until then. All dtypes, but sums: floats, i32, i64. Sums
 * are in the order of index on every device. */
/* y[.., i, ..] = x[.., index[.., i, ..], ..] along dim; index as many dimensions as x. */
ct_tensor *ct_gather(ct_tensor *x, int dim, ct_tensor *index);
/* Likewise, x and index broadcast outside dim; a negative index counts from the end. */
ct_tensor *ct_take_along_dim(ct_tensor *x, ct_tensor *index, int dim);
/* x with y[.., index[.., i, ..], ..] = (add: +=) src[.., i, ..] along dim; of equal indices the last one stays. */
ct_tensor *ct_scatter(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src);
ct_tensor *ct_scatter_value(ct_tensor *x, int dim, ct_tensor *index, double value);
ct_tensor *ct_scatter_add(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src);
/* The slices of x along dim that the vector index names; x with alpha src's slices added to those; x with those
 * replaced by src's (of equal indices the last one stays). */
ct_tensor *ct_index_select(ct_tensor *x, int dim, ct_tensor *index);
ct_tensor *ct_index_add(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src, double alpha);
ct_tensor *ct_index_copy(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src);
#define CT_NO_PADDING INT64_MIN
/* weight [V,D], ids (i64 or i32) of any shape -> ids' shape and D. The row padding_idx (negative counts from the end;
 * CT_NO_PADDING: none) gets no gradient. */
ct_tensor *ct_embedding(ct_tensor *weight, ct_tensor *ids, int64_t padding_idx);
typedef enum ct_bag_mode { CT_BAG_SUM, CT_BAG_MEAN, CT_BAG_MAX } ct_bag_mode;

typedef struct ct_embedding_bag_opts {
    ct_bag_mode mode;
    ct_tensor *per_sample_weights; /* ids' shape, weight's dtype, sum alone; or NULL */
    int64_t padding_idx;           /* these ids don't count; CT_NO_PADDING */
    bool
        include_last_offset; /* offsets [B+1]: with the end of the last bag; ids behind it do not count */
} ct_embedding_bag_opts;
ct_embedding_bag_opts ct_embedding_bag_defaults(ct_bag_mode mode);
/* The rows of weight [V,D] joined for each bag of ids: [B,L] (offsets NULL), or [n] with offsets [B], where the bags
 * start -> [B,D]. An empty bag is 0. Offsets are checked as indices are. */
ct_tensor *ct_embedding_bag(ct_tensor *weight, ct_tensor *ids, ct_tensor *offsets,
                            ct_embedding_bag_opts opts);
/* ids i64 of any shape -> ids' shape and `classes`, i64. */
ct_tensor *ct_one_hot(ct_tensor *ids, int64_t classes);

/* ---- in place ---- The first operand is changed and returned; the result must have its shape and dtype. Its
 * version goes up, so a backward that needs what it was is refused (CT_ESTATE). While gradients are recorded it
 * takes over the result's graph; where it is a view, the tensor it is a view of and all its other views follow.
 * Refused: a leaf that requires grad or a view of one (but under CT_SCOPE_NO_GRAD), an expanded tensor, an operand
 * that is partly the memory changed. */
ct_tensor *ct_add_(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_sub_(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_mul_(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_div_(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_relu_(ct_tensor *x);
ct_tensor *ct_sigmoid_(ct_tensor *x);
ct_tensor *ct_tanh_(ct_tensor *x);
ct_tensor *ct_silu_(ct_tensor *x);
ct_tensor *ct_exp_(ct_tensor *x);
ct_tensor *ct_sqrt_(ct_tensor *x);
ct_tensor *ct_square_(ct_tensor *x);
ct_tensor *ct_neg_(ct_tensor *x);
ct_tensor *ct_abs_(ct_tensor *x);
ct_tensor *ct_affine_(ct_tensor *x, double mul, double add);
ct_tensor *ct_clamp_(ct_tensor *x, const double *lo, const double *hi);
ct_tensor *ct_fill_(ct_tensor *x, double value);
ct_tensor *ct_copy_(ct_tensor *x, ct_tensor *src); /* src broadcasts, of any dtype */
ct_tensor *ct_scatter_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src);
ct_tensor *ct_scatter_add_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src);
ct_tensor *ct_index_add_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src, double alpha);
ct_tensor *ct_index_copy_(ct_tensor *x, int dim, ct_tensor *index, ct_tensor *src);

/* ---- products ---- */
/* torch.matmul: vectors, matrices, batches with broadcasting. */
ct_tensor *ct_matmul(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_bmm(ct_tensor *a, ct_tensor *b); /* [B,M,K] x [B,K,N]: nothing broadcasts */
/* beta x + alpha a b, of matrices and of batches; x broadcasts to the product and isn't looked at with beta 0. */
ct_tensor *ct_addmm(ct_tensor *x, ct_tensor *a, ct_tensor *b, double alpha, double beta);
ct_tensor *ct_baddbmm(ct_tensor *x, ct_tensor *a, ct_tensor *b, double alpha, double beta);
/* Of vectors: [M] and [N] -> [M,N]; [N] and [N] -> scalar. */
ct_tensor *ct_outer(ct_tensor *a, ct_tensor *b);
ct_tensor *ct_dot(ct_tensor *a, ct_tensor *b);
/* x [..., in], weight [out, in], bias [out] or NULL -> [..., out]. */
ct_tensor *ct_linear(ct_tensor *x, ct_tensor *weight, ct_tensor *bias);

typedef struct ct_conv2d_opts {
    int64_t stride[2], padding[2], dilation[2]; /* height, width */
    int64_t groups;
    bool same; /* padding='same': stride 1; an odd total puts the extra zero at the end */
} ct_conv2d_opts;
ct_conv2d_opts ct_conv2d_defaults(void); /* stride 1, padding 0, dilation 1, groups 1 */
/* x [N,C,H,W], weight [K,C/groups,R,S], bias [K] or NULL -> [N,K,P,Q], channels-last in memory. */
ct_tensor *ct_conv2d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, ct_conv2d_opts opts);

typedef struct ct_conv_transpose2d_opts {
    int64_t stride[2], padding[2], output_padding[2], dilation[2]; /* height, width */
    int64_t groups;
} ct_conv_transpose2d_opts;
ct_conv_transpose2d_opts ct_conv_transpose2d_defaults(
    void); /* stride, dilation, groups 1, the rest 0 */
/* x [N,C,H,W], weight [C,K/groups,R,S], bias [K] or NULL -> [N,K,P,Q], P = (H-1) stride - 2 padding + dilation (R-1) +
 * output_padding + 1. */
ct_tensor *ct_conv_transpose2d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias,
                               ct_conv_transpose2d_opts opts);

typedef struct ct_conv1d_opts {
    int64_t stride, padding, dilation, groups;
    bool same; /* as in ct_conv2d_opts */
} ct_conv1d_opts;
ct_conv1d_opts ct_conv1d_defaults(void); /* stride 1, padding 0, dilation 1, groups 1 */
/* x [N,C,L], weight [K,C/groups,S], bias [K] or NULL -> [N,K,Q]. */
ct_tensor *ct_conv1d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, ct_conv1d_opts opts);

typedef struct ct_conv_transpose1d_opts {
    int64_t stride, padding, output_padding, dilation, groups;
} ct_conv_transpose1d_opts;
ct_conv_transpose1d_opts ct_conv_transpose1d_defaults(
    void); /* stride, dilation, groups 1, the rest 0 */
/* x [N,C,L], weight [C,K/groups,S], bias [K] or NULL -> [N,K,Q]. */
ct_tensor *ct_conv_transpose1d(ct_tensor *x, ct_tensor *weight, ct_tensor *bias,
                               ct_conv_transpose1d_opts opts);

typedef struct ct_pool2d_opts {
    int64_t kernel[2], stride[2], padding[2]; /* stride 0: kernel */
    int64_t dilation[2];                      /* max alone */
    bool ceil_mode;
    bool count_include_pad; /* avg alone; default true */
} ct_pool2d_opts;
ct_pool2d_opts ct_pool2d_defaults(int64_t kernel); /* stride = kernel, padding 0 */
/* [N,C,H,W]. The gradient goes to the first maximum of a window; NaN wins. */
ct_tensor *ct_max_pool2d(ct_tensor *x, ct_pool2d_opts opts);
ct_tensor *ct_avg_pool2d(ct_tensor *x, ct_pool2d_opts opts);
ct_tensor *ct_adaptive_avg_pool2d(ct_tensor *x, int64_t out_h, int64_t out_w);

typedef struct ct_pool1d_opts {
    int64_t kernel, stride, padding; /* stride 0: kernel */
    int64_t dilation;                /* max alone */
    bool ceil_mode;
    bool count_include_pad; /* avg alone; default true */
} ct_pool1d_opts;
ct_pool1d_opts ct_pool1d_defaults(int64_t kernel); /* stride = kernel, padding 0 */
/* [N,C,L] -> [N,C,Q], by the rules of the pools of images. */
ct_tensor *ct_max_pool1d(ct_tensor *x, ct_pool1d_opts opts);
ct_tensor *ct_avg_pool1d(ct_tensor *x, ct_pool1d_opts opts);
ct_tensor *ct_adaptive_avg_pool1d(ct_tensor *x, int64_t out);

typedef struct ct_unfold_opts {
    int64_t kernel[2], stride[2], padding[2], dilation[2]; /* height, width */
} ct_unfold_opts;
ct_unfold_opts ct_unfold_defaults(int64_t kernel); /* stride 1, padding 0, dilation 1 */
/* torch.nn.functional.unfold, fold: [N,C,H,W] -> [N, C * kernel cells, windows]; back, summed where windows meet. */
ct_tensor *ct_unfold(ct_tensor *x, ct_unfold_opts opts);
ct_tensor *ct_fold(ct_tensor *x, int64_t height, int64_t width, ct_unfold_opts opts);

typedef enum ct_interpolate_mode {
    CT_INTERPOLATE_NEAREST,
    CT_INTERPOLATE_BILINEAR
} ct_interpolate_mode;

typedef struct ct_interpolate_opts {
    int64_t size[2]; /* height, width; or 0 and */
    double scale[2]; /* floor(scale * size of x) */
    ct_interpolate_mode mode;
    bool align_corners; /* bilinear alone */
} ct_interpolate_opts;
/* [N,C,H,W] -> [N,C,P,Q]; no antialias. */
ct_tensor *ct_interpolate(ct_tensor *x, ct_interpolate_opts opts);

/* ---- normalisation, dropout ---- */
typedef struct ct_batch_norm_opts {
    bool training;   /* batch statistics, and running ones updated in place (unless NULL) */
    double momentum; /* 0.1: running = 0.9 running + 0.1 new (unbiased variance) */
    double eps;      /* 1e-5 */
} ct_batch_norm_opts;
ct_batch_norm_opts ct_batch_norm_defaults(bool training);
/* x [N,C] or [N,C,...]; the others [C] or NULL. Without running statistics batch ones are used in
 * evaluation too. Training needs more than one value per channel. */
ct_tensor *ct_batch_norm(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, ct_tensor *running_mean,
                         ct_tensor *running_var, ct_batch_norm_opts opts);
/* Over the last `dims` dimensions, whose sizes are `shape`; weight and bias have that shape, or are NULL. */
ct_tensor *ct_layer_norm(ct_tensor *x, int dims, const int64_t *shape, ct_tensor *weight,
                         ct_tensor *bias, double eps); /* 1e-5 */
ct_tensor *ct_rms_norm(ct_tensor *x, int dims, const int64_t *shape, ct_tensor *weight,
                       double eps); /* below 0: the dtype's own (PyTorch: None) */
/* x [N,C,...]; weight and bias [C] or NULL. */
ct_tensor *ct_group_norm(ct_tensor *x, int64_t groups, ct_tensor *weight, ct_tensor *bias,
                         double eps);
ct_tensor *ct_instance_norm(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, double eps);
/* Zeroes with probability p, scales the rest by 1/(1-p); x itself when not training or p is 0. */
ct_tensor *ct_dropout(ct_tensor *x, double p, bool training);

/* ---- softmax and losses ---- */
ct_tensor *ct_softmax(ct_tensor *x, int dim);
ct_tensor *ct_log_softmax(ct_tensor *x, int dim);

typedef enum ct_reduction { CT_REDUCE_NONE, CT_REDUCE_SUM, CT_REDUCE_MEAN } ct_reduction;

typedef struct ct_cross_entropy_opts {
    ct_tensor *weight;    /* [C] or NULL */
    int64_t ignore_index; /* -100 */
    double label_smoothing;
    ct_reduction reduction; /* mean */
    /* When not NULL: *total_weight becomes a scalar of the scope, what the mean divides by. */
    ct_tensor **total_weight;
} ct_cross_entropy_opts;
ct_cross_entropy_opts ct_cross_entropy_defaults(void);
/* logits [N,C,...]; target i64 [N,...] class numbers, or probabilities of logits' shape and dtype.
 * Class numbers are checked (CT_EDATA). The mean over nothing is NaN, as PyTorch's. */
ct_tensor *ct_cross_entropy(ct_tensor *logits, ct_tensor *target, ct_cross_entropy_opts opts);
/* Shapes broadcast. */
ct_tensor *ct_mse_loss(ct_tensor *x, ct_tensor *target, ct_reduction reduction);
ct_tensor *ct_l1_loss(ct_tensor *x, ct_tensor *target, ct_reduction reduction);
ct_tensor *ct_smooth_l1_loss(ct_tensor *x, ct_tensor *target, double beta,
                             ct_reduction reduction); /* 1 */
ct_tensor *ct_huber_loss(ct_tensor *x, ct_tensor *target, double delta,
                         ct_reduction reduction); /* 1 */
/* weight and pos_weight broadcast to x, or are NULL. */
ct_tensor *ct_bce_with_logits(ct_tensor *x, ct_tensor *target, ct_tensor *weight,
                              ct_tensor *pos_weight, ct_reduction reduction);
ct_tensor *ct_bce(ct_tensor *p, ct_tensor *target, ct_tensor *weight, ct_reduction reduction);
/* x log-probabilities; target probabilities, or their logs. batchmean: the sum divided by x's first size. */
ct_tensor *ct_kl_div(ct_tensor *x, ct_tensor *target, bool log_target, ct_reduction reduction);
ct_tensor *ct_kl_div_batchmean(ct_tensor *x, ct_tensor *target, bool log_target);
/* x log-probabilities [N,C,...], target i64 [N,...], weight [C] or NULL. */
ct_tensor *ct_nll_loss(ct_tensor *x, ct_tensor *target, ct_tensor *weight, int64_t ignore_index,
                       ct_reduction reduction);

/* ---- attention, recurrent layers ---- */
typedef struct ct_attention_opts {
    ct_tensor *
        mask; /* broadcasts to [...,L,S]: bool, true where a key may be looked at, or floats to add; NULL: none */
    bool causal;    /* query i looks at keys up to i */
    double scale;   /* 0: 1 / sqrt(E) */
    double dropout; /* of the weights, while training */
    bool training;
} ct_attention_opts;
ct_attention_opts ct_attention_defaults(void);
/* q [...,L,E], k [...,S,E], v [...,S,V] -> [...,L,V]. A query that may look at nothing gives 0.
 * (torch.nn.functional.scaled_dot_product_attention) */
ct_tensor *ct_attention(ct_tensor *q, ct_tensor *k, ct_tensor *v, ct_attention_opts opts);

typedef enum ct_rnn_mode { CT_RNN_TANH, CT_RNN_RELU, CT_RNN_LSTM, CT_RNN_GRU } ct_rnn_mode;
typedef struct ct_rnn_opts {
    ct_rnn_mode mode;
    int layers;
    bool bidirectional, batch_first;
    double dropout; /* between layers, while training */
    bool training;
    ct_tensor *lengths; /* i64 [N], in any order; NULL: all sequences have all steps */
} ct_rnn_opts;
ct_rnn_opts ct_rnn_defaults(ct_rnn_mode mode); /* 1 layer */
/* x [T,N,I] (batch_first: [N,T,I]); h0, c0 [layers * directions, N, H] or NULL: 0; params: w_ih [gates H, I], w_hh [gates H, H],
 * b_ih, b_hh [gates H] or NULL for each layer and in it each direction. y [T,N,directions H], h_n and c_n (LSTM) as h0;
 * each may be NULL. Returns 0 or the error. */
int ct_rnn(ct_tensor *x, ct_tensor *h0, ct_tensor *c0, ct_tensor *const *params, ct_rnn_opts opts,
           ct_tensor **y, ct_tensor **h_n, ct_tensor **c_n);

#ifdef __cplusplus
}
#endif
#endif
