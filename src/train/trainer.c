/* SPDX-License-Identifier: Apache-2.0 */
/* ct_run and ct_eval: the order of a run, from the config to the last line. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

ct_run_opts ct_run_defaults(void)
{
    return (ct_run_opts){0};
}

/* To the application and to log.txt. */
static void say_line(ct_log_level level, const char *text, void *user)
{
    cti_trainer *t = user;

    cti_rundir_log(&t->run, level, text);
    if (t->opts.on_line)
        t->opts.on_line(level, text, t->opts.user);
}

int cti_trainer_init(cti_trainer *t, ct_config *config, const ct_run_opts *opts, ct_error *err)
{
    *t = (cti_trainer){
        .config = config, .opts = *opts, .err = err, .saved_step = -1, .good_step = -1};
    t->run.lock = t->run.log = -1;
    t->metrics.fd = -1;
    t->last_loss = t->last_norm = t->last_lr = NAN;
    t->say = (cti_say){.line = say_line, .user = t};
    t->mem = cti_mem_new(NULL);
    if (!t->mem)
        return cti_fail(err, CT_ENOMEM, "out of memory");
    t->clock.begun_s = cti_now_s();
    return CT_OK;
}

void cti_trainer_clear(cti_trainer *t)
{
    if (!t->mem)
        return;
    cti_saver_free(t->saver);
    cti_captures_clear(&t->captures);
    cti_free_results(t);
    cti_evaluator_close(&t->eval);
    cti_feed_clear(&t->feed);
    ct_tensor_release(t->window_loss);
    ct_tensor_release(t->window_weight);
    ct_tensor_release(t->sums.loss);
    ct_tensor_release(t->sums.weight);
    ct_tensor_release(t->sums.wide);
    ct_optim_free(t->optim);
    ct_module_free(t->model);
    ct_ctx_free(t->ctx);
    cti_data_close(&t->data);
    cti_metrics_close(&t->metrics);
    cti_rundir_close(&t->run);
    cti_free(t->mem, t->params);
    cti_free(t->mem, t->slots);
    cti_state_clear(&t->state);
    cti_mem_free(t->mem, NULL, NULL);
    t->mem = NULL;
}

/* ---- the state of a run ---- */

static void copy_text(char *out, size_t cap, const char *text)
{
    snprintf(out, cap, "%s", text ? text : "");
}

/* What describes the run as it is now: of a new run, and of a resumed one, which may differ. */
static int describe_state(cti_trainer *t)
{
    const ct_dataset_info *train = ct_dataset_get_info(t->data.train);
    const ct_dataset_info *val = ct_dataset_get_info(t->data.val);
    const char *text = ct_config_text(t->config);
    cti_state *s = &t->state;

    s->schema = CTI_STATE_SCHEMA;
    s->mem = t->mem;
    s->seed = cti_config_i64(t->config, "run", "seed");
    s->threads = t->build.threads;
    copy_text(s->version, sizeof s->version, t->build.version);
    copy_text(s->device, sizeof s->device, t->build.device);
    copy_text(s->isa, sizeof s->isa, t->build.isa);
    copy_text(s->libraries, sizeof s->libraries, t->build.libraries);
    copy_text(s->precision, sizeof s->precision, ct_config_get(t->config, "run", "precision"));
    copy_text(s->dataset, sizeof s->dataset, train->name);
    s->fingerprint = train->fingerprint;
    s->val_fingerprint = val->fingerprint;
    s->train_count = train->count;
    s->val_count = val->count;
    s->n_classes = train->n_classes;
    s->total_steps = t->schedule.total;
    s->steps_per_epoch = (ct_loader_batches(t->loader) + t->set.accumulate - 1) / t->set.accumulate;
    copy_text(s->schedule, sizeof s->schedule, ct_config_get(t->config, "schedule", "name"));
    copy_text(s->monitor, sizeof s->monitor, ct_config_get(t->config, "train", "monitor"));
    cti_free(t->mem, s->config);
    s->config = text ? cti_strdup(t->mem, text) : NULL;
    return s->config ? CT_OK : cti_fail(t->err, CT_ENOMEM, "out of memory for the resolved config");
}

/* Another monitor: what was best by the old one says nothing about the new. */
static void forget_best(cti_trainer *t)
{
    cti_state *s = &t->state;

    if (strcmp(s->monitor, ct_config_get(t->config, "train", "monitor")) == 0)
        return;
    cti_tell(&t->say, CT_LOG_WARN,
             "resume: train.monitor has changed: best and patience begin anew");
    s->has_best = s->has_reference = false;
    s->n_top = s->evals_without = 0;
}

