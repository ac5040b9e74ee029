/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CUDA backend share: the stream, errors, launches. C and CUDA C++. */
#ifndef BACKEND_CUDA_CUDA_H
#define BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "base/error.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cti_lt_cache cti_lt_cache;   /* matmul.c: algorithms of cublasLt by problem */
typedef struct cti_dnn_cache cti_dnn_cache; /* dnn.c: plans of cuDNN by graph */
typedef struct cti_staging cti_staging; /* staging.c: pinned ring for small uploads, downloads */

struct ct_stream {
    cti_mem *mem;
    ct_error *err;
    int device, threads;
    int sms; /* multiprocessors */
    int cc;  /* compute capability: 90 */
    bool tf32;
    bool capturing;
    cudaStream_t compute, copy;
    cublasLtHandle_t lt;
    cudnnHandle_t dnn;
    cti_lt_cache *lt_cache;
    cti_dnn_cache *dnn_cache;
    cti_staging *staging;
    struct cti_blocks *blocks; /* mem.c: device memory by address */
    ct_device_counters counters;
    cudaError_t sticky; /* the device is lost: the first error that said so */
};

/* ---- errors ---- Each records a text ("cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (matmul f32
 * [64,128] x [128,10])") and returns the status; success gives CT_OK. */
int cti_cuda_check(ct_stream *s, cudaError_t e, const char *what);
int cti_lt_check(ct_stream *s, cublasStatus_t e, const char *what);
int cti_dnn_check(ct_stream *s, cudnnStatus_t e, const char *what);
/* CT_EDTYPE: "softmax: float64 isn't possible on cuda; float32, bfloat16 and float16 are". */
int cti_cuda_no_dtype(ct_stream *s, const char *what, ct_dtype dtype);

/* Workspaces of library calls are at most this large; engines that want more are passed over. */
#define CTI_CUDA_WORKSPACE_MAX ((size_t)1 << 30)

#define CTI_BLOCK 256 /* threads of most kernels */

/* Blocks for n elements of work, one per thread of a grid-stride loop: enough to fill the device. */
static inline unsigned cti_blocks(const ct_stream *s, int64_t n)
{
    int64_t need = (n + CTI_BLOCK - 1) / CTI_BLOCK, most = (int64_t)s->sms * 16;
    return (unsigned)(need < 1 ? 1 : need < most ? need : most);
}

/* ---- the families: functions of the tables in cuda.c, by file ---- */
/* copy.cu, ew.cu */
int cti_cuda_copy(ct_stream *s, const ct_view *dst, const ct_view *src);
int cti_cuda_fill(ct_stream *s, const ct_view *dst, double value);
int cti_cuda_scan(ct_stream *s, ct_scan fn, const ct_view *y, const ct_view *x);
size_t cti_cuda_sort_workspace(ct_stream *s, const ct_view *x);
int cti_cuda_sort(ct_stream *s, const ct_view *y, const ct_view *index, const ct_view *x,
                  bool descending, void *workspace);
int cti_cuda_rownorm(ct_stream *s, const ct_rownorm_args *a);
int cti_cuda_rownorm_grad(ct_stream *s, const ct_rownorm_args *a, const ct_view *dx, int beta,
                          const ct_view *t, const ct_view *dy);
int cti_cuda_math(ct_stream *s, ct_math fn, double a, double b, const ct_view *y, const ct_view *x);
int cti_cuda_math_grad(ct_stream *s, ct_math fn, double a, double b, const ct_view *dx, int beta,
                       const ct_view *dy, const ct_view *x, const ct_view *y);
int cti_cuda_math2(ct_stream *s, ct_math2 fn, const ct_view *y, const ct_view *a, const ct_view *b);
int cti_cuda_where(ct_stream *s, const ct_view *y, const ct_view *cond, const ct_view *a,
                   const ct_view *b);
int cti_cuda_unary(ct_stream *s, ct_unary fn, const ct_view *y, const ct_view *x);
int cti_cuda_unary_grad(ct_stream *s, ct_unary fn, const ct_view *dx, int beta, const ct_view *dy,
                        const ct_view *x, const ct_view *y);
int cti_cuda_binary(ct_stream *s, ct_binary fn, const ct_view *y, const ct_view *a,
                    const ct_view *b);
int cti_cuda_affine(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double mul,
                    double add);
int cti_cuda_mul_add(ct_stream *s, const ct_view *y, int beta, const ct_view *a, const ct_view *b);
/* reduce.cu */
size_t cti_cuda_reduce_workspace(ct_stream *s, ct_reduce op, const ct_view *y, const ct_view *x);
int cti_cuda_reduce(ct_stream *s, ct_reduce op, const ct_view *y, int beta, const ct_view *x,
                    double scale, void *workspace);
