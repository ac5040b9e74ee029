/* SPDX-License-Identifier: Apache-2.0 */
/* The loader's promises: every sample once per epoch, the same stream for any number of workers and
 * any prefetch, a seek that equals never having stopped, errors in order, clean ends. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "data/loader.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- a source that can be slow or bad at will ---- */

typedef struct fake {
    int64_t bad_every,
        bad_from; /* samples with index % bad_every == bad_every - 1, from bad_from on */
    int64_t bad_label_at, bad_label;
    int slow_us;      /* what a sample costs, on average */
    bool silent_bad;  /* fails without a text */
    bool named;       /* describes itself */
    atomic_int alive; /* gets going on now */
    atomic_int got;   /* gets that are over */
} fake;

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static int fake_get(void *self, int64_t i, void *const *out, ct_error *err)
{
    fake *f = self;
    float x[3] = {(float)i, (float)i * 0.5f, -1};
    int64_t label = i == f->bad_label_at ? f->bad_label : i % 7;

    atomic_fetch_add(&f->alive, 1);
    if (f->slow_us)
        sleep_us(f->slow_us * (1 + i % 3) / 2);
    memcpy(out[0], x, sizeof(x));
    memcpy(out[1], &label, sizeof(label));
    atomic_fetch_sub(&f->alive, 1);
    atomic_fetch_add(&f->got, 1);
    if (f->bad_every && i >= f->bad_from && i % f->bad_every == f->bad_every - 1)
        return f->silent_bad ?
                   CT_EIO :
                   ct_error_set(err, CT_EFORMAT, "fake_get", "offset %d: bad byte", (int)i);
    return 0;
}

static void fake_describe(void *self, int64_t i, char *out, size_t cap)
{
    if (((fake *)self)->named)
        snprintf(out, cap, "dir/%03d.jpg", (int)i);
}

static ct_dataset *open_fake(fake *f, int64_t count)
{
    static const ct_dataset_ops ops = {fake_get, fake_describe, NULL};
    ct_dataset_info info = {.name = "fake",
                            .count = count,
                            .n_fields = 2,
                            .field = {{"image", CT_F32, 1, {3}}, {"label", CT_I64, 0, {0}}},
                            .n_classes = 7,
                            .fingerprint = 1};
    ct_error err = {0};
    ct_dataset *ds;

    if (f->bad_label == 0)
        f->bad_label_at = -1;
    ds = ct_dataset_new(&info, &ops, f, &err);
    cr_assert(ds, "%s", err.text);
    return ds;
}

static ct_loader *open_loader(ct_dataset *ds, ct_loader_opts o)
{
    ct_error err = {0};
    ct_loader *l = ct_loader_new(ds, o, &err);
    cr_assert(l, "%s", err.text);
    return l;
}

/* ---- the stream as a list of events ---- */

#define MAX_BATCH 64

typedef struct event {
    int what; /* as ct_loader_next */
    int64_t count, epoch, index, ids[MAX_BATCH], label[MAX_BATCH];
    float x[MAX_BATCH][3];
} event;

static void next(ct_loader *l, event *e)
{
    ct_error err = {0};
    ct_batch b;

    memset(e, 0, sizeof(*e));
    e->what = ct_loader_next(l, &b, &err);
    cr_assert(e->what >= 0, "%s", err.text);
    if (e->what == 0)
        return;
    cr_assert_leq(b.count, MAX_BATCH);
    e->count = b.count;
    e->epoch = b.epoch;
    e->index = b.index;
    memcpy(e->ids, b.ids, (size_t)b.count * sizeof(*b.ids));
    memcpy(e->x, b.field[0], (size_t)b.count * sizeof(e->x[0]));
    memcpy(e->label, b.field[1], (size_t)b.count * sizeof(e->label[0]));
    for (int64_t i = 0; i < b.count; i++) {
        cr_assert_eq(e->x[i][0], (float)b.ids[i]);
        cr_assert_eq(e->label[i], b.ids[i] % 7);
    }
    ct_loader_release(l, &b);
    cr_assert_eq(b.slot, -1);
}

