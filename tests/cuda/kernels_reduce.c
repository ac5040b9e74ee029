/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions and argmax of the CUDA backend against the CPU's. */
#include "pair.h"

TestSuite(cuda_reduce);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
static const ct_dtype summed[] = {CT_F32, CT_BF16, CT_F16, CT_F64, CT_I32, CT_I64, CT_U8, CT_BOOL};
#define N(array) (sizeof(array) / sizeof *(array))

/* y = beta y + scale reduce(x) on both sides. The oracle's float results and inputs are f64. */
static void reduce_pair(pair *p, ct_reduce op, twin *y, int beta, const twin *x, double scale,
                        const char *what)
{
    size_t bytes = cti_cuda_reduce_workspace(p->cuda, op, &y->v, &x->v);
    size_t cpu_bytes = p->be->reduce->workspace(p->cpu, op, &y->o, &x->o);
    void *ws = bytes ? pair_scratch(p, bytes) : NULL, *cpu_ws = malloc(cpu_bytes + 1);

    pair_ok(p, cti_cuda_reduce(p->cuda, op, &y->v, beta, &x->v, scale, ws));
    pair_ok(p, p->be->reduce->reduce(p->cpu, op, &y->o, beta, &x->o, scale, cpu_ws));
    twin_same(p, y, 2, what);
    pair_scratch_free(p, ws);
    free(cpu_ws);
}

/* Sums, and for some dtypes max and min, over the dimensions in `mask`. */
static void one(pair *p, ct_dtype t, enum layout lx, enum layout ly, int ndim, const int64_t *shape,
                unsigned mask)
{
    bool whole = t < CT_F16;
    int64_t small[CT_MAX_DIMS];
    char what[80];

    for (int d = 0; d < ndim; d++)
        small[d] = mask >> d & 1 ? 1 : shape[d];
    twin x = twin_rand(p, t, lx, ndim, shape, 1);
    twin y = twin_new(p, whole ? CT_I64 : t, ly, ndim, small);
    for (int op = 0; op < CT_RED_COUNT; op++) {
        snprintf(what, sizeof what, "op %d, layouts %d %d, mask %x", op, (int)lx, (int)ly, mask);
        if (op > 0 && (whole || t == CT_F64))
            continue;
        reduce_pair(p, (ct_reduce)op, &y, 0, &x, 1, what);
        if (op > 0)
            continue;
        twin_from_oracle(p, &y);
        reduce_pair(p, CT_RED_SUM, &y, 1, &x, 1, what);
        twin_from_oracle(p, &y);
        reduce_pair(p, CT_RED_SUM, &y, 1, &x, whole ? 2 : 0.25, what);
    }
    twin_untouched(p, &x, what);
    twin_free(p, &x), twin_free(p, &y);
}

Test(cuda_reduce, layouts_and_dtypes)
{
    static const int64_t shape[] = {3, 5, 4, 7};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(summed); t++)
        for (int l = 0; l < LAYOUTS * LAYOUTS; l++)
            for (unsigned mask = 0; mask < 16; mask += t ? 5 : 1)
                one(&p, summed[t], (enum layout)(l / LAYOUTS), (enum layout)(l % LAYOUTS), 4, shape,
                    mask);
    pair_close(&p);
}

Test(cuda_reduce, lengths)
{
    static const int64_t n[] = {1, 2, 10, 31, 32, 33, 255, 256, 257, 1023, 4097, 20000};
    static const int64_t m[] = {1, 3, 32, 33, 300};
    pair p;
    pair_open(&p);
    for (size_t i = 0; i < N(n); i++)
        for (size_t j = 0; j < N(m); j++) {
            ct_dtype t = summed[(i + j) % N(summed)];
            if (n[i] * m[j] > 1000000)
                continue;
            one(&p, t, ROWS, ROWS, 2, SHAPE(m[j], n[i]), 2); /* rows */
            one(&p, t, ROWS, ROWS, 2, SHAPE(n[i], m[j]), 1); /* columns */
            one(&p, CT_F32, ROWS, ROWS, 2, SHAPE(m[j], n[i]), 3);
        }
    one(&p, CT_F32, LAST, ROWS, 4, SHAPE(8, 40, 16, 12), 13); /* a bias */
    one(&p, CT_BF16, ROWS, ROWS, 4, SHAPE(8, 40, 16, 12), 13);
    one(&p, CT_F32, LAST, ROWS, 4, SHAPE(8, 40, 16, 12), 2);
    one(&p, CT_F32, GAPS, REVERSED, 3, SHAPE(90, 41, 70), 2);
    pair_close(&p);
}

