/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm's loops for one float type. No include guard: see template.h. */
#define FN(name)       CTI_PASTE(name, S)
#define ROWP(p, rs, r) ((const T *)((p) + (r) * (rs)))

/* t[0..w) += F of up to ROW_BLOCK rows, eight at a time in a tree. F reads column j of row r. */
#define COLUMN_SUM(t, rows, w, F)                                                          \
    do {                                                                                   \
        int64_t r_ = 0;                                                                    \
        for (; r_ + 8 <= (rows); r_ += 8)                                                  \
            for (int64_t j = 0; j < (w); j++)                                              \
                (t)[j] += ((F(r_, j) + F(r_ + 1, j)) + (F(r_ + 2, j) + F(r_ + 3, j))) +    \
                          ((F(r_ + 4, j) + F(r_ + 5, j)) + (F(r_ + 6, j) + F(r_ + 7, j))); \
        for (; r_ < (rows); r_++)                                                          \
            for (int64_t j = 0; j < (w); j++)                                              \
                (t)[j] += F(r_, j);                                                        \
    } while (0)

/* Mean and sum of squares around it of one block: around a shift near the mean, so that nothing cancels
 * however far from zero the values are; then joined to the task's (Chan et al. 1979). */
static ISA void FN(stats_block)(const char *p, int64_t rs, int64_t rows, int64_t w, int64_t before,
                                double *mean, double *m2)
{
    T k[WIDE] = {0}, d[WIDE] = {0}, q[WIDE] = {0};
    double n = (double)rows, share = n / (double)(before + rows), both = (double)before * share;

#define F(r, j) ROWP(p, rs, r)[j]
    COLUMN_SUM(k, rows, w, F);
#undef F
    for (int64_t j = 0; j < w; j++)
        k[j] /= (T)rows;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const T *x0 = ROWP(p, rs, r), *x1 = ROWP(p, rs, r + 1);
        const T *x2 = ROWP(p, rs, r + 2), *x3 = ROWP(p, rs, r + 3);
        for (int64_t j = 0; j < w; j++) {
            T a = x0[j] - k[j], b = x1[j] - k[j], c = x2[j] - k[j], e = x3[j] - k[j];
            d[j] += (a + b) + (c + e);
            q[j] += (a * a + b * b) + (c * c + e * e);
        }
    }
    for (; r < rows; r++) {
        const T *x0 = ROWP(p, rs, r);
        for (int64_t j = 0; j < w; j++) {
            T a = x0[j] - k[j];
            d[j] += a;
            q[j] += a * a;
        }
    }
    for (int64_t j = 0; j < w; j++) {
        double block = (double)k[j] + (double)d[j] / n, delta = block - mean[j];
        m2[j] += (double)q[j] - (double)d[j] * (double)d[j] / n + delta * delta * both;
        mean[j] += delta * share;
    }
}

/* y = (x - mean) * scale + shift on rows of w columns. */
static ISA void FN(apply_rows)(char *y, int64_t ys, const char *x, int64_t xs, int64_t rows,
                               int64_t w, const void *mean, const void *scale, const void *shift)
{
    const T *m = mean, *a = scale, *b = shift;

    for (int64_t r = 0; r < rows; r++) {
        T *yv = (T *)(y + r * ys);
        const T *xv = ROWP(x, xs, r);
        CTI_VEC
        for (int64_t j = 0; j < w; j++)
            yv[j] = (xv[j] - m[j]) * a[j] + b[j];
    }
}

/* The sums of dy and of dy (x - mean) of one block. */
static ISA void FN(grad_block)(const char *dy, int64_t ds, const char *x, int64_t xs, int64_t rows,
                               int64_t w, const void *mean, double *sum, double *dot)
{
    const T *m = mean;
    T t[WIDE] = {0}, u[WIDE] = {0};

#define F(r, j) ROWP(dy, ds, r)[j]
    COLUMN_SUM(t, rows, w, F);
#undef F
#define F(r, j) (ROWP(dy, ds, r)[j] * (ROWP(x, xs, r)[j] - m[j]))
    COLUMN_SUM(u, rows, w, F);
#undef F
    for (int64_t j = 0; j < w; j++) {
        sum[j] += (double)t[j];
        dot[j] += (double)u[j];
    }
}

