/* SPDX-License-Identifier: Apache-2.0 */
/* Work captured once and replayed. A captured launch keeps addresses, so
 *  - memory asked for while warming up and capturing comes from a pool of its own that no other work
 *    gets, filled by the warm-up, so that the capture finds all it asks for there;
 *  - the gradient of a leaf is kept at a fixed address (its `home`, see tape.c);
 *  - storages that the work reads, changes or uses as workspace live as long as the capture.
 * A replay repeats what the calls did on the host's side: versions go up, gradients are attached,
 * random numbers go on. */
#include "autograd/internal.h"
#include <ctrain/device.h>

#include <stdio.h>
#include <string.h>

#define TRIES 3

typedef enum stage { COLD, WARM, CAPTURED, REFUSED } stage;

struct ct_capture {
    ct_ctx *ctx;
    stage stage;
    int tries;
    ct_graph *graph;
    uint64_t replays;
    char why[256];
    /* what the work used and did */
    cti_storage **kept; /* owned references */
    size_t n_kept, cap_kept;
    cti_storage **changed; /* one entry a change; kept holds them */
    size_t n_changed, cap_changed;
    ct_tensor **leaves; /* whose gradient the work attached: owned references */
    size_t n_leaves, cap_leaves;
    uint32_t draws; /* of dropout */
    bool late;      /* a verdict is read later */
    bool failed;    /* the lists are not whole */
};

/* ---- what the engine tells while work is being captured ---- */

bool cti_capture_is_recording(const ct_ctx *ctx)
{
    return ctx->capture && ctx->capture->stage == WARM;
}

void cti_capture_uses(ct_ctx *ctx, cti_storage *st)
{
    ct_capture *c = ctx->capture;
    if (!cti_capture_is_recording(ctx) || st->pool == &ctx->capture_pool || st->capture == c)
        return;
    st->capture = c;
    if (cti_grow(ctx->mem, (void **)&c->kept, &c->cap_kept, c->n_kept + 1, sizeof *c->kept,
                 "capture") < 0) {
        c->failed = true;
        return;
    }
    cti_storage_retain(st);
    c->kept[c->n_kept++] = st;
}

void cti_storage_changed(cti_storage *st)
{
    ct_ctx *ctx = st->ctx;
    if (!st->inference)
        st->version++;
    if (!cti_capture_is_recording(ctx) || st->pool == &ctx->capture_pool)
        return;
    ct_capture *c = ctx->capture;
    cti_capture_uses(ctx, st);
    if (cti_grow(ctx->mem, (void **)&c->changed, &c->cap_changed, c->n_changed + 1,
                 sizeof *c->changed, "capture") < 0)
        c->failed = true;
    else
        c->changed[c->n_changed++] = st;
}

void cti_capture_attached(ct_tensor *leaf)
{
    ct_ctx *ctx = leaf->ctx;
    ct_capture *c = ctx->capture;
    if (!cti_capture_is_recording(ctx))
        return;
    if (cti_grow(ctx->mem, (void **)&c->leaves, &c->cap_leaves, c->n_leaves + 1, sizeof *c->leaves,
                 "capture") < 0)
        c->failed = true;
    else
        c->leaves[c->n_leaves++] = ct_tensor_retain(leaf);
}

int cti_capture_refuse(ct_ctx *ctx, const char *why)
{
    ct_capture *c = ctx->capture;
    if (!c)
        return CT_OK;
    snprintf(c->why, sizeof c->why, "%s", why);
    if (cti_capture_is_recording(ctx))
        return cti_fail(&ctx->err, CT_ESTATE, "%s", why);
    c->stage = REFUSED;
    return CT_OK;
}

/* ---- lists ---- */

static void forget(ct_capture *c)
{
    for (size_t i = 0; i < c->n_kept; i++) {
        c->kept[i]->capture = NULL;
        cti_storage_release(c->kept[i]);
    }
    for (size_t i = 0; i < c->n_leaves; i++)
        ct_tensor_release(c->leaves[i]);
    c->n_kept = c->n_changed = c->n_leaves = 0;
    c->failed = c->late = false;
    c->draws = 0;
}

ct_capture *ct_capture_new(ct_ctx *ctx)
{
    if (!ctx || ctx->err.code)
        return NULL;
    ct_capture *c = cti_alloc(ctx->mem, sizeof *c, "capture");
    if (!c) {
        cti_fail(&ctx->err, CT_ENOMEM, "out of memory for a capture");
        return NULL;
    }
    c->ctx = ctx;
    ctx->n_captures++;
    if (!ctx->device.be->mem->capture_begin) {
        c->stage = REFUSED;
        snprintf(c->why, sizeof c->why, "device %s has nothing to capture", ctx->device.be->name);
    }
    return c;
}

void ct_capture_free(ct_capture *c)
{
    if (!c)
        return;
    ct_ctx *ctx = c->ctx;
    cti_enter(ctx);
    if (c->graph)
        ctx->device.be->mem->graph_free(ctx->device.stream, c->graph);
    forget(c);
    cti_free(ctx->mem, c->kept);
    cti_free(ctx->mem, c->changed);
    cti_free(ctx->mem, c->leaves);
    cti_free(ctx->mem, c);
    if (--ctx->n_captures == 0)
        cti_pool_trim(ctx, &ctx->capture_pool);
}

/* ---- running ---- */

