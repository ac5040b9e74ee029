/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the first one stays, acting calls stop, what the texts say. Contexts side by side. */
#define _POSIX_C_SOURCE 200809L
#include "engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(errors, .init = engine_open, .fini = engine_close);
TestSuite(contexts);

Test(errors, keep_the_first_one_with_where_it_was)
{
    cr_expect_eq(ct_error_code(ctx), CT_OK);
    cr_expect_str_eq(ct_error_get(ctx)->text, "");
    cr_expect_null(ct_add(LEAF(1, 2), LEAF(1, 2, 3)));
    cr_expect_eq(ct_error_code(ctx), CT_ESHAPE);
    cr_expect_neq(ct_error_get(ctx)->where[0], '\0');
    cr_expect_eq(ct_error_raise(ctx, CT_EDATA, "test", "a later one"), CT_EDATA);
    ts_expect_error(ctx, CT_ESHAPE, "add", "[2]", "[3]", NULL);
    cr_expect_str_eq(ct_error_get(ctx)->text, "");
}

Test(errors, of_the_application_are_recorded_as_given)
{
    cr_expect_eq(ct_error_raise(ctx, CT_EDATA, "my_forward", "sample %d is %s", 7, "odd"),
                 CT_EDATA);
    cr_expect_str_eq(ct_error_get(ctx)->where, "my_forward");
    cr_expect_str_eq(ct_error_get(ctx)->text, "sample 7 is odd");
    ct_error_clear(ctx);
}

Test(errors, make_expressions_inert_and_pass_through_nested_ones)
{
    ct_tensor *a = LEAF(1, 2), *b = LEAF(1, 2, 3);
    cr_expect_null(ct_exp(ct_relu(ct_add(ct_square(a), b))));
    ts_expect_error(ctx, CT_ESHAPE, "add", NULL);
    cr_expect_not_null(ct_exp(ct_relu(ct_square(a))));
}

Test(errors, stop_each_acting_call_which_returns_the_pending_one)
{
    ct_tensor *a = LEAF(1, 2), *w = WANTING(1, 2), *loss = total(ct_square(w));
    double v[2] = {9, 9}, item;
    ct_error_raise(ctx, CT_EDATA, "test", "pending");
    cr_expect_eq(ct_backward(ctx, loss, NULL, 0), CT_EDATA, "backward");
    cr_expect_eq(ct_tensor_read(ctx, a, v, sizeof(v)), CT_EDATA, "read");
    cr_expect_eq(ct_tensor_item(ctx, loss, &item), CT_EDATA, "item");
    cr_expect_eq(ct_tensor_write(ctx, a, v, sizeof(v)), CT_EDATA, "write");
    cr_expect_eq(ct_tensor_fill(ctx, a, 9), CT_EDATA, "fill");
    cr_expect_eq(ct_tensor_copy(ctx, a, a), CT_EDATA, "copy");
    cr_expect_eq(ct_tensor_add(ctx, a, a, 1), CT_EDATA, "add");
    cr_expect_eq(ct_tensor_uniform(ctx, a, 0, 1), CT_EDATA, "uniform");
    cr_expect_eq(ct_tensor_normal(ctx, a, 0, 1), CT_EDATA, "normal");
    cr_expect_eq(ct_tensor_set_requires_grad(ctx, a, true), CT_EDATA, "set_requires_grad");
    cr_expect_eq(ct_tensor_set_grad(ctx, w, a), CT_EDATA, "set_grad");
    cr_expect_null(ts_vec(ctx, CT_F64, V(1, 2)), "new tensor");
    cr_expect_null(ct_detach(a), "detach");
    ts_expect_error(ctx, CT_EDATA, "pending", NULL);
    EXPECT_VALUES("a is as it was", a, 1, 2);
    cr_expect_null(ct_tensor_grad(w));
    OK(ct_backward(ctx, loss, NULL, 0));
}

Test(errors, of_a_null_operand_are_einval_when_the_context_is_known)
{
    cr_expect_null(ct_add(LEAF(1, 2), NULL));
    ts_expect_error(ctx, CT_EINVAL, "add", "NULL", NULL);
    cr_expect_null(ct_relu(NULL));
    cr_expect_eq(ct_error_code(ctx), CT_OK);
    ct_tensor *many[40], *one = LEAF(1, 2);
    for (int i = 0; i < 40; i++)
        many[i] = i < 39 ? one : NULL;
    cr_expect_null(ct_cat(many, 40, 0));
    ts_expect_error(ctx, CT_EINVAL, "cat", "input 39", "NULL", NULL);
}

