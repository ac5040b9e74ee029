/* SPDX-License-Identifier: Apache-2.0 */
/* The loader.
 *
 * Order is a function of (seed, epoch, k), so a batch is named by (epoch, index) and can be made by
 * anyone at any time. The caller's thread decides all: it gives free slots the next batches in order,
 * sends them to the workers through the queue `work`, and takes them back through `done`. A slot
 * belongs to one thread at a time and the queues hand it over, so nothing else is locked. `ring` holds
 * the slots of the coming batches in their order; batches are delivered from its head, whichever was
 * ready first.
 *
 * Going elsewhere (a seek, an error) raises `generation` and empties the ring. Slots still with the
 * workers are stale then: a worker stops at its next sample, and the slot is free when it comes back. */
#include "data/loader.h"

#include "base/error.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/dataset.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#define WORKERS_MAX  256
#define PREFETCH_MAX 4096
#define EPOCH_MAX    INT32_MAX /* a seek's: leaves the order's 32 bits room to go on */
#define HOLD_MAX     64
#define ALIGN        64

typedef enum slot_state { SLOT_FREE, SLOT_AWAY, SLOT_READY, SLOT_HELD } slot_state;

typedef struct slot {
    slot_state state; /* the caller's thread alone */
    uint_least64_t generation;
    int64_t epoch, index, count;
    int64_t *ids; /* the slab begins here */
    unsigned char *field[CT_MAX_FIELDS];
    ct_error err; /* code 0: the batch is good */
} slot;

struct ct_loader {
    cti_mem *mem;
    ct_dataset *ds;
    const ct_dataset_info *info;
    ct_loader_opts opts;
    cti_rng_key key;
    int64_t batches;               /* per epoch */
    int64_t capacity;              /* samples of a slab */
    int64_t stride[CT_MAX_FIELDS]; /* bytes of one sample's field */

    /* of the caller's thread */
    int64_t epoch, index;             /* the next batch to deliver */
    int64_t ahead_epoch, ahead_index; /* the next to give to a slot */
    ct_error failed;                  /* code 0: none; else what every call says until a seek */
    slot *slots;
    int n_slots;
    int n_held; /* slots in the caller's hands */
    int *free_slots, n_free;
    int *ring, ring_first, ring_count;

    /* shared */
    atomic_uint_least64_t generation; /* written by the caller's thread alone */
    cti_queue *work, *done;
    cti_threads *threads;
};

/* ---- filling a slot: in a worker, or in the caller's thread ---- */

static int64_t sample_at(const ct_loader *l, int64_t epoch, int64_t k)
{
    if (!l->opts.shuffle)
        return k;
    return (int64_t)cti_permute(l->key, (uint32_t)epoch, (uint64_t)l->info->count, (uint64_t)k);
}

static void fill(ct_loader *l, slot *s)
{
    int64_t first = s->index * l->opts.batch_size;
    int n_fields = l->info->n_fields;

    s->err.code = CT_OK;
    s->err.text[0] = s->err.where[0] = 0;
    for (int64_t i = 0; i < s->count; i++) {
        void *out[CT_MAX_FIELDS] = {0};

        if (atomic_load_explicit(&l->generation, memory_order_relaxed) != s->generation)
            return; /* nobody will look at it */
        s->ids[i] = sample_at(l, s->epoch, first + i);
        for (int f = 0; f < n_fields; f++)
            out[f] = s->field[f] + i * l->stride[f];
        if (cti_dataset_fetch(l->ds, s->ids[i], out, &s->err) < 0)
            return;
    }
}

static void worker(int index, void *user)
{
    ct_loader *l = user;
    uint64_t item;

    (void)index;
    while (cti_queue_pop(l->work, &item)) {
        fill(l, &l->slots[item]);
        if (!cti_queue_push(l->done, item))
            return;
    }
}

/* ---- scheduling: the caller's thread ---- */

static bool is_stale(const ct_loader *l, const slot *s)
{
    return s->generation != atomic_load_explicit(&l->generation, memory_order_relaxed);
}

static void set_free(ct_loader *l, int i)
{
    l->slots[i].state = SLOT_FREE;
    l->free_slots[l->n_free++] = i;
}

