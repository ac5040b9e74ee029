/* SPDX-License-Identifier: Apache-2.0 */
/* Captured work gives the bytes that called work gives: whatever happens between replays. */
#include "device.h"

#include <math.h>
#include <stdio.h>

TestSuite(capture, .timeout = 120);

enum { BATCH = 8, IN = 6, HIDDEN = 5, CLASSES = 3, PARAMS = 4, STEPS = 8 };

/* A net with dropout and a used-twice weight, its optimizer, one batch. */
typedef struct net {
    ct_ctx *ctx;
    ct_tensor *p[PARAMS], *x, *y, *loss, *weight;
    ct_named_tensor named[PARAMS];
    ct_optim *optim;
    ct_capture *grad, *step;
    ct_step_opts o;
    float *host; /* pinned */
    ct_event *event;
    int calls;
} net;

static void fill(ct_ctx *ctx, ct_tensor *t, int salt)
{
    int64_t n = ct_tensor_numel(t);
    float *v = malloc((size_t)n * sizeof *v);

    for (int64_t i = 0; i < n; i++)
        v[i] = (float)sin((double)(i * 7 + salt * 13)) * 0.5f;
    OK(ctx, ct_tensor_write(ctx, t, v, (size_t)n * sizeof *v));
    free(v);
}

static void set_batch(net *n, int step)
{
    int64_t y[BATCH];

    fill(n->ctx, n->x, 100 + step);
    for (int i = 0; i < BATCH; i++)
        y[i] = (i + step) % CLASSES;
    OK(n->ctx, ct_tensor_write(n->ctx, n->y, y, sizeof y));
}

static void net_open(net *n, const char *device)
{
    static const int64_t shape[PARAMS][2] = {
        {HIDDEN, IN}, {HIDDEN, 0}, {CLASSES, HIDDEN}, {HIDDEN, HIDDEN}};
    ct_adam_opts a = ct_adamw_defaults();

    *n = (net){.ctx = device_ctx(device)};
    for (int i = 0; i < PARAMS; i++) {
        n->p[i] = ct_tensor_new(n->ctx, CT_F32, shape[i][1] ? 2 : 1, shape[i]);
        fill(n->ctx, n->p[i], i);
        OK(n->ctx, ct_tensor_set_requires_grad(n->ctx, n->p[i], true));
        snprintf(n->named[i].name, sizeof n->named[i].name, "p%d", i);
        n->named[i].tensor = n->p[i];
    }
    n->x = ct_tensor_new(n->ctx, CT_F32, 2, (int64_t[]){BATCH, IN});
    n->y = ct_tensor_new(n->ctx, CT_I64, 1, (int64_t[]){BATCH});
    n->loss = ct_tensor_scalar(n->ctx, CT_F32, 0);
    n->weight = ct_tensor_scalar(n->ctx, CT_F32, 0);
    n->optim = ct_adamw_new(n->ctx, n->named, PARAMS, a);
    n->grad = ct_capture_new(n->ctx);
    n->step = ct_capture_new(n->ctx);
    cr_assert(n->optim && n->grad && n->step, "%s", ct_error_get(n->ctx)->text);
}

static void net_close(net *n)
{
    ct_capture_free(n->grad);
    ct_capture_free(n->step);
    ct_optim_free(n->optim);
    for (int i = 0; i < PARAMS; i++)
        ct_tensor_release(n->p[i]);
    ct_tensor_release(n->x);
    ct_tensor_release(n->y);
    ct_tensor_release(n->loss);
    ct_tensor_release(n->weight);
    cr_expect_eq(ct_ctx_counters(n->ctx).live_tensors, 0);
    ct_ctx_free(n->ctx);
}

static ct_tensor *forward(net *n, ct_tensor *x, bool training)
{
    ct_tensor *h = ct_relu(ct_linear(x, n->p[0], n->p[1]));

    h = ct_gelu(ct_linear(h, n->p[3], NULL), false);
    h = ct_dropout(ct_linear(h, n->p[3], NULL), 0.3, training);
    return ct_linear(h, n->p[2], NULL);
}

