/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.SGD: its options. The rule is the backend's. */
#include "optim/optim.h"

#include <math.h>

ct_sgd_opts ct_sgd_defaults(void)
{
    return (ct_sgd_opts){.lr = 1e-3};
}

static int check_sgd(ct_ctx *ctx, const ct_sgd_opts *o)
{
    int rc = cti_optim_check_range(ctx, CT_OPT_SGD, "lr", o->lr, false);

    if (rc == CT_OK)
        rc = cti_optim_check_range(ctx, CT_OPT_SGD, "momentum", o->momentum, false);
    if (rc == CT_OK)
        rc = cti_optim_check_range(ctx, CT_OPT_SGD, "weight_decay", o->weight_decay, false);
    if (rc == CT_OK && !isfinite(o->dampening))
        rc = ct_error_raise(ctx, CT_EINVAL, "sgd", "sgd: dampening is %g: must be a number",
                            o->dampening);
    if (rc == CT_OK && o->nesterov && (o->momentum == 0 || o->dampening != 0))
        rc = ct_error_raise(ctx, CT_EINVAL, "sgd",
                            "sgd: nesterov needs momentum over 0 and dampening 0, not momentum %g "
                            "and dampening %g",
                            o->momentum, o->dampening);
    return rc;
}

ct_optim *ct_sgd_new(ct_ctx *ctx, const ct_named_tensor *params, int n, ct_sgd_opts o)
{
    ct_opt_scalars set = {
        .lr = o.lr, .beta1 = o.momentum, .dampening = o.dampening, .nesterov = o.nesterov};

    if (!ctx || ct_error_code(ctx) != CT_OK || check_sgd(ctx, &o) != CT_OK)
        return NULL;
    return cti_optim_make(ctx, CT_OPT_SGD, params, n, &set, o.weight_decay);
}
