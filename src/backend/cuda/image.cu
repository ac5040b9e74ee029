/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of images as columns, and back; images resized. A thread makes one element, so sums have a fixed order:
 * backwards each cell of the input asks those of the output that it is in. */
#include "backend/cuda/loop.cuh"
#include "backend/resize.h"

namespace cti
{

struct windows {
    int64_t size[2], out[2]; /* H, W; P, Q */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t xs[4], ys[3]; /* strides in elements */
    int64_t channels, numel;
    int beta;
};

/* y [N, C R S, P Q]: which element is i? */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) unfold_kernel(windows g, const T *x, T *y)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at = quotient(i, g.out[1]), q = i - at * g.out[1];
        int64_t r = quotient(at, g.out[0]), p = at - r * g.out[0];
        int64_t rc = quotient(r, g.kernel[1]), kw = r - rc * g.kernel[1];
        int64_t nc = quotient(rc, g.kernel[0]), kh = rc - nc * g.kernel[0];
        int64_t n = quotient(nc, g.channels), c = nc - n * g.channels;
        int64_t h = p * g.stride[0] - g.pad[0] + kh * g.dilation[0];
        int64_t w = q * g.stride[1] - g.pad[1] + kw * g.dilation[1];
        bool there = h >= 0 && h < g.size[0] && w >= 0 && w < g.size[1];
        int64_t row = (c * g.kernel[0] + kh) * g.kernel[1] + kw;
        float v = there ? load(x + n * g.xs[0] + c * g.xs[1] + h * g.xs[2] + w * g.xs[3]) : 0.0f;
        store(y + n * g.ys[0] + row * g.ys[1] + (p * g.out[1] + q) * g.ys[2], v);
    }
}

/* The window that has `cell` at place k of an axis, or -1. */
__device__ inline int64_t window_at(const windows &g, int axis, int64_t cell, int64_t k)
{
    int64_t from = cell + g.pad[axis] - k * g.dilation[axis];
    if (from < 0)
        return -1;
    int64_t p = quotient(from, g.stride[axis]);
    return p * g.stride[axis] == from && p < g.out[axis] ? p : -1;
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK, 2) fold_kernel(windows g, T *x, const T *y)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at = quotient(i, g.size[1]), w = i - at * g.size[1];
        int64_t nc = quotient(at, g.size[0]), h = at - nc * g.size[0];
        int64_t n = quotient(nc, g.channels), c = nc - n * g.channels;
        const T *from = y + n * g.ys[0] + c * g.kernel[0] * g.kernel[1] * g.ys[1];
        float sum = 0;
        for (int64_t kh = 0; kh < g.kernel[0]; kh++) {
            int64_t p = window_at(g, 0, h, kh);
            if (p < 0)
                continue;
            for (int64_t kw = 0; kw < g.kernel[1]; kw++) {
                int64_t q = window_at(g, 1, w, kw);
                if (q >= 0)
                    sum += load(from + (kh * g.kernel[1] + kw) * g.ys[1] +
                                (p * g.out[1] + q) * g.ys[2]);
            }
        }
        T *to = x + n * g.xs[0] + c * g.xs[1] + h * g.xs[2] + w * g.xs[3];
        store(to, g.beta ? load(to) + sum : sum);
    }
}

struct resized {
    cti_axis axis[2];
    int64_t xs[4], ys[4]; /* strides in elements */
    int64_t channels, numel;
    int beta;
};

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) resize_kernel(resized g, const T *x, T *y)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at = quotient(i, g.axis[1].out), q = i - at * g.axis[1].out;
        int64_t nc = quotient(at, g.axis[0].out), p = at - nc * g.axis[0].out;
        int64_t n = quotient(nc, g.channels), c = nc - n * g.channels;
        cti_tap_f32 h = cti_tap_of_f32(&g.axis[0], p), w = cti_tap_of_f32(&g.axis[1], q);
        const T *low = x + n * g.xs[0] + c * g.xs[1] + h.low * g.xs[2];
        const T *high = low + (h.high - h.low) * g.xs[2];
        float v = load(low + w.low * g.xs[3]);
        if (g.axis[0].linear) {
            float a = (1 - w.w) * v + w.w * load(low + w.high * g.xs[3]);
            float b =
                (1 - w.w) * load(high + w.low * g.xs[3]) + w.w * load(high + w.high * g.xs[3]);
            v = (1 - h.w) * a + h.w * b;
        }
        store(y + n * g.ys[0] + c * g.ys[1] + p * g.ys[2] + q * g.ys[3], v);
    }
}

