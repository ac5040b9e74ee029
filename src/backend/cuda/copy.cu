/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, conversions between all dtypes, fills.
 *
 * Moves (same dtype) are made by element size, and the conversions that training does often by
 * type; the rest of the 64 share one kernel that looks at both dtypes at run time. Where the source
 * is dense along another dimension than the destination (NCHW to channels-last), tiles go through
 * shared memory so that both sides use whole cache lines. */
#include "backend/cuda/loop.cuh"

namespace cti
{

enum { TILE = 32, TILE_ROWS = CTI_BLOCK / TILE, NARROWEST = 8 };

/* ---- what happens to one element ---- An operation for map and for transpose. */
template <class T> struct move {
    typedef T out, in, value;
    static const int inputs = 1;
    __device__ T operator()(T a, T) const
    {
        return a;
    }
    __device__ T get(const char *p) const
    {
        return *(const T *)p;
    }
    __device__ void put(char *p, T v) const
    {
        *(T *)p = v;
    }
};

template <class D, class S> struct cast {
    typedef D out;
    typedef S in;
    static const int inputs = 1;
    __device__ math_t<D> operator()(math_t<S> a, math_t<S>) const
    {
        return (math_t<D>)a;
    }
};

__host__ __device__ inline bool whole(ct_dtype t)
{
    return t == CT_BOOL || t == CT_U8 || t == CT_I32 || t == CT_I64;
}

/* Floats convert by way of f64 (which holds all of them) and f32, integers by way of i64: what
 * PyTorch does. f64 to f16 rounds twice there too; an integer narrows by dropping bits. */
__host__ __device__ inline void put_f64(char *p, ct_dtype d, double x)
{
    switch (d) {
    case CT_F64:
        *(double *)p = x;
        break;
    case CT_F32:
        *(float *)p = (float)x;
        break;
    case CT_BF16:
        store((__nv_bfloat16 *)p, (float)x);
        break;
    case CT_F16:
        store((__half *)p, (float)x);
        break;
    case CT_I64:
        *(int64_t *)p = i64_of(x);
        break;
    case CT_I32:
        *(int32_t *)p = (int32_t)i64_of(x);
        break;
    case CT_U8:
        *(uint8_t *)p = (uint8_t)i64_of(x);
        break;
    default:
        *(uint8_t *)p = x != 0;
    }
}

__device__ inline void put_i64(char *p, ct_dtype d, int64_t x)
{
    switch (d) {
    case CT_F64:
        *(double *)p = (double)x;
        break;
    case CT_F32:
        *(float *)p = (float)x;
        break;
    case CT_BF16:
        store((__nv_bfloat16 *)p, (float)x);
        break;
    case CT_F16:
        store((__half *)p, (float)x);
        break;
    case CT_I64:
        *(int64_t *)p = x;
        break;
    case CT_I32:
        *(int32_t *)p = (int32_t)x;
        break;
    case CT_U8:
        *(uint8_t *)p = (uint8_t)x;
        break;
    default:
        *(uint8_t *)p = x != 0;
    }
}

__device__ inline double get_f64(const char *p, ct_dtype s)
{
    switch (s) {
    case CT_F64:
        return *(const double *)p;
    case CT_F32:
        return (double)*(const float *)p;
    case CT_BF16:
        return (double)load((const __nv_bfloat16 *)p);
    default:
        return (double)load((const __half *)p);
    }
}

__device__ inline int64_t get_i64(const char *p, ct_dtype s)
{
    switch (s) {
    case CT_I64:
        return *(const int64_t *)p;
    case CT_I32:
        return *(const int32_t *)p;
    default:
        return *(const uint8_t *)p;
    }
}

/* The way in between holds the bits of a double or an i64. */
struct convert {
    typedef uint64_t value;
    ct_dtype d, s;
    __device__ uint64_t get(const char *p) const
    {
        uint64_t bits;
        if (whole(s))
            return (uint64_t)get_i64(p, s);
        double x = get_f64(p, s);
        memcpy(&bits, &x, sizeof bits);
        return bits;
    }
    __device__ void put(char *p, uint64_t bits) const
    {
        double x;
        if (whole(s)) {
            put_i64(p, d, (int64_t)bits);
            return;
        }
        memcpy(&x, &bits, sizeof x);
        put_f64(p, d, x);
    }
    __device__ void operator()(char *const *p) const
    {
        put(p[0], get(p[1]));
    }
};

/* ---- transposing ---- Index 0: the dimension in which the source is dense, 1: the destination. */
struct plane {
    loop<2> outer; /* the other dimensions: destination, source */
    int64_t n[2], tiles[2];
    int64_t dst_step, src_step; /* in bytes: in dimension 0, in dimension 1 */
    int dst_size, src_size;
};

template <class M> __global__ void __launch_bounds__(CTI_BLOCK) transpose_kernel(plane a, M m)
{
    typedef typename M::value T;
    CTI_SHARED(T, tile, TILE * (TILE + 1)); /* one more: columns then lie in different banks */
    int lane = threadIdx.x % TILE, row = threadIdx.x / TILE;
    int64_t per = a.tiles[0] * a.tiles[1], total = per * a.outer.numel;

    for (int64_t t = blockIdx.x; t < total; t += gridDim.x) {
        char *p[2];
        int64_t which = quotient(t, per), in = t - which * per, at1 = quotient(in, a.tiles[0]);
        int64_t i0 = (in - at1 * a.tiles[0]) * TILE, i1 = at1 * TILE;
        locate(a.outer, which, p);
        for (int r = row; r < TILE; r += TILE_ROWS)
            if (i0 + lane < a.n[0] && i1 + r < a.n[1])
                tile[r * (TILE + 1) + lane] =
                    m.get(p[1] + (i0 + lane) * a.src_size + (i1 + r) * a.src_step);
        __syncthreads();
        for (int r = row; r < TILE; r += TILE_ROWS)
            if (i0 + r < a.n[0] && i1 + lane < a.n[1]) {
                T v = tile[lane * (TILE + 1) + r];
                m.put(p[0] + (i0 + r) * a.dst_step + (i1 + lane) * a.dst_size, v);
            }
        __syncthreads();
    }
}

/* Finds the two dimensions of a transposing copy in c (destination, source). */
static bool find_plane(const cti_loop &c, int dst_size, int src_size, plane *a)
{
    int last = c.ndim - 1, dense = -1;
    cti_loop outer = c;

    for (int d = 0; d < last; d++)
        if (c.stride[1][d] == src_size)
            dense = d;
    if (dense < 0 || c.stride[0][last] != dst_size || c.stride[1][last] == src_size ||
        c.stride[1][last] == 0 || c.shape[dense] < NARROWEST || c.shape[last] < NARROWEST)
        return false;
    outer.ndim = 0;
    for (int d = 0; d < last; d++) {
        if (d == dense)
            continue;
        outer.shape[outer.ndim] = c.shape[d];
        for (int o = 0; o < 2; o++)
            outer.stride[o][outer.ndim] = c.stride[o][d];
        outer.ndim++;
    }
    if (outer.ndim == 0) {
        outer.ndim = 1;
        outer.shape[0] = 1;
    }
    outer.numel = c.numel / c.shape[dense] / c.shape[last];
    a->outer = loop_of<2>(outer);
    a->n[0] = c.shape[dense];
    a->n[1] = c.shape[last];
    for (int i = 0; i < 2; i++)
        a->tiles[i] = (a->n[i] + TILE - 1) / TILE;
    a->dst_step = c.stride[0][dense];
    a->src_step = c.stride[1][last];
    a->dst_size = dst_size;
    a->src_size = src_size;
    return true;
}

template <class M> static int transpose(ct_stream *s, const plane &a, M m)
{
    int64_t blocks = a.tiles[0] * a.tiles[1] * a.outer.numel;
    return cti_cuda_check(s,
                          CTI_LAUNCH((transpose_kernel<M>), cti_blocks(s, blocks * CTI_BLOCK),
                                     CTI_BLOCK, 0, s->compute, a, m),
                          "copy");
}

/* ---- copies ---- */
template <class T>
static int copy_same(ct_stream *s, const ct_view *dst, const ct_view *src, const cti_loop &c)
{
    const ct_view *const v[] = {dst, src};
    plane a;

    if (find_plane(c, sizeof(T), sizeof(T), &a))
        return transpose(s, a, move<T>());
    return map(s, "copy", v, 0, move<T>());
}

static bool dense(const cti_loop &c, int o, size_t size)
{
    return c.ndim == 1 && (c.stride[o][0] == (int64_t)size || c.numel == 1);
}

static int copy_bytes(ct_stream *s, const ct_view *dst, const ct_view *src, const cti_loop &c)
{
    size_t size = ct_dtype_bytes(dst->dtype);

    if (dense(c, 0, size) && dense(c, 1, size))
        return cti_cuda_check(s,
                              cudaMemcpyAsync(dst->data, src->data, (size_t)c.numel * size,
                                              cudaMemcpyDeviceToDevice, s->compute),
                              "copy");
    switch (size) {
    case 1:
        return copy_same<uint8_t>(s, dst, src, c);
    case 2:
        return copy_same<uint16_t>(s, dst, src, c);
    case 4:
        return copy_same<uint32_t>(s, dst, src, c);
    default:
        return copy_same<uint64_t>(s, dst, src, c);
    }
}

/* The conversions of mixed precision, and of images; 1: not one of these. */
static int copy_often(ct_stream *s, const ct_view *dst, const ct_view *src)
{
    const ct_view *const v[] = {dst, src};

    switch (dst->dtype * CT_DTYPE_COUNT + src->dtype) {
    case CT_F32 *CT_DTYPE_COUNT + CT_BF16:
        return map(s, "copy", v, 0, cast<float, __nv_bfloat16>());
    case CT_F32 *CT_DTYPE_COUNT + CT_F16:
        return map(s, "copy", v, 0, cast<float, __half>());
    case CT_F32 *CT_DTYPE_COUNT + CT_U8:
        return map(s, "copy", v, 0, cast<float, uint8_t>());
    case CT_BF16 *CT_DTYPE_COUNT + CT_F32:
        return map(s, "copy", v, 0, cast<__nv_bfloat16, float>());
    case CT_F16 *CT_DTYPE_COUNT + CT_F32:
        return map(s, "copy", v, 0, cast<__half, float>());
    default:
        return 1;
    }
}

/* ---- fills ---- */
template <class T> struct constant {
    typedef T out, in;
    static const int inputs = 0;
    T v;
    __device__ T operator()(T, T) const
    {
        return v;
    }
};

template <class T> static int fill_with(ct_stream *s, const ct_view *dst, const void *bits)
{
    const ct_view *const v[] = {dst};
    constant<T> k;

    memcpy(&k.v, bits, sizeof k.v);
    return map(s, "fill", v, 0, k);
}

} // namespace cti

