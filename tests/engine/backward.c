/* SPDX-License-Identifier: Apache-2.0 */
/* Backward: what it adds where, how often, over which graphs. */
#include "engine.h"

#include <math.h>

TestSuite(backward, .init = engine_open, .fini = engine_close);

Test(backward, adds_to_the_gradients_of_leaves)
{
    ct_tensor *a = WANTING(1, 2), *b = WANTING(3, 5);
    OK(ct_backward(ctx, total(ct_mul(a, b)), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 3, 5);
    EXPECT_VALUES("b", ct_tensor_grad(b), 1, 2);
    OK(ct_backward(ctx, total(ct_mul(a, b)), NULL, 0));
    EXPECT_VALUES("a, twice", ct_tensor_grad(a), 6, 10);
}

Test(backward, gives_non_leaves_no_gradient)
{
    ct_tensor *a = WANTING(1, 2), *y = ct_square(a);
    OK(ct_backward(ctx, total(y), NULL, 0));
    cr_expect_null(ct_tensor_grad(y));
}

Test(backward, gives_leaves_that_want_none_no_gradient)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4);
    OK(ct_backward(ctx, total(ct_mul(a, b)), NULL, 0));
    cr_expect_null(ct_tensor_grad(b));
}

Test(backward, gives_leaves_outside_the_graph_no_gradient)
{
    ct_tensor *a = WANTING(1, 2), *b = WANTING(3, 4);
    OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
    cr_expect_null(ct_tensor_grad(b));
}

Test(backward, starts_anew_after_zero_grad)
{
    ct_tensor *a = WANTING(1, 2);
    for (int i = 0; i < 3; i++) {
        ct_zero_grad(a);
        cr_expect_null(ct_tensor_grad(a));
        OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
        EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4);
    }
    ct_zero_grad(NULL);
}

