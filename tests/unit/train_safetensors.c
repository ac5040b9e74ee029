/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkdtemp, truncate */
#endif
#include "train/safetensors.h"

#include "train_fixture.h"

#include <math.h>
#include <stdint.h>

TestSuite(train_safetensors, .init = enter_folder, .fini = leave_folder);

static void name_it(ct_named_tensor *n, const char *name, ct_tensor *t)
{
    *n = (ct_named_tensor){.tensor = t};
    snprintf(n->name, sizeof n->name, "%s", name);
}

static ct_tensor *floats(ct_ctx *ctx, int64_t n, float first)
{
    float v[64];

    for (int64_t i = 0; i < n; i++)
        v[i] = first + (float)i;
    return ct_tensor_from(ctx, CT_F32, 1, &n, v);
}

/* A file with the given header and `data_bytes` of zeros; `length` is written as the header's (0:
 * true). */
static const char *make_file(const char *header, size_t data_bytes, uint64_t length)
{
    size_t n = strlen(header);
    char *p = calloc(1, 8 + n + data_bytes);
    const char *path = in_folder("made.safetensors");

    if (length == 0)
        length = n;
    for (int i = 0; i < 8; i++)
        p[i] = (char)(length >> (8 * i));
    memcpy(p + 8, header, n);
    put_file(path, p, 8 + n + data_bytes);
    free(p);
    return path;
}

/* Loads into one f32 tensor `a` of two elements, which must stay as it was. */
static void expect_load(const char *path, int code, const char *part)
{
    ct_ctx *ctx = new_ctx(CT_F32);
    ct_named_tensor a;
    float v[2];

    name_it(&a, "a", floats(ctx, 2, 5));
    cr_assert_eq(ct_safetensors_load(ctx, path, &a, 1), code, "%s: %s", path,
                 ct_error_get(ctx)->text);
    if (code != CT_OK) {
        assert_has(ct_error_get(ctx)->text, part);
        ct_error_clear(ctx);
        cr_assert_eq(ct_tensor_read(ctx, a.tensor, v, sizeof v), CT_OK);
        cr_assert(v[0] == 5 && v[1] == 6, "the tensor was changed");
    }
    ct_tensor_release(a.tensor);
    ct_ctx_free(ctx);
}

static void expect_bad(const char *header, size_t data_bytes, const char *part)
{
    expect_load(make_file(header, data_bytes, 0), CT_EFORMAT, part);
}

Test(train_safetensors, what_was_saved_is_loaded_bit_by_bit)
{
    ct_ctx *ctx = new_ctx(CT_F64);
    const int64_t two[] = {2, 3};
    const double d[] = {1.0 / 3, -0.0, 1e300, INFINITY, 5e-324, 7};
    const int64_t one = 1, count = 1234567890123;
    double back[6];
    int64_t n;
    ct_named_tensor t[4];

    name_it(&t[0], "w", ct_tensor_from(ctx, CT_F64, 2, two, d));
    name_it(&t[1], "n", ct_tensor_from(ctx, CT_I64, 0, NULL, &count));
    name_it(&t[2], "none", ct_tensor_new(ctx, CT_F32, 1, (const int64_t[]){0}));
    name_it(&t[3], "b", ct_tensor_from(ctx, CT_I64, 1, &one, &count));
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), t, 4), CT_OK);
    for (int i = 0; i < 4; i++)
        if (ct_tensor_numel(t[i].tensor))
            cr_assert_eq(ct_tensor_fill(ctx, t[i].tensor, 0), CT_OK);
    cr_assert_eq(ct_safetensors_load(ctx, in_folder("x"), t, 4), CT_OK, "%s",
                 ct_error_get(ctx)->text);
    cr_assert_eq(ct_tensor_read(ctx, t[0].tensor, back, sizeof back), CT_OK);
    cr_assert_eq(memcmp(back, d, sizeof d), 0);
    cr_assert_eq(ct_tensor_read(ctx, t[1].tensor, &n, sizeof n), CT_OK);
    cr_assert_eq(n, count);
    for (int i = 0; i < 4; i++)
        ct_tensor_release(t[i].tensor);
    ct_ctx_free(ctx);
}

