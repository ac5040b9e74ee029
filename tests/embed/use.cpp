/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain from C++17: handles in unique_ptr, a few training steps, a shape error that is no end. */
#include <ctrain/ctrain.h>

#include <cstdio>
#include <memory>

template <auto release> struct releaser {
    template <class T> void operator()(T *p) const
    {
        release(p);
    }
};
using context = std::unique_ptr<ct_ctx, releaser<ct_ctx_free>>;
using tensor = std::unique_ptr<ct_tensor, releaser<ct_tensor_release>>;
using module_ptr = std::unique_ptr<ct_module, releaser<ct_module_free>>;
using optimizer = std::unique_ptr<ct_optim, releaser<ct_optim_free>>;

static double step(ct_ctx *ctx, ct_module *net, ct_optim *optim, ct_tensor *x, ct_tensor *y)
{
    double loss = -1;
    if (ct_scope_begin(ctx, CT_SCOPE_STEP) < 0)
        return loss;
    ct_optim_zero_grad(optim);
    ct_tensor *l = ct_cross_entropy(ct_module_forward(net, x), y, ct_cross_entropy_defaults());
    if (ct_backward(ctx, l, nullptr, CT_BACKWARD_DEFAULT) < 0 ||
        ct_optim_step(ctx, optim, ct_step_defaults()) < 0 || ct_tensor_item(ctx, l, &loss) < 0)
        std::fprintf(stderr, "%s\n", ct_error_get(ctx)->text);
    return ct_scope_end(ctx) < 0 ? -1 : loss;
}

int main()
{
    ct_error err{};
    context ctx{ct_ctx_new(ct_ctx_defaults(), &err)};
    if (!ctx)
        return std::fprintf(stderr, "%s\n", err.text), 1;
    const float xs[] = {0, 0, 0, 1, 1, 0, 1, 1};
    const int64_t ys[] = {0, 1, 1, 0}, x_shape[] = {4, 2}, y_shape[] = {4};
    tensor x{ct_tensor_from(ctx.get(), CT_F32, 2, x_shape, xs)};
    tensor y{ct_tensor_from(ctx.get(), CT_I64, 1, y_shape, ys)};
    module_ptr net{ct_nn_layers_new(ctx.get(), "linear(8) tanh linear(2)", 1, x_shape + 1)};
    ct_named_tensor params[8];
    ct_adam_opts opts = ct_adam_defaults();
    opts.lr = 0.05;
    optimizer adam{ct_adam_new(ctx.get(), params, ct_module_state(net.get(), params, 8), opts)};

    double first = step(ctx.get(), net.get(), adam.get(), x.get(), y.get()), last = first;
    bool refused = !ct_matmul(x.get(), x.get()) && ct_error_code(ctx.get()) == CT_ESHAPE;
    ct_error_clear(ctx.get());
    for (int i = 0; i < 100; i++)
        last = step(ctx.get(), net.get(), adam.get(), x.get(), y.get());
    std::printf("loss %.4f, then %.4f\n", first, last);
    return refused && first > 0 && last >= 0 && last < first / 2 ? 0 : 1;
}
