/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, scatter and what else goes by index. No float atomics: sums have one order.
 *
 * Scatter: where the index differs from place to place a thread goes along dim for one place. Where it is one vector
 * for all places (rows of an embedding) a block owns a row of y, looks through the index a block at a time, and
 * adds what is meant for its row. */
#include "backend/cuda/block.cuh"

namespace cti
{

__host__ __device__ inline bool in_range(int64_t i, int64_t bound)
{
    return (uint64_t)i < (uint64_t)bound;
}

/* What an index out of range gives: the bits of NaN, or of 0. */
static uint64_t bad_bits(ct_dtype t)
{
    switch (t) {
    case CT_F16:
        return 0x7e00u;
    case CT_BF16:
        return 0x7fc0u;
    case CT_F32:
        return 0x7fc00000u;
    case CT_F64:
        return 0x7ff8000000000000u;
    default:
        return 0;
    }
}

static int64_t bytes_along(const ct_view *v, int dim)
{
    return v->stride[dim] * (int64_t)ct_dtype_bytes(v->dtype);
}

/* v with `shape` and its own strides, but 0 along dim. */
static ct_view window(const ct_view *v, const ct_view *shape, int dim)
{
    ct_view w = *v;
    for (int d = 0; d < CT_MAX_DIMS; d++)
        w.shape[d] = shape->shape[d];
    w.stride[dim] = 0;
    return w;
}

/* ---- check ---- */

/* The first position: an unsigned minimum, -1 being the largest. */
__global__ void __launch_bounds__(CTI_BLOCK) search_kernel(loop<1> l, int64_t bound, int64_t *bad)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    if (bad[2] != -1) /* an earlier finding: it stays until it is read */
        return;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < l.numel; i += step) {
        char *p[1];
        locate(l, i, p);
        if (!in_range(*(const int64_t *)p[0], bound))
            atomicMin((unsigned long long *)bad, (unsigned long long)i);
    }
}

__global__ void found_kernel(loop<1> l, int64_t bound, int64_t *bad)
{
    char *p[1];
    if (threadIdx.x > 0 || bad[2] != -1 || bad[0] == -1)
        return;
    locate(l, bad[0], p);
    bad[1] = *(const int64_t *)p[0];
    bad[2] = bound;
}

/* ---- gather ---- */

template <class T> struct gather_one {
    int64_t step, bound; /* of x along dim: bytes, elements */
    T bad;
    __device__ void operator()(char *const *p) const
    {
        int64_t k = *(const int64_t *)p[2];
        *(T *)p[0] = in_range(k, bound) ? *(const T *)(p[1] + k * step) : bad;
    }
};

template <class T>
static int run_gather(ct_stream *s, const ct_view *y, const ct_view *x, int dim,
                      const ct_view *index)
{
    const ct_view from = window(x, y, dim), *const v[3] = {y, &from, index};
    gather_one<T> f = {bytes_along(x, dim), x->shape[dim], (T)bad_bits(x->dtype)};
    return for_each<3>(s, "gather", v, f);
}

/* ---- scatter ---- */

struct scatter {
    loop<3> at; /* places outside dim: y, src, index */
    int64_t n, bound, skip;
    int64_t y_step, src_step, step; /* along dim, in bytes */
    uint64_t bad;
};

template <class T> struct set_op {
    __device__ void operator()(T *to, T v) const
    {
        *to = v;
    }
};

template <class T> struct sum_op {
    __device__ void operator()(T *to, T v) const
    {
        store(to, load(to) + load(&v));
    }
};

template <class T, class OP>
__global__ void __launch_bounds__(CTI_BLOCK, 2) scatter_kernel(scatter a, T value, bool one, OP op)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.at.numel; i += step) {
        char *p[3];
        locate(a.at, i, p);
        for (int64_t j = 0; j < a.n; j++) {
            int64_t k = *(const int64_t *)(p[2] + j * a.step);
            if (k == a.skip)
                continue;
            if (in_range(k, a.bound))
                op((T *)(p[0] + k * a.y_step), one ? value : *(const T *)(p[1] + j * a.src_step));
            else if (a.bad)
                memcpy(p[0], &a.bad, sizeof(T));
        }
    }
}

