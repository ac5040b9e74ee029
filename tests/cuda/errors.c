/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong on a device: the text of each error, and what is left. Plain environment settings
 * of the double make the faults. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* setenv */
#endif
#include "device.h"

#include <stdio.h>

TestSuite(cuda_errors, .timeout = 120);

static void expect_text(ct_ctx *ctx, int code, const char *const *parts)
{
    const char *text = ct_error_get(ctx)->text;

    cr_assert_eq(ct_error_code(ctx), code, "%s: %s", ct_status_name(ct_error_code(ctx)), text);
    for (int i = 0; parts[i]; i++)
        cr_assert_not_null(strstr(text, parts[i]), "no '%s' in '%s'", parts[i], text);
    ct_error_clear(ctx);
}
#define EXPECT_ERROR(ctx, code, ...) \
    expect_text(ctx, code, (const char *const[]){__VA_ARGS__, NULL})

static void expect_usable(ct_ctx *ctx)
{
    ct_tensor *a = ct_tensor_scalar(ctx, CT_F32, 3), *y = ct_square(a);
    double v = 0;

    OK(ctx, ct_tensor_item(ctx, y, &v));
    cr_assert_eq(v, 9);
    ct_tensor_release(a);
}

Test(cuda_errors, out_of_memory_says_what_was_asked_for_what_is_there_and_what_is_large)
{
    ct_tensor *kept, *too_much;
    ct_ctx *ctx;

    setenv("CTD_MEM", "67108864", 1); /* 64 MiB; before the double is opened */
    double_symbol("ctd_fail");
    ctx = device_ctx("cuda");
    kept = ct_relu(ct_tensor_new(ctx, CT_F32, 1, (int64_t[]){5 << 20})); /* 2 x 20 MiB */
    cr_assert_not_null(kept);
    too_much = ct_tensor_new(ctx, CT_F32, 1, (int64_t[]){8 << 20});
    cr_assert_null(too_much);
    EXPECT_ERROR(ctx, CT_ENOMEM, "out of memory on cuda: 33554432 bytes asked for", " free of ",
                 " in use here, peak ", "the largest: 20.0 MiB of ", "20.0 MiB of relu",
                 "smaller batches");
    expect_usable(ctx);
    ct_ctx_free(ctx);
}

Test(cuda_errors, cached_memory_is_given_back_before_it_runs_out)
{
    ct_ctx *ctx;

    double_symbol("ctd_fail");
    setenv("CTD_MEM", "67108864", 1);
    ctx = device_ctx("cuda");
    for (int i = 1; i <= 6; i++) { /* each of another size: 7 MiB, 14 MiB, ... 42 MiB */
        ct_tensor *t = ct_tensor_new(ctx, CT_U8, 1, (int64_t[]){(int64_t)i * (7 << 20)});
        cr_assert_not_null(t, "%d: %s", i, ct_error_get(ctx)->text);
        ct_tensor_release(t);
    }
    ct_ctx_free(ctx);
}

Test(cuda_errors, a_kernel_that_cannot_be_launched_is_an_error_of_the_op)
{
    ct_ctx *ctx = device_ctx("cuda");
    ct_tensor *x = ct_tensor_scalar(ctx, CT_F32, 2);

    OK(ctx, ct_tensor_fill(ctx, x, 2));
    device_fail("launch:1");
    cr_assert_null(ct_relu(x));
    device_fail(NULL);
    cr_assert(ct_error_code(ctx) == CT_EDEVICE, "%s", ct_error_get(ctx)->text);
    cr_assert_not_null(strstr(ct_error_get(ctx)->text, "relu"), "%s", ct_error_get(ctx)->text);
    ct_error_clear(ctx);
    ct_tensor_release(x);
    ct_ctx_free(ctx);
}

