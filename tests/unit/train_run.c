/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs in one process, on the built-in digits and on IDX files made here. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkdtemp */
#endif
#include "train/trainer.h"

#include "train_fixture.h"

#include <math.h>
#include <unistd.h>

TestSuite(train_run, .init = enter_folder, .fini = leave_folder, .timeout = 120);

static char told[32768];
static int stop_after; /* should_stop says true at the n-th question; 0: never */

static void hear(ct_log_level level, const char *text, void *user)
{
    size_t n = strlen(told);

    snprintf(told + n, sizeof told - n, "%s\n", text);
}

static bool should_stop(void *user)
{
    return stop_after > 0 && --stop_after == 0;
}

#define MAX_SET 24

/* A small net on the digits, in FOLDER/DIR, two epochs; `more` ends with NULL. */
static int run_it(const char *dir, const char *const *more, ct_run_opts opts, ct_run_result *out,
                  ct_error *err)
{
    static const ct_model_def *const no_models[] = {NULL};
    char where[600];
    const char *set[MAX_SET] = {
        where,
        "run.threads=1",
        "data.batch_size=64",
        "model.name=layers",
        "model.layers=flatten linear(16) batchnorm1d relu dropout(0.1) linear(10)",
        "optimizer.lr=0.01",
        "train.epochs=2",
    };
    ct_config *config;
    int n = 7, r;

    told[0] = '\0';
    snprintf(where, sizeof where, "run.dir=%s", in_folder(dir));
    for (int i = 0; more && more[i]; i++)
        set[n++] = more[i];
    *err = (ct_error){0};
    config = ct_config_load(NULL, set, n, no_models, err);
    cr_assert_not_null(config, "%s", err->text);
    opts.models = no_models;
    opts.on_line = hear;
    opts.should_stop = should_stop;
    r = ct_run(config, opts, out, err);
    ct_config_free(config);
    return r;
}

static void run_well(const char *dir, const char *const *more, ct_run_opts opts, ct_run_result *out)
{
    ct_error err = {0};

    cr_assert_eq(run_it(dir, more, opts, out, &err), CT_OK, "%s", err.text);
}

static void run_badly(const char *dir, const char *const *more, ct_run_opts opts, int code,
                      const char *part)
{
    ct_run_result out;
    ct_error err = {0};

    cr_assert_eq(run_it(dir, more, opts, &out, &err), code, "%s", err.text);
    assert_has(err.text, part);
}

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *p = get_file(in_folder(a), &n), *q = get_file(in_folder(b), &m);

    cr_assert(n == m && memcmp(p, q, n) == 0, "%s and %s differ", a, b);
    free(p);
    free(q);
}

/* All but the numbers that end in _ms. */
static char *without_times(const char *path)
{
    char *text = get_file(in_folder(path), NULL), *at;

    while ((at = strstr(text, "_ms\":")) != NULL) {
        size_t n = strcspn(at, ",}");
        memmove(at, at + n, strlen(at + n) + 1);
    }
    return text;
}

static void expect_same_run(const char *a, const char *b, int last_step)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    char x[200], y[200], *p, *q;

    for (int i = 0; i < 2; i++) {
        snprintf(x, sizeof x, "%s/checkpoints/step-%08d/%s", a, last_step, files[i]);
        snprintf(y, sizeof y, "%s/checkpoints/step-%08d/%s", b, last_step, files[i]);
        expect_same_file(x, y);
    }
    snprintf(x, sizeof x, "%s/metrics.jsonl", a);
    snprintf(y, sizeof y, "%s/metrics.jsonl", b);
    p = without_times(x);
    q = without_times(y);
    cr_assert_str_eq(p, q);
    free(p);
    free(q);
}

/* ---- runs ---- */

