/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <criterion/criterion.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail_on_leak(const char *maker, uint64_t n, uint64_t bytes, void *user)
{
    (void)n, (void)bytes, (void)user;
    cr_assert_fail("%s leaks", maker);
}

static cti_json *parse(const char *text)
{
    ct_error err = {0};
    cti_json *j = cti_json_parse(text, strlen(text), "test", &err);

    cr_assert_not_null(j, "%s", err.text);
    return j;
}

Test(base_json, a_document_is_read)
{
    cti_json *j = parse(" {\"s\": \"a\\n\\u00e9\\ud83d\\ude00\", \"i\": -12, \"f\": 1.5e3,\n"
                        "\"t\": true, \"n\": null, \"a\": [1, 2, 3], \"o\": {}, \"\": 0} ");
    int64_t i;
    double f;
    bool b;

    cr_assert(cti_json_is_object(j));
    cr_assert_not(cti_json_is_array(j));
    cr_assert_eq(cti_json_len(j), 8);
    cr_assert_str_eq(cti_json_string(cti_json_get(j, "s")), "a\né😀");
    cr_assert(cti_json_i64(cti_json_get(j, "i"), &i) && i == -12);
    cr_assert(cti_json_f64(cti_json_get(j, "f"), &f) && f == 1500);
    cr_assert(cti_json_i64(cti_json_get(j, "f"), &i) && i == 1500);
    cr_assert(cti_json_bool(cti_json_get(j, "t"), &b) && b);
    cr_assert(cti_json_i64(cti_json_get(j, ""), &i) && i == 0);
    const cti_json *a = cti_json_get(j, "a");
    cr_assert(cti_json_is_array(a));
    cr_assert_eq(cti_json_len(a), 3);
    cr_assert(cti_json_i64(cti_json_at(a, 2), &i) && i == 3);
    const cti_json *c = cti_json_first(j);
    cr_assert_str_eq(cti_json_key(c), "s");
    cr_assert_str_eq(cti_json_key(cti_json_next(c)), "i");
    cr_assert_null(cti_json_first(cti_json_get(j, "o")));
    cti_json_free(j);
    cti_json_free(NULL);
}

Test(base_json, what_is_absent_or_of_another_kind_is_null_or_false)
{
    cti_json *j = parse("{\"Key\": \"x\", \"a\": [1.5], \"b\": 1}");
    int64_t i = 7;
    double f = 7;
    bool b = true;

    cr_assert_null(cti_json_get(j, "key"), "case matters");
    cr_assert_null(cti_json_get(cti_json_get(j, "a"), "x"));
    cr_assert_null(cti_json_get(NULL, "x"));
    cr_assert_null(cti_json_at(j, 0));
    cr_assert_null(cti_json_at(cti_json_get(j, "a"), 1));
    cr_assert_null(cti_json_at(cti_json_get(j, "a"), -1));
    cr_assert_null(cti_json_string(cti_json_get(j, "b")));
    cr_assert_null(cti_json_string(NULL));
    cr_assert_null(cti_json_first(NULL));
    cr_assert_null(cti_json_next(NULL));
    cr_assert_null(cti_json_key(NULL));
    cr_assert_null(cti_json_first(cti_json_get(j, "b")));
    cr_assert_eq(cti_json_len(NULL), 0);
    cr_assert_not(cti_json_i64(cti_json_at(cti_json_get(j, "a"), 0), &i), "1.5 is no integer");
    cr_assert_not(cti_json_i64(cti_json_get(j, "Key"), &i));
    cr_assert_not(cti_json_f64(cti_json_get(j, "Key"), &f));
    cr_assert_not(cti_json_f64(NULL, &f));
    cr_assert_not(cti_json_bool(cti_json_get(j, "b"), &b));
    cr_assert_not(cti_json_bool(NULL, &b));
    cr_assert(i == 7 && f == 7 && b, "untouched");
    cti_json_free(j);
}

static void expect_refused(const char *text, size_t bytes, const char *want)
{
    ct_error err = {0};
    cti_json *j = cti_json_parse(text, bytes, "state.json", &err);

    cr_assert_null(j, "taken: %s", text);
    cr_assert_eq(err.code, CT_EFORMAT);
    cr_assert_eq(strncmp(err.text, "state.json: not valid JSON at ", 30), 0, "%s", err.text);
    cr_assert_str_eq(err.text + 30, want, "of %s:\n%s", text, err.text);
}

