/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision by autocast: what runs in which dtype, and what becomes of parameters and their gradients.
 * Values are chosen so that each rounding is seen: 1 + 2^-8 is no bfloat16. */
#include "engine.h"

#include <math.h>
#include <string.h>

TestSuite(autocast, .init = engine_open_f32, .fini = engine_close);

#define EPS8 0.00390625 /* 2^-8 */

static void enter(unsigned flags)
{
    OK(ct_scope_begin(ctx, flags));
}

static void leave(void)
{
    OK(ct_scope_end(ctx));
}

static void expect_dtype(const char *what, const ct_tensor *t, ct_dtype want)
{
    cr_assert(t, "%s: %s", what, ct_error_get(ctx)->text);
    cr_expect(ct_tensor_dtype(t) == want, "%s is %s, not %s", what,
              ct_dtype_name(ct_tensor_dtype(t)), ct_dtype_name(want));
}

static ct_tensor *as_bf16(ct_tensor *t)
{
    return ct_cast(t, CT_BF16);
}

Test(autocast, runs_products_in_its_dtype)
{
    ct_tensor *x = MATRIX(2, 2, 1 + EPS8, 2, 3, 4), *w = MATRIX(2, 2, 1, 0, 0, 1 + EPS8);
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *y = ct_linear(x, w, NULL);
    expect_dtype("linear", y, CT_BF16);
    EXPECT_VALUES("linear", ct_cast(y, CT_F32), 1, 2, 3, 4);
    expect_dtype("matmul", ct_matmul(x, w), CT_BF16);
    EXPECT_VALUES("matmul", ct_cast(ct_matmul(x, w), CT_F32), 1, 2, 3, 4);
    int64_t image[4] = {1, 1, 2, 2};
    ct_tensor *conv =
        ct_conv2d(ct_reshape(x, 4, image), ct_reshape(w, 4, image), NULL, ct_conv2d_defaults());
    expect_dtype("conv2d", conv, CT_BF16);
    EXPECT_VALUES("conv2d", ct_cast(conv, CT_F32), 5);
    leave();
}

Test(autocast, f16_is_the_other_dtype)
{
    ct_tensor *x = MATRIX(1, 2, 300, 1 + EPS8), *w = MATRIX(1, 2, 300, 0);
    enter(CT_SCOPE_AUTOCAST_F16);
    ct_tensor *y = ct_linear(x, w, NULL);
    expect_dtype("linear", y, CT_F16);
    EXPECT_VALUES("over 65504", ct_cast(y, CT_F32), INFINITY);
    leave();
}

Test(autocast, runs_sums_norms_losses_and_their_like_in_float32)
{
    ct_tensor *x = as_bf16(MATRIX(1, 3, 1, 2, 3)), *one = ct_cast(x, CT_F32);
    const int64_t three = 3;
    ct_tensor *t = LEAF(0);
    ct_tensor *class = ct_cast(t, CT_I64);
    const int last = -1;
    enter(CT_SCOPE_AUTOCAST_BF16);
    const struct {
        const char *what;
        ct_tensor *y;
    } all[] = {
        {"sum", ct_sum(x, NULL, 0, false)},
        {"mean", ct_mean(x, &last, 1, false)},
        {"var", ct_var(x, NULL, 0, 1, false)},
        {"norm", ct_norm(x, 2, NULL, 0, false)},
        {"logsumexp", ct_logsumexp(x, &last, 1, false)},
        {"prod", ct_prod(x, 1, false)},
        {"cumsum", ct_cumsum(x, 1)},
        {"exp", ct_exp(x)},
        {"log", ct_log(x)},
        {"pow", ct_pow_scalar(x, 2.5)},
        {"rsqrt", ct_rsqrt(x)},
        {"softplus", ct_softplus(x, 1, 20)},
        {"softmax", ct_softmax(x, 1)},
        {"log_softmax", ct_log_softmax(x, 1)},
        {"layer_norm", ct_layer_norm(x, 1, &three, NULL, NULL, 1e-5)},
        {"cross_entropy", ct_cross_entropy(x, class, ct_cross_entropy_defaults())},
        {"mse_loss", ct_mse_loss(x, one, CT_REDUCE_MEAN)},
        {"l1_loss", ct_l1_loss(x, one, CT_REDUCE_MEAN)},
        {"smooth_l1_loss", ct_smooth_l1_loss(x, x, 1, CT_REDUCE_MEAN)},
        {"bce_with_logits", ct_bce_with_logits(x, x, NULL, NULL, CT_REDUCE_MEAN)},
        {"kl_div", ct_kl_div(x, x, false, CT_REDUCE_MEAN)},
        {"nll_loss", ct_nll_loss(x, class, NULL, -100, CT_REDUCE_MEAN)},
    };
    for (int i = 0; i < TS_LEN(all); i++)
        expect_dtype(all[i].what, all[i].y, CT_F32);
    leave();
    expect_dtype("sum outside", ct_sum(x, NULL, 0, false), CT_BF16);
}

