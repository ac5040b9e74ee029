/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/mem.h"

#include "base/error.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN     64
#define LIVE_MARK 0x6374616c6c6f6331u /* "ctalloc1": tells a block of ours from a stray pointer */

/* Stands before each block; its size keeps the block's alignment. */
typedef struct block {
    struct block *prev, *next;
    size_t bytes;
    const char *maker;
    uint64_t mark;
    bool told; /* counted in the report of cti_mem_free */
    char pad[ALIGN - 5 * 8 - sizeof(bool)];
} block;

_Static_assert(sizeof(block) == ALIGN, "the header must keep the alignment of what follows");

struct cti_mem {
    cti_mem_hooks hooks;
    pthread_mutex_t lock;
    block head; /* ring of live blocks */
    cti_mem_stats stats;
    uint64_t fail_call; /* the call that fails; 0: none */
    bool fail_sticky, failed;
};

static void *libc_alloc(size_t bytes, size_t align, void *user)
{
    void *p = NULL;

    (void)user;
    /* Not aligned_alloc: it wants whole multiples of the alignment, and the rounding would hide
     * small overruns from AddressSanitizer. */
    return posix_memalign(&p, align, bytes) == 0 ? p : NULL;
}

static void libc_free(void *p, void *user)
{
    (void)user;
    free(p);
}

cti_mem *cti_mem_new(const cti_mem_hooks *hooks)
{
    cti_mem_hooks h = {libc_alloc, libc_free, NULL};
    cti_mem *m;

    if (hooks) {
        h.user = hooks->user;
        if (hooks->alloc)
            h.alloc = hooks->alloc;
        if (hooks->free)
            h.free = hooks->free;
    }
    m = h.alloc(sizeof *m, ALIGN, h.user);
    if (!m)
        return NULL;
    memset(m, 0, sizeof *m);
    m->hooks = h;
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        h.free(m, h.user);
        return NULL;
    }
    m->head.prev = m->head.next = &m->head;
    return m;
}

/* One call of `report` per maker, oldest block first. Makers are compared by text: the same literal
 * has other addresses in other files. */
static void report_live(cti_mem *m,
                        void (*report)(const char *maker, uint64_t n, uint64_t bytes, void *),
                        void *user)
{
    for (block *b = m->head.prev; b != &m->head; b = b->prev) {
        uint64_t n = 0, bytes = 0;

        if (b->told)
            continue;
        for (block *o = b; o != &m->head; o = o->prev) {
            if (o->told || strcmp(o->maker, b->maker) != 0)
                continue;
            o->told = true;
            n++;
            bytes += o->bytes;
        }
        report(b->maker, n, bytes, user);
    }
}

void cti_mem_free(cti_mem *m, void (*report)(const char *maker, uint64_t n, uint64_t bytes, void *),
                  void *user)
{
    cti_mem_hooks h;

    if (!m)
        return;
    h = m->hooks;
    if (report)
        report_live(m, report, user);
    for (block *b = m->head.next, *next; b != &m->head; b = next) {
        next = b->next;
        b->mark = 0;
        h.free(b, h.user);
    }
    pthread_mutex_destroy(&m->lock);
    h.free(m, h.user);
}

/* Counts the call; true when it is one that has to fail. */
static bool count_call(cti_mem *m)
{
    bool fail;

    pthread_mutex_lock(&m->lock);
    m->stats.calls++;
    fail = m->fail_call &&
           (m->stats.calls == m->fail_call || (m->fail_sticky && m->stats.calls > m->fail_call));
    if (fail)
        m->failed = true;
    pthread_mutex_unlock(&m->lock);
    return fail;
}

/* Under the lock. */
static void count_live(cti_mem *m, size_t bytes)
{
    m->stats.live_blocks++;
    m->stats.live_bytes += bytes;
    if (m->stats.peak_bytes < m->stats.live_bytes)
        m->stats.peak_bytes = m->stats.live_bytes;
}

