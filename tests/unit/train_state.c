/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkdtemp, truncate */
#endif
#include "train/metrics.h"
#include "train/state.h"

#include "train_fixture.h"

#include <math.h>

static cti_mem *mem;

static void begin(void)
{
    enter_folder();
    mem = cti_mem_new(NULL);
}

static void end(void)
{
    cti_mem_free(mem, NULL, NULL);
    leave_folder();
}

TestSuite(train_state, .init = begin, .fini = end);
TestSuite(train_metrics, .init = begin, .fini = end);

/* ---- state ---- */

static cti_state example(void)
{
    cti_state s = {
        .schema = CTI_STATE_SCHEMA,
        .why = "due",
        .step = 1200,
        .applied = 1199,
        .skipped = 1,
        .samples = 76800,
        .epoch = 3,
        .batch = 17,
        .interval_loss = 1.0 / 3,
        .interval_weight = 0.1 + 0.2,
        .interval_samples = 128,
        .interval_steps = 2,
        .since_eval_loss = 5e-324,
        .since_eval_weight = 1e308,
        .eval_due = true,
        .monitor = "val_acc",
        .has_best = true,
        .best = 0.98765432109876543,
        .best_step = 1000,
        .train_loss = NAN,
        .val_loss = INFINITY,
        .val_acc = -0.0,
        .n_top = 2,
        .top = {{1000, 0.9}, {400, 0.1}},
        .seed = 9007199254740991,
        .threads = 2,
        .isa = "avx2",
        .fingerprint = 0xFEDCBA9876543210u,
        .total_steps = 4000,
        .config = "[run]\nname = \"\xc3\xa9\\ \"\n",
    };
    return s;
}

Test(train_state, everything_comes_back_bit_by_bit)
{
    cti_state s = example(), back;
    ct_error err = {0};
    size_t bytes;
    char *text = cti_state_print(mem, &s, &bytes);

    cr_assert_eq(cti_state_parse(mem, text, bytes, "state.json", &back, &err), CT_OK, "%s",
                 err.text);
    cr_assert_str_eq(back.config, s.config);
    cr_assert(isnan(back.train_loss));
    cti_free(mem, back.config);
    back.config = s.config;
    back.mem = s.mem;
    back.train_loss = s.train_loss;
    /* Member by member, since padding may differ: by writing it again. */
    size_t again;
    char *second = cti_state_print(mem, &back, &again);
    cr_assert(again == bytes && memcmp(text, second, bytes) == 0);
    cr_assert(back.interval_loss == s.interval_loss && back.interval_weight == s.interval_weight);
    cr_assert(back.since_eval_loss == s.since_eval_loss && back.best == s.best);
    cr_assert(back.fingerprint == s.fingerprint && back.seed == s.seed && back.eval_due);
}

Test(train_state, damage_is_an_error_that_names_the_place)
{
    cti_state s = example(), back;
    size_t bytes;
    char *text = cti_state_print(mem, &s, &bytes), *at;
    ct_error err = {0};

    for (size_t n = 0; n + 2 < bytes; n += 7) {
        err = (ct_error){0};
        cr_assert_eq(cti_state_parse(mem, text, n, "state.json", &back, &err), CT_EFORMAT, "at %zu",
                     n);
    }
    at = strstr(text, "\"batch\"");
    memcpy(at, "\"bitch\"", 7);
    err = (ct_error){0};
    cr_assert_eq(cti_state_parse(mem, text, bytes, "state.json", &back, &err), CT_EFORMAT);
    assert_has(err.text, "cursor.batch is missing");
}

Test(train_state, a_newer_schema_is_told)
{
    cti_state s = example(), back;
    ct_error err = {0};
    size_t bytes;
    char *text;

    s.schema = 99;
    text = cti_state_print(mem, &s, &bytes);
    cr_assert_eq(cti_state_parse(mem, text, bytes, "state.json", &back, &err), CT_EFORMAT);
    assert_has(err.text, "a newer ctrain wrote it");
}

static bool judged(cti_state *s, int64_t step, double value, bool larger, double delta)
{
    s->step = step;
    return cti_state_judge(s, value, larger, delta);
}

