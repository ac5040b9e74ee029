/* SPDX-License-Identifier: Apache-2.0 */
/* ct_grad: gradients of chosen inputs, and gradients of gradients. */
#include "engine.h"

TestSuite(grad, .init = engine_open, .fini = engine_close);

static ct_tensor *grad_of(ct_tensor *y, ct_tensor *x, unsigned flags)
{
    ct_tensor *g = NULL;
    OK(ct_grad(ctx, 1, &y, NULL, 1, &x, flags, &g));
    return g;
}

Test(grad, gives_gradients_and_leaves_every_grad_alone)
{
    ct_tensor *a = WANTING(1, 2), *b = WANTING(3, 5), *g[2];
    ct_tensor *y = total(ct_mul(a, b));
    OK(ct_grad(ctx, 1, &y, NULL, 2, (ct_tensor *[]){b, a}, 0, g));
    EXPECT_VALUES("of b", g[0], 1, 2);
    EXPECT_VALUES("of a", g[1], 3, 5);
    cr_expect_null(ct_tensor_grad(a));
    cr_expect_null(ct_tensor_grad(b));
}

Test(grad, of_a_result_in_the_middle_of_the_graph)
{
    ct_tensor *a = WANTING(1, 2), *m = ct_square(a), *y = total(ct_square(m));
    EXPECT_VALUES("of m", grad_of(y, m, 0), 2, 8);
    cr_expect_null(ct_tensor_grad(a));
}

Test(grad, of_the_output_itself_is_what_was_given)
{
    ct_tensor *a = WANTING(1, 2), *y = ct_square(a), *u = LEAF(3, 4), *g;
    OK(ct_grad(ctx, 1, &y, &u, 1, &y, CT_RETAIN_GRAPH, &g));
    EXPECT_VALUES("of y", g, 3, 4);
}

Test(grad, runs_only_what_lies_between_outputs_and_inputs)
{
    ct_tensor *a = WANTING(2), *b = WANTING(3);
    ct_tensor *m = ct_square(b), *y = ct_mul(ct_square(a), m);
    EXPECT_VALUES("of m", grad_of(y, m, 0), 4);
    /* b's square didn't run, so its graph is there still. */
    OK(ct_backward(ctx, m, NULL, 0));
    EXPECT_VALUES("b", ct_tensor_grad(b), 6);
}

Test(grad, adds_over_several_outputs)
{
    ct_tensor *a = WANTING(1, 2), *g;
    ct_tensor *y[] = {total(a), ct_square(a)}, *u[] = {NULL, LEAF(1, 10)};
    OK(ct_grad(ctx, 2, y, u, 1, &a, 0, &g));
    EXPECT_VALUES("of a", g, 1 + 2, 1 + 40);
}

Test(grad, refuses_an_unused_input_unless_allowed)
{
    ct_tensor *a = WANTING(1, 2), *b = WANTING(3, 4, 5), *g[2];
    ct_tensor *y = total(ct_square(a));
    cr_expect_eq(ct_grad(ctx, 1, &y, NULL, 2, (ct_tensor *[]){a, b}, CT_RETAIN_GRAPH, g),
                 CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "input 1", "float64 [3]", "CT_ALLOW_UNUSED", NULL);
    cr_expect(!g[0] && !g[1]);
    OK(ct_grad(ctx, 1, &y, NULL, 2, (ct_tensor *[]){a, b}, CT_RETAIN_GRAPH | CT_ALLOW_UNUSED, g));
    EXPECT_VALUES("of a", g[0], 2, 4);
    cr_expect_null(g[1]);
    OK(ct_grad(ctx, 1, &y, NULL, 2, (ct_tensor *[]){a, b}, CT_ZEROS_FOR_UNUSED, g));
    EXPECT_VALUES("of b", g[1], 0, 0, 0);
}

Test(grad, refuses_inputs_that_do_not_require_it)
{
    ct_tensor *a = WANTING(1, 2), *b = LEAF(3, 4), *y = total(ct_mul(a, b)), *g;
    cr_expect_eq(ct_grad(ctx, 1, &y, NULL, 1, &b, 0, &g), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "input 0", "doesn't require grad", NULL);
}

