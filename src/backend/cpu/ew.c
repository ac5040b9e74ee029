/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise kernels of the CPU. Each is a loop over a two-dimensional span with a contiguous path that
 * vectorises and a strided one; loop.h brings every layout into that form. */
#include "backend/cpu/copy.h"
#include "backend/cpu/half.h"
#include "backend/cpu/math.h"
#include "backend/scalar.h"

#define AT(T, o, i) (*(T *)(p##o + (i)*sp->s[o]))
#define ROWS(sp)    for (int64_t r = 0; r < (sp)->rows; r++)
#define ROW(o)      char *p##o = sp->p[o] + r * sp->rs[o]
#define DENSE(T, o) (sp->s[o] == (int64_t)sizeof(T))

/* f64 and integers have no clones: they check and index, f32 trains. */
#define ISA_f32 CTI_ISA
#define ISA_f64
#define ISA_i32
#define ISA_i64

/* ---- unary ---- One dense loop per function; other layouts go through buffers. */
typedef void (*dense_fn)(void *out, const void *a, const void *b, int64_t n);

#define UNARY(ID, name, T, S, needs, value, grad)                                           \
    static ISA_##S void un_##name##_##S(void *out, const void *a, const void *b, int64_t n) \
    {                                                                                       \
        T *yv = out;                                                                        \
        const T *xv = a;                                                                    \
        (void)b;                                                                            \
        CTI_VEC                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                   \
            T x = xv[i];                                                                    \
            yv[i] = value;                                                                  \
        }                                                                                   \
    }

/* b is x or y (dy again where neither is read). */
#define UNARY_GRAD(ID, name, T, S, needs, value, grad)                                      \
    static ISA_##S void gr_##name##_##S(void *out, const void *a, const void *b, int64_t n) \
    {                                                                                       \
        T *gv = out;                                                                        \
        const T *dv = a, *bv = b;                                                           \
        CTI_VEC                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                   \
            T dy = dv[i], x = bv[i], y = x;                                                 \
            (void)x, (void)y;                                                               \
            gv[i] = grad;                                                                   \
        }                                                                                   \
    }

CTI_UNARY_LIST(UNARY, float, f32)
CTI_UNARY_LIST(UNARY, double, f64)
CTI_UNARY_LIST(UNARY_GRAD, float, f32)
CTI_UNARY_LIST(UNARY_GRAD, double, f64)

#define ENTRY(ID, name, T, S, needs, value, grad)      [ID] = un_##name##_##S,
#define GRAD_ENTRY(ID, name, T, S, needs, value, grad) [ID] = gr_##name##_##S,
static const dense_fn unary_f32[CT_UN_COUNT] = {CTI_UNARY_LIST(ENTRY, float, f32)};
static const dense_fn unary_f64[CT_UN_COUNT] = {CTI_UNARY_LIST(ENTRY, double, f64)};
static const dense_fn grad_f32[CT_UN_COUNT] = {CTI_UNARY_LIST(GRAD_ENTRY, float, f32)};
static const dense_fn grad_f64[CT_UN_COUNT] = {CTI_UNARY_LIST(GRAD_ENTRY, double, f64)};
#undef UNARY
#undef UNARY_GRAD
#undef ENTRY
#undef GRAD_ENTRY

typedef struct dense_arg {
    dense_fn fn;
    int nin, beta;
} dense_arg;

enum { PIECE = 256 };

