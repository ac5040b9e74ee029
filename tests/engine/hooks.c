/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks on gradients, gradients of results that are kept. */
#include "engine.h"

TestSuite(hooks, .init = engine_open, .fini = engine_close);

static int calls;

static ct_tensor *count(ct_ctx *c, ct_tensor *grad, void *user)
{
    (void)c;
    (void)grad;
    calls++;
    if (user)
        *(int *)user = calls;
    return NULL;
}

static ct_tensor *twice(ct_ctx *c, ct_tensor *grad, void *user)
{
    (void)c;
    (void)user;
    return ct_affine(grad, 2, 0);
}

static ct_tensor *plus_one(ct_ctx *c, ct_tensor *grad, void *user)
{
    (void)c;
    (void)user;
    return ct_affine(grad, 1, 1);
}

static ct_tensor *another_shape(ct_ctx *c, ct_tensor *grad, void *user)
{
    (void)c;
    (void)user;
    return ct_unsqueeze(grad, 0);
}

static ct_tensor *raises(ct_ctx *c, ct_tensor *grad, void *user)
{
    (void)grad;
    (void)user;
    ct_error_raise(c, CT_EDATA, "here", "no such luck");
    return NULL;
}

static ct_tensor *goes_on(ct_ctx *c, ct_tensor *grad, void *user)
{
    if (ct_backward(c, user, NULL, 0))
        return NULL;
    return grad;
}

Test(hooks, of_a_leaf_see_its_whole_gradient_once)
{
    ct_tensor *a = WANTING(1, 2);
    calls = 0;
    cr_assert(ct_tensor_register_hook(ctx, a, count, NULL));
    OK(ct_backward(ctx, total(ct_add(ct_square(a), ct_exp(a))), NULL, 0));
    cr_expect_eq(calls, 1);
}

Test(hooks, of_a_leaf_change_what_is_accumulated)
{
    ct_tensor *a = WANTING(1, 2);
    cr_assert(ct_tensor_register_hook(ctx, a, twice, NULL));
    OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
    EXPECT_VALUES("a, once", ct_tensor_grad(a), 4, 8);
    OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
    EXPECT_VALUES("a, twice", ct_tensor_grad(a), 8, 16);
}

Test(hooks, of_a_result_change_what_flows_on)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_square(a);
    cr_assert(ct_tensor_register_hook(ctx, m, twice, NULL));
    OK(ct_backward(ctx, total(m), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 4, 8);
}

