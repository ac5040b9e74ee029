/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing: views, detach, clone, versions, saved tensors that change. */
#include "engine.h"

#include <stdio.h>

TestSuite(views, .init = engine_open, .fini = engine_close);
TestSuite(versions, .init = engine_open, .fini = engine_close);

static ct_tensor *matrix(void)
{
    return ct_reshape(LEAF(1, 2, 3, 4, 5, 6), 2, (int64_t[]){2, 3});
}

Test(views, share_storage_and_version)
{
    ct_tensor *m = matrix();
    ct_tensor *all[] = {
        ct_reshape(m, 2, (int64_t[]){3, 2}),
        ct_flatten(m, 0, 1),
        ct_permute(m, 2, (int[]){1, 0}),
        ct_transpose(m, 0, 1),
        ct_unsqueeze(m, 0),
        ct_squeeze(ct_unsqueeze(m, 1), 1),
        ct_narrow(m, 1, 1, 2),
        ct_expand(ct_narrow(m, 0, 0, 1), 2, (int64_t[]){4, 3}),
        ct_detach(m),
    };
    for (int i = 0; i < TS_LEN(all); i++) {
        cr_assert(all[i] != NULL, "view %d: %s", i, ct_error_get(ctx)->text);
        cr_expect(ct_tensor_shares_storage(m, all[i]), "view %d has storage of its own", i);
    }
    uint64_t version = ct_tensor_version(m);
    OK(ct_tensor_fill(ctx, all[3], 9));
    EXPECT_VALUES("seen through the base", m, 9, 9, 9, 9, 9, 9);
    for (int i = 0; i < TS_LEN(all); i++)
        cr_expect_eq(ct_tensor_version(all[i]), version + 1, "view %d", i);
}

Test(views, of_part_of_a_tensor_change_that_part)
{
    ct_tensor *m = matrix();
    OK(ct_tensor_fill(ctx, ct_narrow(m, 1, 1, 1), 0));
    EXPECT_VALUES("m", m, 1, 0, 3, 4, 0, 6);
    OK(ct_tensor_write(ctx, ct_transpose(m, 0, 1), (double[]){1, 2, 3, 4, 5, 6}, 48));
    EXPECT_VALUES("written through the transpose", m, 1, 3, 5, 2, 4, 6);
}

Test(views, read_in_logical_order)
{
    EXPECT_VALUES("transpose", ct_transpose(matrix(), 0, 1), 1, 4, 2, 5, 3, 6);
    EXPECT_VALUES("narrow", ct_narrow(matrix(), 0, 1, 1), 4, 5, 6);
}

Test(views, pass_gradients_to_their_base)
{
    ct_tensor *a = WANTING(1, 2, 3, 4, 5, 6), *m = ct_reshape(a, 2, (int64_t[]){2, 3});
    OK(ct_backward(ctx, total(ct_square(ct_narrow(ct_transpose(m, 0, 1), 0, 1, 2))), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 0, 4, 6, 0, 10, 12);
}

Test(views, reshape_copies_where_strides_do_not_allow_a_view)
{
    ct_tensor *t = ct_transpose(matrix(), 0, 1);
    ct_tensor *flat = ct_reshape(t, 1, (int64_t[]){-1});
    cr_expect(!ct_tensor_shares_storage(t, flat));
    EXPECT_VALUES("flat", flat, 1, 4, 2, 5, 3, 6);
}

Test(views, contiguous_and_cast_give_the_tensor_itself_when_there_is_nothing_to_do)
{
    ct_tensor *m = matrix();
    cr_expect(ct_tensor_shares_storage(ct_contiguous(m), m));
    cr_expect(ct_tensor_shares_storage(ct_cast(m, CT_F64), m));
    cr_expect(!ct_tensor_shares_storage(ct_contiguous(ct_transpose(m, 0, 1)), m));
    cr_expect(!ct_tensor_shares_storage(ct_cast(m, CT_F32), m));
}

Test(views, outlive_the_handle_of_their_base)
{
    ct_tensor *base = ts_vec(ctx, CT_F64, V(1, 2, 3));
    ct_tensor *v = ct_narrow(base, 0, 1, 2);
    ct_tensor_release(base);
    EXPECT_VALUES("view", v, 2, 3);
}

Test(views, detach_shares_storage_and_sees_mutation)
{
    ct_tensor *a = WANTING(1, 2), *d = ct_detach(a);
    cr_expect(ct_tensor_shares_storage(a, d));
    cr_expect(!ct_tensor_requires_grad(d) && ct_tensor_is_leaf(d));
    OK(ct_tensor_fill(ctx, d, 7));
    EXPECT_VALUES("a", a, 7, 7);
    cr_expect_eq(ct_tensor_version(a), ct_tensor_version(d));
}

Test(views, detach_stops_the_gradient)
{
    ct_tensor *a = WANTING(1, 2);
    OK(ct_backward(ctx, total(ct_mul(a, ct_detach(ct_square(a)))), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 1, 4);
}

Test(views, a_detached_clone_is_independent)
{
    ct_tensor *a = WANTING(1, 2), *c = ct_detach(ct_clone(a));
    cr_expect(!ct_tensor_shares_storage(a, c) && !ct_tensor_requires_grad(c));
    OK(ct_tensor_fill(ctx, c, 7));
    EXPECT_VALUES("a", a, 1, 2);
    EXPECT_VALUES("c", c, 7, 7);
}

Test(views, clone_passes_the_gradient)
{
    ct_tensor *a = WANTING(1, 2);
    OK(ct_backward(ctx, total(ct_square(ct_clone(a))), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 2, 4);
}

/* ---- versions ---- */

Test(versions, count_in_place_changes)
{
    ct_tensor *a = LEAF(1, 2);
    uint64_t v = ct_tensor_version(a);
    OK(ct_tensor_fill(ctx, a, 1));
    OK(ct_tensor_write(ctx, a, (double[]){3, 4}, 16));
    OK(ct_tensor_copy(ctx, a, LEAF(5)));
    OK(ct_tensor_add(ctx, a, LEAF(1, 2), 2));
    OK(ct_tensor_uniform(ctx, a, 0, 1));
    OK(ct_tensor_normal(ctx, a, 0, 1));
    cr_expect_eq(ct_tensor_version(a), v + 6);
    ct_add(a, a);
    cr_expect_eq(ct_tensor_version(a), v + 6, "ops change nothing");
}

static void stale(ct_tensor *changed, ct_tensor *y, const char *op, const char *what)
{
    char now[48], was[48];
    ct_tensor *loss = total(y);
    snprintf(was, sizeof(was), "version %d", (int)ct_tensor_version(changed));
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    OK(ct_tensor_fill(ctx, changed, 3));
    OK(ct_scope_end(ctx));
    snprintf(now, sizeof(now), "version %d", (int)ct_tensor_version(changed));
    cr_expect_eq(ct_backward(ctx, loss, NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, op, what, "in place", was, now, NULL);
}

Test(versions, a_saved_input_that_changed_fails_backward_and_is_named)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4);
    stale(b, ct_mul(a, b), "mul", "input 1");
}

Test(versions, a_saved_output_that_changed_fails_backward_and_is_named)
{
    ct_tensor *y = ct_exp(WANTING(1, 2));
    stale(y, y, "exp", "output 0");
}

Test(versions, a_change_through_a_view_is_seen)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4);
    stale(ct_narrow(b, 0, 0, 1), ct_mul(a, b), "mul", "input 1");
}

