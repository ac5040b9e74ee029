/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts of the device that the host reads later: a wait for each op would cost more than the op. */
#include "autograd/internal.h"

#include <string.h>

static const int64_t clean[3] = {-1, -1, -1};

static cti_late_slot *slot_of(ct_ctx *ctx, const ct_op *op)
{
    for (int i = 0; i < ctx->n_late; i++)
        if (ctx->late[i].op == op)
            return &ctx->late[i];
    if (ctx->n_late == CTI_MAX_LATE) {
        cti_fail(&ctx->err, CT_EINTERNAL, "%s: more than %d ops give late verdicts", op->name,
                 CTI_MAX_LATE);
        return NULL;
    }
    cti_late_slot *s = &ctx->late[ctx->n_late];
    s->op = op;
    s->storage = cti_storage_new_lasting(ctx, sizeof clean);
    if (!s->storage)
        return NULL;
    if (ctx->device.be->mem->upload(ctx->device.stream, s->storage->data, clean, sizeof clean) <
        0) {
        cti_storage_release(s->storage);
        cti_fail(&ctx->err, CT_EDEVICE, "%s: an upload failed", op->name);
        return NULL;
    }
    ctx->n_late++;
    return s;
}

const ct_view *cti_late(cti_node *n, cti_late_report report, int64_t arg)
{
    ct_ctx *ctx = n->ctx;
    cti_late_slot *s = slot_of(ctx, n->op);
    if (!s)
        return NULL;
    s->report = report;
    s->arg = arg;
    s->view = (ct_view){
        .data = s->storage->data, .dtype = CT_I64, .ndim = 1, .shape = {3}, .stride = {1}};
    cti_capture_uses(ctx, s->storage);
    ctx->late_armed = true;
    return &s->view;
}

int cti_late_look(ct_ctx *ctx)
{
    const ct_k_mem *mem = ctx->device.be->mem;
    if (!ctx->late_armed || ctx->err.code)
        return ctx->err.code;
    ctx->late_armed = false;
    for (int i = 0; i < ctx->n_late; i++) {
        cti_late_slot *s = &ctx->late[i];
        int64_t found[3];
        int r = mem->download(ctx->device.stream, found, s->storage->data, sizeof found);
        if (r == CT_OK && found[0] >= 0)
            r = mem->upload(ctx->device.stream, s->storage->data, clean, sizeof clean);
        if (r < 0 && !ctx->err.code)
            cti_fail(&ctx->err, r, "%s: reading its verdict failed on %s", s->op->name,
                     ctx->device.be->name);
        if (r == CT_OK && found[0] >= 0)
            s->report(ctx, s->op, found, s->arg);
    }
    return ctx->err.code;
}

void cti_late_free(ct_ctx *ctx)
{
    for (int i = 0; i < ctx->n_late; i++)
        cti_storage_release(ctx->late[i].storage);
    ctx->n_late = 0;
}

int cti_ctx_verdicts(struct ct_ctx *ctx)
{
    return cti_late_look(ctx);
}