static int grad_work(void *user)
{
    net *n = user;
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();
    ct_tensor *loss, *weight = NULL;
    int r;

    n->calls++;
    o.reduction = CT_REDUCE_SUM;
    o.total_weight = &weight;
    if ((r = ct_scope_begin(n->ctx, CT_SCOPE_PLAIN)) < 0)
        return r;
    loss = ct_cross_entropy(forward(n, n->x, true), n->y, o);
    if ((r = ct_backward(n->ctx, loss, NULL, CT_BACKWARD_DEFAULT)) == CT_OK &&
        (r = ct_scope_begin(n->ctx, CT_SCOPE_NO_GRAD)) == CT_OK) {
        r = ct_tensor_copy(n->ctx, n->loss, loss);
        r = r < 0 ? r : ct_tensor_copy(n->ctx, n->weight, weight);
        ct_scope_end(n->ctx);
    }
    return ct_scope_end(n->ctx) < 0 ? ct_error_code(n->ctx) : r;
}

static int step_work(void *user)
{
    net *n = user;

    return ct_optim_step(n->ctx, n->optim, n->o);
}

static void one_step(net *n, int step, bool captured)
{
    set_batch(n, step);
    ct_ctx_set_position(n->ctx, (uint32_t)step, 0);
    ct_optim_zero_grad(n->optim);
    ct_optim_set_lr(n->optim, 0.01 * (1 + step % 3)); /* changes between replays */
    n->o = ct_step_defaults();
    n->o.weight = n->weight;
    n->o.loss = n->loss;
    n->o.max_norm = 0.5;
    OK(n->ctx, captured ? ct_capture_run(n->ctx, n->grad, grad_work, n) : grad_work(n));
    OK(n->ctx, ct_optim_prepare(n->ctx, n->optim, n->o));
    OK(n->ctx, captured ? ct_capture_run(n->ctx, n->step, step_work, n) : step_work(n));
}

static void expect_same(net *a, net *b, const char *when)
{
    for (int i = 0; i < PARAMS; i++) {
        size_t bytes = (size_t)ct_tensor_numel(a->p[i]) * sizeof(float);
        float p[64], q[64];

        OK(a->ctx, ct_tensor_read(a->ctx, a->p[i], p, bytes));
        OK(b->ctx, ct_tensor_read(b->ctx, b->p[i], q, bytes));
        cr_assert_eq(memcmp(p, q, bytes), 0, "%s: parameter %d differs: %g and %g", when, i,
                     (double)p[0], (double)q[0]);
        cr_assert_eq(ct_tensor_version(a->p[i]), ct_tensor_version(b->p[i]), "%s: versions", when);
        OK(a->ctx, ct_tensor_read(a->ctx, ct_tensor_grad(a->p[i]), p, bytes));
        OK(b->ctx, ct_tensor_read(b->ctx, ct_tensor_grad(b->p[i]), q, bytes));
        cr_assert_eq(memcmp(p, q, bytes), 0, "%s: gradient %d differs", when, i);
    }
}

Test(capture, replayed_steps_give_the_bytes_of_called_ones)
{
    net a, b;

    net_open(&a, "cuda");
    net_open(&b, "cuda");
    for (int s = 0; s < STEPS; s++) {
        one_step(&a, s, true);
        one_step(&b, s, false);
        expect_same(&a, &b, "step");
    }
    cr_assert_str_empty(ct_capture_refused(a.grad), "%s", ct_capture_refused(a.grad));
    cr_assert_str_empty(ct_capture_refused(a.step), "%s", ct_capture_refused(a.step));
    cr_assert_eq(ct_capture_replays(a.grad), STEPS - 1);
    cr_assert_eq(ct_capture_replays(a.step), STEPS - 1);
    cr_assert_eq(a.calls, 2, "called %d times: once to warm up, once to be captured", a.calls);
    net_close(&a);
    net_close(&b);
}

