/* SPDX-License-Identifier: Apache-2.0 */
/* One optimizer step: a window of micro-batches, each backward of the sum of its losses, then one
 * division by the window's whole weight. So a window equals one big batch, a short last one too.
 * Nothing is read from the device here, and a steady step allocates nothing. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/thread.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

ct_tensor *cti_loss(ct_tensor *out, ct_tensor *target, double smoothing, ct_tensor **weight)
{
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();

    o.label_smoothing = smoothing;
    o.reduction = CT_REDUCE_SUM;
    o.total_weight = weight;
    return ct_cross_entropy(out, target, o);
}

/* ---- sums ---- */

int cti_add_wide(ct_ctx *ctx, ct_tensor *total, ct_tensor *wide, ct_tensor *term)
{
    int r;

    if (!term)
        return ct_error_code(ctx);
    if (ct_tensor_dtype(term) == CT_F64)
        return ct_tensor_add(ctx, total, term, 1);
    if ((r = ct_tensor_copy(ctx, wide, term)) < 0)
        return r;
    return ct_tensor_add(ctx, total, wide, 1);
}

int cti_make_sums(cti_trainer *t)
{
    ct_dtype dtype = ct_ctx_dtype(t->ctx);

    t->window_loss = ct_tensor_scalar(t->ctx, dtype, 0);
    t->window_weight = ct_tensor_scalar(t->ctx, dtype, 0);
    t->sums.loss = ct_tensor_scalar(t->ctx, CT_F64, 0);
    t->sums.weight = ct_tensor_scalar(t->ctx, CT_F64, 0);
    t->sums.wide = ct_tensor_scalar(t->ctx, CT_F64, 0);
    return cti_take(t);
}

int cti_put_sums(cti_trainer *t)
{
    if (ct_tensor_fill(t->ctx, t->sums.loss, t->state.interval_loss) < 0 ||
        ct_tensor_fill(t->ctx, t->sums.weight, t->state.interval_weight) < 0)
        return cti_take(t);
    return CT_OK;
}

/* ---- one window ---- */

static int add_up(cti_trainer *t, ct_tensor *loss, ct_tensor *weight, bool first)
{
    ct_ctx *ctx = t->ctx;
    int r;

    if (first) {
        r = ct_tensor_copy(ctx, t->window_loss, loss);
        return r < 0 ? r : ct_tensor_copy(ctx, t->window_weight, weight);
    }
    r = ct_tensor_add(ctx, t->window_loss, loss, 1);
    return r < 0 ? r : ct_tensor_add(ctx, t->window_weight, weight, 1);
}

typedef struct micro_batch {
    cti_trainer *t;
    ct_tensor *x, *y;
    bool first; /* of its window */
} micro_batch;

/* What is captured and replayed: forward, backward, sums. */
static int micro_work(void *user)
{
    const micro_batch *b = user;
    cti_trainer *t = b->t;
    ct_ctx *ctx = t->ctx;
    ct_tensor *loss, *scaled, *weight = NULL, *scale = ct_optim_loss_scale(t->optim);
    int r, ended;

    if ((r = ct_scope_begin(ctx, t->set.autocast)) < 0)
        return r;
    loss = cti_loss(ct_module_forward(t->model, b->x), b->y, t->set.smoothing, &weight);
    scaled = scale ? ct_mul(loss, scale) : loss;
    if ((r = ct_backward(ctx, scaled, NULL, CT_BACKWARD_DEFAULT)) == CT_OK &&
        (r = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD)) == CT_OK) {
        r = add_up(t, loss, weight, b->first);
        ended = ct_scope_end(ctx);
        r = r < 0 ? r : ended;
    }
    ended = ct_scope_end(ctx);
    return r < 0 ? r : ended;
}

static int run_micro(cti_trainer *t, int64_t micro, ct_batch *batch)
{
    micro_batch b = {.t = t, .first = micro == 0};
    int64_t count = batch->count;
    int r;

    ct_ctx_set_position(t->ctx, (uint32_t)t->state.step, (uint32_t)micro);
    if ((r = cti_feed_take(&t->feed, batch, &b.x, &b.y)) < 0)
        return r;
    return cti_captured(&t->captures, b.first ? CTI_WORK_FIRST : CTI_WORK_MORE, count, b.x,
                        micro_work, &b);
}

typedef struct window {
    cti_trainer *t;
    ct_step_opts o;
} window;

