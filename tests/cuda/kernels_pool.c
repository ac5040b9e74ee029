/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling of the CUDA backend against the CPU's. */
#include "pair.h"

TestSuite(cuda_pool);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

typedef struct cfg {
    int64_t n, c, h, w;
    int64_t k[2], s[2], p[2], d[2];
    bool ceil_mode, include_pad;
} cfg;

static const cfg cfgs[] = {
    {2, 3, 6, 8, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, true},
    {2, 17, 7, 5, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, true},
    {1, 33, 7, 8, {3, 2}, {2, 3}, {1, 0}, {1, 1}, true, false},
    {2, 16, 5, 5, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, false},
    {1, 5, 4, 4, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true, true},
    {2, 4, 9, 10, {2, 3}, {2, 1}, {0, 1}, {2, 2}, false, true},
    {1, 1, 3, 3, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true, true},
    {1, 18, 7, 7, {7, 7}, {1, 1}, {0, 0}, {1, 1}, false, true},
    {1, 2, 12, 11, {3, 3}, {3, 2}, {1, 1}, {3, 2}, true, false},
    {1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, false, true},
    {3, 0, 4, 4, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, true},
    {2, 31, 16, 33, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, true},
};

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

static ct_pool_args args_of(const cfg *f, const ct_view *x, const ct_view *y)
{
    ct_pool_args a = {.x = *x, .y = *y, .count_include_pad = f->include_pad};
    memcpy(a.kernel, f->k, sizeof a.kernel);
    memcpy(a.stride, f->s, sizeof a.stride);
    memcpy(a.pad, f->p, sizeof a.pad);
    memcpy(a.dilation, f->d, sizeof a.dilation);
    return a;
}

static ct_pool_args shapes_alone(ct_pool_args a)
{
    a.x.data = a.y.data = NULL;
    return a;
}

static void max_case(pair *p, const cfg *f, ct_dtype t, enum layout lx, enum layout ly)
{
    int64_t P = out_size(f->h, f->k[0], f->s[0], f->p[0], f->d[0], f->ceil_mode);
    int64_t Q = out_size(f->w, f->k[1], f->s[1], f->p[1], f->d[1], f->ceil_mode);
    const int64_t xs[] = {f->n, f->c, f->h, f->w}, ys[] = {f->n, f->c, P, Q};
    twin x = twin_new(p, t, lx, 4, xs), y = twin_new(p, t, ly, 4, ys);
    twin index = twin_new(p, CT_I32, ly, 4, ys), dy = twin_rand(p, t, ly, 4, ys, 2);
    twin dx = twin_rand(p, t, lx, 4, xs, 3);
    ct_pool_args a = args_of(f, &x.v, &y.v), o = args_of(f, &x.o, &y.o);

    for (int64_t i = 0; i < ct_view_numel(&x.v); i++) /* ties */
        twin_put(p, &x, i,
                 i % 37 == 20 ? NAN :
                 i % 11 == 5  ? -INFINITY :
                                floor(noise(1, i) * 4) - 5);
    twin_upload(p, &x);
    pair_ok(p, cti_cuda_max_pool(p->cuda, &a, &index.v));
    pair_ok(p, p->be->pool->max(p->cpu, &o, &index.o));
    twin_same(p, &y, 0, "max");
    twin_same(p, &index, 0, "index");
    pair_ok(p, cti_cuda_fill(p->cuda, &y.v, 0));
    pair_ok(p, cti_cuda_max_pool(p->cuda, &a, NULL));
    twin_same(p, &y, 0, "max alone");
    a = shapes_alone(a);
    o = shapes_alone(o);
    for (int beta = 1; beta >= 0; beta--) {
        pair_ok(p, cti_cuda_max_pool_grad(p->cuda, &a, &dx.v, beta, &dy.v, &index.v));
        pair_ok(p, p->be->pool->max_grad(p->cpu, &o, &dx.o, beta, &dy.o, &index.o));
        twin_same(p, &dx, 2, "max_grad");
    }
    twin_untouched(p, &x, "max");
    twin_untouched(p, &dy, "max_grad");
    twin_free(p, &x), twin_free(p, &y), twin_free(p, &index), twin_free(p, &dy), twin_free(p, &dx);
}

