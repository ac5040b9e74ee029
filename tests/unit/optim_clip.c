/* SPDX-License-Identifier: Apache-2.0 */
/* Clipping on its own; parameters, options and gradients that optimizers refuse or have to copy. */
#include "nn_fixture.h"

#include <math.h>
#include <stdio.h>

/* ---- clipping on its own ---- */

static void expect_clip(double a, double b, double max_norm, double norm, double want_a,
                        double want_b)
{
    ct_ctx *ctx = open_ctx(CT_F32);
    ct_named_tensor p[3];
    double got = -1;
    char what[64];

    snprintf(what, sizeof what, "%g, %g -> %g", a, b, max_norm);
    p[0] = named("a", ts_param(ctx, ts_vec(ctx, CT_F32, 2, (double[]){0, 0})), false);
    p[1] = named("b", ts_param(ctx, ts_vec(ctx, CT_F32, 1, (double[]){0})), false);
    p[2] = named("stats", ts_vec(ctx, CT_F32, 1, (double[]){9}), true);
    ct_tensor *ga = ts_vec(ctx, CT_F32, 2, (double[]){0, a}), *gb = ts_vec(ctx, CT_F32, 1, &b);
    cr_assert_eq(ct_tensor_set_grad(ctx, p[0].tensor, ga), CT_OK);
    cr_assert_eq(ct_tensor_set_grad(ctx, p[1].tensor, gb), CT_OK);
    ct_tensor_release(ga);
    ct_tensor_release(gb);
    cr_expect_eq(ct_clip_grad_norm(ctx, p, 3, max_norm, &got), CT_OK, "%s",
                 ct_error_get(ctx)->text);
    cr_expect(got == norm || (isnan(got) && isnan(norm)) || fabs(got - norm) < 1e-6 * norm,
              "%s: norm %g", what, got);
    ts_expect_values(what, ctx, ct_tensor_grad(p[0].tensor), 2,
                     (double[]){isnan(norm) ? NAN : 0, want_a}, (ts_tol){1e-6, 0});
    ts_expect_values(what, ctx, ct_tensor_grad(p[1].tensor), 1, &want_b, (ts_tol){1e-6, 0});
    for (int i = 0; i < 3; i++)
        ct_tensor_release(p[i].tensor);
    close_ctx(ctx);
}

Test(optim_step, clip_grad_norm)
{
    expect_clip(3, 4, 1, 5, 0.5999999046325684, 0.7999998331069946);
    expect_clip(.3, .4, 1, .5, .3, .4);
    expect_clip(0, 1, 1, 1, 0, 0.9999990463256836);
    expect_clip(INFINITY, 2, 1, INFINITY, NAN, 0);
    expect_clip(NAN, 2, 1, NAN, NAN, NAN);
    expect_clip(3, 4, 0, 5, 0, 0);
}

Test(optim_step, clip_refuses)
{
    one f = open_one();

    cr_expect_eq(ct_clip_grad_norm(f.ctx, &f.p, 1, -1, NULL), CT_EINVAL);
    expect_text(f.ctx, CT_EINVAL,
                "clip_grad_norm: max_norm is -1: must be at least 0; or no parameters");
    close_one(&f);
}

/* ---- what is refused ---- */

Test(optim_step, hyper_parameters)
{
    one f = open_one();
    ct_sgd_opts s = ct_sgd_defaults();
    ct_adam_opts a = ct_adamw_defaults();

#define REFUSED(make, opts, key, value, text)     \
    do {                                          \
        __typeof__(opts) o_ = opts;               \
        o_.key = value;                           \
        cr_expect_null(make(f.ctx, &f.p, 1, o_)); \
        expect_text(f.ctx, CT_EINVAL, text);      \
    } while (0)
    REFUSED(ct_sgd_new, s, lr, -1, "sgd: lr is -1: must be a number of at least 0");
    REFUSED(ct_sgd_new, s, lr, NAN, "sgd: lr is nan: must be a number of at least 0");
    REFUSED(ct_sgd_new, s, momentum, -1, "sgd: momentum is -1: must be a number of at least 0");
    REFUSED(ct_sgd_new, s, weight_decay, -1,
            "sgd: weight_decay is -1: must be a number of at least 0");
    REFUSED(ct_sgd_new, s, dampening, INFINITY, "sgd: dampening is inf: must be a number");
    REFUSED(ct_sgd_new, s, nesterov, true,
            "sgd: nesterov needs momentum over 0 and dampening 0, not momentum 0 and dampening 0");
    REFUSED(ct_adam_new, a, lr, INFINITY, "adam: lr is inf: must be a number of at least 0");
    REFUSED(ct_adam_new, a, beta1, 1, "adam: beta1 is 1: must be at least 0 and less than 1");
    REFUSED(ct_adamw_new, a, beta2, -.5,
            "adamw: beta2 is -0.5: must be at least 0 and less than 1");
    REFUSED(ct_adamw_new, a, eps, -1, "adamw: eps is -1: must be a number of at least 0");
    REFUSED(ct_adamw_new, a, weight_decay, -1,
            "adamw: weight_decay is -1: must be a number of at least 0");
#undef REFUSED
    close_one(&f);
}

