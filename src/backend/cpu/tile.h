/* SPDX-License-Identifier: Apache-2.0 */
/* The inner product of f64 matmul and convolution, which oneDNN doesn't have. */
#ifndef BACKEND_CPU_TILE_H
#define BACKEND_CPU_TILE_H

#include <stdint.h>

enum { CTI_TILE_ROWS = 6, CTI_TILE_COLS = 8 };

/* acc[i][j] += sum over p < n of row[i][p * step] * panel[p * panel_step + j], in order of p: the
 * result depends on neither threads nor instruction set. */
void cti_cpu_tile(int64_t n, const double *const row[CTI_TILE_ROWS], int64_t step,
                  const double *panel, int64_t panel_step,
                  double acc[CTI_TILE_ROWS][CTI_TILE_COLS]);

#endif
