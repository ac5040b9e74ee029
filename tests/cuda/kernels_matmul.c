/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of the CUDA backend against the CPU's in f64. */
#include "pair.h"

TestSuite(cuda_matmul);

static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16};
#define N(array) (sizeof(array) / sizeof *(array))

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static int64_t pick(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(next(state) % (uint64_t)(high - low + 1));
}

/* ---- one product on both sides ---- */

typedef struct product {
    twin y, a, b, bias, a_sum;
    bool has_bias, has_sum;
    int beta;
} product;

static ct_matmul_args args_of(const product *q, bool oracle)
{
    ct_matmul_args a = {.y = oracle ? q->y.o : q->y.v,
                        .a = oracle ? q->a.o : q->a.v,
                        .b = oracle ? q->b.o : q->b.v,
                        .beta = q->beta};
    if (q->has_bias)
        a.bias = oracle ? &q->bias.o : &q->bias.v;
    if (q->has_sum)
        a.a_sum = oracle ? &q->a_sum.o : &q->a_sum.v;
    return a;
}

static void multiply(pair *p, product *q)
{
    ct_matmul_args cuda = args_of(q, false), cpu = args_of(q, true);
    size_t bytes = 1, cpu_bytes = 1;
    pair_ok(p, cti_cuda_matmul_workspace(p->cuda, &cuda, &bytes));
    pair_ok(p, p->be->matmul->workspace(p->cpu, &cpu, &cpu_bytes));
    cuda.workspace = bytes ? pair_scratch(p, bytes) : NULL;
    cpu.workspace = malloc(cpu_bytes + 1);
    pair_ok(p, cti_cuda_matmul(p->cuda, &cuda));
    pair_ok(p, p->be->matmul->matmul(p->cpu, &cpu));
    pair_scratch_free(p, cuda.workspace);
    free(cpu.workspace);
}

static void check(pair *p, product *q, double factor, const char *what)
{
    multiply(p, q);
    twin_same(p, &q->y, factor, what);
    if (q->has_sum)
        twin_same(p, &q->a_sum, factor, what);
    twin_untouched(p, &q->a, what);
    twin_untouched(p, &q->b, what);
}

static void drop(pair *p, product *q)
{
    twin_free(p, &q->y), twin_free(p, &q->a), twin_free(p, &q->b);
    if (q->has_bias)
        twin_free(p, &q->bias);
    if (q->has_sum)
        twin_free(p, &q->a_sum);
}

/* ---- random problems ---- */

/* Strides of [batch.., rows, cols]: rows or columns contiguous, with a gap after each line; batch outside, or
 * (`heads`) the innermost batch dimension between rows and columns; bit i of `broadcast`: stride 0. */
static void lay_out(int nd, const int64_t *shape, int64_t *stride, bool transposed, int64_t gap,
                    bool heads, unsigned broadcast)
{
    const int outer = transposed ? nd - 1 : nd - 2, inner = transposed ? nd - 2 : nd - 1;
    int64_t step = shape[inner] + gap;
    int first = nd - 3;
    stride[inner] = 1;
    if (heads && nd > 2 && !(broadcast >> (nd - 3) & 1)) {
        stride[nd - 3] = step;
        step *= shape[nd - 3];
        first--;
    }
    stride[outer] = step;
    step *= shape[outer];
    for (int i = first; i >= 0; i--) {
        stride[i] = broadcast >> i & 1 ? 0 : step;
        if (stride[i])
            step *= shape[i];
    }
}