Test(backward, of_a_scalar_needs_no_gradient_and_of_one_element_neither)
{
    ct_tensor *a = WANTING(3);
    OK(ct_backward(ctx, ct_square(a), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 6);
}

Test(backward, of_many_elements_needs_a_gradient)
{
    ct_tensor *a = WANTING(1, 2);
    cr_expect_eq(ct_backward(ctx, ct_square(a), NULL, 0), CT_ESHAPE);
    ts_expect_error(ctx, CT_ESHAPE, "backward", "[2]", "one-element", NULL);
    cr_expect_null(ct_tensor_grad(a));
}

Test(backward, uses_the_gradient_given)
{
    ct_tensor *a = WANTING(1, 2), *g = LEAF(10, 100);
    OK(ct_backward(ctx, ct_square(a), g, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 20, 400);
    EXPECT_VALUES("the gradient given stays", g, 10, 100);
}

Test(backward, does_not_alias_the_gradient_given)
{
    ct_tensor *a = WANTING(1, 2), *g = LEAF(10, 100);
    OK(ct_backward(ctx, ct_clone(a), g, 0));
    OK(ct_backward(ctx, ct_clone(a), g, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 20, 200);
    EXPECT_VALUES("the gradient given stays", g, 10, 100);
}

Test(backward, gives_two_leaves_of_one_sum_gradients_of_their_own)
{
    ct_tensor *a = WANTING(1, 2), *b = WANTING(3, 4), *g = LEAF(1, 10);
    OK(ct_backward(ctx, ct_add(a, b), g, 0));
    cr_expect(!ct_tensor_shares_storage(ct_tensor_grad(a), ct_tensor_grad(b)),
              "adding to one would change the other");
    OK(ct_backward(ctx, ct_square(a), g, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 3, 50);
    EXPECT_VALUES("b", ct_tensor_grad(b), 1, 10);
}

Test(backward, refuses_a_gradient_of_another_shape_or_dtype)
{
    ct_tensor *a = WANTING(1, 2), *y = ct_square(a);
    cr_expect_eq(ct_backward(ctx, y, LEAF(1, 2, 3), 0), CT_ESHAPE);
    ts_expect_error(ctx, CT_ESHAPE, "[3]", "[2]", NULL);
    ct_tensor *f32 = ts_vec(ctx, CT_F32, V(1, 2));
    cr_expect_lt(ct_backward(ctx, y, f32, 0), 0);
    ts_expect_error(ctx, ct_error_code(ctx), "float32", "float64", NULL);
    ct_tensor_release(f32);
    OK(ct_backward(ctx, y, LEAF(1, 1), 0));
    EXPECT_VALUES("a, after the errors", ct_tensor_grad(a), 2, 4);
}

Test(backward, of_a_leaf_sets_its_own_gradient)
{
    ct_tensor *a = WANTING(1, 2);
    OK(ct_backward(ctx, a, LEAF(7, 8), 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 7, 8);
}

Test(backward, without_a_graph_is_an_error_that_says_so)
{
    cr_expect_eq(ct_backward(ctx, total(LEAF(1, 2)), NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "no graph", "CT_SCOPE_NO_GRAD", "ct_detach", NULL);
    cr_expect_eq(ct_backward(ctx, NULL, NULL, 0), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "NULL", NULL);
}

Test(backward, a_second_time_is_an_error_that_says_how_to_allow_it)
{
    ct_tensor *a = WANTING(1, 2), *loss = total(ct_square(a));
    OK(ct_backward(ctx, loss, NULL, 0));
    cr_expect_eq(ct_backward(ctx, loss, NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "square", "CT_RETAIN_GRAPH", NULL);
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4);
}

Test(backward, a_second_time_over_ops_that_saved_nothing_is_fine_as_in_pytorch)
{
    ct_tensor *a = WANTING(1, 2), *b = WANTING(3, 4), *loss = total(ct_add(a, b));
    OK(ct_backward(ctx, loss, NULL, 0));
    OK(ct_backward(ctx, loss, NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 2);
}

Test(backward, with_retain_graph_can_be_repeated)
{
    ct_tensor *a = WANTING(1, 2), *loss = total(ct_exp(ct_square(a)));
    for (int i = 0; i < 3; i++)
        OK(ct_backward(ctx, loss, NULL, CT_RETAIN_GRAPH));
    OK(ct_backward(ctx, loss, NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 8 * exp(1), 16 * exp(4));
    cr_expect_eq(ct_backward(ctx, loss, NULL, 0), CT_ESTATE);
    ct_error_clear(ctx);
}

Test(backward, frees_what_was_saved_at_once)
{
    ct_tensor *a = WANTING(1, 2, 3, 4), *loss = total(ct_exp(ct_square(a)));
    uint64_t saved = ct_ctx_counters(ctx).saved_bytes;
    cr_expect_eq(saved, 64, "square keeps its input, exp its output: %llu",
                 (unsigned long long)saved);
    OK(ct_backward(ctx, loss, NULL, CT_RETAIN_GRAPH));
    cr_expect_eq(ct_ctx_counters(ctx).saved_bytes, saved, "retained");
    OK(ct_backward(ctx, loss, NULL, 0));
    cr_expect_eq(ct_ctx_counters(ctx).saved_bytes, 0, "freed");
}

Test(backward, from_two_losses_through_a_shared_part_needs_retain_graph)
{
    ct_tensor *a = WANTING(1, 2), *mid = ct_square(a);
    ct_tensor *one = total(mid), *two = total(ct_mul(mid, mid));
    OK(ct_backward(ctx, one, NULL, CT_RETAIN_GRAPH));
    OK(ct_backward(ctx, two, NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2 + 4, 4 + 32);
}

Test(backward, runs_a_diamond_once_per_node)
{
    /* y = (x^2) * exp(x^2): both ways meet again at x^2. */
    ct_tensor *x = WANTING(0.5, -1);
    ct_tensor *s = ct_square(x);
    OK(ct_backward(ctx, total(ct_mul(s, ct_exp(s))), NULL, 0));
    double want[2], v[2] = {0.5, -1};
    for (int i = 0; i < 2; i++)
        want[i] = exp(v[i] * v[i]) * (1 + v[i] * v[i]) * 2 * v[i];
    ts_expect_values("x", ctx, ct_tensor_grad(x), 2, want, (ts_tol){1e-12, 1e-14});
}

Test(backward, over_a_ladder_of_diamonds_takes_no_exponential_time)
{
    /* 60 times x = x + x: 2^60 ways, 60 nodes. */
    ct_tensor *x = WANTING(1), *y = x;
    for (int i = 0; i < 60; i++)
        y = ct_add(y, y);
    OK(ct_backward(ctx, y, NULL, 0));
    EXPECT_VALUES("x", ct_tensor_grad(x), 0x1p60);
}

Test(backward, takes_a_short_and_a_long_way_to_one_leaf)
{
    ct_tensor *x = WANTING(1, 2), *y = x;
    for (int i = 0; i < 20; i++)
        y = ct_affine(y, 1, 1);
    OK(ct_backward(ctx, total(ct_add(x, ct_add(y, x))), NULL, 0));
    EXPECT_VALUES("x", ct_tensor_grad(x), 3, 3);
}

Test(backward, sums_over_a_wide_graph)
{
    ct_tensor *x = WANTING(2, 3), *sum = NULL;
    for (int i = 0; i < 2000; i++) {
        ct_tensor *y = ct_square(x);
        sum = sum ? ct_add(sum, y) : y;
    }
    OK(ct_backward(ctx, total(sum), NULL, 0));
    EXPECT_VALUES("x", ct_tensor_grad(x), 8000, 12000);
}

Test(backward, of_a_chain_of_100000_nodes_does_not_recurse, .timeout = 60)
{
    ct_tensor *x = WANTING(1);
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *y = ct_tensor_retain(x);
    for (int i = 0; i < 100000; i++) {
        ct_tensor *next = ct_tensor_retain(ct_affine(y, 1, 1));
        ct_tensor_release(y);
        y = next;
    }
    EXPECT_VALUES("y", y, 100001);
    OK(ct_backward(ctx, y, NULL, 0));
    EXPECT_VALUES("x", ct_tensor_grad(x), 1);
    ct_tensor_release(y);
    OK(ct_scope_end(ctx));
    cr_expect_eq(ct_ctx_counters(ctx).live_nodes, 0);
}

Test(backward, of_a_long_chain_that_never_runs_is_freed_without_recursion, .timeout = 60)
{
    ct_tensor *x = WANTING(1);
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *y = x;
    for (int i = 0; i < 100000; i++)
        y = ct_exp(ct_affine(y, 0, 0));
    cr_expect_not_null(y);
    OK(ct_scope_end(ctx));
    cr_expect_eq(ct_ctx_counters(ctx).live_nodes, 0);
    cr_expect_eq(ct_ctx_counters(ctx).live_tensors, 1);
}

Test(backward, inside_no_grad_still_works_on_a_graph_from_outside)
{
    ct_tensor *a = WANTING(1, 2), *loss = total(ct_square(a));
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    OK(ct_backward(ctx, loss, NULL, 0));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4);
}

Test(backward, leaves_gradients_that_require_no_grad_and_have_no_graph)
{
    ct_tensor *a = WANTING(1, 2);
    OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
    cr_expect(!ct_tensor_requires_grad(ct_tensor_grad(a)));
    cr_expect(ct_tensor_is_leaf(ct_tensor_grad(a)));
}

Test(backward, after_an_error_in_the_middle_leaves_the_context_usable)
{
    ct_tensor *a = WANTING(1, 2), *mid = ct_square(a), *loss = total(ct_square(mid));
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    OK(ct_tensor_fill(ctx, mid, 0));
    OK(ct_scope_end(ctx));
    cr_expect_eq(ct_backward(ctx, loss, NULL, 0), CT_ESTATE);
    ct_error_clear(ctx);
    ct_zero_grad(a);
    OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4);
}

Test(backward, accumulates_over_micro_batches_as_one_batch_does)
{
    ct_tensor *w = WANTING(0.5, -0.25);
    double x[3][2] = {{1, 2}, {3, -4}, {-5, 6}};
    for (int i = 0; i < 3; i++)
        OK(ct_backward(ctx, total(ct_square(ct_mul(w, leaf(2, x[i])))), NULL, 0));
    EXPECT_VALUES("w", ct_tensor_grad(w), 2 * 0.5 * (1 + 9 + 25), 2 * -0.25 * (4 + 16 + 36));
}

/* A failure leaves no gradient behind in the nodes for the next backward over the same graph. */
Test(backward, after_an_allocation_that_failed_gives_the_right_gradient)
{
    bool reached = true;
    int again = 0;
    for (uint64_t n = 1; reached && n < 100; n++) {
        ct_ctx *c = ts_ctx(CT_F64, true); /* its tables have yet to grow */
        ct_tensor *a = ts_param(c, ts_vec(c, CT_F64, V(1, 2)));
        ct_tensor *loss = ct_sum(ct_square(a), NULL, 0, false);
        ct_ctx_fail_alloc_at(c, n, false);
        cr_assert_not_null(loss);
        int rc = ct_backward(c, loss, NULL, CT_RETAIN_GRAPH);
        reached = ct_ctx_alloc_failed(c);
        ct_ctx_fail_alloc_at(c, 0, false);
        cr_expect_eq(rc, reached ? CT_ENOMEM : CT_OK, "allocation %llu", (unsigned long long)n);
        ct_error_clear(c);
        ct_zero_grad(a);
        cr_expect_eq(ct_backward(c, loss, NULL, CT_RETAIN_GRAPH), CT_OK);
        ts_expect_values("a", c, ct_tensor_grad(a), V(2, 4), (ts_tol){1e-12, 1e-14});
        again += reached;
        ct_tensor_release(a);
        ct_ctx_free(c);
    }
    cr_expect(!reached && again > 2);
}
