/* SPDX-License-Identifier: Apache-2.0 */
/* 20 steps of training equal PyTorch's: in f64 losses and every parameter and buffer to 1e-9, in
 * f32 losses to 1e-4. What PyTorch did: tests/golden/curves.py. */
#include "curves_base.h"

#include <math.h>

TestSuite(curves);

static const ts_tol f64_tol = {1e-9, 1e-11}, f32_tol = {1e-4, 0};

/* ---- an MLP by SGD with momentum ---- */

static ct_module *build_mlp(ct_ctx *ctx)
{
    ct_module *net = ct_nn_sequential_new(ctx);
    ct_nn_sequential_add(net, ct_nn_flatten_new(ctx, 1, -1));
    ct_nn_sequential_add(net, ct_nn_linear_new(ctx, 64, 32, true));
    ct_nn_sequential_add(net, ct_nn_relu_new(ctx));
    ct_nn_sequential_add(net, ct_nn_linear_new(ctx, 32, 10, true));
    return net;
}

static void train_mlp(curve *c)
{
    ct_sgd_opts o = ct_sgd_defaults();
    o.lr = 0.1;
    o.momentum = 0.9;
    ct_optim *optim = ct_sgd_new(c->ctx, c->state, c->n_state, o);
    cr_assert(optim != NULL, "%s", ct_error_get(c->ctx)->text);
    for (int step = 0; step < CURVE_STEPS; step++) {
        ct_tensor *x = curve_images(c, step * 32, 32), *y = curve_labels(c, step * 32, 32);
        CURVE_OK(c, ct_scope_begin(c->ctx, CT_SCOPE_STEP));
        ct_tensor *loss =
            ct_cross_entropy(ct_module_forward(c->net, x), y, ct_cross_entropy_defaults());
        ct_optim_zero_grad(optim);
        CURVE_OK(c, ct_backward(c->ctx, loss, NULL, 0));
        CURVE_OK(c, ct_optim_step(c->ctx, optim, ct_step_defaults()));
        CURVE_OK(c, ct_tensor_item(c->ctx, loss, &c->losses[step]));
        CURVE_OK(c, ct_scope_end(c->ctx));
        ct_tensor_release(x);
        ct_tensor_release(y);
        if (c->dtype == CT_F64)
            curve_expect_state(c, step + 1, f64_tol);
    }
    ct_optim_free(optim);
}

Test(curves, of_an_mlp_by_sgd_in_f64_are_pytorchs)
{
    curve c;
    curve_open(&c, "mlp", CT_F64, build_mlp);
    train_mlp(&c);
    curve_expect_series(&c, "losses", c.losses, f64_tol);
    curve_close(&c);
}

Test(curves, of_an_mlp_by_sgd_in_f32_are_pytorchs)
{
    curve c;
    curve_open(&c, "mlp", CT_F32, build_mlp);
    train_mlp(&c);
    curve_expect_series(&c, "losses", c.losses, f32_tol);
    curve_close(&c);
}

/* ---- a conv net with batch norm by AdamW, OneCycle, clipping, smoothing, accumulation ---- */

static ct_module *build_conv(ct_ctx *ctx)
{
    ct_conv2d_opts o = ct_conv2d_defaults();
    o.padding[0] = o.padding[1] = 1;
    ct_module *net = ct_nn_sequential_new(ctx);
    ct_nn_sequential_add(net, ct_nn_conv2d_new(ctx, 1, 8, 3, 3, o, false));
    ct_nn_sequential_add(net, ct_nn_batchnorm2d_new(ctx, 8, ct_nn_batchnorm_defaults()));
    ct_nn_sequential_add(net, ct_nn_relu_new(ctx));
    ct_nn_sequential_add(net, ct_nn_maxpool2d_new(ctx, ct_pool2d_defaults(2)));
    ct_nn_sequential_add(net, ct_nn_flatten_new(ctx, 1, -1));
    ct_nn_sequential_add(net, ct_nn_linear_new(ctx, 128, 10, true));
    return net;
}

