/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_test.h"

#define RND (&cti_cpu_random)

TestSuite(backend_random);

static ct_rng rng_of(uint64_t seed)
{
    ct_rng r = {cti_rng_key_make(seed, CTI_STREAM_DROPOUT), 3, 1, 5, NULL};
    return r;
}

static uint32_t word(const ct_rng *r, int64_t i, uint32_t high)
{
    uint32_t w[4];
    cti_rng_words(r->key, (uint32_t)(i / 4), r->step, r->micro, r->ordinal ^ high, w);
    return w[i % 4];
}

Test(backend_random, dropout_goes_by_logical_index)
{
    ct_rng r = rng_of(1);
    for (int t = 0; t < 2; t++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int m = 0; m < LAYOUTS; m++)
                for (int beta = 0; beta < 2; beta++) {
                    const int64_t shape[] = {3, 5, 7, 9};
                    ct_dtype dt = t ? CT_F64 : CT_F32;
                    ct_stream s = stream_of(2);
                    tv x = tv_rand(dt, (enum layout)l, 4, shape, 1);
                    tv y = tv_rand(dt, (enum layout)m, 4, shape, 2);
                    tv was = tv_rand(dt, ROWS, 4, shape, 2);
                    cr_assert_eq(RND->dropout(&s, &y.v, beta, &x.v, 0.3, &r), CT_OK);
                    for (int64_t i = 0; i < 3 * 5 * 7 * 9; i++) {
                        bool kept = (double)cti_u01_f32(word(&r, i, 0)) >= 0.3;
                        double want = beta * get(&was.v, i) + (kept ? get(&x.v, i) / 0.7 : 0);
                        expect_near(get(&y.v, i), want, tol_of(dt), "dropout", i);
                    }
                    tv_free(&x), tv_free(&y), tv_free(&was);
                }
}

Test(backend_random, dropout_edges)
{
    ct_rng r = rng_of(2);
    ct_stream s = stream_of(1);
    tv x = tv_new(CT_F32, ROWS, 1, SHAPE(1001)), y = tv_new(CT_F32, ROWS, 1, SHAPE(1001));
    cti_cpu_ew.fill(&s, &x.v, 1);
    RND->dropout(&s, &y.v, 0, &x.v, 1, &r);
    for (int64_t i = 0; i < 1001; i++)
        cr_assert_eq(get(&y.v, i), 0);
    RND->dropout(&s, &y.v, 0, &x.v, 0, &r);
    for (int64_t i = 0; i < 1001; i++)
        cr_assert_eq(get(&y.v, i), 1);
    ct_view e = {NULL, CT_F32, 1, {0}, {1}};
    cr_assert_eq(RND->dropout(&s, &e, 0, &e, 0.5, &r), CT_OK);
    cr_assert_eq(RND->normal(&s, &e, 0, 1, &r), CT_OK);
    tv_free(&x), tv_free(&y);
}

Test(backend_random, uniform)
{
    ct_rng r = rng_of(3);
    ct_stream s = stream_of(2);
    tv f = tv_new(CT_F32, LAST, 3, SHAPE(20, 30, 41)),
       d = tv_new(CT_F64, ROWS, 3, SHAPE(20, 30, 41));
    double sum = 0, sq = 0;
    int64_t n = 20 * 30 * 41;
    RND->uniform(&s, &f.v, -2, 3, &r);
    RND->uniform(&s, &d.v, -2, 3, &r);
    for (int64_t i = 0; i < n; i++) {
        double u = cti_u01_f64(word(&r, i, 0), word(&r, i, 0x80000000u));
        cr_assert_eq(get(&d.v, i), u * 5 + -2);
        expect_near(get(&f.v, i), (double)cti_u01_f32(word(&r, i, 0)) * 5 - 2, 1e-6, "uniform", i);
        expect_near(get(&f.v, i), get(&d.v, i), 1e-6, "uniform f32 against f64", i);
        sum += get(&d.v, i);
        sq += get(&d.v, i) * get(&d.v, i);
    }
    cr_assert_lt(fabs(sum / (double)n - 0.5), 0.05);
    cr_assert_lt(fabs(sq / (double)n - 0.25 - 25.0 / 12), 0.1);
    tv_free(&f), tv_free(&d);
}

Test(backend_random, normal)
{
    ct_rng r = rng_of(4);
    ct_stream s = stream_of(2);
    tv f = tv_new(CT_F32, LAST, 3, SHAPE(21, 31, 41)),
       d = tv_new(CT_F64, ROWS, 3, SHAPE(21, 31, 41));
    double m1 = 0, m2 = 0, m4 = 0, cross = 0;
    int64_t n = 21 * 31 * 41;
    RND->normal(&s, &f.v, 1, 2, &r);
    RND->normal(&s, &d.v, 1, 2, &r);
    for (int64_t i = 0; i < n; i++) {
        double z = (get(&d.v, i) - 1) / 2;
        cr_assert_eq((float)get(&d.v, i), (float)get(&f.v, i));
        m1 += z, m2 += z * z, m4 += z * z * z * z;
        cross += i ? z * (get(&d.v, i - 1) - 1) / 2 : 0;
    }
    cr_assert_lt(fabs(m1 / (double)n), 0.03);
    cr_assert_lt(fabs(m2 / (double)n - 1), 0.03);
    cr_assert_lt(fabs(m4 / (double)n - 3), 0.2);
    cr_assert_lt(fabs(cross / (double)n), 0.03);
    tv_free(&f), tv_free(&d);
}

Test(backend_random, same_bytes_for_any_threads)
{
    for (int k = 0; k < 3; k++) {
        tv y[3], x = tv_rand(CT_F32, LAST, 4, SHAPE(8, 9, 21, 23), 1);
        ct_rng r = rng_of(9);
        for (int t = 0; t < 3; t++) {
            ct_stream s = stream_of(t + 1);
            y[t] = tv_new(CT_F32, LAST, 4, SHAPE(8, 9, 21, 23));
            if (k == 0)
                RND->dropout(&s, &y[t].v, 0, &x.v, 0.5, &r);
            else if (k == 1)
                RND->uniform(&s, &y[t].v, 0, 1, &r);
            else
                RND->normal(&s, &y[t].v, 0, 1, &r);
            cr_assert(memcmp(y[t].mem, y[0].mem, y[0].bytes) == 0);
        }
        for (int t = 0; t < 3; t++)
            tv_free(&y[t]);
        tv_free(&x);
    }
}
