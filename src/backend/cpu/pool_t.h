/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling loops for one float type. No include guard: see template.h. Channels are worked on LANES at a
 * time in buffers that stay in the first cache (avg: FEW, in registers); strides are in elements, `cx`, `cy`, `ci` are the
 * channels' (literal 1 for channels-last). */
#define FN(name) CTI_PASTE(name, S)

/* One window of max for n <= LANES channels. As PyTorch: strictly larger wins, a NaN always. */
CTI_INLINE void FN(max_cell)(const geometry *g, const window *h, const window *w, const T *x, T *y,
                             int32_t *index, int64_t cx, int64_t cy, int64_t ci, int n)
{
    T best[LANES];
    int32_t at[LANES];

    for (int j = 0; j < n; j++) {
        best[j] = -(T)INFINITY;
        at[j] =
            h->first < h->last && w->first < w->last ? (int32_t)(h->first * g->W + w->first) : -1;
    }
    for (int64_t a = h->first; a < h->last; a += g->dilation[0])
        for (int64_t b = w->first; b < w->last; b += g->dilation[1]) {
            const T *v = x + a * g->xs[2] + b * g->xs[3];
            int32_t cell = (int32_t)(a * g->W + b);
            for (int j = 0; j < n; j++) {
                T value = v[j * cx];
                int take = (value > best[j]) | (value != value);
                best[j] = take ? value : best[j];
                at[j] = take ? cell : at[j];
            }
        }
    for (int j = 0; j < n; j++)
        y[j * cy] = best[j];
    if (index)
        for (int j = 0; j < n; j++)
            index[j * ci] = at[j];
}

static ISA void FN(max_row)(const geometry *g, const void *xp, void *yp, int32_t *ip, int64_t p)
{
    window h = window_of(g, 0, p);

    for (int64_t q = 0; q < g->Q; q++) {
        window w = window_of(g, 1, q);
        T *y = (T *)yp + q * g->ys[3];
        int32_t *index = ip ? ip + q * g->is[3] : NULL;
        const T *x = xp;
        int64_t c = 0, cx = g->xs[1], cy = g->ys[1], ci = g->is[1];
        if (g->dense)
            for (; c < g->C; c += LANES)
                FN(max_cell)
                (g, &h, &w, x + c, y + c, index ? index + c : NULL, 1, 1, 1,
                 (int)CTI_MIN(LANES, g->C - c));
        for (; c < g->C; c += LANES)
            FN(max_cell)
            (g, &h, &w, x + c * cx, y + c * cy, index ? index + c * ci : NULL, cx, cy, ci,
             (int)CTI_MIN(LANES, g->C - c));
    }
}

/* Gathered, so that no two threads write one element: each input cell asks the windows that cover it. */
CTI_INLINE void FN(max_grad_cell)(const geometry *g, const window *p, const window *q, int32_t cell,
                                  T *dx, const T *dy, const int32_t *index, int64_t cx, int64_t cy,
                                  int64_t ci, int n)
{
    T sum[LANES];

    for (int j = 0; j < n; j++)
        sum[j] = 0;
    for (int64_t a = p->first; a < p->last; a++)
        for (int64_t b = q->first; b < q->last; b++) {
            const T *d = dy + a * g->ys[2] + b * g->ys[3];
            const int32_t *at = index + a * g->is[2] + b * g->is[3];
            for (int j = 0; j < n; j++) {
                T v = d[j * cy];
                sum[j] += at[j * ci] == cell ? v : 0;
            }
        }
    if (g->beta)
        for (int j = 0; j < n; j++)
            dx[j * cx] += sum[j];
    else
        for (int j = 0; j < n; j++)
            dx[j * cx] = sum[j];
}

