/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, scatter and what else goes by index. Elements are moved by their size; sums are by type. */
#include "backend/cpu/copy.h"
#include "backend/cpu/loop.h"

static int64_t at_stride(const ct_view *v, int dim)
{
    return v->stride[dim] * (int64_t)ct_dtype_bytes(v->dtype);
}

/* What an index out of range gives: the bits of NaN, or of 0. */
static uint64_t bad_bits(ct_dtype t)
{
    switch (t) {
    case CT_F16:
        return 0x7e00u;
    case CT_BF16:
        return 0x7fc0u;
    case CT_F32:
        return 0x7fc00000u;
    case CT_F64:
        return 0x7ff8000000000000u;
    default:
        return 0;
    }
}

/* v with `shape` and its own strides, along dim `stride`. */
static ct_view window(const ct_view *v, const ct_view *shape, int dim, int64_t stride)
{
    ct_view w = *v;
    memcpy(w.shape, shape->shape, sizeof w.shape);
    w.stride[dim] = stride;
    return w;
}

/* ---- check ---- */

typedef struct search {
    int64_t bound, at, first, value; /* first -1: none yet */
} search;

CTI_ISA static int any_out(const int64_t *p, int64_t n, int64_t bound)
{
    int out = 0;
    for (int64_t i = 0; i < n; i++)
        out |= (uint64_t)p[i] >= (uint64_t)bound;
    return out;
}

static void search_span(const cti_span *sp, const void *arg)
{
    search *f = *(search *const *)arg;
    for (int64_t r = 0; r < sp->rows && f->first < 0; r++) {
        const char *p = sp->p[0] + r * sp->rs[0];
        if (sp->s[0] == (int64_t)sizeof(int64_t) && !any_out((const int64_t *)p, sp->n, f->bound)) {
            f->at += sp->n;
            continue;
        }
        for (int64_t i = 0; i < sp->n; i++, f->at++) {
            int64_t v = *(const int64_t *)(p + i * sp->s[0]);
            if ((uint64_t)v >= (uint64_t)f->bound && f->first < 0) {
                f->first = f->at;
                f->value = v;
            }
        }
    }
}

static void tell(const ct_view *bad, int64_t position, int64_t value, int64_t bound)
{
    int64_t *to = bad->data;
    if (to[0] != -1) /* the first finding stays until it is read */
        return;
    to[0] = position;
    to[1] = value;
    to[2] = bound;
}

static int check(ct_stream *s, const ct_view *index, int64_t bound, const ct_view *bad)
{
    const ct_view *v[] = {index};
    search f = {bound, 0, -1, 0}, *found = &f;
    cti_loop l;
    (void)s;
    cti_loop_init_dims(&l, 1, v, ~0u, false);
    if (l.numel > 0)
        cti_loop_range(&l, 0, l.numel, search_span, &found);
    if (f.first >= 0)
        tell(bad, f.first, f.value, bound);
    return CT_OK;
}

/* ---- gather ---- */

typedef struct gather_arg {
    int64_t step, bound; /* of x along dim: bytes, elements */
    uint64_t bad;
} gather_arg;

#define GATHER(T)                                                                             \
    static CTI_ISA void gather_##T(const cti_span *sp, const void *arg)                       \
    {                                                                                         \
        const gather_arg *g = arg;                                                            \
        for (int64_t r = 0; r < sp->rows; r++) {                                              \
            char *y = sp->p[0] + r * sp->rs[0];                                               \
            const char *x = sp->p[1] + r * sp->rs[1], *at = sp->p[2] + r * sp->rs[2];         \
            int64_t k = *(const int64_t *)at;                                                 \
            if (sp->s[2] == 0 && sp->s[0] == (int64_t)sizeof(T) && sp->s[1] == sp->s[0] &&    \
                (uint64_t)k < (uint64_t)g->bound) {                                           \
                memcpy(y, x + k * g->step, (size_t)sp->n * sizeof(T));                        \
                continue;                                                                     \
            }                                                                                 \
            for (int64_t i = 0; i < sp->n; i++) {                                             \
                k = *(const int64_t *)(at + i * sp->s[2]);                                    \
                *(T *)(y + i * sp->s[0]) = (uint64_t)k < (uint64_t)g->bound ?                 \
                                               *(const T *)(x + i * sp->s[1] + k * g->step) : \
                                               (T)g->bad;                                     \
            }                                                                                 \
        }                                                                                     \
    }

GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)
#undef GATHER

static int gather(ct_stream *s, const ct_view *y, const ct_view *x, int dim, const ct_view *index)
{
    static const cti_span_fn by_size[9] = {
        [1] = gather_uint8_t, [2] = gather_uint16_t, [4] = gather_uint32_t, [8] = gather_uint64_t};
    const ct_view from = window(x, y, dim, 0), *v[] = {y, &from, index};
    gather_arg g = {at_stride(x, dim), x->shape[dim], bad_bits(x->dtype)};
    cti_loop l;
    if (y->dtype != x->dtype || index->dtype != CT_I64)
        return CT_EDTYPE;
    cti_loop_init(&l, 3, v);
    if (l.numel > 0)
        cti_loop_run(s, &l, by_size[ct_dtype_bytes(x->dtype)], &g);
    return CT_OK;
}

/* ---- scatter ---- Tasks are places outside dim; each goes along dim in order. */

typedef struct scatter_arg {
    int64_t n, bound, skip;         /* of index and y along dim */
    int64_t y_step, src_step, step; /* along dim, in bytes */
    uint64_t bad;
} scatter_arg;

/* Element j along dim of place i. */
#define PUT(T, OP)                                                       \
    do {                                                                 \
        int64_t k = *(const int64_t *)(at + i * sp->s[2] + j * g->step); \
        T *to = (T *)(y + i * sp->s[0]);                                 \
        if (k == g->skip)                                                \
            continue;                                                    \
        if ((uint64_t)k < (uint64_t)g->bound)                            \
            *(T *)((char *)to + k * g->y_step)                           \
                OP *(const T *)(from + i * sp->s[1] + j * g->src_step);  \
        else if (g->bad)                                                 \
            memcpy(to, &g->bad, sizeof(T));                              \
    } while (0)

/* Rows where one index is for all places and they are dense; else place by place where those are further apart
 * than what is along dim. */
#define SCATTER(NAME, T, OP)                                                                   \
    static CTI_ISA void NAME##_##T(const cti_span *sp, const void *arg)                        \
    {                                                                                          \
        const scatter_arg *g = arg;                                                            \
        const bool rows =                                                                      \
            sp->s[2] == 0 && sp->s[0] == (int64_t)sizeof(T) && sp->s[1] == (int64_t)sizeof(T); \
        const bool along = cti_abs64(sp->s[0]) > cti_abs64(g->y_step);                         \
        for (int64_t r = 0; r < sp->rows; r++) {                                               \
            char *y = sp->p[0] + r * sp->rs[0];                                                \
            const char *from = sp->p[1] + r * sp->rs[1], *at = sp->p[2] + r * sp->rs[2];       \
            for (int64_t i = 0; along && i < sp->n; i++)                                       \
                for (int64_t j = 0; j < g->n; j++)                                             \
                    PUT(T, OP);                                                                \
            for (int64_t j = 0; !along && j < g->n; j++) {                                     \
                int64_t one = *(const int64_t *)(at + j * g->step);                            \
                if (rows && one != g->skip && (uint64_t)one < (uint64_t)g->bound) {            \
                    T *to = (T *)(y + one * g->y_step);                                        \
                    const T *v = (const T *)(from + j * g->src_step);                          \
                    CTI_VEC                                                                    \
                    for (int64_t i = 0; i < sp->n; i++)                                        \
                        to[i] OP v[i];                                                         \
                    continue;                                                                  \
                }                                                                              \
                for (int64_t i = 0; i < sp->n; i++)                                            \
                    PUT(T, OP);                                                                \
            }                                                                                  \
        }                                                                                      \
    }

SCATTER(set, uint8_t, =)
SCATTER(set, uint16_t, =)
SCATTER(set, uint32_t, =)
SCATTER(set, uint64_t, =)
SCATTER(add, float, +=)
SCATTER(add, double, +=)
SCATTER(add, uint32_t, +=)
SCATTER(add, uint64_t, +=)
#undef SCATTER
#undef PUT

