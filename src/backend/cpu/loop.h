/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of backend/loop.h over the threads; a kernel gets them as two-dimensional spans. */
#ifndef BACKEND_CPU_LOOP_H
#define BACKEND_CPU_LOOP_H

#include "backend/cpu/parallel.h"
#include "backend/loop.h"

/* `rows` rows of `n` elements; all strides in bytes. */
typedef struct cti_span {
    int64_t rows, n;
    char *p[CTI_LOOP_OPS];
    int64_t rs[CTI_LOOP_OPS], s[CTI_LOOP_OPS];
} cti_span;

typedef void (*cti_span_fn)(const cti_span *sp, const void *arg);

/* Elements [b, e) of the loop's own order, in order, as spans. */
static inline void cti_loop_range(const cti_loop *l, int64_t b, int64_t e, cti_span_fn fn,
                                  const void *arg)
{
    int in = l->ndim - 1;
    int64_t n = l->shape[in], depth = in > 0 ? l->shape[in - 1] : 1;
    cti_span sp;
    for (int o = 0; o < l->nop; o++) {
        sp.s[o] = l->stride[o][in];
        sp.rs[o] = in > 0 ? l->stride[o][in - 1] : 0;
    }
    while (b < e) {
        int64_t row = b / n, col = b % n;
        for (int o = 0; o < l->nop; o++)
            sp.p[o] = l->data[o] + cti_loop_offset(l, o, b);
        if (col != 0 || e - b < n) {
            sp.rows = 1;
            sp.n = CTI_MIN(n - col, e - b);
        } else {
            sp.rows = CTI_MIN((e - b) / n, depth - row % depth);
            sp.n = n;
        }
        fn(&sp, arg);
        b += sp.rows * sp.n;
    }
}

typedef struct cti_loop_job {
    const cti_loop *l;
    cti_span_fn fn;
    const void *arg;
} cti_loop_job;

/* Tasks are blocks of 64 elements, so that two threads seldom write one cache line. */
#define CTI_LOOP_BLOCK 64

static inline void cti_loop_task(void *ctx, int64_t begin, int64_t end)
{
    const cti_loop_job *j = ctx;
    cti_loop_range(j->l, begin * CTI_LOOP_BLOCK, CTI_MIN(end * CTI_LOOP_BLOCK, j->l->numel), j->fn,
                   j->arg);
}

static inline void cti_loop_run(const ct_stream *s, const cti_loop *l, cti_span_fn fn,
                                const void *arg)
{
    cti_loop_job j = {l, fn, arg};
    cti_parallel(s, cti_ceil_div(l->numel, CTI_LOOP_BLOCK), l->numel, cti_loop_task, &j);
}

#endif