/* An evaluation, a batch of another shape with its gradients, much memory taken and given back. */
static void disturb(net *n, int step)
{
    ct_tensor *big[12], *x;
    double v;

    OK(n->ctx, ct_scope_begin(n->ctx, CT_SCOPE_NO_GRAD));
    x = ct_tensor_new(n->ctx, CT_F32, 2, (int64_t[]){3 + step, IN});
    fill(n->ctx, x, step);
    OK(n->ctx, ct_tensor_item(n->ctx, ct_sum(forward(n, x, false), NULL, 0, false), &v));
    OK(n->ctx, ct_scope_end(n->ctx));
    OK(n->ctx, ct_scope_begin(n->ctx, CT_SCOPE_PLAIN));
    OK(n->ctx, ct_backward(n->ctx, ct_sum(ct_square(forward(n, x, true)), NULL, 0, false), NULL,
                           CT_BACKWARD_DEFAULT));
    OK(n->ctx, ct_scope_end(n->ctx));
    ct_tensor_release(x);
    for (int i = 0; i < 12; i++) {
        big[i] = ct_tensor_new(n->ctx, CT_F32, 1, (int64_t[]){(int64_t)16 << (i % 7)});
        OK(n->ctx, ct_tensor_fill(n->ctx, big[i], NAN));
    }
    for (int i = 0; i < 12; i++)
        ct_tensor_release(big[i]);
}

Test(capture, evaluation_other_shapes_and_memory_pressure_between_replays_change_nothing)
{
    net a, b;

    net_open(&a, "cuda");
    net_open(&b, "cuda");
    for (int s = 0; s < STEPS; s++) {
        one_step(&a, s, true);
        one_step(&b, s, false);
        expect_same(&a, &b, "before the disturbance");
        disturb(&a, s);
        disturb(&b, s);
    }
    cr_assert_eq(ct_capture_replays(a.grad), STEPS - 1);
    net_close(&a);
    net_close(&b);
}

/* A step that the device's flag refuses leaves everything, also in a replay. */
Test(capture, a_nonfinite_step_is_left_out_of_replays_too)
{
    net a, b;

    net_open(&a, "cuda");
    net_open(&b, "cuda");
    for (int s = 0; s < 6; s++) {
        ct_step_result r;

        one_step(&a, s, true);
        one_step(&b, s, false);
        if (s != 3)
            continue;
        for (int k = 0; k < 2; k++) {
            net *n = k ? &b : &a;
            OK(n->ctx, ct_tensor_fill(n->ctx, n->loss, INFINITY));
            OK(n->ctx, ct_optim_prepare(n->ctx, n->optim, n->o));
            OK(n->ctx, k ? step_work(n) : ct_capture_run(n->ctx, n->step, step_work, n));
            OK(n->ctx, ct_optim_result(n->ctx, n->optim, &r));
            cr_assert(r.nonfinite && r.skipped == 1);
        }
    }
    expect_same(&a, &b, "after a skipped step");
    net_close(&a);
    net_close(&b);
}

static int reads(void *user)
{
    net *n = user;
    double v;

    n->calls++;
    return ct_tensor_item(n->ctx, n->loss, &v);
}

static int uploads(void *user)
{
    net *n = user;
    float v = 3;

    n->calls++;
    return ct_tensor_write(n->ctx, n->loss, &v, sizeof v);
}

/* A replay would copy from and to host memory that is somebody else's by then. */
static int writes_beside(void *user)
{
    net *n = user;

    n->calls++;
    return ct_tensor_write_async(n->ctx, n->loss, n->host, sizeof(float), NULL, n->event);
}

static int reads_beside(void *user)
{
    net *n = user;

    n->calls++;
    return ct_tensor_read_async(n->ctx, n->loss, n->host, sizeof(float), n->event);
}