/* What a block that owns `row` does with element j of the index. One that is out of range belongs to row 0, which it
 * makes NaN. */
enum { PASS, SUM, SPOIL };

__device__ inline int meant_for(const scatter &a, const int64_t *index, int64_t j, int64_t row)
{
    int64_t k = j < a.n ? index[j] : a.skip;
    if (j >= a.n || k == a.skip)
        return PASS;
    if (in_range(k, a.bound))
        return k == row ? SUM : PASS;
    return row == 0 ? SPOIL : PASS;
}

enum { PLACES = 4 }; /* of a thread */

/* One index (dense) for all places; `chunks` blocks' worth of places. The rows are all there are (`by_row`), or
 * those that the index names, each owned by the first element that does. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK, 2) rows_kernel(scatter a, bool by_row, int64_t chunks)
{
    CTI_SHARED(int, what, CTI_BLOCK);
    const int64_t *index = (const int64_t *)a.at.data[2];
    int64_t items = by_row ? a.bound : a.n;
    for (int64_t work = blockIdx.x; work < items * chunks; work += gridDim.x) {
        int64_t item = quotient(work, chunks), row = item;
        int64_t i0 = (work - item * chunks) * CTI_BLOCK * PLACES + threadIdx.x;
        math_t<T> sum[PLACES] = {};
        int64_t at[PLACES];
        bool met = false, spoilt = false, owned = true;
        if (!by_row) {
            int64_t k = index[item];
            row = in_range(k, a.bound) ? k : 0;
            owned = k != a.skip;
        }
#pragma unroll
        for (int e = 0; e < PLACES; e++)
            at[e] = i0 + e * CTI_BLOCK < a.at.numel ? offset(a.at, 1, i0 + e * CTI_BLOCK) : -1;
        for (int64_t j0 = 0; owned && j0 < a.n; j0 += CTI_BLOCK) {
            int mine = meant_for(a, index, j0 + threadIdx.x, row);
            what[threadIdx.x] = mine;
            if (!by_row && j0 < item && __syncthreads_or(mine && j0 + threadIdx.x < item)) {
                owned = false;
                break;
            }
            if (__syncthreads_or(mine))
                for (int t = 0; t < CTI_BLOCK; t++) {
                    int it = what[t];
                    spoilt = spoilt || it == SPOIL;
                    met = met || it == SUM;
                    const char *src = a.at.data[1] + (j0 + t) * a.src_step;
#pragma unroll
                    for (int e = 0; it == SUM && e < PLACES; e++)
                        if (at[e] >= 0)
                            sum[e] += load((const T *)(src + at[e]));
                }
            __syncthreads();
        }
        for (int e = 0; e < PLACES && owned && (met || spoilt); e++) {
            if (at[e] < 0)
                continue;
            T *to = (T *)(a.at.data[0] + row * a.y_step + offset(a.at, 0, i0 + e * CTI_BLOCK));
            if (spoilt && a.bad)
                memcpy((void *)to, &a.bad, sizeof(T));
            else if (met)
                store(to, load(to) + sum[e]);
        }
    }
}

static scatter scatter_of(const ct_scatter_args *a, const ct_view *src)
{
    const int dim = a->dim;
    const ct_view y = window(&a->y, &a->index, dim), *const v[3] = {&y, src, &a->index};
    cti_loop c;
    scatter r;
    cti_loop_init_dims(&c, 3, v, ~(1u << dim), true);
    r.at = loop_of<3>(c);
    r.n = a->index.shape[dim];
    r.bound = a->y.shape[dim];
    r.skip = a->skip;
    r.y_step = bytes_along(&a->y, dim);
    r.src_step = bytes_along(src, dim);
    r.step = bytes_along(&a->index, dim);
    r.bad = bad_bits(a->y.dtype);
    return r;
}

template <class T, class OP>
static int run_scatter(ct_stream *s, const scatter &r, T value, bool one, OP op)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((scatter_kernel<T, OP>), cti_blocks(s, r.at.numel), CTI_BLOCK,
                                     0, s->compute, r, value, one, op),
                          "scatter");
}

template <class T> static int run_add(ct_stream *s, const scatter &r, T value, bool one)
{
    bool rows = !one && (r.at.numel > 1 || r.n > 1024) && r.step == (int64_t)sizeof(int64_t);
    for (int d = 0; d < r.at.ndim; d++)
        rows = rows && (r.at.stride[2][d] == 0 || r.at.shape[d] == 1);
    if (!rows)
        return run_scatter<T>(s, r, value, one, sum_op<T>());
    int64_t chunks = div_up(r.at.numel, CTI_BLOCK * PLACES), most = (int64_t)s->sms * 16;
    bool by_row = r.bound <= r.n;
    int64_t work = (by_row ? r.bound : r.n) * chunks;
    return cti_cuda_check(s,
                          CTI_LAUNCH((rows_kernel<T>), (unsigned)(work < most ? work : most),
                                     CTI_BLOCK, 0, s->compute, r, by_row, chunks),
                          "scatter");
}

/* A number as an element of any dtype: its bits. */
static uint64_t bits_of(ct_dtype t, double v)
{
    uint64_t bits = 0;
    float f = (float)v;
    int64_t i = i64_of(v);
    __half h = __float2half(f);
    __nv_bfloat16 b = __float2bfloat16(f);
    switch (t) {
    case CT_F64:
        memcpy(&bits, &v, sizeof v);
        break;
    case CT_F32:
        memcpy(&bits, &f, sizeof f);
        break;
    case CT_F16:
        memcpy(&bits, &h, sizeof h);
        break;
    case CT_BF16:
        memcpy(&bits, &b, sizeof b);
        break;
    case CT_BOOL:
        bits = v != 0;
        break;
    default:
        memcpy(&bits, &i, sizeof i);
    }
    return bits;
}