/* dx = beta dx + (dy - gm - (x - mean) k) scale. */
static ISA void FN(grad_rows)(char *dx, int64_t gs, int beta, const char *dy, int64_t ds,
                              const char *x, int64_t xs, int64_t rows, int64_t w,
                              const void *vectors, int64_t stride)
{
    const T *m = vectors, *a = m + stride, *gm = a + stride, *k = gm + stride;

    for (int64_t r = 0; r < rows; r++) {
        T *g = (T *)(dx + r * gs);
        const T *dv = ROWP(dy, ds, r), *xv = ROWP(x, xs, r);
        if (beta) {
            CTI_VEC
            for (int64_t j = 0; j < w; j++)
                g[j] += (dv[j] - gm[j] - (xv[j] - m[j]) * k[j]) * a[j];
        } else {
            CTI_VEC
            for (int64_t j = 0; j < w; j++)
                g[j] = (dv[j] - gm[j] - (xv[j] - m[j]) * k[j]) * a[j];
        }
    }
}

/* ---- any layout: one channel at a time ---- */
static void FN(stats_span)(const cti_span *sp, const void *arg)
{
    channel *c = *(channel *const *)arg;
    T buf[PIECE];

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i += PIECE) {
            int64_t n = CTI_MIN(PIECE, sp->n - i);
            double sum = 0, d = 0, q = 0, share, delta, block;
            for (int64_t j = 0; j < n; j++) {
                buf[j] = *(const T *)(sp->p[0] + r * sp->rs[0] + (i + j) * sp->s[0]);
                sum += (double)buf[j];
            }
            sum /= (double)n;
            for (int64_t j = 0; j < n; j++) {
                double a = (double)buf[j] - sum;
                d += a;
                q += a * a;
            }
            share = (double)n / (double)(c->n + n);
            block = sum + d / (double)n;
            delta = block - c->mean;
            c->m2 += q - d * d / (double)n + delta * delta * (double)c->n * share;
            c->mean += delta * share;
            c->n += n;
        }
}

static void FN(apply_span)(const cti_span *sp, const void *arg)
{
    const channel *c = arg;
    T m = (T)c->mean, a = (T)c->scale, b = (T)c->shift;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++)
            *(T *)(sp->p[1] + r * sp->rs[1] + i * sp->s[1]) =
                (*(const T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]) - m) * a + b;
}

/* Operands: dy, x. */
static void FN(grad_sum_span)(const cti_span *sp, const void *arg)
{
    channel *c = *(channel *const *)arg;
    T m = (T)c->mean;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++) {
            T dy = *(const T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]);
            T x = *(const T *)(sp->p[1] + r * sp->rs[1] + i * sp->s[1]);
            c->sum += (double)dy;
            c->dot += (double)(dy * (x - m));
        }
}

/* Operands: dy, x, dx. */
static void FN(grad_span)(const cti_span *sp, const void *arg)
{
    const channel *c = arg;
    T m = (T)c->mean, a = (T)c->scale, gm = (T)c->gm, k = (T)c->k;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++) {
            T dy = *(const T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]);
            T x = *(const T *)(sp->p[1] + r * sp->rs[1] + i * sp->s[1]);
            T *dx = (T *)(sp->p[2] + r * sp->rs[2] + i * sp->s[2]);
            T g = (dy - gm - (x - m) * k) * a;
            *dx = c->beta ? *dx + g : g;
        }
}

/* Writes vector number `which` of the workspace: the value of each channel, `fold` times. */
static void FN(vector_set)(void *vectors, int64_t at, int64_t channels, int64_t fold, double value)
{
    T *v = vectors;
    for (int64_t f = 0; f < fold; f++)
        v[f * channels + at] = (T)value;
}

#undef COLUMN_SUM
#undef ROWP
#undef FN
#undef T
#undef S
#undef ISA