int cti_cuda_argmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim);
/* matmul.c */
int cti_cuda_matmul_workspace(ct_stream *s, const ct_matmul_args *args, size_t *bytes);
int cti_cuda_matmul(ct_stream *s, const ct_matmul_args *args);
int cti_lt_open(ct_stream *s);
void cti_lt_close(ct_stream *s);
/* conv.c */
int cti_cuda_conv_workspace(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args,
                            size_t *bytes);
int cti_cuda_conv(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args);
/* dnn.c */
int cti_dnn_open(ct_stream *s);
void cti_dnn_close(ct_stream *s);
/* pool.cu */
int cti_cuda_max_pool(ct_stream *s, const ct_pool_args *args, const ct_view *index);
int cti_cuda_max_pool_grad(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                           const ct_view *dy, const ct_view *index);
int cti_cuda_avg_pool(ct_stream *s, const ct_pool_args *args);
int cti_cuda_avg_pool_grad(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                           const ct_view *dy);
/* norm.c (cuDNN where it takes the case, else norm_native.cu) */
size_t cti_cuda_batchnorm_workspace(ct_stream *s, const ct_view *x);
int cti_cuda_batchnorm_train(ct_stream *s, const ct_batchnorm_args *args);
int cti_cuda_batchnorm_eval(ct_stream *s, const ct_batchnorm_args *args);
int cti_cuda_batchnorm_grad(ct_stream *s, bool train, const ct_view *dx, int beta,
                            const ct_view *dw, const ct_view *db, const ct_view *dy,
                            const ct_view *x, const ct_view *weight, const ct_view *mean,
                            const ct_view *invstd, void *workspace);
/* softmax.cu, loss.cu */
int cti_cuda_softmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim, bool log);
int cti_cuda_softmax_grad(ct_stream *s, const ct_view *dx, int beta, const ct_view *dy,
                          const ct_view *y, int dim, bool log);
size_t cti_cuda_cross_entropy_workspace(ct_stream *s, const ct_cross_entropy_args *args);
int cti_cuda_cross_entropy(ct_stream *s, const ct_cross_entropy_args *args);
int cti_cuda_cross_entropy_grad(ct_stream *s, const ct_cross_entropy_args *args,
                                const ct_view *dlogits, int beta, const ct_view *dloss);
/* index.cu */
int cti_cuda_check_index(ct_stream *s, const ct_view *index, int64_t bound, const ct_view *bad);
int cti_cuda_gather(ct_stream *s, const ct_view *y, const ct_view *x, int dim,
                    const ct_view *index);
int cti_cuda_scatter(ct_stream *s, const ct_scatter_args *args);
int cti_cuda_iota(ct_stream *s, const ct_view *y, double first, double last, double step);
int cti_cuda_tri(ct_stream *s, const ct_view *y, const ct_view *x, int64_t diagonal, bool upper);
int cti_cuda_bags(ct_stream *s, const ct_view *bag, const ct_view *offsets, const ct_view *ids,
                  int64_t skip, const ct_view *bad);
int cti_cuda_bag_max(ct_stream *s, const ct_view *index, const ct_view *x, const ct_view *offsets,
                     const ct_view *ids, int64_t skip);
/* image.cu */
int cti_cuda_unfold(ct_stream *s, const ct_unfold_args *args);
int cti_cuda_fold(ct_stream *s, const ct_unfold_args *args, int beta);
int cti_cuda_resize(ct_stream *s, const ct_resize_args *args);
int cti_cuda_resize_grad(ct_stream *s, const ct_resize_args *args, int beta);
/* random.cu */
int cti_cuda_dropout(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double p,
                     const ct_rng *rng);
int cti_cuda_uniform(ct_stream *s, const ct_view *y, double low, double high, const ct_rng *rng);
int cti_cuda_normal(ct_stream *s, const ct_view *y, double mean, double std, const ct_rng *rng);
/* optim.cu */
size_t cti_cuda_optim_workspace(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params);
int cti_cuda_optim_norm(ct_stream *s, ct_dtype dtype, int n, const ct_opt_param *params,
                        const void *weight, const void *loss, ct_opt_scalars *sc, void *workspace);
int cti_cuda_optim_step(ct_stream *s, ct_opt_kind kind, ct_dtype dtype, int n,
                        const ct_opt_param *params, int n_guards, const ct_opt_guard *guards,
                        ct_opt_scalars *sc);

/* mem.c */
int cti_cuda_probe(int index, char *what, size_t cap);
extern const ct_k_mem cti_cuda_mem;

#ifdef __cplusplus
}
#endif
#endif