Test(train_safetensors, the_file_is_aligned_ordered_and_the_same_each_time)
{
    const char *want = "{\"wide\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
                       "\"z\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]},"
                       "\"flag\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[24,25]}} ";
    ct_ctx *ctx = new_ctx(CT_F32);
    const unsigned char flag = 1;
    ct_named_tensor t[4];
    size_t bytes, again;
    char *p, *q;
    uint64_t header = 0;

    name_it(&t[0], "z", floats(ctx, 3, 1));
    name_it(&t[1], "flag", ct_tensor_from(ctx, CT_BOOL, 0, NULL, &flag));
    name_it(&t[2], "a", floats(ctx, 1, 9));
    name_it(&t[3], "wide", ct_tensor_scalar(ctx, CT_F64, 2));
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), t, 4), CT_OK);
    p = get_file(in_folder("x"), &bytes);
    for (int i = 7; i >= 0; i--)
        header = header << 8 | (unsigned char)p[i];
    cr_assert_eq((8 + header) % 64, 0);
    cr_assert_eq(bytes, 8 + header + 8 + 4 + 12 + 1);
    cr_assert_eq(strncmp(p + 8, want, strlen(want)), 0, "%s", p + 8);
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), t, 4), CT_OK);
    q = get_file(in_folder("x"), &again);
    cr_assert(again == bytes && memcmp(p, q, bytes) == 0);
    free(p);
    free(q);
    for (int i = 0; i < 4; i++)
        ct_tensor_release(t[i].tensor);
    ct_ctx_free(ctx);
}

Test(train_safetensors, float_dtypes_are_converted)
{
    /* 1 and -2.5 in each of the float dtypes. */
    static const struct {
        const char *dtype;
        unsigned char data[16];
        size_t bytes;
    } in[] = {
        {"F16", {0x00, 0x3c, 0x00, 0xc1}, 4},
        {"BF16", {0x80, 0x3f, 0x20, 0xc0}, 4},
        {"F32", {0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0}, 8},
        {"F64", {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0x04, 0xc0}, 16},
    };

    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        ct_ctx *ctx = new_ctx(CT_F32);
        char header[128];
        const char *path;
        ct_named_tensor a;
        size_t bytes;
        float v[2];
        char *p;

        snprintf(
            header, sizeof header,
            "{\"a\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%zu]},\"__metadata__\":{\"by\":"
            "\"x\"}}",
            in[i].dtype, in[i].bytes);
        path = make_file(header, in[i].bytes, 0);
        p = get_file(path, &bytes);
        memcpy(p + bytes - in[i].bytes, in[i].data, in[i].bytes);
        put_file(path, p, bytes);
        free(p);
        name_it(&a, "a", floats(ctx, 2, 0));
        cr_assert_eq(ct_safetensors_load(ctx, path, &a, 1), CT_OK, "%s", ct_error_get(ctx)->text);
        cr_assert_eq(ct_tensor_read(ctx, a.tensor, v, sizeof v), CT_OK);
        cr_assert(v[0] == 1 && v[1] == -2.5f, "%s: %g %g", in[i].dtype, v[0], v[1]);
        ct_tensor_release(a.tensor);
        ct_ctx_free(ctx);
    }
}