Test(optim_step, parameters)
{
    one f = open_one();
    ct_ctx *ctx = f.ctx;
    ct_tensor *f32 = ts_param(ctx, ts_vec(ctx, CT_F32, 1, (double[]){1}));
    ct_tensor *ints = ts_vec(ctx, CT_I64, 1, (double[]){1}),
              *two = ts_vec(ctx, CT_F64, 2, (double[]){1, 2});
    ct_named_tensor p[2] = {f.p, named("b", f32, false)};
    ct_adam_opts a = ct_adamw_defaults();
    ct_step_opts so = ct_step_defaults();
    ct_named_tensor s[8];

    cr_expect_null(ct_adamw_new(ctx, p, 0, a));
    expect_text(ctx, CT_EINVAL, "adamw: there is no parameter to optimize");
    cr_expect_null(ct_adamw_new(ctx, p, 2, a));
    expect_text(ctx, CT_EDTYPE,
                "adamw: b is float32: parameters must all be float32 or all float64");
    p[1] = named("b", ints, false);
    cr_expect_null(ct_adamw_new(ctx, p + 1, 1, a));
    expect_text(ctx, CT_EDTYPE, "adamw: b is int64: parameters must all be float32 or all float64");
    p[1] = named("b", NULL, false);
    cr_expect_null(ct_adamw_new(ctx, p, 2, a));
    expect_text(ctx, CT_EINVAL, "adamw: b is NULL");
    memset(p[1].name, 'x', 112);
    cr_expect_null(ct_adamw_new(ctx, p, 2, a));
    ts_expect_error(ctx, CT_EINVAL, "is no name of 1 to 111 bytes", NULL);
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    p[1] = named("b", ct_square(f.p.tensor), false);
    cr_expect_null(ct_adamw_new(ctx, p, 2, a));
    expect_text(ctx, CT_EINVAL, "adamw: b is no leaf: only what no op has made can be optimized");
    ct_scope_end(ctx);

    p[1] = named("again", f.p.tensor, false); /* shared: one state, one step */
    f.o = ct_adamw_new(ctx, p, 2, a);
    cr_expect_eq(ct_optim_state(f.o, s, 8), 3);
    so.weight = two;
    cr_expect_eq(ct_optim_step(ctx, f.o, so), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "adamw: weight is float64 [2]: expected one element of float64");
    so.weight = NULL;
    so.loss = f32;
    cr_expect_eq(ct_optim_step(ctx, f.o, so), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "adamw: loss is float32 [1]: expected one element of float64");
    so.loss = NULL;
    so.max_norm = -1;
    cr_expect_eq(ct_optim_step(ctx, f.o, so), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "adamw: max_norm is -1: must be at least 0");
    cr_expect_eq(ct_optim_step(ctx, NULL, so), CT_EINVAL);
    expect_text(ctx, CT_EINVAL, "no optimizer of this context");

    /* A failed forward never updates a weight. */
    set_grad(ctx, f.p.tensor, 1);
    cr_expect_null(ct_add(f.p.tensor, NULL));
    cr_expect_eq(ct_optim_step(ctx, f.o, ct_step_defaults()), CT_EINVAL);
    ct_error_clear(ctx);
    ts_expect_values("p", ctx, f.p.tensor, 1, (double[]){1}, TS_EXACT);
    ct_optim_free(NULL);
    ct_tensor_release(f32);
    ct_tensor_release(ints);
    ct_tensor_release(two);
    close_one(&f);
}

/* A gradient that isn't laid out as its parameter (a broadcast one) is copied first. */
Test(optim_step, strided_gradient)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    const int64_t shape[] = {2, 3};
    ct_named_tensor p = named("w", ts_param(ctx, ts_mat(ctx, CT_F64, 2, 3, (double[6]){0})), false);
    ct_optim *o = ct_sgd_new(ctx, &p, 1, (ct_sgd_opts){.lr = 1});
    ct_tensor *row = ts_vec(ctx, CT_F64, 3, (double[]){1, 2, 3});

    ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    cr_assert_eq(ct_tensor_set_grad(ctx, p.tensor, ct_expand(row, 2, shape)), CT_OK);
    ct_scope_end(ctx);
    cr_expect_eq(ct_optim_step(ctx, o, ct_step_defaults()), CT_OK, "%s", ct_error_get(ctx)->text);
    ts_expect_values("w", ctx, p.tensor, 6, (double[]){-1, -2, -3, -1, -2, -3}, TS_EXACT);
    cr_expect_eq(ct_clip_grad_norm(ctx, &p, 1, 1, NULL), CT_OK);
    ts_expect_values("clipped", ctx, ct_tensor_grad(p.tensor), 6,
                     (double[]){1 / sqrt(28), 2 / sqrt(28), 3 / sqrt(28), 1 / sqrt(28),
                                2 / sqrt(28), 3 / sqrt(28)},
                     (ts_tol){1e-6, 0});
    ct_tensor_release(row);
    ct_optim_free(o);
    ct_tensor_release(p.tensor);
    close_ctx(ctx);
}
