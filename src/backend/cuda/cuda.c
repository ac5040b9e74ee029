/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the CUDA backend: what the plug-in libctrain-cuda.so exports. */
#include "backend/cuda/cuda.h"

#ifndef CT_VERSION
#define CT_VERSION "0.1.0"
#endif

static const ct_k_ew ew = {
    .copy = cti_cuda_copy,
    .fill = cti_cuda_fill,
    .unary = cti_cuda_unary,
    .unary_grad = cti_cuda_unary_grad,
    .binary = cti_cuda_binary,
    .affine = cti_cuda_affine,
    .mul_add = cti_cuda_mul_add,
    .math = cti_cuda_math,
    .math_grad = cti_cuda_math_grad,
    .math2 = cti_cuda_math2,
    .where = cti_cuda_where,
};

static const ct_k_reduce reduce = {
    .workspace = cti_cuda_reduce_workspace,
    .reduce = cti_cuda_reduce,
    .argmax = cti_cuda_argmax,
    .scan = cti_cuda_scan,
    .sort_workspace = cti_cuda_sort_workspace,
    .sort = cti_cuda_sort,
};

static const ct_k_matmul matmul = {
    .workspace = cti_cuda_matmul_workspace,
    .matmul = cti_cuda_matmul,
};

static const ct_k_conv conv = {
    .workspace = cti_cuda_conv_workspace,
    .run = cti_cuda_conv,
};

static const ct_k_pool pool = {
    .max = cti_cuda_max_pool,
    .max_grad = cti_cuda_max_pool_grad,
    .avg = cti_cuda_avg_pool,
    .avg_grad = cti_cuda_avg_pool_grad,
};

static const ct_k_norm norm = {
    .batchnorm_workspace = cti_cuda_batchnorm_workspace,
    .batchnorm_train = cti_cuda_batchnorm_train,
    .batchnorm_eval = cti_cuda_batchnorm_eval,
    .batchnorm_grad = cti_cuda_batchnorm_grad,
    .rownorm = cti_cuda_rownorm,
    .rownorm_grad = cti_cuda_rownorm_grad,
};

static const ct_k_loss loss = {
    .softmax = cti_cuda_softmax,
    .softmax_grad = cti_cuda_softmax_grad,
    .cross_entropy_workspace = cti_cuda_cross_entropy_workspace,
    .cross_entropy = cti_cuda_cross_entropy,
    .cross_entropy_grad = cti_cuda_cross_entropy_grad,
};

static const ct_k_index index_of = {
    .check = cti_cuda_check_index,
    .gather = cti_cuda_gather,
    .scatter = cti_cuda_scatter,
    .iota = cti_cuda_iota,
    .tri = cti_cuda_tri,
    .bags = cti_cuda_bags,
    .bag_max = cti_cuda_bag_max,
};

static const ct_k_image image = {
    .unfold = cti_cuda_unfold,
    .fold = cti_cuda_fold,
    .resize = cti_cuda_resize,
    .resize_grad = cti_cuda_resize_grad,
};

static const ct_k_random random_numbers = {
    .dropout = cti_cuda_dropout,
    .uniform = cti_cuda_uniform,
    .normal = cti_cuda_normal,
};

static const ct_k_optim optim = {
    .workspace = cti_cuda_optim_workspace,
    .norm = cti_cuda_optim_norm,
    .step = cti_cuda_optim_step,
};

extern const ct_backend ctrain_backend;
__attribute__((visibility("default"))) const ct_backend ctrain_backend = {
    .abi = CT_BACKEND_ABI,
    .version = CT_VERSION,
    .name = "cuda",
    .float_dtypes = 1u << CT_F32 | 1u << CT_BF16 | 1u << CT_F16,
    .probe = cti_cuda_probe,
    .mem = &cti_cuda_mem,
    .ew = &ew,
    .reduce = &reduce,
    .matmul = &matmul,
    .conv = &conv,
    .pool = &pool,
    .norm = &norm,
    .loss = &loss,
    .index = &index_of,
    .image = &image,
    .random = &random_numbers,
    .optim = &optim,
};
