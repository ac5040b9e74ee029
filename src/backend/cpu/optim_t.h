/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer arithmetic for one float type. No include guard: see template.h. Hyper-parameters arrive as
 * doubles and are rounded to T once, as PyTorch does; each line is one of PyTorch's tensor operations. */
#define FN(name) CTI_PASTE(name, S)

/* In doubles: the square of any finite f32 fits, so the sum is finite if all elements are. */
static ISA double FN(sum_squares)(const void *g, int64_t n)
{
    const T *x = g;
    double t[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            t[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i + j < n; j++)
        t[j] += (double)x[i + j] * (double)x[i + j];
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            t[j] += t[j + w];
    return t[0];
}

static bool FN(all_finite)(const void *g, int64_t n)
{
    const T *x = g;

    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static ISA void FN(adam_chunk)(const hyper *h, void *pp, const void *gp, void *mp, void *vp,
                               int64_t n)
{
    T *restrict p = pp, *restrict m = mp, *restrict v = vp;
    const T *restrict g = gp;
    T factor = (T)h->factor, decay = (T)h->decay, l2 = (T)h->l2, b1 = (T)(1 - h->beta1);
    T b1c = (T)h->beta1, b2 = (T)h->beta2, b2c = (T)(1 - h->beta2), root = (T)h->root,
      eps = (T)h->eps;
    T step = (T)-h->step_size;
    bool low = 1 - h->beta1 < 0.5; /* lerp has two forms */

    for (int64_t i = 0; i < n; i++) {
        T w = p[i] * decay;
        T d = g[i] * factor + l2 * w;
        T diff = d - m[i];
        T a = low ? m[i] + b1 * diff : d - diff * b1c;
        T b = v[i] * b2 + b2c * d * d;
        m[i] = a;
        v[i] = b;
        p[i] = w + step * a / (FN(cti_sqrt)(b) / root + eps);
    }
}

static ISA void FN(sgd_chunk)(const hyper *h, void *pp, const void *gp, void *bp, int64_t n)
{
    T *restrict p = pp, *restrict b = bp;
    const T *restrict g = gp;
    T factor = (T)h->factor, l2 = (T)h->l2, mu = (T)h->beta1, take = (T)(1 - h->dampening);
    T lr = (T)-h->step_size;

    if (!b || h->beta1 == 0) {
        for (int64_t i = 0; i < n; i++)
            p[i] += lr * (g[i] * factor + l2 * p[i]);
    } else if (h->first) { /* no dampening yet */
        for (int64_t i = 0; i < n; i++) {
            T d = g[i] * factor + l2 * p[i];
            b[i] = d;
            p[i] += lr * (h->nesterov ? d + mu * d : d);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            T d = g[i] * factor + l2 * p[i];
            T m = b[i] * mu + take * d;
            b[i] = m;
            p[i] += lr * (h->nesterov ? d + mu * m : m);
        }
    }
}

#undef FN
#undef T
#undef S
#undef ISA
