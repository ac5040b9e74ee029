/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm by the CUDA backend's own kernels against the CPU's. */
#include "pair.h"

#include "backend/cuda/norm.h"

TestSuite(cuda_norm);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

/* What a case has besides layouts and shape. */
typedef struct opts {
    ct_dtype t, params;  /* of the data; of weight, bias, statistics, dw, db */
    bool none;           /* no weight, bias, running statistics */
    double scale, shift; /* of x */
} opts;

typedef struct setup {
    twin x, y, dy, dx, w, b, mean, invstd, rm, rv, dw, db;
    ct_batchnorm_args cuda, cpu;
    void *scratch, *workspace;
} setup;

static setup make(pair *p, const opts *o, enum layout lx, enum layout ly, int ndim,
                  const int64_t *shape)
{
    setup u = {0};
    int64_t C = shape[1];
    u.x = twin_new(p, o->t, lx, ndim, shape), u.y = twin_new(p, o->t, ly, ndim, shape);
    u.dy = twin_rand(p, o->t, ly, ndim, shape, 2), u.dx = twin_new(p, o->t, lx, ndim, shape);
    twin_noise(p, &u.x, 1, o->scale, o->shift);
    u.w = twin_rand(p, o->params, ROWS, 1, &C, 4), u.b = twin_rand(p, o->params, GAPS, 1, &C, 5);
    u.rm = twin_rand(p, o->params, GAPS, 1, &C, 6), u.rv = twin_new(p, o->params, ROWS, 1, &C);
    twin_noise(p, &u.rv, 7, 1, 1.2);
    u.mean = twin_new(p, CT_F32, ROWS, 1, &C), u.invstd = twin_new(p, CT_F32, ROWS, 1, &C);
    u.dw = twin_new(p, o->params, ROWS, 1, &C), u.db = twin_new(p, o->params, GAPS, 1, &C);
    u.scratch = pair_scratch(p, cti_cuda_bn_native_workspace(p->cuda, &u.x.v));
    u.workspace = malloc(p->be->norm->batchnorm_workspace(p->cpu, &u.x.o) + 1);
    for (int side = 0; side < 2; side++)
        *(side ? &u.cpu : &u.cuda) = (ct_batchnorm_args){.x = side ? u.x.o : u.x.v,
                                                         .y = side ? u.y.o : u.y.v,
                                                         .mean = side ? u.mean.o : u.mean.v,
                                                         .invstd = side ? u.invstd.o : u.invstd.v,
                                                         .momentum = 0.1,
                                                         .eps = 1e-5};
    u.cuda.workspace = u.scratch, u.cpu.workspace = u.workspace;
    return u;
}

static void vectors(setup *u, bool none)
{
    u->cuda.weight = none ? NULL : &u->w.v, u->cpu.weight = none ? NULL : &u->w.o;
    u->cuda.bias = none ? NULL : &u->b.v, u->cpu.bias = none ? NULL : &u->b.o;
    u->cuda.running_mean = none ? NULL : &u->rm.v, u->cpu.running_mean = none ? NULL : &u->rm.o;
    u->cuda.running_var = none ? NULL : &u->rv.v, u->cpu.running_var = none ? NULL : &u->rv.o;
}

static void drop(pair *p, setup *u)
{
    twin *all[] = {&u->x,    &u->y,      &u->dy, &u->dx, &u->w,  &u->b,
                   &u->mean, &u->invstd, &u->rm, &u->rv, &u->dw, &u->db};
    for (size_t k = 0; k < N(all); k++)
        twin_free(p, all[k]);
    pair_scratch_free(p, u->scratch);
    free(u->workspace);
}

