/* SPDX-License-Identifier: Apache-2.0 */
/* Anomaly detection: the first op that makes a NaN or an Inf, and the graph as a picture. */
#define _POSIX_C_SOURCE 200809L
#include "engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void open_anomaly(void)
{
    engine_open();
    OK(ct_scope_begin(ctx, CT_SCOPE_ANOMALY));
}

static void close_anomaly(void)
{
    OK(ct_scope_end(ctx));
    engine_close();
}

TestSuite(anomaly, .init = open_anomaly, .fini = close_anomaly);
TestSuite(graph, .init = engine_open, .fini = engine_close);

Test(anomaly, names_the_op_that_makes_a_nan)
{
    cr_expect_null(ct_log(LEAF(1, -2)));
    ts_expect_error(ctx, CT_ENONFINITE, "log: made the first NaN",
                    "input 0: float64 [2] from -2 to 1", "mean -0.5", NULL);
}

Test(anomaly, names_the_op_that_makes_an_inf)
{
    cr_expect_null(ct_div(LEAF(1, 2), LEAF(1, 0)));
    ts_expect_error(ctx, CT_ENONFINITE, "div: made the first Inf",
                    "input 1: float64 [2] from 0 to 1", NULL);
}

Test(anomaly, finds_the_nan_made_of_two_infs)
{
    ct_tensor *inf = LEAF(INFINITY, 1);
    cr_expect(ct_add(inf, LEAF(1, 1)), "Inf only passed on");
    cr_expect_null(ct_sub(inf, inf));
    ts_expect_error(ctx, CT_ENONFINITE, "sub: made the first NaN", NULL);
}

Test(anomaly, lets_what_was_given_pass_until_backward)
{
    ct_tensor *x = WANTING(1, NAN), *y = total(ct_square(ct_affine(x, 2, 0)));
    cr_expect(y);
    cr_expect_eq(ct_backward(ctx, y, NULL, 0), CT_ENONFINITE);
    ts_expect_error(ctx, CT_ENONFINITE, "no op made", "first handed on by affine", NULL);
}

Test(anomaly, names_the_backward_that_makes_an_inf)
{
    ct_tensor *x = WANTING(4, 0), *y = total(ct_sqrt(ct_affine(x, 1, 0)));
    cr_expect_eq(ct_backward(ctx, y, NULL, 0), CT_ENONFINITE);
    ts_expect_error(ctx, CT_ENONFINITE, "sqrt: its backward (SqrtBackward0, forward call",
                    "first Inf", "gradient of output 0", "gradient of input 0", NULL);
}

Test(anomaly, says_where_labels_say_it_is)
{
    ct_tensor *x = WANTING(4, 0);
    ct_label_begin(ctx, "encoder");
    ct_label_begin(ctx, "0");
    ct_tensor *y = ct_sqrt(ct_affine(x, 1, 0));
    cr_expect_null(ct_log(LEAF(-1)));
    ts_expect_error(ctx, CT_ENONFINITE, "made the first NaN, in encoder.0;", NULL);
    ct_label_end(ctx);
    ct_label_end(ctx);
    cr_expect_eq(ct_backward(ctx, total(y), NULL, 0), CT_ENONFINITE);
    ts_expect_error(ctx, CT_ENONFINITE, "in encoder.0)", NULL);
}

Test(anomaly, ends_with_its_scope)
{
    cr_expect(ct_anomaly_enabled(ctx));
    OK(ct_scope_end(ctx));
    cr_expect(!ct_anomaly_enabled(ctx));
    cr_expect(ct_log(LEAF(-1)));
    OK(ct_scope_begin(ctx, CT_SCOPE_ANOMALY));
}

Test(anomaly, changes_no_value_of_what_is_finite)
{
    ct_tensor *x = WANTING(1, 2);
    OK(ct_backward(ctx, total(ct_mul(ct_exp(x), x)), NULL, 0));
    EXPECT_VALUES("x", ct_tensor_grad(x), 2 * exp(1), 3 * exp(2));
}