Test(cuda_reduce, broadcast_inputs)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(summed); t++) {
        ct_dtype out = summed[t] < CT_F16 ? CT_I64 : summed[t];
        twin m = twin_rand(&p, summed[t], ROWS, 1, SHAPE(50), 1);
        twin x = twin_as(&m, 0, 3, SHAPE(6, 40, 7), SHAPE(0, 1, 0));
        twin y = twin_new(&p, out, ROWS, 3, SHAPE(1, 40, 1));
        twin z = twin_new(&p, out, ROWS, 3, SHAPE(6, 1, 7));
        reduce_pair(&p, CT_RED_SUM, &y, 0, &x, 1, "over broadcast dimensions");
        reduce_pair(&p, CT_RED_SUM, &z, 0, &x, 1, "kept broadcast dimensions");
        twin_free(&p, &m), twin_free(&p, &y), twin_free(&p, &z);
    }
    pair_close(&p);
}

Test(cuda_reduce, long_sums_are_accurate)
{
    pair p;
    pair_open(&p);
    twin x = twin_new(&p, CT_F32, ROWS, 2, SHAPE(1500, 700));
    twin all = twin_new(&p, CT_F32, ROWS, 2, SHAPE(1, 1));
    twin columns = twin_new(&p, CT_F32, ROWS, 2, SHAPE(1, 700));
    twin_noise(&p, &x, 1, 0.01, 0.1);
    reduce_pair(&p, CT_RED_SUM, &all, 0, &x, 1, "all");
    double *got = twin_get_all(&p, &all);
    cr_assert_lt(fabs(got[0] / view_get(&p, &all.o, 0) - 1), 2e-7);
    free(got);
    reduce_pair(&p, CT_RED_SUM, &columns, 0, &x, 1, "columns");
    got = twin_get_all(&p, &columns);
    for (int64_t i = 0; i < 700; i++)
        cr_assert_lt(fabs(got[i] / view_get(&p, &columns.o, i) - 1), 5e-7);
    free(got);
    twin_free(&p, &x), twin_free(&p, &all), twin_free(&p, &columns);
    pair_close(&p);
}

Test(cuda_reduce, same_bytes_on_any_device)
{
    pair p;
    pair_open(&p);
    twin m = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(40000), 1);
    twin x[] = {twin_as(&m, 0, 2, SHAPE(40000, 1), SHAPE(1, 1)),
                twin_as(&m, 0, 2, SHAPE(1000, 40), SHAPE(40, 1)),
                twin_as(&m, 0, 2, SHAPE(40000, 40), SHAPE(1, 0))};
    for (size_t k = 0; k < N(x); k++) {
        twin y = twin_new(&p, CT_F32, ROWS, 2, SHAPE(1, x[k].v.shape[1]));
        double *got[3];
        static const int sms[] = {132, 1, 16};
        for (int i = 0; i < 3; i++) {
            p.cuda->sms = sms[i];
            reduce_pair(&p, CT_RED_SUM, &y, 0, &x[k], 1, "sum");
            got[i] = twin_get_all(&p, &y);
            cr_assert_eq(memcmp(got[i], got[0], (size_t)y.v.shape[1] * sizeof(double)), 0);
        }
        for (int i = 0; i < 3; i++)
            free(got[i]);
        twin_free(&p, &y);
    }
    twin_free(&p, &m);
    pair_close(&p);
}

