/* SPDX-License-Identifier: Apache-2.0 */
/* The INI reader: UTF-8 (a BOM is skipped), LF or CRLF; `[section]` and `[section.sub]`;
 * `key = value`; `;` and `#` start a comment at the start of a line or after a blank; a value goes
 * on in the next lines when they are indented deeper than its key (joined by a newline; empty lines
 * and comments between them don't count; one that begins as a key does is a mistake). A line of
 * a value that is "..." keeps blanks and comment signs, with \" \\ \n \t \r \xHH; quotes in the
 * middle of a line are kept, and hide comment signs too. Values have any length. It knows
 * nothing of which keys are right: the caller does. Every entry has line and column (bytes, from
 * 1), and all mistakes of syntax are reported, not only the first. */
#ifndef BASE_INI_H
#define BASE_INI_H

#include "base/mem.h"
#include <ctrain/error.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct cti_ini_entry {
    const char *section; /* "" before the first header */
    const char *key;
    const char *value;
    int line, column; /* of the key, from 1 */
    int value_line, value_column;
} cti_ini_entry;

typedef struct cti_ini cti_ini;

/* Called once per mistake of syntax, in order. */
typedef void (*cti_ini_mistake)(int line, int column, const char *text, void *user);

/* Reads `text`. Mistakes are reported and skipped over (an entry with one is left out);
 * CT_ECONFIG is returned when there was any (the entries read are still in *out), CT_ENOMEM when
 * out of memory (*out NULL). */
int cti_ini_parse(cti_mem *m, const char *text, size_t bytes, cti_ini_mistake fn, void *user,
                  cti_ini **out);
void cti_ini_free(cti_ini *ini);
int cti_ini_count(const cti_ini *ini);
const cti_ini_entry *cti_ini_at(const cti_ini *ini, int i);
/* The sections that have a header, empty ones too, with the line of their first header. */
int cti_ini_section_count(const cti_ini *ini);
const char *cti_ini_section_at(const cti_ini *ini, int i, int *line);

/* The place in the text of byte `offset` of entry i's value: for a mistake inside a long value.
 * Exact but for escapes before it in its line. */
void cti_ini_locate(const cti_ini *ini, int i, size_t offset, int *line, int *column);

/* Writes a value so that cti_ini_parse reads it back equal, after an unindented `key = `: as it
 * is, in lines indented by four, or quoted when needed. Returns the length as snprintf does. */
int cti_ini_quote(char *out, size_t cap, const char *value);

/* How many bytes of `s` can stand in a key or a section's name. */
size_t cti_ini_name_length(const char *s, size_t n);
/* Does a line begin as `key =`? Such a line can't continue a value, unless in quotes: it is
 * taken for a key that was indented by mistake. */
bool cti_ini_is_key_line(const char *s, size_t n);

/* Edit distance for did-you-mean (Damerau-Levenshtein, case ignored), at most `limit` + 1. */
int cti_edit_distance(const char *a, const char *b, int limit);

#endif