template <class T> static T element(uint64_t bits)
{
    T v;
    memcpy((void *)&v, &bits, sizeof v);
    return v;
}

/* ---- iota, tri ---- */

struct iota_one {
    int64_t n;
    double first, last, step;
    ct_dtype dtype;
};

__global__ void __launch_bounds__(CTI_BLOCK) iota_kernel(iota_one a, void *y)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += step) {
        double v =
            i < a.n / 2 ? a.first + (double)i * a.step : a.last - (double)(a.n - 1 - i) * a.step;
        if (a.dtype == CT_F32)
            ((float *)y)[i] = (float)v;
        else if (a.dtype == CT_F64)
            ((double *)y)[i] = v;
        else if (a.dtype == CT_I32)
            ((int32_t *)y)[i] = (int32_t)i64_of(v);
        else
            ((int64_t *)y)[i] = i64_of(v);
    }
}

struct tri_shape {
    int ndim;
    int64_t numel, rows, columns, diagonal;
    bool upper;
    int64_t shape[CT_MAX_DIMS], ys[CT_MAX_DIMS], xs[CT_MAX_DIMS]; /* strides in elements */
};

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) tri_kernel(tri_shape a, T *y, const T *x)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.numel; i += step) {
        int64_t rest = i, to = 0, from = 0;
#pragma unroll 1
        for (int d = a.ndim - 1; d >= 0; d--) {
            int64_t q = quotient(rest, a.shape[d]), r = rest - q * a.shape[d];
            to += r * a.ys[d];
            from += r * a.xs[d];
            rest = q;
        }
        int64_t row = quotient(i, a.columns), column = i - row * a.columns;
        int64_t off = column - (row - quotient(row, a.rows) * a.rows);
        y[to] = (a.upper ? off >= a.diagonal : off <= a.diagonal) ? x[from] : (T)0;
    }
}

template <class T>
static int run_tri(ct_stream *s, const tri_shape &a, const ct_view *y, const ct_view *x)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((tri_kernel<T>), cti_blocks(s, a.numel), CTI_BLOCK, 0,
                                     s->compute, a, (T *)y->data, (const T *)x->data),
                          "tri");
}

/* ---- bags ---- */

