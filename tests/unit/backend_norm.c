/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_test.h"

#define NORM (&cti_cpu_norm)

TestSuite(backend_norm);

typedef struct setup {
    tv x, y, w, b, mean, invstd, rm, rv, dy, dx, dw, db;
    int64_t C, n;
    void *work;
    size_t bytes;
    ct_batchnorm_args a;
} setup;

static int64_t channel_of(const ct_view *v, int64_t i)
{
    int64_t inner = 1;
    for (int d = 2; d < v->ndim; d++)
        inner *= v->shape[d];
    return i / inner % v->shape[1];
}

static setup make(ct_dtype t, enum layout lx, enum layout ly, int ndim, const int64_t *shape,
                  double scale, double shift)
{
    ct_stream s = stream_of(1);
    setup u = {.C = shape[1]};
    u.x = tv_rand(t, lx, ndim, shape, 1), u.y = tv_new(t, ly, ndim, shape);
    tv_noise(&u.x, 1, scale, shift);
    u.dy = tv_rand(t, ly, ndim, shape, 2), u.dx = tv_rand(t, lx, ndim, shape, 3);
    u.w = tv_rand(t, ROWS, 1, &u.C, 4), u.b = tv_rand(t, GAPS, 1, &u.C, 5);
    u.mean = tv_new(t, ROWS, 1, &u.C), u.invstd = tv_new(t, ROWS, 1, &u.C);
    u.rm = tv_rand(t, ROWS, 1, &u.C, 6), u.rv = tv_rand(t, ROWS, 1, &u.C, 7);
    u.dw = tv_new(t, ROWS, 1, &u.C), u.db = tv_new(t, ROWS, 1, &u.C);
    for (int64_t c = 0; c < u.C; c++)
        put(&u.rv.v, c, fabs(get(&u.rv.v, c)) + 0.1);
    u.n = ct_view_numel(&u.x.v) / (u.C ? u.C : 1);
    u.bytes = NORM->batchnorm_workspace(&s, &u.x.v);
    u.work = workspace(u.bytes);
    return u;
}

static void args(setup *u)
{
    u->a = (ct_batchnorm_args){.x = u->x.v,
                               .y = u->y.v,
                               .weight = &u->w.v,
                               .bias = &u->b.v,
                               .mean = u->mean.v,
                               .invstd = u->invstd.v,
                               .running_mean = &u->rm.v,
                               .running_var = &u->rv.v,
                               .momentum = 0.1,
                               .eps = 1e-5,
                               .workspace = u->work};
}

static void drop(setup *u)
{
    for (int i = 0; i < 64; i++)
        cr_assert_eq(((char *)u->work)[u->bytes + (size_t)i], (char)0xff, "past the workspace");
    tv_free(&u->x), tv_free(&u->y), tv_free(&u->w), tv_free(&u->b), tv_free(&u->mean);
    tv_free(&u->invstd), tv_free(&u->rm), tv_free(&u->rv), tv_free(&u->dy), tv_free(&u->dx);
    tv_free(&u->dw), tv_free(&u->db);
    free(u->work);
}

