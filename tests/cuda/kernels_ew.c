/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, fills and elementwise kernels of the CUDA backend against the CPU's. */
#include "backend/scalar.h"
#include "pair.h"

TestSuite(cuda_ew);

CTI_DEFINE_UNARY_NEEDS(unary_needs)

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
static const ct_dtype numbers[] = {CT_F32, CT_BF16, CT_F16, CT_F64, CT_I32, CT_I64};
static const int64_t sizes[] = {0, 1, 7, 8, 31, 32, 33, 255, 256, 257, 1023};
#define N(array) (sizeof(array) / sizeof *(array))

static const double odd[] = {NAN,   INFINITY, -INFINITY, 0.0,    -0.0,  1.0,   -1.0,  0.5,
                             -1.75, 1e-8,     300,       -70000, 3e9,   -1e10, 2e19,  1e-40,
                             65520, 1.0 / 3,  255.5,     -0.75,  1e300, 100,   -50.5, 2147483648.0};

/* Dense host memory of v's shape in dtype t. */
static ct_view host_like(const ct_view *v, ct_dtype t)
{
    ct_view d = *v;
    int64_t n = 1;
    d.dtype = t;
    for (int i = v->ndim - 1; i >= 0; i--) {
        d.stride[i] = n;
        n *= v->shape[i];
    }
    d.data = calloc((size_t)n + 1, 8);
    return d;
}

/* y = x on both sides: the oracle in the dtypes themselves, with their own roundings. */
static void copy_pair(pair *p, twin *y, const twin *x, const char *what)
{
    ct_view t = host_like(&y->v, y->v.dtype);
    pair_ok(p, p->be->ew->copy(p->cpu, &t, &x->h));
    pair_ok(p, p->be->ew->copy(p->cpu, &y->o, &t));
    pair_ok(p, cti_cuda_copy(p->cuda, &y->v, &x->v));
    twin_same(p, y, 0, what);
    free(t.data);
}

static void put_odd(pair *p, twin *x)
{
    for (size_t i = 0; i < N(odd) && (int64_t)i < ct_view_numel(&x->v); i++)
        twin_put(p, x, (int64_t)i, x->v.dtype == CT_BOOL ? odd[i] != 0 : odd[i]);
    twin_upload(p, x);
}

Test(cuda_ew, copy_all_dtypes)
{
    pair p;
    pair_open(&p);
    for (int d = 0; d < CT_DTYPE_COUNT; d++)
        for (int s = 0; s < CT_DTYPE_COUNT; s++) {
            twin x = twin_rand(&p, (ct_dtype)s, ROWS, 1, SHAPE(263), 1);
            if (s == CT_I64 || s == CT_I32)
                twin_noise(&p, &x, 1, 3e9, 0);
            put_odd(&p, &x);
            twin y = twin_new(&p, (ct_dtype)d, ROWS, 1, SHAPE(263));
            copy_pair(&p, &y, &x, "copy");
            twin_free(&p, &x), twin_free(&p, &y);
            for (int l = 0; l < LAYOUTS * LAYOUTS; l++) {
                x = twin_rand(&p, (ct_dtype)s, (enum layout)(l / LAYOUTS), 4, SHAPE(3, 5, 2, 7), 2);
                y = twin_new(&p, (ct_dtype)d, (enum layout)(l % LAYOUTS), 4, SHAPE(3, 5, 2, 7));
                copy_pair(&p, &y, &x, "copy of layouts");
                twin_untouched(&p, &x, "copy");
                twin_free(&p, &x), twin_free(&p, &y);
            }
        }
    pair_close(&p);
}

