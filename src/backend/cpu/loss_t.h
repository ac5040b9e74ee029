/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross-entropy for one float type. No include guard: see template.h. A row is the classes
 * of one position; strides are in elements. */
#define FN(name) CTI_PASTE(name, S)
#define EXP(x)   FN(cti_exp)(x)
#define LOG(x)   FN(cti_log)(x)

/* The sum of b[0..n), n <= PIECE, in lanes. */
CTI_INLINE double FN(piece_sum)(const T *b, int64_t n)
{
    T t[LANES] = {0};
    double sum = 0;
    int64_t i = 0;

    if (n < LANES) {
        for (; i < n; i++)
            sum += (double)b[i];
        return sum;
    }
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            t[j] += b[i + j];
    for (int j = 0; i + j < n; j++)
        t[j] += b[i + j];
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            t[j] += t[j + w];
    return (double)t[0];
}

/* A NaN doesn't win here, but makes the sum of exponentials a NaN. */
CTI_INLINE T FN(row_max)(const T *x, int64_t sx, int64_t n)
{
    T m = -(T)INFINITY, t[LANES];
    int64_t i = 0;

    if (n >= 4 * LANES) {
        for (int j = 0; j < LANES; j++)
            t[j] = m;
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++)
                t[j] = x[(i + j) * sx] > t[j] ? x[(i + j) * sx] : t[j];
        for (int j = 0; j < LANES; j++)
            m = t[j] > m ? t[j] : m;
    }
    for (; i < n; i++)
        m = x[i * sx] > m ? x[i * sx] : m;
    return m;
}

/* The sum of exp(x - m); also kept in e (stride se) unless that is NULL. */
CTI_INLINE T FN(row_exp)(T *e, int64_t se, const T *x, int64_t sx, int64_t n, T m)
{
    T b[PIECE];
    double sum = 0;

    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t k = CTI_MIN(PIECE, n - i);
        for (int64_t j = 0; j < k; j++)
            b[j] = EXP(x[(i + j) * sx] - m);
        sum += FN(piece_sum)(b, k);
        if (e)
            for (int64_t j = 0; j < k; j++)
                e[(i + j) * se] = b[j];
    }
    return (T)sum;
}

CTI_INLINE void FN(softmax_row)(T *y, int64_t sy, const T *x, int64_t sx, int64_t n, bool log)
{
    T m = FN(row_max)(x, sx, n);
    T sum = FN(row_exp)(log ? NULL : y, sy, x, sx, n, m);

    if (log) {
        T ls = LOG(sum);
        for (int64_t i = 0; i < n; i++)
            y[i * sy] = x[i * sx] - m - ls;
    } else {
        for (int64_t i = 0; i < n; i++)
            y[i * sy] = y[i * sy] / sum;
    }
}

static ISA void FN(softmax_span)(const cti_span *sp, const void *arg)
{
    const softmax_arg *a = arg;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++) {
            T *y = (T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]);
            const T *x = (const T *)(sp->p[1] + r * sp->rs[1] + i * sp->s[1]);
            if (a->stride[0] == 1 && a->stride[1] == 1)
                FN(softmax_row)(y, 1, x, 1, a->n, a->log);
            else
                FN(softmax_row)(y, a->stride[0], x, a->stride[1], a->n, a->log);
        }
}

/* dx = y (dy - sum(dy y)), or dx = dy - exp(y) sum(dy). */
CTI_INLINE void FN(softmax_grad_row)(const softmax_arg *a, T *dx, const T *dy, const T *y,
                                     int64_t sx, int64_t sd, int64_t sy)
{
    T b[PIECE];
    double sum = 0;

    for (int64_t i = 0; i < a->n; i += PIECE) {
        int64_t k = CTI_MIN(PIECE, a->n - i);
        for (int64_t j = 0; j < k; j++)
            b[j] = a->log ? dy[(i + j) * sd] : dy[(i + j) * sd] * y[(i + j) * sy];
        sum += FN(piece_sum)(b, k);
    }
    for (int64_t i = 0; i < a->n; i++) {
        T g = a->log ? dy[i * sd] - EXP(y[i * sy]) * (T)sum : y[i * sy] * (dy[i * sd] - (T)sum);
        dx[i * sx] = a->beta ? dx[i * sx] + g : g;
    }
}

static ISA void FN(softmax_grad_span)(const cti_span *sp, const void *arg)
{
    const softmax_arg *a = arg;
    const int64_t *s = a->stride;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++) {
            T *dx = (T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]);
            const T *dy = (const T *)(sp->p[1] + r * sp->rs[1] + i * sp->s[1]);
            const T *y = (const T *)(sp->p[2] + r * sp->rs[2] + i * sp->s[2]);
            if (s[0] == 1 && s[1] == 1 && s[2] == 1)
                FN(softmax_grad_row)(a, dx, dy, y, 1, 1, 1);
            else
                FN(softmax_grad_row)(a, dx, dy, y, s[0], s[1], s[2]);
        }
}

/* ---- cross entropy ---- */
CTI_INLINE T FN(class_weight)(const ce_job *c, int64_t k)
{
    return c->weight ? ((const T *)c->weight)[k * c->weight_stride] : 1;
}

/* The sum over classes of w_c t_c log p_c, where t is the target, or 1 when there is none. */
CTI_INLINE double FN(weighted_logs)(const ce_job *c, const T *x, const T *t, T m, T ls)
{
    T b[PIECE], keep = (T)(1 - c->smoothing), share = (T)(c->smoothing / (double)c->classes);
    double sum = 0;

    for (int64_t i = 0; i < c->classes; i += PIECE) {
        int64_t k = CTI_MIN(PIECE, c->classes - i);
        for (int64_t j = 0; j < k; j++) {
            b[j] = x[(i + j) * c->x_stride] - m - ls;
            b[j] *= FN(class_weight)(c, i + j);
        }
        if (t)
            for (int64_t j = 0; j < k; j++)
                b[j] *= t[(i + j) * c->t_stride] * keep + share;
        sum += FN(piece_sum)(b, k);
    }
    return sum;
}

