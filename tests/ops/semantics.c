/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's behaviours at kinks, ties, NaN and edges, each by name: elementwise, reductions, pools,
 * convolution, casts, dropout. Values: tests/golden/behaviours.py. */
#include "semantics.h"

#include <math.h>
#include <stdio.h>

TestSuite(semantics, .init = sem_open, .fini = sem_close);

/* ---- elementwise ---- */

Test(semantics, relu_is_0_with_gradient_0_at_0_and_lets_nan_through)
{
    ct_tensor *x = sem_x("relu");
    sem_expect("relu", x, ct_relu(x), NULL);
}

Test(semantics, abs_has_gradient_0_at_0)
{
    ct_tensor *x = sem_x("abs");
    sem_expect("abs", x, ct_abs(x), NULL);
}

Test(semantics, sqrt_has_an_infinite_gradient_at_0_and_is_nan_below)
{
    ct_tensor *x = sem_x("sqrt");
    sem_expect("sqrt", x, ct_sqrt(x), NULL);
}

Test(semantics, log_is_minus_infinity_at_0_and_nan_below)
{
    ct_tensor *x = sem_x("log");
    sem_expect("log", x, ct_log(x), NULL);
}

Test(semantics, division_by_0_gives_infinities_and_nan)
{
    ct_tensor *x = sem_x("div"), *zeros = ct_tensor_new(sem_ctx, CT_F64, 1, (int64_t[]){3});
    sem_expect("div", x, ct_div(x, zeros), NULL);
    ct_tensor_release(zeros);
}

Test(semantics, gelu_has_pytorchs_values_in_both_forms_and_far_out)
{
    ct_tensor *x = sem_x("gelu");
    sem_expect("gelu", x, ct_gelu(x, false), NULL);
    sem_expect("gelu_tanh", x, ct_gelu(x, true), NULL);
    double y;
    cr_expect(!ct_tensor_item(sem_ctx, ct_narrow(ct_gelu(x, false), 0, 2, 1), &y));
    cr_expect_float_eq(y, -.15865525393145702, 1e-15);
    cr_expect(!ct_tensor_item(sem_ctx, ct_narrow(ct_gelu(x, true), 0, 2, 1), &y));
    cr_expect_float_eq(y, -.15880800939172324, 1e-15);
}

Test(semantics, sigmoid_silu_tanh_and_exp_saturate_without_nan)
{
    ct_tensor *x = sem_x("sigmoid"), *e = sem_x("exp");
    sem_expect("sigmoid", x, ct_sigmoid(x), NULL);
    sem_expect("silu", x, ct_silu(x), NULL);
    sem_expect("tanh", x, ct_tanh(x), NULL);
    sem_expect("exp", e, ct_exp(e), NULL);
}

Test(semantics, f32_kinks_and_tails_are_those_of_f64)
{
    static ct_tensor *(*const fns[])(ct_tensor *) = {ct_relu, ct_sigmoid, ct_silu,
                                                     ct_tanh, ct_abs,     ct_sqrt};
    const double v[] = {-INFINITY, -100, -20, -1, -0.0, 0, 1, 20, 100, INFINITY, NAN};
    ct_tensor *a = ts_param(sem_ctx, ts_vec(sem_ctx, CT_F64, TS_LEN(v), v));
    ct_tensor *b = ts_param(sem_ctx, ts_vec(sem_ctx, CT_F32, TS_LEN(v), v));
    for (int i = 0; i < TS_LEN(fns); i++) {
        char what[64];
        snprintf(what, sizeof(what), "function %d", i);
        ct_tensor *y = fns[i](a), *z = fns[i](b);
        ts_array want = ts_values(sem_ctx, y), got = ts_values(sem_ctx, z);
        ts_expect_close(what, &got, &want, (ts_tol){1e-5, 1e-8});
        ts_array_free(&want);
        ts_array_free(&got);
        ct_zero_grad(a);
        ct_zero_grad(b);
        cr_expect(!ct_backward(sem_ctx, ct_sum(y, NULL, 0, false), NULL, 0));
        cr_expect(!ct_backward(sem_ctx, ct_sum(z, NULL, 0, false), NULL, 0));
        want = ts_values(sem_ctx, ct_tensor_grad(a));
        got = ts_values(sem_ctx, ct_tensor_grad(b));
        snprintf(what, sizeof(what), "gradient of function %d", i);
        ts_expect_close(what, &got, &want, (ts_tol){1e-5, 1e-8});
        ts_array_free(&want);
        ts_array_free(&got);
    }
    ct_tensor_release(a);
    ct_tensor_release(b);
}

/* ---- reductions ---- */

Test(semantics, amax_and_amin_share_the_gradient_among_ties_and_nan_wins)
{
    ct_tensor *ties = sem_x("amax_ties"), *nan = sem_x("amax_nan"), *rows = sem_x("amax_rows");
    sem_expect("amax_ties", ties, ct_amax(ties, NULL, 0, false), NULL);
    sem_expect("amin_ties", ties, ct_amin(ties, NULL, 0, false), NULL);
    sem_expect("amax_nan", nan, ct_amax(nan, NULL, 0, false), NULL);
    sem_expect("amin_nan", nan, ct_amin(nan, NULL, 0, false), NULL);
    sem_expect("amax_rows", rows, ct_amax(rows, (int[]){1}, 1, false), NULL);
}