Test(cuda_ew, copy_transposes)
{
    static const int64_t sides[] = {7, 8, 9, 31, 32, 33, 70};
    static const ct_dtype types[] = {CT_U8, CT_BF16, CT_F32, CT_I64};
    pair p;
    pair_open(&p);
    p.cuda->sms = 1; /* tiles for more than one grid */
    for (size_t t = 0; t < N(types); t++)
        for (size_t i = 0; i < N(sides); i++)
            for (size_t j = 0; j < N(sides); j++) {
                int64_t a = sides[i], b = sides[j];
                ct_dtype dt = types[t];
                twin x = twin_rand(&p, dt, ROWS, 4, SHAPE(2, a, 1, b), 1);
                twin y = twin_new(&p, dt, LAST, 4, SHAPE(2, a, 1, b));
                twin z = twin_new(&p, dt == CT_F32 ? CT_F16 : CT_F32, ROWS, 4, SHAPE(2, a, 1, b));
                copy_pair(&p, &y, &x, "to channels-last");
                copy_pair(&p, &z, &x, "conversion");
                twin xl = twin_rand(&p, dt, LAST, 4, SHAPE(2, a, 1, b), 2);
                copy_pair(&p, &z, &xl, "conversion from channels-last");
                twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &z), twin_free(&p, &xl);
            }
    twin x = twin_rand(&p, CT_F32, ROWS, 2, SHAPE(300, 170), 1);
    twin y = twin_new(&p, CT_F32, REVERSED, 2, SHAPE(300, 170));
    twin w = twin_rand(&p, CT_F32, REVERSED, 5, SHAPE(3, 9, 2, 10, 2), 1);
    twin v = twin_new(&p, CT_F32, ROWS, 5, SHAPE(3, 9, 2, 10, 2));
    copy_pair(&p, &y, &x, "matrix");
    copy_pair(&p, &v, &w, "five dimensions");
    twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &w), twin_free(&p, &v);
    pair_close(&p);
}

Test(cuda_ew, copy_broadcasts_and_slices)
{
    static const ct_dtype types[] = {CT_BOOL, CT_F16, CT_F32, CT_F64};
    pair p;
    pair_open(&p);
    for (size_t s = 0; s < N(types); s++)
        for (size_t d = 0; d < N(types); d++) {
            twin m = twin_rand(&p, types[s], ROWS, 1, SHAPE(400), 3);
            twin y = twin_new(&p, types[d], ROWS, 3, SHAPE(6, 8, 16));
            twin row = twin_as(&m, 3, 3, SHAPE(6, 8, 16), SHAPE(0, 0, 1));
            twin col = twin_as(&m, 0, 3, SHAPE(6, 8, 16), SHAPE(1, 8, 0));
            twin one = twin_as(&m, 5, 3, SHAPE(6, 8, 16), SHAPE(0, 0, 0));
            copy_pair(&p, &y, &row, "row");
            copy_pair(&p, &y, &col, "column");
            copy_pair(&p, &y, &one, "one value");
            twin_from_oracle(&p, &y);
            twin part = twin_as(&y, 1, 2, SHAPE(5, 33), SHAPE(64, 1)); /* not aligned */
            twin from = twin_as(&m, 1, 2, SHAPE(5, 33), SHAPE(33, 1));
            copy_pair(&p, &part, &from, "slice");
            twin_free(&p, &m), twin_free(&p, &y);
        }
    pair_close(&p);
}

Test(cuda_ew, fill)
{
    pair p;
    pair_open(&p);
    for (int t = 0; t < CT_DTYPE_COUNT; t++)
        for (size_t k = 0; k < N(odd); k++)
            for (int l = 0; l < LAYOUTS; l++) {
                twin y = twin_new(&p, (ct_dtype)t, (enum layout)l, 3, SHAPE(3, 5, 7));
                ct_view h = host_like(&y.v, y.v.dtype);
                pair_ok(&p, p.be->ew->fill(p.cpu, &h, odd[k]));
                pair_ok(&p, p.be->ew->copy(p.cpu, &y.o, &h));
                pair_ok(&p, cti_cuda_fill(p.cuda, &y.v, odd[k]));
                twin_same(&p, &y, 0, "fill");
                twin_free(&p, &y);
                free(h.data);
            }
    pair_close(&p);
}

