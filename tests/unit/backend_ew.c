/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_test.h"

#define EW (&cti_cpu_ew)

TestSuite(backend_ew);

/* The functions of libm's that ours can be measured against. Others have their oracle in the op harness; here
 * their f64 kernel stands for them. */
static double value_of(ct_unary f, double x)
{
    const double pi = 3.14159265358979323846;
    switch (f) {
    case CT_UN_NEG:
        return -x;
    case CT_UN_ABS:
        return fabs(x);
    case CT_UN_EXP:
        return exp(x);
    case CT_UN_LOG:
        return log(x);
    case CT_UN_SQRT:
        return sqrt(x);
    case CT_UN_SQUARE:
        return x * x;
    case CT_UN_RELU:
        return x > 0 || isnan(x) ? x : 0;
    case CT_UN_GELU:
        return x * 0.5 * (1 + erf(x / sqrt(2)));
    case CT_UN_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
    case CT_UN_SILU:
        return x / (1 + exp(-x));
    case CT_UN_SIGMOID:
        return 1 / (1 + exp(-x));
    case CT_UN_TANH:
        return tanh(x);
    default: {
        double y;
        ct_stream s = stream_of(1);
        ct_view vx = {.data = &x, .dtype = CT_F64}, vy = {.data = &y, .dtype = CT_F64};
        cr_assert_eq(EW->unary(&s, f, &vy, &vx), CT_OK);
        return y;
    }
    }
}

/* By central differences, so that a wrong constant can't be wrong twice. */
static double slope_of(ct_unary f, double x)
{
    double h = 1e-5;
    return (value_of(f, x - 2 * h) - 8 * value_of(f, x - h) + 8 * value_of(f, x + h) -
            value_of(f, x + 2 * h)) /
           (12 * h);
}

static void unary_case(ct_unary f, ct_dtype t, enum layout lx, enum layout ly)
{
    const int64_t shape[] = {3, 5, 2, 7};
    ct_stream s = stream_of(1);
    tv x = tv_rand(t, lx, 4, shape, 1), y = tv_new(t, ly, 4, shape),
       dy = tv_rand(t, ly, 4, shape, 2);
    tv dx = tv_rand(t, lx, 4, shape, 3);
    char what[64];

    if (f == CT_UN_LOG || f == CT_UN_SQRT)
        tv_noise(&x, 1, 0.9, 1);
    snprintf(what, sizeof what, "unary %d dtype %d layouts %d %d", (int)f, (int)t, (int)lx,
             (int)ly);
    cr_assert_eq(EW->unary(&s, f, &y.v, &x.v), CT_OK);
    for (int64_t i = 0; i < ct_view_numel(&x.v); i++)
        expect_near(get(&y.v, i), value_of(f, get(&x.v, i)), tol_of(t), what, i);
    for (int beta = 0; beta < 2; beta++) {
        tv g = tv_rand(t, lx, 4, shape, 3);
        cr_assert_eq(EW->unary_grad(&s, f, &g.v, beta, &dy.v, &x.v, &y.v), CT_OK);
        for (int64_t i = 0; i < ct_view_numel(&x.v); i++) {
            double want = beta * get(&dx.v, i) + get(&dy.v, i) * slope_of(f, get(&x.v, i));
            expect_near(get(&g.v, i), want, t == CT_F64 ? 1e-9 : 4e-6, what, i);
        }
        tv_free(&g);
    }
    tv_free(&x), tv_free(&y), tv_free(&dy), tv_free(&dx);
}

Test(backend_ew, unary_all_layouts)
{
    for (int f = 0; f < CT_UN_COUNT; f++)
        for (int lx = 0; lx < LAYOUTS; lx++)
            for (int ly = 0; ly < LAYOUTS; ly++) {
                unary_case((ct_unary)f, CT_F32, (enum layout)lx, (enum layout)ly);
                unary_case((ct_unary)f, CT_F64, (enum layout)lx, (enum layout)ly);
            }
}

