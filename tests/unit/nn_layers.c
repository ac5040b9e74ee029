/* SPDX-License-Identifier: Apache-2.0 */
/* Each layer: PyTorch's state_dict names, shapes and inits; what it computes in both modes. */
#include "nn_fixture.h"

#include <math.h>

static void expect_uniform(ct_ctx *ctx, ct_tensor *t, double bound)
{
    ts_array v = ts_values(ctx, t);
    double sum = 0, squares = 0, most = 0, n = (double)v.n;

    cr_assert_not_null(v.v);
    for (int64_t i = 0; i < v.n; i++) {
        sum += v.v[i];
        squares += v.v[i] * v.v[i];
        most = fmax(most, fabs(v.v[i]));
    }
    cr_expect_leq(most, bound);
    cr_expect_gt(most, bound * (1 - 20 / n));
    /* Five deviations of the mean (bound / sqrt 3n) and of the variance (bound^2 / 3 * sqrt(0.8 / n)). */
    cr_expect_lt(fabs(sum / n), 5 * bound / sqrt(3 * n));
    cr_expect_lt(fabs(squares / n - bound * bound / 3), 5 * bound * bound / 3 * sqrt(0.8 / n));
    ts_array_free(&v);
}

static void expect_shape(const ct_tensor *t, int ndim, const int64_t *shape)
{
    cr_assert_not_null(t);
    cr_assert_eq(ct_tensor_ndim(t), ndim);
    for (int d = 0; d < ndim; d++)
        cr_expect_eq(ct_tensor_shape(t)[d], shape[d]);
}

Test(nn_layers, linear)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_module *m = ct_nn_linear_new(ctx, 50, 400, true),
              *plain = ct_nn_linear_new(ctx, 2, 3, false);
    const double w[] = {1, 2, 3, 4, 5, 6};
    ct_tensor *x = ts_mat(ctx, CT_F64, 1, 2, (double[]){10, 1});

    expect_names(m, "weight bias");
    expect_names(plain, "weight");
    expect_shape(ct_module_get_param(m, "weight"), 2, (int64_t[]){400, 50});
    expect_shape(ct_module_get_param(m, "bias"), 1, (int64_t[]){400});
    expect_uniform(ctx, ct_module_get_param(m, "weight"), 1 / sqrt(50));
    expect_uniform(ctx, ct_module_get_param(m, "bias"), 1 / sqrt(50));
    ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    cr_expect_eq(ct_tensor_write(ctx, ct_module_get_param(plain, "weight"), w, sizeof w), CT_OK);
    ts_expect_values("y", ctx, ct_module_forward(plain, x), 3, (double[]){12, 34, 56}, TS_F64);
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_module_free(m);
    ct_module_free(plain);
    cr_expect_null(ct_nn_linear_new(ctx, 0, 3, true));
    expect_text(ctx, CT_EINVAL, "Linear: in_features is 0: must be at least 1");
    close_ctx(ctx);
}

/* The same seed gives the same start, another seed another; each layer draws anew. */
Test(nn_layers, init_follows_the_seed)
{
    ts_array first = {0};

    for (int run = 0; run < 3; run++) {
        ct_ctx *ctx = open_ctx(CT_F32);
        ct_module *a, *b;
        ts_array v, w;
        char msg[256];

        ct_ctx_set_seed(ctx, run == 2 ? 8 : 7);
        a = ct_nn_linear_new(ctx, 3, 4, true);
        b = ct_nn_linear_new(ctx, 3, 4, true);
        v = ts_values(ctx, ct_module_get_param(a, "weight"));
        w = ts_values(ctx, ct_module_get_param(b, "weight"));
        cr_expect(!ts_close(&v, &w, TS_EXACT, msg, sizeof msg));
        if (run == 0)
            first = ts_array_copy(&v);
        else
            cr_expect_eq(ts_close(&v, &first, TS_EXACT, msg, sizeof msg), run == 1);
        ts_array_free(&v);
        ts_array_free(&w);
        ct_module_free(a);
        ct_module_free(b);
        close_ctx(ctx);
    }
    ts_array_free(&first);
}