static int make_loader(cti_trainer *t)
{
    const ct_config *c = t->config;
    ct_loader_opts o = ct_loader_defaults();

    o.batch_size = t->set.batch_size;
    o.workers = (int)cti_config_i64(c, "data", "workers");
    o.prefetch = (int)cti_config_i64(c, "data", "prefetch");
    o.shuffle = cti_config_bool(c, "data", "shuffle");
    o.drop_last = cti_config_bool(c, "data", "drop_last");
    o.seed = (uint64_t)cti_config_i64(c, "run", "seed");
    t->loader = cti_feed_loader(&t->feed, t->data.train, o,
                                cti_config_bool(c, "data", "pin_memory"), t->err);
    t->captures = (cti_captures){.ctx = t->ctx, .on = cti_config_bool(c, "run", "capture")};
    return t->loader ? CT_OK : t->err->code;
}

/* Optimizer, schedule, loaders: what a step needs besides the model. */
int cti_make_stepper(cti_trainer *t)
{
    double momentum;
    int r;

    if ((r = cti_make_schedule(t, cti_total_steps(t))) < 0 ||
        (r = cti_make_optim(t, t->set.lr, cti_weight_decay(t->config))) < 0)
        return r;
    momentum = ct_schedule_momentum(&t->schedule, 0);
    if (!isnan(momentum))
        ct_optim_set_momentum(t->optim, momentum);
    cti_feed_init(&t->feed, t->ctx, ct_dataset_get_info(t->data.train));
    if ((r = make_loader(t)) < 0 || (r = cti_make_sums(t)) < 0 || (r = cti_make_results(t)) < 0 ||
        (r = cti_evaluator_open(&t->eval, t->ctx, t->data.val, t->config, t->err)) < 0)
        return r;
    return cti_list_slots(t);
}

/* ---- the run directory ---- */

static int64_t checkpoint_bytes(const cti_trainer *t)
{
    int64_t sum = 1 << 20; /* headers, state, block sizes */

    for (int i = 0; i < t->n_params; i++)
        sum += ct_tensor_numel(t->params[i].tensor) *
               (int64_t)ct_dtype_bytes(ct_tensor_dtype(t->params[i].tensor));
    for (int i = 0; i < t->n_slots; i++)
        sum += ct_tensor_numel(t->slots[i].tensor) *
               (int64_t)ct_dtype_bytes(ct_tensor_dtype(t->slots[i].tensor));
    return sum;
}

/* The lock first, where there is a directory: a run in use is told before anything is built. */
static int open_existing(cti_trainer *t)
{
    int r;

    if ((r = cti_target_find(t->mem, t->config, &t->opts, &t->say, &t->target, t->err)) < 0)
        return r;
    if (t->target.dir[0] && cti_path_is_dir(t->target.dir) &&
        (r = cti_rundir_open(&t->run, t->config, &t->target, t->err)) < 0)
        return r;
    if (!t->target.resume)
        return CT_OK;
    if ((r = cti_ckpt_sweep(t->mem, t->run.checkpoints, &t->say, t->err)) < 0 ||
        (r = cti_target_checkpoint(t->mem, &t->say, &t->target, t->err)) < 0)
        return r;
    return t->target.resume ? cti_resume_read(t) : CT_OK;
}

static int prepare_dir(cti_trainer *t)
{
    char path[CTI_PATH_CAP];
    int r;

    if (t->run.lock < 0 && (r = cti_rundir_open(&t->run, t->config, &t->target, t->err)) < 0)
        return r;
    if ((r = cti_ckpt_sweep(t->mem, t->run.checkpoints, &t->say, t->err)) < 0 ||
        (!t->target.resume && (r = cti_rundir_reset(&t->run, t->err)) < 0) ||
        (r = cti_rundir_room(&t->run, checkpoint_bytes(t), t->err)) < 0)
        return r;
    if (t->target.resume) {
        if ((r = cti_resume_restore(t)) < 0)
            return r;
        forget_best(t);
    }
    /* After the restore: a resume that is refused leaves the run's own config behind. */
    if ((r = cti_rundir_write_config(&t->run, t->config, t->err)) < 0 ||
        (r = cti_rundir_write_env(t->mem, &t->run, &t->build, t->err)) < 0 ||
        (r = describe_state(t)) < 0 ||
        (r = cti_path(path, sizeof path, t->err, "%s/metrics.jsonl", t->run.dir)) < 0)
        return r;
    if ((r = cti_metrics_open(&t->metrics, t->mem, path, t->err)) < 0)
        return r;
    t->saver = cti_saver_start(t->mem, t->run.checkpoints, t->err);
    return t->saver ? CT_OK : t->err->code;
}

/* ---- lines ---- */

