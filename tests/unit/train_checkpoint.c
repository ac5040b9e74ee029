/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkdtemp, truncate */
#endif
#include "train/checkpoint.h"

#include "train_fixture.h"

#include <dirent.h>
#include <unistd.h>

static cti_mem *mem;
static ct_ctx *ctx;
static ct_named_tensor weight, moment;
static char told[8192];

static void begin(void)
{
    enter_folder();
    mem = cti_mem_new(NULL);
    ctx = new_ctx(CT_F32);
    snprintf(weight.name, sizeof weight.name, "w");
    snprintf(moment.name, sizeof moment.name, "w.exp_avg");
    weight.tensor = ct_tensor_new(ctx, CT_F32, 1, (const int64_t[]){1000});
    moment.tensor = ct_tensor_new(ctx, CT_F32, 1, (const int64_t[]){1000});
    told[0] = '\0';
}

static void end(void)
{
    ct_ctx_free(ctx);
    cti_mem_free(mem, NULL, NULL);
    leave_folder();
}

TestSuite(train_checkpoint, .init = begin, .fini = end);

static void hear(ct_log_level level, const char *text, void *user)
{
    size_t n = strlen(told);

    snprintf(told + n, sizeof told - n, "%s\n", text);
}

static const cti_say say = {.line = hear};

static int try_save(int64_t step, ct_error *err)
{
    cti_state s = {.schema = CTI_STATE_SCHEMA, .step = step, .config = "[run]\n"};
    cti_ckpt_parts parts = {&weight, &moment, 1, 1, &s};
    cti_ckpt_image image;
    int r;

    cr_assert_eq(cti_ckpt_image_make(ctx, mem, &parts, &image, err), CT_OK);
    r = cti_ckpt_save(folder, &image, &say, err);
    cti_ckpt_image_free(mem, &image);
    return r;
}

static void save(int64_t step)
{
    ct_error err = {0};

    cr_assert_eq(ct_tensor_fill(ctx, weight.tensor, (double)step), CT_OK);
    cr_assert_eq(try_save(step, &err), CT_OK, "%s", err.text);
}

static void expect_found(const char *pointer, const char *want)
{
    char name[CTI_CKPT_NAME_CAP] = "";
    ct_error err = {0};

    cr_assert_eq(cti_ckpt_find(mem, folder, pointer, &say, name, &err), CT_OK, "%s", err.text);
    cr_assert_str_eq(name, want);
}

/* The directory's names, in order, separated by blanks. */
static int add_name(const char *name, void *user)
{
    char *out = user;

    snprintf(out + strlen(out), 1024 - strlen(out), "%s%s", *out ? " " : "", name);
    return 0;
}

static void expect_names(const char *want)
{
    char names[1024] = "";

    cr_assert_eq(cti_dir_list(mem, folder, add_name, names, NULL), CT_OK);
    cr_assert_str_eq(names, want);
}

static void flip_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    int c;

    fseek(f, at, SEEK_SET);
    c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

Test(train_checkpoint, names_are_steps_and_back)
{
    char name[CTI_CKPT_NAME_CAP];
    int64_t step;

    cti_ckpt_name(name, 1200);
    cr_assert_str_eq(name, "step-00001200");
    cr_assert(cti_ckpt_step("step-00001200", &step) && step == 1200);
    cti_ckpt_name(name, 12345678901);
    cr_assert(cti_ckpt_step(name, &step) && step == 12345678901);
    cr_assert_not(cti_ckpt_step("step-1200", &step));
    cr_assert_not(cti_ckpt_step("step-0000120x", &step));
    cr_assert_not(cti_ckpt_step("step-000001200", &step));
    cr_assert_not(cti_ckpt_step("../etc", &step));
}

Test(train_checkpoint, a_saved_one_is_complete_and_last)
{
    char *text, name[CTI_CKPT_NAME_CAP];
    ct_error err = {0};
    cti_state s;

    save(7);
    expect_names("last step-00000007");
    expect_found("last", "step-00000007");
    cr_assert_eq(cti_ckpt_verify(mem, in_folder("step-00000007"), &err), CT_OK);
    cr_assert_eq(cti_ckpt_read_state(mem, in_folder("step-00000007"), &s, &err), CT_OK);
    cr_assert_eq(s.step, 7);
    cti_state_clear(&s);
    text = get_file(in_folder("step-00000007/MANIFEST"), NULL);
    assert_has(text, " model.safetensors\n");
    assert_has(text, " optimizer.safetensors\n");
    assert_has(text, " state.json\n");
    free(text);
    cr_assert_eq(cti_ckpt_find(mem, folder, "best", &say, name, &err), CT_EDATA);
}

Test(train_checkpoint, every_damage_is_found_and_named)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    char path[128], part[160];

    for (int i = 0; i < 3; i++)
        for (int how = 0; how < 3; how++) {
            ct_error err = {0};

            save(1);
            snprintf(path, sizeof path, "step-00000001/%s", files[i]);
            if (how == 0)
                flip_byte(in_folder(path), 100);
            else if (how == 1)
                cr_assert_eq(truncate(in_folder(path), 100), 0);
            else
                unlink(in_folder(path));
            cr_assert_eq(cti_ckpt_verify(mem, in_folder("step-00000001"), &err), CT_EFORMAT);
            snprintf(part, sizeof part, "%s %s", files[i],
                     how == 0 ? "is damaged" :
                     how == 1 ? "has 100 bytes" :
                                "is missing");
            assert_has(err.text, part);
        }
}