Test(errors, of_shapes_name_op_and_both_shapes)
{
    ct_tensor *m = ct_reshape(LEAF(1, 2, 3, 4, 5, 6), 2, (int64_t[]){2, 3});
    cr_expect_null(ct_matmul(m, m));
    ts_expect_error(ctx, CT_ESHAPE, "matmul", "[2,3]", NULL);
    cr_expect_null(ct_reshape(m, 1, (int64_t[]){5}));
    ts_expect_error(ctx, CT_ESHAPE, "reshape", "[2,3]", "[5]", NULL);
    cr_expect_null(ct_linear(m, m, LEAF(1, 2, 3)));
    ts_expect_error(ctx, CT_ESHAPE, "linear", "[3]", NULL);
    ct_tensor *cat[2] = {m, LEAF(1, 2)};
    cr_expect_null(ct_cat(cat, 2, 0));
    ts_expect_error(ctx, CT_ESHAPE, "cat", "[2,3]", "[2]", NULL);
}

Test(errors, of_windows_too_large_to_count)
{
    ct_tensor *x = ct_reshape(LEAF(1, 2, 3, 4), 4, (int64_t[]){1, 1, 2, 2});
    ct_pool2d_opts pool = ct_pool2d_defaults(2);
    ct_conv2d_opts conv = ct_conv2d_defaults();
    pool.stride[1] = 1LL << 32; /* 0 in 32 bits */
    cr_expect_null(ct_max_pool2d(x, pool));
    ts_expect_error(ctx, CT_EINVAL, "max_pool2d", "4294967296", "width", NULL);
    cr_expect_null(ct_avg_pool2d(x, pool));
    ts_expect_error(ctx, CT_EINVAL, "avg_pool2d", "4294967296", "width", NULL);
    conv.dilation[0] = INT64_MAX;
    cr_expect_null(ct_conv2d(x, x, NULL, conv));
    ts_expect_error(ctx, CT_EINVAL, "conv2d", "dilation", "height", NULL);
    conv = ct_conv2d_defaults();
    conv.padding[1] = INT64_MAX / 2 + 1;
    cr_expect_null(ct_conv2d(x, x, NULL, conv));
    ts_expect_error(ctx, CT_EINVAL, "conv2d", "padding", "width", NULL);
}

Test(errors, of_dimensions_name_the_range)
{
    ct_tensor *m = ct_reshape(LEAF(1, 2, 3, 4, 5, 6), 2, (int64_t[]){2, 3});
    cr_expect_null(ct_sum(m, (int[]){2}, 1, false));
    ts_expect_error(ctx, CT_EINVAL, "sum", "2", "-2", "1", NULL);
    cr_expect_null(ct_softmax(m, -3));
    ts_expect_error(ctx, CT_EINVAL, "softmax", "-3", NULL);
    cr_expect_null(ct_narrow(m, 1, 2, 2));
    cr_expect_lt(ct_error_code(ctx), 0);
    ts_expect_error(ctx, ct_error_code(ctx), "narrow", NULL);
    cr_expect_null(ct_transpose(m, 0, 5));
    ts_expect_error(ctx, CT_EINVAL, "5", NULL);
    cr_expect_null(ct_reshape(m, 2, (int64_t[]){-1, -1}));
    cr_expect_lt(ct_error_code(ctx), 0);
    ts_expect_error(ctx, ct_error_code(ctx), "reshape", "-1", NULL);
}

Test(errors, of_dtypes_name_both)
{
    ct_tensor *a = LEAF(1, 2), *b = ts_vec(ctx, CT_F32, V(1, 2)), *i = ts_vec(ctx, CT_I64, V(1, 2));
    cr_expect_null(ct_add(a, b));
    ts_expect_error(ctx, CT_EDTYPE, "add", "float64", "float32", NULL);
    cr_expect_null(ct_relu(i));
    ts_expect_error(ctx, CT_EDTYPE, "relu", "int64", NULL);
    cr_expect_eq(ct_tensor_add(ctx, a, b, 1), CT_EDTYPE);
    ts_expect_error(ctx, CT_EDTYPE, "float64", "float32", NULL);
    ct_tensor_release(b);
    ct_tensor_release(i);
}

Test(errors, of_labels_name_the_sample_and_the_classes)
{
    ct_tensor *x = ct_reshape(LEAF(1, 2, 3, 4, 5, 6), 2, (int64_t[]){2, 3});
    ct_tensor *y = ts_vec(ctx, CT_I64, V(0, 3));
    cr_expect_null(ct_cross_entropy(x, y, ct_cross_entropy_defaults()));
    ts_expect_error(ctx, CT_EDATA, "cross_entropy", "3", "1", NULL);
    ct_tensor_release(y);
    y = ts_vec(ctx, CT_I64, V(-1, 2));
    cr_expect_null(ct_cross_entropy(x, y, ct_cross_entropy_defaults()));
    ts_expect_error(ctx, CT_EDATA, "cross_entropy", "-1", NULL);
    ct_tensor_release(y);
}

