/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's behaviours of elementwise functions at kinks, zeros, infinities and NaN, and of reductions over ties, zeros, NaN
 * and nothing. Values: tests/golden/behaviours.py. */
#include "semantics.h"

#include <math.h>
#include <stdio.h>

TestSuite(pointwise, .init = sem_open, .fini = sem_close);
TestSuite(reductions, .init = sem_open, .fini = sem_close);

typedef struct named {
    const char *name;
    ct_tensor *(*fn)(ct_tensor *);
} named;

static void all(const named *fns, int n)
{
    for (int i = 0; i < n; i++) {
        ct_tensor *x = sem_x(fns[i].name);
        sem_expect(fns[i].name, x, fns[i].fn(x), NULL);
    }
}

#define WRAP(name, call)                 \
    static ct_tensor *name(ct_tensor *x) \
    {                                    \
        return call;                     \
    }

Test(pointwise, functions_have_pytorchs_values_and_gradients_everywhere)
{
    static const named fns[] = {
        {"p_sin", ct_sin},     {"p_cos", ct_cos},
        {"p_tan", ct_tan},     {"p_asin", ct_asin},
        {"p_acos", ct_acos},   {"p_atan", ct_atan},
        {"p_sinh", ct_sinh},   {"p_cosh", ct_cosh},
        {"p_asinh", ct_asinh}, {"p_acosh", ct_acosh},
        {"p_atanh", ct_atanh}, {"p_exp2", ct_exp2},
        {"p_expm1", ct_expm1}, {"p_log2", ct_log2},
        {"p_log10", ct_log10}, {"p_log1p", ct_log1p},
        {"p_rsqrt", ct_rsqrt}, {"p_erf", ct_erf},
        {"p_erfc", ct_erfc},   {"p_reciprocal", ct_reciprocal},
    };
    all(fns, TS_LEN(fns));
}

Test(pointwise, steps_have_gradient_0_and_round_goes_half_to_even)
{
    static const named fns[] = {
        {"p_sign", ct_sign},        {"p_floor", ct_floor}, {"p_ceil", ct_ceil},
        {"p_round", ct_round},      {"p_trunc", ct_trunc}, {"p_frac", ct_frac},
        {"p_round_half", ct_round},
    };
    all(fns, TS_LEN(fns));
}

WRAP(leaky, ct_leaky_relu(x, 0.1))
WRAP(elu, ct_elu(x, 1))
WRAP(celu, ct_celu(x, 0.5))
WRAP(softplus, ct_softplus(x, 1, 20))
WRAP(hardtanh, ct_hardtanh(x, -1, 1))
WRAP(hardshrink, ct_hardshrink(x, 0.5))
WRAP(softshrink, ct_softshrink(x, 0.5))
WRAP(threshold, ct_threshold(x, 1, 20))

Test(pointwise, activations_have_pytorchs_subgradients_at_their_kinks)
{
    static const named fns[] = {
        {"p_selu", ct_selu},
        {"p_relu6", ct_relu6},
        {"p_hardsigmoid", ct_hardsigmoid},
        {"p_hardswish", ct_hardswish},
        {"p_softsign", ct_softsign},
        {"p_mish", ct_mish},
        {"p_tanhshrink", ct_tanhshrink},
        {"p_logsigmoid", ct_logsigmoid},
        {"p_leaky_relu", leaky},
        {"p_elu", elu},
        {"p_celu", celu},
        {"p_softplus", softplus},
        {"p_hardtanh", hardtanh},
        {"p_hardshrink", hardshrink},
        {"p_softshrink", softshrink},
        {"p_threshold", threshold},
    };
    all(fns, TS_LEN(fns));
}

Test(pointwise, prelu_takes_the_weight_at_0)
{
    ct_tensor *x = sem_x("p_prelu"), *w = ts_vec(sem_ctx, CT_F64, 1, (double[]){0.25});
    sem_expect("p_prelu", x, ct_prelu(x, w), NULL);
    ct_tensor_release(w);
}

