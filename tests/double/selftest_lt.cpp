/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLt of the double against plain loops, and its rules. */
#include "selftest.h"

#include "hooks.h"

#include <cmath>
#include <cublasLt.h>
#include <vector>

namespace
{
cublasLtHandle_t lt;
void *workspace;
enum { WORKSPACE = 1 << 20 };

struct Matmul {
    cublasLtMatmulDesc_t d;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t algo[4];
    int n_algos = 0;
    size_t limit = WORKSPACE;

    void desc(int attribute, const void *v, size_t n)
    {
        OK(cublasLtMatmulDescSetAttribute(d, (cublasLtMatmulDescAttributes_t)attribute, v, n));
    }
    Matmul(int m, int n, int k, bool ta, bool tb, int lda, int ldb, int ldc,
           cudaDataType type = CUDA_R_32F)
    {
        cublasOperation_t t = CUBLAS_OP_T;
        OK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        if (ta)
            desc(CUBLASLT_MATMUL_DESC_TRANSA, &t, 4);
        if (tb)
            desc(CUBLASLT_MATMUL_DESC_TRANSB, &t, 4);
        OK(cublasLtMatrixLayoutCreate(&a, type, ta ? k : m, ta ? m : k, lda));
        OK(cublasLtMatrixLayoutCreate(&b, type, tb ? n : k, tb ? k : n, ldb));
        OK(cublasLtMatrixLayoutCreate(&c, type, m, n, ldc));
        OK(cublasLtMatmulPreferenceCreate(&pref));
    }
    void batch(cublasLtMatrixLayout_t l, int n, int64_t stride)
    {
        OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, 4));
        OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                            8));
    }
    cublasStatus_t ask()
    {
        OK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &limit, 8));
        return cublasLtMatmulAlgoGetHeuristic(lt, d, a, b, c, c, pref, 4, algo, &n_algos);
    }
    cublasStatus_t run(const void *A, const void *B, void *C, float alpha, float beta,
                       int which = 0)
    {
        if (cublasStatus_t e = ask())
            return e;
        return cublasLtMatmul(lt, d, &alpha, A, a, B, b, &beta, C, c, C, c, &algo[which].algo,
                              workspace, algo[which].workspaceSize, stream);
    }
    ~Matmul()
    {
        cublasLtMatmulDescDestroy(d);
        cublasLtMatrixLayoutDestroy(a);
        cublasLtMatrixLayoutDestroy(b);
        cublasLtMatrixLayoutDestroy(c);
        cublasLtMatmulPreferenceDestroy(pref);
    }
};

float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

void products()
{
    enum { M = 7, N = 5, K = 9, LD = 11, BATCH = 3, STRIDE = LD * 11 };
    std::vector<float> a(BATCH * STRIDE), b(a), c(a), r(a);
    for (size_t i = 0; i < a.size(); i++) {
        a[i] = random_float();
        b[i] = random_float();
        c[i] = random_float();
    }
    float *da = (float *)device(a.data(), a.size() * 4),
          *db = (float *)device(b.data(), b.size() * 4);
    float *dc = (float *)device(nullptr, c.size() * 4);
    for (int t = 0; t < 12; t++) {
        bool ta = t & 1, tb = t & 2;
        Matmul p(M, N, K, ta, tb, LD, LD, LD);
        p.batch(p.a, BATCH, STRIDE);
        p.batch(p.b, BATCH, 0);
        p.batch(p.c, BATCH, STRIDE);
        OK(cudaMemcpy(dc, c.data(), c.size() * 4, cudaMemcpyHostToDevice));
        OK(p.run(da, db, dc, 0.5f, 2.f, t / 4));
        host(r.data(), dc, c.size() * 4);
        CHECK(p.n_algos == 3 && p.algo[2].workspaceSize == 0);
        for (int z = 0; z < BATCH; z++)
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    double v = 0;
                    for (int k = 0; k < K; k++)
                        v += (double)a[z * STRIDE + (ta ? k + i * LD : i + k * LD)] *
                             b[tb ? j + k * LD : k + j * LD];
                    v = 0.5 * v + 2.0 * c[z * STRIDE + i + j * LD];
                    CHECK(fabs(r[z * STRIDE + i + j * LD] - v) < 1e-5);
                }
        CHECK(r[M] == c[M]); /* between the columns */
    }
    for (float *p : {da, db, dc})
        OK(cudaFree(p));
}