void *cti_alloc_raw(cti_mem *m, size_t bytes, const char *maker)
{
    block *b;

    if (count_call(m) || bytes > PTRDIFF_MAX - sizeof *b)
        return NULL;
    b = m->hooks.alloc(sizeof *b + (bytes ? bytes : 1), ALIGN, m->hooks.user);
    if (!b)
        return NULL;
    b->bytes = bytes;
    b->maker = maker ? maker : "?";
    b->mark = LIVE_MARK;
    b->told = false;
    pthread_mutex_lock(&m->lock);
    b->prev = &m->head;
    b->next = m->head.next;
    b->next->prev = b;
    m->head.next = b;
    count_live(m, bytes);
    pthread_mutex_unlock(&m->lock);
    return b + 1;
}

bool cti_mem_take(cti_mem *m, size_t bytes)
{
    if (count_call(m))
        return false;
    pthread_mutex_lock(&m->lock);
    count_live(m, bytes);
    pthread_mutex_unlock(&m->lock);
    return true;
}

void cti_mem_give(cti_mem *m, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    m->stats.live_blocks--;
    m->stats.live_bytes -= bytes;
    pthread_mutex_unlock(&m->lock);
}

void *cti_alloc(cti_mem *m, size_t bytes, const char *maker)
{
    void *p = cti_alloc_raw(m, bytes, maker);

    return p ? memset(p, 0, bytes) : NULL;
}

void cti_free(cti_mem *m, void *p)
{
    block *b;

    if (!p)
        return;
    b = (block *)p - 1;
    assert(b->mark == LIVE_MARK && "freed twice, or no block of this allocator");
    b->mark = 0;
    pthread_mutex_lock(&m->lock);
    b->prev->next = b->next;
    b->next->prev = b->prev;
    m->stats.live_blocks--;
    m->stats.live_bytes -= b->bytes;
    pthread_mutex_unlock(&m->lock);
    m->hooks.free(b, m->hooks.user);
}

int cti_grow(cti_mem *m, void **p, size_t *cap, size_t need, size_t elem_bytes, const char *maker)
{
    size_t to;
    char *q;

    if (need <= *cap)
        return CT_OK;
    to = *cap > SIZE_MAX / 2 ? need : *cap * 2;
    if (to < need)
        to = need;
    if (to < 8)
        to = 8;
    if (elem_bytes && to > SIZE_MAX / elem_bytes)
        to = need;
    if (elem_bytes && to > SIZE_MAX / elem_bytes)
        return CT_ENOMEM;
    q = cti_alloc_raw(m, to * elem_bytes, maker);
    if (!q)
        return CT_ENOMEM;
    if (*cap)
        memcpy(q, *p, *cap * elem_bytes);
    memset(q + *cap * elem_bytes, 0, (to - *cap) * elem_bytes);
    cti_free(m, *p);
    *p = q;
    *cap = to;
    return CT_OK;
}

char *cti_strdup(cti_mem *m, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = cti_alloc_raw(m, n, "strdup");

    return p ? memcpy(p, s, n) : NULL;
}

cti_mem_stats cti_mem_get_stats(cti_mem *m)
{
    cti_mem_stats s;

    pthread_mutex_lock(&m->lock);
    s = m->stats;
    pthread_mutex_unlock(&m->lock);
    return s;
}

void cti_mem_fail_at(cti_mem *m, uint64_t n, bool sticky)
{
    pthread_mutex_lock(&m->lock);
    m->fail_call = n ? m->stats.calls + n : 0;
    m->fail_sticky = sticky;
    if (n)
        m->failed = false;
    pthread_mutex_unlock(&m->lock);
}

bool cti_mem_failed(cti_mem *m)
{
    bool failed;

    pthread_mutex_lock(&m->lock);
    failed = m->failed;
    pthread_mutex_unlock(&m->lock);
    return failed;
}

/* ---- the cache ---- */

enum {
    SMALL_BITS = 6, /* the smallest class: 64 bytes */
    FINE_BITS = 20, /* above 1 MiB a power of two would waste up to half: eighths of it */
    STEP_BITS = 3,
    N_SMALL = FINE_BITS - SMALL_BITS + 1,
    N_CLASSES = N_SMALL + ((62 - FINE_BITS) << STEP_BITS)
};