__global__ void __launch_bounds__(CTI_BLOCK)
    bags_kernel(int64_t *bag, int64_t n, const int64_t *offsets, int64_t count, const int64_t *ids,
                int64_t skip, int64_t *bad)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t b = at; b < count && bad[2] == -1; b += step) {
        int64_t before = b ? offsets[b - 1] : 0;
        if (offsets[b] < before || offsets[b] > (b ? n : 0))
            atomicMin((unsigned long long *)bad, (unsigned long long)b);
    }
    for (int64_t i = at; i < n; i += step) { /* the last offset that is at most i */
        int64_t low = 0, high = count;
        while (high - low > 1) {
            int64_t middle = (low + high) / 2;
            if (offsets[middle] <= i)
                low = middle;
            else
                high = middle;
        }
        bag[i] = ids[i] == skip ? count : low;
    }
}

template <class T>
__global__ void __launch_bounds__(CTI_BLOCK)
    bag_max_kernel(int64_t *index, const T *x, const int64_t *offsets, const int64_t *ids,
                   int64_t count, int64_t D, int64_t n, int64_t skip)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count * D; i += step) {
        int64_t b = quotient(i, D), d = i - b * D, best = n;
        int64_t first = max(offsets[b], (int64_t)0), last = b + 1 < count ? offsets[b + 1] : n;
        float most = 0;
        for (int64_t r = first; r < min(last, n); r++) {
            float v = load(x + r * D + d);
            if (ids[r] != skip && (best == n || v > most)) {
                best = r;
                most = v;
            }
        }
        index[i] = best;
    }
}

template <class T>
static int run_bag_max(ct_stream *s, const ct_view *index, const ct_view *x, const int64_t *offsets,
                       const int64_t *ids, int64_t skip)
{
    return cti_cuda_check(s,
                          CTI_LAUNCH((bag_max_kernel<T>), cti_blocks(s, ct_view_numel(index)),
                                     CTI_BLOCK, 0, s->compute, (int64_t *)index->data,
                                     (const T *)x->data, offsets, ids, index->shape[0],
                                     index->shape[1], x->shape[0], skip),
                          "bag_max");
}

} // namespace cti

using namespace cti;

int cti_cuda_check_index(ct_stream *s, const ct_view *index, int64_t bound, const ct_view *bad)
{
    const ct_view *const v[1] = {index};
    cti_loop c;
    cti_loop_init_dims(&c, 1, v, ~0u, false);
    if (c.numel == 0)
        return CT_OK;
    loop<1> l = loop_of<1>(c);
    int64_t *to = (int64_t *)bad->data;
    int rc = cti_cuda_check(
        s,
        CTI_LAUNCH((search_kernel), cti_blocks(s, l.numel), CTI_BLOCK, 0, s->compute, l, bound, to),
        "index check");
    return rc ? rc :
                cti_cuda_check(s, CTI_LAUNCH((found_kernel), 1, 32, 0, s->compute, l, bound, to),
                               "index check");
}

int cti_cuda_gather(ct_stream *s, const ct_view *y, const ct_view *x, int dim, const ct_view *index)
{
    if (y->dtype != x->dtype || index->dtype != CT_I64)
        return cti_cuda_no_dtype(s, "gather", index->dtype);
    switch (ct_dtype_bytes(x->dtype)) {
    case 1:
        return run_gather<uint8_t>(s, y, x, dim, index);
    case 2:
        return run_gather<uint16_t>(s, y, x, dim, index);
    case 4:
        return run_gather<uint32_t>(s, y, x, dim, index);
    default:
        return run_gather<uint64_t>(s, y, x, dim, index);
    }
}

int cti_cuda_scatter(ct_stream *s, const ct_scatter_args *a)
{
    const bool one = !a->src;
    const ct_dtype t = a->y.dtype;
    ct_view none = a->index;
    none.dtype = t;
    for (int d = 0; d < CT_MAX_DIMS; d++)
        none.stride[d] = 0;
    const ct_view *src = one ? &none : a->src;
    if (a->index.dtype != CT_I64 || src->dtype != t)
        return cti_cuda_no_dtype(s, "scatter", src->dtype);
    if (ct_view_numel(&a->index) == 0 || a->y.shape[a->dim] == 0)
        return CT_OK;
    scatter r = scatter_of(a, src);
    uint64_t bits = bits_of(t, a->value);
    if (a->add)
        switch (t) {
            CTI_CASES_FLOAT(return run_add<T>(s, r, element<T>(bits), one))
            CTI_CASES_WIDE(return run_add<T>(s, r, element<T>(bits), one))
            CTI_CASES_INT(return run_add<T>(s, r, element<T>(bits), one))
        default:
            return cti_cuda_no_dtype(s, "scatter", t);
        }
    switch (ct_dtype_bytes(t)) {
    case 1:
        return run_scatter<uint8_t>(s, r, (uint8_t)bits, one, set_op<uint8_t>());
    case 2:
        return run_scatter<uint16_t>(s, r, (uint16_t)bits, one, set_op<uint16_t>());
    case 4:
        return run_scatter<uint32_t>(s, r, (uint32_t)bits, one, set_op<uint32_t>());
    default:
        return run_scatter<uint64_t>(s, r, bits, one, set_op<uint64_t>());
    }
}

