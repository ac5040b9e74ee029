/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and f16 on the CPU: each kernel gives what the one for f32 gives of the widened operands, rounded, to
 * the bit. */
#include "backend_test.h"

#include "backend/cpu/half.h"

#define EW cti_backend_cpu.ew

static const ct_dtype HALF[] = {CT_BF16, CT_F16};

/* A tensor of half precision and the same in f32, of one layout. */
typedef struct pair {
    tv half, wide;
} pair;

static pair pair_new(ct_dtype t, enum layout lay, int ndim, const int64_t *shape, uint64_t seed)
{
    pair p = {tv_rand(t, lay, ndim, shape, seed), tv_new(CT_F32, lay, ndim, shape)};
    for (int64_t i = 0; i < ct_view_numel(&p.half.v); i++)
        put(&p.wide.v, i, get(&p.half.v, i));
    return p;
}

static void pair_same(pair *p, const char *what)
{
    tv rounded = tv_new(p->half.v.dtype, ROWS, p->half.v.ndim, p->half.v.shape);
    for (int64_t i = 0; i < ct_view_numel(&p->half.v); i++) {
        put(&rounded.v, i, get(&p->wide.v, i));
        double a = get(&p->half.v, i), b = get(&rounded.v, i);
        cr_assert(a == b || (isnan(a) && isnan(b)), "%s %s, element %lld: %g, not %g", what,
                  ct_dtype_name(p->half.v.dtype), (long long)i, a, b);
    }
    tv_free(&rounded);
}

static void pair_free(pair *p)
{
    tv_free(&p->half), tv_free(&p->wide);
}

/* A broadcast dimension of both. */
static void pair_expand(pair *p, int dim, int64_t n)
{
    p->half.v.shape[dim] = p->wide.v.shape[dim] = n;
    p->half.v.stride[dim] = p->wide.v.stride[dim] = 0;
}

/* Longer than a piece, and not a multiple of it. */
static const int64_t shape[] = {3, 2, 5, 517};

static void elementwise(ct_dtype t, enum layout lay, bool broadcast)
{
    ct_stream s = stream_of(2);
    int64_t one[] = {3, 1, 5, 517};
    pair a = pair_new(t, lay, 4, shape, 1), y = pair_new(t, ROWS, 4, shape, 3);
    pair b = broadcast ? pair_new(t, lay, 4, one, 2) : pair_new(t, lay, 4, shape, 2);
    if (broadcast)
        pair_expand(&b, 1, 2);
    const ct_view *ah = &a.half.v, *aw = &a.wide.v, *bh = &b.half.v, *bw = &b.wide.v;
    ct_view *yh = &y.half.v, *yw = &y.wide.v;
    for (int f = 0; f < CT_UN_COUNT; f++) {
        EW->unary(&s, (ct_unary)f, yh, ah), EW->unary(&s, (ct_unary)f, yw, aw);
        pair_same(&y, "unary");
        for (int beta = 0; beta < 2; beta++) {
            pair g = pair_new(t, GAPS, 4, shape, 4);
            int rc = EW->unary_grad(&s, (ct_unary)f, &g.half.v, beta, ah, bh, bh);
            cr_assert_eq(rc, CT_OK);
            EW->unary_grad(&s, (ct_unary)f, &g.wide.v, beta, aw, bw, bw);
            pair_same(&g, "unary_grad");
            pair_free(&g);
        }
    }
    for (int f = 0; f < CT_MA_COUNT; f++) {
        EW->math(&s, (ct_math)f, 0.5, 1.5, yh, ah), EW->math(&s, (ct_math)f, 0.5, 1.5, yw, aw);
        pair_same(&y, "math");
        pair g = pair_new(t, lay, 4, shape, 4);
        EW->math_grad(&s, (ct_math)f, 0.5, 1.5, &g.half.v, f % 2, ah, bh, bh);
        EW->math_grad(&s, (ct_math)f, 0.5, 1.5, &g.wide.v, f % 2, aw, bw, bw);
        pair_same(&g, "math_grad");
        pair_free(&g);
    }
    for (int f = 0; f < CT_BIN_EQ; f++) {
        EW->binary(&s, (ct_binary)f, yh, ah, bh), EW->binary(&s, (ct_binary)f, yw, aw, bw);
        pair_same(&y, "binary");
    }
    for (int f = 0; f < CT_MA2_AND; f++) {
        EW->math2(&s, (ct_math2)f, yh, ah, bh), EW->math2(&s, (ct_math2)f, yw, aw, bw);
        pair_same(&y, "math2");
    }
    for (int beta = 0; beta < 2; beta++) {
        pair g = pair_new(t, lay, 4, shape, 5);
        EW->affine(&s, &g.half.v, beta, bh, 1.7, -0.3);
        EW->affine(&s, &g.wide.v, beta, bw, 1.7, -0.3);
        pair_same(&g, "affine");
        pair_free(&g);
        g = pair_new(t, lay, 4, shape, 6);
        EW->mul_add(&s, &g.half.v, beta, ah, bh), EW->mul_add(&s, &g.wide.v, beta, aw, bw);
        pair_same(&g, "mul_add");
        pair_free(&g);
    }
    pair_free(&a), pair_free(&b), pair_free(&y);
}

