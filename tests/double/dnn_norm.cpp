/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of batch normalization and of pools. Sums are in f64. */
#include "dnn.h"

#include <cmath>

namespace ctd
{
/* Calls f(offset) for each element of a channel: all dimensions but the second. */
template <class F> static void each_in_channel(const Tensor &t, int64_t c, F f)
{
    int64_t rest = t.numel() / t.dim[1];
    for (int64_t i = 0; i < rest; i++) {
        int64_t left = i, at = c * t.stride[1];
        for (int d = t.nd - 1; d >= 0; d--) {
            if (d == 1)
                continue;
            at += left % t.dim[d] * t.stride[d];
            left /= t.dim[d];
        }
        f((size_t)at);
    }
}

/* Two tensors of one shape, and strides of their own. */
template <class F> static void each_pair(const Tensor &a, const Tensor &b, int64_t c, F f)
{
    std::vector<size_t> at;
    size_t i = 0;
    at.reserve((size_t)(a.numel() / a.dim[1]));
    each_in_channel(a, c, [&](size_t o) { at.push_back(o); });
    each_in_channel(b, c, [&](size_t o) { f(at[i++], o); });
}

struct PerChannel {
    Bound b;
    PerChannel(const Desc *op, int attribute, Bindings &all)
    {
        if (const Desc *d = op->child(attribute))
            b = all[d];
    }
    explicit operator bool() const
    {
        return b.p;
    }
    size_t at(int64_t c) const
    {
        return (size_t)(b.t.numel() == 1 ? 0 : c * b.t.stride[1]);
    }
    double get(int64_t c) const
    {
        return load<double>(b.type(), b.p, at(c));
    }
    void set(int64_t c, double v) const
    {
        if (b.p)
            store(b.type(), b.p, at(c), v);
    }
};

static void forward(const Desc *op, Bindings &all)
{
    Bound x = all[op->child(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC)];
    Bound y = all[op->child(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC)];
    PerChannel scale(op, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, all),
        bias(op, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, all),
        mean(op, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, all),
        inv(op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, all),
        eps(op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, all),
        factor(op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, all),
        mean_in(op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, all),
        var_in(op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, all),
        mean_out(op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, all),
        var_out(op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, all);
    bool train = op->get<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) ==
                 CUDNN_NORM_FWD_TRAINING;
    int64_t n = x.t.numel() / x.t.dim[1];
    for (int64_t c = 0; c < x.t.dim[1]; c++) {
        double m = 0, v = 0, r;
        if (train) {
            each_in_channel(x.t, c, [&](size_t i) { m += load(x.type(), x.p, i); });
            m /= (double)n;
            each_in_channel(x.t, c, [&](size_t i) {
                double d = load(x.type(), x.p, i) - m;
                v += d * d;
            });
            v /= (double)n;
            r = 1 / sqrt(v + eps.get(0));
            mean.set(c, m);
            inv.set(c, r);
            if (mean_in && factor) {
                double f = factor.get(0), unbiased = n > 1 ? v * (double)n / (double)(n - 1) : v;
                mean_out.set(c, (1 - f) * mean_in.get(c) + f * m);
                var_out.set(c, (1 - f) * var_in.get(c) + f * unbiased);
            }
        } else {
            m = mean.get(c);
            r = inv.get(c);
        }
        double s = scale.get(c), o = bias ? bias.get(c) : 0;
        each_pair(x.t, y.t, c, [&](size_t i, size_t j) {
            store(y.type(), y.p, j, (load(x.type(), x.p, i) - m) * r * s + o);
        });
    }
}

static void backward(const Desc *op, Bindings &all)
{
    Bound x = all[op->child(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC)];
    Bound dy = all[op->child(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC)];
    Bound dx = all[op->child(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC)];
    PerChannel scale(op, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, all),
        mean(op, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, all),
        inv(op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, all),
        dscale(op, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, all),
        dbias(op, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, all);
    double n = (double)(x.t.numel() / x.t.dim[1]);
    for (int64_t c = 0; c < x.t.dim[1]; c++) {
        double m = mean.get(c), r = inv.get(c), s = scale.get(c), sum = 0, dot = 0;
        std::vector<double> xhat, g;
        each_pair(x.t, dy.t, c, [&](size_t i, size_t j) {
            xhat.push_back((load(x.type(), x.p, i) - m) * r);
            g.push_back(load(dy.type(), dy.p, j));
            sum += g.back();
            dot += g.back() * xhat.back();
        });
        size_t k = 0;
        each_in_channel(dx.t, c, [&](size_t i) {
            store(dx.type(), dx.p, i, s * r * (g[k] - sum / n - xhat[k] * dot / n));
            k++;
        });
        dscale.set(c, dot);
        dbias.set(c, sum);
    }
}

