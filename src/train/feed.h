/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a batch into tensors. Where device memory isn't the host's, batches of pinned slabs are
 * copied beside the computation: into one of two staging tensors, from there on the device into x and
 * y, whose addresses stay. A slab goes back to the loader when the event after its copy has happened. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "train/config.h"
#include <ctrain/device.h>

enum {
    CTI_FEED_SIZES = 2, /* of batches: a full one, and the last one of an epoch */
    CTI_FEED_STAGES = 2,
    CTI_FEED_HOLD = CTI_FEED_STAGES + 1 /* what a loader must let a feed hold */
};

typedef struct cti_feed_stage {
    ct_tensor *x, *y;              /* as the dataset has them */
    ct_event *copied;              /* in from the slab */
    ct_event *consumed;            /* on into the batch's tensors */
} cti_feed_stage;

typedef struct cti_feed {
    ct_ctx *ctx;
    const ct_dataset_info *info;
    ct_loader *loader; /* whose batches are taken; NULL: only cti_feed_write */
    bool async;
    struct {
        int64_t count;
        ct_tensor *x, *y;
        ct_tensor *raw; /* of the dataset's dtype, when the context's differs */
        cti_feed_stage stage[CTI_FEED_STAGES];
        int turn; /* the stage of the next batch */
    } size[CTI_FEED_SIZES];
    int next; /* to be replaced */
    /* slabs being copied, oldest first */
    struct {
        ct_batch batch;
        ct_event *copied; /* of a stage */
    } away[CTI_FEED_STAGES];
    int n_away;
} cti_feed;

void cti_feed_init(cti_feed *f, ct_ctx *ctx, const ct_dataset_info *info);
/* A loader whose batches this feed takes: its slabs pinned where that helps and `pin` says so. */
ct_loader *cti_feed_loader(cti_feed *f, ct_dataset *ds, ct_loader_opts o, bool pin, ct_error *err);
/* Gives all slabs back, waits for copies: before the loader is freed. */
void cti_feed_clear(cti_feed *f);
/* Input in the context's dtype, target as it is; borrowed, until the next batch of that size. An
 * error is in the context. */
int cti_feed_write(cti_feed *f, void *const *field, int64_t count, ct_tensor **x, ct_tensor **y);
/* The same for a batch of the feed's loader, which goes back to it. */
int cti_feed_take(cti_feed *f, ct_batch *batch, ct_tensor **x, ct_tensor **y);

#endif