Test(cuda_reduce, many_chunks)
{
    pair p;
    pair_open(&p);
    twin m = twin_rand(&p, CT_U8, ROWS, 1, SHAPE(128), 1);
    twin x = twin_as(&m, 0, 3, SHAPE(30, 300, 128), SHAPE(0, 0, 1));
    twin big = twin_as(&m, 0, 3, SHAPE(40000, 1, 1), SHAPE(0, 1, 1));
    twin y = twin_new(&p, CT_I64, ROWS, 3, SHAPE(1, 1, 128));
    twin z = twin_new(&p, CT_I64, ROWS, 3, SHAPE(1, 1, 1));
    reduce_pair(&p, CT_RED_SUM, &y, 0, &x, 1, "columns");
    reduce_pair(&p, CT_RED_SUM, &z, 0, &big, 1, "row");
    twin_free(&p, &m), twin_free(&p, &y), twin_free(&p, &z);
    pair_close(&p);
}

Test(cuda_reduce, nan_and_infinity)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (size_t k = 0; k < N(odd); k++)
            for (int64_t where = 0; where < 70; where += 3)
                for (int op = 0; op < CT_RED_COUNT; op++) {
                    twin x = twin_rand(&p, floats[t], ROWS, 2, SHAPE(3, 70), 1);
                    twin y = twin_new(&p, floats[t], ROWS, 2, SHAPE(3, 1));
                    twin z = twin_new(&p, floats[t], ROWS, 2, SHAPE(1, 70));
                    twin_put(&p, &x, where, odd[k]);
                    twin_upload(&p, &x);
                    reduce_pair(&p, (ct_reduce)op, &y, 0, &x, 1, "row");
                    reduce_pair(&p, (ct_reduce)op, &z, 0, &x, 1, "column");
                    twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &z);
                }
    pair_close(&p);
}

Test(cuda_reduce, nothing)
{
    pair p;
    pair_open(&p);
    twin x = twin_new(&p, CT_F32, ROWS, 2, SHAPE(0, 3)),
         y = twin_rand(&p, CT_F32, ROWS, 2, SHAPE(1, 3), 1);
    reduce_pair(&p, CT_RED_SUM, &y, 1, &x, 1, "nothing is added");
    reduce_pair(&p, CT_RED_SUM, &y, 0, &x, 1, "a sum over nothing");
    long before = pair_work("");
    twin z = twin_new(&p, CT_F32, ROWS, 2, SHAPE(0, 1));
    reduce_pair(&p, CT_RED_SUM, &z, 0, &x, 1, "no outputs");
    cr_assert_eq(pair_work(""), before);
    twin a = twin_rand(&p, CT_F32, ROWS, 0, NULL, 3), b = twin_new(&p, CT_F32, ROWS, 0, NULL);
    reduce_pair(&p, CT_RED_SUM, &b, 0, &a, 1, "scalar");
    reduce_pair(&p, CT_RED_MAX, &b, 0, &a, 1, "scalar");
    twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &z), twin_free(&p, &a), twin_free(&p, &b);
    pair_close(&p);
}

static void argmax_pair(pair *p, twin *y, const twin *x, int dim)
{
    pair_ok(p, cti_cuda_argmax(p->cuda, &y->v, &x->v, dim));
    pair_ok(p, p->be->reduce->argmax(p->cpu, &y->o, &x->o, dim));
    twin_same(p, y, 0, "argmax");
}

Test(cuda_reduce, argmax)
{
    static const ct_dtype types[] = {CT_F32, CT_BF16, CT_F16, CT_I32, CT_I64, CT_U8, CT_BOOL};
    static const int64_t shapes[][3] = {{4, 7, 5}, {3, 300, 2}, {2, 33, 40}, {1, 1, 1}};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(types); t++)
        for (size_t k = 0; k < N(shapes); k++)
            for (int l = 0; l < LAYOUTS; l++)
                for (int dim = 0; dim < 3; dim++) {
                    int64_t small[] = {shapes[k][0], shapes[k][1], shapes[k][2]};
                    small[dim] = 1;
                    twin x = twin_new(&p, types[t], (enum layout)l, 3, shapes[k]);
                    twin y = twin_new(&p, CT_I64, k % 2 ? REVERSED : ROWS, 3, small);
                    twin_noise(&p, &x, 1, 0, 0);
                    for (int64_t i = 0; i < ct_view_numel(&x.v); i++) { /* many ties, some NaN */
                        double v = types[t] >= CT_F16 && i % 29 == 28 ? NAN :
                                   i % 31 == 30                       ? -INFINITY :
                                                                        floor(noise(1, i) * 3 + 3);
                        twin_put(&p, &x, i, types[t] == CT_BOOL ? noise(1, i) > 0 : v);
                    }
                    twin_upload(&p, &x);
                    argmax_pair(&p, &y, &x, dim);
                    twin_free(&p, &x), twin_free(&p, &y);
                }
    twin x = twin_rand(&p, CT_F32, ROWS, 0, NULL, 1), y = twin_new(&p, CT_I64, ROWS, 0, NULL);
    argmax_pair(&p, &y, &x, 0);
    twin none = twin_new(&p, CT_F32, ROWS, 2, SHAPE(0, 3));
    twin z = twin_new(&p, CT_I64, ROWS, 2, SHAPE(0, 1));
    argmax_pair(&p, &z, &none, 1);
    twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &none), twin_free(&p, &z);
    pair_close(&p);
}

