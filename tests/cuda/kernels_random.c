/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of the CUDA backend: the CPU's. */
#include "pair.h"

#include "base/rng.h"

TestSuite(cuda_random);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

static ct_rng rng_of(uint64_t seed)
{
    ct_rng r = {cti_rng_key_make(seed, CTI_STREAM_DROPOUT), 3, 1, 5, NULL};
    return r;
}

static void dropout_case(pair *p, ct_dtype t, enum layout lx, enum layout ly, int ndim,
                         const int64_t *shape, double prob)
{
    ct_rng r = rng_of(1);
    twin x = twin_rand(p, t, lx, ndim, shape, 1), y = twin_rand(p, t, ly, ndim, shape, 2);
    for (int beta = 0; beta < 2; beta++) {
        pair_ok(p, cti_cuda_dropout(p->cuda, &y.v, beta, &x.v, prob, &r));
        pair_ok(p, p->be->random->dropout(p->cpu, &y.o, beta, &x.o, prob, &r));
        twin_same(p, &y, p->oracle == CT_F32 && t == CT_F32 ? 0 : 1, "dropout");
        twin_from_oracle(p, &y);
    }
    twin_untouched(p, &x, "dropout");
    twin_free(p, &x), twin_free(p, &y);
}

Test(cuda_random, dropout)
{
    static const int64_t n[] = {1, 3, 4, 31, 32, 33, 255, 256, 257, 1023, 1025, 700001};
    pair p;
    pair_open(&p);
    for (int oracle = 0; oracle < 2; oracle++) {
        p.oracle = oracle ? CT_F64 : CT_F32;
        for (size_t t = 0; t < N(floats); t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l++)
                dropout_case(&p, floats[t], (enum layout)(l / LAYOUTS), (enum layout)(l % LAYOUTS),
                             4, SHAPE(3, 5, 7, 9), 0.3);
        for (size_t i = 0; i < N(n); i++)
            dropout_case(&p, floats[i % N(floats)], ROWS, ROWS, 1, &n[i], 0.5);
        for (int k = 0; k < 4; k++)
            dropout_case(&p, CT_F32, ROWS, ROWS, 1, SHAPE(1001),
                         k == 0 ? 0 :
                         k == 1 ? 1 :
                         k == 2 ? 0x1p-24 :
                                  1 - 0x1p-24);
        dropout_case(&p, CT_F32, ROWS, ROWS, 0, SHAPE(1), 0.1);
        dropout_case(&p, CT_F32, ROWS, LAST, 2, SHAPE(0, 3), 0.1);
    }
    pair_close(&p);
}

/* A window that isn't aligned for packs. */
Test(cuda_random, odd_addresses)
{
    ct_rng r = rng_of(7);
    pair p;
    pair_open(&p);
    p.oracle = CT_F32;
    for (size_t t = 0; t < N(floats); t++) {
        twin x = twin_rand(&p, floats[t], ROWS, 1, SHAPE(1003), 1);
        twin y = twin_new(&p, floats[t], ROWS, 1, SHAPE(1003));
        twin a = twin_as(&x, 3, 1, SHAPE(1000), SHAPE(1)),
             b = twin_as(&y, 1, 1, SHAPE(1000), SHAPE(1));
        twin c = twin_as(&x, 2, 2, SHAPE(50, 40), SHAPE(0, 1)),
             d = twin_as(&y, 0, 1, SHAPE(500), SHAPE(2));
        pair_ok(&p, cti_cuda_dropout(p.cuda, &b.v, 0, &a.v, 0.4, &r));
        pair_ok(&p, p.be->random->dropout(p.cpu, &b.o, 0, &a.o, 0.4, &r));
        pair_ok(&p, cti_cuda_normal(p.cuda, &d.v, 1, 2, &r));
        pair_ok(&p, p.be->random->normal(p.cpu, &d.o, 1, 2, &r));
        twin_same(&p, &y, 1, "windows");
        twin w = twin_new(&p, floats[t], ROWS, 2, SHAPE(50, 40));
        pair_ok(&p, cti_cuda_dropout(p.cuda, &w.v, 0, &c.v, 0.4, &r)); /* a broadcast input */
        pair_ok(&p, p.be->random->dropout(p.cpu, &w.o, 0, &c.o, 0.4, &r));
        twin_same(&p, &w, 1, "broadcast");
        twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &w);
    }
    pair_close(&p);
}

