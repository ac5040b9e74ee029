/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's behaviours of softmax, cross entropy and batch norm. Values:
 * tests/golden/behaviours.py. */
#include "semantics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(losses, .init = sem_open, .fini = sem_close);
TestSuite(norms, .init = sem_open, .fini = sem_close);

Test(losses, softmax_of_infinities_and_nan_is_pytorchs)
{
    static const char *const names[] = {"all_minus_inf", "one_minus_inf", "plus_inf", "nan",
                                        "large"};
    for (int i = 0; i < TS_LEN(names); i++) {
        char name[64];
        snprintf(name, sizeof(name), "softmax_%s", names[i]);
        ct_tensor *x = sem_x(name), *dy = sem_counting(ct_tensor_numel(x));
        sem_expect(name, x, ct_softmax(x, 0), dy);
        snprintf(name, sizeof(name), "log_softmax_%s", names[i]);
        sem_expect(name, x, ct_log_softmax(x, 0), dy);
    }
}

/* ---- cross entropy ---- */

static const char *const reductions[] = {"none", "sum", "mean"};

/* All three reductions of one setting. */
static void cross_entropy(const char *name, ct_tensor *target, ct_tensor *weight, double smoothing,
                          int64_t ignore_index)
{
    for (int r = 0; r < 3; r++) {
        char full[64];
        snprintf(full, sizeof(full), "ce_%s_%s", name, reductions[r]);
        ct_cross_entropy_opts o = ct_cross_entropy_defaults();
        o.weight = weight;
        o.label_smoothing = smoothing;
        o.ignore_index = ignore_index;
        o.reduction = (ct_reduction)r;
        ct_tensor *x = sem_x(full);
        sem_expect(full, x, ct_cross_entropy(x, target, o), NULL);
    }
}

Test(losses, cross_entropy_leaves_out_ignored_samples)
{
    cross_entropy("plain", sem_leaf("ce/target"), NULL, 0, -100);
}

Test(losses, cross_entropy_divides_by_the_weights_of_the_classes_seen)
{
    cross_entropy("weight", sem_leaf("ce/target"), sem_leaf("ce/weight"), 0, -100);
}

Test(losses, cross_entropy_smooths_labels)
{
    cross_entropy("smooth", sem_leaf("ce/target"), NULL, 0.1, -100);
    cross_entropy("both", sem_leaf("ce/target"), sem_leaf("ce/weight"), 0.1, -100);
}

Test(losses, cross_entropy_of_a_worked_case_has_pytorchs_value)
{
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();
    o.weight = sem_leaf("ce/weight");
    ct_tensor *x = sem_x("ce_plain_mean"), *y = sem_leaf("ce/target");
    double loss;
    cr_expect(!ct_tensor_item(sem_ctx, ct_cross_entropy(x, y, o), &loss));
    cr_expect_float_eq(loss, .7047031204148742, 1e-14);
    o.label_smoothing = 0.1;
    cr_expect(!ct_tensor_item(sem_ctx, ct_cross_entropy(x, y, o), &loss));
    cr_expect_float_eq(loss, .7387905593704922, 1e-14);
    o.weight = NULL;
    cr_expect(!ct_tensor_item(sem_ctx, ct_cross_entropy(x, y, o), &loss));
    cr_expect_float_eq(loss, .9027203671139115, 1e-14);
}

Test(losses, cross_entropy_of_ignored_samples_alone_has_mean_nan_sum_0_and_no_gradient)
{
    ct_tensor *none = ts_vec(sem_ctx, CT_I64, 4, (double[]){-100, -100, -100, -100});
    cross_entropy("all_ignored", none, NULL, 0, -100);
    ct_tensor_release(none);
}