Test(backend_half, elementwise_rounds_what_f32_gives)
{
    for (int t = 0; t < 2; t++)
        for (int lay = 0; lay < LAYOUTS; lay++)
            for (int broadcast = 0; broadcast < 2; broadcast++)
                elementwise(HALF[t], (enum layout)lay, broadcast);
}

Test(backend_half, in_place_reads_before_it_writes)
{
    ct_stream s = stream_of(2);
    for (int t = 0; t < 2; t++) {
        pair a = pair_new(HALF[t], LAST, 4, shape, 1), b = pair_new(HALF[t], LAST, 4, shape, 2);
        EW->binary(&s, CT_BIN_MUL, &a.half.v, &b.half.v, &a.half.v);
        EW->binary(&s, CT_BIN_MUL, &a.wide.v, &b.wide.v, &a.wide.v);
        pair_same(&a, "mul in place");
        EW->unary(&s, CT_UN_EXP, &b.half.v, &b.half.v);
        EW->unary(&s, CT_UN_EXP, &b.wide.v, &b.wide.v);
        pair_same(&b, "exp in place");
        pair_free(&a), pair_free(&b);
    }
}

/* ---- in buffers ---- */
static ct_stream stream_with_memory(ct_error *err)
{
    ct_stream s = stream_of(2);
    memset(err, 0, sizeof *err);
    s.mem = cti_mem_new(NULL);
    s.err = err;
    return s;
}

static void stream_end(ct_stream *s)
{
    cti_half_close(s);
    cr_assert_eq(cti_mem_get_stats(s->mem).live_blocks, 0);
    cti_mem_free(s->mem, NULL, NULL);
}

Test(backend_half, meta_is_dense_in_the_same_order)
{
    const ct_view v = {NULL, CT_BF16, 4, {2, 3, 4, 5}, {200, 1, 0, 7}};
    const ct_view w = cti_wide_meta(&v), f = {NULL, CT_F64, 1, {3}, {9}};
    cr_assert_eq(w.dtype, CT_F32);
    cr_assert(w.stride[0] == 15 && w.stride[1] == 1 && w.stride[2] == 0 && w.stride[3] == 3);
    cr_assert_eq(cti_wide_meta(&f).stride[0], 9);
}

