/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN of the double against plain loops, and its rules. With CTD_PLANS it records graphs for
 * plans.c. */
#include "selftest.h"

#include "hooks.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cudnn.h>
#include <map>
#include <string>
#include <vector>

namespace
{
typedef cudnnBackendDescriptor_t D;
cudnnHandle_t dnn;
std::vector<D> made; /* destroyed at the end of each test */

D make(cudnnBackendDescriptorType_t t)
{
    D d;
    OK(cudnnBackendCreateDescriptor(t, &d));
    made.push_back(d);
    return d;
}

void set(D d, int a, cudnnBackendAttributeType_t t, int64_t n, const void *v)
{
    OK(cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)a, t, n, v));
}

template <class T> void set1(D d, int a, cudnnBackendAttributeType_t t, T v)
{
    set(d, a, t, 1, &v);
}

void child(D d, int a, D c)
{
    set(d, a, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c);
}

void clean()
{
    for (D d : made)
        cudnnBackendDestroyDescriptor(d);
    made.clear();
}

/* [n,c,h,w], channels last unless it is a vector or a host scalar. */
D tensor(int64_t id, const int64_t (&dim)[4], bool by_value = false)
{
    D d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]};
    set1(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    set1(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set1(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, (int64_t)16);
    if (by_value)
        set1(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
    OK(cudnnBackendFinalize(d));
    return d;
}

/* A plan by the rules of the backend: deterministic, no tensor cores for f32, a workspace of at
 * most 1 GiB. */
cudnnStatus_t plan_of(D op, D *plan, int64_t *workspace)
{
    D graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
      heur = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    D cfg[8];
    int64_t got = 0, one;
    child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
    set1(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, dnn);
    if (cudnnStatus_t s = cudnnBackendFinalize(graph))
        return s;
    child(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set1(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    OK(cudnnBackendFinalize(heur));
    for (D &c : cfg)
        c = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    OK(cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                8, &got, cfg));
    for (int64_t i = 0; i < got; i++) {
        cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
        int64_t n = 0;
        bool skip = false;
        D engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR),
          p = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        OK(cudnnBackendGetAttribute(cfg[i], CUDNN_ATTR_ENGINECFG_ENGINE,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine));
        OK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                    CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n,
                                    notes));
        for (int64_t j = 0; j < n; j++)
            skip = skip || notes[j] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
                   notes[j] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        child(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, cfg[i]);
        set1(p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, dnn);
        OK(cudnnBackendFinalize(p));
        OK(cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                    1, &one, workspace));
        if (!skip && *workspace <= 1 << 30) {
            *plan = p;
            return CUDNN_STATUS_SUCCESS;
        }
    }
    return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t execute(D plan, int64_t workspace_bytes, const std::map<int64_t, void *> &tensors)
{
    D pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    std::vector<int64_t> ids;
    std::vector<void *> pointers;
    void *workspace = device(nullptr, (size_t)workspace_bytes);
    for (auto &t : tensors) {
        ids.push_back(t.first);
        pointers.push_back(t.second);
    }
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, (int64_t)ids.size(),
        ids.data());
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, (int64_t)ids.size(),
        pointers.data());
    set1(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    OK(cudnnBackendFinalize(pack));
    cudnnStatus_t s = cudnnBackendExecute(dnn, plan, pack);
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(workspace));
    return s;
}

std::vector<float> randoms(size_t n)
{
    std::vector<float> v(n);
    for (float &x : v)
        x = random_float();
    return v;
}

bool close(const std::vector<float> &a, const std::vector<double> &b, double bound)
{
    for (size_t i = 0; i < b.size(); i++)
        if (!(fabs(a[i] - b[i]) <= bound))
            return false;
    return true;
}

/* ---- convolution ---- */

enum { N = 2, C = 6, H = 7, W = 5, K = 4, R = 3, S = 2, G = 2, CG = C / G, P = 4, Q = 5 };

