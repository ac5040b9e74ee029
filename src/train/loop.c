/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: steps, and what is due between them. At one step the order is: step line, checkpoint,
 * evaluation, best; so a crash in an evaluation loses nothing, and a resumed run first does the one
 * that was due. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/thread.h"

#include <inttypes.h>
#include <math.h>

int64_t cti_epoch_of(const cti_state *s)
{
    return s->batch == 0 ? s->epoch : s->epoch + 1;
}

/* Did the step just done cross a multiple of the interval? A pure function of the step, but for
 * minutes. */
static bool is_due(const cti_trainer *t, cti_interval every, double since_s)
{
    double step = (double)t->state.step, period = every.value;

    if (every.value <= 0)
        return false;
    if (every.unit == CTI_MINUTES)
        return cti_now_s() - since_s >= every.value * 60;
    if (every.unit == CTI_EPOCHS)
        period *= (double)t->state.steps_per_epoch;
    return floor(step / period + 1e-9) > floor((step - 1) / period + 1e-9);
}

static void progress(cti_trainer *t, double begun, int64_t first)
{
    const cti_state *s = &t->state;
    double took = cti_now_s() - begun;
    ct_progress p = {
        .step = s->step,
        .total_steps = s->total_steps,
        .epoch = cti_epoch_of(s),
        .total_epochs = (s->total_steps + s->steps_per_epoch - 1) / s->steps_per_epoch,
        .loss = t->last_loss,
        .lr = t->last_lr,
        .grad_norm = t->last_norm,
        .wait_fraction = t->last_wait,
        .samples_per_s = t->clock.rate,
    };

    if (!t->opts.on_progress)
        return;
    p.eta_s = took / (double)(s->step - first) * (double)(s->total_steps - s->step);
    t->opts.on_progress(&p, t->opts.user);
}

static bool wants_stop(const cti_trainer *t)
{
    return t->opts.should_stop && t->opts.should_stop(t->opts.user);
}

/* Saved now unless this step's checkpoint is there already. */
static int stop(cti_trainer *t)
{
    int r;

    if ((t->saved_step != t->state.step && (r = cti_save(t, "stop")) < 0) ||
        (r = cti_settle(t)) < 0)
        return r;
    return cti_fail(t->err, CT_EINTERRUPTED,
                    "stopped at step %" PRId64 " of %" PRId64 " as asked; saved in %s; go on with "
                    "--resume",
                    t->state.step, t->state.total_steps, t->run.dir);
}

static int evaluate_or_stop(cti_trainer *t)
{
    int r = cti_evaluate_now(t);

    if (r != CT_EINTERRUPTED)
        return r;
    *t->err = (ct_error){0};
    return stop(t);
}

/* What is due after a step. */
static int after_step(cti_trainer *t)
{
    cti_state *s = &t->state;
    bool last = s->step == s->total_steps;
    int r;

    if ((is_due(t, t->set.log_every, t->clock.logged_s) || t->stop_seen ||
         (last && t->set.log_every.value > 0 && s->interval_steps > 0)) &&
        (r = cti_log_step(t)) < 0)
        return r;
    s->eval_due = s->batch == 0 || last;
    if ((last || is_due(t, t->set.save_every, t->clock.saved_s)) && (r = cti_save(t, "due")) < 0)
        return r;
    if (wants_stop(t))
        return stop(t);
    return s->eval_due ? evaluate_or_stop(t) : CT_OK;
}

/* A run of no steps (epochs = 0): the initial weights are its result. */
static int no_steps(cti_trainer *t)
{
    int r;

    t->state.eval_due = true;
    if ((r = cti_save(t, "due")) < 0)
        return r;
    return evaluate_or_stop(t);
}

int cti_loop(cti_trainer *t)
{
    cti_state *s = &t->state;
    double begun = cti_now_s();
    int64_t first = s->step;
    int r;

    t->clock.saved_s = t->clock.logged_s = begun;
    t->bytes_before_steps = ct_ctx_counters(t->ctx).live_bytes;
    if (s->total_steps == 0 && !t->target.resume)
        return (r = no_steps(t)) < 0 ? r : cti_settle(t);
    /* The step of this evaluation may end the run only in the config it was saved under. */
    if (s->eval_due && (s->batch == 0 || s->step >= s->total_steps) &&
        (r = evaluate_or_stop(t)) < 0)
        return r;
    s->eval_due = false;
    t->stopped_early = t->set.patience > 0 && s->evals_without >= t->set.patience;
    while (s->step < s->total_steps && !t->stopped_early) {
        if ((r = cti_step(t)) < 0)
            return r;
        if ((r = after_step(t)) < 0)
            return r;
        progress(t, begun, first);
    }
    /* Ended by patience, perhaps where no checkpoint was due. */
    if ((r = cti_save_here(t, "due")) < 0)
        return r;
    return cti_settle(t);
}