Test(autocast, leaves_other_ops_in_the_dtype_that_comes_and_takes_the_widest_of_several)
{
    ct_tensor *wide = LEAF(1 + EPS8, -2), *low = as_bf16(LEAF(1, 2));
    enter(CT_SCOPE_AUTOCAST_BF16);
    expect_dtype("relu of bf16", ct_relu(low), CT_BF16);
    expect_dtype("relu of f32", ct_relu(wide), CT_F32);
    expect_dtype("add of bf16", ct_add(low, low), CT_BF16);
    ct_tensor *sum = ct_add(low, wide), *parts[] = {low, wide};
    expect_dtype("add of both", sum, CT_F32);
    EXPECT_VALUES("add of both", sum, 2 + EPS8, 0);
    expect_dtype("cat of both", ct_cat(parts, 2, 0), CT_F32);
    expect_dtype("bf16 and f16", ct_mul(low, ct_cast(wide, CT_F16)), CT_F32);
    leave();
    cr_expect_null(ct_add(low, wide));
    ts_expect_error(ctx, CT_EDTYPE, "dtypes differ", NULL);
}

Test(autocast, leaves_float64_and_integers_alone)
{
    ct_ctx *outer = ctx;
    ctx = ts_ctx(CT_F64, true);
    ct_tensor *x = ts_mat(ctx, CT_F64, 1, 1, (double[]){1 + 1e-9}), *i = ct_cast(x, CT_I64);
    enter(CT_SCOPE_AUTOCAST_BF16);
    expect_dtype("linear", ct_linear(x, x, NULL), CT_F64);
    expect_dtype("exp", ct_exp(x), CT_F64);
    expect_dtype("sum of integers", ct_sum(i, NULL, 0, false), CT_I64);
    leave();
    ct_tensor_release(x);
    ct_ctx_free(ctx);
    ctx = outer;
}

Test(autocast, gives_parameters_gradients_in_float32)
{
    ct_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *w = ts_param(ctx, MATRIX(1, 2, 1 + EPS8, 3)),
              *b = WANTING(1 + EPS8);
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *y = ct_linear(x, w, b);
    EXPECT_VALUES("y", ct_cast(y, CT_F32), 8, 16);
    ct_tensor *loss = ct_scope_return(ct_sum(y, NULL, 0, false));
    leave();
    OK(ct_backward(ctx, loss, NULL, 0));
    expect_dtype("gradient of w", ct_tensor_grad(w), CT_F32);
    expect_dtype("gradient of b", ct_tensor_grad(b), CT_F32);
    EXPECT_VALUES("w", ct_tensor_grad(w), 4, 6);
    EXPECT_VALUES("b", ct_tensor_grad(b), 2);
}

Test(autocast, does_not_round_gradients_of_parameters_where_the_device_can)
{
    /* dw = 256 + 1: no bfloat16, which PyTorch makes of it on the way */
    ct_tensor *x = MATRIX(2, 1, 256, 1), *w = ts_param(ctx, MATRIX(1, 1, 1));
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *loss = ct_scope_return(ct_sum(ct_linear(x, w, NULL), NULL, 0, false));
    leave();
    OK(ct_backward(ctx, loss, NULL, 0));
    double got = 0;
    OK(ct_tensor_item(ctx, ct_tensor_grad(w), &got));
    cr_expect_eq(got, ts_on_cuda() ? 256 : 257);
}