static int records(void *user)
{
    net *n = user;

    n->calls++;
    return ct_event_record(n->ctx, n->event);
}

Test(capture, work_that_cannot_be_captured_is_called_each_time_and_says_why)
{
    int (*const work[])(void *) = {reads, uploads, writes_beside, reads_beside, records};
    net n;

    net_open(&n, "cuda");
    n.host = ct_host_alloc(n.ctx, sizeof *n.host);
    n.event = ct_event_new(n.ctx);
    cr_assert(n.host && n.event);
    *n.host = 3;
    for (int k = 0; k < 5; k++) {
        ct_capture *c = ct_capture_new(n.ctx);

        n.calls = 0;
        for (int i = 0; i < 4; i++)
            OK(n.ctx, ct_capture_run(n.ctx, c, work[k], &n));
        cr_assert_eq(n.calls, 5, "work %d: %d calls: 4, and one that could not be captured", k,
                     n.calls);
        cr_assert_eq(ct_capture_replays(c), 0);
        cr_assert(ct_capture_refused(c)[0], "a reason is given");
        ct_capture_free(c);
    }
    OK(n.ctx, ct_event_sync(n.ctx, n.event));
    ct_event_free(n.event);
    ct_host_free(n.ctx, n.host);
    net_close(&n);
}

static int grows(void *user)
{
    net *n = user;
    int64_t rows = 2 + 3 * n->calls++;
    ct_tensor *t = ct_tensor_new(n->ctx, CT_F32, 2, (int64_t[]){rows * 100, IN});

    ct_tensor_release(t);
    return ct_error_code(n->ctx);
}

Test(capture, work_that_asks_for_more_memory_each_time_is_given_up)
{
    net n;
    ct_capture *c;

    net_open(&n, "cuda");
    c = ct_capture_new(n.ctx);
    for (int i = 0; i < 10; i++)
        OK(n.ctx, ct_capture_run(n.ctx, c, grows, &n));
    cr_assert_not_null(strstr(ct_capture_refused(c), "memory that its warm-up didn't"), "%s",
                       ct_capture_refused(c));
    ct_capture_free(c);
    net_close(&n);
}

static int fails(void *user)
{
    net *n = user;

    return ct_error_raise(n->ctx, CT_EDATA, "test", "a mistake of the work's own");
}

Test(capture, an_error_of_the_work_comes_out_and_the_context_goes_on)
{
    net n;
    ct_capture *c;

    net_open(&n, "cuda");
    c = ct_capture_new(n.ctx);
    cr_assert_eq(ct_capture_run(n.ctx, c, fails, &n), CT_EDATA);
    cr_assert_str_eq(ct_error_get(n.ctx)->text, "a mistake of the work's own");
    ct_error_clear(n.ctx);
    cr_assert_eq(ct_capture_run(n.ctx, n.grad, NULL, &n), CT_EINVAL);
    ct_error_clear(n.ctx);
    cr_assert_eq(ct_capture_run(n.ctx, NULL, fails, &n), CT_EINVAL);
    ct_error_clear(n.ctx);
    one_step(&n, 0, true);
    one_step(&n, 1, true);
    ct_capture_free(c);
    net_close(&n);
}

/* An error that comes only while the work is captured: the gradients are those of the call after it. */
static int fails_at_second(void *user)
{
    net *n = user;
    int r = grad_work(n);

    if (r == CT_OK && n->calls == 2)
        return ct_error_raise(n->ctx, CT_ESTATE, "test", "not while being captured");
    return r;
}

