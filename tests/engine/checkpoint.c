/* SPDX-License-Identifier: Apache-2.0 */
/* Activation checkpointing: the same gradients for less memory. */
#include "engine.h"

TestSuite(checkpoint, .init = engine_open, .fini = engine_close);

static int runs;

typedef struct net {
    ct_tensor *w;
    double p;  /* of dropout */
    int depth; /* of nested checkpoints below */
} net;

/* gelu(x * w) and more, many results on the way. */
static int block(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out, void *user)
{
    net *n = user;
    (void)n_in;
    (void)n_out;
    runs++;
    ct_tensor *x = in[0];
    if (n->depth > 0) {
        static net inner[4];
        inner[n->depth] = (net){n->w, n->p, n->depth - 1};
        if (ct_checkpoint(c, block, &inner[n->depth], 1, &x, 1, &x))
            return ct_error_code(c);
    }
    for (int i = 0; i < 4; i++)
        x = ct_tanh(ct_mul(ct_exp(ct_affine(x, 0.1, 0)), n->w));
    out[0] = ct_dropout(x, n->p, true);
    return ct_error_code(c);
}

static ct_tensor *checkpointed(net *n, ct_tensor *x)
{
    ct_tensor *y = NULL;
    OK(ct_checkpoint(ctx, block, n, 1, &x, 1, &y));
    return y;
}

static ct_tensor *plain(net *n, ct_tensor *x)
{
    ct_tensor *y = NULL;
    OK(block(ctx, 1, &x, 1, &y, n));
    return y;
}

static void same_gradients(net *n, ct_tensor *x)
{
    ts_array want[2], got[2];
    for (int k = 0; k < 2; k++) {
        ct_zero_grad(x);
        ct_zero_grad(n->w);
        ct_ctx_set_position(ctx, 5, 1);
        ct_tensor *m = ct_affine(x, 2, 0);
        ct_tensor *y = ct_mul(k ? checkpointed(n, m) : plain(n, m), n->w);
        OK(ct_backward(ctx, total(ct_mul(y, m)), NULL, 0));
        ts_array *to = k ? got : want;
        to[0] = ts_values(ctx, ct_tensor_grad(x));
        to[1] = ts_values(ctx, ct_tensor_grad(n->w));
    }
    for (int i = 0; i < 2; i++) {
        /* Sums may come in another order. */
        ts_expect_close(i ? "w" : "x", &got[i], &want[i], n->depth ? TS_F64 : TS_EXACT);
        ts_array_free(&got[i]);
        ts_array_free(&want[i]);
    }
}

Test(checkpoint, gives_the_gradients_of_a_plain_run)
{
    net n = {WANTING(0.5, -0.3, 1.1), 0, 0};
    same_gradients(&n, WANTING(1, 2, 3));
}

Test(checkpoint, draws_the_same_dropout_masks)
{
    net n = {WANTING(0.5, -0.3, 1.1, 2, 1, 1, 1, 1), 0.5, 0};
    same_gradients(&n, WANTING(1, 2, 3, 4, 5, 6, 7, 8));
}

Test(checkpoint, nests)
{
    net n = {WANTING(0.5, -0.3, 1.1), 0.3, 2};
    same_gradients(&n, WANTING(1, 2, 3));
}

Test(checkpoint, keeps_the_inputs_alone)
{
    net n = {WANTING(0.5, -0.3, 1.1), 0, 0};
    ct_tensor *x = WANTING(1, 2, 3);
    uint64_t before = ct_ctx_counters(ctx).saved_bytes;
    ct_tensor *y = plain(&n, x);
    uint64_t all = ct_ctx_counters(ctx).saved_bytes - before;
    before = ct_ctx_counters(ctx).saved_bytes;
    ct_tensor *z = checkpointed(&n, x);
    uint64_t little = ct_ctx_counters(ctx).saved_bytes - before;
    cr_expect_eq(little, 3 * sizeof(double));
    cr_expect_gt(all, 8 * little, "a plain run keeps %llu bytes", (unsigned long long)all);
    OK(ct_backward(ctx, ct_add(total(y), total(z)), NULL, 0));
}