Test(losses, cross_entropy_of_weight_0_alone_has_mean_nan)
{
    ct_tensor *only = ts_vec(sem_ctx, CT_I64, 4, (double[]){2, 2, 2, 2});
    ct_tensor *zero = ts_vec(sem_ctx, CT_F64, 3, (double[]){1, 1, 0});
    cross_entropy("zero_weight", only, zero, 0, -100);
    ct_tensor_release(only);
    ct_tensor_release(zero);
}

Test(losses, cross_entropy_takes_any_ignore_index_and_keeps_the_class_in_the_softmax)
{
    ct_tensor *y = ts_vec(sem_ctx, CT_I64, 4, (double[]){2, 0, 0, 1});
    cross_entropy("ignore_2", y, NULL, 0, 2);
    ct_tensor_release(y);
}

Test(losses, cross_entropy_of_probabilities_divides_by_the_number_of_samples)
{
    cross_entropy("probs", sem_leaf("ce/probs"), NULL, 0, -100);
    cross_entropy("probs_both", sem_leaf("ce/probs"), sem_leaf("ce/weight"), 0.1, -100);
}

Test(losses, cross_entropy_of_infinite_and_large_logits_is_pytorchs)
{
    static const struct {
        const char *name;
        double target[2], smoothing;
    } all[] = {{"ce_minus_inf", {2, 0}, 0},
               {"ce_minus_inf_smooth", {2, 0}, 0.1},
               {"ce_minus_inf_hit", {1, 0}, 0},
               {"ce_large", {1, 1}, 0}};
    for (int i = 0; i < TS_LEN(all); i++) {
        ct_cross_entropy_opts o = ct_cross_entropy_defaults();
        o.label_smoothing = all[i].smoothing;
        ct_tensor *x = sem_x(all[i].name), *y = ts_vec(sem_ctx, CT_I64, 2, all[i].target);
        sem_expect(all[i].name, x, ct_cross_entropy(x, y, o), NULL);
        ct_tensor_release(y);
    }
}

Test(losses, cross_entropy_tells_what_the_mean_divides_by)
{
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();
    ct_tensor *x = sem_x("ce_plain_sum"), *total = NULL;
    o.reduction = CT_REDUCE_SUM;
    o.total_weight = &total;
    cr_expect_not_null(ct_cross_entropy(x, sem_leaf("ce/target"), o));
    ts_expect_values("samples that count", sem_ctx, total, 1, (double[]){3}, TS_EXACT);
    o.weight = sem_leaf("ce/weight");
    cr_expect_not_null(ct_cross_entropy(x, sem_leaf("ce/target"), o));
    ts_expect_values("their weights", sem_ctx, total, 1, (double[]){3.5}, TS_EXACT);
    cr_expect_not_null(ct_cross_entropy(x, sem_leaf("ce/probs"), o));
    ts_expect_values("probabilities: samples", sem_ctx, total, 1, (double[]){4}, TS_EXACT);
}

Test(losses, cross_entropy_refuses_settings_out_of_range)
{
    ct_tensor *x = sem_x("ce_plain_mean"), *y = sem_leaf("ce/target");
    ct_cross_entropy_opts o = ct_cross_entropy_defaults();
    static const double bad[] = {-0.1, 1.5, NAN};
    for (int i = 0; i < TS_LEN(bad); i++) {
        o.label_smoothing = bad[i];
        cr_expect_null(ct_cross_entropy(x, y, o));
        ts_expect_error(sem_ctx, CT_EINVAL, "cross_entropy", "label_smoothing", NULL);
    }
    o.label_smoothing = 0;
    o.weight = y;
    cr_expect_null(ct_cross_entropy(x, y, o));
    cr_expect_lt(ct_error_code(sem_ctx), 0);
    ct_error_clear(sem_ctx);
}

/* ---- batch norm ---- */

