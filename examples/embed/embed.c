/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain inside an application: trains a two-layer net on a toy task, provokes a shape error, reads the
 * message, and goes on.
 *
 *     cc embed.c $(pkg-config --cflags --libs ctrain) -o embed && ./embed
 */
#include <ctrain/ctrain.h>
#include <math.h>
#include <stdio.h>

enum { N = 64, IN = 2, HIDDEN = 16, CLASSES = 2, STEPS = 200 };

/* Two rings: class 0 inside, class 1 outside. */
static void make_data(float *x, int64_t *y)
{
    for (int i = 0; i < N; i++) {
        double angle = 2.4 * i, radius = i % 2 ? 1.5 : 0.5;
        x[2 * i] = (float)(radius * cos(angle));
        x[2 * i + 1] = (float)(radius * sin(angle));
        y[i] = i % 2;
    }
}

static ct_module *make_net(ct_ctx *ctx)
{
    ct_module *net = ct_nn_sequential_new(ctx);
    if (!net)
        return NULL;
    /* Each call takes its child, and passes on the error of a child that could not be made. */
    ct_nn_sequential_add(net, ct_nn_linear_new(ctx, IN, HIDDEN, true));
    ct_nn_sequential_add(net, ct_nn_tanh_new(ctx));
    ct_nn_sequential_add(net, ct_nn_linear_new(ctx, HIDDEN, CLASSES, true));
    return net;
}

static int train(ct_ctx *ctx, ct_module *net, ct_tensor *x, ct_tensor *y)
{
    ct_named_tensor params[8];
    int n = ct_module_state(net, params, 8);
    ct_adam_opts opts = ct_adamw_defaults();
    opts.lr = 0.05;
    ct_optim *adamw = ct_adamw_new(ctx, params, n, opts);
    double loss = NAN;
    for (int step = 0; step < STEPS; step++) {
        if (ct_scope_begin(ctx, CT_SCOPE_STEP) < 0)
            break;
        ct_tensor *l = ct_cross_entropy(ct_module_forward(net, x), y, ct_cross_entropy_defaults());
        /* A failed forward or backward can't update a weight: each acting call returns the pending error. */
        int r = ct_backward(ctx, l, NULL, CT_BACKWARD_DEFAULT);
        r = r < 0 ? r : ct_optim_step(ctx, adamw, ct_step_defaults());
        r = r < 0 || step < STEPS - 1 ? r : ct_tensor_item(ctx, l, &loss);
        ct_optim_zero_grad(adamw);
        if (ct_scope_end(ctx) < 0 || r < 0)
            break;
    }
    ct_optim_free(adamw);
    if (ct_error_code(ctx) == CT_OK)
        printf("loss after %d steps: %.4f\n", STEPS, loss);
    return ct_error_code(ctx) == CT_OK && loss < 0.1 ? 0 : 1;
}

int main(void)
{
    ct_error err = {0};
    ct_ctx *ctx = ct_ctx_new(ct_ctx_defaults(), &err);
    if (!ctx) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    float xs[N * IN];
    int64_t ys[N];
    make_data(xs, ys);
    ct_tensor *x = ct_tensor_from(ctx, CT_F32, 2, (int64_t[]){N, IN}, xs);
    ct_tensor *y = ct_tensor_from(ctx, CT_I64, 1, (int64_t[]){N}, ys);
    ct_module *net = make_net(ctx);

    /* A mistake is an error record, not the end of the application. */
    int failed = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD) < 0;
    ct_tensor *wrong = ct_module_forward(net, ct_transpose(x, 0, 1));
    printf("as it should: %s\n", ct_error_get(ctx)->text);
    failed |= wrong != NULL || ct_error_code(ctx) != CT_ESHAPE;
    ct_error_clear(ctx);
    failed |= ct_scope_end(ctx) < 0;

    failed |= train(ctx, net, x, y);
    if (ct_error_code(ctx) != CT_OK)
        fprintf(stderr, "%s\n", ct_error_get(ctx)->text);

    ct_module_free(net);
    ct_tensor_release(y);
    ct_tensor_release(x);
    ct_ctx_free(ctx);
    return failed;
}
