/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, scatter and their relatives of the CUDA backend against the CPU's. */
#include "pair.h"

TestSuite(cuda_index);

static const ct_dtype all[] = {CT_F32, CT_BF16, CT_F16, CT_F64, CT_I32, CT_I64, CT_U8, CT_BOOL};
static const ct_dtype sums[] = {CT_F32, CT_BF16, CT_F16, CT_F64, CT_I32, CT_I64};
#define N(array) (sizeof(array) / sizeof *(array))

/* Indices below `bound`; from time to time one out of range. */
static twin indices(pair *p, enum layout lay, int ndim, const int64_t *shape, int64_t bound,
                    bool bad)
{
    twin t = twin_new(p, CT_I64, lay, ndim, shape);
    for (int64_t i = 0; i < ct_view_numel(&t.v); i++) {
        int64_t k = (int64_t)floor((noise(9, i) + 1) / 2 * (double)bound);
        twin_put(p, &t, i, bad && i % 13 == 5 ? (i % 2 ? (double)bound : -1) : (double)k);
    }
    twin_upload(p, &t);
    return t;
}

static void gather_case(pair *p, ct_dtype t, enum layout lx, enum layout li, int dim, bool bad)
{
    const int64_t xs[] = {3, 4, 7, 5}, is[] = {2, 3, 6, 4};
    twin x = twin_rand(p, t, lx, 4, xs, 1), y = twin_new(p, t, li, 4, is);
    twin index = indices(p, li, 4, is, xs[dim], bad);
    pair_ok(p, cti_cuda_gather(p->cuda, &y.v, &x.v, dim, &index.v));
    pair_ok(p, p->be->index->gather(p->cpu, &y.o, &x.o, dim, &index.o));
    twin_same(p, &y, 0, "gather");
    twin_untouched(p, &x, "gather");
    twin_free(p, &x), twin_free(p, &y), twin_free(p, &index);
}

Test(cuda_index, gather)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(all); t++)
        for (int l = 0; l < LAYOUTS * LAYOUTS; l += t ? 5 : 1)
            gather_case(&p, all[t], (enum layout)(l / LAYOUTS), (enum layout)(l % LAYOUTS),
                        (int)(t + l) % 4, l % 2);
    pair_close(&p);
}

static ct_scatter_args args_of(const ct_view *y, const ct_view *src, const ct_view *index, int dim)
{
    return (ct_scatter_args){
        .y = *y, .src = src, .value = 3, .index = *index, .dim = dim, .skip = -1};
}

static void scatter_case(pair *p, ct_dtype t, enum layout ly, enum layout li, int dim, bool add,
                         bool one, int64_t skip)
{
    const int64_t ys[] = {3, 4, 7, 5}, is[] = {2, 3, 6, 4};
    twin y = twin_rand(p, t, ly, 4, ys, 1), src = twin_rand(p, t, li, 4, is, 2);
    twin index = indices(p, li, 4, is, ys[dim], skip < 0);
    ct_scatter_args a = args_of(&y.v, one ? NULL : &src.v, &index.v, dim);
    ct_scatter_args o = args_of(&y.o, one ? NULL : &src.o, &index.o, dim);
    a.add = o.add = add;
    a.skip = o.skip = skip;
    pair_ok(p, cti_cuda_scatter(p->cuda, &a));
    pair_ok(p, p->be->index->scatter(p->cpu, &o));
    twin_same(p, &y, add && ct_dtype_is_float(t) ? 4 : 0, add ? "scatter add" : "scatter");
    twin_untouched(p, &src, "scatter");
    twin_free(p, &y), twin_free(p, &src), twin_free(p, &index);
}

Test(cuda_index, scatter)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(all); t++)
        for (int l = 0; l < LAYOUTS * LAYOUTS; l += t ? 5 : 1)
            scatter_case(&p, all[t], (enum layout)(l / LAYOUTS), (enum layout)(l % LAYOUTS),
                         (int)(t + l) % 4, false, l % 3 == 0, l % 2 ? 1 : -1);
    for (size_t t = 0; t < N(sums); t++)
        for (int l = 0; l < LAYOUTS; l++)
            scatter_case(&p, sums[t], (enum layout)l, (enum layout)((l + 1) % LAYOUTS),
                         (int)(t + l) % 4, true, l == 3, l % 2 ? 1 : -1);
    pair_close(&p);
}

