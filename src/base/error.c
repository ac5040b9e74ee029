/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Drops the UTF-8 character that a cut at the end of the buffer has left in pieces. */
static void drop_partial_character(char *text)
{
    size_t n = strlen(text), i = n, want = 1;

    while (i > 0 && n - i < 3 && ((unsigned char)text[i - 1] & 0xC0) == 0x80)
        i--;
    if (i == 0)
        return;
    unsigned char lead = (unsigned char)text[i - 1];
    if (lead >= 0xF0)
        want = 4;
    else if (lead >= 0xE0)
        want = 3;
    else if (lead >= 0xC0)
        want = 2;
    if (n - (i - 1) < want)
        text[i - 1] = '\0';
}

static void format_text(char *out, size_t cap, const char *fmt, va_list args)
{
    int n = vsnprintf(out, cap, fmt, args);

    if (n < 0)
        snprintf(out, cap, "%s", fmt);
    if (n < 0 || (size_t)n >= cap)
        drop_partial_character(out);
    for (n = (int)strlen(out); n > 0 && out[n - 1] == '\n'; n--)
        out[n - 1] = '\0';
}

int cti_vfail(ct_error *err, int code, const char *where, const char *fmt, va_list args)
{
    /* A failing call must not look like a success because an application passed a wrong code. */
    if (code >= 0)
        code = CT_EINTERNAL;
    if (!err || err->code != CT_OK)
        return code;
    err->code = code;
    snprintf(err->where, sizeof err->where, "%s", where ? where : "");
    drop_partial_character(err->where);
    format_text(err->text, sizeof err->text, fmt, args);
    return code;
}

int ct_error_set(ct_error *err, int code, const char *where, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    code = cti_vfail(err, code, where, fmt, args);
    va_end(args);
    return code;
}

int cti_error_prefix(ct_error *err, const char *fmt, ...)
{
    char text[sizeof err->text]; /* apart, since the arguments may be err->text itself */
    va_list args;
    size_t n;

    if (!err)
        return CT_EINTERNAL;
    if (err->code == CT_OK)
        return CT_OK;
    va_start(args, fmt);
    format_text(text, sizeof text, fmt, args);
    va_end(args);
    n = strlen(text);
    if ((size_t)snprintf(text + n, sizeof text - n, ": %s", err->text) >= sizeof text - n)
        drop_partial_character(text);
    memcpy(err->text, text, strlen(text) + 1);
    return err->code;
}

int cti_fail_errno_at(ct_error *err, int code_if_missing, int errnum, const char *what,
                      const char *path, const char *where)
{
    bool missing = errnum == ENOENT || errnum == ENOTDIR;
    int code = missing && code_if_missing < 0 ? code_if_missing : CT_EIO;
    char why[128];

    if (strerror_r(errnum, why, sizeof why) != 0)
        snprintf(why, sizeof why, "error %d", errnum);
    return ct_error_set(err, code, where, "%s %s: %s", what, path, why);
}

const char *ct_status_name(int code)
{
    static const char *const names[] = {
        "CT_OK",         "CT_EINVAL",       "CT_ESHAPE",  "CT_EDTYPE", "CT_ENOMEM",    "CT_ESTATE",
        "CT_ENOTIMPL",   "CT_EIO",          "CT_EFORMAT", "CT_EDATA",  "CT_ECONFIG",   "CT_EDEVICE",
        "CT_ENONFINITE", "CT_EINTERRUPTED", "CT_EBUSY",   "CT_ECHECK", "CT_EINTERNAL",
    };

    if (code > 0 || code <= -(int)(sizeof names / sizeof names[0]))
        return "CT_E?";
    return names[-code];
}

void cti_error_suffix(ct_error *err, const char *text)
{
    size_t n = strlen(err->text), add = strlen(text);

    if (err->code && n + add < sizeof err->text)
        memcpy(err->text + n, text, add + 1);
}
