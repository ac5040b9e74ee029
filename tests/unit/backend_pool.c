/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_test.h"

#define POOL (&cti_cpu_pool)

TestSuite(backend_pool);

typedef struct cfg {
    int64_t n, c, h, w;
    int64_t k[2], s[2], p[2], d[2];
    bool ceil_mode, include_pad;
} cfg;

/* PyTorch's size rule. */
static int64_t out_size(int64_t in, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil_mode)
{
    int64_t e = in + 2 * p - d * (k - 1) - 1, o = e / s + 1;
    if (ceil_mode) {
        o = (e + s - 1) / s + 1;
        if ((o - 1) * s >= in + p)
            o--;
    }
    return o;
}

static const cfg cfgs[] = {
    {2, 3, 6, 8, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, true},
    {2, 17, 7, 5, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, true},
    {1, 33, 7, 8, {3, 2}, {2, 3}, {1, 0}, {1, 1}, true, false},
    {2, 16, 5, 5, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, false},
    {1, 5, 4, 4, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true, true},
    {2, 4, 9, 10, {2, 3}, {2, 1}, {0, 1}, {2, 2}, false, true},
    {1, 1, 3, 3, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true, true},
    {1, 18, 7, 7, {7, 7}, {1, 1}, {0, 0}, {1, 1}, false, true},
};

static void max_case(const cfg *f, ct_dtype t, enum layout lx, enum layout ly)
{
    int64_t P = out_size(f->h, f->k[0], f->s[0], f->p[0], f->d[0], f->ceil_mode);
    int64_t Q = out_size(f->w, f->k[1], f->s[1], f->p[1], f->d[1], f->ceil_mode);
    const int64_t xs[] = {f->n, f->c, f->h, f->w}, ys[] = {f->n, f->c, P, Q};
    ct_stream s = stream_of(1);
    tv x = tv_new(t, lx, 4, xs), y = tv_new(t, ly, 4, ys), index = tv_new(CT_I32, ly, 4, ys);
    tv dy = tv_rand(t, ly, 4, ys, 2), dx = tv_new(t, lx, 4, xs);
    double *want = calloc((size_t)(f->n * f->c * f->h * f->w), sizeof *want);
    ct_pool_args a = {.x = x.v, .y = y.v};
    memcpy(a.kernel, f->k, sizeof a.kernel), memcpy(a.stride, f->s, sizeof a.stride);
    memcpy(a.pad, f->p, sizeof a.pad), memcpy(a.dilation, f->d, sizeof a.dilation);
    for (int64_t i = 0; i < ct_view_numel(&x.v); i++) /* ties */
        put(&x.v, i, floor(noise(1, i) * 4) - 5);
    put(&x.v, 3, NAN);
    cr_assert_eq(POOL->max(&s, &a, &index.v), CT_OK);
    for (int64_t i = 0; i < ct_view_numel(&y.v); i++) {
        int64_t q = i % Q, p = i / Q % P, image = i / Q / P, best = -1;
        double top = -INFINITY;
        for (int64_t r = 0; r < f->k[0]; r++)
            for (int64_t c = 0; c < f->k[1]; c++) {
                int64_t h = p * f->s[0] - f->p[0] + r * f->d[0],
                        w = q * f->s[1] - f->p[1] + c * f->d[1];
                if (h < 0 || w < 0 || h >= f->h || w >= f->w)
                    continue;
                double v = get(&x.v, (image * f->h + h) * f->w + w);
                if (best < 0 || v > top || isnan(v))
                    top = v, best = h * f->w + w;
            }
        expect_near(get(&y.v, i), top, 0, "max", i);
        cr_assert_eq(get(&index.v, i), (double)best);
        want[image * f->h * f->w + best] += get(&dy.v, i);
    }
    a.x.data = a.y.data = NULL;
    for (int beta = 0; beta < 2; beta++) {
        cr_assert_eq(POOL->max_grad(&s, &a, &dx.v, beta, &dy.v, &index.v), CT_OK);
        for (int64_t i = 0; i < ct_view_numel(&dx.v); i++)
            expect_near(get(&dx.v, i), want[i] * (1 + beta), tol_of(t) * 4, "max_grad", i);
    }
    free(want);
    tv_free(&x), tv_free(&y), tv_free(&index), tv_free(&dy), tv_free(&dx);
}

