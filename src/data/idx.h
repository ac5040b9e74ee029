/* SPDX-License-Identifier: Apache-2.0 */
/* IDX, the format of MNIST's files: a big-endian magic 0 0 TYPE NDIM, a u32 per dimension, the
 * elements row-major. (Y. LeCun, "The MNIST database", file format section.) Only unsigned bytes. */
#ifndef DATA_IDX_H
#define DATA_IDX_H

#include "base/mem.h"
#include <ctrain/data.h>
#include <stddef.h>
#include <stdint.h>

#define CTI_IDX_MAX_DIMS 3

typedef struct cti_idx {
    int ndim;
    int64_t dim[CTI_IDX_MAX_DIMS]; /* each at least 1 */
    const unsigned char *data;     /* all elements, inside the bytes given */
    uint64_t hash;                 /* of header and elements */
} cti_idx;

/* Reads `bytes` of `file`'s content. `name` stands before every error; CT_EFORMAT unless it is an IDX
 * file of unsigned bytes with `ndim` dimensions, of exactly the size it claims. */
int cti_idx_parse(const char *name, const void *file, size_t bytes, int ndim, cti_idx *out,
                  ct_error *err);

/* Checks that `images` [N,H,W] and `labels` [N] belong together. */
int cti_idx_check_pair(const char *images_name, const cti_idx *images, const char *labels_name,
                       const cti_idx *labels, ct_error *err);

/* The same of a file on disk, plain or gzipped. *file holds the content: the caller's (cti_free). */
int cti_idx_read(cti_mem *m, const char *path, int ndim, cti_idx *out, void **file, ct_error *err);

/* ---- image sets over a pair of IDX files ---- */

typedef struct cti_idx_set {
    cti_mem *mem; /* owned, with all below that isn't static */
    cti_idx images, labels;
    void *image_file, *label_file; /* owned; NULL when static */
    float level[256];              /* what a byte becomes: see cti_idx_set_new */
    char name[512];                /* of the image file, for messages */
} cti_idx_set;

/* A set with an allocator and its levels: a byte b becomes b / scale, rounded as PyTorch's ToTensor
 * rounds (a product with 1 / 255 would be off by a bit). NULL with err filled. */
cti_idx_set *cti_idx_set_new(float scale, ct_error *err);
void cti_idx_set_free(cti_idx_set *set); /* NULL is fine */
/* Makes the dataset that owns `set` (freed on failure too): image f32 [1,H,W], label i64. n_classes is
 * the largest label + 1, at least `min_classes`. */
ct_dataset *cti_idx_set_open(cti_idx_set *set, const char *name, int64_t min_classes,
                             ct_error *err);

#endif