static void make(pair *p, product *q, ct_dtype t, uint64_t s)
{
    const bool small = next(&s) % 4 != 0;
    const int batch = (int)pick(&s, 0, small ? 3 : 1), nd = batch + 2;
    const int64_t most = small ? 9 : 60;
    const int64_t m = pick(&s, 1, most), n = pick(&s, 1, most), k = pick(&s, 1, most);
    int64_t y[CT_MAX_DIMS], a[CT_MAX_DIMS], b[CT_MAX_DIMS], st[CT_MAX_DIMS];
    const unsigned mask = (1U << batch) - 1;
    unsigned ba = 0, bb = 0;
    memset(q, 0, sizeof *q);
    for (int i = 0; i < batch; i++)
        y[i] = a[i] = b[i] = pick(&s, 1, 4);
    y[batch] = a[batch] = m;
    y[batch + 1] = b[batch + 1] = n;
    a[batch + 1] = b[batch] = k;
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
    lay_out(nd, y, st, false, pick(&s, 0, 2) * 3, next(&s) & 1, 0);
    q->y = twin_strided(p, t, nd, y, st);
    lay_out(nd, a, st, next(&s) & 1, pick(&s, 0, 1) * 2, next(&s) & 1, ba);
    if (next(&s) % 8 == 0)
        st[batch + (st[batch] == 1)] = 0; /* an expanded row or column */
    q->a = twin_strided(p, t, nd, a, st);
    lay_out(nd, b, st, next(&s) & 1, pick(&s, 0, 1) * 5, next(&s) & 1, bb);
    q->b = twin_strided(p, t, nd, b, st);
    twin_noise(p, &q->a, next(&s), 1, 0);
    twin_noise(p, &q->b, next(&s), 1, 0);
    q->beta = (int)(next(&s) & 1);
    q->has_bias = !q->beta && (next(&s) & 1);
    q->has_sum = nd == 2 && (next(&s) & 1);
    if (q->beta)
        twin_noise(p, &q->y, next(&s), 1, 0);
    if (q->has_bias)
        q->bias = twin_rand(p, t, ROWS, 1, &n, next(&s));
    if (q->has_sum)
        q->a_sum = twin_new(p, t, ROWS, 1, &m);
}

static void random_problems(pair *p, uint64_t count, double factor)
{
    char what[40];
    for (size_t t = 0; t < N(floats); t++)
        for (uint64_t seed = 1; seed <= count; seed++) {
            product q;
            make(p, &q, floats[t], seed);
            snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
            check(p, &q, factor, what);
            drop(p, &q);
        }
}

Test(cuda_matmul, random_problems)
{
    pair p;
    pair_open(&p);
    random_problems(&p, 250, 4);
    pair_close(&p);
}

Test(cuda_matmul, tf32_rounds_the_operands_of_f32)
{
    pair p;
    pair_open(&p);
    p.cuda->tf32 = true;
    random_problems(&p, 20, 600);
    pair_close(&p);
}

/* ---- given problems ---- */

static product dense(pair *p, ct_dtype t, int64_t m, int64_t n, int64_t k, enum layout a,
                     enum layout b)
{
    product q = {.y = twin_new(p, t, ROWS, 2, SHAPE(m, n)),
                 .a = twin_rand(p, t, a, 2, SHAPE(m, k), 1),
                 .b = twin_rand(p, t, b, 2, SHAPE(k, n), 2)};
    return q;
}

/* With the bias, the sums of a, neither. */
static void all_ways(pair *p, ct_dtype t, int64_t m, int64_t n, int64_t k, enum layout a,
                     enum layout b)
{
    char what[80];
    for (int way = 0; way < 6; way++) {
        product q = dense(p, t, m, n, k, a, b);
        q.beta = way == 1 || way == 4;
        q.has_bias = way == 2 || way == 5;
        q.has_sum = way >= 3;
        if (q.has_bias)
            q.bias = twin_rand(p, t, ROWS, 1, &n, 3);
        if (q.has_sum)
            q.a_sum = twin_new(p, t, ROWS, 1, &m);
        if (q.beta)
            twin_noise(p, &q.y, 4, 1, 0);
        snprintf(what, sizeof what, "[%d,%d] x [%d,%d], way %d, layouts %d %d", (int)m, (int)k,
                 (int)k, (int)n, way, (int)a, (int)b);
        check(p, &q, 8, what);
        drop(p, &q);
    }
}