#define SPAN(T, S)                                                                           \
    static ISA_##S void add_##S(T *restrict y, const T *restrict x, int64_t n)               \
    {                                                                                        \
        for (int64_t i = 0; i < n; i++)                                                      \
            y[i] += x[i];                                                                    \
    }                                                                                        \
    static void piece_##S(const cti_span *sp, const dense_arg *c, char *const *p, int64_t n) \
    {                                                                                        \
        T in[2][PIECE], out[PIECE];                                                          \
        const void *from[2] = {p[1], p[1]};                                                  \
        for (int o = 1; o <= c->nin; o++) {                                                  \
            from[o - 1] = p[o];                                                              \
            if (DENSE(T, o))                                                                 \
                continue;                                                                    \
            for (int64_t i = 0; i < n; i++)                                                  \
                in[o - 1][i] = *(T *)(p[o] + i * sp->s[o]);                                  \
            from[o - 1] = in[o - 1];                                                         \
        }                                                                                    \
        c->fn(out, from[0], from[1], n);                                                     \
        if (c->beta && DENSE(T, 0)) {                                                        \
            add_##S((T *)p[0], out, n);                                                      \
            return;                                                                          \
        }                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                    \
            T *y = (T *)(p[0] + i * sp->s[0]);                                               \
            *y = c->beta ? *y + out[i] : out[i];                                             \
        }                                                                                    \
    }                                                                                        \
    static void span_##S(const cti_span *sp, const void *arg)                                \
    {                                                                                        \
        const dense_arg *c = arg;                                                            \
        bool dense = c->beta == 0;                                                           \
        for (int o = 0; o <= c->nin; o++)                                                    \
            dense = dense && DENSE(T, o);                                                    \
        ROWS(sp)                                                                             \
        {                                                                                    \
            char *p[3] = {0};                                                                \
            for (int o = 0; o <= c->nin; o++)                                                \
                p[o] = sp->p[o] + r * sp->rs[o];                                             \
            if (dense) {                                                                     \
                c->fn(p[0], p[1], p[c->nin], sp->n);                                         \
                continue;                                                                    \
            }                                                                                \
            for (int64_t i = 0; i < sp->n; i += PIECE) {                                     \
                piece_##S(sp, c, p, CTI_MIN(PIECE, sp->n - i));                              \
                for (int o = 0; o <= c->nin; o++)                                            \
                    p[o] += PIECE * sp->s[o];                                                \
            }                                                                                \
        }                                                                                    \
    }

SPAN(float, f32)
SPAN(double, f64)
#undef SPAN

CTI_DEFINE_UNARY_NEEDS(unary_needs)

static int unary(ct_stream *s, ct_unary fn, const ct_view *y, const ct_view *x)
{
    const ct_view *v[] = {y, x};
    const ct_dtype t = cti_wide_dtype(y->dtype);
    dense_arg c = {(t == CT_F32 ? unary_f32 : unary_f64)[fn], 1, 0};
    cti_loop l;

    if ((t != CT_F32 && t != CT_F64) || x->dtype != y->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 2, v);
    if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, false, t == CT_F32 ? span_f32 : span_f64, &c);
    return CT_OK;
}

static int unary_grad(ct_stream *s, ct_unary fn, const ct_view *dx, int beta, const ct_view *dy,
                      const ct_view *x, const ct_view *y)
{
    int needs = unary_needs((int)fn);
    const ct_view *aux = needs == CTI_NEEDS_X ? x : needs == CTI_NEEDS_Y ? y : dy;
    const ct_view *v[] = {dx, dy, aux};
    const ct_dtype t = cti_wide_dtype(dx->dtype);
    dense_arg c = {(t == CT_F32 ? grad_f32 : grad_f64)[fn], 2, beta};
    cti_loop l;

    if ((t != CT_F32 && t != CT_F64) || dy->dtype != dx->dtype || aux->dtype != dx->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 3, v);
    if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, beta != 0, t == CT_F32 ? span_f32 : span_f64, &c);
    return CT_OK;
}

/* ---- binary arithmetic ---- The paths: both dense, either one the same for a whole row, any strides. */
#define BINARY_LOOP(T, A, B, EXPR)    \
    CTI_VEC                           \
    for (int64_t i = 0; i < n; i++) { \
        T a = A, b = B;               \
        yv[i] = EXPR;                 \
    }