using namespace cti;

int cti_cuda_copy(ct_stream *s, const ct_view *dst, const ct_view *src)
{
    const ct_view *const v[] = {dst, src};
    cti_loop c;
    plane a;
    int r;

    if ((unsigned)dst->dtype >= CT_DTYPE_COUNT || (unsigned)src->dtype >= CT_DTYPE_COUNT)
        return cti_cuda_no_dtype(s, "copy", dst->dtype);
    cti_loop_init(&c, 2, v);
    if (c.numel == 0)
        return CT_OK;
    if (dst->dtype == src->dtype || (dst->dtype == CT_U8 && src->dtype == CT_BOOL))
        return copy_bytes(s, dst, src, c);
    convert m = {dst->dtype, src->dtype};
    if (find_plane(c, (int)ct_dtype_bytes(dst->dtype), (int)ct_dtype_bytes(src->dtype), &a))
        return transpose(s, a, m);
    r = copy_often(s, dst, src);
    return r <= 0 ? r : for_each(s, "copy", v, m);
}

int cti_cuda_fill(ct_stream *s, const ct_view *dst, double value)
{
    const ct_view *const v[] = {dst};
    cti_loop c;
    uint64_t bits = 0;

    if ((unsigned)dst->dtype >= CT_DTYPE_COUNT)
        return cti_cuda_no_dtype(s, "fill", dst->dtype);
    size_t size = ct_dtype_bytes(dst->dtype);
    put_f64((char *)&bits, dst->dtype, value);
    cti_loop_init(&c, 1, v);
    if (c.numel > 0 && bits == 0 && dense(c, 0, size))
        return cti_cuda_check(s, cudaMemsetAsync(dst->data, 0, (size_t)c.numel * size, s->compute),
                              "fill");
    switch (size) {
    case 1:
        return fill_with<uint8_t>(s, dst, &bits);
    case 2:
        return fill_with<uint16_t>(s, dst, &bits);
    case 4:
        return fill_with<uint32_t>(s, dst, &bits);
    default:
        return fill_with<uint64_t>(s, dst, &bits);
    }
}