#define REFUSED(text, want) expect_refused(text, sizeof(text) - 1, want)

Test(base_json, what_is_no_json_is_refused_with_place_and_reason)
{
    REFUSED("", "byte 0 (line 1, column 1): the text ends here, a value was expected");
    REFUSED(" \n ", "byte 3 (line 2, column 2): the text ends here, a value was expected");
    REFUSED("{\"a\": 1} x", "byte 9 (line 1, column 10): more text after the end of the document");
    REFUSED("{\"a\": 1}\0", "byte 8 (line 1, column 9): more text after the end of the document");
    REFUSED("{\n  \"a\": 1,\n}", "byte 12 (line 3, column 1): a key in quotes was expected");
    REFUSED("{'a': 1}", "byte 1 (line 1, column 2): a key in quotes was expected");
    REFUSED("{\"a\" 1}", "byte 5 (line 1, column 6): ':' was expected after the key");
    REFUSED("{\"a\": 1 \"b\": 2}", "byte 8 (line 1, column 9): ',' or '}' was expected");
    REFUSED("[1 2]", "byte 3 (line 1, column 4): ',' or ']' was expected");
    REFUSED("[1,]", "byte 3 (line 1, column 4): a value was expected");
    REFUSED("[1", "byte 2 (line 1, column 3): ',' or ']' was expected");
    REFUSED("[tru]", "byte 1 (line 1, column 2): a value was expected");
    REFUSED("nan", "byte 0 (line 1, column 1): a value was expected");
    REFUSED("\xEF\xBB\xBF{}", "byte 0 (line 1, column 1): a value was expected");
    REFUSED("\v1", "byte 0 (line 1, column 1): a value was expected");
}

Test(base_json, numbers_follow_the_grammar)
{
    REFUSED("01", "byte 0 (line 1, column 1): a number with leading zeros");
    REFUSED("-", "byte 1 (line 1, column 2): a digit was expected");
    REFUSED("1.", "byte 2 (line 1, column 3): a digit was expected");
    REFUSED("1.e3", "byte 2 (line 1, column 3): a digit was expected");
    REFUSED("1e+", "byte 3 (line 1, column 4): a digit was expected");
    REFUSED("+1", "byte 0 (line 1, column 1): a value was expected");
    REFUSED(".5", "byte 0 (line 1, column 1): a value was expected");
    REFUSED("0x10", "byte 1 (line 1, column 2): more text after the end of the document");
    REFUSED("[1234567890123456789012345678901234567890123456789012345678901]",
            "byte 1 (line 1, column 2): a number of more than 60 characters");
}

Test(base_json, strings_follow_the_grammar_and_hold_no_zero)
{
    REFUSED("\"ab", "byte 0 (line 1, column 1): this string has no end");
    REFUSED("\"ab\\", "byte 4 (line 1, column 5): an unknown escape in a string");
    REFUSED("\"a\nb\"", "byte 2 (line 1, column 3): a control character in a string");
    REFUSED("\"a\0b\"", "byte 2 (line 1, column 3): a control character in a string");
    REFUSED("\"\\x41\"", "byte 2 (line 1, column 3): an unknown escape in a string");
    REFUSED("\"\\u12g4\"", "byte 5 (line 1, column 6): \\u needs four hexadecimal digits");
    REFUSED("\"a\\u0000\"", "byte 2 (line 1, column 3): \\u0000 in a string is not supported");
    REFUSED("\"\\ud83dx\"", "byte 1 (line 1, column 2): half of a surrogate pair");
    REFUSED("\"\\ud83d\\u0041\"", "byte 1 (line 1, column 2): half of a surrogate pair");
    REFUSED("\"\\ude00\"", "byte 1 (line 1, column 2): half of a surrogate pair");
    REFUSED("\"\xFF\"", "byte 1 (line 1, column 2): a byte that is not UTF-8");
    REFUSED("\"\xC0\xAF\"", "byte 1 (line 1, column 2): a byte that is not UTF-8");
    REFUSED("\"\xED\xA0\x80\"", "byte 1 (line 1, column 2): a byte that is not UTF-8");
    REFUSED("\"\xE2\x82\"", "byte 1 (line 1, column 2): a byte that is not UTF-8");
}