/* Sums the losses of a window's micro-batches into *loss, their samples into *samples. */
static void run_window(curve *c, const double *sizes, int64_t *at, double *loss, double *samples)
{
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();
    o.reduction = CT_REDUCE_SUM;
    o.label_smoothing = 0.1;
    for (int k = 0; k < 3; k++) {
        int64_t n = (int64_t)sizes[k];
        if (!n)
            continue;
        double part;
        ct_tensor *x = curve_images(c, *at, n), *y = curve_labels(c, *at, n);
        ct_tensor *sum = ct_cross_entropy(ct_module_forward(c->net, x), y, o);
        CURVE_OK(c, ct_backward(c->ctx, sum, NULL, 0));
        CURVE_OK(c, ct_tensor_item(c->ctx, sum, &part));
        *loss += part;
        *samples += (double)n;
        *at += n;
        ct_tensor_release(x);
        ct_tensor_release(y);
    }
}

static void train_conv(curve *c)
{
    const ts_array *sizes = ts_golden_must_get(c->golden, "conv/sizes");
    ct_schedule schedule = ct_schedule_defaults(CT_SCHEDULE_ONECYCLE, CURVE_STEPS, 0.02);
    ct_optim *optim = ct_adamw_new(c->ctx, c->state, c->n_state, ct_adamw_defaults());
    cr_assert(optim != NULL, "%s", ct_error_get(c->ctx)->text);
    int64_t at = 0;
    for (int step = 0; step < CURVE_STEPS; step++) {
        double loss = 0, samples = 0;
        ct_step_result result;
        CURVE_OK(c, ct_scope_begin(c->ctx, CT_SCOPE_STEP));
        ct_optim_zero_grad(optim);
        run_window(c, sizes->v + 3 * step, &at, &loss, &samples);
        ct_step_opts o = ct_step_defaults();
        ct_tensor *weight = ct_tensor_scalar(c->ctx, c->dtype, samples);
        o.weight = weight;
        o.max_norm = 2;
        ct_optim_set_lr(optim, ct_schedule_lr(&schedule, step));
        ct_optim_set_momentum(optim, ct_schedule_momentum(&schedule, step));
        CURVE_OK(c, ct_optim_step(c->ctx, optim, o));
        CURVE_OK(c, ct_optim_result(c->ctx, optim, &result));
        ct_tensor_release(weight);
        CURVE_OK(c, ct_scope_end(c->ctx));
        cr_expect_eq(result.weight, samples);
        cr_expect(!result.nonfinite && !result.empty && result.applied == step + 1);
        c->losses[step] = loss / samples;
        c->norms[step] = result.grad_norm;
        if (c->dtype == CT_F64)
            curve_expect_state(c, step + 1, f64_tol);
    }
    ct_optim_free(optim);
}

Test(curves, of_a_conv_net_by_adamw_and_onecycle_in_f64_are_pytorchs)
{
    curve c;
    curve_open(&c, "conv", CT_F64, build_conv);
    train_conv(&c);
    curve_expect_series(&c, "losses", c.losses, f64_tol);
    curve_expect_series(&c, "norms", c.norms, f64_tol);
    curve_close(&c);
}

Test(curves, of_a_conv_net_by_adamw_and_onecycle_in_f32_are_pytorchs)
{
    curve c;
    curve_open(&c, "conv", CT_F32, build_conv);
    train_conv(&c);
    curve_expect_series(&c, "losses", c.losses, f32_tol);
    curve_close(&c);
}

/* A comparison that can't fail is none: the same net with one setting off must differ. */
Test(curves, differ_when_a_setting_is_off)
{
    curve c;
    char msg[512];
    curve_open(&c, "mlp", CT_F64, build_mlp);
    ct_tensor *x = curve_images(&c, 0, 32), *y = curve_labels(&c, 0, 32);
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();
    o.label_smoothing = 1e-6;
    CURVE_OK(&c, ct_scope_begin(c.ctx, CT_SCOPE_NO_GRAD));
    ts_array got = ts_values(c.ctx, ct_cross_entropy(ct_module_forward(c.net, x), y, o));
    CURVE_OK(&c, ct_scope_end(c.ctx));
    const ts_array *losses = ts_golden_must_get(c.golden, "mlp/losses");
    cr_expect(!ts_close_values(&got, 1, losses->v, f64_tol, msg, sizeof(msg)));
    ts_array_free(&got);
    ct_tensor_release(x);
    ct_tensor_release(y);
    curve_close(&c);
}
