/* SPDX-License-Identifier: Apache-2.0 */
/* Making, reading and changing tensors; memory that runs out in them; random numbers. */
#define _POSIX_C_SOURCE 200809L
#include "engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tensors, .init = engine_open, .fini = engine_close);
TestSuite(draws, .init = engine_open, .fini = engine_close);

Test(tensors, are_zero_when_new)
{
    ct_tensor *t = ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){2, 3});
    EXPECT_VALUES("t", t, 0, 0, 0, 0, 0, 0);
    cr_expect_eq(ct_tensor_ndim(t), 2);
    cr_expect_eq(ct_tensor_numel(t), 6);
    cr_expect_eq(ct_tensor_size(t, 0), 2);
    cr_expect_eq(ct_tensor_size(t, -1), 3);
    cr_expect_eq(ct_tensor_size(t, 2), 0);
    cr_expect_eq(ct_tensor_size(t, -3), 0);
    cr_expect_eq(ct_tensor_strides(t)[0], 3);
    cr_expect(ct_tensor_is_contiguous(t));
    cr_expect_eq(ct_tensor_ctx(t), ctx);
    char buf[64];
    cr_expect_str_eq(ct_tensor_describe(t, buf, sizeof(buf)), "float32 [2,3]");
    ct_tensor_release(t);
    ct_tensor_release(NULL);
    cr_expect_null(ct_tensor_retain(NULL));
}

Test(tensors, may_be_scalars_or_empty)
{
    ct_tensor *s = ct_tensor_scalar(ctx, CT_F64, 2.5), *e;
    double v = 0;
    OK(ct_tensor_item(ctx, s, &v));
    cr_expect_eq(v, 2.5);
    cr_expect_eq(ct_tensor_ndim(s), 0);
    cr_expect_eq(ct_tensor_numel(s), 1);
    e = ct_tensor_new(ctx, CT_F64, 3, (int64_t[]){2, 0, 3});
    cr_expect_not_null(e);
    cr_expect_eq(ct_tensor_numel(e), 0);
    OK(ct_tensor_read(ctx, e, NULL, 0));
    OK(ct_tensor_fill(ctx, e, 1));
    ct_tensor_release(s);
    ct_tensor_release(e);
}

Test(tensors, have_at_most_eight_dimensions_and_no_negative_size)
{
    cr_expect_null(ct_tensor_new(ctx, CT_F64, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}));
    ts_expect_error(ctx, CT_EINVAL, "9", "8", NULL);
    cr_expect_null(ct_tensor_new(ctx, CT_F64, 2, (int64_t[]){2, -3}));
    ts_expect_error(ctx, CT_EINVAL, "-3", NULL);
    cr_expect_null(ct_tensor_new(ctx, CT_F64, -1, NULL));
    ts_expect_error(ctx, CT_EINVAL, "-1", NULL);
    cr_expect_null(ct_tensor_new(ctx, (ct_dtype)77, 1, (int64_t[]){1}));
    ts_expect_error(ctx, CT_EINVAL, "dtype", NULL);
    cr_expect_null(ct_tensor_new(ctx, CT_F64, 2, NULL));
    ts_expect_error(ctx, CT_EINVAL, "NULL", NULL);
    cr_expect_null(ct_tensor_from(ctx, CT_F64, 1, (int64_t[]){2}, NULL));
    ts_expect_error(ctx, CT_EINVAL, "NULL", NULL);
}

Test(tensors, of_more_bytes_than_can_be_counted_are_out_of_memory)
{
    cr_expect_null(ct_tensor_new(ctx, CT_F64, 3, (int64_t[]){1 << 30, 1 << 30, 1 << 30}));
    ts_expect_error(ctx, CT_ENOMEM, NULL);
    cr_expect_null(ct_tensor_new(ctx, CT_F64, 2, (int64_t[]){INT64_MAX, 2}));
    ts_expect_error(ctx, CT_ENOMEM, NULL);
}

