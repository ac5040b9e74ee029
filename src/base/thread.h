/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and a bounded queue, over pthreads. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/mem.h"
#include <ctrain/error.h>
#include <stdbool.h>

/* A pool of named worker threads, all running fn(worker index, user) until it returns. Signals are
 * blocked in them, so that the application's threads get them. */
typedef struct cti_threads cti_threads;
cti_threads *cti_threads_start(cti_mem *m, int n, const char *name, void (*fn)(int worker, void *),
                               void *user, ct_error *err);
void cti_threads_join(cti_threads *t); /* waits for all and frees; NULL is fine */

/* A bounded multi-producer multi-consumer queue of u64 items. */
typedef struct cti_queue cti_queue;
cti_queue *cti_queue_new(cti_mem *m, int capacity); /* NULL when out of memory; at least 1 */
void cti_queue_free(cti_queue *q);
bool cti_queue_push(cti_queue *q, uint64_t item); /* waits for room; false once closed */
bool cti_queue_pop(cti_queue *q, uint64_t *item); /* waits for an item; false once closed */
void cti_queue_close(cti_queue *q);               /* wakes all; items left are dropped */

/* A monotonic clock, in seconds. */
double cti_now_s(void);

#endif
