/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the three convolutions and of pointwise operations. */
#include "dnn.h"

#include <cmath>

#define HOT __attribute__((optimize("O3")))

namespace ctd
{
/* Dense [n,h,w,c] in f32 of a tensor [n,c,h,w] with any strides. */
static std::vector<float> pack(const Bound &b, bool to_tf32)
{
    const Tensor &t = b.t;
    std::vector<float> v((size_t)t.numel());
    size_t i = 0;
    for (int64_t n = 0; n < t.dim[0]; n++)
        for (int64_t h = 0; h < t.dim[2]; h++)
            for (int64_t w = 0; w < t.dim[3]; w++)
                for (int64_t c = 0; c < t.dim[1]; c++) {
                    float x = load(b.type(), b.p,
                                   (size_t)(n * t.stride[0] + c * t.stride[1] + h * t.stride[2] +
                                            w * t.stride[3]));
                    v[i++] = to_tf32 ? tf32(x) : x;
                }
    return v;
}

static void unpack(const Bound &b, const std::vector<float> &v, float alpha, float beta,
                   bool jitter)
{
    const Tensor &t = b.t;
    size_t i = 0;
    for (int64_t n = 0; n < t.dim[0]; n++)
        for (int64_t h = 0; h < t.dim[2]; h++)
            for (int64_t w = 0; w < t.dim[3]; w++)
                for (int64_t c = 0; c < t.dim[1]; c++) {
                    size_t at = (size_t)(n * t.stride[0] + c * t.stride[1] + h * t.stride[2] +
                                         w * t.stride[3]);
                    float x = alpha * v[i++];
                    if (beta != 0)
                        x += beta * load(b.type(), b.p, at);
                    if (jitter && rnd() % 2)
                        x *= 1.000001f;
                    store(b.type(), b.p, at, x);
                }
}

/* [k,r,s,c] to [r,s,c,k] within each group: the inner loop of the forward pass is over k. */
static std::vector<float> turn(const std::vector<float> &w, int64_t k, int64_t rsc, int64_t groups)
{
    std::vector<float> v(w.size());
    int64_t kg = k / groups;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t j = 0; j < kg; j++)
            for (int64_t i = 0; i < rsc; i++)
                v[(size_t)((g * rsc + i) * kg + j)] = w[(size_t)((g * kg + j) * rsc + i)];
    return v;
}

