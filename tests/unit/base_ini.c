/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ini.h"

#include <criterion/criterion.h>
#include <ctrain/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cti_mem *m;

static void fail_on_leak(const char *maker, uint64_t n, uint64_t bytes, void *user)
{
    (void)n, (void)bytes, (void)user;
    cr_assert_fail("%s leaks", maker);
}

static void setup(void)
{
    m = cti_mem_new(NULL);
}

static void teardown(void)
{
    cti_mem_free(m, fail_on_leak, NULL);
}

TestSuite(base_ini, .init = setup, .fini = teardown);

static void note(int line, int column, const char *text, void *user)
{
    char *all = user;

    sprintf(all + strlen(all), "%d:%d: %s\n", line, column, text);
}

/* Reads text that must be right. */
static cti_ini *read_right(const char *text, size_t bytes)
{
    char told[4000] = "";
    cti_ini *ini = NULL;

    cr_assert_eq(cti_ini_parse(m, text, bytes, note, told, &ini), CT_OK, "%s", told);
    cr_assert_str_eq(told, "");
    return ini;
}

/* Reads text with mistakes, which must be reported just so, and which must leave these entries:
 * "section/key=value|...". */
static void expect_mistakes(const char *text, size_t bytes, const char *want, const char *entries)
{
    char told[4000] = "", left[4000] = "";
    cti_ini *ini = NULL;

    cr_assert_eq(cti_ini_parse(m, text, bytes, note, told, &ini), CT_ECONFIG, "taken: %s", text);
    cr_assert_str_eq(told, want, "of\n%s\ntold: %s", text, told);
    for (int i = 0; i < cti_ini_count(ini); i++) {
        const cti_ini_entry *e = cti_ini_at(ini, i);
        sprintf(left + strlen(left), "%s/%s=%s|", e->section, e->key, e->value);
    }
    cr_assert_str_eq(left, entries);
    cti_ini_free(ini);
    cr_assert_eq(cti_ini_parse(m, text, bytes, NULL, NULL, &ini), CT_ECONFIG);
    cti_ini_free(ini);
}

#define READ(text)                    read_right(text, sizeof(text) - 1)
#define MISTAKES(text, want, entries) expect_mistakes(text, sizeof(text) - 1, want, entries)

static void expect_entry(const cti_ini *ini, int i, const char *section, const char *key,
                         const char *value, int line, int column, int value_line, int value_column)
{
    const cti_ini_entry *e = cti_ini_at(ini, i);

    cr_assert_not_null(e, "entry %d", i);
    cr_assert_str_eq(e->section, section);
    cr_assert_str_eq(e->key, key);
    cr_assert_str_eq(e->value, value);
    cr_assert(e->line == line && e->column == column, "%s: %d:%d", key, e->line, e->column);
    cr_assert(e->value_line == value_line && e->value_column == value_column, "%s: value %d:%d",
              key, e->value_line, e->value_column);
}

static void expect_value(const char *text, const char *value)
{
    cti_ini *ini = read_right(text, strlen(text));

    cr_assert_eq(cti_ini_count(ini), 1);
    cr_assert_str_eq(cti_ini_at(ini, 0)->value, value, "of %s: %s", text,
                     cti_ini_at(ini, 0)->value);
    cti_ini_free(ini);
}