D conv_op(cudnnBackendDescriptorType_t type, int first, D x, D w, D y)
{
    D c = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), op = make(type);
    int64_t pre[2] = {2, 1}, post[2] = {2, 1}, stride[2] = {2, 1}, dilation[2] = {2, 2};
    set1(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, (int64_t)2);
    set1(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set1(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    set(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pre);
    set(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, post);
    set(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    OK(cudnnBackendFinalize(c));
    bool filter = first == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA;
    set1(op, first, CUDNN_TYPE_FLOAT, 1.f);
    set1(op, first + 1, CUDNN_TYPE_FLOAT, 0.f);
    child(op, first + 2, c);
    child(op, first + 3, w);
    child(op, first + 4, x);
    child(op, first + 5, y);
    (void)filter;
    return op;
}

/* Calls f(x index, w index, y index) for each product of the convolution. */
template <class F> void each_product(F f)
{
    for (int n = 0; n < N; n++)
        for (int p = 0; p < P; p++)
            for (int q = 0; q < Q; q++)
                for (int k = 0; k < K; k++)
                    for (int r = 0; r < R; r++)
                        for (int s = 0; s < S; s++)
                            for (int c = 0; c < CG; c++) {
                                int h = 2 * p - 2 + 2 * r, w = q - 1 + 2 * s,
                                    ch = k / (K / G) * CG + c;
                                if (h >= 0 && h < H && w >= 0 && w < W)
                                    f(((n * H + h) * W + w) * C + ch,
                                      ((k * R + r) * S + s) * CG + c,
                                      ((n * P + p) * Q + q) * K + k);
                            }
}

void convolutions()
{
    const int64_t xd[4] = {N, C, H, W}, wd[4] = {K, CG, R, S}, yd[4] = {N, K, P, Q};
    std::vector<float> x = randoms(N * C * H * W), w = randoms(K * CG * R * S),
                       y = randoms(N * K * P * Q);
    std::vector<double> want_y(y.size()), want_x(x.size()), want_w(w.size());
    each_product([&](int i, int j, int k) {
        want_y[k] += (double)x[i] * w[j];
        want_x[i] += (double)y[k] * w[j];
        want_w[j] += (double)y[k] * x[i];
    });
    for (int kind = 0; kind < 3; kind++) {
        D tx = tensor('x', xd), tw = tensor('w', wd), ty = tensor('y', yd), plan;
        static const cudnnBackendDescriptorType_t type[3] = {
            CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
        static const int first[3] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA};
        D op = conv_op(type[kind], first[kind], tx, tw, ty);
        std::vector<float> *out = kind == 0 ? &y : kind == 1 ? &x : &w, r(out->size());
        int64_t bytes;
        OK(cudnnBackendFinalize(op));
        if (!OK(plan_of(op, &plan, &bytes)))
            return;
        void *dx = device(x.data(), x.size() * 4), *dw = device(w.data(), w.size() * 4);
        void *dy = device(y.data(), y.size() * 4);
        OK(execute(plan, bytes, {{'x', dx}, {'w', dw}, {'y', dy}}));
        host(r.data(), kind == 0 ? dy : kind == 1 ? dx : dw, r.size() * 4);
        CHECK(close(r, kind == 0 ? want_y : kind == 1 ? want_x : want_w, 1e-5));
        for (void *p : {dx, dw, dy})
            OK(cudaFree(p));
        clean();
    }
    const int64_t bad[4] = {N, K, P + 1, Q};
    D op = conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, tensor('x', xd), tensor('w', wd),
                   tensor('y', bad));
    char text[200];
    CHECK(cudnnBackendFinalize(op) / 1000 == 2);
    cudnnGetLastErrorString(text, sizeof text);
    CHECK(strstr(text, "convolution"));
    clean();
}

/* ---- batch normalization ---- */

enum { BC = 8 };

void norm_forward(const std::vector<float> &x, const std::vector<float> &scale,
                  std::vector<float> *mean, std::vector<float> *inv)
{
    const int64_t xd[4] = {N, BC, H, W}, cd[4] = {1, BC, 1, 1}, one[4] = {1, 1, 1, 1};
    D op = make(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR), plan;
    int64_t bytes;
    float eps = 1e-3f, factor = 0.25f;
    std::vector<float> running(BC, 2.f), y(x.size()), r(BC);
    set1(op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
    set1(op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE,
         CUDNN_NORM_FWD_TRAINING);
    child(op, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, tensor('x', xd));
    child(op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, tensor('y', xd));
    static const int vectors[] = {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
                                  CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
                                  CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
                                  CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
                                  CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
                                  CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
                                  CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
                                  CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC};
    for (int i = 0; i < 8; i++)
        child(op, vectors[i], tensor(i, cd));
    child(op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, tensor('e', one, true));
    child(op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, tensor('f', one, true));
    OK(cudnnBackendFinalize(op));
    if (!OK(plan_of(op, &plan, &bytes)))
        return;
    std::map<int64_t, void *> t = {{'x', device(x.data(), x.size() * 4)},
                                   {'y', device(nullptr, x.size() * 4)}};
    t[0] = device(nullptr, BC * 4);
    t[1] = device(nullptr, BC * 4);
    t[2] = device(scale.data(), BC * 4);
    t[3] = device(scale.data(), BC * 4);
    t[4] = t[6] = device(running.data(), BC * 4); /* in place */
    t[5] = t[7] = device(running.data(), BC * 4);
    std::map<int64_t, void *> all = t;
    all['e'] = &eps;
    all['f'] = &factor;
    OK(execute(plan, bytes, all));
    mean->resize(BC);
    inv->resize(BC);
    host(y.data(), t['y'], x.size() * 4);
    host(mean->data(), t[0], BC * 4);
    host(inv->data(), t[1], BC * 4);
    host(r.data(), t[7], BC * 4);
    double n = N * H * W, m = 0, v = 0;
    for (size_t i = 3; i < x.size(); i += BC)
        m += x[i] / n;
    for (size_t i = 3; i < x.size(); i += BC)
        v += (x[i] - m) * (x[i] - m) / n;
    CHECK(fabs((*mean)[3] - m) < 1e-5 && fabs((*inv)[3] - 1 / sqrt(v + 1e-3)) < 1e-4);
    CHECK(fabs(r[3] - (0.75 * 2 + 0.25 * v * n / (n - 1))) < 1e-5);
    CHECK(fabs(y[3] - ((x[3] - m) / sqrt(v + 1e-3) * scale[3] + scale[3])) < 1e-4);
    t.erase(6);
    t.erase(7);
    for (auto &p : t)
        OK(cudaFree(p.second));
    clean();
}

void norms()
{
    const int64_t xd[4] = {N, BC, H, W}, cd[4] = {1, BC, 1, 1};
    std::vector<float> x = randoms(N * BC * H * W), dy = randoms(x.size()), scale = randoms(BC),
                       mean, inv;
    norm_forward(x, scale, &mean, &inv);
    D op = make(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR), plan;
    int64_t bytes;
    set1(op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, tensor('x', xd));
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, tensor('y', xd));
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, tensor('d', xd));
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, tensor(0, cd));
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, tensor(1, cd));
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, tensor(2, cd));
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, tensor(3, cd));
    child(op, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, tensor(4, cd));
    OK(cudnnBackendFinalize(op));
    if (!OK(plan_of(op, &plan, &bytes)))
        return;
    std::map<int64_t, void *> t = {
        {'x', device(x.data(), x.size() * 4)}, {'y', device(dy.data(), x.size() * 4)},
        {'d', device(nullptr, x.size() * 4)},  {0, device(mean.data(), BC * 4)},
        {1, device(inv.data(), BC * 4)},       {2, device(scale.data(), BC * 4)},
        {3, device(nullptr, BC * 4)},          {4, device(nullptr, BC * 4)}};
    OK(execute(plan, bytes, t));
    std::vector<float> dx(x.size()), ds(BC), db(BC);
    host(dx.data(), t['d'], x.size() * 4);
    host(ds.data(), t[3], BC * 4);
    host(db.data(), t[4], BC * 4);
    double sum = 0, dot = 0, n = N * H * W;
    for (size_t i = 3; i < x.size(); i += BC) {
        sum += dy[i];
        dot += (double)dy[i] * (x[i] - mean[3]) * inv[3];
    }
    double hat = (x[3] - mean[3]) * inv[3];
    CHECK(fabs(ds[3] - dot) < 1e-4 && fabs(db[3] - sum) < 1e-4);
    CHECK(fabs(dx[3] - scale[3] * inv[3] * (dy[3] - sum / n - hat * dot / n)) < 1e-5);
    for (auto &p : t)
        OK(cudaFree(p.second));
    clean();
}

