/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_test.h"

#define LOSS (&cti_cpu_loss)

TestSuite(backend_loss);

static void softmax_case(ct_dtype t, enum layout lx, enum layout ly, int dim, bool log, int64_t n)
{
    int64_t shape[] = {3, 4, 5};
    shape[dim] = n;
    ct_stream s = stream_of(1);
    tv x = tv_new(t, lx, 3, shape), y = tv_new(t, ly, 3, shape), dy = tv_rand(t, lx, 3, shape, 2);
    int64_t inner = 1;
    tv_noise(&x, 1, 10, 5);
    for (int d = dim + 1; d < 3; d++)
        inner *= shape[d];
    cr_assert_eq(LOSS->softmax(&s, &y.v, &x.v, dim, log), CT_OK);
    for (int beta = 0; beta < 2; beta++) {
        tv dx = tv_rand(t, ly, 3, shape, 3), was = tv_rand(t, ROWS, 3, shape, 3);
        cr_assert_eq(LOSS->softmax_grad(&s, &dx.v, beta, &dy.v, &y.v, dim, log), CT_OK);
        for (int64_t row = 0; row < ct_view_numel(&x.v) / n; row++) {
            int64_t base = row / inner * inner * n + row % inner;
            double m = -INFINITY, sum = 0, dot = 0;
            for (int64_t k = 0; k < n; k++)
                m = fmax(m, get(&x.v, base + k * inner));
            for (int64_t k = 0; k < n; k++)
                sum += exp(get(&x.v, base + k * inner) - m);
            for (int64_t k = 0; k < n; k++) {
                double g = get(&dy.v, base + k * inner);
                dot += log ? g : g * exp(get(&x.v, base + k * inner) - m) / sum;
            }
            for (int64_t k = 0; k < n; k++) {
                int64_t i = base + k * inner;
                double lp = get(&x.v, i) - m - log1p(sum - 1), g = get(&dy.v, i);
                double want = log ? g - exp(lp) * dot : exp(lp) * (g - dot);
                expect_near(get(&y.v, i), log ? lp : exp(lp), tol_of(t), "softmax", i);
                expect_near(get(&dx.v, i), want + beta * get(&was.v, i), tol_of(t) * 10, "gradient",
                            i);
            }
        }
        tv_free(&dx), tv_free(&was);
    }
    tv_free(&x), tv_free(&y), tv_free(&dy);
}

Test(backend_loss, softmax)
{
    static const int64_t sizes[] = {1, 10, 17, 300, 1000};
    for (int t = 0; t < 2; t++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int d = 0; d < 3; d++)
                for (int log = 0; log < 2; log++)
                    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                        softmax_case(t ? CT_F64 : CT_F32, (enum layout)l, (enum layout)(3 - l), d,
                                     log, sizes[k]);
}

Test(backend_loss, softmax_infinities)
{
    float x[4][2] = {{-INFINITY, -INFINITY}, {-INFINITY, 2}, {INFINITY, 0}, {NAN, 0}}, y[4][2];
    ct_stream s = stream_of(1);
    ct_view xv = {x, CT_F32, 2, {4, 2}, {2, 1}}, yv = {y, CT_F32, 2, {4, 2}, {2, 1}};
    ct_view e = {NULL, CT_F32, 2, {0, 2}, {2, 1}}, f = {NULL, CT_F32, 2, {2, 0}, {1, 1}};
    LOSS->softmax(&s, &yv, &xv, 1, false);
    cr_assert(isnan(y[0][0]) && isnan(y[0][1]) && y[1][0] == 0 && y[1][1] == 1);
    cr_assert(isnan(y[2][0]) && isnan(y[2][1]) && isnan(y[3][1]));
    LOSS->softmax(&s, &yv, &xv, 1, true);
    cr_assert(isnan(y[0][0]) && y[1][0] == -INFINITY && y[1][1] == 0);
    cr_assert_eq(LOSS->softmax(&s, &e, &e, 1, false), CT_OK);
    cr_assert_eq(LOSS->softmax(&s, &f, &f, 1, false), CT_OK);
}

typedef struct ce {
    tv x, target, w, loss, lse, dx, dloss;
    double total_d;
    float total_f;
    int64_t bad[2];
    ct_cross_entropy_args a;
} ce;

