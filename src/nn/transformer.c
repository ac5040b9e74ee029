/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.TransformerEncoderLayer and TransformerDecoderLayer: self_attn, (multihead_attn,) linear1, linear2, norm1, norm2,
 * (norm3). */
#include "nn/module.h"

#include <stdio.h>

enum { SELF, CROSS, LINEAR1, LINEAR2, NORM1, NORM2, NORM3, PARTS };

typedef struct block {
    ct_nn_transformer_opts o;
    int64_t width;
    bool decoder;
    ct_module *part[PARTS]; /* children */
} block;

ct_nn_transformer_opts ct_nn_transformer_defaults(void)
{
    return (ct_nn_transformer_opts){.heads = 8, .feedforward = 2048, .dropout = 0.1, .eps = 1e-5};
}

static ct_tensor *drop(ct_module *m, const block *b, ct_tensor *x)
{
    return ct_dropout(x, b->o.dropout, ct_module_is_training(m));
}

static ct_tensor *look_at_itself(ct_module *m, const block *b, ct_tensor *x,
                                 const ct_nn_mha_call *call)
{
    return drop(m, b, ct_nn_mha_forward(b->part[SELF], x, x, x, *call));
}

static ct_tensor *feed_forward(ct_module *m, const block *b, ct_tensor *x)
{
    ct_tensor *h = ct_module_forward(b->part[LINEAR1], x);

    h = h ? (b->o.gelu ? ct_gelu(h, false) : ct_relu(h)) : NULL;
    h = h ? ct_module_forward(b->part[LINEAR2], drop(m, b, h)) : NULL;
    return drop(m, b, h);
}

/* x + f(norm(x)), or norm(x + f(x)). */
#define AROUND(norm, f)                                                                    \
    x = b->o.norm_first ?                                                                  \
            ct_add(x, (inner = ct_module_forward(b->part[norm], x), f)) :                  \
            (inner = x, x = ct_add(x, f), x ? ct_module_forward(b->part[norm], x) : NULL); \
    if (!x)                                                                                \
        return NULL;

ct_tensor *ct_nn_transformer_forward(ct_module *m, ct_tensor *x, ct_tensor *memory,
                                     ct_nn_mha_call self_call, ct_nn_mha_call memory_call)
{
    const block *b = ct_module_self(m);
    ct_tensor *inner;

    if (!x || (b->decoder && !memory)) {
        ct_error_raise(ct_module_ctx(m), CT_EINVAL, ct_module_name(m), "%s: %s is NULL",
                       ct_module_name(m), x ? "memory" : "x");
        return NULL;
    }
    AROUND(NORM1, look_at_itself(m, b, inner, &self_call))
    if (b->decoder) {
        AROUND(NORM2,
               drop(m, b, ct_nn_mha_forward(b->part[CROSS], inner, memory, memory, memory_call)))
    }
    AROUND(b->decoder ? NORM3 : NORM2, feed_forward(m, b, inner))
    return x;
}

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    (void)self;
    return ct_nn_transformer_forward(m, x, x, (ct_nn_mha_call){0}, (ct_nn_mha_call){0});
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const block *b = self;

    (void)m;
    snprintf(
        buf, cap,
        "d_model=%lld, nhead=%lld, dim_feedforward=%lld, dropout=%g, activation=%s, norm_first=%s",
        (long long)b->width, (long long)b->o.heads, (long long)b->o.feedforward, b->o.dropout,
        b->o.gelu ? "gelu" : "relu", b->o.norm_first ? "true" : "false");
}

static const ct_module_ops encoder_ops = {"TransformerEncoderLayer", forward, describe, NULL};
static const ct_module_ops decoder_ops = {"TransformerDecoderLayer", forward, describe, NULL};

static int add(ct_module *m, block *b, int part, const char *name, ct_module *child)
{
    b->part[part] = child;
    return ct_module_add_child(m, name, child);
}

static ct_module *make(ct_ctx *ctx, int64_t width, ct_nn_transformer_opts o, bool decoder)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"};
    const ct_module_ops *ops = decoder ? &decoder_ops : &encoder_ops;
    ct_nn_mha_opts a = ct_nn_mha_defaults();
    block *b;
    ct_module *m;
    int rc = CT_OK;

    if (!ctx || cti_check_least(ctx, ops->name, "dim_feedforward", o.feedforward, 1) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, ops, sizeof *b);
    if (!m)
        return NULL;
    b = ct_module_self(m);
    *b = (block){.o = o, .width = width, .decoder = decoder};
    a.dropout = o.dropout;
    a.batch_first = o.batch_first;
    rc = add(m, b, SELF, "self_attn", ct_nn_mha_new(ctx, width, o.heads, a));
    if (rc == CT_OK && decoder)
        rc = add(m, b, CROSS, "multihead_attn", ct_nn_mha_new(ctx, width, o.heads, a));
    if (rc == CT_OK)
        rc = add(m, b, LINEAR1, "linear1", ct_nn_linear_new(ctx, width, o.feedforward, true));
    if (rc == CT_OK)
        rc = add(m, b, LINEAR2, "linear2", ct_nn_linear_new(ctx, o.feedforward, width, true));
    for (int i = 0; i < (decoder ? 3 : 2) && rc == CT_OK; i++)
        rc =
            add(m, b, NORM1 + i, norms[i], ct_nn_layer_norm_new(ctx, 1, &width, o.eps, true, true));
    return cti_module_done(m, rc);
}

ct_module *ct_nn_transformer_encoder_layer_new(ct_ctx *ctx, int64_t width,
                                               ct_nn_transformer_opts opts)
{
    return make(ctx, width, opts, false);
}

ct_module *ct_nn_transformer_decoder_layer_new(ct_ctx *ctx, int64_t width,
                                               ct_nn_transformer_opts opts)
{
    return make(ctx, width, opts, true);
}
