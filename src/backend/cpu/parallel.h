/* SPDX-License-Identifier: Apache-2.0 */
/* How the CPU's own loops are compiled for the machine they meet and shared out over threads. */
#ifndef BACKEND_CPU_PARALLEL_H
#define BACKEND_CPU_PARALLEL_H

#include "backend/cpu/cpu.h"
#ifdef _OPENMP
#include <omp.h>
#endif

/* CTI_ISA before a function: it is compiled for the baseline, AVX2 and AVX-512, and the dynamic linker
 * picks one. The function must hold its loops itself, all that it calls must be CTI_INLINE, and no
 * OpenMP region may be inside (its body would be outlined without the ISA).
 *
 * The files that use it are compiled with -ffp-contract=off: no ISA fuses a multiply with an add, and
 * the compiler never reorders sums, so our own loops give the same bytes on every x86 level.
 *
 * Empty where the linker has no ifunc, and under the sanitizers: their runtimes are not yet up when
 * the resolvers run (ThreadSanitizer crashes there). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CTI_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define CTI_SANITIZED 1
#endif
#endif

#if defined(__x86_64__) && defined(__ELF__) && defined(__GLIBC__) && !defined(CTI_SANITIZED) && \
    ((defined(__clang__) && __clang_major__ >= 14) || (!defined(__clang__) && __GNUC__ >= 12))
#define CTI_ISA_CLONES 1
#define CTI_ISA \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4"), noinline))
#else
#define CTI_ISA_CLONES 0
#define CTI_ISA
#endif

#if defined(__GNUC__)
#define CTI_INLINE static inline __attribute__((always_inline))
#else
#define CTI_INLINE static inline
#endif

/* Before a loop: its iterations are independent although an output may be an input ("in place"). */
#if defined(__clang__)
#define CTI_VEC _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define CTI_VEC _Pragma("GCC ivdep")
#else
#define CTI_VEC
#endif

#define CTI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CTI_MAX(a, b) ((a) > (b) ? (a) : (b))

static inline int64_t cti_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Tasks [begin, end). */
typedef void (*cti_task_fn)(void *ctx, int64_t begin, int64_t end);

/* Shares `tasks` out, in contiguous runs, when they are `work` elements together. What a task computes
 * must not depend on who runs it. */
static inline void cti_parallel(const ct_stream *s, int64_t tasks, int64_t work, cti_task_fn fn,
                                void *ctx)
{
    if (tasks <= 0)
        return;
#ifdef _OPENMP
    int team = (int)CTI_MIN((int64_t)cti_cpu_team(s, work), tasks);
    if (team > 1) {
#pragma omp parallel num_threads(team)
        {
            int64_t n = omp_get_num_threads(), i = omp_get_thread_num();
            int64_t begin = tasks * i / n, end = tasks * (i + 1) / n;
            if (begin < end)
                fn(ctx, begin, end);
        }
        return;
    }
#endif
    (void)s;
    (void)work;
    fn(ctx, 0, tasks);
}

#endif