Test(base_json, a_key_twice_in_one_object_is_refused_where_it_comes_again)
{
    REFUSED("{\"a\": 1, \"a\": 2}",
            "byte 9 (line 1, column 10): a key that this object has already");
    REFUSED(
        "{\"x\": {\"a\": 1, \"b\": {\"a\": 2}},\n \"y\": [{\"k\": 0, \"b\": 1, \"\\u006b\": 2}]}",
        "byte 55 (line 2, column 25): a key that this object has already");
    cti_json_free(parse("{\"a\": {\"a\": {\"a\": 1}}, \"b\": [{\"a\": 1}, {\"a\": 1}], \"A\": 0}"));
}

Test(base_json, depth_is_bounded)
{
    char text[4001];
    ct_error err = {0};
    cti_json *j;

    memset(text, '[', 2000);
    memset(text + 2000, ']', 2000);
    text[4000] = '\0';
    cr_assert_null(cti_json_parse(text, 4000, "deep", &err));
    cr_assert_str_eq(err.text,
                     "deep: not valid JSON at byte 1000 (line 1, column 1001): nested too "
                     "deeply");
    j = cti_json_parse(text + 1000, 2000, "deep", NULL);
    cr_assert_not_null(j);
    cti_json_free(j);
}

Test(base_json, thousands_of_keys_take_no_quadratic_time)
{
    enum { N = 50000 };
    char *text = malloc(N * 16 + 2);
    size_t n = 0;
    cti_json *j;

    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(text + n, "%c\"k%d\":%d", i ? ',' : '{', i, i);
    text[n++] = '}';
    j = cti_json_parse(text, n, "many", NULL);
    cr_assert_eq(cti_json_len(j), N);
    cti_json_free(j);
    free(text);
}

static const char *written(cti_jw *w)
{
    const char *text = cti_jw_text(w, NULL);

    cr_assert_not_null(text);
    return text;
}

static void fill(cti_jw *w)
{
    cti_jw_object(w, NULL);
    cti_jw_string(w, "event", "step");
    cti_jw_i64(w, "step", -3);
    cti_jw_f64(w, "loss", 0.1);
    cti_jw_bool(w, "ok", true);
    cti_jw_u64_hex(w, "hash", 0x123456789abcdefu);
    cti_jw_array(w, "list");
    cti_jw_i64(w, NULL, 1);
    cti_jw_object(w, NULL);
    cti_jw_end(w);
    cti_jw_array(w, NULL);
    cti_jw_end(w);
    cti_jw_string(w, NULL, NULL);
    cti_jw_end(w);
    cti_jw_end(w);
}

Test(base_json, one_line_is_compact)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *w = cti_jw_new(m, false);
    size_t bytes = 0;

    for (int i = 0; i < 2; i++) {
        cti_jw_reset(w);
        fill(w);
        cr_assert_str_eq(written(w), "{\"event\":\"step\",\"step\":-3,\"loss\":0.1,\"ok\":true,"
                                     "\"hash\":\"0123456789abcdef\",\"list\":[1,{},[],null]}");
    }
    cti_jw_text(w, &bytes);
    cr_assert_eq(bytes, strlen(written(w)));
    cti_jw_free(w);
    cti_jw_free(NULL);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_json, indented_text_is_for_people)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *w = cti_jw_new(m, true);

    fill(w);
    cr_assert_str_eq(written(w), "{\n"
                                 "  \"event\": \"step\",\n"
                                 "  \"step\": -3,\n"
                                 "  \"loss\": 0.1,\n"
                                 "  \"ok\": true,\n"
                                 "  \"hash\": \"0123456789abcdef\",\n"
                                 "  \"list\": [\n"
                                 "    1,\n"
                                 "    {},\n"
                                 "    [],\n"
                                 "    null\n"
                                 "  ]\n"
                                 "}");
    cti_jw_free(w);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_json, any_string_becomes_valid_json_and_comes_back)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *w = cti_jw_new(m, false);
    char all[256];
    cti_json *j;

    for (int i = 0; i < 127; i++)
        all[i] = (char)(i + 1);
    strcpy(all + 127, "é€😀");
    cti_jw_object(w, NULL);
    cti_jw_string(w, all, all);
    cti_jw_end(w);
    j = parse(written(w));
    cr_assert_str_eq(cti_json_string(cti_json_get(j, all)), all);
    cti_json_free(j);

    cti_jw_reset(w);
    cti_jw_string(w, NULL,
                  "a\xFF\xE2\x82"
                  "b\b\x1f");
    cr_assert_str_eq(written(w), "\"a\uFFFD\uFFFD\uFFFDb\\b\\u001f\"");
    cti_jw_free(w);
    cti_mem_free(m, fail_on_leak, NULL);
}