/* The stream of `epochs` epochs, with their ends. *n events; the caller frees. */
static event *stream(ct_dataset *ds, ct_loader_opts o, int epochs, int *n)
{
    ct_loader *l = open_loader(ds, o);
    *n = epochs * ((int)ct_loader_batches(l) + 1);
    event *e = calloc((size_t)*n, sizeof(*e));
    for (int i = 0; i < *n; i++)
        next(l, &e[i]);
    ct_loader_free(l);
    return e;
}

/* ---- identity ---- */

static void audit(int64_t size, ct_loader_opts o)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, size);
    ct_loader *l = open_loader(ds, o);
    int64_t expect = o.drop_last ? size / o.batch_size * o.batch_size : size;

    for (int epoch = 0; epoch < 3; epoch++) {
        int times[64] = {0};
        int64_t count = 0, unique = 0, repeated = 0, batches = 0;
        event e;
        for (next(l, &e); e.what == 1; next(l, &e)) {
            cr_assert_eq(e.epoch, epoch);
            cr_assert_eq(e.index, batches++);
            count += e.count;
            for (int64_t i = 0; i < e.count; i++)
                times[e.ids[i]]++;
        }
        for (int64_t i = 0; i < size; i++) {
            unique += times[i] > 0;
            repeated += times[i] > 1;
        }
        cr_assert_eq(batches, ct_loader_batches(l));
        cr_assert(count == expect && unique == expect && repeated == 0,
                  "size %d batch %d: count %d unique %d repeated %d, missing %d", (int)size,
                  (int)o.batch_size, (int)count, (int)unique, (int)repeated,
                  (int)(expect - unique));
    }
    ct_loader_free(l);
    ct_dataset_free(ds);
}

Test(data_loader, every_epoch_has_every_sample_exactly_once)
{
    static const int64_t batch[] = {1, 2, 3, 7, 16, 49, 50, 64};
    for (int64_t size = 1; size <= 50; size++)
        for (size_t b = 0; b < sizeof(batch) / sizeof(batch[0]); b++)
            for (int bits = 0; bits < 4; bits++) {
                ct_loader_opts o = ct_loader_defaults();
                o.batch_size = batch[b];
                o.drop_last = bits & 1;
                o.shuffle = bits & 2;
                o.workers = (int)(size + b) % 3;
                if (!o.drop_last || o.batch_size <= size)
                    audit(size, o);
            }
}

Test(data_loader, without_shuffle_the_order_is_that_of_the_source)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 10);
    ct_loader_opts o = {.batch_size = 4, .workers = 2, .prefetch = 3};
    int n;
    event *e = stream(ds, o, 2, &n);

    for (int i = 0, k = 0; i < n; i++)
        for (int64_t j = 0; j < e[i].count; j++)
            cr_assert_eq(e[i].ids[j], k++ % 10);
    free(e);
    ct_dataset_free(ds);
}

Test(data_loader, the_last_batch_is_kept_or_dropped_as_asked)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 10);
    ct_loader_opts o = ct_loader_defaults();
    int n;

    o.batch_size = 4;
    event *e = stream(ds, o, 1, &n);
    cr_assert_eq(n, 4);
    cr_assert(e[0].count == 4 && e[1].count == 4 && e[2].count == 2 && e[3].what == 0);
    free(e);
    o.drop_last = true;
    e = stream(ds, o, 1, &n);
    cr_assert_eq(n, 3);
    cr_assert(e[0].count == 4 && e[1].count == 4 && e[2].what == 0);
    free(e);
    ct_dataset_free(ds);
}

/* ---- order is a function ---- */

Test(data_loader, batches_are_the_same_for_any_workers_and_prefetch)
{
    static const int workers[] = {0, 1, 4}, prefetch[] = {1, 2, 7};
    fake f = {.slow_us = 20};
    ct_dataset *ds = open_fake(&f, 41);
    int n0, n;

    for (int shuffle = 0; shuffle < 2; shuffle++) {
        ct_loader_opts o = {.batch_size = 6, .shuffle = shuffle, .seed = 7};
        event *ref = stream(ds, o, 3, &n0);
        for (int w = 0; w < 3; w++)
            for (int p = 0; p < 3; p++) {
                o.workers = workers[w];
                o.prefetch = prefetch[p];
                event *e = stream(ds, o, 3, &n);
                cr_assert_eq(n, n0);
                cr_assert(!memcmp(e, ref, (size_t)n * sizeof(*e)), "workers %d prefetch %d",
                          workers[w], prefetch[p]);
                free(e);
            }
        free(ref);
    }
    ct_dataset_free(ds);
}

