/* SPDX-License-Identifier: Apache-2.0 */
/* What a run leaves behind: checkpoints, evaluations, lines of metrics.jsonl. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/thread.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- metrics.jsonl ---- */

void cti_metrics_told(cti_trainer *t, int r, const ct_error *err)
{
    if (r < 0 && !t->metrics.failed)
        cti_tell(&t->say, CT_LOG_ERROR, "metrics.jsonl misses lines from step %" PRId64 " on: %s",
                 t->state.step, err->text);
    if (r == CT_OK && t->metrics.failed)
        cti_tell(&t->say, CT_LOG_WARN, "metrics.jsonl is written again from step %" PRId64 " on",
                 t->state.step);
    t->metrics.failed = r < 0;
}

static void end_line(cti_trainer *t)
{
    ct_error err = {0};
    int r = cti_metrics_end(&t->metrics, &err);

    cti_metrics_told(t, r, &err);
}

static int64_t wall_ms(void)
{
    struct timespec now;

    if (timespec_get(&now, TIME_UTC) == 0)
        return 0;
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int cti_log_start(cti_trainer *t)
{
    const cti_state *s = &t->state;
    cti_jw *w = cti_metrics_begin(&t->metrics, "start");

    cti_jw_string(w, "ctrain", s->version);
    cti_jw_string(w, "device", s->device);
    cti_jw_string(w, "isa", s->isa);
    cti_jw_string(w, "libraries", s->libraries);
    cti_jw_i64(w, "threads", s->threads);
    cti_jw_string(w, "precision", s->precision);
    cti_jw_i64(w, "seed", s->seed);
    cti_jw_string(w, "dataset", s->dataset);
    cti_jw_i64(w, "train_samples", s->train_count);
    cti_jw_i64(w, "val_samples", s->val_count);
    cti_jw_i64(w, "classes", s->n_classes);
    cti_jw_i64(w, "parameters", ct_module_n_params(t->model));
    cti_jw_i64(w, "batch_size", t->set.batch_size);
    cti_jw_i64(w, "accumulate", t->set.accumulate);
    cti_jw_i64(w, "steps_per_epoch", s->steps_per_epoch);
    cti_jw_i64(w, "total_steps", s->total_steps);
    cti_jw_i64(w, "time_ms", wall_ms());
    end_line(t);
    return CT_OK;
}

/* The steps since the last line: loss is their sum over their weight, samples their count; wait_ms
 * and step_ms are means over the steps of this process. With log.every = 1 that is the one step. */
int cti_log_step(cti_trainer *t)
{
    cti_state *s = &t->state;
    double per = t->clock.steps > 0 ? 1.0 / (double)t->clock.steps : 0;
    double ms = t->clock.step_s * 1e3;
    ct_step_result result;
    cti_jw *w;
    int r;

    if ((r = cti_look(t, &result)) < 0)
        return r;
    t->last_loss = s->interval_loss / s->interval_weight;
    t->last_norm = result.grad_norm;
    t->last_wait = ms > 0 ? t->clock.wait_ms / ms : 0;
    w = cti_metrics_begin(&t->metrics, "step");
    cti_jw_i64(w, "step", s->step);
    cti_jw_i64(w, "epoch", cti_epoch_of(s));
    cti_jw_f64(w, "loss", t->last_loss);
    cti_jw_f64(w, "lr", t->last_lr);
    cti_jw_f64(w, "grad_norm", result.grad_norm);
    cti_jw_i64(w, "samples", s->interval_samples);
    cti_jw_f64(w, "wait_ms", t->clock.wait_ms * per);
    cti_jw_f64(w, "step_ms", ms * per);
    if (s->skipped > 0)
        cti_jw_i64(w, "skipped", s->skipped);
    if (ct_optim_loss_scale(t->optim))
        cti_jw_f64(w, "loss_scale", s->loss_scale);
    end_line(t);
    cti_tell(&t->say, CT_LOG_DETAIL,
             "step %" PRId64 "/%" PRId64 " | epoch %" PRId64
             " | loss %.4g | lr %.3g | |g| %.3g | wait "
             "%.0f %%",
             s->step, s->total_steps, cti_epoch_of(s), t->last_loss, t->last_lr, t->last_norm,
             100 * t->last_wait);
    cti_state_end_interval(s);
    t->clock.rate = ms > 0 ? (double)t->clock.samples / ms * 1e3 : 0;
    t->clock.wait_ms = t->clock.step_s = 0;
    t->clock.steps = t->clock.samples = 0;
    t->clock.logged_s = cti_now_s();
    return cti_put_sums(t);
}

int cti_log_checkpoint(cti_trainer *t, const char *why, double ms)
{
    char name[CTI_CKPT_NAME_CAP];
    cti_jw *w = cti_metrics_begin(&t->metrics, "checkpoint");

    cti_ckpt_name(name, t->state.step);
    cti_jw_i64(w, "step", t->state.step);
    cti_jw_i64(w, "epoch", cti_epoch_of(&t->state));
    cti_jw_string(w, "name", name);
    cti_jw_string(w, "why", why);
    cti_jw_f64(w, "save_ms", ms);
    end_line(t);
    return CT_OK;
}

int cti_log_end(cti_trainer *t, const char *status)
{
    const cti_state *s = &t->state;
    cti_jw *w = cti_metrics_begin(&t->metrics, "end");

    cti_jw_i64(w, "step", s->step);
    cti_jw_i64(w, "epoch", cti_epoch_of(s));
    cti_jw_string(w, "status", status);
    cti_jw_f64(w, "train_loss", s->train_loss);
    cti_jw_f64(w, "val_loss", s->val_loss);
    cti_jw_f64(w, "val_acc", s->val_acc);
    if (s->has_best) {
        cti_jw_f64(w, "best", s->best);
        cti_jw_i64(w, "best_step", s->best_step);
    }
    cti_jw_f64(w, "train_ms", (cti_now_s() - t->clock.begun_s) * 1e3);
    end_line(t);
    return CT_OK;
}

/* ---- checkpoints ---- */

static void take_back(cti_trainer *t, const cti_save_job *job)
{
    for (int i = 0; i < job->n_lines; i++)
        cti_tell(&t->say, job->line[i].level, "%s", job->line[i].text);
    if (!job->write)
        return;
    if (job->result == CT_OK) {
        t->good_step = job->state.step;
        cti_tell(&t->say, CT_LOG_DETAIL, "saved %s/step-%08" PRId64, t->run.checkpoints,
                 job->state.step);
        return;
    }
    t->save_error = job->err;
    cti_tell(&t->say, CT_LOG_ERROR, "going on without a checkpoint of step %" PRId64 "; %s",
             job->state.step, t->good_step >= 0 ? "the one before is kept" : "there is none yet");
}

void cti_drain(cti_trainer *t)
{
    const cti_save_job *job;

    while (t->saver && (job = cti_saver_wait(t->saver)) != NULL)
        take_back(t, job);
}

int cti_settle(cti_trainer *t)
{
    cti_drain(t);
    if (t->good_step == t->state.step)
        return CT_OK;
    return cti_fail(t->err, t->save_error.code ? t->save_error.code : CT_EINTERNAL,
                    "the weights of step %" PRId64 " could not be saved: %s; %s%s", t->state.step,
                    t->save_error.text,
                    t->good_step >= 0 ? "the last good checkpoint is still in " : "",
                    t->good_step >= 0 ? t->run.checkpoints : "there is no checkpoint");
}

/* What retention needs; the job's thread must not look at the trainer. */
static void fill_job(const cti_trainer *t, cti_save_job *job)
{
    job->state = t->state;
    job->state.config = NULL;
    job->keep_last = t->set.keep_last;
    job->keep_best = t->set.keep_best;
    if (t->target.resume)
        memcpy(job->resumed_from, t->target.checkpoint, sizeof job->resumed_from);
}

int cti_save(cti_trainer *t, const char *why)
{
    double begun = cti_now_s();
    cti_save_job *job;
    cti_ckpt_parts parts;
    int r;

    cti_drain(t); /* one save at a time: one image in memory */
    if ((r = cti_look(t, NULL)) < 0 || (r = cti_list_slots(t)) < 0)
        return r;
    snprintf(t->state.why, sizeof t->state.why, "%s", why);
    parts = (cti_ckpt_parts){.model = t->params,
                             .n_model = t->n_params,
                             .optim = t->slots,
                             .n_optim = t->n_slots,
                             .state = &t->state};
    t->save_error = (ct_error){0};
    job = cti_saver_job(t->saver, true);
    if (cti_ckpt_image_make(t->ctx, t->mem, &parts, &job->image, &t->save_error) < 0) {
        cti_tell(&t->say, CT_LOG_ERROR, "going on without a checkpoint of step %" PRId64 ": %s",
                 t->state.step, t->save_error.text);
        return CT_OK;
    }
    fill_job(t, job);
    job->metrics = &t->metrics;
    cti_saver_submit(t->saver, job);
    t->clock.saved_s = cti_now_s();
    t->saved_step = t->state.step;
    t->saved_due = strcmp(why, "stop") != 0;
    if (t->saved_due)
        cti_log_checkpoint(t, why, (t->clock.saved_s - begun) * 1e3);
    return CT_OK;
}

/* A checkpoint that was saved for a request to stop counts as this one when the run goes on at its
 * step: an uninterrupted run would have saved it here. */
int cti_save_here(cti_trainer *t, const char *why)
{
    if (t->saved_step != t->state.step)
        return cti_save(t, why);
    if (!t->saved_due)
        cti_log_checkpoint(t, why, 0);
    t->saved_due = true;
    return CT_OK;
}

/* ---- evaluation ---- */

/* The new best: kept even when no checkpoint is due here, and pointed to. */
static int keep_best(cti_trainer *t)
{
    cti_save_job *job;
    int r;

    if (t->set.keep_best > 0 && (r = cti_save_here(t, "best")) < 0)
        return r;
    if (t->saved_step != t->state.step)
        return CT_OK;
    job = cti_saver_job(t->saver, false);
    if (!job) {
        cti_drain(t);
        job = cti_saver_job(t->saver, false);
    }
    fill_job(t, job);
    cti_ckpt_name(job->best, t->state.step);
    cti_saver_submit(t->saver, job);
    return CT_OK;
}

static void log_eval(cti_trainer *t, const cti_scores *scores, double ms)
{
    const cti_state *s = &t->state;
    cti_jw *w = cti_metrics_begin(&t->metrics, "eval");

    cti_jw_i64(w, "step", s->step);
    cti_jw_i64(w, "epoch", cti_epoch_of(s));
    cti_jw_f64(w, "val_loss", scores->loss);
    cti_jw_f64(w, "val_acc", scores->accuracy);
    cti_jw_f64(w, "train_loss", s->train_loss);
    cti_jw_i64(w, "samples", scores->samples);
    cti_jw_f64(w, "eval_ms", ms);
    end_line(t);
}

/* The training loss since the last evaluation, also of the steps that no step line has counted yet.
 */
static int take_train_loss(cti_trainer *t)
{
    int r = cti_look(t, NULL);

    if (r < 0)
        return r;
    cti_state_take_train_loss(&t->state);
    return CT_OK;
}

int cti_evaluate_now(cti_trainer *t)
{
    cti_state *s = &t->state;
    double begun = cti_now_s();
    cti_scores scores;
    double monitored;
    bool better;
    int r;

    if ((r = cti_evaluator_run(&t->eval, t->model, &t->opts, &scores, t->err)) < 0 ||
        (r = take_train_loss(t)) < 0)
        return r;
    s->eval_due = false;
    s->val_loss = scores.loss;
    s->val_acc = scores.accuracy;
    log_eval(t, &scores, (cti_now_s() - begun) * 1e3);
    monitored = t->set.larger_is_better ? scores.accuracy : scores.loss;
    if (!isfinite(scores.loss)) /* a net that gives NaN still gets some samples right */
        monitored = NAN;
    better = cti_state_judge(s, monitored, t->set.larger_is_better, t->set.min_delta);
    cti_tell(&t->say, CT_LOG_INFO,
             "epoch %" PRId64 ", step %" PRId64 "/%" PRId64
             ": loss %.4f, val_loss %.4f, val_acc %.2f %%%s",
             cti_epoch_of(s), s->step, s->total_steps, s->train_loss, scores.loss,
             100 * scores.accuracy, better ? ", best" : "");
    if (!isfinite(monitored))
        cti_tell(&t->say, CT_LOG_WARN, "step %" PRId64 ": %s is not finite: never the best",
                 s->step, s->monitor);
    if (better)
        r = keep_best(t);
    else if (cti_state_is_top(s, t->set.keep_best, s->step))
        r = cti_save_here(t, "best");
    if (r < 0)
        return r;
    t->stopped_early = t->set.patience > 0 && s->evals_without >= t->set.patience;
    return CT_OK;
}
