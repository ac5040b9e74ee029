/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Conv1d: weight [out, in / groups, kernel]; ConvTranspose1d, ConvTranspose2d: weight
 * [in, out / groups, kernel...]; bias [out]. */
#include "nn/module.h"

#include <stdio.h>

typedef struct conv {
    int64_t in, out, kernel[2];
    ct_conv_transpose2d_opts o; /* of 1d: at [1] */
    bool same, one_row;
    ct_tensor *weight, *bias; /* borrowed from the module */
} conv;

static ct_tensor *forward_1d(ct_module *m, void *self, ct_tensor *x)
{
    const conv *c = self;
    (void)m;
    return ct_conv1d(
        x, c->weight, c->bias,
        (ct_conv1d_opts){c->o.stride[1], c->o.padding[1], c->o.dilation[1], c->o.groups, c->same});
}

static ct_tensor *forward_transpose1d(ct_module *m, void *self, ct_tensor *x)
{
    const conv *c = self;
    (void)m;
    return ct_conv_transpose1d(x, c->weight, c->bias,
                               (ct_conv_transpose1d_opts){c->o.stride[1], c->o.padding[1],
                                                          c->o.output_padding[1], c->o.dilation[1],
                                                          c->o.groups});
}

static ct_tensor *forward_transpose2d(ct_module *m, void *self, ct_tensor *x)
{
    const conv *c = self;
    (void)m;
    return ct_conv_transpose2d(x, c->weight, c->bias, c->o);
}

/* ", NAME=(2, 3)" or ", NAME=(3,)" unless all are `def`. */
static void put(char *buf, size_t cap, size_t *n, const conv *c, const char *name, const int64_t *v,
                int64_t def)
{
    int w;
    if ((v[1] == def && (c->one_row || v[0] == def)) || *n >= cap)
        return;
    w = c->one_row ? snprintf(buf + *n, cap - *n, ", %s=(%lld,)", name, (long long)v[1]) :
                     snprintf(buf + *n, cap - *n, ", %s=(%lld, %lld)", name, (long long)v[0],
                              (long long)v[1]);
    *n += (size_t)w;
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const conv *c = self;
    size_t n = (size_t)snprintf(buf, cap, "%lld, %lld", (long long)c->in, (long long)c->out);

    (void)m;
    put(buf, cap, &n, c, "kernel_size", c->kernel, 0);
    put(buf, cap, &n, c, "stride", c->o.stride, 0);
    if (c->same && n < cap)
        n += (size_t)snprintf(buf + n, cap - n, ", padding=same");
    else
        put(buf, cap, &n, c, "padding", c->o.padding, 0);
    put(buf, cap, &n, c, "output_padding", c->o.output_padding, 0);
    put(buf, cap, &n, c, "dilation", c->o.dilation, 1);
    if (c->o.groups != 1 && n < cap)
        n += (size_t)snprintf(buf + n, cap - n, ", groups=%lld", (long long)c->o.groups);
    if (!c->bias && n < cap)
        snprintf(buf + n, cap - n, ", bias=false");
}

static const ct_module_ops ops_1d = {"Conv1d", forward_1d, describe, NULL};
static const ct_module_ops ops_transpose1d = {"ConvTranspose1d", forward_transpose1d, describe,
                                              NULL};
static const ct_module_ops ops_transpose2d = {"ConvTranspose2d", forward_transpose2d, describe,
                                              NULL};

