/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs on CUDA against whole runs on the CPU, and against themselves. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkdtemp */
#endif
#include "base/mem.h"
#include "train/trainer.h"

#include "../../models/models.h"
#include "../unit/train_fixture.h"
#include "device.h"

#include <inttypes.h>
#include <math.h>

TestSuite(cuda_run, .init = enter_folder, .fini = leave_folder, .timeout = 600);

static const ct_model_def *const zoo[] = {&model_mlp, &model_lenet, &model_convnet, NULL};
static char told[32768];

static void hear(ct_log_level level, const char *text, void *user)
{
    size_t n = strlen(told);

    snprintf(told + n, sizeof told - n, "%s\n", text);
}

enum { MAX_SET = 24 };

/* Runs FILE (NULL: none) in FOLDER/DIR with the settings up to a NULL. */
static int try_run(const char *file, const char *dir, const char *resume_from,
                   const char *const *more, ct_error *err)
{
    char where[600], path[700];
    const char *set[MAX_SET] = {where, "run.threads=1", "log.every=1"};
    ct_run_opts opts = ct_run_defaults();
    ct_run_result out;
    ct_config *config;
    int n = 3, r;

    told[0] = '\0';
    snprintf(where, sizeof where, "run.dir=%s", in_folder(dir));
    for (int i = 0; more[i]; i++)
        set[n++] = more[i];
    snprintf(path, sizeof path, "%s/%s", CT_CONFIG_DIR, file ? file : "");
    *err = (ct_error){0};
    config = ct_config_load(file ? path : NULL, set, n, zoo, err);
    cr_assert_not_null(config, "%s", err->text);
    opts.models = zoo;
    opts.on_line = hear;
    opts.resume = resume_from != NULL;
    opts.resume_from = resume_from ? in_folder(resume_from) : NULL;
    r = ct_run(config, opts, &out, err);
    ct_config_free(config);
    return r;
}

static void run(const char *file, const char *dir, const char *resume_from, const char *const *more)
{
    ct_error err;

    cr_assert_eq(try_run(file, dir, resume_from, more, &err), CT_OK, "%s: %s", dir, err.text);
}
#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

static void remove_run(const char *dir)
{
    cr_assert_eq(cti_dir_remove(in_folder(dir), NULL), CT_OK);
}

/* ---- the lines of metrics.jsonl ---- */

enum { MAX_LINES = 200 };

/* The values of a key in the lines of an event. */
static int series(const char *dir, const char *event, const char *key, double *out)
{
    char path[300], find[64], in[64], *text, *line;
    int n = 0;

    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    snprintf(find, sizeof find, "\"%s\":", key);
    snprintf(in, sizeof in, "\"event\":\"%s\"", event);
    text = get_file(in_folder(path), NULL);
    for (line = strtok(text, "\n"); line && n < MAX_LINES; line = strtok(NULL, "\n")) {
        const char *at = strstr(line, find);
        if (strstr(line, in) && at)
            out[n++] = atof(at + strlen(find));
    }
    free(text);
    return n;
}

static void expect_near(const char *a, const char *b, const char *key, double rtol, int want)
{
    double p[MAX_LINES], q[MAX_LINES];
    int n = series(a, "step", key, p), m = series(b, "step", key, q);

    cr_assert(n == m && n >= want, "%s: %d and %d lines", key, n, m);
    for (int i = 0; i < n; i++)
        cr_assert(fabs(p[i] - q[i]) <= rtol * (fabs(p[i]) + 1e-3), "%s of step %d: %.9g and %.9g",
                  key, i + 1, p[i], q[i]);
}

static void expect_same_bytes(const char *a, const char *b, int step)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};

    for (int i = 0; i < 2; i++) {
        char x[300], y[300], *p, *q;
        size_t n, m;

        snprintf(x, sizeof x, "%s/checkpoints/step-%08d/%s", a, step, files[i]);
        snprintf(y, sizeof y, "%s/checkpoints/step-%08d/%s", b, step, files[i]);
        p = get_file(in_folder(x), &n);
        q = get_file(in_folder(y), &m);
        cr_assert(n == m && memcmp(p, q, n) == 0, "%s and %s differ", x, y);
        free(p);
        free(q);
    }
}

/* ---- the shipped configs ---- */

