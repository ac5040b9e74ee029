/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/mem.h"

#include <criterion/criterion.h>
#include <ctrain/error.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void fail_on_leak(const char *maker, uint64_t n, uint64_t bytes, void *user)
{
    (void)user;
    cr_assert_fail("%s leaks %llu blocks, %llu bytes", maker, (unsigned long long)n,
                   (unsigned long long)bytes);
}

static int all_bytes_are(const void *p, size_t n, int value)
{
    const unsigned char *b = p;

    for (size_t i = 0; i < n; i++)
        if (b[i] != value)
            return 0;
    return 1;
}

Test(base_mem, blocks_are_zero_aligned_and_counted)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 4096, 1 << 20, (3 << 20) + 5};
    cti_mem *m = cti_mem_new(NULL);
    uint64_t bytes = 0;
    void *p[9];

    for (int i = 0; i < 9; i++) {
        p[i] = cti_alloc(m, sizes[i], "test");
        cr_assert_not_null(p[i]);
        cr_assert_eq((uintptr_t)p[i] % 64, 0);
        cr_assert(all_bytes_are(p[i], sizes[i], 0));
        memset(p[i], 0xAB, sizes[i]);
        bytes += sizes[i];
    }
    cti_mem_stats s = cti_mem_get_stats(m);
    cr_assert_eq(s.calls, 9);
    cr_assert_eq(s.live_blocks, 9);
    cr_assert_eq(s.live_bytes, bytes);
    cr_assert_eq(s.peak_bytes, bytes);
    for (int i = 0; i < 9; i++)
        cti_free(m, p[(i * 4) % 9]);
    s = cti_mem_get_stats(m);
    cr_assert_eq(s.live_blocks, 0);
    cr_assert_eq(s.live_bytes, 0);
    cr_assert_eq(s.peak_bytes, bytes);
    cr_assert_eq(s.calls, 9);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, freeing_nothing_is_fine)
{
    cti_mem *m = cti_mem_new(NULL);

    cti_free(m, NULL);
    cti_cache_free(NULL);
    cti_mem_free(m, fail_on_leak, NULL);
    cti_mem_free(NULL, fail_on_leak, NULL);
}

Test(base_mem, a_size_beyond_all_memory_fails_and_changes_nothing)
{
    cti_mem *m = cti_mem_new(NULL);
    size_t cap = 2;
    void *p = cti_alloc(m, 16, "test");
    void *old = p;

    cr_assert_null(cti_alloc(m, SIZE_MAX, "test"));
    cr_assert_null(cti_alloc_raw(m, SIZE_MAX - 63, "test"));
    cr_assert_eq(cti_grow(m, &p, &cap, SIZE_MAX, 8, "test"), CT_ENOMEM);
    cr_assert_eq(cti_grow(m, &p, &cap, SIZE_MAX / 8 + 2, 8, "test"), CT_ENOMEM);
    cr_assert_eq(p, old);
    cr_assert_eq(cap, 2);
    cti_free(m, p);
    cr_assert_eq(cti_mem_get_stats(m).live_blocks, 0);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, growing_keeps_contents_zeroes_the_rest_and_doubles)
{
    cti_mem *m = cti_mem_new(NULL);
    int *a = NULL;
    void *p = NULL;
    size_t cap = 0, grown = 0;

    for (size_t i = 0; i < 10000; i++) {
        size_t before = cap;
        cr_assert_eq(cti_grow(m, &p, &cap, i + 1, sizeof *a, "test"), CT_OK);
        cr_assert_geq(cap, i + 1);
        a = p;
        cr_assert_eq(a[i], 0);
        a[i] = (int)i * 3;
        grown += cap != before;
    }
    for (size_t i = 0; i < 10000; i++)
        cr_assert_eq(a[i], (int)i * 3);
    cr_assert(all_bytes_are(a + 10000, (cap - 10000) * sizeof *a, 0));
    cr_assert_lt(grown, 15);
    cti_free(m, p);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, a_copied_string_is_equal)
{
    cti_mem *m = cti_mem_new(NULL);
    char *a = cti_strdup(m, ""), *b = cti_strdup(m, "name");

    cr_assert_str_eq(a, "");
    cr_assert_str_eq(b, "name");
    cti_free(m, a);
    cti_free(m, b);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, the_nth_allocation_fails_once)
{
    cti_mem *m = cti_mem_new(NULL);
    void *p[4];

    cr_assert_not(cti_mem_failed(m));
    cti_mem_fail_at(m, 2, false);
    for (int i = 0; i < 4; i++)
        p[i] = cti_alloc(m, 8, "test");
    cr_assert_not_null(p[0]);
    cr_assert_null(p[1]);
    cr_assert_not_null(p[2]);
    cr_assert(cti_mem_failed(m));
    cti_mem_fail_at(m, 0, false);
    cr_assert(cti_mem_failed(m), "switching it off keeps what happened");
    cti_mem_fail_at(m, 1000, false);
    cr_assert_not(cti_mem_failed(m), "arming it forgets");
    for (int i = 0; i < 4; i++)
        cti_free(m, p[i]);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, sticky_failure_lasts_until_switched_off)
{
    cti_mem *m = cti_mem_new(NULL);
    void *p, *array = NULL;
    size_t cap = 0;

    cti_mem_fail_at(m, 1, true);
    cr_assert_null(cti_alloc(m, 8, "test"));
    cr_assert_null(cti_alloc_raw(m, 8, "test"));
    cr_assert_null(cti_strdup(m, "x"));
    cr_assert_eq(cti_grow(m, &array, &cap, 1, 1, "test"), CT_ENOMEM);
    cr_assert_null(cti_cache_new(m, false));
    cti_mem_fail_at(m, 0, false);
    p = cti_alloc(m, 8, "test");
    cr_assert_not_null(p);
    cti_free(m, p);
    cti_mem_free(m, fail_on_leak, NULL);
}

