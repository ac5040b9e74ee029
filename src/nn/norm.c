/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.BatchNorm1d, BatchNorm2d: weight 1, bias 0; buffers running_mean 0, running_var 1,
 * num_batches_tracked 0. */
#include "nn/module.h"

#include <stdio.h>

typedef struct batchnorm {
    int64_t features;
    ct_nn_batchnorm_opts opts;
    bool spatial;                                    /* 2d */
    ct_tensor *weight, *bias, *mean, *var, *batches; /* borrowed from the module; may be NULL */
    ct_tensor *one;                                  /* owned: what a batch adds to `batches` */
} batchnorm;

ct_nn_batchnorm_opts ct_nn_batchnorm_defaults(void)
{
    return (ct_nn_batchnorm_opts){
        .eps = 1e-5, .momentum = 0.1, .affine = true, .track_running_stats = true};
}

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    batchnorm *b = self;
    ct_batch_norm_opts o = ct_batch_norm_defaults(ct_module_is_training(m));
    int ndim = ct_tensor_ndim(x);
    ct_ctx *ctx = ct_module_ctx(m);
    ct_tensor *y;

    if (b->spatial ? ndim != 4 : ndim != 2 && ndim != 3) {
        char got[96];

        ct_error_raise(ctx, CT_ESHAPE, ct_module_name(m), "%s: expected input %s, got %s",
                       ct_module_name(m), b->spatial ? "[N,C,H,W]" : "[N,C] or [N,C,L]",
                       ct_tensor_describe(x, got, sizeof got));
        return NULL;
    }
    o.momentum = b->opts.momentum;
    o.eps = b->opts.eps;
    /* Run again for a checkpoint's backward it has counted already. */
    bool count = ct_module_is_training(m) && !ct_recomputing(ctx);
    bool given = count || !ct_module_is_training(m);
    y = ct_batch_norm(x, b->weight, b->bias, given ? b->mean : NULL, given ? b->var : NULL, o);
    if (y && b->batches && count && ct_tensor_add(ctx, b->batches, b->one, 1) != CT_OK)
        return NULL;
    return y;
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const batchnorm *b = self;

    (void)m;
    snprintf(buf, cap, "%lld, eps=%g, momentum=%g, affine=%s, track_running_stats=%s",
             (long long)b->features, b->opts.eps, b->opts.momentum, b->weight ? "true" : "false",
             b->batches ? "true" : "false");
}

static void release(void *self)
{
    ct_tensor_release(((batchnorm *)self)->one);
}

static const ct_module_ops ops_1d = {"BatchNorm1d", forward, describe, release};
static const ct_module_ops ops_2d = {"BatchNorm2d", forward, describe, release};

/* Borrows the buffers into self. */
static void take_buffers(ct_module *m, batchnorm *b)
{
    if (m->buffers.n != 3)
        return;
    b->mean = m->buffers.at[0].tensor;
    b->var = m->buffers.at[1].tensor;
    b->batches = m->buffers.at[2].tensor;
}

static int fill(ct_module *m, batchnorm *b)
{
    ct_dtype dtype = ct_ctx_dtype(m->ctx);
    const int64_t *n = &b->features;
    int rc = CT_OK;

    if (b->opts.affine) {
        rc = cti_param_fill(m, "weight", 1, n, 1);
        if (rc == CT_OK)
            rc = cti_param_fill(m, "bias", 1, n, 0);
    }
    if (rc != CT_OK || !b->opts.track_running_stats)
        return rc;
    rc = cti_buffer_fill(m, "running_mean", dtype, 1, n, 0);
    if (rc == CT_OK)
        rc = cti_buffer_fill(m, "running_var", dtype, 1, n, 1);
    if (rc == CT_OK)
        rc = cti_buffer_fill(m, "num_batches_tracked", CT_I64, 0, NULL, 0);
    if (rc != CT_OK)
        return rc;
    b->one = ct_tensor_scalar(m->ctx, CT_I64, 1);
    return b->one ? CT_OK : ct_error_code(m->ctx);
}

static ct_module *make(ct_ctx *ctx, const ct_module_ops *ops, int64_t features,
                       ct_nn_batchnorm_opts opts)
{
    ct_module *m;
    batchnorm *b;
    int rc;

    if (!ctx || cti_check_least(ctx, ops->name, "num_features", features, 1) != CT_OK)
        return NULL;
    if (!(opts.eps >= 0 && opts.eps < 1)) {
        ct_error_raise(ctx, CT_EINVAL, ops->name, "%s: eps is %g: must be in 0..1", ops->name,
                       opts.eps);
        return NULL;
    }
    if (!(opts.momentum >= 0 && opts.momentum <= 1)) {
        ct_error_raise(ctx, CT_EINVAL, ops->name, "%s: momentum is %g: must be in 0..1", ops->name,
                       opts.momentum);
        return NULL;
    }
    m = ct_module_new(ctx, ops, sizeof *b);
    if (!m)
        return NULL;
    b = ct_module_self(m);
    b->features = features;
    b->opts = opts;
    b->spatial = ops == &ops_2d;
    rc = fill(m, b);
    b->weight = ct_module_get_param(m, "weight");
    b->bias = ct_module_get_param(m, "bias");
    take_buffers(m, b);
    return cti_module_done(m, rc);
}

ct_module *ct_nn_batchnorm1d_new(ct_ctx *ctx, int64_t features, ct_nn_batchnorm_opts opts)
{
    return make(ctx, &ops_1d, features, opts);
}

ct_module *ct_nn_batchnorm2d_new(ct_ctx *ctx, int64_t features, ct_nn_batchnorm_opts opts)
{
    return make(ctx, &ops_2d, features, opts);
}
