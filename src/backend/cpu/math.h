/* SPDX-License-Identifier: Apache-2.0 */
/* math.c: the members of ct_k_ew for the less often used functions. */
#ifndef BACKEND_CPU_MATH_H
#define BACKEND_CPU_MATH_H

#include "backend/backend.h"

int cti_cpu_math(ct_stream *s, ct_math fn, double a, double b, const ct_view *y, const ct_view *x);
int cti_cpu_math_grad(ct_stream *s, ct_math fn, double a, double b, const ct_view *dx, int beta,
                      const ct_view *dy, const ct_view *x, const ct_view *y);
int cti_cpu_math2(ct_stream *s, ct_math2 fn, const ct_view *y, const ct_view *a, const ct_view *b);
int cti_cpu_where(ct_stream *s, const ct_view *y, const ct_view *cond, const ct_view *a,
                  const ct_view *b);

#endif
