/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLt: the argument rules of its documentation, operands' extents against the allocations,
 * several algorithms with different needs. */
#include "lt.h"

#include <algorithm>
#include <cstring>

namespace ctd
{
enum { ALGO_SPLIT, ALGO_TILED, ALGO_PLAIN, N_ALGOS, ALGO_MAGIC = 0xC7D0 };

static cublasStatus_t bad(const char *why)
{
    warn("cublasLt: %s: CUBLAS_STATUS_INVALID_VALUE", why);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t unsupported(const char *why)
{
    trace("cublasLt: %s: CUBLAS_STATUS_NOT_SUPPORTED", why);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

/* What the algorithm needs for this problem. */
static size_t workspace_of(int algo, const LtProblem &p)
{
    size_t partial = (size_t)(p.m * p.n * p.out.batch) * 4;
    return algo == ALGO_SPLIT ? (4 * partial + 255) / 256 * 256 : algo == ALGO_TILED ? 4096 : 0;
}

static uint32_t alignment_of(int algo)
{
    return algo == ALGO_PLAIN ? 1 : 16;
}

static bool known_epilogue(uint32_t e)
{
    switch (e) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return true;
    default:
        return false;
    }
}

static bool types_fit(const LtProblem &p)
{
    int a = p.a.type, d = p.out.type;
    if (p.b.type != a || p.c.type != d)
        return false;
    switch (p.d.compute) {
    case CUBLAS_COMPUTE_32F:
        return p.d.scale == CUDA_R_32F &&
               ((a == CUDA_R_32F && d == CUDA_R_32F) ||
                ((a == CUDA_R_16BF || a == CUDA_R_16F) && (d == a || d == CUDA_R_32F)));
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return p.d.scale == CUDA_R_32F && a == CUDA_R_32F && d == CUDA_R_32F;
    case CUBLAS_COMPUTE_64F:
        return p.d.scale == CUDA_R_64F && a == CUDA_R_64F && d == CUDA_R_64F &&
               p.d.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    default:
        return false;
    }
}

static cublasStatus_t check_layout(const LtLayout &l, const LtProblem &p, bool output)
{
    if (!size_of(l.data_type()) || (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW))
        return unsupported("a layout's type or order");
    if (!l.rows || !l.cols)
        return bad("a dimension is 0");
    if (l.ld < (int64_t)(l.order == CUBLASLT_ORDER_ROW ? l.cols : l.rows))
        return bad("a leading dimension is too small");
    if (l.batch != p.out.batch || l.batch < 1)
        return bad("batch counts differ");
    if (output && l.batch > 1 && l.stride == 0)
        return bad("the batches of the output are one");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const LtProblem &p)
{
    if (!known_epilogue(p.d.epilogue))
        return unsupported("the epilogue");
    if ((p.has_bias() || p.bias_grad() || p.operand_grad()) && p.bias_type() != p.out.data_type())
        return unsupported("the bias has another type than D");
    if (!p.has_aux())
        return CUBLAS_STATUS_SUCCESS;
    bool bits = p.has_relu() || p.drelu();
    if (p.d.aux_ld < p.m || p.d.aux_ld % (bits ? 128 : 8))
        return bad("EPILOGUE_AUX_LD is too small, or not a multiple of 128 (relu) or 8 (gelu)");
    if (!bits && p.aux_type() != p.out.data_type())
        return unsupported("aux has another type than D");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t make_problem(LtProblem *p, const LtDesc *d, const LtLayout *a,
                                   const LtLayout *b, const LtLayout *c, const LtLayout *out)
{
    if (!d || !a || !b || !c || !out)
        return bad("a NULL descriptor");
    *p = LtProblem{*d, *a, *b, *c, *out, 0, 0, 0, nullptr, nullptr, nullptr, nullptr, 0, 0};
    bool ta = d->transa != CUBLAS_OP_N, tb = d->transb != CUBLAS_OP_N;
    p->m = (int64_t)out->rows;
    p->n = (int64_t)out->cols;
    p->k = (int64_t)(ta ? a->rows : a->cols);
    for (const LtLayout *l : {a, b, c, out})
        if (cublasStatus_t e = check_layout(*l, *p, l == out))
            return e;
    if ((int64_t)(ta ? a->cols : a->rows) != p->m || (int64_t)(tb ? b->rows : b->cols) != p->n ||
        (int64_t)(tb ? b->cols : b->rows) != p->k || c->rows != out->rows || c->cols != out->cols) {
        warn("cublasLt: op(A) %ldx%ld, op(B) %ldx%ld, C %ldx%ld, D %ldx%ld",
             (long)(ta ? a->cols : a->rows), (long)p->k, (long)(tb ? b->cols : b->rows),
             (long)(tb ? b->rows : b->cols), (long)c->rows, (long)c->cols, (long)out->rows,
             (long)out->cols);
        return bad("shapes don't match");
    }
    if (!types_fit(*p))
        return unsupported("the combination of types");
    return check_epilogue(*p);
}

static void put_algo(cublasLtMatmulHeuristicResult_t *r, int algo, const LtProblem &p)
{
    memset(r, 0, sizeof *r);
    r->algo.data[0] = ALGO_MAGIC;
    r->algo.data[1] = (uint64_t)algo;
    r->workspaceSize = workspace_of(algo, p);
    r->wavesCount = 1;
    r->state = CUBLAS_STATUS_SUCCESS;
}

/* Reads alpha or beta; false after a finding. */
static bool scalar(const LtDesc &d, const void *p, const char *what, double *v)
{
    bool f64 = d.scale == CUDA_R_64F;
    if (d.pointer_mode != CUBLASLT_POINTER_MODE_HOST) {
        fault("cublasLtMatmul: pointer mode %d isn't modelled", d.pointer_mode);
        return false;
    }
    if (is_device(p)) {
        fault("cublasLtMatmul: %s is in device memory in host pointer mode", what);
        return false;
    }
    *v = f64 ? *(const double *)p : (double)*(const float *)p;
    return true;
}

static cublasStatus_t check_memory(const LtProblem &p)
{
    const char *who = "cublasLtMatmul";
    bool bits = p.has_relu() || p.drelu();
    size_t aux_n = (size_t)(p.d.aux_stride * (p.out.batch - 1) + p.d.aux_ld * (p.n - 1) + p.m);
    if (!check_range(who, "A", p.A, p.a.bytes()) || !check_range(who, "B", p.B, p.b.bytes()) ||
        !check_range(who, "D", p.D, p.out.bytes()) || !check_range(who, "C", p.C, p.c.bytes()))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (p.has_bias() || p.bias_grad() || p.operand_grad()) {
        size_t n = (size_t)(p.bias_length() + p.d.bias_stride * (p.out.batch - 1));
        if (!p.d.bias)
            return bad("no bias pointer");
        if (!check_range(who, "bias", p.d.bias, n * size_of(p.bias_type())))
            return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (p.has_aux()) {
        if (!p.d.aux)
            return bad("no aux pointer");
        if (!check_range(who, "aux", p.d.aux,
                         bits ? (aux_n + 7) / 8 : aux_n * size_of(p.aux_type())))
            return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* C and D may be the same matrix; D may not be a dense A or B. */
static cublasStatus_t check_aliases(const LtProblem &p)
{
    auto meets = [&](const void *x, const LtLayout &l) {
        uintptr_t a = (uintptr_t)x, d = (uintptr_t)p.D;
        return a < d + p.out.bytes() && d < a + l.bytes();
    };
    auto dense = [](const LtLayout &l) {
        return l.ld == (int64_t)(l.order == CUBLASLT_ORDER_ROW ? l.cols : l.rows) && l.batch == 1;
    };
    if (p.C == p.D &&
        (p.c.ld != p.out.ld || p.c.order != p.out.order || p.c.stride != p.out.stride))
        return bad("C and D are in one place with different layouts");
    if (dense(p.out) && ((dense(p.a) && meets(p.A, p.a)) || (dense(p.b) && meets(p.B, p.b)))) {
        fault("cublasLtMatmul: D overlaps A or B");
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_algo(const LtProblem &p, const cublasLtMatmulAlgo_t *algo,
                                 const void *workspace, size_t have, size_t *need)
{
    int kind = ALGO_PLAIN;
    if (algo && (algo->data[0] != ALGO_MAGIC || algo->data[1] >= N_ALGOS))
        return bad("an algorithm that no heuristic gave");
    if (algo)
        kind = (int)algo->data[1];
    *need = workspace_of(kind, p);
    uintptr_t all = (uintptr_t)p.A | (uintptr_t)p.B | (uintptr_t)p.C | (uintptr_t)p.D;
    uintptr_t element = (uintptr_t)p.A % size_of(p.a.data_type()) |
                        (uintptr_t)p.B % size_of(p.b.data_type()) |
                        (uintptr_t)p.D % size_of(p.out.data_type());
    if (all % alignment_of(kind) || element)
        return bad("an operand is less aligned than the algorithm needs");
    if (*need > have || (*need && !workspace)) {
        warn("cublasLtMatmul: a workspace of %zu bytes, the algorithm needs %zu", have, *need);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if ((uintptr_t)workspace % 256)
        return bad("the workspace isn't aligned to 256 bytes");
    /* The library may use all of the workspace that it is given. */
    if (workspace && have && !check_range("cublasLtMatmul", "workspace", workspace, have))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return CUBLAS_STATUS_SUCCESS;
}
} // namespace ctd

using namespace ctd;

extern "C" {
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t pref, int want,
                                              cublasLtMatmulHeuristicResult_t *results, int *got)
{
    CTD_LIBRARY(CUBLAS_STATUS_NOT_SUPPORTED);
    LtProblem p;
    const LtPreference *q = (const LtPreference *)pref;
    if (!h || want < 1 || !q || !results || !got)
        return bad("cublasLtMatmulAlgoGetHeuristic");
    *got = 0;
    if (cublasStatus_t e = make_problem(&p, (LtDesc *)d, (LtLayout *)a, (LtLayout *)b,
                                        (LtLayout *)c, (LtLayout *)out))
        return e;
    for (int algo = 0; algo < N_ALGOS && *got < want; algo++) {
        uint32_t least = *std::min_element(q->align, q->align + 4);
        if (workspace_of(algo, p) <= q->workspace && alignment_of(algo) <= least)
            put_algo(&results[(*got)++], algo, p);
    }
    return *got ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    CTD_LIBRARY(CUBLAS_STATUS_NOT_SUPPORTED);
    LtProblem p;
    if (!algo || algo->data[0] != ALGO_MAGIC || algo->data[1] >= N_ALGOS)
        return bad("an algorithm that no heuristic gave");
    if (cublasStatus_t e = make_problem(&p, (LtDesc *)d, (LtLayout *)a, (LtLayout *)b,
                                        (LtLayout *)c, (LtLayout *)out))
        return e;
    put_algo(result, (int)algo->data[1], p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t out,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    CTD_LIBRARY(CUBLAS_STATUS_EXECUTION_FAILED);
    LtProblem p;
    size_t need = 0;
    if (sticky())
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!h || !alpha || !beta || !A || !B || !C || !D)
        return bad("cublasLtMatmul: a NULL argument");
    if (cublasStatus_t e = make_problem(&p, (LtDesc *)d, (LtLayout *)a, (LtLayout *)b,
                                        (LtLayout *)c, (LtLayout *)out))
        return e;
    p.A = A;
    p.B = B;
    p.C = C;
    p.D = D;
    if (!scalar(p.d, alpha, "alpha", &p.alpha) || !scalar(p.d, beta, "beta", &p.beta))
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t e = check_algo(p, algo, workspace, workspace_bytes, &need);
    if (!e)
        e = check_memory(p);
    if (!e)
        e = check_aliases(p);
    if (e)
        return e;
    cudaError_t queued = enqueue(stream, "cublasLtMatmul", [=] {
        if (need)
            memset(workspace, 0xCD, need);
        lt_run(p);
    });
    return queued ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}