void run_norm(const Desc *op, Bindings &b)
{
    if (op->type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
        forward(op, b);
    else
        backward(op, b);
}

/* ---- pools ---- */

static size_t at(const Tensor &t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (size_t)(n * t.stride[0] + c * t.stride[1] + h * t.stride[2] + w * t.stride[3]);
}

/* Calls f(h, w) for the elements of a window that exist. */
template <class F>
static int64_t each_in_window(const Window &w, const Tensor &x, int64_t p, int64_t q, F f)
{
    int64_t count = 0;
    for (int64_t r = 0; r < w.size[0]; r++)
        for (int64_t s = 0; s < w.size[1]; s++) {
            int64_t h = p * w.stride[0] - w.pre[0] + r, v = q * w.stride[1] - w.pre[1] + s;
            if (h < 0 || h >= x.dim[2] || v < 0 || v >= x.dim[3])
                continue;
            count++;
            f(h, v);
        }
    return count;
}

void run_resample(const Desc *op, Bindings &all)
{
    bool fwd = op->type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR;
    const Desc *d = op->child(fwd ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC :
                                    CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC);
    Bound x = all[op->child(fwd ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC :
                                  CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC)];
    Bound y = all[op->child(fwd ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC :
                                  CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC)];
    const Desc *in = op->child(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC);
    Bound source = !fwd && in ? all[in] : x;
    auto mode = d->get<cudnnResampleMode_t>(CUDNN_ATTR_RESAMPLE_MODE);
    Window w = pool_window(d);
    double alpha = op->get<double>(
        fwd ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_ALPHA, 1);
    std::vector<float> dx(fwd ? 0 : (size_t)x.t.numel(), 0.f);
    auto dense = [&](int64_t n, int64_t c, int64_t h, int64_t v) {
        return (size_t)(((n * x.t.dim[1] + c) * x.t.dim[2] + h) * x.t.dim[3] + v);
    };
    for (int64_t n = 0; n < y.t.dim[0]; n++)
        for (int64_t c = 0; c < y.t.dim[1]; c++)
            for (int64_t p = 0; p < y.t.dim[2]; p++)
                for (int64_t q = 0; q < y.t.dim[3]; q++) {
                    double sum = 0, best = -INFINITY;
                    size_t arg = 0;
                    bool any = false;
                    int64_t count = each_in_window(w, x.t, p, q, [&](int64_t h, int64_t v) {
                        if (!fwd && mode != CUDNN_RESAMPLE_MAXPOOL)
                            return;
                        float e = load(source.type(), source.p, at(source.t, n, c, h, v));
                        sum += e;
                        if (!any || e > best || e != e) {
                            best = e;
                            arg = fwd ? 0 : dense(n, c, h, v);
                            any = true;
                        }
                    });
                    if (mode == CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING)
                        count = w.size[0] * w.size[1];
                    size_t o = at(y.t, n, c, p, q);
                    double r = mode == CUDNN_RESAMPLE_MAXPOOL ? best : sum / (double)count;
                    if (fwd) {
                        store(y.type(), y.p, o, alpha * r);
                        continue;
                    }
                    float g = load(y.type(), y.p, o);
                    if (mode == CUDNN_RESAMPLE_MAXPOOL)
                        dx[arg] += g;
                    else
                        each_in_window(w, x.t, p, q, [&](int64_t h, int64_t v) {
                            dx[dense(n, c, h, v)] += g / (float)count;
                        });
                }
    for (int64_t n = 0; n < x.t.dim[0] && !fwd; n++)
        for (int64_t c = 0; c < x.t.dim[1]; c++)
            for (int64_t h = 0; h < x.t.dim[2]; h++)
                for (int64_t v = 0; v < x.t.dim[3]; v++)
                    store(x.type(), x.p, at(x.t, n, c, h, v), alpha * dx[dense(n, c, h, v)]);
}
} // namespace ctd