static void grads(pair *p, setup *u, bool train, bool none, int which, double tol, const char *what)
{
    bool dx = which & 1, dw = which & 2, db = which & 4;
    for (int beta = 0; beta < 2; beta++) {
        if (beta)
            twin_noise(p, &u->dx, 8, 2, 0);
        pair_ok(p, cti_cuda_bn_native_grad(p->cuda, train, dx ? &u->dx.v : NULL, beta,
                                           dw ? &u->dw.v : NULL, db ? &u->db.v : NULL, &u->dy.v,
                                           &u->x.v, none ? NULL : &u->w.v, &u->mean.v, &u->invstd.v,
                                           u->scratch));
        pair_ok(p, p->be->norm->batchnorm_grad(p->cpu, train, dx ? &u->dx.o : NULL, beta,
                                               dw ? &u->dw.o : NULL, db ? &u->db.o : NULL, &u->dy.o,
                                               &u->x.o, none ? NULL : &u->w.o, &u->mean.o,
                                               &u->invstd.o, u->workspace));
        twin_same(p, &u->dx, tol, what);
        twin_same(p, &u->dw, tol, what), twin_same(p, &u->db, tol, what);
    }
}

static void check(pair *p, opts o, enum layout lx, enum layout ly, int ndim, const int64_t *shape,
                  bool train)
{
    setup u = make(p, &o, lx, ly, ndim, shape);
    char what[96];
    double far = o.t == CT_F32 ? 1 + fabs(o.shift) / o.scale / 16 : 1; /* mean is kept as f32 */

    snprintf(what, sizeof what, "layouts %d %d, [%d,%d..], params %s%s, train %d", (int)lx, (int)ly,
             (int)shape[0], (int)shape[1], ct_dtype_name(o.params), o.none ? " absent" : "", train);
    vectors(&u, o.none);
    pair_ok(p, (train ? cti_cuda_bn_native_train : cti_cuda_bn_native_eval)(p->cuda, &u.cuda));
    pair_ok(p,
            (train ? p->be->norm->batchnorm_train : p->be->norm->batchnorm_eval)(p->cpu, &u.cpu));
    twin_same(p, &u.mean, 1, what), twin_same(p, &u.invstd, 1, what);
    twin_same(p, &u.rm, 1, what), twin_same(p, &u.rv, 1, what);
    twin_same(p, &u.y, far, what);
    twin_from_oracle(p, &u.mean); /* both sides go on from the same numbers */
    twin_from_oracle(p, &u.invstd);
    grads(p, &u, train, o.none, 7, 4 * far, what);
    twin_untouched(p, &u.x, what), twin_untouched(p, &u.dy, what), twin_untouched(p, &u.w, what);
    drop(p, &u);
}

static opts plain(ct_dtype t)
{
    return (opts){.t = t, .params = CT_F32, .scale = 2};
}

Test(cuda_norm, layouts)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (int l = 0; l < LAYOUTS * LAYOUTS; l++) {
            enum layout a = (enum layout)(l / LAYOUTS), b = (enum layout)(l % LAYOUTS);
            opts o = plain(floats[t]);
            o.params = l & 1 ? CT_F32 : o.t;
            o.none = l % 3 == 2;
            check(&p, o, a, b, 4, SHAPE(3, 5, 4, 7), l & 2);
            check(&p, o, a, b, 4, SHAPE(4, 16, 5, 8), !(l & 2));
            check(&p, o, a, b, 2, SHAPE(37, 6), true);
            check(&p, o, a, b, 3, SHAPE(4, 1, 9), true);
        }
    pair_close(&p);
}

Test(cuda_norm, sizes)
{
    static const int64_t c[] = {1, 3, 31, 32, 33, 64, 257}, n[] = {1, 2, 31, 33, 256, 2000};
    pair p;
    pair_open(&p);
    for (size_t i = 0; i < N(c); i++)
        for (size_t j = 0; j < N(n); j++) {
            opts o = plain(floats[(i + j) % N(floats)]);
            if (c[i] * n[j] > 70000)
                continue;
            if (n[j] > 1)
                check(&p, o, LAST, LAST, 3, SHAPE(n[j], c[i], 1), true);
            check(&p, o, ROWS, ROWS, 3, SHAPE(1, c[i], n[j]), n[j] > 2);
            check(&p, o, LAST, LAST, 3, SHAPE(1, c[i], n[j]), false);
        }
    check(&p, plain(CT_F32), LAST, LAST, 4, SHAPE(8, 64, 16, 32), true);
    check(&p, plain(CT_BF16), ROWS, ROWS, 4, SHAPE(8, 24, 16, 32), true);
    check(&p, plain(CT_F16), LAST, ROWS, 4, SHAPE(8, 24, 16, 32), true);
    check(&p, plain(CT_F32), LAST, LAST, 2, SHAPE(70000, 3), true); /* many chunks */
    check(&p, plain(CT_F32), ROWS, ROWS, 3, SHAPE(2, 1, 150000), true);
    pair_close(&p);
}