Test(cuda_ew, sizes_and_scalars)
{
    pair p;
    pair_open(&p);
    p.cuda->sms = 1; /* of one multiprocessor: its grid is 4096 threads */
    for (size_t k = 0; k < N(sizes); k++)
        for (int big = 0; big < 2; big++) {
            int64_t n = sizes[k] * (big ? 37 : 1);
            long before = pair_work("");
            twin x = twin_rand(&p, CT_BF16, ROWS, 1, SHAPE(n), 1);
            twin y = twin_new(&p, CT_F32, ROWS, 1, SHAPE(n));
            copy_pair(&p, &y, &x, "copy");
            pair_ok(&p, cti_cuda_unary(p.cuda, CT_UN_SQUARE, &x.v, &x.v));
            pair_ok(&p, p.be->ew->unary(p.cpu, CT_UN_SQUARE, &x.o, &x.o));
            twin_same(&p, &x, 1, "in place");
            pair_ok(&p, cti_cuda_fill(p.cuda, &y.v, 0));
            pair_ok(&p, p.be->ew->fill(p.cpu, &y.o, 0));
            twin_same(&p, &y, 0, "fill");
            pair_ok(&p, cti_cuda_fill(p.cuda, &y.v, 3));
            pair_ok(&p, p.be->ew->fill(p.cpu, &y.o, 3));
            twin_same(&p, &y, 0, "fill");
            cr_assert_eq(pair_work("") > before, n > 0 && pair_on_double(),
                         "no work for nothing alone");
            twin_free(&p, &x), twin_free(&p, &y);
        }
    twin x = twin_rand(&p, CT_F32, ROWS, 0, NULL, 1), y = twin_new(&p, CT_I32, ROWS, 0, NULL);
    copy_pair(&p, &y, &x, "scalar");
    twin_free(&p, &x), twin_free(&p, &y);
    pair_close(&p);
}

static void unary_case(pair *p, ct_unary f, ct_dtype t, enum layout lx, enum layout ly)
{
    static const int64_t shape[] = {3, 8, 2, 7};
    double shift = f == CT_UN_LOG || f == CT_UN_SQRT ? 2.2 : 0;
    int needs = unary_needs((int)f);
    twin x = twin_new(p, t, lx, 4, shape), y = twin_new(p, t, ly, 4, shape);
    twin dy = twin_rand(p, t, ly, 4, shape, 3), dx = twin_rand(p, t, lx, 4, shape, 4);

    twin_noise(p, &x, 1, 2, shift);
    pair_ok(p, cti_cuda_unary(p->cuda, f, &y.v, &x.v));
    pair_ok(p, p->be->ew->unary(p->cpu, f, &y.o, &x.o));
    twin_same(p, &y, 1, "unary");
    twin_from_oracle(p, &y); /* the gradient's input is the same on both sides */
    const ct_view *gx = needs == CTI_NEEDS_X ? &x.v : NULL, *ox = gx ? &x.o : NULL;
    const ct_view *gy = needs == CTI_NEEDS_Y ? &y.v : NULL, *oy = gy ? &y.o : NULL;
    for (int beta = 1; beta >= 0; beta--) {
        pair_ok(p, cti_cuda_unary_grad(p->cuda, f, &dx.v, beta, &dy.v, gx, gy));
        pair_ok(p, p->be->ew->unary_grad(p->cpu, f, &dx.o, beta, &dy.o, ox, oy));
        twin_same(p, &dx, 2, "unary_grad");
    }
    pair_ok(p, cti_cuda_unary_grad(p->cuda, f, &dy.v, 0, &dy.v, gx, gy));
    pair_ok(p, p->be->ew->unary_grad(p->cpu, f, &dy.o, 0, &dy.o, ox, oy));
    twin_same(p, &dy, 2, "unary_grad in place");
    twin_free(p, &x), twin_free(p, &y), twin_free(p, &dx), twin_free(p, &dy);
}

Test(cuda_ew, unary)
{
    pair p;
    pair_open(&p);
    for (int f = 0; f < CT_UN_COUNT; f++)
        for (size_t t = 0; t < N(floats); t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l++)
                unary_case(&p, (ct_unary)f, floats[t], (enum layout)(l / LAYOUTS),
                           (enum layout)(l % LAYOUTS));
    pair_close(&p);
}