Test(errors, leave_no_result_and_no_node_behind)
{
    ct_tensor *a = WANTING(1, 2), *b = WANTING(1, 2, 3);
    ct_counters was = ct_ctx_counters(ctx);
    for (int i = 0; i < 10; i++) {
        cr_expect_null(ct_add(a, b));
        ct_error_clear(ctx);
    }
    ct_counters is = ct_ctx_counters(ctx);
    cr_expect_eq(is.live_nodes, was.live_nodes);
    cr_expect_eq(is.live_tensors, was.live_tensors);
    cr_expect_eq(is.live_blocks, was.live_blocks);
}

Test(errors, have_names)
{
    cr_expect_str_eq(ct_status_name(CT_ESHAPE), "CT_ESHAPE");
    cr_expect_str_eq(ct_status_name(CT_EINTERNAL), "CT_EINTERNAL");
    cr_expect_str_eq(ct_status_name(-999), "CT_E?");
}

/* ---- contexts ---- */

Test(contexts, do_not_mix)
{
    ct_ctx *one = ts_ctx(CT_F64, true), *two = ts_ctx(CT_F64, true);
    ct_tensor *a = ts_vec(one, CT_F64, V(1, 2)), *b = ts_vec(two, CT_F64, V(3, 4));
    ct_tensor *w = ts_param(two, ts_vec(two, CT_F64, V(1, 2)));
    double v[2];
    cr_expect_null(ct_add(a, b));
    ts_expect_error(one, CT_EINVAL, "add", "another context", NULL);
    cr_expect_eq(ct_error_code(two), CT_OK);
    cr_expect_eq(ct_tensor_copy(one, a, b), CT_EINVAL);
    ts_expect_error(one, CT_EINVAL, "another context", NULL);
    cr_expect_eq(ct_tensor_read(one, b, v, sizeof(v)), CT_EINVAL);
    ts_expect_error(one, CT_EINVAL, "another context", NULL);
    cr_expect_eq(ct_tensor_fill(one, b, 0), CT_EINVAL);
    ts_expect_error(one, CT_EINVAL, "another context", NULL);
    cr_expect_eq(ct_backward(one, ct_square(w), b, 0), CT_EINVAL);
    ts_expect_error(one, CT_EINVAL, "another context", NULL);
    ct_tensor_release(a);
    ct_tensor_release(b);
    ct_tensor_release(w);
    ct_ctx_free(one);
    ct_ctx_free(two);
}

typedef struct worker {
    double start, loss, w[4];
    int rc;
} worker;

/* A small training of its own, with many small ops. */
static void *train(void *user)
{
    worker *k = user;
    ct_ctx *c = ts_ctx(CT_F64, false);
    double x[4] = {1, -2, 3, -4};
    ct_tensor *data = ts_vec(c, CT_F64, 4, x);
    ct_tensor *w = ts_param(c, ts_vec(c, CT_F64, 4, (double[]){k->start, 1, 1, 1}));
    for (int i = 0; i < 200 && !k->rc; i++) {
        k->rc |= ct_scope_begin(c, CT_SCOPE_STEP);
        ct_tensor *loss =
            ct_mean(ct_square(ct_sub(ct_tanh(ct_mul(w, data)), data)), NULL, 0, false);
        ct_zero_grad(w);
        k->rc |= ct_backward(c, loss, NULL, 0);
        k->rc |= ct_tensor_item(c, loss, &k->loss);
        k->rc |= ct_scope_begin(c, CT_SCOPE_NO_GRAD);
        k->rc |= ct_tensor_add(c, w, ct_tensor_grad(w), -0.1);
        k->rc |= ct_scope_end(c);
        k->rc |= ct_scope_end(c);
    }
    k->rc |= ct_tensor_read(c, w, k->w, sizeof(k->w));
    ct_tensor_release(w);
    ct_tensor_release(data);
    ct_ctx_free(c);
    return NULL;
}

Test(contexts, run_side_by_side_in_two_threads_with_the_results_of_one)
{
    worker alone[2] = {{.start = 0.5}, {.start = -0.5}}, together[2];
    memcpy(together, alone, sizeof(alone));
    for (int i = 0; i < 2; i++)
        train(&alone[i]);
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        cr_assert(!pthread_create(&t[i], NULL, train, &together[i]));
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(together[i].rc, 0);
        cr_expect(!memcmp(&alone[i], &together[i], sizeof(alone[i])), "context %d: %.17g and %.17g",
                  i, alone[i].loss, together[i].loss);
    }
    cr_expect_neq(alone[0].w[0], alone[1].w[0]);
}