/* One index for all places: the kernel that owns rows. */
static void rows_case(pair *p, ct_dtype t, int64_t n, int64_t rows, int64_t width, int64_t skip,
                      bool bad)
{
    twin y = twin_rand(p, t, ROWS, 2, SHAPE(rows, width), 1);
    twin src = twin_rand(p, t, GAPS, 2, SHAPE(n, width), 2);
    twin index = indices(p, ROWS, 1, &n, rows, bad);
    twin wide = twin_as(&index, 0, 2, SHAPE(n, width), SHAPE(1, 0));
    ct_scatter_args a = args_of(&y.v, &src.v, &wide.v, 0), o = args_of(&y.o, &src.o, &wide.o, 0);
    a.add = o.add = true;
    a.skip = o.skip = skip;
    pair_ok(p, cti_cuda_scatter(p->cuda, &a));
    pair_ok(p, p->be->index->scatter(p->cpu, &o));
    twin_same(p, &y, (double)(n > 64 ? 16 : 4), "rows");
    twin_free(p, &y), twin_free(p, &src), twin_free(p, &index);
}

Test(cuda_index, scatter_add_of_rows)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(sums); t++) {
        rows_case(&p, sums[t], 9, 5, 3, -1, false);
        rows_case(&p, sums[t], 9, 5, 300, 2, false);
        rows_case(&p, sums[t], 40, 3, 7, -1, true);
    }
    rows_case(&p, CT_F32, 600, 4, 5, -1, false);
    rows_case(&p, CT_F32, 600, 700, 5, 3, true);
    rows_case(&p, CT_F32, 300, 700, 1300, -1, false);
    rows_case(&p, CT_F32, 1100, 40, 1, -1, true);
    rows_case(&p, CT_BF16, 9, 50, 3, -1, true);
    rows_case(&p, CT_I64, 40, 50, 3, 0, true);
    rows_case(&p, CT_F32, 600, 4, 5, 0, true);
    p.cuda->sms = 1;
    rows_case(&p, CT_F32, 20, 40, 300, -1, false);
    pair_close(&p);
}

Test(cuda_index, check_finds_the_first_and_keeps_an_earlier_finding)
{
    static const enum layout layouts[] = {ROWS, REVERSED, GAPS};
    pair p;
    pair_open(&p);
    for (size_t l = 0; l < N(layouts); l++) {
        twin index = indices(&p, layouts[l], 3, SHAPE(3, 5, 40), 7, true);
        twin good = indices(&p, layouts[l], 3, SHAPE(3, 5, 40), 7, false);
        twin bad = twin_new(&p, CT_I64, ROWS, 1, SHAPE(3));
        for (int i = 0; i < 3; i++)
            twin_put(&p, &bad, i, -1);
        twin_upload(&p, &bad);
        pair_ok(&p, cti_cuda_check_index(p.cuda, &good.v, 7, &bad.v));
        pair_ok(&p, p.be->index->check(p.cpu, &good.o, 7, &bad.o));
        twin_same(&p, &bad, 0, "nothing found");
        p.cuda->sms = l ? 1 : p.cuda->sms;
        pair_ok(&p, cti_cuda_check_index(p.cuda, &index.v, 7, &bad.v));
        pair_ok(&p, p.be->index->check(p.cpu, &index.o, 7, &bad.o));
        twin_same(&p, &bad, 0, "the first");
        cr_assert_eq(view_get(&p, &bad.o, 0), 5);
        cr_assert_eq(view_get(&p, &bad.o, 2), 7);
        pair_ok(&p, cti_cuda_check_index(p.cuda, &good.v, 1, &bad.v));
        pair_ok(&p, p.be->index->check(p.cpu, &good.o, 1, &bad.o));
        twin_same(&p, &bad, 0, "the earlier one");
        twin_free(&p, &index), twin_free(&p, &good), twin_free(&p, &bad);
    }
    pair_close(&p);
}