Test(autocast, casts_activations_on_the_record)
{
    ct_tensor *x = ts_param(ctx, MATRIX(1, 2, 1, 2)), *w = MATRIX(1, 2, 3, 5);
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *h = ct_affine(x, 2, 0), *y = ct_linear(h, w, NULL);
    const ct_grad_fn *fn = ct_grad_fn_next(ct_tensor_grad_fn(y), 0);
    cr_expect_str_eq(ct_grad_fn_name(fn), "ToCopyBackward0");
    ct_tensor *loss = ct_scope_return(ct_sum(y, NULL, 0, false));
    leave();
    OK(ct_backward(ctx, loss, NULL, 0));
    expect_dtype("gradient", ct_tensor_grad(x), CT_F32);
    EXPECT_VALUES("x", ct_tensor_grad(x), 6, 10);
}

Test(autocast, casts_a_parameter_once_until_it_changes)
{
    ct_tensor *x = MATRIX(1, 1, 1), *w = ts_param(ctx, MATRIX(1, 1, 3));
    double y = 0;
    float *behind = ct_tensor_data(w);
    enter(CT_SCOPE_AUTOCAST_BF16);
    OK(ct_tensor_item(ctx, ct_linear(x, w, NULL), &y));
    cr_expect_eq(y, 3);
    if (behind) { /* unseen by the version counter: the copy stays in use */
        *behind = 5;
        OK(ct_tensor_item(ctx, ct_linear(x, w, NULL), &y));
        cr_expect_eq(y, 3);
    }
    enter(CT_SCOPE_NO_GRAD);
    OK(ct_tensor_fill(ctx, w, 7));
    leave();
    OK(ct_tensor_item(ctx, ct_linear(x, w, NULL), &y));
    cr_expect_eq(y, 7);
    leave();
}

Test(autocast, keeps_copies_whatever_the_grad_mode_was)
{
    ct_tensor *x = MATRIX(1, 2, 1, 2), *w = ts_param(ctx, MATRIX(1, 2, 3, 5));
    enter(CT_SCOPE_AUTOCAST_BF16);
    enter(CT_SCOPE_NO_GRAD);
    cr_expect(!ct_tensor_requires_grad(ct_linear(x, w, NULL)));
    leave();
    ct_tensor *loss = ct_scope_return(ct_sum(ct_linear(x, w, NULL), NULL, 0, false));
    leave();
    OK(ct_backward(ctx, loss, NULL, 0));
    EXPECT_VALUES("w", ct_tensor_grad(w), 1, 2);
}

