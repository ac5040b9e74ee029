/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic loss scaling against torch.amp.GradScaler. */
#include "nn_fixture.h"

#include <math.h>

static ct_scaler_opts quick(void)
{
    ct_scaler_opts s = ct_scaler_defaults();
    s.init_scale = 8;
    s.growth_interval = 3;
    return s;
}

static double scale_on_device(one *f)
{
    double v = NAN;
    cr_assert_eq(ct_tensor_item(f->ctx, ct_optim_loss_scale(f->o), &v), CT_OK);
    return v;
}

static ct_step_result step(one *f, double grad, ct_step_opts o)
{
    ct_step_result r;
    set_grad(f->ctx, f->p.tensor, grad);
    cr_assert_eq(ct_optim_step(f->ctx, f->o, o), CT_OK, "%s", ct_error_get(f->ctx)->text);
    cr_assert_eq(ct_optim_result(f->ctx, f->o, &r), CT_OK);
    return r;
}

static one scaled(ct_scaler_opts s)
{
    one f = open_one();
    ct_sgd_opts o = ct_sgd_defaults();
    o.lr = 0.5;
    f.o = ct_sgd_new(f.ctx, &f.p, 1, o);
    cr_assert_null(ct_optim_loss_scale(f.o));
    cr_assert_eq(ct_optim_set_scaler(f.ctx, f.o, s), CT_OK, "%s", ct_error_get(f.ctx)->text);
    return f;
}

Test(optim_scaler, goes_as_pytorchs)
{
    ts_golden *g = ts_golden_must_open("behaviours.safetensors");
    const ts_array *want = ts_golden_must_get(g, "scaler/trajectory");
    one f = scaled(quick());
    for (int k = 0; k < want->n / 3; k++) {
        const double *row = want->v + 3 * k;
        bool overflow = k == 2 || k == 6 || k == 7;
        double grad = overflow ? (double)INFINITY : scale_on_device(&f) * (0.25 + k), p = 0;
        ct_step_result r = step(&f, grad, ct_step_defaults());
        cr_assert_eq(ct_tensor_item(f.ctx, f.p.tensor, &p), CT_OK);
        cr_expect_float_eq(p, row[0], 1e-6, "step %d: p %g, PyTorch %g", k, p, row[0]);
        cr_expect(r.loss_scale == row[1] && scale_on_device(&f) == row[1],
                  "step %d: scale %g, PyTorch %g", k, r.loss_scale, row[1]);
        cr_expect_eq(r.growth_tracker, (int64_t)row[2], "step %d: tracker", k);
        cr_expect_eq(r.nonfinite, overflow);
        if (!overflow)
            cr_expect_float_eq(r.grad_norm, 0.25 + k, 1e-9);
    }
    close_one(&f);
    ts_golden_close(g);
}

Test(optim_scaler, is_divided_out_before_clipping_and_beside_the_weight)
{
    one f = scaled(ct_scaler_defaults());
    ct_step_opts o = ct_step_defaults();
    double p = 0;
    o.weight = ct_tensor_scalar(f.ctx, CT_F64, 4);
    o.max_norm = 1;
    ct_step_result r = step(&f, 65536 * 8.0, o);
    cr_expect_float_eq(r.grad_norm, 2, 1e-12);
    cr_expect_float_eq(r.weight, 4, 1e-12);
    cr_assert_eq(ct_tensor_item(f.ctx, f.p.tensor, &p), CT_OK);
    cr_expect_float_eq(p, 0.5, 1e-6);
    ct_tensor_release(o.weight);
    close_one(&f);
}

Test(optim_scaler, an_overflow_does_not_latch_but_a_loss_that_is_not_finite_does)
{
    one f = scaled(quick());
    ct_step_opts o = ct_step_defaults();
    o.latch = true;
    ct_step_result r = step(&f, INFINITY, o);
    cr_expect(r.nonfinite && !r.latched && r.loss_scale == 4);
    r = step(&f, 4, o);
    cr_expect(r.applied == 1 && r.skipped == 1 && !r.nonfinite);
    o.loss = ct_tensor_scalar(f.ctx, CT_F64, NAN);
    r = step(&f, 4, o);
    cr_expect(r.latched && r.loss_scale == 4);
    ct_tensor_release(o.loss);
    close_one(&f);
}

Test(optim_scaler, a_window_without_weight_leaves_it_alone)
{
    one f = scaled(quick());
    ct_step_opts o = ct_step_defaults();
    o.weight = ct_tensor_scalar(f.ctx, CT_F64, 0);
    ct_step_result r = step(&f, 4, o);
    cr_expect(r.empty && r.loss_scale == 8 && r.growth_tracker == 0);
    ct_tensor_release(o.weight);
    close_one(&f);
}

Test(optim_scaler, does_not_grow_to_infinity)
{
    ct_scaler_opts s = quick();
    s.init_scale = 0x1p127;
    s.growth_interval = 1;
    one f = scaled(s);
    ct_step_result r = step(&f, 1, ct_step_defaults());
    cr_expect_eq(r.loss_scale, 0x1p127);
    cr_expect_eq(r.growth_tracker, 0);
    close_one(&f);
}

Test(optim_scaler, is_restored)
{
    one f = scaled(quick());
    cr_assert_eq(ct_optim_set_counts(f.ctx, f.o, 5, 2), CT_OK);
    cr_assert_eq(ct_optim_set_loss_scale(f.ctx, f.o, 32, 2), CT_OK);
    ct_step_result r = step(&f, 32, ct_step_defaults());
    cr_expect(r.applied == 6 && r.skipped == 2 && r.loss_scale == 64 && r.growth_tracker == 0);
    cr_expect_eq(scale_on_device(&f), 64);
    close_one(&f);
}

Test(optim_scaler, numbers_out_of_range_are_named)
{
    one f = open_one();
    f.o = ct_sgd_new(f.ctx, &f.p, 1, ct_sgd_defaults());
    const struct {
        ct_scaler_opts s;
        const char *text;
    } bad[] = {
        {{0, 2, 0.5, 1}, "init_scale is 0: must be a float32 above 0"},
        {{1e300, 2, 0.5, 1}, "init_scale is 1e+300"},
        {{1, 1, 0.5, 1}, "growth_factor is 1: must be above 1"},
        {{1, 2, 1, 1}, "backoff_factor is 1: must be between 0 and 1"},
        {{1, 2, 0.5, 0}, "growth_interval is 0: must be 1 or more"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_eq(ct_optim_set_scaler(f.ctx, f.o, bad[i].s), CT_EINVAL);
        ts_expect_error(f.ctx, CT_EINVAL, bad[i].text, NULL);
    }
    cr_expect_eq(ct_optim_set_loss_scale(f.ctx, f.o, 8, 0), CT_EINVAL);
    ts_expect_error(f.ctx, CT_EINVAL, "the optimizer has no scaler", NULL);
    cr_expect_eq(ct_optim_set_scaler(f.ctx, f.o, ct_scaler_defaults()), CT_OK);
    cr_expect_eq(ct_optim_set_loss_scale(f.ctx, f.o, -8, 0), CT_EINVAL);
    ts_expect_error(f.ctx, CT_EINVAL, "the scale must be a float32 above 0", NULL);
    cr_expect_eq(ct_optim_set_scaler(f.ctx, NULL, ct_scaler_defaults()), CT_EINVAL);
    ts_expect_error(f.ctx, CT_EINVAL, "no optimizer of this context", NULL);
    close_one(&f);
}