static void check(ct_dtype t, enum layout lx, enum layout ly, int ndim, const int64_t *shape,
                  bool train, double scale, double shift, double tol)
{
    ct_stream s = stream_of(1);
    setup u = make(t, lx, ly, ndim, shape, scale, shift);
    double *m = calloc((size_t)u.C * 6, sizeof *m), *var = m + u.C, *sum = var + u.C,
           *dot = sum + u.C;
    double *rm = dot + u.C, *rv = rm + u.C;
    int64_t all = ct_view_numel(&u.x.v);
    args(&u);
    for (int64_t c = 0; c < u.C; c++)
        rm[c] = get(&u.rm.v, c), rv[c] = get(&u.rv.v, c);
    for (int64_t i = 0; i < all; i++)
        m[channel_of(&u.x.v, i)] += get(&u.x.v, i) / (double)u.n;
    for (int64_t i = 0; i < all; i++) {
        double d = get(&u.x.v, i) - m[channel_of(&u.x.v, i)];
        var[channel_of(&u.x.v, i)] += d * d / (double)u.n;
    }
    cr_assert_eq((train ? NORM->batchnorm_train : NORM->batchnorm_eval)(&s, &u.a), CT_OK);
    for (int64_t c = 0; c < u.C; c++) {
        double n = (double)u.n;
        expect_near(get(&u.rm.v, c), train ? 0.9 * rm[c] + 0.1 * m[c] : rm[c], tol, "running mean",
                    c);
        expect_near(get(&u.rv.v, c),
                    train ? 0.9 * rv[c] + 0.1 * var[c] * n / (n > 1 ? n - 1 : 1) : rv[c], tol,
                    "running var", c);
        if (!train)
            m[c] = rm[c], var[c] = rv[c];
        expect_near(get(&u.mean.v, c), m[c], tol_of(t), "mean", c);
        expect_near(get(&u.invstd.v, c), 1 / sqrt(var[c] + 1e-5), tol, "invstd", c);
    }
    for (int64_t i = 0; i < all; i++) {
        int64_t c = channel_of(&u.x.v, i);
        double d = get(&u.x.v, i) - m[c],
               want = d / sqrt(var[c] + 1e-5) * get(&u.w.v, c) + get(&u.b.v, c);
        double slack = t == CT_F32 ? 1e-7 * fabs(shift) / scale * 4 : 0; /* x itself is rounded */
        expect_near(get(&u.y.v, i), want, tol + slack, "y", i);
        sum[c] += get(&u.dy.v, i);
        dot[c] += get(&u.dy.v, i) * d;
    }
    for (int beta = 0; beta < 2; beta++) {
        tv g = tv_rand(t, lx, ndim, shape, 3);
        cr_assert_eq(NORM->batchnorm_grad(&s, train, &g.v, beta, &u.dw.v, &u.db.v, &u.dy.v, &u.x.v,
                                          &u.w.v, &u.mean.v, &u.invstd.v, u.work),
                     CT_OK);
        for (int64_t i = 0; i < all && shift == 0; i++) {
            int64_t c = channel_of(&u.x.v, i);
            double inv = 1 / sqrt(var[c] + 1e-5), d = get(&u.x.v, i) - m[c], dy = get(&u.dy.v, i);
            if (train)
                dy -= sum[c] / (double)u.n + d * inv * inv * dot[c] / (double)u.n;
            expect_near(get(&g.v, i), beta * get(&u.dx.v, i) + dy * inv * get(&u.w.v, c), tol * 4,
                        "dx", i);
        }
        for (int64_t c = 0; c < u.C && shift == 0; c++) {
            expect_near(get(&u.dw.v, c), dot[c] / sqrt(var[c] + 1e-5), tol * 10, "dw", c);
            expect_near(get(&u.db.v, c), sum[c], tol * 10, "db", c);
        }
        tv_free(&g);
    }
    free(m);
    drop(&u);
}

Test(backend_norm, all_layouts)
{
    for (int t = 0; t < 2; t++)
        for (int train = 0; train < 2; train++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l++) {
                ct_dtype dt = t ? CT_F64 : CT_F32;
                enum layout a = (enum layout)(l / LAYOUTS), b = (enum layout)(l % LAYOUTS);
                double tol = t ? 1e-12 : 4e-6;
                check(dt, a, b, 4, SHAPE(3, 5, 4, 7), train, 2, 0, tol);
                check(dt, a, b, 4, SHAPE(4, 16, 5, 8), train, 2, 0, tol);
                check(dt, a, b, 4, SHAPE(5, 70, 3, 9), train, 2, 0, tol);
                check(dt, a, b, 2, SHAPE(37, 6), train, 2, 0, tol);
                check(dt, a, b, 3, SHAPE(4, 1, 9), train, 2, 0, tol);
                check(dt, a, b, 2, SHAPE(2, 130), train, 2, 0, tol * 50); /* var may be tiny */
            }
}

Test(backend_norm, large_and_far_from_zero)
{
    check(CT_F32, LAST, LAST, 4, SHAPE(32, 32, 8, 9), true, 2, 0, 4e-6);
    for (int l = 0; l < LAYOUTS; l++) {
        check(CT_F32, (enum layout)l, (enum layout)l, 4, SHAPE(16, 24, 8, 9), true, 1, 1000, 2e-5);
        check(CT_F32, (enum layout)l, (enum layout)l, 4, SHAPE(16, 24, 8, 9), true, 0.01, -30,
              4e-5);
        check(CT_F64, (enum layout)l, (enum layout)l, 4, SHAPE(16, 24, 8, 9), true, 1, 1e5, 1e-9);
    }
}

