/* SPDX-License-Identifier: Apache-2.0 */
/* Ops in place, on tensors and through views; inference mode. */
#include "engine.h"

TestSuite(inplace, .init = engine_open, .fini = engine_close);
TestSuite(inference, .init = engine_open, .fini = engine_close);

static ct_tensor *two_by_three(ct_tensor *x)
{
    return ct_reshape(x, 2, (int64_t[]){2, 3});
}

Test(inplace, ops_return_the_tensor_itself_and_bump_its_version)
{
    ct_tensor *a = LEAF(1, 2);
    uint64_t version = ct_tensor_version(a);
    cr_expect_eq(ct_add_(a, LEAF(10, 20)), a);
    EXPECT_VALUES("a", a, 11, 22);
    cr_expect_eq(ct_tensor_version(a), version + 1);
}

Test(inplace, ops_take_over_the_graph)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_square(a);
    cr_assert(ct_mul_(m, LEAF(3, 4)));
    EXPECT_VALUES("m", m, 3, 16);
    cr_expect_str_eq(ct_grad_fn_name(ct_tensor_grad_fn(m)), "MulBackward0");
    OK(ct_backward(ctx, total(m), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 6, 16);
}

Test(inplace, ops_save_what_their_operand_was)
{
    ct_tensor *a = WANTING(3), *b = WANTING(5), *m = ct_affine(a, 1, 0);
    cr_assert(ct_mul_(m, b));
    OK(ct_backward(ctx, m, NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 5);
    EXPECT_VALUES("b", ct_tensor_grad(b), 3);
}

Test(inplace, ops_may_have_their_operand_twice)
{
    ct_tensor *a = WANTING(3), *m = ct_affine(a, 1, 0);
    cr_assert(ct_mul_(m, m));
    OK(ct_backward(ctx, m, NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 6);
}

Test(inplace, ops_make_a_leaf_a_result)
{
    ct_tensor *buffer = LEAF(0, 0), *a = WANTING(1, 2);
    cr_assert(ct_add_(buffer, ct_square(a)));
    cr_expect(!ct_tensor_is_leaf(buffer) && ct_tensor_requires_grad(buffer));
    OK(ct_backward(ctx, total(buffer), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4);
}

Test(inplace, changes_make_a_backward_that_needs_the_old_value_fail)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_affine(a, 1, 0), *y = ct_square(m);
    cr_assert(ct_add_(m, LEAF(1, 1)));
    cr_expect_eq(ct_backward(ctx, total(y), NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "square", "input 0 (float64 [2])", "changed in place",
                    "version 1", "version 0", NULL);
}

Test(inplace, changes_of_what_no_backward_needs_are_fine)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_affine(a, 3, 0), *y = ct_affine(m, 2, 0);
    cr_assert(ct_add_(m, LEAF(1, 1)));
    OK(ct_backward(ctx, ct_add(total(y), total(m)), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 9, 9);
}

Test(inplace, refuses_leaves_that_require_grad_and_views_of_them)
{
    ct_tensor *a = WANTING(1, 2);
    cr_expect_null(ct_add_(a, LEAF(1, 1)));
    ts_expect_error(ctx, CT_ESTATE, "add", "leaf that requires grad", "CT_SCOPE_NO_GRAD", NULL);
    cr_expect_null(ct_add_(ct_narrow(a, 0, 0, 1), LEAF(1)));
    ts_expect_error(ctx, CT_ESTATE, "a view of a leaf that requires grad", NULL);
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    cr_expect(ct_add_(a, LEAF(1, 1)));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("a", a, 2, 3);
    cr_expect(ct_tensor_is_leaf(a));
}

Test(inplace, refuses_results_of_another_shape_or_dtype)
{
    ct_tensor *a = LEAF(1, 2, 3);
    cr_expect_null(ct_add_(a, two_by_three(LEAF(1, 2, 3, 4, 5, 6))));
    ts_expect_error(ctx, CT_ESHAPE, "add", "float64 [2,3]", "float64 [3]", "in place", NULL);
    EXPECT_VALUES("a", a, 1, 2, 3);
}

Test(inplace, refuses_expanded_tensors_and_overlapping_operands)
{
    ct_tensor *a = LEAF(1, 2, 3);
    cr_expect_null(ct_add_(ct_expand(LEAF(1), 1, (int64_t[]){3}), a));
    ts_expect_error(ctx, CT_ESTATE, "expanded", "ct_clone", NULL);
    cr_expect_null(ct_add_(ct_narrow(a, 0, 1, 2), ct_narrow(a, 0, 0, 2)));
    ts_expect_error(ctx, CT_EINVAL, "input 1 is partly the memory", NULL);
}

Test(inplace, copy_takes_the_graph_of_its_source)
{
    ct_tensor *a = WANTING(3), *b = WANTING(5), *m = ct_square(a);
    cr_assert(ct_copy_(m, ct_square(b)));
    OK(ct_backward(ctx, m, NULL, 0));
    EXPECT_VALUES("b", ct_tensor_grad(b), 10);
    cr_expect_null(ct_tensor_grad(a));
}

Test(inplace, functions_keep_their_gradients)
{
    static ct_tensor *(*const in[])(ct_tensor *) = {
        ct_relu_, ct_sigmoid_, ct_tanh_, ct_silu_, ct_exp_, ct_sqrt_, ct_square_, ct_neg_, ct_abs_};
    static ct_tensor *(*const out[])(ct_tensor *) = {ct_relu, ct_sigmoid, ct_tanh, ct_silu, ct_exp,
                                                     ct_sqrt, ct_square,  ct_neg,  ct_abs};
    for (int i = 0; i < TS_LEN(in); i++) {
        ct_tensor *a = WANTING(0.5, 2), *b = WANTING(0.5, 2), *m = ct_affine(a, 1, 0);
        cr_assert_eq(in[i](m), m);
        OK(ct_backward(ctx, total(ct_square(m)), NULL, 0));
        OK(ct_backward(ctx, total(ct_square(out[i](ct_affine(b, 1, 0)))), NULL, 0));
        ts_array got = ts_values(ctx, ct_tensor_grad(a)), want = ts_values(ctx, ct_tensor_grad(b));
        ts_expect_close("gradient", &got, &want, TS_EXACT);
        ts_array_free(&got);
        ts_array_free(&want);
    }
    const double lo = 1;
    ct_tensor *a = WANTING(0.5, 2), *m = ct_affine(a, 1, 0);
    cr_assert(ct_affine_(ct_clamp_(m, &lo, NULL), 3, 1));
    EXPECT_VALUES("m", m, 4, 7);
    OK(ct_backward(ctx, total(m), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 0, 3);
}

Test(inplace, fill_cuts_the_gradient_of_what_it_covers)
{
    ct_tensor *a = WANTING(1, 2, 3), *m = ct_affine(a, 2, 0);
    cr_assert(ct_fill_(ct_narrow(m, 0, 0, 2), 7));
    EXPECT_VALUES("m", m, 7, 7, 6);
    OK(ct_backward(ctx, total(ct_square(m)), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 0, 0, 24);
}

/* ---- views ---- */

Test(inplace, changes_through_a_view_change_the_graph_of_its_base)
{
    ct_tensor *a = WANTING(1, 2, 3, 4, 5, 6), *m = ct_affine(two_by_three(a), 1, 0);
    cr_assert(ct_mul_(ct_narrow(m, 0, 1, 1), ct_reshape(LEAF(10, 10, 10), 2, (int64_t[]){1, 3})));
    EXPECT_VALUES("m", m, 1, 2, 3, 40, 50, 60);
    cr_expect_str_eq(ct_grad_fn_name(ct_tensor_grad_fn(m)), "CopySlices");
    OK(ct_backward(ctx, total(ct_square(m)), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4, 6, 800, 1000, 1200);
}

Test(inplace, changes_through_a_view_are_seen_by_the_view_and_by_all_others)
{
    ct_tensor *a = WANTING(1, 2, 3), *m = ct_affine(a, 1, 0);
    ct_tensor *v = ct_narrow(m, 0, 0, 2), *w = ct_narrow(m, 0, 1, 2);
    cr_assert(ct_mul_(v, LEAF(10, 10)));
    EXPECT_VALUES("w", w, 20, 3);
    cr_expect_str_eq(ct_grad_fn_name(ct_tensor_grad_fn(v)), "AsStridedBackward0");
    OK(ct_backward(ctx, ct_add(total(v), total(ct_square(w))), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 10, 10 + 2 * 20 * 10, 6);
}

Test(inplace, changes_of_a_base_are_seen_by_its_views)
{
    ct_tensor *a = WANTING(1, 2, 3), *m = ct_affine(a, 1, 0), *t = ct_narrow(m, 0, 1, 2);
    cr_assert(ct_mul_(m, LEAF(2, 3, 4)));
    OK(ct_backward(ctx, total(t), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 0, 3, 4);
}

Test(inplace, assignment_to_a_part_of_a_buffer_is_recorded)
{
    ct_tensor *buffer = LEAF(0, 0, 0, 0), *a = WANTING(1, 2), *b = WANTING(7);
    cr_assert(ct_copy_(ct_narrow(buffer, 0, 0, 2), ct_square(a)));
    cr_assert(ct_copy_(ct_narrow(buffer, 0, 3, 1), b));
    EXPECT_VALUES("buffer", buffer, 1, 4, 0, 7);
    OK(ct_backward(ctx, total(ct_square(buffer)), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 4, 32);
    EXPECT_VALUES("b", ct_tensor_grad(b), 14);
}

Test(inplace, changes_through_a_transposed_view_reach_the_right_elements)
{
    ct_tensor *a = WANTING(1, 2, 3, 4, 5, 6), *m = ct_affine(two_by_three(a), 1, 0);
    ct_tensor *column = ct_narrow(ct_transpose(m, 0, 1), 0, 2, 1); /* [1,2]: 3, 6 */
    cr_assert(ct_mul_(column, ct_reshape(LEAF(10, 100), 2, (int64_t[]){1, 2})));
    EXPECT_VALUES("m", m, 1, 2, 30, 4, 5, 600);
    OK(ct_backward(ctx, total(m), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 1, 1, 10, 1, 1, 100);
}

Test(inplace, refuses_views_made_while_nothing_was_recorded)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_square(a);
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    ct_tensor *v = ct_scope_return(ct_narrow(m, 0, 0, 1));
    OK(ct_scope_end(ctx));
    cr_expect_null(ct_mul_(v, ct_narrow(a, 0, 0, 1)));
    ts_expect_error(ctx, CT_ESTATE, "mul", "while nothing was recorded", NULL);
}

Test(inplace, changes_through_detach_are_seen_and_caught)
{
    ct_tensor *a = WANTING(3), *m = ct_affine(a, 1, 0), *y = ct_square(m);
    cr_assert(ct_add_(ct_detach(m), LEAF(1)));
    EXPECT_VALUES("m", m, 4);
    cr_expect_eq(ct_backward(ctx, y, NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "changed in place", NULL);
}

/* ---- inference mode ---- */

static ct_tensor *inferred(ct_tensor *a)
{
    OK(ct_scope_begin(ctx, CT_SCOPE_INFERENCE));
    ct_tensor *y = ct_scope_return(ct_square(a));
    OK(ct_scope_end(ctx));
    return y;
}

Test(inference, records_nothing_even_inside_a_grad_scope)
{
    ct_tensor *a = WANTING(3);
    OK(ct_scope_begin(ctx, CT_SCOPE_INFERENCE));
    OK(ct_scope_begin(ctx, CT_SCOPE_GRAD));
    ct_tensor *y = ct_square(a);
    cr_expect(!ct_tensor_requires_grad(y) && ct_tensor_is_inference(y));
    OK(ct_scope_end(ctx));
    OK(ct_scope_end(ctx));
    cr_expect(ct_grad_enabled(ctx) && !ct_tensor_is_inference(a));
}

Test(inference, tensors_have_no_version)
{
    ct_tensor *a = LEAF(3);
    OK(ct_scope_begin(ctx, CT_SCOPE_INFERENCE));
    ct_tensor *y = ct_square(a);
    cr_assert(ct_add_(y, a));
    cr_expect_eq(ct_tensor_version(y), 0);
    uint64_t version = ct_tensor_version(a);
    cr_assert(ct_add_(a, a));
    cr_expect_eq(ct_tensor_version(a), version + 1, "ordinary tensors have theirs");
    OK(ct_scope_end(ctx));
}

Test(inference, tensors_can_not_be_saved_for_backward_later)
{
    ct_tensor *w = WANTING(2), *y = inferred(LEAF(3));
    cr_expect_null(ct_mul(w, y));
    ts_expect_error(ctx, CT_ESTATE, "mul", "input 1", "inference mode", "ct_clone", NULL);
    cr_expect(ct_mul(w, ct_clone(y)));
    cr_expect(ct_add(w, y), "what saves nothing is fine");
}

Test(inference, tensors_can_not_change_in_place_later)
{
    ct_tensor *y = inferred(LEAF(3));
    cr_expect_null(ct_add_(y, LEAF(1)));
    ts_expect_error(ctx, CT_ESTATE, "inference mode", NULL);
    cr_expect_eq(ct_tensor_fill(ctx, y, 1), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "fill", "inference mode", NULL);
    cr_expect_eq(ct_tensor_set_requires_grad(ctx, y, true), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "inference mode", NULL);
}
