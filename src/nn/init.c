/* SPDX-License-Identifier: Apache-2.0 */
/* How the built-in layers make their parameters. Draws come from stream `init` in the order of creation,
 * so a network's start depends on the seed and on its layers, on nothing else. */
#include "nn/module.h"

#include <math.h>

double cti_fan_in_bound(double fan_in)
{
    return fan_in > 0 ? 1 / sqrt(fan_in) : 0;
}

int cti_param_uniform(ct_module *m, const char *name, int ndim, const int64_t *shape, double bound)
{
    ct_ctx *ctx = ct_module_ctx(m);
    ct_tensor *t = m ? ct_tensor_new(ctx, ct_ctx_dtype(ctx), ndim, shape) : NULL;

    if (t && ct_tensor_uniform(ctx, t, -bound, bound) != CT_OK) {
        ct_tensor_release(t);
        t = NULL;
    }
    return ct_module_add_param(m, name, t);
}

static ct_tensor *filled(ct_module *m, ct_dtype dtype, int ndim, const int64_t *shape, double value)
{
    ct_ctx *ctx = ct_module_ctx(m);
    ct_tensor *t = m ? ct_tensor_new(ctx, dtype, ndim, shape) : NULL;

    if (t && value != 0 && ct_tensor_fill(ctx, t, value) != CT_OK) {
        ct_tensor_release(t);
        return NULL;
    }
    return t;
}

int cti_param_fill(ct_module *m, const char *name, int ndim, const int64_t *shape, double value)
{
    ct_dtype dtype = m ? ct_ctx_dtype(m->ctx) : CT_F32;

    return ct_module_add_param(m, name, filled(m, dtype, ndim, shape, value));
}

int cti_buffer_fill(ct_module *m, const char *name, ct_dtype dtype, int ndim, const int64_t *shape,
                    double value)
{
    return ct_module_add_buffer(m, name, filled(m, dtype, ndim, shape, value));
}

ct_module *cti_module_done(ct_module *m, int status)
{
    if (status == CT_OK)
        return m;
    ct_module_free(m);
    return NULL;
}

int cti_check_least(ct_ctx *ctx, const char *layer, const char *name, int64_t value, int64_t min)
{
    if (value >= min)
        return CT_OK;
    return ct_error_raise(ctx, CT_EINVAL, layer, "%s: %s is %lld: must be at least %lld", layer,
                          name, (long long)value, (long long)min);
}
