/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules as pure functions of the step. Steps are clamped to 0..total-1: PyTorch's OneCycleLR
 * accepts one step too many and then goes up again (or, linear, below zero). */
#include <ctrain/optim.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const double pi = 3.14159265358979323846;

ct_schedule ct_schedule_defaults(ct_schedule_kind kind, int64_t total, double max_lr)
{
    return (ct_schedule){
        .kind = kind,
        .total = total,
        .max_lr = max_lr,
        .pct_start = 0.3,
        .div_factor = 25,
        .final_div_factor = 1e4,
        .cycle_momentum = true,
        .base_momentum = 0.85,
        .max_momentum = 0.95,
        .gamma = 0.1,
    };
}

/* ---- checks ---- */

CT_PRINTF(4, 5)
static int wrong(ct_error *err, const char *key, double value, const char *fmt, ...)
{
    char what[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return ct_error_set(err, CT_ECONFIG, "ct_schedule_check", "schedule.%s = %g: %s", key, value,
                        what);
}

static bool is_in(double v, double low, double high)
{
    return v >= low && v <= high; /* false for NaN */
}

static int check_momentum(const ct_schedule *s, ct_error *err)
{
    if (!s->cycle_momentum)
        return CT_OK;
    if (!(s->base_momentum >= 0 && s->base_momentum < 1))
        return wrong(err, "base_momentum", s->base_momentum, "must be at least 0 and less than 1");
    if (!(s->max_momentum >= 0 && s->max_momentum < 1))
        return wrong(err, "max_momentum", s->max_momentum, "must be at least 0 and less than 1");
    return CT_OK;
}

static int check_onecycle(const ct_schedule *s, ct_error *err)
{
    double rise = s->pct_start * (double)s->total;

    if (!(is_in(s->pct_start, 0, 1) && s->pct_start < 1))
        return wrong(err, "pct_start", s->pct_start, "must be at least 0 and less than 1");
    if (s->three_phase && s->pct_start > 0.5)
        return wrong(err, "pct_start", s->pct_start,
                     "with three_phase it must be at most 0.5, or the last phase never comes");
    if (rise == 1)
        return wrong(err, "pct_start", s->pct_start,
                     "the rise over %g of %lld steps would be a single step, which has no slope; "
                     "take another pct_start (0: no rise) or more steps",
                     s->pct_start, (long long)s->total);
    if (!(s->div_factor > 0 && isfinite(s->div_factor)))
        return wrong(err, "div_factor", s->div_factor, "must be over 0");
    if (!(s->final_div_factor > 0 && isfinite(s->final_div_factor)))
        return wrong(err, "final_div_factor", s->final_div_factor, "must be over 0");
    return check_momentum(s, err);
}

static int check_cosine(const ct_schedule *s, ct_error *err)
{
    if (s->warmup_steps < 0 || s->warmup_steps >= s->total)
        return wrong(err, "warmup_steps", (double)s->warmup_steps,
                     "must be at least 0 and less than all steps (%lld)", (long long)s->total);
    if (!is_in(s->warmup_start, 0, 1))
        return wrong(err, "warmup_start", s->warmup_start, "must be in 0..1 (a part of max_lr)");
    if (!is_in(s->min_lr, 0, s->max_lr))
        return wrong(err, "min_lr", s->min_lr, "must be at least 0 and at most max_lr (%g)",
                     s->max_lr);
    return CT_OK;
}

static int check_step(const ct_schedule *s, ct_error *err)
{
    if (s->step_size < 1)
        return wrong(err, "step_size", (double)s->step_size, "must be at least 1 step");
    if (!(s->gamma > 0 && isfinite(s->gamma)))
        return wrong(err, "gamma", s->gamma, "must be over 0");
    return CT_OK;
}

int ct_schedule_check(const ct_schedule *s, ct_error *err)
{
    if (!s)
        return ct_error_set(err, CT_EINVAL, __func__, "schedule is NULL");
    if (s->total < 1)
        return ct_error_set(err, CT_ECONFIG, __func__,
                            "a schedule over %lld steps: there must be at least 1",
                            (long long)s->total);
    if (!(s->max_lr >= 0 && isfinite(s->max_lr)))
        return wrong(err, "max_lr", s->max_lr, "must be at least 0");
    switch (s->kind) {
    case CT_SCHEDULE_CONSTANT:
        return CT_OK;
    case CT_SCHEDULE_ONECYCLE:
        return check_onecycle(s, err);
    case CT_SCHEDULE_COSINE:
        return check_cosine(s, err);
    case CT_SCHEDULE_STEP:
        return check_step(s, err);
    }
    return ct_error_set(err, CT_EINVAL, __func__, "no kind of schedule: %d", (int)s->kind);
}

/* ---- values ---- */

static double clamp_step(const ct_schedule *s, int64_t step)
{
    if (step >= s->total)
        step = s->total - 1;
    return step < 0 ? 0 : (double)step;
}

static double anneal(const ct_schedule *s, double from, double to, double q)
{
    if (s->linear)
        return (to - from) * q + from;
    return to + (from - to) / 2 * (cos(pi * q) + 1);
}

/* torch.optim.lr_scheduler.OneCycleLR: through `at[0..n]`, phase i ending at step end[i] (a real number);
 * the first phase whose end isn't before the step counts, else the last. */
static double onecycle(const ct_schedule *s, double step, const double at[4])
{
    const double total = (double)s->total, rise = s->pct_start * total - 1;
    const double two[] = {rise, total - 1};
    const double three[] = {rise, 2 * s->pct_start * total - 2, total - 1};
    const double *end = s->three_phase ? three : two;
    const int n = s->three_phase ? 3 : 2;
    double start = 0;
    int i = 0;

    for (; i < n - 1 && step > end[i]; i++)
        start = end[i];
    return anneal(s, at[i], at[i + 1], (step - start) / (end[i] - start));
}

static double cosine(const ct_schedule *s, double step)
{
    double warmup = (double)s->warmup_steps;

    if (step < warmup)
        return s->max_lr * (s->warmup_start + (1 - s->warmup_start) * step / warmup);
    return s->min_lr + (s->max_lr - s->min_lr) *
                           (1 + cos(pi * (step - warmup) / ((double)s->total - warmup))) / 2;
}

double ct_schedule_lr(const ct_schedule *s, int64_t step)
{
    double t = clamp_step(s, step), first = s->max_lr / s->div_factor;

    switch (s->kind) {
    case CT_SCHEDULE_ONECYCLE: {
        double last = first / s->final_div_factor;
        double two[4] = {first, s->max_lr, last, 0}, three[4] = {first, s->max_lr, first, last};

        return onecycle(s, t, s->three_phase ? three : two);
    }
    case CT_SCHEDULE_COSINE:
        return cosine(s, t);
    case CT_SCHEDULE_STEP:
        return s->max_lr * pow(s->gamma, floor(t / (double)s->step_size));
    case CT_SCHEDULE_CONSTANT:
        break;
    }
    return s->max_lr;
}

double ct_schedule_momentum(const ct_schedule *s, int64_t step)
{
    const double at[4] = {s->max_momentum, s->base_momentum, s->max_momentum, s->max_momentum};

    if (s->kind != CT_SCHEDULE_ONECYCLE || !s->cycle_momentum)
        return (double)NAN;
    return onecycle(s, clamp_step(s, step), at);
}
