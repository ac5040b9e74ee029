/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers against trajectories of PyTorch 2.15, and what a step does besides: weights, clipping, guards,
 * flags, state. */
#include "nn_fixture.h"

#include <math.h>
#include <stdio.h>

/* Steps with these gradients; p after each. */
static void expect_path(one *f, int n, const double *g, const double *p)
{
    cr_assert_not_null(f->o, "%s", ct_error_get(f->ctx)->text);
    for (int i = 0; i < n; i++) {
        uint64_t version = ct_tensor_version(f->p.tensor);

        set_grad(f->ctx, f->p.tensor, g[i]);
        cr_assert_eq(ct_optim_step(f->ctx, f->o, ct_step_defaults()), CT_OK, "%s",
                     ct_error_get(f->ctx)->text);
        ts_expect_values(ct_optim_name(f->o), f->ctx, f->p.tensor, 1, &p[i], (ts_tol){1e-13, 0});
        cr_expect_gt(ct_tensor_version(f->p.tensor), version);
    }
    ct_optim_zero_grad(f->o);
    cr_expect_null(ct_tensor_grad(f->p.tensor));
    close_one(f);
}

static const double g3[] = {.5, -.2, 1};

Test(optim_step, adamw)
{
    one f = open_one(), z = open_one();
    ct_adam_opts o = ct_adamw_defaults();

    o.lr = 0.1;
    f.o = ct_adamw_new(f.ctx, &f.p, 1, o);
    expect_path(&f, 3, g3, (double[]){0.899000002, 0.8635404181145108, 0.79376306855655});
    z.o = ct_adamw_new(z.ctx, &z.p, 1, o); /* decay acts without a gradient's help */
    expect_path(&z, 2, (double[]){0, 0}, (double[]){0.999, 0.998001});
}

Test(optim_step, adam)
{
    one f = open_one();
    ct_adam_opts o = ct_adam_defaults();

    o.lr = 0.1;
    o.weight_decay = 0.01;
    f.o = ct_adam_new(f.ctx, &f.p, 1, o);
    expect_path(&f, 3, g3, (double[]){0.9000000019607843, 0.8633641380701821, 0.7936961280319241});
}

Test(optim_step, sgd)
{
    one f = open_one(), d = open_one(), n = open_one(), p = open_one();
    ct_sgd_opts o = ct_sgd_defaults();

    o.lr = 0.1;
    p.o = ct_sgd_new(p.ctx, &p.p, 1, o);
    expect_path(&p, 3, g3, (double[]){0.95, 0.97, 0.87});
    o.momentum = 0.9;
    f.o = ct_sgd_new(f.ctx, &f.p, 1, o);
    expect_path(&f, 3, g3, (double[]){0.95, 0.925, 0.8025});
    o.dampening = 0.5;
    d.o = ct_sgd_new(d.ctx, &d.p, 1, o);
    expect_path(&d, 3, g3, (double[]){0.95, 0.915, 0.8335});
    o = (ct_sgd_opts){.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1};
    n.o = ct_sgd_new(n.ctx, &n.p, 1, o);
    expect_path(&n, 3, g3, (double[]){0.886, 0.858566, 0.617536646});
}

/* What a schedule does: lr 0 stands still, momentum comes in later. */
Test(optim_step, lr_and_momentum_change)
{
    one f = open_one();
    ct_sgd_opts o = ct_sgd_defaults();
    ct_named_tensor s[4];

    o.lr = 0;
    f.o = ct_sgd_new(f.ctx, &f.p, 1, o);
    cr_expect_eq(ct_optim_state(f.o, s, 4), 1);
    cr_expect_str_eq(s[0].name, "w.step");
    set_grad(f.ctx, f.p.tensor, 3);
    cr_expect_eq(ct_optim_step(f.ctx, f.o, ct_step_defaults()), CT_OK);
    ts_expect_values("lr 0", f.ctx, f.p.tensor, 1, (double[]){1}, TS_EXACT);
    ct_optim_set_lr(f.o, 0.1);
    ct_optim_set_momentum(f.o, 0.5);
    cr_expect_eq(ct_optim_state(f.o, s, 4), 2);
    cr_expect_str_eq(s[0].name, "w.momentum_buffer");
    cr_expect_eq(ct_optim_step(f.ctx, f.o, ct_step_defaults()), CT_OK);
    ts_expect_values("lr .1", f.ctx, f.p.tensor, 1, (double[]){.7}, TS_F64);
    cr_expect_eq(ct_optim_step(f.ctx, f.o, ct_step_defaults()), CT_OK);
    ts_expect_values("buffer", f.ctx, f.p.tensor, 1, (double[]){.25}, TS_F64);
    ct_optim_set_lr(f.o, -1);
    cr_expect_eq(ct_optim_step(f.ctx, f.o, ct_step_defaults()), CT_EINVAL);
    expect_text(f.ctx, CT_EINVAL, "sgd: lr is -1: must be a number of at least 0");
    close_one(&f);
}