static ISA void FN(max_grad_row)(const geometry *g, void *dxp, const void *dyp, const int32_t *ip,
                                 int64_t h)
{
    window p = covering(g, 0, h);

    for (int64_t w = 0; w < g->W; w++) {
        window q = covering(g, 1, w);
        T *dx = (T *)dxp + w * g->xs[3];
        const T *dy = dyp;
        int32_t cell = (int32_t)(h * g->W + w);
        int64_t c = 0, cx = g->xs[1], cy = g->ys[1], ci = g->is[1];
        if (g->dense)
            for (; c < g->C; c += LANES)
                FN(max_grad_cell)
                (g, &p, &q, cell, dx + c, dy + c, ip + c, 1, 1, 1, (int)CTI_MIN(LANES, g->C - c));
        for (; c < g->C; c += LANES)
            FN(max_grad_cell)
            (g, &p, &q, cell, dx + c * cx, dy + c * cy, ip + c * ci, cx, cy, ci,
             (int)CTI_MIN(LANES, g->C - c));
    }
}

CTI_INLINE void FN(avg_cell)(const geometry *g, const window *h, const window *w, const T *x, T *y,
                             int64_t cx, int64_t cy, int n)
{
    T sum[FEW], div = (T)(h->divisor * w->divisor);

    for (int j = 0; j < n; j++)
        sum[j] = 0;
    for (int64_t a = h->first; a < h->last; a++)
        for (int64_t b = w->first; b < w->last; b++) {
            const T *v = x + a * g->xs[2] + b * g->xs[3];
            for (int j = 0; j < n; j++)
                sum[j] += v[j * cx];
        }
    if (h->first >= h->last || w->first >= w->last)
        div = 1;
    for (int j = 0; j < n; j++)
        y[j * cy] = sum[j] / div;
}

static ISA void FN(avg_row)(const geometry *g, const void *xp, void *yp, int64_t p)
{
    window h = window_of(g, 0, p);

    for (int64_t q = 0; q < g->Q; q++) {
        window w = window_of(g, 1, q);
        T *y = (T *)yp + q * g->ys[3];
        const T *x = xp;
        int64_t c = 0, cx = g->xs[1], cy = g->ys[1];
        if (g->dense)
            for (; c + FEW <= g->C; c += FEW)
                FN(avg_cell)(g, &h, &w, x + c, y + c, 1, 1, FEW);
        for (; c < g->C; c += FEW)
            FN(avg_cell)(g, &h, &w, x + c * cx, y + c * cy, cx, cy, (int)CTI_MIN(FEW, g->C - c));
    }
}

CTI_INLINE void FN(avg_grad_cell)(const geometry *g, const window *p, const window *q, T *dx,
                                  const T *dy, int64_t cx, int64_t cy, int n)
{
    T sum[FEW];

    for (int j = 0; j < n; j++)
        sum[j] = 0;
    for (int64_t a = p->first; a < p->last; a++)
        for (int64_t b = q->first; b < q->last; b++) {
            window h = window_of(g, 0, a), w = window_of(g, 1, b);
            const T *d = dy + a * g->ys[2] + b * g->ys[3];
            T div = (T)(h.divisor * w.divisor);
            for (int j = 0; j < n; j++)
                sum[j] += d[j * cy] / div;
        }
    if (g->beta)
        for (int j = 0; j < n; j++)
            dx[j * cx] += sum[j];
    else
        for (int j = 0; j < n; j++)
            dx[j * cx] = sum[j];
}

static ISA void FN(avg_grad_row)(const geometry *g, void *dxp, const void *dyp, int64_t h)
{
    window p = covering(g, 0, h);

    for (int64_t w = 0; w < g->W; w++) {
        window q = covering(g, 1, w);
        T *dx = (T *)dxp + w * g->xs[3];
        const T *dy = dyp;
        int64_t c = 0, cx = g->xs[1], cy = g->ys[1];
        if (g->dense)
            for (; c + FEW <= g->C; c += FEW)
                FN(avg_grad_cell)(g, &p, &q, dx + c, dy + c, 1, 1, FEW);
        for (; c < g->C; c += FEW)
            FN(avg_grad_cell)
            (g, &p, &q, dx + c * cx, dy + c * cy, cx, cy, (int)CTI_MIN(FEW, g->C - c));
    }
}

#undef FN
#undef T
#undef S
#undef ISA
