/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Linear: weight [out, in], bias [out]. */
#include "nn/module.h"

#include <stdio.h>

typedef struct linear {
    int64_t in, out;
    ct_tensor *weight, *bias; /* borrowed from the module */
} linear;

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    linear *l = self;

    (void)m;
    return ct_linear(x, l->weight, l->bias);
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const linear *l = self;

    (void)m;
    snprintf(buf, cap, "in_features=%lld, out_features=%lld, bias=%s", (long long)l->in,
             (long long)l->out, l->bias ? "true" : "false");
}

static const ct_module_ops linear_ops = {"Linear", forward, describe, NULL};

ct_module *ct_nn_linear_new(ct_ctx *ctx, int64_t in, int64_t out, bool bias)
{
    const int64_t shape[] = {out, in};
    ct_module *m;
    linear *l;
    int rc;

    if (!ctx || cti_check_least(ctx, "Linear", "in_features", in, 1) != CT_OK ||
        cti_check_least(ctx, "Linear", "out_features", out, 1) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, &linear_ops, sizeof *l);
    rc = cti_param_uniform(m, "weight", 2, shape, cti_fan_in_bound((double)in));
    if (rc == CT_OK && bias)
        rc = cti_param_uniform(m, "bias", 1, &out, cti_fan_in_bound((double)in));
    if (rc != CT_OK)
        return cti_module_done(m, rc);
    l = ct_module_self(m);
    l->in = in;
    l->out = out;
    l->weight = ct_module_get_param(m, "weight");
    l->bias = ct_module_get_param(m, "bias");
    return m;
}