Test(semantics, argmax_takes_the_first_largest_and_nan_counts_as_largest)
{
    static const char *const names[] = {"argmax_ties", "argmax_nan", "argmax_inf",
                                        "argmax_all_inf"};
    for (int i = 0; i < TS_LEN(names); i++)
        sem_expect(names[i], NULL, ct_argmax(sem_leaf("%s/x", names[i]), 0, false), NULL);
}

Test(semantics, sum_of_nothing_is_0_and_mean_of_nothing_nan)
{
    ct_tensor *none = ct_tensor_new(sem_ctx, CT_F64, 1, (int64_t[]){0});
    sem_expect("sum_empty", NULL, ct_sum(none, NULL, 0, false), NULL);
    sem_expect("mean_empty", NULL, ct_mean(none, NULL, 0, false), NULL);
    cr_expect_null(ct_amax(none, NULL, 0, false));
    cr_expect_lt(ct_error_code(sem_ctx), 0, "the largest of nothing is an error, as in PyTorch");
    ct_error_clear(sem_ctx);
    cr_expect_null(ct_argmax(none, 0, false));
    cr_expect_lt(ct_error_code(sem_ctx), 0);
    ct_error_clear(sem_ctx);
    ct_tensor_release(none);
}

/* ---- pools ---- */

static ct_pool2d_opts pool(int64_t k, int64_t s, int64_t p, int64_t d, bool ceil, bool count)
{
    ct_pool2d_opts o = ct_pool2d_defaults(k);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = s;
        o.padding[i] = p;
        o.dilation[i] = d;
    }
    o.ceil_mode = ceil;
    o.count_include_pad = count;
    return o;
}

Test(semantics, max_pool_gives_the_gradient_to_the_first_maximum)
{
    ct_tensor *tie = sem_x("pool_tie"), *overlap = sem_x("pool_overlap");
    sem_expect("pool_tie", tie, ct_max_pool2d(tie, ct_pool2d_defaults(2)), NULL);
    sem_expect("pool_overlap", overlap, ct_max_pool2d(overlap, pool(2, 1, 0, 1, false, true)),
               NULL);
}

Test(semantics, max_pool_lets_nan_win_and_never_takes_padding)
{
    ct_tensor *nan = sem_x("pool_nan"), *negative = sem_x("pool_negative");
    ct_tensor *low = sem_x("pool_minus_inf");
    sem_expect("pool_nan", nan, ct_max_pool2d(nan, ct_pool2d_defaults(2)), NULL);
    sem_expect("pool_negative", negative, ct_max_pool2d(negative, pool(3, 1, 1, 1, false, true)),
               NULL);
    sem_expect("pool_minus_inf", low, ct_max_pool2d(low, ct_pool2d_defaults(2)), NULL);
}

Test(semantics, pools_have_pytorchs_sizes_divisors_and_windows)
{
    const ts_array *all = ts_golden_must_get(sem_golden, "pools");
    cr_assert(all->n > 0);
    for (int64_t i = 0; i < all->n / 6; i++) {
        const double *r = all->v + 6 * i;
        char name[64];
        snprintf(name, sizeof(name), "max_%d_%d_%d_%d_%d", (int)r[0], (int)r[1], (int)r[2],
                 (int)r[3], (int)r[4]);
        ct_tensor *x = sem_x(name);
        ct_pool2d_opts o =
            pool((int64_t)r[0], (int64_t)r[1], (int64_t)r[2], (int64_t)r[3], r[4] != 0, true);
        sem_expect(name, x, ct_max_pool2d(x, o), NULL);
        for (int count = 0; r[3] == 1 && count < 2; count++) {
            snprintf(name, sizeof(name), "avg_%d_%d_%d_%d_%d", (int)r[0], (int)r[1], (int)r[2],
                     (int)r[4], count);
            o.count_include_pad = count;
            sem_expect(name, x, ct_avg_pool2d(x, o), NULL);
        }
    }
}

Test(semantics, adaptive_pool_has_pytorchs_windows)
{
    static const int sizes[][2] = {{1, 1}, {3, 3}, {6, 7}, {4, 5}, {7, 9}};
    for (int i = 0; i < TS_LEN(sizes); i++) {
        char name[32];
        snprintf(name, sizeof(name), "adaptive_%d_%d", sizes[i][0], sizes[i][1]);
        ct_tensor *x = sem_x(name);
        sem_expect(name, x, ct_adaptive_avg_pool2d(x, sizes[i][0], sizes[i][1]), NULL);
    }
}