Test(contexts, refuse_options_they_do_not_know)
{
    static const struct {
        const char *device;
        int threads, code;
        const char *part;
    } all[] = {
        {"gpu", 0, CT_EINVAL, "gpu"}, {"cpu", -1, CT_EINVAL, "-1"}, {"", 0, CT_EINVAL, "auto"}};
    for (int i = 0; i < TS_LEN(all); i++) {
        ct_ctx_opts o = ct_ctx_defaults();
        o.device = all[i].device;
        o.threads = all[i].threads;
        ct_error err = {0};
        cr_expect_null(ct_ctx_new(o, &err));
        cr_expect_eq(err.code, all[i].code, "%s: %s", all[i].device, err.text);
        cr_expect(strstr(err.text, all[i].part), "%s", err.text);
    }
    ct_ctx_opts o = ct_ctx_defaults();
    o.dtype = CT_I64;
    ct_error err = {0};
    cr_expect_null(ct_ctx_new(o, &err));
    cr_expect(strstr(err.text, "int64"), "%s", err.text);
}

static struct {
    uint64_t calls, blocks;
    char maker[64];
} told;

static void on_leak(const char *maker, uint64_t blocks, uint64_t bytes, void *user)
{
    (void)bytes;
    cr_expect_eq(user, &told);
    told.calls++;
    told.blocks += blocks;
    snprintf(told.maker, sizeof(told.maker), "%s", maker);
}

Test(contexts, tell_at_their_end_what_the_application_forgot)
{
    for (int leak = 0; leak < 2; leak++) {
        ct_ctx_opts o = ct_ctx_defaults();
        o.device = "cpu";
        o.direct_alloc = true;
        o.on_leak = on_leak;
        o.user = &told;
        ct_error err = {0};
        ct_ctx *c = ct_ctx_new(o, &err);
        cr_assert(c != NULL, "%s", err.text);
        ct_tensor *t = ts_vec(c, CT_F64, V(1, 2));
        memset(&told, 0, sizeof(told));
        if (!leak)
            ct_tensor_release(t);
        ct_ctx_free(c);
        cr_expect(leak ? told.blocks > 0 : told.blocks == 0, "%llu blocks of %s",
                  (unsigned long long)told.blocks, told.maker);
    }
}

static uint64_t n_alloc, n_free;

static void *count_alloc(size_t bytes, size_t align, void *user)
{
    (void)user;
    void *p = NULL;
    __atomic_add_fetch(&n_alloc, 1, __ATOMIC_RELAXED);
    return posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes) ? NULL : p;
}

static void count_free(void *p, void *user)
{
    (void)user;
    __atomic_add_fetch(&n_free, 1, __ATOMIC_RELAXED);
    free(p);
}

Test(contexts, use_the_applications_allocator_for_all_and_give_all_back)
{
    ct_ctx_opts o = ct_ctx_defaults();
    o.device = "cpu";
    o.alloc = count_alloc;
    o.free = count_free;
    ct_error err = {0};
    ct_ctx *c = ct_ctx_new(o, &err);
    cr_assert(c != NULL, "%s", err.text);
    ct_tensor *w = ts_param(c, ts_vec(c, CT_F32, V(1, 2, 3)));
    uint64_t before = n_alloc;
    cr_expect_gt(before, 0);
    cr_expect(!ct_backward(c, ct_sum(ct_square(w), NULL, 0, false), NULL, 0));
    cr_expect_gt(n_alloc, before);
    ct_tensor_release(w);
    ct_ctx_free(c);
    cr_expect_eq(n_alloc, n_free);
}

Test(contexts, free_everything_also_what_is_still_held)
{
    n_alloc = n_free = 0;
    ct_ctx_opts o = ct_ctx_defaults();
    o.device = "cpu";
    o.alloc = count_alloc;
    o.free = count_free;
    ct_error err = {0};
    ct_ctx *c = ct_ctx_new(o, &err);
    cr_assert(c != NULL, "%s", err.text);
    ct_tensor *w = ts_param(c, ts_vec(c, CT_F32, V(1, 2, 3)));
    cr_expect(!ct_scope_begin(c, CT_SCOPE_PLAIN));
    ct_tensor_retain(ct_square(w));
    ct_ctx_free(c);
    cr_expect_eq(n_alloc, n_free);
    ct_ctx_free(NULL);
}
