/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/copy.h"
#include "backend/cpu/loop.h"

#define AT(T, o, i) (*(T *)(p##o + (i)*sp->s[o]))
#define ROW(o)      char *p##o = sp->p[o] + r * sp->rs[o]
#define DENSE(T, o) (sp->s[o] == (int64_t)sizeof(T))

/* ---- same dtype ---- */
enum { TILE = 16 };

/* Rows are dense on one side, columns on the other: in tiles, so that both sides use whole cache lines. */
#define TRANSPOSE(T)                                                          \
    static void transpose_##T(const cti_span *sp)                             \
    {                                                                         \
        for (int64_t r0 = 0; r0 < sp->rows; r0 += TILE)                       \
            for (int64_t i0 = 0; i0 < sp->n; i0 += TILE)                      \
                for (int64_t r = r0; r < CTI_MIN(r0 + TILE, sp->rows); r++) { \
                    ROW(0);                                                   \
                    ROW(1);                                                   \
                    for (int64_t i = i0; i < CTI_MIN(i0 + TILE, sp->n); i++)  \
                        AT(T, 0, i) = AT(T, 1, i);                            \
                }                                                             \
    }

#define MOVE(T)                                                                   \
    TRANSPOSE(T)                                                                  \
    static CTI_ISA void move_##T(const cti_span *sp, const void *arg)             \
    {                                                                             \
        (void)arg;                                                                \
        if (sp->rows >= TILE && sp->n >= TILE && !DENSE(T, 1) && sp->s[1] != 0 && \
            sp->rs[1] == (int64_t)sizeof(T)) {                                    \
            transpose_##T(sp);                                                    \
            return;                                                               \
        }                                                                         \
        for (int64_t r = 0; r < sp->rows; r++) {                                  \
            ROW(0);                                                               \
            ROW(1);                                                               \
            if (DENSE(T, 0) && DENSE(T, 1)) {                                     \
                memcpy(p0, p1, (size_t)sp->n * sizeof(T));                        \
            } else if (DENSE(T, 0) && sp->s[1] == 0) {                            \
                T v = *(T *)p1, *y = (T *)p0;                                     \
                CTI_VEC                                                           \
                for (int64_t i = 0; i < sp->n; i++)                               \
                    y[i] = v;                                                     \
            } else {                                                              \
                for (int64_t i = 0; i < sp->n; i++)                               \
                    AT(T, 0, i) = AT(T, 1, i);                                    \
            }                                                                     \
        }                                                                         \
    }

MOVE(uint8_t)
MOVE(uint16_t)
MOVE(uint32_t)
MOVE(uint64_t)
#undef MOVE
#undef TRANSPOSE

static cti_span_fn move_of(ct_dtype t)
{
    switch (ct_dtype_bytes(t)) {
    case 1:
        return move_uint8_t;
    case 2:
        return move_uint16_t;
    case 4:
        return move_uint32_t;
    default:
        return move_uint64_t;
    }
}

/* ---- conversions ---- Through f32 where both sides fit in it, else through f64 or i64: what PyTorch does
 * (f64 to f16 rounds twice there too). An integer narrows by dropping bits. */
#define CONVERT(DST, SRC, D, S, EXPR)                                         \
    static CTI_ISA void cv_##DST##_##SRC(const cti_span *sp, const void *arg) \
    {                                                                         \
        (void)arg;                                                            \
        for (int64_t r = 0; r < sp->rows; r++) {                              \
            ROW(0);                                                           \
            ROW(1);                                                           \
            if (DENSE(D, 0) && DENSE(S, 1)) {                                 \
                D *y = (D *)p0;                                               \
                const S *xv = (const S *)p1;                                  \
                CTI_VEC                                                       \
                for (int64_t i = 0; i < sp->n; i++) {                         \
                    S x = xv[i];                                              \
                    y[i] = (D)(EXPR);                                         \
                }                                                             \
            } else {                                                          \
                for (int64_t i = 0; i < sp->n; i++) {                         \
                    S x = AT(S, 1, i);                                        \
                    AT(D, 0, i) = (D)(EXPR);                                  \
                }                                                             \
            }                                                                 \
        }                                                                     \
    }

CONVERT(f32, f64, float, double, x)
CONVERT(f32, bf16, float, uint16_t, cti_f32_from_bf16(x))
CONVERT(f32, f16, float, uint16_t, cti_f32_from_f16(x))
CONVERT(f32, u8, float, uint8_t, x)
CONVERT(f32, i32, float, int32_t, x)
CONVERT(f32, i64, float, int64_t, x)
CONVERT(f64, f32, double, float, x)
CONVERT(f64, u8, double, uint8_t, x)
CONVERT(f64, i32, double, int32_t, x)
CONVERT(f64, i64, double, int64_t, x)
CONVERT(bf16, f32, uint16_t, float, cti_bf16_from_f32(x))
CONVERT(f16, f32, uint16_t, float, cti_f16_from_f32(x))
CONVERT(i64, f64, int64_t, double, cti_i64_from_f64(x))
CONVERT(i64, u8, int64_t, uint8_t, x)
CONVERT(i64, i32, int64_t, int32_t, x)
CONVERT(i32, i64, int32_t, int64_t, x)
CONVERT(u8, i64, uint8_t, int64_t, x)
CONVERT(bool, f64, uint8_t, double, x != 0)
CONVERT(bool, i64, uint8_t, int64_t, x != 0)
#undef CONVERT