Test(base_ini, sections_keys_and_values_have_their_places)
{
    cti_ini *ini = READ("top = 1\n"
                        "\n"
                        "; a comment\n"
                        "[run]\n"
                        "name=digits\n"
                        "seed  =  42  \n"
                        "[ data.val ]  # the other set\n"
                        "path = a b\n"
                        "[empty]\n"
                        "[run]\n"
                        "device =\n"
                        "eq = a=b = c");
    int line = 0;

    cr_assert_eq(cti_ini_count(ini), 6);
    expect_entry(ini, 0, "", "top", "1", 1, 1, 1, 7);
    expect_entry(ini, 1, "run", "name", "digits", 5, 1, 5, 6);
    expect_entry(ini, 2, "run", "seed", "42", 6, 1, 6, 10);
    expect_entry(ini, 3, "data.val", "path", "a b", 8, 1, 8, 8);
    expect_entry(ini, 4, "run", "device", "", 11, 1, 11, 9);
    expect_entry(ini, 5, "run", "eq", "a=b = c", 12, 1, 12, 6);
    cr_assert_null(cti_ini_at(ini, 6));
    cr_assert_null(cti_ini_at(ini, -1));
    cr_assert_eq(cti_ini_section_count(ini), 3);
    cr_assert_str_eq(cti_ini_section_at(ini, 0, &line), "run");
    cr_assert_eq(line, 4);
    cr_assert_str_eq(cti_ini_section_at(ini, 1, NULL), "data.val");
    cr_assert_str_eq(cti_ini_section_at(ini, 2, &line), "empty");
    cr_assert_eq(line, 9);
    cr_assert_null(cti_ini_section_at(ini, 3, &line));
    cr_assert_null(cti_ini_section_at(ini, -1, &line));
    cti_ini_free(ini);
    cti_ini_free(NULL);
}

Test(base_ini, a_bom_and_windows_line_ends_are_skipped)
{
    cti_ini *ini = READ("\xEF\xBB\xBF[run]\r\nname = x\r\n\r\nseed = 1\r\n");

    cr_assert_eq(cti_ini_count(ini), 2);
    expect_entry(ini, 0, "run", "name", "x", 2, 1, 2, 8);
    expect_entry(ini, 1, "run", "seed", "1", 4, 1, 4, 8);
    cti_ini_free(ini);
    ini = READ("");
    cr_assert_eq(cti_ini_count(ini), 0);
    cti_ini_free(ini);
}

Test(base_ini, comments_start_after_a_blank)
{
    expect_value("k = v ; c", "v");
    expect_value("k = v # c", "v");
    expect_value("k = v\t# c", "v");
    expect_value("k = v;c#d", "v;c#d");
    expect_value("k = #c", "");
    expect_value("k =#c", "#c");
    expect_value("k = a ; b # c", "a");
    expect_value("# k = 1\n  ; k = 2\nk = 3", "3");
}

Test(base_ini, quotes_keep_blanks_comment_signs_and_escapes)
{
    expect_value("k = \"  a ; b # c  \"", "  a ; b # c  ");
    expect_value("k = \"\"", "");
    expect_value("k = \"a\" ; c", "a");
    expect_value("k = \"a\"# c", "a");
    expect_value("k = \"a\\\"b\\\\c\\nd\\te\\rf\\x1bg\\xC3\\xa9\"", "a\"b\\c\nd\te\rf\x1Bgé");
    expect_value("k = \"a\tb\"", "a\tb");
}

Test(base_ini, quotes_in_the_middle_stay_and_hide_comment_signs)
{
    expect_value("k = f(\"a ; b\", 2) ; c", "f(\"a ; b\", 2)");
    expect_value("k = 5\" disk ; c", "5\" disk");
    expect_value("k = a\\nb", "a\\nb");
}

Test(base_ini, indented_lines_continue_a_value)
{
    cti_ini *ini = READ("[model]\n"
                        "layers = conv2d(8, 3)   ; first\n"
                        "    relu\n"
                        "\n"
                        "# not this: batchnorm2d\n"
                        "    ; nor this\n"
                        "\tlinear(10)\n"
                        "    [x] y = z\n"
                        "name = layers\n"
                        "late =\n"
                        "  # nothing yet\n"
                        "  \" a \"\n"
                        "  b\n");

    cr_assert_eq(cti_ini_count(ini), 3);
    expect_entry(ini, 0, "model", "layers", "conv2d(8, 3)\nrelu\nlinear(10)\n[x] y = z", 2, 1, 2,
                 10);
    expect_entry(ini, 1, "model", "name", "layers", 9, 1, 9, 8);
    expect_entry(ini, 2, "model", "late", " a \nb", 10, 1, 12, 3);
    cti_ini_free(ini);
}