Test(versions, a_change_through_detach_is_seen)
{
    ct_tensor *a = WANTING(1, 2);
    stale(ct_detach(a), ct_square(a), "square", "input 0");
}

Test(versions, a_change_of_what_was_not_saved_is_harmless)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4), *y = ct_add(a, b);
    OK(ct_tensor_fill(ctx, b, 0));
    OK(ct_backward(ctx, total(y), NULL, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 1, 1);
}

Test(versions, a_change_after_backward_is_harmless)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4);
    OK(ct_backward(ctx, total(ct_mul(a, b)), NULL, 0));
    OK(ct_tensor_fill(ctx, b, 0));
    EXPECT_VALUES("a", ct_tensor_grad(a), 3, 4);
}

Test(versions, a_leaf_that_requires_grad_refuses_change_while_recording)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(5, 6);
    int rc[] = {ct_tensor_fill(ctx, a, 0)};
    cr_expect_eq(rc[0], CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "fill", "leaf", "CT_SCOPE_NO_GRAD", NULL);
    cr_expect_eq(ct_tensor_write(ctx, a, (double[]){0, 0}, 16), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "write", NULL);
    cr_expect_eq(ct_tensor_copy(ctx, a, b), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "copy", NULL);
    cr_expect_eq(ct_tensor_add(ctx, a, b, 1), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "add", NULL);
    cr_expect_eq(ct_tensor_uniform(ctx, a, 0, 1), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "uniform", NULL);
    EXPECT_VALUES("a", a, 1, 2);
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    OK(ct_tensor_add(ctx, a, b, -1));
    OK(ct_scope_end(ctx));
    EXPECT_VALUES("a, under no_grad", a, -4, -4);
    cr_expect(ct_tensor_requires_grad(a));
}

/* PyTorch: "more than one element of the written-to tensor refers to a single memory location". */
Test(views, that_repeat_elements_refuse_change)
{
    ct_tensor *one = LEAF(1), *rows = ct_expand(one, 1, (int64_t[]){3});
    cr_expect_lt(ct_tensor_add(ctx, rows, LEAF(1, 2, 3), 1), 0, "add");
    ct_error_clear(ctx);
    cr_expect_lt(ct_tensor_write(ctx, rows, (double[]){1, 2, 3}, 24), 0, "write");
    ct_error_clear(ctx);
    cr_expect_lt(ct_tensor_copy(ctx, rows, LEAF(1, 2, 3)), 0, "copy");
    ct_error_clear(ctx);
    EXPECT_VALUES("what they show", one, 1);
}

Test(views, that_repeat_elements_as_a_gradient_are_refused_or_added_to_rightly)
{
    ct_tensor *w = WANTING(1, 2, 3), *g = ct_expand(LEAF(1), 1, (int64_t[]){3});
    int rc = ct_tensor_set_grad(ctx, w, g);
    ct_error_clear(ctx);
    if (rc)
        return;
    rc = ct_backward(ctx, total(ct_square(w)), NULL, 0);
    ct_error_clear(ctx);
    if (!rc)
        EXPECT_VALUES("gradient", ct_tensor_grad(w), 3, 5, 7);
}
