/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of PyTorch's behaviours share: a context in f64, the golden file, and one
 * comparison. */
#ifndef TESTS_OPS_SEMANTICS_H
#define TESTS_OPS_SEMANTICS_H

#include "support/support.h"
#include <criterion/criterion.h>

extern ct_ctx *sem_ctx;
extern ts_golden *sem_golden;

void sem_open(void);
void sem_close(void);

/* A golden array as a leaf of sem_ctx, freed at the end of the test. */
ct_tensor *sem_leaf(const char *name, ...) CT_PRINTF(1, 2);
/* The input "NAME/x", requiring grad. */
ct_tensor *sem_x(const char *name);
/* y is "NAME/y"; its gradient for upstream dy (NULL: ones) is "NAME/dx". */
void sem_expect(const char *name, ct_tensor *x, ct_tensor *y, ct_tensor *dy);
/* 1, 2, 3...: an upstream gradient. */
ct_tensor *sem_counting(int64_t n);
/* cos(0), cos(1)...: another, of x's shape. */
ct_tensor *sem_cosines(const ct_tensor *x);

#endif
