/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's loops of indices and images: plain references, and the same bytes for any number of threads. */
#include "backend_test.h"

#define INDEX      (&cti_cpu_index)
#define IMAGE      (&cti_cpu_image)
#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

TestSuite(backend_index);

static tv indices(enum layout lay, int ndim, const int64_t *shape, int64_t bound)
{
    tv t = tv_new(CT_I64, lay, ndim, shape);
    for (int64_t i = 0; i < ct_view_numel(&t.v); i++)
        put(&t.v, i, floor((noise(9, i) + 1) / 2 * (double)bound));
    return t;
}

Test(backend_index, gather_and_scatter_are_what_they_say)
{
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_I32, CT_I64, CT_BF16, CT_U8};
    const int64_t xs[] = {3, 4, 7}, is[] = {2, 9, 5};
    ct_stream s = stream_of(1);
    for (int k = 0; k < 6 * LAYOUTS; k++) {
        ct_dtype t = dtypes[k / LAYOUTS];
        enum layout lay = (enum layout)(k % LAYOUTS);
        tv x = tv_rand(t, lay, 3, xs, 1), y = tv_new(t, ROWS, 3, is),
           index = indices(lay, 3, is, 4);
        tv z = tv_new(t, lay, 3, xs);
        bool sums = t != CT_BF16 && t != CT_U8;
        double *want = calloc(3 * 4 * 7, sizeof *want);
        cr_assert_eq(INDEX->gather(&s, &y.v, &x.v, 1, &index.v), CT_OK);
        for (int64_t i = 0; i < 2 * 9 * 5; i++) {
            int64_t from = (i / 45 * 4 + (int64_t)get(&index.v, i)) * 7 + i % 5;
            cr_assert_eq(get(&y.v, i), get(&x.v, from), "gather %s, layout %d", ct_dtype_name(t),
                         lay);
            want[from] = sums ? want[from] + get(&y.v, i) : get(&y.v, i);
        }
        ct_scatter_args a = {
            .y = z.v, .src = &y.v, .index = index.v, .dim = 1, .add = sums, .skip = -1};
        cr_assert_eq(INDEX->scatter(&s, &a), CT_OK);
        for (int64_t i = 0; i < 3 * 4 * 7; i++)
            cr_assert(fabs(get(&z.v, i) - want[i]) < 1e-5, "scatter %s, layout %d",
                      ct_dtype_name(t), lay);
        free(want);
        tv_free(&x), tv_free(&y), tv_free(&z), tv_free(&index);
    }
}

static void scatter_by(int threads, tv *y, const tv *src, const ct_view *index)
{
    ct_stream s = stream_of(threads);
    ct_scatter_args a = {
        .y = y->v, .src = &src->v, .index = *index, .dim = 0, .add = true, .skip = 3};
    memset(y->mem, 0, y->bytes);
    cr_assert_eq(INDEX->scatter(&s, &a), CT_OK);
}

Test(backend_index, scatter_does_not_depend_on_threads)
{
    tv src = tv_rand(CT_F32, ROWS, 2, SHAPE(400, 333), 1), ids = indices(ROWS, 1, SHAPE(400), 7);
    tv one = tv_new(CT_F32, ROWS, 2, SHAPE(7, 333)), many = tv_new(CT_F32, ROWS, 2, SHAPE(7, 333));
    ct_view index = ids.v;
    index.ndim = 2;
    index.shape[1] = 333;
    index.stride[1] = 0;
    scatter_by(1, &one, &src, &index);
    for (int threads = 2; threads <= 5; threads++) {
        scatter_by(threads, &many, &src, &index);
        cr_assert_eq(memcmp(one.mem, many.mem, one.bytes), 0, "%d threads", threads);
    }
    for (int64_t c = 0; c < 333; c++)
        cr_assert_eq(get(&one.v, 3 * 333 + c), 0);
    tv_free(&src), tv_free(&ids), tv_free(&one), tv_free(&many);
}

Test(backend_index, images_do_not_depend_on_threads)
{
    static const enum layout layouts[] = {ROWS, LAST};
    for (int l = 0; l < 2; l++) {
        tv x = tv_rand(CT_F32, layouts[l], 4, SHAPE(3, 9, 20, 31), 1);
        tv y[2], dx[2];
        for (int i = 0; i < 2; i++) {
            ct_stream s = stream_of(i ? 4 : 1);
            y[i] = tv_new(CT_F32, layouts[l], 4, SHAPE(3, 9, 33, 150));
            dx[i] = tv_new(CT_F32, layouts[l], 4, SHAPE(3, 9, 20, 31));
            ct_resize_args a = {
                .x = x.v, .y = y[i].v, .step = {20. / 33, 31. / 150}, .linear = true};
            cr_assert_eq(IMAGE->resize(&s, &a), CT_OK);
            a.x = dx[i].v;
            cr_assert_eq(IMAGE->resize_grad(&s, &a, 0), CT_OK);
        }
        cr_assert_eq(memcmp(y[0].mem, y[1].mem, y[0].bytes), 0);
        cr_assert_eq(memcmp(dx[0].mem, dx[1].mem, dx[0].bytes), 0);
        for (int i = 0; i < 2; i++)
            tv_free(&y[i]), tv_free(&dx[i]);
        tv_free(&x);
    }
}