Test(base_ini, keys_indented_alike_are_keys_and_deeper_lines_continue)
{
    cti_ini *ini = READ("[model]\n"
                        "  a = 1\n"
                        "  b = 2\n"
                        "    more\n"
                        " c = 3\n"
                        "  d(x=4)\n"
                        " [next]\n"
                        "  e = 5\n");

    cr_assert_eq(cti_ini_count(ini), 4);
    expect_entry(ini, 0, "model", "a", "1", 2, 3, 2, 7);
    expect_entry(ini, 1, "model", "b", "2\nmore", 3, 3, 3, 7);
    expect_entry(ini, 2, "model", "c", "3\nd(x=4)", 5, 2, 5, 6);
    expect_entry(ini, 3, "next", "e", "5", 8, 3, 8, 7);
    cti_ini_free(ini);
}

Test(base_ini, a_place_inside_a_long_value_is_found)
{
    cti_ini *ini = READ("a = xy\n"
                        "layers = conv2d(8, 3) relu\n"
                        "  ; between\n"
                        "    linear(10)\n"
                        "q = \"quoted\"\n"
                        "e =\n");
    int line, column;

    cti_ini_locate(ini, 1, 13, &line, &column); /* relu */
    cr_assert(line == 2 && column == 23, "%d:%d", line, column);
    cti_ini_locate(ini, 1, 18 + 7, &line, &column); /* 10 */
    cr_assert(line == 4 && column == 12, "%d:%d", line, column);
    cti_ini_locate(ini, 0, 1, &line, &column);
    cr_assert(line == 1 && column == 6, "%d:%d", line, column);
    cti_ini_locate(ini, 2, 1, &line, &column);
    cr_assert(line == 5 && column == 7, "%d:%d", line, column);
    cti_ini_locate(ini, 3, 0, &line, &column);
    cr_assert(line == 6 && column == 4, "%d:%d", line, column);
    cti_ini_free(ini);
}

Test(base_ini, values_have_any_length)
{
    size_t n = 300000;
    char *text = malloc(n + 5);
    cti_ini *ini;

    memcpy(text, "k = ", 4);
    memset(text + 4, 'x', n);
    ini = read_right(text, n + 4);
    cr_assert_eq(strlen(cti_ini_at(ini, 0)->value), n);
    cti_ini_free(ini);
    free(text);
}

Test(base_ini, all_mistakes_of_a_file_are_reported)
{
    MISTAKES("[run\n"
             "name = a\n"
             "no equals\n"
             "= 3\n"
             "bad key = 1\n"
             "seed = \"1\n"
             "last = 5",
             "1:1: this section header has no ']'\n"
             "3:1: no '=' in this line: expected key = value, or [section]\n"
             "4:1: no key before the '='\n"
             "5:4: ' ' in a key: letters, digits, '_', '-' and '.' make a key\n"
             "6:8: this quote has no end on its line\n",
             "run/name=a|run/last=5|");
}

Test(base_ini, wrong_headers_are_reported)
{
    MISTAKES("[]\nlost = 1\n[a]\nk = 1", "1:1: a section without a name\n", "a/k=1|");
    MISTAKES("[ ; x", "1:1: this section header has no ']'\n1:1: a section without a name\n", "");
    MISTAKES("[data val]\nlost = \"\n[a]\nk = 1",
             "1:6: ' ' in a section's name: letters, digits, '_', '-' and '.' make a name\n"
             "2:8: this quote has no end on its line\n",
             "a/k=1|");
    MISTAKES("[a] k = 1\nj = 2",
             "1:5: text after the section header: the keys go in lines of their own\n", "a/j=2|");
    MISTAKES("[d\xC3\xA9j\xC3\xA0]",
             "1:3: 'é' in a section's name: letters, digits, '_', '-' and '.' make a name\n", "");
}

Test(base_ini, wrong_lines_take_their_continuation_along)
{
    MISTAKES("layers conv\n  relu\n  linear\nk = 1",
             "1:1: no '=' in this line: expected key = value, or [section]\n", "/k=1|");
    MISTAKES("key: value", "1:1: no '=' in this line: expected key = value, or [section]\n", "");
    MISTAKES("key # = value", "1:1: no '=' in this line: expected key = value, or [section]\n", "");
    MISTAKES("a = 1\n  \"x\n  b\nk = 1", "2:3: this quote has no end on its line\n", "/k=1|");
}

