/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers over 100 steps, schedules over all of theirs, clipping: PyTorch's values
 * (tests/golden/behaviours.py), and the edges where ctrain departs on purpose. */
#include "curves_base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(optimizers);
TestSuite(schedules);

typedef struct setting {
    const char *name;
    char kind; /* s: SGD, a: Adam, w: AdamW */
    ct_sgd_opts sgd;
    ct_adam_opts adam;
} setting;

/* Adam's in the order of its struct: lr, beta1, beta2, eps, weight_decay. */
static const setting settings[] = {
    {.name = "sgd", .kind = 's', .sgd = {.lr = .05}},
    {.name = "sgd_decay", .kind = 's', .sgd = {.lr = .05, .weight_decay = .1}},
    {.name = "sgd_momentum", .kind = 's', .sgd = {.lr = .05, .momentum = .9}},
    {.name = "sgd_dampening", .kind = 's', .sgd = {.lr = .05, .momentum = .9, .dampening = .5}},
    {.name = "sgd_nesterov",
     .kind = 's',
     .sgd = {.lr = .05, .momentum = .9, .weight_decay = .1, .nesterov = true}},
    {.name = "adam", .kind = 'a', .adam = {.01, .9, .999, 1e-8, 0}},
    {.name = "adam_decay", .kind = 'a', .adam = {.01, .9, .999, 1e-8, .1}},
    {.name = "adam_betas", .kind = 'a', .adam = {.01, .7, .9, 1e-3, 0}},
    {.name = "adamw", .kind = 'w', .adam = {.01, .9, .999, 1e-8, .01}},
    {.name = "adamw_decay", .kind = 'w', .adam = {.01, .8, .95, 1e-4, .3}},
};

static ct_optim *make(ct_ctx *ctx, const setting *s, ct_tensor *p)
{
    ct_named_tensor named = {.name = "p", .tensor = p};
    ct_optim *o = s->kind == 's' ? ct_sgd_new(ctx, &named, 1, s->sgd) :
                  s->kind == 'a' ? ct_adam_new(ctx, &named, 1, s->adam) :
                                   ct_adamw_new(ctx, &named, 1, s->adam);
    cr_assert(o != NULL, "%s: %s", s->name, ct_error_get(ctx)->text);
    return o;
}

static void follow(const ts_golden *g, const setting *s, ct_dtype dtype, ts_tol tol)
{
    ct_ctx *ctx = ts_ctx(dtype, true);
    const ts_array *grads = ts_golden_must_get(g, "optim/grads");
    const ts_array *path = ts_golden_must_get(g, "optim/%s", s->name);
    ct_tensor *p = ts_param(ctx, ts_tensor(ctx, dtype, ts_golden_must_get(g, "optim/start")));
    ct_optim *o = make(ctx, s, p);
    for (int step = 0; step < 100; step++) {
        char what[64], msg[512];
        ct_tensor *grad = ts_vec(ctx, dtype, 7, grads->v + step * 7);
        cr_assert(!ct_tensor_set_grad(ctx, p, grad), "%s", ct_error_get(ctx)->text);
        cr_assert(!ct_optim_step(ctx, o, ct_step_defaults()), "%s", ct_error_get(ctx)->text);
        ct_tensor_release(grad);
        ts_array got = ts_values(ctx, p);
        snprintf(what, sizeof(what), "%s, step %d", s->name, step);
        bool ok = ts_close_values(&got, 7, path->v + step * 7, tol, msg, sizeof(msg));
        cr_expect(ok, "%s: %s", what, msg);
        ts_array_free(&got);
        if (!ok)
            break;
    }
    ct_optim_free(o);
    ct_tensor_release(p);
    ct_ctx_free(ctx);
}