Test(tensors, are_read_and_written_with_exactly_their_bytes)
{
    ct_tensor *t = LEAF(1, 2, 3);
    double v[3] = {4, 5, 6};
    cr_expect_eq(ct_tensor_read(ctx, t, v, 16), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "read", "16", "24", NULL);
    cr_expect_eq(ct_tensor_write(ctx, t, v, 32), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "write", "32", "24", NULL);
    OK(ct_tensor_write(ctx, t, v, 24));
    EXPECT_VALUES("t", t, 4, 5, 6);
}

Test(tensors, give_their_item_only_when_they_have_one)
{
    double v = 0;
    cr_expect_eq(ct_tensor_item(ctx, LEAF(1, 2), &v), CT_ESHAPE);
    ts_expect_error(ctx, CT_ESHAPE, "item", "[2]", NULL);
    ct_tensor *i = ts_vec(ctx, CT_I64, V(-7));
    OK(ct_tensor_item(ctx, i, &v));
    cr_expect_eq(v, -7);
    ct_tensor_release(i);
    ct_tensor *b = ts_vec(ctx, CT_BOOL, V(1));
    OK(ct_tensor_item(ctx, b, &v));
    cr_expect_eq(v, 1);
    ct_tensor_release(b);
}

Test(tensors, copy_converts_and_broadcasts)
{
    ct_tensor *m = ct_tensor_new(ctx, CT_F32, 2, (int64_t[]){2, 3});
    OK(ct_tensor_copy(ctx, m, LEAF(1.5, 2.5, -3)));
    EXPECT_VALUES("m", m, 1.5, 2.5, -3, 1.5, 2.5, -3);
    ct_tensor *i = ct_tensor_new(ctx, CT_I64, 1, (int64_t[]){3});
    OK(ct_tensor_copy(ctx, i, LEAF(1.9, -1.9, 0)));
    EXPECT_VALUES("i", i, 1, -1, 0);
    cr_expect_eq(ct_tensor_copy(ctx, i, m), CT_ESHAPE);
    ts_expect_error(ctx, CT_ESHAPE, "copy", "[2,3]", "[3]", NULL);
    ct_tensor_release(m);
    ct_tensor_release(i);
}

Test(tensors, add_in_place_scales_and_broadcasts)
{
    ct_tensor *t = LEAF(1, 2, 3);
    OK(ct_tensor_add(ctx, t, LEAF(10), 0.5));
    EXPECT_VALUES("t", t, 6, 7, 8);
    OK(ct_tensor_add(ctx, t, t, 1));
    EXPECT_VALUES("t + t", t, 12, 14, 16);
}

Test(tensors, know_their_strides)
{
    ct_tensor *x = ct_tensor_new(ctx, CT_F32, 4, (int64_t[]){2, 3, 4, 5});
    cr_expect(ct_tensor_is_contiguous(x) && !ct_tensor_is_channels_last(x));
    ct_tensor *c = ct_channels_last(x);
    cr_expect(!ct_tensor_is_contiguous(c) && ct_tensor_is_channels_last(c));
    cr_expect_eq(ct_tensor_strides(c)[1], 1);
    cr_expect_eq(ct_tensor_strides(c)[3], 3);
    cr_expect_eq(ct_tensor_strides(c)[2], 15);
    cr_expect_eq(ct_tensor_strides(c)[0], 60);
    cr_expect(ct_tensor_shares_storage(ct_channels_last(c), c), "nothing to do");
    ct_tensor_release(x);
}

/* ---- memory that runs out ---- */

static int starve_after, starve_live;

static void *starving_alloc(size_t bytes, size_t align, void *user)
{
    (void)user;
    void *p = NULL;
    if (starve_after-- <= 0 ||
        posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes))
        return NULL;
    starve_live++;
    return p;
}

static void starving_free(void *p, void *user)
{
    (void)user;
    starve_live -= p != NULL;
    free(p);
}