Test(checkpoint, runs_the_segment_again_once_for_a_backward)
{
    net n = {WANTING(0.5), 0, 0};
    ct_tensor *x = WANTING(1);
    runs = 0;
    ct_tensor *y = checkpointed(&n, x);
    cr_expect_eq(runs, 1);
    OK(ct_backward(ctx, y, NULL, CT_RETAIN_GRAPH));
    cr_expect_eq(runs, 2);
    OK(ct_backward(ctx, y, NULL, 0));
    cr_expect_eq(runs, 3);
    cr_expect_eq(ct_backward(ctx, y, NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "checkpoint", "freed it", NULL);
}

Test(checkpoint, finds_parameters_behind_an_input_that_wants_no_gradient)
{
    net n = {WANTING(0.5), 0, 0};
    ct_tensor *y = checkpointed(&n, LEAF(1));
    cr_expect(ct_tensor_requires_grad(y));
    OK(ct_backward(ctx, y, NULL, 0));
    cr_expect(ct_tensor_grad(n.w));
}

Test(checkpoint, of_what_wants_no_gradient_records_nothing)
{
    net n = {LEAF(0.5), 0, 0};
    cr_expect(!ct_tensor_requires_grad(checkpointed(&n, LEAF(1))));
    OK(ct_scope_begin(ctx, CT_SCOPE_NO_GRAD));
    n.w = WANTING(1);
    cr_expect(!ct_tensor_requires_grad(checkpointed(&n, LEAF(1))));
    OK(ct_scope_end(ctx));
}

Test(checkpoint, lets_grad_reach_inputs_and_parameters)
{
    net n = {WANTING(0.5, 2), 0, 0};
    ct_tensor *x = WANTING(1, 3), *g[2], *want[2], *in[] = {x, n.w};
    ct_tensor *y = total(plain(&n, x)), *z = total(checkpointed(&n, x));
    OK(ct_grad(ctx, 1, &y, NULL, 2, in, 0, want));
    OK(ct_grad(ctx, 1, &z, NULL, 2, in, 0, g));
    for (int i = 0; i < 2; i++) {
        ts_array a = ts_values(ctx, g[i]), b = ts_values(ctx, want[i]);
        ts_expect_close("gradient", &a, &b, TS_EXACT);
        ts_array_free(&a);
        ts_array_free(&b);
    }
    cr_expect_null(ct_tensor_grad(n.w));
}

static int cubed(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out, void *user)
{
    (void)n_in;
    (void)n_out;
    (void)user;
    out[0] = ct_mul(ct_mul(in[0], in[0]), in[0]);
    return ct_error_code(c);
}

Test(checkpoint, is_part_of_a_graph_of_gradients)
{
    ct_tensor *x = WANTING(2), *y, *g, *h;
    OK(ct_checkpoint(ctx, cubed, NULL, 1, &x, 1, &y));
    OK(ct_grad(ctx, 1, &y, NULL, 1, &x, CT_CREATE_GRAPH, &g));
    EXPECT_VALUES("3 x^2", g, 12);
    OK(ct_grad(ctx, 1, &g, NULL, 1, &x, 0, &h));
    EXPECT_VALUES("6 x", h, 12);
}

Test(checkpoint, finds_inputs_that_changed_in_place)
{
    ct_tensor *x = WANTING(2), *m = ct_affine(x, 1, 0), *y;
    OK(ct_checkpoint(ctx, cubed, NULL, 1, &m, 1, &y));
    cr_assert(ct_add_(m, LEAF(1)));
    cr_expect_eq(ct_backward(ctx, y, NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "checkpoint", "changed in place", NULL);
}

static int grows(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out, void *user)
{
    int64_t *n = user;
    (void)n_in;
    (void)n_out;
    out[0] = ct_narrow(ct_square(in[0]), 0, 0, ++*n);
    return ct_error_code(c);
}

Test(checkpoint, tells_when_the_segment_computes_something_else_the_second_time)
{
    int64_t n = 0;
    ct_tensor *x = WANTING(2, 3), *y;
    OK(ct_checkpoint(ctx, grows, &n, 1, &x, 1, &y));
    cr_expect_eq(ct_backward(ctx, y, NULL, 0), CT_ESTATE);
    ts_expect_error(ctx, CT_ESTATE, "float64 [2]", "float64 [1]", "the same", NULL);
}

static int fails(ct_ctx *c, int n_in, ct_tensor *const *in, int n_out, ct_tensor **out, void *user)
{
    (void)n_in;
    (void)n_out;
    (void)user;
    out[0] = ct_add(in[0], LEAF(1, 2, 3));
    return ct_error_code(c);
}

Test(checkpoint, hands_the_error_of_its_segment_on)
{
    ct_tensor *x = WANTING(2, 3), *y;
    cr_expect_eq(ct_checkpoint(ctx, fails, NULL, 1, &x, 1, &y), CT_ESHAPE);
    cr_expect_null(y);
    ts_expect_error(ctx, CT_ESHAPE, "add", NULL);
    cr_expect_eq(ct_checkpoint(ctx, NULL, NULL, 1, &x, 1, &y), CT_EINVAL);
    ts_expect_error(ctx, CT_EINVAL, "a segment is a function", NULL);
}
