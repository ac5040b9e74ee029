/* SPDX-License-Identifier: Apache-2.0 */
/* What bfloat16 brings: `bench-precision WIDTH BATCH ROUNDS` trains one linear layer WIDTH x WIDTH on BATCH rows,
 * a step in float32 and one under autocast in turn, and prints for each round the milliseconds of both. A step is
 * forward, backward with the gradient of the input, and AdamW. */
#define _POSIX_C_SOURCE 200809L
#include <ctrain/ctrain.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct layer {
    ct_ctx *ctx;
    ct_module *linear;
    ct_named_tensor params[2];
    ct_optim *optim;
    ct_tensor *x;
} layer;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + 1e-6 * (double)t.tv_nsec;
}

static int step(layer *l, unsigned autocast, double *ms)
{
    ct_ctx *ctx = l->ctx;
    double begun = now_ms();
    if (ct_scope_begin(ctx, CT_SCOPE_STEP | autocast))
        return ct_error_code(ctx);
    ct_tensor *loss = ct_mean(ct_square(ct_module_forward(l->linear, l->x)), NULL, 0, false);
    int r = ct_backward(ctx, loss, NULL, CT_BACKWARD_DEFAULT);
    r = r ? r : ct_optim_step(ctx, l->optim, ct_step_defaults());
    ct_optim_zero_grad(l->optim);
    ct_zero_grad(l->x);
    int end = ct_scope_end(ctx);
    *ms = now_ms() - begun;
    return r ? r : end;
}

static int run(layer *l, int64_t width, int64_t batch, int rounds)
{
    ct_ctx *ctx = l->ctx;
    l->linear = ct_nn_linear_new(ctx, width, width, true);
    l->x = ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){batch, width});
    if (!l->linear || !l->x || ct_tensor_normal(ctx, l->x, 0, 1) ||
        ct_tensor_set_requires_grad(ctx, l->x, true))
        return ct_error_code(ctx);
    l->optim =
        ct_adamw_new(ctx, l->params, ct_module_state(l->linear, l->params, 2), ct_adamw_defaults());
    int r = ct_error_code(ctx);
    for (int i = -2; i < rounds && !r; i++) {
        double full, low;
        r = step(l, 0, &full);
        r = r ? r : step(l, CT_SCOPE_AUTOCAST_BF16, &low);
        if (i >= 0 && !r)
            printf("%.3f %.3f\n", full, low);
    }
    return r;
}

int main(int argc, char **argv)
{
    ct_ctx_opts opts = ct_ctx_defaults();
    ct_error err = {0};
    opts.device = "cpu";
    layer l = {.ctx = ct_ctx_new(opts, &err)};
    int r = l.ctx ? run(&l, argc > 1 ? atoi(argv[1]) : 2048, argc > 2 ? atoi(argv[2]) : 1024,
                        argc > 3 ? atoi(argv[3]) : 20) :
                    err.code;
    if (r)
        fprintf(stderr, "%s\n", l.ctx ? ct_error_get(l.ctx)->text : err.text);
    ct_optim_free(l.optim);
    ct_module_free(l.linear);
    ct_tensor_release(l.x);
    ct_ctx_free(l.ctx);
    return r ? 1 : 0;
}