static void follow(const char *config, const char *const *more)
{
    const char *on_cpu[MAX_SET] = {"train.steps=20", "run.device=cpu"};
    const char *on_cuda[MAX_SET] = {"train.steps=20", "run.device=cuda"};

    for (int i = 0; more[i]; i++)
        on_cpu[2 + i] = on_cuda[2 + i] = more[i];
    run(config, "cpu", NULL, on_cpu);
    run(config, "cuda", NULL, on_cuda);
    assert_has(told, "cuda:0");
    expect_near("cpu", "cuda", "loss", 1e-3, 20);
    expect_near("cpu", "cuda", "grad_norm", 1e-2, 20);
    expect_near("cpu", "cuda", "lr", 0, 20);
}

static void in_precision(const char *precision)
{
    run("digits.ini", "cpu", NULL,
        SET("train.steps=20", "run.device=cpu", "model.channels=8, 16", precision));
    run("digits.ini", "cuda", NULL,
        SET("train.steps=20", "run.device=cuda", "model.channels=8, 16", precision));
}

Test(cuda_run, bfloat16_follows_the_cpu)
{
    in_precision("run.precision=bf16");
    expect_near("cpu", "cuda", "loss", 1.6e-2, 20);
}

/* CUDA's weight gradients are float16 for a moment, the CPU's never: the scale has to fall further here. */
Test(cuda_run, float16_finds_its_loss_scale_and_learns)
{
    double loss[MAX_LINES], scale[MAX_LINES], cpu[MAX_LINES];

    in_precision("run.precision=fp16");
    cr_assert_eq(series("cuda", "step", "loss", loss), 20);
    cr_assert_eq(series("cuda", "step", "loss_scale", scale), 20);
    cr_assert_eq(series("cpu", "step", "loss", cpu), 20);
    cr_expect(scale[0] == 32768 && scale[19] < 32768 && scale[19] == scale[10] && scale[19] >= 64,
              "%g, %g, %g", scale[0], scale[10], scale[19]);
    cr_expect(fabs(loss[19] - cpu[19]) < 0.15 * cpu[19], "%g, %g", loss[19], cpu[19]);
}

Test(cuda_run, digits_layers_follows_the_cpu)
{
    follow("digits-layers.ini", SET("data.batch_size=32"));
}

Test(cuda_run, digits_mlp_follows_the_cpu)
{
    follow("digits-mlp.ini", SET("schedule.warmup_steps=5"));
}

/* Random images in MNIST's format. */
static void put_idx(const char *name, int count, bool images)
{
    size_t n = images ? 16 + (size_t)count * 784 : 8 + (size_t)count;
    unsigned char *p = calloc(1, n);
    unsigned seed = 5;

    p[2] = 8;
    p[3] = images ? 3 : 1;
    p[6] = (unsigned char)(count >> 8);
    p[7] = (unsigned char)count;
    if (images)
        p[11] = p[15] = 28;
    for (size_t i = images ? 16 : 8; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (unsigned char)(images ? seed >> 24 : (seed >> 24) % 10);
    }
    put_file(in_folder(name), p, n);
    free(p);
}

Test(cuda_run, mnist_lenet_follows_the_cpu)
{
    char path[400];

    put_idx("train-images-idx3-ubyte", 96, true);
    put_idx("train-labels-idx1-ubyte", 96, false);
    put_idx("t10k-images-idx3-ubyte", 20, true);
    put_idx("t10k-labels-idx1-ubyte", 20, false);
    snprintf(path, sizeof path, "data.path=%s", folder);
    follow("mnist-lenet.ini", SET(path, "data.batch_size=8"));
}

/* ---- captured and called ---- */

#define SMALL                                                                                   \
    "model.name=layers",                                                                        \
        "model.layers=conv2d(4, 3) batchnorm2d relu maxpool2d(2) flatten linear(16) relu "      \
        "dropout(0.1) linear(10)",                                                              \
        "data.batch_size=64", "optimizer.lr=0.003", "schedule.name=onecycle", "train.epochs=2", \
        "train.clip_norm=1", "run.device=cuda"

static void captured_is_called(const char *precision)
{
    double p[MAX_LINES], q[MAX_LINES];
    int n;

    /* Two epochs of 22 full batches and a short one, in windows of 3: each with an evaluation. */
    run(NULL, "captured", NULL, SET(SMALL, "train.accumulate=3", precision));
    run(NULL, "called", NULL, SET(SMALL, "train.accumulate=3", precision, "run.capture=false"));
    expect_same_bytes("captured", "called", 16);
    n = series("captured", "step", "loss", p);
    cr_assert_eq(n, 16);
    cr_assert_eq(series("called", "step", "loss", q), n);
    cr_assert_eq(memcmp(p, q, (size_t)n * sizeof *p), 0);
    n = series("captured", "eval", "val_loss", p);
    cr_assert_eq(series("called", "eval", "val_loss", q), n);
    cr_assert_eq(memcmp(p, q, (size_t)n * sizeof *p), 0);
}

