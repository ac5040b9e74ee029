/* SPDX-License-Identifier: Apache-2.0 */
/* Writing. cJSON's printer would need a tree per line of a log, and prints integers as doubles. */
#include "base/json.h"

#include "base/error.h"
#include "base/utf8.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEVELS = 64 };

struct cti_jw {
    cti_mem *m;
    bool indent;
    bool failed; /* out of memory, or misused: no text then */
    char *text;
    size_t n, cap;
    int level;
    char close[MAX_LEVELS];
    bool filled[MAX_LEVELS + 1]; /* something is in it, at the top too */
};

cti_jw *cti_jw_new(cti_mem *m, bool indent)
{
    cti_jw *w = cti_alloc(m, sizeof *w, "cti_jw_new");

    if (!w)
        return NULL;
    w->m = m;
    w->indent = indent;
    return w;
}

void cti_jw_free(cti_jw *w)
{
    if (!w)
        return;
    cti_free(w->m, w->text);
    cti_free(w->m, w);
}

static void put(cti_jw *w, const char *s, size_t n)
{
    void *text = w->text;

    if (w->failed)
        return;
    if (cti_grow(w->m, &text, &w->cap, w->n + n + 1, 1, "cti_jw") < 0) {
        w->failed = true;
        return;
    }
    w->text = text;
    memcpy(w->text + w->n, s, n);
    w->n += n;
    w->text[w->n] = '\0';
}

static void put_text(cti_jw *w, const char *s)
{
    put(w, s, strlen(s));
}

static void put_line(cti_jw *w)
{
    if (!w->indent)
        return;
    put(w, "\n", 1);
    for (int i = 0; i < w->level; i++)
        put(w, "  ", 2);
}

static void put_string(cti_jw *w, const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = strlen(s);

    put(w, "\"", 1);
    while (n > 0) {
        static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        int len = cti_utf8_length(p, n);
        const char *c = strchr(named, *p);
        char escape[8];

        if (c) {
            put(w, "\\", 1);
            put(w, &letters[c - named], 1);
        } else if (*p < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", *p);
            put(w, escape, 6);
        } else if (len == 0) {
            put_text(w, "\xEF\xBF\xBD"); /* U+FFFD: a reader would refuse the broken byte */
        } else {
            put(w, (const char *)p, (size_t)len);
        }
        p += len ? len : 1;
        n -= len ? (size_t)len : 1;
    }
    put(w, "\"", 1);
}

/* What stands before each value. False when the call doesn't fit here: a bug of the caller's, which
 * makes the text fail instead of becoming invalid. */
static bool begin_value(cti_jw *w, const char *key)
{
    bool in_object = w->level > 0 && w->close[w->level - 1] == '}';
    bool fits = in_object == (key != NULL) && !(w->level == 0 && w->filled[0]);

    assert(fits && "a key in objects and only there, one value at the top");
    if (!fits) {
        w->failed = true;
        return false;
    }
    if (w->filled[w->level])
        put(w, ",", 1);
    w->filled[w->level] = true;
    if (w->level > 0)
        put_line(w);
    if (key) {
        put_string(w, key);
        put_text(w, w->indent ? ": " : ":");
    }
    return true;
}

static void open_level(cti_jw *w, const char *key, const char *open, char close)
{
    if (!begin_value(w, key))
        return;
    assert(w->level < MAX_LEVELS);
    if (w->level == MAX_LEVELS) {
        w->failed = true;
        return;
    }
    put_text(w, open);
    w->close[w->level++] = close;
    w->filled[w->level] = false;
}

void cti_jw_object(cti_jw *w, const char *key)
{
    open_level(w, key, "{", '}');
}

void cti_jw_array(cti_jw *w, const char *key)
{
    open_level(w, key, "[", ']');
}

void cti_jw_end(cti_jw *w)
{
    bool filled;

    assert(w->level > 0 && "nothing to end");
    if (w->level == 0) {
        w->failed = true;
        return;
    }
    filled = w->filled[w->level--];
    if (filled)
        put_line(w);
    put(w, &w->close[w->level], 1);
}

void cti_jw_string(cti_jw *w, const char *key, const char *value)
{
    if (!begin_value(w, key))
        return;
    if (value)
        put_string(w, value);
    else
        put_text(w, "null");
}

void cti_jw_i64(cti_jw *w, const char *key, int64_t value)
{
    const int64_t exact = (int64_t)1 << 53;
    bool quoted = value > exact || value < -exact; /* a reader with doubles would round it */
    char text[32];

    snprintf(text, sizeof text, quoted ? "\"%" PRId64 "\"" : "%" PRId64, value);
    if (begin_value(w, key))
        put_text(w, text);
}

void cti_jw_u64_hex(cti_jw *w, const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "\"%016" PRIx64 "\"", value);
    if (begin_value(w, key))
        put_text(w, text);
}

/* snprintf follows the application's locale, whose decimal point may be any bytes. */
static void use_dot(char *text)
{
    size_t digits = strspn(text, "-0123456789"), point;

    if (text[digits] == '\0' || text[digits] == 'e')
        return;
    point = strcspn(text + digits, "0123456789e");
    text[digits] = '.';
    memmove(text + digits + 1, text + digits + point, strlen(text + digits + point) + 1);
}

void cti_jw_f64(cti_jw *w, const char *key, double value)
{
    char text[64];
    /* 15 digits always come back as written, so fewer needn't be tried but for denormal numbers. */
    int digits = fabs(value) < DBL_MIN ? 1 : 15;

    if (!isfinite(value)) {
        cti_jw_string(w, key, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    do
        snprintf(text, sizeof text, "%.*g", digits, value);
    while (digits++ < 17 && strtod(text, NULL) != value);
    use_dot(text);
    if (begin_value(w, key))
        put_text(w, text);
}

void cti_jw_bool(cti_jw *w, const char *key, bool value)
{
    if (begin_value(w, key))
        put_text(w, value ? "true" : "false");
}

const char *cti_jw_text(cti_jw *w, size_t *bytes)
{
    assert(w->failed || (w->level == 0 && w->filled[0]));
    if (w->failed || w->level > 0 || !w->filled[0])
        return NULL;
    if (bytes)
        *bytes = w->n;
    return w->text;
}

void cti_jw_reset(cti_jw *w)
{
    w->n = 0;
    w->level = 0;
    w->filled[0] = false;
    w->failed = false;
}
