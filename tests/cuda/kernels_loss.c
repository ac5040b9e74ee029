/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross entropy of the CUDA backend against the CPU's. */
#include "pair.h"

TestSuite(cuda_loss);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

/* ---- softmax ---- */
static void softmax_case(pair *p, ct_dtype t, enum layout lx, enum layout ly, int ndim,
                         const int64_t *shape, int dim, bool log)
{
    twin x = twin_new(p, t, lx, ndim, shape), dy = twin_rand(p, t, lx, ndim, shape, 2);
    twin y = twin_new(p, t, ly, ndim, shape), dx = twin_new(p, t, ly, ndim, shape);
    char what[80];

    twin_noise(p, &x, 1, 6, 3);
    snprintf(what, sizeof what, "softmax, layouts %d %d, dim %d, log %d", (int)lx, (int)ly, dim,
             log);
    pair_ok(p, cti_cuda_softmax(p->cuda, &y.v, &x.v, dim, log));
    pair_ok(p, p->be->loss->softmax(p->cpu, &y.o, &x.o, dim, log));
    twin_same(p, &y, 1, what);
    twin_from_oracle(p, &y); /* both sides go on from the same y */
    for (int beta = 0; beta < 2; beta++) {
        if (beta)
            twin_noise(p, &dx, 3, 2, 0);
        pair_ok(p, cti_cuda_softmax_grad(p->cuda, &dx.v, beta, &dy.v, &y.v, dim, log));
        pair_ok(p, p->be->loss->softmax_grad(p->cpu, &dx.o, beta, &dy.o, &y.o, dim, log));
        twin_same(p, &dx, t == CT_F32 ? 4 : 1, what);
    }
    twin_untouched(p, &x, what), twin_untouched(p, &dy, what);
    twin_free(p, &x), twin_free(p, &y), twin_free(p, &dx), twin_free(p, &dy);
}

Test(cuda_loss, softmax_layouts)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (int l = 0; l < LAYOUTS * LAYOUTS; l++)
            for (int dim = 0; dim < 4; dim++)
                softmax_case(&p, floats[t], (enum layout)(l / LAYOUTS), (enum layout)(l % LAYOUTS),
                             4, SHAPE(3, 5, 4, 7), dim, (l + dim) & 1);
    pair_close(&p);
}

Test(cuda_loss, softmax_lengths)
{
    static const int64_t n[] = {1, 2, 10, 31, 32, 33, 255, 256, 257, 1023, 1025, 5000};
    static const int64_t m[] = {1, 3, 33, 260};
    pair p;
    pair_open(&p);
    for (size_t i = 0; i < N(n); i++)
        for (size_t j = 0; j < N(m); j++) {
            ct_dtype t = floats[(i + j) % N(floats)];
            if (n[i] * m[j] > 70000)
                continue;
            softmax_case(&p, t, ROWS, ROWS, 2, SHAPE(m[j], n[i]), 1, i & 1);
            softmax_case(&p, t, ROWS, ROWS, 2, SHAPE(n[i], m[j]), 0, j & 1);
        }
    softmax_case(&p, CT_F32, ROWS, ROWS, 2, SHAPE(20000, 3), 1, false);
    softmax_case(&p, CT_F32, ROWS, ROWS, 0, SHAPE(1), 0, false); /* a scalar */
    softmax_case(&p, CT_BF16, ROWS, ROWS, 0, SHAPE(1), 0, true);
    pair_close(&p);
}

Test(cuda_loss, softmax_infinities)
{
    static const float rows[][3] = {{-INFINITY, -INFINITY, -INFINITY},
                                    {-INFINITY, 2, -INFINITY},
                                    {INFINITY, 0, 1},
                                    {NAN, 0, 1},
                                    {0, 1, NAN},
                                    {NAN, NAN, NAN},
                                    {INFINITY, NAN, INFINITY},
                                    {-INFINITY, NAN, 3},
                                    {60000, 60000, -60000},
                                    {1, 1, 1}};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (int log = 0; log < 2; log++)
            for (int64_t n = 3; n < 1200; n += 1100) { /* alone, and among others */
                twin x = twin_rand(&p, floats[t], ROWS, 2, SHAPE(N(rows), n), 1);
                twin y = twin_new(&p, floats[t], ROWS, 2, SHAPE(N(rows), n));
                for (int64_t i = 0; i < (int64_t)N(rows); i++)
                    for (int64_t k = 0; k < 3; k++)
                        twin_put(&p, &x, i * n + (k == 0 ? 0 : n - 3 + k), (double)rows[i][k]);
                twin_upload(&p, &x);
                pair_ok(&p, cti_cuda_softmax(p.cuda, &y.v, &x.v, 1, log));
                pair_ok(&p, p.be->loss->softmax(p.cpu, &y.o, &x.o, 1, log));
                twin_same(&p, &y, 1, "infinities");
                twin_free(&p, &x), twin_free(&p, &y);
            }
    pair_close(&p);
}