cti_span_fn cti_cpu_convert(ct_dtype d, ct_dtype s)
{
    static const cti_span_fn to_f32[CT_DTYPE_COUNT] = {
        [CT_BOOL] = cv_f32_u8, [CT_U8] = cv_f32_u8,   [CT_I32] = cv_f32_i32,
        [CT_I64] = cv_f32_i64, [CT_F16] = cv_f32_f16, [CT_BF16] = cv_f32_bf16,
        [CT_F64] = cv_f32_f64};
    static const cti_span_fn to_f64[CT_DTYPE_COUNT] = {[CT_BOOL] = cv_f64_u8,
                                                       [CT_U8] = cv_f64_u8,
                                                       [CT_I32] = cv_f64_i32,
                                                       [CT_I64] = cv_f64_i64,
                                                       [CT_F32] = cv_f64_f32};
    static const cti_span_fn to_i64[CT_DTYPE_COUNT] = {
        [CT_BOOL] = cv_i64_u8, [CT_U8] = cv_i64_u8, [CT_I32] = cv_i64_i32, [CT_F64] = cv_i64_f64};

    if (d == s || (d == CT_U8 && s == CT_BOOL))
        return move_of(d);
    switch (d) {
    case CT_F32:
        return to_f32[s];
    case CT_F64:
        return to_f64[s];
    case CT_I64:
        return to_i64[s];
    case CT_BF16:
        return s == CT_F32 ? cv_bf16_f32 : NULL;
    case CT_F16:
        return s == CT_F32 ? cv_f16_f32 : NULL;
    case CT_I32:
        return s == CT_I64 ? cv_i32_i64 : NULL;
    case CT_U8:
        return s == CT_I64 ? cv_u8_i64 : NULL;
    case CT_BOOL:
        return s == CT_F64 ? cv_bool_f64 : s == CT_I64 ? cv_bool_i64 : NULL;
    default:
        return NULL;
    }
}

/* The dtype through which d is reached from s when there is no direct way; may take another step. */
static ct_dtype way(ct_dtype d, ct_dtype s)
{
    bool low_s = s == CT_F16 || s == CT_BF16, low_d = d == CT_F16 || d == CT_BF16;

    if (low_s || low_d)
        return CT_F32;
    if (s == CT_F32)
        return CT_F64; /* to an integer or bool */
    if (s == CT_F64)
        return CT_I64; /* to a narrow integer */
    return CT_I64;     /* between integers */
}

enum { PIECE = 256, STEPS = 4 };

/* A conversion of several steps, through buffers on the stack. */
typedef struct chain {
    int n;
    cti_span_fn fn[STEPS];
    int64_t bytes[STEPS + 1]; /* element sizes: of the source, ..., of the destination */
} chain;

static void convert_chain(const cti_span *sp, const void *arg)
{
    const chain *c = arg;
    uint64_t buf[2][PIECE];

    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i += PIECE) {
            cti_span q = {.rows = 1, .n = CTI_MIN(PIECE, sp->n - i)};
            char *from = sp->p[1] + r * sp->rs[1] + i * sp->s[1];
            int64_t from_stride = sp->s[1];
            for (int k = 0; k < c->n; k++) {
                bool last = k == c->n - 1;
                q.p[1] = from;
                q.s[1] = from_stride;
                q.p[0] = last ? sp->p[0] + r * sp->rs[0] + i * sp->s[0] : (char *)buf[k & 1];
                q.s[0] = last ? sp->s[0] : c->bytes[k + 1];
                c->fn[k](&q, NULL);
                from = q.p[0];
                from_stride = q.s[0];
            }
        }
}

int cti_cpu_copy(ct_stream *s, const ct_view *dst, const ct_view *src)
{
    const ct_view *v[] = {dst, src};
    cti_loop l;
    chain c = {0};
    ct_dtype at = src->dtype;

    if (dst->dtype >= CT_DTYPE_COUNT || src->dtype >= CT_DTYPE_COUNT)
        return CT_EDTYPE;
    c.bytes[0] = (int64_t)ct_dtype_bytes(at);
    do {
        ct_dtype next = cti_cpu_convert(dst->dtype, at) ? dst->dtype : way(dst->dtype, at);
        c.fn[c.n++] = cti_cpu_convert(next, at);
        c.bytes[c.n] = (int64_t)ct_dtype_bytes(next);
        at = next;
    } while (at != dst->dtype);

    cti_loop_init(&l, 2, v);
    if (l.numel == 0)
        return CT_OK;
    if (c.n == 1)
        cti_loop_run(s, &l, c.fn[0], NULL);
    else
        cti_loop_run(s, &l, convert_chain, &c);
    return CT_OK;
}

int cti_cpu_fill(ct_stream *s, const ct_view *dst, double value)
{
    double from = value;
    uint64_t one = 0;
    ct_view a = {&from, CT_F64, 0, {0}, {0}}, b = {&one, dst->dtype, 0, {0}, {0}};
    ct_view src = *dst;
    int rc = cti_cpu_copy(s, &b, &a);

    if (rc != CT_OK)
        return rc;
    src.data = &one;
    for (int d = 0; d < src.ndim; d++)
        src.stride[d] = 0;
    return cti_cpu_copy(s, dst, &src);
}
