/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizers share. */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include "backend/backend.h"
#include <ctrain/optim.h>

typedef struct cti_optim_entry {
    char name[sizeof((ct_named_tensor *)0)->name];
    ct_tensor *p;
    ct_tensor *s0, *s1, *step;
    ct_tensor *dense; /* a row-major copy of a gradient that isn't one; made when first needed */
} cti_optim_entry;

typedef struct cti_optim_guard {
    ct_tensor *t, *backup;
} cti_optim_guard;

struct ct_optim {
    ct_ctx *ctx;
    ct_opt_kind kind;
    ct_dtype dtype;
    ct_opt_scalars set;  /* the in-part: what the next step uses */
    ct_opt_scalars sent; /* ... and what the device has */
    double weight_decay;
    int n, n_guards;
    cti_optim_entry *entries;
    cti_optim_guard *guards;
    ct_opt_param *list; /* of the parameters with a gradient; filled each step */
    ct_opt_guard *guard_list;
    ct_tensor *scalars;   /* bytes of a ct_opt_scalars */
    ct_tensor *scale;     /* its loss_scale as float32; NULL: no loss scaling */
    ct_tensor *workspace; /* bytes */
};

const char *cti_optim_kind_name(ct_opt_kind kind);

/* A kernel's status: the text is the kernel's, or made here. */
int cti_optim_launched(ct_optim *o, int rc, const char *what);
/* All of the scalars, waiting for the device. */
int cti_optim_read(ct_optim *o, ct_opt_scalars *sc);
int cti_optim_write(ct_optim *o, const ct_opt_scalars *sc);
int cti_optim_publish_scale(ct_optim *o); /* into o->scale; a kernel's status */

/* PyTorch's ranges: at least 0; a beta also less than 1. CT_EINVAL "sgd: lr is -1: must be ...". */
int cti_optim_check_range(ct_ctx *ctx, ct_opt_kind kind, const char *name, double v,
                          bool below_one);

/* The optimizer with its state; hyper-parameters are checked already. NULL with the error set. */
ct_optim *cti_optim_make(ct_ctx *ctx, ct_opt_kind kind, const ct_named_tensor *params, int n,
                         const ct_opt_scalars *set, double weight_decay);

#endif
