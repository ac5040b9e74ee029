/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the tests: arrays of doubles, golden files, comparison, random numbers, contexts.
 * Memory is malloc's; running out of it ends the test. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include "autograd/op.h"
#include <ctrain/autograd.h>
#include <ctrain/ctx.h>
#include <ctrain/ops.h>
#include <ctrain/tensor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TS_LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

void *ts_alloc(size_t bytes); /* zeroed */

/* ---- arrays ---- The values of a tensor as doubles, row-major, whatever its dtype is. */
typedef struct ts_array {
    ct_dtype dtype;
    int ndim;
    int64_t shape[CT_MAX_DIMS];
    int64_t n;
    double *v; /* owned; NULL: no array */
} ts_array;

ts_array ts_array_new(ct_dtype dtype, int ndim, const int64_t *shape); /* zeros */
ts_array ts_array_copy(const ts_array *a);
void ts_array_free(ts_array *a); /* also zeroes it */
/* "float64 [2,3]" */
const char *ts_array_describe(const ts_array *a, char *buf, size_t cap);

/* A leaf with a's values in dtype; owned by the caller. NULL on error (in the context). */
ct_tensor *ts_tensor(ct_ctx *ctx, ct_dtype dtype, const ts_array *a);
/* The values of t; .v is NULL when t is or when reading failed (then the error is in the
 * context). */
ts_array ts_values(ct_ctx *ctx, const ct_tensor *t);
/* A leaf of literals: ts_vec(ctx, CT_F64, 3, (double[]){1, 2, 3}). */
ct_tensor *ts_vec(ct_ctx *ctx, ct_dtype dtype, int64_t n, const double *v);
ct_tensor *ts_mat(ct_ctx *ctx, ct_dtype dtype, int64_t rows, int64_t cols, const double *v);
/* The same, requiring grad. */
ct_tensor *ts_param(ct_ctx *ctx, ct_tensor *t);

/* ---- comparison ---- */
typedef struct ts_tol {
    double rtol; /* relative to the wanted element */
    double atol; /* times the larger of 1 and the largest finite |wanted| of the array */
} ts_tol;

#define TS_EXACT ((ts_tol){0, 0})
#define TS_F64   ((ts_tol){1e-10, 1e-12})
#define TS_F32   ((ts_tol){1e-5, 1e-6})

/* NaN equals NaN, an infinity itself. Shapes must be equal. On a difference false, and `msg`
 * says which element: "element [1,2]: got 3, want 4 (12 of 20 differ, tolerance ...)". */
bool ts_close(const ts_array *got, const ts_array *want, ts_tol tol, char *msg, size_t cap);
bool ts_close_values(const ts_array *got, int64_t n, const double *want, ts_tol tol, char *msg,
                     size_t cap);
/* Criterion's way: fails the test, going on, with `what` and the message. */
bool ts_expect_close(const char *what, const ts_array *got, const ts_array *want, ts_tol tol);
bool ts_expect_values(const char *what, ct_ctx *ctx, const ct_tensor *t, int64_t n,
                      const double *want, ts_tol tol);
/* In a suite's .fini, where Criterion counts no assertion: prints and aborts, so that the program fails. */
void ts_at_end(bool ok, const char *fmt, ...) CT_PRINTF(2, 3);
/* `code` is pending in ctx and its text has each of the parts (up to a NULL); clears it. */
bool ts_expect_error(ct_ctx *ctx, int code, const char *part, ...);
/* Nothing is pending; else fails the test with the text. */
bool ts_expect_ok(ct_ctx *ctx, const char *what);

/* ---- random numbers ---- Not ctrain's: splitmix64. All values are f32 exactly, so that f32 and
 * f64 runs start equal. */
uint64_t ts_hash(const char *text, uint64_t seed);
uint64_t ts_next(uint64_t *state);
double ts_uniform(uint64_t *state); /* [0, 1) */
double ts_normal(uint64_t *state);
/* An array of `in`'s kind; .v NULL for CT_IN_NONE. Floats are said to be f64. */
ts_array ts_random(const ct_case_in *in, uint64_t *state);
ts_array ts_random_normal(ct_dtype dtype, int ndim, const int64_t *shape, uint64_t *state);

/* ---- golden files ---- safetensors under CT_GOLDEN_DIR. */
typedef struct ts_golden ts_golden;
/* NULL with msg filled when the file is missing or isn't what it should be. */
ts_golden *ts_golden_open(const char *file, char *msg, size_t cap);
/* Fails the test when it can't. */
ts_golden *ts_golden_must_open(const char *file);
void ts_golden_close(ts_golden *g);                              /* NULL is fine */
const char *ts_golden_meta(const ts_golden *g, const char *key); /* borrowed; NULL: absent */
int ts_golden_count(const ts_golden *g);
const char *ts_golden_name(const ts_golden *g, int i);
/* Borrowed; NULL: absent. The name is a format. */
const ts_array *ts_golden_get(const ts_golden *g, const char *name, ...) CT_PRINTF(2, 3);
/* The same; a missing one fails the test and gives an empty array, never NULL. */
const ts_array *ts_golden_must_get(const ts_golden *g, const char *name, ...) CT_PRINTF(2, 3);

/* What a golden entry was made from, "arg=... in=normal[2,3] ...": when it isn't equal, the file
 * is stale. */
void ts_case_signature(const ct_case *c, char *buf, size_t cap);
const char *ts_kind_name(ct_case_kind kind);

/* ---- contexts and folders ---- */
/* Does CT_TEST_DEVICE=cuda put f32 contexts on CUDA (the software double)? */
bool ts_on_cuda(void);
/* One context: of the CPU, or f32 on CUDA. direct: no caching of freed blocks. Fails the test when it
 * can't. */
ct_ctx *ts_ctx(ct_dtype dtype, bool direct);
/* A new folder under TMPDIR; ts_temp_remove removes it with all in it. */
const char *ts_temp_dir(char *buf, size_t cap);
void ts_temp_remove(const char *dir);

#endif
