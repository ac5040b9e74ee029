/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ini.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Where snprintf would write: counts on when the room is used up. */
typedef struct sink {
    char *out;
    size_t cap, n;
} sink;

static void put(sink *s, char c)
{
    if (s->n + 1 < s->cap)
        s->out[s->n] = c;
    s->n++;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

size_t cti_ini_name_length(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && ((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                     (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '-' || s[i] == '.'))
        i++;
    return i;
}

bool cti_ini_is_key_line(const char *s, size_t n)
{
    size_t name = cti_ini_name_length(s, n), i = name;

    while (i < n && is_blank(s[i]))
        i++;
    return name > 0 && i < n && s[i] == '=';
}

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

/* Can this line of a value stand as it is? */
static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        int len = cti_utf8_length((const unsigned char *)s + i, n - i);
        if (len == 0 || (is_control((unsigned char)s[i]) && s[i] != '\t'))
            return false;
        if ((s[i] == ';' || s[i] == '#') && (i == 0 || is_blank(s[i - 1])))
            return false;
        i += (size_t)len;
    }
    return n == 0 || (s[0] != '"' && !is_blank(s[0]) && !is_blank(s[n - 1]));
}

static bool all_lines_plain(const char *value)
{
    for (const char *s = value;; s++) {
        size_t n = strcspn(s, "\n");
        bool only = s == value && s[n] == '\0';
        if ((n == 0 && !only) || !is_plain(s, n) || (s > value && cti_ini_is_key_line(s, n)))
            return false;
        s += n;
        if (*s == '\0')
            return true;
    }
}

int cti_ini_quote(char *out, size_t cap, const char *value)
{
    static const char hex[] = "0123456789abcdef";
    sink s = {out, cap, 0};
    bool plain = all_lines_plain(value);
    size_t n = strlen(value);

    if (!plain)
        put(&s, '"');
    for (size_t i = 0; i < n; i++) {
        static const char special[] = "\"\\\n\t\r", letters[] = "\"\\ntr";
        const char *known = strchr(special, value[i]);
        int len = cti_utf8_length((const unsigned char *)value + i, n - i);

        if (plain) {
            put(&s, value[i]);
            for (int k = 0; k < 4 && value[i] == '\n'; k++)
                put(&s, ' ');
        } else if (known) {
            put(&s, '\\');
            put(&s, letters[known - special]);
        } else if (len == 0 || is_control((unsigned char)value[i])) {
            put(&s, '\\');
            put(&s, 'x');
            put(&s, hex[(unsigned char)value[i] >> 4]);
            put(&s, hex[(unsigned char)value[i] & 15]);
        } else {
            put(&s, value[i]);
            while (--len > 0)
                put(&s, value[++i]);
        }
    }
    if (!plain)
        put(&s, '"');
    if (cap > 0)
        out[s.n < cap ? s.n : cap - 1] = '\0';
    return (int)s.n;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int cti_edit_distance(const char *a, const char *b, int limit)
{
    enum { MAX = 64 };
    int row[3][MAX + 1]; /* the one for i letters of a is row[i % 3] */
    size_t na = strlen(a), nb = strlen(b);
    size_t apart = na > nb ? na - nb : nb - na;

    if (limit < 0)
        limit = 0;
    /* Names longer than this are nobody's typing mistake. */
    if (apart > (size_t)limit || na > MAX || nb > MAX)
        return limit + 1;
    for (size_t j = 0; j <= nb; j++)
        row[0][j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *two = row[(i + 1) % 3], *one = row[(i + 2) % 3], *now = row[i % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            char x = lower(a[i - 1]), y = lower(b[j - 1]);
            int d = one[j - 1] + (x != y);
            d = least(d, least(one[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y)
                d = least(d, two[j - 2] + 1);
            now[j] = d;
        }
    }
    return least(row[na % 3][nb], limit + 1);
}