static ce ce_new(ct_dtype t, enum layout l, int ndim, const int64_t *shape, bool prob, bool weight,
                 int reduction)
{
    ce u = {0};
    int64_t pos[4] = {shape[0]};
    for (int d = 2; d < ndim; d++)
        pos[d - 1] = shape[d];
    u.x = tv_rand(t, l, ndim, shape, 1), u.dx = tv_rand(t, l, ndim, shape, 3);
    u.w = tv_rand(t, ROWS, 1, &shape[1], 4);
    for (int64_t c = 0; c < shape[1]; c++)
        put(&u.w.v, c, fabs(get(&u.w.v, c)) + 0.2);
    u.target = prob ? tv_rand(t, l, ndim, shape, 5) : tv_new(CT_I64, ROWS, ndim - 1, pos);
    for (int64_t i = 0; i < ct_view_numel(&u.target.v); i++)
        put(&u.target.v, i,
            prob       ? fabs(get(&u.target.v, i)) :
            i % 5 == 3 ? -100 :
                         (double)(i * 7 % shape[1]));
    u.loss = reduction == CT_CE_NONE ? tv_new(t, ROWS, ndim - 1, pos) : tv_new(t, ROWS, 0, pos);
    u.dloss =
        reduction == CT_CE_NONE ? tv_rand(t, ROWS, ndim - 1, pos, 6) : tv_rand(t, ROWS, 0, pos, 6);
    u.lse = tv_new(t, ROWS, ndim - 1, pos);
    u.a.ignore_index = -100;
    u.a.reduction = reduction;
    (void)weight;
    return u;
}

static void ce_args(ce *u, bool weight, double smoothing)
{
    u->a.logits = u->x.v, u->a.target = u->target.v, u->a.loss = u->loss.v, u->a.lse = u->lse.v;
    u->a.weight = weight ? &u->w.v : NULL;
    u->a.smoothing = smoothing;
    u->a.total_weight = (ct_view){
        u->x.v.dtype == CT_F32 ? (void *)&u->total_f : &u->total_d, u->x.v.dtype, 0, {0}, {0}};
    u->a.bad = (ct_view){u->bad, CT_I64, 1, {2}, {1}};
    u->bad[0] = u->bad[1] = -1;
}

static void ce_run(ce *u, int threads)
{
    ct_stream s = stream_of(threads);
    size_t bytes = LOSS->cross_entropy_workspace(&s, &u->a);
    u->a.workspace = workspace(bytes);
    cr_assert_eq(LOSS->cross_entropy(&s, &u->a), CT_OK);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(((char *)u->a.workspace)[bytes + (size_t)i], (char)0xff);
    free(u->a.workspace);
}

static void ce_free(ce *u)
{
    tv_free(&u->x), tv_free(&u->target), tv_free(&u->w), tv_free(&u->loss), tv_free(&u->lse);
    tv_free(&u->dx), tv_free(&u->dloss);
}

/* The loss of row (n, rest) by the formula, and its gradient to class j in *g. */
static double row_loss(const ce *u, int64_t row, int64_t K, int64_t inner, double *g, double *wy)
{
    const ct_cross_entropy_args *a = &u->a;
    int64_t base = row / inner * inner * K + row % inner, y = 0;
    bool prob = a->target.dtype != CT_I64;
    double m = -INFINITY, sum = 0, loss = 0, mass = 0, e = a->smoothing;
    for (int64_t k = 0; k < K; k++)
        m = fmax(m, get(&u->x.v, base + k * inner));
    for (int64_t k = 0; k < K; k++)
        sum += exp(get(&u->x.v, base + k * inner) - m);
    if (!prob)
        y = (int64_t)get(&u->target.v, row);
    for (int64_t k = 0; k < K; k++) /* t_k w_k, with the class as a one-hot target of weight w_y */
        g[k] = (a->weight ? get(a->weight, k) : 1) *
               ((prob ? get(&u->target.v, base + k * inner) : k == y) * (1 - e) + e / (double)K);
    for (int64_t k = 0; k < K; k++) {
        loss -= g[k] * (get(&u->x.v, base + k * inner) - m - log(sum));
        mass += g[k];
    }
    for (int64_t k = 0; k < K; k++)
        g[k] = mass * exp(get(&u->x.v, base + k * inner) - m) / sum - g[k];
    *wy = prob ? 1 : a->weight ? get(a->weight, y) : 1;
    return loss;
}

