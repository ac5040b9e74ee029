/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c: scans and sorts along rows; rownorm.c: norms along rows. */
#ifndef BACKEND_CPU_ROWS_H
#define BACKEND_CPU_ROWS_H

#include "backend/backend.h"

int cti_cpu_scan(ct_stream *s, ct_scan fn, const ct_view *y, const ct_view *x);
size_t cti_cpu_sort_workspace(ct_stream *s, const ct_view *x);
int cti_cpu_sort(ct_stream *s, const ct_view *y, const ct_view *index, const ct_view *x,
                 bool descending, void *workspace);

int cti_cpu_rownorm(ct_stream *s, const ct_rownorm_args *args);
int cti_cpu_rownorm_grad(ct_stream *s, const ct_rownorm_args *args, const ct_view *dx, int beta,
                         const ct_view *t, const ct_view *dy);

#endif
