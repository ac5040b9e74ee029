/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory, events and copies beside the computation. On a device whose memory is the host's
 * everything has happened when its call returns. */
#include "autograd/internal.h"
#include <ctrain/device.h>

#include <string.h>

struct ct_event {
    ct_ctx *ctx;
    ct_mark *mark; /* NULL: host memory */
};

static bool is_host(const ct_ctx *ctx)
{
    return ctx->device.be->host_memory;
}

/* A text for a kernel's failure that left none. */
static int done(ct_ctx *ctx, int r, const char *what)
{
    if (r < 0 && !ctx->err.code)
        return cti_fail(&ctx->err, r, "%s failed on %s (%s)", what, ctx->device.be->name,
                        ct_status_name(r));
    return r;
}

void *ct_host_alloc(ct_ctx *ctx, size_t bytes)
{
    if (!ctx || ctx->err.code)
        return NULL;
    cti_enter(ctx);
    void *p = is_host(ctx) ? cti_alloc_raw(ctx->mem, bytes, "host memory") :
                             ctx->device.be->mem->pinned_alloc(ctx->device.stream, bytes);
    if (!p)
        cti_fail(&ctx->err, CT_ENOMEM, "out of memory: %zu bytes of pinned host memory asked for",
                 bytes);
    return p;
}

void ct_host_free(ct_ctx *ctx, void *p)
{
    if (!ctx || !p)
        return;
    cti_enter(ctx);
    if (is_host(ctx))
        cti_free(ctx->mem, p);
    else
        ctx->device.be->mem->pinned_free(ctx->device.stream, p);
}

ct_event *ct_event_new(ct_ctx *ctx)
{
    if (!ctx || ctx->err.code)
        return NULL;
    cti_enter(ctx);
    ct_event *e = cti_alloc(ctx->mem, sizeof *e, "event");
    if (!e) {
        cti_fail(&ctx->err, CT_ENOMEM, "out of memory for an event");
        return NULL;
    }
    e->ctx = ctx;
    if (!is_host(ctx) &&
        done(ctx, ctx->device.be->mem->mark_new(ctx->device.stream, &e->mark), "an event") < 0) {
        cti_free(ctx->mem, e);
        return NULL;
    }
    return e;
}

void ct_event_free(ct_event *e)
{
    if (!e)
        return;
    if (!is_host(e->ctx))
        e->ctx->device.be->mem->mark_free(e->ctx->device.stream, e->mark);
    cti_free(e->ctx->mem, e);
}

static int check_event(ct_ctx *ctx, const ct_event *e)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!e || e->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "the event is %s", e ? "of another context" : "NULL");
    if (cti_capture_is_recording(ctx))
        return cti_fail(&ctx->err, CT_ESTATE,
                        "events, and copies that don't wait, can't be a part of captured work");
    cti_enter(ctx);
    return CT_OK;
}

int ct_event_record(ct_ctx *ctx, ct_event *e)
{
    int r = check_event(ctx, e);
    if (r < 0 || is_host(ctx))
        return r;
    return done(ctx, ctx->device.be->mem->mark_set(ctx->device.stream, CT_QUEUE_COMPUTE, e->mark),
                "recording an event");
}

int ct_event_query(ct_ctx *ctx, ct_event *e)
{
    int r = check_event(ctx, e);
    if (r < 0 || is_host(ctx))
        return r < 0 ? r : 1;
    return done(ctx, ctx->device.be->mem->mark_done(ctx->device.stream, e->mark), "an event");
}

int ct_event_sync(ct_ctx *ctx, ct_event *e)
{
    int r = check_event(ctx, e);
    if (r < 0 || is_host(ctx))
        return r;
    return done(ctx, ctx->device.be->mem->mark_sync(ctx->device.stream, e->mark),
                "waiting for an event");
}

/* ---- copies ---- */

static int check_copy(ct_ctx *ctx, const ct_tensor *t, const void *host, size_t bytes,
                      const char *who)
{
    char d[160];
    size_t want = t ? (size_t)ct_tensor_numel(t) * ct_dtype_bytes(t->view.dtype) : 0;
    if (!t || t->ctx != ctx)
        return cti_fail(&ctx->err, CT_EINVAL, "%s: the tensor is %s", who,
                        t ? "of another context" : "NULL");
    if (!cti_view_is_row_major(&t->view))
        return cti_fail(&ctx->err, CT_EINVAL, "%s: %s isn't contiguous", who,
                        ct_tensor_describe(t, d, sizeof d));
    if (bytes != want || (bytes && !host))
        return cti_fail(&ctx->err, CT_EINVAL, "%s: the buffer has %zu bytes, %s has %zu", who,
                        host ? bytes : 0, ct_tensor_describe(t, d, sizeof d), want);
    return CT_OK;
}

int ct_tensor_write_async(ct_ctx *ctx, ct_tensor *t, const void *host, size_t bytes,
                          ct_event *after, ct_event *done_event)
{
    int r = check_event(ctx, done_event);
    if (r == CT_OK)
        r = cti_check_inplace(ctx, t, "write_async");
    if (r == CT_OK)
        r = check_copy(ctx, t, host, bytes, "write_async");
    if (r < 0)
        return r;
    cti_storage_changed(t->storage);
    if (is_host(ctx)) {
        memcpy(t->view.data, host, bytes);
        return CT_OK;
    }
    const ct_k_mem *mem = ctx->device.be->mem;
    ct_stream *s = ctx->device.stream;
    ct_mark *from = after ? after->mark : done_event->mark;
    if (!after)
        r = mem->mark_set(s, CT_QUEUE_COMPUTE, from);
    if (r == CT_OK)
        r = mem->mark_wait(s, CT_QUEUE_COPY, from);
    if (r == CT_OK)
        r = mem->copy_in(s, CT_QUEUE_COPY, t->view.data, host, bytes);
    if (r == CT_OK)
        r = mem->mark_set(s, CT_QUEUE_COPY, done_event->mark);
    if (r == CT_OK)
        r = mem->mark_wait(s, CT_QUEUE_COMPUTE, done_event->mark);
    return done(ctx, r, "write_async");
}

int ct_tensor_read_async(ct_ctx *ctx, const ct_tensor *t, void *host, size_t bytes,
                         ct_event *done_event)
{
    int r = check_event(ctx, done_event);
    if (r == CT_OK)
        r = check_copy(ctx, t, host, bytes, "read_async");
    if (r < 0)
        return r;
    if (is_host(ctx)) {
        memcpy(host, t->view.data, bytes);
        return CT_OK;
    }
    r = ctx->device.be->mem->copy_out(ctx->device.stream, CT_QUEUE_COMPUTE, host, t->view.data,
                                      bytes);
    if (r == CT_OK)
        r = ctx->device.be->mem->mark_set(ctx->device.stream, CT_QUEUE_COMPUTE, done_event->mark);
    return done(ctx, r, "read_async");
}
