/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's matmul against double loops written here. */
#include "backend_fixture.h"
#include <stdio.h>

typedef struct problem {
    ct_matmul_args args;
    ct_view bias;
    uint64_t seed;
} problem;

/* Strides of [batch.., rows, cols]: rows or columns contiguous, with a gap after each line; batch
 * outside, or (`heads`) the innermost batch dimension between rows and columns; 0: broadcast. */
static void lay_out(ct_view *v, bool transposed, int64_t gap, bool heads, unsigned broadcast)
{
    const int nd = v->ndim, outer = transposed ? nd - 1 : nd - 2,
              inner = transposed ? nd - 2 : nd - 1;
    int64_t step = v->shape[inner] + gap;
    v->stride[inner] = 1;
    int first = nd - 3;
    if (heads && nd > 2 && !(broadcast >> (nd - 3) & 1)) {
        v->stride[nd - 3] = step;
        step *= v->shape[nd - 3];
        first--;
    }
    v->stride[outer] = step;
    step *= v->shape[outer] ? v->shape[outer] : 1;
    for (int i = first; i >= 0; i--) {
        v->stride[i] = broadcast >> i & 1 ? 0 : step;
        if (v->stride[i])
            step *= v->shape[i] ? v->shape[i] : 1;
    }
}

static void make(fixture *f, problem *p, ct_dtype dtype)
{
    uint64_t s = p->seed;
    ct_matmul_args *a = &p->args;
    memset(a, 0, sizeof *a);
    const bool small = next(&s) % 4 != 0;
    const int batch = (int)pick(&s, 0, small ? 3 : 1);
    const int64_t most = small ? 9 : 60;
    int64_t m = pick(&s, 1, most), n = pick(&s, 1, most), k = pick(&s, 1, most);
    ct_view *v[3] = {&a->y, &a->a, &a->b};
    for (int t = 0; t < 3; t++)
        v[t]->ndim = batch + 2;
    for (int i = 0; i < batch; i++)
        a->y.shape[i] = a->a.shape[i] = a->b.shape[i] = pick(&s, 1, 4);
    a->y.shape[batch] = a->a.shape[batch] = m;
    a->y.shape[batch + 1] = a->b.shape[batch + 1] = n;
    a->a.shape[batch + 1] = a->b.shape[batch] = k;
    unsigned mask = (1U << batch) - 1, ba = 0, bb = 0;
    switch (next(&s) % 4) {
    case 0:
        bb = mask; /* a linear layer */
        break;
    case 1:
        ba = (unsigned)next(&s) & mask;
        bb = (unsigned)next(&s) & mask & ~ba;
        break;
    default:
        break;
    }
    lay_out(&a->y, false, pick(&s, 0, 2) * 3, next(&s) & 1, 0);
    lay_out(&a->a, next(&s) & 1, pick(&s, 0, 1) * 2, next(&s) & 1, ba);
    lay_out(&a->b, next(&s) & 1, pick(&s, 0, 1) * 5, next(&s) & 1, bb);
    if (next(&s) % 16 == 0)
        a->a.stride[batch + (a->a.stride[batch] == 1)] = 0; /* an expanded row or column */
    a->beta = (int)(next(&s) & 1);
    const bool bias = !a->beta && (next(&s) & 1);
    const bool half = dtype == CT_BF16 || dtype == CT_F16;
    for (int t = 0; t < 3; t++)
        back(f, v[t], half && t == 0 && (p->seed & 1) ? CT_F32 : dtype);
    fill(&a->a, next(&s));
    fill(&a->b, next(&s));
    uint64_t fill_y = next(&s);
    if (a->beta)
        fill(&a->y, fill_y);
    if (bias) {
        p->bias = (ct_view){.ndim = 1, .shape = {n}, .stride = {1}};
        back(f, &p->bias, half && (p->seed & 2) ? CT_F32 : dtype);
        fill(&p->bias, next(&s));
        a->bias = &p->bias;
    }
}

