/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the CUDA kernels share: streams of both backends, and twins, tensors that both
 * have. A kernel runs on the twins' device views, the CPU's kernel on their oracle views (f64 for
 * the floats, made of the rounded values), and twin_same compares:
 *
 *     twin x = twin_rand(&p, CT_BF16, LAST, 4, SHAPE(2, 3, 4, 5), 1), y = twin_new(&p, ...);
 *     pair_ok(&p, cti_cuda_unary(p.cuda, CT_UN_EXP, &y.v, &x.v));
 *     pair_ok(&p, p.be->ew->unary(p.cpu, CT_UN_EXP, &y.o, &x.o));
 *     twin_same(&p, &y, 1, "exp"); */
#ifndef TESTS_CUDA_PAIR_H
#define TESTS_CUDA_PAIR_H

#include "backend/backend.h"
#include "backend/cuda/cuda.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    cti_mem *mem;
    ct_error err, cpu_err;
    ct_stream *cuda, *cpu;
    const ct_backend *be; /* the CPU's */
    ct_dtype oracle;      /* of float twins made from now on: CT_F64 at first, or CT_F32 */
} pair;

void pair_open(pair *p);
void pair_close(pair *p); /* all twins and scratch must be freed by then */

/* Row-major, channels-last, dimensions reversed in memory, row-major with gaps. */
enum layout { ROWS, LAST, REVERSED, GAPS, LAYOUTS };

typedef struct twin {
    ct_view v;    /* device memory */
    ct_view o;    /* oracle: host memory; shape and strides of v */
    ct_view h;    /* what was uploaded: host memory; v but for its address */
    size_t bytes; /* of v and h, gaps and all */
    size_t o_bytes;
} twin;

/* All bytes are 0xff on the device: NaN, -1. The oracle is NaN, -1 or 0xff likewise. */
twin twin_new(pair *p, ct_dtype t, enum layout lay, int ndim, const int64_t *shape);
/* In given strides, 0 or more. */
twin twin_strided(pair *p, ct_dtype t, int ndim, const int64_t *shape, const int64_t *stride);
/* twin_new with noise in (-2, 2): integers in -2..2, bool 0 and 1, u8 0..4. */
twin twin_rand(pair *p, ct_dtype t, enum layout lay, int ndim, const int64_t *shape, uint64_t seed);
void twin_free(pair *p, twin *t);
/* The same memory seen in another way: strides may be 0. `offset` is in elements. Not to be
 * freed. */
twin twin_as(const twin *t, int64_t offset, int ndim, const int64_t *shape, const int64_t *stride);

/* Sets the value of an element by row-major logical index, in o and h: rounded to the twin's dtype.
 * twin_upload brings all of h to the device. */
void twin_put(pair *p, twin *t, int64_t i, double x);
void twin_upload(pair *p, const twin *t);
/* scale * (-1, 1) + shift in all elements, a function of seed and index, uploaded. */
void twin_noise(pair *p, twin *t, uint64_t seed, double scale, double shift);
/* Copies the values of the oracle, rounded, to h and the device (and back into the oracle). */
void twin_from_oracle(pair *p, twin *t);

double view_get(const pair *p, const ct_view *host, int64_t i); /* of h or o */
/* The device's elements as doubles in logical order; to be freed by the caller. */
double *twin_get_all(pair *p, const twin *t);

/* 1e-5, 1.6e-2 (bf16), 2e-3 (f16), 1e-12 (f64), 0 */
double pair_tol(ct_dtype t);
/* Fails the test where the device's elements are not the oracle's, rounded to the dtype, within
 * factor * pair_tol relative to max(1, |oracle|) (NaN equals NaN, infinities themselves), or where
 * a byte that no element covers has changed since the upload. Factor 0: exactly. */
void twin_same(pair *p, const twin *t, double factor, const char *what);
/* Fails the test unless all bytes on the device are as they were uploaded. */
void twin_untouched(pair *p, const twin *t, const char *what);

/* Device memory of `bytes`, all 0xff. */
void *pair_scratch(pair *p, size_t bytes);
void pair_scratch_free(pair *p, void *scratch);

/* On the software double: work queued so far whose name begins so, and failures to come (see
 * double/hooks.h). On a real device 0, and false. */
long pair_work(const char *prefix);
bool pair_fail(const char *spec);
bool pair_on_double(void);

/* (-1, 1), a function of seed and i. */
double noise(uint64_t seed, int64_t i);

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

#define pair_ok(p, call)                                                                  \
    do {                                                                                  \
        int rc_ = (call);                                                                 \
        cr_assert_eq(rc_, CT_OK, "%s: %s %s", #call, ct_status_name(rc_), (p)->err.text); \
    } while (0)

/* CT_EDTYPE with a text; leaves the error record clear. */
#define pair_refuses(p, call)                                               \
    do {                                                                    \
        cr_assert_eq((call), CT_EDTYPE, "%s is not refused", #call);        \
        cr_assert_eq((p)->err.code, CT_EDTYPE, "%s leaves no text", #call); \
        (p)->err = (ct_error){0};                                           \
    } while (0)

#endif