static int check(ct_ctx *ctx, const char *name, const conv *c)
{
    int rc = cti_check_least(ctx, name, "in_channels", c->in, 1);
    rc = rc ? rc : cti_check_least(ctx, name, "out_channels", c->out, 1);
    rc = rc ? rc : cti_check_least(ctx, name, "groups", c->o.groups, 1);
    for (int d = c->one_row; d < 2; d++) {
        rc = rc ? rc : cti_check_least(ctx, name, "kernel_size", c->kernel[d], 1);
        rc = rc ? rc : cti_check_least(ctx, name, "stride", c->o.stride[d], 1);
        rc = rc ? rc : cti_check_least(ctx, name, "padding", c->o.padding[d], 0);
        rc = rc ? rc : cti_check_least(ctx, name, "output_padding", c->o.output_padding[d], 0);
        rc = rc ? rc : cti_check_least(ctx, name, "dilation", c->o.dilation[d], 1);
    }
    if (rc == CT_OK && c->same && c->o.stride[1] != 1)
        rc = ct_error_raise(ctx, CT_EINVAL, name, "%s: padding 'same' needs stride 1, not %lld",
                            name, (long long)c->o.stride[1]);
    if (rc == CT_OK && (c->in % c->o.groups != 0 || c->out % c->o.groups != 0))
        rc = ct_error_raise(
            ctx, CT_EINVAL, name,
            "%s: groups is %lld: must divide in_channels (%lld) and out_channels (%lld)", name,
            (long long)c->o.groups, (long long)c->in, (long long)c->out);
    return rc;
}

/* PyTorch's fan_in is of the weight's second dimension, of the transposed ones too. */
static ct_module *make(ct_ctx *ctx, const ct_module_ops *ops, conv c, bool bias)
{
    if (!ctx || check(ctx, ops->name, &c) != CT_OK)
        return NULL;
    ct_module *m = ct_module_new(ctx, ops, sizeof c);
    bool transposed = ops != &ops_1d;
    int64_t rows = transposed ? c.in : c.out, columns = (transposed ? c.out : c.in) / c.o.groups;
    double bound = cti_fan_in_bound((double)columns * (double)c.kernel[1] *
                                    (c.one_row ? 1.0 : (double)c.kernel[0]));
    int rc = c.one_row ?
                 cti_param_uniform(m, "weight", 3, (int64_t[]){rows, columns, c.kernel[1]}, bound) :
                 cti_param_uniform(m, "weight", 4,
                                   (int64_t[]){rows, columns, c.kernel[0], c.kernel[1]}, bound);
    if (rc == CT_OK && bias)
        rc = cti_param_uniform(m, "bias", 1, &c.out, bound);
    if (rc != CT_OK)
        return cti_module_done(m, rc);
    c.weight = ct_module_get_param(m, "weight");
    c.bias = ct_module_get_param(m, "bias");
    *(conv *)ct_module_self(m) = c;
    return m;
}

ct_module *ct_nn_conv1d_new(ct_ctx *ctx, int64_t in, int64_t out, int64_t kernel, ct_conv1d_opts o,
                            bool bias)
{
    return make(ctx, &ops_1d,
                (conv){.in = in,
                       .out = out,
                       .kernel = {1, kernel},
                       .o = {.stride = {1, o.stride},
                             .padding = {0, o.padding},
                             .dilation = {1, o.dilation},
                             .groups = o.groups},
                       .same = o.same,
                       .one_row = true},
                bias);
}

ct_module *ct_nn_conv_transpose1d_new(ct_ctx *ctx, int64_t in, int64_t out, int64_t kernel,
                                      ct_conv_transpose1d_opts o, bool bias)
{
    return make(ctx, &ops_transpose1d,
                (conv){.in = in,
                       .out = out,
                       .kernel = {1, kernel},
                       .o = {.stride = {1, o.stride},
                             .padding = {0, o.padding},
                             .output_padding = {0, o.output_padding},
                             .dilation = {1, o.dilation},
                             .groups = o.groups},
                       .one_row = true},
                bias);
}

ct_module *ct_nn_conv_transpose2d_new(ct_ctx *ctx, int64_t in, int64_t out, int64_t kernel_h,
                                      int64_t kernel_w, ct_conv_transpose2d_opts opts, bool bias)
{
    return make(ctx, &ops_transpose2d,
                (conv){.in = in, .out = out, .kernel = {kernel_h, kernel_w}, .o = opts}, bias);
}
