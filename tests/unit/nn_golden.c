/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers, attention and transformer layers with PyTorch's weights give PyTorch's outputs and gradients
 * (tests/golden/modules.py), in f64 and in f32. */
#include "nn_fixture.h"

#include <stdio.h>

TestSuite(nn_golden);

typedef struct run {
    ct_ctx *ctx;
    ct_dtype dtype;
    ts_golden *g;
    const char *name;
    ts_tol tol;
    ct_module *m;
    ct_tensor *owned[64];
    int n_owned;
} run;

static const ts_array *get(const run *r, const char *kind, const char *key)
{
    return ts_golden_get(r->g, "%s/%s/%s", r->name, kind, key);
}

/* A tensor of the file, for as long as the run; floats require grad if asked. NULL: not there. */
static ct_tensor *input(run *r, const char *kind, const char *key, bool wants)
{
    const ts_array *a = get(r, kind, key);
    if (!a)
        return NULL;
    ct_tensor *t = ts_tensor(r->ctx, ct_dtype_is_float(a->dtype) ? r->dtype : a->dtype, a);
    cr_assert(t && (!wants || !ct_tensor_set_requires_grad(r->ctx, t, true)));
    return r->owned[r->n_owned++] = t;
}

static void load(run *r)
{
    ct_named_tensor named[STATE_MAX];
    int n = ct_module_state(r->m, named, STATE_MAX), count = 0;
    cr_assert(!ct_scope_begin(r->ctx, CT_SCOPE_NO_GRAD));
    for (int i = 0; i < n; i++) {
        ct_tensor *p = input(r, "p", named[i].name, false);
        cr_assert(p, "%s: PyTorch has no %s", r->name, named[i].name);
        cr_assert(!ct_tensor_copy(r->ctx, named[i].tensor, p), "%s: %s", named[i].name,
                  ct_error_get(r->ctx)->text);
    }
    cr_assert(!ct_scope_end(r->ctx));
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s/p/", r->name);
    for (int i = 0; i < ts_golden_count(r->g); i++)
        count += !strncmp(ts_golden_name(r->g, i), prefix, strlen(prefix));
    cr_expect_eq(count, n, "%s has %d parameters, PyTorch %d", r->name, n, count);
}

static void compare(run *r, const char *kind, const char *key, const ct_tensor *got)
{
    char what[128];
    const ts_array *want = get(r, kind, key);
    snprintf(what, sizeof what, "%s, %s: %s %s", r->name, ct_dtype_name(r->dtype), kind, key);
    cr_assert(want, "%s isn't in the file", what);
    ts_array a = ts_values(r->ctx, got);
    ts_expect_close(what, &a, want, r->tol);
    ts_array_free(&a);
}

/* Outputs, then the gradients of all. in: names of inputs, up to NULL. */
static void finish(run *r, int n, const char *const *names, ct_tensor *const *out,
                   const char *const *in, ct_tensor *const *x)
{
    ct_named_tensor named[STATE_MAX];
    ct_tensor *loss = NULL;
    for (int k = 0; k < n; k++) {
        cr_assert(out[k], "%s: %s", r->name, ct_error_get(r->ctx)->text);
        compare(r, "out", names[k], out[k]);
        ct_tensor *part = ct_sum(ct_mul(out[k], input(r, "up", names[k], false)), NULL, 0, false);
        loss = loss ? ct_add(loss, part) : part;
    }
    cr_assert(!ct_backward(r->ctx, loss, NULL, 0), "%s", ct_error_get(r->ctx)->text);
    for (int k = 0; in[k]; k++)
        if (x[k])
            compare(r, "din", in[k], ct_tensor_grad(x[k]));
    int params = ct_module_state(r->m, named, STATE_MAX);
    for (int i = 0; i < params; i++)
        compare(r, "dp", named[i].name, ct_tensor_grad(named[i].tensor));
}