/* The first output cell whose high (or low) is at least `cell`: both never fall. */
__device__ inline int64_t first_at(const cti_axis &a, int64_t cell, bool high)
{
    int64_t from = 0, to = a.out;
    while (from < to) {
        int64_t middle = (from + to) / 2;
        cti_tap_f32 t = cti_tap_of_f32(&a, middle);
        if ((high ? t.high : t.low) >= cell)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

__device__ inline float share(const cti_tap_f32 &t, int64_t cell)
{
    return (t.low == cell ? 1 - t.w : 0) + (t.high == cell ? t.w : 0);
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK, 2) resize_grad_kernel(resized g, T *x, const T *y)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at = quotient(i, g.axis[1].in), w = i - at * g.axis[1].in;
        int64_t nc = quotient(at, g.axis[0].in), h = at - nc * g.axis[0].in;
        int64_t n = quotient(nc, g.channels), c = nc - n * g.channels;
        int64_t p1 = first_at(g.axis[0], h + 1, false), q1 = first_at(g.axis[1], w + 1, false);
        int64_t q0 = first_at(g.axis[1], w, true);
        const T *from = y + n * g.ys[0] + c * g.ys[1];
        float sum = 0;
        for (int64_t p = first_at(g.axis[0], h, true); p < p1; p++) {
            float part = share(cti_tap_of_f32(&g.axis[0], p), h);
            for (int64_t q = q0; q < q1; q++)
                sum += part * share(cti_tap_of_f32(&g.axis[1], q), w) *
                       load(from + p * g.ys[2] + q * g.ys[3]);
        }
        T *to = x + n * g.xs[0] + c * g.xs[1] + h * g.xs[2] + w * g.xs[3];
        store(to, g.beta ? load(to) + sum : sum);
    }
}

static windows windows_of(const ct_unfold_args *a, const ct_view *made, int beta)
{
    windows g = {};
    for (int i = 0; i < 2; i++) {
        g.size[i] = a->x.shape[2 + i];
        g.out[i] = a->out[i];
        g.kernel[i] = a->kernel[i];
        g.stride[i] = a->stride[i];
        g.pad[i] = a->pad[i];
        g.dilation[i] = a->dilation[i];
    }
    for (int i = 0; i < 4; i++)
        g.xs[i] = a->x.stride[i];
    for (int i = 0; i < 3; i++)
        g.ys[i] = a->y.stride[i];
    g.channels = a->x.shape[1];
    g.numel = ct_view_numel(made);
    g.beta = beta;
    return g;
}

static resized resized_of(const ct_resize_args *a, const ct_view *made, int beta)
{
    resized g = {};
    for (int i = 0; i < 2; i++) {
        g.axis[i].in = a->x.shape[2 + i];
        g.axis[i].out = a->y.shape[2 + i];
        g.axis[i].step = a->step[i];
        g.axis[i].linear = a->linear;
        g.axis[i].align = a->align_corners;
    }
    for (int i = 0; i < 4; i++) {
        g.xs[i] = a->x.stride[i];
        g.ys[i] = a->y.stride[i];
    }
    g.channels = a->x.shape[1];
    g.numel = ct_view_numel(made);
    g.beta = beta;
    return g;
}

template <class T>
static int run_windows(ct_stream *s, const windows &g, const ct_unfold_args *a, bool back)
{
    T *x = (T *)a->x.data, *y = (T *)a->y.data;
    unsigned blocks = cti_blocks(s, g.numel);
    if (back)
        return cti_cuda_check(
            s, CTI_LAUNCH((fold_kernel<T>), blocks, CTI_BLOCK, 0, s->compute, g, x, (const T *)y),
            "fold");
    return cti_cuda_check(
        s, CTI_LAUNCH((unfold_kernel<T>), blocks, CTI_BLOCK, 0, s->compute, g, (const T *)x, y),
        "unfold");
}

template <class T>
static int run_resize(ct_stream *s, const resized &g, const ct_resize_args *a, bool back)
{
    T *x = (T *)a->x.data, *y = (T *)a->y.data;
    unsigned blocks = cti_blocks(s, g.numel);
    if (back)
        return cti_cuda_check(s,
                              CTI_LAUNCH((resize_grad_kernel<T>), blocks, CTI_BLOCK, 0, s->compute,
                                         g, x, (const T *)y),
                              "resize backward");
    return cti_cuda_check(
        s, CTI_LAUNCH((resize_kernel<T>), blocks, CTI_BLOCK, 0, s->compute, g, (const T *)x, y),
        "resize");
}

static int pick_windows(ct_stream *s, const ct_unfold_args *a, bool back, int beta)
{
    windows g = windows_of(a, back ? &a->x : &a->y, beta);
    if (a->x.dtype == a->y.dtype)
        switch (a->x.dtype) {
            CTI_CASES_FLOAT(return g.numel ? run_windows<T>(s, g, a, back) : CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, back ? "fold" : "unfold", a->x.dtype);
}

static int pick_resize(ct_stream *s, const ct_resize_args *a, bool back, int beta)
{
    resized g = resized_of(a, back ? &a->x : &a->y, beta);
    if (a->x.dtype == a->y.dtype)
        switch (a->x.dtype) {
            CTI_CASES_FLOAT(return g.numel ? run_resize<T>(s, g, a, back) : CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "resize", a->x.dtype);
}

} // namespace cti

using namespace cti;

int cti_cuda_unfold(ct_stream *s, const ct_unfold_args *args)
{
    return pick_windows(s, args, false, 0);
}

int cti_cuda_fold(ct_stream *s, const ct_unfold_args *args, int beta)
{
    return pick_windows(s, args, true, beta);
}

int cti_cuda_resize(ct_stream *s, const ct_resize_args *args)
{
    return pick_resize(s, args, false, 0);
}

int cti_cuda_resize_grad(ct_stream *s, const ct_resize_args *args, int beta)
{
    return pick_resize(s, args, true, beta);
}
