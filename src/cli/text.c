/* SPDX-License-Identifier: Apache-2.0 */
/* Text out: results to stdout, the rest to stderr, each line of it marked. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_error; /* errno of the first failed write to stdout */

void cli_out(const char *fmt, ...)
{
    va_list args;

    if (out_error)
        return;
    errno = 0;
    va_start(args, fmt);
    if (vprintf(fmt, args) < 0)
        out_error = errno ? errno : EIO;
    va_end(args);
}

void cli_out_flush(void)
{
    errno = 0;
    if (!out_error && fflush(stdout) == EOF)
        out_error = errno ? errno : EIO;
}

int cli_out_error(void)
{
    return out_error;
}

bool cli_is_terminal(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

bool cli_may_colour(int fd)
{
    const char *no = getenv("NO_COLOR");

    return cli_is_terminal(fd) && !(no && no[0]);
}

/* File names and values may hold anything: nothing of it may steer a terminal. */
static void put_line(const char *mark, const char *colour, const char *text, size_t n)
{
    char line[2304];
    size_t used = (size_t)snprintf(line, sizeof line, "ctrain: %s%s%s", colour, mark,
                                   colour[0] ? "\033[0m" : "");

    for (size_t i = 0; i < n && used + 2 < sizeof line; i++) {
        unsigned char c = (unsigned char)text[i];
        line[used++] = (c < 0x20 && c != '\t') || c == 0x7f ? '?' : (char)c;
    }
    line[used++] = '\n';
    fwrite(line, 1, used, stderr);
}

static void put_lines(const char *mark, const char *colour, const char *text)
{
    cli_out_flush(); /* what was said before stands before */
    for (;;) {
        size_t n = strcspn(text, "\n");
        put_line(mark, cli_may_colour(2) ? colour : "", text, n);
        if (text[n] == '\0')
            return;
        text += n + 1;
    }
}

void cli_error(const char *fmt, ...)
{
    char text[2304];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_lines("", "", text);
}

void cli_warn(const char *fmt, ...)
{
    char text[2304];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_lines("warning: ", "\033[33m", text);
}

int cli_exit_code(int status)
{
    switch (status) {
    case CT_OK:
        return CLI_OK;
    case CT_EINVAL:
    case CT_ESHAPE:
    case CT_EDTYPE:
    case CT_ENOTIMPL:
    case CT_ECONFIG:
    case CT_EBUSY:
        return CLI_EUSAGE;
    case CT_EDATA:
    case CT_EFORMAT:
        return CLI_EDATA;
    case CT_ENONFINITE:
        return CLI_EDIVERGED;
    case CT_ECHECK:
        return CLI_ECHECK;
    case CT_EDEVICE:
    case CT_ENOMEM:
        return CLI_EDEVICE;
    case CT_EIO:
        return CLI_EIO;
    case CT_EINTERRUPTED:
        return CLI_EINTERRUPTED;
    default: /* CT_ESTATE, CT_EINTERNAL: nothing that a user did */
        return CLI_EINTERNAL;
    }
}

int cli_fail(const ct_error *err)
{
    int code = cli_exit_code(err->code ? err->code : CT_EINTERNAL);

    if (code == CLI_EINTERNAL)
        cli_error("internal error (%s, in %s): please report it\n%s", ct_status_name(err->code),
                  err->where[0] ? err->where : "?", err->text);
    else
        cli_error("%s", err->text);
    return code;
}

/* ---- JSON ---- */

/* The length of the UTF-8 sequence at s; 0: it is none (overlong, surrogate, cut). */
static int utf8_length(const unsigned char *s)
{
    int n = s[0] < 0x80                 ? 1 :
            s[0] >= 0xc2 && s[0] < 0xe0 ? 2 :
            s[0] >= 0xe0 && s[0] < 0xf0 ? 3 :
            s[0] >= 0xf0 && s[0] < 0xf5 ? 4 :
                                          0;

    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return n;
}

void cli_out_json(const char *s)
{
    cli_out("\"");
    while (*s) {
        int n = utf8_length((const unsigned char *)s);
        if (n == 0)
            cli_out("\\ufffd");
        else if (*s == '"' || *s == '\\')
            cli_out("\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            cli_out("\\u%04x", (unsigned)*s);
        else
            cli_out("%.*s", n, s);
        s += n ? n : 1;
    }
    cli_out("\"");
}

void cli_out_json_number(double v)
{
    if (isfinite(v))
        cli_out("%.17g", v);
    else
        cli_out("\"%s\"", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

/* ---- did you mean ---- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Damerau-Levenshtein. Names of more than 40 letters are nobody's typing mistake. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    int d[MAX + 1][MAX + 1];
    int na = (int)strlen(a), nb = (int)strlen(b);

    if (na > MAX || nb > MAX)
        return MAX;
    for (int i = 0; i <= na; i++)
        d[i][0] = i;
    for (int k = 0; k <= nb; k++)
        d[0][k] = k;
    for (int i = 1; i <= na; i++) {
        for (int k = 1; k <= nb; k++) {
            d[i][k] = least(d[i - 1][k - 1] + (a[i - 1] != b[k - 1]),
                            least(d[i - 1][k], d[i][k - 1]) + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = least(d[i][k], d[i - 2][k - 2] + 1);
        }
    }
    return d[na][nb];
}

const char *cli_nearest(const char *word, const char *const *words)
{
    const char *best = NULL;
    size_t n = strlen(word);
    int least_so_far = (int)(n > 30 ? 30 : n) / 3 + 2;

    for (int i = 0; words[i]; i++) {
        int d = n >= 3 && strncmp(word, words[i], n) == 0 ? 1 : distance(word, words[i]);
        if (d < least_so_far) {
            best = words[i];
            least_so_far = d;
        }
    }
    return best;
}