static const char cached[] = "cache"; /* the maker of a block that waits in a cache */

typedef struct free_block {
    struct free_block *next;
} free_block;

struct cti_cache {
    cti_mem *m;
    bool direct;
    size_t n_cached;
    free_block *list[N_CLASSES];
};

/* The class of a size and the bytes of its blocks; -1 when the size is beyond all. */
static int size_class(size_t bytes, size_t *class_bytes)
{
    int bits = SMALL_BITS;
    size_t step, part;

    if (bytes > (size_t)1 << 62)
        return -1;
    while (bits < FINE_BITS && ((size_t)1 << bits) < bytes)
        bits++;
    if (((size_t)1 << bits) >= bytes) {
        *class_bytes = (size_t)1 << bits;
        return bits - SMALL_BITS;
    }
    while (((size_t)2 << bits) < bytes) /* 2^bits < bytes <= 2^(bits + 1) */
        bits++;
    step = (size_t)1 << (bits - STEP_BITS);
    part = (bytes - ((size_t)1 << bits) + step - 1) / step; /* 1..8 */
    *class_bytes = ((size_t)1 << bits) + part * step;
    return N_SMALL + ((bits - FINE_BITS) << STEP_BITS) + (int)part - 1;
}

cti_cache *cti_cache_new(cti_mem *m, bool direct)
{
    cti_cache *c = cti_alloc(m, sizeof *c, "cti_cache_new");

    if (!c)
        return NULL;
    c->m = m;
    c->direct = direct;
    return c;
}

void cti_cache_trim(cti_cache *c)
{
    for (int i = 0; i < N_CLASSES && c->n_cached > 0; i++) {
        for (free_block *f = c->list[i], *next; f; f = next) {
            next = f->next;
            cti_free(c->m, f);
            c->n_cached--;
        }
        c->list[i] = NULL;
    }
}

void cti_cache_free(cti_cache *c)
{
    if (!c)
        return;
    cti_cache_trim(c);
    cti_free(c->m, c);
}

void *cti_cache_get_raw(cti_cache *c, size_t bytes, const char *maker)
{
    size_t class_bytes;
    int k;
    free_block *f;
    void *p;

    if (c->direct)
        return cti_alloc_raw(c->m, bytes, maker);
    k = size_class(bytes, &class_bytes);
    if (k < 0)
        return NULL;
    f = c->list[k];
    if (f) {
        c->list[k] = f->next;
        c->n_cached--;
        ((block *)(void *)f - 1)->maker = maker ? maker : "?";
        return f;
    }
    p = cti_alloc_raw(c->m, class_bytes, maker);
    /* What waits in other classes may be just what the system lacks. A failure made by
     * cti_mem_fail_at stays one. */
    if (!p && c->n_cached > 0 && !cti_mem_failed(c->m)) {
        cti_cache_trim(c);
        p = cti_alloc_raw(c->m, class_bytes, maker);
    }
    return p;
}

void *cti_cache_get(cti_cache *c, size_t bytes, const char *maker)
{
    void *p = cti_cache_get_raw(c, bytes, maker);

    return p ? memset(p, 0, bytes) : NULL;
}

void cti_cache_put(cti_cache *c, void *p, size_t bytes)
{
    size_t class_bytes = 0;
    block *b;
    free_block *f = p;
    int k;

    if (!p)
        return;
    b = (block *)p - 1;
    k = c->direct ? -1 : size_class(bytes, &class_bytes);
    if (k < 0 || b->bytes != class_bytes) {
        assert((c->direct ? b->bytes == bytes : k >= 0) && "put back with another size than got");
        cti_free(c->m, p);
        return;
    }
    assert(b->mark == LIVE_MARK && b->maker != cached && "put back twice, or no block of ours");
    b->maker = cached;
    f->next = c->list[k];
    c->list[k] = f;
    c->n_cached++;
}

bool cti_under_asan(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return true;
#else
    return false;
#endif
#else
    return false;
#endif
}