Test(cuda_ew, unary_of_odd_values)
{
    pair p;
    pair_open(&p);
    p.oracle = CT_F32; /* overflows where ours does */
    for (int f = 0; f < CT_UN_COUNT; f++)
        for (size_t t = 0; t < N(floats); t++) {
            int needs = unary_needs(f);
            twin x = twin_rand(&p, floats[t], ROWS, 1, SHAPE(40), 1);
            twin y = twin_new(&p, floats[t], ROWS, 1, SHAPE(40));
            twin d = twin_rand(&p, floats[t], ROWS, 1, SHAPE(40), 2);
            put_odd(&p, &x);
            pair_ok(&p, cti_cuda_unary(p.cuda, (ct_unary)f, &y.v, &x.v));
            pair_ok(&p, p.be->ew->unary(p.cpu, (ct_unary)f, &y.o, &x.o));
            twin_same(&p, &y, 1, "unary");
            twin_from_oracle(&p, &y);
            const ct_view *gx = needs == CTI_NEEDS_X ? &x.v : NULL, *ox = gx ? &x.o : NULL;
            const ct_view *gy = needs == CTI_NEEDS_Y ? &y.v : NULL, *oy = gy ? &y.o : NULL;
            pair_ok(&p, cti_cuda_unary_grad(p.cuda, (ct_unary)f, &d.v, 0, &d.v, gx, gy));
            pair_ok(&p, p.be->ew->unary_grad(p.cpu, (ct_unary)f, &d.o, 0, &d.o, ox, oy));
            twin_same(&p, &d, 2, "unary_grad");
            twin_free(&p, &x), twin_free(&p, &y), twin_free(&p, &d);
        }
    pair_close(&p);
}

static void binary_on(pair *p, ct_binary f, twin *y, const twin *a, const twin *b, const char *what)
{
    pair_ok(p, cti_cuda_binary(p->cuda, f, &y->v, &a->v, &b->v));
    pair_ok(p, p->be->ew->binary(p->cpu, f, &y->o, &a->o, &b->o));
    twin_same(p, y, 1, what);
}

static void binary_case(pair *p, ct_binary f, ct_dtype t, enum layout la, enum layout lb)
{
    static const int64_t shape[] = {3, 8, 2, 8};
    ct_dtype out = f >= CT_BIN_EQ ? CT_BOOL : t;
    twin a = twin_rand(p, t, la, 4, shape, 1), b = twin_rand(p, t, lb, 4, shape, 2);
    twin y = twin_new(p, out, la, 4, shape), m = twin_rand(p, t, ROWS, 1, SHAPE(64), 3);

    if (f >= CT_BIN_EQ)
        for (int64_t i = 0; i < 60; i += 3)
            twin_put(p, &b, i, i % 2 ? view_get(p, &a.o, i) : NAN);
    twin_upload(p, &b);
    binary_on(p, f, &y, &a, &b, "binary");
    twin row = twin_as(&m, 0, 4, shape, SHAPE(0, 0, 0, 1));
    twin channel = twin_as(&m, 0, 4, shape, SHAPE(0, 1, 0, 0));
    twin one = twin_as(&m, 1, 4, shape, SHAPE(0, 0, 0, 0));
    twin image = twin_as(&m, 1, 4, shape, SHAPE(1, 0, 8, 0));
    binary_on(p, f, &y, &a, &row, "row");
    binary_on(p, f, &y, &channel, &b, "channel");
    binary_on(p, f, &y, &a, &one, "one");
    binary_on(p, f, &y, &one, &image, "image");
    if (out == t) {
        twin_noise(p, &b, 4, 2, 0);
        twin c = b;
        binary_on(p, f, &b, &a, &c, "in place of b");
        twin_noise(p, &a, 5, 2, 0);
        twin_noise(p, &m, 6, 2, 5);
        c = a;
        binary_on(p, f, &a, &c, &channel, "in place of a");
    }
    twin_free(p, &a), twin_free(p, &b), twin_free(p, &y), twin_free(p, &m);
}

