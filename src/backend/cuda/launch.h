/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel dialect: one .cu file compiles with nvcc, and with g++ against the software double of
 * tests/double. Rules: launches only through CTI_LAUNCH, shared memory only through CTI_SHARED and
 * CTI_DYN_SHARED, warp intrinsics with explicit masks, no inline PTX, no cooperative groups, no
 * __constant__ memory. CTI_LAUNCH((kernel<T, 4>), grid, block, shared_bytes, stream, arguments...) gives
 * a cudaError_t; arguments are taken by value, at most 4 KB of them. */
#ifndef BACKEND_CUDA_LAUNCH_H
#define BACKEND_CUDA_LAUNCH_H

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CTI_UNPAREN(...) __VA_ARGS__
#define CTI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                       \
    (CTI_UNPAREN kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), \
     cudaGetLastError())
#define CTI_SHARED(type, name, n) __shared__ type name[n]
#define CTI_DYN_SHARED(type, name)                                  \
    extern __shared__ __align__(16) unsigned char cti_dyn_shared_[]; \
    type *name = (type *)cti_dyn_shared_
#else
#include "double/kernel.h"
#endif

#endif
