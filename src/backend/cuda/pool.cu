/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling. Kernels of our own, because cuDNN's max pooling gives neither PyTorch's index (the first
 * of ties in row-major order) nor its rule for NaN, and has no windows that hang over the padded
 * end.
 *
 * A thread makes one element: of y forwards, of dx backwards, where each input cell asks the
 * windows that cover it. So no two threads write to one place, and sums have a fixed order. Threads
 * go along the strides of what they write. */
#include "backend/cuda/loop.cuh"

namespace cti
{

struct geometry {
    int64_t size[2], count[2]; /* H, W; P, Q */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t xs[4], ys[4], is[4]; /* strides in elements: of x or dx, y or dy, index */
    bool include_pad, adaptive;
    int beta;
    /* What the threads make: N, C, H, W in the order of its strides, outermost first. */
    int64_t numel, shape[4];
    int order[4];
};

/* Cells [first, last) of one axis. */
struct window {
    int64_t first, last, divisor;
};

__device__ inline int64_t up(int64_t a, int64_t b)
{
    return quotient(a + b - 1, b);
}

/* The cells of window `at` that lie in the input. */
__device__ inline window window_of(const geometry &g, int axis, int64_t at)
{
    int64_t size = g.size[axis], count = g.count[axis], d = g.dilation[axis], pad = g.pad[axis];
    window r;

    if (g.adaptive) {
        r.first = quotient(at * size, count);
        r.last = up((at + 1) * size, count);
        r.divisor = r.last - r.first;
        return r;
    }
    r.first = at * g.stride[axis] - pad;
    r.last = r.first + (g.kernel[axis] - 1) * d + 1;
    r.divisor = min(r.last, size + pad) - r.first;
    if (r.first < 0)
        r.first += up(-r.first, d) * d;
    r.last = min(r.last, size);
    if (!g.include_pad)
        r.divisor = r.last - r.first;
    return r;
}

/* The windows [first, last) that may hold cell `at` (with dilation some don't). */
__device__ inline window covering(const geometry &g, int axis, int64_t at)
{
    int64_t size = g.size[axis], count = g.count[axis], s = g.stride[axis];
    int64_t reach = (g.kernel[axis] - 1) * g.dilation[axis], from = at + g.pad[axis];
    window r = {0, 0, 0};

    if (g.adaptive) {
        r.first = quotient(at * count, size);
        r.last = min(count, up((at + 1) * count, size));
        return r;
    }
    r.first = from > reach ? up(from - reach, s) : 0;
    r.last = min(count, quotient(from, s) + 1);
    return r;
}

/* The element that a thread makes: n, c, h, w. */
__device__ inline void element(const geometry &g, int64_t i, int64_t (&at)[4])
{
    int64_t q[4];
#pragma unroll
    for (int k = 3; k > 0; k--) {
        int64_t left = quotient(i, g.shape[k]);
        q[k] = i - left * g.shape[k];
        i = left;
    }
    q[0] = i;
#pragma unroll
    for (int d = 0; d < 4; d++) {
        at[d] = q[0];
#pragma unroll
        for (int k = 1; k < 4; k++)
            if (g.order[k] == d)
                at[d] = q[k];
    }
}

__device__ inline int64_t place(const int64_t (&stride)[4], const int64_t (&at)[4])
{
    return at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2] + at[3] * stride[3];
}