Test(pointwise,
     clamp_has_gradient_0_at_its_bounds_half_at_tensor_bounds_and_gives_hi_where_they_cross)
{
    const double lo = -1, hi = 3, one = 1;
    const double low[] = {-1, -1, -1, -1}, high[] = {1, 1, 1, 1};
    ct_tensor *x = sem_x("p_clamp");
    sem_expect("p_clamp", x, ct_clamp(x, &lo, &hi), NULL);
    x = sem_x("p_clamp_low");
    sem_expect("p_clamp_low", x, ct_clamp(x, &lo, NULL), NULL);
    x = sem_x("p_clamp_high");
    sem_expect("p_clamp_high", x, ct_clamp(x, NULL, &lo), NULL);
    x = sem_x("p_clamp_crossed");
    sem_expect("p_clamp_crossed", x, ct_clamp(x, &one, &lo), NULL);
    ct_tensor *a = ts_vec(sem_ctx, CT_F64, 4, low), *b = ts_vec(sem_ctx, CT_F64, 4, high);
    x = sem_x("p_clamp_tensor");
    sem_expect("p_clamp_tensor", x, ct_clamp_tensor(x, a, b), NULL);
    ct_tensor_release(a);
    ct_tensor_release(b);
    cr_expect_null(ct_clamp(x, NULL, NULL));
    ts_expect_error(sem_ctx, CT_EINVAL, "clamp: at least one of lo and hi", NULL);
}

Test(pointwise, powers_of_0_and_of_negative_numbers)
{
    static const double p[] = {0, 1, 2, 3, 0.5, -1, -2};
    static const char *const names[] = {"p_pow_0",   "p_pow_1",  "p_pow_2", "p_pow_3",
                                        "p_pow_0.5", "p_pow_-1", "p_pow_-2"};
    for (int i = 0; i < TS_LEN(p); i++) {
        ct_tensor *x = sem_x(names[i]);
        sem_expect(names[i], x, ct_pow_scalar(x, p[i]), NULL);
    }
    const double a[] = {0, 0, 2, -2, 0, 1, NAN}, b[] = {0, 2, 0, 3, -1, NAN, 1};
    ct_tensor *base = ts_vec(sem_ctx, CT_F64, 7, a), *exponent = ts_vec(sem_ctx, CT_F64, 7, b);
    ct_tensor *x = sem_x("p_pow_of_base");
    sem_expect("p_pow_of_base", x, ct_pow(x, exponent), NULL);
    x = sem_x("p_pow_of_exponent");
    sem_expect("p_pow_of_exponent", x, ct_pow(base, x), NULL);
    ct_tensor_release(base);
    ct_tensor_release(exponent);
}

Test(pointwise, maximum_and_minimum_halve_the_gradient_of_ties_and_nan_wins)
{
    const double v[] = {1, 3, 2, 1, NAN, INFINITY};
    ct_tensor *other = ts_vec(sem_ctx, CT_F64, 6, v), *x = sem_x("p_maximum");
    sem_expect("p_maximum", x, ct_maximum(x, other), NULL);
    x = sem_x("p_minimum");
    sem_expect("p_minimum", x, ct_minimum(x, other), NULL);
    ct_tensor_release(other);
}

static void expect_put(const char *name, ct_tensor *got)
{
    ts_array a = ts_values(sem_ctx, got);
    ts_expect_close(name, &a, ts_golden_must_get(sem_golden, "%s", name), TS_F64);
    ts_array_free(&a);
}

Test(pointwise, division_with_rest_has_the_sign_of_dividend_or_divisor)
{
    const double n[] = {7, -7, 7, -7, 1, 0, 5.5}, d[] = {3, 3, -3, -3, 0, 0, INFINITY};
    ct_tensor *a = ts_vec(sem_ctx, CT_F64, 7, n), *b = ts_vec(sem_ctx, CT_F64, 7, d);
    expect_put("p_fmod", ct_fmod(a, b));
    expect_put("p_remainder", ct_remainder(a, b));
    expect_put("p_floor_divide", ct_floor_divide(a, b));
    ct_tensor_release(a);
    ct_tensor_release(b);
}

