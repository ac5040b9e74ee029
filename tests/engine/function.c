/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of an application, and the public gradient checker. */
#include "engine.h"

#include <math.h>

TestSuite(function, .init = engine_open, .fini = engine_close);
TestSuite(gradcheck, .init = engine_open, .fini = engine_close);

/* ---- y = x^3, in ops ---- */

static int cube_forward(ct_call *c)
{
    ct_tensor *x = ct_call_input(c, 0);
    int r = ct_call_set_output(c, 0, ct_mul(ct_mul(x, x), x));
    return r ? r : ct_call_save(c, 0, x);
}

static int cube_backward(ct_call *c)
{
    ct_tensor *x = ct_call_saved(c, 0), *dy = ct_call_grad_output(c, 0);
    return ct_call_set_grad(c, 0, ct_mul(dy, ct_affine(ct_mul(x, x), 3, 0)));
}

static const ct_function cube = {
    .name = "cube", .forward = cube_forward, .backward = cube_backward};

/* ---- y = x^2 on host memory, and a backward that `user` can spoil ---- */

static int host_forward(ct_call *c)
{
    ct_tensor *x = ct_call_input(c, 0);
    ct_tensor *y = ct_tensor_new(ct_call_ctx(c), CT_F64, ct_tensor_ndim(x), ct_tensor_shape(x));
    if (!y)
        return ct_error_code(ct_call_ctx(c));
    const double *from = ct_tensor_data(x);
    double *to = ct_tensor_data(y);
    for (int64_t i = 0; i < ct_tensor_numel(x); i++)
        to[i] = from[i] * from[i];
    int r = ct_call_set_output(c, 0, y);
    ct_tensor_release(y);
    return r ? r : ct_call_save(c, 0, x);
}

static int host_backward(ct_call *c)
{
    double k = ct_call_user(c) ? *(double *)ct_call_user(c) : 2;
    return ct_call_set_grad(
        c, 0, ct_affine(ct_mul(ct_call_grad_output(c, 0), ct_call_saved(c, 0)), k, 0));
}

static const ct_function host_square = {
    .name = "host_square", .once = true, .forward = host_forward, .backward = host_backward};

/* ---- sum and product, two outputs; the second input is optional ---- */

static int both_forward(ct_call *c)
{
    ct_tensor *a = ct_call_input(c, 0), *b = ct_call_input(c, 1);
    int r = ct_call_set_output(c, 0, b ? ct_add(a, b) : a);
    r = r ? r : ct_call_set_output(c, 1, b ? ct_mul(a, b) : ct_clone(a));
    r = r ? r : ct_call_save(c, 0, a);
    return r || !b ? r : ct_call_save(c, 1, b);
}

static int both_backward(ct_call *c)
{
    ct_tensor *ds = ct_call_grad_output(c, 0), *dp = ct_call_grad_output(c, 1);
    for (int i = 0; i < 2; i++) {
        if (!ct_call_needs_grad(c, i))
            continue;
        ct_tensor *g = dp ? ct_mul(dp, ct_call_saved(c, 1 - i)) : NULL;
        int r = ct_call_set_grad(c, i, !g ? ds : ds ? ct_add(ds, g) : g);
        if (r)
            return r;
    }
    return CT_OK;
}

static const ct_function both = {
    .name = "both", .optional = 2, .forward = both_forward, .backward = both_backward};

static ct_tensor *apply(const ct_function *fn, ct_tensor *x, void *user)
{
    ct_tensor *y = NULL;
    return ct_function_apply(ctx, fn, user, 1, &x, 1, &y) ? NULL : y;
}

Test(function, of_an_application_is_an_op_like_any_other)
{
    ct_tensor *x = WANTING(1, 2), *y = apply(&cube, x, NULL);
    EXPECT_VALUES("y", y, 1, 8);
    cr_expect_str_eq(ct_grad_fn_name(ct_tensor_grad_fn(y)), "cubeBackward");
    OK(ct_backward(ctx, total(y), NULL, 0));
    EXPECT_VALUES("x", ct_tensor_grad(x), 3, 12);
}