static void begin(run *r, ct_dtype dtype, const char *name)
{
    *r = (run){.ctx = open_ctx(dtype),
               .dtype = dtype,
               .g = ts_golden_must_open("modules.safetensors"),
               .name = name};
    r->tol = dtype == CT_F64 ? (ts_tol){1e-9, 1e-11} : TS_F32;
    cr_assert(!ct_scope_begin(r->ctx, CT_SCOPE_PLAIN));
}

static void end(run *r)
{
    cr_assert(!ct_scope_end(r->ctx));
    for (int i = 0; i < r->n_owned; i++)
        ct_tensor_release(r->owned[i]);
    ct_module_free(r->m);
    ts_golden_close(r->g);
    close_ctx(r->ctx);
}

static void recurrent(const char *name, ct_rnn_opts o, bool bias)
{
    for (int k = 0; k < 2; k++) {
        run r;
        begin(&r, k ? CT_F32 : CT_F64, name);
        r.m = ct_nn_rnn_new(r.ctx, 3, 4, o, bias);
        cr_assert(r.m, "%s", ct_error_get(r.ctx)->text);
        load(&r);
        ct_tensor *x[3] = {input(&r, "in", "x", true), input(&r, "in", "h0", true),
                           input(&r, "in", "c0", true)};
        ct_tensor *out[3] = {NULL};
        int rc = ct_nn_rnn_forward(r.m, x[0], x[1], x[2], input(&r, "in", "lengths", false),
                                   &out[0], &out[1], &out[2]);
        cr_assert(!rc, "%s: %s", name, ct_error_get(r.ctx)->text);
        finish(&r, o.mode == CT_RNN_LSTM ? 3 : 2, (const char *[]){"y", "h", "c"}, out,
               (const char *[]){"x", "h0", "c0", NULL}, x);
        end(&r);
    }
}

static ct_rnn_opts deep(ct_rnn_mode mode, bool bidirectional, bool batch_first)
{
    ct_rnn_opts o = ct_rnn_defaults(mode);
    o.layers = 2;
    o.bidirectional = bidirectional;
    o.batch_first = batch_first;
    return o;
}

Test(nn_golden, recurrent_layers_are_pytorchs)
{
    recurrent("rnn", ct_rnn_defaults(CT_RNN_TANH), true);
    recurrent("lstm", ct_rnn_defaults(CT_RNN_LSTM), true);
    recurrent("gru", ct_rnn_defaults(CT_RNN_GRU), true);
    recurrent("rnn relu", deep(CT_RNN_RELU, false, false), false);
}

Test(nn_golden, recurrent_layers_of_packed_sequences_are_pytorchs)
{
    recurrent("lstm deep", deep(CT_RNN_LSTM, true, false), true);
    recurrent("gru deep", deep(CT_RNN_GRU, true, true), true);
}

static void attention(const char *name, bool batch_first, bool causal, bool weights)
{
    for (int k = 0; k < 2; k++) {
        run r;
        begin(&r, k ? CT_F32 : CT_F64, name);
        ct_nn_mha_opts o = ct_nn_mha_defaults();
        o.batch_first = batch_first;
        r.m = ct_nn_mha_new(r.ctx, 8, 2, o);
        cr_assert(r.m, "%s", ct_error_get(r.ctx)->text);
        load(&r);
        ct_tensor *x[3] = {input(&r, "in", "q", true), input(&r, "in", "k", true),
                           input(&r, "in", "v", true)};
        ct_tensor *out[2] = {NULL};
        ct_nn_mha_call c = {.key_padding_mask = input(&r, "in", "padding", false),
                            .is_causal = causal,
                            .weights = weights ? &out[1] : NULL};
        out[0] = ct_nn_mha_forward(r.m, x[0], x[1] ? x[1] : x[0], x[2] ? x[2] : x[0], c);
        finish(&r, weights ? 2 : 1, (const char *[]){"y", "w"}, out,
               (const char *[]){"q", "k", "v", NULL}, x);
        end(&r);
    }
}