Test(pointwise, where_does_not_hide_a_nan_gradient_and_masked_fill_stops_it)
{
    ct_tensor *x = sem_x("p_where_hides_nothing"), *zeros = ct_zeros_like(x);
    sem_expect("p_where_hides_nothing", x, ct_where(ct_gt(x, zeros), ct_sqrt(x), zeros), NULL);
    x = sem_x("p_masked_fill");
    ct_tensor *mask = ct_ne(x, ct_full_like(x, 2));
    sem_expect("p_masked_fill", x, ct_masked_fill(x, mask, -INFINITY), NULL);
}

Test(pointwise, errors_name_op_and_what_to_do)
{
    ct_tensor *x = sem_x("p_clamp_crossed"), *two = ts_vec(sem_ctx, CT_F64, 2, (double[]){1, 2});
    cr_expect_null(ct_where(x, x, x));
    ts_expect_error(sem_ctx, CT_EDTYPE, "where: the condition is float64; bool is needed", NULL);
    cr_expect_null(ct_masked_fill(x, ct_ne(two, two), 0));
    ts_expect_error(sem_ctx, CT_ESHAPE, "masked_fill: the mask [2] doesn't broadcast to [3]", NULL);
    cr_expect_null(ct_logical_and(x, x));
    ts_expect_error(sem_ctx, CT_EDTYPE, "logical: input 0 is float64; bool is needed", NULL);
    cr_expect_null(ct_softplus(x, 0, 20));
    ts_expect_error(sem_ctx, CT_EINVAL, "softplus: beta is 0", NULL);
    cr_expect_null(ct_celu(x, 0));
    ts_expect_error(sem_ctx, CT_EINVAL, "celu: alpha is 0", NULL);
    cr_expect_null(ct_softshrink(x, -1));
    ts_expect_error(sem_ctx, CT_EINVAL, "softshrink: lambda is -1", NULL);
    cr_expect_null(ct_maximum(x, two));
    ts_expect_error(sem_ctx, CT_ESHAPE, "maximum: shapes [3] and [2] don't broadcast", NULL);
    cr_expect_null(ct_glu(x, 0));
    ts_expect_error(sem_ctx, CT_ESHAPE, "glu: dimension 0 of x has 3 elements", NULL);
    ct_tensor_release(two);
}

/* ---- reductions ---- */

static void both(const char *name, const char *place,
                 int (*fn)(ct_tensor *, int, bool, ct_tensor **, ct_tensor **), int dim)
{
    ct_tensor *x = sem_x(name), *v, *i;
    cr_assert(!fn(x, dim, false, &v, &i), "%s", ct_error_get(sem_ctx)->text);
    sem_expect(name, x, v, NULL);
    ts_array got = ts_values(sem_ctx, i);
    const ts_array *want = ts_golden_must_get(sem_golden, "%s", place);
    for (int64_t k = 0; k < got.n; k++)
        cr_expect_eq(got.v[k], want->v[k], "%s: place %lld", name, (long long)k);
    ts_array_free(&got);
}

Test(reductions, max_and_min_take_the_first_of_ties_and_nan_wins)
{
    both("r_max_dim", "r_max_place", ct_max, 1);
    both("r_min_dim", "r_min_place", ct_min, 1);
}

Test(reductions, median_is_the_lower_middle_shares_among_ties_and_nan_wins)
{
    ct_tensor *x = sem_x("r_median_ties"), *v, *i;
    sem_expect("r_median_ties", x, ct_median_all(x), NULL);
    x = sem_x("r_median_nan");
    expect_put("r_median_nan/y", ct_median_all(x));
    ct_tensor *row = ts_mat(sem_ctx, CT_F64, 1, 4, (double[]){5, 1, 3, 2});
    cr_assert(!ct_median(row, 1, false, &v, &i));
    ts_expect_values("place", sem_ctx, i, 1, (double[]){3}, TS_EXACT);
    ct_tensor_release(row);
}

