/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of nn share: the module itself, and how layers make their parameters. */
#ifndef NN_MODULE_H
#define NN_MODULE_H

#include "base/mem.h"
#include <ctrain/nn.h>

/* The longest path of a parameter: with ".momentum_buffer" after it, it still fits a ct_named_tensor. */
#define CTI_PATH_MAX 111

typedef struct cti_slot {
    char name[CTI_PATH_MAX + 1];
    ct_tensor *tensor;
} cti_slot;

typedef struct cti_slots {
    cti_slot *at;
    int n;
    size_t cap;
} cti_slots;

struct ct_module {
    ct_ctx *ctx;
    const ct_module_ops *ops;
    void *self;
    ct_module *parent;
    char name[CTI_PATH_MAX + 1]; /* in the parent */
    cti_slots params, buffers;
    ct_module **child;
    int n_children;
    size_t child_cap;
    size_t reach; /* bytes of the longest path below: "0.weight" */
    bool training, checkpoint;
    struct cti_module_hook *hooks; /* owned */
    uint64_t last_hook;
    /* Of a summary: */
    bool was_training;
    int out_ndim; /* -1: not run */
    int64_t out_shape[CT_MAX_DIMS];
    /* Of a root: how deep a forward is, and whether its error has a path in front already. */
    int depth;
    bool error_named, watching; /* watching: a summary wants output shapes */
};

/* "0.body.1" into buf; "" for a root. Returns buf. */
const char *cti_module_path(const ct_module *m, char *buf, size_t cap);

ct_module *cti_module_root(ct_module *m);

/* hooks.c: forward with the module's hooks around it. */
ct_tensor *cti_module_run(ct_module *m, ct_tensor *x);
void cti_module_hooks_free(ct_module *m);

/* Elements of m's own parameters, or of all below; trainable ones alone if asked. A tensor that stands in
 * `root` more than once is counted at its first place. */
int64_t cti_module_count(const ct_module *root, const ct_module *m, bool deep, bool trainable);

/* "[1,32,8,8]" into buf. Returns buf. */
const char *cti_shape_text(int ndim, const int64_t *shape, char *buf, size_t cap);

/* Parameters and buffers of the context's dtype; each adds to m and returns the status. */
int cti_param_uniform(ct_module *m, const char *name, int ndim, const int64_t *shape, double bound);
int cti_param_fill(ct_module *m, const char *name, int ndim, const int64_t *shape, double value);
int cti_buffer_fill(ct_module *m, const char *name, ct_dtype dtype, int ndim, const int64_t *shape,
                    double value);
/* PyTorch's bound of linear and convolution: kaiming_uniform with a = sqrt 5 is U(+-1/sqrt(fan_in)). */
double cti_fan_in_bound(double fan_in);

/* m when status is CT_OK; else frees it and returns NULL. For the end of a layer's constructor. */
ct_module *cti_module_done(ct_module *m, int status);

/* Records CT_EINVAL "LAYER: NAME is VALUE: must be at least MIN" unless value >= min. */
int cti_check_least(ct_ctx *ctx, const char *layer, const char *name, int64_t value, int64_t min);

/* Which modules are dropout layers, and their probability. */
bool cti_is_dropout(const ct_module *m);
void cti_dropout_set(ct_module *m, double p);

#endif