typedef struct tally {
    int n;
    char maker[4][16];
    uint64_t blocks[4], bytes[4];
} tally;

static void note(const char *maker, uint64_t n, uint64_t bytes, void *user)
{
    tally *t = user;

    strcpy(t->maker[t->n], maker);
    t->blocks[t->n] = n;
    t->bytes[t->n++] = bytes;
}

Test(base_mem, the_end_reports_live_blocks_by_maker_and_frees_them)
{
    static const char same_text[] = "alpha"; /* at another address than the literal */
    cti_mem *m = cti_mem_new(NULL);
    tally t = {0};

    cti_alloc(m, 10, "alpha");
    cti_alloc(m, 20, "beta");
    cti_alloc(m, 30, same_text);
    cti_alloc(m, 0, "beta");
    cti_free(m, cti_alloc(m, 40, "gamma"));
    cti_mem_free(m, note, &t); /* the leak check of a sanitizer sees that all are freed */
    cr_assert_eq(t.n, 2);
    cr_assert_str_eq(t.maker[0], "alpha");
    cr_assert_eq(t.blocks[0], 2);
    cr_assert_eq(t.bytes[0], 40);
    cr_assert_str_eq(t.maker[1], "beta");
    cr_assert_eq(t.blocks[1], 2);
    cr_assert_eq(t.bytes[1], 20);
}

typedef struct counting {
    int allocs, frees;
    size_t align;
} counting;

static void *counted_alloc(size_t bytes, size_t align, void *user)
{
    counting *c = user;
    void *p = NULL;

    c->allocs++;
    c->align = align;
    return posix_memalign(&p, align, bytes) == 0 ? p : NULL;
}

static void counted_free(void *p, void *user)
{
    counting *c = user;

    c->frees++;
    free(p);
}

static void *no_alloc(size_t bytes, size_t align, void *user)
{
    (void)bytes, (void)align, (void)user;
    return NULL;
}

Test(base_mem, the_applications_allocator_gets_every_call)
{
    counting c = {0};
    cti_mem_hooks hooks = {counted_alloc, counted_free, &c};
    cti_mem *m = cti_mem_new(&hooks);

    cti_free(m, cti_alloc(m, 100, "test"));
    cti_alloc(m, 100, "test");
    cr_assert_eq(c.allocs, 3);
    cr_assert_eq(c.align, 64);
    cti_mem_free(m, NULL, NULL);
    cr_assert_eq(c.frees, 3);
}

Test(base_mem, an_allocator_that_has_nothing_gives_null)
{
    cti_mem_hooks hooks = {no_alloc, NULL, NULL};

    cr_assert_null(cti_mem_new(&hooks));
}

static void *churn(void *arg)
{
    cti_mem *m = arg;
    void *p[32] = {0};

    for (unsigned i = 0; i < 20000; i++) {
        unsigned k = (i * 7919u) % 32;
        cti_free(m, p[k]);
        p[k] = cti_alloc_raw(m, k * 10, "churn");
    }
    for (int k = 0; k < 32; k++)
        cti_free(m, p[k]);
    return NULL;
}