Test(norms, batch_norm_normalises_with_the_biased_and_keeps_the_unbiased_variance)
{
    static const struct {
        const char *name;
        double momentum;
    } all[] = {{"0.1", 0.1}, {"0.25", 0.25}};
    for (int i = 0; i < TS_LEN(all); i++) {
        ct_tensor *mean = ts_vec(sem_ctx, CT_F64, 3, (double[]){.1, .2, .3});
        ct_tensor *var = ts_vec(sem_ctx, CT_F64, 3, (double[]){1, 2, 3});
        ct_batch_norm_opts o = ct_batch_norm_defaults(true);
        o.momentum = all[i].momentum;
        for (int step = 0; step < 3; step++) {
            uint64_t version = ct_tensor_version(mean);
            ct_tensor *y = ct_batch_norm(ct_affine(sem_leaf("bn/x"), 1, step),
                                         sem_leaf("bn/weight"), sem_leaf("bn/bias"), mean, var, o);
            cr_expect_gt(ct_tensor_version(mean), version);
            ct_tensor *got[] = {y, mean, var};
            static const char *const what[] = {"y", "mean", "var"};
            for (int k = 0; k < 3; k++) {
                ts_array a = ts_values(sem_ctx, got[k]);
                ts_expect_close(
                    what[k], &a,
                    ts_golden_must_get(sem_golden, "bn_%s_%d/%s", all[i].name, step, what[k]),
                    (ts_tol){1e-11, 1e-13});
                ts_array_free(&a);
            }
        }
        ct_tensor_release(mean);
        ct_tensor_release(var);
    }
}

Test(norms, batch_norm_in_evaluation_uses_running_statistics_and_leaves_them)
{
    ct_tensor *mean = ts_vec(sem_ctx, CT_F64, 3, (double[]){.1, .2, .3});
    ct_tensor *var = ts_vec(sem_ctx, CT_F64, 3, (double[]){1, 2, 3});
    ct_tensor *x = sem_x("bn_eval");
    uint64_t version = ct_tensor_version(mean);
    sem_expect("bn_eval", x,
               ct_batch_norm(x, sem_leaf("bn/weight"), sem_leaf("bn/bias"), mean, var,
                             ct_batch_norm_defaults(false)),
               sem_cosines(x));
    ts_expect_values("mean", sem_ctx, mean, 3, (double[]){.1, .2, .3}, TS_EXACT);
    ts_expect_values("var", sem_ctx, var, 3, (double[]){1, 2, 3}, TS_EXACT);
    cr_expect_eq(ct_tensor_version(mean), version);
    ct_tensor_release(mean);
    ct_tensor_release(var);
}

Test(norms, batch_norm_without_running_statistics_uses_the_batch_in_both_modes)
{
    for (int training = 0; training < 2; training++) {
        ct_tensor *x = sem_x("bn_untracked");
        sem_expect("bn_untracked", x,
                   ct_batch_norm(x, sem_leaf("bn/weight"), sem_leaf("bn/bias"), NULL, NULL,
                                 ct_batch_norm_defaults(training)),
                   sem_cosines(x));
    }
}

Test(norms, batch_norm_of_one_value_per_channel_is_refused_in_training_and_of_one_image_fine)
{
    ct_tensor *x = sem_x("bn_one_image"), *flat = sem_x("bn_constant");
    sem_expect("bn_one_image", x,
               ct_batch_norm(x, sem_leaf("bn/weight"), sem_leaf("bn/bias"), NULL, NULL,
                             ct_batch_norm_defaults(true)),
               NULL);
    sem_expect("bn_constant", flat,
               ct_batch_norm(flat, NULL, NULL, NULL, NULL, ct_batch_norm_defaults(true)), NULL);
    ct_tensor *one = ct_tensor_new(sem_ctx, CT_F64, 2, (int64_t[]){1, 2});
    cr_expect_null(ct_batch_norm(one, NULL, NULL, NULL, NULL, ct_batch_norm_defaults(true)));
    cr_expect_lt(ct_error_code(sem_ctx), 0);
    ts_expect_error(sem_ctx, ct_error_code(sem_ctx), "batch_norm", "[1,2]", NULL);
    ct_tensor_release(one);
}
