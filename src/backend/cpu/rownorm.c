/* SPDX-License-Identifier: Apache-2.0 */
/* Layer and RMS norm: along rows of row-major matrices. A row is one thread's, its sums are in double. */
#include "backend/cpu/rows.h"

#include "backend/cpu/parallel.h"

#include <math.h>

typedef struct rownorm {
    const ct_rownorm_args *a;
    void *dx, *t;
    const void *dy;
    int beta;
} rownorm;

#define ROWNORM(T, S)                                                                         \
    static void forward_##S(void *arg, int64_t begin, int64_t end)                            \
    {                                                                                         \
        const ct_rownorm_args *a = ((const rownorm *)arg)->a;                                 \
        const T *w = a->weight ? a->weight->data : NULL, *b = a->bias ? a->bias->data : NULL; \
        int64_t n = a->n;                                                                     \
        for (int64_t r = begin; r < end; r++) {                                               \
            const T *x = (const T *)a->x.data + r * n;                                        \
            T *y = (T *)a->y.data + r * n;                                                    \
            double sum = 0, sq = 0;                                                           \
            for (int64_t i = 0; i < n && !a->rms; i++)                                        \
                sum += (double)x[i];                                                          \
            double mean = sum / (double)n;                                                    \
            for (int64_t i = 0; i < n; i++)                                                   \
                sq += ((double)x[i] - mean) * ((double)x[i] - mean);                          \
            double invstd = 1 / sqrt(sq / (double)n + a->eps);                                \
            T m = (T)mean, s = (T)invstd;                                                     \
            ((T *)a->mean.data)[r] = m;                                                       \
            ((T *)a->invstd.data)[r] = s;                                                     \
            for (int64_t i = 0; i < n; i++)                                                   \
                y[i] = (x[i] - m) * s * (w ? w[i] : 1) + (b ? b[i] : 0);                      \
        }                                                                                     \
    }                                                                                         \
    static void backward_##S(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                         \
        const rownorm *c = arg;                                                               \
        const ct_rownorm_args *a = c->a;                                                      \
        const T *w = a->weight ? a->weight->data : NULL;                                      \
        int64_t n = a->n;                                                                     \
        for (int64_t r = begin; r < end; r++) {                                               \
            const T *x = (const T *)a->x.data + r * n, *dy = (const T *)c->dy + r * n;        \
            T *dx = c->dx ? (T *)c->dx + r * n : NULL, *t = c->t ? (T *)c->t + r * n : NULL;  \
            T m = ((const T *)a->mean.data)[r], s = ((const T *)a->invstd.data)[r];           \
            double sum = 0, along = 0;                                                        \
            for (int64_t i = 0; i < n; i++) {                                                 \
                T xhat = (x[i] - m) * s;                                                      \
                double g = (double)(w ? dy[i] * w[i] : dy[i]);                                \
                sum += g;                                                                     \
                along += g * (double)xhat;                                                    \
                if (t)                                                                        \
                    t[i] = dy[i] * xhat;                                                      \
            }                                                                                 \
            T mean_g = a->rms ? 0 : (T)(sum / (double)n), mean_gx = (T)(along / (double)n);   \
            for (int64_t i = 0; i < n && dx; i++) {                                           \
                T g = w ? dy[i] * w[i] : dy[i];                                               \
                T v = s * (g - mean_g - (x[i] - m) * s * mean_gx);                            \
                dx[i] = c->beta ? dx[i] + v : v;                                              \
            }                                                                                 \
        }                                                                                     \
    }
ROWNORM(float, f32)
ROWNORM(double, f64)
#undef ROWNORM

static int run(ct_stream *s, const ct_rownorm_args *a, cti_task_fn f32, cti_task_fn f64, rownorm *c)
{
    int64_t numel = ct_view_numel(&a->x);
    if (a->x.dtype != CT_F32 && a->x.dtype != CT_F64)
        return CT_EDTYPE;
    if (numel > 0)
        cti_parallel(s, numel / a->n, 4 * numel, a->x.dtype == CT_F32 ? f32 : f64, c);
    return CT_OK;
}

int cti_cpu_rownorm(ct_stream *s, const ct_rownorm_args *args)
{
    rownorm c = {.a = args};
    return run(s, args, forward_f32, forward_f64, &c);
}

int cti_cpu_rownorm_grad(ct_stream *s, const ct_rownorm_args *args, const ct_view *dx, int beta,
                         const ct_view *t, const ct_view *dy)
{
    rownorm c = {.a = args,
                 .dx = dx ? dx->data : NULL,
                 .t = t ? t->data : NULL,
                 .dy = dy->data,
                 .beta = beta};
    return run(s, args, backward_f32, backward_f64, &c);
}
