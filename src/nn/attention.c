/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.MultiheadAttention: in_proj_weight [3E,E] xavier_uniform, in_proj_bias 0, out_proj.weight, out_proj.bias 0. */
#include "nn/module.h"

#include <math.h>
#include <stdio.h>

typedef struct mha {
    int64_t embed, heads;
    double dropout;
    bool batch_first;
    ct_tensor *weight, *bias; /* borrowed from the module; bias may be NULL */
    ct_module *out;           /* a child */
} mha;

ct_nn_mha_opts ct_nn_mha_defaults(void)
{
    return (ct_nn_mha_opts){.bias = true};
}

/* Rows of the i-th of query, key and value. */
static ct_tensor *project(const mha *a, ct_tensor *x, int i)
{
    ct_tensor *w = ct_narrow(a->weight, 0, i * a->embed, a->embed);
    ct_tensor *b = a->bias ? ct_narrow(a->bias, 0, i * a->embed, a->embed) : NULL;

    return a->bias && !b ? NULL : ct_linear(x, w, b);
}

/* [N,L,E] -> [N,heads,L,E/heads] */
static ct_tensor *split_heads(const mha *a, ct_tensor *x)
{
    if (!x)
        return NULL;
    const int64_t shape[4] = {ct_tensor_size(x, 0), ct_tensor_size(x, 1), a->heads,
                              a->embed / a->heads};
    return ct_transpose(ct_reshape(x, 4, shape), 1, 2);
}

static ct_tensor *join_heads(const mha *a, ct_tensor *x)
{
    ct_tensor *t = x ? ct_transpose(x, 1, 2) : NULL;
    if (!t)
        return NULL;
    const int64_t shape[3] = {ct_tensor_size(t, 0), ct_tensor_size(t, 1), a->embed};
    return ct_reshape(t, 3, shape);
}

/* What may be looked at, from what must not: true for the other. */
static ct_tensor *allowed(ct_tensor *mask)
{
    return ct_tensor_dtype(mask) == CT_BOOL ? ct_logical_not(mask) : mask;
}

/* Both masks as one that broadcasts to [N,heads,L,S]; NULL with no error: none. */
static ct_tensor *join_masks(const mha *a, ct_tensor *q, const ct_nn_mha_call *c)
{
    ct_tensor *m = c->attn_mask ? allowed(c->attn_mask) : NULL;

    if (m && ct_tensor_ndim(m) == 3) {
        const int64_t shape[4] = {ct_tensor_size(q, 0), a->heads, ct_tensor_size(m, 1),
                                  ct_tensor_size(m, 2)};
        m = ct_reshape(m, 4, shape);
    }
    if (!c->key_padding_mask)
        return m;
    ct_tensor *keys = ct_unsqueeze(ct_unsqueeze(allowed(c->key_padding_mask), 1), 1);
    if (!m || !keys)
        return keys;
    if (ct_tensor_dtype(m) == CT_BOOL && ct_tensor_dtype(keys) == CT_BOOL)
        return ct_logical_and(m, keys);
    ct_tensor *parts[2] = {m, keys};
    for (int i = 0; i < 2; i++) /* a float mask adds: -inf where a bool one forbids */
        if (parts[i] && ct_tensor_dtype(parts[i]) == CT_BOOL)
            parts[i] =
                ct_where(parts[i], ct_new_full(q, 0, NULL, 0), ct_new_full(q, 0, NULL, -INFINITY));
    return ct_add(parts[0], parts[1]);
}

static ct_tensor *turned(const mha *a, ct_tensor *x)
{
    return a->batch_first ? x : ct_transpose(x, 0, 1);
}

static int check(ct_module *m, const mha *a, ct_tensor *const *qkv)
{
    static const char *const names[] = {"query", "key", "value"};
    char got[96];

    for (int i = 0; i < 3; i++)
        if (!qkv[i] || ct_tensor_ndim(qkv[i]) != 3 || ct_tensor_size(qkv[i], 2) != a->embed)
            return ct_error_raise(ct_module_ctx(m), CT_ESHAPE, "MultiheadAttention",
                                  "MultiheadAttention: %s must be [%s,%lld], got %s", names[i],
                                  a->batch_first ? "N,L" : "L,N", (long long)a->embed,
                                  ct_tensor_describe(qkv[i], got, sizeof got));
    return CT_OK;
}