Test(train_state, best_is_finite_and_the_first_of_equals)
{
    cti_state s = {0};

    cr_assert_not(judged(&s, 1, NAN, true, 0));
    cr_assert_not(judged(&s, 2, INFINITY, true, 0));
    cr_assert(judged(&s, 3, 0.5, true, 0));
    cr_assert_not(judged(&s, 4, 0.5, true, 0));
    cr_assert(judged(&s, 5, 0.6, true, 0));
    cr_assert_not(judged(&s, 6, 0.1, true, 0));
    cr_assert_eq(s.best_step, 5);
    cr_assert_eq(s.n_top, 4);
    cr_assert(s.top[0].step == 5 && s.top[1].step == 3 && s.top[2].step == 4 && s.top[3].step == 6);
    s = (cti_state){0};
    cr_assert(judged(&s, 1, 2, false, 0));
    cr_assert(judged(&s, 2, 1, false, 0));
    cr_assert_not(judged(&s, 3, 1, false, 0));
    cr_assert_eq(s.best_step, 2);
}

Test(train_state, patience_counts_evaluations_without_enough_improvement)
{
    cti_state s = {0};

    judged(&s, 1, 0.50, true, 0.05);
    cr_assert_eq(s.evals_without, 0);
    cr_assert(judged(&s, 2, 0.53, true, 0.05), "it is the best all the same");
    cr_assert_eq(s.evals_without, 1);
    judged(&s, 3, 0.54, true, 0.05);
    cr_assert_eq(s.evals_without, 2);
    judged(&s, 4, 0.56, true, 0.05);
    cr_assert_eq(s.evals_without, 0);
    judged(&s, 5, NAN, true, 0.05);
    cr_assert_eq(s.evals_without, 1);
}

Test(train_state, the_list_of_the_best_is_bounded)
{
    cti_state s = {0};

    for (int i = 1; i <= 40; i++)
        judged(&s, i, i, true, 0);
    cr_assert_eq(s.n_top, CTI_TOP_MAX);
    cr_assert_eq(s.top[0].step, 40);
    cr_assert_eq(s.top[CTI_TOP_MAX - 1].step, 40 - CTI_TOP_MAX + 1);
}

Test(train_state, the_training_loss_of_an_evaluation_counts_each_step_once)
{
    cti_state s = {.train_loss = 7};

    cti_state_take_train_loss(&s);
    cr_assert(isnan(s.train_loss) && !signbit(s.train_loss));
    s.interval_loss = 6;
    s.interval_weight = 2;
    cti_state_end_interval(&s);
    s.interval_loss = 2; /* in the middle of the second one */
    s.interval_weight = 2;
    cti_state_take_train_loss(&s);
    cr_assert_float_eq(s.train_loss, 2, 1e-15);
    s.interval_loss = 12;
    s.interval_weight = 4;
    cti_state_end_interval(&s);
    cr_assert(s.interval_loss == 0 && s.interval_weight == 0);
    cti_state_take_train_loss(&s);
    cr_assert_float_eq(s.train_loss, 5, 1e-15);
}

Test(train_state, a_step_passed_over_spoils_the_training_loss_of_its_interval_alone)
{
    for (int when = 0; when < 2; when++) { /* before or after the evaluation in its middle */
        cti_state s = {.since_eval_loss = 6, .since_eval_weight = 2};

        s.interval_loss = when == 0 ? (double)NAN : 50;
        s.interval_weight = 2;
        cti_state_take_train_loss(&s);
        cr_assert_float_eq(s.train_loss, when == 0 ? 3 : 14, 1e-15);
        s.interval_loss = (double)NAN;
        s.interval_weight = 4;
        cti_state_end_interval(&s);
        s.interval_loss = 8;
        s.interval_weight = 2;
        cti_state_end_interval(&s);
        cti_state_take_train_loss(&s);
        cr_assert_float_eq(s.train_loss, 4, 1e-15);
    }
}

/* ---- metrics ---- */