static void drop(fixture *f, problem *p)
{
    f->be->mem->free(f->s, p->args.y.data);
    f->be->mem->free(f->s, p->args.a.data);
    f->be->mem->free(f->s, p->args.b.data);
    if (p->args.bias)
        f->be->mem->free(f->s, p->bias.data);
}

static int run(fixture *f, ct_matmul_args *a)
{
    size_t bytes = 1;
    int rc = f->be->matmul->workspace(f->s, a, &bytes);
    if (rc)
        return rc;
    a->workspace = f->be->mem->alloc(f->s, bytes + GUARD);
    cr_assert_not_null(a->workspace);
    memset(a->workspace, 0xff, bytes + GUARD);
    rc = f->be->matmul->matmul(f->s, a);
    cr_assert(untouched(a->workspace, bytes));
    f->be->mem->free(f->s, a->workspace);
    a->workspace = NULL;
    return rc;
}

/* All of y, row-major, by double loops; y as it was before gives beta's part. */
static double *expected(const ct_matmul_args *a)
{
    const int nd = a->y.ndim;
    const int64_t n = ct_view_numel(&a->y), k = a->a.shape[nd - 1], cols = a->y.shape[nd - 1];
    const int64_t rows = a->y.shape[nd - 2];
    double *want = malloc((size_t)(n ? n : 1) * sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        int64_t batch = i / cols / rows, row = i / cols % rows, col = i % cols;
        double sum = a->beta ? load(&a->y, place(&a->y, i)) : a->bias ? load(a->bias, col) : 0;
        for (int64_t j = 0; j < k; j++)
            sum += load(&a->a, place(&a->a, (batch * rows + row) * k + j)) *
                   load(&a->b, place(&a->b, (batch * k + j) * cols + col));
        want[i] = sum;
    }
    return want;
}

static void check(fixture *f, uint64_t seed, ct_dtype dtype)
{
    problem p = {.seed = seed};
    make(f, &p, dtype);
    ct_matmul_args *a = &p.args;
    double *want = expected(a);
    int rc = run(f, a);
    cr_assert_eq(rc, CT_OK, "seed %llu: %d %s", (unsigned long long)seed, rc, f->err.text);
    const double terms = (double)(a->a.shape[a->a.ndim - 1] + 1);
    for (int64_t i = 0; i < ct_view_numel(&a->y); i++) {
        double got = load(&a->y, place(&a->y, i));
        cr_assert(fabs(got - want[i]) <= tolerance(a->y.dtype, want[i], terms),
                  "seed %llu %s element %lld: got %.9g, want %.9g", (unsigned long long)seed,
                  ct_dtype_name(dtype), (long long)i, got, want[i]);
    }
    cr_assert_eq(overwritten_gaps(&a->y), 0, "seed %llu", (unsigned long long)seed);
    free(want);
    drop(f, &p);
}

Test(backend_matmul, random_problems)
{
    fixture f;
    for (int threads = 1; threads <= 2; threads++) {
        fixture_open(&f, threads);
        for (uint64_t seed = 1; seed <= 1000; seed++) {
            check(&f, seed, CT_F64);
            check(&f, seed, CT_F32);
            check(&f, seed, CT_BF16);
            check(&f, seed, CT_F16);
        }
        fixture_close(&f);
    }
}

static ct_view dense(int64_t rows, int64_t cols)
{
    return (ct_view){.ndim = 2, .shape = {rows, cols}, .stride = {cols, 1}};
}

Test(backend_matmul, f64_is_the_same_for_any_team)
{
    double *y[2] = {NULL, NULL};
    fixture f[2];
    for (int t = 0; t < 2; t++) {
        fixture_open(&f[t], t + 1);
        ct_matmul_args a = {.a = dense(67, 131), .b = dense(131, 75), .y = dense(67, 75)};
        back(&f[t], &a.a, CT_F64);
        back(&f[t], &a.b, CT_F64);
        back(&f[t], &a.y, CT_F64);
        fill(&a.a, 1);
        fill(&a.b, 2);
        cr_assert_eq(run(&f[t], &a), CT_OK);
        y[t] = a.y.data;
        f[t].be->mem->free(f[t].s, a.a.data);
        f[t].be->mem->free(f[t].s, a.b.data);
    }
    cr_assert_eq(memcmp(y[0], y[1], 67 * 75 * sizeof(double)), 0);
    for (int t = 0; t < 2; t++) {
        f[t].be->mem->free(f[t].s, y[t]);
        fixture_close(&f[t]);
    }
}

