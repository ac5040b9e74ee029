/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own cost: `bench-tape N ROUNDS` prints, for each round, nanoseconds an op of a forward and backward
 * through N chained adds of one-element tensors, and at the end the calls of the allocator in the last round. */
#define _POSIX_C_SOURCE 200809L
#include <ctrain/ctrain.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int chain(ct_ctx *ctx, ct_tensor *x, ct_tensor *one, int n)
{
    if (ct_scope_begin(ctx, CT_SCOPE_STEP))
        return ct_error_code(ctx);
    ct_tensor *y = x;
    for (int i = 0; i < n; i++)
        y = ct_add(y, one);
    int r = ct_backward(ctx, y, NULL, CT_BACKWARD_DEFAULT);
    ct_zero_grad(x);
    int end = ct_scope_end(ctx);
    return r ? r : end;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1000, rounds = argc > 2 ? atoi(argv[2]) : 50;
    ct_ctx_opts opts = ct_ctx_defaults();
    ct_error err = {0};
    opts.device = "cpu";
    opts.threads = 1;
    ct_ctx *ctx = ct_ctx_new(opts, &err);
    ct_tensor *x = ct_tensor_scalar(ctx, CT_F32, 1), *one = ct_tensor_scalar(ctx, CT_F32, 1);
    int r = ctx ? ct_tensor_set_requires_grad(ctx, x, true) : err.code;
    uint64_t before = 0;
    for (int i = 0; i < 3 && !r; i++)
        r = chain(ctx, x, one, n);
    for (int i = 0; i < rounds && !r; i++) {
        before = ct_ctx_counters(ctx).allocs;
        double begun = now();
        r = chain(ctx, x, one, n);
        printf("%.2f\n", (now() - begun) * 1e9 / n);
    }
    if (r)
        fprintf(stderr, "%s\n", ctx ? ct_error_get(ctx)->text : err.text);
    else
        printf("allocations %" PRIu64 "\n", ct_ctx_counters(ctx).allocs - before);
    ct_tensor_release(x);
    ct_tensor_release(one);
    ct_ctx_free(ctx);
    return r ? 1 : 0;
}