static void tell_device(cti_trainer *t)
{
    if (ct_ctx_fallback(t->ctx)[0])
        cti_tell(&t->say, CT_LOG_INFO, "device auto: %s; using cpu", ct_ctx_fallback(t->ctx));
}

static void tell_start(cti_trainer *t)
{
    const ct_config *c = t->config;
    const cti_state *s = &t->state;

    tell_device(t);
    cti_tell(&t->say, CT_LOG_INFO,
             "%s: %" PRId64 " training and %" PRId64 " validation samples, %" PRId64
             " classes; %s with %" PRId64 " parameters; %s, %s; %s, %s, %d threads, %s",
             s->dataset, s->train_count, s->val_count, s->n_classes,
             ct_config_get(c, "model", "name"), ct_module_n_params(t->model),
             ct_config_get(c, "optimizer", "name"), s->schedule, s->device, s->isa,
             t->build.threads, s->precision);
    if (t->target.resume)
        cti_tell(&t->say, CT_LOG_INFO,
                 "resuming %s from %s: step %" PRId64 " of %" PRId64 ", epoch %" PRId64, t->run.dir,
                 t->target.checkpoint, s->step, s->total_steps, cti_epoch_of(s));
    else
        cti_tell(&t->say, CT_LOG_INFO, "run directory %s", t->run.dir);
}

static void tell_end(cti_trainer *t, const ct_run_result *out)
{
    const cti_state *s = &t->state;
    char best[160] = "";

    if (s->has_best)
        snprintf(best, sizeof best, " (best %s %.*f%s at step %" PRId64 ")", s->monitor,
                 t->set.larger_is_better ? 2 : 4, t->set.larger_is_better ? 100 * s->best : s->best,
                 t->set.larger_is_better ? " %" : "", s->best_step);
    if (t->stopped_early)
        cti_tell(&t->say, CT_LOG_INFO,
                 "stopped early: no improvement of %s in %" PRId64 " evaluations", s->monitor,
                 s->evals_without);
    cti_tell(&t->say, CT_LOG_INFO, "done: validation loss %.4f, accuracy %.2f %%%s; %.2f s; %s",
             s->val_loss, 100 * s->val_acc, best, out->train_s, t->run.dir);
}

static void fill_result(const cti_trainer *t, ct_run_result *out)
{
    const cti_state *s = &t->state;

    copy_text(out->dir, sizeof out->dir, t->run.dir);
    out->step = s->step;
    out->epoch = cti_epoch_of(s);
    out->train_loss = s->train_loss;
    out->val_loss = s->val_loss;
    out->val_acc = s->val_acc;
    out->best = s->has_best ? s->best : NAN;
    out->best_step = s->best_step;
    out->train_s = cti_now_s() - t->clock.begun_s;
}

static const char *end_status(int code, bool early)
{
    if (code == CT_OK)
        return early ? "early_stop" : "done";
    return code == CT_EINTERRUPTED ? "interrupted" : code == CT_ENONFINITE ? "nonfinite" : "failed";
}

static void add_good_checkpoint(cti_trainer *t)
{
    char text[CTI_PATH_CAP + 100];

    snprintf(text, sizeof text,
             "; the last good state is saved in %s/step-%08" PRId64 ": go on with --resume",
             t->run.checkpoints, t->good_step);
    cti_error_suffix(t->err, text);
}

/* ---- ct_run ---- */

static int train(cti_trainer *t, ct_run_result *out)
{
    int r;

    if ((r = prepare_dir(t)) < 0)
        return r;
    tell_start(t);
    if (!t->target.resume)
        cti_log_start(t);
    else if (t->saved_due)
        cti_log_checkpoint(t, t->state.why, 0);
    t->clock.begun_s = cti_now_s();
    r = cti_loop(t);
    cti_drain(t);
    if (r == CT_EDEVICE && t->good_step >= 0)
        add_good_checkpoint(t);
    fill_result(t, out);
    cti_log_end(t, end_status(r, t->stopped_early));
    if (r == CT_OK)
        tell_end(t, out);
    else
        cti_rundir_log(&t->run, r == CT_EINTERRUPTED ? CT_LOG_WARN : CT_LOG_ERROR, t->err->text);
    return r;
}

