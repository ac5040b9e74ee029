/* SPDX-License-Identifier: Apache-2.0 */
/* Scans and sorts along the rows of row-major matrices. A row is one thread's, so results don't depend on threads. */
#include "backend/cpu/rows.h"

#include "backend/cpu/parallel.h"

#include <math.h>

typedef struct rows {
    const void *x;
    void *y;
    int64_t *index, *spare;
    int64_t n;
    bool product, descending;
} rows;

static int64_t row_length(const ct_view *x)
{
    return x->ndim ? x->shape[x->ndim - 1] : 1;
}

/* ---- scans ---- */
#define SCAN(T, S)                                                          \
    static void scan_##S(void *arg, int64_t begin, int64_t end)             \
    {                                                                       \
        const rows *c = arg;                                                \
        for (int64_t r = begin; r < end; r++) {                             \
            const T *x = (const T *)c->x + r * c->n;                        \
            T *y = (T *)c->y + r * c->n;                                    \
            double acc = c->product ? 1 : 0;                                \
            for (int64_t i = 0; i < c->n; i++) {                            \
                acc = c->product ? acc * (double)x[i] : acc + (double)x[i]; \
                y[i] = (T)acc;                                              \
            }                                                               \
        }                                                                   \
    }
SCAN(float, f32)
SCAN(double, f64)
#undef SCAN

int cti_cpu_scan(ct_stream *s, ct_scan fn, const ct_view *y, const ct_view *x)
{
    rows c = {.x = x->data, .y = y->data, .n = row_length(x), .product = fn == CT_SCAN_PROD};
    int64_t numel = ct_view_numel(x);

    if ((x->dtype != CT_F32 && x->dtype != CT_F64) || y->dtype != x->dtype)
        return CT_EDTYPE;
    if (numel > 0)
        cti_parallel(s, numel / c.n, numel, x->dtype == CT_F32 ? scan_f32 : scan_f64, &c);
    return CT_OK;
}

/* ---- sorting ---- Merges runs of indices, from below: stable. */
#define SORT(T, S)                                                                                \
    static bool before_##S(T a, T b, bool descending)                                             \
    {                                                                                             \
        if (isnan(a) || isnan(b))                                                                 \
            return descending ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);                    \
        return descending ? a > b : a < b;                                                        \
    }                                                                                             \
    static void merge_##S(const T *x, const int64_t *a, int64_t na, const int64_t *b, int64_t nb, \
                          int64_t *to, bool descending)                                           \
    {                                                                                             \
        int64_t i = 0, j = 0;                                                                     \
        while (i < na && j < nb)                                                                  \
            *to++ = before_##S(x[b[j]], x[a[i]], descending) ? b[j++] : a[i++];                   \
        while (i < na)                                                                            \
            *to++ = a[i++];                                                                       \
        while (j < nb)                                                                            \
            *to++ = b[j++];                                                                       \
    }                                                                                             \
    static void sort_##S(void *arg, int64_t begin, int64_t end)                                   \
    {                                                                                             \
        const rows *c = arg;                                                                      \
        for (int64_t r = begin; r < end; r++) {                                                   \
            const T *x = (const T *)c->x + r * c->n;                                              \
            T *y = (T *)c->y + r * c->n;                                                          \
            int64_t *from = c->index + r * c->n, *to = c->spare + r * c->n;                       \
            for (int64_t i = 0; i < c->n; i++)                                                    \
                from[i] = i;                                                                      \
            for (int64_t run = 1; run < c->n; run *= 2) {                                         \
                for (int64_t i = 0; i < c->n; i += 2 * run) {                                     \
                    int64_t na = CTI_MIN(run, c->n - i), nb = CTI_MIN(run, c->n - i - na);        \
                    merge_##S(x, from + i, na, from + i + na, nb, to + i, c->descending);         \
                }                                                                                 \
                int64_t *swap = from;                                                             \
                from = to;                                                                        \
                to = swap;                                                                        \
            }                                                                                     \
            int64_t *index = c->index + r * c->n;                                                 \
            for (int64_t i = 0; i < c->n; i++) {                                                  \
                y[i] = x[from[i]];                                                                \
                index[i] = from[i];                                                               \
            }                                                                                     \
        }                                                                                         \
    }
SORT(float, f32)
SORT(double, f64)
#undef SORT

size_t cti_cpu_sort_workspace(ct_stream *s, const ct_view *x)
{
    (void)s;
    return (size_t)ct_view_numel(x) * sizeof(int64_t);
}

int cti_cpu_sort(ct_stream *s, const ct_view *y, const ct_view *index, const ct_view *x,
                 bool descending, void *workspace)
{
    rows c = {.x = x->data,
              .y = y->data,
              .index = index->data,
              .spare = workspace,
              .n = row_length(x),
              .descending = descending};
    int64_t numel = ct_view_numel(x);

    if ((x->dtype != CT_F32 && x->dtype != CT_F64) || y->dtype != x->dtype ||
        index->dtype != CT_I64)
        return CT_EDTYPE;
    if (numel > 0)
        cti_parallel(s, numel / c.n, 8 * numel, x->dtype == CT_F32 ? sort_f32 : sort_f64, &c);
    return CT_OK;
}
