/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers, gradient clipping and learning-rate schedules, with PyTorch's rules and defaults. */
#ifndef CTRAIN_OPTIM_H
#define CTRAIN_OPTIM_H

#include <ctrain/autograd.h>
#include <ctrain/device.h>
#include <ctrain/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_optim ct_optim;

typedef struct ct_sgd_opts {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
} ct_sgd_opts;
typedef struct ct_adam_opts {
    double lr, beta1, beta2, eps, weight_decay;
} ct_adam_opts; /* Adam adds weight_decay * p to the gradient; AdamW shrinks p by 1 - lr * weight_decay */

ct_sgd_opts ct_sgd_defaults(void);    /* lr 1e-3, the rest 0 */
ct_adam_opts ct_adam_defaults(void);  /* 1e-3, 0.9, 0.999, 1e-8, 0 */
ct_adam_opts ct_adamw_defaults(void); /* 1e-3, 0.9, 0.999, 1e-8, 0.01 */

/* An optimizer over the parameters in `params` (entries that are buffers are guarded: a step that is not
 * applied puts them back). Retains the tensors; parameters are dense and of one dtype. State is made
 * here. Names ("0.weight") name the state. CT_EINVAL: no parameter, wrong hyper-parameter (named, with its
 * range). Owned; NULL on error. */
CT_NODISCARD ct_optim *ct_sgd_new(ct_ctx *ctx, const ct_named_tensor *params, int n, ct_sgd_opts o);
CT_NODISCARD ct_optim *ct_adam_new(ct_ctx *ctx, const ct_named_tensor *params, int n,
                                   ct_adam_opts o);
CT_NODISCARD ct_optim *ct_adamw_new(ct_ctx *ctx, const ct_named_tensor *params, int n,
                                    ct_adam_opts o);
void ct_optim_free(ct_optim *o);              /* NULL is fine */
const char *ct_optim_name(const ct_optim *o); /* "sgd", "adam", "adamw" */

/* For the next steps. momentum: SGD's, or Adam's beta1. */
void ct_optim_set_lr(ct_optim *o, double lr);
void ct_optim_set_momentum(ct_optim *o, double momentum);

typedef struct ct_step_opts {
    /* One-element tensor of the parameters' dtype that the gradients are divided by: the window's weight
     * (samples or tokens). NULL: 1. */
    ct_tensor *weight;
    /* One-element tensor: the window's loss; a non-finite one stops the step too. NULL: not looked at. */
    ct_tensor *loss;
    double max_norm; /* clip_grad_norm_ after the division; 0: no clipping */
    bool latch;      /* after a non-finite step apply nothing any more (nonfinite = stop) */
} ct_step_opts;
ct_step_opts ct_step_defaults(void);

/* ---- loss scaling ---- torch.amp.GradScaler, for float16: small gradients don't vanish in it when they are
 * those of a loss times a large number. The scale is the optimizer's, changes on the device, and is under its
 * flag: a step whose gradients overflowed is skipped and halves it, growth_interval good ones in a row double it. */
typedef struct ct_scaler_opts {
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval;
} ct_scaler_opts;
ct_scaler_opts ct_scaler_defaults(void); /* 65536, 2, 0.5, 2000 */
/* From now on gradients must be those of losses times ct_optim_loss_scale, which ct_optim_step divides out. With
 * `latch` a loss that isn't finite stops, overflowed gradients don't. CT_EINVAL: a number out of range, named. */
CT_NODISCARD int ct_optim_set_scaler(ct_ctx *ctx, ct_optim *o, ct_scaler_opts opts);
/* One element of float32, to multiply losses with. Borrowed; NULL: there is no scaler. */
ct_tensor *ct_optim_loss_scale(ct_optim *o);
/* Scale and good steps since it changed (ct_step_result): after a restore. */
CT_NODISCARD int ct_optim_set_loss_scale(ct_ctx *ctx, ct_optim *o, double scale,
                                         int64_t growth_tracker);

/* One step in two passes: norm and non-finite flag; then, unless flagged, divide, clip, update. Parameters
 * without a gradient are left alone. Bumps the versions of the parameters. Returns the pending error first. */
