/* SPDX-License-Identifier: Apache-2.0 */
/* The less often used elementwise functions of the CPU (scalar_math.h), and where. */
#include "backend/cpu/math.h"

#include "backend/cpu/half.h"
#include "backend/scalar_math.h"

#define AT(T, o, i) (*(T *)(p##o + (i)*sp->s[o]))
#define ROWS(sp)    for (int64_t r = 0; r < (sp)->rows; r++)
#define ROW(o)      char *p##o = sp->p[o] + r * sp->rs[o]

typedef struct math_arg {
    double a, b;
    int beta;
} math_arg;

/* ---- one operand ---- */
#define MATH(ID, name, T, S, needs, value, grad)                     \
    static void ma_##name##_##S(const cti_span *sp, const void *arg) \
    {                                                                \
        const math_arg *c = arg;                                     \
        T a = (T)c->a, b = (T)c->b;                                  \
        (void)a, (void)b;                                            \
        ROWS(sp)                                                     \
        {                                                            \
            ROW(0);                                                  \
            ROW(1);                                                  \
            for (int64_t i = 0; i < sp->n; i++) {                    \
                T x = AT(T, 1, i);                                   \
                AT(T, 0, i) = value;                                 \
            }                                                        \
        }                                                            \
    }
#define MATH_GRAD(ID, name, T, S, needs, value, grad)                \
    static void mg_##name##_##S(const cti_span *sp, const void *arg) \
    {                                                                \
        const math_arg *c = arg;                                     \
        T a = (T)c->a, b = (T)c->b;                                  \
        (void)a, (void)b;                                            \
        ROWS(sp)                                                     \
        {                                                            \
            ROW(0);                                                  \
            ROW(1);                                                  \
            ROW(2);                                                  \
            for (int64_t i = 0; i < sp->n; i++) {                    \
                T dy = AT(T, 1, i), x = AT(T, 2, i), y = x;          \
                (void)dy, (void)x, (void)y;                          \
                T g = grad;                                          \
                AT(T, 0, i) = c->beta ? AT(T, 0, i) + g : g;         \
            }                                                        \
        }                                                            \
    }
CTI_MATH_LIST(MATH, float, f32)
CTI_MATH_LIST(MATH, double, f64)
CTI_MATH_LIST(MATH_GRAD, float, f32)
CTI_MATH_LIST(MATH_GRAD, double, f64)
#define ENTRY(ID, name, T, S, needs, value, grad)      [ID] = ma_##name##_##S,
#define GRAD_ENTRY(ID, name, T, S, needs, value, grad) [ID] = mg_##name##_##S,
static const cti_span_fn math_f32[CT_MA_COUNT] = {CTI_MATH_LIST(ENTRY, float, f32)};
static const cti_span_fn math_f64[CT_MA_COUNT] = {CTI_MATH_LIST(ENTRY, double, f64)};
static const cti_span_fn grad_f32[CT_MA_COUNT] = {CTI_MATH_LIST(GRAD_ENTRY, float, f32)};
static const cti_span_fn grad_f64[CT_MA_COUNT] = {CTI_MATH_LIST(GRAD_ENTRY, double, f64)};
#undef MATH
#undef MATH_GRAD
#undef ENTRY
#undef GRAD_ENTRY

CTI_DEFINE_MATH_NEEDS(math_needs)

static bool is_float(const ct_view *v)
{
    return cti_wide_dtype(v->dtype) == CT_F32 || v->dtype == CT_F64;
}

int cti_cpu_math(ct_stream *s, ct_math fn, double a, double b, const ct_view *y, const ct_view *x)
{
    const ct_view *v[] = {y, x};
    math_arg c = {a, b, 0};
    cti_loop l;

    if (!is_float(y) || x->dtype != y->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 2, v);
    if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, false, (y->dtype == CT_F64 ? math_f64 : math_f32)[fn], &c);
    return CT_OK;
}

int cti_cpu_math_grad(ct_stream *s, ct_math fn, double a, double b, const ct_view *dx, int beta,
                      const ct_view *dy, const ct_view *x, const ct_view *y)
{
    int needs = math_needs((int)fn);
    const ct_view *other = needs == CTI_NEEDS_X ? x : needs == CTI_NEEDS_Y ? y : dy;
    const ct_view *v[] = {dx, dy, other};
    math_arg c = {a, b, beta};
    cti_loop l;

    if (!is_float(dx) || dy->dtype != dx->dtype || other->dtype != dx->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 3, v);
    if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, beta != 0, (dx->dtype == CT_F64 ? grad_f64 : grad_f32)[fn], &c);
    return CT_OK;
}

