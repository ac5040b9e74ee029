/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets and the loader. Neither knows of tensors' contexts: a loader fills batch slabs in its own
 * threads, and the caller copies them into tensors. */
#ifndef CTRAIN_DATA_H
#define CTRAIN_DATA_H

#include <ctrain/dtype.h>
#include <ctrain/error.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets ---- */

#define CT_MAX_FIELDS 4

/* One part of a sample: what `get` writes, row-major. */
typedef struct ct_field {
    char name[32]; /* "image", "label" */
    ct_dtype dtype;
    int ndim; /* of one sample: [C,H,W] is 3, a class number 0 */
    int64_t shape[CT_MAX_DIMS];
} ct_field;

typedef struct ct_dataset_info {
    char name[64];
    int64_t count; /* samples */
    int n_fields;
    ct_field field[CT_MAX_FIELDS]; /* field 0 is the input, field 1 the target */
    int64_t n_classes;             /* 0 when the target is no class */
    uint64_t fingerprint;          /* of the content: a resumed run compares it */
} ct_dataset_info;

/* What a dataset of an application's own gives. */
typedef struct ct_dataset_ops {
    /* Writes sample `index` (0 <= index < count): field i to out[i]. Called from many threads at once.
     * On failure fills err (name the file, the sample, the reason) and returns its code. */
    int (*get)(void *self, int64_t index, void *const *out, ct_error *err);
    /* Human name of a sample for messages: "train-images.idx[17]". Optional. */
    void (*describe)(void *self, int64_t index, char *out, size_t cap);
    void (*free)(void *self); /* optional */
} ct_dataset_ops;

typedef struct ct_dataset ct_dataset;

/* A dataset over `self`, which it owns from now on when the call succeeds. NULL with err filled. Owned. */
CT_NODISCARD ct_dataset *ct_dataset_new(const ct_dataset_info *info, const ct_dataset_ops *ops,
                                        void *self, ct_error *err);
void ct_dataset_free(ct_dataset *ds);                             /* NULL is fine */
const ct_dataset_info *ct_dataset_get_info(const ct_dataset *ds); /* borrowed */
CT_NODISCARD int ct_dataset_get(ct_dataset *ds, int64_t index, void *const *out, ct_error *err);
void ct_dataset_describe(ct_dataset *ds, int64_t index, char *out, size_t cap);

/* The real UCI digits (1,797 images of 8x8 in 16 grey levels, 10 classes), built into the library:
 * image f32 [1,8,8] in 0..1, label i64. Owned. */
CT_NODISCARD ct_dataset *ct_digits_open(ct_error *err);

/* MNIST-style IDX files in `folder`, plain or .gz, with names in '-' or '.' form:
 * {train,t10k}-{images-idx3,labels-idx1}-ubyte. Image f32 [1,H,W] in 0..1, label i64; n_classes is the
 * largest label + 1, at least 10. CT_EDATA when files are missing (all tried names in the text),
 * CT_EFORMAT when one lies. Owned. */
CT_NODISCARD ct_dataset *ct_mnist_open(const char *folder, bool train, ct_error *err);

/* The part of `ds` that a split keyed to the dataset alone (not to a run's seed) puts into validation
 * (`held_out`) or leaves for training: round(fraction * count) samples are held out. Borrows ds, which
 * must outlive it. Owned. */
CT_NODISCARD ct_dataset *ct_dataset_split(ct_dataset *ds, double fraction, bool held_out,
                                          ct_error *err);

/* ---- loader ---- */

typedef struct ct_loader_opts {
    int64_t batch_size;
    int workers;  /* threads that decode; 0: in the caller's thread, when a batch is asked for */
    int prefetch; /* batches in flight beyond those in the caller's hands; at least 1 with workers */
    bool shuffle; /* a keyed permutation of (seed, epoch), else file order */
    bool drop_last;
    uint64_t seed;
    int hold; /* batches that the caller may hold at a time, to 64; 0: 1 */
    /* Where the slabs come from (pinned memory), called in the thread that makes and frees the loader. NULL
     * members: plain memory. */
    void *(*alloc)(size_t bytes, void *user); /* 64-byte aligned; NULL: out of memory */
    void (*free)(void *p, void *user);
    void *user;
} ct_loader_opts;

ct_loader_opts ct_loader_defaults(
    void); /* 32, 0 workers, 2, shuffle, keep the last, seed 0, hold 1 */

/* A batch slab, borrowed from the loader until it is released. */
typedef struct ct_batch {
    int64_t count;              /* samples in it */
    int64_t epoch;              /* from 0 */
    int64_t index;              /* batch number in the epoch, from 0 */
    const int64_t *ids;         /* [count]: dataset indices */
    void *field[CT_MAX_FIELDS]; /* [count, ...] row-major */
    double wait_ms;             /* how long the caller waited for it */
    int slot;
} ct_batch;

typedef struct ct_loader ct_loader;

/* The stream of batches is the same for any `workers` and `prefetch`. CT_EINVAL or CT_EDATA when the
 * batch is larger than the dataset and drop_last leaves nothing. Borrows ds. Owned. */
CT_NODISCARD ct_loader *ct_loader_new(ct_dataset *ds, ct_loader_opts opts, ct_error *err);
void ct_loader_free(ct_loader *l);             /* at any moment; joins its threads; NULL is fine */
int64_t ct_loader_batches(const ct_loader *l); /* per epoch */

/* The next batch: 1; 0 at the end of an epoch (the next call begins the next epoch); negative: the
 * error of the first bad sample in order, in err (after it the same error is given again until a seek).
 * At most `hold` batches may be held: with 1, ct_loader_next takes it back itself, else one too many is
 * CT_EINVAL. */
CT_NODISCARD int ct_loader_next(ct_loader *l, ct_batch *out, ct_error *err);
/* Gives the batch back; in any order. */
void ct_loader_release(ct_loader *l, ct_batch *batch);

/* Goes to batch `index` of epoch `epoch`, at any time. index may be ct_loader_batches: the next call
 * then says that the epoch has ended. */
CT_NODISCARD int ct_loader_seek(ct_loader *l, int64_t epoch, int64_t index, ct_error *err);

#ifdef __cplusplus
}
#endif
#endif