/* ---- several parameters ---- */

enum { N_STATE = 8 };

typedef struct model {
    ct_ctx *ctx;
    ct_module *m;
    ct_named_tensor t[N_STATE];
    int n;
} model;

static model open_model(void)
{
    model f = {.ctx = open_ctx(CT_F32)};
    const int64_t shape[] = {3};

    f.m = ct_nn_layers_new(f.ctx, "linear(5) batchnorm1d(affine=false) linear(2)", 1, shape);
    cr_assert_not_null(f.m);
    f.n = ct_module_state(f.m, f.t, N_STATE);
    cr_assert_eq(f.n, 7);
    return f;
}

/* One forward and backward: sum of squares of the output times `factor`. */
static ct_tensor *run(model *f, double factor)
{
    const double v[] = {.1, .2, .3, -.4, .5, -.6, .7, .8, .9, -1, 1.1, 1.2};
    ct_tensor *x = ts_mat(f->ctx, CT_F32, 4, 3, v);
    ct_tensor *loss =
        ct_affine(ct_sum(ct_square(ct_module_forward(f->m, x)), NULL, 0, false), factor, 0);

    cr_assert_eq(ct_backward(f->ctx, loss, NULL, 0), CT_OK, "%s", ct_error_get(f->ctx)->text);
    ct_tensor_release(x);
    return loss;
}

static ts_array values_at(model *f, int i)
{
    ts_array v = ts_values(f->ctx, f->t[i].tensor);

    cr_assert_not_null(v.v);
    return v;
}

static bool unchanged(model *f, int i, ts_array *was)
{
    ts_array now = values_at(f, i);
    char msg[256];
    bool same = ts_close(&now, was, TS_EXACT, msg, sizeof msg);

    ts_array_free(&now);
    return same;
}

Test(optim_step, state_names)
{
    model f = open_model();
    ct_named_tensor s[16];
    const char *adam[] = {"0.weight.exp_avg", "0.weight.exp_avg_sq", "0.weight.step",
                          "0.bias.exp_avg",   "0.bias.exp_avg_sq",   "0.bias.step",
                          "2.weight.exp_avg", "2.weight.exp_avg_sq", "2.weight.step",
                          "2.bias.exp_avg",   "2.bias.exp_avg_sq",   "2.bias.step"};
    ct_optim *o = ct_adamw_new(f.ctx, f.t, f.n, ct_adamw_defaults());
    ct_sgd_opts so = ct_sgd_defaults();

    cr_expect_eq(ct_optim_state(o, NULL, 0), 12);
    cr_expect_eq(ct_optim_state(o, s, 16), 12);
    for (int i = 0; i < 12; i++) {
        cr_expect_str_eq(s[i].name, adam[i]);
        cr_expect_eq(ct_tensor_dtype(s[i].tensor), i % 3 == 2 ? CT_I64 : CT_F32);
    }
    cr_expect_eq(ct_tensor_ndim(s[0].tensor), 2);
    cr_expect_eq(ct_tensor_ndim(s[2].tensor), 1);
    cr_expect_str_eq(ct_optim_name(o), "adamw");
    ct_optim_free(o);
    so.momentum = 0.9;
    o = ct_sgd_new(f.ctx, f.t, f.n, so);
    cr_expect_eq(ct_optim_state(o, s, 3), 8);
    cr_expect_str_eq(s[0].name, "0.weight.momentum_buffer");
    cr_expect_str_eq(s[1].name, "0.weight.step");
    cr_expect_str_eq(s[2].name, "0.bias.momentum_buffer");
    ct_optim_free(o);
    ct_module_free(f.m);
    close_ctx(f.ctx);
}