CT_NODISCARD int ct_optim_step(ct_ctx *ctx, ct_optim *o, ct_step_opts opts);
/* Sends lr, momentum and the options to the device, which ct_optim_step does too: needed before a step
 * that is replayed (ct_capture_run), whose launches read them there. */
CT_NODISCARD int ct_optim_prepare(ct_ctx *ctx, ct_optim *o, ct_step_opts opts);
void ct_optim_zero_grad(ct_optim *o); /* all to none */

typedef struct ct_step_result {
    double weight, grad_norm; /* of the last step, before clipping */
    bool nonfinite;           /* the last step was skipped for a NaN or Inf in loss or gradient */
    bool latched;             /* ... and nothing is applied any more */
    bool empty;               /* ... because the window's weight was 0 */
    int64_t applied, skipped; /* steps so far */
    double loss_scale;        /* for the next step; 1: no scaler */
    int64_t growth_tracker;   /* good steps since it changed */
} ct_step_result;
/* Waits for the device. */
CT_NODISCARD int ct_optim_result(ct_ctx *ctx, ct_optim *o, ct_step_result *out);
/* Without waiting: into CT_OPTIM_RESULT_BYTES of ct_host_alloc, there when `done` has happened. */
#define CT_OPTIM_RESULT_BYTES 256
CT_NODISCARD int ct_optim_result_async(ct_ctx *ctx, ct_optim *o, void *host, ct_event *done);
ct_step_result ct_optim_result_of(const void *host);

/* The state, for checkpoints: "PARAM.exp_avg", "PARAM.exp_avg_sq", "PARAM.momentum_buffer" (dtype of the
 * parameter), "PARAM.step" (i64, [1]). As ct_module_state. Writing into the tensors restores it. */
int ct_optim_state(ct_optim *o, ct_named_tensor *out, int cap);
/* The totals that are no tensors: after a restore. */
CT_NODISCARD int ct_optim_set_counts(ct_ctx *ctx, ct_optim *o, int64_t applied, int64_t skipped);

/* ---- clipping on its own ---- */
/* torch.nn.utils.clip_grad_norm_ over params' gradients: *norm is the norm before. */
CT_NODISCARD int ct_clip_grad_norm(ct_ctx *ctx, const ct_named_tensor *params, int n,
                                   double max_norm, double *norm);

/* ---- schedules ---- Pure functions of the step (from 0); steps at or past `total` give the last value. */
typedef enum ct_schedule_kind {
    CT_SCHEDULE_CONSTANT,
    CT_SCHEDULE_ONECYCLE,
    CT_SCHEDULE_COSINE, /* linear warm-up from warmup_start * max_lr, then a half cosine to min_lr */
    CT_SCHEDULE_STEP    /* StepLR: max_lr * gamma ^ (step / step_size) */
} ct_schedule_kind;

typedef struct ct_schedule {
    ct_schedule_kind kind;
    int64_t total;
    double max_lr; /* constant, cosine, step: the base lr */
    /* onecycle: torch.optim.lr_scheduler.OneCycleLR */
    double pct_start, div_factor, final_div_factor;
    bool three_phase, linear; /* linear: anneal_strategy='linear' */
    bool cycle_momentum;
    double base_momentum, max_momentum;
    /* cosine */
    int64_t warmup_steps;
    double warmup_start, min_lr;
    /* step */
    int64_t step_size;
    double gamma;
} ct_schedule;

/* PyTorch's defaults: pct_start 0.3, div_factor 25, final_div_factor 1e4, cycle_momentum with 0.85, 0.95;
 * no warm-up, min_lr 0; gamma 0.1. */
ct_schedule ct_schedule_defaults(ct_schedule_kind kind, int64_t total, double max_lr);
/* CT_ECONFIG with the key, its value and the allowed range: also what PyTorch divides by zero on
 * (pct_start * total = 1, pct_start = 1) and three_phase with pct_start over 0.5. */
CT_NODISCARD int ct_schedule_check(const ct_schedule *s, ct_error *err);
double ct_schedule_lr(const ct_schedule *s, int64_t step);
/* NaN when the schedule leaves momentum alone. */
double ct_schedule_momentum(const ct_schedule *s, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