Test(capture, gradients_of_a_broken_capture_are_not_kept)
{
    net a, b;

    net_open(&a, "cuda");
    net_open(&b, "cuda");
    for (int s = 0; s < 4; s++) {
        set_batch(&a, s);
        set_batch(&b, s);
        ct_ctx_set_position(a.ctx, (uint32_t)s, 0);
        ct_ctx_set_position(b.ctx, (uint32_t)s, 0);
        ct_optim_zero_grad(a.optim);
        ct_optim_zero_grad(b.optim);
        OK(a.ctx, ct_capture_run(a.ctx, a.grad, fails_at_second, &a));
        OK(b.ctx, grad_work(&b));
        for (int i = 0; i < PARAMS; i++) {
            float p[64], q[64];
            size_t bytes = (size_t)ct_tensor_numel(a.p[i]) * sizeof(float);
            OK(a.ctx, ct_tensor_read(a.ctx, ct_tensor_grad(a.p[i]), p, bytes));
            OK(b.ctx, ct_tensor_read(b.ctx, ct_tensor_grad(b.p[i]), q, bytes));
            cr_assert_eq(memcmp(p, q, bytes), 0, "step %d, gradient %d", s, i);
        }
    }
    cr_assert_str_eq(ct_capture_refused(a.grad), "not while being captured");
    net_close(&a);
    net_close(&b);
}

/* The product of a parameter in bf16; broken while it is captured. */
static int low_product(void *user)
{
    net *n = user;
    int r = ct_scope_begin(n->ctx, CT_SCOPE_NO_GRAD | CT_SCOPE_AUTOCAST_BF16);

    n->calls++;
    if (r == CT_OK)
        r = ct_tensor_copy(n->ctx, n->loss, ct_sum(ct_linear(n->x, n->p[0], NULL), NULL, 0, false));
    if (r == CT_OK && n->calls == 2)
        r = ct_error_raise(n->ctx, CT_ESTATE, "test", "not while being captured");
    return ct_scope_end(n->ctx) < 0 ? ct_error_code(n->ctx) : r;
}

/* What autocast cast in it was never cast: the call after it must not take it for done. */
Test(capture, casts_of_a_broken_capture_are_made_again)
{
    double got, want;
    net a, b;

    net_open(&a, "cuda");
    net_open(&b, "cuda");
    b.calls = 10;
    for (int s = 0; s < 4; s++) {
        set_batch(&a, 0);
        set_batch(&b, 0);
        OK(a.ctx, ct_scope_begin(a.ctx, CT_SCOPE_NO_GRAD));
        fill(a.ctx, a.p[0], s);
        OK(a.ctx, ct_scope_end(a.ctx));
        OK(b.ctx, ct_scope_begin(b.ctx, CT_SCOPE_NO_GRAD));
        fill(b.ctx, b.p[0], s);
        OK(b.ctx, ct_scope_end(b.ctx));
        OK(a.ctx, ct_capture_run(a.ctx, a.grad, low_product, &a));
        OK(b.ctx, low_product(&b));
        OK(a.ctx, ct_tensor_item(a.ctx, a.loss, &got));
        OK(b.ctx, ct_tensor_item(b.ctx, b.loss, &want));
        cr_assert_eq(got, want, "step %d: %g, not %g", s, got, want);
    }
    cr_assert_str_eq(ct_capture_refused(a.grad), "not while being captured");
    net_close(&a);
    net_close(&b);
}

/* A wrong class in a batch that only a replay sees. */
Test(capture, a_verdict_of_a_replay_is_told)
{
    int64_t y[BATCH] = {0, 1, 2, 0, 1, 9, 0, 1};
    net n;
    double v;

    net_open(&n, "cuda");
    for (int s = 0; s < 3; s++)
        one_step(&n, s, true);
    OK(n.ctx, ct_tensor_item(n.ctx, n.loss, &v));
    OK(n.ctx, ct_tensor_write(n.ctx, n.y, y, sizeof y));
    OK(n.ctx, ct_capture_run(n.ctx, n.grad, grad_work, &n));
    cr_assert_eq(ct_tensor_item(n.ctx, n.loss, &v), CT_EDATA);
    cr_assert_not_null(strstr(ct_error_get(n.ctx)->text, "target 9 at row 5"), "%s",
                       ct_error_get(n.ctx)->text);
    ct_error_clear(n.ctx);
    net_close(&n);
}

