/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Flatten. */
#include "nn/module.h"

#include <stdio.h>

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    const int *dims = self;

    (void)m;
    return ct_flatten(x, dims[0], dims[1]);
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const int *dims = self;

    (void)m;
    snprintf(buf, cap, "start_dim=%d, end_dim=%d", dims[0], dims[1]);
}

static const ct_module_ops flatten_ops = {"Flatten", forward, describe, NULL};

ct_module *ct_nn_flatten_new(ct_ctx *ctx, int start_dim, int end_dim)
{
    ct_module *m = ct_module_new(ctx, &flatten_ops, 2 * sizeof(int));

    if (m) {
        int *dims = ct_module_self(m);

        dims[0] = start_dim;
        dims[1] = end_dim;
    }
    return m;
}