static void ce_case(ct_dtype t, enum layout l, int ndim, const int64_t *shape, bool prob,
                    bool weight, int reduction, double smoothing)
{
    ct_stream s = stream_of(1);
    ce u = ce_new(t, l, ndim, shape, prob, weight, reduction);
    int64_t K = shape[1], rows = ct_view_numel(&u.lse.v), inner = rows / shape[0];
    double total = 0, sum = 0, *g = calloc((size_t)K, sizeof *g), w, tol = tol_of(t);
    ce_args(&u, weight, smoothing);
    ce_run(&u, 1);
    cr_assert_eq(u.bad[0], -1);
    for (int64_t r = 0; r < rows; r++) {
        bool ignored = !prob && get(&u.target.v, r) == -100;
        double loss = ignored ? 0 : row_loss(&u, r, K, inner, g, &w);
        total += ignored ? 0 : w;
        sum += loss;
        if (reduction == CT_CE_NONE)
            expect_near(get(&u.loss.v, r), loss, tol * 4, "loss", r);
    }
    expect_near(t == CT_F32 ? (double)u.total_f : u.total_d, total, tol, "total weight", 0);
    if (reduction != CT_CE_NONE)
        expect_near(get(&u.loss.v, 0), reduction == CT_CE_MEAN ? sum / total : sum, tol * 4, "loss",
                    0);
    for (int beta = 0; beta < 2; beta++) {
        tv dx = tv_rand(t, l, ndim, shape, 3);
        cr_assert_eq(LOSS->cross_entropy_grad(&s, &u.a, &dx.v, beta, &u.dloss.v), CT_OK);
        for (int64_t r = 0; r < rows; r++) {
            bool ignored = !prob && get(&u.target.v, r) == -100;
            double up = get(&u.dloss.v, reduction == CT_CE_NONE ? r : 0);
            row_loss(&u, ignored ? 0 : r, K, inner, g, &w);
            if (reduction == CT_CE_MEAN)
                up /= total;
            for (int64_t k = 0; k < K; k++) {
                int64_t i = r / inner * inner * K + r % inner + k * inner;
                double want = beta * get(&u.dx.v, i) + (ignored ? 0 : up * g[k]);
                expect_near(get(&dx.v, i), want, tol * 10, "dlogits", i);
            }
        }
        tv_free(&dx);
    }
    free(g);
    ce_free(&u);
}

Test(backend_loss, cross_entropy_all)
{
    for (int t = 0; t < 2; t++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int bits = 0; bits < 8; bits++)
                for (int red = 0; red < 3; red++) {
                    ct_dtype dt = t ? CT_F64 : CT_F32;
                    double e = bits & 4 ? 0.1 : 0;
                    ce_case(dt, (enum layout)l, 2, SHAPE(21, 10), bits & 1, bits & 2, red, e);
                    ce_case(dt, (enum layout)l, 4, SHAPE(3, 5, 2, 7), bits & 1, bits & 2, red, e);
                    ce_case(dt, (enum layout)l, 2, SHAPE(5, 700), bits & 1, bits & 2, red, e);
                }
}

/* PyTorch's case: x, y, w of the semantics. */
Test(backend_loss, numbers_of_pytorch)
{
    static const double x[] = {1, 2, 3, 0, 0, 0, 2, -1, 0.5, 0.1, 0.2, 0.3}, w[] = {0.5, 1, 2};
    static const double none[] = {0.4076059644443804, 1.0986122886681098, 0, 1.101942848229244};
    static const struct {
        double smoothing, want;
        bool weight;
    } cases[] = {{0, 0.7047031204148742, true},
                 {0.1, 0.7387905593704922, true},
                 {0.1, 0.9027203671139115, false}};
    for (size_t k = 0; k < 4; k++) {
        ce u = ce_new(CT_F64, ROWS, 2, SHAPE(4, 3), false, true, k < 3 ? CT_CE_MEAN : CT_CE_NONE);
        const double y[] = {2, 0, -100, 1};
        for (int i = 0; i < 12; i++)
            put(&u.x.v, i, x[i]);
        for (int i = 0; i < 4; i++)
            put(&u.target.v, i, y[i]);
        for (int i = 0; i < 3; i++)
            put(&u.w.v, i, w[i]);
        ce_args(&u, k < 3 && cases[k].weight, k < 3 ? cases[k].smoothing : 0);
        ce_run(&u, 1);
        for (int i = 0; i < (k < 3 ? 1 : 4); i++)
            expect_near(get(&u.loss.v, i), k < 3 ? cases[k].want : none[i], 1e-14, "cross entropy",
                        i);
        ce_free(&u);
    }
}