#define BINARY(name, T, S, EXPR)                                              \
    static ISA_##S void bin_##name##_##S(const cti_span *sp, const void *arg) \
    {                                                                         \
        int64_t n = sp->n;                                                    \
        (void)arg;                                                            \
        ROWS(sp)                                                              \
        {                                                                     \
            ROW(0);                                                           \
            ROW(1);                                                           \
            ROW(2);                                                           \
            T *yv = (T *)p0;                                                  \
            const T *av = (const T *)p1, *bv = (const T *)p2;                 \
            if (DENSE(T, 0) && DENSE(T, 1) && DENSE(T, 2)) {                  \
                BINARY_LOOP(T, av[i], bv[i], EXPR)                            \
            } else if (DENSE(T, 0) && DENSE(T, 1) && sp->s[2] == 0) {         \
                T one = *bv;                                                  \
                BINARY_LOOP(T, av[i], one, EXPR)                              \
            } else if (DENSE(T, 0) && sp->s[1] == 0 && DENSE(T, 2)) {         \
                T one = *av;                                                  \
                BINARY_LOOP(T, one, bv[i], EXPR)                              \
            } else {                                                          \
                for (int64_t i = 0; i < n; i++) {                             \
                    T a = AT(T, 1, i), b = AT(T, 2, i);                       \
                    AT(T, 0, i) = EXPR;                                       \
                }                                                             \
            }                                                                 \
        }                                                                     \
    }

/* Integers wrap, as PyTorch's do. There is no integer division here: the op layer casts. */
#define BINARY_FLOAT(T, S)   \
    BINARY(add, T, S, a + b) \
    BINARY(sub, T, S, a - b) \
    BINARY(mul, T, S, a *b)  \
    BINARY(div, T, S, a / b)
#define BINARY_INT(T, U, S)             \
    BINARY(add, T, S, (T)((U)a + (U)b)) \
    BINARY(sub, T, S, (T)((U)a - (U)b)) \
    BINARY(mul, T, S, (T)((U)a * (U)b))

BINARY_FLOAT(float, f32)
BINARY_FLOAT(double, f64)
BINARY_INT(int32_t, uint32_t, i32)
BINARY_INT(int64_t, uint64_t, i64)
#undef BINARY_INT
#undef BINARY_FLOAT
#undef BINARY
#undef BINARY_LOOP

/* ---- comparisons ---- */
CTI_INLINE float same_f32(float x)
{
    return x;
}
CTI_INLINE double same_f64(double x)
{
    return x;
}
CTI_INLINE int64_t same_int(int64_t x)
{
    return x;
}

#define COMPARE_LOOP(T, LOAD, OP)                                       \
    ROWS(sp)                                                            \
    {                                                                   \
        ROW(0);                                                         \
        ROW(1);                                                         \
        ROW(2);                                                         \
        for (int64_t i = 0; i < n; i++)                                 \
            AT(uint8_t, 0, i) = LOAD(AT(T, 1, i)) OP LOAD(AT(T, 2, i)); \
    }                                                                   \
    break;

#define COMPARE(T, S, LOAD)                                  \
    static void cmp_##S(const cti_span *sp, const void *arg) \
    {                                                        \
        int64_t n = sp->n;                                   \
        switch (*(const ct_binary *)arg) {                   \
        case CT_BIN_EQ:                                      \
            COMPARE_LOOP(T, LOAD, ==)                        \
        case CT_BIN_NE:                                      \
            COMPARE_LOOP(T, LOAD, !=)                        \
        case CT_BIN_LT:                                      \
            COMPARE_LOOP(T, LOAD, <)                         \
        case CT_BIN_LE:                                      \
            COMPARE_LOOP(T, LOAD, <=)                        \
        case CT_BIN_GT:                                      \
            COMPARE_LOOP(T, LOAD, >)                         \
        case CT_BIN_GE:                                      \
            COMPARE_LOOP(T, LOAD, >=)                        \
        default:                                             \
            break;                                           \
        }                                                    \
    }

COMPARE(uint8_t, u8, same_int)
COMPARE(int32_t, i32, same_int)
COMPARE(int64_t, i64, same_int)
COMPARE(uint16_t, f16, cti_f32_from_f16)
COMPARE(uint16_t, bf16, cti_f32_from_bf16)
COMPARE(float, f32, same_f32)
COMPARE(double, f64, same_f64)
#undef COMPARE
#undef COMPARE_LOOP

