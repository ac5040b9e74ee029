/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine's tests share: one context per test, in f64, and short ways to say things. */
#ifndef TESTS_ENGINE_ENGINE_H
#define TESTS_ENGINE_ENGINE_H

#include "support/support.h"
#include <criterion/criterion.h>

extern ct_ctx *ctx;

void engine_open(void);
void engine_close(void); /* also: no error is pending, nothing of the tape is left */

void engine_open_f32(void); /* the same with a context of f32, on the device under test */

/* Each file's suite: TestSuite(leaves, .init = engine_open, .fini = engine_close). */

/* A leaf of a scope that lives as long as the test, of the context's dtype. */
ct_tensor *leaf(int64_t n, const double *v);
ct_tensor *wanting(int64_t n, const double *v);                      /* the same, requiring grad */
ct_tensor *leaf_matrix(int64_t rows, int64_t cols, const double *v); /* likewise */
#define V(...)                                                \
    TS_LEN(((const double[]){__VA_ARGS__})), (const double[]) \
    {                                                         \
        __VA_ARGS__                                           \
    }
#define LEAF(...)               leaf(V(__VA_ARGS__))
#define WANTING(...)            wanting(V(__VA_ARGS__))
#define MATRIX(rows, cols, ...) leaf_matrix((rows), (cols), (const double[]){__VA_ARGS__})

/* The values of t; where tests/golden/autograd.py has a value of that name for this test, it must be the same. */
#define EXPECT_VALUES(what, t, ...) expect_values((what), (t), V(__VA_ARGS__))
void expect_values(const char *what, ct_tensor *t, int64_t n, const double *v);
#define OK(call) cr_assert(!(call), "%s: %s", #call, ct_error_get(ctx)->text)

ct_tensor *total(ct_tensor *t); /* ct_sum over all */

#endif