/* ---- the graph as a picture ---- */

Test(graph, is_written_for_graphviz)
{
    char path[] = "/tmp/ctrain-dot-XXXXXX", text[4096] = "";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
    ct_tensor *a = WANTING(1, 2, 3), *y = total(ct_mul(ct_square(a), a));
    OK(ct_graph_dot(ctx, 1, &y, path));
    FILE *f = fopen(path, "r");
    cr_assert(f);
    cr_expect(fread(text, 1, sizeof(text) - 1, f) > 0);
    fclose(f);
    unlink(path);
    const char *parts[] = {"digraph",     "SumBackward0", "MulBackward0", "keeps 48 bytes",
                           "float64 [3]", "output 0 []",  "->",           "}"};
    for (int i = 0; i < TS_LEN(parts); i++)
        cr_expect(strstr(text, parts[i]), "no '%s' in:\n%s", parts[i], text);
    cr_expect_eq(ct_graph_dot(ctx, 1, &y, "/nowhere/at/all.dot"), CT_EIO);
    ts_expect_error(ctx, CT_EIO, "/nowhere/at/all.dot", "No such file", NULL);
}

Test(graph, tells_what_its_nodes_keep)
{
    ct_tensor *a = WANTING(1, 2, 3), *y = ct_square(a);
    cr_expect_eq(ct_grad_fn_saved_bytes(ct_tensor_grad_fn(y)), 24);
    OK(ct_backward(ctx, total(y), NULL, 0));
    cr_expect_eq(ct_grad_fn_saved_bytes(ct_tensor_grad_fn(y)), 0);
}

/* ---- memory ---- */

TestSuite(memory, .init = engine_open, .fini = engine_close);

static ct_op_memory memory_of(const char *name)
{
    ct_op_memory all[64];
    int n = ct_ctx_op_memory(ctx, all, TS_LEN(all));
    for (int i = 0; i < n && i < TS_LEN(all); i++) {
        cr_expect(i == 0 || all[i - 1].peak_bytes >= all[i].peak_bytes,
                  "the largest peak comes first");
        if (!strcmp(all[i].name, name))
            return all[i];
    }
    return (ct_op_memory){name, 0, 0};
}

Test(memory, is_counted_by_the_op_that_asked_for_it)
{
    double v[1000] = {0};
    ct_tensor *x = leaf(1000, v);
    OK(ct_scope_begin(ctx, CT_SCOPE_PLAIN));
    for (int i = 0; i < 3; i++)
        ct_exp(x);
    cr_expect(memory_of("exp").live_bytes >= 24000);
    OK(ct_scope_end(ctx));
    cr_expect_eq(memory_of("exp").live_bytes, 0);
    cr_expect(memory_of("exp").peak_bytes >= 24000);
    cr_expect(memory_of("tensors").live_bytes >= 8000);
    ct_ctx_reset_peaks(ctx);
    cr_expect_eq(memory_of("exp").peak_bytes, 0);
}

Test(memory, of_a_step_is_back_where_it_was_with_its_nodes)
{
    ct_tensor *x = WANTING(1, 2, 3), *w = WANTING(4, 5, 6);
    ct_counters before = {0}, after;
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            before = ct_ctx_counters(ctx);
        OK(ct_scope_begin(ctx, CT_SCOPE_STEP));
        OK(ct_backward(ctx, total(ct_tanh(ct_mul(ct_exp(x), w))), NULL, 0));
        ct_zero_grad(x);
        ct_zero_grad(w);
        OK(ct_scope_end(ctx));
    }
    after = ct_ctx_counters(ctx);
    cr_expect_eq(after.live_nodes, before.live_nodes);
    cr_expect_eq(after.saved_bytes, before.saved_bytes);
    cr_expect_eq(after.live_tensors, before.live_tensors);
    cr_expect_eq(after.live_bytes, before.live_bytes);
    cr_expect_eq(memory_of("exp").live_bytes, 0);
}
