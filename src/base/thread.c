/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np */
#endif
#include "base/thread.h"

#include "base/error.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct worker {
    cti_threads *pool;
    pthread_t thread;
    int index;
} worker;

/* Workers wait at the gate until all exist: when one can't be made, none has run. */
enum gate { GATE_SHUT, GATE_OPEN, GATE_NEVER };

struct cti_threads {
    cti_mem *m;
    void (*fn)(int, void *);
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    enum gate gate;
    char name[16];
    int n;
    worker *workers;
};

static void name_thread(const char *name, int index)
{
    char text[16], number[12];
    int digits = snprintf(number, sizeof number, "-%d", index);

    /* The system takes 15 bytes: the name gives way, not the number. */
    snprintf(text, sizeof text, "%.*s%s", (int)sizeof text - 1 - digits, name, number);
#if defined(__APPLE__)
    pthread_setname_np(text);
#else
    pthread_setname_np(pthread_self(), text);
#endif
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    cti_threads *t = w->pool;
    enum gate gate;

    name_thread(t->name, w->index);
    pthread_mutex_lock(&t->lock);
    while (t->gate == GATE_SHUT)
        pthread_cond_wait(&t->moved, &t->lock);
    gate = t->gate;
    pthread_mutex_unlock(&t->lock);
    if (gate == GATE_OPEN)
        t->fn(w->index, t->user);
    return NULL;
}

static void set_gate(cti_threads *t, enum gate gate)
{
    pthread_mutex_lock(&t->lock);
    t->gate = gate;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
}

/* Everything but the signals of a thread's own faults: those must reach handlers of sanitizers and
 * crash reporters. */
static void block_signals(sigset_t *old)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t all;

    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, old);
}

static cti_threads *pool_new(cti_mem *m, int n, const char *name)
{
    cti_threads *t = cti_alloc(m, sizeof *t, "cti_threads_start");

    if (!t)
        return NULL;
    t->m = m;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->workers = cti_alloc(m, (size_t)n * sizeof *t->workers, "cti_threads_start");
    if (!t->workers || pthread_mutex_init(&t->lock, NULL) != 0)
        goto no_lock;
    if (pthread_cond_init(&t->moved, NULL) != 0)
        goto no_cond;
    return t;
no_cond:
    pthread_mutex_destroy(&t->lock);
no_lock:
    cti_free(m, t->workers);
    cti_free(m, t);
    return NULL;
}

cti_threads *cti_threads_start(cti_mem *m, int n, const char *name, void (*fn)(int worker, void *),
                               void *user, ct_error *err)
{
    cti_threads *t;
    sigset_t old;
    int r = 0;

    if (n < 1) {
        cti_fail(err, CT_EINVAL, "threads '%s': %d asked for; at least 1", name, n);
        return NULL;
    }
    t = pool_new(m, n, name);
    if (!t) {
        cti_fail(err, CT_ENOMEM, "threads '%s': out of memory for %d threads", name, n);
        return NULL;
    }
    t->fn = fn;
    t->user = user;
    block_signals(&old);
    for (t->n = 0; t->n < n; t->n++) {
        worker *w = &t->workers[t->n];
        w->pool = t;
        w->index = t->n;
        if ((r = pthread_create(&w->thread, NULL, worker_main, w)) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    set_gate(t, r == 0 ? GATE_OPEN : GATE_NEVER);
    if (r != 0) {
        cti_fail(err, CT_ENOMEM,
                 "threads '%s': the system made only %d of %d (%s); use fewer threads or raise the "
                 "limit of processes (ulimit -u)",
                 name, t->n, n, strerror(r));
        cti_threads_join(t);
        return NULL;
    }
    return t;
}

void cti_threads_join(cti_threads *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n; i++)
        pthread_join(t->workers[i].thread, NULL);
    pthread_cond_destroy(&t->moved);
    pthread_mutex_destroy(&t->lock);
    cti_free(t->m, t->workers);
    cti_free(t->m, t);
}

struct cti_queue {
    cti_mem *m;
    pthread_mutex_t lock;
    pthread_cond_t not_full, not_empty;
    uint64_t *items; /* ring */
    size_t capacity, first, count;
    bool closed;
};

cti_queue *cti_queue_new(cti_mem *m, int capacity)
{
    cti_queue *q = cti_alloc(m, sizeof *q, "cti_queue_new");

    if (!q)
        return NULL;
    q->m = m;
    q->capacity = capacity < 1 ? 1 : (size_t)capacity;
    q->items = cti_alloc(m, q->capacity * sizeof *q->items, "cti_queue_new");
    if (!q->items || pthread_mutex_init(&q->lock, NULL) != 0)
        goto no_lock;
    if (pthread_cond_init(&q->not_full, NULL) != 0)
        goto no_full;
    if (pthread_cond_init(&q->not_empty, NULL) != 0)
        goto no_empty;
    return q;
no_empty:
    pthread_cond_destroy(&q->not_full);
no_full:
    pthread_mutex_destroy(&q->lock);
no_lock:
    cti_free(m, q->items);
    cti_free(m, q);
    return NULL;
}

void cti_queue_free(cti_queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->not_empty);
    pthread_cond_destroy(&q->not_full);
    pthread_mutex_destroy(&q->lock);
    cti_free(q->m, q->items);
    cti_free(q->m, q);
}

bool cti_queue_push(cti_queue *q, uint64_t item)
{
    bool pushed;

    pthread_mutex_lock(&q->lock);
    while (!q->closed && q->count == q->capacity)
        pthread_cond_wait(&q->not_full, &q->lock);
    pushed = !q->closed;
    if (pushed) {
        q->items[(q->first + q->count) % q->capacity] = item;
        q->count++;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return pushed;
}

bool cti_queue_pop(cti_queue *q, uint64_t *item)
{
    bool popped;

    pthread_mutex_lock(&q->lock);
    while (!q->closed && q->count == 0)
        pthread_cond_wait(&q->not_empty, &q->lock);
    popped = !q->closed;
    if (popped) {
        *item = q->items[q->first];
        q->first = (q->first + 1) % q->capacity;
        q->count--;
        pthread_cond_signal(&q->not_full);
    }
    pthread_mutex_unlock(&q->lock);
    return popped;
}

void cti_queue_close(cti_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    q->count = 0;
    pthread_cond_broadcast(&q->not_full);
    pthread_cond_broadcast(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

double cti_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
