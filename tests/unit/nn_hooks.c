/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around a module's forward: hooks, checkpointing, labels of anomaly detection. */
#include "nn_fixture.h"

#include <math.h>

static ct_ctx *ctx;

static void setup(void)
{
    ctx = open_ctx(CT_F64);
}

static void teardown(void)
{
    close_ctx(ctx);
}

TestSuite(module_hooks, .init = setup, .fini = teardown);

static int calls;

static ct_tensor *negate_input(ct_module *m, ct_tensor *x, void *user)
{
    (void)m;
    (void)user;
    calls++;
    return ct_neg(x);
}

static ct_tensor *double_output(ct_module *m, ct_tensor *x, ct_tensor *y, void *user)
{
    (void)m;
    (void)x;
    (void)user;
    calls++;
    return ct_affine(y, 2, 0);
}

static ct_tensor *triple_gradient(ct_module *m, ct_tensor *grad, void *user)
{
    (void)m;
    calls++;
    if (user)
        *(double *)user = 0;
    return ct_affine(grad, 3, 0);
}

static ct_tensor *only_looks(ct_module *m, ct_tensor *grad, void *user)
{
    (void)m;
    double *seen = user;
    calls++;
    if (ct_tensor_item(ct_tensor_ctx(grad), ct_sum(grad, NULL, 0, false), seen))
        *seen = NAN;
    return NULL;
}

