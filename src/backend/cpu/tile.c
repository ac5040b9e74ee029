/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/tile.h"
#include "backend/cpu/parallel.h"

#include <string.h>

typedef double vec __attribute__((vector_size(CTI_TILE_COLS * sizeof(double))));

CTI_ISA void cti_cpu_tile(int64_t n, const double *const row[CTI_TILE_ROWS], int64_t step,
                          const double *panel, int64_t panel_step,
                          double acc[CTI_TILE_ROWS][CTI_TILE_COLS])
{
    const double *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3], *r4 = row[4], *r5 = row[5];
    vec c[CTI_TILE_ROWS];
    memcpy(c, acc, sizeof c);
    /* Named, or the compiler keeps them in memory. */
    vec c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3], c4 = c[4], c5 = c[5];
    for (int64_t p = 0; p < n; p++) {
        vec b;
        memcpy(&b, panel + p * panel_step, sizeof b);
        int64_t at = p * step;
        c0 += b * r0[at];
        c1 += b * r1[at];
        c2 += b * r2[at];
        c3 += b * r3[at];
        c4 += b * r4[at];
        c5 += b * r5[at];
    }
    c[0] = c0, c[1] = c1, c[2] = c2, c[3] = c3, c[4] = c4, c[5] = c5;
    memcpy(acc, c, sizeof c);
}