Test(capture, captures_leave_nothing)
{
    long before;
    net n;

    net_open(&n, "cuda");
    one_step(&n, 0, true);
    net_close(&n);
    before = device_leaks();
    net_open(&n, "cuda");
    for (int s = 0; s < 4; s++)
        one_step(&n, s, true);
    net_close(&n);
    cr_assert_eq(device_leaks(), before, "%ld things stay", device_leaks() - before);
}

typedef struct summing {
    ct_ctx *ctx;
    ct_tensor *x, *out;
} summing;

/* A sum whose partial sums go through the workspace. */
static int sum_work(void *user)
{
    summing *s = user;
    int r = ct_scope_begin(s->ctx, CT_SCOPE_NO_GRAD);

    r = r < 0 ? r : ct_tensor_copy(s->ctx, s->out, ct_sum(s->x, NULL, 0, false));
    return ct_scope_end(s->ctx) < 0 ? ct_error_code(s->ctx) : r;
}

/* The workspace that captured work uses is given up for a larger one: its memory must not go to tensors,
 * which each replay would write over. */
Test(capture, a_workspace_that_was_outgrown_stays_with_its_capture)
{
    enum { KEPT = 120 };
    ct_tensor *kept[KEPT];
    ct_ctx *ctx = device_ctx("cuda");
    ct_capture *c = ct_capture_new(ctx);
    summing s = {ctx, ct_tensor_new(ctx, CT_F32, 1, (int64_t[]){50000}),
                 ct_tensor_scalar(ctx, CT_F32, 0)};
    double v;

    OK(ctx, ct_tensor_fill(ctx, s.x, 1));
    for (int i = 0; i < 3; i++)
        OK(ctx, ct_capture_run(ctx, c, sum_work, &s));
    cr_assert_eq(ct_capture_replays(c), 2, "%s", ct_capture_refused(c));
    OK(ctx, ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    ct_tensor *x = ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){3, 400000});
    OK(ctx, ct_tensor_item(ctx, ct_sum(x, NULL, 0, false), &v)); /* asks for a large one */
    OK(ctx, ct_scope_end(ctx));
    ct_tensor_release(x);
    for (int i = 0; i < KEPT; i++) { /* 64 bytes to 64 KiB, all size classes of these */
        kept[i] =
            ct_tensor_new(ctx, CT_F32, 1, (int64_t[]){(int64_t)(16 + 2 * (i % 8)) << (i % 11)});
        OK(ctx, ct_tensor_fill(ctx, kept[i], 7));
    }
    OK(ctx, ct_capture_run(ctx, c, sum_work, &s));
    OK(ctx, ct_tensor_item(ctx, s.out, &v));
    cr_assert_eq(v, 50000);
    for (int i = 0; i < KEPT; i++) {
        float *p = malloc((size_t)ct_tensor_numel(kept[i]) * sizeof *p);
        OK(ctx, ct_tensor_read(ctx, kept[i], p, (size_t)ct_tensor_numel(kept[i]) * sizeof *p));
        for (int64_t k = 0; k < ct_tensor_numel(kept[i]); k++)
            cr_assert_eq(p[k], 7, "tensor %d was written over", i);
        free(p);
        ct_tensor_release(kept[i]);
    }
    ct_tensor_release(s.x);
    ct_tensor_release(s.out);
    ct_capture_free(c);
    ct_ctx_free(ctx);
}

Test(capture, on_the_cpu_work_is_called)
{
    net n;

    net_open(&n, "cpu");
    for (int s = 0; s < 3; s++)
        one_step(&n, s, true);
    cr_assert_eq(n.calls, 3);
    cr_assert_eq(ct_capture_replays(n.grad), 0);
    cr_assert_not_null(strstr(ct_capture_refused(n.grad), "cpu"));
    net_close(&n);
}