Test(train_run, a_run_trains_and_leaves_its_files)
{
    static const char *const names[] = {"config.ini",
                                        "env.json",
                                        "log.txt",
                                        "metrics.jsonl",
                                        "checkpoints/last",
                                        "checkpoints/best",
                                        "checkpoints/step-00000046/MANIFEST"};
    ct_run_result out;
    ct_eval_result scores;
    ct_error err = {0};
    char path[200];

    run_well("a", NULL, ct_run_defaults(), &out);
    cr_assert_eq(out.step, 46);
    cr_assert_eq(out.epoch, 2);
    cr_assert(out.val_acc > 0.8 && out.val_loss < 1, "%g", out.val_acc);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "a/%s", names[i]);
        cr_assert(cti_path_exists(in_folder(path)), "%s", path);
    }
    assert_has(told, "done: validation loss");
    cr_assert_eq(ct_eval(in_folder("a"), NULL, 0, ct_run_defaults(), &scores, &err), CT_OK, "%s",
                 err.text);
    cr_assert(scores.loss == out.val_loss && scores.accuracy == out.val_acc);
    cr_assert_eq(scores.samples, 359);
}

Test(train_run, stopped_at_any_step_and_resumed_it_ends_with_the_same_bytes)
{
    const char *const *set = SET("log.every=10", "checkpoint.every=7", "train.accumulate=2");
    ct_run_opts resume = ct_run_defaults();
    ct_run_result out;
    int when[] = {1, 6, 7, 11, 12, 13, 18, 23};

    resume.resume = true;
    run_well("whole", set, ct_run_defaults(), &out);
    cr_assert_eq(out.step, 24);
    for (size_t i = 0; i < sizeof when / sizeof when[0]; i++) {
        char dir[32];

        snprintf(dir, sizeof dir, "k%d", when[i]);
        stop_after = when[i];
        run_badly(dir, set, ct_run_defaults(), CT_EINTERRUPTED, "go on with --resume");
        stop_after = 0;
        run_well(dir, set, resume, &out);
        cr_assert_not(out.already_done);
        expect_same_run("whole", dir, 24);
    }
}

Test(train_run, a_finished_run_says_so_and_goes_on_when_told)
{
    ct_run_opts resume = ct_run_defaults();
    ct_run_result first, again;

    resume.resume = true;
    run_well("a", NULL, ct_run_defaults(), &first);
    run_well("a", NULL, resume, &again);
    cr_assert(again.already_done && again.step == 46 && again.val_acc == first.val_acc);
    cr_assert(again.best == first.best && again.best_step == first.best_step);
    assert_has(told, "--set train.epochs=4");
    run_well("whole", SET("train.epochs=3"), ct_run_defaults(), &first);
    run_well("a", SET("train.epochs=3"), resume, &again);
    cr_assert_eq(again.step, 69);
    assert_has(told, "[train] epochs: '2' -> '3'");
    expect_same_file("a/checkpoints/step-00000069/model.safetensors",
                     "whole/checkpoints/step-00000069/model.safetensors");
}

Test(train_run, keys_that_can_not_change_are_refused_all_at_once)
{
    ct_run_opts resume = ct_run_defaults();
    ct_run_result out;

    resume.resume = true;
    run_well("a", SET("train.epochs=1"), ct_run_defaults(), &out);
    run_badly("a", SET("run.seed=9", "data.batch_size=32"), resume, CT_ECONFIG,
              "[run] seed: '0' -> '9'");
    run_badly("a", SET("run.seed=9", "data.batch_size=32"), resume, CT_ECONFIG,
              "[data] batch_size");
    run_badly("a", NULL, ct_run_defaults(), CT_ECONFIG, "go on with it by --resume");
}

Test(train_run, nothing_to_resume)
{
    ct_run_opts resume = ct_run_defaults();
    ct_run_result out;

    resume.resume = true;
    run_well("new", SET("train.epochs=1"), resume, &out);
    assert_has(told, "starting from the beginning");
    resume.resume_from = "last";
    run_badly("other", NULL, resume, CT_EDATA, "nothing to resume");
    resume.resume_from = in_folder("nowhere");
    run_badly("other", NULL, resume, CT_EDATA, "nowhere");
    resume.resume_from = folder;
    run_badly("other", NULL, resume, CT_EDATA, "neither a run directory nor a checkpoint");
}

