/* SPDX-License-Identifier: Apache-2.0 */
/* Reading; writing values and did-you-mean are in ini_text.c. */
#include "base/ini.h"

#include "base/error.h"
#include "base/utf8.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct section {
    char *name;
    int line;
} section;

/* Where a line of a value stands in the text. */
typedef struct place {
    size_t entry, offset; /* in the value */
    int line, column;
} place;

struct cti_ini {
    cti_mem *m;
    cti_ini_entry *entries;
    section *sections;
    place *places;
    size_t n_entries, cap_entries, n_sections, cap_sections, n_places, cap_places;
};

typedef struct parser {
    cti_ini *ini;
    cti_ini_mistake fn;
    void *user;
    bool mistakes, out_of_memory;

    int line;
    const char *start, *end; /* of this line, without its end */

    const char *section;
    bool skip_section; /* its header was unreadable: nobody knows whose these keys are */

    /* The entry whose value may go on: -1, or how far its key is indented. A broken one takes its
     * lines too, so that one mistake is not reported for each of them. */
    int indent;
    bool broken;
    cti_ini_entry entry;
    char *value;
    size_t n_value, cap_value;
    bool has_text; /* a first line is in the value already */
} parser;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_comment(char c)
{
    return c == ';' || c == '#';
}

static int column_of(const parser *p, const char *at)
{
    ptrdiff_t column = at - p->start + 1;

    return column < INT_MAX ? (int)column : INT_MAX;
}

static void mistake(parser *p, const char *at, const char *fmt, ...) CT_PRINTF(3, 4);
static void mistake(parser *p, const char *at, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->mistakes = true;
    if (p->fn)
        p->fn(p->line, column_of(p, at), text, p->user);
}

/* A character for a message: itself, or its bytes when it would not show. */
static const char *shown(const char *at, const char *end, char out[8])
{
    int n = cti_utf8_length((const unsigned char *)at, (size_t)(end - at));

    if (n > 0 && (unsigned char)*at >= 0x20 && *at != 0x7f)
        snprintf(out, 8, "'%.*s'", n, at);
    else
        snprintf(out, 8, "0x%02x", (unsigned)(unsigned char)*at);
    return out;
}

static bool put(parser *p, char c)
{
    void *value = p->value;

    if (cti_grow(p->ini->m, &value, &p->cap_value, p->n_value + 2, 1, "cti_ini_parse") < 0) {
        p->out_of_memory = true;
        return false;
    }
    p->value = value;
    p->value[p->n_value++] = c;
    p->value[p->n_value] = '\0';
    return true;
}

/* ---- entries ---- */

static void open_entry(parser *p, const char *at, bool broken)
{
    p->indent = column_of(p, at) - 1;
    p->broken = broken;
    p->n_value = 0;
    p->has_text = false;
    memset(&p->entry, 0, sizeof p->entry);
    p->entry.line = p->line;
    p->entry.column = column_of(p, at);
}

static void close_entry(parser *p)
{
    cti_ini *ini = p->ini;
    void *entries = ini->entries;

    if (p->indent >= 0 && !p->broken && !p->skip_section) {
        p->entry.section = p->section;
        p->entry.value = cti_strdup(ini->m, p->n_value ? p->value : "");
        if (!p->entry.value || cti_grow(ini->m, &entries, &ini->cap_entries, ini->n_entries + 1,
                                        sizeof *ini->entries, "cti_ini_parse") < 0) {
            p->out_of_memory = true;
            cti_free(ini->m, (char *)p->entry.value);
        } else {
            ini->entries = entries;
            ini->entries[ini->n_entries++] = p->entry;
            p->entry.key = NULL;
        }
    }
    while (ini->n_places > 0 && ini->places[ini->n_places - 1].entry == ini->n_entries)
        ini->n_places--; /* those of an entry that was not kept */
    cti_free(ini->m, (char *)p->entry.key);
    memset(&p->entry, 0, sizeof p->entry);
    p->indent = -1;
}