Test(cuda_matmul, sizes_around_warps_and_blocks)
{
    static const int64_t size[] = {1, 2, 31, 32, 33, 255, 256, 257};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (size_t i = 0; i < N(size); i++)
            for (int l = 0; l < 4; l++) {
                const enum layout a = l & 1 ? REVERSED : ROWS, b = l & 2 ? REVERSED : ROWS;
                all_ways(&p, floats[t], size[i], 3, 5, a, b);
                all_ways(&p, floats[t], 2, size[i], 1, a, b);
                all_ways(&p, floats[t], 1, 4, size[i], a, b);
            }
    pair_close(&p);
}

Test(cuda_matmul, empty)
{
    static const int64_t shape[][3] = {{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {0, 0, 0}};
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (size_t i = 0; i < N(shape); i++)
            all_ways(&p, floats[t], shape[i][0], shape[i][1], shape[i][2], ROWS, ROWS);
    pair_close(&p);
}

/* Data in the middle of an allocation: other algorithms. */
Test(cuda_matmul, operands_that_are_barely_aligned)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (int64_t off = 0; off < 9; off++) {
            product q = {.y = twin_new(&p, floats[t], ROWS, 2, SHAPE(6, 8)),
                         .a = twin_rand(&p, floats[t], ROWS, 1, SHAPE(100), 1),
                         .b = twin_rand(&p, floats[t], ROWS, 1, SHAPE(100), 2)};
            product seen = q;
            seen.a = twin_as(&q.a, off, 2, SHAPE(6, 5), SHAPE(8, 1));
            seen.b = twin_as(&q.b, off / 2, 2, SHAPE(5, 8), SHAPE(8, 1));
            check(&p, &seen, 4, "offset");
            drop(&p, &q);
        }
    pair_close(&p);
}

Test(cuda_matmul, nan_and_infinity_go_through)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++) {
        product q = dense(&p, floats[t], 4, 3, 5, ROWS, ROWS);
        twin_put(&p, &q.a, 0, NAN);
        twin_put(&p, &q.a, 6, INFINITY);
        twin_put(&p, &q.a, 12, -INFINITY);
        twin_upload(&p, &q.a);
        check(&p, &q, 4, "nan");
        drop(&p, &q);
    }
    pair_close(&p);
}

/* Where no algorithm has the epilogue, the bias and the sums come in steps of their own. */
Test(cuda_matmul, refused_epilogues_come_apart)
{
    pair p;
    pair_open(&p);
    for (size_t t = 0; t < N(floats); t++)
        for (int sum = 0; sum < 2; sum++) {
            product q = dense(&p, floats[t], 33, 17, 40, ROWS, REVERSED);
            const int64_t m = 33, n = 17;
            q.has_sum = sum;
            q.has_bias = !sum;
            if (sum)
                q.a_sum = twin_new(&p, floats[t], ROWS, 1, &m);
            else
                q.bias = twin_rand(&p, floats[t], ROWS, 1, &n, 3);
            pair_fail("cublasLtMatmulAlgoGetHeuristic:1");
            check(&p, &q, 8, "apart");
            pair_fail(NULL);
            drop(&p, &q);
        }
    pair_close(&p);
}

/* ---- the cache, refusals, failures ---- */

static uint64_t primitives(pair *p)
{
    ct_device_counters c;
    cti_cuda_mem.counters(p->cuda, &c);
    return c.primitives;
}

Test(cuda_matmul, steady_calls_make_nothing)
{
    pair p;
    pair_open(&p);
    product q = dense(&p, CT_BF16, 5, 6, 7, REVERSED, ROWS);
    ct_matmul_args a = args_of(&q, false);
    size_t bytes;
    pair_ok(&p, cti_cuda_matmul_workspace(p.cuda, &a, &bytes));
    a.workspace = pair_scratch(&p, bytes + 1);
    const uint64_t made = primitives(&p), calls = cti_mem_get_stats(p.mem).calls;
    for (int i = 0; i < 10; i++)
        pair_ok(&p, cti_cuda_matmul(p.cuda, &a));
    cr_assert_eq(primitives(&p), made);
    cr_assert_eq(cti_mem_get_stats(p.mem).calls, calls);
    pair_scratch_free(&p, a.workspace);
    drop(&p, &q);
    pair_close(&p);
}

