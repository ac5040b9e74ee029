/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Conv2d: weight [out, in / groups, kernel_h, kernel_w], bias [out]. */
#include "nn/module.h"

#include <stdio.h>

typedef struct conv2d {
    int64_t in, out, kernel[2];
    ct_conv2d_opts opts;
    ct_tensor *weight, *bias; /* borrowed from the module */
} conv2d;

static ct_tensor *forward(ct_module *m, void *self, ct_tensor *x)
{
    conv2d *c = self;

    (void)m;
    return ct_conv2d(x, c->weight, c->bias, c->opts);
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const conv2d *c = self;
    const ct_conv2d_opts *o = &c->opts;
    size_t n;

    (void)m;
    n = (size_t)snprintf(buf, cap, "%lld, %lld, kernel_size=(%lld, %lld), stride=(%lld, %lld)",
                         (long long)c->in, (long long)c->out, (long long)c->kernel[0],
                         (long long)c->kernel[1], (long long)o->stride[0], (long long)o->stride[1]);
    if (o->same && n < cap)
        n += (size_t)snprintf(buf + n, cap - n, ", padding=same");
    else if ((o->padding[0] || o->padding[1]) && n < cap)
        n += (size_t)snprintf(buf + n, cap - n, ", padding=(%lld, %lld)", (long long)o->padding[0],
                              (long long)o->padding[1]);
    if ((o->dilation[0] != 1 || o->dilation[1] != 1) && n < cap)
        n += (size_t)snprintf(buf + n, cap - n, ", dilation=(%lld, %lld)",
                              (long long)o->dilation[0], (long long)o->dilation[1]);
    if (o->groups != 1 && n < cap)
        n += (size_t)snprintf(buf + n, cap - n, ", groups=%lld", (long long)o->groups);
    if (!c->bias && n < cap)
        snprintf(buf + n, cap - n, ", bias=false");
}

static const ct_module_ops conv2d_ops = {"Conv2d", forward, describe, NULL};

static int check(ct_ctx *ctx, const conv2d *c)
{
    const ct_conv2d_opts *o = &c->opts;
    int rc = cti_check_least(ctx, "Conv2d", "in_channels", c->in, 1);

    if (rc == CT_OK)
        rc = cti_check_least(ctx, "Conv2d", "out_channels", c->out, 1);
    if (rc == CT_OK)
        rc = cti_check_least(ctx, "Conv2d", "groups", o->groups, 1);
    for (int d = 0; d < 2; d++) {
        if (rc == CT_OK)
            rc = cti_check_least(ctx, "Conv2d", "kernel_size", c->kernel[d], 1);
        if (rc == CT_OK)
            rc = cti_check_least(ctx, "Conv2d", "stride", o->stride[d], 1);
        if (rc == CT_OK)
            rc = cti_check_least(ctx, "Conv2d", "padding", o->padding[d], 0);
        if (rc == CT_OK)
            rc = cti_check_least(ctx, "Conv2d", "dilation", o->dilation[d], 1);
        if (rc == CT_OK && o->same && o->stride[d] != 1)
            rc = ct_error_raise(ctx, CT_EINVAL, "Conv2d",
                                "Conv2d: padding 'same' needs stride 1, not %lld",
                                (long long)o->stride[d]);
    }
    if (rc != CT_OK)
        return rc;
    if (c->in % o->groups != 0 || c->out % o->groups != 0)
        return ct_error_raise(ctx, CT_EINVAL, "Conv2d",
                              "Conv2d: groups is %lld: must divide in_channels (%lld) and "
                              "out_channels (%lld)",
                              (long long)o->groups, (long long)c->in, (long long)c->out);
    return CT_OK;
}

ct_module *ct_nn_conv2d_new(ct_ctx *ctx, int64_t in, int64_t out, int64_t kernel_h,
                            int64_t kernel_w, ct_conv2d_opts opts, bool bias)
{
    conv2d c = {.in = in, .out = out, .kernel = {kernel_h, kernel_w}, .opts = opts};
    ct_module *m;
    double bound;
    int rc;

    if (!ctx || check(ctx, &c) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, &conv2d_ops, sizeof c);
    bound = cti_fan_in_bound((double)(in / opts.groups) * (double)kernel_h * (double)kernel_w);
    rc = cti_param_uniform(m, "weight", 4, (int64_t[]){out, in / opts.groups, kernel_h, kernel_w},
                           bound);
    if (rc == CT_OK && bias)
        rc = cti_param_uniform(m, "bias", 1, &out, bound);
    if (rc != CT_OK)
        return cti_module_done(m, rc);
    c.weight = ct_module_get_param(m, "weight");
    c.bias = ct_module_get_param(m, "bias");
    *(conv2d *)ct_module_self(m) = c;
    return m;
}
