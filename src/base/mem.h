/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator under everything a context owns: it counts, knows the maker of each live block,
 * and can be told to fail. No other place calls malloc. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The application's allocator; NULL members mean the C library's. */
typedef struct cti_mem_hooks {
    void *(*alloc)(size_t bytes, size_t align, void *user);
    void (*free)(void *p, void *user);
    void *user;
} cti_mem_hooks;

typedef struct cti_mem_stats {
    uint64_t calls;       /* allocations asked for since the start */
    uint64_t live_blocks; /* not yet freed */
    uint64_t live_bytes;
    uint64_t peak_bytes;
} cti_mem_stats;

typedef struct cti_mem cti_mem; /* thread-safe */

cti_mem *cti_mem_new(const cti_mem_hooks *hooks); /* NULL when out of memory */
/* Frees the allocator. Blocks still alive are returned to the system (they would leak otherwise),
 * after `report` (may be NULL) has been called for each maker with its count and bytes. */
void cti_mem_free(cti_mem *m, void (*report)(const char *maker, uint64_t n, uint64_t bytes, void *),
                  void *user);

/* Zeroed memory, 64-byte aligned; NULL when out of memory. `maker` is a string literal: who. */
void *cti_alloc(cti_mem *m, size_t bytes, const char *maker);
/* Not zeroed: for tensors and buffers. */
void *cti_alloc_raw(cti_mem *m, size_t bytes, const char *maker);
void cti_free(cti_mem *m, void *p); /* NULL is fine */
/* Grows *p (an array of *cap elements, NULL and 0 at first) to hold at least `need`, at least
 * doubling; new elements are zero. 0, or CT_ENOMEM with *p and *cap untouched. */
int cti_grow(cti_mem *m, void **p, size_t *cap, size_t need, size_t elem_bytes, const char *maker);
char *cti_strdup(cti_mem *m, const char *s);

/* Counts memory that another allocator gives (a device's): false when this is the call that has to
 * fail; then nothing is counted as live. give: it was freed. */
bool cti_mem_take(cti_mem *m, size_t bytes);
void cti_mem_give(cti_mem *m, size_t bytes);

cti_mem_stats cti_mem_get_stats(cti_mem *m);
/* The n-th allocation from now (1 = the next) returns NULL, and all later ones too when `sticky`;
 * 0 switches it off. True in cti_mem_failed once one has failed so, until the next call with n > 0
 * (so a test can loop over n until nothing failed). */
void cti_mem_fail_at(cti_mem *m, uint64_t n, bool sticky);
bool cti_mem_failed(cti_mem *m);

/* A cache of freed blocks in size classes (powers of two to 1 MiB, then eighths of them), over an
 * allocator: what a steady step allocates comes from here. Not thread-safe (one context, one
 * thread). `direct` passes each call through, so that sanitizers and the failing mode see it. */
typedef struct cti_cache cti_cache;
cti_cache *cti_cache_new(cti_mem *m, bool direct);
void cti_cache_free(cti_cache *c); /* returns all cached blocks; blocks in use stay with `m` */
void *cti_cache_get(cti_cache *c, size_t bytes, const char *maker);     /* zeroed */
void *cti_cache_get_raw(cti_cache *c, size_t bytes, const char *maker); /* not zeroed */
void cti_cache_put(cti_cache *c, void *p, size_t bytes); /* bytes: as asked for; NULL is fine */
void cti_cache_trim(cti_cache *c);

/* True when built with AddressSanitizer: caches are direct by default then. */
bool cti_under_asan(void);

#endif