static void draws(pair *p, ct_dtype t, enum layout l, int ndim, const int64_t *shape, double a,
                  double b)
{
    ct_rng r = rng_of(3);
    twin u = twin_new(p, t, l, ndim, shape), z = twin_new(p, t, l, ndim, shape);
    pair_ok(p, cti_cuda_uniform(p->cuda, &u.v, a, b, &r));
    pair_ok(p, p->be->random->uniform(p->cpu, &u.o, a, b, &r));
    twin_same(p, &u, 0, "uniform"); /* the same bits: the oracle is f32 */
    pair_ok(p, cti_cuda_normal(p->cuda, &z.v, a, b, &r));
    pair_ok(p, p->be->random->normal(p->cpu, &z.o, a, b, &r));
    twin_same(p, &z, t == CT_F32 ? 0.1 : 0.5,
              "normal"); /* f32: 1e-6; else one of the dtype's steps */
    twin_free(p, &u), twin_free(p, &z);
}

Test(cuda_random, uniform_and_normal)
{
    static const int64_t n[] = {1, 2, 3, 4, 5, 31, 33, 255, 257, 1023, 100001};
    pair p;
    pair_open(&p);
    p.oracle = CT_F32;
    for (size_t t = 0; t < N(floats); t++)
        for (int l = 0; l < LAYOUTS; l++)
            draws(&p, floats[t], (enum layout)l, 4, SHAPE(3, 5, 7, 9), -2, 3);
    for (size_t i = 0; i < N(n); i++)
        draws(&p, floats[i % N(floats)], ROWS, 1, &n[i], i & 1 ? 0 : 0.1, 1.7);
    draws(&p, CT_F32, ROWS, 2, SHAPE(3, 0), 0, 1);
    draws(&p, CT_F32, ROWS, 0, SHAPE(1), 0, 1);
    pair_close(&p);
}

/* The step and micro that device memory holds when the kernel runs count. */
Test(cuda_random, position_in_device_memory)
{
    pair p;
    pair_open(&p);
    p.oracle = CT_F32;
    uint32_t *position = pair_scratch(&p, 8);
    twin x = twin_rand(&p, CT_F32, LAST, 3, SHAPE(4, 5, 60), 1);
    twin y = twin_new(&p, CT_F32, LAST, 3, SHAPE(4, 5, 60)),
         u = twin_new(&p, CT_F32, ROWS, 1, SHAPE(999));
    for (uint32_t step = 7; step < 9; step++) {
        const uint32_t now[2] = {step, step - 5};
        ct_rng r = rng_of(4), want = r;
        r.position = position;
        want.step = now[0], want.micro = now[1];
        pair_ok(&p, cti_cuda_mem.upload(p.cuda, position, now, sizeof now));
        pair_ok(&p, cti_cuda_dropout(p.cuda, &y.v, 0, &x.v, 0.5, &r));
        pair_ok(&p, p.be->random->dropout(p.cpu, &y.o, 0, &x.o, 0.5, &want));
        pair_ok(&p, cti_cuda_uniform(p.cuda, &u.v, 0, 1, &r));
        pair_ok(&p, p.be->random->uniform(p.cpu, &u.o, 0, 1, &want));
        twin_same(&p, &y, 0, "dropout"), twin_same(&p, &u, 0, "uniform");
    }
    twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &u);
    pair_scratch_free(&p, position);
    pair_close(&p);
}

Test(cuda_random, refused)
{
    ct_rng r = rng_of(4);
    pair p;
    pair_open(&p);
    twin d = twin_new(&p, CT_F64, ROWS, 1, SHAPE(4)), f = twin_new(&p, CT_F32, ROWS, 1, SHAPE(4));
    pair_refuses(&p, cti_cuda_dropout(p.cuda, &d.v, 0, &d.v, 0.5, &r));
    pair_refuses(&p, cti_cuda_dropout(p.cuda, &f.v, 0, &d.v, 0.5, &r));
    pair_refuses(&p, cti_cuda_uniform(p.cuda, &d.v, 0, 1, &r));
    pair_refuses(&p, cti_cuda_normal(p.cuda, &d.v, 0, 1, &r));
    twin_free(&p, &d), twin_free(&p, &f);
    pair_close(&p);
}
