/* SPDX-License-Identifier: Apache-2.0 */
/* JSON over cJSON: strict reading (no duplicate keys, no trailing bytes, bounded depth) and writing
 * that never makes invalid JSON (non-finite numbers become strings, integers stay exact). */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/mem.h"
#include <ctrain/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cti_json cti_json; /* a document or a place inside one */

/* NULL with CT_EFORMAT and the place of the mistake. `what` names the source in the error. */
cti_json *cti_json_parse(const char *text, size_t bytes, const char *what, ct_error *err);
void cti_json_free(cti_json *j); /* documents only; NULL is fine */

/* Borrowed; NULL when absent or of another kind. */
const cti_json *cti_json_get(const cti_json *obj, const char *key);
const cti_json *cti_json_at(const cti_json *arr, int i);
const cti_json *cti_json_first(const cti_json *obj_or_arr);
const cti_json *cti_json_next(const cti_json *child);
const char *cti_json_key(const cti_json *child);
int cti_json_len(const cti_json *obj_or_arr);
bool cti_json_is_object(const cti_json *j);
bool cti_json_is_array(const cti_json *j);
const char *cti_json_string(const cti_json *j); /* NULL when no string */
/* Whole numbers up to 2^53, exactly; also a string of digits, as the writer writes larger ones. */
bool cti_json_i64(const cti_json *j, int64_t *out);
bool cti_json_f64(const cti_json *j, double *out); /* accepts "nan", "inf", "-inf" */
bool cti_json_bool(const cti_json *j, bool *out);

/* A writer into a growing buffer: one line unless `indent`. Errors stick and are told at the end,
 * until cti_jw_reset. Bytes that aren't UTF-8 become U+FFFD, a NULL string null. */
typedef struct cti_jw cti_jw;
cti_jw *cti_jw_new(cti_mem *m, bool indent);
void cti_jw_free(cti_jw *w);
void cti_jw_object(cti_jw *w, const char *key); /* key NULL in arrays and at the top */
void cti_jw_array(cti_jw *w, const char *key);
void cti_jw_end(cti_jw *w);
void cti_jw_string(cti_jw *w, const char *key, const char *value);
void cti_jw_i64(cti_jw *w, const char *key, int64_t value);
void cti_jw_u64_hex(cti_jw *w, const char *key, uint64_t value); /* "0123456789abcdef" */
void cti_jw_f64(cti_jw *w, const char *key, double value); /* shortest text that reads back equal */
void cti_jw_bool(cti_jw *w, const char *key, bool value);
/* The text (borrowed, NUL-terminated, no final newline); NULL when out of memory (or when something
 * is still open: a bug). */
const char *cti_jw_text(cti_jw *w, size_t *bytes);
void cti_jw_reset(cti_jw *w);

#endif