Test(optimizers, follow_pytorchs_paths_for_100_steps)
{
    ts_golden *g = ts_golden_must_open("behaviours.safetensors");
    for (int i = 0; i < TS_LEN(settings); i++) {
        follow(g, &settings[i], CT_F64, (ts_tol){1e-11, 1e-12});
        follow(g, &settings[i], CT_F32, (ts_tol){1e-4, 1e-5});
    }
    ts_golden_close(g);
}

Test(optimizers, leave_a_parameter_without_gradient_alone)
{
    for (int i = 0; i < TS_LEN(settings); i++) {
        ct_ctx *ctx = ts_ctx(CT_F64, true);
        double v[2] = {1, -2}, first;
        ct_tensor *p = ts_param(ctx, ts_vec(ctx, CT_F64, 2, v));
        ct_tensor *q = ts_param(ctx, ts_vec(ctx, CT_F64, 1, v));
        ct_named_tensor both[2] = {{.name = "p", .tensor = p}, {.name = "q", .tensor = q}};
        const setting *s = &settings[i];
        ct_optim *o = s->kind == 's' ? ct_sgd_new(ctx, both, 2, s->sgd) :
                      s->kind == 'a' ? ct_adam_new(ctx, both, 2, s->adam) :
                                       ct_adamw_new(ctx, both, 2, s->adam);
        cr_assert(o != NULL);
        ct_tensor *grad = ts_vec(ctx, CT_F64, 1, v);
        for (int k = 0; k < 3; k++) {
            cr_expect(!ct_tensor_set_grad(ctx, q, grad));
            cr_expect(!ct_optim_step(ctx, o, ct_step_defaults()), "%s", ct_error_get(ctx)->text);
        }
        ts_expect_values(s->name, ctx, p, 2, v, TS_EXACT);
        cr_expect(!ct_tensor_item(ctx, q, &first) && first != 1, "%s", s->name);
        ct_tensor_release(grad);
        ct_optim_free(o);
        ct_tensor_release(p);
        ct_tensor_release(q);
        ct_ctx_free(ctx);
    }
}

Test(optimizers, shrink_by_weight_decay_also_when_the_gradient_is_0)
{
    ct_ctx *ctx = ts_ctx(CT_F64, true);
    ct_tensor *p = ts_param(ctx, ts_vec(ctx, CT_F64, 1, (double[]){1}));
    ct_tensor *zero = ts_vec(ctx, CT_F64, 1, (double[]){0});
    ct_adam_opts o = ct_adamw_defaults();
    o.lr = 0.1;
    ct_named_tensor named = {.name = "p", .tensor = p};
    ct_optim *optim = ct_adamw_new(ctx, &named, 1, o);
    double want[2] = {0.999, 0.998001};
    for (int k = 0; k < 2; k++) {
        cr_expect(!ct_tensor_set_grad(ctx, p, zero));
        cr_expect(!ct_optim_step(ctx, optim, ct_step_defaults()));
        ts_expect_values("adamw g=0", ctx, p, 1, &want[k], (ts_tol){1e-15, 0});
    }
    ct_optim_free(optim);
    ct_tensor_release(zero);
    ct_tensor_release(p);
    ct_ctx_free(ctx);
}

