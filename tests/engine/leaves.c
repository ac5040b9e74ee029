/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors require grad, which are leaves, what grad_fn says. */
#include "engine.h"

TestSuite(leaves, .init = engine_open, .fini = engine_close);

Test(leaves, a_new_tensor_is_a_leaf_that_requires_no_grad)
{
    ct_tensor *a = LEAF(1, 2);
    cr_expect(ct_tensor_is_leaf(a) && !ct_tensor_requires_grad(a));
    cr_expect_null(ct_tensor_grad_fn(a));
    cr_expect_null(ct_tensor_grad(a));
}

Test(leaves, a_result_requires_grad_when_any_operand_does)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4);
    cr_expect(ct_tensor_requires_grad(ct_add(a, b)));
    cr_expect(ct_tensor_requires_grad(ct_add(b, a)));
    cr_expect(!ct_tensor_requires_grad(ct_add(b, b)));
    ct_tensor *deep = ct_mul(ct_add(b, b), ct_relu(ct_add(b, a)));
    cr_expect(ct_tensor_requires_grad(deep) && !ct_tensor_is_leaf(deep));
}

Test(leaves, a_result_of_operands_without_grad_is_a_leaf)
{
    ct_tensor *b = LEAF(3, 4);
    ct_tensor *y = ct_add(b, b);
    cr_expect(ct_tensor_is_leaf(y));
    cr_expect_null(ct_tensor_grad_fn(y));
    cr_expect_eq(ct_ctx_counters(ctx).live_nodes, 0);
}

Test(leaves, a_result_of_operands_without_grad_can_be_told_to_require_it)
{
    ct_tensor *y = ct_add(LEAF(1, 2), LEAF(3, 4));
    OK(ct_tensor_set_requires_grad(ctx, y, true));
    OK(ct_backward(ctx, total(ct_square(y)), NULL, 0));
    EXPECT_VALUES("gradient", ct_tensor_grad(y), 8, 12);
}

Test(leaves, a_non_leaf_cannot_be_told_to_require_grad)
{
    ct_tensor *y = ct_relu(WANTING(1, 2));
    cr_expect_eq(ct_tensor_set_requires_grad(ctx, y, false), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "relu", "leaves", "ct_detach", NULL);
    cr_expect(ct_tensor_requires_grad(y));
}

Test(leaves, integers_and_bool_cannot_require_grad)
{
    static const ct_dtype refused[] = {CT_BOOL, CT_U8, CT_I32, CT_I64};
    for (int i = 0; i < TS_LEN(refused); i++) {
        ct_tensor *t = ct_tensor_new(ctx, refused[i], 1, (int64_t[]){3});
        cr_expect_eq(ct_tensor_set_requires_grad(ctx, t, true), CT_EDTYPE);
        ts_expect_error(ctx, CT_EDTYPE, ct_dtype_name(refused[i]), NULL);
        cr_expect(!ct_tensor_requires_grad(t));
        OK(ct_tensor_set_requires_grad(ctx, t, false));
        ct_tensor_release(t);
    }
}

Test(leaves, integer_results_of_operands_that_want_grad_require_none)
{
    ct_tensor *a = WANTING(3, 1, 2);
    ct_tensor *y = ct_argmax(a, 0, false), *z = ct_gt(a, a), *w = ct_cast(a, CT_I64);
    cr_expect(y && !ct_tensor_requires_grad(y), "argmax");
    cr_expect(z && !ct_tensor_requires_grad(z), "gt");
    cr_expect(w && !ct_tensor_requires_grad(w), "cast to int64");
}

Test(leaves, grad_fn_has_pytorchs_name)
{
    ct_tensor *a = WANTING(1, 2);
    static const struct {
        const char *name;
        ct_tensor *(*fn)(ct_tensor *);
    } all[] = {{"ReluBackward0", ct_relu}, {"ExpBackward0", ct_exp},
               {"NegBackward0", ct_neg},   {"TanhBackward0", ct_tanh},
               {"SqrtBackward0", ct_sqrt}, {"CloneBackward0", ct_clone}};
    for (int i = 0; i < TS_LEN(all); i++) {
        ct_tensor *y = all[i].fn(a);
        cr_assert(y != NULL, "%s: %s", all[i].name, ct_error_get(ctx)->text);
        cr_expect_str_eq(ct_grad_fn_name(ct_tensor_grad_fn(y)), all[i].name);
    }
    cr_expect_str_eq(ct_grad_fn_name(ct_tensor_grad_fn(ct_add(a, a))), "AddBackward0");
    cr_expect_str_eq(ct_grad_fn_name(ct_tensor_grad_fn(ct_mul(a, a))), "MulBackward0");
    cr_expect_null(ct_grad_fn_name(NULL));
}