HOT static void axpy(float *y, const float *x, float a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

struct Loops {
    Tensor x, w, y;
    Window win;
    bool flip;
    int64_t groups, cg, kg;

    /* Calls f(g, at_x, at_y, at_w): the first channels of one pair of points and the tap
     * between. */
    template <class F> void each(F f) const
    {
        int64_t H = x.dim[2], W = x.dim[3], R = w.dim[2], S = w.dim[3];
        for (int64_t n = 0; n < y.dim[0]; n++)
            for (int64_t p = 0; p < y.dim[2]; p++)
                for (int64_t q = 0; q < y.dim[3]; q++)
                    for (int64_t r = 0; r < R; r++) {
                        int64_t h = p * win.stride[0] - win.pre[0] + r * win.dilation[0];
                        if (h < 0 || h >= H)
                            continue;
                        for (int64_t s = 0; s < S; s++) {
                            int64_t v = q * win.stride[1] - win.pre[1] + s * win.dilation[1];
                            if (v < 0 || v >= W)
                                continue;
                            int64_t tap = flip ? (R - 1 - r) * S + (S - 1 - s) : r * S + s;
                            for (int64_t g = 0; g < groups; g++)
                                f(g, ((n * H + h) * W + v) * x.dim[1] + g * cg,
                                  ((n * y.dim[2] + p) * y.dim[3] + q) * y.dim[1] + g * kg, tap);
                        }
                    }
    }
};

void run_conv(const Desc *op, Bindings &b, int engine)
{
    ConvOp c;
    conv_op(op, &c);
    Bound x = b[c.x], w = b[c.w], y = b[c.y];
    Bound &out = c.kind == ConvOp::FORWARD ? y : c.kind == ConvOp::BACKWARD_DATA ? x : w;
    bool fast = (engine == ENGINE_FAST || engine == ENGINE_TENSOR_CORE);
    Loops l = {x.t,        w.t, y.t, conv_window(c.desc, w.t), false, x.t.dim[1] / w.t.dim[1],
               w.t.dim[1], 0};
    l.flip =
        c.desc->get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
    l.kg = w.t.dim[0] / l.groups;
    int64_t taps = w.t.dim[2] * w.t.dim[3], rsc = taps * l.cg;
    auto input = [&](const Bound &t) {
        return &t == &out ? std::vector<float>() : pack(t, fast && t.t.dtype == CUDNN_DATA_FLOAT);
    };
    std::vector<float> xv = input(x), wv = input(w), yv = input(y), acc((size_t)out.t.numel(), 0.f);
    if (c.kind == ConvOp::FORWARD) {
        std::vector<float> t = turn(wv, w.t.dim[0], rsc, l.groups);
        l.each([&](int64_t g, int64_t ax, int64_t ay, int64_t tap) {
            for (int64_t i = 0; i < l.cg; i++)
                axpy(&acc[(size_t)ay], &t[(size_t)((g * rsc + tap * l.cg + i) * l.kg)],
                     xv[(size_t)(ax + i)], l.kg);
        });
    } else if (c.kind == ConvOp::BACKWARD_DATA) {
        l.each([&](int64_t g, int64_t ax, int64_t ay, int64_t tap) {
            for (int64_t k = 0; k < l.kg; k++)
                axpy(&acc[(size_t)ax], &wv[(size_t)(((g * l.kg + k) * taps + tap) * l.cg)],
                     yv[(size_t)(ay + k)], l.cg);
        });
    } else {
        l.each([&](int64_t g, int64_t ax, int64_t ay, int64_t tap) {
            for (int64_t k = 0; k < l.kg; k++)
                axpy(&acc[(size_t)(((g * l.kg + k) * taps + tap) * l.cg)], &xv[(size_t)ax],
                     yv[(size_t)(ay + k)], l.cg);
        });
    }
    unpack(out, acc, c.alpha, c.beta, engine == ENGINE_FAST);
}

/* ---- pointwise ---- */

static bool apply(cudnnPointwiseMode_t m, float a, float b, float *y)
{
    switch (m) {
    case CUDNN_POINTWISE_ADD:
        *y = a + b;
        return true;
    case CUDNN_POINTWISE_SUB:
        *y = a - b;
        return true;
    case CUDNN_POINTWISE_MUL:
        *y = a * b;
        return true;
    case CUDNN_POINTWISE_DIV:
        *y = a / b;
        return true;
    case CUDNN_POINTWISE_MAX:
        *y = a > b ? a : b;
        return true;
    case CUDNN_POINTWISE_MIN:
        *y = a < b ? a : b;
        return true;
    case CUDNN_POINTWISE_SQRT:
        *y = sqrtf(a);
        return true;
    case CUDNN_POINTWISE_RSQRT:
        *y = 1 / sqrtf(a);
        return true;
    case CUDNN_POINTWISE_EXP:
        *y = expf(a);
        return true;
    case CUDNN_POINTWISE_LOG:
        *y = logf(a);
        return true;
    case CUDNN_POINTWISE_NEG:
        *y = -a;
        return true;
    case CUDNN_POINTWISE_IDENTITY:
        *y = a;
        return true;
    case CUDNN_POINTWISE_RELU_FWD:
        *y = a > 0 ? a : 0;
        return true;
    case CUDNN_POINTWISE_TANH_FWD:
        *y = tanhf(a);
        return true;
    case CUDNN_POINTWISE_SIGMOID_FWD:
        *y = 1 / (1 + expf(-a));
        return true;
    case CUDNN_POINTWISE_GELU_FWD:
        *y = 0.5f * a * (1 + erff(a * 0.70710678f));
        return true;
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
        *y = 0.5f * a * (1 + tanhf(0.7978845608f * (a + 0.044715f * a * a * a)));
        return true;
    case CUDNN_POINTWISE_RELU_BWD: /* b is dy */
        *y = a > 0 ? b : 0;
        return true;
    case CUDNN_POINTWISE_TANH_BWD:
        *y = b * (1 - tanhf(a) * tanhf(a));
        return true;
    default:
        return false;
    }
}

bool known_pointwise(cudnnPointwiseMode_t m)
{
    float y;
    return apply(m, 1, 1, &y);
}

static size_t broadcast(const Tensor &t, const Tensor &like, int64_t i)
{
    size_t at = 0;
    for (int d = like.nd - 1; d >= 0; d--) {
        int64_t k = i % like.dim[d];
        i /= like.dim[d];
        at += (size_t)((t.dim[d] == 1 ? 0 : k) * t.stride[d]);
    }
    return at;
}

void run_pointwise(const Desc *op, Bindings &b)
{
    bool forward = op->child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const Desc *second = op->child(forward ? CUDNN_ATTR_OPERATION_POINTWISE_BDESC :
                                             CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
    Bound x = b[op->child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)];
    Bound y = b[op->child(forward ? CUDNN_ATTR_OPERATION_POINTWISE_YDESC :
                                    CUDNN_ATTR_OPERATION_POINTWISE_DXDESC)];
    Bound z = second ? b[second] : x;
    float a1 = op->get<float>(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
    float a2 = op->get<float>(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
    auto mode = op->child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                    ->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    for (int64_t i = 0; i < y.t.numel(); i++) {
        float v = 0;
        apply(mode, a1 * load(x.type(), x.p, broadcast(x.t, y.t, i)),
              a2 * load(z.type(), z.p, broadcast(z.t, y.t, i)), &v);
        store(y.type(), y.p, broadcast(y.t, y.t, i), v);
    }
}
} // namespace ctd