Test(train_run, a_directory_in_use_is_told)
{
    char path[600];
    int fd;

    cr_assert_eq(cti_dir_make(in_folder("a"), NULL), CT_OK);
    snprintf(path, sizeof path, "%s/.lock", in_folder("a"));
    cr_assert_eq(cti_lock_take(path, &fd, NULL), CT_OK);
    run_badly("a", NULL, ct_run_defaults(), CT_EBUSY, "is in use by another process");
    cti_lock_release(fd);
}

Test(train_run, damaged_checkpoints_are_passed_over)
{
    ct_run_opts resume = ct_run_defaults();
    ct_run_result out;

    resume.resume = true;
    run_well("whole", NULL, ct_run_defaults(), &out);
    run_well("a", NULL, ct_run_defaults(), &out);
    cr_assert_eq(truncate(in_folder("a/checkpoints/step-00000046/model.safetensors"), 1000), 0);
    run_well("a", NULL, resume, &out);
    assert_has(told, "model.safetensors has 1000 bytes");
    expect_same_run("whole", "a", 46);
}

Test(train_run, weights_of_another_model_are_refused)
{
    ct_run_result out;
    char init[700];

    run_well("a", SET("train.epochs=0"), ct_run_defaults(), &out);
    snprintf(init, sizeof init, "model.init=%s",
             in_folder("a/checkpoints/step-00000000/model.safetensors"));
    run_well("b", SET("train.epochs=0", "run.seed=5", init), ct_run_defaults(), &out);
    expect_same_file("a/checkpoints/step-00000000/model.safetensors",
                     "b/checkpoints/step-00000000/model.safetensors");
    run_badly("c", SET(init, "model.layers=flatten linear(10)"), ct_run_defaults(), CT_ECONFIG,
              "unexpected (7): 2.bias, ");
    cr_assert_not(cti_path_exists(in_folder("c")), "a config error leaves no directory");
}

/* ---- trouble ---- */

Test(train_run, a_full_disk_in_the_middle_is_loud_and_the_run_goes_on)
{
    ct_run_result out;
    ct_error err = {0};
    bool met = false;

    /* The writes of the start come first; then those of the first checkpoint, three tries. */
    for (int n = 1; n < 40 && !met; n++) {
        char dir[16];

        snprintf(dir, sizeof dir, "d%d", n);
        cti_file_fail_write_at(n);
        int r =
            run_it(dir, SET("train.epochs=1", "checkpoint.every=5"), ct_run_defaults(), &out, &err);
        cti_file_fail_write_at(0);
        if (r == CT_EIO)
            assert_has(err.text, "No space left");
        else
            met = r == CT_OK && strstr(told, "not saved (try 1 of 3)") != NULL;
    }
    cr_assert(met);
}

Test(train_run, a_place_that_can_not_be_written_is_told_at_the_start)
{
    put_file(in_folder("file"), "x", 1);
    run_badly("file/run", NULL, ct_run_defaults(), CT_EIO, "file");
}

Test(train_run, a_loss_that_explodes_stops_the_run_and_leaves_the_good_checkpoint)
{
    const char *const *set = SET("optimizer.name=sgd", "optimizer.lr=1e15",
                                 "model.layers=flatten linear(16) relu linear(10)");
    char *text;

    run_badly("a", set, ct_run_defaults(), CT_ENONFINITE, "became NaN or infinite");
    run_badly("a", set, ct_run_defaults(), CT_ENONFINITE, "Try a lower optimizer.lr");
    text = get_file(in_folder("a/metrics.jsonl"), NULL);
    assert_has(text, "\"status\":\"nonfinite\"");
    free(text);
}