Test(function, written_in_ops_can_be_differentiated_again)
{
    ct_tensor *x = WANTING(1, 2), *y = total(apply(&cube, x, NULL)), *g, *h;
    OK(ct_grad(ctx, 1, &y, NULL, 1, &x, CT_CREATE_GRAPH, &g));
    g = total(g);
    OK(ct_grad(ctx, 1, &g, NULL, 1, &x, 0, &h));
    EXPECT_VALUES("6 x", h, 6, 12);
}

Test(function, that_is_differentiable_once_says_so_the_second_time)
{
    ct_tensor *x = WANTING(1, 2), *y = total(apply(&host_square, x, NULL)), *g;
    cr_expect_eq(ct_grad(ctx, 1, &y, NULL, 1, &x, CT_CREATE_GRAPH, &g), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "host_square", "can't be differentiated", NULL);
    OK(ct_grad(ctx, 1, &y, NULL, 1, &x, 0, &g));
    EXPECT_VALUES("2 x", g, 2, 4);
}

Test(function, may_have_several_outputs_and_gradients_for_some_of_them)
{
    ct_tensor *a = WANTING(2), *b = WANTING(3), *out[2];
    OK(ct_function_apply(ctx, &both, NULL, 2, (ct_tensor *[]){a, b}, 2, out));
    OK(ct_backward(ctx, out[1], NULL, CT_RETAIN_GRAPH));
    EXPECT_VALUES("a", ct_tensor_grad(a), 3);
    OK(ct_backward(ctx, ct_add(out[0], out[1]), NULL, 0));
    EXPECT_VALUES("a, of both", ct_tensor_grad(a), 3 + 1 + 3);
    EXPECT_VALUES("b", ct_tensor_grad(b), 2 + 1 + 2);
}

Test(function, may_have_optional_inputs)
{
    ct_tensor *a = WANTING(2), *out[2];
    OK(ct_function_apply(ctx, &both, NULL, 2, (ct_tensor *[]){a, NULL}, 2, out));
    EXPECT_VALUES("a itself", out[0], 2);
    cr_expect_neq(out[0], a);
    cr_expect_lt(ct_function_apply(ctx, &both, NULL, 2, (ct_tensor *[]){NULL, a}, 2, out), 0);
    ts_expect_error(ctx, CT_EINVAL, "both: input 0 is NULL", NULL);
}

Test(function, without_a_backward_is_constant)
{
    ct_function f = cube;
    f.backward = NULL;
    cr_expect(!ct_tensor_requires_grad(apply(&f, WANTING(1), NULL)));
}

static int forgets(ct_call *c)
{
    (void)c;
    return CT_OK;
}

static int wrong_shape(ct_call *c)
{
    return ct_call_set_grad(c, 0, ct_unsqueeze(ct_call_grad_output(c, 0), 0));
}

Test(function, that_breaks_its_contract_is_told)
{
    ct_function f = {.name = "forgets", .forward = forgets, .backward = cube_backward};
    cr_expect_null(apply(&f, WANTING(1), NULL));
    ts_expect_error(ctx, CT_EINVAL, "forgets: forward set no output 0", NULL);
    f = (ct_function){.name = "wrong", .forward = cube_forward, .backward = wrong_shape};
    ct_tensor *y = apply(&f, WANTING(1, 2), NULL);
    cr_expect_lt(ct_backward(ctx, total(y), NULL, 0), 0);
    ts_expect_error(ctx, CT_ESHAPE, "wrong: the gradient of input 0 is float64 [1,2]",
                    "float64 [2]", NULL);
    ct_tensor *out[8];
    cr_expect_lt(ct_function_apply(ctx, &cube, NULL, 0, NULL, 1, out), 0);
    ts_expect_error(ctx, CT_EINVAL, "1 to 32 inputs", NULL);
}

/* ---- gradcheck ---- */

static int through(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                   void *user)
{
    (void)c;
    (void)n_in;
    (void)n_out;
    out[0] = ct_mul(apply(&host_square, in[0], user), in[1]);
    return CT_OK;
}

