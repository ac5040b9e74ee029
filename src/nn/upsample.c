/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Upsample, PixelShuffle. */
#include "nn/module.h"

#include <stdio.h>

static ct_tensor *forward_upsample(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_interpolate(x, *(const ct_interpolate_opts *)self);
}

static void describe_upsample(ct_module *m, const void *self, char *buf, size_t cap)
{
    const ct_interpolate_opts *o = self;
    const char *mode = o->mode == CT_INTERPOLATE_NEAREST ? "nearest" : "bilinear";

    (void)m;
    if (o->size[0])
        snprintf(buf, cap, "size=(%lld, %lld), mode='%s'%s", (long long)o->size[0],
                 (long long)o->size[1], mode, o->align_corners ? ", align_corners=true" : "");
    else
        snprintf(buf, cap, "scale_factor=(%g, %g), mode='%s'%s", o->scale[0], o->scale[1], mode,
                 o->align_corners ? ", align_corners=true" : "");
}

static const ct_module_ops upsample_ops = {"Upsample", forward_upsample, describe_upsample, NULL};

ct_module *ct_nn_upsample_new(ct_ctx *ctx, ct_interpolate_opts opts)
{
    ct_module *m;

    if (!ctx)
        return NULL;
    for (int d = 0; d < 2; d++)
        if (opts.size[d] ? opts.size[d] < 0 || opts.scale[d] != 0 : !(opts.scale[d] > 0)) {
            ct_error_raise(
                ctx, CT_EINVAL, "Upsample",
                "Upsample: size %lld and scale_factor %g: one of them must be given, more "
                "than 0",
                (long long)opts.size[d], opts.scale[d]);
            return NULL;
        }
    if ((unsigned)opts.mode > CT_INTERPOLATE_BILINEAR ||
        (opts.align_corners && opts.mode != CT_INTERPOLATE_BILINEAR)) {
        ct_error_raise(ctx, CT_EINVAL, "Upsample",
                       "Upsample: mode %d with align_corners=%s: nearest without, or bilinear",
                       (int)opts.mode, opts.align_corners ? "true" : "false");
        return NULL;
    }
    m = ct_module_new(ctx, &upsample_ops, sizeof opts);
    if (m)
        *(ct_interpolate_opts *)ct_module_self(m) = opts;
    return m;
}

static ct_tensor *forward_shuffle(ct_module *m, void *self, ct_tensor *x)
{
    (void)m;
    return ct_pixel_shuffle(x, *(const int64_t *)self);
}

static void describe_shuffle(ct_module *m, const void *self, char *buf, size_t cap)
{
    (void)m;
    snprintf(buf, cap, "upscale_factor=%lld", (long long)*(const int64_t *)self);
}

static const ct_module_ops shuffle_ops = {"PixelShuffle", forward_shuffle, describe_shuffle, NULL};

ct_module *ct_nn_pixel_shuffle_new(ct_ctx *ctx, int64_t upscale_factor)
{
    ct_module *m;

    if (!ctx || cti_check_least(ctx, "PixelShuffle", "upscale_factor", upscale_factor, 1) != CT_OK)
        return NULL;
    m = ct_module_new(ctx, &shuffle_ops, sizeof upscale_factor);
    if (m)
        *(int64_t *)ct_module_self(m) = upscale_factor;
    return m;
}