static void note_place(parser *p, const char *at)
{
    cti_ini *ini = p->ini;
    void *places = ini->places;

    if (cti_grow(ini->m, &places, &ini->cap_places, ini->n_places + 1, sizeof *ini->places,
                 "cti_ini_parse") < 0) {
        p->out_of_memory = true;
        return;
    }
    ini->places = places;
    ini->places[ini->n_places++] = (place){ini->n_entries, p->n_value, p->line, column_of(p, at)};
}

/* ---- values ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* `s` is at the backslash; returns what follows the escape, or NULL after a mistake. */
static const char *take_escape(parser *p, const char *s)
{
    static const char names[] = "\"\\ntr", meant[] = "\"\\\n\t\r";
    const char *known = s + 1 < p->end ? strchr(names, s[1]) : NULL;
    char c[8];

    if (known)
        return put(p, meant[known - names]) ? s + 2 : NULL;
    if (p->end - s >= 4 && s[1] == 'x' && hex_digit(s[2]) >= 0 && hex_digit(s[3]) >= 0) {
        int byte = hex_digit(s[2]) * 16 + hex_digit(s[3]);
        if (byte > 0)
            return put(p, (char)byte) ? s + 4 : NULL;
    }
    mistake(p, s,
            "unknown escape: a backslash and %s; in quotes there are \\\" \\\\ \\n \\t \\r \\xHH",
            s + 1 < p->end ? shown(s + 1, p->end, c) : "the end of the line");
    return NULL;
}

static bool take_quoted(parser *p, const char *quote)
{
    const char *s = quote + 1;

    while (s && s < p->end && *s != '"') {
        if (*s == '\\')
            s = take_escape(p, s);
        else
            s = put(p, *s) ? s + 1 : NULL;
    }
    if (!s)
        return false;
    if (s == p->end) {
        mistake(p, quote, "this quote has no end on its line");
        return false;
    }
    s++;
    while (s < p->end && is_blank(*s))
        s++;
    if (s < p->end && !is_comment(*s)) {
        mistake(p, s, "text after the closing quote: quote the whole value, with \\\" inside");
        return false;
    }
    return true;
}

/* To the end or a comment; quotes in the middle are part of the text but hide comment signs. */
static const char *plain_end(const parser *p, const char *s)
{
    const char *end = s;

    while (s < p->end && !(is_comment(*s) && is_blank(s[-1]))) {
        const char *close = *s == '"' ? memchr(s + 1, '"', (size_t)(p->end - s - 1)) : NULL;
        s = close ? close + 1 : s + 1;
        if (!is_blank(s[-1]))
            end = s;
    }
    return end;
}

/* One line of a value, from `s` on. There is a character before `s` in the line. */
static void take_value(parser *p, const char *s)
{
    const char *from = s;
    bool quoted, empty;

    while (s < p->end && is_blank(*s))
        s++;
    quoted = s < p->end && *s == '"';
    empty = s == p->end || (is_comment(*s) && s > from);
    if (!p->has_text) {
        p->entry.value_line = p->line;
        p->entry.value_column = column_of(p, s);
    } else if (!empty && !put(p, '\n')) {
        return;
    }
    if (empty)
        return;
    p->has_text = true;
    note_place(p, quoted ? s + 1 : s);
    if (quoted) {
        p->broken |= !take_quoted(p, s);
        return;
    }
    for (const char *end = plain_end(p, s); s < end; s++)
        if (!put(p, *s))
            return;
}

/* ---- lines ---- */

