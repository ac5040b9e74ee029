/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adam and AdamW: their options. The rules are the backend's. */
#include "optim/optim.h"

ct_adam_opts ct_adam_defaults(void)
{
    return (ct_adam_opts){.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

ct_adam_opts ct_adamw_defaults(void)
{
    ct_adam_opts o = ct_adam_defaults();

    o.weight_decay = 0.01;
    return o;
}

static int check_adam(ct_ctx *ctx, ct_opt_kind kind, const ct_adam_opts *o)
{
    int rc = cti_optim_check_range(ctx, kind, "lr", o->lr, false);

    if (rc == CT_OK)
        rc = cti_optim_check_range(ctx, kind, "beta1", o->beta1, true);
    if (rc == CT_OK)
        rc = cti_optim_check_range(ctx, kind, "beta2", o->beta2, true);
    if (rc == CT_OK)
        rc = cti_optim_check_range(ctx, kind, "eps", o->eps, false);
    if (rc == CT_OK)
        rc = cti_optim_check_range(ctx, kind, "weight_decay", o->weight_decay, false);
    return rc;
}

static ct_optim *make_adam(ct_ctx *ctx, ct_opt_kind kind, const ct_named_tensor *params, int n,
                           const ct_adam_opts *o)
{
    ct_opt_scalars set = {.lr = o->lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps};

    if (!ctx || ct_error_code(ctx) != CT_OK || check_adam(ctx, kind, o) != CT_OK)
        return NULL;
    return cti_optim_make(ctx, kind, params, n, &set, o->weight_decay);
}

ct_optim *ct_adam_new(ct_ctx *ctx, const ct_named_tensor *params, int n, ct_adam_opts o)
{
    return make_adam(ctx, CT_OPT_ADAM, params, n, &o);
}

ct_optim *ct_adamw_new(ct_ctx *ctx, const ct_named_tensor *params, int n, ct_adam_opts o)
{
    return make_adam(ctx, CT_OPT_ADAMW, params, n, &o);
}
