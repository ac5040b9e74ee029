/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/tile.h"
#include "backend/cpu/parallel.h"

/* At any address of a double, over memory that is read as doubles elsewhere. */
typedef double vec
    __attribute__((vector_size(CTI_TILE_COLS * sizeof(double)), aligned(8), may_alias));

/* Macros: a function with a vector result has another calling convention in each clone. */
#define load(p)     (*(const vec *)(p))
#define store(p, v) (*(vec *)(p) = (v))

CTI_ISA void cti_cpu_tile(int64_t n, const double *const row[CTI_TILE_ROWS], int64_t step,
                          const double *panel, int64_t panel_step,
                          double acc[CTI_TILE_ROWS][CTI_TILE_COLS])
{
    const double *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3], *r4 = row[4], *r5 = row[5];
    /* Six variables, not an array: the compiler would keep that in memory. */
    vec c0 = load(acc[0]), c1 = load(acc[1]), c2 = load(acc[2]);
    vec c3 = load(acc[3]), c4 = load(acc[4]), c5 = load(acc[5]);
    for (int64_t p = 0; p < n; p++) {
        const vec b = load(panel + p * panel_step);
        const int64_t at = p * step;
        c0 += b * r0[at];
        c1 += b * r1[at];
        c2 += b * r2[at];
        c3 += b * r3[at];
        c4 += b * r4[at];
        c5 += b * r5[at];
    }
    store(acc[0], c0);
    store(acc[1], c1);
    store(acc[2], c2);
    store(acc[3], c3);
    store(acc[4], c4);
    store(acc[5], c5);
}