Test(optimizers, apply_nothing_when_a_gradient_the_loss_or_the_weight_is_bad)
{
    static const struct {
        const char *what;
        double grad, weight, loss;
        bool nonfinite, empty;
    } all[] = {{"nan gradient", NAN, 1, 1, true, false},
               {"infinite gradient", INFINITY, 1, 1, true, false},
               {"nan loss", 1, 1, NAN, true, false},
               {"no weight", 1, 0, 1, false, true}};
    for (int i = 0; i < TS_LEN(settings); i++) {
        ct_ctx *ctx = ts_ctx(CT_F64, true);
        ct_tensor *p = ts_param(ctx, ts_vec(ctx, CT_F64, 2, (double[]){1, 2}));
        ct_optim *o = make(ctx, &settings[i], p);
        ct_step_result r;
        for (int k = 0; k < TS_LEN(all); k++) {
            ct_tensor *grad = ts_vec(ctx, CT_F64, 2, (double[]){1, all[k].grad});
            ct_tensor *weight = ct_tensor_scalar(ctx, CT_F64, all[k].weight);
            ct_tensor *loss = ct_tensor_scalar(ctx, CT_F64, all[k].loss);
            ct_step_opts s = ct_step_defaults();
            s.weight = weight;
            s.loss = loss;
            cr_expect(!ct_tensor_set_grad(ctx, p, grad));
            cr_expect(!ct_optim_step(ctx, o, s), "%s", ct_error_get(ctx)->text);
            cr_expect(!ct_optim_result(ctx, o, &r));
            cr_expect(r.nonfinite == all[k].nonfinite && r.empty == all[k].empty, "%s",
                      all[k].what);
            cr_expect(r.applied == 0 && r.skipped == k + 1, "%s", all[k].what);
            ts_expect_values(all[k].what, ctx, p, 2, (double[]){1, 2}, TS_EXACT);
            ct_tensor_release(grad);
            ct_tensor_release(weight);
            ct_tensor_release(loss);
        }
        ct_optim_free(o);
        ct_tensor_release(p);
        ct_ctx_free(ctx);
    }
}

Test(optimizers, clip_as_pytorch_does)
{
    static const struct {
        const char *name;
        double max_norm;
    } all[] = {{"clip_over", 1}, {"clip_exact", 5}, {"clip_under", 50}};
    ts_golden *g = ts_golden_must_open("behaviours.safetensors");
    for (int i = 0; i < TS_LEN(all); i++) {
        ct_ctx *ctx = ts_ctx(CT_F64, true);
        ct_tensor *a = ts_param(ctx, ts_vec(ctx, CT_F64, 2, (double[]){0, 0}));
        ct_tensor *b = ts_param(ctx, ts_vec(ctx, CT_F64, 1, (double[]){0}));
        ct_tensor *ga = ts_vec(ctx, CT_F64, 2, (double[]){3, 0});
        ct_tensor *gb = ts_vec(ctx, CT_F64, 1, (double[]){4});
        ct_named_tensor both[2] = {{.name = "a", .tensor = a}, {.name = "b", .tensor = b}};
        double norm = 0;
        cr_expect(!ct_tensor_set_grad(ctx, a, ga) && !ct_tensor_set_grad(ctx, b, gb));
        cr_expect(!ct_clip_grad_norm(ctx, both, 2, all[i].max_norm, &norm));
        cr_expect_float_eq(norm, ts_golden_must_get(g, "%s/norm", all[i].name)->v[0], 1e-14);
        ts_array x = ts_values(ctx, ct_tensor_grad(a)), y = ts_values(ctx, ct_tensor_grad(b));
        ts_expect_close(all[i].name, &x, ts_golden_must_get(g, "%s/g0", all[i].name),
                        (ts_tol){1e-13, 0});
        ts_expect_close(all[i].name, &y, ts_golden_must_get(g, "%s/g1", all[i].name),
                        (ts_tol){1e-13, 0});
        ts_array_free(&x);
        ts_array_free(&y);
        ct_tensor *all_of[] = {a, b, ga, gb};
        for (int k = 0; k < 4; k++)
            ct_tensor_release(all_of[k]);
        ct_ctx_free(ctx);
    }
    ts_golden_close(g);
}

/* ---- schedules ---- */

static void expect_schedule(const ts_golden *g, const char *name, const ct_schedule *s)
{
    const ts_array *want = ts_golden_must_get(g, "schedule/%s", name);
    ct_error err = {0};
    cr_expect(!ct_schedule_check(s, &err), "%s: %s", name, err.text);
    cr_assert_eq(want->n, 2 * s->total, "%s", name);
    ts_array got = ts_array_new(CT_F64, 2, (int64_t[]){s->total, 2});
    for (int64_t k = 0; k < s->total; k++) {
        got.v[2 * k] = ct_schedule_lr(s, k);
        got.v[2 * k + 1] = ct_schedule_momentum(s, k);
    }
    ts_expect_close(name, &got, want, (ts_tol){1e-12, 1e-14});
    cr_expect_eq(ct_schedule_lr(s, s->total + 5), got.v[2 * s->total - 2], "%s, past its end",
                 name);
    ts_array_free(&got);
}

