/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CPU backend share. */
#ifndef BACKEND_CPU_CPU_H
#define BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/error.h"

/* Work on fewer elements enters no parallel region: the region costs more than it saves. */
#define CTI_CPU_SMALL 16384

struct cti_dnnl; /* dnnl.h */

#define CTI_HALF_MAX 6 /* operands of half precision in a call; half.h */

struct ct_stream {
    int threads; /* the team of every parallel region: num_threads(s->threads) */
    cti_mem *mem;
    ct_error *err;
    struct cti_dnnl *dnnl;
    struct {
        void *at;
        size_t bytes;
    } half[CTI_HALF_MAX];
    ct_device_counters counters;
};

extern const ct_k_mem cti_cpu_mem;
extern const ct_k_ew cti_cpu_ew;
extern const ct_k_reduce cti_cpu_reduce;
extern const ct_k_matmul cti_cpu_matmul;
extern const ct_k_conv cti_cpu_conv;
extern const ct_k_pool cti_cpu_pool;
extern const ct_k_norm cti_cpu_norm;
extern const ct_k_loss cti_cpu_loss;
extern const ct_k_index cti_cpu_index;
extern const ct_k_image cti_cpu_image;
extern const ct_k_random cti_cpu_random;
extern const ct_k_optim cti_cpu_optim;

/* What our own loops are dispatched to on this machine: "avx512", "avx2", "baseline". */
const char *cti_cpu_loops_isa(void);

/* The team for work on `n` elements: 1 below CTI_CPU_SMALL. */
static inline int cti_cpu_team(const ct_stream *s, int64_t n)
{
    return n < CTI_CPU_SMALL ? 1 : s->threads;
}

#endif