static cti_span_fn scatter_of(ct_dtype t, bool add)
{
    static const cti_span_fn sets[9] = {
        [1] = set_uint8_t, [2] = set_uint16_t, [4] = set_uint32_t, [8] = set_uint64_t};
    static const cti_span_fn adds[CT_DTYPE_COUNT] = {[CT_F32] = add_float,
                                                     [CT_F64] = add_double,
                                                     [CT_I32] = add_uint32_t,
                                                     [CT_I64] = add_uint64_t};
    return add ? adds[t] : sets[ct_dtype_bytes(t)];
}

static int scatter(ct_stream *s, const ct_scatter_args *a)
{
    const int dim = a->dim;
    uint64_t one = 0;
    double value = a->value;
    const ct_view from = {&value, CT_F64, 0, {0}, {0}}, to = {&one, a->y.dtype, 0, {0}, {0}};
    ct_view y = window(&a->y, &a->index, dim, 0), src = a->index;
    cti_span_fn fn = scatter_of(a->y.dtype, a->add);
    cti_loop l;
    if (!fn || a->index.dtype != CT_I64 || (a->src && a->src->dtype != a->y.dtype))
        return CT_EDTYPE;
    if (a->src) {
        src = *a->src;
    } else {
        cti_cpu_copy(s, &to, &from);
        src.data = &one;
        src.dtype = a->y.dtype;
        memset(src.stride, 0, sizeof src.stride);
    }
    if (a->y.shape[dim] == 0)
        return CT_OK;
    const ct_view *v[] = {&y, &src, &a->index};
    cti_loop_init_dims(&l, 3, v, ~(1u << dim), true);
    scatter_arg g = {a->index.shape[dim],   a->y.shape[dim],      a->skip,
                     at_stride(&a->y, dim), at_stride(&src, dim), at_stride(&a->index, dim),
                     bad_bits(a->y.dtype)};
    cti_loop_job j = {&l, fn, &g};
    cti_parallel(s, cti_ceil_div(l.numel, CTI_LOOP_BLOCK), l.numel * g.n, cti_loop_task, &j);
    return CT_OK;
}

/* ---- iota ---- */

static int iota(ct_stream *s, const ct_view *y, double first, double last, double step)
{
    const int64_t n = y->shape[0];
    (void)s;
    for (int64_t i = 0; i < n; i++) {
        double v = i < n / 2 ? first + (double)i * step : last - (double)(n - 1 - i) * step;
        switch (y->dtype) {
        case CT_F32:
            ((float *)y->data)[i] = (float)v;
            break;
        case CT_F64:
            ((double *)y->data)[i] = v;
            break;
        case CT_I32:
            ((int32_t *)y->data)[i] = (int32_t)cti_i64_from_f64(v);
            break;
        case CT_I64:
            ((int64_t *)y->data)[i] = cti_i64_from_f64(v);
            break;
        default:
            return CT_EDTYPE;
        }
    }
    return CT_OK;
}

/* ---- tri ---- */

typedef struct tri_job {
    const ct_view *y, *x;
    int64_t diagonal;
    bool upper;
} tri_job;

/* The byte offset of a row, of all dimensions but the last. */
static int64_t row_offset(const ct_view *v, int64_t row)
{
    int64_t off = 0;
    for (int d = v->ndim - 2; d >= 0; d--) {
        off += row % v->shape[d] * at_stride(v, d);
        row /= v->shape[d];
    }
    return off;
}

static void move_columns(const ct_view *y, const ct_view *x, char *to, const char *from,
                         int64_t begin, int64_t end, bool keep)
{
    int c = y->ndim - 1;
    size_t size = ct_dtype_bytes(y->dtype);
    int64_t ys = at_stride(y, c), xs = at_stride(x, c);
    if (begin >= end)
        return;
    if (ys == (int64_t)size && (!keep || xs == ys)) {
        if (keep)
            memcpy(to + begin * ys, from + begin * xs, (size_t)(end - begin) * size);
        else
            memset(to + begin * ys, 0, (size_t)(end - begin) * size);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        if (keep)
            memcpy(to + i * ys, from + i * xs, size);
        else
            memset(to + i * ys, 0, size);
    }
}