Test(nn_layers, conv2d)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_conv2d_opts o = ct_conv2d_defaults();
    ct_module *m;

    o.groups = 2;
    m = ct_nn_conv2d_new(ctx, 8, 64, 3, 5, o, true);
    expect_names(m, "weight bias");
    expect_shape(ct_module_get_param(m, "weight"), 4, (int64_t[]){64, 4, 3, 5});
    expect_shape(ct_module_get_param(m, "bias"), 1, (int64_t[]){64});
    expect_uniform(ctx, ct_module_get_param(m, "weight"), 1 / sqrt(4 * 3 * 5));
    expect_uniform(ctx, ct_module_get_param(m, "bias"), 1 / sqrt(4 * 3 * 5));
    ct_module_free(m);
    m = ct_nn_conv2d_new(ctx, 8, 64, 3, 5, o, false);
    expect_names(m, "weight");
    ct_module_free(m);
    cr_expect_null(ct_nn_conv2d_new(ctx, 7, 64, 3, 3, o, true));
    expect_text(ctx, CT_EINVAL,
                "Conv2d: groups is 2: must divide in_channels (7) and out_channels (64)");
    o.stride[1] = 0;
    cr_expect_null(ct_nn_conv2d_new(ctx, 8, 64, 3, 3, o, true));
    expect_text(ctx, CT_EINVAL, "Conv2d: stride is 0: must be at least 1");
    o.stride[1] = 2;
    o.same = true;
    cr_expect_null(ct_nn_conv2d_new(ctx, 8, 64, 3, 3, o, true));
    expect_text(ctx, CT_EINVAL, "Conv2d: padding 'same' needs stride 1, not 2");
    close_ctx(ctx);
}

/* y of x of `ndim` sizes has `want` sizes. */
static void expect_maps(ct_ctx *ctx, ct_module *m, int ndim, const int64_t *x, const int64_t *want)
{
    ct_tensor *in = ct_tensor_new(ctx, CT_F32, ndim, x);
    ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    expect_shape(ct_module_forward(m, in), ndim, want);
    ct_scope_end(ctx);
    ct_tensor_release(in);
}

Test(nn_layers, conv1d)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_conv1d_opts o = ct_conv1d_defaults();

    o.groups = 2;
    o.stride = 2;
    o.padding = 1;
    ct_module *m = ct_nn_conv1d_new(ctx, 8, 64, 5, o, true);
    expect_names(m, "weight bias");
    expect_shape(ct_module_get_param(m, "weight"), 3, (int64_t[]){64, 4, 5});
    expect_uniform(ctx, ct_module_get_param(m, "weight"), 1 / sqrt(4 * 5));
    expect_uniform(ctx, ct_module_get_param(m, "bias"), 1 / sqrt(4 * 5));
    expect_maps(ctx, m, 3, (int64_t[]){2, 8, 11}, (int64_t[]){2, 64, 5});
    ct_tensor *x = ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){8, 11});
    cr_expect_null(ct_module_forward(m, x));
    expect_text(ctx, CT_ESHAPE,
                "conv1d: x [8,11] must be [N,C,L], weight [64,4,5] of three dimensions too");
    ct_tensor_release(x);
    ct_module_free(m);
    cr_expect_null(ct_nn_conv1d_new(ctx, 8, 64, 0, o, true));
    expect_text(ctx, CT_EINVAL, "Conv1d: kernel_size is 0: must be at least 1");
    o.same = true;
    cr_expect_null(ct_nn_conv1d_new(ctx, 8, 64, 3, o, true));
    expect_text(ctx, CT_EINVAL, "Conv1d: padding 'same' needs stride 1, not 2");
    close_ctx(ctx);
}