static int run(cti_trainer *t, ct_run_result *out)
{
    bool resuming;
    int threads, r;

    if (!t->opts.dry_run && !t->opts.overfit_one_batch && (r = open_existing(t)) < 0)
        return r;
    resuming = t->target.resume;
    /* Results depend on the number of threads: the stored one counts unless another is asked for.
     */
    threads =
        resuming && cti_config_i64(t->config, "run", "threads") == 0 ? (int)t->state.threads : 0;
    if (!resuming) {
        t->state.mem = t->mem;
        t->state.train_loss = t->state.val_loss = t->state.val_acc = NAN;
    }
    if ((r = cti_setup(t, threads)) < 0)
        return r;
    if (t->opts.overfit_one_batch) {
        tell_device(t);
        return cti_overfit(t, out);
    }
    if (resuming && cti_resume_finished(t, out)) {
        copy_text(out->dir, sizeof out->dir, t->run.dir);
        return CT_OK;
    }
    if ((r = cti_make_stepper(t)) < 0)
        return r;
    if (t->opts.dry_run) {
        tell_device(t);
        cti_tell(&t->say, CT_LOG_INFO,
                 "the config is fine: %" PRId64 " steps, %" PRId64
                 " parameters; nothing was trained",
                 t->schedule.total, ct_module_n_params(t->model));
        return CT_OK;
    }
    return train(t, out);
}

int ct_run(const ct_config *config, ct_run_opts opts, ct_run_result *out, ct_error *err)
{
    ct_run_result mine;
    ct_error own = {0};
    cti_trainer t;
    int r;

    if (!out)
        out = &mine;
    if (!err)
        err = &own;
    *out = (ct_run_result){
        .train_loss = NAN, .val_loss = NAN, .val_acc = NAN, .best = NAN, .best_step = 0};
    if (!config)
        return cti_fail(err, CT_EINVAL, "ct_run needs a config");
    /* The resolved text is cached in the config: the one thing that a run changes in it. */
    r = cti_trainer_init(&t, (ct_config *)config, &opts, err);
    if (r == CT_OK)
        r = run(&t, out);
    cti_trainer_clear(&t);
    return r;
}

/* ---- ct_eval ---- */

static int eval_checkpoint(cti_trainer *t, const char *checkpoint, ct_eval_result *out)
{
    char path[CTI_PATH_CAP];
    cti_scores scores;
    int r;

    if ((r = cti_make_context(
             t, cti_config_i64(t->config, "run", "threads") == 0 ? (int)t->state.threads : 0)) <
            0 ||
        (r = cti_data_open(&t->data, t->config, t->err)) < 0 ||
        (r = cti_make_model(t, ct_dataset_get_info(t->data.val))) < 0 ||
        (r = cti_check_model(t, t->data.val)) < 0 ||
        (r = cti_path(path, sizeof path, t->err, "%s/model.safetensors", checkpoint)) < 0)
        return r;
    if (ct_safetensors_load(t->ctx, path, t->params, t->n_params) < 0) {
        cti_take(t);
        return cti_error_prefix(t->err, "the checkpoint is of another model");
    }
    if ((r = cti_evaluator_open(&t->eval, t->ctx, t->data.val, t->config, t->err)) < 0 ||
        (r = cti_evaluator_run(&t->eval, t->model, &t->opts, &scores, t->err)) < 0)
        return r;
    out->step = t->state.step;
    out->samples = scores.samples;
    out->loss = scores.loss;
    out->accuracy = scores.accuracy;
    return CT_OK;
}

static int eval(cti_trainer *t, const char *dir, const char *const *overrides, int n,
                ct_eval_result *out)
{
    char run_dir[1024], checkpoint[CTI_PATH_CAP];
    int r;

    if ((r = cti_rundir_locate(t->mem, dir, NULL, &t->say, run_dir, checkpoint, t->err)) < 0 ||
        (r = cti_ckpt_verify(t->mem, checkpoint, t->err)) < 0 ||
        (r = cti_ckpt_read_state(t->mem, checkpoint, &t->state, t->err)) < 0 ||
        (r = cti_path(out->checkpoint, sizeof out->checkpoint, t->err, "%s", checkpoint)) < 0)
        return r;
    t->config = cti_config_of_text(t->mem, t->state.config, overrides, n, t->opts.models, t->err);
    if (!t->config)
        return t->err->code;
    t->target.resume = true; /* the weights come from the checkpoint, not from model.init */
    cti_read_settings(&t->set, t->config);
    return eval_checkpoint(t, checkpoint, out);
}

int ct_eval(const char *dir, const char *const *overrides, int n_overrides, ct_run_opts opts,
            ct_eval_result *out, ct_error *err)
{
    ct_eval_result mine;
    ct_error own = {0};
    cti_trainer t;
    ct_config *config;
    int r;

    if (!out)
        out = &mine;
    if (!err)
        err = &own;
    *out = (ct_eval_result){.loss = NAN, .accuracy = NAN};
    if (!dir)
        return cti_fail(err, CT_EINVAL, "ct_eval needs a run or checkpoint directory");
    r = cti_trainer_init(&t, NULL, &opts, err);
    if (r == CT_OK)
        r = eval(&t, dir, overrides, n_overrides, out);
    config = t.config;
    cti_trainer_clear(&t);
    ct_config_free(config);
    return r;
}