/* -inf alone still has a first element. */
Test(cuda_reduce, argmax_of_equals)
{
    static const double values[] = {-INFINITY, NAN, 0};
    pair p;
    pair_open(&p);
    for (size_t k = 0; k < N(values); k++) {
        twin x = twin_new(&p, CT_F32, ROWS, 2, SHAPE(5, 100));
        twin y = twin_new(&p, CT_I64, ROWS, 2, SHAPE(5, 1));
        for (int64_t i = 0; i < 500; i++)
            twin_put(&p, &x, i, values[k]);
        twin_upload(&p, &x);
        argmax_pair(&p, &y, &x, 1);
        twin_free(&p, &x), twin_free(&p, &y);
    }
    pair_close(&p);
}

Test(cuda_reduce, refusals)
{
    pair p;
    pair_open(&p);
    twin f = twin_new(&p, CT_F32, ROWS, 1, SHAPE(1)), d = twin_new(&p, CT_F64, ROWS, 1, SHAPE(1));
    twin i = twin_new(&p, CT_I32, ROWS, 1, SHAPE(1)), l = twin_new(&p, CT_I64, ROWS, 1, SHAPE(1));
    pair_refuses(&p, cti_cuda_reduce(p.cuda, CT_RED_SUM, &i.v, 0, &i.v, 1, NULL));
    pair_refuses(&p, cti_cuda_reduce(p.cuda, CT_RED_SUM, &f.v, 0, &d.v, 1, NULL));
    pair_refuses(&p, cti_cuda_reduce(p.cuda, CT_RED_MAX, &d.v, 0, &d.v, 1, NULL));
    pair_refuses(&p, cti_cuda_reduce(p.cuda, CT_RED_MIN, &l.v, 0, &i.v, 1, NULL));
    pair_refuses(&p, cti_cuda_argmax(p.cuda, &i.v, &f.v, 0));
    pair_refuses(&p, cti_cuda_argmax(p.cuda, &l.v, &d.v, 0));
    twin_free(&p, &f), twin_free(&p, &d), twin_free(&p, &i), twin_free(&p, &l);
    pair_close(&p);
}

Test(cuda_reduce, a_failed_launch_is_told)
{
    if (!pair_on_double())
        cr_skip_test("not on the software double");
    pair p;
    pair_open(&p);
    twin x = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(9000), 1),
         y = twin_new(&p, CT_F32, ROWS, 1, SHAPE(1));
    size_t bytes = cti_cuda_reduce_workspace(p.cuda, CT_RED_SUM, &y.v, &x.v);
    void *ws = pair_scratch(&p, bytes);
    cr_assert_gt(bytes, 0);
    for (int n = 1; n <= 2; n++) { /* of two stages */
        pair_fail(n == 1 ? "launch:1" : "launch:2");
        cr_assert_eq(cti_cuda_reduce(p.cuda, CT_RED_SUM, &y.v, 0, &x.v, 1, ws), CT_EDEVICE);
        cr_assert(strstr(p.err.text, "reduce") != NULL, "%s", p.err.text);
        p.err = (ct_error){0};
        pair_fail("");
    }
    pair_scratch_free(&p, ws);
    twin_free(&p, &x), twin_free(&p, &y);
    pair_close(&p);
}