/* All ids of an epoch in a row. */
static void ids_of(ct_dataset *ds, uint64_t seed, int epoch, int64_t *ids)
{
    ct_loader_opts o = ct_loader_defaults();
    ct_error err = {0};
    int64_t n = 0;
    event e;

    o.seed = seed;
    ct_loader *l = open_loader(ds, o);
    cr_assert_eq(ct_loader_seek(l, epoch, 0, &err), 0);
    for (next(l, &e); e.what == 1; next(l, &e))
        for (int64_t i = 0; i < e.count; i++)
            ids[n++] = e.ids[i];
    ct_loader_free(l);
}

Test(data_loader, seeds_and_epochs_have_orders_of_their_own)
{
    enum { N = 97, SEEDS = 5, EPOCHS = 5 };
    static int64_t ids[SEEDS * EPOCHS][N];
    fake f = {0};
    ct_dataset *ds = open_fake(&f, N);

    for (int s = 0; s < SEEDS; s++)
        for (int e = 0; e < EPOCHS; e++)
            ids_of(ds, (uint64_t)s, e, ids[s * EPOCHS + e]);
    /* Neither equal nor one inside a shift of the other: (seed 0, epoch 1) is no (seed 1, epoch 0). */
    for (int a = 0; a < SEEDS * EPOCHS; a++)
        for (int b = 0; b < a; b++)
            for (int shift = 0; shift < N; shift++) {
                int same = 0;
                for (int k = 0; k < N; k++)
                    same += ids[a][k] == ids[b][(k + shift) % N];
                cr_assert_lt(same, 20, "streams %d and %d, shifted by %d", a, b, shift);
            }
    ct_dataset_free(ds);
}

Test(data_loader, an_order_mixes_the_whole_set)
{
    enum { N = 1000 };
    static int64_t ids[N];
    fake f = {0};
    ct_dataset *ds = open_fake(&f, N);
    double mean = 0;

    ids_of(ds, 3, 2, ids);
    for (int k = 0; k < N / 2; k++)
        mean += (double)ids[k] / (N / 2);
    cr_assert(mean > 440 && mean < 560, "mean of the first half: %g", mean);
    ct_dataset_free(ds);
}

/* ---- seek ---- */

Test(data_loader, a_seek_to_any_batch_equals_the_uninterrupted_stream)
{
    static const int workers[] = {0, 3};
    fake f = {.slow_us = 5};
    ct_dataset *ds = open_fake(&f, 23);
    ct_error err = {0};
    ct_loader_opts o = {.batch_size = 4, .prefetch = 3, .shuffle = true, .seed = 5};
    int n, per = 7;
    event *ref = stream(ds, o, 4, &n), e;

    for (int w = 0; w < 2; w++) {
        o.workers = workers[w];
        ct_loader *l = open_loader(ds, o); /* one loader for all: the seeks are chained */
        for (int to = 0; to < n - per; to++) {
            cr_assert_eq(ct_loader_seek(l, to / per, to % per, &err), 0);
            for (int i = to; i <= to + per; i++) {
                next(l, &e);
                cr_assert(!memcmp(&e, &ref[i], sizeof(e)), "from %d, event %d", to, i);
            }
        }
        ct_loader_free(l);
    }
    free(ref);
    ct_dataset_free(ds);
}

Test(data_loader, seeks_chain_from_loader_to_loader)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 37);
    ct_error err = {0};
    ct_loader_opts o = {.batch_size = 5, .prefetch = 1, .shuffle = true, .seed = 9};
    int n, per = 9, at = 0;
    event *ref = stream(ds, o, 6, &n), e;

    for (int k = 1; at < n; k = k % 6 + 1) { /* k events, then a new process with other workers */
        o.workers = k % 3;
        o.prefetch = k;
        ct_loader *l = open_loader(ds, o);
        cr_assert_eq(ct_loader_seek(l, at / per, at % per, &err), 0);
        for (int i = 0; i < k && at < n; i++, at++) {
            next(l, &e);
            cr_assert(!memcmp(&e, &ref[at], sizeof(e)), "event %d", at);
        }
        ct_loader_free(l);
    }
    free(ref);
    ct_dataset_free(ds);
}