static void avg_case(pair *p, const cfg *f, ct_dtype t, enum layout lx, enum layout ly, int64_t P,
                     int64_t Q)
{
    bool adaptive = P > 0;
    P = adaptive ? P : out_size(f->h, f->k[0], f->s[0], f->p[0], 1, f->ceil_mode);
    Q = adaptive ? Q : out_size(f->w, f->k[1], f->s[1], f->p[1], 1, f->ceil_mode);
    const int64_t xs[] = {f->n, f->c, f->h, f->w}, ys[] = {f->n, f->c, P, Q};
    twin x = twin_rand(p, t, lx, 4, xs, 1), y = twin_new(p, t, ly, 4, ys);
    twin dy = twin_rand(p, t, ly, 4, ys, 2), dx = twin_rand(p, t, lx, 4, xs, 3);
    ct_pool_args a = args_of(f, &x.v, &y.v), o = args_of(f, &x.o, &y.o);

    a.adaptive = o.adaptive = adaptive;
    if (adaptive) { /* the rest is ignored */
        memset(a.kernel, 0, sizeof a.kernel);
        memset(a.stride, 0, sizeof a.stride);
    }
    pair_ok(p, cti_cuda_avg_pool(p->cuda, &a));
    pair_ok(p, p->be->pool->avg(p->cpu, &o));
    twin_same(p, &y, 1, "avg");
    a = shapes_alone(a);
    o = shapes_alone(o);
    for (int beta = 1; beta >= 0; beta--) {
        pair_ok(p, cti_cuda_avg_pool_grad(p->cuda, &a, &dx.v, beta, &dy.v));
        pair_ok(p, p->be->pool->avg_grad(p->cpu, &o, &dx.o, beta, &dy.o));
        twin_same(p, &dx, 2, "avg_grad");
    }
    twin_untouched(p, &x, "avg");
    twin_free(p, &x), twin_free(p, &y), twin_free(p, &dy), twin_free(p, &dx);
}

Test(cuda_pool, max)
{
    pair p;
    pair_open(&p);
    for (size_t k = 0; k < N(cfgs); k++)
        for (size_t t = 0; t < N(floats); t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l += t ? 5 : 1)
                max_case(&p, &cfgs[k], floats[t], (enum layout)(l / LAYOUTS),
                         (enum layout)(l % LAYOUTS));
    pair_close(&p);
}

Test(cuda_pool, avg)
{
    pair p;
    pair_open(&p);
    for (size_t k = 0; k < N(cfgs); k++)
        for (size_t t = 0; t < N(floats); t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l += t ? 5 : 1)
                avg_case(&p, &cfgs[k], floats[t], (enum layout)(l / LAYOUTS),
                         (enum layout)(l % LAYOUTS), 0, 0);
    pair_close(&p);
}

Test(cuda_pool, adaptive_avg)
{
    static const int64_t out[][2] = {{1, 1}, {3, 2}, {7, 7}, {10, 4}};
    pair p;
    pair_open(&p);
    for (size_t k = 0; k < N(cfgs); k++)
        for (size_t i = 0; i < N(out); i++)
            for (size_t t = 0; t < N(floats); t++)
                for (int l = 0; l < LAYOUTS; l++)
                    avg_case(&p, &cfgs[k], floats[t], (enum layout)l, (enum layout)((l + k) % 4),
                             out[i][0], out[i][1]);
    pair_close(&p);
}

Test(cuda_pool, more_than_one_grid)
{
    static const cfg f = {2, 40, 20, 21, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, true};
    pair p;
    pair_open(&p);
    p.cuda->sms = 1;
    max_case(&p, &f, CT_BF16, LAST, LAST);
    max_case(&p, &f, CT_F32, ROWS, ROWS);
    avg_case(&p, &f, CT_F32, LAST, LAST, 0, 0);
    pair_close(&p);
}

/* Padding is never chosen: a window may have no real cell. */
Test(cuda_pool, windows_without_cells)
{
    static const cfg f = {1, 3, 2, 2, {2, 2}, {1, 1}, {2, 2}, {1, 1}, false, true};
    cfg g = f;
    pair p;
    pair_open(&p);
    max_case(&p, &f, CT_F32, LAST, LAST);
    avg_case(&p, &f, CT_F32, LAST, LAST, 0, 0);
    g.include_pad = false;
    avg_case(&p, &g, CT_F32, LAST, LAST, 0, 0);
    pair_close(&p);
}

