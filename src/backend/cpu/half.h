/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and f16 on the CPU: storage. Kernels work in f32; what they read is widened to it before, what they
 * write is rounded to nearest even after. Elementwise loops do so in pieces that stay in the cache, others
 * in buffers of the stream, which grow and stay. */
#ifndef BACKEND_CPU_HALF_H
#define BACKEND_CPU_HALF_H

#include "backend/cpu/loop.h"

static inline bool cti_is_half(ct_dtype t)
{
    return t == CT_BF16 || t == CT_F16;
}

/* What a kernel computes in. */
static inline ct_dtype cti_wide_dtype(ct_dtype t)
{
    return cti_is_half(t) ? CT_F32 : t;
}

/* cti_loop_run for a kernel of cti_wide_dtype, whose operand 0 is written (and read, with `reads_out`). */
void cti_loop_run_wide(const ct_stream *s, const cti_loop *l, const ct_view *const *v,
                       bool reads_out, cti_span_fn fn, const void *arg);

/* Of buffers: v as it is for the kernel, without data. Half precision becomes dense, in v's stride order. */
ct_view cti_wide_meta(const ct_view *v);

/* The operands of one call. */
typedef struct cti_half {
    ct_stream *s;
    int n, rc;
    ct_view wide[CTI_HALF_MAX];
    const ct_view *result[CTI_HALF_MAX]; /* where wide[i] goes; NULL: nowhere */
} cti_half;

/* NULL stays NULL, and what isn't half precision stays itself. After a failure they give v: `done` tells. */
const ct_view *cti_half_in(cti_half *h, const ct_view *v);
const ct_view *cti_half_out(cti_half *h, const ct_view *v, bool reads);
/* Stores the results of a kernel that gave rc. */
int cti_half_done(cti_half *h, int rc);
void cti_half_close(ct_stream *s);

extern const ct_k_reduce cti_half_reduce;
extern const ct_k_pool cti_half_pool;
extern const ct_k_norm cti_half_norm;
extern const ct_k_loss cti_half_loss;
extern const ct_k_index cti_half_index;
extern const ct_k_image cti_half_image;
extern const ct_k_random cti_half_random;

#endif