/* The bound of the start is that of the weight's second dimension: the outputs. */
Test(nn_layers, conv_transpose)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_conv_transpose2d_opts o = ct_conv_transpose2d_defaults();
    ct_conv_transpose1d_opts o1 = ct_conv_transpose1d_defaults();

    o.groups = 2;
    o.stride[0] = o.stride[1] = 2;
    o.output_padding[1] = 1;
    ct_module *m = ct_nn_conv_transpose2d_new(ctx, 8, 64, 3, 5, o, true);
    expect_names(m, "weight bias");
    expect_shape(ct_module_get_param(m, "weight"), 4, (int64_t[]){8, 32, 3, 5});
    expect_uniform(ctx, ct_module_get_param(m, "weight"), 1 / sqrt(32 * 3 * 5));
    expect_uniform(ctx, ct_module_get_param(m, "bias"), 1 / sqrt(32 * 3 * 5));
    expect_maps(ctx, m, 4, (int64_t[]){2, 8, 4, 6}, (int64_t[]){2, 64, 9, 16});
    ct_module_free(m);
    cr_expect_null(ct_nn_conv_transpose2d_new(ctx, 7, 64, 3, 3, o, true));
    expect_text(ctx, CT_EINVAL,
                "ConvTranspose2d: groups is 2: must divide in_channels (7) and out_channels (64)");
    o1.stride = 3;
    m = ct_nn_conv_transpose1d_new(ctx, 8, 64, 3, o1, false);
    expect_names(m, "weight");
    expect_shape(ct_module_get_param(m, "weight"), 3, (int64_t[]){8, 64, 3});
    expect_maps(ctx, m, 3, (int64_t[]){2, 8, 4}, (int64_t[]){2, 64, 12});
    ct_module_free(m);
    close_ctx(ctx);
}

Test(nn_layers, pools_1d)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_pool1d_opts o = ct_pool1d_defaults(3);
    const int64_t x[] = {2, 4, 10};

    o.stride = 2;
    o.padding = 1;
    ct_module *m = ct_nn_maxpool1d_new(ctx, o);
    expect_names(m, "");
    expect_maps(ctx, m, 3, x, (int64_t[]){2, 4, 5});
    ct_module_free(m);
    o.stride = 0;
    o.ceil_mode = true;
    m = ct_nn_avgpool1d_new(ctx, o);
    expect_maps(ctx, m, 3, x, (int64_t[]){2, 4, 4});
    ct_tensor *flat = ct_tensor_new(ctx, CT_F32, 2, x);
    cr_expect_null(ct_module_forward(m, flat));
    expect_text(ctx, CT_ESHAPE, "avg_pool1d: x [2,4] must be [N,C,L]");
    ct_tensor_release(flat);
    ct_module_free(m);
    m = ct_nn_adaptive_avgpool1d_new(ctx, 7);
    expect_maps(ctx, m, 3, x, (int64_t[]){2, 4, 7});
    ct_module_free(m);
    o.padding = 2;
    cr_expect_null(ct_nn_maxpool1d_new(ctx, o));
    expect_text(ctx, CT_EINVAL, "MaxPool1d: padding is 2: must be at most half of the kernel (3)");
    cr_expect_null(ct_nn_adaptive_avgpool1d_new(ctx, 0));
    expect_text(ctx, CT_EINVAL, "AdaptiveAvgPool1d: output_size is 0: must be at least 1");
    close_ctx(ctx);
}

/* ---- batch norm ---- */

static int64_t batches_seen(ct_ctx *ctx, ct_module *m)
{
    ct_named_tensor t[8];
    int64_t v = -1;
    int n = ct_module_state(m, t, 8);

    cr_assert_str_eq(t[n - 1].name, "num_batches_tracked");
    cr_expect_eq(ct_tensor_dtype(t[n - 1].tensor), CT_I64);
    cr_expect_eq(ct_tensor_ndim(t[n - 1].tensor), 0);
    cr_expect_eq(ct_tensor_read(ctx, t[n - 1].tensor, &v, sizeof v), CT_OK);
    return v;
}