void epilogues()
{
    enum { M = 8, N = 6, K = 4 };
    float a[M * K], b[K * N], bias[M], r[M * N], g[N];
    for (float &v : a)
        v = random_float();
    for (float &v : b)
        v = random_float();
    for (float &v : bias)
        v = random_float();
    float *da = (float *)device(a, sizeof a), *db = (float *)device(b, sizeof b);
    float *dc = (float *)device(nullptr, sizeof r), *dbias = (float *)device(bias, sizeof bias);
    float *dg = (float *)device(nullptr, sizeof g);
    unsigned char *aux = (unsigned char *)device(nullptr, 128 / 8 * N);
    auto product = [&](int i, int j) {
        float v = 0;
        for (int k = 0; k < K; k++)
            v += a[i + k * M] * b[k + j * K];
        return v;
    };
    auto with = [&](uint32_t e, void *bias_at, float *out) {
        Matmul p(M, N, K, false, false, M, K, M);
        int64_t ld = 128;
        p.desc(CUBLASLT_MATMUL_DESC_EPILOGUE, &e, 4);
        p.desc(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_at, 8);
        p.desc(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, 8);
        p.desc(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8);
        OK(p.run(da, db, dc, 1, 0));
        host(out, dc, sizeof r);
    };
    with(CUBLASLT_EPILOGUE_GELU_BIAS, dbias, r);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            CHECK(fabsf(r[i + j * M] - gelu(product(i, j) + bias[i])) < 1e-5f);
    with(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, dbias, r);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            CHECK(fabsf(r[i + j * M] - fmaxf(0, product(i, j) + bias[i])) < 1e-5f);
    with(CUBLASLT_EPILOGUE_DRELU, dbias, r); /* masks with what was just kept */
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            CHECK(fabsf(r[i + j * M] - (product(i, j) + bias[i] > 0 ? product(i, j) : 0)) < 1e-5f);
    with(CUBLASLT_EPILOGUE_BGRADB, dg, r);
    host(g, dg, sizeof g);
    for (int j = 0; j < N; j++)
        CHECK(fabsf(g[j] - (b[j * K] + b[j * K + 1] + b[j * K + 2] + b[j * K + 3])) < 1e-5f);
    for (void *p : {(void *)da, (void *)db, (void *)dc, (void *)dbias, (void *)dg, (void *)aux})
        OK(cudaFree(p));
}

void rules()
{
    float *x = (float *)device(nullptr, 64 * 4);
    auto status = [&](int m, int n, int k, int lda, int ldb, int ldc) {
        Matmul p(m, n, k, false, false, lda, ldb, ldc);
        return p.ask();
    };
    CHECK(status(4, 4, 4, 4, 4, 4) == CUBLAS_STATUS_SUCCESS);
    CHECK(status(4, 4, 4, 3, 4, 4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(status(4, 4, 0, 4, 4, 4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(status(0, 4, 4, 4, 4, 4) == CUBLAS_STATUS_INVALID_VALUE);
    {
        Matmul p(4, 4, 4, false, false, 4, 4, 4);
        uint32_t align = 4;
        float one = 1;
        OK(p.ask());
        CHECK(cublasLtMatmul(lt, p.d, &one, x, p.a, x + 16, p.b, &one, x + 32, p.c, x + 32, p.c,
                             &p.algo[0].algo, workspace, p.algo[0].workspaceSize - 1,
                             stream) == CUBLAS_STATUS_INVALID_VALUE);
        CHECK(p.run(x + 1, x + 16, x + 32, 1, 0) == CUBLAS_STATUS_INVALID_VALUE); /* alignment */
        OK(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                &align, 4));
        OK(p.run(x + 1, x + 20, x + 36, 1, 0));
        p.limit = 0;
        OK(p.ask());
        CHECK(p.n_algos == 1);
        ctd_fail("cublasLtMatmul:1");
        CHECK(p.run(x, x + 16, x + 32, 1, 0) == CUBLAS_STATUS_EXECUTION_FAILED);
        ctd_fail(nullptr);
    }
    check_fault("a matrix past its allocation", "A needs", [] {
        Matmul p(4, 4, 4, false, false, 40, 4, 4);
        float *y;
        cudaMalloc((void **)&y, 64 * 4);
        p.run(y, y + 16, y + 32, 1, 0);
    });
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(x));
}
} // namespace

void test_lt()
{
    OK(cublasLtCreate(&lt));
    workspace = device(nullptr, WORKSPACE);
    products();
    epilogues();
    rules();
    OK(cudaFree(workspace));
    OK(cublasLtDestroy(lt));
}
