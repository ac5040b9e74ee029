/* SPDX-License-Identifier: Apache-2.0 */
/* Scopes: whose results are whose, grad modes, the step that leaks. */
#include "engine.h"

TestSuite(scopes, .init = engine_open, .fini = engine_close);
TestSuite(steps, .init = engine_open, .fini = engine_close);

static uint64_t tensors(void)
{
    return ct_ctx_counters(ctx).live_tensors;
}

Test(scopes, take_their_results_with_them)
{
    ct_tensor *a = LEAF(1, 2);
    uint64_t before = tensors();
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_exp(ct_add(a, a));
    cr_expect_eq(tensors(), before + 2);
    OK(ct_scope_end(ctx));
    cr_expect_eq(tensors(), before);
}

Test(scopes, leave_a_retained_result_alive)
{
    ct_tensor *a = LEAF(1, 2);
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *kept = ct_tensor_retain(ct_add(a, a));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("kept", kept, 2, 4);
    uint64_t before = tensors();
    ct_tensor_release(kept);
    cr_expect_eq(tensors(), before - 1);
}

Test(scopes, leave_tensors_made_inside_to_their_owner)
{
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    ct_tensor *t = ts_vec(ctx, CT_F64, V(1, 2));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("t", t, 1, 2);
    ct_tensor_release(t);
}

Test(scopes, hand_a_result_up_by_scope_return)
{
    ct_tensor *a = LEAF(1, 2), *up;
    uint64_t before = tensors();
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    up = ct_scope_return(ct_add(a, ct_square(a)));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("up", up, 2, 6);
    cr_expect_eq(tensors(), before + 1);
    OK(ct_scope_end(ctx));
    cr_expect_eq(tensors(), before);
    cr_expect_null(ct_scope_return(NULL));
}

Test(scopes, hand_a_result_up_twice)
{
    ct_tensor *a = LEAF(1, 2), *up;
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    up = ct_scope_return(ct_scope_return(ct_square(a)));
    OK(ct_scope_end(ctx));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("up", up, 1, 4);
    OK(ct_scope_end(ctx));
}