static int step_work(void *user)
{
    const window *w = user;
    cti_trainer *t = w->t;
    int r;

    if ((r = ct_optim_step(t->ctx, t->optim, w->o)) < 0 ||
        (r = ct_scope_begin(t->ctx, CT_SCOPE_NO_GRAD)) < 0)
        return r;
    if ((r = cti_add_wide(t->ctx, t->sums.loss, t->sums.wide, t->window_loss)) == CT_OK)
        r = cti_add_wide(t->ctx, t->sums.weight, t->sums.wide, t->window_weight);
    return ct_scope_end(t->ctx) < 0 && r == CT_OK ? ct_error_code(t->ctx) : r;
}

/* ---- the result of a step, read when the next one is under way ---- */

int cti_make_results(cti_trainer *t)
{
    for (int i = 0; i < CTI_RESULTS && t->feed.async; i++) {
        t->results[i].host = ct_host_alloc(t->ctx, CT_OPTIM_RESULT_BYTES);
        t->results[i].there = ct_event_new(t->ctx);
    }
    return cti_take(t);
}

void cti_free_results(cti_trainer *t)
{
    for (int i = 0; i < CTI_RESULTS; i++) {
        if (t->results[i].there && t->results[i].asked)
            ct_event_sync(t->ctx, t->results[i].there);
        ct_event_free(t->results[i].there);
        ct_host_free(t->ctx, t->results[i].host);
    }
}

/* Looks at what has come in, without waiting, and asks for this step's. A result whose place is needed
 * again before it came is not looked at: it comes with the next line. */
static int exchange_results(cti_trainer *t)
{
    int r = CT_OK;

    for (int i = 0; i < CTI_RESULTS && t->results[i].there; i++) {
        if (!t->results[i].asked || (r = ct_event_query(t->ctx, t->results[i].there)) == 0)
            continue;
        if (r < 0)
            return r;
        t->results[i].asked = false;
        t->stop_seen |= ct_optim_result_of(t->results[i].host).latched;
    }
    for (int i = 0; i < CTI_RESULTS && t->results[i].there; i++) {
        if (t->results[i].asked)
            continue;
        t->results[i].asked = true;
        return ct_optim_result_async(t->ctx, t->optim, t->results[i].host, t->results[i].there);
    }
    return CT_OK;
}

static int window_step(cti_trainer *t)
{
    double momentum = ct_schedule_momentum(&t->schedule, t->state.step);
    window w = {.t = t, .o = ct_step_defaults()};
    int r;

    t->last_lr = ct_schedule_lr(&t->schedule, t->state.step);
    ct_optim_set_lr(t->optim, t->last_lr);
    if (!isnan(momentum))
        ct_optim_set_momentum(t->optim, momentum);
    w.o.weight = t->window_weight;
    w.o.loss = t->window_loss;
    w.o.max_norm = t->set.clip_norm;
    w.o.latch = t->set.stop_nonfinite;
    if ((r = ct_optim_prepare(t->ctx, t->optim, w.o)) < 0 ||
        /* As many tensors of state: SGD gets buffers with its first momentum. */
        (r = cti_captured(&t->captures, CTI_WORK_STEP, ct_optim_state(t->optim, NULL, 0), NULL,
                          step_work, &w)) < 0)
        return r;
    return exchange_results(t);
}

/* The micro-batches of a window: never across the end of an epoch. The error is in t->err or in the
 * context. */
static int window_batches(cti_trainer *t, int64_t *samples)
{
    int64_t left = ct_loader_batches(t->loader) - t->state.batch;
    int64_t n = left < t->set.accumulate ? left : t->set.accumulate;
    ct_batch batch;
    int r;

    for (int64_t i = 0; i < n; i++) {
        if ((r = ct_loader_next(t->loader, &batch, t->err)) < 0)
            return r;
        if (r == 0)
            return cti_fail(t->err, CT_EINTERNAL,
                            "the loader ended epoch %" PRId64 " after %" PRId64
                            " batches of %" PRId64,
                            t->state.epoch, t->state.batch + i, ct_loader_batches(t->loader));
        t->clock.wait_ms += batch.wait_ms;
        *samples += batch.count;
        if ((r = run_micro(t, i, &batch)) < 0)
            return r;
    }
    t->state.batch += n;
    return CT_OK;
}

/* The loader gives an end of its own to each epoch. */
static int end_epoch(cti_trainer *t)
{
    ct_batch batch;
    int r = ct_loader_next(t->loader, &batch, t->err);

    if (r < 0)
        return r;
    if (r > 0)
        return cti_fail(t->err, CT_EINTERNAL, "the loader went on after the end of an epoch");
    t->state.epoch++;
    t->state.batch = 0;
    return CT_OK;
}