Test(data_loader, a_seek_to_the_end_of_an_epoch_says_that_it_ended)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 10);
    ct_error err = {0};
    event e;

    for (int w = 0; w < 3; w++) {
        ct_loader_opts o = {.batch_size = 3, .workers = w, .prefetch = 2};
        ct_loader *l = open_loader(ds, o);
        cr_assert_eq(ct_loader_seek(l, 5, ct_loader_batches(l), &err), 0);
        next(l, &e);
        cr_assert_eq(e.what, 0);
        next(l, &e);
        cr_assert(e.what == 1 && e.epoch == 6 && e.index == 0);
        ct_loader_free(l);
    }
    ct_dataset_free(ds);
}

Test(data_loader, a_seek_out_of_range_is_refused_and_changes_nothing)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 10);
    ct_loader_opts o = {.batch_size = 3, .workers = 1, .prefetch = 2};
    ct_loader *l = open_loader(ds, o);
    static const int64_t bad[][2] = {{-1, 0}, {0, -1}, {0, 5}, {INT64_MAX, 0}, {0, INT64_MAX}};
    event e;

    next(l, &e);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ct_error err = {0};
        cr_assert_eq(ct_loader_seek(l, bad[i][0], bad[i][1], &err), CT_EINVAL);
        cr_assert(strstr(err.text, "4 batches"), "%s", err.text);
    }
    next(l, &e);
    cr_assert(e.epoch == 0 && e.index == 1);
    ct_loader_free(l);
    ct_dataset_free(ds);
}

/* ---- the batch in the caller's hands ---- */

Test(data_loader, a_held_batch_stays_as_it_is_until_released)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 60);
    ct_error err = {0};

    for (int w = 0; w < 4; w += 3) {
        ct_loader_opts o = {.batch_size = 4, .workers = w, .prefetch = 1, .shuffle = true};
        ct_loader *l = open_loader(ds, o);
        ct_batch b, zero = {0};
        int64_t ids[4];
        float x[12];
        for (int k = 0; k < 10; k++) {
            cr_assert_eq(ct_loader_next(l, &b, &err), 1);
            memcpy(ids, b.ids, sizeof(ids));
            memcpy(x, b.field[0], sizeof(x));
            cr_assert_eq((uintptr_t)b.field[0] % 64, 0);
            cr_assert_eq(ct_loader_seek(l, k, k, &err), 0);
            ct_loader_release(l, &zero); /* not the batch held */
            sleep_us(2000);
            cr_assert(!memcmp(ids, b.ids, sizeof(ids)) && !memcmp(x, b.field[0], sizeof(x)));
            cr_assert_geq(b.wait_ms, 0);
            ct_loader_release(l, &b);
            ct_loader_release(l, &b); /* twice is fine */
        }
        ct_loader_free(l);
    }
    ct_dataset_free(ds);
}

Test(data_loader, the_next_epoch_is_prepared_before_this_one_ends)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 8);
    ct_loader_opts o = {.batch_size = 4, .workers = 1, .prefetch = 3};
    ct_loader *l = open_loader(ds, o);
    event e;

    next(l, &e);
    next(l, &e);
    /* At the end of epoch 0: two batches were delivered, and four are made without being asked for. */
    for (int i = 0; i < 20000 && atomic_load(&f.got) < 24; i++)
        sleep_us(500);
    cr_assert_eq(atomic_load(&f.got), 24);
    next(l, &e);
    cr_assert_eq(e.what, 0);
    next(l, &e);
    next(l, &e);
    cr_assert(e.what == 1 && e.epoch == 1 && e.index == 1);
    ct_loader_free(l);
    ct_dataset_free(ds);
}

Test(data_loader, a_steady_loader_allocates_nothing)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 50);
    ct_error err = {0};

    for (int w = 0; w < 3; w++) {
        ct_loader_opts o = {.batch_size = 8, .workers = w, .prefetch = 3, .shuffle = true};
        ct_loader *l = open_loader(ds, o);
        cti_mem_stats before = cti_loader_mem_stats(l), after;
        event e;
        for (int i = 0; i < 200; i++) {
            next(l, &e);
            if (i % 50 == 49)
                cr_assert_eq(ct_loader_seek(l, i, i % 8, &err), 0);
        }
        after = cti_loader_mem_stats(l);
        cr_assert_eq(before.calls, after.calls);
        cr_assert_eq(before.live_bytes, after.live_bytes);
        ct_loader_free(l);
    }
    ct_dataset_free(ds);
}

