/* SPDX-License-Identifier: Apache-2.0 */
/* The steady state: once warm, a training step of the digits' convnet allocates nothing, makes no
 * primitive, leaves nothing alive, and asks the C library for memory equally often in each step. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../models/models.h"
#include <criterion/criterion.h>
#include <ctrain/ctrain.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { WARM_UP = 30, STEPS = 20, BATCH = 64 };

/* ---- calls to the C library's allocator, of anyone in the process ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_MALLOC 0
#endif
#endif
#ifndef COUNTS_MALLOC
#define COUNTS_MALLOC 1
#endif

static atomic_uint_least64_t mallocs;

#if COUNTS_MALLOC
/* glibc's own names of what is taken over here: no look-up that could itself allocate. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void count_one(void)
{
    atomic_fetch_add_explicit(&mallocs, 1, memory_order_relaxed);
}

void *malloc(size_t n)
{
    count_one();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count_one();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count_one();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count_one();
    return __libc_memalign(align, n);
}

void *memalign(size_t align, size_t n);
void *memalign(size_t align, size_t n)
{
    count_one();
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    void *p;

    count_one();
    if (align % sizeof(void *) != 0 || (align & (align - 1)) != 0 || align == 0)
        return EINVAL;
    p = __libc_memalign(align, n);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}
#endif

/* ---- a training run by the public API ---- */

typedef struct training {
    ct_ctx *ctx;
    ct_dataset *all, *train;
    ct_loader *loader;
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *y;
    ct_schedule schedule;
    int64_t step;
} training;

static void training_open(training *t, int workers, int threads)
{
    const char *values[CT_MODEL_MAX_KEYS] = {0};
    ct_model_spec spec = {.ndim = 3, .shape = {1, 8, 8}, .n_classes = 10, .values = values};
    static ct_named_tensor params[64];
    ct_ctx_opts o = ct_ctx_defaults();
    ct_loader_opts l = ct_loader_defaults();
    ct_error err = {0};

    o.device = "cpu";
    o.threads = threads;
    o.direct_alloc = false; /* the cache is what is looked at */
    t->ctx = ct_ctx_new(o, &err);
    t->all = ct_digits_open(&err);
    cr_assert(t->ctx && t->all, "%s", err.text);
    t->train = ct_dataset_split(t->all, 0.2, false, &err);
    cr_assert(t->train, "%s", err.text);
    l.batch_size = BATCH;
    l.workers = workers;
    l.drop_last = true; /* of 1,438 samples: 22 batches, so that the steps cross ends of epochs */
    t->loader = ct_loader_new(t->train, l, &err);
    cr_assert(t->loader, "%s", err.text);

    for (int i = 0; i < CT_MODEL_MAX_KEYS && model_convnet.keys[i].name; i++)
        values[i] = model_convnet.keys[i].default_value;
    t->net = model_convnet.build(t->ctx, &spec);
    t->x = ct_tensor_new(t->ctx, CT_F32, 4, (int64_t[]){BATCH, 1, 8, 8});
    t->y = ct_tensor_new(t->ctx, CT_I64, 1, (int64_t[]){BATCH});
    cr_assert(t->net && t->x && t->y, "%s", ct_error_get(t->ctx)->text);
    t->optim =
        ct_adamw_new(t->ctx, params, ct_module_state(t->net, params, 64), ct_adamw_defaults());
    cr_assert(t->optim, "%s", ct_error_get(t->ctx)->text);
    t->schedule = ct_schedule_defaults(CT_SCHEDULE_ONECYCLE, WARM_UP + STEPS, 0.01);
    t->step = 0;
}

static void training_close(training *t)
{
    ct_loader_free(t->loader);
    ct_dataset_free(t->train);
    ct_dataset_free(t->all);
    ct_optim_free(t->optim);
    ct_module_free(t->net);
    ct_tensor_release(t->x);
    ct_tensor_release(t->y);
    cr_expect_eq(ct_ctx_counters(t->ctx).live_tensors, 0);
    ct_ctx_free(t->ctx);
}