Test(base_ini, keys_indented_by_mistake_do_not_vanish_in_the_value_before)
{
    MISTAKES(
        "[run]\nname = a\n  seed = 1\n  device=cpu\nk = 1",
        "3:3: this is indented, so it continues the value of line 2: give a key of its own the "
        "indentation of the others, or quote the line\n"
        "4:3: this is indented, so it continues the value of line 2: give a key of its own the "
        "indentation of the others, or quote the line\n",
        "run/k=1|");
    expect_value("k = a\n  \"seed = 1\"", "a\nseed = 1");
}

Test(base_ini, wrong_quotes_are_reported)
{
    MISTAKES("a = \"x\" y",
             "1:9: text after the closing quote: quote the whole value, with \\\" inside\n", "");
    MISTAKES("a = \"x\\qy\"",
             "1:7: unknown escape: a backslash and 'q'; in quotes there are "
             "\\\" \\\\ \\n \\t \\r \\xHH\n",
             "");
    MISTAKES(
        "a = \"x\\",
        "1:7: unknown escape: a backslash and the end of the line; in quotes there are \\\" \\\\ "
        "\\n \\t \\r \\xHH\n",
        "");
    MISTAKES("a = \"\\x00\"\nb = \"\\x1\"",
             "1:6: unknown escape: a backslash and 'x'; in quotes there are "
             "\\\" \\\\ \\n \\t \\r \\xHH\n"
             "2:6: unknown escape: a backslash and 'x'; in quotes there are "
             "\\\" \\\\ \\n \\t \\r \\xHH\n",
             "");
}

Test(base_ini, bytes_that_no_text_has_are_reported)
{
    MISTAKES("a = \xE4\nb = 2", "1:5: byte 0xe4 is not UTF-8: save the file as UTF-8\n", "/b=2|");
    MISTAKES("# \xE4\nb = 2", "1:3: byte 0xe4 is not UTF-8: save the file as UTF-8\n", "/b=2|");
    MISTAKES("a = 1\n  \x01\nb = 2",
             "2:3: control character 0x01: in quotes it can be written \\x01\n", "/b=2|");
    MISTAKES("a = 1\rb = 2\r\n", "1:6: control character 0x0d: in quotes it can be written \\x0d\n",
             "");
    MISTAKES("a = 1\nb\x7f = 2", "2:2: control character 0x7f: in quotes it can be written \\x7f\n",
             "/a=1|");
    MISTAKES("a = 1\nb = \0 2\nc = 3", "2:5: a zero byte: this is not a text file\n", "/a=1|");
    MISTAKES("\xFF\xFE[\0r\0]\0", "1:1: the file is UTF-16: save it as UTF-8\n", "");
}

Test(base_ini, each_allocation_failing_is_out_of_memory_and_leaks_nothing)
{
    static const char text[] = "top = 1\n[a]\nk = long enough a value to grow its buffer\n  more\n"
                               "[b]\n[c]\nbad\nx = \"1\"\n";
    cti_ini *ini;
    int r;

    for (uint64_t n = 1;; n++) {
        cti_mem_fail_at(m, n, false);
        r = cti_ini_parse(m, text, sizeof text - 1, NULL, NULL, &ini);
        if (!cti_mem_failed(m))
            break;
        cr_assert_eq(r, CT_ENOMEM);
        cr_assert_null(ini);
        cr_assert_eq(cti_mem_get_stats(m).live_blocks, 0);
    }
    cr_assert_eq(r, CT_ECONFIG);
    cr_assert_eq(cti_ini_count(ini), 3);
    cti_ini_free(ini);
}

/* ---- writing values ---- */

static void expect_quoted(const char *value, const char *want)
{
    char out[2000], text[2100];
    int n = cti_ini_quote(out, sizeof out, value);

    if (want)
        cr_assert_str_eq(out, want);
    cr_assert_eq((size_t)n, strlen(out));
    snprintf(text, sizeof text, "k = %s\n", out);
    expect_value(text, value);
    cr_assert_eq(cti_ini_quote(NULL, 0, value), n);
}