static void tri_task(void *ctx, int64_t begin, int64_t end)
{
    const tri_job *j = ctx;
    const ct_view *y = j->y, *x = j->x;
    const int64_t rows = y->shape[y->ndim - 2], n = y->shape[y->ndim - 1];
    for (int64_t t = begin; t < end; t++) {
        char *to = (char *)y->data + row_offset(y, t);
        const char *from = (const char *)x->data + row_offset(x, t);
        int64_t cut = t % rows + j->diagonal + !j->upper; /* the first column on its right side */
        cut = CTI_MAX(0, CTI_MIN(cut, n));
        move_columns(y, x, to, from, 0, cut, !j->upper);
        move_columns(y, x, to, from, cut, n, j->upper);
    }
}

static int tri(ct_stream *s, const ct_view *y, const ct_view *x, int64_t diagonal, bool upper)
{
    tri_job j = {y, x, diagonal, upper};
    int64_t numel = ct_view_numel(y);
    if (y->dtype != x->dtype)
        return CT_EDTYPE;
    cti_parallel(s, numel ? numel / y->shape[y->ndim - 1] : 0, numel, tri_task, &j);
    return CT_OK;
}

/* ---- bags ---- */

static int bags(ct_stream *s, const ct_view *bag, const ct_view *offsets, const ct_view *ids,
                int64_t skip, const ct_view *bad)
{
    int64_t *to = bag->data, n = bag->shape[0], count = offsets->shape[0], before = 0;
    const int64_t *off = offsets->data;
    (void)s;
    for (int64_t b = 0; b < count; b++) {
        if (off[b] < before || off[b] > (b ? n : 0)) {
            tell(bad, b, off[b], n);
            break;
        }
        before = off[b];
    }
    for (int64_t i = 0, b = 0; i < n; i++) {
        while (b + 1 < count && off[b + 1] <= i)
            b++;
        to[i] = ((const int64_t *)ids->data)[i] == skip ? count : b;
    }
    return CT_OK;
}

#define BAG_MAX(T)                                                                              \
    static void bag_max_##T(int64_t *index, const T *x, int64_t D, int64_t first, int64_t last, \
                            const int64_t *ids, int64_t skip, int64_t none)                     \
    {                                                                                           \
        for (int64_t d = 0; d < D; d++)                                                         \
            index[d] = none;                                                                    \
        for (int64_t i = first; i < last; i++) {                                                \
            if (ids[i] == skip)                                                                 \
                continue;                                                                       \
            for (int64_t d = 0; d < D; d++)                                                     \
                if (index[d] == none || x[i * D + d] > x[index[d] * D + d])                     \
                    index[d] = i;                                                               \
        }                                                                                       \
    }

BAG_MAX(float)
BAG_MAX(double)
#undef BAG_MAX

static int bag_max(ct_stream *s, const ct_view *index, const ct_view *x, const ct_view *offsets,
                   const ct_view *ids, int64_t skip)
{
    const int64_t count = index->shape[0], D = index->shape[1], n = x->shape[0];
    const int64_t *off = offsets->data;
    (void)s;
    if (x->dtype != CT_F32 && x->dtype != CT_F64)
        return CT_EDTYPE;
    for (int64_t b = 0; b < count; b++) {
        int64_t first = CTI_MAX(0, off[b]), last = b + 1 < count ? CTI_MIN(off[b + 1], n) : n;
        int64_t *to = (int64_t *)index->data + b * D;
        if (x->dtype == CT_F64)
            bag_max_double(to, x->data, D, first, last, ids->data, skip, n);
        else
            bag_max_float(to, x->data, D, first, last, ids->data, skip, n);
    }
    return CT_OK;
}

const ct_k_index cti_cpu_index = {
    .check = check,
    .gather = gather,
    .scatter = scatter,
    .iota = iota,
    .tri = tri,
    .bags = bags,
    .bag_max = bag_max,
};