static void avg_case(const cfg *f, ct_dtype t, enum layout lx, enum layout ly, bool adaptive)
{
    int64_t P = adaptive ? 3 : out_size(f->h, f->k[0], f->s[0], f->p[0], 1, f->ceil_mode);
    int64_t Q = adaptive ? 2 : out_size(f->w, f->k[1], f->s[1], f->p[1], 1, f->ceil_mode);
    const int64_t xs[] = {f->n, f->c, f->h, f->w}, ys[] = {f->n, f->c, P, Q};
    ct_stream s = stream_of(1);
    tv x = tv_rand(t, lx, 4, xs, 1), y = tv_new(t, ly, 4, ys);
    tv dy = tv_rand(t, ly, 4, ys, 2), dx = tv_new(t, lx, 4, xs);
    double *want = calloc((size_t)(f->n * f->c * f->h * f->w), sizeof *want);
    ct_pool_args a = {
        .x = x.v, .y = y.v, .count_include_pad = f->include_pad, .adaptive = adaptive};
    if (!adaptive) {
        memcpy(a.kernel, f->k, sizeof a.kernel), memcpy(a.stride, f->s, sizeof a.stride);
        memcpy(a.pad, f->p, sizeof a.pad);
    }
    cr_assert_eq(POOL->avg(&s, &a), CT_OK);
    for (int64_t i = 0; i < ct_view_numel(&y.v); i++) {
        int64_t q = i % Q, p = i / Q % P, image = i / Q / P, real = 0, padded = 0;
        int64_t h0 = p * f->s[0] - f->p[0], h1 = h0 + f->k[0], w0 = q * f->s[1] - f->p[1];
        int64_t w1 = w0 + f->k[1];
        double sum = 0, div;
        if (adaptive) {
            h0 = p * f->h / P, h1 = (int64_t)ceil((double)((p + 1) * f->h) / (double)P);
            w0 = q * f->w / Q, w1 = (int64_t)ceil((double)((q + 1) * f->w) / (double)Q);
        }
        for (int pass = 0; pass < 2; pass++)
            for (int64_t h = h0; h < h1; h++)
                for (int64_t w = w0; w < w1; w++) {
                    bool in = h >= 0 && w >= 0 && h < f->h && w < f->w;
                    if (pass == 0) {
                        padded += h < f->h + f->p[0] && w < f->w + f->p[1];
                        real += in;
                        sum += in ? get(&x.v, (image * f->h + h) * f->w + w) : 0;
                    } else if (in) {
                        want[(image * f->h + h) * f->w + w] +=
                            get(&dy.v, i) / (double)(adaptive || !f->include_pad ? real : padded);
                    }
                }
        div = (double)(adaptive || !f->include_pad ? real : padded);
        expect_near(get(&y.v, i), sum / div, tol_of(t), "avg", i);
    }
    a.x.data = a.y.data = NULL;
    for (int beta = 0; beta < 2; beta++) {
        cr_assert_eq(POOL->avg_grad(&s, &a, &dx.v, beta, &dy.v), CT_OK);
        for (int64_t i = 0; i < ct_view_numel(&dx.v); i++)
            expect_near(get(&dx.v, i), want[i] * (1 + beta), tol_of(t) * 4, "avg_grad", i);
    }
    free(want);
    tv_free(&x), tv_free(&y), tv_free(&dy), tv_free(&dx);
}

Test(backend_pool, all)
{
    for (size_t k = 0; k < sizeof cfgs / sizeof *cfgs; k++)
        for (int l = 0; l < LAYOUTS * LAYOUTS; l++)
            for (int t = 0; t < 2; t++) {
                enum layout a = (enum layout)(l / LAYOUTS), b = (enum layout)(l % LAYOUTS);
                max_case(&cfgs[k], t ? CT_F64 : CT_F32, a, b);
                if (cfgs[k].d[0] == 1)
                    avg_case(&cfgs[k], t ? CT_F64 : CT_F32, a, b, false);
                avg_case(&cfgs[k], t ? CT_F64 : CT_F32, a, b, true);
            }
}

