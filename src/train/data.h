/* SPDX-License-Identifier: Apache-2.0 */
/* The datasets that a config asks for, and the way of a batch into tensors. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "base/mem.h"
#include "train/config.h"

typedef struct cti_data {
    ct_dataset *source; /* what the splits borrow; NULL when there is no split */
    ct_dataset *train, *val;
} cti_data;

/* Opens [data] and [data.val] and checks that they go together: CT_ECONFIG, CT_EDATA, CT_EFORMAT.
 */
int cti_data_open(cti_data *d, const ct_config *config, ct_error *err);
void cti_data_close(cti_data *d);

/* Tensors that batches are written into: kept by batch size, so that a steady step makes none. */
enum { CTI_FEED_SIZES = 2 }; /* a full batch, and the last one of an epoch */
typedef struct cti_feed {
    ct_ctx *ctx;
    const ct_dataset_info *info;
    struct {
        int64_t count;
        ct_tensor *x, *y;
        ct_tensor *raw; /* of the dataset's dtype, when the context's differs */
    } size[CTI_FEED_SIZES];
    int next; /* to be replaced */
} cti_feed;

void cti_feed_init(cti_feed *f, ct_ctx *ctx, const ct_dataset_info *info);
void cti_feed_clear(cti_feed *f);
/* Input in the context's dtype, target as it is; borrowed, until the next batch of that size. An
 * error is in the context. */
int cti_feed_put(cti_feed *f, void *const *field, int64_t count, ct_tensor **x, ct_tensor **y);

#endif