static void each_allocation_fails(const char *what, int (*fn)(ct_tensor *))
{
    ct_tensor *t = LEAF(1, 2, 3);
    bool reached = true;
    cr_expect_eq(fn(t), CT_OK, "%s", what); /* tables that grow once */
    for (uint64_t n = 1; reached && n < 100; n++) {
        ct_counters was = ct_ctx_counters(ctx);
        ct_ctx_fail_alloc_at(ctx, n, false);
        int rc = fn(t);
        reached = ct_ctx_alloc_failed(ctx);
        ct_ctx_fail_alloc_at(ctx, 0, false);
        cr_expect_eq(rc, reached ? CT_ENOMEM : CT_OK, "%s, allocation %llu: %s", what,
                     (unsigned long long)n, ct_error_get(ctx)->text);
        cr_expect_eq(ct_error_code(ctx), rc, "%s", what);
        ct_error_clear(ctx);
        ct_counters is = ct_ctx_counters(ctx);
        cr_expect_eq(is.live_blocks, was.live_blocks, "%s, allocation %llu leaks", what,
                     (unsigned long long)n);
        cr_expect_eq(is.live_tensors, was.live_tensors, "%s", what);
    }
    cr_expect(!reached, "%s allocates without end", what);
}

static int make_one(ct_tensor *t)
{
    (void)t;
    ct_tensor *n = ct_tensor_new(ctx, CT_F64, 1, (int64_t[]){100});
    ct_tensor_release(n);
    return ct_error_code(ctx);
}
static int copy_host(ct_tensor *t)
{
    (void)t;
    ct_tensor *n = ts_vec(ctx, CT_F64, V(1, 2));
    ct_tensor_release(n);
    return ct_error_code(ctx);
}
static int make_scalar(ct_tensor *t)
{
    (void)t;
    ct_tensor *n = ct_tensor_scalar(ctx, CT_F64, 1);
    ct_tensor_release(n);
    return ct_error_code(ctx);
}
static int scope_pair(ct_tensor *t)
{
    (void)t;
    int rc = ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    return rc ? rc : ct_scope_end(ctx);
}
static int detach(ct_tensor *t)
{
    if (ct_scope_begin(ctx, CT_SCOPE_PLAIN))
        return ct_error_code(ctx);
    ct_detach(t);
    return ct_scope_end(ctx);
}
static int write_all(ct_tensor *t)
{
    return ct_tensor_write(ctx, t, (double[]){1, 2, 3}, 24);
}
static int backward_all(ct_tensor *t)
{
    if (ct_scope_begin(ctx, CT_SCOPE_PLAIN))
        return ct_error_code(ctx);
    int rc = ct_tensor_set_requires_grad(ctx, t, true);
    rc = rc ? rc : ct_backward(ctx, total(ct_square(ct_mul(t, ct_add(t, ct_exp(t))))), NULL, 0);
    (void)rc;
    rc = ct_scope_end(ctx);
    ct_zero_grad(t);
    return rc;
}

Test(tensors, survive_each_allocation_failing)
{
    each_allocation_fails("new", make_one);
    each_allocation_fails("from", copy_host);
    each_allocation_fails("scalar", make_scalar);
    each_allocation_fails("scope", scope_pair);
    each_allocation_fails("detach", detach);
    each_allocation_fails("write", write_all);
    each_allocation_fails("a graph and its backward", backward_all);
}

Test(tensors, of_a_context_that_cannot_be_made_are_no_concern)
{
    /* Each allocation of a context's own start fails in turn, through the application's
     * allocator. */
    for (int n = 1; n < 200; n++) {
        starve_after = n - 1;
        starve_live = 0;
        ct_ctx_opts o = ct_ctx_defaults();
        o.device = "cpu";
        o.alloc = starving_alloc;
        o.free = starving_free;
        ct_error err = {0};
        ct_ctx *c = ct_ctx_new(o, &err);
        if (!c)
            cr_expect_eq(err.code, CT_ENOMEM, "allocation %d: %s", n, err.text);
        bool reached = starve_after < 0;
        cr_expect(c || reached, "no context and no allocation failed");
        ct_ctx_free(c);
        cr_expect_eq(starve_live, 0, "allocation %d leaks %d blocks", n, starve_live);
        if (c && !reached)
            return;
    }
    cr_expect(false, "a context takes more than 200 allocations");
}

/* ---- random numbers ---- */

static ts_array uniform(ct_ctx *c, int64_t n, ct_dtype dtype)
{
    ct_tensor *t = ct_tensor_new(c, dtype, 1, &n);
    cr_assert(!ct_tensor_uniform(c, t, -1, 3), "%s", ct_error_get(c)->text);
    ts_array a = ts_values(c, t);
    ct_tensor_release(t);
    return a;
}