Test(cuda_ew, arithmetic)
{
    pair p;
    pair_open(&p);
    for (int f = CT_BIN_ADD; f <= CT_BIN_DIV; f++)
        for (size_t t = 0; t < N(numbers); t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l++)
                if (f != CT_BIN_DIV || (numbers[t] != CT_I32 && numbers[t] != CT_I64))
                    binary_case(&p, (ct_binary)f, numbers[t], (enum layout)(l / LAYOUTS),
                                (enum layout)(l % LAYOUTS));
    pair_close(&p);
}

Test(cuda_ew, comparisons)
{
    pair p;
    pair_open(&p);
    for (int f = CT_BIN_EQ; f <= CT_BIN_GE; f++)
        for (int t = 0; t < CT_DTYPE_COUNT; t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l += 3)
                binary_case(&p, (ct_binary)f, (ct_dtype)t, (enum layout)(l / LAYOUTS),
                            (enum layout)(l % LAYOUTS));
    pair_close(&p);
}

Test(cuda_ew, integers_wrap)
{
    static const ct_dtype types[] = {CT_I32, CT_I64};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(types); t++)
        for (int f = CT_BIN_ADD; f <= CT_BIN_MUL; f++) {
            twin a = twin_new(&p, types[t], ROWS, 1, SHAPE(50));
            twin b = twin_new(&p, types[t], ROWS, 1, SHAPE(50));
            twin_noise(&p, &a, 1, types[t] == CT_I32 ? 2e9 : 9e18, 0);
            twin_noise(&p, &b, 2, types[t] == CT_I32 ? 2e9 : 9e18, 0);
            binary_on(&p, (ct_binary)f, &a, &a, &b, "wrap");
            pair_ok(&p, cti_cuda_affine(p.cuda, &b.v, 1, &a.v, 1e9, -3e9));
            pair_ok(&p, p.be->ew->affine(p.cpu, &b.o, 1, &a.o, 1e9, -3e9));
            twin_same(&p, &b, 0, "affine wraps");
            twin_free(&p, &a), twin_free(&p, &b);
        }
    pair_close(&p);
}

Test(cuda_ew, affine_and_mul_add)
{
    static const int64_t shape[] = {3, 8, 2, 8};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(numbers); t++)
        for (int l = 0; l < LAYOUTS * LAYOUTS; l++)
            for (int beta = 0; beta < 2; beta++) {
                ct_dtype dt = numbers[t];
                enum layout la = (enum layout)(l / LAYOUTS), lb = (enum layout)(l % LAYOUTS);
                twin y = twin_rand(&p, dt, la, 4, shape, 1), x = twin_rand(&p, dt, lb, 4, shape, 2);
                twin z = twin_rand(&p, dt, lb, 4, shape, 3);
                for (int add = 0; add < 2; add++) {
                    pair_ok(&p, cti_cuda_affine(p.cuda, &y.v, beta, &x.v, 3.5, add * -2.25));
                    pair_ok(&p, p.be->ew->affine(p.cpu, &y.o, beta, &x.o, 3.5, add * -2.25));
                    twin_same(&p, &y, 1, "affine");
                    twin_from_oracle(&p, &y);
                }
                pair_ok(&p, cti_cuda_affine(p.cuda, &z.v, beta, &z.v, -1, 0));
                pair_ok(&p, p.be->ew->affine(p.cpu, &z.o, beta, &z.o, -1, 0));
                twin_same(&p, &z, 1, "affine in place");
                twin_noise(&p, &z, 5, 2, 0);
                if (dt != CT_I32 && dt != CT_I64) {
                    twin row = twin_as(&z, 0, 4, shape, SHAPE(0, 0, 0, 1));
                    pair_ok(&p, cti_cuda_mul_add(p.cuda, &y.v, beta, &x.v, &z.v));
                    pair_ok(&p, p.be->ew->mul_add(p.cpu, &y.o, beta, &x.o, &z.o));
                    twin_same(&p, &y, 1, "mul_add");
                    twin_from_oracle(&p, &y);
                    pair_ok(&p, cti_cuda_mul_add(p.cuda, &y.v, beta, &row.v, &x.v));
                    pair_ok(&p, p.be->ew->mul_add(p.cpu, &y.o, beta, &row.o, &x.o));
                    twin_same(&p, &y, 1, "mul_add of a row");
                }
                twin_free(&p, &y), twin_free(&p, &x), twin_free(&p, &z);
            }
    pair_close(&p);
}

