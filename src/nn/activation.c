/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.ReLU, GELU, SiLU, Sigmoid, Tanh. */
#include "nn/module.h"

#include <stdio.h>

#define ACTIVATION(fn, title)                                                \
    static ct_tensor *forward_##fn(ct_module *m, void *self, ct_tensor *x)   \
    {                                                                        \
        (void)m;                                                             \
        (void)self;                                                          \
        return ct_##fn(x);                                                   \
    }                                                                        \
    static const ct_module_ops fn##_ops = {title, forward_##fn, NULL, NULL}; \
    ct_module *ct_nn_##fn##_new(ct_ctx *ctx)                                 \
    {                                                                        \
        return ct_module_new(ctx, &fn##_ops, 0);                             \
    }

ACTIVATION(relu, "ReLU")
ACTIVATION(silu, "SiLU")
ACTIVATION(sigmoid, "Sigmoid")
ACTIVATION(tanh, "Tanh")

static ct_tensor *forward_gelu(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_gelu(x, *(bool *)self);
}

static void describe_gelu(ct_module *m, const void *self, char *buf, size_t cap)
{
    (void)m;
    snprintf(buf, cap, "approximate='%s'", *(const bool *)self ? "tanh" : "none");
}

static const ct_module_ops gelu_ops = {"GELU", forward_gelu, describe_gelu, NULL};

ct_module *ct_nn_gelu_new(ct_ctx *ctx, bool tanh_approx)
{
    ct_module *m = ct_module_new(ctx, &gelu_ops, sizeof(bool));

    if (m)
        *(bool *)ct_module_self(m) = tanh_approx;
    return m;
}