Test(draws, depend_on_the_seed_and_on_the_call)
{
    ct_ctx *same = ts_ctx(CT_F64, true), *other = ts_ctx(CT_F64, true);
    ct_ctx_set_seed(other, 8);
    cr_expect_eq(ct_ctx_seed(other), 8);
    ts_array a = uniform(ctx, 100, CT_F64), b = uniform(same, 100, CT_F64);
    ts_array c = uniform(other, 100, CT_F64), d = uniform(ctx, 100, CT_F64);
    cr_expect(!memcmp(a.v, b.v, 800), "the same seed");
    cr_expect(memcmp(a.v, c.v, 800), "another seed");
    cr_expect(memcmp(a.v, d.v, 800), "the next call");
    ts_array_free(&a);
    ts_array_free(&b);
    ts_array_free(&c);
    ts_array_free(&d);
    ct_ctx_free(same);
    ct_ctx_free(other);
}

Test(draws, of_uniform_stay_within_their_bounds_with_their_mean)
{
    ts_array a = uniform(ctx, 20000, CT_F64);
    double sum = 0, low = 9, high = -9;
    for (int64_t i = 0; i < a.n; i++) {
        sum += a.v[i];
        low = fmin(low, a.v[i]);
        high = fmax(high, a.v[i]);
    }
    cr_expect(low >= -1 && low < -0.99 && high < 3 && high > 2.99, "%g to %g", low, high);
    cr_expect_lt(fabs(sum / (double)a.n - 1), 0.03);
    ts_array_free(&a);
}

Test(draws, of_normal_have_mean_deviation_and_tails)
{
    ct_tensor *t = ct_tensor_new(ctx, CT_F64, 1, (int64_t[]){20000});
    OK(ct_tensor_normal(ctx, t, 2, 3));
    ts_array a = ts_values(ctx, t);
    double sum = 0, square = 0;
    int beyond = 0;
    for (int64_t i = 0; i < a.n; i++) {
        double z = (a.v[i] - 2) / 3;
        sum += z;
        square += z * z;
        beyond += fabs(z) > 2;
    }
    cr_expect_lt(fabs(sum / 20000), 0.03);
    cr_expect_lt(fabs(square / 20000 - 1), 0.04);
    cr_expect_lt(fabs(beyond / 20000.0 - 0.0455), 0.006);
    ts_array_free(&a);
    ct_tensor_release(t);
}

static ts_array dropped(uint32_t step, uint32_t micro, int calls, int layout)
{
    ct_tensor *x = ct_tensor_new(ctx, CT_F64, 4, (int64_t[]){2, 3, 4, 5});
    OK(ct_tensor_fill(ctx, x, 1));
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    ct_ctx_set_position(ctx, step, micro);
    ct_tensor *y = NULL;
    for (int i = 0; i < calls; i++)
        y = ct_dropout(layout ? ct_channels_last(x) : x, 0.5, true);
    ts_array a = ts_values(ctx, y);
    OK(ct_scope_end(ctx));
    ct_tensor_release(x);
    return a;
}

Test(draws, of_dropout_depend_on_step_micro_batch_and_call_alone)
{
    ts_array a = dropped(1, 0, 1, 0), b = dropped(1, 0, 1, 0), l = dropped(1, 0, 1, 1);
    ts_array s = dropped(2, 0, 1, 0), m = dropped(1, 1, 1, 0), o = dropped(1, 0, 2, 0);
    size_t bytes = (size_t)a.n * sizeof(double);
    cr_expect(!memcmp(a.v, b.v, bytes), "the same position");
    cr_expect(!memcmp(a.v, l.v, bytes), "channels-last in memory");
    cr_expect(memcmp(a.v, s.v, bytes), "another step");
    cr_expect(memcmp(a.v, m.v, bytes), "another micro-batch");
    cr_expect(memcmp(a.v, o.v, bytes), "the second call");
    ts_array *all[] = {&a, &b, &l, &s, &m, &o};
    for (int i = 0; i < TS_LEN(all); i++)
        ts_array_free(all[i]);
}