Test(cuda_matmul, the_cache_is_bounded)
{
    pair p;
    pair_open(&p);
    product q = dense(&p, CT_F32, 5000, 1, 1, ROWS, ROWS);
    ct_matmul_args a = args_of(&q, false);
    const uint64_t live = cti_mem_get_stats(p.mem).live_blocks;
    for (int64_t m = 1; m <= 5000; m++) {
        size_t bytes;
        a.a.shape[0] = a.y.shape[0] = m;
        pair_ok(&p, cti_cuda_matmul_workspace(p.cuda, &a, &bytes));
    }
    cr_assert(cti_mem_get_stats(p.mem).live_blocks - live <= 2048);
    drop(&p, &q);
    pair_close(&p);
}

Test(cuda_matmul, other_dtypes_are_refused)
{
    pair p;
    pair_open(&p);
    product q = dense(&p, CT_F64, 2, 2, 2, ROWS, ROWS), r = dense(&p, CT_F32, 2, 2, 2, ROWS, ROWS);
    ct_matmul_args a = args_of(&q, false), b = args_of(&r, false);
    size_t bytes;
    pair_refuses(&p, cti_cuda_matmul_workspace(p.cuda, &a, &bytes));
    pair_refuses(&p, cti_cuda_matmul(p.cuda, &a));
    b.b.dtype = CT_BF16;
    pair_refuses(&p, cti_cuda_matmul(p.cuda, &b));
    drop(&p, &q);
    drop(&p, &r);
    pair_close(&p);
}

Test(cuda_matmul, failures_are_told)
{
    if (!pair_on_double())
        cr_skip_test("only the double fails when it is told to");
    static const char *const calls[] = {"cublasLtMatmulDescCreate:1",
                                        "cublasLtMatmulDescSetAttribute:1",
                                        "cublasLtMatmulDescSetAttribute:2",
                                        "cublasLtMatmulDescSetAttribute:3",
                                        "cublasLtMatrixLayoutCreate:1",
                                        "cublasLtMatrixLayoutCreate:2",
                                        "cublasLtMatrixLayoutCreate:3",
                                        "cublasLtMatrixLayoutSetAttribute:1",
                                        "cublasLtMatmulPreferenceCreate:1",
                                        "cublasLtMatmulPreferenceSetAttribute:1",
                                        "cublasLtMatmulPreferenceSetAttribute:3",
                                        "cublasLtMatmulAlgoGetHeuristic:1",
                                        "cublasLtMatmul:1"};
    pair p;
    pair_open(&p);
    for (size_t i = 0; i <= N(calls); i++) {
        product q = dense(&p, CT_F32, 3 + (int64_t)i, 4, 5, ROWS, ROWS);
        ct_matmul_args a = args_of(&q, false);
        size_t bytes = 0;
        if (i < N(calls))
            pair_fail(calls[i]);
        else
            cti_mem_fail_at(p.mem, 1, false);
        int rc = cti_cuda_matmul_workspace(p.cuda, &a, &bytes);
        if (rc == CT_OK) {
            a.workspace = bytes ? pair_scratch(&p, bytes) : NULL;
            rc = cti_cuda_matmul(p.cuda, &a);
            pair_scratch_free(&p, a.workspace);
        }
        pair_fail(NULL);
        cr_assert(rc == CT_EDEVICE || rc == CT_ENOMEM, "%zu: %d", i, rc);
        cr_assert_eq(p.err.code, rc);
        p.err = (ct_error){0};
        drop(&p, &q);
    }
    pair_close(&p);
}
