/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_test.h"

#define RED (&cti_cpu_reduce)

TestSuite(backend_reduce);

static int run(int threads, ct_reduce op, const ct_view *y, int beta, const ct_view *x,
               double scale)
{
    ct_stream s = stream_of(threads);
    size_t bytes = RED->workspace(&s, op, y, x);
    char *w = workspace(bytes);
    int rc = RED->reduce(&s, op, y, beta, x, scale, w);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(w[bytes + (size_t)i], (char)0xff, "wrote past its workspace");
    free(w);
    return rc;
}

/* The plain way, in double. */
static void naive(ct_reduce op, const ct_view *y, const ct_view *x, double *out)
{
    for (int64_t i = 0; i < ct_view_numel(y); i++)
        out[i] = op == CT_RED_SUM ? 0 : op == CT_RED_MAX ? -INFINITY : INFINITY;
    for (int64_t i = 0; i < ct_view_numel(x); i++) {
        int64_t rest = i, to = 0, mul = 1;
        for (int d = x->ndim - 1; d >= 0; d--) {
            int64_t c = rest % x->shape[d];
            rest /= x->shape[d];
            to += (y->shape[d] == 1 ? 0 : c) * mul;
            mul *= y->shape[d];
        }
        double v = get(x, i);
        if (op == CT_RED_SUM)
            out[to] += v;
        else if (isnan(v) || (op == CT_RED_MAX ? v > out[to] : v < out[to]))
            out[to] = isnan(out[to]) ? out[to] : v;
    }
}

static void one(ct_reduce op, ct_dtype t, enum layout lx, enum layout ly, int ndim,
                const int64_t *shape, unsigned reduced)
{
    int64_t small[4];
    bool isfloat = t == CT_F32 || t == CT_F64;
    for (int d = 0; d < ndim; d++)
        small[d] = reduced >> d & 1 ? 1 : shape[d];
    tv x = tv_new(t, lx, ndim, shape);
    tv_noise(&x, 5, isfloat ? 2 : 50, isfloat ? 0 : 50);
    for (int beta = 0; beta <= (op == CT_RED_SUM); beta++) {
        tv y = tv_new(isfloat ? t : CT_I64, ly, ndim, small);
        int64_t n = ct_view_numel(&y.v);
        double *want = malloc(sizeof *want * (size_t)(n + 1)), scale = op == CT_RED_SUM ? 0.5 : 1;
        if (!isfloat)
            scale = 1;
        for (int64_t i = 0; i < n; i++)
            put(&y.v, i, 3);
        naive(op, &y.v, &x.v, want);
        cr_assert_eq(run(2, op, &y.v, beta, &x.v, scale), CT_OK);
        for (int64_t i = 0; i < n; i++)
            expect_near(get(&y.v, i), beta * 3 + scale * want[i], t == CT_F32 ? 1e-5 : 1e-12,
                        "reduce", i);
        free(want);
        tv_free(&y);
    }
    tv_free(&x);
}

Test(backend_reduce, all_dims_layouts_dtypes)
{
    static const ct_dtype types[] = {CT_F32, CT_F64, CT_I32, CT_I64, CT_U8, CT_BOOL};
    for (size_t k = 0; k < 6; k++)
        for (unsigned dims = 0; dims < 16; dims++)
            for (int l = 0; l < LAYOUTS; l++)
                for (int op = 0; op < (k < 2 ? CT_RED_COUNT : 1); op++)
                    one((ct_reduce)op, types[k], (enum layout)l,
                        (enum layout)((l + dims) % LAYOUTS), 4, SHAPE(3, 19, 5, 7), dims);
}

/* Shapes that take the chunked paths. */
Test(backend_reduce, large)
{
    for (int op = 0; op < CT_RED_COUNT; op++) {
        one((ct_reduce)op, CT_F32, ROWS, ROWS, 1, SHAPE(100003), 1);
        one((ct_reduce)op, CT_F32, LAST, ROWS, 4, SHAPE(16, 13, 17, 19), 13);
        one((ct_reduce)op, CT_F32, LAST, ROWS, 4, SHAPE(16, 70, 17, 5), 13);
        one((ct_reduce)op, CT_F64, LAST, ROWS, 4, SHAPE(16, 5, 33, 9), 13);
        one((ct_reduce)op, CT_F32, ROWS, ROWS, 2, SHAPE(200, 300), 1);
        one((ct_reduce)op, CT_F32, ROWS, ROWS, 2, SHAPE(3, 20000), 2);
        one((ct_reduce)op, CT_F32, ROWS, ROWS, 2, SHAPE(5000, 10), 2);
        one((ct_reduce)op, CT_F32, GAPS, ROWS, 3, SHAPE(50, 20, 30), 5);
        one((ct_reduce)op, CT_F32, REVERSED, GAPS, 3, SHAPE(50, 20, 30), 2);
    }
}

