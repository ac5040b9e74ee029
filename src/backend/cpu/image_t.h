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

/* The cells of outputs [at, at + n) of an axis, as offsets for a stride: computed once for many rows. */
typedef struct FN(taps) {
    int64_t low[COLUMNS], high[COLUMNS];
    T w[COLUMNS];
} FN(taps);

CTI_INLINE void FN(taps_of)(FN(taps) * t, const cti_axis *a, int64_t at, int n, int64_t stride)
{
    for (int i = 0; i < n; i++) {
        TAP one = TAP_OF(a, at + i);
        t->low[i] = one.low * stride;
        t->high[i] = one.high * stride;
        t->w[i] = one.w;
    }
}

CTI_INLINE T FN(blend)(T v, T h, T a, T b, T c, T d)
{
    return (1 - v) * ((1 - h) * a + h * b) + v * ((1 - h) * c + h * d);
}

/* Task: a row of one channel of y. */
static ISA void FN(resize)(void *ctx, int64_t begin, int64_t end)
{
    const job *g = ctx;
    const ct_view *x = g->x, *y = g->y;
    const int64_t C = y->shape[1], P = y->shape[2], Q = y->shape[3], ys = y->stride[3];
    FN(taps) w;

    for (int64_t q = 0; q < Q; q += COLUMNS) {
        const int n = (int)CTI_MIN(COLUMNS, Q - q);
        FN(taps_of)(&w, &g->axis[1], q, n, x->stride[3]);
        for (int64_t t = begin; t < end; t++) {
            int64_t p = t % P;
            TAP h = TAP_OF(&g->axis[0], p);
            const T *plane = PLANE(x, t / (C * P), t / P % C);
            const T *a = plane + h.low * x->stride[2], *b = plane + h.high * x->stride[2];
            T *to = PLANE(y, t / (C * P), t / P % C) + p * y->stride[2] + q * ys;
            if (g->axis[0].linear)
                for (int i = 0; i < n; i++)
                    to[i * ys] = FN(blend)(h.w, w.w[i], a[w.low[i]], a[w.high[i]], b[w.low[i]],
                                           b[w.high[i]]);
            else
                for (int i = 0; i < n; i++)
                    to[i * ys] = a[w.low[i]];
        }
    }
}

/* Task: a row of all channels of y, both sides channels-last. */
static ISA void FN(resize_last)(void *ctx, int64_t begin, int64_t end)
{
    const job *g = ctx;
    const ct_view *x = g->x, *y = g->y;
    const int64_t C = y->shape[1], P = y->shape[2];

    for (int64_t t = begin; t < end; t++) {
        TAP h = TAP_OF(&g->axis[0], t % P);
        const T *low = PLANE(x, t / P, 0) + h.low * x->stride[2];
        const T *high = PLANE(x, t / P, 0) + h.high * x->stride[2];
        T *to = PLANE(y, t / P, 0) + t % P * y->stride[2];
        for (int64_t q = 0; q < y->shape[3]; q++, to += y->stride[3]) {
            TAP w = TAP_OF(&g->axis[1], q);
            const T *a = low + w.low * x->stride[3], *b = low + w.high * x->stride[3];
            const T *c = high + w.low * x->stride[3], *d = high + w.high * x->stride[3];
            if (g->axis[0].linear)
                for (int64_t k = 0; k < C; k++)
                    to[k] = FN(blend)(h.w, w.w, a[k], b[k], c[k], d[k]);
            else
                for (int64_t k = 0; k < C; k++)
                    to[k] = a[k];
        }
    }
}

/* Task: one channel of an image. */
static ISA void FN(resize_grad)(void *ctx, int64_t begin, int64_t end)
{
    const job *g = ctx;
    const ct_view *x = g->x, *y = g->y;
    const int64_t C = x->shape[1], Q = y->shape[3], ys = y->stride[3];
    FN(taps) w;

    for (int64_t t = begin; t < end && !g->beta; t++)
        FN(clear_plane)(x, PLANE(x, t / C, t % C));
    for (int64_t q = 0; q < Q; q += COLUMNS) {
        const int n = (int)CTI_MIN(COLUMNS, Q - q);
        FN(taps_of)(&w, &g->axis[1], q, n, x->stride[3]);
        for (int64_t t = begin; t < end; t++)
            for (int64_t p = 0; p < y->shape[2]; p++) {
                TAP h = TAP_OF(&g->axis[0], p);
                T *a = PLANE(x, t / C, t % C) + h.low * x->stride[2];
                T *b = PLANE(x, t / C, t % C) + h.high * x->stride[2];
                const T *from = PLANE(y, t / C, t % C) + p * y->stride[2] + q * ys;
                for (int i = 0; i < n; i++) {
                    T dy = from[i * ys], up = (1 - h.w) * dy, down = h.w * dy;
                    if (!g->axis[0].linear) {
                        a[w.low[i]] += dy;
                        continue;
                    }
                    a[w.low[i]] += (1 - w.w[i]) * up;
                    a[w.high[i]] += w.w[i] * up;
                    b[w.low[i]] += (1 - w.w[i]) * down;
                    b[w.high[i]] += w.w[i] * down;
                }
            }
    }
}

#undef PLANE
#undef TAP_OF
#undef TAP
#undef FN
#undef ISA
#undef T
#undef S