static ct_schedule onecycle(int64_t total)
{
    return ct_schedule_defaults(CT_SCHEDULE_ONECYCLE, total, .3);
}

Test(schedules, of_onecycle_are_pytorchs)
{
    ts_golden *g = ts_golden_must_open("behaviours.safetensors");
    ct_schedule s = onecycle(100);
    expect_schedule(g, "onecycle_default", &s);
    s = onecycle(10);
    expect_schedule(g, "onecycle_short", &s);
    s = onecycle(57);
    s.linear = true;
    expect_schedule(g, "onecycle_linear", &s);
    s = onecycle(61);
    s.three_phase = true;
    expect_schedule(g, "onecycle_three", &s);
    s = onecycle(40);
    s.three_phase = s.linear = true;
    s.pct_start = .45;
    expect_schedule(g, "onecycle_three_linear", &s);
    s = onecycle(33);
    s.pct_start = .17;
    s.div_factor = 10;
    s.final_div_factor = 50;
    s.base_momentum = .8;
    s.max_momentum = .9;
    expect_schedule(g, "onecycle_odd", &s);
    s = onecycle(12);
    s.pct_start = 0;
    expect_schedule(g, "onecycle_no_warmup", &s);
    s = onecycle(20);
    s.pct_start = .93;
    expect_schedule(g, "onecycle_late", &s);
    s = onecycle(10);
    s.pct_start = .05;
    expect_schedule(g, "onecycle_half_a_step", &s);
    s = onecycle(15);
    s.cycle_momentum = false;
    expect_schedule(g, "onecycle_no_momentum", &s);
    ts_golden_close(g);
}

Test(schedules, of_cosine_and_step_are_pytorchs)
{
    ts_golden *g = ts_golden_must_open("behaviours.safetensors");
    ct_schedule s = ct_schedule_defaults(CT_SCHEDULE_COSINE, 50, 1);
    s.min_lr = .01;
    expect_schedule(g, "cosine", &s);
    s = ct_schedule_defaults(CT_SCHEDULE_COSINE, 50, 1);
    s.warmup_steps = 10;
    s.warmup_start = .1;
    expect_schedule(g, "cosine_warmup", &s);
    s = ct_schedule_defaults(CT_SCHEDULE_STEP, 50, 1);
    s.step_size = 7;
    s.gamma = .3;
    expect_schedule(g, "step", &s);
    s = ct_schedule_defaults(CT_SCHEDULE_CONSTANT, 50, .25);
    cr_expect(ct_schedule_lr(&s, 0) == .25 && ct_schedule_lr(&s, 49) == .25);
    cr_expect(isnan(ct_schedule_momentum(&s, 0)));
    ts_golden_close(g);
}

Test(schedules, refuse_what_pytorch_divides_by_zero_on)
{
    static const struct {
        int64_t total;
        double pct;
        bool three;
    } all[] = {{10, .1, false}, {4, 1, false}, {10, .6, true}, {10, -.1, false}, {10, NAN, false}};
    for (int i = 0; i < TS_LEN(all); i++) {
        ct_schedule s = onecycle(all[i].total);
        s.pct_start = all[i].pct;
        s.three_phase = all[i].three;
        ct_error err = {0};
        cr_expect_eq(ct_schedule_check(&s, &err), CT_ECONFIG, "pct_start %g", all[i].pct);
        cr_expect(strstr(err.text, "pct_start"), "%s", err.text);
    }
}
