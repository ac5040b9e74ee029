/* SPDX-License-Identifier: Apache-2.0 */
/* Refcounted device memory, cached by size class: after the first steps of a static shape no call
 * reaches the device's allocator. */
#include "autograd/internal.h"

#include <inttypes.h>

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

static void *device_alloc(ct_ctx *ctx, size_t bytes)
{
    void *p = ctx->device.be->mem->alloc(ctx->device.stream, bytes);
    if (!p && !cti_mem_failed(ctx->mem)) {
        cti_storage_trim(ctx);
        p = ctx->device.be->mem->alloc(ctx->device.stream, bytes);
    }
    return p;
}

static void fail_memory(ct_ctx *ctx, size_t bytes)
{
    cti_mem_stats s = cti_mem_get_stats(ctx->mem);
    cti_fail(&ctx->err, CT_ENOMEM,
             "out of memory on %s: %zu bytes asked for, %" PRIu64 " in use, peak %" PRIu64
             "; use smaller batches or a smaller model",
             ctx->device.be->name, bytes, s.live_bytes, s.peak_bytes);
}

cti_storage *cti_storage_new(ct_ctx *ctx, size_t bytes)
{
    size_t rounded;
    if (bytes > PTRDIFF_MAX / 2) {
        fail_memory(ctx, bytes);
        return NULL;
    }
    int k = size_class(bytes ? bytes : 1, &rounded);
    cti_storage *st = ctx->free_storages[k];
    if (st) {
        ctx->free_storages[k] = st->next_free;
    } else {
        st = cti_cache_get(ctx->cache, sizeof *st, "storage");
        void *data = st ? device_alloc(ctx, rounded) : NULL;
        if (!data) {
            cti_cache_put(ctx->cache, st, sizeof *st);
            fail_memory(ctx, rounded);
            return NULL;
        }
        st->ctx = ctx;
        st->data = data;
        st->bytes = rounded;
        st->size_class = k;
    }
    st->next_free = NULL;
    st->version = 0;
    st->refs = 1;
    return st;
}

static void destroy(ct_ctx *ctx, cti_storage *st)
{
    ctx->device.be->mem->free(ctx->device.stream, st->data);
    cti_cache_put(ctx->cache, st, sizeof *st);
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
    if (ctx->direct) {
        destroy(ctx, st);
        return;
    }
    st->next_free = ctx->free_storages[st->size_class];
    ctx->free_storages[st->size_class] = st;
}

void cti_storage_trim(ct_ctx *ctx)
{
    for (int k = 0; k < CTI_SIZE_CLASSES; k++) {
        while (ctx->free_storages[k]) {
            cti_storage *st = ctx->free_storages[k];
            ctx->free_storages[k] = st->next_free;
            destroy(ctx, st);
        }
    }
}