/* Frozen parameters, and those without a gradient, stay with their state as they are. */
Test(optim_step, no_gradient_no_change)
{
    model f = open_model();
    ct_adam_opts opts = ct_adamw_defaults();
    ct_optim *o;
    ct_named_tensor s[16];
    ts_array w0, w2;
    double grad_norm;
    ct_step_result r;

    opts.weight_decay = 0.5;
    o = ct_adamw_new(f.ctx, f.t, f.n, opts);
    cr_expect_eq(ct_module_set_requires_grad(ct_module_child(f.m, 0, NULL), false), CT_OK);
    w0 = values_at(&f, 0);
    w2 = values_at(&f, 5);
    for (int k = 0; k < 2; k++) {
        ct_scope_begin(f.ctx, CT_SCOPE_STEP);
        run(&f, 1);
        cr_expect_eq(ct_optim_step(f.ctx, o, ct_step_defaults()), CT_OK);
        ct_optim_zero_grad(o);
        cr_expect_eq(ct_scope_end(f.ctx), CT_OK);
    }
    cr_expect(unchanged(&f, 0, &w0));
    cr_expect(!unchanged(&f, 5, &w2));
    ct_optim_state(o, s, 16);
    ts_expect_values("frozen step", f.ctx, s[2].tensor, 1, (double[]){0}, TS_EXACT);
    ts_expect_values("step", f.ctx, s[8].tensor, 1, (double[]){2}, TS_EXACT);
    /* No gradient at all: nothing happens, as in PyTorch. */
    ts_array_free(&w2);
    w2 = values_at(&f, 5);
    cr_expect_eq(ct_optim_step(f.ctx, o, ct_step_defaults()), CT_OK);
    cr_expect(unchanged(&f, 5, &w2));
    cr_expect_eq(ct_optim_result(f.ctx, o, &r), CT_OK);
    cr_expect_eq(r.grad_norm, 0);
    cr_expect_eq(ct_clip_grad_norm(f.ctx, f.t, f.n, 1, &grad_norm), CT_OK);
    cr_expect_eq(grad_norm, 0);
    ts_array_free(&w0);
    ts_array_free(&w2);
    ct_optim_free(o);
    ct_module_free(f.m);
    close_ctx(f.ctx);
}

/* Gradients of 8 x the loss, divided by a weight of 8, are those of the loss. */
Test(optim_step, weight_and_clip)
{
    ts_array plain = {0};
    double norm[2];

    for (int k = 0; k < 2; k++) {
        model f = open_model();
        ct_optim *o = ct_sgd_new(f.ctx, f.t, f.n, (ct_sgd_opts){.lr = 0.1});
        ct_tensor *eight = ts_vec(f.ctx, CT_F32, 1, (double[]){8});
        ct_step_opts so = ct_step_defaults();
        ct_step_result r;
        ts_array w, before = values_at(&f, 5);
        char msg[256];

        so.max_norm = 1e-2;
        so.weight = k ? eight : NULL;
        ct_scope_begin(f.ctx, CT_SCOPE_PLAIN);
        so.loss = run(&f, k ? 8 : 1);
        cr_expect_eq(ct_optim_step(f.ctx, o, so), CT_OK, "%s", ct_error_get(f.ctx)->text);
        ct_scope_end(f.ctx);
        cr_expect_eq(ct_optim_result(f.ctx, o, &r), CT_OK);
        cr_expect_eq(r.weight, k ? 8 : 1);
        cr_expect(!r.nonfinite && !r.empty && r.applied == 1 && r.skipped == 0);
        cr_expect_gt(r.grad_norm, 0.1); /* before clipping */
        norm[k] = r.grad_norm;
        w = values_at(&f, 5);
        for (int64_t i = 0; i < w.n; i++)
            cr_expect_leq(fabs(w.v[i] - before.v[i]), 0.1 * 1e-2 + 1e-7);
        if (k == 0)
            plain = ts_array_copy(&w);
        else
            cr_expect(ts_close(&w, &plain, TS_F32, msg, sizeof msg), "%s", msg);
        ts_array_free(&w);
        ts_array_free(&before);
        ct_tensor_release(eight);
        ct_optim_free(o);
        ct_module_free(f.m);
        close_ctx(f.ctx);
    }
    cr_expect_float_eq(norm[0], norm[1], 1e-5 * norm[0]);
    ts_array_free(&plain);
}

/* ---- what is not applied ---- */

typedef struct bad_case {
    const char *name;
    double factor, weight, loss; /* of the second step */
    bool latch, nonfinite, empty, third_applied;
} bad_case;