ct_tensor *ct_nn_mha_forward(ct_module *m, ct_tensor *query, ct_tensor *key, ct_tensor *value,
                             ct_nn_mha_call call)
{
    const mha *a = ct_module_self(m);
    ct_ctx *ctx = ct_module_ctx(m);
    ct_tensor *in[3] = {query, key, value}, *h[3];

    if (call.weights)
        *call.weights = NULL;
    if (ct_error_code(ctx) != CT_OK || check(m, a, in) != CT_OK)
        return NULL;
    for (int i = 0; i < 3; i++)
        if (!(h[i] = split_heads(a, project(a, turned(a, in[i]), i))))
            return NULL;
    ct_attention_opts o = ct_attention_defaults();
    o.mask = join_masks(a, turned(a, query), &call);
    o.causal = call.is_causal;
    o.dropout = a->dropout;
    o.training = ct_module_is_training(m);
    if (call.weights && !ct_error_code(ctx)) { /* what identity as values gives */
        int heads = 1;
        int64_t keys = ct_tensor_size(h[1], 2);
        ct_tensor *eye =
            ct_cast(ct_eye(ctx, ct_tensor_dtype(h[1]), keys, keys), ct_tensor_dtype(h[1]));
        ct_attention_opts plain = o;
        plain.training = false;
        *call.weights = ct_mean(ct_attention(h[0], h[1], eye, plain), &heads, 1, false);
    }
    ct_tensor *y = ct_error_code(ctx) ? NULL : join_heads(a, ct_attention(h[0], h[1], h[2], o));
    y = y ? ct_module_forward(a->out, y) : NULL;
    return y ? turned(a, y) : NULL;
}

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    (void)self;
    return ct_nn_mha_forward(m, x, x, x, (ct_nn_mha_call){0});
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const mha *a = self;

    (void)m;
    snprintf(buf, cap, "embed_dim=%lld, num_heads=%lld, dropout=%g, batch_first=%s",
             (long long)a->embed, (long long)a->heads, a->dropout,
             a->batch_first ? "true" : "false");
}

static const ct_module_ops mha_ops = {"MultiheadAttention", forward, describe, NULL};

ct_module *ct_nn_mha_new(ct_ctx *ctx, int64_t embed, int64_t heads, ct_nn_mha_opts opts)
{
    mha a = {
        .embed = embed, .heads = heads, .dropout = opts.dropout, .batch_first = opts.batch_first};
    int64_t three = 3 * embed, shape[2] = {3 * embed, embed};
    ct_module *m;
    int rc;

    if (!ctx || cti_check_least(ctx, "MultiheadAttention", "embed_dim", embed, 1) != CT_OK ||
        cti_check_least(ctx, "MultiheadAttention", "num_heads", heads, 1) != CT_OK)
        return NULL;
    if (embed % heads) {
        ct_error_raise(ctx, CT_EINVAL, "MultiheadAttention",
                       "MultiheadAttention: embed_dim %lld must be divisible by num_heads %lld",
                       (long long)embed, (long long)heads);
        return NULL;
    }
    m = ct_module_new(ctx, &mha_ops, sizeof a);
    rc = cti_param_uniform(m, "in_proj_weight", 2, shape, sqrt(6.0 / (double)(4 * embed)));
    if (rc == CT_OK && opts.bias)
        rc = cti_param_fill(m, "in_proj_bias", 1, &three, 0);
    if (rc == CT_OK) {
        a.out = ct_nn_linear_new(ctx, embed, embed, opts.bias);
        rc = ct_module_add_child(m, "out_proj", a.out);
    }
    if (rc == CT_OK && opts.bias) {
        ct_tensor *bias = ct_module_get_param(a.out, "bias");
        rc = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
        rc = rc == CT_OK ? ct_tensor_fill(ctx, bias, 0) : rc;
        ct_scope_end(ctx);
    }
    if (rc != CT_OK)
        return cti_module_done(m, rc);
    a.weight = ct_module_get_param(m, "in_proj_weight");
    a.bias = opts.bias ? ct_module_get_param(m, "in_proj_bias") : NULL;
    *(mha *)ct_module_self(m) = a;
    return m;
}
