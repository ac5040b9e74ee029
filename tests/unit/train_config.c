/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a config: values by type, where they come from, mistakes, and the text that gives the
 * same run. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkdtemp */
#endif
#include "train/config_internal.h"

#include "train_fixture.h"

#include <locale.h>
#include <math.h>
#include <unistd.h>

static ct_module *no_build(ct_ctx *ctx, const ct_model_spec *spec)
{
    return NULL;
}

static const ct_model_def net = {
    .name = "net",
    .doc = "a net",
    .keys = {{"hidden", "128, 64", "sizes"}, {"dropout", "0", "probability"}},
    .build = no_build,
};
static const ct_model_def tower = {
    .name = "tower", .doc = "another", .keys = {{"height", "3", ""}}, .build = no_build};
static const ct_model_def *const zoo[] = {&net, &tower, NULL};

TestSuite(train_config, .init = enter_folder, .fini = leave_folder);

static ct_config *parse(const char *text, const char *const *sets, int n, ct_error *err)
{
    *err = (ct_error){0};
    return cti_config_parse("/cfg/a.ini", text, strlen(text), sets, n, zoo, err);
}

static ct_config *good(const char *text)
{
    ct_error err;
    ct_config *c = parse(text, NULL, 0, &err);

    cr_assert_not_null(c, "%s", err.text);
    return c;
}

/* The text is refused with just these lines. */
static void refused(const char *text, const char *expected)
{
    ct_error err;

    cr_assert_null(parse(text, NULL, 0, &err));
    cr_assert_eq(err.code, CT_ECONFIG);
    cr_assert_str_eq(err.text, expected);
}

static void set_refused(const char *set, const char *expected)
{
    ct_error err;

    cr_assert_null(parse("[model]\nname = net\n", &set, 1, &err), "%s", set);
    cr_assert_eq(err.code, CT_ECONFIG);
    cr_assert(strstr(err.text, expected) != NULL, "'%s' is not in '%s'", expected, err.text);
}

/* ---- values ---- */

Test(train_config, whole_numbers)
{
    static const char *const bad[] = {"",     " ",     "1.5",  "x",    "1x",  "0x10",
                                      "1 2",  "1e400", "1e-1", "nan",  "inf", "9223372036854775808",
                                      "1e17", "--1",   "+",    "1,000"};
    static const struct {
        const char *s;
        int64_t v;
    } fine[] = {{"0", 0},
                {"-3", -3},
                {"+7", 7},
                {"007", 7},
                {"1e6", 1000000},
                {"2.0", 2},
                {"9223372036854775807", INT64_MAX}};
    int64_t v;

    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        cr_assert(cti_parse_i64(fine[i].s, &v), "%s", fine[i].s);
        cr_assert_eq(v, fine[i].v, "%s", fine[i].s);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(cti_parse_i64(bad[i], &v), "%s", bad[i]);
}