/* The f32 functions over their whole range, in units of the last place. */
Test(backend_ew, f32_functions_are_accurate)
{
    enum { N = 4096 };
    static const ct_unary fs[] = {CT_UN_EXP, CT_UN_TANH, CT_UN_SIGMOID};
    static float x[N], y[N];
    ct_stream s = stream_of(1);
    ct_view xv = {x, CT_F32, 1, {N}, {1}}, yv = {y, CT_F32, 1, {N}, {1}};

    for (size_t k = 0; k < sizeof fs / sizeof *fs; k++)
        for (int pass = 0; pass < 64; pass++) {
            double scale = pass < 32 ? 100 : 1, worst = 0;
            for (int i = 0; i < N; i++)
                x[i] = (float)(noise((uint64_t)pass, i) * scale);
            EW->unary(&s, fs[k], &yv, &xv);
            for (int i = 0; i < N; i++) {
                double want = value_of(fs[k], (double)x[i]);
                double ulp = fmax(
                    fabs((double)nextafterf((float)fabs(want), INFINITY) - fabs(want)), 0x1p-149);
                ulp = fmax(ulp, ldexp(fabs(want), -24));
                if (fabs(want) < 0x1p-126) /* 1 / (1 + inf) where PyTorch has it too */
                    cr_assert_lt(fabs((double)y[i]), 0x1p-125);
                else if (isfinite((float)want))
                    worst = fmax(worst, fabs((double)y[i] - want) / ulp);
                else
                    cr_assert_eq(y[i], (float)want);
            }
            cr_assert_lt(worst, 6, "function %d: %g ulp", (int)fs[k], worst);
        }
}

Test(backend_ew, edges)
{
    float x[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 88.7228f, 88.8f, -87.5f, -103.9f, -104.5f};
    enum { N = sizeof x / sizeof *x };
    float y[N], dy[N], dx[N];
    ct_stream s = stream_of(1);
    ct_view xv = {x, CT_F32, 1, {N}, {1}}, yv = {y, CT_F32, 1, {N}, {1}};
    ct_view dyv = {dy, CT_F32, 1, {N}, {1}}, dxv = {dx, CT_F32, 1, {N}, {1}};

    for (int i = 0; i < N; i++)
        dy[i] = 1;
    EW->unary(&s, CT_UN_EXP, &yv, &xv);
    for (int i = 0; i < N; i++)
        expect_near((double)y[i], (double)expf(x[i]), 1e-6, "exp", i);
    cr_assert_eq(y[0], 1);
    cr_assert_gt(y[7], 0); /* a denormal */
    cr_assert_lt(y[7], 1.1754944e-38f * 1.1f);
    EW->unary(&s, CT_UN_TANH, &yv, &xv);
    for (int i = 0; i < N; i++)
        expect_near((double)y[i], tanh((double)x[i]), 1e-6, "tanh", i);
    /* relu: NaN passes, with gradient 1; 0 at 0 */
    EW->unary(&s, CT_UN_RELU, &yv, &xv);
    EW->unary_grad(&s, CT_UN_RELU, &dxv, 0, &dyv, NULL, &yv);
    cr_assert(isnan(y[4]) && dx[4] == 1 && dx[0] == 0 && dx[1] == 0 && y[3] == 0 && dx[2] == 1);
    EW->unary_grad(&s, CT_UN_ABS, &dxv, 0, &dyv, &xv, NULL);
    cr_assert(dx[0] == 0 && dx[1] == 0 && dx[2] == 1 && dx[3] == -1);
    EW->unary(&s, CT_UN_SQRT, &yv, &xv);
    EW->unary_grad(&s, CT_UN_SQRT, &dxv, 0, &dyv, NULL, &yv);
    cr_assert(isinf(dx[0]) && isnan(y[3]));
    EW->unary_grad(&s, CT_UN_LOG, &dxv, 0, &dyv, &xv, NULL);
    cr_assert(dx[0] == INFINITY);
    /* PyTorch: gelu(-1), gelu(.5), both forms */
    double a[] = {-1, 0.5, 3}, b[3];
    ct_view av = {a, CT_F64, 1, {3}, {1}}, bv = {b, CT_F64, 1, {3}, {1}};
    EW->unary(&s, CT_UN_GELU, &bv, &av);
    expect_near(b[0], -0.15865525393145702, 1e-15, "gelu", 0);
    expect_near(b[1], 0.34573123063700656, 1e-15, "gelu", 1);
    expect_near(b[2], 2.99595030590511, 1e-14, "gelu", 2);
    EW->unary(&s, CT_UN_GELU_TANH, &bv, &av);
    expect_near(b[0], -0.15880800939172324, 1e-15, "gelu tanh", 0);
    expect_near(b[1], 0.34571400982514394, 1e-15, "gelu tanh", 1);
    expect_near(b[2], 2.996362607918227, 1e-14, "gelu tanh", 2);
}