static const cti_span_fn compare[CT_DTYPE_COUNT] = {
    [CT_BOOL] = cmp_u8, [CT_U8] = cmp_u8,     [CT_I32] = cmp_i32, [CT_I64] = cmp_i64,
    [CT_F16] = cmp_f16, [CT_BF16] = cmp_bf16, [CT_F32] = cmp_f32, [CT_F64] = cmp_f64,
};

static const cti_span_fn arithmetic[CT_DTYPE_COUNT][4] = {
    [CT_F32] = {bin_add_f32, bin_sub_f32, bin_mul_f32, bin_div_f32},
    [CT_F64] = {bin_add_f64, bin_sub_f64, bin_mul_f64, bin_div_f64},
    [CT_I32] = {bin_add_i32, bin_sub_i32, bin_mul_i32, NULL},
    [CT_I64] = {bin_add_i64, bin_sub_i64, bin_mul_i64, NULL},
};

static int binary(ct_stream *s, ct_binary fn, const ct_view *y, const ct_view *a, const ct_view *b)
{
    const ct_view *v[] = {y, a, b};
    bool comparing = fn >= CT_BIN_EQ;
    cti_span_fn f = comparing ? compare[a->dtype] : arithmetic[cti_wide_dtype(a->dtype)][fn];
    cti_loop l;

    if (!f || a->dtype != b->dtype || y->dtype != (comparing ? CT_BOOL : a->dtype))
        return CT_EDTYPE;
    cti_loop_init(&l, 3, v);
    if (l.numel > 0 && comparing)
        cti_loop_run(s, &l, f, &fn);
    else if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, false, f, NULL);
    return CT_OK;
}

/* ---- affine, mul_add ---- */
typedef struct affine_arg {
    double mul, add;
    int64_t imul, iadd;
    int beta;
} affine_arg;