/* ---- errors ---- */

Test(data_loader, the_first_bad_sample_in_order_is_told_until_a_seek)
{
    for (int w = 0; w < 5; w++) {
        fake f = {.bad_every = 10, .bad_from = 20, .slow_us = 30};
        ct_dataset *ds = open_fake(&f, 100);
        ct_loader_opts o = {.batch_size = 4, .workers = w, .prefetch = 7};
        ct_loader *l = open_loader(ds, o);
        ct_batch b;
        event e;
        for (int i = 0; i < 7;
             i++) { /* samples 0..27; 29 is bad, and 39, 49, ... are read by then */
            next(l, &e);
            cr_assert_eq(e.index, i);
        }
        for (int i = 0; i < 3; i++) {
            ct_error err = {0};
            cr_assert_eq(ct_loader_next(l, &b, &err), CT_EFORMAT);
            cr_assert_eq(err.code, CT_EFORMAT);
            cr_assert_str_eq(err.text, "fake[29]: offset 29: bad byte");
            cr_assert_eq(b.count, 0);
            cr_assert_eq(ct_loader_next(l, &b, NULL), CT_EFORMAT);
        }
        ct_error err = {0};
        cr_assert_eq(ct_loader_seek(l, 0, 8, &err), 0); /* past it */
        next(l, &e);
        cr_assert_eq(e.index, 8);
        cr_assert_eq(ct_loader_next(l, &b, &err), CT_EFORMAT);
        cr_assert_str_eq(err.text, "fake[39]: offset 39: bad byte");
        ct_loader_free(l);
        ct_dataset_free(ds);
    }
}

Test(data_loader, a_wrong_label_is_named_with_its_sample_before_it_does_harm)
{
    static const struct {
        int64_t label;
        const char *text;
    } bad[] = {
        {7, "fake[17]: label 7, but there are 7 classes (0..6); 1-based?"},
        {8, "fake[17]: label 8, but there are 7 classes (0..6)"},
        {-1, "fake[17]: label -1, but there are 7 classes (0..6)"},
    };
    for (int w = 0; w < 2; w++)
        for (size_t i = 0; i < 3; i++) {
            fake f = {.bad_label_at = 17, .bad_label = bad[i].label};
            ct_dataset *ds = open_fake(&f, 20);
            ct_loader_opts o = {.batch_size = 20, .workers = w, .prefetch = 1};
            ct_loader *l = open_loader(ds, o);
            ct_error err = {0};
            ct_batch b;
            cr_assert_eq(ct_loader_next(l, &b, &err), CT_EDATA);
            cr_assert_str_eq(err.text, bad[i].text);
            ct_loader_free(l);
            ct_dataset_free(ds);
        }
}

Test(data_loader, an_error_names_file_and_sample_also_when_the_source_says_nothing)
{
    fake f = {.bad_every = 5, .named = true};
    ct_dataset *ds = open_fake(&f, 20);
    ct_loader_opts o = {.batch_size = 20, .workers = 1, .prefetch = 1};
    ct_loader *l = open_loader(ds, o);
    ct_error err = {0};
    ct_batch b;

    cr_assert_eq(ct_loader_next(l, &b, &err), CT_EFORMAT);
    cr_assert_str_eq(err.text, "dir/004.jpg (sample 4 of 'fake'): offset 4: bad byte");
    ct_loader_free(l);

    f.silent_bad = true;
    l = open_loader(ds, o);
    err = (ct_error){0};
    cr_assert_eq(ct_loader_next(l, &b, &err), CT_EIO);
    cr_assert(strstr(err.text, "fake[4]") && strstr(err.text, "CT_EIO") &&
                  strstr(err.text, "dir/004"),
              "%s", err.text);
    ct_loader_free(l);
    ct_dataset_free(ds);
}

static void refused(ct_dataset *ds, ct_loader_opts o, int code, const char *words)
{
    ct_error err = {0};
    cr_assert_null(ct_loader_new(ds, o, &err));
    cr_assert_eq(err.code, code);
    cr_assert(strstr(err.text, words), "'%s' has no '%s'", err.text, words);
}