Test(train_checkpoint, a_manifest_that_is_cut_or_lies_is_refused)
{
    static const char *const texts[] = {
        "",
        "junk\n",
        "12 0123456789abcdef model.safetensors",
        "12 0123456789abcdef ../x\n",
        "99999999999999999999 0123456789abcdef a\n",
        "12 0123456789ABCDEF a\n",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ct_error err = {0};

        save(1);
        put_file(in_folder("step-00000001/MANIFEST"), texts[i], strlen(texts[i]));
        cr_assert_eq(cti_ckpt_verify(mem, in_folder("step-00000001"), &err), CT_EFORMAT);
        assert_has(err.text, "MANIFEST");
    }
}

Test(train_checkpoint, a_damaged_last_falls_back_to_the_newest_valid_one_loudly)
{
    save(1);
    save(2);
    save(3);
    flip_byte(in_folder("step-00000003/model.safetensors"), 500);
    expect_found("last", "step-00000002");
    assert_has(told, "model.safetensors is damaged");
    assert_has(told, "step-00000002, the newest valid one, instead");
    flip_byte(in_folder("step-00000002/state.json"), 5);
    expect_found("last", "step-00000001");
}

Test(train_checkpoint, when_none_is_valid_the_first_reason_is_told)
{
    char name[CTI_CKPT_NAME_CAP];
    ct_error err = {0};

    cr_assert_eq(cti_ckpt_find(mem, folder, "last", &say, name, &err), CT_EDATA);
    err = (ct_error){0};
    save(1);
    flip_byte(in_folder("step-00000001/model.safetensors"), 500);
    cr_assert_eq(cti_ckpt_find(mem, folder, "last", &say, name, &err), CT_EFORMAT);
    assert_has(err.text, "no valid checkpoint");
    assert_has(err.text, "is damaged");
}

Test(train_checkpoint, a_lost_pointer_means_the_newest)
{
    save(1);
    save(12);
    unlink(in_folder("last"));
    expect_found("last", "step-00000012");
    put_file(in_folder("last"), "../../etc/passwd\n", 17);
    expect_found("last", "step-00000012");
}

Test(train_checkpoint, going_back_points_at_the_past_and_a_fallback_stays_there)
{
    save(10);
    save(20);
    save(30);
    cr_assert_eq(cti_ckpt_point(folder, "last", "step-00000020", NULL), CT_OK);
    expect_found("last", "step-00000020");
    flip_byte(in_folder("step-00000020/model.safetensors"), 500);
    expect_found("last", "step-00000010");
}

Test(train_checkpoint, one_of_the_same_step_is_replaced)
{
    ct_error err = {0};
    float v[1000];

    save(5);
    cr_assert_eq(ct_tensor_fill(ctx, weight.tensor, 99), CT_OK);
    cr_assert_eq(try_save(5, &err), CT_OK);
    expect_names("last step-00000005");
    cr_assert_eq(ct_safetensors_load(ctx, in_folder("step-00000005/model.safetensors"), &weight, 1),
                 CT_OK);
    cr_assert_eq(ct_tensor_read(ctx, weight.tensor, v, sizeof v), CT_OK);
    cr_assert(v[0] == 99);
}

Test(train_checkpoint, what_a_killed_save_left_is_swept_and_a_half_replaced_one_comes_back)
{
    save(5);
    save(6);
    cr_assert_eq(rename(in_folder("step-00000005"), in_folder(".old-step-00000005")), 0);
    cti_dir_make(in_folder(".tmp-step-00000007"), NULL);
    put_file(in_folder(".tmp-step-00000007/model.safetensors"), "half", 4);
    put_file(in_folder("last.tmp"), "st", 2);
    cr_assert_eq(cti_ckpt_sweep(mem, folder, &say, NULL), CT_OK);
    expect_names("last step-00000005 step-00000006");
    assert_has(told, ".tmp-step-00000007");
}

Test(train_checkpoint, a_transient_failure_is_retried)
{
    ct_error err = {0};

    save(1);
    for (int n = 1; n < 8; n++) {
        told[0] = '\0';
        cti_file_fail_write_at(n);
        cr_assert_eq(try_save(1 + n, &err), CT_OK, "%d: %s", n, err.text);
        cti_file_fail_write_at(0);
        if (n <= 4)
            assert_has(told, "try 1 of 3");
    }
    expect_found("last", "step-00000008");
}

Test(train_checkpoint, retention_keeps_last_best_and_the_one_resumed_from)
{
    cti_state s = {.step = 60};

    for (int64_t step = 10; step <= 60; step += 10)
        save(step);
    save(70); /* of a line of the run that was left */
    cr_assert_eq(cti_ckpt_point(folder, "last", "step-00000060", NULL), CT_OK);
    cr_assert_eq(cti_ckpt_point(folder, "best", "step-00000020", NULL), CT_OK);
    s.n_top = 2;
    s.top[0] = (cti_top){.step = 20, .value = 0.9};
    s.top[1] = (cti_top){.step = 40, .value = 0.8};
    cr_assert_eq(cti_ckpt_retain(mem, folder, &s, 1, 1, "step-00000010", NULL), CT_OK);
    expect_names("best last step-00000010 step-00000020 step-00000060 step-00000070");
}

Test(train_checkpoint, retention_keeps_as_many_of_each_as_asked)
{
    cti_state s = {.step = 60, .n_top = 2, .top = {{20, 0.9}, {40, 0.8}}};

    for (int64_t step = 10; step <= 60; step += 10)
        save(step);
    cr_assert_eq(cti_ckpt_retain(mem, folder, &s, 2, 2, "", NULL), CT_OK);
    expect_names("last step-00000020 step-00000040 step-00000050 step-00000060");
}