Test(backend_reduce, f32_sums_are_accurate)
{
    tv x = tv_new(CT_F32, ROWS, 2, SHAPE(1000, 1000)), y = tv_new(CT_F32, ROWS, 2, SHAPE(1, 1));
    tv z = tv_new(CT_F32, ROWS, 2, SHAPE(1, 1000));
    double want = 0;
    for (int64_t i = 0; i < 1000000; i++) {
        put(&x.v, i, 0.1 + 0.01 * noise(1, i));
        want += get(&x.v, i);
    }
    run(2, CT_RED_SUM, &y.v, 0, &x.v, 1);
    cr_assert_lt(fabs(get(&y.v, 0) / want - 1), 1.2e-7);
    run(2, CT_RED_SUM, &z.v, 0, &x.v, 1);
    for (int64_t j = 0; j < 1000; j++) {
        double w = 0;
        for (int64_t i = 0; i < 1000; i++)
            w += get(&x.v, i * 1000 + j);
        cr_assert_lt(fabs(get(&z.v, j) / w - 1), 4e-7);
    }
    tv_free(&x), tv_free(&y), tv_free(&z);
}

Test(backend_reduce, same_bytes_for_any_threads)
{
    static const struct {
        int ndim;
        int64_t x[4], y[4];
        enum layout l;
    } cases[] = {{1, {100003}, {1}, ROWS},
                 {4, {16, 13, 17, 19}, {1, 13, 1, 1}, LAST},
                 {2, {5000, 10}, {5000, 1}, ROWS},
                 {2, {700, 300}, {1, 300}, ROWS},
                 {3, {9, 4000, 5}, {9, 1, 5}, GAPS}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int op = 0; op < CT_RED_COUNT; op++) {
            tv x = tv_rand(CT_F32, cases[k].l, cases[k].ndim, cases[k].x, 3), y[3];
            for (int t = 0; t < 3; t++) {
                y[t] = tv_new(CT_F32, ROWS, cases[k].ndim, cases[k].y);
                run(t + 1, (ct_reduce)op, &y[t].v, 0, &x.v, 1);
                cr_assert(memcmp(y[t].mem, y[0].mem, y[0].bytes) == 0);
            }
            for (int t = 0; t < 3; t++)
                tv_free(&y[t]);
            tv_free(&x);
        }
}

Test(backend_reduce, nan_wins_and_empty_sums_are_zero)
{
    for (int where = 0; where < 70; where++) {
        tv x = tv_rand(CT_F32, ROWS, 1, SHAPE(70), 1), y = tv_new(CT_F32, ROWS, 1, SHAPE(1));
        put(&x.v, where, NAN);
        run(1, CT_RED_MAX, &y.v, 0, &x.v, 1);
        cr_assert(isnan(get(&y.v, 0)));
        run(1, CT_RED_MIN, &y.v, 0, &x.v, 1);
        cr_assert(isnan(get(&y.v, 0)));
        tv_free(&x), tv_free(&y);
    }
    ct_view e = {NULL, CT_F32, 2, {0, 3}, {3, 1}};
    tv y = tv_new(CT_F32, ROWS, 2, SHAPE(1, 3));
    for (int64_t i = 0; i < 3; i++)
        put(&y.v, i, 7);
    cr_assert_eq(run(1, CT_RED_SUM, &y.v, 1, &e, 1), CT_OK);
    cr_assert_eq(get(&y.v, 1), 7);
    cr_assert_eq(run(1, CT_RED_SUM, &y.v, 0, &e, 1), CT_OK);
    cr_assert_eq(get(&y.v, 2), 0);
    ct_view none = {NULL, CT_F32, 2, {0, 1}, {1, 1}};
    cr_assert_eq(run(1, CT_RED_SUM, &none, 0, &e, 1), CT_OK);
    ct_view bf = {y.mem, CT_BF16, 1, {2}, {1}};
    cr_assert_eq(run(1, CT_RED_SUM, &y.v, 0, &bf, 1), CT_EDTYPE);
    tv_free(&y);
}

Test(backend_reduce, argmax)
{
    ct_stream s = stream_of(2);
    for (int l = 0; l < LAYOUTS; l++)
        for (int dim = 0; dim < 3; dim++) {
            const int64_t shape[] = {4, 7, 5};
            int64_t small[] = {4, 7, 5};
            small[dim] = 1;
            tv x = tv_new(CT_F32, (enum layout)l, 3, shape), y = tv_new(CT_I64, ROWS, 3, small);
            for (int64_t i = 0; i < 140; i++) /* many ties, some NaN */
                put(&x.v, i, i % 29 == 0 ? NAN : floor(noise(1, i) * 3));
            cr_assert_eq(RED->argmax(&s, &y.v, &x.v, dim), CT_OK);
            for (int64_t i = 0; i < ct_view_numel(&y.v); i++) {
                int64_t inner = dim == 2 ? 1 : dim == 1 ? 5 : 35, n = shape[dim], best = 0;
                int64_t base = i / inner * inner * n + i % inner;
                for (int64_t k = 1; k < n; k++) {
                    double b = get(&x.v, base + best * inner), v = get(&x.v, base + k * inner);
                    if (!isnan(b) && (isnan(v) || v > b))
                        best = k;
                }
                cr_assert_eq(get(&y.v, i), (double)best);
            }
            tv_free(&x), tv_free(&y);
        }
}
