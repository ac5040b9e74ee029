/* SPDX-License-Identifier: Apache-2.0 */
/* What a golden entry depends on, as text: for the harness, dump_cases and, through it, make.py. No
 * Criterion in this file. */
#include "support.h"

#include <stdarg.h>
#include <stdio.h>

const char *ts_kind_name(ct_case_kind kind)
{
    static const char *const names[] = {"none",  "normal", "positive", "away", "distinct",
                                        "probs", "class",  "bool",     "i64"};
    return (int)kind >= 0 && (int)kind < TS_LEN(names) ? names[kind] : "?";
}

static void put(char *buf, size_t cap, size_t *at, const char *fmt, ...) CT_PRINTF(4, 5);

static void put(char *buf, size_t cap, size_t *at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (*at < cap)
        *at += (size_t)vsnprintf(buf + *at, cap - *at, fmt, args);
    va_end(args);
}

void ts_case_signature(const ct_case *c, char *buf, size_t cap)
{
    size_t at = 0;
    put(buf, cap, &at, "arg");
    for (int i = 0; i < CT_CASE_MAX_ARG; i++)
        put(buf, cap, &at, " %.17g", c->arg[i]);
    for (int i = 0; i < CT_CASE_MAX_IN; i++) {
        const ct_case_in *in = &c->in[i];
        put(buf, cap, &at, "; %s", ts_kind_name(in->kind));
        if (in->kind == CT_IN_NONE)
            continue;
        for (int d = 0; d < in->ndim; d++)
            put(buf, cap, &at, "%c%lld", d ? ',' : ' ', (long long)in->shape[d]);
        put(buf, cap, &at, " c%lld g%d", (long long)in->classes, in->no_grad ? 0 : 1);
    }
}
