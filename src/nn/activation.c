/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.ReLU, GELU and the other activations. */
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

ACTIVATION(relu6, "ReLU6")
ACTIVATION(selu, "SELU")
ACTIVATION(hardsigmoid, "Hardsigmoid")
ACTIVATION(hardswish, "Hardswish")
ACTIVATION(softsign, "Softsign")
ACTIVATION(mish, "Mish")
ACTIVATION(logsigmoid, "LogSigmoid")
ACTIVATION(tanhshrink, "Tanhshrink")

/* ---- with one or two numbers ---- */

typedef struct numbers {
    double a, b;
} numbers;

static ct_module *with_numbers(ct_ctx *ctx, const ct_module_ops *ops, double a, double b)
{
    ct_module *m = ct_module_new(ctx, ops, sizeof(numbers));

    if (m)
        *(numbers *)ct_module_self(m) = (numbers){a, b};
    return m;
}

#define ONE_NUMBER(fn, title, arg)                                                    \
    static ct_tensor *forward_##fn(ct_module *m, void *self, ct_tensor *x)            \
    {                                                                                 \
        (void)m;                                                                      \
        return ct_##fn(x, ((numbers *)self)->a);                                      \
    }                                                                                 \
    static void describe_##fn(ct_module *m, const void *self, char *buf, size_t cap)  \
    {                                                                                 \
        (void)m;                                                                      \
        snprintf(buf, cap, arg "=%g", ((const numbers *)self)->a);                    \
    }                                                                                 \
    static const ct_module_ops fn##_ops = {title, forward_##fn, describe_##fn, NULL}; \
    ct_module *ct_nn_##fn##_new(ct_ctx *ctx, double value)                            \
    {                                                                                 \
        return with_numbers(ctx, &fn##_ops, value, 0);                                \
    }

#define TWO_NUMBERS(fn, title, arg_a, arg_b)                                          \
    static ct_tensor *forward_##fn(ct_module *m, void *self, ct_tensor *x)            \
    {                                                                                 \
        const numbers *n = self;                                                      \
        (void)m;                                                                      \
        return ct_##fn(x, n->a, n->b);                                                \
    }                                                                                 \
    static void describe_##fn(ct_module *m, const void *self, char *buf, size_t cap)  \
    {                                                                                 \
        const numbers *n = self;                                                      \
        (void)m;                                                                      \
        snprintf(buf, cap, arg_a "=%g, " arg_b "=%g", n->a, n->b);                    \
    }                                                                                 \
    static const ct_module_ops fn##_ops = {title, forward_##fn, describe_##fn, NULL}; \
    ct_module *ct_nn_##fn##_new(ct_ctx *ctx, double a, double b)                      \
    {                                                                                 \
        return with_numbers(ctx, &fn##_ops, a, b);                                    \
    }

ONE_NUMBER(leaky_relu, "LeakyReLU", "negative_slope")
ONE_NUMBER(elu, "ELU", "alpha")
ONE_NUMBER(celu, "CELU", "alpha")
ONE_NUMBER(hardshrink, "Hardshrink", "lambd")
ONE_NUMBER(softshrink, "Softshrink", "lambd")
TWO_NUMBERS(softplus, "Softplus", "beta", "threshold")
TWO_NUMBERS(hardtanh, "Hardtanh", "min_val", "max_val")
TWO_NUMBERS(threshold, "Threshold", "threshold", "value")

/* ---- along a dimension ---- */

#define ALONG(fn, title)                                                             \
    static ct_tensor *forward_##fn(ct_module *m, void *self, ct_tensor *x)           \
    {                                                                                \
        (void)m;                                                                     \
        return ct_##fn(x, *(int *)self);                                             \
    }                                                                                \
    static const ct_module_ops fn##_ops = {title, forward_##fn, describe_dim, NULL}; \
    ct_module *ct_nn_##fn##_new(ct_ctx *ctx, int dim)                                \
    {                                                                                \
        ct_module *m = ct_module_new(ctx, &fn##_ops, sizeof(int));                   \
        if (m)                                                                       \
            *(int *)ct_module_self(m) = dim;                                         \
        return m;                                                                    \
    }

static void describe_dim(ct_module *m, const void *self, char *buf, size_t cap)
{
    (void)m;
    snprintf(buf, cap, "dim=%d", *(const int *)self);
}

ALONG(softmax, "Softmax")
ALONG(log_softmax, "LogSoftmax")
ALONG(softmin, "Softmin")
ALONG(glu, "GLU")

/* ---- PReLU ---- weight [num_parameters]. */

static ct_tensor *forward_prelu(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_prelu(x, *(ct_tensor **)self);
}

static const ct_module_ops prelu_ops = {"PReLU", forward_prelu, NULL, NULL};

ct_module *ct_nn_prelu_new(ct_ctx *ctx, int64_t num_parameters, double init)
{
    ct_module *m;
    int rc;

    if (!ctx || cti_check_least(ctx, "PReLU", "num_parameters", num_parameters, 1) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, &prelu_ops, sizeof(ct_tensor *));
    rc = cti_param_fill(m, "weight", 1, &num_parameters, init);
    if (rc == CT_OK)
        *(ct_tensor **)ct_module_self(m) = ct_module_get_param(m, "weight");
    return cti_module_done(m, rc);
}

/* ---- GELU ---- */

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