static void take_key(parser *p, const char *s)
{
    const char *equals = s, *end, *bad;
    char c[8];

    while (equals < p->end && *equals != '=' &&
           !(equals > s && is_comment(*equals) && is_blank(equals[-1])))
        equals++;
    if (equals == p->end || *equals != '=') {
        mistake(p, s, "no '=' in this line: expected key = value, or [section]");
        open_entry(p, s, true);
        return;
    }
    end = equals;
    while (end > s && is_blank(end[-1]))
        end--;
    bad = s + cti_ini_name_length(s, (size_t)(end - s));
    if (end == s)
        mistake(p, s, "no key before the '='");
    else if (bad < end)
        mistake(p, bad, "%s in a key: letters, digits, '_', '-' and '.' make a key",
                shown(bad, end, c));
    open_entry(p, s, end == s || bad < end);
    if (p->broken)
        return;
    char *key = cti_alloc(p->ini->m, (size_t)(end - s) + 1, "cti_ini_parse");
    if (!key) {
        p->out_of_memory = true;
        return;
    }
    memcpy(key, s, (size_t)(end - s));
    p->entry.key = key;
    take_value(p, equals + 1);
}

/* Adds the section unless it is known; NULL when out of memory. */
static const char *note_section(parser *p, const char *s, size_t n)
{
    cti_ini *ini = p->ini;
    void *sections = ini->sections;
    char *name;

    for (size_t i = 0; i < ini->n_sections; i++)
        if (strlen(ini->sections[i].name) == n && memcmp(ini->sections[i].name, s, n) == 0)
            return ini->sections[i].name;
    if (cti_grow(ini->m, &sections, &ini->cap_sections, ini->n_sections + 1, sizeof *ini->sections,
                 "cti_ini_parse") < 0)
        return NULL;
    ini->sections = sections;
    name = cti_alloc(ini->m, n + 1, "cti_ini_parse");
    if (!name)
        return NULL;
    memcpy(name, s, n);
    ini->sections[ini->n_sections++] = (section){name, p->line};
    return name;
}

static void take_header(parser *p, const char *open)
{
    const char *s = open + 1, *close = s, *end, *bad, *rest;
    char c[8];

    while (close < p->end && *close != ']' && !(is_comment(*close) && is_blank(close[-1])))
        close++;
    if (close == p->end || *close != ']')
        mistake(p, open, "this section header has no ']'");
    while (s < close && is_blank(*s))
        s++;
    for (end = close; end > s && is_blank(end[-1]);)
        end--;
    bad = s + cti_ini_name_length(s, (size_t)(end - s));
    if (end == s)
        mistake(p, open, "a section without a name");
    else if (bad < end)
        mistake(p, bad, "%s in a section's name: letters, digits, '_', '-' and '.' make a name",
                shown(bad, end, c));
    p->skip_section = end == s || bad < end;
    rest = close < p->end ? close + 1 : close;
    while (rest < p->end && is_blank(*rest))
        rest++;
    if (close < p->end && *close == ']' && rest < p->end && !is_comment(*rest))
        mistake(p, rest, "text after the section header: the keys go in lines of their own");
    if (p->skip_section)
        return;
    p->section = note_section(p, s, (size_t)(end - s));
    if (!p->section)
        p->out_of_memory = true;
}

/* False, after a mistake, when the line has bytes that a text may not have. */
static bool check_bytes(parser *p)
{
    const char *s = p->start;

    while (s < p->end) {
        size_t left = (size_t)(p->end - s);
        int n = cti_utf8_length((const unsigned char *)s, left);
        if (n == 0) {
            mistake(p, s, "byte 0x%02x is not UTF-8: save the file as UTF-8",
                    (unsigned)(unsigned char)*s);
            return false;
        }
        if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7f) {
            mistake(p, s, "control character 0x%02x: in quotes it can be written \\x%02x",
                    (unsigned)*s, (unsigned)*s);
            return false;
        }
        s += n;
    }
    return true;
}