Test(reductions, var_of_one_is_nan_and_std_of_constants_has_gradient_0)
{
    ct_tensor *x = sem_x("r_var_of_one");
    sem_expect("r_var_of_one", x, ct_var(x, (int[]){1}, 1, 1, false), NULL);
    x = sem_x("r_std_of_constants");
    sem_expect("r_std_of_constants", x, ct_std(x, NULL, 0, 1, false), NULL);
}

Test(reductions, norms_of_zeros_have_gradient_0_and_the_infinite_one_shares)
{
    ct_tensor *x = sem_x("r_norm_of_zeros");
    sem_expect("r_norm_of_zeros", x, ct_norm(x, 2, NULL, 0, false), NULL);
    x = sem_x("r_norm_3_of_zeros");
    sem_expect("r_norm_3_of_zeros", x, ct_norm(x, 3, NULL, 0, false), NULL);
    x = sem_x("r_norm_1");
    sem_expect("r_norm_1", x, ct_norm(x, 1, NULL, 0, false), NULL);
    x = sem_x("r_norm_inf_ties");
    sem_expect("r_norm_inf_ties", x, ct_norm(x, INFINITY, NULL, 0, false), NULL);
    x = sem_x("r_normalize_zeros");
    sem_expect("r_normalize_zeros", x, ct_normalize(x, 2, 0, 1e-12), NULL);
}

Test(reductions, products_with_zeros_have_the_right_gradient)
{
    ct_tensor *x = sem_x("r_prod_one_zero");
    sem_expect("r_prod_one_zero", x, ct_prod_all(x), NULL);
    x = sem_x("r_prod_two_zeros");
    sem_expect("r_prod_two_zeros", x, ct_prod_all(x), NULL);
    x = sem_x("r_cumprod_zeros");
    sem_expect("r_cumprod_zeros", x, ct_cumprod(x, 0), NULL);
}

Test(reductions, logsumexp_and_softmax_of_infinities)
{
    ct_tensor *x = sem_x("r_logsumexp_inf");
    sem_expect("r_logsumexp_inf", x, ct_logsumexp(x, (int[]){1}, 1, false), NULL);
    x = sem_x("r_softmax_inf");
    sem_expect("r_softmax_inf", x, ct_softmax(x, 1), NULL);
}

static int up(ct_tensor *x, int dim, bool keepdim, ct_tensor **v, ct_tensor **i)
{
    (void)keepdim;
    return ct_sort(x, dim, false, v, i);
}

static int down(ct_tensor *x, int dim, bool keepdim, ct_tensor **v, ct_tensor **i)
{
    (void)keepdim;
    return ct_sort(x, dim, true, v, i);
}

Test(reductions, sorting_keeps_the_order_of_equals_and_takes_nan_for_largest)
{
    both("r_sort", "r_sort_place", up, 0);
    both("r_sort_down", "r_sort_down_place", down, 0);
    ct_tensor *x = sem_x("r_topk"), *v;
    cr_assert(!ct_topk(x, 2, 0, true, &v, NULL));
    sem_expect("r_topk", x, v, NULL);
    cr_expect_eq(ct_topk(x, 5, 0, true, &v, NULL), CT_EINVAL);
    ts_expect_error(sem_ctx, CT_EINVAL, "top 5 of 4 elements", NULL);
}

Test(reductions, of_nothing_are_nan_or_their_neutral_element)
{
    ct_tensor *x = ct_tensor_new(sem_ctx, CT_F64, 2, (int64_t[]){0, 2});
    expect_put("r_mean_of_nothing", ct_mean(x, (int[]){0}, 1, false));
    expect_put("r_prod_of_nothing", ct_prod(x, 0, false));
    ct_tensor_release(x);
}