Test(grad, refuses_to_be_called_without_inputs_or_outputs)
{
    ct_tensor *a = WANTING(1), *g;
    cr_expect_eq(ct_grad(ctx, 0, NULL, NULL, 1, &a, 0, &g), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "at least one output", NULL);
    cr_expect_eq(ct_grad(ctx, 1, &a, NULL, 1, (ct_tensor *[]){NULL}, 0, &g), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "input 0 is NULL", NULL);
}

Test(grad, of_gradients_to_the_third_order)
{
    ct_tensor *x = WANTING(2), *y = ct_mul(ct_square(x), ct_square(x)); /* x^4 */
    ct_tensor *d1 = grad_of(y, x, CT_CREATE_GRAPH), *d2 = grad_of(d1, x, CT_CREATE_GRAPH);
    ct_tensor *d3 = grad_of(d2, x, CT_CREATE_GRAPH), *d4 = grad_of(d3, x, 0);
    EXPECT_VALUES("4 x^3", d1, 32);
    EXPECT_VALUES("12 x^2", d2, 48);
    EXPECT_VALUES("24 x", d3, 48);
    EXPECT_VALUES("24", d4, 24);
    cr_expect(ct_tensor_requires_grad(d3));
    cr_expect(!ct_tensor_requires_grad(d4));
}

Test(grad, gives_hessian_vector_products)
{
    /* f = sum x_i^2 x_{i+1}: H = [[2b, 2a, 0], [2a, 2c, 2b], [0, 2b, 0]] at (a, b, c). */
    ct_tensor *x = WANTING(1, 2, 3), *v = LEAF(1, -1, 2);
    ct_tensor *y = total(ct_mul(ct_square(ct_narrow(x, 0, 0, 2)), ct_narrow(x, 0, 1, 2)));
    ct_tensor *g = grad_of(y, x, CT_CREATE_GRAPH), *hv;
    EXPECT_VALUES("gradient", g, 4, 1 + 12, 4);
    OK(ct_grad(ctx, 1, &g, &v, 1, &x, 0, &hv));
    EXPECT_VALUES("H v", hv, 4 - 2, 2 - 6 + 8, -4);
}

Test(grad, of_a_gradient_penalty_reaches_the_weights_by_backward)
{
    /* d/dw of (d(w x^2)/dx)^2 = (2 w x)^2 is 8 w x^2. */
    ct_tensor *x = WANTING(3), *w = WANTING(2);
    ct_tensor *g = grad_of(ct_mul(w, ct_square(x)), x, CT_CREATE_GRAPH);
    OK(ct_backward(ctx, ct_square(g), NULL, 0));
    EXPECT_VALUES("w", ct_tensor_grad(w), 144);
    EXPECT_VALUES("x", ct_tensor_grad(x), 96);
}

Test(grad, with_create_graph_keeps_the_graph)
{
    ct_tensor *x = WANTING(3), *y = ct_square(x);
    grad_of(y, x, CT_CREATE_GRAPH);
    OK(ct_backward(ctx, y, NULL, 0));
    EXPECT_VALUES("x", ct_tensor_grad(x), 6);
}

Test(grad, frees_the_graph_unless_told_otherwise)
{
    ct_tensor *x = WANTING(3), *y = ct_square(x), *g;
    EXPECT_VALUES("first", grad_of(y, x, CT_RETAIN_GRAPH), 6);
    EXPECT_VALUES("second", grad_of(y, x, 0), 6);
    cr_expect_eq(ct_grad(ctx, 1, &y, NULL, 1, &x, 0, &g), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "square", "CT_RETAIN_GRAPH", NULL);
}

Test(grad, is_what_takes_create_graph_not_backward)
{
    ct_tensor *x = WANTING(3);
    cr_expect_eq(ct_backward(ctx, ct_square(x), NULL, CT_CREATE_GRAPH), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "ct_grad", NULL);
}

Test(grad, works_where_recording_is_off)
{
    ct_tensor *x = WANTING(3), *y = ct_square(x);
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    ct_tensor *g = grad_of(y, x, CT_CREATE_GRAPH);
    cr_expect(ct_tensor_requires_grad(g));
    cr_expect(!ct_grad_enabled(ctx));
    OK(ct_scope_end(ctx));
}