Test(cuda_loss, softmax_empty_broadcast_refused)
{
    pair p;
    pair_open(&p);
    twin e = twin_new(&p, CT_F32, ROWS, 2, SHAPE(0, 3)),
         f = twin_new(&p, CT_F32, ROWS, 2, SHAPE(3, 0));
    for (int dim = 0; dim < 2; dim++) {
        pair_ok(&p, cti_cuda_softmax(p.cuda, &e.v, &e.v, dim, false));
        pair_ok(&p, cti_cuda_softmax(p.cuda, &f.v, &f.v, dim, true));
        pair_ok(&p, cti_cuda_softmax_grad(p.cuda, &e.v, 1, &e.v, &e.v, dim, false));
        pair_ok(&p, cti_cuda_softmax_grad(p.cuda, &f.v, 0, &f.v, &f.v, dim, true));
    }
    twin m = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(40), 1),
         y = twin_new(&p, CT_F32, ROWS, 3, SHAPE(2, 40, 3));
    twin x = twin_as(&m, 0, 3, SHAPE(2, 40, 3), SHAPE(0, 1, 0));
    pair_ok(&p, cti_cuda_softmax(p.cuda, &y.v, &x.v, 1, false));
    pair_ok(&p, p.be->loss->softmax(p.cpu, &y.o, &x.o, 1, false));
    twin_same(&p, &y, 1, "broadcast");
    pair_ok(&p, cti_cuda_softmax(p.cuda, &y.v, &x.v, 2, false));
    pair_ok(&p, p.be->loss->softmax(p.cpu, &y.o, &x.o, 2, false));
    twin_same(&p, &y, 1, "broadcast rows");
    twin d = twin_new(&p, CT_F64, ROWS, 1, SHAPE(4)), i = twin_new(&p, CT_I32, ROWS, 1, SHAPE(4));
    twin h = twin_new(&p, CT_F16, ROWS, 1, SHAPE(4)), g = twin_new(&p, CT_F32, ROWS, 1, SHAPE(4));
    pair_refuses(&p, cti_cuda_softmax(p.cuda, &d.v, &d.v, 0, false));
    pair_refuses(&p, cti_cuda_softmax(p.cuda, &i.v, &i.v, 0, true));
    pair_refuses(&p, cti_cuda_softmax(p.cuda, &h.v, &g.v, 0, true));
    pair_refuses(&p, cti_cuda_softmax_grad(p.cuda, &d.v, 0, &d.v, &d.v, 0, true));
    pair_refuses(&p, cti_cuda_softmax_grad(p.cuda, &g.v, 0, &h.v, &g.v, 0, false));
    pair_refuses(&p, cti_cuda_softmax_grad(p.cuda, &g.v, 0, &g.v, &h.v, 0, false));
    twin *all[] = {&e, &f, &m, &y, &d, &i, &h, &g};
    for (size_t k = 0; k < N(all); k++)
        twin_free(&p, all[k]);
    pair_close(&p);
}

/* ---- cross entropy ---- */
typedef struct ce {
    twin x, target, w, loss, lse, total, bad, dx, dloss;
    ct_cross_entropy_args cuda, cpu;
} ce;

typedef struct ce_opts {
    bool prob, weight;
    int reduction;
    double smoothing;
} ce_opts;