/* PyTorch: x = [1, 3] in one channel, then [2, 6]; momentum .1. */
Test(nn_layers, batchnorm_statistics)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_module *m = ct_nn_batchnorm1d_new(ctx, 1, ct_nn_batchnorm_defaults());
    ct_tensor *a = ts_mat(ctx, CT_F64, 2, 1, (double[]){1, 3});
    ct_tensor *b = ts_mat(ctx, CT_F64, 2, 1, (double[]){2, 6});
    ct_named_tensor t[8];

    expect_names(m, "weight bias [running_mean] [running_var] [num_batches_tracked]");
    ct_module_state(m, t, 8);
    ts_expect_values("weight", ctx, t[0].tensor, 1, (double[]){1}, TS_EXACT);
    ts_expect_values("bias", ctx, t[1].tensor, 1, (double[]){0}, TS_EXACT);
    ts_expect_values("mean", ctx, t[2].tensor, 1, (double[]){0}, TS_EXACT);
    ts_expect_values("var", ctx, t[3].tensor, 1, (double[]){1}, TS_EXACT);
    cr_expect_eq(batches_seen(ctx, m), 0);
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    ts_expect_values("y", ctx, ct_module_forward(m, a), 2,
                     (double[]){-1 / sqrt(1 + 1e-5), 1 / sqrt(1 + 1e-5)}, TS_F64);
    ts_expect_values("mean", ctx, t[2].tensor, 1, (double[]){.2}, TS_F64);
    ts_expect_values("var", ctx, t[3].tensor, 1, (double[]){1.1}, TS_F64);
    cr_expect_not_null(ct_module_forward(m, b));
    ts_expect_values("mean", ctx, t[2].tensor, 1, (double[]){.58}, TS_F64);
    ts_expect_values("var", ctx, t[3].tensor, 1, (double[]){1.79}, TS_F64);
    cr_expect_eq(batches_seen(ctx, m), 2);
    ct_module_train(m, false);
    ts_expect_values("eval", ctx, ct_module_forward(m, a), 2,
                     (double[]){.42 / sqrt(1.79 + 1e-5), 2.42 / sqrt(1.79 + 1e-5)}, TS_F64);
    cr_expect_eq(batches_seen(ctx, m), 2);
    ct_scope_end(ctx);
    ct_tensor_release(a);
    ct_tensor_release(b);
    ct_module_free(m);
    close_ctx(ctx);
}

Test(nn_layers, batchnorm_options)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_nn_batchnorm_opts o = ct_nn_batchnorm_defaults();
    ct_tensor *x = ts_mat(ctx, CT_F64, 2, 1, (double[]){1, 3});
    ct_module *m;

    o.affine = false;
    m = ct_nn_batchnorm2d_new(ctx, 3, o);
    expect_names(m, "[running_mean] [running_var] [num_batches_tracked]");
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    cr_expect_null(ct_module_forward(m, x));
    expect_text(ctx, CT_ESHAPE, "BatchNorm2d: expected input [N,C,H,W], got float64 [2,1]");
    ct_module_free(m);
    o.track_running_stats = false;
    m = ct_nn_batchnorm1d_new(ctx, 1, o);
    expect_names(m, "");
    ct_module_train(m, false); /* without running statistics the batch's count in evaluation too */
    ts_expect_values("y", ctx, ct_module_forward(m, x), 2,
                     (double[]){-0.9999949999749999, 0.9999949999749999}, (ts_tol){1e-8, 0});
    ct_module_free(m);
    ct_scope_end(ctx);
    o.momentum = 1.5;
    cr_expect_null(ct_nn_batchnorm1d_new(ctx, 1, o));
    expect_text(ctx, CT_EINVAL, "BatchNorm1d: momentum is 1.5: must be in 0..1");
    o.eps = -1;
    cr_expect_null(ct_nn_batchnorm1d_new(ctx, 1, o));
    expect_text(ctx, CT_EINVAL, "BatchNorm1d: eps is -1: must be in 0..1");
    cr_expect_null(ct_nn_batchnorm1d_new(ctx, 0, o));
    expect_text(ctx, CT_EINVAL, "BatchNorm1d: num_features is 0: must be at least 1");
    ct_tensor_release(x);
    close_ctx(ctx);
}