Test(cuda_errors, a_sticky_error_is_named_and_stays)
{
    ct_ctx *ctx = device_ctx("cuda");
    ct_tensor *x = ct_tensor_scalar(ctx, CT_F32, 2);
    double v;

    device_fail("sticky:1");
    for (int i = 0; i < 3 && ct_error_code(ctx) == CT_OK; i++)
        (void)!ct_tensor_item(ctx, ct_relu(x), &v);
    EXPECT_ERROR(ctx, CT_EDEVICE, "cuda:0 failed: ", "cudaErrorIllegalAddress",
                 "can't be used again by this process", "CUDA_LAUNCH_BLOCKING=1");
    (void)!ct_tensor_item(ctx, ct_relu(x), &v);
    EXPECT_ERROR(ctx, CT_EDEVICE, "cudaErrorIllegalAddress");
    cr_assert_null(ct_tensor_new(ctx, CT_U8, 1, (int64_t[]){3 << 20}));
    EXPECT_ERROR(ctx, CT_EDEVICE, "cudaErrorIllegalAddress"); /* not: out of memory */
    cr_assert_null(ct_host_alloc(ctx, 64));
    EXPECT_ERROR(ctx, CT_EDEVICE, "cudaErrorIllegalAddress");
    ct_tensor_release(x);
    ct_ctx_free(ctx);
}

Test(cuda_errors, a_tensor_of_another_device_is_refused)
{
    ct_ctx *gpu = device_ctx("cuda"), *cpu = device_ctx("cpu");
    ct_tensor *a = ct_tensor_scalar(gpu, CT_F32, 1), *b = ct_tensor_scalar(cpu, CT_F32, 1);

    cr_assert_null(ct_add(a, b));
    EXPECT_ERROR(gpu, CT_EINVAL, "add: ", "input 1 is of another context");
    cr_assert_eq(ct_tensor_copy(gpu, a, b), CT_EINVAL);
    EXPECT_ERROR(gpu, CT_EINVAL, "of another context");
    expect_usable(gpu);
    ct_tensor_release(a);
    ct_tensor_release(b);
    ct_ctx_free(gpu);
    ct_ctx_free(cpu);
}

Test(cuda_errors, float64_is_for_the_cpu)
{
    ct_ctx *ctx = device_ctx("cuda");
    ct_tensor *x = ct_tensor_scalar(ctx, CT_F64, 2);
    ct_ctx_opts o = ct_ctx_defaults();
    ct_error err = {0};

    cr_assert_not_null(x, "float64 is there to be summed into: %s", ct_error_get(ctx)->text);
    cr_assert_null(ct_gelu(x, false));
    EXPECT_ERROR(ctx, CT_EDTYPE, "gelu", "float64", "float32, bfloat16 or float16");
    expect_usable(ctx);
    ct_tensor_release(x);
    ct_ctx_free(ctx);
    o.device = "cuda";
    o.dtype = CT_F64;
    cr_assert_null(ct_ctx_new(o, &err));
    cr_assert_eq(err.code, CT_EDTYPE);
    cr_assert_not_null(strstr(err.text, "float64 is for the cpu"), "%s", err.text);
    o.device = "auto"; /* takes the device that can do it */
    err = (ct_error){0};
    ctx = ct_ctx_new(o, &err);
    cr_assert_not_null(ctx, "%s", err.text);
    ct_ctx_free(ctx);
}

Test(cuda_errors, a_class_out_of_range_is_told_when_the_host_next_looks)
{
    ct_ctx *ctx = device_ctx("cuda");
    ct_tensor *x = ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){4, 3});
    ct_tensor *y = ct_tensor_from(ctx, CT_I64, 1, (int64_t[]){4}, (int64_t[]){0, 2, 3, 7});
    ct_tensor *loss = ct_cross_entropy(x, y, ct_cross_entropy_defaults());
    double v = 0;

    cr_assert_not_null(loss, "%s", ct_error_get(ctx)->text);
    cr_assert_eq(ct_tensor_item(ctx, loss, &v), CT_EDATA);
    EXPECT_ERROR(ctx, CT_EDATA, "cross_entropy: target 3 at row 2 is out of range for 3 classes",
                 "(0..2)", "1-based?");
    expect_usable(ctx);
    ct_tensor_release(x);
    ct_tensor_release(y);
    ct_ctx_free(ctx);
}

