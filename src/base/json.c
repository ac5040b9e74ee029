/* SPDX-License-Identifier: Apache-2.0 */
/* Reading. cJSON builds the tree, but takes more than RFC 8259 does (control characters, "01",
 * broken UTF-8, \u0000, a key twice) and says little about a mistake. So a scanner of our own goes
 * over the text first; writing is in json_write.c. */
#include "base/json.h"

#include "base/error.h"
#include "base/utf8.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXACT 9007199254740992.0 /* 2^53 */

typedef struct scanner {
    const unsigned char *text;
    size_t n, at;
    const char *why; /* what is wrong at `at`; NULL: nothing */
    long keys;       /* seen so far */
    long wanted_key; /* put the place of this one (from 0) in key_at; -1: none */
    size_t key_at;
} scanner;

static bool mistake(scanner *s, const char *why)
{
    if (!s->why)
        s->why = why;
    return false;
}

static int peek(const scanner *s)
{
    return s->at < s->n ? s->text[s->at] : -1;
}

static void skip_blanks(scanner *s)
{
    int c;

    while ((c = peek(s)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        s->at++;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static int hex_digit(int c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits after \u, or -1. */
static long scan_hex4(scanner *s)
{
    long v = 0;

    for (int i = 0; i < 4; i++, s->at++) {
        int d = hex_digit(peek(s));
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static bool scan_escape(scanner *s)
{
    size_t start = s->at++; /* the backslash */
    int c = peek(s);
    long v;

    if (c >= 0 && c != 0 && strchr("\"\\/bfnrt", c)) {
        s->at++;
        return true;
    }
    if (c != 'u')
        return mistake(s, "an unknown escape in a string");
    s->at++;
    if ((v = scan_hex4(s)) < 0)
        return mistake(s, "\\u needs four hexadecimal digits");
    if (v == 0) {
        s->at = start;
        return mistake(s, "\\u0000 in a string is not supported");
    }
    if (v >= 0xD800 && v < 0xDC00 && s->at + 1 < s->n && s->text[s->at] == '\\' &&
        s->text[s->at + 1] == 'u') {
        s->at += 2;
        v = scan_hex4(s);
        if (v >= 0xDC00 && v < 0xE000)
            return true;
        v = 0xD800;
    }
    if (v >= 0xD800 && v < 0xE000) {
        s->at = start;
        return mistake(s, "half of a surrogate pair");
    }
    return true;
}

static bool scan_string(scanner *s)
{
    size_t start = s->at++;

    for (;;) {
        int c = peek(s);
        if (c < 0) {
            s->at = start;
            return mistake(s, "this string has no end");
        }
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20)
            return mistake(s, "a control character in a string");
        if (c == '\\') {
            if (!scan_escape(s))
                return false;
            continue;
        }
        int len = cti_utf8_length(s->text + s->at, s->n - s->at);
        if (len == 0)
            return mistake(s, "a byte that is not UTF-8");
        s->at += (size_t)len;
    }
}

static bool scan_digits(scanner *s)
{
    if (!is_digit(peek(s)))
        return mistake(s, "a digit was expected");
    while (is_digit(peek(s)))
        s->at++;
    return true;
}

static bool scan_number(scanner *s)
{
    size_t start = s->at;

    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0' && s->at + 1 < s->n && is_digit(s->text[s->at + 1]))
        return mistake(s, "a number with leading zeros");
    if (!scan_digits(s))
        return false;
    if (peek(s) == '.') {
        s->at++;
        if (!scan_digits(s))
            return false;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (!scan_digits(s))
            return false;
    }
    if (s->at - start > 60) { /* cJSON's buffer has 63 */
        s->at = start;
        return mistake(s, "a number of more than 60 characters");
    }
    return true;
}

static bool scan_word(scanner *s, const char *word)
{
    size_t n = strlen(word);

    if (s->n - s->at < n || memcmp(s->text + s->at, word, n) != 0)
        return mistake(s, "a value was expected");
    s->at += n;
    return true;
}

static bool scan_value(scanner *s, int depth);

static bool scan_key(scanner *s)
{
    if (peek(s) != '"')
        return mistake(s, "a key in quotes was expected");
    if (s->keys++ == s->wanted_key)
        s->key_at = s->at;
    if (!scan_string(s))
        return false;
    skip_blanks(s);
    if (peek(s) != ':')
        return mistake(s, "':' was expected after the key");
    s->at++;
    return true;
}

static bool scan_members(scanner *s, int depth, char close, const char *expected)
{
    s->at++;
    skip_blanks(s);
    if (peek(s) == close) {
        s->at++;
        return true;
    }
    for (;;) {
        skip_blanks(s);
        if (close == '}' && !scan_key(s))
            return false;
        if (!scan_value(s, depth))
            return false;
        skip_blanks(s);
        if (peek(s) == close) {
            s->at++;
            return true;
        }
        if (peek(s) != ',')
            return mistake(s, expected);
        s->at++;
    }
}

static bool scan_value(scanner *s, int depth)
{
    skip_blanks(s);
    if (depth >= CJSON_NESTING_LIMIT)
        return mistake(s, "nested too deeply");
    switch (peek(s)) {
    case '{':
        return scan_members(s, depth + 1, '}', "',' or '}' was expected");
    case '[':
        return scan_members(s, depth + 1, ']', "',' or ']' was expected");
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case -1:
        return mistake(s, "the text ends here, a value was expected");
    default:
        if (peek(s) == '-' || is_digit(peek(s)))
            return scan_number(s);
        return mistake(s, "a value was expected");
    }
}

static bool scan_document(scanner *s)
{
    if (!scan_value(s, 0))
        return false;
    skip_blanks(s);
    if (s->at < s->n)
        return mistake(s, "more text after the end of the document");
    return true;
}

static int fail_at(ct_error *err, const char *what, const char *text, size_t at, const char *why)
{
    long line = 1;
    size_t start = 0;

    for (size_t i = 0; i < at; i++)
        if (text[i] == '\n') {
            line++;
            start = i + 1;
        }
    return cti_fail(err, CT_EFORMAT, "%s: not valid JSON at byte %zu (line %ld, column %zu): %s",
                    what, at, line, at - start + 1, why);
}

/* ---- keys that come twice ---- */

static int by_key(const void *a, const void *b)
{
    const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;

    return strcmp(x->string, y->string);
}

/* True when two members of `obj` have one name. Sorted, since a header of tensors has thousands. */
static bool has_twin(const cJSON *obj, int *out_of_memory)
{
    size_t n = (size_t)cJSON_GetArraySize(obj), i = 0;
    const cJSON **sorted;
    bool twin = false;

    if (n < 2)
        return false;
    sorted = cJSON_malloc(n * sizeof *sorted);
    if (!sorted) {
        *out_of_memory = 1;
        return false;
    }
    for (const cJSON *c = obj->child; c; c = c->next)
        sorted[i++] = c;
    qsort(sorted, n, sizeof *sorted, by_key);
    for (i = 1; i < n && !twin; i++)
        twin = strcmp(sorted[i - 1]->string, sorted[i]->string) == 0;
    cJSON_free(sorted);
    return twin;
}

/* The second of the first pair of twins below `j`, in the order of the text; *keys counts the keys
 * before it, by which the scanner finds its place again. */
static const cJSON *find_twin(const cJSON *j, long *keys, int *out_of_memory)
{
    bool twins = cJSON_IsObject(j) && has_twin(j, out_of_memory);

    if (!cJSON_IsObject(j) && !cJSON_IsArray(j))
        return NULL;
    for (const cJSON *c = j->child; c; c = c->next) {
        for (const cJSON *o = j->child; twins && o != c; o = o->next)
            if (strcmp(o->string, c->string) == 0)
                return c;
        if (cJSON_IsObject(j))
            ++*keys;
        const cJSON *found = find_twin(c, keys, out_of_memory);
        if (found || *out_of_memory)
            return found;
    }
    return NULL;
}

static int refuse_twins(const cJSON *j, const char *text, size_t bytes, const char *what,
                        ct_error *err)
{
    scanner s = {.text = (const unsigned char *)text, .n = bytes};
    int out_of_memory = 0;
    const cJSON *twin = find_twin(j, &s.wanted_key, &out_of_memory);

    if (out_of_memory)
        return cti_fail(err, CT_ENOMEM, "%s: out of memory for its JSON", what);
    if (!twin)
        return CT_OK;
    scan_document(&s);
    return fail_at(err, what, text, s.key_at, "a key that this object has already");
}

/* ---- the tree ---- */

static const cJSON *node(const cti_json *j)
{
    return (const cJSON *)(const void *)j;
}

static const cti_json *place(const cJSON *j)
{
    return (const cti_json *)(const void *)j;
}

cti_json *cti_json_parse(const char *text, size_t bytes, const char *what, ct_error *err)
{
    scanner s = {.text = (const unsigned char *)text, .n = bytes, .wanted_key = -1};
    cJSON *j;

    if (!scan_document(&s)) {
        fail_at(err, what, text, s.at, s.why);
        return NULL;
    }
    j = cJSON_ParseWithLength(text, bytes);
    if (!j) {
        cti_fail(err, CT_ENOMEM, "%s: out of memory for its JSON", what);
        return NULL;
    }
    if (refuse_twins(j, text, bytes, what, err) < 0) {
        cJSON_Delete(j);
        return NULL;
    }
    return (cti_json *)(void *)j;
}

void cti_json_free(cti_json *j)
{
    cJSON_Delete((cJSON *)(void *)j);
}

const cti_json *cti_json_get(const cti_json *obj, const char *key)
{
    return cti_json_is_object(obj) ? place(cJSON_GetObjectItemCaseSensitive(node(obj), key)) : NULL;
}

const cti_json *cti_json_at(const cti_json *arr, int i)
{
    return cti_json_is_array(arr) && i >= 0 ? place(cJSON_GetArrayItem(node(arr), i)) : NULL;
}

const cti_json *cti_json_first(const cti_json *obj_or_arr)
{
    return obj_or_arr ? place(node(obj_or_arr)->child) : NULL;
}

const cti_json *cti_json_next(const cti_json *child)
{
    return child ? place(node(child)->next) : NULL;
}

const char *cti_json_key(const cti_json *child)
{
    return child ? node(child)->string : NULL;
}

int cti_json_len(const cti_json *obj_or_arr)
{
    return obj_or_arr ? cJSON_GetArraySize(node(obj_or_arr)) : 0;
}

bool cti_json_is_object(const cti_json *j)
{
    return cJSON_IsObject(node(j));
}

bool cti_json_is_array(const cti_json *j)
{
    return cJSON_IsArray(node(j));
}

const char *cti_json_string(const cti_json *j)
{
    return cJSON_IsString(node(j)) ? node(j)->valuestring : NULL;
}

bool cti_json_i64(const cti_json *j, int64_t *out)
{
    const char *s = cti_json_string(j);
    char *end;
    long long v;

    if (cJSON_IsNumber(node(j))) {
        double d = node(j)->valuedouble;
        if (!(fabs(d) <= MAX_EXACT) || d != floor(d))
            return false;
        *out = (int64_t)d;
        return true;
    }
    if (!s || !is_digit(s[s[0] == '-']))
        return false;
    errno = 0;
    v = strtoll(s, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *out = v;
    return true;
}

bool cti_json_f64(const cti_json *j, double *out)
{
    const char *s = cti_json_string(j);

    if (cJSON_IsNumber(node(j)) && isfinite(node(j)->valuedouble))
        *out = node(j)->valuedouble;
    else if (s && strcmp(s, "nan") == 0)
        *out = NAN;
    else if (s && strcmp(s, "inf") == 0)
        *out = INFINITY;
    else if (s && strcmp(s, "-inf") == 0)
        *out = -INFINITY;
    else
        return false;
    return true;
}

bool cti_json_bool(const cti_json *j, bool *out)
{
    if (!cJSON_IsBool(node(j)))
        return false;
    *out = cJSON_IsTrue(node(j));
    return true;
}
