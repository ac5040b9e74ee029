/* SPDX-License-Identifier: Apache-2.0 */
/* 200 steps on the digits in bfloat16 by autocast go as in float32: a conv net and a small transformer. */
#include "support/support.h"

#include <criterion/criterion.h>
#include <ctrain/data.h>
#include <ctrain/nn.h>
#include <ctrain/optim.h>
#include <math.h>
#include <stdlib.h>

TestSuite(precision, .timeout = 120);

enum { BATCH = 32, TOKENS = 8, WIDTH = 32, MOST = 64 };

/* The software double takes half a second a step. */
static int steps(void)
{
    return ts_on_cuda() ? 12 : 200;
}

static int last(void)
{
    return ts_on_cuda() ? 6 : 20;
}

typedef struct batches {
    ct_dataset *ds;
    float pixels[BATCH * 64];
    int64_t labels[BATCH];
} batches;

static void fill(batches *b, int step)
{
    ct_error err = {0};
    const int64_t n = ct_dataset_get_info(b->ds)->count;
    for (int i = 0; i < BATCH; i++) {
        void *const out[] = {b->pixels + 64 * i, b->labels + i};
        cr_assert_eq(ct_dataset_get(b->ds, (step * 1009LL + i * 37LL) % n, out, &err), CT_OK, "%s",
                     err.text);
    }
}

typedef ct_module *(*build_fn)(ct_ctx *ctx);
typedef ct_tensor *(*forward_fn)(ct_module *net, ct_tensor *x);

static ct_module *conv_net(ct_ctx *ctx)
{
    return ct_nn_layers_new(ctx,
                            "conv2d(16, 3, padding=1) batchnorm2d relu conv2d(32, 3, padding=1) "
                            "batchnorm2d relu maxpool2d(2) flatten linear(10)",
                            3, (int64_t[]){1, 8, 8});
}

static ct_tensor *plain(ct_module *net, ct_tensor *x)
{
    return ct_module_forward(net, x);
}

/* The rows of an image are its tokens. */
static ct_module *transformer(ct_ctx *ctx)
{
    ct_nn_transformer_opts o = ct_nn_transformer_defaults();
    o.heads = 4;
    o.feedforward = 2 * WIDTH;
    o.dropout = 0;
    o.gelu = o.batch_first = true;
    ct_module *net = ct_nn_sequential_new(ctx);
    int r = ct_nn_sequential_add(net, ct_nn_linear_new(ctx, 8, WIDTH, true));
    for (int i = 0; i < 2; i++)
        r |= ct_nn_sequential_add(net, ct_nn_transformer_encoder_layer_new(ctx, WIDTH, o));
    r |= ct_nn_sequential_add(net, ct_nn_flatten_new(ctx, 1, -1));
    r |= ct_nn_sequential_add(net, ct_nn_linear_new(ctx, TOKENS * WIDTH, 10, true));
    cr_assert(!r, "%s", ct_error_get(ctx)->text);
    return net;
}

static ct_tensor *by_rows(ct_module *net, ct_tensor *x)
{
    return ct_module_forward(net, ct_reshape(x, 3, (int64_t[]){BATCH, TOKENS, 8}));
}

/* The mean of the last losses. */
static double train(build_fn build, forward_fn forward, unsigned autocast)
{
    batches *b = ts_alloc(sizeof *b);
    ct_error err = {0};
    b->ds = ct_digits_open(&err);
    cr_assert_not_null(b->ds, "%s", err.text);
    ct_ctx *ctx = ts_ctx(CT_F32, false);
    ct_module *net = build(ctx);
    ct_named_tensor params[MOST];
    int n = ct_module_state(net, params, MOST);
    ct_optim *optim = ct_adamw_new(ctx, params, n, ct_adamw_defaults());
    cr_assert(optim && n <= MOST, "%s", ct_error_get(ctx)->text);
    double mean = 0;
    for (int step = 0; step < steps(); step++) {
        double loss = NAN;
        fill(b, step);
        cr_assert_eq(ct_scope_begin(ctx, CT_SCOPE_STEP | autocast), CT_OK);
        ct_tensor *x = ct_tensor_from(ctx, CT_F32, 4, (int64_t[]){BATCH, 1, 8, 8}, b->pixels);
        ct_tensor *y = ct_tensor_from(ctx, CT_I64, 1, (int64_t[]){BATCH}, b->labels);
        ct_tensor *out = forward(net, x),
                  *l = ct_cross_entropy(out, y, ct_cross_entropy_defaults());
        cr_assert(out && (ct_tensor_dtype(out) == CT_BF16) == (autocast != 0), "%s",
                  ct_error_get(ctx)->text);
        int r = ct_backward(ctx, l, NULL, CT_BACKWARD_DEFAULT);
        r = r ? r : ct_optim_step(ctx, optim, ct_step_defaults());
        r = r ? r : ct_tensor_item(ctx, l, &loss);
        cr_assert(!r, "step %d: %s", step, ct_error_get(ctx)->text);
        ct_optim_zero_grad(optim);
        ct_tensor_release(x), ct_tensor_release(y);
        cr_assert_eq(ct_scope_end(ctx), CT_OK);
        mean += step >= steps() - last() ? loss / last() : 0;
    }
    ct_optim_free(optim);
    ct_module_free(net);
    ct_ctx_free(ctx);
    ct_dataset_free(b->ds);
    free(b);
    return mean;
}

static void compare(build_fn build, forward_fn forward)
{
    double full = train(build, forward, 0), low = train(build, forward, CT_SCOPE_AUTOCAST_BF16);
    cr_expect(full < 0.5 || ts_on_cuda(), "it doesn't learn: %g", full);
    cr_expect(fabs(low - full) <= 0.02 * full && low != full, "bfloat16 %g, float32 %g", low, full);
}

Test(precision, of_a_conv_net_in_bfloat16_is_enough)
{
    compare(conv_net, plain);
}

Test(precision, of_a_transformer_in_bfloat16_is_enough)
{
    compare(transformer, by_rows);
}
