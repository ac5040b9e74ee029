/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of images as columns, and back; images resized. */
#include "backend/cpu/parallel.h"
#include "backend/cpu/template.h"
#include "backend/resize.h"

enum { COLUMNS = 128 };

typedef struct job {
    const ct_unfold_args *unfold;
    cti_axis axis[2];
    const ct_view *x, *y; /* resize */
    int beta;
} job;

#define T   float
#define S   f32
#define ISA CTI_ISA
#include "backend/cpu/image_t.h"
#define T double
#define S f64
#define ISA
#include "backend/cpu/image_t.h"

static int pick(ct_stream *s, const ct_view *x, const ct_view *y, int64_t tasks, int64_t work,
                cti_task_fn f32, cti_task_fn f64, job *j)
{
    if (x->dtype != y->dtype || (x->dtype != CT_F32 && x->dtype != CT_F64))
        return CT_EDTYPE;
    cti_parallel(s, work ? tasks : 0, work, x->dtype == CT_F32 ? f32 : f64, j);
    return CT_OK;
}

static int unfold(ct_stream *s, const ct_unfold_args *a)
{
    job j = {.unfold = a};
    return pick(s, &a->x, &a->y, a->y.shape[0] * a->y.shape[1], ct_view_numel(&a->y), unfold_f32,
                unfold_f64, &j);
}

static int fold(ct_stream *s, const ct_unfold_args *a, int beta)
{
    job j = {.unfold = a, .beta = beta};
    return pick(s, &a->x, &a->y, a->x.shape[0] * a->x.shape[1],
                ct_view_numel(&a->x) + ct_view_numel(&a->y), fold_f32, fold_f64, &j);
}

static void axes(job *j, const ct_resize_args *a)
{
    for (int i = 0; i < 2; i++)
        j->axis[i] = (cti_axis){a->x.shape[2 + i], a->y.shape[2 + i], a->step[i], a->linear,
                                a->align_corners};
}

static int resize(ct_stream *s, const ct_resize_args *a)
{
    job j = {.x = &a->x, .y = &a->y};
    const int64_t n = a->y.shape[0] * a->y.shape[2], work = ct_view_numel(&a->y);
    axes(&j, a);
    if (a->x.stride[1] == 1 && a->y.stride[1] == 1 && a->x.shape[1] >= 8)
        return pick(s, &a->x, &a->y, n, work, resize_last_f32, resize_last_f64, &j);
    return pick(s, &a->x, &a->y, n * a->y.shape[1], work, resize_f32, resize_f64, &j);
}

static int resize_grad(ct_stream *s, const ct_resize_args *a, int beta)
{
    job j = {.x = &a->x, .y = &a->y, .beta = beta};
    axes(&j, a);
    return pick(s, &a->x, &a->y, a->x.shape[0] * a->x.shape[1],
                ct_view_numel(&a->x) + ct_view_numel(&a->y), resize_grad_f32, resize_grad_f64, &j);
}

const ct_k_image cti_cpu_image = {
    .unfold = unfold,
    .fold = fold,
    .resize = resize,
    .resize_grad = resize_grad,
};