Test(scopes, do_not_take_what_the_graph_needs)
{
    ct_tensor *a = WANTING(1, 2), *loss;
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    loss = ct_scope_return(total(ct_square(ct_exp(ct_mul(a, LEAF(0, 0))))));
    OK(ct_scope_end(ctx));
    OK(ct_backward(ctx, loss, NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 0, 0);
}

Test(scopes, end_in_the_order_they_began_and_no_more_often)
{
    cr_expect_eq(ct_scope_end(ctx), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "scope", NULL);
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    OK(ct_scope_end(ctx));
    cr_expect_eq(ct_scope_end(ctx), CT_ESTATE);
    ct_error_clear(ctx);
}

Test(scopes, end_also_under_a_pending_error_and_return_it)
{
    uint64_t before = tensors();
    ct_tensor *a = LEAF(1, 2), *b = LEAF(1, 2, 3);
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    cr_expect_null(ct_exp(ct_add(ct_square(a), b)));
    cr_expect_eq(ct_scope_end(ctx), CT_ESHAPE);
    cr_expect(ct_grad_enabled(ctx), "the grad mode is restored");
    ts_expect_error(ctx, CT_ESHAPE, "add", "[2]", "[3]", NULL);
    cr_expect_eq(tensors(), before + 2);
    cr_expect_eq(ct_scope_end(ctx), CT_ESTATE, "the scope ended in spite of the error");
    ct_error_clear(ctx);
}

Test(scopes, begin_also_under_a_pending_error_so_that_they_pair)
{
    ct_error_raise(ctx, CT_EDATA, "test", "bad");
    ct_scope_begin(ctx, CT_SCOPE_PLAIN);
    cr_expect_eq(ct_scope_end(ctx), CT_EDATA);
    ct_error_clear(ctx);
    cr_expect_eq(ct_scope_end(ctx), CT_ESTATE);
    ct_error_clear(ctx);
}

Test(scopes, without_one_results_live_as_long_as_the_context)
{
    ct_tensor *y = ct_square(LEAF(1, 2));
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("y", y, 1, 4);
}

/* ---- grad modes ---- */

Test(scopes, of_no_grad_record_nothing)
{
    ct_tensor *a = WANTING(1, 2);
    cr_expect(ct_grad_enabled(ctx));
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    cr_expect(!ct_grad_enabled(ctx));
    ct_tensor *y = ct_square(a);
    cr_expect(!ct_tensor_requires_grad(y) && ct_tensor_is_leaf(y));
    cr_expect_eq(ct_ctx_counters(ctx).live_nodes, 0);
    cr_expect(ct_tensor_requires_grad(a));
    OK(ct_scope_end(ctx));
    cr_expect(ct_grad_enabled(ctx));
    cr_expect(ct_tensor_requires_grad(ct_square(a)));
}

Test(scopes, nest_grad_modes_and_restore_each)
{
    ct_tensor *a = WANTING(1, 2);
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    cr_expect(!ct_grad_enabled(ctx), "a plain scope keeps the mode");
    OK(ct_scope_begin(ctx, CT_SCOPE_GRAD));
    cr_expect(ct_grad_enabled(ctx));
    cr_expect(ct_tensor_requires_grad(ct_square(a)));
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    cr_expect(!ct_grad_enabled(ctx));
    OK(ct_scope_end(ctx));
    cr_expect(ct_grad_enabled(ctx));
    OK(ct_scope_end(ctx));
    cr_expect(!ct_grad_enabled(ctx));
    OK(ct_scope_end(ctx));
    OK(ct_scope_end(ctx));
    cr_expect(ct_grad_enabled(ctx));
}

Test(scopes, of_no_grad_cut_the_graph_where_they_begin)
{
    ct_tensor *a = WANTING(1, 2), *mid = ct_square(a);
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    ct_tensor *cut = ct_scope_return(ct_square(mid));
    OK(ct_scope_end(ctx));
    OK(ct_backward(ctx, total(ct_add(mid, cut)), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4);
}

/* ---- steps ---- */

Test(steps, that_keep_nothing_end_with_no_live_node)
{
    ct_tensor *a = WANTING(1, 2);
    for (int i = 0; i < 3; i++) {
        OK(ct_scope_begin(ctx, CT_SCOPE_STEP));
        OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
        cr_expect_gt(ct_ctx_counters(ctx).live_nodes, 0);
        OK(ct_scope_end(ctx));
        cr_expect_eq(ct_ctx_counters(ctx).live_nodes, 0);
        cr_expect_eq(ct_ctx_counters(ctx).saved_bytes, 0);
    }
}

Test(steps, that_keep_a_total_of_losses_are_an_error_that_names_the_op)
{
    ct_tensor *a = WANTING(1, 2), *sum = ct_tensor_scalar(ctx, CT_F64, 0);
    OK(ct_scope_begin(ctx, CT_SCOPE_STEP));
    ct_tensor *loss = total(ct_square(a));
    ct_tensor *next = ct_tensor_retain(ct_add(sum, loss)); /* total += loss */
    OK(ct_backward(ctx, loss, NULL, 0));
    cr_expect_eq(ct_scope_end(ctx), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "'add'", "step", "ct_tensor_item", "ct_detach", NULL);
    ct_tensor_release(next);
    ct_tensor_release(sum);
    cr_expect_eq(ct_ctx_counters(ctx).live_nodes, 0);
}

Test(steps, that_keep_a_detached_total_are_fine)
{
    ct_tensor *a = WANTING(1, 2), *sum = ct_tensor_scalar(ctx, CT_F64, 0);
    for (int i = 0; i < 3; i++) {
        OK(ct_scope_begin(ctx, CT_SCOPE_STEP));
        ct_tensor *loss = total(ct_square(a));
        OK(ct_backward(ctx, loss, NULL, 0));
        OK(ct_tensor_add(ctx, sum, ct_detach(loss), 1));
        OK(ct_scope_end(ctx));
    }
    EXPECT_VALUES("sum", sum, 15);
    ct_tensor_release(sum);
}

Test(steps, that_begin_with_live_nodes_may_end_with_as_many)
{
    ct_tensor *a = WANTING(1, 2), *outer = ct_square(a);
    OK(ct_scope_begin(ctx, CT_SCOPE_STEP));
    OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
    OK(ct_scope_end(ctx));
    cr_expect(ct_tensor_requires_grad(outer));
}

Test(steps, that_hand_up_a_result_with_a_graph_leak_too)
{
    ct_tensor *a = WANTING(1, 2);
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    OK(ct_scope_begin(ctx, CT_SCOPE_STEP));
    ct_scope_return(ct_square(a));
    cr_expect_eq(ct_scope_end(ctx), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "'square'", NULL);
    OK(ct_scope_end(ctx));
    cr_expect_eq(ct_ctx_counters(ctx).live_nodes, 0);
}