static double binary_of(ct_binary f, double a, double b)
{
    switch (f) {
    case CT_BIN_ADD:
        return a + b;
    case CT_BIN_SUB:
        return a - b;
    case CT_BIN_MUL:
        return a * b;
    case CT_BIN_DIV:
        return a / b;
    case CT_BIN_EQ:
        return a == b;
    case CT_BIN_NE:
        return a != b;
    case CT_BIN_LT:
        return a < b;
    case CT_BIN_LE:
        return a <= b;
    case CT_BIN_GT:
        return a > b;
    default:
        return a >= b;
    }
}

/* Dimensions of b in `broadcast` have size 1, read with stride 0. */
static void binary_case(ct_dtype t, enum layout la, enum layout lb, unsigned broadcast)
{
    const int64_t shape[] = {4, 3, 5, 6};
    int64_t small[4];
    ct_stream s = stream_of(1);
    for (int d = 0; d < 4; d++)
        small[d] = broadcast >> d & 1 ? 1 : shape[d];
    tv a = tv_new(t, la, 4, shape), b = tv_new(t, lb, 4, small);
    tv_noise(&a, 1, 5, 0);
    tv_noise(&b, 2, 5, 0);
    ct_view bw = b.v;
    for (int d = 0; d < 4; d++)
        if (broadcast >> d & 1) {
            bw.shape[d] = shape[d];
            bw.stride[d] = 0;
        }
    for (int f = 0; f < CT_BIN_COUNT; f++) {
        bool cmp = f >= CT_BIN_EQ, none = f < CT_BIN_EQ && t == CT_U8;
        tv y = tv_new(cmp ? CT_BOOL : t, la, 4, shape);
        none = none || (f == CT_BIN_DIV && (t == CT_I32 || t == CT_I64));
        cr_assert_eq(EW->binary(&s, (ct_binary)f, &y.v, &a.v, &bw), none ? CT_EDTYPE : CT_OK);
        for (int64_t i = 0; i < ct_view_numel(&y.v) && !none; i++)
            expect_near(get(&y.v, i), binary_of((ct_binary)f, get(&a.v, i), get(&bw, i)), tol_of(t),
                        "binary", i);
        if (!none && !cmp) { /* the other way round, and in place */
            cr_assert_eq(EW->binary(&s, (ct_binary)f, &y.v, &bw, &a.v), CT_OK);
            for (int64_t i = 0; i < ct_view_numel(&y.v); i++)
                expect_near(get(&y.v, i), binary_of((ct_binary)f, get(&bw, i), get(&a.v, i)),
                            tol_of(t), "binary swapped", i);
            EW->copy(&s, &y.v, &a.v);
            cr_assert_eq(EW->binary(&s, (ct_binary)f, &y.v, &y.v, &bw), CT_OK);
            for (int64_t i = 0; i < ct_view_numel(&y.v); i++)
                expect_near(get(&y.v, i), binary_of((ct_binary)f, get(&a.v, i), get(&bw, i)),
                            tol_of(t), "binary in place", i);
        }
        tv_free(&y);
    }
    if (t == CT_F32 || t == CT_F64)
        for (int beta = 0; beta < 2; beta++) {
            tv y = tv_rand(t, la, 4, shape, 7), was = tv_rand(t, la, 4, shape, 7);
            cr_assert_eq(EW->mul_add(&s, &y.v, beta, beta ? &bw : &a.v, beta ? &a.v : &bw), CT_OK);
            for (int64_t i = 0; i < ct_view_numel(&y.v); i++)
                expect_near(get(&y.v, i), beta * get(&was.v, i) + get(&a.v, i) * get(&bw, i),
                            tol_of(t), "mul_add", i);
            tv_free(&y), tv_free(&was);
        }
    tv_free(&a), tv_free(&b);
}

Test(backend_ew, binary_all_dtypes_and_broadcasts)
{
    static const ct_dtype types[] = {CT_F32, CT_F64, CT_I32, CT_I64, CT_U8, CT_F16, CT_BF16};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        for (unsigned b = 0; b < 16; b++)
            for (int l = 0; l < LAYOUTS; l++)
                binary_case(types[k], (enum layout)l, (enum layout)((l + 1) % LAYOUTS), b);
    for (unsigned b = 0; b < 16; b++)
        binary_case(CT_F32, LAST, LAST, b);
}