/* Called, with memory from the captures' pool: the next call finds it there. */
static int warm_up(ct_ctx *ctx, ct_capture *c, int (*fn)(void *), void *user)
{
    ctx->pool = &ctx->capture_pool;
    ctx->capture = c;
    int r = fn(user);
    ctx->pool = &ctx->main_pool;
    ctx->capture = NULL;
    if (r >= 0 && c->stage == COLD)
        c->stage = WARM;
    return r;
}

/* The gradients that a broken capture attached hold nothing. */
static void detach_leaves(ct_capture *c)
{
    for (size_t i = 0; i < c->n_leaves; i++) {
        ct_tensor_release(c->leaves[i]->grad);
        c->leaves[i]->grad = NULL;
    }
}

static int try_capture(ct_ctx *ctx, ct_capture *c, int (*fn)(void *), void *user)
{
    const ct_k_mem *mem = ctx->device.be->mem;
    uint32_t ordinal = ctx->dropout_ordinal;
    uint64_t misses = ctx->capture_misses;
    if (mem->capture_begin(ctx->device.stream) < 0)
        return CT_EDEVICE;
    ctx->capture_serial++;
    bool late = ctx->late_armed;
    ctx->late_armed = false;
    ctx->pool = &ctx->capture_pool;
    ctx->capture = c;
    int r = fn(user);
    if (ctx->workspace)
        cti_capture_uses(ctx, ctx->workspace);
    ctx->pool = &ctx->main_pool;
    ctx->capture = NULL;
    c->late = ctx->late_armed;
    ctx->late_armed |= late;
    c->draws = ctx->dropout_ordinal - ordinal;
    if (r >= 0 && c->failed)
        r = cti_fail(&ctx->err, CT_ENOMEM, "out of memory");
    int ended = mem->capture_end(ctx->device.stream, r >= 0 ? &c->graph : NULL);
    r = r < 0 ? r : ended;
    if (r < 0) {
        bool again = ctx->capture_misses != misses && ++c->tries < TRIES;
        snprintf(c->why, sizeof c->why, "%.255s",
                 ctx->err.code ? ctx->err.text : ct_status_name(r));
        detach_leaves(c);
        forget(c);
        c->stage = again ? COLD : REFUSED;
        if (again)
            c->why[0] = '\0';
        ctx->dropout_ordinal = ordinal;
        return r;
    }
    c->stage = CAPTURED;
    return CT_OK;
}

/* Without a position of its own in device memory a captured dropout would draw the same for ever. */
static int send_position(ct_ctx *ctx)
{
    uint32_t at[2] = {ctx->step, ctx->micro};
    if (!ctx->position || (ctx->position_sent && ctx->sent[0] == at[0] && ctx->sent[1] == at[1]))
        return CT_OK;
    memcpy(ctx->sent, at, sizeof at);
    ctx->position_sent = true;
    return ctx->device.be->mem->upload(ctx->device.stream, ctx->position->data, at, sizeof at);
}

static int launch(ct_ctx *ctx, ct_capture *c)
{
    int r = send_position(ctx);
    if (r == CT_OK)
        r = ctx->device.be->mem->graph_launch(ctx->device.stream, c->graph);
    if (r < 0 && !ctx->err.code)
        cti_fail(&ctx->err, r, "launching captured work failed on %s (%s)", ctx->device.be->name,
                 ct_status_name(r));
    if (r == CT_OK)
        c->replays++;
    return r;
}

static int replay(ct_ctx *ctx, ct_capture *c)
{
    int r = launch(ctx, c);
    if (r < 0)
        return r;
    for (size_t i = 0; i < c->n_changed; i++)
        c->changed[i]->version++;
    for (size_t i = 0; i < c->n_leaves; i++) {
        ct_tensor *leaf = c->leaves[i];
        if (!leaf->grad)
            leaf->grad = ct_tensor_retain(leaf->grad_home);
    }
    ctx->dropout_ordinal += c->draws;
    ctx->late_armed |= c->late;
    return CT_OK;
}

static int make_position(ct_ctx *ctx)
{
    if (!ctx->position)
        ctx->position = cti_storage_new_lasting(ctx, 2 * sizeof(uint32_t));
    return ctx->position ? CT_OK : ctx->err.code;
}

int ct_capture_run(ct_ctx *ctx, ct_capture *c, int (*fn)(void *user), void *user)
{
    if (!ctx)
        return CT_EINVAL;
    if (ctx->err.code)
        return ctx->err.code;
    if (!c || c->ctx != ctx || !fn)
        return cti_fail(&ctx->err, CT_EINVAL, "ct_capture_run: no capture of this context");
    if (ctx->capture)
        return cti_fail(&ctx->err, CT_ESTATE, "ct_capture_run: called from inside captured work");
    cti_enter(ctx);
    if (c->stage == COLD && make_position(ctx) < 0)
        return ctx->err.code;
    if (c->stage == COLD)
        return warm_up(ctx, c, fn, user);
    if (c->stage == CAPTURED)
        return replay(ctx, c);
    if (c->stage == WARM) {
        if (try_capture(ctx, c, fn, user) == CT_OK)
            return launch(ctx, c);
        ct_error_clear(ctx); /* a real mistake comes again, right now */
        if (c->stage == COLD)
            return warm_up(ctx, c, fn, user);
    }
    return fn(user);
}

uint64_t ct_capture_replays(const ct_capture *c)
{
    return c ? c->replays : 0;
}

const char *ct_capture_refused(const ct_capture *c)
{
    return c && c->stage == REFUSED ? c->why : "";
}
