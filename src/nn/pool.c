/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.MaxPool2d, AvgPool2d, AdaptiveAvgPool2d and the same of [N,C,L]. */
#include "nn/module.h"

#include <stdio.h>

static ct_tensor *forward_max(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_max_pool2d(x, *(ct_pool2d_opts *)self);
}

static ct_tensor *forward_avg(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_avg_pool2d(x, *(ct_pool2d_opts *)self);
}

static void describe(ct_module *m, const void *self, char *buf, size_t cap)
{
    const ct_pool2d_opts *o = self;

    (void)m;
    snprintf(buf, cap, "kernel_size=(%lld, %lld), stride=(%lld, %lld), padding=(%lld, %lld)%s",
             (long long)o->kernel[0], (long long)o->kernel[1], (long long)o->stride[0],
             (long long)o->stride[1], (long long)o->padding[0], (long long)o->padding[1],
             o->ceil_mode ? ", ceil_mode=true" : "");
}

static const ct_module_ops max_ops = {"MaxPool2d", forward_max, describe, NULL};
static const ct_module_ops avg_ops = {"AvgPool2d", forward_avg, describe, NULL};

static int check(ct_ctx *ctx, const char *name, ct_pool2d_opts *o)
{
    int rc = CT_OK;

    for (int d = 0; d < 2 && rc == CT_OK; d++) {
        int64_t reach;

        if (o->stride[d] == 0)
            o->stride[d] = o->kernel[d];
        rc = cti_check_least(ctx, name, "kernel_size", o->kernel[d], 1);
        if (rc == CT_OK)
            rc = cti_check_least(ctx, name, "stride", o->stride[d], 1);
        if (rc == CT_OK)
            rc = cti_check_least(ctx, name, "padding", o->padding[d], 0);
        if (rc == CT_OK)
            rc = cti_check_least(ctx, name, "dilation", o->dilation[d], 1);
        reach = o->dilation[d] * (o->kernel[d] - 1) + 1;
        if (rc == CT_OK && o->padding[d] > reach / 2)
            rc = ct_error_raise(ctx, CT_EINVAL, name,
                                "%s: padding is %lld: must be at most half of the kernel (%lld)",
                                name, (long long)o->padding[d], (long long)reach);
    }
    return rc;
}

static ct_module *make(ct_ctx *ctx, const ct_module_ops *ops, ct_pool2d_opts opts)
{
    ct_module *m;

    if (!ctx || check(ctx, ops->name, &opts) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, ops, sizeof opts);
    if (m)
        *(ct_pool2d_opts *)ct_module_self(m) = opts;
    return m;
}

ct_module *ct_nn_maxpool2d_new(ct_ctx *ctx, ct_pool2d_opts opts)
{
    return make(ctx, &max_ops, opts);
}

ct_module *ct_nn_avgpool2d_new(ct_ctx *ctx, ct_pool2d_opts opts)
{
    return make(ctx, &avg_ops, opts);
}

static ct_tensor *forward_adaptive(ct_module *m, void *self, ct_tensor *x)
{
    const int64_t *out = self;

    (void)m;
    return ct_adaptive_avg_pool2d(x, out[0], out[1]);
}

static void describe_adaptive(ct_module *m, const void *self, char *buf, size_t cap)
{
    const int64_t *out = self;

    (void)m;
    snprintf(buf, cap, "output_size=(%lld, %lld)", (long long)out[0], (long long)out[1]);
}

static const ct_module_ops adaptive_ops = {"AdaptiveAvgPool2d", forward_adaptive, describe_adaptive,
                                           NULL};

ct_module *ct_nn_adaptive_avgpool2d_new(ct_ctx *ctx, int64_t out_h, int64_t out_w)
{
    ct_module *m;

    if (!ctx || cti_check_least(ctx, adaptive_ops.name, "output_size", out_h, 1) != CT_OK ||
        cti_check_least(ctx, adaptive_ops.name, "output_size", out_w, 1) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, &adaptive_ops, 2 * sizeof(int64_t));
    if (m) {
        int64_t *out = ct_module_self(m);

        out[0] = out_h;
        out[1] = out_w;
    }
    return m;
}

/* ---- of [N,C,L] ---- */

static ct_tensor *forward_max1d(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_max_pool1d(x, *(ct_pool1d_opts *)self);
}

static ct_tensor *forward_avg1d(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_avg_pool1d(x, *(ct_pool1d_opts *)self);
}

static void describe_1d(ct_module *m, const void *self, char *buf, size_t cap)
{
    const ct_pool1d_opts *o = self;

    (void)m;
    snprintf(buf, cap, "kernel_size=%lld, stride=%lld, padding=%lld%s", (long long)o->kernel,
             (long long)o->stride, (long long)o->padding, o->ceil_mode ? ", ceil_mode=true" : "");
}

static const ct_module_ops max1d_ops = {"MaxPool1d", forward_max1d, describe_1d, NULL};
static const ct_module_ops avg1d_ops = {"AvgPool1d", forward_avg1d, describe_1d, NULL};

static ct_module *make_1d(ct_ctx *ctx, const ct_module_ops *ops, ct_pool1d_opts o)
{
    ct_pool2d_opts wide = {.kernel = {1, o.kernel},
                           .stride = {1, o.stride},
                           .padding = {0, o.padding},
                           .dilation = {1, o.dilation}};
    ct_module *m;

    if (!ctx || check(ctx, ops->name, &wide) != CT_OK)
        return NULL;
    o.stride = wide.stride[1];
    m = ct_module_new(ctx, ops, sizeof o);
    if (m)
        *(ct_pool1d_opts *)ct_module_self(m) = o;
    return m;
}

ct_module *ct_nn_maxpool1d_new(ct_ctx *ctx, ct_pool1d_opts opts)
{
    return make_1d(ctx, &max1d_ops, opts);
}

ct_module *ct_nn_avgpool1d_new(ct_ctx *ctx, ct_pool1d_opts opts)
{
    return make_1d(ctx, &avg1d_ops, opts);
}

static ct_tensor *forward_adaptive1d(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_adaptive_avg_pool1d(x, *(int64_t *)self);
}

static void describe_adaptive1d(ct_module *m, const void *self, char *buf, size_t cap)
{
    (void)m;
    snprintf(buf, cap, "output_size=%lld", (long long)*(const int64_t *)self);
}

static const ct_module_ops adaptive1d_ops = {"AdaptiveAvgPool1d", forward_adaptive1d,
                                             describe_adaptive1d, NULL};

ct_module *ct_nn_adaptive_avgpool1d_new(ct_ctx *ctx, int64_t out)
{
    ct_module *m;

    if (!ctx || cti_check_least(ctx, adaptive1d_ops.name, "output_size", out, 1) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, &adaptive1d_ops, sizeof out);
    if (m)
        *(int64_t *)ct_module_self(m) = out;
    return m;
}