Test(backend_ew, comparison_with_nan_is_false_but_for_ne)
{
    float a[] = {NAN}, b[] = {1};
    uint8_t y = 9;
    ct_stream s = stream_of(1);
    ct_view av = {a, CT_F32, 0, {0}, {0}}, bv = {b, CT_F32, 0, {0}, {0}},
            yv = {&y, CT_BOOL, 0, {0}, {0}};
    for (int f = CT_BIN_EQ; f < CT_BIN_COUNT; f++) {
        EW->binary(&s, (ct_binary)f, &yv, &av, &bv);
        cr_assert_eq(y, f == CT_BIN_NE);
    }
}

Test(backend_ew, affine)
{
    static const ct_dtype types[] = {CT_F32, CT_F64, CT_I32, CT_I64};
    ct_stream s = stream_of(1);
    for (size_t k = 0; k < 4; k++)
        for (int lay = 0; lay < LAYOUTS; lay++)
            for (int c = 0; c < 4; c++) {
                tv x = tv_new(types[k], (enum layout)lay, 3, SHAPE(3, 4, 37));
                tv y = tv_new(types[k], ROWS, 3, SHAPE(3, 4, 37));
                tv_noise(&x, 1, 9, 0);
                for (int64_t i = 0; i < 3 * 4 * 37; i++)
                    put(&y.v, i, 5);
                cr_assert_eq(EW->affine(&s, &y.v, c & 1, &x.v, -3, c & 2 ? 2 : 0), CT_OK);
                for (int64_t i = 0; i < 3 * 4 * 37; i++)
                    expect_near(get(&y.v, i), (c & 1 ? 5 : 0) + -3 * get(&x.v, i) + (c & 2 ? 2 : 0),
                                tol_of(types[k]), "affine", i);
                tv_free(&x), tv_free(&y);
            }
    float zero = -0.0f;
    ct_view z = {&zero, CT_F32, 0, {0}, {0}};
    EW->affine(&s, &z, 0, &z, 1, 0);
    cr_assert(signbit(zero));
}

static double converted(ct_dtype d, double x)
{
    switch (d) {
    case CT_BOOL:
        return x != 0;
    case CT_U8:
        return (uint8_t)(int64_t)x;
    case CT_I32:
    case CT_I64:
        return trunc(x);
    default:
        return x; /* the values are exact in all float types */
    }
}

Test(backend_ew, copy_all_dtypes_all_layouts)
{
    ct_stream s = stream_of(1);
    for (int d = 0; d < CT_DTYPE_COUNT; d++)
        for (int t = 0; t < CT_DTYPE_COUNT; t++)
            for (int l = 0; l < LAYOUTS * LAYOUTS; l++) {
                const int64_t shape[] = {2, 19, 3, 18};
                tv x = tv_new((ct_dtype)t, (enum layout)(l / LAYOUTS), 4, shape);
                tv y = tv_new((ct_dtype)d, (enum layout)(l % LAYOUTS), 4, shape);
                for (int64_t i = 0; i < ct_view_numel(&x.v); i++)
                    put(&x.v, i, t == CT_BOOL ? (double)(i % 2) : (double)(i * 7 % 120) / 4);
                cr_assert_eq(EW->copy(&s, &y.v, &x.v), CT_OK);
                for (int64_t i = 0; i < ct_view_numel(&x.v); i++)
                    expect_near(get(&y.v, i), converted((ct_dtype)d, get(&x.v, i)), 0, "copy", i);
                tv_free(&x), tv_free(&y);
            }
}

Test(backend_ew, copy_broadcasts_and_fill)
{
    ct_stream s = stream_of(1);
    for (int t = 0; t < CT_DTYPE_COUNT; t++) {
        tv y = tv_new((ct_dtype)t, GAPS, 3, SHAPE(3, 5, 4)), x = tv_new(CT_F32, ROWS, 1, SHAPE(5));
        ct_view b = {x.mem, CT_F32, 3, {3, 5, 4}, {0, 1, 0}};
        for (int64_t i = 0; i < 5; i++)
            put(&x.v, i, (double)i);
        cr_assert_eq(EW->copy(&s, &y.v, &b), CT_OK);
        for (int64_t i = 0; i < 60; i++)
            cr_assert_eq(get(&y.v, i), converted((ct_dtype)t, (double)(i / 4 % 5)));
        cr_assert_eq(EW->fill(&s, &y.v, 1), CT_OK);
        for (int64_t i = 0; i < 60; i++)
            cr_assert_eq(get(&y.v, i), 1);
        tv_free(&x), tv_free(&y);
    }
}