/* ---- layers without state ---- */

Test(nn_layers, dropout_modes)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_module *m = ct_nn_dropout_new(ctx, 0.25);
    const int64_t shape[] = {4000};
    ct_tensor *x = ct_tensor_new(ctx, CT_F32, 1, shape);
    int64_t zeros = 0;
    ts_array y;

    expect_names(m, "");
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    cr_expect_eq(ct_tensor_fill(ctx, x, 3), CT_OK);
    y = ts_values(ctx, ct_module_forward(m, x));
    for (int i = 0; i < 4000; i++) {
        cr_assert(y.v[i] == 0 || y.v[i] == 4);
        zeros += y.v[i] == 0;
    }
    cr_expect(zeros > 860 && zeros < 1140, "%d", (int)zeros); /* 5 deviations of 27 */
    ts_array_free(&y);
    ct_module_train(m, false);
    cr_expect_eq(ct_module_forward(m, x), x);
    ct_module_train(m, true);
    cr_expect_eq(ct_module_set_dropout(m, 0), 1);
    cr_expect_eq(ct_module_forward(m, x), x);
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_module_free(m);
    cr_expect_null(ct_nn_dropout_new(ctx, 1.5));
    expect_text(ctx, CT_EINVAL, "Dropout: p is 1.5: must be in 0..1");
    cr_expect_null(ct_nn_dropout_new(ctx, (double)NAN));
    expect_text(ctx, CT_EINVAL, "Dropout: p is nan: must be in 0..1");
    close_ctx(ctx);
}

/* Runs m on x and takes m. */
static void expect_output(ct_ctx *ctx, ct_module *m, const char *name, ct_tensor *x, int64_t n,
                          const double *want)
{
    cr_assert_not_null(m, "%s", ct_error_get(ctx)->text);
    cr_expect_str_eq(ct_module_name(m), name);
    expect_names(m, "");
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    ts_expect_values(name, ctx, ct_module_forward(m, x), n, want, TS_F64);
    ct_scope_end(ctx);
    ct_module_free(m);
}

Test(nn_layers, activations)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_tensor *x = ts_vec(ctx, CT_F64, 2, (double[]){-1, .5});

    expect_output(ctx, ct_nn_relu_new(ctx), "ReLU", x, 2, (double[]){0, .5});
    expect_output(ctx, ct_nn_gelu_new(ctx, false), "GELU", x, 2,
                  (double[]){-.15865525393145702, .34573123063700656});
    expect_output(ctx, ct_nn_gelu_new(ctx, true), "GELU", x, 2,
                  (double[]){-.15880800939172324, .34571400982514394});
    expect_output(ctx, ct_nn_silu_new(ctx), "SiLU", x, 2,
                  (double[]){-1 / (1 + exp(1)), .5 / (1 + exp(-.5))});
    expect_output(ctx, ct_nn_sigmoid_new(ctx), "Sigmoid", x, 2,
                  (double[]){1 / (1 + exp(1)), 1 / (1 + exp(-.5))});
    expect_output(ctx, ct_nn_tanh_new(ctx), "Tanh", x, 2, (double[]){tanh(-1), tanh(.5)});
    ct_tensor_release(x);
    close_ctx(ctx);
}