/* PyTorch: avg_pool2d(ones(4, 4), 3, 2, 1, ceil_mode=True). */
Test(backend_pool, avg_ceil_divisor)
{
    static const double want[] = {0.4444444477558136,
                                  0.6666666865348816,
                                  0.3333333432674408,
                                  0.6666666865348816,
                                  1.0,
                                  0.5,
                                  0.3333333432674408,
                                  0.5,
                                  0.25};
    ct_stream s = stream_of(1);
    tv x = tv_new(CT_F32, ROWS, 4, SHAPE(1, 1, 4, 4)),
       y = tv_new(CT_F32, ROWS, 4, SHAPE(1, 1, 3, 3));
    ct_pool_args a = {x.v, y.v, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true, false};
    cti_cpu_ew.fill(&s, &x.v, 1);
    POOL->avg(&s, &a);
    for (int64_t i = 0; i < 9; i++)
        expect_near(get(&y.v, i), want[i], 1e-7, "avg ceil", i);
    tv_free(&x), tv_free(&y);
}

Test(backend_pool, empty_and_all_minus_infinity)
{
    ct_stream s = stream_of(1);
    ct_view x = {NULL, CT_F32, 4, {0, 2, 4, 4}, {32, 1, 8, 2}},
            y = {NULL, CT_F32, 4, {0, 2, 2, 2}, {8, 1, 4, 2}};
    ct_view index = y;
    ct_pool_args a = {x, y, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true, false};
    index.dtype = CT_I32;
    cr_assert_eq(POOL->max(&s, &a, &index), CT_OK);
    cr_assert_eq(POOL->max_grad(&s, &a, &x, 0, &y, &index), CT_OK);
    cr_assert_eq(POOL->avg(&s, &a), CT_OK);
    float in[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, out;
    int32_t at = 9;
    ct_pool_args b = {{in, CT_F32, 4, {1, 1, 2, 2}, {4, 4, 2, 1}},
                      {&out, CT_F32, 4, {1, 1, 1, 1}, {1, 1, 1, 1}},
                      {2, 2},
                      {2, 2},
                      {0, 0},
                      {1, 1},
                      true,
                      false};
    ct_view av = {&at, CT_I32, 4, {1, 1, 1, 1}, {1, 1, 1, 1}};
    POOL->max(&s, &b, &av);
    cr_assert(out == -INFINITY && at == 0);
}

Test(backend_pool, same_bytes_for_any_threads)
{
    tv x = tv_rand(CT_F32, LAST, 4, SHAPE(9, 20, 15, 17), 1),
       dy = tv_rand(CT_F32, LAST, 4, SHAPE(9, 20, 7, 8), 2);
    tv y[3], g[3];
    for (int t = 0; t < 3; t++) {
        ct_stream s = stream_of(t + 1);
        tv index = tv_new(CT_I32, LAST, 4, SHAPE(9, 20, 7, 8));
        y[t] = tv_new(CT_F32, LAST, 4, SHAPE(9, 20, 7, 8));
        g[t] = tv_new(CT_F32, LAST, 4, SHAPE(9, 20, 15, 17));
        ct_pool_args a = {x.v, y[t].v, {3, 3}, {2, 2}, {0, 0}, {1, 1}, true, false};
        POOL->max(&s, &a, &index.v);
        POOL->max_grad(&s, &a, &g[t].v, 0, &dy.v, &index.v);
        POOL->avg_grad(&s, &a, &g[t].v, 1, &dy.v);
        cr_assert(memcmp(y[t].mem, y[0].mem, y[0].bytes) == 0);
        cr_assert(memcmp(g[t].mem, g[0].mem, g[0].bytes) == 0);
        tv_free(&index);
    }
    for (int t = 0; t < 3; t++)
        tv_free(&y[t]), tv_free(&g[t]);
    tv_free(&x), tv_free(&dy);
}