Test(cuda_ew, refusals)
{
    pair p;
    pair_open(&p);
    twin f = twin_new(&p, CT_F32, ROWS, 1, SHAPE(4)), d = twin_new(&p, CT_F64, ROWS, 1, SHAPE(4));
    twin i = twin_new(&p, CT_I32, ROWS, 1, SHAPE(4)), b = twin_new(&p, CT_BOOL, ROWS, 1, SHAPE(4));
    twin u = twin_new(&p, CT_U8, ROWS, 1, SHAPE(4));
    ct_view none = f.v;
    none.dtype = CT_DTYPE_COUNT;
    for (int fn = 0; fn < CT_UN_COUNT; fn++) {
        pair_refuses(&p, cti_cuda_unary(p.cuda, (ct_unary)fn, &d.v, &d.v));
        pair_refuses(&p, cti_cuda_unary(p.cuda, (ct_unary)fn, &f.v, &i.v));
        pair_refuses(&p, cti_cuda_unary_grad(p.cuda, (ct_unary)fn, &d.v, 0, &d.v, &d.v, &d.v));
        pair_refuses(&p, cti_cuda_unary_grad(p.cuda, (ct_unary)fn, &f.v, 0, &d.v, &f.v, &f.v));
    }
    cr_assert_eq(cti_cuda_unary(p.cuda, CT_UN_COUNT, &f.v, &f.v), CT_EINVAL);
    cr_assert_eq(cti_cuda_unary_grad(p.cuda, CT_UN_COUNT, &f.v, 0, &f.v, &f.v, &f.v), CT_EINVAL);
    pair_refuses(&p, cti_cuda_unary(p.cuda, CT_UN_COUNT, &d.v, &d.v));
    pair_refuses(&p, cti_cuda_binary(p.cuda, CT_BIN_DIV, &i.v, &i.v, &i.v));
    pair_refuses(&p, cti_cuda_binary(p.cuda, CT_BIN_ADD, &u.v, &u.v, &u.v));
    pair_refuses(&p, cti_cuda_binary(p.cuda, CT_BIN_ADD, &f.v, &f.v, &d.v));
    pair_refuses(&p, cti_cuda_binary(p.cuda, CT_BIN_LT, &f.v, &f.v, &f.v));
    pair_refuses(&p, cti_cuda_affine(p.cuda, &b.v, 0, &b.v, 1, 0));
    pair_refuses(&p, cti_cuda_affine(p.cuda, &f.v, 0, &d.v, 1, 0));
    pair_refuses(&p, cti_cuda_mul_add(p.cuda, &i.v, 0, &i.v, &i.v));
    pair_refuses(&p, cti_cuda_mul_add(p.cuda, &f.v, 0, &f.v, &d.v));
    pair_refuses(&p, cti_cuda_copy(p.cuda, &f.v, &none));
    pair_refuses(&p, cti_cuda_fill(p.cuda, &none, 1));
    twin_free(&p, &f), twin_free(&p, &d), twin_free(&p, &i), twin_free(&p, &b), twin_free(&p, &u);
    pair_close(&p);
}

Test(cuda_ew, a_failed_launch_is_told)
{
    if (!pair_on_double())
        cr_skip_test("not on the software double");
    pair p;
    pair_open(&p);
    twin f = twin_new(&p, CT_F32, ROWS, 1, SHAPE(4));
    pair_fail("launch:1");
    cr_assert_eq(cti_cuda_unary(p.cuda, CT_UN_EXP, &f.v, &f.v), CT_EDEVICE);
    cr_assert(strstr(p.err.text, "exp") != NULL, "%s", p.err.text);
    p.err = (ct_error){0};
    pair_fail("");
    twin_free(&p, &f);
    pair_close(&p);
}