/* PyTorch: x = 1, 3 in one channel; running 0, 1 -> 0.2, 1.3 -> values below. */
Test(backend_norm, numbers_of_pytorch)
{
    ct_stream s = stream_of(1);
    setup u = make(CT_F32, ROWS, ROWS, 2, SHAPE(2, 1), 1, 0);
    args(&u);
    put(&u.x.v, 0, -1), put(&u.x.v, 1, 1);
    put(&u.rm.v, 0, 0), put(&u.rv.v, 0, 1);
    u.a.weight = u.a.bias = NULL;
    NORM->batchnorm_train(&s, &u.a);
    expect_near(get(&u.y.v, 0), -0.9999949932098389, 1e-7, "y", 0);
    expect_near(get(&u.y.v, 1), 0.9999949932098389, 1e-7, "y", 1);
    put(&u.x.v, 0, 1), put(&u.x.v, 1, 3);
    put(&u.rm.v, 0, 0), put(&u.rv.v, 0, 1);
    NORM->batchnorm_train(&s, &u.a);
    expect_near(get(&u.rm.v, 0), 0.20000000298023224, 1e-7, "running mean", 0);
    expect_near(get(&u.rv.v, 0), 0.9 + 0.1 * 2, 1e-7, "running var is unbiased", 0);
    u.a.running_mean = u.a.running_var = NULL;
    cr_assert_eq(NORM->batchnorm_train(&s, &u.a), CT_OK);
    drop(&u);
}

Test(backend_norm, empty_and_parts)
{
    ct_stream s = stream_of(1);
    setup e = make(CT_F32, ROWS, ROWS, 4, SHAPE(0, 3, 2, 2), 1, 0);
    args(&e);
    cr_assert_eq(NORM->batchnorm_train(&s, &e.a), CT_OK);
    cr_assert_eq(NORM->batchnorm_eval(&s, &e.a), CT_OK);
    cr_assert_eq(NORM->batchnorm_grad(&s, true, &e.dx.v, 0, &e.dw.v, &e.db.v, &e.dy.v, &e.x.v,
                                      &e.w.v, &e.mean.v, &e.invstd.v, e.work),
                 CT_OK);
    cr_assert_eq(get(&e.dw.v, 1), 0);
    drop(&e);
    setup u = make(CT_F32, LAST, LAST, 4, SHAPE(2, 3, 2, 2), 1, 0);
    cr_assert_eq(NORM->batchnorm_grad(&s, true, NULL, 0, NULL, &u.db.v, &u.dy.v, &u.x.v, NULL,
                                      &u.mean.v, &u.invstd.v, u.work),
                 CT_OK);
    cr_assert_eq(NORM->batchnorm_grad(&s, false, &u.dx.v, 0, NULL, NULL, &u.dy.v, &u.x.v, NULL,
                                      &u.mean.v, &u.invstd.v, u.work),
                 CT_OK);
    drop(&u);
}

Test(backend_norm, same_bytes_for_any_threads)
{
    for (int l = 0; l < 3; l++) {
        setup u[3];
        for (int t = 0; t < 3; t++) {
            ct_stream s = stream_of(t + 1);
            u[t] = make(CT_F32, l ? LAST : ROWS, l ? LAST : ROWS, 4,
                        SHAPE(17, l == 2 ? 80 : 24, 11, 13), 1, 3);
            args(&u[t]);
            NORM->batchnorm_train(&s, &u[t].a);
            NORM->batchnorm_grad(&s, true, &u[t].dx.v, 0, &u[t].dw.v, &u[t].db.v, &u[t].dy.v,
                                 &u[t].x.v, &u[t].w.v, &u[t].mean.v, &u[t].invstd.v, u[t].work);
            cr_assert(memcmp(u[t].y.mem, u[0].y.mem, u[0].y.bytes) == 0);
            cr_assert(memcmp(u[t].dx.mem, u[0].dx.mem, u[0].dx.bytes) == 0);
            cr_assert(memcmp(u[t].dw.mem, u[0].dw.mem, u[0].dw.bytes) == 0);
            cr_assert(memcmp(u[t].rv.mem, u[0].rv.mem, u[0].rv.bytes) == 0);
        }
        for (int t = 0; t < 3; t++)
            drop(&u[t]);
    }
}
