/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of cublasLt: a product in f32 with its epilogue, one batch after another. */
#include "lt.h"

#include <cmath>

namespace ctd
{
/* Both operands as dense rows of the accumulator's type: a is [m,k], b is [k,n]. */
template <class T>
static std::vector<T> pack(const LtLayout &l, const void *p, size_t from, bool trans, int64_t rows,
                           int64_t cols, bool to_tf32)
{
    std::vector<T> v((size_t)(rows * cols));
    size_t i = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            T x = load<T>(l.data_type(), p, from + (trans ? l.at(c, r) : l.at(r, c)));
            v[i++] = to_tf32 ? (T)tf32((float)x) : x;
        }
    return v;
}

template <class T>
__attribute__((optimize("O3"))) static void multiply(int64_t m, int64_t n, int64_t k, const T *a,
                                                     const T *b, T *acc)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++) {
            T x = a[i * k + l];
            const T *row = b + l * n;
            T *out = acc + i * n;
            for (int64_t j = 0; j < n; j++)
                out[j] += x * row[j];
        }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* Element (i, j) of batch `z` after the epilogue; aux is read or written. */
static double finish(const LtProblem &p, int64_t z, int64_t i, int64_t j, double v)
{
    size_t at = (size_t)(z * p.d.aux_stride + j * p.d.aux_ld + i);
    unsigned char *bits = (unsigned char *)p.d.aux + at / 8, bit = (unsigned char)(1u << (at % 8));
    if (p.has_bias())
        v += load<double>(p.bias_type(), p.d.bias, (size_t)(z * p.d.bias_stride + i));
    if (p.drelu())
        return *bits & bit ? v : 0;
    if (p.dgelu())
        return v * gelu_slope(load<double>(p.aux_type(), p.d.aux, at));
    if (p.has_relu()) {
        if (p.has_aux())
            *bits = (unsigned char)(v > 0 ? *bits | bit : *bits & ~bit);
        return v > 0 ? v : (v == v ? 0 : v);
    }
    if (p.has_gelu()) {
        if (p.has_aux())
            store(p.aux_type(), p.d.aux, at, v);
        return gelu(v);
    }
    return v;
}

template <class T> static void run_batch(const LtProblem &p, int64_t z)
{
    bool fast = p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<T> a = pack<T>(p.a, p.A, (size_t)(z * p.a.stride), p.d.transa != CUBLAS_OP_N, p.m,
                               p.k, fast && p.a.type == CUDA_R_32F);
    std::vector<T> b = pack<T>(p.b, p.B, (size_t)(z * p.b.stride), p.d.transb != CUBLAS_OP_N, p.k,
                               p.n, fast && p.b.type == CUDA_R_32F);
    std::vector<T> acc((size_t)(p.m * p.n));
    multiply<T>(p.m, p.n, p.k, a.data(), b.data(), acc.data());
    for (int64_t i = 0; i < p.m; i++) {
        double sum = 0;
        for (int64_t j = 0; j < p.n; j++) {
            T v = (T)p.alpha * acc[(size_t)(i * p.n + j)];
            if (p.beta != 0)
                v += (T)p.beta *
                     load<T>(p.c.data_type(), p.C, (size_t)(z * p.c.stride) + p.c.at(i, j));
            double r = finish(p, z, i, j, v);
            sum += r;
            store(p.out.data_type(), p.D, (size_t)(z * p.out.stride) + p.out.at(i, j), (T)r);
        }
        if (p.bias_grad())
            store(p.bias_type(), p.d.bias, (size_t)(z * p.d.bias_stride + i), sum);
    }
    if (!p.operand_grad())
        return;
    bool of_a = p.d.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (int64_t i = 0; i < p.bias_length(); i++) {
        double sum = 0;
        for (int64_t l = 0; l < p.k; l++)
            sum += of_a ? a[(size_t)(i * p.k + l)] : b[(size_t)(l * p.n + i)];
        store(p.bias_type(), p.d.bias, (size_t)(z * p.d.bias_stride + i), sum);
    }
}

void lt_run(const LtProblem &p)
{
    for (int64_t z = 0; z < p.out.batch; z++)
        if (p.out.type == CUDA_R_64F)
            run_batch<double>(p, z);
        else
            run_batch<float>(p, z);
}
} // namespace ctd