Test(train_run, configs_that_do_not_fit_the_data_are_explained)
{
    ct_run_opts dry = ct_run_defaults();
    ct_run_result out;

    dry.dry_run = true;
    run_well("a", NULL, dry, &out);
    run_badly("a", SET("data.batch_size=5000"), dry, CT_ECONFIG, "larger than the dataset");
    run_badly("a", SET("data.batch_size=1437"), dry, CT_ECONFIG, "would have 1 sample");
    run_badly("a", SET("model.layers=flatten linear(7)"), dry, CT_ECONFIG,
              "'1' (Linear), gives float32 [2,7]");
    cr_assert_not(cti_path_exists(in_folder("a")));
}

Test(train_run, accumulated_windows_equal_one_big_batch)
{
    /* No batch norm, no dropout: 1438 = 22 x 64 + 30, windows of 4 x 16 with a short last one. */
    const char *layers = "model.layers=flatten linear(16) relu linear(10)",
               *f64 = "run.precision=fp64";
    ct_run_result big, small;

    run_well("a", SET(layers, f64), ct_run_defaults(), &big);
    run_well("b", SET(layers, f64, "data.batch_size=16", "train.accumulate=4"), ct_run_defaults(),
             &small);
    cr_assert_eq(big.step, small.step);
    cr_assert(fabs(big.val_loss - small.val_loss) < 1e-12, "%.17g %.17g", big.val_loss,
              small.val_loss);
}

/* ---- a steady step ---- */

static void take_steps(cti_trainer *t, int n)
{
    for (int i = 0; i < n; i++)
        cr_assert_eq(cti_step(t), CT_OK, "%s", t->err->text);
}

static void steady(const char *precision)
{
    static const ct_model_def *const no_models[] = {NULL};
    const char *const set[] = {
        precision,
        "data.batch_size=64",
        "model.name=layers",
        "run.threads=1",
        "train.accumulate=2",
        "optimizer.lr=0.01",
        "train.clip_norm=1",
        "model.layers=conv2d(4, 3) batchnorm2d relu maxpool2d(2) dropout(0.1) "
        "flatten linear(10)"};
    ct_run_opts opts = ct_run_defaults();
    ct_error err = {0};
    ct_config *config = ct_config_load(NULL, set, 8, no_models, &err);
    ct_counters before, after;
    cti_mem_stats own;
    cti_trainer t;

    cr_assert_not_null(config, "%s", err.text);
    opts.models = no_models;
    cr_assert_eq(cti_trainer_init(&t, config, &opts, &err), CT_OK);
    cr_assert_eq(cti_setup(&t, 0), CT_OK, "%s", err.text);
    cr_assert_eq(cti_make_stepper(&t), CT_OK, "%s", err.text);
    take_steps(&t, 30); /* over the end of an epoch, with its short batch */
    before = ct_ctx_counters(t.ctx);
    own = cti_mem_get_stats(t.mem);
    take_steps(&t, 30);
    after = ct_ctx_counters(t.ctx);
    cr_assert_eq(t.state.epoch, 5);
    cr_assert_eq(after.primitives, before.primitives);
    cr_assert_eq(after.live_nodes, 0);
    cr_assert_eq(after.live_tensors, before.live_tensors);
    if (!cti_under_asan()) /* there, nothing is cached */
        cr_assert_eq(after.allocs, before.allocs);
    cr_assert_eq(cti_mem_get_stats(t.mem).calls, own.calls);
    cti_trainer_clear(&t);
    ct_config_free(config);
}

Test(train_run, a_steady_step_allocates_nothing_makes_no_primitive_and_keeps_no_graph)
{
    steady("run.precision=fp32");
    steady("run.precision=bf16");
    steady("run.precision=fp16");
}

/* ---- low precision ---- */