/* Operands: logits, target, lse, loss. */
static ISA void FN(ce_span)(const cti_span *sp, const void *arg)
{
    ce_chunk *k = *(ce_chunk *const *)arg;
    const ce_job *c = k->job;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++, k->row++) {
            const T *x = (const T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]);
            const char *t = sp->p[1] + r * sp->rs[1] + i * sp->s[1];
            T m = FN(row_max)(x, c->x_stride, c->classes);
            T sum = c->x_stride == 1 ? FN(row_exp)(NULL, 0, x, 1, c->classes, m) :
                                       FN(row_exp)(NULL, 0, x, c->x_stride, c->classes, m);
            T ls = LOG(sum);
            double loss = 0;
            *(T *)(sp->p[2] + r * sp->rs[2] + i * sp->s[2]) = m + ls;
            if (c->probabilities) {
                loss = -FN(weighted_logs)(c, x, (const T *)t, m, ls);
                k->weight += 1;
            } else {
                int64_t y = *(const int64_t *)t;
                bool ignored = y == c->ignore_index, bad = !ignored && (y < 0 || y >= c->classes);
                if (bad) {
                    loss = (double)NAN;
                    if (k->bad[0] < 0) {
                        k->bad[0] = k->row;
                        k->bad[1] = y;
                    }
                }
                if (!ignored && !bad) {
                    T w = FN(class_weight)(c, y);
                    loss = -(double)(w * (x[y * c->x_stride] - m - ls));
                    if (c->smoothing != 0)
                        loss = (1 - c->smoothing) * loss - c->smoothing / (double)c->classes *
                                                               FN(weighted_logs)(c, x, NULL, m, ls);
                    k->weight += (double)w;
                }
            }
            k->loss += loss;
            if (c->each)
                *(T *)(sp->p[3] + r * sp->rs[3] + i * sp->s[3]) = (T)loss;
        }
}

/* d loss / d x_j = g (a p_j - b_j): b_j = t_j w_j, or w_j share plus w_y keep at j = y. */
CTI_INLINE void FN(ce_grad_row)(const ce_job *c, T *dx, const T *x, const T *t, int64_t y, T lse,
                                T g, int64_t sd, int64_t sx)
{
    T e[PIECE], keep = (T)(1 - c->smoothing), share = (T)(c->smoothing / (double)c->classes);
    int64_t n = c->classes;
    T a, scale;
    double b = 0;

    /* lse is rounded: exp(x - lse) doesn't quite sum to 1, so it is divided by its sum. */
    T sum = FN(row_exp)(n <= PIECE ? e : NULL, 1, x, sx, n, lse);
    if (t)
        for (int64_t j = 0; j < n; j++)
            b += (double)(FN(class_weight)(c, j) * (t[j * c->t_stride] * keep + share));
    else
        b = (double)(keep * FN(class_weight)(c, y)) + (double)share * c->weight_sum;
    a = (T)b;
    scale = a / sum;
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t k = CTI_MIN(PIECE, n - i);
        if (n > PIECE)
            FN(row_exp)(e, 1, x + i * sx, sx, k, lse);
        for (int64_t j = 0; j < k; j++)
            e[j] *= scale;
        if (t)
            for (int64_t j = 0; j < k; j++)
                e[j] -= FN(class_weight)(c, i + j) * (t[(i + j) * c->t_stride] * keep + share);
        else if (c->smoothing != 0)
            for (int64_t j = 0; j < k; j++)
                e[j] -= FN(class_weight)(c, i + j) * share;
        if (!t && y >= i && y < i + k)
            e[y - i] -= keep * FN(class_weight)(c, y);
        for (int64_t j = 0; j < k; j++)
            dx[(i + j) * sd] = c->beta ? dx[(i + j) * sd] + e[j] * g : e[j] * g;
    }
}

/* Operands: dlogits, logits, target, lse, dloss. */
static ISA void FN(ce_grad_span)(const cti_span *sp, const void *arg)
{
    const ce_job *c = arg;

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i++) {
            T *dx = (T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]);
            const T *x = (const T *)(sp->p[1] + r * sp->rs[1] + i * sp->s[1]);
            const char *t = sp->p[2] + r * sp->rs[2] + i * sp->s[2];
            T lse = *(const T *)(sp->p[3] + r * sp->rs[3] + i * sp->s[3]);
            T g = *(const T *)(sp->p[4] + r * sp->rs[4] + i * sp->s[4]) * (T)c->scale;
            int64_t y = c->probabilities ? 0 : *(const int64_t *)t;
            bool none = !c->probabilities && (y == c->ignore_index || y < 0 || y >= c->classes);
            if (none) {
                for (int64_t j = 0; j < c->classes && !c->beta; j++)
                    dx[j * c->d_stride] = 0;
                continue;
            }
            if (c->d_stride == 1 && c->x_stride == 1)
                FN(ce_grad_row)(c, dx, x, c->probabilities ? (const T *)t : NULL, y, lse, g, 1, 1);
            else
                FN(ce_grad_row)
            (c, dx, x, c->probabilities ? (const T *)t : NULL, y, lse, g, c->d_stride, c->x_stride);
        }
}

#undef FN
#undef EXP
#undef LOG
#undef T
#undef S
#undef ISA