Test(leaves, next_functions_lead_to_the_leaves)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4);
    const ct_grad_fn *mul = ct_tensor_grad_fn(ct_mul(ct_relu(a), b));
    cr_expect_str_eq(ct_grad_fn_name(mul), "MulBackward0");
    cr_expect_eq(ct_grad_fn_inputs(mul), 2);
    const ct_grad_fn *relu = ct_grad_fn_next(mul, 0);
    cr_expect_str_eq(ct_grad_fn_name(relu), "ReluBackward0");
    cr_expect_null(ct_grad_fn_next(mul, 1), "b needs no gradient");
    cr_expect_str_eq(ct_grad_fn_name(ct_grad_fn_next(relu, 0)), "AccumulateGrad");
    cr_expect_null(ct_grad_fn_next(mul, 2));
    cr_expect_null(ct_grad_fn_next(mul, -1));
    cr_expect_eq(ct_grad_fn_inputs(ct_grad_fn_next(relu, 0)), 0);
}

Test(leaves, all_uses_of_a_leaf_end_in_one_accumulator)
{
    ct_tensor *a = WANTING(1, 2);
    const ct_grad_fn *x = ct_tensor_grad_fn(ct_relu(a)), *y = ct_tensor_grad_fn(ct_exp(a));
    cr_expect_eq(ct_grad_fn_next(x, 0), ct_grad_fn_next(y, 0));
}

Test(leaves, sequence_numbers_rise_with_each_op)
{
    ct_tensor *a = WANTING(1, 2);
    ct_tensor *x = ct_relu(a), *y = ct_exp(a), *z = ct_mul(x, y);
    uint64_t s = ct_grad_fn_sequence(ct_tensor_grad_fn(x));
    uint64_t t = ct_grad_fn_sequence(ct_tensor_grad_fn(y));
    cr_expect_lt(s, t);
    cr_expect_lt(t, ct_grad_fn_sequence(ct_tensor_grad_fn(z)));
}

Test(leaves, set_grad_refuses_another_shape_dtype_or_context)
{
    ct_tensor *a = WANTING(1, 2), *longer = LEAF(1, 2, 3);
    cr_expect_eq(ct_tensor_set_grad(ctx, a, longer), CT_ESHAPE);
    ts_expect_error(ctx, CT_ESHAPE, "[3]", "[2]", NULL);
    ct_tensor *f32 = ts_vec(ctx, CT_F32, V(1, 2));
    cr_expect_lt(ct_tensor_set_grad(ctx, a, f32), 0);
    ts_expect_error(ctx, ct_error_code(ctx), "float32", "float64", NULL);
    ct_tensor_release(f32);
    ct_ctx *other = ts_ctx(CT_F64, true);
    ct_tensor *foreign = ts_vec(other, CT_F64, V(1, 2));
    cr_expect_eq(ct_tensor_set_grad(ctx, a, foreign), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "context", NULL);
    ct_tensor_release(foreign);
    ct_ctx_free(other);
    cr_expect_null(ct_tensor_grad(a));
}

Test(leaves, set_grad_replaces_and_null_means_none)
{
    ct_tensor *a = WANTING(1, 2), *g = LEAF(5, 6);
    OK(ct_tensor_set_grad(ctx, a, g));
    EXPECT_VALUES("grad", ct_tensor_grad(a), 5, 6);
    OK(ct_tensor_set_grad(ctx, a, NULL));
    cr_expect_null(ct_tensor_grad(a));
}

Test(leaves, a_gradient_outlives_zero_grad_when_retained)
{
    ct_tensor *a = WANTING(1, 2);
    OK(ct_backward(ctx, total(ct_square(a)), NULL, 0));
    ct_tensor *g = ct_tensor_retain(ct_tensor_grad(a));
    ct_zero_grad(a);
    cr_expect_null(ct_tensor_grad(a));
    EXPECT_VALUES("the old gradient", g, 2, 4);
    ct_tensor_release(g);
}