Test(train_run, low_precision_learns_as_float32_does)
{
    ct_run_result full, low;
    char *lines;

    run_well("fp32", NULL, ct_run_defaults(), &full);
    run_well("bf16", SET("run.precision=bf16"), ct_run_defaults(), &low);
    cr_expect(fabs(low.val_loss - full.val_loss) < 0.02 && low.val_loss != full.val_loss, "%g, %g",
              low.val_loss, full.val_loss);
    cr_expect(fabs(low.val_acc - full.val_acc) < 0.02, "%g, %g", low.val_acc, full.val_acc);
    run_well("fp16", SET("run.precision=fp16", "log.every=1"), ct_run_defaults(), &low);
    cr_expect(fabs(low.val_acc - full.val_acc) < 0.03, "%g, %g", low.val_acc, full.val_acc);
    assert_has(told, "computes float16 in float32");
    lines = get_file(in_folder("fp16/metrics.jsonl"), NULL);
    assert_has(lines,
               "\"skipped\":1,\"loss_scale\":32768"); /* sums of 64 losses times 65536 overflow */
    free(lines);
}

Test(train_run, a_loss_scale_goes_on_where_it_was)
{
    const char *const *set = SET("run.precision=fp16", "log.every=1", "checkpoint.every=7");
    ct_run_opts resume = ct_run_defaults();
    ct_run_result out;
    int when[] = {1, 2, 9, 20};

    resume.resume = true;
    run_well("whole", set, ct_run_defaults(), &out);
    for (size_t i = 0; i < sizeof when / sizeof when[0]; i++) {
        char dir[32];

        snprintf(dir, sizeof dir, "k%d", when[i]);
        stop_after = when[i];
        run_badly(dir, set, ct_run_defaults(), CT_EINTERRUPTED, "go on with --resume");
        stop_after = 0;
        run_well(dir, set, resume, &out);
        expect_same_run("whole", dir, 46);
    }
}

Test(train_run, float16_that_overflows_at_any_scale_stops)
{
    static const ct_model_def *const no_models[] = {NULL};
    const char *const set[] = {"run.precision=fp16", "model.name=layers",
                               "model.layers=flatten linear(10)"};
    ct_run_opts opts = ct_run_defaults();
    ct_error err = {0};
    ct_config *config = ct_config_load(NULL, set, 3, no_models, &err);
    cti_trainer t;

    opts.models = no_models;
    cr_assert_eq(cti_trainer_init(&t, config, &opts, &err), CT_OK);
    cr_assert_eq(cti_setup(&t, 0), CT_OK, "%s", err.text);
    cr_assert_eq(cti_make_stepper(&t), CT_OK, "%s", err.text);
    take_steps(&t, 1);
    cr_assert_eq(cti_look(&t, NULL), CT_OK, "%s", err.text);
    cr_assert_eq(ct_optim_set_loss_scale(t.ctx, t.optim, 0.5, 0), CT_OK);
    cr_assert_eq(cti_look(&t, NULL), CT_ENONFINITE);
    assert_has(err.text, "step 1: float16 gradients overflow at any loss scale (it is 0.5 by now)");
    cti_trainer_clear(&t);
    ct_config_free(config);
}

/* ---- overfit-one-batch ---- */

static ct_run_opts overfit(void)
{
    ct_run_opts o = ct_run_defaults();

    o.overfit_one_batch = true;
    return o;
}

Test(train_run, overfit_passes_and_leaves_nothing)
{
    ct_run_result out;

    run_well("a", SET("loss.label_smoothing=0.1", "schedule.name=cosine"), overfit(), &out);
    assert_has(told,
               "dropout (1 layers), label smoothing (0.1), weight decay (0.01), schedule (cosine)");
    assert_has(told, "PASS after");
    cr_assert_not(cti_path_exists(in_folder("a")));
}

Test(train_run, overfit_names_the_cause)
{
    run_badly("a", SET("optimizer.lr=0"), overfit(), CT_ECHECK, "optimizer.lr is 0");
    run_badly("a", SET("optimizer.lr=1e-5"), overfit(), CT_ECHECK,
              "too slowly: raise optimizer.lr");
    run_badly("a",
              SET("optimizer.name=sgd", "optimizer.lr=1e5",
                  "model.layers=flatten linear(16) relu linear(10)"),
              overfit(), CT_ECHECK, "is too high");
}