Test(backend_loss, ignored_bad_and_infinite)
{
    ct_stream s = stream_of(1);
    for (int red = 0; red < 3; red++) { /* all ignored: mean NaN, sum 0, gradient 0 */
        ce u = ce_new(CT_F32, ROWS, 2, SHAPE(4, 3), false, false, red);
        for (int i = 0; i < 4; i++)
            put(&u.target.v, i, -100);
        ce_args(&u, false, 0);
        ce_run(&u, 1);
        cr_assert(red == CT_CE_MEAN ? isnan(get(&u.loss.v, 0)) : get(&u.loss.v, 0) == 0);
        cr_assert_eq(LOSS->cross_entropy_grad(&s, &u.a, &u.dx.v, 0, &u.dloss.v), CT_OK);
        for (int i = 0; i < 12; i++)
            cr_assert_eq(get(&u.dx.v, i), 0);
        /* an ignored number that is a class; a class out of range */
        for (int i = 0; i < 4; i++)
            put(&u.target.v, i, i == 2 ? 3 : i == 3 ? -1 : 1);
        u.a.ignore_index = 1;
        ce_run(&u, 1);
        cr_assert(u.bad[0] == 2 && u.bad[1] == 3);
        cr_assert(isnan(get(&u.loss.v, red == CT_CE_NONE ? 2 : 0)));
        u.a.ignore_index = 3;
        ce_run(&u, 1);
        cr_assert(u.bad[0] == 2 && u.bad[1] == 3, "an earlier finding stays");
        ce_args(&u, false, 0);
        ce_run(&u, 1);
        cr_assert(u.bad[0] == 3 && u.bad[1] == -1);
        ce_free(&u);
    }
    for (int smooth = 0; smooth < 2; smooth++) { /* -inf elsewhere: fine, but not with smoothing */
        ce u = ce_new(CT_F32, ROWS, 2, SHAPE(1, 2), false, false, CT_CE_MEAN);
        put(&u.x.v, 0, -INFINITY), put(&u.x.v, 1, 0), put(&u.target.v, 0, 1);
        ce_args(&u, false, smooth * 0.1);
        ce_run(&u, 1);
        cr_assert_eq(get(&u.loss.v, 0), smooth ? INFINITY : 0);
        ce_free(&u);
    }
    ce u = ce_new(CT_F32, ROWS, 2, SHAPE(2, 3), false, false, CT_CE_MEAN); /* stable far out */
    for (int i = 0; i < 6; i++)
        put(&u.x.v, i, 1e4 + i % 3);
    put(&u.target.v, 0, 0), put(&u.target.v, 1, 2), put(&u.dloss.v, 0, 1);
    ce_args(&u, false, 0);
    ce_run(&u, 1);
    expect_near(get(&u.loss.v, 0), log(1 + exp(1) + exp(2)) - 1, 1e-6, "far out", 0);
    LOSS->cross_entropy_grad(&s, &u.a, &u.dx.v, 0, &u.dloss.v);
    double z = 1 + exp(1) + exp(2);
    expect_near(get(&u.dx.v, 0), 0.5 * (1 / z - 1), 1e-6, "far out", 0);
    ce_free(&u);
    ce e = ce_new(CT_F32, ROWS, 2, SHAPE(0, 3), false, false, CT_CE_SUM);
    ce_args(&e, false, 0);
    ce_run(&e, 1);
    cr_assert_eq(get(&e.loss.v, 0), 0);
    cr_assert_eq(LOSS->cross_entropy_grad(&s, &e.a, &e.dx.v, 0, &e.dloss.v), CT_OK);
    ce_free(&e);
}

Test(backend_loss, same_bytes_for_any_threads)
{
    ce u[3];
    for (int t = 0; t < 3; t++) {
        ct_stream s = stream_of(t + 1);
        u[t] = ce_new(CT_F32, ROWS, 2, SHAPE(9001, 10), false, true, CT_CE_MEAN);
        ce_args(&u[t], true, 0.1);
        ce_run(&u[t], t + 1);
        LOSS->cross_entropy_grad(&s, &u[t].a, &u[t].dx.v, 0, &u[t].dloss.v);
        cr_assert_eq(get(&u[t].loss.v, 0), get(&u[0].loss.v, 0));
        cr_assert(memcmp(u[t].dx.mem, u[0].dx.mem, u[0].dx.bytes) == 0);
    }
    for (int t = 0; t < 3; t++)
        ce_free(&u[t]);
}
