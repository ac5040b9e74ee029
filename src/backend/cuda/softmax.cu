/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, log-softmax and their gradients along any dimension. Two passes over a row: what the row
 * shares, then its elements. */
#include "backend/cuda/block.cuh"

namespace cti
{

/* Operands: y, x. */
template <class T> __global__ void __launch_bounds__(CTI_BLOCK, 2) softmax_kernel(rows<2> r, bool log)
{
    CTI_SHARED(expsum, part, CTI_BLOCK);
    place p = place_of(r.l);
    int64_t row = (int64_t)blockIdx.x * (CTI_BLOCK / r.l.n) + p.out;
    bool mine = row < r.at.numel;
    char *at[2] = {nullptr, nullptr};
    expsum e = {-INFINITY, 0};

    if (mine) {
        locate(r.at, row, at);
        e = expsum_row((const T *)at[1], r.stride[1], r.n, p.lane, r.l.n);
    }
    e = join_lanes(part, r.l, p, e, expsum_op());
    if (!mine)
        return;
    float sum = expsum_total(e), ls = cti_log_f32(sum);
    T *y = (T *)at[0];
    const T *x = (const T *)at[1];
#pragma unroll 4
    for (int64_t i = p.lane; i < r.n; i += r.l.n) {
        float v = load(x + i * r.stride[1]) - e.max;
        store(y + i * r.stride[0], log ? v - ls : cti_exp_f32(v) / sum);
    }
}

/* dx = y (dy - sum(dy y)), or dx = dy - exp(y) sum(dy). Operands: dx, dy, y. */
template <class T>
__global__ void __launch_bounds__(CTI_BLOCK) softmax_grad_kernel(rows<3> r, int beta, bool log)
{
    CTI_SHARED(float, part, CTI_BLOCK);
    const int E = 4; /* of two operands */
    place p = place_of(r.l);
    int64_t row = (int64_t)blockIdx.x * (CTI_BLOCK / r.l.n) + p.out;
    bool mine = row < r.at.numel;
    char *at[3] = {nullptr, nullptr, nullptr};
    float sum = 0;

    if (mine) {
        locate(r.at, row, at);
        for (int64_t i = p.lane; i < r.n; i += (int64_t)E * r.l.n) {
            float v[E], some = 0;
#pragma unroll
            for (int k = 0; k < E; k++) {
                int64_t j = i + k * r.l.n;
                v[k] = j < r.n ? load((const T *)at[1] + j * r.stride[1]) : 0.0f;
                if (!log && j < r.n)
                    v[k] *= load((const T *)at[2] + j * r.stride[2]);
            }
#pragma unroll
            for (int k = 0; k < E; k++)
                some += v[k];
            sum += some;
        }
    }
    sum = join_lanes(part, r.l, p, sum, add_op());
    if (!mine)
        return;
#pragma unroll 4
    for (int64_t i = p.lane; i < r.n; i += r.l.n) {
        T *dx = (T *)at[0] + i * r.stride[0];
        float dy = load((const T *)at[1] + i * r.stride[1]);
        float y = load((const T *)at[2] + i * r.stride[2]);
        float g = log ? dy - cti_exp_f32(y) * sum : y * (dy - sum);
        store(dx, beta ? load(dx) + g : g);
    }
}

template <class T>
static int run(ct_stream *s, const ct_view *y, const ct_view *x, int dim, bool log)
{
    const ct_view *const v[] = {y, x};
    rows<2> r = rows_of<2>(v, dim, true, each<T>);
    if (r.n == 0 || r.at.numel == 0)
        return CT_OK;
    return cti_cuda_check(
        s, CTI_LAUNCH((softmax_kernel<T>), (unsigned)r.groups(), CTI_BLOCK, 0, s->compute, r, log),
        "softmax");
}

template <class T>
static int run_grad(ct_stream *s, const ct_view *dx, int beta, const ct_view *dy, const ct_view *y,
                    int dim, bool log)
{
    const ct_view *const v[] = {dx, dy, y};
    rows<3> r = rows_of<3>(v, dim, true, 4);
    if (r.n == 0 || r.at.numel == 0)
        return CT_OK;
    return cti_cuda_check(s,
                          CTI_LAUNCH((softmax_grad_kernel<T>), (unsigned)r.groups(), CTI_BLOCK, 0,
                                     s->compute, r, beta, log),
                          "softmax_grad");
}

} // namespace cti

using namespace cti;

int cti_cuda_softmax(ct_stream *s, const ct_view *y, const ct_view *x, int dim, bool log)
{
    switch (x->dtype == y->dtype ? x->dtype : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return run<T>(s, y, x, dim, log))
    default:
        return cti_cuda_no_dtype(s, log ? "log_softmax" : "softmax", x->dtype);
    }
}

int cti_cuda_softmax_grad(ct_stream *s, const ct_view *dx, int beta, const ct_view *dy,
                          const ct_view *y, int dim, bool log)
{
    switch (dx->dtype == dy->dtype && dx->dtype == y->dtype ? dx->dtype : CT_DTYPE_COUNT) {
        CTI_CASES_FLOAT(return run_grad<T>(s, dx, beta, dy, y, dim, log))
    default:
        return cti_cuda_no_dtype(s, log ? "log_softmax" : "softmax", dx->dtype);
    }
}