static void training_step(training *t)
{
    ct_cross_entropy_opts loss_opts = ct_cross_entropy_defaults();
    ct_step_opts step_opts = ct_step_defaults();
    ct_ctx *ctx = t->ctx;
    ct_error err = {0};
    ct_batch b;
    ct_tensor *loss;
    int r = ct_loader_next(t->loader, &b, &err);

    if (r == 0) /* the end of an epoch */
        r = ct_loader_next(t->loader, &b, &err);
    cr_assert(r == 1 && b.count == BATCH, "%s", err.text);
    r = ct_tensor_write(ctx, t->x, b.field[0], BATCH * 64 * sizeof(float));
    r |= ct_tensor_write(ctx, t->y, b.field[1], BATCH * sizeof(int64_t));
    ct_loader_release(t->loader, &b);

    ct_ctx_set_position(ctx, (uint32_t)t->step, 0);
    r |= ct_scope_begin(ctx, CT_SCOPE_STEP);
    ct_optim_zero_grad(t->optim);
    loss_opts.label_smoothing = 0.1;
    loss = ct_cross_entropy(ct_module_forward(t->net, t->x), t->y, loss_opts);
    r |= ct_backward(ctx, loss, NULL, CT_BACKWARD_DEFAULT);
    ct_optim_set_lr(t->optim, ct_schedule_lr(&t->schedule, t->step));
    ct_optim_set_momentum(t->optim, ct_schedule_momentum(&t->schedule, t->step));
    step_opts.loss = loss;
    step_opts.max_norm = 1;
    r |= ct_optim_step(ctx, t->optim, step_opts);
    r |= ct_scope_end(ctx);
    cr_assert_eq(r, 0, "%s", ct_error_get(ctx)->text);
    t->step++;
}

static void expect_steady(int workers, int threads)
{
    uint64_t foreign[STEPS];
    ct_counters before, after;
    training t;

    training_open(&t, workers, threads);
    while (t.step < WARM_UP)
        training_step(&t);
    before = ct_ctx_counters(t.ctx);
    for (int i = 0; i < STEPS; i++) {
        uint64_t begun = atomic_load(&mallocs);
        training_step(&t);
        foreign[i] = atomic_load(&mallocs) - begun;
        after = ct_ctx_counters(t.ctx);
        cr_expect_eq(after.allocs, before.allocs, "step %d: %" PRIu64 " allocations", i,
                     after.allocs - before.allocs);
        cr_expect_eq(after.primitives, before.primitives, "step %d: %" PRIu64 " primitives made", i,
                     after.primitives - before.primitives);
        cr_expect_eq(after.live_tensors, before.live_tensors,
                     "step %d: %" PRIu64 " tensors, were %" PRIu64, i, after.live_tensors,
                     before.live_tensors);
        cr_expect_eq(after.live_nodes, before.live_nodes,
                     "step %d: %" PRIu64 " nodes, were %" PRIu64, i, after.live_nodes,
                     before.live_nodes);
        cr_expect_eq(after.live_bytes, before.live_bytes,
                     "step %d: %" PRIu64 " bytes, were %" PRIu64, i, after.live_bytes,
                     before.live_bytes);
    }
    for (int i = 1; i < STEPS && COUNTS_MALLOC; i++)
        cr_expect_eq(foreign[i], foreign[0],
                     "step %d calls the C library's allocator %" PRIu64 " times, step 0 %" PRIu64,
                     i, foreign[i], foreign[0]);
    if (COUNTS_MALLOC)
        cr_log_info("steady step, %d workers: 0 allocations, 0 primitives, %" PRIu64
                    " calls of the C library's allocator",
                    workers, foreign[0]);
    training_close(&t);
}

Test(steady, without_workers)
{
    expect_steady(0, 2);
}

Test(steady, two_workers)
{
    expect_steady(2, 1); /* one: beside the workers, a team would wait for processors */
}

#if COUNTS_MALLOC
/* The counter sees what is asked for: else its zeros say nothing. */
Test(steady, counter_counts)
{
    uint64_t begun = atomic_load(&mallocs);
    void *volatile p = malloc(10);
    void *volatile q = NULL;

    p = realloc(p, 100);
    cr_expect_eq(posix_memalign((void **)&q, 64, 100), 0);
    cr_expect_eq((uintptr_t)q % 64, 0);
    cr_expect_eq(atomic_load(&mallocs) - begun, 3);
    free(p);
    free(q);
}
#endif