Test(nn_golden, attention_is_pytorchs)
{
    attention("mha", false, false, false);
    attention("mha cross", true, false, true);
    attention("mha causal", true, true, false);
}

static void transformer(const char *name, ct_nn_transformer_opts o, bool decoder)
{
    for (int k = 0; k < 2; k++) {
        run r;
        begin(&r, k ? CT_F32 : CT_F64, name);
        o.heads = 2;
        o.feedforward = 16;
        o.dropout = 0;
        r.m = decoder ? ct_nn_transformer_decoder_layer_new(r.ctx, 8, o) :
                        ct_nn_transformer_encoder_layer_new(r.ctx, 8, o);
        cr_assert(r.m, "%s", ct_error_get(r.ctx)->text);
        load(&r);
        ct_tensor *x[2] = {input(&r, "in", "x", true), input(&r, "in", "memory", true)};
        ct_tensor *y = decoder ? ct_nn_transformer_forward(r.m, x[0], x[1], (ct_nn_mha_call){0},
                                                           (ct_nn_mha_call){0}) :
                                 ct_module_forward(r.m, x[0]);
        finish(&r, 1, (const char *[]){"y"}, &y, (const char *[]){"x", "memory", NULL}, x);
        end(&r);
    }
}

Test(nn_golden, transformer_layers_are_pytorchs)
{
    ct_nn_transformer_opts o = ct_nn_transformer_defaults();
    transformer("encoder", o, false);
    o.batch_first = true;
    transformer("decoder", o, true);
    o.norm_first = true;
    transformer("decoder first", o, true);
    o.gelu = true;
    transformer("encoder first", o, false);
}

Test(nn_golden, inits_are_pytorchs)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    ct_module *m = ct_nn_mha_new(ctx, 8, 2, ct_nn_mha_defaults());
    ts_array w = ts_values(ctx, ct_module_get_param(m, "in_proj_weight"));
    ts_array b = ts_values(ctx, ct_module_get_param(m, "out_proj.bias"));
    double most = 0, bound = 0.43301270189221935; /* sqrt(6 / (8 + 24)) */
    for (int64_t i = 0; i < w.n; i++)
        most = w.v[i] > most ? w.v[i] : most;
    cr_expect(most <= bound && most > 0.8 * bound);
    for (int64_t i = 0; i < b.n; i++)
        cr_expect_eq(b.v[i], 0);
    ts_array_free(&w);
    ts_array_free(&b);
    ct_module_free(m);
    close_ctx(ctx);
}

Test(nn_golden, sizes_that_do_not_fit_are_told)
{
    ct_ctx *ctx = open_ctx(CT_F64);
    cr_expect_null(ct_nn_mha_new(ctx, 7, 2, ct_nn_mha_defaults()));
    expect_text(ctx, CT_EINVAL, "MultiheadAttention: embed_dim 7 must be divisible by num_heads 2");
    cr_expect_null(ct_nn_rnn_new(ctx, 3, 0, ct_rnn_defaults(CT_RNN_LSTM), true));
    expect_text(ctx, CT_EINVAL, "LSTM: hidden_size is 0: must be at least 1");
    cr_expect_null(ct_nn_group_norm_new(ctx, 3, 4, 1e-5, true));
    expect_text(ctx, CT_EINVAL, "GroupNorm: num_channels 4 must be divisible by num_groups 3");
    ct_module *m = ct_nn_rnn_new(ctx, 3, 4, ct_rnn_defaults(CT_RNN_GRU), true);
    ct_tensor *x = ct_tensor_new(ctx, CT_F64, 3, (int64_t[]){5, 2, 4});
    cr_expect_null(ct_module_forward(m, x));
    cr_expect(strstr(ct_error_get(ctx)->text, "w_ih of layer 0 is [12,3], must be [12,4]"), "%s",
              ct_error_get(ctx)->text);
    ct_error_clear(ctx);
    ct_tensor_release(x);
    ct_module_free(m);
    close_ctx(ctx);
}