static void take_line(parser *p)
{
    const char *s = p->start;
    bool readable;

    while (s < p->end && is_blank(*s))
        s++;
    if (s == p->end)
        return;
    readable = check_bytes(p);
    if (is_comment(*s))
        return;
    if (p->indent >= 0 && s - p->start > p->indent) {
        if (readable && cti_ini_is_key_line(s, (size_t)(p->end - s))) {
            mistake(p, s,
                    "this is indented, so it continues the value of line %d: give a key of its own "
                    "the indentation of the others, or quote the line",
                    p->entry.line);
            readable = false;
        }
        p->broken |= !readable;
        if (!p->broken)
            take_value(p, s);
        return;
    }
    close_entry(p);
    if (!readable)
        open_entry(p, s, true);
    else if (*s == '[')
        take_header(p, s);
    else
        take_key(p, s);
}

static void take_text(parser *p, const char *text, size_t bytes)
{
    const char *all_end = text + bytes, *next = text;

    while (next < all_end && !p->out_of_memory) {
        const char *feed = memchr(next, '\n', (size_t)(all_end - next));
        p->start = next;
        p->end = feed ? feed : all_end;
        next = feed ? feed + 1 : all_end;
        p->line += p->line < INT_MAX;
        const char *zero = memchr(p->start, '\0', (size_t)(p->end - p->start));
        if (zero) {
            mistake(p, zero, "a zero byte: this is not a text file");
            break;
        }
        if (p->end > p->start && p->end[-1] == '\r')
            p->end--;
        take_line(p);
    }
    close_entry(p);
}

int cti_ini_parse(cti_mem *m, const char *text, size_t bytes, cti_ini_mistake fn, void *user,
                  cti_ini **out)
{
    parser p = {.fn = fn, .user = user, .section = "", .indent = -1};

    *out = NULL;
    p.ini = cti_alloc(m, sizeof *p.ini, "cti_ini_parse");
    if (!p.ini)
        return CT_ENOMEM;
    p.ini->m = m;
    if (bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0)) {
        p.line = 1;
        p.start = text;
        mistake(&p, text, "the file is UTF-16: save it as UTF-8");
    } else {
        size_t bom = bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        take_text(&p, text + bom, bytes - bom);
    }
    cti_free(m, p.value);
    if (p.out_of_memory) {
        cti_ini_free(p.ini);
        return CT_ENOMEM;
    }
    *out = p.ini;
    return p.mistakes ? CT_ECONFIG : CT_OK;
}

void cti_ini_free(cti_ini *ini)
{
    if (!ini)
        return;
    for (size_t i = 0; i < ini->n_entries; i++) {
        cti_free(ini->m, (char *)ini->entries[i].key);
        cti_free(ini->m, (char *)ini->entries[i].value);
    }
    for (size_t i = 0; i < ini->n_sections; i++)
        cti_free(ini->m, ini->sections[i].name);
    cti_free(ini->m, ini->entries);
    cti_free(ini->m, ini->sections);
    cti_free(ini->m, ini->places);
    cti_free(ini->m, ini);
}

int cti_ini_count(const cti_ini *ini)
{
    return (int)ini->n_entries;
}

const cti_ini_entry *cti_ini_at(const cti_ini *ini, int i)
{
    return i >= 0 && (size_t)i < ini->n_entries ? &ini->entries[i] : NULL;
}

int cti_ini_section_count(const cti_ini *ini)
{
    return (int)ini->n_sections;
}

const char *cti_ini_section_at(const cti_ini *ini, int i, int *line)
{
    if (i < 0 || (size_t)i >= ini->n_sections)
        return NULL;
    if (line)
        *line = ini->sections[i].line;
    return ini->sections[i].name;
}

void cti_ini_locate(const cti_ini *ini, int i, size_t offset, int *line, int *column)
{
    const cti_ini_entry *e = cti_ini_at(ini, i);
    const place *found = NULL;

    for (size_t k = 0; k < ini->n_places; k++)
        if (ini->places[k].entry == (size_t)i && ini->places[k].offset <= offset)
            found = &ini->places[k];
    *line = found ? found->line : e->value_line;
    *column = found ? found->column + (int)(offset - found->offset) : e->value_column;
}