/* A good step, a bad one, a good one: the bad one changes nothing, running statistics included. */
static void run_bad(const bad_case *c)
{
    model f = open_model();
    ct_optim *o = ct_adamw_new(f.ctx, f.t, f.n, ct_adamw_defaults());
    ts_array was[N_STATE] = {{0}};
    ct_step_result r;

    for (int step = 0; step < 3; step++) {
        bool bad = step == 1;
        ct_step_opts so = ct_step_defaults();
        ct_tensor *weight = ts_vec(f.ctx, CT_F32, 1, (double[]){bad ? c->weight : 4});
        ct_tensor *loss = ts_vec(f.ctx, CT_F32, 1, (double[]){bad ? c->loss : 1});

        so.weight = weight;
        so.loss = loss;
        so.latch = c->latch;
        so.max_norm = 1;
        for (int i = 0; i < f.n && step; i++) {
            ts_array_free(&was[i]);
            was[i] = values_at(&f, i);
        }
        ct_scope_begin(f.ctx, CT_SCOPE_STEP);
        run(&f, bad ? c->factor : 1);
        cr_expect_eq(ct_optim_step(f.ctx, o, so), CT_OK, "%s", ct_error_get(f.ctx)->text);
        ct_optim_zero_grad(o);
        cr_expect_eq(ct_scope_end(f.ctx), CT_OK);
        cr_expect_eq(ct_optim_result(f.ctx, o, &r), CT_OK);
        for (int i = 0; i < f.n && bad; i++)
            cr_expect(unchanged(&f, i, &was[i]), "%s: %s changed", c->name, f.t[i].name);
        if (bad) {
            cr_expect_eq(r.nonfinite, c->nonfinite, "%s", c->name);
            cr_expect_eq(r.empty, c->empty, "%s", c->name);
            cr_expect_eq(r.skipped, 1, "%s", c->name);
        }
        if (step == 2)
            for (int i = 0; i < f.n; i++)
                cr_expect_eq(unchanged(&f, i, &was[i]), !c->third_applied, "%s: %s", c->name,
                             f.t[i].name);
        ct_tensor_release(weight);
        ct_tensor_release(loss);
    }
    cr_expect_eq(r.applied, c->third_applied ? 2 : 1, "%s: %d", c->name, (int)r.applied);
    cr_expect_eq(r.skipped, c->third_applied ? 1 : 2, "%s: %d", c->name, (int)r.skipped);
    cr_expect_eq(r.nonfinite, !c->third_applied, "%s", c->name);
    for (int i = 0; i < f.n; i++)
        ts_array_free(&was[i]);
    ct_optim_free(o);
    ct_module_free(f.m);
    close_ctx(f.ctx);
}