Test(hooks, run_in_the_order_of_registration)
{
    ct_tensor *a = WANTING(3);
    cr_assert(ct_tensor_register_hook(ctx, a, twice, NULL));
    cr_assert(ct_tensor_register_hook(ctx, a, plus_one, NULL));
    OK(ct_backward(ctx, total(a), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 3);
}

Test(hooks, outlive_the_handle_of_a_result)
{
    ct_tensor *a = WANTING(3), *y;
    calls = 0;
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *m = ct_square(a);
    cr_assert(ct_tensor_register_hook(ctx, m, count, NULL));
    y = ct_scope_return(ct_affine(m, 1, 0));
    OK(ct_scope_end(ctx));
    OK(ct_backward(ctx, y, NULL, 0));
    cr_expect_eq(calls, 1);
}

Test(hooks, can_be_removed)
{
    ct_tensor *a = WANTING(3);
    calls = 0;
    uint64_t id = ct_tensor_register_hook(ctx, a, count, NULL);
    OK(ct_tensor_remove_hook(ctx, a, id));
    OK(ct_backward(ctx, total(a), NULL, 0));
    cr_expect_eq(calls, 0);
    cr_expect_eq(ct_tensor_remove_hook(ctx, a, id), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "no hook", NULL);
}

Test(hooks, do_not_run_where_no_gradient_comes)
{
    ct_tensor *a = WANTING(3), *b = WANTING(4);
    calls = 0;
    cr_assert(ct_tensor_register_hook(ctx, b, count, NULL));
    OK(ct_backward(ctx, total(a), NULL, 0));
    cr_expect_eq(calls, 0);
}

Test(hooks, change_what_grad_gives)
{
    ct_tensor *a = WANTING(3), *y = ct_square(a), *g;
    cr_assert(ct_tensor_register_hook(ctx, a, plus_one, NULL));
    OK(ct_grad(ctx, 1, &y, NULL, 1, &a, 0, &g));
    EXPECT_VALUES("a", g, 7);
}

Test(hooks, are_part_of_the_graph_of_gradients)
{
    ct_tensor *a = WANTING(3), *y = ct_mul(ct_square(a), a), *g, *h;
    cr_assert(ct_tensor_register_hook(ctx, a, twice, NULL));
    OK(ct_grad(ctx, 1, &y, NULL, 1, &a, CT_CREATE_GRAPH, &g));
    EXPECT_VALUES("2 * 3 x^2", g, 54);
    OK(ct_grad(ctx, 1, &g, NULL, 1, &a, 0, &h));
    EXPECT_VALUES("2 * 2 * 6 x", h, 72);
}

static void after(ct_ctx *c, ct_tensor *t, void *user)
{
    (void)c;
    *(ct_tensor **)user = ct_tensor_grad(t);
    calls++;
}

Test(hooks, after_accumulation_see_the_gradient_of_the_leaf)
{
    ct_tensor *a = WANTING(3), *seen = NULL, *y = ct_square(a), *g;
    calls = 0;
    cr_assert(ct_tensor_register_post_accumulate_hook(ctx, a, after, (void *)&seen));
    OK(ct_grad(ctx, 1, &y, NULL, 1, &a, CT_RETAIN_GRAPH, &g));
    cr_expect_eq(calls, 0);
    OK(ct_backward(ctx, y, NULL, 0));
    cr_expect_eq(seen, ct_tensor_grad(a));
    cr_expect_eq(calls, 1);
    cr_expect_eq(ct_tensor_register_post_accumulate_hook(ctx, y, after, NULL), 0);
    ts_expect_error(ctx, CT_EINVAL, "only leaves", NULL);
}

Test(hooks, must_give_a_gradient_of_the_same_shape)
{
    ct_tensor *a = WANTING(3, 4);
    cr_assert(ct_tensor_register_hook(ctx, a, another_shape, NULL));
    cr_expect_eq(ct_backward(ctx, total(a), NULL, 0), CT_ESHAPE);
    ts_expect_error(ctx, CT_ESHAPE, "float64 [2]", "float64 [1,2]", NULL);
}

Test(hooks, that_fail_end_the_backward)
{
    ct_tensor *a = WANTING(3, 4);
    uint64_t id = ct_tensor_register_hook(ctx, a, raises, NULL);
    cr_expect_eq(ct_backward(ctx, total(a), NULL, 0), CT_EDATA);
    ts_expect_error(ctx, CT_EDATA, "no such luck", NULL);
    OK(ct_tensor_remove_hook(ctx, a, id));
    OK(ct_backward(ctx, total(a), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 1, 1);
}

Test(hooks, can_not_start_another_backward)
{
    ct_tensor *a = WANTING(3), *other = ct_square(a);
    cr_assert(ct_tensor_register_hook(ctx, a, goes_on, other));
    cr_expect_eq(ct_backward(ctx, total(a), NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "inside a backward", NULL);
}

Test(hooks, need_a_tensor_that_requires_grad)
{
    cr_expect_eq(ct_tensor_register_hook(ctx, LEAF(1), count, NULL), 0);
    ts_expect_error(ctx, CT_ESTATE, "doesn't require grad", NULL);
    cr_expect_eq(ct_tensor_register_hook(ctx, WANTING(1), NULL, NULL), 0);
    ts_expect_error(ctx, CT_EINVAL, "NULL", NULL);
}

/* ---- retain_grad ---- */

Test(hooks, keep_the_gradient_of_a_result_on_request)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_square(a);
    OK(ct_tensor_retain_grad(ctx, m));
    OK(ct_tensor_retain_grad(ctx, m));
    OK(ct_backward(ctx, total(ct_square(m)), NULL, 0));
    EXPECT_VALUES("m", ct_tensor_grad(m), 2, 8);
    EXPECT_VALUES("a", ct_tensor_grad(a), 4, 32);
}

Test(hooks, keep_the_gradient_as_the_other_hooks_left_it)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_square(a);
    OK(ct_tensor_retain_grad(ctx, m));
    cr_assert(ct_tensor_register_hook(ctx, m, twice, NULL));
    OK(ct_backward(ctx, total(m), NULL, 0));
    EXPECT_VALUES("m", ct_tensor_grad(m), 2, 2);
}

Test(hooks, keep_nothing_for_a_result_that_is_gone)
{
    ct_tensor *a = WANTING(3), *y;
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *m = ct_square(a);
    OK(ct_tensor_retain_grad(ctx, m));
    y = ct_scope_return(ct_affine(m, 1, 0));
    OK(ct_scope_end(ctx));
    OK(ct_backward(ctx, y, NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 6);
}

Test(hooks, keep_the_gradient_of_what_a_result_became_in_place)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_square(a);
    OK(ct_tensor_retain_grad(ctx, m));
    cr_assert(ct_mul_(m, LEAF(5, 5)));
    OK(ct_backward(ctx, total(ct_square(m)), NULL, 0));
    EXPECT_VALUES("m", ct_tensor_grad(m), 10, 40);
}
