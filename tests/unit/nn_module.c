/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: names, order, ownership, modes, freezing, errors with a path, summary. */
#include "nn_fixture.h"

#include <stdio.h>

/* ---- a module of an application's own ---- */

typedef struct scale {
    ct_tensor *gain;
    int *freed;
} scale;

static ct_tensor *scale_forward(ct_module *m, void *self, ct_tensor *x)
{
    cr_expect_eq(ct_module_self(m), self);
    return ct_mul(x, ((scale *)self)->gain);
}

static void scale_free(void *self)
{
    ++*((scale *)self)->freed;
}

static const ct_module_ops scale_ops = {"Scale", scale_forward, NULL, scale_free};

static ct_module *scale_new(ct_ctx *ctx, int *freed)
{
    ct_module *m = ct_module_new(ctx, &scale_ops, sizeof(scale));
    scale *s = ct_module_self(m);

    s->freed = freed;
    cr_assert_eq(ct_module_add_param(m, "gain", ct_tensor_scalar(ctx, CT_F64, 2)), CT_OK);
    s->gain = ct_module_get_param(m, "gain");
    return m;
}

Test(nn_module, own_module)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    int freed = 0;
    ct_module *m = scale_new(ctx, &freed);
    ct_tensor *x, *y;

    cr_expect_str_eq(ct_module_name(m), "Scale");
    cr_expect_eq(ct_module_ctx(m), ctx);
    expect_names(m, "gain");
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    x = ts_vec(ctx, CT_F64, 2, (double[]){1, 3});
    y = ct_module_forward(m, x);
    ts_expect_values("y", ctx, y, 2, (double[]){2, 6}, TS_F64);
    cr_expect_eq(ct_backward(ctx, ct_sum(y, NULL, 0, false), NULL, 0), CT_OK);
    ts_expect_values("grad", ctx, ct_tensor_grad(ct_module_get_param(m, "gain")), 1, (double[]){4},
                     TS_F64);
    ct_module_zero_grad(m);
    cr_expect_null(ct_tensor_grad(ct_module_get_param(m, "gain")));
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_module_free(m);
    cr_expect_eq(freed, 1);
    close_ctx(ctx);
}

Test(nn_module, state_order_is_own_first)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    int freed = 0;
    ct_module *m = scale_new(ctx, &freed);
    const char *name;

    /* A child first, then more of its own: PyTorch still lists parameters, buffers, children. */
    cr_expect_eq(ct_module_add_child(m, "a", ct_nn_linear_new(ctx, 2, 3, true)), CT_OK);
    cr_expect_eq(ct_module_add_buffer(m, "seen", ct_tensor_scalar(ctx, CT_I64, 0)), CT_OK);
    cr_expect_eq(ct_module_add_param(m, "shift", ct_tensor_scalar(ctx, CT_F32, 0)), CT_OK);
    expect_names(m, "gain shift [seen] a.weight a.bias");
    cr_expect_eq(ct_module_n_children(m), 1);
    cr_expect_str_eq(ct_module_name(ct_module_child(m, 0, &name)), "Linear");
    cr_expect_str_eq(name, "a");
    cr_expect_null(ct_module_child(m, 1, NULL));
    cr_expect_null(ct_module_child(m, -1, NULL));
    cr_expect_eq(ct_module_n_params(m), 1 + 1 + 6 + 3);
    cr_expect_not_null(ct_module_get_param(m, "a.bias"));
    cr_expect_null(ct_module_get_param(m, "a.bia"));
    cr_expect_null(ct_module_get_param(m, "seen"));
    cr_expect_null(ct_module_get_param(m, "b.bias"));
    cr_expect_null(ct_module_get_param(m, "a.bias.x"));
    ct_module_free(ct_module_child(m, 0, NULL)); /* a child isn't freed */
    expect_names(m, "gain shift [seen] a.weight a.bias");
    ct_module_free(m);
    close_ctx(ctx);
}

Test(nn_module, shared_parameter_counts_once)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_module *seq = ct_nn_sequential_new(ctx);
    int freed = 0;

    cr_assert_eq(ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, 4, 4, false)), CT_OK);
    cr_assert_eq(ct_nn_sequential_add(seq, scale_new(ctx, &freed)), CT_OK);
    cr_assert_eq(ct_module_add_param(ct_module_child(seq, 1, NULL), "tied",
                                     ct_tensor_retain(ct_module_get_param(seq, "0.weight"))),
                 CT_OK);
    expect_names(seq, "0.weight 1.gain 1.tied");
    cr_expect_eq(ct_module_n_params(seq), 17);
    ct_module_free(seq);
    close_ctx(ctx);
}