Test(train_safetensors, names_that_do_not_fit_are_all_listed_and_nothing_is_changed)
{
    ct_ctx *ctx = new_ctx(CT_F32);
    ct_named_tensor saved[3], want[3];
    const char *text;
    float v[2];

    name_it(&saved[0], "same", floats(ctx, 2, 1));
    name_it(&saved[1], "shape", floats(ctx, 3, 1));
    name_it(&saved[2], "extra", floats(ctx, 1, 1));
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), saved, 3), CT_OK);
    name_it(&want[0], "same", floats(ctx, 2, 7));
    name_it(&want[1], "shape", floats(ctx, 4, 1));
    name_it(&want[2], "absent", floats(ctx, 1, 1));
    cr_assert_eq(ct_safetensors_load(ctx, in_folder("x"), want, 3), CT_ECONFIG);
    text = ct_error_get(ctx)->text;
    assert_has(text, "missing (1): absent");
    assert_has(text, "unexpected (1): extra");
    assert_has(text, "shape (float32 [3] in the file, float32 [4] here)");
    ct_error_clear(ctx);
    cr_assert_eq(ct_tensor_read(ctx, want[0].tensor, v, sizeof v), CT_OK);
    cr_assert(v[0] == 7 && v[1] == 8);
    ct_ctx_free(ctx);
}

Test(train_safetensors, many_names_are_cut_but_counted)
{
    ct_ctx *ctx = new_ctx(CT_F32);
    static ct_named_tensor t[200];
    char name[64];

    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), NULL, 0), CT_OK);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "encoder.layers.%d.attention.weight", i);
        name_it(&t[i], name, floats(ctx, 1, 0));
    }
    cr_assert_eq(ct_safetensors_load(ctx, in_folder("x"), t, 200), CT_ECONFIG);
    assert_has(ct_error_get(ctx)->text, "missing (200): encoder.layers.0.");
    assert_has(ct_error_get(ctx)->text, " more");
    ct_ctx_free(ctx);
}

Test(train_safetensors, two_tensors_of_one_name_are_not_saved)
{
    ct_ctx *ctx = new_ctx(CT_F32);
    ct_named_tensor t[2];

    name_it(&t[0], "a", floats(ctx, 2, 1));
    name_it(&t[1], "a", ct_tensor_scalar(ctx, CT_F64, 1));
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), t, 2), CT_EINVAL);
    cr_assert_not(cti_path_exists(in_folder("x")));
    cr_assert_not(cti_path_exists(in_folder("x.tmp")));
    ct_ctx_free(ctx);
}

Test(train_safetensors, a_full_disk_keeps_the_old_file)
{
    ct_ctx *ctx = new_ctx(CT_F32);
    ct_named_tensor a;
    size_t before, after;

    name_it(&a, "a", floats(ctx, 2, 1));
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), &a, 1), CT_OK);
    free(get_file(in_folder("x"), &before));
    cti_file_fail_write_at(1);
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), &a, 1), CT_EIO);
    assert_has(ct_error_get(ctx)->text, "No space left");
    free(get_file(in_folder("x"), &after));
    cr_assert_eq(before, after);
    cr_assert_not(cti_path_exists(in_folder("x.tmp")));
    ct_ctx_free(ctx);
}

#define ENTRY(name, shape, from, to) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

Test(train_safetensors, a_good_file_made_by_hand_is_loaded)
{
    expect_load(make_file("{" ENTRY("a", "[2]", "0", "8") "}     ", 8, 0), CT_OK, "");
}

