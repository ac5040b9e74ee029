/* SPDX-License-Identifier: Apache-2.0 */
/* Scans and sorts along the rows of row-major matrices. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/types.cuh"

namespace cti
{

/* ---- scans ---- A block a row: each thread has a run of neighbours, their totals are joined in order. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    scan_kernel(T *y, const T *x, int64_t rows, int64_t n, bool product)
{
    CTI_SHARED(float, total, CTI_BLOCK);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        int64_t run = (n + CTI_BLOCK - 1) / CTI_BLOCK, begin = run * threadIdx.x;
        int64_t end = begin + run < n ? begin + run : n;
        const T *from = x + r * n;
        T *to = y + r * n;
        float acc = product ? 1.0f : 0.0f;
        for (int64_t i = begin; i < end; i++)
            acc = product ? acc * (float)load(from + i) : acc + (float)load(from + i);
        total[threadIdx.x] = acc;
        __syncthreads();
        if (threadIdx.x == 0) {
            float before = product ? 1.0f : 0.0f;
            for (int t = 0; t < CTI_BLOCK; t++) {
                float own = total[t];
                total[t] = before;
                before = product ? before * own : before + own;
            }
        }
        __syncthreads();
        acc = total[threadIdx.x];
        for (int64_t i = begin; i < end; i++) {
            acc = product ? acc * (float)load(from + i) : acc + (float)load(from + i);
            store(to + i, acc);
        }
        __syncthreads();
    }
}

template <class T>
static int run_scan(ct_stream *s, const ct_view *y, const ct_view *x, int64_t rows, int64_t n,
                    bool product)
{
    int64_t blocks = rows < 65535 ? rows : 65535;
    return cti_cuda_check(s,
                          CTI_LAUNCH((scan_kernel<T>), (unsigned)blocks, CTI_BLOCK, 0, s->compute,
                                     (T *)y->data, (const T *)x->data, rows, n, product),
                          "scan");
}

/* ---- sorting ---- By ranks: a thread an element counts what comes before it in its row. n^2 comparisons a row, all
 * side by side, no memory of its own, stable. */
template <class T> __device__ inline bool before(T a, T b, bool descending)
{
    bool na = a != a, nb = b != b;
    if (na || nb)
        return descending ? na && !nb : nb && !na;
    return descending ? a > b : a < b;
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    sort_kernel(T *y, int64_t *index, const T *x, int64_t numel, int64_t n, bool descending)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < numel; k += step) {
        int64_t row = k / n, i = k - row * n, rank = 0;
        const T *from = x + row * n;
        math_t<T> own = load(from + i);
        for (int64_t j = 0; j < n; j++) {
            math_t<T> v = load(from + j);
            rank += before(v, own, descending) || (j < i && !before(own, v, descending));
        }
        store(y + row * n + rank, own);
        index[row * n + rank] = i;
    }
}

template <class T>
static int run_sort(ct_stream *s, const ct_view *y, const ct_view *index, const ct_view *x,
                    int64_t numel, int64_t n, bool descending)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((sort_kernel<T>), cti_blocks(s, numel), CTI_BLOCK, 0,
                                     s->compute, (T *)y->data, (int64_t *)index->data,
                                     (const T *)x->data, numel, n, descending),
                          "sort");
}

} // namespace cti

using namespace cti;

int cti_cuda_scan(ct_stream *s, ct_scan fn, const ct_view *y, const ct_view *x)
{
    int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1, numel = ct_view_numel(x);

    if (y->dtype == x->dtype)
        switch (x->dtype) {
            CTI_CASES_FLOAT(return numel ? run_scan<T>(s, y, x, numel / n, n, fn == CT_SCAN_PROD) :
                                           CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "scan", x->dtype);
}

size_t cti_cuda_sort_workspace(ct_stream *, const ct_view *)
{
    return 0;
}

int cti_cuda_sort(ct_stream *s, const ct_view *y, const ct_view *index, const ct_view *x,
                  bool descending, void *)
{
    int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1, numel = ct_view_numel(x);

    if (y->dtype == x->dtype && index->dtype == CT_I64)
        switch (x->dtype) {
            CTI_CASES_FLOAT(return numel ? run_sort<T>(s, y, index, x, numel, n, descending) :
                                           CT_OK)
        default:
            break;
        }
    return cti_cuda_no_dtype(s, "sort", x->dtype);
}
