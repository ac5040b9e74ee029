/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of `layers` (layers.c) and its table of layers (layer_table.c). */
#ifndef NN_LAYERS_H
#define NN_LAYERS_H

#include "nn/module.h"

enum { CTI_LAYER_ARGS = 7 };

typedef enum cti_arg_kind {
    CTI_ARG_INT,
    CTI_ARG_PAIR,   /* 3 or (3, 5) */
    CTI_ARG_STRIDE, /* a pair, or none: the kernel's */
    CTI_ARG_PAD,    /* a pair, or same */
    CTI_ARG_REAL,
    CTI_ARG_BOOL,
    CTI_ARG_APPROX, /* none or tanh */
    CTI_ARG_RESIZE, /* nearest or bilinear */
    CTI_ARG_KINDS
} cti_arg_kind;

typedef struct cti_arg_spec {
    const char *name;
    cti_arg_kind kind;
    const char *def; /* as text; NULL: must be given */
    int64_t min;     /* of integers */
    bool by_name;    /* can't be given by position */
} cti_arg_spec;

typedef struct cti_arg {
    int64_t i[2];
    double real;
    bool word; /* true, same, tanh */
} cti_arg;

/* The shape that flows through the layers: of one sample, without N. */
typedef struct cti_flow {
    int ndim;
    int64_t shape[CT_MAX_DIMS];
} cti_flow;

typedef struct cti_layers {
    ct_ctx *ctx;
    const char *text, *at;
    char label[CTI_PATH_MAX + 72]; /* "layer 5 (linear): " */
    char path[CTI_PATH_MAX + 1];   /* of the sequential being read, with a dot behind: "3.body." */
    const char *layer_at;          /* where the layer being read starts */
    int nest;
} cti_layers;

typedef struct cti_layer_spec {
    const char *name;
    cti_arg_spec arg[CTI_LAYER_ARGS]; /* ends at a NULL name */
    /* The layer for input *f; *f becomes its output. NULL with the error set. */
    ct_module *(*build)(cti_layers *p, const cti_arg *a, cti_flow *f);
} cti_layer_spec;

/* The table: PyTorch's names, order and defaults, without the size of the input. Ends at a NULL name. */
extern const cti_layer_spec cti_layer_table[];

/* CT_ECONFIG "layers, column 17: layer 5 (linear): ..."; the line too when there are several. */
int cti_layers_fail(cti_layers *p, const char *at, const char *fmt, ...) CT_PRINTF(3, 4);
/* "expected an input of shape WANTED, got [64]" at the layer's name. Returns NULL. */
ct_module *cti_layers_fail_shape(cti_layers *p, const cti_flow *f, const char *wanted);

#endif