Test(nn_layers, pools_and_flatten)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    const int64_t shape[] = {1, 1, 2, 4};
    const double v[] = {1, 5, 2, 0, 3, 4, 8, 6};
    ct_tensor *x = ct_tensor_from(ctx, CT_F64, 4, shape, v);
    ct_pool2d_opts o = ct_pool2d_defaults(2), wide = ct_pool2d_defaults(2);
    ct_module *m;

    o.stride[0] = o.stride[1] = 0; /* the kernel's */
    expect_output(ctx, ct_nn_maxpool2d_new(ctx, o), "MaxPool2d", x, 2, (double[]){5, 8});
    expect_output(ctx, ct_nn_avgpool2d_new(ctx, o), "AvgPool2d", x, 2, (double[]){3.25, 4});
    expect_output(ctx, ct_nn_adaptive_avgpool2d_new(ctx, 1, 2), "AdaptiveAvgPool2d", x, 2,
                  (double[]){3.25, 4});
    expect_output(ctx, ct_nn_flatten_new(ctx, 1, -1), "Flatten", x, 8, v);
    m = ct_nn_flatten_new(ctx, 2, -1);
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    expect_shape(ct_module_forward(m, x), 3, (int64_t[]){1, 1, 8});
    ct_scope_end(ctx);
    ct_module_free(m);
    wide.padding[0] = 2;
    cr_expect_null(ct_nn_maxpool2d_new(ctx, wide));
    expect_text(ctx, CT_EINVAL, "MaxPool2d: padding is 2: must be at most half of the kernel (2)");
    wide.kernel[1] = 0;
    wide.padding[0] = 0;
    cr_expect_null(ct_nn_avgpool2d_new(ctx, wide));
    expect_text(ctx, CT_EINVAL, "AvgPool2d: kernel_size is 0: must be at least 1");
    cr_expect_null(ct_nn_adaptive_avgpool2d_new(ctx, 1, 0));
    expect_text(ctx, CT_EINVAL, "AdaptiveAvgPool2d: output_size is 0: must be at least 1");
    ct_tensor_release(x);
    close_ctx(ctx);
}

/* ---- residual ---- */

Test(nn_layers, residual)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_module *body = ct_nn_sequential_new(ctx), *m;
    ct_tensor *x = ts_mat(ctx, CT_F64, 1, 2, (double[]){-2, 3});

    ct_nn_sequential_add(body, ct_nn_relu_new(ctx));
    m = ct_nn_residual_new(ctx, body, NULL);
    expect_output(ctx, m, "Residual", x, 2, (double[]){-2, 6});
    m = ct_nn_residual_new(ctx, ct_nn_linear_new(ctx, 2, 3, true),
                           ct_nn_linear_new(ctx, 2, 3, false));
    expect_names(m, "body.weight body.bias shortcut.weight");
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    expect_shape(ct_module_forward(m, x), 2, (int64_t[]){1, 3});
    ct_module_free(m);
    m = ct_nn_residual_new(ctx, ct_nn_linear_new(ctx, 2, 1, true), NULL);
    cr_expect_null(ct_module_forward(m, x)); /* it would broadcast */
    expect_text(ctx, CT_ESHAPE, "Residual: the body gives [1,1], the input is [1,2]");
    ct_scope_end(ctx);
    ct_module_free(m);
    cr_expect_null(ct_nn_residual_new(ctx, NULL, ct_nn_relu_new(ctx)));
    expect_text(ctx, CT_EINVAL, "Residual: body is NULL");
    ct_tensor_release(x);
    close_ctx(ctx);
}

/* ---- embeddings, images ---- */

