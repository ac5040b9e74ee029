/* SPDX-License-Identifier: Apache-2.0 */
/* What the training curves share: nets, weights and batches from
 * tests/golden/curves.safetensors. */
#ifndef TESTS_TRAIN_CURVES_BASE_H
#define TESTS_TRAIN_CURVES_BASE_H

#include "support/support.h"
#include <criterion/criterion.h>
#include <ctrain/nn.h>
#include <ctrain/optim.h>

#define CURVE_STEPS     20
#define CURVE_MAX_STATE 32

typedef struct curve {
    ct_ctx *ctx;
    ct_dtype dtype;
    ts_golden *golden;
    const char *name; /* "mlp", "conv": the prefix of its golden entries */
    ct_module *net;
    ct_named_tensor state[CURVE_MAX_STATE];
    int n_state;
    double losses[CURVE_STEPS], norms[CURVE_STEPS];
} curve;

/* A context, the golden file, and net's weights from it. */
void curve_open(curve *c, const char *name, ct_dtype dtype, ct_module *(*build)(ct_ctx *));
void curve_close(curve *c);

/* Images and labels first..first+n of the file, as [n,1,8,8] in 0..1 and [n]; owned. */
ct_tensor *curve_images(curve *c, int64_t first, int64_t n);
ct_tensor *curve_labels(curve *c, int64_t first, int64_t n);

/* After `step` steps, if the file has them: all parameters and buffers within tol. */
void curve_expect_state(curve *c, int step, ts_tol tol);
void curve_expect_series(curve *c, const char *what, const double *got, ts_tol tol);

#define CURVE_OK(c, call) cr_assert(!(call), "%s: %s", #call, ct_error_get((c)->ctx)->text)

#endif
