/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the trainer share. A run in order: setup.c builds all that a config asks for
 * and checks it, resume.c restores, loop.c goes through the steps of step.c, evaluate.c measures,
 * save.c saves, trainer.c holds it together. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/captures.h"
#include "train/data.h"
#include "train/feed.h"
#include "train/metrics.h"
#include "train/rundir.h"
#include "train/saver.h"
#include "train/state.h"

/* Sums on the device, f64, read at log points only. */
typedef struct cti_sums {
    ct_tensor *loss, *weight; /* since the last step line */
    ct_tensor *wide;          /* where a term is widened on its way */
} cti_sums;

typedef struct cti_settings {
    int64_t batch_size, accumulate, epochs;
    double smoothing, clip_norm, lr;
    bool stop_nonfinite;
    unsigned autocast;     /* what the scope of a forward is besides: CT_SCOPE_AUTOCAST_*, or 0 */
    bool larger_is_better; /* the monitor */
    double min_delta;
    int64_t patience, keep_last, keep_best;
    cti_interval save_every, log_every;
} cti_settings;

/* An evaluation: its own loader in file order and tensors; sums and counts are divided once. */
typedef struct cti_evaluator {
    ct_ctx *ctx;
    ct_dataset *ds;
    unsigned autocast; /* cti_settings */
    ct_loader *loader; /* the feed's */
    cti_feed feed;
    cti_captures captures;
    ct_tensor *loss, *weight, *hits, *wide; /* f64 */
} cti_evaluator;

typedef struct cti_scores {
    double loss, accuracy; /* NaN: no classes */
    int64_t samples;
} cti_scores;

typedef struct cti_clock {
    double begun_s;  /* the run, for train_s */
    double saved_s;  /* last save, for intervals in minutes */
    double logged_s; /* last step line */
    /* of this process since the last step line */
    double wait_ms, step_s;
    int64_t steps, samples;
    double rate; /* samples per second, of the last step line */
} cti_clock;

enum { CTI_RESULTS = 2 };

typedef struct cti_trainer {
    cti_mem *mem;
    ct_config *config;
    ct_run_opts opts;
    cti_say say; /* to on_line and log.txt */
    ct_error *err;

    ct_ctx *ctx;
    ct_build_info build;
    cti_data data;
    ct_module *model;
    ct_named_tensor *params; /* parameters and buffers of the model */
    int n_params;
    ct_named_tensor *slots; /* of the optimizer's state */
    int n_slots, cap_slots;
    ct_optim *optim;
    ct_schedule schedule;
    cti_settings set;
    ct_loader *loader; /* the feed's */
    cti_feed feed;
    cti_captures captures;
    struct {
        void *host; /* pinned */
        ct_event *there;
        bool asked;
    } results[CTI_RESULTS]; /* of steps, on their way; only where waiting for them costs */
    bool stop_seen;         /* one of them was non-finite, and that stops the run */
    cti_evaluator eval;
    ct_tensor *window_loss, *window_weight; /* of the context's dtype */
    cti_sums sums;

    cti_target target;
    cti_rundir run;
    cti_metrics metrics;
    cti_state state;
    cti_saver *saver;
    int64_t saved_step;          /* the newest handed to the saver, or resumed from; -1: none */
    bool saved_due;              /* ... is of a due point (not of a request to stop) */
    int64_t good_step;           /* the newest that is on the disk; -1: none */
    ct_error save_error;         /* of the last save */
    uint64_t bytes_before_steps; /* live ones */
    int64_t checked_skips;       /* state.skipped at the last look */
    double last_loss, last_norm, last_lr; /* of the last step line */
    double last_wait;                     /* the fraction */
    bool stopped_early;
    int config_changes; /* keys that change what is computed, on resume */
    cti_clock clock;
} cti_trainer;

/* Takes the context's error into t->err and clears it there. Returns its code. */
int cti_take(cti_trainer *t);
/* The same, and a shape or argument that doesn't fit is the config's fault. */
int cti_take_setup(cti_trainer *t);

/* ---- trainer.c ---- */
int cti_trainer_init(cti_trainer *t, ct_config *config, const ct_run_opts *opts, ct_error *err);
void cti_trainer_clear(cti_trainer *t);
/* After cti_setup. Optimizer, schedule, loaders: what a step needs besides the model. */
int cti_make_stepper(cti_trainer *t);