Test(cuda_norm, far_from_zero)
{
    pair p;
    pair_open(&p);
    for (int l = 0; l < LAYOUTS; l++) {
        opts o = plain(CT_F32);
        o.scale = 1, o.shift = 1000;
        check(&p, o, (enum layout)l, (enum layout)l, 4, SHAPE(16, 24, 8, 9), true);
        o.scale = 0.01, o.shift = -30;
        check(&p, o, (enum layout)l, (enum layout)l, 4, SHAPE(16, 24, 8, 9), true);
        o.scale = 0; /* constant: variance 0 exactly */
        setup u = make(&p, &o, (enum layout)l, ROWS, 4, SHAPE(16, 24, 8, 9));
        vectors(&u, true);
        pair_ok(&p, cti_cuda_bn_native_train(p.cuda, &u.cuda));
        double *got = twin_get_all(&p, &u.invstd);
        for (int c = 0; c < 24; c++)
            cr_assert_float_eq(got[c], 1 / sqrt(1e-5), 1e-4);
        free(got);
        drop(&p, &u);
    }
    pair_close(&p);
}

/* One value far out of a channel, first or in the middle. */
Test(cuda_norm, outliers)
{
    pair p;
    pair_open(&p);
    for (int l = 0; l < 2; l++)
        for (int k = 0; k < 2; k++) {
            opts o = plain(CT_F32);
            setup u = make(&p, &o, l ? LAST : ROWS, ROWS, 3, SHAPE(40, 3, 50));
            for (int64_t c = 0; c < 3; c++)
                twin_put(&p, &u.x, (k ? 2407 : 0) + c * 50, 1e5);
            twin_upload(&p, &u.x);
            vectors(&u, false);
            pair_ok(&p, cti_cuda_bn_native_train(p.cuda, &u.cuda));
            pair_ok(&p, p.be->norm->batchnorm_train(p.cpu, &u.cpu));
            double *got = twin_get_all(&p, &u.invstd);
            for (int64_t c = 0; c < 3; c++)
                cr_assert_lt(fabs(got[c] / view_get(&p, &u.invstd.o, c) - 1), 1e-5);
            free(got);
            twin_same(&p, &u.y, 2, "outliers");
            drop(&p, &u);
        }
    pair_close(&p);
}

Test(cuda_norm, some_gradients_not_wanted)
{
    pair p;
    pair_open(&p);
    for (int which = 0; which < 8; which++)
        for (int train = 0; train < 2; train++) {
            opts o = plain(floats[which % 3]);
            setup u = make(&p, &o, LAST, LAST, 4, SHAPE(3, 8, 4, 4));
            vectors(&u, false);
            pair_ok(&p, cti_cuda_bn_native_train(p.cuda, &u.cuda));
            pair_ok(&p, p.be->norm->batchnorm_train(p.cpu, &u.cpu));
            twin_from_oracle(&p, &u.mean), twin_from_oracle(&p, &u.invstd);
            grads(&p, &u, train, false, which, 4, "some");
            drop(&p, &u);
        }
    pair_close(&p);
}

