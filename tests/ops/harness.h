/* SPDX-License-Identifier: Apache-2.0 */
/* The op harness: every op of the table, every case of it, every check. An op's author writes
 * cases and one line in make.py, nothing here. */
#ifndef TESTS_OPS_HARNESS_H
#define TESTS_OPS_HARNESS_H

#include "support/support.h"

typedef enum h_check {
    H_GOLDEN,  /* values and gradients are PyTorch's, f64 and f32 */
    H_DIFF,    /* gradients are finite differences', f64, random upstream gradients */
    H_SECOND,  /* the gradient is a graph too, and its gradient finite differences' */
    H_F32,     /* f32 (the math library) equals f64 (plain loops), also at enlarged odd shapes */
    H_STRIDED, /* inputs that aren't contiguous give the same */
    H_ACCUM,   /* gradients add up: again, retained, two users, one tensor in two places */
    H_MODES,   /* no_grad, one input's gradient alone, inputs untouched, the node's name */
    H_NULL,    /* a missing required input is an error, not a crash */
    H_PENDING, /* a pending error makes the op inert */
    H_ALLOC,   /* each allocation failing in turn */
    H_LEAK,    /* nothing stays */
    H_STEADY,  /* no allocation and no primitive after warm-up */
    H_LOW,     /* bf16 and f16 are near f64 of the rounded inputs */
    H_EMPTY,   /* there is a case with an empty input, or a reason */
    H_CHECKS
} h_check;

extern const char *const h_check_names[H_CHECKS];

/* The state of the harness on one op. */
typedef struct harness {
    const ct_op *op;
    const ct_case *c;  /* the case in hand */
    h_check check;     /* the check in hand */
    ct_ctx *f64, *f32; /* contexts without caches; on CUDA f32 is there, f64 the CPU */
    ct_ctx *main;      /* what one context alone is looked at with: f64, or CUDA's f32 */
    ct_dtype main_dtype;
    int first_pass;                  /* of loops over f64 and f32: on CUDA f32 alone */
    ct_ctx *cached_f64, *cached_f32; /* with; made when needed */
    ts_golden *golden;               /* NULL: none; golden_msg says why */
    char golden_msg[256];
    int done[H_CHECKS], failed[H_CHECKS];
    bool quiet;                /* planted faults: failures are counted, not reported */
    char first[H_CHECKS][512]; /* the first failure of each check */
    const char *log;           /* file for breadcrumbs and rows; NULL: none */
} harness;

void h_open(harness *h, const ct_op *op, bool quiet);
void h_close(harness *h);
void h_run_check(harness *h, h_check check); /* on all cases */
void h_run_all(harness *h);
/* One thing was checked: counts it, and when not ok reports the message. Returns ok. */
bool h_expect(harness *h, bool ok, const char *fmt, ...) CT_PRINTF(3, 4);
bool h_expect_close(harness *h, const char *what, const ts_array *got, const ts_array *want,
                    ts_tol tol);

/* ---- running a case ---- */
typedef enum h_layout { H_PLAIN, H_REVERSED, H_NARROWED, H_CHANNELS_LAST, H_LAYOUTS } h_layout;
extern const char *const h_layout_names[H_LAYOUTS];

/* Host values of a case's inputs, and of the upstream gradient (.v NULL: drawn when needed). */
typedef struct h_data {
    ts_array in[CT_CASE_MAX_IN];
    ts_array dy;
} h_data;

h_data h_data_random(const harness *h, const ct_case *c);
void h_data_free(h_data *d);

/* Leaves in a layout and what is passed to the op. */
typedef struct h_leaves {
    ct_tensor *leaf[CT_CASE_MAX_IN]; /* owned */
    ct_tensor *arg[CT_CASE_MAX_IN];  /* of the scope, or the leaf */
    h_layout layout;
    unsigned wants;
} h_leaves;

/* Within a scope. False: the error is in the context. */
bool h_leaves_make(ct_ctx *ctx, const h_data *d, ct_dtype dtype, h_layout layout, unsigned wants,
                   h_leaves *out);
void h_leaves_free(h_leaves *l);
/* The gradient of input i in logical order; .v NULL: none. Outside the window it must be 0: else
 * *stray. */
ts_array h_leaf_grad(ct_ctx *ctx, const h_leaves *l, const h_data *d, int i, bool *stray);
/* The op's call at a fixed random position. */
ct_tensor *h_call(const harness *h, ct_ctx *ctx, ct_tensor *const *in);
/* backward from y with the data's dy, drawn into it when it isn't there. 0 or the error. */
int h_backward(const harness *h, ct_ctx *ctx, ct_tensor *y, h_data *d, unsigned flags);

typedef struct h_result {
    ts_array y;
    ts_array dx[CT_CASE_MAX_IN];
    ts_array after[CT_CASE_MAX_IN]; /* the inputs after the call */
    bool requires_grad, stray, is_leaf;
    char grad_fn[64];
    char msg[512]; /* why it failed */
    int code;
} h_result;

/* Forward, and backward when `wants` isn't 0. */
bool h_run(const harness *h, ct_ctx *ctx, h_data *d, ct_dtype dtype, h_layout layout,
           unsigned wants, h_result *out);
void h_result_free(h_result *r);
/* Compares y, dx and the changed inputs. */
bool h_expect_same(harness *h, const char *what, const h_result *got, const h_result *want,
                   ts_tol tol);

/* Bits of the inputs that get a gradient; 0: an op without. */
unsigned h_wants(const ct_op *op, const ct_case *c);
bool h_differentiable(const ct_op *op);
bool h_is_float(const ct_case_in *in);
ts_tol h_tol_f32(const ct_case *c);
ts_tol h_tol_main(const harness *h);

/* ---- the checks: one case each ---- */
void h_check_golden(harness *h);
void h_check_diff(harness *h);
void h_check_second(harness *h);
void h_check_f32(harness *h);
void h_check_strided(harness *h);
void h_check_accum(harness *h);
void h_check_modes(harness *h);
void h_check_null(harness *h);
void h_check_pending(harness *h);
void h_check_alloc(harness *h);
void h_check_leak(harness *h);
void h_check_steady(harness *h);
void h_check_low(harness *h);
void h_check_empty(harness *h); /* of the op as a whole */

#endif
