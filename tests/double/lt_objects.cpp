/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLt's handles, descriptors, layouts and preferences: attributes with their documented
 * sizes. */
#include "lt.h"

#include <cstring>

using namespace ctd;

namespace
{
struct Field {
    void *at;
    size_t bytes;
};

cublasStatus_t set(Field f, const void *from, size_t bytes, const char *who, int attribute)
{
    if (!f.at) {
        warn("%s(%d) isn't modelled", who, attribute);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (bytes != f.bytes || !from) {
        warn("%s(%d): %zu bytes, not %zu", who, attribute, bytes, f.bytes);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(f.at, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get(Field f, void *to, size_t bytes, size_t *written)
{
    if (written)
        *written = f.bytes;
    if (!f.at || (bytes && bytes < f.bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes)
        memcpy(to, f.at, f.bytes);
    return CUBLAS_STATUS_SUCCESS;
}

Field field(LtDesc *d, cublasLtMatmulDescAttributes_t a)
{
    switch (a) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return {&d->compute, 4};
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return {&d->scale, 4};
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return {&d->pointer_mode, 4};
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return {&d->transa, 4};
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return {&d->transb, 4};
    case CUBLASLT_MATMUL_DESC_TRANSC:
        return {&d->transc, 4};
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return {&d->epilogue, 4};
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return {&d->bias, 8};
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return {&d->bias_type, 4};
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return {&d->bias_stride, 8};
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return {&d->aux, 8};
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return {&d->aux_ld, 8};
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
        return {&d->aux_stride, 8};
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return {&d->aux_type, 4};
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return {&d->sm_target, 4};
    default:
        return {nullptr, 0};
    }
}

Field field(LtLayout *l, cublasLtMatrixLayoutAttribute_t a)
{
    switch (a) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return {&l->type, 4};
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return {&l->order, 4};
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return {&l->rows, 8};
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return {&l->cols, 8};
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return {&l->ld, 8};
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return {&l->batch, 4};
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return {&l->stride, 8};
    default:
        return {nullptr, 0};
    }
}

Field field(LtPreference *p, cublasLtMatmulPreferenceAttributes_t a)
{
    static uint64_t ignored;
    switch (a) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return {&p->workspace, 8};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return {&p->align[0], 4};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return {&p->align[1], 4};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return {&p->align[2], 4};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return {&p->align[3], 4};
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        return {&ignored, 4};
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
        return {&ignored, 8};
    default:
        return {nullptr, 0};
    }
}

template <class T, class Handle> cublasStatus_t drop(Handle h)
{
    Lock lock;
    counters.handles -= h != nullptr;
    delete (T *)h;
    return CUBLAS_STATUS_SUCCESS;
}

const char *name(cublasStatus_t s)
{
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
        return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_LICENSE_ERROR";
    }
}
} // namespace

extern "C" {
const char *cublasGetStatusName(cublasStatus_t s)
{
    return name(s);
}

const char *cublasGetStatusString(cublasStatus_t s)
{
    return name(s);
}

const char *cublasLtGetStatusName(cublasStatus_t s)
{
    return name(s);
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return name(s);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    CTD_LIBRARY(CUBLAS_STATUS_NOT_INITIALIZED);
    *h = (cublasLtHandle_t) new int(0);
    counters.handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    return drop<int>(h);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    CTD_LIBRARY(CUBLAS_STATUS_ALLOC_FAILED);
    LtDesc *n = new LtDesc;
    n->compute = compute;
    n->scale = scale;
    *d = (cublasLtMatmulDesc_t)n;
    counters.handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return drop<LtDesc>(d);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t a, const void *from,
                                              size_t bytes)
{
    CTD_LIBRARY(CUBLAS_STATUS_INVALID_VALUE);
    return set(field((LtDesc *)d, a), from, bytes, __func__, (int)a);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t a, void *to,
                                              size_t bytes, size_t *written)
{
    return get(field((LtDesc *)d, a), to, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    CTD_LIBRARY(CUBLAS_STATUS_ALLOC_FAILED);
    LtLayout *n = new LtLayout;
    n->type = type;
    n->rows = rows;
    n->cols = cols;
    n->ld = ld;
    *l = (cublasLtMatrixLayout_t)n;
    counters.handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return drop<LtLayout>(l);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t a, const void *from,
                                                size_t bytes)
{
    CTD_LIBRARY(CUBLAS_STATUS_INVALID_VALUE);
    return set(field((LtLayout *)l, a), from, bytes, __func__, (int)a);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t a, void *to,
                                                size_t bytes, size_t *written)
{
    return get(field((LtLayout *)l, a), to, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    CTD_LIBRARY(CUBLAS_STATUS_ALLOC_FAILED);
    *p = (cublasLtMatmulPreference_t) new LtPreference;
    counters.handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return drop<LtPreference>(p);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *from, size_t bytes)
{
    CTD_LIBRARY(CUBLAS_STATUS_INVALID_VALUE);
    return set(field((LtPreference *)p, a), from, bytes, __func__, (int)a);
}
}