static ce ce_new(pair *p, ct_dtype t, enum layout l, int ndim, const int64_t *shape, ce_opts o)
{
    ce u = {0};
    int64_t pos[CT_MAX_DIMS] = {shape[0]}, K = shape[1];
    int n = o.reduction == CT_CE_NONE ? ndim - 1 : 0;
    for (int d = 2; d < ndim; d++)
        pos[d - 1] = shape[d];
    u.x = twin_rand(p, t, l, ndim, shape, 1), u.dx = twin_new(p, t, l, ndim, shape);
    u.w = twin_new(p, t, GAPS, 1, &K);
    twin_noise(p, &u.w, 4, 0.5, 0.75);
    u.target = o.prob ? twin_new(p, t, l, ndim, shape) : twin_new(p, CT_I64, ROWS, ndim - 1, pos);
    if (o.prob)
        twin_noise(p, &u.target, 5, 0.5 / (double)K, 1 / (double)K);
    for (int64_t i = 0; !o.prob && i < ct_view_numel(&u.target.v); i++)
        twin_put(p, &u.target, i, i % 5 == 3 ? -100 : (double)(i * 7 % K));
    twin_upload(p, &u.target);
    u.loss = twin_new(p, t, l == LAST ? ROWS : l, n, pos);
    u.dloss = twin_rand(p, t, ROWS, n, pos, 6);
    u.lse = twin_new(p, CT_F32, ROWS, ndim - 1, pos);
    u.total = twin_new(p, CT_F32, ROWS, 0, pos);
    u.bad = twin_new(p, CT_I64, ROWS, 1, SHAPE(2)); /* -1, -1 */
    return u;
}

static void ce_side(const ce *u, bool cuda, ce_opts o, ct_cross_entropy_args *a)
{
    *a = (ct_cross_entropy_args){
        .logits = cuda ? u->x.v : u->x.o,
        .target = cuda ? u->target.v : u->target.o,
        .weight = o.weight ? (cuda ? &u->w.v : &u->w.o) : NULL,
        .ignore_index = -100,
        .smoothing = o.smoothing,
        .reduction = o.reduction,
        .loss = cuda ? u->loss.v : u->loss.o,
        .lse = cuda ? u->lse.v : u->lse.o,
        .total_weight = cuda ? u->total.v : u->total.o,
        .bad = cuda ? u->bad.v : u->bad.o,
    };
}

static void ce_forward(pair *p, ce *u, ce_opts o)
{
    ce_side(u, true, o, &u->cuda);
    ce_side(u, false, o, &u->cpu);
    size_t bytes = cti_cuda_cross_entropy_workspace(p->cuda, &u->cuda);
    u->cuda.workspace = pair_scratch(p, bytes);
    pair_ok(p, cti_cuda_cross_entropy(p->cuda, &u->cuda));
    u->cpu.workspace = malloc(p->be->loss->cross_entropy_workspace(p->cpu, &u->cpu) + 1);
    pair_ok(p, p->be->loss->cross_entropy(p->cpu, &u->cpu));
}

static void ce_backward(pair *p, ce *u, int beta)
{
    pair_ok(p, cti_cuda_cross_entropy_grad(p->cuda, &u->cuda, &u->dx.v, beta, &u->dloss.v));
    pair_ok(p, p->be->loss->cross_entropy_grad(p->cpu, &u->cpu, &u->dx.o, beta, &u->dloss.o));
}

static void ce_free(pair *p, ce *u)
{
    twin *all[] = {&u->x,     &u->target, &u->w,  &u->loss, &u->lse,
                   &u->total, &u->bad,    &u->dx, &u->dloss};
    for (size_t k = 0; k < N(all); k++)
        twin_free(p, all[k]);
    pair_scratch_free(p, u->cuda.workspace);
    free(u->cpu.workspace);
}

static void ce_case(pair *p, ct_dtype t, enum layout l, int ndim, const int64_t *shape, ce_opts o)
{
    ce u = ce_new(p, t, l, ndim, shape, o);
    char what[96];
    snprintf(what, sizeof what,
             "layout %d, %d classes, prob %d, weight %d, reduction %d, smoothing %g", (int)l,
             (int)shape[1], o.prob, o.weight, o.reduction, o.smoothing);
    ce_forward(p, &u, o);
    twin_same(p, &u.lse, 1, what);
    twin_same(p, &u.total, 1, what);
    twin_same(p, &u.loss, 1, what);
    twin_same(p, &u.bad, 0, what);
    twin_from_oracle(p, &u.lse); /* both sides go on from the same numbers */
    twin_from_oracle(p, &u.total);
    for (int beta = 0; beta < 2; beta++) {
        if (beta)
            twin_noise(p, &u.dx, 3, 2, 0);
        ce_backward(p, &u, beta);
        twin_same(p, &u.dx, 1, what);
    }
    twin_untouched(p, &u.x, what), twin_untouched(p, &u.target, what);
    ce_free(p, &u);
}