static void check_f64(cti_jw *w, double v, const char *want)
{
    cti_json *j;
    double back;

    cti_jw_reset(w);
    cti_jw_f64(w, NULL, v);
    if (want)
        cr_assert_str_eq(written(w), want);
    j = parse(written(w));
    cr_assert(cti_json_f64(j, &back), "%s", written(w));
    cr_assert(isnan(v) ? isnan(back) : memcmp(&v, &back, sizeof v) == 0, "%a: %s", v, written(w));
    cti_json_free(j);
}

static void check_numbers(cti_jw *w)
{
    uint64_t x = 88172645463325252u;

    check_f64(w, 0, "0");
    check_f64(w, -0.0, "-0");
    check_f64(w, 1, "1");
    check_f64(w, 0.1, "0.1");
    check_f64(w, 1.0 / 3, "0.3333333333333333");
    check_f64(w, 0.1 + 0.2, "0.30000000000000004");
    check_f64(w, 1e22, "1e+22");
    check_f64(w, 3e-4, "0.0003");
    check_f64(w, 123456.789, "123456.789");
    check_f64(w, DBL_MAX, "1.7976931348623157e+308");
    check_f64(w, DBL_MIN, "2.2250738585072014e-308");
    check_f64(w, 5e-324, "5e-324");
    check_f64(w, NAN, "\"nan\"");
    check_f64(w, INFINITY, "\"inf\"");
    check_f64(w, -INFINITY, "\"-inf\"");
    for (int i = 0; i < 2000; i++) {
        double v;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(&v, &x, sizeof v);
        if (isfinite(v))
            check_f64(w, v, NULL);
        check_f64(w, (double)(float)(x * 0x1p-64), NULL);
    }
}

Test(base_json, the_shortest_number_that_reads_back_is_written)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *w = cti_jw_new(m, false);

    check_numbers(w);
    cti_jw_free(w);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_json, numbers_do_not_depend_on_the_locale)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *w = cti_jw_new(m, false);

    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        cr_skip_test("no locale with a comma is installed");
    check_numbers(w);
    cti_jw_free(w);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_json, integers_stay_exact)
{
    static const int64_t values[] = {
        0, -1, 9007199254740992, 9007199254740993, -9007199254740993, INT64_MAX, INT64_MIN};
    static const char *const texts[] = {"0",
                                        "-1",
                                        "9007199254740992",
                                        "\"9007199254740993\"",
                                        "\"-9007199254740993\"",
                                        "\"9223372036854775807\"",
                                        "\"-9223372036854775808\""};
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *w = cti_jw_new(m, false);
    int64_t back = 1;

    for (int i = 0; i < 7; i++) {
        cti_jw_reset(w);
        cti_jw_i64(w, NULL, values[i]);
        cr_assert_str_eq(written(w), texts[i]);
        cti_json *j = parse(written(w));
        cr_assert(cti_json_i64(j, &back));
        cr_assert_eq(back, values[i]);
        cti_json_free(j);
    }
    static const char *const no[] = {
        "1e300",  "9007199254740994",        "\"\"",   "\"-\"", "\" 1\"", "\"+1\"",
        "\"1x\"", "\"9223372036854775808\"", "\"0x1\""};
    for (int i = 0; i < 9; i++) {
        cti_json *j = parse(no[i]);
        cr_assert_not(cti_json_i64(j, &back), "%s", no[i]);
        cti_json_free(j);
    }
    cti_json *huge = parse("1e999");
    double f;
    cr_assert_not(cti_json_f64(huge, &f), "too large is not infinite");
    cti_json_free(huge);
    cti_jw_free(w);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_json, out_of_memory_is_told_at_the_end_until_a_reset)
{
    cti_mem *m = cti_mem_new(NULL);
    bool failed = true;

    for (uint64_t n = 1; failed; n++) {
        cti_mem_fail_at(m, n, true);
        cti_jw *w = cti_jw_new(m, true);
        failed = cti_mem_failed(m);
        if (w) {
            fill(w);
            failed = cti_mem_failed(m);
            cr_assert_eq(cti_jw_text(w, NULL) == NULL, failed);
            cti_mem_fail_at(m, 0, false);
            cti_jw_reset(w);
            fill(w);
            cr_assert_not_null(cti_jw_text(w, NULL));
        }
        cti_jw_free(w);
    }
    cti_mem_free(m, fail_on_leak, NULL);
}