/* What a step takes grows with the batch; all else was there before the first one. */
static void add_batch_that_fits(cti_trainer *t)
{
    ct_counters c = ct_ctx_counters(t->ctx);
    double taken = (double)c.live_bytes - (double)t->bytes_before_steps;
    double part = (taken + (double)c.room_bytes) / (taken + (double)c.wanted_bytes);
    int64_t fits = (int64_t)((double)t->set.batch_size * part);
    char text[200];

    if (taken <= 0 || !(part < 1))
        return;
    if (fits >= 1)
        snprintf(text, sizeof text,
                 "; by what it took until then, data.batch_size = %" PRId64 " (not %" PRId64
                 ") is the most that could fit; train.accumulate makes up for it",
                 fits, t->set.batch_size);
    else
        snprintf(text, sizeof text, "; not even a batch of one sample would fit");
    cti_error_suffix(t->err, text);
}

/* The loader's error is in t->err already, all others are in the context. */
static int step_failed(cti_trainer *t)
{
    if (t->err->code) {
        ct_error_clear(t->ctx);
        return t->err->code;
    }
    if (ct_error_code(t->ctx) == CT_OK)
        return cti_fail(t->err, CT_EINTERNAL, "step %" PRId64 " failed without a reason",
                        t->state.step + 1);
    cti_take(t);
    if (t->err->code == CT_ENOMEM)
        add_batch_that_fits(t);
    return cti_error_prefix(t->err, "step %" PRId64, t->state.step + 1);
}

int cti_step(cti_trainer *t)
{
    double begun = cti_now_s();
    int64_t samples = 0;
    int r, ended;

    if (ct_scope_begin(t->ctx, CT_SCOPE_STEP) < 0)
        return cti_take(t);
    ct_optim_zero_grad(t->optim);
    r = window_batches(t, &samples);
    if (r == CT_OK)
        r = window_step(t);
    ended = ct_scope_end(t->ctx);
    if (r < 0 || ended < 0)
        return step_failed(t);
    t->state.step++;
    t->state.samples += samples;
    t->state.interval_samples += samples;
    t->state.interval_steps++;
    t->clock.samples += samples;
    t->clock.steps++;
    t->clock.step_s += cti_now_s() - begun;
    return t->state.batch == ct_loader_batches(t->loader) ? end_epoch(t) : CT_OK;
}

/* ---- looking ---- */

static int tell_nonfinite(cti_trainer *t)
{
    int64_t first = t->state.step - (t->state.skipped - t->checked_skips) + 1;
    bool loss = !isfinite(t->state.interval_loss);
    char good[1200] = "no checkpoint was saved before";

    cti_drain(t);
    if (t->good_step >= 0)
        snprintf(good, sizeof good, "the last good checkpoint is %s/step-%08" PRId64,
                 t->run.checkpoints, t->good_step);
    return cti_fail(
        t->err, CT_ENONFINITE,
        "step %" PRId64 ": the %s became NaN or infinite; no later step was applied and %s. "
        "Try a lower optimizer.lr (the step's lr was %g), train.clip_norm = 1, or a warm-up; "
        "train.nonfinite = skip passes over such steps",
        first, loss ? "loss" : "gradient", good, ct_schedule_lr(&t->schedule, first - 1));
}

/* Gradients of a scale that small overflow by themselves. */
static int tell_scale(cti_trainer *t)
{
    cti_drain(t);
    return cti_fail(t->err, CT_ENONFINITE,
                    "step %" PRId64 ": float16 gradients overflow at any loss scale (it is %g by "
                    "now); %" PRId64 " steps were not applied. Try a lower optimizer.lr, "
                    "run.precision = bf16, or train.nonfinite = skip",
                    t->state.step, t->state.loss_scale, t->state.skipped);
}

int cti_look(cti_trainer *t, ct_step_result *result)
{
    ct_step_result mine;

    if (!result)
        result = &mine;
    if (ct_optim_result(t->ctx, t->optim, result) < 0 ||
        ct_tensor_item(t->ctx, t->sums.loss, &t->state.interval_loss) < 0 ||
        ct_tensor_item(t->ctx, t->sums.weight, &t->state.interval_weight) < 0)
        return cti_take(t);
    t->state.applied = result->applied;
    t->state.skipped = result->skipped;
    t->state.loss_scale = result->loss_scale;
    t->state.growth_tracker = result->growth_tracker;
    if (result->latched)
        return tell_nonfinite(t);
    if (result->loss_scale < 1 && t->set.stop_nonfinite)
        return tell_scale(t);
    if (result->skipped > t->checked_skips)
        cti_tell(&t->say, CT_LOG_WARN,
                 "up to step %" PRId64 ": %" PRId64
                 " steps not applied (NaN or infinity in loss or "
                 "gradient, or no sample with weight), %" PRId64 " in all",
                 t->state.step, result->skipped - t->checked_skips, result->skipped);
    t->checked_skips = result->skipped;
    return CT_OK;
}