Test(train_safetensors, files_that_lie_are_refused_with_a_reason)
{
    expect_bad("{" ENTRY("a", "[2]", "0", "8") "}", 7, "the file is cut");
    expect_bad("{" ENTRY("a", "[2]", "0", "8") "}", 9, "1 bytes follow the last tensor");
    expect_bad("{" ENTRY("a", "[2]", "4", "12") "}", 12, "a hole of 4 bytes");
    expect_bad("{" ENTRY("a", "[2]", "0", "8") "," ENTRY("b", "[2]", "4", "12") "}", 12, "overlap");
    expect_bad("{" ENTRY("a", "[2]", "0", "8") "," ENTRY("b", "[2]", "0", "8") "}", 8, "overlap");
    expect_bad("{" ENTRY("a", "[2]", "0", "8") "," ENTRY("a", "[2]", "8", "16") "}", 16, "a");
    expect_bad("{" ENTRY("a", "[3]", "0", "8") "}", 8, "another size");
    expect_bad("{" ENTRY("a", "[4294967296,4294967296,4]", "0", "8") "}", 8, "another size");
    expect_bad("{" ENTRY("a", "[-2]", "0", "8") "}", 8, "is no size");
    expect_bad("{" ENTRY("a", "[2.5]", "0", "8") "}", 8, "is no size");
    expect_bad("{" ENTRY("a", "[\"2\"]", "0", "8") "}", 8, "is no size");
    expect_bad("{" ENTRY("a", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, "dimensions");
    expect_bad("{" ENTRY("a", "[2]", "8", "0") "}", 8, "not a begin and an end");
    expect_bad("{" ENTRY("a", "[2]", "0", "1e30") "}", 8, "a");
    expect_bad("{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
               "dtype 'F8_E5M2' is not supported");
    expect_bad("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "has no dtype");
    expect_bad("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "has no shape");
    expect_bad("{\"a\":7}", 0, "is no tensor");
    expect_bad("{\"__metadata__\":{\"n\":1}}", 0, "is no string");
    expect_bad("{\"a\":", 0, "");
    expect_bad("[1]", 0, "doesn't begin with '{'");
}

Test(train_safetensors, a_header_length_that_lies_is_refused)
{
    const char *header = "{" ENTRY("a", "[2]", "0", "8") "}";

    expect_load(make_file(header, 8, 5000), CT_EFORMAT, "5000 bytes, but only");
    expect_load(make_file(header, 8, 100000001), CT_EFORMAT, "more than the 100000000 allowed");
    expect_load(make_file(header, 8, UINT64_MAX), CT_EFORMAT, "more than the");
    expect_load(make_file(header, 8, 1), CT_EFORMAT, "doesn't begin with '{'");
    expect_load(make_file(header, 8, strlen(header) - 1), CT_EFORMAT, "");
    put_file(in_folder("short"), "1234567", 7);
    expect_load(in_folder("short"), CT_EFORMAT, "7 bytes are too few");
    put_file(in_folder("empty"), "", 0);
    expect_load(in_folder("empty"), CT_EFORMAT, "0 bytes are too few");
}

Test(train_safetensors, what_was_saved_under_the_wrong_name_is_recognised)
{
    static const struct {
        const char *data, *part;
    } files[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "git lfs pull"},
        {"<!DOCTYPE html><html></html>", "HTML page"},
        {"\n  <HTML><body>404", "HTML page"},
        {"PK\003\004 archive/data.pkl", "zip archive"},
        {"\x80\x02}q\x01 pickled", "pickle"},
        {"GGUF\x03 and so on", "GGUF"},
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put_file(in_folder("x"), files[i].data, strlen(files[i].data));
        expect_load(in_folder("x"), CT_EFORMAT, files[i].part);
    }
    expect_load(in_folder("none"), CT_EDATA, "No such file");
}

Test(train_safetensors, a_cut_at_any_byte_is_an_error_and_no_crash)
{
    ct_ctx *ctx = new_ctx(CT_F32);
    ct_named_tensor t[2];
    size_t bytes;
    char *p;

    name_it(&t[0], "a", floats(ctx, 2, 1));
    name_it(&t[1], "b", ct_tensor_scalar(ctx, CT_F64, 3));
    cr_assert_eq(ct_safetensors_save(ctx, in_folder("x"), t, 2), CT_OK);
    p = get_file(in_folder("x"), &bytes);
    for (size_t n = 0; n < bytes; n++) {
        put_file(in_folder("cut"), p, n);
        cr_assert_eq(ct_safetensors_load(ctx, in_folder("cut"), t, 2), CT_EFORMAT, "at %zu", n);
        ct_error_clear(ctx);
    }
    free(p);
    ct_ctx_free(ctx);
}