/* ---- two operands ---- */
#define MATH2(ID, name, T, S, value)                                 \
    static void m2_##name##_##S(const cti_span *sp, const void *arg) \
    {                                                                \
        (void)arg;                                                   \
        ROWS(sp)                                                     \
        {                                                            \
            ROW(0);                                                  \
            ROW(1);                                                  \
            ROW(2);                                                  \
            for (int64_t i = 0; i < sp->n; i++) {                    \
                T a = AT(T, 1, i), b = AT(T, 2, i);                  \
                AT(T, 0, i) = value;                                 \
            }                                                        \
        }                                                            \
    }
CTI_MATH2_LIST(MATH2, float, f32)
CTI_MATH2_LIST(MATH2, double, f64)
MATH2(, maximum, int32_t, i32, a > b ? a : b)
MATH2(, maximum, int64_t, i64, a > b ? a : b)
MATH2(, minimum, int32_t, i32, a < b ? a : b)
MATH2(, minimum, int64_t, i64, a < b ? a : b)
MATH2(, and, uint8_t, u8, a &&b)
MATH2(, or, uint8_t, u8, a || b)
MATH2(, xor, uint8_t, u8, !a != !b)
#undef MATH2
#define ENTRY(ID, name, T, S, value) [ID] = m2_##name##_##S,
static const cti_span_fn math2[CT_DTYPE_COUNT][CT_MA2_COUNT] = {
    [CT_F32] = {CTI_MATH2_LIST(ENTRY, float, f32)},
    [CT_F64] = {CTI_MATH2_LIST(ENTRY, double, f64)},
    [CT_I32] = {[CT_MA2_MAXIMUM] = m2_maximum_i32, [CT_MA2_MINIMUM] = m2_minimum_i32},
    [CT_I64] = {[CT_MA2_MAXIMUM] = m2_maximum_i64, [CT_MA2_MINIMUM] = m2_minimum_i64},
    [CT_BOOL] = {[CT_MA2_AND] = m2_and_u8, [CT_MA2_OR] = m2_or_u8, [CT_MA2_XOR] = m2_xor_u8},
};
#undef ENTRY

int cti_cpu_math2(ct_stream *s, ct_math2 fn, const ct_view *y, const ct_view *a, const ct_view *b)
{
    const ct_view *v[] = {y, a, b};
    cti_span_fn f = math2[cti_wide_dtype(y->dtype)][fn];
    cti_loop l;

    if (!f || a->dtype != y->dtype || b->dtype != y->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 3, v);
    if (l.numel > 0)
        cti_loop_run_wide(s, &l, v, false, f, NULL);
    return CT_OK;
}

/* ---- where ---- By the size of an element alone. */
#define WHERE(T)                                                             \
    static void where_##T(const cti_span *sp, const void *arg)               \
    {                                                                        \
        (void)arg;                                                           \
        ROWS(sp)                                                             \
        {                                                                    \
            ROW(0);                                                          \
            ROW(1);                                                          \
            ROW(2);                                                          \
            ROW(3);                                                          \
            for (int64_t i = 0; i < sp->n; i++)                              \
                AT(T, 0, i) = AT(uint8_t, 1, i) ? AT(T, 2, i) : AT(T, 3, i); \
        }                                                                    \
    }
WHERE(uint8_t)
WHERE(uint16_t)
WHERE(uint32_t)
WHERE(uint64_t)
#undef WHERE

int cti_cpu_where(ct_stream *s, const ct_view *y, const ct_view *cond, const ct_view *a,
                  const ct_view *b)
{
    const ct_view *v[] = {y, cond, a, b};
    size_t size = ct_dtype_bytes(y->dtype);
    cti_loop l;

    if (cond->dtype != CT_BOOL || a->dtype != y->dtype || b->dtype != y->dtype)
        return CT_EDTYPE;
    cti_loop_init(&l, 4, v);
    if (l.numel > 0)
        cti_loop_run(s, &l,
                     size == 1 ? where_uint8_t :
                     size == 2 ? where_uint16_t :
                     size == 4 ? where_uint32_t :
                                 where_uint64_t,
                     NULL);
    return CT_OK;
}