/* Every f16 goes to f32 and back; rounding to nearest even by hand. */
Test(backend_ew, half_floats)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = cti_f32_from_f16((uint16_t)h);
        int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
        double want = e == 0  ? ldexp(m, -24) :
                      e == 31 ? (m ? NAN : INFINITY) :
                                ldexp(1024 + m, e - 25);
        if (h >> 15)
            want = -want;
        cr_assert(near((double)f, want, 0));
        if (!isnan(f))
            cr_assert_eq(cti_f16_from_f32(f), h);
        else
            cr_assert(isnan(cti_f32_from_f16(cti_f16_from_f32(f))));
        float b = cti_f32_from_bf16((uint16_t)h);
        if (!isnan(b))
            cr_assert_eq(cti_bf16_from_f32(b), h);
        else
            cr_assert(isnan(cti_f32_from_bf16(cti_bf16_from_f32(b))));
        if (h < 0x7bff && h > 0) { /* the middle between neighbours goes to the even one */
            float mid = (float)(((double)cti_f32_from_f16((uint16_t)h) +
                                 (double)cti_f32_from_f16((uint16_t)(h + 1))) /
                                2);
            uint16_t even = (uint16_t)(h + (h & 1));
            cr_assert_eq(cti_f16_from_f32(mid), even);
            cr_assert_eq(cti_f16_from_f32(nextafterf(mid, 1e9f)), h + 1);
            cr_assert_eq(cti_f16_from_f32(nextafterf(mid, 0)), h);
        }
    }
    /* PyTorch's */
    cr_assert_eq(cti_f32_from_bf16(cti_bf16_from_f32(1.00390625f)), 1.0f);
    cr_assert_eq(cti_f32_from_bf16(cti_bf16_from_f32(1.01171875f)), 1.015625f);
    cr_assert_eq(cti_f32_from_f16(cti_f16_from_f32(65504)), 65504);
    cr_assert_eq(cti_f32_from_f16(cti_f16_from_f32(65519)), 65504);
    cr_assert(isinf(cti_f32_from_f16(cti_f16_from_f32(65520))));
    cr_assert(isinf(cti_f32_from_bf16(cti_bf16_from_f32(3.4e38f))));
}

Test(backend_ew, empty_and_scalar)
{
    ct_stream s = stream_of(1);
    ct_view e = {NULL, CT_F32, 2, {0, 3}, {3, 1}};
    cr_assert_eq(EW->copy(&s, &e, &e), CT_OK);
    cr_assert_eq(EW->fill(&s, &e, 1), CT_OK);
    cr_assert_eq(EW->unary(&s, CT_UN_EXP, &e, &e), CT_OK);
    cr_assert_eq(EW->unary_grad(&s, CT_UN_EXP, &e, 1, &e, &e, &e), CT_OK);
    cr_assert_eq(EW->binary(&s, CT_BIN_ADD, &e, &e, &e), CT_OK);
    cr_assert_eq(EW->affine(&s, &e, 0, &e, 1, 1), CT_OK);
    cr_assert_eq(EW->mul_add(&s, &e, 0, &e, &e), CT_OK);
    double x = 2, y = 0;
    ct_view a = {&x, CT_F64, 0, {0}, {0}}, b = {&y, CT_F64, 0, {0}, {0}};
    cr_assert_eq(EW->unary(&s, CT_UN_SQUARE, &b, &a), CT_OK);
    cr_assert_eq(y, 4);
    ct_view h = {&x, CT_I64, 0, {0}, {0}};
    cr_assert_eq(EW->unary(&s, CT_UN_EXP, &h, &h), CT_EDTYPE);
}

Test(backend_ew, same_bytes_for_any_threads)
{
    const int64_t shape[] = {9, 17, 31, 13};
    for (int f = 0; f < CT_UN_COUNT; f++) {
        tv x = tv_rand(CT_F32, LAST, 4, shape, 1), y[3];
        for (int t = 0; t < 3; t++) {
            ct_stream s = stream_of(t + 1);
            y[t] = tv_new(CT_F32, f % 2 ? LAST : REVERSED, 4, shape);
            cr_assert_eq(EW->unary(&s, (ct_unary)f, &y[t].v, &x.v), CT_OK);
            cr_assert(memcmp(y[t].mem, y[0].mem, y[0].bytes) == 0);
        }
        for (int t = 0; t < 3; t++)
            tv_free(&y[t]);
        tv_free(&x);
    }
}