/* As PyTorch: strictly larger wins, a NaN always. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    max_kernel(geometry g, const T *x, T *y, int32_t *index)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at[4];
        element(g, i, at);
        window h = window_of(g, 0, at[2]), w = window_of(g, 1, at[3]);
        const T *plane = x + at[0] * g.xs[0] + at[1] * g.xs[1];
        bool real = h.first < h.last && w.first < w.last;
        float best = -INFINITY;
        int64_t cell = real ? h.first * g.size[1] + w.first : -1;
        for (int64_t a = h.first; a < h.last; a += g.dilation[0])
            for (int64_t b = w.first; b < w.last; b += g.dilation[1]) {
                float v = load(plane + a * g.xs[2] + b * g.xs[3]);
                if (v > best || v != v) {
                    best = v;
                    cell = a * g.size[1] + b;
                }
            }
        store(y + place(g.ys, at), best);
        if (index)
            index[place(g.is, at)] = (int32_t)cell;
    }
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK, 2)
    max_grad_kernel(geometry g, T *dx, const T *dy, const int32_t *index)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at[4];
        element(g, i, at);
        window p = covering(g, 0, at[2]), q = covering(g, 1, at[3]);
        const T *dplane = dy + at[0] * g.ys[0] + at[1] * g.ys[1];
        const int32_t *iplane = index + at[0] * g.is[0] + at[1] * g.is[1];
        int32_t cell = (int32_t)(at[2] * g.size[1] + at[3]);
        float sum = 0;
        for (int64_t a = p.first; a < p.last; a++)
            for (int64_t b = q.first; b < q.last; b++)
                if (iplane[a * g.is[2] + b * g.is[3]] == cell)
                    sum += load(dplane + a * g.ys[2] + b * g.ys[3]);
        T *to = dx + place(g.xs, at);
        store(to, g.beta ? load(to) + sum : sum);
    }
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) avg_kernel(geometry g, const T *x, T *y)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at[4];
        element(g, i, at);
        window h = window_of(g, 0, at[2]), w = window_of(g, 1, at[3]);
        const T *plane = x + at[0] * g.xs[0] + at[1] * g.xs[1];
        bool real = h.first < h.last && w.first < w.last;
        float sum = 0;
        for (int64_t a = h.first; a < h.last; a++)
            for (int64_t b = w.first; b < w.last; b++)
                sum += load(plane + a * g.xs[2] + b * g.xs[3]);
        store(y + place(g.ys, at), real ? sum / (float)(h.divisor * w.divisor) : sum);
    }
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) avg_grad_kernel(geometry g, T *dx, const T *dy)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.numel; i += step) {
        int64_t at[4];
        element(g, i, at);
        window p = covering(g, 0, at[2]), q = covering(g, 1, at[3]);
        const T *plane = dy + at[0] * g.ys[0] + at[1] * g.ys[1];
        float sum = 0;
        for (int64_t a = p.first; a < p.last; a++) {
            int64_t rows = window_of(g, 0, a).divisor;
            for (int64_t b = q.first; b < q.last; b++)
                sum += load(plane + a * g.ys[2] + b * g.ys[3]) /
                       (float)(rows * window_of(g, 1, b).divisor);
        }
        T *to = dx + place(g.xs, at);
        store(to, g.beta ? load(to) + sum : sum);
    }
}

/* `made`: x (that is, dx) or y, what the threads make. */
static geometry geometry_of(const ct_pool_args *a, const ct_view *x, const ct_view *y,
                            const ct_view *index, bool avg, const ct_view *made)
{
    geometry g = {};

    g.adaptive = avg && a->adaptive;
    g.include_pad = a->count_include_pad;
    for (int i = 0; i < 2; i++) {
        g.size[i] = x->shape[2 + i];
        g.count[i] = y->shape[2 + i];
        g.kernel[i] = a->kernel[i];
        g.stride[i] = g.adaptive ? 1 : a->stride[i];
        g.pad[i] = a->pad[i];
        g.dilation[i] = avg ? 1 : a->dilation[i];
    }
    for (int i = 0; i < 4; i++) {
        g.xs[i] = x->stride[i];
        g.ys[i] = y->stride[i];
        g.is[i] = index ? index->stride[i] : 0;
    }
    g.numel = ct_view_numel(made);
    for (int i = 0; i < 4; i++) { /* sorted by insertion */
        int k = i;
        for (; k > 0 && made->stride[g.order[k - 1]] < made->stride[i]; k--)
            g.order[k] = g.order[k - 1];
        g.order[k] = i;
    }
    for (int i = 0; i < 4; i++)
        g.shape[i] = made->shape[g.order[i]];
    return g;
}

template <class T>
static int run_max(ct_stream *s, const geometry &g, const ct_pool_args *a, const ct_view *index)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((max_kernel<T>), cti_blocks(s, g.numel), CTI_BLOCK, 0,
                                     s->compute, g, (const T *)a->x.data, (T *)a->y.data,
                                     (int32_t *)(index ? index->data : nullptr)),
                          "max_pool");
}

template <class T>
static int run_max_grad(ct_stream *s, const geometry &g, const ct_view *dx, const ct_view *dy,
                        const ct_view *index)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((max_grad_kernel<T>), cti_blocks(s, g.numel), CTI_BLOCK, 0,
                                     s->compute, g, (T *)dx->data, (const T *)dy->data,
                                     (const int32_t *)index->data),
                          "max_pool backward");
}

template <class T> static int run_avg(ct_stream *s, const geometry &g, const ct_pool_args *a)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((avg_kernel<T>), cti_blocks(s, g.numel), CTI_BLOCK, 0,
                                     s->compute, g, (const T *)a->x.data, (T *)a->y.data),
                          "avg_pool");
}

template <class T>
static int run_avg_grad(ct_stream *s, const geometry &g, const ct_view *dx, const ct_view *dy)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((avg_grad_kernel<T>), cti_blocks(s, g.numel), CTI_BLOCK, 0,
                                     s->compute, g, (T *)dx->data, (const T *)dy->data),
                          "avg_pool backward");
}

} // namespace cti

using namespace cti;

int cti_cuda_max_pool(ct_stream *s, const ct_pool_args *args, const ct_view *index)
{
    const ct_view *x = &args->x, *y = &args->y;
    geometry g = geometry_of(args, x, y, index, false, y);

    if (y->dtype == x->dtype && (!index || index->dtype == CT_I32))
        switch (x->dtype) {
            CTI_CASES_FLOAT(return g.numel ? run_max<T>(s, g, args, index) : CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "max_pool", x->dtype);
}

int cti_cuda_max_pool_grad(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                           const ct_view *dy, const ct_view *index)
{
    geometry g = geometry_of(args, dx, dy, index, false, dx);

    g.beta = beta;
    if (dy->dtype == dx->dtype && index->dtype == CT_I32)
        switch (dx->dtype) {
            CTI_CASES_FLOAT(return g.numel ? run_max_grad<T>(s, g, dx, dy, index) : CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "max_pool", dx->dtype);
}

int cti_cuda_avg_pool(ct_stream *s, const ct_pool_args *args)
{
    geometry g = geometry_of(args, &args->x, &args->y, nullptr, true, &args->y);

    if (args->y.dtype == args->x.dtype)
        switch (args->x.dtype) {
            CTI_CASES_FLOAT(return g.numel ? run_avg<T>(s, g, args) : CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "avg_pool", args->x.dtype);
}

int cti_cuda_avg_pool_grad(ct_stream *s, const ct_pool_args *args, const ct_view *dx, int beta,
                           const ct_view *dy)
{
    geometry g = geometry_of(args, dx, dy, nullptr, true, dx);

    g.beta = beta;
    if (dy->dtype == dx->dtype)
        switch (dx->dtype) {
            CTI_CASES_FLOAT(return g.numel ? run_avg_grad<T>(s, g, dx, dy) : CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "avg_pool", dx->dtype);
}
