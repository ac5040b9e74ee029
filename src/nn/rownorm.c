/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.LayerNorm, RMSNorm, GroupNorm, InstanceNorm1d, InstanceNorm2d: weight 1, bias 0. */
#include "nn/module.h"

#include <stdio.h>

typedef struct rownorm {
    int dims;
    int64_t shape[CT_MAX_DIMS]; /* normalized */
    int64_t groups, channels;
    double eps;
    ct_tensor *weight, *bias; /* borrowed from the module; may be NULL */
} rownorm;

static ct_tensor *forward_layer(ct_module *m, void *self, ct_tensor *x)
{
    const rownorm *r = self;

    (void)m;
    return ct_layer_norm(x, r->dims, r->shape, r->weight, r->bias, r->eps);
}

static ct_tensor *forward_rms(ct_module *m, void *self, ct_tensor *x)
{
    const rownorm *r = self;

    (void)m;
    return ct_rms_norm(x, r->dims, r->shape, r->weight, r->eps);
}

static ct_tensor *forward_group(ct_module *m, void *self, ct_tensor *x)
{
    const rownorm *r = self;

    (void)m;
    return ct_group_norm(x, r->groups, r->weight, r->bias, r->eps);
}

static ct_tensor *forward_instance(ct_module *m, void *self, ct_tensor *x)
{
    const rownorm *r = self;

    (void)m;
    return ct_instance_norm(x, r->weight, r->bias, r->eps);
}

static void describe_shape(ct_module *m, const void *self, char *buf, size_t cap)
{
    const rownorm *r = self;
    char s[160];

    (void)m;
    snprintf(buf, cap, "%s, eps=%g, elementwise_affine=%s",
             cti_shape_text(r->dims, r->shape, s, sizeof s), r->eps, r->weight ? "true" : "false");
}

static void describe_channels(ct_module *m, const void *self, char *buf, size_t cap)
{
    const rownorm *r = self;

    (void)m;
    snprintf(buf, cap, "%lld, %lld, eps=%g, affine=%s", (long long)r->groups,
             (long long)r->channels, r->eps, r->weight ? "true" : "false");
}

static const ct_module_ops layer_ops = {"LayerNorm", forward_layer, describe_shape, NULL};
static const ct_module_ops rms_ops = {"RMSNorm", forward_rms, describe_shape, NULL};
static const ct_module_ops group_ops = {"GroupNorm", forward_group, describe_channels, NULL};
static const ct_module_ops instance_ops = {"InstanceNorm", forward_instance, describe_channels,
                                           NULL};

static ct_module *make(ct_ctx *ctx, const ct_module_ops *ops, rownorm r, int ndim,
                       const int64_t *shape, bool weight, bool bias)
{
    ct_module *m = ct_module_new(ctx, ops, sizeof r);
    int rc = m ? CT_OK : ct_error_code(ctx);

    if (rc == CT_OK && weight)
        rc = cti_param_fill(m, "weight", ndim, shape, 1);
    if (rc == CT_OK && bias)
        rc = cti_param_fill(m, "bias", ndim, shape, 0);
    if (rc != CT_OK)
        return cti_module_done(m, rc);
    r.weight = weight ? ct_module_get_param(m, "weight") : NULL;
    r.bias = bias ? ct_module_get_param(m, "bias") : NULL;
    *(rownorm *)ct_module_self(m) = r;
    return m;
}

static int check_shape(ct_ctx *ctx, const char *layer, int dims, const int64_t *shape, rownorm *r)
{
    if (dims < 1 || dims > CT_MAX_DIMS || !shape)
        return ct_error_raise(ctx, CT_EINVAL, layer, "%s: the normalized shape needs 1 to %d sizes",
                              layer, CT_MAX_DIMS);
    for (int i = 0; i < dims; i++) {
        if (cti_check_least(ctx, layer, "normalized_shape", shape[i], 1) != CT_OK)
            return ct_error_code(ctx);
        r->shape[i] = shape[i];
    }
    r->dims = dims;
    return CT_OK;
}

ct_module *ct_nn_layer_norm_new(ct_ctx *ctx, int dims, const int64_t *shape, double eps,
                                bool affine, bool bias)
{
    rownorm r = {.eps = eps};

    if (!ctx || check_shape(ctx, "LayerNorm", dims, shape, &r) != CT_OK)
        return NULL;
    return make(ctx, &layer_ops, r, dims, shape, affine, affine && bias);
}

ct_module *ct_nn_rms_norm_new(ct_ctx *ctx, int dims, const int64_t *shape, double eps, bool affine)
{
    rownorm r = {.eps = eps};

    if (!ctx || check_shape(ctx, "RMSNorm", dims, shape, &r) != CT_OK)
        return NULL;
    return make(ctx, &rms_ops, r, dims, shape, affine, false);
}

ct_module *ct_nn_group_norm_new(ct_ctx *ctx, int64_t groups, int64_t channels, double eps,
                                bool affine)
{
    rownorm r = {.eps = eps, .groups = groups, .channels = channels};

    if (!ctx || cti_check_least(ctx, "GroupNorm", "num_groups", groups, 1) != CT_OK ||
        cti_check_least(ctx, "GroupNorm", "num_channels", channels, 1) != CT_OK)
        return NULL;
    if (channels % groups) {
        ct_error_raise(ctx, CT_EINVAL, "GroupNorm",
                       "GroupNorm: num_channels %lld must be divisible by num_groups %lld",
                       (long long)channels, (long long)groups);
        return NULL;
    }
    return make(ctx, &group_ops, r, 1, &channels, affine, affine);
}

ct_module *ct_nn_instance_norm_new(ct_ctx *ctx, int64_t channels, double eps, bool affine)
{
    rownorm r = {.eps = eps, .groups = channels, .channels = channels};

    if (!ctx || cti_check_least(ctx, "InstanceNorm", "num_features", channels, 1) != CT_OK)
        return NULL;
    return make(ctx, &instance_ops, r, 1, &channels, affine, affine);
}