Test(data_loader, wrong_options_are_refused_with_a_reason)
{
    fake f = {0};
    ct_dataset *ds = open_fake(&f, 1437);
    ct_loader_opts ok = ct_loader_defaults(), o;

    refused(NULL, ok, CT_EINVAL, "dataset");
    o = ok, o.batch_size = 0, refused(ds, o, CT_EINVAL, "batch_size 0: at least 1");
    o = ok, o.batch_size = INT64_MIN, refused(ds, o, CT_EINVAL, "at least 1");
    o = ok, o.workers = -1, refused(ds, o, CT_EINVAL, "workers -1");
    o = ok, o.workers = 100000, refused(ds, o, CT_EINVAL, "workers 100000");
    o = ok, o.prefetch = -1, refused(ds, o, CT_EINVAL, "prefetch -1");
    o = ok, o.workers = 1, o.prefetch = 0, refused(ds, o, CT_EINVAL, "prefetch 0");
    o = ok, o.prefetch = INT32_MAX, refused(ds, o, CT_EINVAL, "prefetch 2147483647");
    o = ok, o.batch_size = 2000, o.drop_last = true;
    refused(
        ds, o, CT_EDATA,
        "batch_size 2000 is larger than the dataset (1437 samples) and drop_last leaves no batch; "
        "lower data.batch_size");
    o.drop_last = false, o.batch_size = INT64_MAX; /* one batch with all: no larger slab */
    ct_loader *l = open_loader(ds, o);
    cr_assert_eq(ct_loader_batches(l), 1);
    ct_loader_free(l);
    ct_dataset_free(ds);
}

Test(data_loader, null_arguments_are_refused_or_fine)
{
    ct_error err = {0};
    ct_batch b;

    cr_assert_eq(ct_loader_next(NULL, &b, &err), CT_EINVAL);
    cr_assert_eq(ct_loader_seek(NULL, 0, 0, NULL), CT_EINVAL);
    cr_assert_eq(ct_loader_batches(NULL), 0);
    ct_loader_release(NULL, NULL);
    ct_loader_free(NULL);
}

/* ---- ends ---- */

Test(data_loader, it_can_be_freed_at_any_moment, .timeout = 60)
{
    fake f = {.slow_us = 100};
    ct_dataset *ds = open_fake(&f, 200);
    ct_batch b;

    for (int i = 0; i < 120; i++) {
        ct_error err = {0};
        ct_loader_opts o = {
            .batch_size = 1 + i % 16, .workers = i % 5, .prefetch = 1 + i % 4, .shuffle = true};
        ct_loader *l = open_loader(ds, o);
        if (i % 3 ==
            1) /* right after new, after some batches, with workers busy and a batch held */
            sleep_us(i * 10);
        for (int k = 0; k < i % 7; k++)
            cr_assert_eq(ct_loader_next(l, &b, &err), 1);
        if (i % 4 == 1)
            cr_assert_eq(ct_loader_seek(l, 3, 0, &err), 0);
        ct_loader_free(l);
        cr_assert_eq(atomic_load(&f.alive), 0, "a worker has outlived its loader");
    }
    ct_dataset_free(ds);
}

Test(data_loader, a_storm_of_seeks_ends_where_it_should, .timeout = 60)
{
    fake f = {.slow_us = 10};
    ct_dataset *ds = open_fake(&f, 64);
    ct_error err = {0};
    ct_loader_opts o = {.batch_size = 4, .prefetch = 3, .shuffle = true};
    int n, per = 17;
    event *ref = stream(ds, o, 4, &n), e;
    uint32_t x = 1;

    o.workers = 4;
    ct_loader *l = open_loader(ds, o);
    for (int i = 0; i < 600; i++) {
        for (int k = 0; k < i % 9; k++)
            cr_assert_eq(ct_loader_seek(l, k, k % per, &err), 0);
        x = x * 1664525u + 1013904223u;
        int to = (int)(x >> 8) % (n - 3);
        cr_assert_eq(ct_loader_seek(l, to / per, to % per, &err), 0);
        for (int k = 0; k < i % 4; k++) {
            next(l, &e);
            cr_assert(!memcmp(&e, &ref[to + k], sizeof(e)));
        }
    }
    ct_loader_free(l);
    free(ref);
    ct_dataset_free(ds);
}