Test(nn_layers, embedding_is_normal_with_zeros_in_the_row_of_the_padding)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_module *m = ct_nn_embedding_new(ctx, 100, 50, -2);
    ct_tensor *w = ct_module_get_param(m, "weight");
    ts_array v = ts_values(ctx, w);
    double sum = 0, squares = 0;

    expect_names(m, "weight");
    expect_shape(w, 2, (int64_t[]){100, 50});
    for (int64_t i = 0; i < v.n; i++) {
        cr_expect_eq(v.v[i] == 0, i / 50 == 98);
        sum += v.v[i];
        squares += v.v[i] * v.v[i];
    }
    cr_expect_lt(fabs(sum / 4950), 5 / sqrt(4950));
    cr_expect_lt(fabs(squares / 4950 - 1), 5 * sqrt(2. / 4950));
    ct_tensor *ids = ts_vec(ctx, CT_I64, 3, (double[]){98, 3, 98});
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    ct_tensor *y = ct_module_forward(m, ids);
    expect_shape(y, 2, (int64_t[]){3, 50});
    cr_expect_eq(ct_backward(ctx, ct_sum(y, NULL, 0, false), NULL, CT_BACKWARD_DEFAULT), CT_OK);
    ts_array g = ts_values(ctx, ct_tensor_grad(w));
    for (int64_t i = 0; i < g.n; i++)
        cr_expect_eq(g.v[i], i / 50 == 3);
    ct_scope_end(ctx);
    ts_array_free(&v);
    ts_array_free(&g);
    ct_tensor_release(ids);
    ct_module_free(m);
    cr_expect_null(ct_nn_embedding_new(ctx, 10, 4, 10));
    expect_text(ctx, CT_EINVAL, "Embedding: padding_idx is 10: must be from -10 to 9");
    cr_expect_null(ct_nn_embedding_new(ctx, 0, 4, CT_NO_PADDING));
    expect_text(ctx, CT_EINVAL, "Embedding: num_embeddings is 0: must be at least 1");
    close_ctx(ctx);
}

Test(nn_layers, embedding_bag_joins_rows)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_module *m = ct_nn_embedding_bag_new(ctx, 3, 2, CT_BAG_MEAN, 0);
    const double w[] = {9, 9, 1, 2, 3, 5};
    ct_tensor *ids = ts_mat(ctx, CT_I64, 2, 3, (double[]){1, 2, 0, 0, 0, 0});

    expect_names(m, "weight");
    ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    cr_expect_eq(ct_tensor_write(ctx, ct_module_get_param(m, "weight"), w, sizeof w), CT_OK);
    ts_expect_values("mean", ctx, ct_module_forward(m, ids), 4, (double[]){2, 3.5, 0, 0}, TS_F64);
    ct_scope_end(ctx);
    ct_tensor_release(ids);
    ct_module_free(m);
    cr_expect_null(ct_nn_embedding_bag_new(ctx, 3, 2, (ct_bag_mode)3, 0));
    expect_text(ctx, CT_EINVAL, "EmbeddingBag: mode 3 is none of CT_BAG_*");
    close_ctx(ctx);
}

Test(nn_layers, upsample_and_pixel_shuffle)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_interpolate_opts o = {.scale = {1, 2}, .mode = CT_INTERPOLATE_BILINEAR};
    ct_module *up = ct_nn_upsample_new(ctx, o), *shuffle = ct_nn_pixel_shuffle_new(ctx, 2);
    ct_tensor *x = ts_vec(ctx, CT_F64, 2, (double[]){0, 1});
    ct_tensor *c = ts_vec(ctx, CT_F64, 4, (double[]){1, 2, 3, 4});

    ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    ct_tensor *y = ct_module_forward(up, ct_reshape(x, 4, (int64_t[]){1, 1, 1, 2}));
    ts_expect_values("bilinear", ctx, y, 4, (double[]){0, .25, .75, 1}, TS_EXACT);
    y = ct_module_forward(shuffle, ct_reshape(c, 4, (int64_t[]){1, 4, 1, 1}));
    expect_shape(y, 4, (int64_t[]){1, 1, 2, 2});
    ts_expect_values("shuffle", ctx, y, 4, (double[]){1, 2, 3, 4}, TS_EXACT);
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_tensor_release(c);
    ct_module_free(up);
    ct_module_free(shuffle);
    o.size[0] = 3;
    cr_expect_null(ct_nn_upsample_new(ctx, o));
    expect_text(ctx, CT_EINVAL,
                "Upsample: size 3 and scale_factor 1: one of them must be given, more than 0");
    cr_expect_null(ct_nn_pixel_shuffle_new(ctx, 0));
    expect_text(ctx, CT_EINVAL, "PixelShuffle: upscale_factor is 0: must be at least 1");
    close_ctx(ctx);
}
