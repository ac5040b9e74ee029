/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLt's objects as this double keeps them, and one matrix product. */
#ifndef DOUBLE_LT_H
#define DOUBLE_LT_H

#include "ctd.h"
#include "num.h"

#include <cublasLt.h>

namespace ctd
{
struct LtDesc {
    int32_t compute, scale;
    int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
    int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N, transc = CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *bias = nullptr;
    int32_t bias_type = -1;
    int64_t bias_stride = 0;
    void *aux = nullptr;
    int64_t aux_ld = 0, aux_stride = 0;
    int32_t aux_type = -1;
    int32_t sm_target = 0;
};

struct LtLayout {
    int32_t type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t order = CUBLASLT_ORDER_COL, batch = 1;
    int64_t stride = 0;

    size_t at(int64_t r, int64_t c) const
    {
        return (size_t)(order == CUBLASLT_ORDER_ROW ? r * ld + c : r + c * ld);
    }
    cudaDataType data_type() const
    {
        return (cudaDataType)type;
    }
    size_t bytes() const /* from the first element to the last, all batches */
    {
        return (at((int64_t)rows - 1, (int64_t)cols - 1) + 1 + (size_t)(stride * (batch - 1))) *
               size_of(data_type());
    }
};

struct LtPreference {
    uint64_t workspace = 0;
    uint32_t align[4] = {256, 256, 256, 256}; /* of A, B, C, D */
};

struct LtProblem {
    LtDesc d;
    LtLayout a, b, c, out;
    int64_t m, n, k;
    const void *A, *B, *C;
    void *D;
    double alpha, beta;

    bool has_bias() const
    {
        return d.epilogue & CUBLASLT_EPILOGUE_BIAS;
    }
    bool has_relu() const
    {
        return d.epilogue & CUBLASLT_EPILOGUE_RELU;
    }
    bool has_gelu() const
    {
        return d.epilogue & CUBLASLT_EPILOGUE_GELU;
    }
    bool drelu() const
    {
        return (d.epilogue & CUBLASLT_EPILOGUE_DRELU & ~128u) != 0;
    }
    bool dgelu() const
    {
        return (d.epilogue & CUBLASLT_EPILOGUE_DGELU & ~128u) != 0;
    }
    bool has_aux() const
    {
        return d.epilogue & 128u;
    }
    bool bias_grad() const /* of D: DRELU_BGRAD, DGELU_BGRAD */
    {
        return d.epilogue & 16u;
    }
    bool operand_grad() const /* sums of A or of B */
    {
        return d.epilogue == CUBLASLT_EPILOGUE_BGRADA || d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    }
    cudaDataType bias_type() const
    {
        return d.bias_type < 0 ? out.data_type() : (cudaDataType)d.bias_type;
    }
    cudaDataType aux_type() const
    {
        return d.aux_type < 0 ? out.data_type() : (cudaDataType)d.aux_type;
    }
    int64_t bias_length() const
    {
        return d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? n : m;
    }
};
void lt_run(const LtProblem &p); /* lt_math.cpp */
} // namespace ctd

#endif
