/* SPDX-License-Identifier: Apache-2.0 */
/* Refcounted device memory, cached by size class: after the first steps of a static shape no call
 * reaches the device's allocator. A storage goes back to the pool that it came from: captured work has
 * one of its own (capture.c), whose memory is never given to other work, nor freed before. All work of
 * a context runs in one queue (copies beside it are ordered by events before a storage can be released),
 * so memory can be used again at once. */
#include "autograd/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Eight classes per power of two from 512 bytes up, so that at most an eighth is wasted. */
static int size_class(size_t bytes, size_t *rounded)
{
    int e = 6;
    if (bytes <= 512) {
        while (((size_t)1 << e) < bytes)
            e++;
        *rounded = (size_t)1 << e;
        return e - 6;
    }
    e = 9;
    while (((size_t)2 << e) <= bytes)
        e++;
    size_t step = (size_t)1 << (e - 3);
    size_t k = (bytes + step - 1) / step; /* 8..16 */
    *rounded = k * step;
    return 4 + (e - 9) * 8 + (int)(k - 8);
}

/* ---- the memory that is left ---- */

#define LARGEST 3

/* "; the largest: 512.0 MiB of conv2d, ...". */
static void tell_largest(const ct_ctx *ctx, char *out, size_t cap)
{
    const cti_storage *top[LARGEST] = {NULL};
    size_t used;
    for (const cti_storage *st = ctx->storages; st; st = st->live_next) {
        const cti_storage *in = st;
        for (int i = 0; i < LARGEST && in && st->refs > 0; i++) {
            if (!top[i] || in->bytes > top[i]->bytes) {
                const cti_storage *moved = top[i];
                top[i] = in;
                in = moved;
            }
        }
    }
    used = (size_t)snprintf(out, cap, "%s", top[0] ? "; the largest: " : "");
    for (int i = 0; i < LARGEST && top[i] && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%.1f MiB of %s", i ? ", " : "",
                                 (double)top[i]->bytes / 1048576, top[i]->usage->name);
}

static void fail_memory(ct_ctx *ctx, size_t bytes)
{
    const ct_backend *be = ctx->device.be;
    cti_mem_stats s = cti_mem_get_stats(ctx->mem);
    ct_device_counters d = {0};
    size_t room = 0, total = 0;
    char largest[160];
    be->mem->counters(ctx->device.stream, &d);
    tell_largest(ctx, largest, sizeof largest);
    if (be->host_memory) {
        d.bytes = s.live_bytes;
        d.peak_bytes = s.peak_bytes;
    } else {
        be->mem->room(ctx->device.stream, &room, &total);
    }
    ctx->wanted_bytes = bytes;
    ctx->room_bytes = room;
    if (total)
        cti_fail(&ctx->err, CT_ENOMEM,
                 "out of memory on %s: %zu bytes asked for, %zu free of %zu, %" PRIu64
                 " in use here, peak %" PRIu64 "%s; use smaller batches or a smaller model",
                 be->name, bytes, room, total, d.bytes, d.peak_bytes, largest);
    else
        cti_fail(&ctx->err, CT_ENOMEM,
                 "out of memory on %s: %zu bytes asked for, %" PRIu64 " in use, peak %" PRIu64
                 "%s; use smaller batches or a smaller model",
                 be->name, bytes, d.bytes, d.peak_bytes, largest);
}

/* ---- making and freeing ---- */

static void destroy(ct_ctx *ctx, cti_storage *st)
{
    if (st->live_prev)
        st->live_prev->live_next = st->live_next;
    else
        ctx->storages = st->live_next;
    if (st->live_next)
        st->live_next->live_prev = st->live_prev;
    ctx->device.be->mem->free(ctx->device.stream, st->data);
    cti_cache_put(ctx->cache, st, sizeof *st);
}

void cti_pool_trim(ct_ctx *ctx, cti_pool *pool)
{
    for (int k = 0; k < CTI_SIZE_CLASSES; k++) {
        while (pool->free[k]) {
            cti_storage *st = pool->free[k];
            pool->free[k] = st->next_free;
            destroy(ctx, st);
        }
    }
}

static void *device_alloc(ct_ctx *ctx, size_t bytes)
{
    void *p = ctx->device.be->mem->alloc(ctx->device.stream, bytes);
    if (!p && !cti_mem_failed(ctx->mem)) {
        cti_pool_trim(ctx, &ctx->main_pool);
        p = ctx->device.be->mem->alloc(ctx->device.stream, bytes);
    }
    return p;
}