/* Without `add` nothing is added, so that -0 stays -0. */
#define AFFINE(T, S)                                                                               \
    CTI_INLINE void affine_row_##S(T *y, const T *x, int64_t n, T mul, T add, int beta, bool adds) \
    {                                                                                              \
        CTI_VEC                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T v = x[i] * mul;                                                                      \
            v = adds ? v + add : v;                                                                \
            y[i] = beta ? y[i] + v : v;                                                            \
        }                                                                                          \
    }                                                                                              \
    static ISA_##S void affine_##S(const cti_span *sp, const void *arg)                            \
    {                                                                                              \
        const affine_arg *c = arg;                                                                 \
        T mul = (T)c->mul, add = (T)c->add;                                                        \
        int64_t n = sp->n;                                                                         \
        ROWS(sp)                                                                                   \
        {                                                                                          \
            ROW(0);                                                                                \
            ROW(1);                                                                                \
            T *yv = (T *)p0;                                                                       \
            const T *xv = (const T *)p1;                                                           \
            if (!DENSE(T, 0) || !DENSE(T, 1)) {                                                    \
                for (int64_t i = 0; i < n; i++) {                                                  \
                    T v = AT(T, 1, i) * mul;                                                       \
                    v = add != 0 ? v + add : v;                                                    \
                    AT(T, 0, i) = c->beta ? AT(T, 0, i) + v : v;                                   \
                }                                                                                  \
            } else if (c->beta) {                                                                  \
                if (add != 0)                                                                      \
                    affine_row_##S(yv, xv, n, mul, add, 1, true);                                  \
                else                                                                               \
                    affine_row_##S(yv, xv, n, mul, add, 1, false);                                 \
            } else if (add != 0) {                                                                 \
                affine_row_##S(yv, xv, n, mul, add, 0, true);                                      \
            } else {                                                                               \
                affine_row_##S(yv, xv, n, mul, add, 0, false);                                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static ISA_##S void mul_add_##S(const cti_span *sp, const void *arg)                           \
    {                                                                                              \
        int beta = *(const int *)arg;                                                              \
        int64_t n = sp->n;                                                                         \
        ROWS(sp)                                                                                   \
        {                                                                                          \
            ROW(0);                                                                                \
            ROW(1);                                                                                \
            ROW(2);                                                                                \
            T *yv = (T *)p0;                                                                       \
            const T *av = (const T *)p1, *bv = (const T *)p2;                                      \
            if (DENSE(T, 0) && DENSE(T, 1) && DENSE(T, 2)) {                                       \
                CTI_VEC                                                                            \
                for (int64_t i = 0; i < n; i++)                                                    \
                    yv[i] = (beta ? yv[i] : 0) + av[i] * bv[i];                                    \
            } else if (DENSE(T, 0) && DENSE(T, 1) && sp->s[2] == 0) {                              \
                T one = *bv;                                                                       \
                CTI_VEC                                                                            \
                for (int64_t i = 0; i < n; i++)                                                    \
                    yv[i] = (beta ? yv[i] : 0) + av[i] * one;                                      \
            } else {                                                                               \
                for (int64_t i = 0; i < n; i++)                                                    \
                    AT(T, 0, i) = (beta ? AT(T, 0, i) : 0) + AT(T, 1, i) * AT(T, 2, i);            \
            }                                                                                      \
        }                                                                                          \
    }

AFFINE(float, f32)
AFFINE(double, f64)
#undef AFFINE

#define AFFINE_INT(T, S)                                                    \
    static void affine_##S(const cti_span *sp, const void *arg)             \
    {                                                                       \
        const affine_arg *c = arg;                                          \
        uint64_t mul = (uint64_t)c->imul, add = (uint64_t)c->iadd;          \
        ROWS(sp)                                                            \
        {                                                                   \
            ROW(0);                                                         \
            ROW(1);                                                         \
            for (int64_t i = 0; i < sp->n; i++) {                           \
                uint64_t v = (uint64_t)AT(T, 1, i) * mul + add;             \
                AT(T, 0, i) = (T)(c->beta ? (uint64_t)AT(T, 0, i) + v : v); \
            }                                                               \
        }                                                                   \
    }

AFFINE_INT(int32_t, i32)
AFFINE_INT(int64_t, i64)
#undef AFFINE_INT

static int affine(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double mul,
                  double add)
{
    static const cti_span_fn f[CT_DTYPE_COUNT] = {
        [CT_F32] = affine_f32, [CT_F64] = affine_f64, [CT_I32] = affine_i32, [CT_I64] = affine_i64};
    const ct_view *v[] = {y, x};
    affine_arg c = {mul, add, cti_i64_from_f64(mul), cti_i64_from_f64(add), beta};
    cti_span_fn fn = f[cti_wide_dtype(y->dtype)];
    cti_loop l;

    if (!fn || x->dtype != y->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 2, v);
    if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, beta != 0, fn, &c);
    return CT_OK;
}

static int mul_add(ct_stream *s, const ct_view *y, int beta, const ct_view *a, const ct_view *b)
{
    const ct_view *v[] = {y, a, b};
    const ct_dtype t = cti_wide_dtype(y->dtype);
    cti_loop l;

    if ((t != CT_F32 && t != CT_F64) || a->dtype != y->dtype || b->dtype != y->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 3, v);
    /* The one-value path is for b. */
    if (l.stride[1][l.ndim - 1] == 0) {
        v[1] = b;
        v[2] = a;
        cti_loop_init(&l, 3, v);
    }
    if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, beta != 0, t == CT_F32 ? mul_add_f32 : mul_add_f64, &beta);
    return CT_OK;
}

const ct_k_ew cti_cpu_ew = {
    .copy = cti_cpu_copy,
    .fill = cti_cpu_fill,
    .unary = unary,
    .unary_grad = unary_grad,
    .binary = binary,
    .affine = affine,
    .mul_add = mul_add,
    .math = cti_cpu_math,
    .math_grad = cti_cpu_math_grad,
    .math2 = cti_cpu_math2,
    .where = cti_cpu_where,
};
