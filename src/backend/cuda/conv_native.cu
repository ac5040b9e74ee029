/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution without cuDNN: a thread for each element of y or dx, a block for each of dw. It takes every
 * case and is far from fast; conv.c asks cuDNN first. x and y are channels-last, w is row-major. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/conv.h"

namespace cti
{

struct conv_shape {
    int64_t n, c, h, w, k, r, s, p, q;
    int64_t cg, kg; /* channels of a group, in and out */
    int64_t stride[2], dilation[2], pad[2];
};

static conv_shape shape_of(const ct_conv_args *a)
{
    conv_shape g = {};
    g.n = a->x.shape[0];
    g.c = a->x.shape[1];
    g.h = a->x.shape[2];
    g.w = a->x.shape[3];
    g.k = a->w.shape[0];
    g.r = a->w.shape[2];
    g.s = a->w.shape[3];
    g.p = a->y.shape[2];
    g.q = a->y.shape[3];
    g.cg = a->w.shape[1];
    g.kg = a->w.shape[0] / a->groups;
    for (int i = 0; i < 2; i++) {
        g.stride[i] = a->stride[i];
        g.dilation[i] = a->dilation[i];
        g.pad[i] = a->pad_begin[i];
    }
    return g;
}

/* Where tap t of output o reads; -1: in the padding. */
__device__ inline int64_t input_at(const conv_shape &g, int dim, int64_t o, int64_t t, int64_t size)
{
    int64_t i = o * g.stride[dim] - g.pad[dim] + t * g.dilation[dim];
    return i >= 0 && i < size ? i : -1;
}

/* The output whose tap t reads i; -1: none. */
__device__ inline int64_t output_at(const conv_shape &g, int dim, int64_t i, int64_t t,
                                    int64_t size)
{
    int64_t o = i + g.pad[dim] - t * g.dilation[dim];
    if (o < 0 || o % g.stride[dim] != 0)
        return -1;
    o /= g.stride[dim];
    return o < size ? o : -1;
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    conv_forward(conv_shape g, T *y, const T *x, const T *w, const T *bias)
{
    int64_t total = g.n * g.p * g.q * g.k, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        int64_t k = i % g.k, q = i / g.k % g.q, p = i / (g.k * g.q) % g.p,
                n = i / (g.k * g.q * g.p);
        float sum = bias ? load(bias + k) : 0.0f;
        for (int64_t r = 0; r < g.r; r++) {
            int64_t h = input_at(g, 0, p, r, g.h);
            for (int64_t s = 0; h >= 0 && s < g.s; s++) {
                int64_t v = input_at(g, 1, q, s, g.w);
                if (v < 0)
                    continue;
                const T *xi = x + ((n * g.h + h) * g.w + v) * g.c + k / g.kg * g.cg;
                const T *wi = w + (k * g.cg * g.r + r) * g.s + s;
                for (int64_t c = 0; c < g.cg; c++)
                    sum += load(xi + c) * load(wi + c * g.r * g.s);
            }
        }
        store(y + i, sum);
    }
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    conv_backward_data(conv_shape g, T *dx, const T *dy, const T *w)
{
    int64_t total = g.n * g.h * g.w * g.c, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        int64_t c = i % g.c, v = i / g.c % g.w, h = i / (g.c * g.w) % g.h,
                n = i / (g.c * g.w * g.h);
        int64_t first = c / g.cg * g.kg;
        float sum = 0;
        for (int64_t r = 0; r < g.r; r++) {
            int64_t p = output_at(g, 0, h, r, g.p);
            for (int64_t s = 0; p >= 0 && s < g.s; s++) {
                int64_t q = output_at(g, 1, v, s, g.q);
                if (q < 0)
                    continue;
                const T *di = dy + ((n * g.p + p) * g.q + q) * g.k + first;
                const T *wi = w + ((first * g.cg + c % g.cg) * g.r + r) * g.s + s;
                for (int64_t k = 0; k < g.kg; k++)
                    sum += load(di + k) * load(wi + k * g.cg * g.r * g.s);
            }
        }
        store(dx + i, sum);
    }
}

/* A block for each element of dw: its threads share the sum over images and places, in fixed parts. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    conv_backward_weight(conv_shape g, T *dw, const T *x, const T *dy, lanes l)
{
    CTI_SHARED(float, part, CTI_BLOCK);
    int64_t total = g.k * g.cg * g.r * g.s, places = g.n * g.p * g.q;
    place at = place_of(l);
    for (int64_t i = blockIdx.x; i < total; i += gridDim.x) {
        int64_t s = i % g.s, r = i / g.s % g.r, c = i / (g.s * g.r) % g.cg,
                k = i / (g.s * g.r * g.cg);
        float sum = 0;
        for (int64_t j = at.lane; j < places; j += l.n) {
            int64_t q = j % g.q, p = j / g.q % g.p, n = j / (g.q * g.p);
            int64_t h = input_at(g, 0, p, r, g.h), v = input_at(g, 1, q, s, g.w);
            if (h >= 0 && v >= 0)
                sum += load(x + ((n * g.h + h) * g.w + v) * g.c + k / g.kg * g.cg + c) *
                       load(dy + j * g.k + k);
        }
        sum = join_lanes(part, l, at, sum, add_op());
        if (threadIdx.x == 0)
            store(dw + i, sum);
    }
}

template <class T> static cudaError_t run(ct_stream *s, ct_conv_pass pass, const ct_conv_args *a)
{
    conv_shape g = shape_of(a);
    T *x = (T *)a->x.data, *y = (T *)a->y.data, *w = (T *)a->w.data;
    const T *bias = a->bias ? (const T *)a->bias->data : nullptr;
    lanes all = {CTI_BLOCK, false};
    int64_t weights = ct_view_numel(&a->w);

    if (pass == CT_CONV_FORWARD)
        return ct_view_numel(&a->y) == 0 ?
                   cudaSuccess :
                   CTI_LAUNCH((conv_forward<T>), cti_blocks(s, ct_view_numel(&a->y)), CTI_BLOCK, 0,
                              s->compute, g, y, x, w, bias);
    if (pass == CT_CONV_BACKWARD_DATA)
        return ct_view_numel(&a->x) == 0 ?
                   cudaSuccess :
                   CTI_LAUNCH((conv_backward_data<T>), cti_blocks(s, ct_view_numel(&a->x)),
                              CTI_BLOCK, 0, s->compute, g, x, y, w);
    return weights == 0 ?
               cudaSuccess :
               CTI_LAUNCH((conv_backward_weight<T>), (unsigned)(weights < 65535 ? weights : 65535),
                          CTI_BLOCK, 0, s->compute, g, w, x, y, all);
}

} // namespace cti

int cti_cuda_conv_native(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args)
{
    cudaError_t e = cudaSuccess;
    switch (args->x.dtype) {
        CTI_CASES_FLOAT(e = cti::run<T>(s, pass, args))
    default:
        return cti_cuda_no_dtype(s, "conv2d", args->x.dtype);
    }
    return cti_cuda_check(s, e, "conv2d");
}