Test(train_config, numbers)
{
    static const char *const bad[] = {"",    ".",   "-",   "e5",      "1e",    "1..2",
                                      "1,5", "nan", "inf", "-inf",    "0x1p3", "1e999",
                                      "1 ",  " 1",  "1f",  "infinity"};
    double v;

    cr_assert(cti_parse_f64("1e-8", &v) && v == 1e-8);
    cr_assert(cti_parse_f64(".5", &v) && v == 0.5);
    cr_assert(cti_parse_f64("5.", &v) && v == 5);
    cr_assert(cti_parse_f64("-3E+2", &v) && v == -300);
    cr_assert(cti_parse_f64("0.1", &v) && v == 0.1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(cti_parse_f64(bad[i], &v), "%s", bad[i]);
}

Test(train_config, bools_and_intervals)
{
    static const char *const bad[] = {"",     "st",  "ep",  "3d", "1.5ep", "0.5",   "-1",
                                      "1 ep", "min", "1EP", "1h", "inf",   "nanmin"};
    cti_interval t;
    bool b;

    cr_assert(cti_parse_bool("true", &b) && b);
    cr_assert(cti_parse_bool("false", &b) && !b);
    cr_assert_not(cti_parse_bool("True", &b));
    cr_assert_not(cti_parse_bool("1", &b));
    cr_assert(cti_parse_interval("500st", &t) && t.unit == CTI_STEPS && t.value == 500);
    cr_assert(cti_parse_interval("2ep", &t) && t.unit == CTI_EPOCHS && t.value == 2);
    cr_assert(cti_parse_interval("0.5min", &t) && t.unit == CTI_MINUTES && t.value == 0.5);
    cr_assert(cti_parse_interval("10", &t) && t.unit == CTI_STEPS && t.value == 10);
    cr_assert(cti_parse_interval("1e3", &t) && t.unit == CTI_STEPS && t.value == 1000);
    cr_assert(cti_parse_interval("0", &t) && t.value == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(cti_parse_interval(bad[i], &t), "%s", bad[i]);
}

Test(train_config, any_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    double v;
    ct_config *c;

    for (size_t i = 0; i < sizeof names / sizeof *names && !setlocale(LC_ALL, names[i]); i++)
        ;
    cr_assert(cti_parse_f64("0.25", &v) && v == 0.25);
    cr_assert(cti_parse_f64("2.5e-3", &v) && v == 2.5e-3);
    cr_assert_not(cti_parse_f64("0,25", &v));
    c = good("[model]\nname = net\n[optimizer]\nlr = 0.125\n");
    cr_assert_eq(cti_config_f64(c, "optimizer", "lr"), 0.125);
    cr_assert(strstr(ct_config_text(c), "\nlr = 0.125\n") != NULL);
    ct_config_free(c);
    setlocale(LC_ALL, "C");
}

Test(train_config, devices_and_names)
{
    char longest[202];

    memset(longest, 'a', 201);
    longest[201] = '\0';
    cr_assert(cti_is_device("auto") && cti_is_device("cpu") && cti_is_device("cuda"));
    cr_assert(cti_is_device("cuda:0") && cti_is_device("cuda:12"));
    cr_assert_not(cti_is_device(""));
    cr_assert_not(cti_is_device("cuda:"));
    cr_assert_not(cti_is_device("cuda:x"));
    cr_assert_not(cti_is_device("cuda:0x"));
    cr_assert_not(cti_is_device("CPU"));
    cr_assert(cti_is_run_name("digits-2") && cti_is_run_name("a b") && cti_is_run_name("ä"));
    cr_assert_not(cti_is_run_name(""));
    cr_assert_not(cti_is_run_name("."));
    cr_assert_not(cti_is_run_name("../a"));
    cr_assert_not(cti_is_run_name("a\nb"));
    cr_assert_not(cti_is_run_name("a\033b"));
    cr_assert_not(cti_is_run_name(longest));
    cr_assert(cti_is_run_name(longest + 1));
}

/* ---- where values come from ---- */

Test(train_config, defaults_file_and_overrides)
{
    static const char text[] =
        "[model]\nname = net\nhidden = 7\n[optimizer]\nlr = 0.5\n[data.val]\n"
        "fraction = 0.3\n";
    const char *sets[] = {"optimizer.lr=0.25", "data.val.fraction = 0.1", "model.hidden=9",
                          "optimizer.lr=0.75"};
    char where[300];
    ct_error err;
    ct_config *c = good(text);

    cr_assert_str_eq(ct_config_get(c, "optimizer", "lr"), "0.5");
    cr_assert_str_eq(ct_config_get(c, "optimizer", "beta1"), "0.9");
    cr_assert_str_eq(ct_config_get(c, "model", "hidden"), "7");
    cr_assert_str_eq(ct_config_get(c, "model", "dropout"), "0");
    cr_assert_null(ct_config_get(c, "model", "height"));
    cr_assert_null(ct_config_get(c, "optimizer", "nothing"));
    cr_assert(cti_config_is_set(c, "optimizer", "lr"));
    cr_assert_not(cti_config_is_set(c, "optimizer", "beta1"));
    cr_assert_eq(cti_config_model(c), &net);
    cr_assert_str_eq(cti_config_path(c), "/cfg/a.ini");
    cti_config_where(c, "optimizer", "lr", where, sizeof where);
    cr_assert_str_eq(where, "/cfg/a.ini:5: [optimizer] lr");
    cti_config_where(c, "optimizer", "beta1", where, sizeof where);
    cr_assert_str_eq(where, "[optimizer] beta1 (default)");
    ct_config_free(c);

    c = parse(text, sets, 4, &err);
    cr_assert_not_null(c, "%s", err.text);
    cr_assert_eq(cti_config_f64(c, "optimizer", "lr"), 0.75); /* the last one */
    cr_assert_eq(cti_config_f64(c, "data.val", "fraction"), 0.1);
    cr_assert_str_eq(ct_config_get(c, "model", "hidden"), "9");
    cti_config_where(c, "optimizer", "lr", where, sizeof where);
    cr_assert_str_eq(where, "--set optimizer.lr");
    ct_config_free(c);
}

Test(train_config, typed_reading)
{
    ct_config *c = good("[model]\nname = net\n[train]\nsteps = 1e3\n[checkpoint]\nevery = 2ep\n"
                        "[data]\nshuffle = false\n");

    cr_assert_eq(cti_config_i64(c, "train", "steps"), 1000);
    cr_assert_not(cti_config_bool(c, "data", "shuffle"));
    cr_assert_eq(cti_config_interval(c, "checkpoint", "every").unit, CTI_EPOCHS);
    cr_assert_eq(cti_config_interval(c, "checkpoint", "every").value, 2);
    cr_assert(
        isnan(cti_config_f64(c, "optimizer", "weight_decay"))); /* empty: the optimizer's own */
    ct_config_free(c);
}

Test(train_config, an_override_chooses_the_model)
{
    const char *sets[] = {"model.name = tower", "model.height=5"};
    ct_error err;
    ct_config *c = parse("[model]\nname = net\n", sets, 2, &err);

    cr_assert_not_null(c, "%s", err.text);
    cr_assert_eq(cti_config_model(c), &tower);
    cr_assert_str_eq(ct_config_get(c, "model", "height"), "5");
    ct_config_free(c);
    c = cti_config_parse(NULL, NULL, 0, sets, 2, zoo, &err);
    cr_assert_not_null(c, "%s", err.text);
    ct_config_free(c);
}

Test(train_config, paths)
{
    char expected[700], cwd[4096];
    const char *set = "data.path=there";
    ct_error err = {0};
    ct_config *c =
        good("[model]\nname = net\ninit = w.safetensors\n[data]\npath = ../d\n[run]\ndir = /x\n");

    cr_assert_str_eq(ct_config_get(c, "model", "init"), "/cfg/w.safetensors");
    cr_assert_str_eq(ct_config_get(c, "data", "path"), "/cfg/../d");
    cr_assert_str_eq(ct_config_get(c, "run", "dir"), "/x");
    cr_assert_str_eq(ct_config_get(c, "data.val", "path"), "");
    ct_config_free(c);

    c = parse("[model]\nname = net\n[data]\npath = here\n", &set, 1, &err);
    cr_assert_not_null(c, "%s", err.text);
    cr_assert_not_null(getcwd(cwd, sizeof cwd));
    snprintf(expected, sizeof expected, "%.600s/there", cwd);
    cr_assert_str_eq(ct_config_get(c, "data", "path"), expected);
    ct_config_free(c);

    /* A file named without a folder stands in the current one. */
    cr_assert_eq(chdir(folder), 0);
    put_file("b.ini", "[model]\nname = net\ninit = w\n", 27);
    c = ct_config_load("b.ini", NULL, 0, zoo, &err);
    cr_assert_not_null(c, "%s", err.text);
    cr_assert_not_null(getcwd(cwd, sizeof cwd));
    snprintf(expected, sizeof expected, "%.600s/w", cwd);
    cr_assert_str_eq(ct_config_get(c, "model", "init"), expected);
    ct_config_free(c);
    cr_assert_eq(chdir("/"), 0);
}

/* ---- the resolved text ---- */

static void count_differences(const char *section, const char *key, const char *a, const char *b,
                              cti_resume_class cls, void *user)
{
    int *n = user;

    n[cls]++;
}

static void check_fixpoint(const char *text, const char *const *sets, int n)
{
    int differ[3] = {0};
    ct_error err = {0};
    ct_config *c = parse(text, sets, n, &err), *again;
    const char *out;

    cr_assert_not_null(c, "%s", err.text);
    out = ct_config_text(c);
    cr_assert_not_null(out);
    again = cti_config_parse("/other/place/config.ini", out, strlen(out), NULL, 0, zoo, &err);
    cr_assert_not_null(again, "%s\n%s", out, err.text);
    cti_config_diff(c, again, count_differences, differ);
    cr_assert_eq(differ[0] + differ[1] + differ[2], 0);
    cr_assert_str_eq(ct_config_text(again), ct_config_text(c));
    ct_config_free(again);
    ct_config_free(c);
}

Test(train_config, text_reads_back_to_itself)
{
    static const char *const sets[] = {"run.name=a ; b", "data.path= x # y\t", "model.hidden=\"9\"",
                                       "model.init=\xff\x01\n[run]\nseed = 3", "run.dir=/a\\b"};

    check_fixpoint("[model]\nname = net\n", NULL, 0);
    check_fixpoint("[model]\nname = net\nhidden = 1\n[run]\nname = \" x \"\n[data]\npath = a b/c\n",
                   NULL, 0);
    check_fixpoint("[model]\nname = net\n", sets, 5);
    check_fixpoint(
        "[model]\nname = layers\nlayers =\n  conv2d(16, 3) ; first\n\n  relu\n  \"a = b\"\n", NULL,
        0);
    check_fixpoint("[model]\nname = layers\nlayers = flatten\n    linear(10)\n", NULL, 0);
}

Test(train_config, text_has_every_key)
{
    ct_config *c = good("[model]\nname = net\n");
    const char *text = ct_config_text(c);
    ct_config_key key;
    char line[100];
    int i = 0;

    for (; ct_config_key_at(i, &key); i++) {
        snprintf(line, sizeof line, "\n%s = ", key.name);
        cr_assert(strstr(text, line) != NULL, "%s", key.name);
        snprintf(line, sizeof line, "[%s]\n", key.section);
        cr_assert(strstr(text, line) != NULL, "%s", key.section);
    }
    cr_assert_eq(i, cti_n_keys);
    cr_assert_not(ct_config_key_at(-1, &key));
    cr_assert(strstr(text, "\nhidden = 128, 64\n") != NULL);
    ct_config_free(c);
}

Test(train_config, layers_keep_their_lines)
{
    static const char layers[] = "conv2d(16, 3, padding=1) batchnorm2d relu\nflatten\nlinear(10)";
    char text[300];
    ct_config *c, *again;
    const char *out;
    ct_error err = {0};

    snprintf(text, sizeof text, "[model]\nname = layers\nlayers =\n    %s",
             "conv2d(16, 3, padding=1) batchnorm2d relu\n    flatten\n\n  ; so\n    linear(10)\n");
    c = good(text);
    cr_assert_null(cti_config_model(c));
    cr_assert_str_eq(ct_config_get(c, "model", "layers"), layers);
    out = ct_config_text(c);
    again = parse(out, NULL, 0, &err);
    cr_assert_not_null(again, "%s", err.text);
    cr_assert_str_eq(ct_config_get(again, "model", "layers"), layers);
    ct_config_free(again);
    ct_config_free(c);
}

Test(train_config, differences_by_class)
{
    int n[3] = {0};
    ct_config *a = good("[model]\nname = net\n");
    ct_config *b =
        good("[model]\nname = net\nhidden = 5\n[log]\nevery = 3\n[optimizer]\nlr = 1\nbeta1 = "
             "0.8\n[run]\nseed = 4\n");
    ct_config *t = good("[model]\nname = tower\n");

    cti_config_diff(a, a, count_differences, n);
    cr_assert(n[0] == 0 && n[1] == 0 && n[2] == 0);
    cti_config_diff(a, b, count_differences, n);
    cr_assert_eq(n[CTI_RESUME_FREE], 1);
    cr_assert_eq(n[CTI_RESUME_CHANGES], 2);
    cr_assert_eq(n[CTI_RESUME_REFUSED], 2);
    memset(n, 0, sizeof n);
    cti_config_diff(a, t, count_differences, n);
    cr_assert_eq(n[CTI_RESUME_REFUSED], 1);
    ct_config_free(a);
    ct_config_free(b);
    ct_config_free(t);
}

/* ---- the table ---- */

Test(train_config, table_is_sound)
{
    for (int i = 0; i < cti_n_keys; i++) {
        const cti_key *k = &cti_keys[i];
        cr_assert_eq(cti_key_find(k->section, k->name), k, "%s.%s is there twice", k->section,
                     k->name);
        /* A section's keys stand together. */
        for (int j = 0; j + 1 < i; j++)
            cr_assert(strcmp(cti_keys[j].section, k->section) != 0 ||
                          strcmp(cti_keys[i - 1].section, k->section) == 0,
                      "[%s]", k->section);
        cr_assert_not_null(k->allowed);
        cr_assert_not_null(k->doc);
    }
    ct_config_free(good("[model]\nname = net\n")); /* all defaults are values */
}

/* ---- mistakes ---- */

Test(train_config, all_mistakes_in_the_files_order)
{
    refused(
        "x = 1\n[modell]\nname = net\nhidden = 4\n[optimizer]\nlr = fast\nnam = sgd\nlr = 2\n[train]\n"
        "nonfinite = halt\n[model]\nname = nett\nhidden = 1\n",
        "/cfg/a.ini:1:1: the key stands before the first [section]\n"
        "/cfg/a.ini:2:1: unknown section [modell]; did you mean [model]? (ctrain keys lists them)\n"
        "/cfg/a.ini:6:1: [optimizer] lr = fast: not a number; allowed: 0 or more\n"
        "/cfg/a.ini:7:1: unknown key 'nam' in [optimizer]; did you mean 'name'? (ctrain keys optimizer "
        "lists them)\n"
        "/cfg/a.ini:8:1: key 'lr' in [optimizer] was given before, at line 6\n"
        "/cfg/a.ini:10:1: [train] nonfinite = halt: allowed: stop skip\n"
        "/cfg/a.ini:12:1: [model] name = nett: unknown model; allowed: net tower layers; did you mean "
        "'net'?");
}

Test(train_config, mistakes_about_models)
{
    refused(
        "[model]\nname = tower\nhidden = 3\nheigth = 3\n",
        "/cfg/a.ini:3:1: key 'hidden' in [model] is one of model net, not of tower (ctrain keys model "
        "lists them)\n"
        "/cfg/a.ini:4:1: unknown key 'heigth' in [model]; did you mean 'height'? (ctrain keys model "
        "lists them)");
    refused("", "/cfg/a.ini: [model] name is missing; allowed: net tower layers");
    refused("[model]\nname =\n",
            "/cfg/a.ini:2:1: [model] name is missing; allowed: net tower layers");
    refused(
        "[model]\nname = layer\n",
        "/cfg/a.ini:2:1: [model] name = layer: unknown model; allowed: net tower layers; did you mean "
        "'layers'?");
    refused(
        "[data]\ndataset = mnist\n[model]\nname = layers\n",
        "/cfg/a.ini: [model] name = layers needs the key layers, for example: layers = flatten "
        "linear(10)\n"
        "/cfg/a.ini: [data] dataset = mnist needs the key path: the folder with its four IDX files");
}

Test(train_config, mistakes_in_overrides)
{
    set_refused("", "expected section.key=value");
    set_refused("lr", "--set lr: expected section.key=value");
    set_refused("=", "expected section.key=value");
    set_refused(".=", "expected section.key=value");
    set_refused("a.=", "expected section.key=value");
    set_refused("lr=3", "--set lr=3: expected section.key=value, for example train.epochs=3");
    set_refused("train.epoch=3",
                "--set train.epoch: unknown key 'epoch' in [train]; did you mean 'epochs'?");
    set_refused("tran.epochs=3",
                "--set tran.epochs: unknown section [tran]; did you mean [train]?");
    set_refused("train.epochs=x", "--set train.epochs: [train] epochs = x: not a whole number");
    set_refused("train.epochs=", "[train] epochs = : not a whole number");
    set_refused("train.epochs=99999999999999999", "too large; allowed: 0 or more");
    set_refused("optimizer.name=a|b", "allowed: sgd adam adamw");
    set_refused("optimizer.name=sgd|adam", "allowed: sgd adam adamw");
    set_refused("model.name=none", "--set model.name: [model] name = none: unknown model");
}

Test(train_config, long_values_and_many_mistakes_fit)
{
    char text[20000], path[3000];
    ct_error err;
    size_t n = (size_t)snprintf(text, sizeof text, "[model]\nname = net\n[train]\nepochs = ");

    memset(text + n, 'x', 5000);
    snprintf(text + n + 5000, sizeof text - n - 5000, "\n");
    refused(
        text,
        "/cfg/a.ini:4:1: [train] epochs = xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "...: not a whole number; allowed: 0 or more");

    n = (size_t)snprintf(text, sizeof text, "[train]\n");
    for (int i = 0; i < 500; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "wrong%d = 1\n", i);
    cr_assert_null(parse(text, NULL, 0, &err));
    cr_assert(strstr(err.text, "a.ini:3:1: unknown key 'wrong0'") ||
              strstr(err.text, "a.ini:2:1: unknown key 'wrong0'"));
    cr_assert(strstr(err.text, "\n... and ") != NULL);
    cr_assert(strlen(err.text) < sizeof err.text);

    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    err = (ct_error){0};
    cr_assert_null(cti_config_parse(path, text, strlen(text), NULL, 0, zoo, &err));
    cr_assert(strstr(err.text, "unknown key") || strstr(err.text, "[model] name"));
}

Test(train_config, files_that_are_none)
{
    ct_error err = {0};

    cr_assert_null(ct_config_load(in_folder("none.ini"), NULL, 0, zoo, &err));
    cr_assert_eq(err.code, CT_ECONFIG);
    cr_assert(strstr(err.text, "none.ini") && strstr(err.text, "No such file"), "%s", err.text);
    err = (ct_error){0};
    cr_assert_null(ct_config_load(folder, NULL, 0, zoo, &err));
    cr_assert(strstr(err.text, "directory") != NULL, "%s", err.text);
    cr_assert_null(ct_config_load(in_folder("none.ini"), NULL, 0, zoo, NULL)); /* nobody to tell */
    ct_config_free(NULL);
}