Test(backend_matmul, empty)
{
    static const int64_t shape[][3] = {{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {0, 0, 0}};
    fixture f;
    fixture_open(&f, 2);
    static const ct_dtype types[] = {CT_F32, CT_F64, CT_BF16, CT_F16};
    for (int i = 0; i < 32; i++) {
        const int64_t *d = shape[i % 4];
        const ct_dtype dtype = types[i / 8];
        ct_matmul_args a = {.a = dense(d[0], d[2]), .b = dense(d[2], d[1]), .y = dense(d[0], d[1])};
        ct_view bias = {.ndim = 1, .shape = {d[1]}, .stride = {1}};
        back(&f, &a.a, dtype);
        back(&f, &a.b, dtype);
        back(&f, &a.y, dtype);
        back(&f, &bias, dtype);
        fill(&bias, 3);
        a.bias = i / 4 % 2 ? &bias : NULL;
        cr_assert_eq(run(&f, &a), CT_OK);
        for (int64_t j = 0; j < d[0] * d[1]; j++)
            cr_assert_eq(load(&a.y, j), a.bias ? load(&bias, j % d[1]) : 0);
        a.bias = NULL;
        a.beta = 1;
        cr_assert_eq(run(&f, &a), CT_OK);
        for (int64_t j = 0; j < d[0] * d[1]; j++)
            cr_assert_eq(load(&a.y, j), i / 4 % 2 ? load(&bias, j % d[1]) : 0);
        void *p[4] = {a.a.data, a.b.data, a.y.data, bias.data};
        for (int j = 0; j < 4; j++)
            f.be->mem->free(f.s, p[j]);
    }
    fixture_close(&f);
}

/* The sums of a over K, in the same call: all layouts of a, also where the product is empty. */
Test(backend_matmul, sums_of_a)
{
    static const int64_t shape[][3] = {{7, 5, 9}, {1, 4, 3}, {64, 10, 1}, {33, 1, 200},
                                       {0, 3, 4}, {3, 0, 4}, {3, 4, 0},   {300, 3, 257}};
    fixture f;
    fixture_open(&f, 2);
    static const ct_dtype types[] = {CT_F32, CT_F64, CT_BF16, CT_F16};
    for (int i = 0; i < 96; i++) {
        const int64_t *d = shape[i % 8];
        const ct_dtype dtype = types[i / 8 % 4], wide = dtype == CT_F64 || i < 64 ? dtype : CT_F32;
        ct_matmul_args a = {.a = dense(d[0], d[2]), .b = dense(d[2], d[1]), .y = dense(d[0], d[1])};
        ct_view sum = {.ndim = 1, .shape = {d[0]}, .stride = {1}};
        if (i / 32 == 1) {
            a.a.stride[0] = 1;
            a.a.stride[1] = d[0] ? d[0] : 1;
        }
        back(&f, &a.a, dtype);
        back(&f, &a.b, dtype);
        back(&f, &a.y, wide);
        back(&f, &sum, wide);
        fill(&a.a, 4);
        fill(&a.b, 5);
        a.a_sum = &sum;
        double *want = expected(&a);
        cr_assert_eq(run(&f, &a), CT_OK);
        const double terms = (double)(d[2] + 1);
        for (int64_t j = 0; j < d[0] * d[1]; j++)
            cr_assert(fabs(load(&a.y, j) - want[j]) <= tolerance(wide, want[j], terms));
        for (int64_t j = 0; j < d[0]; j++) {
            double w = 0;
            for (int64_t k = 0; k < d[2]; k++)
                w += load(&a.a, place(&a.a, j * d[2] + k));
            cr_assert(fabs(load(&sum, j) - w) <= tolerance(wide, w, terms),
                      "problem %d: sum %lld is %g, not %g", i, (long long)j, load(&sum, j), w);
        }
        free(want);
        void *p[4] = {a.a.data, a.b.data, a.y.data, sum.data};
        for (int j = 0; j < 4; j++)
            f.be->mem->free(f.s, p[j]);
    }
    fixture_close(&f);
}

Test(backend_matmul, other_dtypes_are_refused)
{
    fixture f;
    fixture_open(&f, 1);
    ct_matmul_args a = {.a = dense(2, 2), .b = dense(2, 2), .y = dense(2, 2)};
    size_t bytes;
    a.a.dtype = a.b.dtype = a.y.dtype = CT_I32;
    cr_assert_eq(f.be->matmul->workspace(f.s, &a, &bytes), CT_EDTYPE);
    cr_assert_eq(f.be->matmul->matmul(f.s, &a), CT_EDTYPE);
    a.a.dtype = a.y.dtype = CT_F32;
    a.b.dtype = CT_F64;
    cr_assert_eq(f.be->matmul->matmul(f.s, &a), CT_EDTYPE);
    a.b.dtype = CT_F32;
    a.y.dtype = CT_BF16; /* results are wider, never narrower */
    cr_assert_eq(f.be->matmul->matmul(f.s, &a), CT_EDTYPE);
    fixture_close(&f);
}

Test(backend_matmul, steady_calls_make_nothing)
{
    fixture f;
    fixture_open(&f, 2);
    uint64_t made = 0, calls = 0;
    for (int round = 0; round < 3; round++) {
        for (uint64_t seed = 1; seed <= 40; seed++)
            check(&f, seed, CT_F32);
        cti_mem_stats st = cti_mem_get_stats(f.mem);
        cr_assert(round == 0 || primitives(&f) == made);
        made = primitives(&f);
        cr_assert(round < 2 || st.calls - calls <= 40 * 5); /* the views and the workspace */
        calls = st.calls;
    }
    cr_assert(made > 0 && made <= 40);
    fixture_close(&f);
}

Test(backend_matmul, the_cache_is_bounded)
{
    fixture f;
    fixture_open(&f, 1);
    for (int64_t m = 1; m <= 600; m++) {
        ct_matmul_args a = {.a = dense(m, 2), .b = dense(2, 3), .y = dense(m, 3)};
        a.a.dtype = a.b.dtype = a.y.dtype = CT_F32;
        size_t bytes;
        cr_assert_eq(f.be->matmul->workspace(f.s, &a, &bytes), CT_OK);
    }
    cr_assert_eq(primitives(&f), 600);
    cr_assert(cti_mem_get_stats(f.mem).live_blocks <= 512 + 4);
    fixture_close(&f);
}

Test(backend_matmul, out_of_memory_is_told)
{
    fixture f;
    fixture_open(&f, 1);
    ct_matmul_args a = {.a = dense(3, 2), .b = dense(2, 3), .y = dense(3, 3)};
    a.a.dtype = a.b.dtype = a.y.dtype = CT_F32;
    size_t bytes;
    cti_mem_fail_at(f.mem, 1, false);
    cr_assert_eq(f.be->matmul->workspace(f.s, &a, &bytes), CT_ENOMEM);
    cr_assert_eq(f.be->matmul->workspace(f.s, &a, &bytes), CT_OK);
    fixture_close(&f);
    for (uint64_t n = 1; n <= 2; n++) { /* and when the device is opened */
        cti_mem *mem = cti_mem_new(NULL);
        cti_mem_fail_at(mem, n, true);
        const ct_stream_opts opts = {.mem = mem};
        ct_stream *s;
        cr_assert_eq(cti_backend_cpu.mem->open(&opts, &s), CT_ENOMEM);
        cr_assert_null(s);
        cr_assert_eq(cti_mem_get_stats(mem).live_blocks, 0);
        cti_mem_free(mem, NULL, NULL);
    }
}