static double grad_sum(ct_tensor *x)
{
    double v = NAN;
    cr_assert(ct_tensor_grad(x) && !ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    cr_assert(!ct_tensor_item(ctx, ct_sum(ct_tensor_grad(x), NULL, 0, false), &v));
    cr_assert(!ct_scope_end(ctx));
    return v;
}

static ct_tensor *input(double v)
{
    ct_tensor *x = ct_tensor_new(ctx, CT_F64, 2, (int64_t[]){1, 2});
    cr_assert(!ct_tensor_fill(ctx, x, v) && !ct_tensor_set_requires_grad(ctx, x, true));
    return x;
}

static double run(ct_module *m, ct_tensor *x)
{
    double v = NAN;
    cr_assert(!ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *y = ct_sum(ct_module_forward(m, x), NULL, 0, false);
    cr_assert(y && !ct_tensor_item(ctx, y, &v) && !ct_backward(ctx, y, NULL, 0), "%s",
              ct_error_get(ctx)->text);
    cr_assert(!ct_scope_end(ctx));
    return v;
}

Test(module_hooks, before_and_after_forward_change_input_and_output)
{
    ct_module *m = ct_nn_relu_new(ctx);
    ct_tensor *x = input(-3);
    calls = 0;
    uint64_t before = ct_module_register_forward_pre_hook(m, negate_input, NULL);
    uint64_t after = ct_module_register_forward_hook(m, double_output, NULL);
    cr_expect(before && after);
    cr_expect_eq(run(m, x), 12);
    cr_expect_eq(calls, 2);
    cr_expect_eq(grad_sum(x), -4);
    cr_expect(!ct_module_remove_hook(m, before));
    cr_expect_eq(run(m, x), 0);
    cr_expect_eq(calls, 3);
    cr_expect_eq(ct_module_remove_hook(m, before), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "has no hook", NULL);
    ct_module_free(m);
    ct_tensor_release(x);
}

Test(module_hooks, of_backward_see_and_change_gradients_of_output_and_input)
{
    ct_module *m = ct_nn_relu_new(ctx);
    ct_tensor *x = input(2);
    double seen = NAN;
    calls = 0;
    cr_expect(ct_module_register_backward_pre_hook(m, triple_gradient, NULL));
    cr_expect(ct_module_register_backward_hook(m, only_looks, &seen));
    run(m, x);
    cr_expect_eq(calls, 2);
    cr_expect_eq(seen, 6);
    cr_expect_eq(grad_sum(x), 6);
    ct_module_free(m);
    ct_tensor_release(x);
}

Test(module_hooks, of_the_input_change_what_this_module_gives_alone)
{
    ct_module *m = ct_nn_relu_new(ctx);
    ct_tensor *x = input(2);
    cr_expect(ct_module_register_backward_hook(m, triple_gradient, NULL));
    cr_assert(!ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *y = ct_add(ct_module_forward(m, x), x); /* x goes by beside the module, too */
    cr_assert(!ct_backward(ctx, ct_sum(y, NULL, 0, false), NULL, 0));
    cr_assert(!ct_scope_end(ctx));
    cr_expect_eq(grad_sum(x), 2 * (3 + 1));
    ct_module_free(m);
    ct_tensor_release(x);
}

Test(module_hooks, must_be_functions)
{
    ct_module *m = ct_nn_relu_new(ctx);
    cr_expect_eq(ct_module_register_forward_hook(m, NULL, NULL), 0);
    ts_expect_error(ctx, CT_EINVAL, "the hook is NULL", NULL);
    ct_module_free(m);
}

Test(module_hooks, leave_a_checkpointed_module_its_gradients_and_its_masks)
{
    double loss[2], grad[2];
    for (int k = 0; k < 2; k++) {
        ct_module *m =
            ct_nn_layers_new(ctx, "linear(8) tanh dropout(0.5) linear(3) tanh", 1, (int64_t[]){2});
        ct_tensor *x = input(0.7), *w = ct_module_get_param(m, "0.weight");
        cr_assert(w && !ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
        for (int p = 0; p < 4; p++) {
            static const char *const names[] = {"0.weight", "0.bias", "3.weight", "3.bias"};
            cr_assert(!ct_tensor_fill(ctx, ct_module_get_param(m, names[p]), 0.1 + p));
        }
        cr_assert(!ct_scope_end(ctx));
        ct_module_set_checkpoint(m, k);
        ct_ctx_set_position(ctx, 4, 0);
        loss[k] = run(m, x);
        grad[k] = grad_sum(w) + 10 * grad_sum(x);
        ct_module_free(m);
        ct_tensor_release(x);
    }
    cr_expect_eq(loss[0], loss[1]);
    cr_expect_eq(grad[0], grad[1]);
}

Test(module_hooks, a_checkpointed_batch_norm_counts_a_batch_once)
{
    double mean[2][2], batches[2];
    for (int k = 0; k < 2; k++) {
        ct_module *m = ct_nn_layers_new(ctx, "linear(2) batchnorm1d", 1, (int64_t[]){2});
        ct_tensor *x = ct_tensor_from(ctx, CT_F64, 2, (int64_t[]){2, 2}, (double[]){1, 2, 3, 5});
        ct_named_tensor named[16];
        int n = ct_module_state(m, named, 16);
        cr_assert(x && !ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
        for (int i = 0; i < n; i++)
            if (!named[i].is_buffer)
                cr_assert(!ct_tensor_fill(ctx, named[i].tensor, 0.5));
        cr_assert(!ct_scope_end(ctx));
        ct_module_set_checkpoint(m, k);
        run(m, x);
        for (int i = 0; i < n; i++) {
            if (strstr(named[i].name, "running_mean"))
                cr_assert(!ct_tensor_read(ctx, named[i].tensor, mean[k], sizeof mean[k]));
            if (strstr(named[i].name, "num_batches"))
                cr_assert(!ct_tensor_item(ctx, named[i].tensor, &batches[k]));
        }
        ct_module_free(m);
        ct_tensor_release(x);
    }
    cr_expect_eq(mean[0][0], mean[1][0]);
    cr_expect_eq(batches[1], 1);
}

static ct_tensor *log_forward(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    (void)self;
    return ct_log(x);
}

Test(module_hooks, anomaly_detection_knows_the_path_of_the_module)
{
    static const ct_module_ops ops = {.name = "Log", .forward = log_forward};
    ct_module *seq = ct_nn_sequential_new(ctx), *inner = ct_nn_sequential_new(ctx);
    cr_assert(!ct_nn_sequential_add(seq, ct_nn_relu_new(ctx)) && !ct_nn_sequential_add(seq, inner));
    cr_assert(!ct_nn_sequential_add(inner, ct_module_new(ctx, &ops, 0)));
    ct_tensor *x = input(0);
    cr_assert(!ct_scope_begin(ctx, CT_SCOPE_ANOMALY));
    cr_expect_null(ct_module_forward(seq, x));
    ts_expect_error(ctx, CT_ENONFINITE, "log: made the first Inf, in 1.0;", NULL);
    cr_assert(!ct_scope_end(ctx));
    ct_module_free(seq);
    ct_tensor_release(x);
}