Test(cuda_run, captured_steps_give_the_bytes_of_called_ones)
{
    captured_is_called("run.precision=fp32");
}

Test(cuda_run, captured_steps_in_low_precision_give_the_bytes_of_called_ones)
{
    captured_is_called("run.precision=bf16");
    remove_run("captured"), remove_run("called");
    captured_is_called("run.precision=fp16");
}

Test(cuda_run, pinned_batches_give_the_bytes_of_plain_ones)
{
    run(NULL, "pinned", NULL, SET(SMALL, "data.workers=2"));
    run(NULL, "plain", NULL, SET(SMALL, "data.pin_memory=false"));
    expect_same_bytes("pinned", "plain", 46);
}

/* ---- resume ---- */

Test(cuda_run, a_resumed_run_gives_the_bytes_of_a_whole_one)
{
    run(NULL, "whole", NULL, SET(SMALL, "checkpoint.every=7"));
    run(NULL, "parts", NULL,
        SET(SMALL, "checkpoint.every=7", "train.steps=9", "schedule.name=onecycle"));
    /* Another process' first step: nothing is captured yet. */
    run(NULL, "whole2", NULL, SET(SMALL, "checkpoint.every=7"));
    expect_same_bytes("whole", "whole2", 46);
}

Test(cuda_run, a_checkpoint_goes_on_on_the_other_device_and_back)
{
    run(NULL, "cpu", NULL,
        SET(SMALL, "run.device=cpu", "schedule.name=constant", "train.steps=30"));
    run(NULL, "both", NULL,
        SET(SMALL, "run.device=cpu", "schedule.name=constant", "train.steps=10"));
    run(NULL, "both", "both", SET(SMALL, "schedule.name=constant", "train.steps=20"));
    assert_has(told, "not byte-equal");
    run(NULL, "both", "both",
        SET(SMALL, "run.device=cpu", "schedule.name=constant", "train.steps=30"));
    expect_near("cpu", "both", "loss", 2e-3, 30);
}

/* ---- the device gives out ---- */

Test(cuda_run, out_of_memory_tells_the_batch_size_that_could_fit)
{
    ct_error err;

    setenv("CTD_MEM", "25165824", 1); /* 24 MiB; before the double is opened */
    double_symbol("ctd_fail");
    cr_assert_eq(
        try_run(NULL, "big", NULL,
                SET(SMALL, "model.layers=conv2d(32, 3) relu conv2d(64, 3) relu flatten linear(10)",
                    "data.batch_size=1024"),
                &err),
        CT_ENOMEM, "%s", err.text);
    assert_has(err.text, "step 1: ");
    assert_has(err.text, "out of memory on cuda: ");
    assert_has(err.text, "the largest: ");
    assert_has(err.text, "data.batch_size = ");
    assert_has(err.text, "(not 1024) is the most that could fit");
}

Test(cuda_run, a_lost_device_tells_the_last_good_checkpoint)
{
    ct_error err;
    char spec[64];
    long ops;

    ops = device_count("");
    run(NULL, "whole", NULL, SET(SMALL, "checkpoint.every=5", "train.steps=20"));
    ops = device_count("") - ops;
    snprintf(spec, sizeof spec, "sticky:%ld", ops * 4 / 5);
    device_fail(spec);
    cr_assert_eq(
        try_run(NULL, "lost", NULL, SET(SMALL, "checkpoint.every=5", "train.steps=20"), &err),
        CT_EDEVICE, "%s", err.text);
    assert_has(err.text, "cuda:0 failed: ");
    assert_has(err.text, "the last good state is saved in ");
    assert_has(err.text, "/checkpoints/step-000000");
    assert_has(err.text, "go on with --resume");
}

/* ---- the feed ---- */

static void read_batch(ct_tensor *x, ct_tensor *y, float *px, int64_t *py)
{
    ct_ctx *ctx = ct_tensor_ctx(x);

    OK(ctx, ct_tensor_read(ctx, x, px, (size_t)ct_tensor_numel(x) * sizeof *px));
    OK(ctx, ct_tensor_read(ctx, y, py, (size_t)ct_tensor_numel(y) * sizeof *py));
}