Test(nn_module, adding_refuses)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_ctx *other = open_ctx(CT_F32);
    ct_module *m = ct_nn_sequential_new(ctx), *child = ct_nn_relu_new(ctx);
    char longname[128];

    cr_assert_eq(ct_nn_sequential_add(m, child), CT_OK);
    cr_expect_eq(ct_module_add_param(m, "a.b", ct_tensor_scalar(ctx, CT_F32, 0)), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Sequential: 'a.b' is no name: one or more characters, no dot");
    cr_expect_eq(ct_module_add_param(m, "", ct_tensor_scalar(ctx, CT_F32, 0)), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Sequential: '' is no name: one or more characters, no dot");
    cr_expect_eq(ct_module_add_buffer(m, "0", ct_tensor_scalar(ctx, CT_F32, 0)), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Sequential: there is a '0' already");
    cr_expect_eq(ct_module_add_param(m, "i", ct_tensor_scalar(ctx, CT_I64, 0)), CT_EDTYPE);
    ct_error_clear(ctx);
    cr_expect_eq(ct_module_add_param(m, "w", NULL), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "tensor is NULL");
    cr_expect_eq(ct_module_add_child(m, "c", NULL), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "child is NULL");
    cr_expect_eq(ct_module_add_child(NULL, "c", ct_nn_relu_new(ctx)), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "module is NULL");
    cr_expect_eq(ct_module_add_child(m, "again", child), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Sequential: '0' is a child already");
    cr_expect_eq(ct_module_add_child(m, "self", m), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Sequential: a module can't be its own child");
    cr_expect_eq(ct_module_add_child(m, "far", ct_nn_relu_new(other)), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Sequential: child 'far' is of another context");
    cr_expect_eq(ct_module_add_buffer(m, "far", ct_tensor_scalar(other, CT_F32, 0)), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Sequential: 'far' is a tensor of another context");
    memset(longname, 'x', sizeof longname - 1);
    longname[sizeof longname - 1] = '\0';
    longname[110] = '\0'; /* "0." before it makes 112 */
    cr_expect_eq(ct_module_add_param(child, longname, ct_tensor_scalar(ctx, CT_F32, 0)), CT_EINVAL);
    cr_expect_eq(ts_expect_error(ctx, CT_EINVAL, "over 111 bytes", NULL), true);
    longname[109] = '\0';
    cr_expect_eq(ct_module_add_param(child, longname, ct_tensor_scalar(ctx, CT_F32, 0)), CT_OK);
    cr_expect_eq(ct_module_n_children(m), 1);
    cr_expect_null(ct_module_new(ctx, NULL, 0));
    ct_error_clear(ctx);
    ct_module_free(m);
    ct_module_free(NULL);
    close_ctx(ctx);
    close_ctx(other);
}

/* Building goes on after a failure without a check between: the first error stays, nothing leaks. */
Test(nn_module, failed_build_cleans_up)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_module *seq = ct_nn_sequential_new(ctx);

    ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, 4, 4, true));
    cr_expect_eq(ct_nn_sequential_add(seq, ct_nn_linear_new(ctx, 4, 0, true)), CT_EINVAL);
    cr_expect_eq(ct_nn_sequential_add(seq, ct_nn_relu_new(ctx)), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "Linear: out_features is 0: must be at least 1");
    cr_expect_eq(ct_module_n_children(seq), 1);
    ct_module_free(seq);
    close_ctx(ctx);
}

Test(nn_module, every_allocation_failing)
{
    for (uint64_t n = 1; n < 400; n++) {
        ct_ctx *ctx = open_ctx(CT_F32);
        const int64_t shape[] = {1, 6, 6};
        ct_module *m;
        bool failed;

        ct_ctx_fail_alloc_at(ctx, n, true);
        m = ct_nn_layers_new(
            ctx, "conv2d(2, 3) batchnorm2d relu residual(conv2d(2, 1)) flatten linear(3)", 3,
            shape);
        failed = ct_ctx_alloc_failed(ctx);
        ct_ctx_fail_alloc_at(ctx, 0, false);
        cr_expect_eq(m == NULL, failed, "allocation %d: %s", (int)n, ct_error_get(ctx)->text);
        cr_expect_eq(ct_error_code(ctx), failed ? CT_ENOMEM : CT_OK);
        ct_error_clear(ctx);
        ct_module_free(m);
        close_ctx(ctx);
        if (!failed)
            return;
    }
    cr_assert_fail("more allocations than expected");
}

/* ---- modes ---- */

Test(nn_module, train_eval_freeze)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    const int64_t shape[] = {3};
    ct_module *m = ct_nn_layers_new(
        ctx, "linear(4) batchnorm1d dropout(0.3) residual(linear(4) dropout)", 1, shape);
    ct_module *inner;

    cr_assert_not_null(m, "%s", ct_error_get(ctx)->text);
    inner = ct_module_child(ct_module_child(ct_module_child(m, 3, NULL), 0, NULL), 1, NULL);
    cr_expect_str_eq(ct_module_name(inner), "Dropout");
    cr_expect(ct_module_is_training(m) && ct_module_is_training(inner));
    ct_module_train(m, false);
    cr_expect(!ct_module_is_training(m) && !ct_module_is_training(inner));
    ct_module_train(inner, true);
    cr_expect(!ct_module_is_training(m) && ct_module_is_training(inner));
    cr_expect_eq(ct_module_set_dropout(m, 0), 2);

    cr_expect(ct_tensor_requires_grad(ct_module_get_param(m, "3.body.0.weight")));
    cr_expect_eq(ct_module_set_requires_grad(ct_module_child(m, 0, NULL), false), CT_OK);
    cr_expect(!ct_tensor_requires_grad(ct_module_get_param(m, "0.weight")));
    cr_expect(!ct_tensor_requires_grad(ct_module_get_param(m, "0.bias")));
    cr_expect(ct_tensor_requires_grad(ct_module_get_param(m, "1.weight")));
    cr_expect_eq(ct_module_set_requires_grad(m, true), CT_OK);
    cr_expect(ct_tensor_requires_grad(ct_module_get_param(m, "0.weight")));
    ct_module_free(m);
    close_ctx(ctx);
}

/* ---- errors ---- */

Test(nn_module, forward_error_names_the_layer)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    const int64_t six[] = {6};
    ct_module *m = ct_nn_layers_new(ctx, "linear(4) residual(relu linear(4))", 1, six);
    const char *text;
    ct_tensor *x;

    cr_assert_not_null(m);
    x = ts_mat(ctx, CT_F32, 1, 5, (double[5]){0});
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    cr_expect_null(ct_module_forward(m, x));
    text = ct_error_get(ctx)->text;
    cr_expect_eq(strncmp(text, "layer 0 (Linear): linear: ", 26), 0, "%s", text);
    ct_error_clear(ctx);
    cr_expect_null(ct_module_forward(ct_module_child(m, 1, NULL), x));
    text = ct_error_get(ctx)->text;
    cr_expect_eq(strncmp(text, "layer 1.body.1 (Linear): linear: ", 33), 0, "%s", text);
    ct_error_clear(ctx);
    cr_expect_null(ct_module_forward(m, NULL));
    expect_text(ctx, CT_EINVAL, "Sequential: the input is NULL");
    cr_expect_null(ct_module_forward(NULL, x));
    expect_text(ctx, CT_EINVAL, "no module");
    ct_scope_end(ctx);
    ct_tensor_release(x);
    ct_module_free(m);
    close_ctx(ctx);
}

/* ---- summary ---- */

Test(nn_module, summary)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    const int64_t shape[] = {1, 8, 8}, batch[] = {1, 1, 8, 8};
    ct_module *m = ct_nn_layers_new(ctx,
                                    "conv2d(4, 3, padding=1, bias=false) batchnorm2d relu dropout "
                                    "maxpool2d(2) flatten linear(10)",
                                    3, shape);
    char got[4096], small[8];
    int n;

    cr_assert_not_null(m, "%s", ct_error_get(ctx)->text);
    ct_module_train(ct_module_child(m, 1, NULL), false); /* a mode of its own is kept */
    n = ct_module_summary(m, 4, batch, got, sizeof got);
    cr_expect_eq(n, (int)strlen(got));
    cr_expect_eq(n, ct_module_summary(m, 4, batch, NULL, 0));
    cr_expect_eq(n, ct_module_summary(m, 4, batch, small, sizeof small));
    cr_expect_eq(strlen(small), 7);
    for (const char *p =
             "Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=false)\0"
             "[1,4,8,8]\0BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=true, "
             "track_running_stats=true)\0MaxPool2d(kernel_size=(2, 2), stride=(2, 2), "
             "padding=(0, 0))\0[1,4,4,4]\0Linear(in_features=64, out_features=10, "
             "bias=true)\0[1,64]\0[1,10]\0"
             "694 parameters, 694 of them trained\n\0";
         *p; p += strlen(p) + 1)
        cr_expect(strstr(got, p), "no '%s' in\n%s", p, got);
    cr_expect(ct_module_is_training(m) && !ct_module_is_training(ct_module_child(m, 1, NULL)));
    cr_expect(ct_module_is_training(ct_module_child(m, 3, NULL)));
    cr_expect_eq(ct_module_summary(m, 3, shape, got, sizeof got), CT_ESHAPE);
    cr_expect(ct_module_is_training(m));
    ct_error_clear(ctx);
    ct_module_free(m);
    close_ctx(ctx);
}