/* Gives every free slot the next batch in order. Epochs follow one another without a gap. */
static void schedule(ct_loader *l)
{
    while (l->n_free > 0 && !l->failed.code) {
        int i = l->free_slots[--l->n_free];
        slot *s = &l->slots[i];
        int64_t left;

        if (l->ahead_index == l->batches) {
            l->ahead_epoch++;
            l->ahead_index = 0;
        }
        s->state = SLOT_AWAY;
        s->generation = atomic_load_explicit(&l->generation, memory_order_relaxed);
        s->epoch = l->ahead_epoch;
        s->index = l->ahead_index++;
        left = l->info->count - s->index * l->opts.batch_size;
        s->count = left < l->capacity ? left : l->capacity;
        l->ring[(l->ring_first + l->ring_count++) % l->n_slots] = i;
        if (l->threads) {
            bool pushed =
                cti_queue_push(l->work, (uint64_t)i); /* never waits: a place for each slot */
            assert(pushed);
            (void)pushed;
        }
    }
}

/* Drops all batches made or being made. */
static void cancel(ct_loader *l)
{
    atomic_fetch_add_explicit(&l->generation, 1, memory_order_relaxed);
    for (; l->ring_count > 0; l->ring_count--) {
        int i = l->ring[l->ring_first];
        if (l->slots[i].state == SLOT_READY || !l->threads)
            set_free(l, i);
        l->ring_first = (l->ring_first + 1) % l->n_slots;
    }
}

/* Takes back one slot from the workers. */
static int collect(ct_loader *l, ct_error *err)
{
    uint64_t item;

    if (!cti_queue_pop(l->done, &item))
        return cti_fail(err, CT_EINTERNAL, "loader: the queue of finished batches is closed");
    if (is_stale(l, &l->slots[item]))
        set_free(l, (int)item);
    else
        l->slots[item].state = SLOT_READY;
    return 0;
}

/* Waits for the next batch and takes its slot from the ring. */
static int await_next(ct_loader *l, int *out, ct_error *err)
{
    slot *s;
    int r;

    for (;;) {
        schedule(l);
        s = l->ring_count > 0 ? &l->slots[l->ring[l->ring_first]] : NULL;
        if (s && !l->threads) {
            fill(l, s);
            s->state = SLOT_READY;
        }
        if (s && s->state == SLOT_READY)
            break;
        if ((r = collect(l, err)) < 0)
            return r;
    }
    assert(s->epoch == l->epoch && s->index == l->index);
    *out = l->ring[l->ring_first];
    l->ring_first = (l->ring_first + 1) % l->n_slots;
    l->ring_count--;
    return 0;
}

static void take_back(ct_loader *l, int i)
{
    set_free(l, i);
    l->n_held--;
    schedule(l);
}

/* One batch more: with hold = 1 the last one is taken back. */
static int check_held(ct_loader *l, ct_error *err)
{
    if (l->n_held < l->opts.hold)
        return 0;
    if (l->opts.hold > 1)
        return cti_fail(err, CT_EINVAL, "loader: %d batches are held: release one first",
                        l->n_held);
    for (int i = 0; i < l->n_slots && l->n_held > 0; i++)
        if (l->slots[i].state == SLOT_HELD)
            take_back(l, i);
    return 0;
}

/* ---- the public calls ---- */

ct_loader_opts ct_loader_defaults(void)
{
    return (ct_loader_opts){
        .batch_size = 32, .workers = 0, .prefetch = 2, .shuffle = true, .hold = 1};
}

static int check_opts(const ct_dataset_info *info, const ct_loader_opts *o, ct_error *err)
{
    if (o->batch_size < 1)
        return cti_fail(err, CT_EINVAL, "batch_size %" PRId64 ": at least 1", o->batch_size);
    if (o->workers < 0 || o->workers > WORKERS_MAX)
        return cti_fail(err, CT_EINVAL, "workers %d: 0 (decode in the caller) to %d threads",
                        o->workers, WORKERS_MAX);
    if (o->prefetch < (o->workers ? 1 : 0) || o->prefetch > PREFETCH_MAX)
        return cti_fail(err, CT_EINVAL, "prefetch %d: %d to %d batches with %d workers",
                        o->prefetch, o->workers ? 1 : 0, PREFETCH_MAX, o->workers);
    if (o->hold < 0 || o->hold > HOLD_MAX)
        return cti_fail(err, CT_EINVAL, "hold %d: 0 (as 1) to %d batches", o->hold, HOLD_MAX);
    if (!o->alloc != !o->free)
        return cti_fail(err, CT_EINVAL, "alloc and free must be given together");
    if (o->drop_last && o->batch_size > info->count)
        return cti_fail(err, CT_EDATA,
                        "batch_size %" PRId64 " is larger than the dataset (%" PRId64
                        " samples) and drop_last leaves no batch; lower data.batch_size",
                        o->batch_size, info->count);
    return 0;
}