/* ---- setup.c ---- */
unsigned cti_autocast_of(const ct_config *config); /* of run.precision */
void cti_read_settings(cti_settings *s, const ct_config *config);
/* Context (threads 0: the config's), model with its weights, for config over `info`. */
int cti_make_context(cti_trainer *t, int threads);
int cti_make_model(cti_trainer *t, const ct_dataset_info *info);
/* One small batch in evaluation mode must give [N, classes]. */
int cti_check_model(cti_trainer *t, ct_dataset *ds);
int cti_make_optim(cti_trainer *t, double lr, double weight_decay);
double cti_weight_decay(const ct_config *config);
int cti_make_schedule(cti_trainer *t, int64_t total);
/* Data, context, model and their checks: all that dry_run looks at but optimizer and schedule. */
int cti_setup(cti_trainer *t, int threads);
int cti_list_slots(cti_trainer *t);
/* Optimizer steps of the whole run; the data must be open. */
int64_t cti_total_steps(const cti_trainer *t);

/* ---- step.c ---- */
/* logits, target -> sum of losses; *weight: what its mean would divide by. Of the scope. */
ct_tensor *cti_loss(ct_tensor *out, ct_tensor *target, double smoothing, ct_tensor **weight);
/* total += term, both one element; total is f64 and `wide` of its kind. */
int cti_add_wide(ct_ctx *ctx, ct_tensor *total, ct_tensor *wide, ct_tensor *term);
/* The f64 scalars and tensors that steps need. */
int cti_make_sums(cti_trainer *t);
int cti_make_results(cti_trainer *t);
void cti_free_results(cti_trainer *t);
/* The next window: one optimizer step. Moves the cursor and counts. */
int cti_step(cti_trainer *t);
/* Reads the sums and the optimizer's result into t->state; CT_ENONFINITE when the run has to stop.
 */
int cti_look(cti_trainer *t, ct_step_result *result);
/* Sums of the device from t->state: after a restore. */
int cti_put_sums(cti_trainer *t);

/* ---- evaluate.c ---- */
int cti_evaluator_open(cti_evaluator *e, ct_ctx *ctx, ct_dataset *ds, const ct_config *config,
                       ct_error *err);
void cti_evaluator_close(cti_evaluator *e);
/* One pass over the data. CT_EINTERRUPTED when `stop` says so. The model is left in training mode.
 */
int cti_evaluator_run(cti_evaluator *e, ct_module *model, const ct_run_opts *opts, cti_scores *out,
                      ct_error *err);

/* ---- save.c ---- */
/* Takes an image of the state and hands it to the saver; why: "due", "best", "stop". A save that
 * fails is told when it is taken back, and the run goes on. */
int cti_save(cti_trainer *t, const char *why);
/* The same, unless this step's checkpoint is there (or on its way) already. */
int cti_save_here(cti_trainer *t, const char *why);
/* Waits for the saves under way and tells what came of them. */
void cti_drain(cti_trainer *t);
/* The same; an error unless the checkpoint of this step is on the disk. */
int cti_settle(cti_trainer *t);
/* Evaluates, judges, moves `best`, tells. */
int cti_evaluate_now(cti_trainer *t);
int cti_log_step(cti_trainer *t);
int cti_log_checkpoint(cti_trainer *t, const char *why, double ms);
int cti_log_start(cti_trainer *t);
int cti_log_end(cti_trainer *t, const char *status);
/* A line that could not be written is told once; the run goes on. */
void cti_metrics_told(cti_trainer *t, int r, const ct_error *err);

/* ---- resume.c ---- */
/* The config saved in `text`, with overrides. NULL with err. */
ct_config *cti_config_of_text(cti_mem *m, const char *text, const char *const *overrides, int n,
                              const ct_model_def *const *models, ct_error *err);
/* Reads the target's state, before anything is built, and compares the configs. */
int cti_resume_read(cti_trainer *t);
/* Restores weights, optimizer, sums and the place in metrics.jsonl. */
int cti_resume_restore(cti_trainer *t);
/* True when the run had ended and this config asks for no more; fills `out` and tells how to go on.
 */
bool cti_resume_finished(cti_trainer *t, ct_run_result *out);

/* ---- loop.c ---- */
int64_t cti_epoch_of(const cti_state *s); /* from 1; of the last step done */
int cti_loop(cti_trainer *t);

/* ---- overfit.c ---- */
int cti_overfit(cti_trainer *t, ct_run_result *out);

#endif
