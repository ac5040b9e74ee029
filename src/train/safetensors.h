/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format: 8 bytes little-endian header length, a JSON object of
 * NAME: {dtype, shape, data_offsets}, then the data without holes. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include "base/json.h"
#include "base/mem.h"
#include <ctrain/nn.h>

#define CTI_ST_HEADER_MAX 100000000 /* what the reference implementation accepts */

typedef struct cti_st_entry {
    const char *name; /* borrowed from the document */
    ct_dtype dtype;
    int ndim;
    int64_t shape[CT_MAX_DIMS];
    size_t begin, bytes; /* from the start of the file */
} cti_st_entry;

/* What a file says of itself: every number in it has been checked against the file's size. */
typedef struct cti_st {
    cti_mem *mem;
    cti_json *doc;
    cti_st_entry *entry; /* in the order of the data */
    int n;
} cti_st;

/* Reads the header of `data`, the whole content of the file called `what`. CT_EFORMAT says what is
 * wrong. `out` needs cti_st_clear when it succeeds; it borrows nothing of `data`. */
int cti_st_parse(cti_mem *m, const void *data, size_t bytes, const char *what, cti_st *out,
                 ct_error *err);
void cti_st_clear(cti_st *st);

/* "F32" for CT_F32. */
const char *cti_st_dtype(ct_dtype dtype);

/* The content of a file with these tensors; owned by the caller, cti_free. `what` names it in
 * errors. */
int cti_st_image(ct_ctx *ctx, cti_mem *m, const char *what, const ct_named_tensor *tensors, int n,
                 void **out, size_t *bytes, ct_error *err);

#endif