int cti_cuda_iota(ct_stream *s, const ct_view *y, double first, double last, double step)
{
    iota_one a = {y->shape[0], first, last, step, y->dtype};
    if (y->dtype != CT_F32 && y->dtype != CT_F64 && y->dtype != CT_I32 && y->dtype != CT_I64)
        return cti_cuda_no_dtype(s, "iota", y->dtype);
    return a.n ? cti_cuda_check(s,
                                CTI_LAUNCH((iota_kernel), cti_blocks(s, a.n), CTI_BLOCK, 0,
                                           s->compute, a, y->data),
                                "iota") :
                 CT_OK;
}

int cti_cuda_tri(ct_stream *s, const ct_view *y, const ct_view *x, int64_t diagonal, bool upper)
{
    tri_shape a = {};
    a.ndim = y->ndim;
    a.numel = ct_view_numel(y);
    a.rows = y->shape[y->ndim - 2];
    a.columns = y->shape[y->ndim - 1];
    a.diagonal = diagonal;
    a.upper = upper;
    for (int d = 0; d < y->ndim; d++) {
        a.shape[d] = y->shape[d];
        a.ys[d] = y->stride[d];
        a.xs[d] = x->stride[d];
    }
    if (y->dtype != x->dtype)
        return cti_cuda_no_dtype(s, "tri", y->dtype);
    if (a.numel == 0)
        return CT_OK;
    switch (ct_dtype_bytes(y->dtype)) {
    case 1:
        return run_tri<uint8_t>(s, a, y, x);
    case 2:
        return run_tri<uint16_t>(s, a, y, x);
    case 4:
        return run_tri<uint32_t>(s, a, y, x);
    default:
        return run_tri<uint64_t>(s, a, y, x);
    }
}

int cti_cuda_bags(ct_stream *s, const ct_view *bag, const ct_view *offsets, const ct_view *ids,
                  int64_t skip, const ct_view *bad)
{
    const int64_t n = bag->shape[0], count = offsets->shape[0];
    int64_t *to = (int64_t *)bad->data;
    const ct_view *const v[1] = {offsets};
    cti_loop c;
    if (count == 0 && n == 0)
        return CT_OK;
    cti_loop_init_dims(&c, 1, v, ~0u, false);
    int rc = cti_cuda_check(s,
                            CTI_LAUNCH((bags_kernel), cti_blocks(s, n > count ? n : count),
                                       CTI_BLOCK, 0, s->compute, (int64_t *)bag->data, n,
                                       (const int64_t *)offsets->data, count,
                                       (const int64_t *)ids->data, skip, to),
                            "bags");
    return rc ? rc :
                cti_cuda_check(
                    s, CTI_LAUNCH((found_kernel), 1, 32, 0, s->compute, loop_of<1>(c), n, to),
                    "bags");
}

int cti_cuda_bag_max(ct_stream *s, const ct_view *index, const ct_view *x, const ct_view *offsets,
                     const ct_view *ids, int64_t skip)
{
    const int64_t *off = (const int64_t *)offsets->data, *id = (const int64_t *)ids->data;
    if (ct_view_numel(index) == 0)
        return CT_OK;
    switch (x->dtype) {
        CTI_CASES_FLOAT(return run_bag_max<T>(s, index, x, off, id, skip))
    default:
        return cti_cuda_no_dtype(s, "bag_max", x->dtype);
    }
}
