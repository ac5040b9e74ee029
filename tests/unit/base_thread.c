/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_getname_np */
#endif
#include "base/thread.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static void fail_on_leak(const char *maker, uint64_t n, uint64_t bytes, void *user)
{
    (void)n, (void)bytes, (void)user;
    cr_assert_fail("%s leaks", maker);
}

typedef struct seen {
    atomic_int ran[8];
    char name[8][16];
    sigset_t blocked[8];
} seen;

static void look(int worker, void *user)
{
    seen *s = user;

    atomic_fetch_add(&s->ran[worker], 1);
    pthread_getname_np(pthread_self(), s->name[worker], sizeof s->name[worker]);
    pthread_sigmask(SIG_SETMASK, NULL, &s->blocked[worker]);
}

Test(base_thread, each_worker_runs_once_with_its_index_and_name)
{
    cti_mem *m = cti_mem_new(NULL);
    ct_error err = {0};
    static seen s;
    cti_threads *t = cti_threads_start(m, 8, "ct-loader-with-a-long-name", look, &s, &err);

    cr_assert_not_null(t, "%s", err.text);
    cti_threads_join(t);
    for (int i = 0; i < 8; i++) {
        char want[16] = "ct-loader-wit-0";
        want[14] = (char)('0' + i);
        cr_assert_eq(s.ran[i], 1);
        cr_assert_str_eq(s.name[i], want);
    }
    cti_threads_join(NULL);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_thread, signals_go_to_the_application_and_faults_stay)
{
    cti_mem *m = cti_mem_new(NULL);
    static seen s;
    sigset_t before, after;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    cti_threads_join(cti_threads_start(m, 1, "w", look, &s, NULL));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    cr_assert(sigismember(&s.blocked[0], SIGINT) && sigismember(&s.blocked[0], SIGTERM) &&
              sigismember(&s.blocked[0], SIGUSR1) && sigismember(&s.blocked[0], SIGCHLD));
    cr_assert(!sigismember(&s.blocked[0], SIGSEGV) && !sigismember(&s.blocked[0], SIGFPE));
    for (int n = 1; n < 32; n++)
        cr_assert_eq(sigismember(&before, n), sigismember(&after, n), "the caller's own: %d", n);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_thread, no_workers_is_an_error)
{
    cti_mem *m = cti_mem_new(NULL);
    ct_error err = {0};

    cr_assert_null(cti_threads_start(m, 0, "loader", look, NULL, &err));
    cr_assert_eq(err.code, CT_EINVAL);
    cr_assert_str_eq(err.text, "threads 'loader': 0 asked for; at least 1");
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_thread, each_allocation_failing_leaves_nothing_behind)
{
    cti_mem *m = cti_mem_new(NULL);
    static seen s;

    for (uint64_t n = 1; n <= 2; n++) {
        ct_error err = {0};
        cti_mem_fail_at(m, n, false);
        cr_assert_null(cti_threads_start(m, 4, "loader", look, &s, &err));
        cr_assert_eq(err.code, CT_ENOMEM);
        cr_assert_str_eq(err.text, "threads 'loader': out of memory for 4 threads");
        cti_mem_fail_at(m, n, false);
        cr_assert_null(cti_queue_new(m, 4));
        cti_mem_fail_at(m, 0, false);
    }
    cr_assert_eq(s.ran[0], 0);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_thread, a_queue_gives_items_back_in_order)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_queue *q = cti_queue_new(m, 3);
    uint64_t v = 0;

    for (uint64_t round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < 3; i++)
            cr_assert(cti_queue_push(q, round * 10 + i));
        for (uint64_t i = 0; i < 3; i++) {
            cr_assert(cti_queue_pop(q, &v));
            cr_assert_eq(v, round * 10 + i);
        }
    }
    cti_queue_free(q);
    cti_queue_free(NULL);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_thread, a_closed_queue_takes_nothing_and_drops_what_it_had)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_queue *q = cti_queue_new(m, 0);
    uint64_t v = 99;

    cr_assert(cti_queue_push(q, 1), "a capacity below 1 is 1");
    cti_queue_close(q);
    cti_queue_close(q);
    cr_assert_not(cti_queue_pop(q, &v));
    cr_assert_not(cti_queue_push(q, 2));
    cr_assert_eq(v, 99);
    cti_queue_free(q);
    cti_mem_free(m, fail_on_leak, NULL);
}

typedef struct flow {
    cti_queue *q;
    atomic_ullong sum, count;
    atomic_int ended;
} flow;

enum { ITEMS = 20000 };

static void produce_or_consume(int worker, void *user)
{
    flow *f = user;
    uint64_t v;

    if (worker < 3) {
        for (uint64_t i = 0; i < ITEMS; i++)
            cti_queue_push(f->q, i);
        return;
    }
    while (cti_queue_pop(f->q, &v)) {
        atomic_fetch_add(&f->sum, v);
        if (atomic_fetch_add(&f->count, 1) == 3 * ITEMS - 1)
            cti_queue_close(f->q);
    }
}

Test(base_thread, many_producers_and_consumers_lose_and_repeat_nothing)
{
    cti_mem *m = cti_mem_new(NULL);
    static flow f;

    f.q = cti_queue_new(m, 7);
    cti_threads_join(cti_threads_start(m, 6, "flow", produce_or_consume, &f, NULL));
    cr_assert_eq(f.count, 3 * ITEMS);
    cr_assert_eq(f.sum, 3ull * ITEMS * (ITEMS - 1) / 2);
    cti_queue_free(f.q);
    cti_mem_free(m, fail_on_leak, NULL);
}

static void wait_on_queue(int worker, void *user)
{
    flow *f = user;
    uint64_t v;

    while (worker % 2 ? cti_queue_pop(f->q, &v) && false : cti_queue_push(f->q, 1))
        ;
    atomic_fetch_add(&f->ended, 1);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

Test(base_thread, closing_wakes_all_that_wait)
{
    cti_mem *m = cti_mem_new(NULL);
    static flow full, empty;

    full.q = cti_queue_new(m, 1);
    empty.q = cti_queue_new(m, 1);
    cti_threads *pushers = cti_threads_start(m, 1, "push", wait_on_queue, &full, NULL);
    cti_threads *poppers = cti_threads_start(m, 2, "pop", wait_on_queue, &empty, NULL);
    pause_ms(30);
    cr_assert_eq(full.ended, 0);
    cti_queue_close(full.q);
    cti_queue_close(empty.q);
    cti_threads_join(pushers);
    cti_threads_join(poppers);
    cr_assert_eq(full.ended, 1);
    cr_assert_eq(empty.ended, 2);
    cti_queue_free(full.q);
    cti_queue_free(empty.q);
    cti_mem_free(m, fail_on_leak, NULL);
}

Test(base_thread, the_clock_runs_forward_in_seconds)
{
    double a = cti_now_s(), b;

    pause_ms(20);
    b = cti_now_s();
    cr_assert(b - a >= 0.019 && b - a < 10, "%g", b - a);
}
