/* SPDX-License-Identifier: Apache-2.0 */
/* A loader whose caller holds several batches (their copies are under way), in memory of its own. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <criterion/criterion.h>
#include <ctrain/data.h>
#include <stdlib.h>
#include <string.h>

TestSuite(data_hold, .timeout = 60);

enum { HOLD = 3, BATCH = 32 };

typedef struct slabs {
    int live, made, fail_at;
} slabs;

static void *slab_alloc(size_t bytes, void *user)
{
    slabs *s = user;
    void *p = NULL;

    if (++s->made == s->fail_at || posix_memalign(&p, 64, bytes) != 0)
        return NULL;
    s->live++;
    return p;
}

static void slab_free(void *p, void *user)
{
    ((slabs *)user)->live--;
    free(p);
}

static ct_loader_opts options(slabs *s, int workers)
{
    ct_loader_opts o = ct_loader_defaults();

    o.batch_size = BATCH;
    o.workers = workers;
    o.hold = HOLD;
    o.alloc = slab_alloc;
    o.free = slab_free;
    o.user = s;
    return o;
}

static void take(ct_loader *l, ct_batch *b)
{
    ct_error err = {0};

    cr_assert_eq(ct_loader_next(l, b, &err), 1, "%s", err.text);
}

Test(data_hold, held_batches_stay_as_they_are_and_go_back_in_any_order)
{
    static const int order[][HOLD] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    ct_error err = {0};
    ct_dataset *ds = ct_digits_open(&err);

    for (int workers = 0; workers < 3; workers++) {
        slabs s = {0};
        ct_loader *l = ct_loader_new(ds, options(&s, workers), &err);
        ct_loader *plain = ct_loader_new(ds, ct_loader_defaults(), &err);

        cr_assert(l && plain, "%s", err.text);
        for (int round = 0; round < 12; round++) {
            ct_batch b[HOLD], more;

            for (int i = 0; i < HOLD; i++)
                take(l, &b[i]);
            cr_assert_eq(ct_loader_next(l, &more, &err), CT_EINVAL);
            cr_assert_str_eq(err.text, "loader: 3 batches are held: release one first");
            err = (ct_error){0};
            for (int i = 0; i < HOLD; i++) { /* the same stream, and nothing was written over */
                take(plain, &more);
                cr_assert_eq(more.index, b[i].index);
                cr_assert_eq(memcmp(more.ids, b[i].ids, BATCH * sizeof(int64_t)), 0);
                cr_assert_eq(memcmp(more.field[0], b[i].field[0], BATCH * 64 * sizeof(float)), 0);
            }
            for (int i = 0; i < HOLD; i++)
                ct_loader_release(l, &b[order[round % 3][i]]);
            ct_loader_release(l, &b[0]); /* given back already: nothing */
        }
        cr_assert_eq(s.live, HOLD + (workers ? 2 : 0));
        ct_loader_free(plain);
        ct_loader_free(l);
        cr_assert_eq(s.live, 0);
    }
    ct_dataset_free(ds);
}

Test(data_hold, a_seek_leaves_held_batches_alone)
{
    ct_error err = {0};
    ct_dataset *ds = ct_digits_open(&err);
    slabs s = {0};
    ct_loader *l = ct_loader_new(ds, options(&s, 1), &err);
    ct_batch a, b;
    int64_t ids[BATCH];

    take(l, &a);
    memcpy(ids, a.ids, sizeof ids);
    cr_assert_eq(ct_loader_seek(l, 3, 5, &err), 0);
    take(l, &b);
    cr_assert(b.epoch == 3 && b.index == 5);
    cr_assert_eq(memcmp(ids, a.ids, sizeof ids), 0);
    ct_loader_release(l, &b);
    ct_loader_release(l, &a);
    take(l, &b);
    cr_assert(b.epoch == 3 && b.index == 6);
    ct_loader_free(l); /* while one is held */
    cr_assert_eq(s.live, 0);
    ct_dataset_free(ds);
}

Test(data_hold, wrong_options_and_failing_memory_are_told)
{
    ct_error err = {0};
    ct_dataset *ds = ct_digits_open(&err);
    slabs s = {0};
    ct_loader_opts o = options(&s, 0);

    o.hold = 65;
    cr_assert_null(ct_loader_new(ds, o, &err));
    cr_assert_str_eq(err.text, "hold 65: 0 (as 1) to 64 batches");
    err = (ct_error){0};
    o = options(&s, 0);
    o.free = NULL;
    cr_assert_null(ct_loader_new(ds, o, &err));
    cr_assert_str_eq(err.text, "alloc and free must be given together");
    for (int at = 1; at <= HOLD; at++) {
        err = (ct_error){0};
        s = (slabs){.fail_at = at};
        cr_assert_null(ct_loader_new(ds, options(&s, 0), &err));
        cr_assert_eq(err.code, CT_ENOMEM);
        cr_assert_not_null(strstr(err.text, "lower data.batch_size or data.prefetch"));
        cr_assert_eq(s.live, 0);
    }
    ct_dataset_free(ds);
}
