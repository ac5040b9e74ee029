/* SPDX-License-Identifier: Apache-2.0 */
/* The seam over oneDNN 2.x and 3.x: f32 and bf16 primitives by key, cached with their memory objects and
 * arguments, so a steady call looks up, swaps pointers and executes. Only dnnl.c sees oneDNN. */
#ifndef BACKEND_CPU_DNNL_H
#define BACKEND_CPU_DNNL_H

#include "backend/cpu/cpu.h"

#define CTI_DNNL_CACHE_MAX 512
#define CTI_DNNL_BATCH_MAX (CT_MAX_DIMS - 2)

typedef enum cti_dnnl_kind { CTI_DNNL_MATMUL = 1, CTI_DNNL_CONV = 2 } cti_dnnl_kind;

enum { CTI_BF16_IN = 1, CTI_BF16_OUT = 2, CTI_BF16_WEIGHT = 4, CTI_BF16_BIAS = 8 };

/* Keys are compared as bytes: start from cti_dnnl_key_init, and keep the structs free of padding.
 *
 * y[batch.., m, n] = a[batch.., m, k] b[batch.., k, n] + bias[n] (+ y with `add`). Strides: batch
 * dimensions, then rows, then columns; a batch stride of 0 broadcasts. */
typedef struct cti_dnnl_matmul {
    int32_t n_batch, bias, add;
    int32_t bf16; /* what is so: CTI_BF16_IN: a and b; the rest is f32 */
    int64_t batch[CTI_DNNL_BATCH_MAX];
    int64_t m, n, k;
    int64_t a[CT_MAX_DIMS], b[CT_MAX_DIMS], y[CT_MAX_DIMS];
} cti_dnnl_matmul;

/* x, y channels-last; w row-major [k, c / groups, r, s]. */
typedef struct cti_dnnl_conv {
    int32_t pass, bias; /* ct_conv_pass */
    int32_t bf16;       /* CTI_BF16_IN: x and y */
    int32_t unused;
    int64_t n, c, h, w, k, r, s, p, q, groups;
    int64_t stride[2], dilation[2], pad_begin[2], pad_end[2];
} cti_dnnl_conv;

typedef struct cti_dnnl_key {
    int32_t kind;
    int32_t bytes; /* of the member in use */
    union {
        cti_dnnl_matmul matmul;
        cti_dnnl_conv conv;
        uint64_t words[36];
    } u;
} cti_dnnl_key;

typedef struct cti_dnnl_op cti_dnnl_op;

int cti_dnnl_open(ct_stream *s);
void cti_dnnl_close(ct_stream *s);
void cti_dnnl_isa(char *out, size_t cap); /* "avx512_core_bf16": what the library dispatches to */
void cti_dnnl_version(char *out, size_t cap); /* "oneDNN 2.6.3": of the library loaded */

void cti_dnnl_key_init(cti_dnnl_key *key, cti_dnnl_kind kind);
/* The primitive for a key, from the cache or made now. Borrowed until the next get. CT_EDTYPE, without a text:
 * the library has none for bf16 here. */
int cti_dnnl_get(ct_stream *s, const cti_dnnl_key *key, cti_dnnl_op **out);
size_t cti_dnnl_workspace(const cti_dnnl_op *op);
const char *cti_dnnl_impl(
    const cti_dnnl_op *op); /* the implementation's name, for tests and reports */

/* The pointers of cti_dnnl_run: matmul a, b, bias, y; convolution x, w, bias, y. Bias is
 * NULL when the key has none. */
typedef struct cti_dnnl_data {
    void *in, *w, *bias, *out;
} cti_dnnl_data;

int cti_dnnl_run(ct_stream *s, cti_dnnl_op *op, const cti_dnnl_data *data, void *workspace);

#endif