static ce_opts opts_of(int bits, int reduction)
{
    return (ce_opts){bits & 1, bits & 2, reduction, bits & 4 ? 0.1 : 0};
}

Test(cuda_loss, cross_entropy_all)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int bits = 0; bits < 8; bits++)
                for (int red = 0; red < 3; red++) {
                    ce_opts o = opts_of(bits, red);
                    ce_case(&p, floats[t], (enum layout)l, 2, SHAPE(21, 10), o);
                    ce_case(&p, floats[t], (enum layout)l, 4, SHAPE(3, 5, 2, 7), o);
                    ce_case(&p, floats[t], (enum layout)l, 2, SHAPE(3, 700), o);
                }
    pair_close(&p);
}

Test(cuda_loss, cross_entropy_sizes)
{
    static const int64_t n[] = {1, 31, 32, 33, 255, 256, 257, 2049};
    pair p;
    pair_open(&p);
    for (size_t i = 0; i < N(n); i++)
        for (size_t j = 0; j < N(n); j++)
            if (n[i] * n[j] < 80000)
                ce_case(&p, floats[(i + j) % N(floats)], ROWS, 2, SHAPE(n[i], n[j]),
                        opts_of((int)(i + j) % 8, (int)(i + j) % 3));
    /* more groups of rows than blocks, several to a block */
    ce_case(&p, CT_F32, ROWS, 2, SHAPE(5000, 1500), opts_of(2, CT_CE_MEAN));
    ce_case(&p, CT_BF16, ROWS, 4, SHAPE(2, 3, 40, 500), opts_of(6, CT_CE_NONE));
    ce_case(&p, CT_F32, LAST, 4, SHAPE(2, 3, 40, 50), opts_of(1, CT_CE_SUM));
    pair_close(&p);
}

Test(cuda_loss, ignored_bad_and_weightless)
{
    pair p;
    pair_open(&p);
    for (int k = 0; k < 3 * 3 * 4; k++) {
        ce_opts o = {false, true, k % 3, k % 2 ? 0.1 : 0};
        int kind = k / 9;
        ce u = ce_new(&p, floats[k / 3 % 3], ROWS, 2, SHAPE(600, 3), o);
        for (int64_t i = 0; i < 600; i++) /* all ignored; a class of weight 0 alone; bad ones */
            twin_put(&p, &u.target, i,
                     kind == 0 ? -100 :
                     kind == 1 ? 2 :
                     i == 417  ? 3 :
                     i == 511  ? -7 :
                                 (double)(i % 3));
        twin_put(&p, &u.w, 2, 0);
        if (kind == 3) { /* an earlier finding stays */
            twin_put(&p, &u.bad, 0, 5);
            twin_put(&p, &u.bad, 1, 9);
        }
        twin_upload(&p, &u.bad), twin_upload(&p, &u.w), twin_upload(&p, &u.target);
        ce_forward(&p, &u, o);
        twin_same(&p, &u.loss, 1, "loss"), twin_same(&p, &u.total, 1, "total weight");
        twin_same(&p, &u.bad, 0, "bad");
        double *bad = twin_get_all(&p, &u.bad), *loss = twin_get_all(&p, &u.loss);
        cr_assert(kind < 2  ? bad[0] == -1 :
                  kind == 2 ? bad[0] == 417 && bad[1] == 3 :
                              bad[0] == 5 && bad[1] == 9);
        cr_assert(kind < 2 || isnan(loss[o.reduction == CT_CE_NONE ? 511 : 0]));
        free(bad), free(loss);
        for (int beta = 0; beta < 2; beta++) {
            ce_backward(&p, &u, beta);
            twin_same(&p, &u.dx, 4, "gradient");
            twin_noise(&p, &u.dx, 3, 2, 0);
        }
        ce_free(&p, &u);
    }
    pair_close(&p);
}