Test(backend_half, reductions_softmax_and_norms_round_what_f32_gives)
{
    static const int64_t small[] = {4, 6, 5, 7}, row[] = {4, 1, 5, 7}, per_row[] = {120};
    static const int64_t weights[] = {7};
    ct_error err;
    ct_stream s = stream_with_memory(&err);
    for (int k = 0; k < 8; k++) {
        const ct_dtype t = HALF[k % 2];
        const int beta = k / 2 % 2;
        const enum layout lay = k / 4 ? LAST : ROWS;
        pair x = pair_new(t, lay, 4, small, 1), dy = pair_new(t, lay, 4, small, 2);
        pair r = pair_new(t, lay, 4, row, 3), y = pair_new(t, lay, 4, small, 4);
        size_t bytes = cti_half_reduce.workspace(&s, CT_RED_SUM, &r.half.v, &x.half.v);
        void *ws = workspace(bytes);
        cr_assert_eq(cti_half_reduce.reduce(&s, CT_RED_SUM, &r.half.v, beta, &x.half.v, 0.3, ws),
                     0);
        cti_cpu_reduce.reduce(&s, CT_RED_SUM, &r.wide.v, beta, &x.wide.v, 0.3, ws);
        pair_same(&r, "sum");
        free(ws);
        cti_half_loss.softmax(&s, &y.half.v, &x.half.v, 1, k / 2 % 2);
        cti_cpu_loss.softmax(&s, &y.wide.v, &x.wide.v, 1, k / 2 % 2);
        pair_same(&y, "softmax");
        for (int64_t i = 0; i < ct_view_numel(&y.wide.v); i++)
            put(&y.wide.v, i, get(&y.half.v, i));
        pair g = pair_new(t, lay, 4, small, 5);
        cti_half_loss.softmax_grad(&s, &g.half.v, beta, &dy.half.v, &y.half.v, 1, k / 2 % 2);
        cti_cpu_loss.softmax_grad(&s, &g.wide.v, beta, &dy.wide.v, &y.wide.v, 1, k / 2 % 2);
        pair_same(&g, "softmax_grad");
        pair w = pair_new(t, ROWS, 1, weights, 6);
        tv mean = tv_new(CT_F32, ROWS, 1, per_row), std = tv_new(CT_F32, ROWS, 1, per_row);
        ct_rownorm_args h = {.x = x.half.v,
                             .y = y.half.v,
                             .weight = &w.half.v,
                             .mean = mean.v,
                             .invstd = std.v,
                             .n = 7,
                             .eps = 1e-5};
        ct_rownorm_args f = h;
        f.x = x.wide.v, f.y = y.wide.v, f.weight = &w.wide.v;
        if (lay == ROWS) {
            cti_half_norm.rownorm(&s, &h), cti_cpu_norm.rownorm(&s, &f);
            pair_same(&y, "rownorm");
            cti_half_norm.rownorm_grad(&s, &h, &g.half.v, 0, NULL, &dy.half.v);
            cti_cpu_norm.rownorm_grad(&s, &f, &g.wide.v, 0, NULL, &dy.wide.v);
            pair_same(&g, "rownorm_grad");
        }
        pair *all[] = {&x, &dy, &r, &y, &g, &w};
        for (int i = 0; i < 6; i++)
            pair_free(all[i]);
        tv_free(&mean), tv_free(&std);
    }
    stream_end(&s);
}

Test(backend_half, buffers_stay_and_a_lack_of_memory_is_told)
{
    static const int64_t n[] = {1000};
    ct_error err;
    ct_stream s = stream_with_memory(&err);
    pair x = pair_new(CT_BF16, ROWS, 1, n, 1), y = pair_new(CT_BF16, ROWS, 1, n, 2);
    cr_assert_eq(cti_half_reduce.scan(&s, CT_SCAN_SUM, &y.half.v, &x.half.v), CT_OK);
    uint64_t calls = cti_mem_get_stats(s.mem).calls;
    cr_assert_eq(cti_half_reduce.scan(&s, CT_SCAN_SUM, &y.half.v, &x.half.v), CT_OK);
    cr_assert_eq(cti_mem_get_stats(s.mem).calls, calls);
    cti_half_close(&s);
    memset(s.half, 0, sizeof s.half);
    cti_mem_fail_at(s.mem, 1, false);
    cr_assert_eq(cti_half_reduce.scan(&s, CT_SCAN_SUM, &y.half.v, &x.half.v), CT_ENOMEM);
    cti_mem_fail_at(s.mem, 0, false);
    pair_free(&x), pair_free(&y);
    stream_end(&s);
}
