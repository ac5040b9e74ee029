/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of image.c for one float type. No include guard: see template.h. Strides are in elements. */
#define FN(name)       CTI_PASTE(name, S)
#define TAP            CTI_PASTE(cti_tap, S)
#define TAP_OF         CTI_PASTE(cti_tap_of, S)
#define PLANE(v, n, c) ((T *)(v)->data + (n) * (v)->stride[0] + (c) * (v)->stride[1])

/* Task: a row of y, one cell of the window of one channel. */
static void FN(unfold)(void *ctx, int64_t begin, int64_t end)
{
    const ct_unfold_args *a = ((const job *)ctx)->unfold;
    const ct_view *x = &a->x, *y = &a->y;
    const int64_t rows = y->shape[1], R = a->kernel[0], K = a->kernel[1];

    for (int64_t t = begin; t < end; t++) {
        int64_t row = t % rows, c = row / (R * K), i = row / K % R, j = row % K;
        const T *from = PLANE(x, t / rows, c);
        T *to = PLANE(y, t / rows, row);
        for (int64_t p = 0; p < a->out[0]; p++) {
            int64_t h = p * a->stride[0] - a->pad[0] + i * a->dilation[0];
            for (int64_t q = 0; q < a->out[1]; q++, to += y->stride[2]) {
                int64_t w = q * a->stride[1] - a->pad[1] + j * a->dilation[1];
                bool there = h >= 0 && h < x->shape[2] && w >= 0 && w < x->shape[3];
                *to = there ? from[h * x->stride[2] + w * x->stride[3]] : 0;
            }
        }
    }
}

static void FN(clear_plane)(const ct_view *v, T *plane)
{
    for (int64_t h = 0; h < v->shape[2]; h++)
        for (int64_t w = 0; w < v->shape[3]; w++)
            plane[h * v->stride[2] + w * v->stride[3]] = 0;
}

/* Task: one channel of an image. */
static void FN(fold)(void *ctx, int64_t begin, int64_t end)
{
    const job *g = ctx;
    const ct_unfold_args *a = g->unfold;
    const ct_view *x = &a->x, *y = &a->y;
    const int64_t R = a->kernel[0], K = a->kernel[1];

    for (int64_t t = begin; t < end; t++) {
        int64_t n = t / x->shape[1], c = t % x->shape[1];
        T *to = PLANE(x, n, c);
        if (!g->beta)
            FN(clear_plane)(x, to);
        for (int64_t cell = 0; cell < R * K; cell++) {
            const T *from = PLANE(y, n, c * R * K + cell);
            for (int64_t p = 0; p < a->out[0]; p++) {
                int64_t h = p * a->stride[0] - a->pad[0] + cell / K * a->dilation[0];
                for (int64_t q = 0; q < a->out[1]; q++, from += y->stride[2]) {
                    int64_t w = q * a->stride[1] - a->pad[1] + cell % K * a->dilation[1];
                    if (h >= 0 && h < x->shape[2] && w >= 0 && w < x->shape[3])
                        to[h * x->stride[2] + w * x->stride[3]] += *from;
                }
            }
        }
    }
}

/* Task: a row of one channel of y. */
static void FN(resize)(void *ctx, int64_t begin, int64_t end)
{
    const job *g = ctx;
    const ct_view *x = g->x, *y = g->y;
    const int64_t C = y->shape[1], P = y->shape[2], xs = x->stride[3];

    for (int64_t t = begin; t < end; t++) {
        int64_t n = t / (C * P), c = t / P % C, p = t % P;
        TAP h = TAP_OF(&g->axis[0], p);
        const T *low = PLANE(x, n, c) + h.low * x->stride[2];
        const T *high = PLANE(x, n, c) + h.high * x->stride[2];
        T *to = PLANE(y, n, c) + p * y->stride[2];
        for (int64_t q = 0; q < y->shape[3]; q++, to += y->stride[3]) {
            TAP w = TAP_OF(&g->axis[1], q);
            if (!g->axis[0].linear) {
                *to = low[w.low * xs];
                continue;
            }
            T a = (1 - w.w) * low[w.low * xs] + w.w * low[w.high * xs];
            T b = (1 - w.w) * high[w.low * xs] + w.w * high[w.high * xs];
            *to = (1 - h.w) * a + h.w * b;
        }
    }
}

/* Task: one channel of an image. */
static void FN(resize_grad)(void *ctx, int64_t begin, int64_t end)
{
    const job *g = ctx;
    const ct_view *x = g->x, *y = g->y;
    const int64_t C = x->shape[1], xs = x->stride[3];

    for (int64_t t = begin; t < end; t++) {
        T *plane = PLANE(x, t / C, t % C);
        if (!g->beta)
            FN(clear_plane)(x, plane);
        for (int64_t p = 0; p < y->shape[2]; p++) {
            TAP h = TAP_OF(&g->axis[0], p);
            T *low = plane + h.low * x->stride[2], *high = plane + h.high * x->stride[2];
            const T *from = PLANE(y, t / C, t % C) + p * y->stride[2];
            for (int64_t q = 0; q < y->shape[3]; q++, from += y->stride[3]) {
                TAP w = TAP_OF(&g->axis[1], q);
                if (!g->axis[0].linear) {
                    low[w.low * xs] += *from;
                    continue;
                }
                low[w.low * xs] += (1 - h.w) * (1 - w.w) * *from;
                low[w.high * xs] += (1 - h.w) * w.w * *from;
                high[w.low * xs] += h.w * (1 - w.w) * *from;
                high[w.high * xs] += h.w * w.w * *from;
            }
        }
    }
}

#undef PLANE
#undef TAP_OF
#undef TAP
#undef FN
#undef T
#undef S