Test(autocast, finds_a_parameter_that_was_changed_before_backward)
{
    ct_tensor *x = ts_param(ctx, MATRIX(1, 2, 1, 2)), *w = ts_param(ctx, MATRIX(1, 2, 3, 5));
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *loss = ct_scope_return(ct_sum(ct_linear(x, w, NULL), NULL, 0, false));
    enter(CT_SCOPE_NO_GRAD);
    OK(ct_tensor_fill(ctx, w, 7));
    leave();
    ct_linear(x, w, NULL); /* casts it anew */
    leave();
    cr_expect_eq(ct_backward(ctx, loss, NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "linear", "input 1 (bfloat16 [1,2])", "was changed in place",
                    NULL);
}

Test(autocast, is_off_in_a_nested_region_and_on_again_after)
{
    ct_tensor *x = MATRIX(1, 1, 1 + EPS8), *w = MATRIX(1, 1, 1);
    ct_dtype dtype;
    cr_expect(!ct_autocast_enabled(ctx, &dtype) && dtype == CT_F32);
    enter(CT_SCOPE_AUTOCAST_BF16);
    cr_expect(ct_autocast_enabled(ctx, &dtype) && dtype == CT_BF16);
    enter(CT_SCOPE_AUTOCAST_OFF);
    cr_expect(!ct_autocast_enabled(ctx, NULL));
    ct_tensor *y = ct_linear(x, w, NULL);
    expect_dtype("off", y, CT_F32);
    EXPECT_VALUES("off", y, 1 + EPS8);
    enter(CT_SCOPE_AUTOCAST_F16);
    expect_dtype("f16 inside", ct_linear(x, w, NULL), CT_F16);
    leave();
    expect_dtype("off again", ct_linear(x, w, NULL), CT_F32);
    leave();
    expect_dtype("on again", ct_linear(x, w, NULL), CT_BF16);
    cr_expect_null(ct_matmul(x, MATRIX(2, 1, 1, 1)));
    ts_expect_error(ctx, CT_ESHAPE, "matmul", NULL);
    cr_expect(ct_autocast_enabled(ctx, NULL));
    leave();
    expect_dtype("after", ct_linear(x, w, NULL), CT_F32);
}

Test(autocast, of_forward_is_what_backward_goes_by_inside_and_outside)
{
    ct_tensor *x = MATRIX(1, 2, 1, 2), *w = ts_param(ctx, MATRIX(2, 2, 3, 5, 7, 11));
    for (int inside = 0; inside < 2; inside++) {
        ct_zero_grad(w);
        enter(CT_SCOPE_AUTOCAST_BF16);
        ct_tensor *loss = ct_scope_return(ct_sum(ct_square(ct_linear(x, w, NULL)), NULL, 0, false));
        if (!inside)
            leave();
        OK(ct_backward(ctx, loss, NULL, 0));
        if (inside) {
            cr_expect(ct_autocast_enabled(ctx, NULL));
            leave();
        }
        EXPECT_VALUES("w", ct_tensor_grad(w), 26, 52, 58, 116);
    }
}

Test(autocast, keeps_the_dtype_of_what_is_changed_in_place)
{
    ct_tensor *wide = LEAF(1, 2), *low = as_bf16(LEAF(1 + EPS8, 1));
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *w = ct_clone(wide), *l = ct_clone(low);
    expect_dtype("f32 += bf16", ct_add_(w, low), CT_F32);
    expect_dtype("bf16 += f32", ct_add_(l, wide), CT_BF16);
    expect_dtype("exp_ of bf16", ct_exp_(l), CT_BF16);
    leave();
}

Test(autocast, lets_batch_norm_keep_its_statistics_and_parameters_in_float32)
{
    ct_tensor *x = ts_param(ctx, MATRIX(2, 1, 1, 3)), *w = WANTING(2), *b = WANTING(1),
              *mean = LEAF(0), *var = LEAF(1);
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *low = ct_linear(x, MATRIX(1, 1, 1), NULL);
    ct_tensor *y = ct_batch_norm(low, w, b, mean, var, ct_batch_norm_defaults(true));
    expect_dtype("y", y, CT_BF16);
    EXPECT_VALUES("y", ct_cast(y, CT_F32), -1, 3);
    ct_tensor *loss = ct_scope_return(ct_sum(ct_mul(y, MATRIX(2, 1, 1, 3)), NULL, 0, false));
    leave();
    OK(ct_backward(ctx, loss, NULL, 0));
    expect_dtype("dw", ct_tensor_grad(w), CT_F32);
    EXPECT_VALUES("db", ct_tensor_grad(b), 4);
    double m = 0;
    OK(ct_tensor_item(ctx, mean, &m));
    cr_expect_float_eq(m, 0.2, 1e-6);
}

static int segment(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                   void *user)
{
    (void)n_in, (void)n_out;
    ct_tensor *h = ct_tanh(ct_linear(in[0], user, NULL));
    out[0] = ct_linear(ct_dropout(h, 0.3, true), user, NULL);
    return ct_error_code(c);
}

Test(autocast, is_the_same_when_a_checkpointed_segment_runs_again)
{
    ct_tensor *x = ts_param(ctx, MATRIX(2, 2, 0.3, -0.7, 0.11, 0.9)),
              *w = ts_param(ctx, MATRIX(2, 2, 0.3, 0.5, -0.7, 1.1));
    ts_array dw[2];
    for (int k = 0; k < 2; k++) {
        ct_tensor *y = NULL;
        ct_zero_grad(w);
        ct_ctx_set_position(ctx, 3, 0);
        enter(CT_SCOPE_AUTOCAST_BF16);
        if (k)
            OK(ct_checkpoint(ctx, segment, w, 1, &x, 1, &y));
        else
            OK(segment(ctx, 1, &x, 1, &y, w));
        expect_dtype("y", y, CT_BF16);
        ct_tensor *loss = ct_scope_return(ct_sum(y, NULL, 0, false));
        leave();
        OK(ct_backward(ctx, loss, NULL, 0));
        dw[k] = ts_values(ctx, ct_tensor_grad(w));
    }
    ts_expect_close("gradients", &dw[1], &dw[0], TS_EXACT);
    ts_array_free(&dw[0]), ts_array_free(&dw[1]);
}

Test(autocast, gradients_of_gradients_go_through_the_casts)
{
    ct_tensor *x = MATRIX(1, 2, 1, 2), *w = ts_param(ctx, MATRIX(1, 2, 3, 5)), *g, *gg;
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *y = ct_linear(x, w, NULL);
    ct_tensor *loss = ct_scope_return(ct_sum(ct_mul(ct_mul(y, y), y), NULL, 0, false));
    leave();
    OK(ct_grad(ctx, 1, &loss, NULL, 1, &w, CT_CREATE_GRAPH, &g));
    expect_dtype("g", g, CT_F32);
    EXPECT_VALUES("g", g, 508, 1016); /* 3 y^2 x with y^2 = 169, 3 y^2 rounded to 508 */
    ct_tensor *sum = ct_sum(g, NULL, 0, false);
    OK(ct_grad(ctx, 1, &sum, NULL, 1, &w, 0, &gg));
    expect_dtype("gg", gg, CT_F32);
    EXPECT_VALUES("gg", gg, 234, 468); /* 6 y (x1 + x2) x */
}

Test(autocast, leaves_frozen_parameters_without_gradients)
{
    ct_tensor *x = MATRIX(1, 1, 1), *w = MATRIX(1, 1, 3), *v = ts_param(ctx, MATRIX(1, 1, 2));
    enter(CT_SCOPE_AUTOCAST_BF16);
    ct_tensor *loss =
        ct_scope_return(ct_sum(ct_linear(ct_linear(x, w, NULL), v, NULL), NULL, 0, false));
    OK(ct_tensor_set_requires_grad(ctx, w, true)); /* from the next forward on */
    ct_tensor *next =
        ct_scope_return(ct_sum(ct_linear(ct_linear(x, w, NULL), v, NULL), NULL, 0, false));
    leave();
    OK(ct_backward(ctx, loss, NULL, 0));
    cr_expect_null(ct_tensor_grad(w));
    EXPECT_VALUES("v", ct_tensor_grad(v), 3);
    OK(ct_backward(ctx, next, NULL, 0));
    EXPECT_VALUES("w", ct_tensor_grad(w), 2);
}

Test(autocast, takes_no_memory_in_a_steady_step)
{
    ct_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *w = ts_param(ctx, MATRIX(2, 2, 3, 5, 7, 11));
    ct_counters first = {0};
    for (int step = 0; step < 6; step++) {
        enter(CT_SCOPE_STEP | CT_SCOPE_AUTOCAST_BF16);
        ct_tensor *loss = ct_sum(ct_relu(ct_linear(x, w, NULL)), NULL, 0, false);
        OK(ct_backward(ctx, loss, NULL, 0));
        leave();
        ct_zero_grad(w);
        enter(CT_SCOPE_NO_GRAD);
        OK(ct_tensor_fill(ctx, w, step));
        leave();
        ct_counters c = ct_ctx_counters(ctx);
        if (step == 2)
            first = c;
        if (step > 2) {
            cr_expect_eq(c.live_bytes, first.live_bytes);
            cr_expect_eq(c.live_nodes, 0);
        }
    }
}

Test(autocast, overflow_of_f16_is_named_by_anomaly_detection)
{
    ct_tensor *x = MATRIX(1, 1, 70000), *w = MATRIX(1, 1, 1);
    enter(CT_SCOPE_AUTOCAST_F16 | CT_SCOPE_ANOMALY);
    ct_linear(ct_affine(x, 1, 0), w, NULL);
    cr_expect_eq(ct_error_code(ctx), CT_ENONFINITE);
    ts_expect_error(ctx, CT_ENONFINITE, "cast", "Inf", NULL);
    leave();
}
