/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic loss scaling: the scale is one of the optimizer's scalars in device memory, its rule is
 * cti_scale_next (backend/scalar.h), which pass 2 of a step applies. */
#include "optim/optim.h"

#include "backend/device.h"

#include <math.h>
#include <stddef.h>

ct_scaler_opts ct_scaler_defaults(void)
{
    return (ct_scaler_opts){65536, 2, 0.5, 2000};
}

int cti_optim_publish_scale(ct_optim *o)
{
    const cti_device *dev = cti_ctx_device(o->ctx);
    ct_view to = {.data = cti_tensor_ptr(o->scale), .dtype = CT_F32}, from = to;

    from.data = (char *)cti_tensor_ptr(o->scalars) + offsetof(ct_opt_scalars, loss_scale);
    from.dtype = CT_F64;
    return dev->be->ew->copy(dev->stream, &to, &from);
}

static int check(ct_ctx *ctx, ct_optim *o, const char *who)
{
    if (!ctx)
        return CT_EINVAL;
    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    if (!o || o->ctx != ctx)
        return ct_error_raise(ctx, CT_EINVAL, who, "%s: no optimizer of this context", who);
    return CT_OK;
}

static int out_of_range(ct_ctx *ctx, const char *name, double v, const char *range)
{
    return ct_error_raise(ctx, CT_EINVAL, "ct_optim_set_scaler",
                          "loss scaling: %s is %g: must be %s", name, v, range);
}

static int check_opts(ct_ctx *ctx, const ct_scaler_opts *s)
{
    if (!(s->init_scale > 0) || !isfinite((float)s->init_scale))
        return out_of_range(ctx, "init_scale", s->init_scale, "a float32 above 0");
    if (!(s->growth_factor > 1) || !isfinite(s->growth_factor))
        return out_of_range(ctx, "growth_factor", s->growth_factor, "above 1");
    if (!(s->backoff_factor > 0 && s->backoff_factor < 1))
        return out_of_range(ctx, "backoff_factor", s->backoff_factor, "between 0 and 1");
    if (s->growth_interval < 1)
        return out_of_range(ctx, "growth_interval", (double)s->growth_interval, "1 or more");
    return CT_OK;
}

static int put(ct_optim *o, double scale, int64_t clean)
{
    ct_opt_scalars sc;
    int rc = cti_optim_read(o, &sc);

    if (rc != CT_OK)
        return rc;
    sc.loss_scale = scale;
    sc.scale_clean = clean;
    rc = cti_optim_write(o, &sc);
    return rc == CT_OK ? cti_optim_launched(o, cti_optim_publish_scale(o), "the loss scale") : rc;
}

int ct_optim_set_scaler(ct_ctx *ctx, ct_optim *o, ct_scaler_opts opts)
{
    int rc = check(ctx, o, __func__);

    if (rc == CT_OK)
        rc = check_opts(ctx, &opts);
    if (rc != CT_OK)
        return rc;
    if (!o->scale)
        o->scale = ct_tensor_scalar(ctx, CT_F32, 1);
    if (!o->scale)
        return ct_error_code(ctx);
    o->set.scale_growth = opts.growth_factor;
    o->set.scale_backoff = opts.backoff_factor;
    o->set.scale_interval = opts.growth_interval;
    return put(o, opts.init_scale, 0);
}

ct_tensor *ct_optim_loss_scale(ct_optim *o)
{
    return o ? o->scale : NULL;
}

int ct_optim_set_loss_scale(ct_ctx *ctx, ct_optim *o, double scale, int64_t growth_tracker)
{
    int rc = check(ctx, o, __func__);

    if (rc != CT_OK)
        return rc;
    if (!o->scale || !(scale > 0) || !isfinite((float)scale) || growth_tracker < 0)
        return ct_error_raise(ctx, CT_EINVAL, __func__, "loss scaling: %s",
                              !o->scale ?
                                  "the optimizer has no scaler" :
                                  "the scale must be a float32 above 0, the tracker 0 or more");
    return put(o, scale, growth_tracker);
}