Test(semantics, pools_refuse_padding_over_half_the_kernel)
{
    ct_tensor *x = sem_x("pool_tie");
    cr_expect_null(ct_max_pool2d(x, pool(2, 2, 2, 1, false, true)));
    ts_expect_error(sem_ctx, CT_EINVAL, "max_pool2d", "padding", NULL);
    cr_expect_null(ct_avg_pool2d(x, pool(2, 2, 2, 1, false, true)));
    ts_expect_error(sem_ctx, CT_EINVAL, "avg_pool2d", "padding", NULL);
}

/* ---- convolution, casts, dropout ---- */

Test(semantics, same_padding_puts_the_extra_zero_at_the_end)
{
    ct_conv2d_opts o = ct_conv2d_defaults();
    o.same = true;
    ct_tensor *x = sem_x("same_even"), *w = ts_vec(sem_ctx, CT_F64, 2, (double[]){1, 10});
    ct_tensor *y = ct_conv2d(x, ct_reshape(w, 4, (int64_t[]){1, 1, 1, 2}), NULL, o);
    ts_expect_values("by hand", sem_ctx, y, 4, (double[]){10, 21, 32, 3}, TS_EXACT);
    sem_expect("same_even", x, y, NULL);
    ct_tensor_release(w);
    static const int kernels[][3] = {{2, 2, 1}, {3, 4, 1}, {2, 3, 2}, {4, 4, 1}, {1, 2, 3}};
    for (int i = 0; i < TS_LEN(kernels); i++) {
        char name[32];
        snprintf(name, sizeof(name), "same_%d_%d_%d", kernels[i][0], kernels[i][1], kernels[i][2]);
        o.dilation[0] = o.dilation[1] = kernels[i][2];
        x = sem_x(name);
        sem_expect(name, x, ct_conv2d(x, sem_leaf("%s/w", name), NULL, o), NULL);
    }
}

Test(semantics, casts_round_to_nearest_even_overflow_to_infinity_and_truncate)
{
    ct_tensor *x = sem_leaf("cast/x"), *whole = sem_leaf("cast/whole");
    static const struct {
        const char *name;
        ct_dtype dtype;
        bool whole;
    } all[] = {{"bf16", CT_BF16, false},
               {"f16", CT_F16, false},
               {"i64", CT_I64, true},
               {"bool", CT_BOOL, true}};
    for (int i = 0; i < TS_LEN(all); i++) {
        ts_array got = ts_values(sem_ctx, ct_cast(all[i].whole ? whole : x, all[i].dtype));
        const ts_array *want = ts_golden_must_get(sem_golden, "cast/%s", all[i].name);
        ts_expect_close(all[i].name, &got, want, TS_EXACT);
        cr_expect_eq(got.dtype, want->dtype);
        ts_array_free(&got);
    }
}

Test(semantics, dropout_scales_what_it_keeps_and_uses_one_mask_both_ways)
{
    ct_tensor *x = ct_tensor_new(sem_ctx, CT_F64, 1, (int64_t[]){10000});
    cr_expect(!ct_tensor_fill(sem_ctx, x, 1));
    ts_param(sem_ctx, x);
    ct_tensor *y = ct_dropout(x, 0.25, true);
    cr_expect(!ct_backward(sem_ctx, ct_sum(y, NULL, 0, false), NULL, 0));
    ts_array v = ts_values(sem_ctx, y), g = ts_values(sem_ctx, ct_tensor_grad(x));
    int64_t kept = 0, odd = 0;
    for (int64_t i = 0; i < v.n; i++) {
        kept += v.v[i] != 0;
        odd += v.v[i] != g.v[i] || (v.v[i] != 0 && fabs(v.v[i] - 1 / 0.75) > 1e-15);
    }
    cr_expect_eq(odd, 0);
    cr_expect(kept > 7300 && kept < 7700, "%lld of 10000 kept", (long long)kept);
    ts_array_free(&v);
    ts_array_free(&g);
    ct_tensor_release(x);
}

Test(semantics, dropout_of_everything_gives_zeros_and_of_nothing_the_input)
{
    ct_tensor *x = ts_param(sem_ctx, ts_vec(sem_ctx, CT_F64, 3, (double[]){1, INFINITY, NAN}));
    ct_tensor *y = ct_dropout(x, 1, true);
    ts_expect_values("p = 1", sem_ctx, ct_narrow(y, 0, 0, 1), 1, (double[]){0}, TS_EXACT);
    cr_expect(!ct_backward(sem_ctx, ct_sum(y, NULL, 0, false), NULL, 0));
    ts_expect_values("gradient", sem_ctx, ct_tensor_grad(x), 3, (double[]){0, 0, 0}, TS_EXACT);
    cr_expect(ct_tensor_shares_storage(ct_dropout(x, 0, true), x), "p = 0");
    cr_expect(ct_tensor_shares_storage(ct_dropout(x, 0.5, false), x), "evaluation");
    static const double bad[] = {-0.1, 1.5, NAN};
    for (int i = 0; i < TS_LEN(bad); i++) {
        cr_expect_null(ct_dropout(x, bad[i], true));
        ts_expect_error(sem_ctx, CT_EINVAL, "dropout", NULL);
    }
    ct_tensor_release(x);
}
