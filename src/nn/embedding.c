/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Embedding, EmbeddingBag: weight [V,D], N(0,1) with zeros in the row of padding_idx. */
#include "nn/module.h"

#include <stdio.h>

typedef struct embedding {
    int64_t rows, dim, padding_idx; /* CT_NO_PADDING: none */
    ct_bag_mode mode;
    ct_tensor *weight; /* borrowed from the module */
} embedding;

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *ids)
{
    embedding *e = self;

    (void)m;
    return ct_embedding(e->weight, ids, e->padding_idx);
}

static ct_tensor *forward_bag(ct_module *m, void *self, ct_tensor *ids)
{
    embedding *e = self;
    ct_embedding_bag_opts o = ct_embedding_bag_defaults(e->mode);

    (void)m;
    o.padding_idx = e->padding_idx;
    return ct_embedding_bag(e->weight, ids, NULL, o);
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    static const char *const modes[] = {"sum", "mean", "max"};
    const embedding *e = self;
    char padding[48] = "", mode[24] = "";

    if (e->padding_idx != CT_NO_PADDING)
        snprintf(padding, sizeof padding, ", padding_idx=%lld", (long long)e->padding_idx);
    if (m->ops->forward == forward_bag)
        snprintf(mode, sizeof mode, ", mode=%s", modes[e->mode]);
    snprintf(buf, cap, "num_embeddings=%lld, embedding_dim=%lld%s%s", (long long)e->rows,
             (long long)e->dim, padding, mode);
}

static const ct_module_ops embedding_ops = {"Embedding", forward, describe, NULL};
static const ct_module_ops bag_ops = {"EmbeddingBag", forward_bag, describe, NULL};

/* The row of padding becomes zeros. */
static int clear_padding(ct_ctx *ctx, ct_tensor *weight, int64_t row)
{
    int rc = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD);
    ct_tensor *zeros = rc == CT_OK ? ct_narrow(weight, 0, row, 1) : NULL;

    if (zeros)
        rc = ct_tensor_fill(ctx, zeros, 0);
    ct_scope_end(ctx);
    return rc == CT_OK ? ct_error_code(ctx) : rc;
}

static int make_weight(ct_module *m, embedding *e)
{
    const int64_t shape[] = {e->rows, e->dim};
    ct_ctx *ctx = ct_module_ctx(m);
    ct_tensor *t = ct_tensor_new(ctx, ct_ctx_dtype(ctx), 2, shape);

    if (t &&
        (ct_tensor_normal(ctx, t, 0, 1) != CT_OK ||
         (e->padding_idx != CT_NO_PADDING && clear_padding(ctx, t, e->padding_idx) != CT_OK))) {
        ct_tensor_release(t);
        t = NULL;
    }
    return ct_module_add_param(m, "weight", t);
}

static ct_module *make(ct_ctx *ctx, const ct_module_ops *ops, embedding e)
{
    const int64_t padding = e.padding_idx;
    ct_module *m;
    int rc;

    if (!ctx || cti_check_least(ctx, ops->name, "num_embeddings", e.rows, 1) != CT_OK ||
        cti_check_least(ctx, ops->name, "embedding_dim", e.dim, 1) != CT_OK)
        return NULL;
    if (padding != CT_NO_PADDING && (padding < -e.rows || padding >= e.rows)) {
        ct_error_raise(ctx, CT_EINVAL, ops->name,
                       "%s: padding_idx is %lld: must be from %lld to %lld", ops->name,
                       (long long)padding, (long long)-e.rows, (long long)e.rows - 1);
        return NULL;
    }
    if (padding != CT_NO_PADDING && padding < 0)
        e.padding_idx += e.rows;
    m = ct_module_new(ctx, ops, sizeof e);
    rc = m ? make_weight(m, &e) : ct_error_code(ctx);
    if (rc != CT_OK)
        return cti_module_done(m, rc);
    e.weight = ct_module_get_param(m, "weight");
    *(embedding *)ct_module_self(m) = e;
    return m;
}

ct_module *ct_nn_embedding_new(ct_ctx *ctx, int64_t num_embeddings, int64_t embedding_dim,
                               int64_t padding_idx)
{
    return make(
        ctx, &embedding_ops,
        (embedding){.rows = num_embeddings, .dim = embedding_dim, .padding_idx = padding_idx});
}

ct_module *ct_nn_embedding_bag_new(ct_ctx *ctx, int64_t num_embeddings, int64_t embedding_dim,
                                   ct_bag_mode mode, int64_t padding_idx)
{
    if (ctx && (unsigned)mode > CT_BAG_MAX) {
        ct_error_raise(ctx, CT_EINVAL, "EmbeddingBag", "EmbeddingBag: mode %d is none of CT_BAG_*",
                       (int)mode);
        return NULL;
    }
    return make(ctx, &bag_ops,
                (embedding){.rows = num_embeddings,
                            .dim = embedding_dim,
                            .padding_idx = padding_idx,
                            .mode = mode});
}