Test(cuda_run, the_loader_gives_the_batches_it_gives_the_cpu)
{
    static float px[2][64 * 64];
    static int64_t py[2][64];
    ct_ctx *ctx[2] = {device_ctx("cpu"), device_ctx("cuda")};
    ct_error err = {0};
    ct_dataset *ds = ct_digits_open(&err);
    cti_feed feed[2];
    ct_tensor *x, *y;
    int r[2] = {1, 1}, batches = 0;

    for (int k = 0; k < 2; k++) {
        ct_loader_opts o = ct_loader_defaults();
        o.batch_size = 64;
        o.workers = 2;
        o.seed = 3;
        cti_feed_init(&feed[k], ctx[k], ct_dataset_get_info(ds));
        cr_assert_not_null(cti_feed_loader(&feed[k], ds, o, true, &err), "%s", err.text);
        cr_assert_eq(feed[k].async, k == 1);
    }
    for (int epoch = 0; epoch < 3;) {
        int64_t count = 0;
        for (int k = 0; k < 2; k++) {
            ct_batch b;
            r[k] = ct_loader_next(feed[k].loader, &b, &err);
            cr_assert(r[k] >= 0, "%s", err.text);
            if (r[k] == 0)
                continue;
            count = b.count;
            OK(ctx[k], cti_feed_take(&feed[k], &b, &x, &y));
            /* Every third batch is not looked at: copies overtake each other if they can. */
            if (batches % 3 != 2)
                read_batch(x, y, px[k], py[k]);
        }
        cr_assert_eq(r[0], r[1]);
        epoch += r[0] == 0;
        batches++;
        cr_assert_eq(memcmp(px[0], px[1], (size_t)count * 64 * sizeof(float)), 0, "batch %d",
                     batches);
        cr_assert_eq(memcmp(py[0], py[1], (size_t)count * sizeof(int64_t)), 0, "batch %d", batches);
    }
    for (int k = 0; k < 2; k++) {
        cti_feed_clear(&feed[k]);
        ct_ctx_free(ctx[k]);
    }
    ct_dataset_free(ds);
}

/* ---- the steady state ---- */

static void expect_steady(const char *capture, const char *precision)
{
    const char *set[] = {SMALL,
                         "train.epochs=40",
                         capture,
                         precision,
                         "log.every=0",
                         "checkpoint.every=0",
                         "data.drop_last=true"};
    ct_run_opts opts = ct_run_defaults();
    ct_error err = {0};
    ct_config *config = ct_config_load(NULL, set, sizeof set / sizeof *set, zoo, &err);
    ct_counters before, after;
    cti_trainer t;

    cr_assert_not_null(config, "%s", err.text);
    opts.models = zoo;
    cr_assert_eq(cti_trainer_init(&t, config, &opts, &err), CT_OK);
    cr_assert_eq(cti_setup(&t, 1), CT_OK, "%s", err.text);
    cr_assert_eq(cti_make_stepper(&t), CT_OK, "%s", err.text);
    for (int i = 0; i < 30; i++)
        cr_assert_eq(cti_step(&t), CT_OK, "%s", err.text);
    before = ct_ctx_counters(t.ctx);
    for (int i = 0; i < 50; i++)
        cr_assert_eq(cti_step(&t), CT_OK, "%s", err.text);
    after = ct_ctx_counters(t.ctx);
    cr_expect_eq(after.allocs - before.allocs, 0, "%" PRIu64 " allocations in 50 steps",
                 after.allocs - before.allocs);
    cr_expect_eq(after.primitives - before.primitives, 0);
    /* Where the device keeps up with the host nothing ever waits for it. */
    if (getenv("CTD_SCHED") && strcmp(getenv("CTD_SCHED"), "now") == 0)
        cr_expect_eq(after.syncs - before.syncs, 0, "%" PRIu64 " syncs in 50 steps",
                     after.syncs - before.syncs);
    else /* else the host waits for the slab of the batch before the last, once a step */
        cr_expect(after.syncs - before.syncs <= 50, "%" PRIu64 " syncs in 50 steps",
                  after.syncs - before.syncs);
    cr_expect_str_empty(cti_captures_refused(&t.captures), "%s", cti_captures_refused(&t.captures));
    cti_trainer_clear(&t);
    ct_config_free(config);
}

Test(cuda_run, a_steady_step_allocates_nothing_and_waits_for_nothing)
{
    double_symbol("ctd_fail");
    if (cti_under_asan())
        cr_skip_test("nothing is cached under AddressSanitizer");
    expect_steady("run.capture=true", "run.precision=fp32");
    expect_steady("run.capture=false", "run.precision=fp32");
    expect_steady("run.capture=true", "run.precision=fp16");
    expect_steady("run.capture=false", "run.precision=bf16");
}