Test(cuda_norm, not_finite)
{
    pair p;
    pair_open(&p);
    for (int k = 0; k < 2; k++) {
        opts o = plain(CT_F32);
        setup u = make(&p, &o, k ? LAST : ROWS, LAST, 3, SHAPE(20, 3, 30));
        twin_put(&p, &u.x, 700, (double)NAN), twin_put(&p, &u.dy, 0, INFINITY);
        twin_upload(&p, &u.x), twin_upload(&p, &u.dy);
        vectors(&u, false);
        pair_ok(&p, cti_cuda_bn_native_train(p.cuda, &u.cuda));
        pair_ok(&p, p.be->norm->batchnorm_train(p.cpu, &u.cpu));
        twin_same(&p, &u.y, 1, "NaN"), twin_same(&p, &u.rv, 1, "NaN");
        twin_from_oracle(&p, &u.mean), twin_from_oracle(&p, &u.invstd);
        grads(&p, &u, true, false, 7, 4, "NaN");
        drop(&p, &u);
    }
    pair_close(&p);
}

Test(cuda_norm, empty)
{
    static const int64_t shapes[][3] = {{0, 4, 3}, {3, 0, 4}, {2, 4, 0}};
    pair p;
    pair_open(&p);
    for (size_t k = 0; k < N(shapes); k++) {
        opts o = plain(CT_F32);
        setup u = make(&p, &o, ROWS, ROWS, 3, shapes[k]);
        vectors(&u, false);
        pair_ok(&p, cti_cuda_bn_native_train(p.cuda, &u.cuda));
        twin_untouched(&p, &u.rm, "a batch of nothing"), twin_untouched(&p, &u.rv, "likewise");
        pair_ok(&p, cti_cuda_bn_native_eval(p.cuda, &u.cuda));
        pair_ok(&p, p.be->norm->batchnorm_eval(p.cpu, &u.cpu));
        twin_same(&p, &u.mean, 1, "eval"), twin_same(&p, &u.invstd, 1, "eval");
        grads(&p, &u, true, false, 7, 1, "gradient of nothing");
        drop(&p, &u);
    }
    pair_close(&p);
}

Test(cuda_norm, same_bytes_on_any_device)
{
    pair p;
    opts o = plain(CT_F32);
    pair_open(&p);
    setup u = make(&p, &o, LAST, LAST, 4, SHAPE(8, 20, 30, 30));
    double *first = NULL;
    for (int i = 0; i < 3; i++) {
        vectors(&u, true);
        p.cuda->sms = 1 + 70 * i;
        pair_ok(&p, cti_cuda_bn_native_train(p.cuda, &u.cuda));
        double *got = twin_get_all(&p, &u.y);
        cr_assert(!first || memcmp(got, first, 8 * 20 * 900 * sizeof *got) == 0);
        free(first);
        first = got;
    }
    free(first);
    drop(&p, &u);
    pair_close(&p);
}

Test(cuda_norm, refused)
{
    pair p;
    opts o = plain(CT_F32);
    pair_open(&p);
    setup u = make(&p, &o, ROWS, ROWS, 2, SHAPE(4, 3));
    vectors(&u, false);
    for (int k = 0; k < 8; k++) {
        ct_batchnorm_args a = u.cuda;
        ct_view w = u.w.v, b = u.b.v, rm = u.rm.v, rv = u.rv.v;
        a.weight = &w, a.bias = &b, a.running_mean = &rm, a.running_var = &rv;
        ct_dtype *const wrong[] = {&a.x.dtype, &a.y.dtype, &w.dtype,      &b.dtype,
                                   &rm.dtype,  &rv.dtype,  &a.mean.dtype, &a.invstd.dtype};
        *wrong[k] = CT_F64;
        pair_refuses(&p, cti_cuda_bn_native_train(p.cuda, &a));
        pair_refuses(&p, cti_cuda_bn_native_eval(p.cuda, &a));
    }
    for (int k = 0; k < 8; k++) {
        ct_view v[] = {u.dx.v, u.dw.v, u.db.v, u.dy.v, u.x.v, u.w.v, u.mean.v, u.invstd.v};
        v[k].dtype = k >= 6 ? CT_BF16 : CT_F64;
        pair_refuses(&p, cti_cuda_bn_native_grad(p.cuda, true, &v[0], 0, &v[1], &v[2], &v[3], &v[4],
                                                 &v[5], &v[6], &v[7], u.scratch));
    }
    drop(&p, &u);
    pair_close(&p);
}