Test(cuda_index, iota)
{
    static const ct_dtype kinds[] = {CT_F32, CT_F64, CT_I32, CT_I64};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(kinds); t++)
        for (int64_t n = 0; n < 600; n = 3 * n + 1) {
            twin y = twin_new(&p, kinds[t], ROWS, 1, &n);
            double last = -2 + (double)(n - 1) * 3;
            pair_ok(&p, cti_cuda_iota(p.cuda, &y.v, -2, last, 3));
            pair_ok(&p, p.be->index->iota(p.cpu, &y.o, -2, last, 3));
            twin_same(&p, &y, 0, "iota");
            twin_free(&p, &y);
        }
    pair_close(&p);
}

Test(cuda_index, tri)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(all); t++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int64_t diagonal = -8; diagonal <= 8; diagonal += 2 + (int64_t)t) {
                twin x = twin_rand(&p, all[t], (enum layout)l, 4, SHAPE(2, 3, 5, 7), 1);
                twin y =
                    twin_new(&p, all[t], (enum layout)((l + 1) % LAYOUTS), 4, SHAPE(2, 3, 5, 7));
                for (int upper = 0; upper < 2; upper++) {
                    pair_ok(&p, cti_cuda_tri(p.cuda, &y.v, &x.v, diagonal, upper));
                    pair_ok(&p, p.be->index->tri(p.cpu, &y.o, &x.o, diagonal, upper));
                    twin_same(&p, &y, 0, "tri");
                }
                twin_free(&p, &x), twin_free(&p, &y);
            }
    pair_close(&p);
}

static void bags_case(pair *p, const double *offsets, int64_t skip)
{
    const int64_t n = 20, count = 4, D = 5;
    twin off = twin_new(p, CT_I64, ROWS, 1, &count), ids = indices(p, ROWS, 1, &n, 3, false);
    twin bag = twin_new(p, CT_I64, ROWS, 1, &n), bad = twin_new(p, CT_I64, ROWS, 1, SHAPE(3));
    for (int64_t b = 0; b < count; b++)
        twin_put(p, &off, b, offsets[b]);
    for (int i = 0; i < 3; i++)
        twin_put(p, &bad, i, -1);
    twin_upload(p, &off), twin_upload(p, &bad);
    pair_ok(p, cti_cuda_bags(p->cuda, &bag.v, &off.v, &ids.v, skip, &bad.v));
    pair_ok(p, p->be->index->bags(p->cpu, &bag.o, &off.o, &ids.o, skip, &bad.o));
    twin_same(p, &bad, 0, "offsets");
    if (view_get(p, &bad.o, 0) < 0)
        twin_same(p, &bag, 0, "bags");
    for (int t = 0; t < 3; t++) {
        twin x = twin_new(p, all[t], ROWS, 2, SHAPE(n, D));
        twin index = twin_new(p, CT_I64, ROWS, 2, SHAPE(count, D));
        for (int64_t i = 0; i < n * D; i++) /* ties */
            twin_put(p, &x, i, i % 17 == 3 ? NAN : floor(noise(4, i) * 3));
        twin_upload(p, &x);
        pair_ok(p, cti_cuda_bag_max(p->cuda, &index.v, &x.v, &off.v, &ids.v, skip));
        pair_ok(p, p->be->index->bag_max(p->cpu, &index.o, &x.o, &off.o, &ids.o, skip));
        twin_same(p, &index, 0, "bag_max");
        twin_free(p, &x), twin_free(p, &index);
    }
    twin_free(p, &off), twin_free(p, &ids), twin_free(p, &bag), twin_free(p, &bad);
}

Test(cuda_index, bags)
{
    static const double offsets[][4] = {{0, 3, 3, 17}, {0, 0, 0, 0},  {0, 20, 20, 20},
                                        {1, 3, 5, 7},  {0, 9, 5, 30}, {0, 5, 9, -1}};
    pair p;
    pair_open(&p);
    for (size_t i = 0; i < N(offsets); i++)
        for (int64_t skip = -1; skip < 2; skip += 2)
            bags_case(&p, offsets[i], skip);
    pair_close(&p);
}