Test(base_ini, values_are_quoted_only_when_needed)
{
    expect_quoted("", "");
    expect_quoted("plain text, (1, 2) a=b;c#d 5\" é", "plain text, (1, 2) a=b;c#d 5\" é");
    expect_quoted("f(\"x\")", "f(\"x\")");
    expect_quoted(" a", "\" a\"");
    expect_quoted("a\t", "\"a\\t\"");
    expect_quoted("#fff", "\"#fff\"");
    expect_quoted("a ; b", "\"a ; b\"");
    expect_quoted("f(\"a ; b\")", "\"f(\\\"a ; b\\\")\"");
    expect_quoted("\"a\"", "\"\\\"a\\\"\"");
    expect_quoted("a\\b", "a\\b");
    expect_quoted("\\ ", "\"\\\\ \"");
    expect_quoted("a\x01\x7f\xFF\r", "\"a\\x01\\x7f\\xff\\r\"");
    expect_quoted("conv\nrelu", "conv\n    relu");
    expect_quoted("conv\n[relu]\n(a=b)", "conv\n    [relu]\n    (a=b)");
    expect_quoted("a=b\nc", "a=b\n    c");
    expect_quoted("c\na=b", "\"c\\na=b\"");
    expect_quoted("conv\n\nrelu", "\"conv\\n\\nrelu\"");
    expect_quoted("conv\n", "\"conv\\n\"");
    expect_quoted("\nconv", "\"\\nconv\"");
    expect_quoted("conv\n # relu", "\"conv\\n # relu\"");
    expect_quoted("conv\n#relu", "\"conv\\n#relu\"");
}

Test(base_ini, any_value_comes_back_equal)
{
    static const char parts[][5] = {"a", " ", "\n", "\"", "\\",   "#",    ";",    "\t",
                                    "=", "[", "\r", "é",  "\xFF", "\x01", "\x7f", "😀"};
    uint32_t x = 1;

    for (int i = 0; i < 20000; i++) {
        char value[64] = "";
        for (int n = i % 9; n > 0; n--) {
            x = x * 1664525 + 1013904223;
            strcat(value, parts[x >> 28]);
        }
        expect_quoted(value, NULL);
    }
}

Test(base_ini, quoting_into_little_room_counts_on)
{
    char out[6] = "xxxxx";

    cr_assert_eq(cti_ini_quote(out, 4, "abcdef"), 6);
    cr_assert_str_eq(out, "abc");
    cr_assert_eq(out[4], 'x');
}

/* ---- did you mean ---- */

Test(base_ini, edit_distance_counts_changes_swaps_once)
{
    static const struct {
        const char *a, *b;
        int limit, want;
    } c[] = {
        {"", "", 3, 0},
        {"lr", "lr", 3, 0},
        {"LR", "lr", 3, 0},
        {"lr", "", 3, 2},
        {"momentum", "momentun", 3, 1},
        {"epochs", "epohcs", 3, 1},
        {"seed", "sed", 3, 1},
        {"sed", "seed", 3, 1},
        {"kitten", "sitting", 3, 3},
        {"kitten", "sitting", 2, 3},
        {"abc", "xyz", 1, 2},
        {"a", "abcdef", 3, 4},
        {"ab", "ba", 3, 1},
        {"ca", "abc", 5, 3},
        {"a", "b", 0, 1},
        {"a", "a", 0, 0},
        {"a", "b", -5, 1},
        {"batch_size", "batchsize", 2, 1},
    };
    char longer[200];

    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        cr_assert_eq(cti_edit_distance(c[i].a, c[i].b, c[i].limit), c[i].want, "%s %s", c[i].a,
                     c[i].b);
        cr_assert_eq(cti_edit_distance(c[i].b, c[i].a, c[i].limit), c[i].want, "%s %s", c[i].b,
                     c[i].a);
    }
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    cr_assert_eq(cti_edit_distance(longer, longer, 2), 3, "too long to be a slip");
    longer[64] = '\0';
    cr_assert_eq(cti_edit_distance(longer, longer, 2), 0);
}