/* IDX files of `n` images of 2x2: pixel p of image i is value(i, p). */
static void make_idx(const char *part, int n, int (*value)(int i, int p), int (*label)(int i))
{
    unsigned char images[16 + 4 * 64] = {0, 0, 8, 3, 0, 0, 0, (unsigned char)n,
                                         0, 0, 0, 2, 0, 0, 0, 2};
    unsigned char labels[8 + 64] = {0, 0, 8, 1, 0, 0, 0, (unsigned char)n};
    char name[64];

    for (int i = 0; i < n; i++) {
        for (int p = 0; p < 4; p++)
            images[16 + 4 * i + p] = (unsigned char)value(i, p);
        labels[8 + i] = (unsigned char)label(i);
    }
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    put_file(in_folder(name), images, 16 + 4 * (size_t)n);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    put_file(in_folder(name), labels, 8 + (size_t)n);
}

static int constant(int i, int p)
{
    return 60 + p;
}

static int index_label(int i)
{
    return i % 10;
}

Test(train_run, overfit_names_equal_inputs_with_different_labels)
{
    char path[300];

    make_idx("train", 20, constant, index_label);
    make_idx("t10k", 10, constant, index_label);
    snprintf(path, sizeof path, "data.path=%s", folder);
    run_badly(
        "a",
        SET("data.dataset=mnist", path, "data.batch_size=4", "model.layers=flatten linear(10)"),
        overfit(), CT_ECHECK, "equal inputs have different labels: ");
}

static int other(int i, int p)
{
    return 61 + p;
}

Test(train_run, a_refused_resume_leaves_the_config_of_the_run)
{
    ct_run_opts resume = ct_run_defaults();
    char path[300], *was, *is;
    ct_run_result out;

    make_idx("train", 20, constant, index_label);
    make_idx("t10k", 10, constant, index_label);
    snprintf(path, sizeof path, "data.path=%s", folder);
    const char *const *mnist =
        SET("data.dataset=mnist", path, "data.batch_size=4", "model.layers=flatten linear(10)");
    const char *const *changed = SET("data.dataset=mnist", path, "data.batch_size=4",
                                     "model.layers=flatten linear(10)", "train.epochs=9");
    run_well("a", mnist, ct_run_defaults(), &out);
    was = get_file(in_folder("a/config.ini"), NULL);
    make_idx("train", 20, other, index_label);
    resume.resume = true;
    run_badly("a", changed, resume, CT_ECONFIG, "is not what the run began with");
    is = get_file(in_folder("a/config.ini"), NULL);
    cr_assert_str_eq(is, was);
    free(was);
    free(is);
}

Test(train_run, keep_best_keeps_the_best_evaluations_also_where_no_checkpoint_is_due)
{
    double value[7] = {-1};
    ct_run_result out;
    char *text, path[80];

    run_well("a",
             SET("train.epochs=6", "checkpoint.every=0", "checkpoint.keep_best=3",
                 "checkpoint.keep_last=1", "optimizer.lr=0.05"),
             ct_run_defaults(), &out);
    text = get_file(in_folder("a/metrics.jsonl"), NULL);
    int n = 0;
    for (char *at = text; (at = strstr(at, "\"val_acc\":")) != NULL && n < 6; at++)
        value[++n] = strtod(at + 10, NULL);
    free(text);
    cr_assert_eq(n, 6);
    for (int i = 1; i <= 6; i++) {
        int before = 0;
        for (int k = 1; k <= 6; k++)
            before += value[k] > value[i] || (value[k] == value[i] && k < i);
        snprintf(path, sizeof path, "a/checkpoints/step-%08d", 23 * i);
        cr_assert_eq(cti_path_exists(in_folder(path)), before < 3 || i == 6, "epoch %d", i);
    }
}