static int two_outputs(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                       void *user)
{
    (void)c;
    (void)n_in;
    (void)n_out;
    (void)user;
    out[0] = ct_exp(ct_mul(in[0], in[1]));
    out[1] = apply(&cube, in[0], NULL);
    return CT_OK;
}

Test(gradcheck, passes_right_gradients_and_leaves_inputs_as_they_were)
{
    ct_tensor *in[] = {WANTING(0.3, -1.2, 2), WANTING(1.5, 0.7, -0.4)};
    OK(ct_gradcheck(ctx, two_outputs, NULL, 2, in, 2, ct_gradcheck_defaults()));
    OK(ct_gradgradcheck(ctx, two_outputs, NULL, 2, in, 2, ct_gradcheck_defaults()));
    EXPECT_VALUES("in 0", in[0], 0.3, -1.2, 2);
    cr_expect_null(ct_tensor_grad(in[0]));
}

Test(gradcheck, finds_a_missing_factor_and_a_wrong_sign)
{
    ct_tensor *in[] = {WANTING(0.3, -1.2), WANTING(1.5, 0.7)};
    for (int k = 0; k < 2; k++) {
        double spoilt = k ? -2 : 1;
        cr_expect_eq(ct_gradcheck(ctx, through, &spoilt, 2, in, 1, ct_gradcheck_defaults()),
                     CT_ECHECK);
        ts_expect_error(ctx, CT_ECHECK, "gradcheck: d output 0[1] / d input 0[1]", "by differences",
                        NULL);
    }
    EXPECT_VALUES("in 0", in[0], 0.3, -1.2);
}

static int random_backward(ct_call *c)
{
    double *k = ct_call_user(c);
    *k += 1e-3;
    return ct_call_set_grad(
        c, 0, ct_affine(ct_mul(ct_call_grad_output(c, 0), ct_call_saved(c, 0)), *k, 0));
}

static const ct_function drifting = {
    .name = "drifting", .forward = host_forward, .backward = random_backward};

static int through_drifting(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                            void *user)
{
    (void)c;
    (void)n_in;
    (void)n_out;
    out[0] = apply(&drifting, in[0], user);
    return CT_OK;
}

Test(gradcheck, finds_a_backward_that_changes_from_run_to_run)
{
    double k = 2;
    ct_tensor *in[] = {WANTING(0.3, -1.2)};
    cr_expect_eq(ct_gradcheck(ctx, through_drifting, &k, 1, in, 1, ct_gradcheck_defaults()),
                 CT_ECHECK);
    ts_expect_error(ctx, CT_ECHECK, "runs again", NULL);
}

static int detaches(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out,
                    void *user)
{
    (void)c;
    (void)n_in;
    (void)n_out;
    (void)user;
    out[0] = ct_mul(in[0], ct_detach(in[0]));
    return CT_OK;
}

Test(gradcheck, finds_gradients_that_were_cut_off)
{
    ct_tensor *in[] = {WANTING(0.3, -1.2)};
    cr_expect_eq(ct_gradcheck(ctx, detaches, NULL, 1, in, 1, ct_gradcheck_defaults()), CT_ECHECK);
    ts_expect_error(ctx, CT_ECHECK, "by backward", NULL);
}

Test(gradcheck, of_gradients_needs_a_graph_of_them)
{
    ct_tensor *in[] = {WANTING(0.3), WANTING(2)};
    cr_expect_eq(ct_gradgradcheck(ctx, through, NULL, 2, in, 1, ct_gradcheck_defaults()),
                 CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "host_square", NULL);
}

Test(gradcheck, refuses_what_it_can_not_check)
{
    ct_tensor *in[] = {LEAF(1)};
    cr_expect_eq(ct_gradcheck(ctx, detaches, NULL, 1, in, 1, ct_gradcheck_defaults()), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "no input requires grad", NULL);
    in[0] = ct_cast(WANTING(1), CT_F32);
    cr_expect_eq(ct_gradcheck(ctx, detaches, NULL, 1, in, 1, ct_gradcheck_defaults()), CT_EDTYPE);
    ts_expect_error(ctx, CT_EDTYPE, "input 0", "float64 leaf", NULL);
}
