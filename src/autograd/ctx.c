/* SPDX-License-Identifier: Apache-2.0 */
/* The context: what is made first and freed last. */
#include "autograd/internal.h"
#include "base/ctxmem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifndef CT_VERSION
#define CT_VERSION "0.1.0"
#endif

const char *ct_version(void)
{
    return CT_VERSION;
}

ct_ctx_opts ct_ctx_defaults(void)
{
    ct_ctx_opts o = {.device = "auto", .dtype = CT_F32, .direct_alloc = cti_under_asan()};
    return o;
}

static int check_opts(const ct_ctx_opts *o, ct_error *err)
{
    const char *d = o->device ? o->device : "auto";
    if (!cti_device_name_ok(d))
        return cti_fail(err, CT_EINVAL, "device '%s' is unknown; allowed: auto, cpu, cuda, cuda:N",
                        d);
    if (o->threads < 0 || o->threads > 4096)
        return cti_fail(err, CT_EINVAL, "threads is %d; allowed: 0 (all) to 4096", o->threads);
    if (o->dtype != CT_F32 && o->dtype != CT_F64)
        return cti_fail(err, CT_EINVAL,
                        "dtype %s can't be the context's; allowed: float32, float64",
                        ct_dtype_name(o->dtype));
    if (!o->alloc != !o->free)
        return cti_fail(err, CT_EINVAL, "alloc and free must be given together");
    return CT_OK;
}

ct_ctx *ct_ctx_new(ct_ctx_opts opts, ct_error *err)
{
    if (check_opts(&opts, err) < 0)
        return NULL;
    cti_mem_hooks hooks = {opts.alloc, opts.free, opts.user};
    cti_mem *mem = cti_mem_new(&hooks);
    ct_ctx *ctx = mem ? cti_alloc(mem, sizeof *ctx, "context") : NULL;
    if (!ctx || !(ctx->cache = cti_cache_new(mem, opts.direct_alloc))) {
        cti_mem_free(mem, NULL, NULL);
        cti_fail(err, CT_ENOMEM, "out of memory for a context");
        return NULL;
    }
    ctx->mem = mem;
    ctx->opts = opts;
    ctx->direct = opts.direct_alloc;
    ctx->seed = opts.seed;
    ctx->grad_mode = true;
    ctx->scope = &ctx->root;
    ctx->next_seq = 1;
    ctx->pool = &ctx->main_pool;
    if (cti_device_open(ctx) < 0) {
        cti_fail(err, ctx->err.code, "%s", ctx->err.text);
        cti_mem_free(mem, NULL, NULL);
        return NULL;
    }
    return ctx;
}

void ct_ctx_free(ct_ctx *ctx)
{
    if (!ctx)
        return;
    cti_enter(ctx);
    ctx->err.code = CT_OK;
    while (ctx->scope != &ctx->root)
        ct_scope_end(ctx);
    while (ctx->root.first) {
        ct_tensor *t = ctx->root.first;
        cti_scope_leave(t);
        ct_tensor_release(t);
    }
    cti_storage_release(ctx->workspace);
    cti_storage_release(ctx->position);
    cti_late_free(ctx);
    cti_pool_trim(ctx, &ctx->main_pool);
    cti_pool_trim(ctx, &ctx->capture_pool);
    cti_free(ctx->mem, ctx->heap);
    cti_free(ctx->mem, ctx->order);
    cti_functions_free(ctx);
    ctx->device.be->mem->close(ctx->device.stream);
    cti_cache_free(ctx->cache);
    cti_mem *mem = ctx->mem;
    ct_ctx_opts opts = ctx->opts;
    cti_free(mem, ctx);
    cti_mem_free(mem, opts.on_leak, opts.user);
}

int ct_error_code(const ct_ctx *ctx)
{
    return ctx ? ctx->err.code : CT_EINVAL;
}

const ct_error *ct_error_get(const ct_ctx *ctx)
{
    return &ctx->err;
}

void ct_error_clear(ct_ctx *ctx)
{
    memset(&ctx->err, 0, sizeof ctx->err);
}

int ct_error_raise(ct_ctx *ctx, int code, const char *where, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int r = cti_vfail(&ctx->err, code, where, fmt, args);
    va_end(args);
    return r;
}

ct_error *ct_error_record(ct_ctx *ctx)
{
    return &ctx->err;
}

void ct_ctx_set_seed(ct_ctx *ctx, uint64_t seed)
{
    ctx->seed = seed;
    ctx->init_ordinal = 0;
}

uint64_t ct_ctx_seed(const ct_ctx *ctx)
{
    return ctx->seed;
}

void ct_ctx_set_position(ct_ctx *ctx, uint32_t step, uint32_t micro)
{
    ctx->step = step;
    ctx->micro = micro;
    ctx->dropout_ordinal = 0;
}

ct_rng cti_next_rng(ct_ctx *ctx)
{
    ct_rng rng = {.key = cti_rng_key_make(ctx->seed, CTI_STREAM_DROPOUT),
                  .step = ctx->step,
                  .micro = ctx->micro,
                  .ordinal = ctx->dropout_ordinal++};
    if (ctx->capture && ctx->position && cti_capture_is_recording(ctx)) {
        cti_capture_uses(ctx, ctx->position);
        rng.position = ctx->position->data;
    }
    return rng;
}

ct_counters ct_ctx_counters(const ct_ctx *ctx)
{
    cti_mem_stats m = cti_mem_get_stats(ctx->mem);
    ct_device_counters d = {0};
    ctx->device.be->mem->counters(ctx->device.stream, &d);
    ct_counters c = {.allocs = m.calls,
                     .live_blocks = m.live_blocks,
                     .live_bytes = m.live_bytes,
                     .peak_bytes = m.peak_bytes,
                     .live_tensors = ctx->n_live_tensors,
                     .live_nodes = ctx->n_live_nodes,
                     .saved_bytes = ctx->saved_bytes,
                     .primitives = d.primitives,
                     .syncs = d.syncs,
                     .wanted_bytes = ctx->wanted_bytes,
                     .room_bytes = ctx->room_bytes};
    return c;
}

ct_dtype ct_ctx_dtype(const ct_ctx *ctx)
{
    return ctx->opts.dtype;
}

void ct_ctx_build_info(ct_ctx *ctx, ct_build_info *out)
{
    ct_device_info d = {0};
    ctx->device.be->mem->info(ctx->device.stream, &d);
    memset(out, 0, sizeof *out);
    out->version = CT_VERSION;
    out->threads = d.threads;
    snprintf(out->device, sizeof out->device, "%s", d.name);
    snprintf(out->isa, sizeof out->isa, "%s", d.isa);
    snprintf(out->libraries, sizeof out->libraries, "%s", d.libraries);
}

void ct_ctx_fail_alloc_at(ct_ctx *ctx, uint64_t n, bool sticky)
{
    cti_mem_fail_at(ctx->mem, n, sticky);
}

bool ct_ctx_alloc_failed(const ct_ctx *ctx)
{
    return cti_mem_failed(ctx->mem);
}

struct cti_mem *cti_ctx_mem(const struct ct_ctx *ctx)
{
    return ctx->mem;
}

cti_device *cti_ctx_device(struct ct_ctx *ctx)
{
    cti_enter(ctx);
    return &ctx->device;
}