Test(cuda_loss, cross_entropy_infinities)
{
    pair p;
    pair_open(&p);
    for (int k = 0; k < 3 * 4; k++) {
        ce_opts o = {k & 1, false, CT_CE_NONE, k & 2 ? 0.1 : 0};
        ct_dtype t = floats[k / 4];
        ce u = ce_new(&p, t, ROWS, 2, SHAPE(7, 5), o);
        twin_put(&p, &u.x, 1, -INFINITY);
        for (int64_t c = 0; c < 5; c++)
            twin_put(&p, &u.x, 5 + c, -INFINITY),
                twin_put(&p, &u.x, 20 + c, t == CT_F32 ? 1e4 + (double)c : 500);
        twin_put(&p, &u.x, 12, INFINITY), twin_put(&p, &u.x, 18, (double)NAN);
        twin_put(&p, &u.x, 25, -INFINITY), twin_put(&p, &u.x, 26, -INFINITY);
        twin_upload(&p, &u.x);
        ce_forward(&p, &u, o);
        twin_same(&p, &u.loss, 1, "loss"), twin_same(&p, &u.lse, 1, "lse");
        twin_from_oracle(&p, &u.lse);
        ce_backward(&p, &u, 0);
        twin_same(&p, &u.dx, 4, "gradient");
        ce_free(&p, &u);
    }
    pair_close(&p);
}

Test(cuda_loss, cross_entropy_empty)
{
    pair p;
    pair_open(&p);
    for (int k = 0; k < 6; k++) {
        ce_opts o = {k & 1, k & 1, k % 3, 0.1};
        ce u = ce_new(&p, floats[k % 3], ROWS, 2, SHAPE(0, 3), o);
        ce_forward(&p, &u, o);
        twin_same(&p, &u.loss, 1, "loss of nothing"), twin_same(&p, &u.total, 1, "its weight");
        ce_backward(&p, &u, 0);
        ce_free(&p, &u);
    }
    pair_close(&p);
}

Test(cuda_loss, cross_entropy_same_bytes_again)
{
    ce_opts o = {false, true, CT_CE_MEAN, 0.1};
    pair p;
    pair_open(&p);
    ce u = ce_new(&p, CT_F32, ROWS, 2, SHAPE(9001, 10), o);
    double *first = NULL;
    for (int i = 0; i < 3; i++) {
        p.cuda->sms = 1 + 70 * i; /* as if on other devices */
        ce_side(&u, true, o, &u.cuda);
        u.cuda.workspace = pair_scratch(&p, cti_cuda_cross_entropy_workspace(p.cuda, &u.cuda));
        pair_ok(&p, cti_cuda_cross_entropy(p.cuda, &u.cuda));
        double *got = twin_get_all(&p, &u.loss);
        cr_assert(!first || *got == *first);
        pair_scratch_free(&p, u.cuda.workspace);
        free(first);
        first = got;
    }
    free(first);
    u.cuda.workspace = NULL;
    ce_free(&p, &u);
    pair_close(&p);
}

Test(cuda_loss, cross_entropy_refused)
{
    pair p;
    pair_open(&p);
    ce_opts o = {false, true, CT_CE_MEAN, 0};
    ce u = ce_new(&p, CT_F32, ROWS, 2, SHAPE(4, 3), o);
    for (int k = 0; k < 6; k++) {
        ct_view w = u.w.v, dx = u.dx.v, g = u.dloss.v;
        ce_side(&u, true, o, &u.cuda);
        ct_cross_entropy_args *a = &u.cuda;
        a->weight = &w;
        ct_dtype *const wrong[] = {&a->logits.dtype, &a->target.dtype, &w.dtype,
                                   &a->loss.dtype,   &a->lse.dtype,    &a->total_weight.dtype};
        *wrong[k] = k == 1 ? CT_I32 : CT_F64;
        pair_refuses(&p, cti_cuda_cross_entropy(p.cuda, a));
        pair_refuses(&p, cti_cuda_cross_entropy_grad(p.cuda, a, &dx, 0, &g));
        cr_assert_eq(cti_cuda_cross_entropy_workspace(p.cuda, a), 0);
    }
    ce_side(&u, true, o, &u.cuda);
    ct_view half = u.dx.v, g = u.dloss.v;
    half.dtype = g.dtype = CT_F16;
    pair_refuses(&p, cti_cuda_cross_entropy_grad(p.cuda, &u.cuda, &half, 0, &u.dloss.v));
    pair_refuses(&p, cti_cuda_cross_entropy_grad(p.cuda, &u.cuda, &u.dx.v, 0, &g));
    u.cuda.workspace = NULL;
    ce_free(&p, &u);
    pair_close(&p);
}