Test(cuda_index, nothing_is_launched_for_nothing)
{
    pair p;
    pair_open(&p);
    twin x = twin_new(&p, CT_F32, ROWS, 2, SHAPE(0, 3)),
         i = twin_new(&p, CT_I64, ROWS, 2, SHAPE(0, 3));
    twin none = twin_new(&p, CT_I64, ROWS, 1, SHAPE(0)),
         bad = twin_new(&p, CT_I64, ROWS, 1, SHAPE(3));
    ct_scatter_args a = args_of(&x.v, &x.v, &i.v, 0);
    long before = pair_work("");
    pair_ok(&p, cti_cuda_gather(p.cuda, &x.v, &x.v, 0, &i.v));
    pair_ok(&p, cti_cuda_scatter(p.cuda, &a));
    pair_ok(&p, cti_cuda_check_index(p.cuda, &none.v, 3, &bad.v));
    pair_ok(&p, cti_cuda_iota(p.cuda, &none.v, 0, 0, 1));
    pair_ok(&p, cti_cuda_tri(p.cuda, &x.v, &x.v, 0, true));
    pair_ok(&p, cti_cuda_bags(p.cuda, &none.v, &none.v, &none.v, -1, &bad.v));
    pair_ok(&p, cti_cuda_bag_max(p.cuda, &i.v, &x.v, &none.v, &none.v, -1));
    cr_assert_eq(pair_work(""), before);
    twin_free(&p, &x), twin_free(&p, &i), twin_free(&p, &none), twin_free(&p, &bad);
    pair_close(&p);
}

Test(cuda_index, refusals)
{
    pair p;
    pair_open(&p);
    twin f = twin_new(&p, CT_F32, ROWS, 2, SHAPE(2, 2)),
         d = twin_new(&p, CT_F64, ROWS, 2, SHAPE(2, 2));
    twin i = twin_new(&p, CT_I64, ROWS, 2, SHAPE(2, 2)),
         j = twin_new(&p, CT_I32, ROWS, 2, SHAPE(2, 2));
    twin b = twin_new(&p, CT_BOOL, ROWS, 2, SHAPE(2, 2)),
         v = twin_new(&p, CT_BOOL, ROWS, 1, SHAPE(2));
    ct_scatter_args other = args_of(&f.v, &d.v, &i.v, 0), narrow = args_of(&f.v, &f.v, &j.v, 0);
    ct_scatter_args bools = args_of(&b.v, &b.v, &i.v, 0);
    bools.add = true;
    pair_refuses(&p, cti_cuda_gather(p.cuda, &f.v, &d.v, 0, &i.v));
    pair_refuses(&p, cti_cuda_gather(p.cuda, &f.v, &f.v, 0, &j.v));
    pair_refuses(&p, cti_cuda_scatter(p.cuda, &other));
    pair_refuses(&p, cti_cuda_scatter(p.cuda, &narrow));
    pair_refuses(&p, cti_cuda_scatter(p.cuda, &bools));
    pair_refuses(&p, cti_cuda_iota(p.cuda, &v.v, 0, 1, 1));
    pair_refuses(&p, cti_cuda_tri(p.cuda, &f.v, &d.v, 0, true));
    pair_refuses(&p, cti_cuda_bag_max(p.cuda, &i.v, &d.v, &i.v, &i.v, -1));
    twin_free(&p, &f), twin_free(&p, &d), twin_free(&p, &i), twin_free(&p, &j), twin_free(&p, &b);
    twin_free(&p, &v);
    pair_close(&p);
}

Test(cuda_index, a_failed_launch_is_told)
{
    if (!pair_on_double())
        cr_skip_test("not on the software double");
    pair p;
    pair_open(&p);
    twin x = twin_rand(&p, CT_F32, ROWS, 2, SHAPE(2, 2), 1),
         i = indices(&p, ROWS, 2, SHAPE(2, 2), 2, false);
    twin y = twin_new(&p, CT_F32, ROWS, 2, SHAPE(2, 2));
    pair_fail("launch:1");
    cr_assert_eq(cti_cuda_gather(p.cuda, &y.v, &x.v, 0, &i.v), CT_EDEVICE);
    cr_assert(strstr(p.err.text, "gather") != NULL, "%s", p.err.text);
    pair_fail("");
    p.err = (ct_error){0};
    twin_free(&p, &x), twin_free(&p, &i), twin_free(&p, &y);
    pair_close(&p);
}