#define START    "{\"event\":\"start\",\"seed\":1}\n"
#define STEP(n)  "{\"event\":\"step\",\"step\":" #n ",\"loss\":\"nan\"}\n"
#define EVAL(n)  "{\"event\":\"eval\",\"step\":" #n "}\n"
#define SAVED(n) "{\"event\":\"checkpoint\",\"step\":" #n "}\n"
#define END(n) \
    "{\"event\":\"end\",\"step\":" #n ",\"epoch\":2,\"status\":\"done\",\"val_loss\":0.5}\n"

static void expect_cut(const char *text, int64_t step, bool keep_eval, const char *want)
{
    const char *path = in_folder("metrics.jsonl");
    ct_error err = {0};
    char *got;

    put_file(path, text, strlen(text));
    cr_assert_eq(cti_metrics_cut(mem, path, step, keep_eval, &err), CT_OK, "%s", err.text);
    got = get_file(path, NULL);
    cr_assert_str_eq(got, want);
    free(got);
}

Test(train_metrics, a_cut_keeps_what_was_there_when_the_checkpoint_was_complete)
{
    expect_cut(START STEP(1) STEP(2) SAVED(2) EVAL(2) STEP(3) SAVED(3) END(3), 2, false,
               START STEP(1) STEP(2));
    expect_cut(START STEP(1) STEP(2) EVAL(2) SAVED(2) STEP(3), 2, true,
               START STEP(1) STEP(2) EVAL(2));
    expect_cut(START STEP(1) SAVED(1) EVAL(1) STEP(2), 2, false,
               START STEP(1) SAVED(1) EVAL(1) STEP(2));
    expect_cut(START STEP(1) END(1), 1, false, START STEP(1));
    expect_cut("", 5, false, "");
}

Test(train_metrics, a_line_cut_at_any_byte_is_dropped)
{
    char text[256];

    for (size_t n = 0; n < strlen(STEP(2)); n++) {
        snprintf(text, sizeof text, "%s%.*s", START STEP(1), (int)n, STEP(2));
        expect_cut(text, 2, true, START STEP(1));
    }
}

Test(train_metrics, a_line_that_is_no_event_is_an_error_and_stays)
{
    const char *path = in_folder("metrics.jsonl"), *text = START "nonsense\n" STEP(2);
    ct_error err = {0};
    char *got;

    put_file(path, text, strlen(text));
    cr_assert_eq(cti_metrics_cut(mem, path, 1, true, &err), CT_EFORMAT);
    assert_has(err.text, "metrics.jsonl:2:");
    got = get_file(path, NULL);
    cr_assert_str_eq(got, text);
    free(got);
    cr_assert_eq(cti_metrics_cut(mem, in_folder("none"), 1, true, NULL), CT_OK);
}

Test(train_metrics, lines_are_appended_whole_and_the_end_is_read_back)
{
    const char *path = in_folder("metrics.jsonl");
    ct_error err = {0};
    cti_metrics mt;
    cti_end last;
    char *text;
    cti_jw *w;

    cr_assert_eq(cti_metrics_open(&mt, mem, path, &err), CT_OK);
    w = cti_metrics_begin(&mt, "step");
    cti_jw_f64(w, "loss", NAN);
    cr_assert_eq(cti_metrics_end(&mt, &err), CT_OK);
    cti_metrics_last(mem, path, &last);
    cr_assert_not(last.there);
    w = cti_metrics_begin(&mt, "end");
    cti_jw_i64(w, "step", 12);
    cti_jw_i64(w, "epoch", 2);
    cti_jw_string(w, "status", "done");
    cti_jw_f64(w, "val_acc", 0.75);
    cr_assert_eq(cti_metrics_end(&mt, &err), CT_OK);
    cr_assert_eq(cti_metrics_sync(&mt, &err), CT_OK);
    cti_metrics_close(&mt);
    text = get_file(path, NULL);
    assert_has(text, "{\"event\":\"step\",\"loss\":\"nan\"}\n");
    free(text);
    cti_metrics_last(mem, path, &last);
    cr_assert(last.there && last.step == 12 && last.epoch == 2 && last.val_acc == 0.75);
    cr_assert(isnan(last.val_loss) && !last.has_best);
    cr_assert_str_eq(last.status, "done");
}