/* ---- pools ---- */

D pool_desc(cudnnResampleMode_t mode)
{
    D d = make(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    cudnnFraction_t window[2] = {{3, 1}, {2, 1}}, stride[2] = {{2, 1}, {2, 1}},
                    pad[2] = {{1, 1}, {0, 1}};
    set1(d, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, mode);
    set1(d, CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set1(d, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, (int64_t)2);
    set1(d, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE,
         mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD);
    set1(d, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    set(d, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, 2, window);
    set(d, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, 2, pad);
    set(d, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, 2, pad);
    set(d, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, 2, stride);
    OK(cudnnBackendFinalize(d));
    return d;
}

void pools()
{
    enum { PP = 4, PQ = 2, CH = 8 };
    const int64_t xd[4] = {N, CH, H, W}, yd[4] = {N, CH, PP, PQ};
    std::vector<float> x = randoms(N * CH * H * W), y(N * CH * PP * PQ);
    for (auto mode : {CUDNN_RESAMPLE_MAXPOOL, CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING,
                      CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING}) {
        D op = make(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR), plan;
        int64_t bytes;
        child(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, tensor('x', xd));
        child(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, tensor('y', yd));
        child(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, pool_desc(mode));
        set1(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA, CUDNN_TYPE_DOUBLE, 1.0);
        set1(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA, CUDNN_TYPE_DOUBLE, 0.0);
        OK(cudnnBackendFinalize(op));
        if (!OK(plan_of(op, &plan, &bytes)))
            return;
        void *dx = device(x.data(), x.size() * 4), *dy = device(nullptr, y.size() * 4);
        OK(execute(plan, bytes, {{'x', dx}, {'y', dy}}));
        host(y.data(), dy, y.size() * 4);
        /* The first window of channel 1: rows 0 and 1 of three, columns 0 and 1. */
        float e[4] = {x[1], x[CH + 1], x[W * CH + 1], x[W * CH + CH + 1]}, sum = 0, most = e[0];
        for (float v : e) {
            sum += v;
            most = fmaxf(most, v);
        }
        CHECK(fabsf(y[1] - (mode == CUDNN_RESAMPLE_MAXPOOL                 ? most :
                            mode == CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING ? sum / 6 :
                                                                             sum / 4)) < 1e-6f);
        OK(cudaFree(dx));
        OK(cudaFree(dy));
        clean();
    }
}

/* ---- rules of executing ---- */

template <int WHICH> void execute_wrong()
{
    const int64_t xd[4] = {N, C, H, W}, wd[4] = {K, CG, R, S}, yd[4] = {N, K, P, Q};
    D op = conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, tensor('x', xd), tensor('w', wd),
                   tensor('y', yd)),
      plan;
    int64_t bytes;
    OK(cudnnBackendFinalize(op));
    OK(plan_of(op, &plan, &bytes));
    char *dx = (char *)device(nullptr, N * C * H * W * 4 + 16),
         *dw = (char *)device(nullptr, K * CG * R * S * 4);
    char *dy = (char *)device(nullptr, N * K * P * Q * 4 - (WHICH == 1 ? 4 : 0));
    if (WHICH == 0)
        execute(plan, bytes, {{'x', dx}, {'w', dw}, {'z', dy}});
    else if (WHICH == 1)
        execute(plan, bytes, {{'x', dx}, {'w', dw}, {'y', dy}});
    else if (WHICH == 2)
        execute(plan, bytes, {{'x', dx + 4}, {'w', dw}, {'y', dy}});
    else
        execute(plan, bytes - 1, {{'x', dx}, {'w', dw}, {'y', dy}});
}
} // namespace

void test_dnn()
{
    OK(cudnnCreate(&dnn));
    OK(cudnnSetStream(dnn, stream));
    convolutions();
    norms();
    pools();
    check_fault("a tensor that isn't given", "no pointer", execute_wrong<0>);
    check_fault("a tensor that is too small", "needs", execute_wrong<1>);
    check_fault("a misaligned tensor", "aligned", execute_wrong<2>);
    check_fault("a workspace that is too small", "workspace", execute_wrong<3>);
    ctd_fail("cudnnBackendFinalize:1");
    D d = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    CHECK(cudnnBackendFinalize(d) == CUDNN_STATUS_NOT_SUPPORTED);
    ctd_fail(nullptr);
    clean();
    OK(cudnnDestroy(dnn));
}