/* Where each field begins in a slab; its end is the slab's size. */
static bool lay_out(ct_loader *l, int64_t at[CT_MAX_FIELDS + 1])
{
    int64_t bytes;

    if (!cti_size_mul(l->capacity, sizeof(int64_t), &bytes))
        return false;
    at[0] = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    for (int f = 0; f < l->info->n_fields; f++) {
        l->stride[f] = cti_field_bytes(&l->info->field[f]);
        if (!cti_size_mul(l->capacity, l->stride[f], &bytes))
            return false;
        at[f + 1] = at[f] + (bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    return true;
}

static int make_slots(ct_loader *l, ct_error *err)
{
    int64_t at[CT_MAX_FIELDS + 1];
    int n_fields = l->info->n_fields;

    if (!lay_out(l, at))
        return cti_fail(err, CT_EINVAL,
                        "a batch of %" PRId64
                        " samples of '%s' is too large for this machine's memory; "
                        "lower data.batch_size",
                        l->capacity, l->info->name);
    l->n_slots = l->opts.hold + (l->opts.workers ? l->opts.prefetch : 0);
    l->slots = cti_alloc(l->mem, (size_t)l->n_slots * sizeof(*l->slots), "loader");
    l->ring = cti_alloc(l->mem, (size_t)l->n_slots * sizeof(*l->ring), "loader");
    l->free_slots = cti_alloc(l->mem, (size_t)l->n_slots * sizeof(*l->free_slots), "loader");
    if (!l->slots || !l->ring || !l->free_slots)
        return cti_fail(err, CT_ENOMEM, "loader: out of memory for %d slots", l->n_slots);
    for (int i = l->n_slots; i-- > 0;) {
        slot *s = &l->slots[i];
        unsigned char *slab = l->opts.alloc ?
                                  l->opts.alloc((size_t)at[n_fields], l->opts.user) :
                                  cti_alloc(l->mem, (size_t)at[n_fields], "loader slab");
        if (!slab)
            return cti_fail(err, CT_ENOMEM,
                            "loader: out of memory for %d batches of %" PRId64 " bytes; lower "
                            "data.batch_size or data.prefetch",
                            l->n_slots, at[n_fields]);
        s->ids = (int64_t *)(void *)slab;
        for (int f = 0; f < n_fields; f++)
            s->field[f] = slab + at[f];
        set_free(l, i);
    }
    return 0;
}

static int start_workers(ct_loader *l, ct_error *err)
{
    if (!l->opts.workers)
        return 0;
    l->work = cti_queue_new(l->mem, l->n_slots);
    l->done = cti_queue_new(l->mem, l->n_slots);
    if (!l->work || !l->done)
        return cti_fail(err, CT_ENOMEM, "loader: out of memory for its queues");
    l->threads = cti_threads_start(l->mem, l->opts.workers, "ct-loader", worker, l, err);
    return l->threads ? 0 : CT_ENOMEM;
}

ct_loader *ct_loader_new(ct_dataset *ds, ct_loader_opts opts, ct_error *err)
{
    const ct_dataset_info *info = ct_dataset_get_info(ds);
    cti_mem *m;
    ct_loader *l;

    if (!info) {
        cti_fail(err, CT_EINVAL, "a loader needs a dataset");
        return NULL;
    }
    if (check_opts(info, &opts, err) < 0)
        return NULL;
    m = cti_mem_new(NULL);
    l = m ? cti_alloc(m, sizeof(*l), "loader") : NULL;
    if (!l) {
        if (m)
            cti_mem_free(m, NULL, NULL);
        cti_fail(err, CT_ENOMEM, "loader: out of memory");
        return NULL;
    }
    l->mem = m;
    l->ds = ds;
    l->info = info;
    l->opts = opts;
    l->opts.hold = opts.hold ? opts.hold : 1;
    l->key = cti_rng_key_make(opts.seed, CTI_STREAM_SHUFFLE);
    l->capacity = opts.batch_size < info->count ? opts.batch_size : info->count;
    l->batches = info->count / opts.batch_size;
    if (!opts.drop_last && info->count % opts.batch_size)
        l->batches++;
    atomic_init(&l->generation, 1);
    if (make_slots(l, err) < 0 || start_workers(l, err) < 0) {
        ct_loader_free(l);
        return NULL;
    }
    schedule(l);
    return l;
}

void ct_loader_free(ct_loader *l)
{
    cti_mem *m;

    if (!l)
        return;
    m = l->mem;
    atomic_fetch_add_explicit(&l->generation, 1, memory_order_relaxed); /* workers stop soon */
    if (l->threads) {
        cti_queue_close(l->work);
        cti_queue_close(l->done);
        cti_threads_join(l->threads);
    }
    cti_queue_free(l->work);
    cti_queue_free(l->done);
    for (int i = 0; l->slots && i < l->n_slots; i++) {
        if (l->opts.free && l->slots[i].ids)
            l->opts.free(l->slots[i].ids, l->opts.user);
        else
            cti_free(m, l->slots[i].ids);
    }
    cti_free(m, l->slots);
    cti_free(m, l->ring);
    cti_free(m, l->free_slots);
    cti_free(m, l);
    cti_mem_free(m, NULL, NULL);
}

int64_t ct_loader_batches(const ct_loader *l)
{
    return l ? l->batches : 0;
}

cti_mem_stats cti_loader_mem_stats(const ct_loader *l)
{
    return cti_mem_get_stats(l->mem);
}

static int tell_failure(const ct_loader *l, ct_error *err)
{
    if (err && err->code == CT_OK)
        *err = l->failed;
    return l->failed.code;
}

int ct_loader_next(ct_loader *l, ct_batch *out, ct_error *err)
{
    double start;
    slot *s;
    int i, r;

    if (!l || !out)
        return cti_fail(err, CT_EINVAL, "ct_loader_next needs a loader and a place for the batch");
    *out = (ct_batch){.slot = -1};
    if (check_held(l, err) < 0)
        return CT_EINVAL;
    if (l->failed.code)
        return tell_failure(l, err);
    if (l->index == l->batches) {
        l->epoch++;
        l->index = 0;
        return 0;
    }
    start = cti_now_s();
    if ((r = await_next(l, &i, err)) < 0)
        return r;
    s = &l->slots[i];
    if (s->err.code) {
        l->failed = s->err;
        set_free(l, i);
        cancel(l);
        return tell_failure(l, err);
    }
    s->state = SLOT_HELD;
    l->n_held++;
    l->index++;
    *out = (ct_batch){
        .count = s->count, .epoch = s->epoch, .index = s->index, .ids = s->ids, .slot = i};
    for (int f = 0; f < l->info->n_fields; f++)
        out->field[f] = s->field[f];
    out->wait_ms = (cti_now_s() - start) * 1e3;
    return 1;
}

void ct_loader_release(ct_loader *l, ct_batch *batch)
{
    /* A batch that was given back before, or never was one, is nothing to take. */
    if (l && batch && batch->count > 0 && batch->slot >= 0 && batch->slot < l->n_slots &&
        l->slots[batch->slot].state == SLOT_HELD && batch->ids == l->slots[batch->slot].ids)
        take_back(l, batch->slot);
    if (batch)
        *batch = (ct_batch){.slot = -1};
}

int ct_loader_seek(ct_loader *l, int64_t epoch, int64_t index, ct_error *err)
{
    if (!l)
        return cti_fail(err, CT_EINVAL, "ct_loader_seek needs a loader");
    if (epoch < 0 || epoch > EPOCH_MAX || index < 0 || index > l->batches)
        return cti_fail(err, CT_EINVAL,
                        "loader: no batch %" PRId64 " of epoch %" PRId64
                        ": epochs are 0..%d, and %" PRId64 " batches of %" PRId64 " are in each",
                        index, epoch, (int)EPOCH_MAX, l->batches, l->opts.batch_size);
    if (!l->failed.code && epoch == l->epoch && index == l->index)
        return 0; /* there already: what was fetched ahead stays good */
    cancel(l);
    l->failed.code = CT_OK;
    l->epoch = l->ahead_epoch = epoch;
    l->index = l->ahead_index = index;
    schedule(l);
    return 0;
}
