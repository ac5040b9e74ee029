/* SPDX-License-Identifier: Apache-2.0 */
/* How ctrain's own code fills an error record. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <ctrain/error.h>
#include <stdarg.h>

/* Records the first error and returns its code: `return cti_fail(err, CT_ESHAPE, "...", ...)`. */
#define cti_fail(err, code, ...) ct_error_set((err), (code), __func__, __VA_ARGS__)

int cti_vfail(ct_error *err, int code, const char *where, const char *fmt, va_list args);

/* Puts "prefix: " before the text of a pending error (a path, a section): context from above.
 * Returns err->code; CT_EINTERNAL when `err` is NULL, since only failing calls end with this. */
int cti_error_prefix(ct_error *err, const char *fmt, ...) CT_PRINTF(2, 3);

/* Puts `text` behind the text of a pending error, where there is room for all of it. */
void cti_error_suffix(ct_error *err, const char *text);

/* CT_EIO with strerror(errnum) in it: "WHAT PATH: No space left on device"; ENOENT and ENOTDIR give
 * `code_if_missing` (when it is a code: negative) instead of CT_EIO. Returns the code. */
#define cti_fail_errno(err, code_if_missing, errnum, what, path) \
    cti_fail_errno_at((err), (code_if_missing), (errnum), (what), (path), __func__)

int cti_fail_errno_at(ct_error *err, int code_if_missing, int errnum, const char *what,
                      const char *path, const char *where);

#endif