static cti_storage *make(ct_ctx *ctx, size_t bytes, int size_class)
{
    if (cti_capture_is_recording(ctx)) {
        ctx->capture_misses++;
        cti_fail(&ctx->err, CT_ESTATE, "captured work asked for memory that its warm-up didn't");
        return NULL;
    }
    cti_storage *st = cti_cache_get(ctx->cache, sizeof *st, "storage");
    void *data = st ? device_alloc(ctx, bytes) : NULL;
    if (!data) {
        cti_cache_put(ctx->cache, st, sizeof *st);
        fail_memory(ctx, bytes);
        return NULL;
    }
    st->ctx = ctx;
    st->pool = ctx->pool;
    st->data = data;
    st->bytes = bytes;
    st->size_class = size_class;
    st->live_next = ctx->storages;
    if (ctx->storages)
        ctx->storages->live_prev = st;
    ctx->storages = st;
    return st;
}

/* By open addressing; the last entry takes what finds no place. */
static cti_usage *usage_of(ct_ctx *ctx, const char *name)
{
    size_t at = ((uintptr_t)name >> 3) % CTI_USAGES;
    for (int tries = 0; tries < CTI_USAGES / 2; tries++, at = (at + 1) % CTI_USAGES) {
        if (!ctx->usage[at].name)
            ctx->usage[at].name = name;
        if (ctx->usage[at].name == name)
            return &ctx->usage[at];
    }
    return &ctx->usage[at];
}

static int by_peak(const void *a, const void *b)
{
    const ct_op_memory *x = a, *y = b;
    return x->peak_bytes != y->peak_bytes ? (x->peak_bytes < y->peak_bytes ? 1 : -1) :
                                            strcmp(x->name, y->name);
}

int ct_ctx_op_memory(const ct_ctx *ctx, ct_op_memory *out, int cap)
{
    int n = 0;
    for (int i = 0; ctx && i < CTI_USAGES; i++) {
        const cti_usage *u = &ctx->usage[i];
        if (u->name && n++ < cap)
            out[n - 1] = (ct_op_memory){u->name, u->live_bytes, u->peak_bytes};
    }
    if (cap > 0)
        qsort(out, (size_t)(n < cap ? n : cap), sizeof *out, by_peak);
    return n;
}

void ct_ctx_reset_peaks(ct_ctx *ctx)
{
    for (int i = 0; ctx && i < CTI_USAGES; i++)
        ctx->usage[i].peak_bytes = ctx->usage[i].live_bytes;
}

cti_storage *cti_storage_new(ct_ctx *ctx, size_t bytes)
{
    size_t rounded;
    if (bytes > PTRDIFF_MAX / 2) {
        fail_memory(ctx, bytes);
        return NULL;
    }
    int k = size_class(bytes ? bytes : 1, &rounded);
    cti_storage *st = ctx->pool->free[k];
    if (st)
        ctx->pool->free[k] = st->next_free;
    else if (!(st = make(ctx, rounded, k)))
        return NULL;
    st->next_free = NULL;
    st->version = 0;
    st->inference = ctx->inference;
    st->refs = 1;
    st->usage = usage_of(ctx, ctx->running ? ctx->running->name : "tensors");
    st->usage->live_bytes += st->bytes;
    if (st->usage->live_bytes > st->usage->peak_bytes)
        st->usage->peak_bytes = st->usage->live_bytes;
    return st;
}

cti_storage *cti_storage_new_lasting(ct_ctx *ctx, size_t bytes)
{
    cti_pool *pool = ctx->pool;
    ctx->pool = &ctx->main_pool;
    cti_storage *st = cti_storage_new(ctx, bytes);
    ctx->pool = pool;
    return st;
}

void cti_storage_retain(cti_storage *st)
{
    st->refs++;
}

void cti_storage_release(cti_storage *st)
{
    if (!st || --st->refs > 0)
        return;
    ct_ctx *ctx = st->ctx;
    st->usage->live_bytes -= st->bytes;
    if (ctx->direct && st->pool == &ctx->main_pool) {
        destroy(ctx, st);
        return;
    }
    st->next_free = st->pool->free[st->size_class];
    st->pool->free[st->size_class] = st;
}