/* More than the staging ring holds, before anything has been copied out of it. */
Test(cuda_errors, uploads_of_any_size_arrive_whole)
{
    enum { N = 24, WORDS = 300001 };
    ct_ctx *ctx = device_ctx("cuda");
    int32_t *host = malloc(WORDS * sizeof *host), *back = malloc(WORDS * sizeof *back);
    ct_tensor *t[N], *small[N];

    for (int i = 0; i < N; i++) {
        int64_t n = i % 2 ? WORDS : 1 + i; /* odd sizes between large ones */
        for (int64_t k = 0; k < n; k++)
            host[k] = (int32_t)(k * 2654435761u + (unsigned)i);
        t[i] = ct_tensor_from(ctx, CT_I32, 1, &n, host);
        small[i] = ct_tensor_from(ctx, CT_I32, 0, NULL, &i);
        cr_assert(t[i] && small[i], "%s", ct_error_get(ctx)->text);
        memset(host, 0, (size_t)n * sizeof *host); /* it may be used again at once */
    }
    for (int i = 0; i < N; i++) {
        int64_t n = ct_tensor_numel(t[i]);
        double v;

        OK(ctx, ct_tensor_read(ctx, t[i], back, (size_t)n * sizeof *back));
        for (int64_t k = 0; k < n; k++)
            cr_assert_eq(back[k], (int32_t)(k * 2654435761u + (unsigned)i), "tensor %d, %d", i,
                         (int)k);
        OK(ctx, ct_tensor_item(ctx, small[i], &v));
        cr_assert_eq(v, i);
        ct_tensor_release(t[i]);
        ct_tensor_release(small[i]);
    }
    free(host);
    free(back);
    ct_ctx_free(ctx);
}

Test(cuda_errors, failing_to_open_leaves_nothing)
{
    static const char *const calls[] = {"cudaStreamCreateWithFlags", "cudaMallocHost",
                                        "cudaEventCreateWithFlags", "cublasLtCreate"};
    ct_ctx *first = device_ctx("cuda"); /* what is made once per process */
    long before;

    ct_ctx_free(first);
    before = device_leaks();
    for (int i = 0; i < (int)(sizeof calls / sizeof *calls); i++) {
        ct_ctx_opts o = ct_ctx_defaults();
        ct_error err = {0};
        char spec[64];

        snprintf(spec, sizeof spec, "%s:1", calls[i]);
        device_fail(spec);
        o.device = "cuda";
        cr_assert_null(ct_ctx_new(o, &err), "%s", calls[i]);
        device_fail(NULL);
        cr_assert(err.code == CT_EDEVICE || err.code == CT_ENOMEM, "%s: %s", calls[i], err.text);
        cr_assert_eq(device_leaks(), before, "%s: %ld things stay", calls[i],
                     device_leaks() - before);
        o.device = "auto"; /* the CPU does instead, and says why */
        device_fail(spec);
        err = (ct_error){0};
        first = ct_ctx_new(o, &err);
        device_fail(NULL);
        cr_assert_not_null(first, "%s", err.text);
        cr_assert(ct_ctx_fallback(first)[0], "%s", calls[i]);
        ct_ctx_free(first);
    }
}

Test(cuda_errors, a_context_frees_all_it_made)
{
    ct_ctx *ctx = device_ctx("cuda");
    long before;

    ct_ctx_free(ctx);
    before = device_leaks();
    ctx = device_ctx("cuda");
    expect_usable(ctx);
    ct_event_free(ct_event_new(ctx));
    ct_host_free(ctx, ct_host_alloc(ctx, 100));
    (void)!ct_matmul(ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){3, 4}),
                     ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){4, 5}));
    ct_ctx_free(ctx);
    cr_assert_eq(device_leaks(), before);
}
