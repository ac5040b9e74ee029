/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Dropout. */
#include "nn/module.h"

#include <stdio.h>

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    return ct_dropout(x, *(double *)self, ct_module_is_training(m));
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    (void)m;
    snprintf(buf, cap, "p=%g", *(const double *)self);
}

static const ct_module_ops dropout_ops = {"Dropout", forward, describe, NULL};

ct_module *ct_nn_dropout_new(ct_ctx *ctx, double p)
{
    ct_module *m;

    if (!ctx)
        return NULL;
    if (!(p >= 0 && p <= 1)) {
        ct_error_raise(ctx, CT_EINVAL, "Dropout", "Dropout: p is %g: must be in 0..1", p);
        return NULL;
    }
    m = ct_module_new(ctx, &dropout_ops, sizeof p);
    if (m)
        cti_dropout_set(m, p);
    return m;
}

bool cti_is_dropout(const ct_module *m)
{
    return m->ops == &dropout_ops;
}

void cti_dropout_set(ct_module *m, double p)
{
    *(double *)m->self = p;
}