Test(cuda_pool, nothing_is_launched_for_nothing)
{
    pair p;
    pair_open(&p);
    twin x = twin_new(&p, CT_F32, ROWS, 4, SHAPE(0, 3, 4, 4));
    twin y = twin_new(&p, CT_F32, ROWS, 4, SHAPE(0, 3, 2, 2));
    twin index = twin_new(&p, CT_I32, ROWS, 4, SHAPE(0, 3, 2, 2));
    ct_pool_args a = args_of(&cfgs[0], &x.v, &y.v);
    long before = pair_work("");
    pair_ok(&p, cti_cuda_max_pool(p.cuda, &a, &index.v));
    pair_ok(&p, cti_cuda_avg_pool(p.cuda, &a));
    pair_ok(&p, cti_cuda_max_pool_grad(p.cuda, &a, &x.v, 0, &y.v, &index.v));
    pair_ok(&p, cti_cuda_avg_pool_grad(p.cuda, &a, &x.v, 0, &y.v));
    cr_assert_eq(pair_work(""), before);
    twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &index);
    pair_close(&p);
}

Test(cuda_pool, refusals)
{
    static const int64_t small[] = {1, 1, 1, 1};
    pair p;
    pair_open(&p);
    twin f = twin_new(&p, CT_F32, ROWS, 4, small), d = twin_new(&p, CT_F64, ROWS, 4, small);
    twin i = twin_new(&p, CT_I32, ROWS, 4, small), l = twin_new(&p, CT_I64, ROWS, 4, small);
    const cfg *c = &cfgs[9];
    ct_pool_args ff = args_of(c, &f.v, &f.v), dd = args_of(c, &d.v, &d.v);
    ct_pool_args fd = args_of(c, &f.v, &d.v);
    pair_refuses(&p, cti_cuda_max_pool(p.cuda, &dd, NULL));
    pair_refuses(&p, cti_cuda_max_pool(p.cuda, &fd, NULL));
    pair_refuses(&p, cti_cuda_max_pool(p.cuda, &ff, &l.v));
    pair_refuses(&p, cti_cuda_max_pool_grad(p.cuda, &dd, &d.v, 0, &d.v, &i.v));
    pair_refuses(&p, cti_cuda_max_pool_grad(p.cuda, &ff, &f.v, 0, &d.v, &i.v));
    pair_refuses(&p, cti_cuda_max_pool_grad(p.cuda, &ff, &f.v, 0, &f.v, &l.v));
    pair_refuses(&p, cti_cuda_avg_pool(p.cuda, &dd));
    pair_refuses(&p, cti_cuda_avg_pool(p.cuda, &fd));
    pair_refuses(&p, cti_cuda_avg_pool_grad(p.cuda, &dd, &d.v, 0, &d.v));
    pair_refuses(&p, cti_cuda_avg_pool_grad(p.cuda, &ff, &f.v, 0, &d.v));
    twin_free(&p, &f), twin_free(&p, &d), twin_free(&p, &i), twin_free(&p, &l);
    pair_close(&p);
}

Test(cuda_pool, a_failed_launch_is_told)
{
    if (!pair_on_double())
        cr_skip_test("not on the software double");
    static const int64_t small[] = {1, 1, 1, 1};
    pair p;
    pair_open(&p);
    twin x = twin_new(&p, CT_F32, ROWS, 4, small), y = twin_new(&p, CT_F32, ROWS, 4, small);
    ct_pool_args a = args_of(&cfgs[9], &x.v, &y.v);
    pair_fail("launch:1");
    cr_assert_eq(cti_cuda_max_pool(p.cuda, &a, NULL), CT_EDEVICE);
    cr_assert(strstr(p.err.text, "max_pool") != NULL, "%s", p.err.text);
    pair_fail("");
    p.err = (ct_error){0};
    twin_free(&p, &x), twin_free(&p, &y);
    pair_close(&p);
}