Test(base_mem, many_threads_may_allocate_at_once)
{
    cti_mem *m = cti_mem_new(NULL);
    pthread_t t[4];

    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, churn, m);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    cr_assert_eq(cti_mem_get_stats(m).calls, 80000);
    cr_assert_eq(cti_mem_get_stats(m).live_bytes, 0);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, a_steady_step_takes_nothing_from_the_allocator)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_cache *c = cti_cache_new(m, false);
    uint64_t calls = 0;

    for (int step = 0; step < 5; step++) {
        size_t sizes[] = {0, 1, 64, 65, 1000, 1 << 20, (1 << 20) + 1, 5 << 20, 12345678};
        void *p[9];
        for (int i = 0; i < 9; i++) {
            p[i] = cti_cache_get(c, sizes[i], "step");
            cr_assert(all_bytes_are(p[i], sizes[i], 0), "zeroed though used before");
            cr_assert_eq((uintptr_t)p[i] % 64, 0);
            memset(p[i], 0xCD, sizes[i]);
        }
        for (int i = 0; i < 9; i++)
            cti_cache_put(c, p[i], sizes[i]);
        if (step == 0)
            calls = cti_mem_get_stats(m).calls;
        cr_assert_eq(cti_mem_get_stats(m).calls, calls);
    }
    cti_cache_put(c, NULL, 100);
    cti_cache_trim(c);
    cr_assert_eq(cti_mem_get_stats(m).live_blocks, 1, "the cache itself");
    cti_cache_free(c);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, cached_blocks_waste_at_most_an_eighth_when_large)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_cache *c = cti_cache_new(m, false);
    uint64_t before = cti_mem_get_stats(m).live_bytes;

    for (size_t bytes = 1; bytes < (size_t)1 << 28; bytes += bytes / 3 + 1) {
        for (size_t exact = bytes - 1; exact <= bytes + 1; exact++) {
            void *p = cti_cache_get_raw(c, exact, "test");
            uint64_t got = cti_mem_get_stats(m).live_bytes - before;
            cr_assert_geq(got, exact);
            if (exact > 1 << 20)
                cr_assert_leq(got, exact + exact / 8 + 1);
            else
                cr_assert(got <= 64 || got < 2 * exact);
            cti_cache_put(c, p, exact);
            cti_cache_trim(c);
        }
    }
    cti_cache_free(c);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, sizes_of_one_class_share_blocks)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_cache *c = cti_cache_new(m, false);
    void *a = cti_cache_get_raw(c, 100, "test"), *b;

    cti_cache_put(c, a, 100);
    b = cti_cache_get_raw(c, 128, "test");
    cr_assert_eq(a, b);
    cti_cache_put(c, b, 128);
    b = cti_cache_get_raw(c, 129, "test");
    cr_assert_neq(a, b);
    cti_cache_put(c, b, 129);
    cti_cache_free(c);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, blocks_in_use_outlive_their_cache)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_cache *c = cti_cache_new(m, false);
    void *p = cti_cache_get_raw(c, 100, "user");
    tally t = {0};

    cti_cache_put(c, cti_cache_get_raw(c, 5000, "user"), 5000);
    cti_cache_free(c);
    memset(p, 1, 100);
    cti_mem_free(m, note, &t);
    cr_assert_eq(t.n, 1);
    cr_assert_str_eq(t.maker[0], "user");
    cr_assert_eq(t.blocks[0], 1);
}

Test(base_mem, a_direct_cache_passes_each_call_through)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_cache *c = cti_cache_new(m, true);

    for (int i = 0; i < 3; i++) {
        void *p = cti_cache_get(c, 100, "test");
        cr_assert_eq(cti_mem_get_stats(m).live_blocks, 2);
        cti_cache_put(c, p, 100);
        cr_assert_eq(cti_mem_get_stats(m).live_blocks, 1);
    }
    cr_assert_eq(cti_mem_get_stats(m).calls, 4);
    cti_mem_fail_at(m, 1, false);
    cr_assert_null(cti_cache_get(c, 100, "test"));
    cti_cache_free(c);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, a_size_beyond_all_memory_fails_in_a_cache_too)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_cache *c = cti_cache_new(m, false);

    cr_assert_null(cti_cache_get(c, SIZE_MAX, "test"));
    cr_assert_null(cti_cache_get_raw(c, ((size_t)1 << 62) + 1, "test"));
    cti_cache_free(c);
    cti_mem_free(m, fail_on_leak, NULL);
}

/* An allocator with a limit, as a device has. */
typedef struct limited {
    size_t left;
    size_t size[64];
    void *p[64];
    int n;
} limited;

static void *limited_alloc(size_t bytes, size_t align, void *user)
{
    limited *l = user;
    void *p = NULL;

    if (bytes > l->left || posix_memalign(&p, align, bytes) != 0)
        return NULL;
    l->left -= bytes;
    l->p[l->n] = p;
    l->size[l->n++] = bytes;
    return p;
}

static void limited_free(void *p, void *user)
{
    limited *l = user;

    for (int i = 0; i < l->n; i++)
        if (l->p[i] == p) {
            l->left += l->size[i];
            l->p[i] = NULL;
        }
    free(p);
}

Test(base_mem, a_cache_gives_back_what_it_holds_before_it_fails)
{
    limited l = {.left = 100000};
    cti_mem_hooks hooks = {limited_alloc, limited_free, &l};
    cti_mem *m = cti_mem_new(&hooks);
    cti_cache *c = cti_cache_new(m, false);
    void *p = cti_cache_get_raw(c, 60000, "test");

    cr_assert_not_null(p);
    cti_cache_put(c, p, 60000);
    p = cti_cache_get_raw(c, 30000, "test");
    cr_assert_not_null(p);
    cr_assert_null(cti_cache_get_raw(c, 90000, "test"));
    cti_cache_put(c, p, 30000);
    cti_cache_free(c);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_mem, it_is_known_whether_addresses_are_sanitized)
{
#if defined(__SANITIZE_ADDRESS__)
    cr_assert(cti_under_asan());
#else
    cr_assert_not(cti_under_asan());
#endif
}