Test(optim_step, skipped_steps_change_nothing)
{
    const bad_case cases[] = {
        {"inf gradient", INFINITY, 4, 1, false, true, false, true},
        {"nan gradient", NAN, 4, 1, false, true, false, true},
        {"nan loss", 1, 4, NAN, false, true, false, true},
        {"weight 0", 0, 0, 0, false, false, true, true},
        {"latched", NAN, 4, 1, true, true, false, false},
        {"latched, weight 0", 0, 0, 0, true, false, true, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_bad(&cases[i]);
}

/* ---- going on after a restore ---- */

Test(optim_step, restore)
{
    ts_array want = {0};

    /* 5 steps; then 3 steps, everything copied into a new model and optimizer, 2 steps: the same bytes. */
    for (int k = 0; k < 2; k++) {
        model f = open_model();
        ct_optim *o = ct_adam_new(f.ctx, f.t, f.n, ct_adam_defaults());
        ct_step_result r;
        ts_array got;
        char msg[256];

        for (int step = 0; step < 5; step++) {
            if (k == 1 && step == 3) {
                model g = open_model();
                ct_optim *q = ct_adam_new(g.ctx, g.t, g.n, ct_adam_defaults());
                ct_named_tensor from[16], to[16];
                double buf[32];

                cr_expect_eq(ct_optim_state(o, from, 16), ct_optim_state(q, to, 16));
                for (int i = 0; i < f.n + 12; i++) {
                    ct_tensor *a = i < f.n ? f.t[i].tensor : from[i - f.n].tensor;
                    ct_tensor *b = i < f.n ? g.t[i].tensor : to[i - f.n].tensor;
                    size_t bytes = (size_t)ct_tensor_numel(a) * ct_dtype_bytes(ct_tensor_dtype(a));

                    cr_assert_leq(bytes, sizeof buf);
                    cr_expect_eq(ct_tensor_read(f.ctx, a, buf, bytes), CT_OK);
                    ct_scope_begin(g.ctx, CT_SCOPE_NO_GRAD);
                    cr_expect_eq(ct_tensor_write(g.ctx, b, buf, bytes), CT_OK);
                    ct_scope_end(g.ctx);
                }
                cr_expect_eq(ct_optim_set_counts(g.ctx, q, 3, 0), CT_OK);
                ct_optim_free(o);
                ct_module_free(f.m);
                close_ctx(f.ctx);
                f = g;
                o = q;
            }
            ct_scope_begin(f.ctx, CT_SCOPE_STEP);
            run(&f, 1);
            cr_expect_eq(ct_optim_step(f.ctx, o, ct_step_defaults()), CT_OK);
            ct_optim_zero_grad(o);
            cr_expect_eq(ct_scope_end(f.ctx), CT_OK);
        }
        cr_expect_eq(ct_optim_result(f.ctx, o, &r), CT_OK);
        cr_expect_eq(r.applied, 5);
        got = values_at(&f, 0);
        if (k == 0)
            want = ts_array_copy(&got);
        else
            cr_expect(ts_close(&got, &want, TS_EXACT, msg, sizeof msg), "%s", msg);
        /* A skipped step right after a restore goes back to what was restored. */
        ts_array stats = values_at(&f, 2);
        cr_expect_eq(ct_optim_set_counts(f.ctx, o, 5, 0), CT_OK);
        ct_scope_begin(f.ctx, CT_SCOPE_STEP);
        run(&f, NAN);
        cr_expect_eq(ct_optim_step(f.ctx, o, ct_step_defaults()), CT_OK);
        ct_optim_zero_grad(o);
        ct_scope_end(f.ctx);
        cr_expect(unchanged(&f, 2, &stats));
        cr_expect_eq(ct_optim_result(f.ctx, o, &r), CT_OK);
        cr_expect(r.applied == 5 && r.skipped == 1 && r.nonfinite);
        ts_array_free(&stats);
        ts_array_free(&got);
        ct_optim_free(o);
        ct_module_free(f.m);
        close_ctx(f.ctx);
    }
    ts_array_free(&want);
}

/* ---- memory ---- */

Test(optim_step, steady_steps_allocate_nothing)
{
    ct_ctx_opts opts = ct_ctx_defaults();
    model f = {0};
    const int64_t shape[] = {3};
    uint64_t before = 0;
    ct_optim *o;

    opts.device = "cpu";
    opts.threads = 1;
    opts.direct_alloc = false;
    f.ctx = ct_ctx_new(opts, NULL);
    f.m = ct_nn_layers_new(
        f.ctx, "linear(5) batchnorm1d relu dropout residual(linear(5)) linear(2)", 1, shape);
    cr_assert_not_null(f.m);
    ct_named_tensor t[32];
    f.n = ct_module_state(f.m, t, 32);
    o = ct_adamw_new(f.ctx, t, f.n, ct_adamw_defaults());
    for (int step = 0; step < 8; step++) {
        if (step == 4)
            before = ct_ctx_counters(f.ctx).allocs;
        ct_optim_set_lr(o, 1e-3 * step);
        ct_scope_begin(f.ctx, CT_SCOPE_STEP);
        run(&f, 1);
        cr_expect_eq(ct_optim_step(f.ctx, o, ct_step_defaults()), CT_OK);
        ct_optim_zero_grad(o);
        cr_expect_eq(ct_scope_end(f.ctx), CT_OK);
    }
    /* AddressSanitizer's build caches nothing unless told so: it is told above. */
    cr_expect_eq(ct_ctx_counters(f.ctx).allocs, before);
    ct_optim_free(o);
    ct_module_free(f.m);
    close_ctx(f.ctx);
}

Test(optim_step, every_allocation_failing)
{
    for (uint64_t n = 1; n < 400; n++) {
        model f = open_model();
        ct_optim *o;
        bool failed;

        ct_ctx_fail_alloc_at(f.ctx, n, true);
        o = ct_adamw_new(f.ctx, f.t, f.n, ct_adamw_defaults());
        failed = ct_ctx_alloc_failed(f.ctx);
        ct_ctx_fail_alloc_at(f.ctx, 0, false);
        cr_expect_eq(o == NULL, failed, "allocation %d", (int)n);
        cr_expect_eq(ct_error_code(f.ctx), failed ? CT_ENOMEM : CT_OK);
        ct_error_clear(f.ctx);
        ct_optim_free(o);
        ct_module_free(f.m);
        close_ctx(f.ctx);
        if (!failed)
            return;
    }
    cr_assert_fail("more allocations than expected");
}
