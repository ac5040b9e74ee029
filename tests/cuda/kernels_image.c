/* SPDX-License-Identifier: Apache-2.0 */
/* Windows as columns and resizing of the CUDA backend against the CPU's. */
#include "pair.h"

TestSuite(cuda_image);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

typedef struct cfg {
    int64_t x[4], k[2], s[2], p[2], d[2];
} cfg;

static const cfg cfgs[] = {
    {{2, 3, 5, 7}, {2, 3}, {1, 1}, {0, 0}, {1, 1}}, {{1, 2, 5, 4}, {3, 2}, {2, 3}, {1, 2}, {1, 1}},
    {{2, 9, 6, 8}, {2, 2}, {1, 2}, {0, 1}, {3, 2}}, {{1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {{3, 4, 9, 3}, {3, 3}, {4, 1}, {2, 1}, {1, 1}}, {{0, 4, 4, 4}, {2, 2}, {1, 1}, {0, 0}, {1, 1}},
};

static ct_unfold_args args_of(const cfg *f, const ct_view *x, const ct_view *y)
{
    ct_unfold_args a = {.x = *x, .y = *y};
    for (int i = 0; i < 2; i++) {
        a.kernel[i] = f->k[i];
        a.stride[i] = f->s[i];
        a.pad[i] = f->p[i];
        a.dilation[i] = f->d[i];
        a.out[i] = (f->x[2 + i] + 2 * f->p[i] - f->d[i] * (f->k[i] - 1) - 1) / f->s[i] + 1;
    }
    return a;
}

static void windows_case(pair *p, const cfg *f, ct_dtype t, enum layout lx, enum layout ly)
{
    const ct_view none = {0};
    ct_unfold_args a = args_of(f, &none, &none), o;
    const int64_t ys[] = {f->x[0], f->x[1] * f->k[0] * f->k[1], a.out[0] * a.out[1]};
    twin x = twin_rand(p, t, lx, 4, f->x, 1), y = twin_new(p, t, ly, 3, ys);
    twin dy = twin_rand(p, t, ly, 3, ys, 2), dx = twin_rand(p, t, lx, 4, f->x, 3);
    a = args_of(f, &x.v, &y.v);
    o = args_of(f, &x.o, &y.o);
    pair_ok(p, cti_cuda_unfold(p->cuda, &a));
    pair_ok(p, p->be->image->unfold(p->cpu, &o));
    twin_same(p, &y, 0, "unfold");
    a = args_of(f, &dx.v, &dy.v);
    o = args_of(f, &dx.o, &dy.o);
    for (int beta = 1; beta >= 0; beta--) {
        pair_ok(p, cti_cuda_fold(p->cuda, &a, beta));
        pair_ok(p, p->be->image->fold(p->cpu, &o, beta));
        twin_same(p, &dx, 4, "fold");
    }
    twin_untouched(p, &x, "unfold");
    twin_untouched(p, &dy, "fold");
    twin_free(p, &x), twin_free(p, &y), twin_free(p, &dy), twin_free(p, &dx);
}

Test(cuda_image, windows)
{
    pair p;
    pair_open(&p);
    for (size_t k = 0; k < N(cfgs); k++)
        for (size_t t = 0; t < N(floats); t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l += t ? 5 : 1)
                windows_case(&p, &cfgs[k], floats[t], (enum layout)(l / LAYOUTS),
                             (enum layout)(l % LAYOUTS));
    pair_close(&p);
}

static ct_resize_args resize_of(const ct_view *x, const ct_view *y, bool linear, bool align)
{
    ct_resize_args a = {.x = *x, .y = *y, .linear = linear, .align_corners = align};
    for (int i = 0; i < 2; i++) {
        int64_t in = x->shape[2 + i], out = y->shape[2 + i];
        a.step[i] = !align  ? (double)in / (double)out :
                    out > 1 ? (double)(in - 1) / (double)(out - 1) :
                              0;
    }
    return a;
}

static void resize_case(pair *p, const int64_t *xs, int64_t P, int64_t Q, ct_dtype t,
                        enum layout lx, enum layout ly, int mode)
{
    const int64_t ys[] = {xs[0], xs[1], P, Q};
    const bool linear = mode > 0, align = mode > 1;
    twin x = twin_rand(p, t, lx, 4, xs, 1), y = twin_new(p, t, ly, 4, ys);
    twin dy = twin_rand(p, t, ly, 4, ys, 2), dx = twin_rand(p, t, lx, 4, xs, 3);
    ct_resize_args a = resize_of(&x.v, &y.v, linear, align),
                   o = resize_of(&x.o, &y.o, linear, align);
    pair_ok(p, cti_cuda_resize(p->cuda, &a));
    pair_ok(p, p->be->image->resize(p->cpu, &o));
    twin_same(p, &y, linear ? 4 : 0, "resize");
    a = resize_of(&dx.v, &dy.v, linear, align);
    o = resize_of(&dx.o, &dy.o, linear, align);
    for (int beta = 1; beta >= 0; beta--) {
        pair_ok(p, cti_cuda_resize_grad(p->cuda, &a, beta));
        pair_ok(p, p->be->image->resize_grad(p->cpu, &o, beta));
        twin_same(p, &dx, 8, "resize backward");
    }
    twin_free(p, &x), twin_free(p, &y), twin_free(p, &dy), twin_free(p, &dx);
}

Test(cuda_image, resize)
{
    static const int64_t shapes[][6] = {{2, 3, 4, 5, 7, 9}, {1, 9, 7, 5, 3, 2},
                                        {1, 2, 5, 1, 1, 4}, {2, 8, 3, 3, 6, 6},
                                        {1, 1, 3, 5, 3, 5}, {1, 2, 13, 6, 40, 7}};
    pair p;
    pair_open(&p);
    for (size_t k = 0; k < N(shapes); k++)
        for (size_t t = 0; t < N(floats); t++)
            for (int mode = 0; mode < 3; mode++)
                for (int l = 0; l < LAYOUTS; l++)
                    resize_case(&p, shapes[k], shapes[k][4], shapes[k][5], floats[t],
                                (enum layout)l, (enum layout)((l + mode) % LAYOUTS), mode);
    p.cuda->sms = 1;
    resize_case(&p, SHAPE(3, 8, 20, 30), 33, 41, CT_F32, ROWS, LAST, 1);
    pair_close(&p);
}

/* As many places on the CPU as the table of the row takes twice. */
Test(cuda_image, wide_rows)
{
    pair p;
    pair_open(&p);
    for (int mode = 0; mode < 3; mode++)
        resize_case(&p, SHAPE(1, 2, 2, 50), 3, 300, CT_F32, ROWS, ROWS, mode);
    pair_close(&p);
}

Test(cuda_image, nothing_is_launched_for_nothing_and_wrong_dtypes_are_refused)
{
    pair p;
    pair_open(&p);
    twin x = twin_new(&p, CT_F32, ROWS, 4, SHAPE(0, 1, 2, 2)),
         y = twin_new(&p, CT_F32, ROWS, 3, SHAPE(0, 4, 1));
    twin d = twin_new(&p, CT_F64, ROWS, 4, SHAPE(1, 1, 2, 2));
    ct_unfold_args u = args_of(&cfgs[5], &x.v, &y.v), w = args_of(&cfgs[5], &x.v, &d.v);
    ct_resize_args r = resize_of(&x.v, &x.v, true, false), q = resize_of(&d.v, &d.v, true, false);
    long before = pair_work("");
    pair_ok(&p, cti_cuda_unfold(p.cuda, &u));
    pair_ok(&p, cti_cuda_fold(p.cuda, &u, 0));
    pair_ok(&p, cti_cuda_resize(p.cuda, &r));
    pair_ok(&p, cti_cuda_resize_grad(p.cuda, &r, 1));
    cr_assert_eq(pair_work(""), before);
    pair_refuses(&p, cti_cuda_unfold(p.cuda, &w));
    pair_refuses(&p, cti_cuda_fold(p.cuda, &w, 0));
    pair_refuses(&p, cti_cuda_resize(p.cuda, &q));
    pair_refuses(&p, cti_cuda_resize_grad(p.cuda, &q, 0));
    twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &d);
    pair_close(&p);
}

Test(cuda_image, a_failed_launch_is_told)
{
    if (!pair_on_double())
        cr_skip_test("not on the software double");
    pair p;
    pair_open(&p);
    twin x = twin_rand(&p, CT_F32, ROWS, 4, SHAPE(1, 1, 2, 2), 1),
         y = twin_new(&p, CT_F32, ROWS, 4, SHAPE(1, 1, 3, 3));
    ct_resize_args r = resize_of(&x.v, &y.v, true, false);
    pair_fail("launch:1");
    cr_assert_eq(cti_cuda_resize(p.cuda, &r), CT_EDEVICE);
    cr_assert(strstr(p.err.text, "resize") != NULL, "%s", p.err.text);
    pair_fail("");
    p.err = (ct_error){0};
    twin_free(&p, &x), twin_free(&p, &y);
    pair_close(&p);
}
