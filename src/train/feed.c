/* SPDX-License-Identifier: Apache-2.0 */
#include "train/feed.h"

#include <string.h>

void cti_feed_init(cti_feed *f, ct_ctx *ctx, const ct_dataset_info *info)
{
    *f = (cti_feed){.ctx = ctx, .info = info};
    for (int i = 0; i < CTI_FEED_SIZES; i++)
        f->size[i].count = -1;
}

/* ---- the loader's memory ---- */

static void *pinned_alloc(size_t bytes, void *user)
{
    cti_feed *f = user;
    void *p = ct_host_alloc(f->ctx, bytes);

    if (!p) /* told by the loader */
        ct_error_clear(f->ctx);
    return p;
}

static void pinned_free(void *p, void *user)
{
    ct_host_free(((cti_feed *)user)->ctx, p);
}

/* Is the device's memory out of the host's reach? */
static bool is_apart(ct_ctx *ctx)
{
    ct_tensor *t = ct_tensor_scalar(ctx, CT_F32, 0);
    bool apart = t && !ct_tensor_data(t);

    ct_tensor_release(t);
    return apart;
}

ct_loader *cti_feed_loader(cti_feed *f, ct_dataset *ds, ct_loader_opts o, bool pin, ct_error *err)
{
    f->async = pin && is_apart(f->ctx);
    if (f->async) {
        o.hold = CTI_FEED_HOLD;
        o.alloc = pinned_alloc;
        o.free = pinned_free;
        o.user = f;
    }
    f->loader = ct_loader_new(ds, o, err);
    return f->loader;
}

/* ---- tensors of one batch size ---- */

static void drop(cti_feed *f, int i)
{
    for (int k = 0; k < CTI_FEED_STAGES; k++) {
        cti_feed_stage *s = &f->size[i].stage[k];

        ct_tensor_release(s->x);
        ct_tensor_release(s->y);
        ct_event_free(s->copied);
        ct_event_free(s->consumed);
        *s = (cti_feed_stage){0};
    }
    ct_tensor_release(f->size[i].x);
    ct_tensor_release(f->size[i].y);
    ct_tensor_release(f->size[i].raw);
    f->size[i].x = f->size[i].y = f->size[i].raw = NULL;
    f->size[i].count = -1;
}

static ct_tensor *batch_tensor(cti_feed *f, int field_index, ct_dtype dtype, int64_t count)
{
    const ct_field *field = &f->info->field[field_index];
    int64_t shape[CT_MAX_DIMS] = {count};

    if (field->ndim + 1 > CT_MAX_DIMS) {
        ct_error_raise(f->ctx, CT_EDATA, __func__, "field '%s' of '%s' has too many dimensions",
                       field->name, f->info->name);
        return NULL;
    }
    memcpy(shape + 1, field->shape, (size_t)field->ndim * sizeof *shape);
    return ct_tensor_new(f->ctx, dtype, field->ndim + 1, shape);
}

/* Gives slabs back whose copies are done; waits until at most `left` are away. */
static int reclaim(cti_feed *f, int left)
{
    int r;

    while (f->n_away > 0) {
        if ((r = ct_event_query(f->ctx, f->away[0].copied)) < 0)
            return r;
        if (r == 0 && f->n_away <= left)
            return CT_OK;
        if (r == 0 && (r = ct_event_sync(f->ctx, f->away[0].copied)) < 0)
            return r;
        ct_loader_release(f->loader, &f->away[0].batch);
        memmove(&f->away[0], &f->away[1], sizeof f->away[0] * (size_t)--f->n_away);
    }
    return CT_OK;
}

static int make_size(cti_feed *f, int64_t count, int *out)
{
    const ct_field *field = f->info->field;
    ct_dtype dtype = ct_ctx_dtype(f->ctx);
    int i = f->next, r;

    if ((r = reclaim(f, 0)) < 0) /* their events may go */
        return r;
    f->next = (f->next + 1) % CTI_FEED_SIZES;
    drop(f, i);
    f->size[i].x = batch_tensor(f, 0, dtype, count);
    f->size[i].y = batch_tensor(f, 1, field[1].dtype, count);
    if (field[0].dtype != dtype && !f->async)
        f->size[i].raw = batch_tensor(f, 0, field[0].dtype, count);
    for (int k = 0; f->async && k < CTI_FEED_STAGES; k++) {
        cti_feed_stage *s = &f->size[i].stage[k];

        s->x = batch_tensor(f, 0, field[0].dtype, count);
        s->y = batch_tensor(f, 1, field[1].dtype, count);
        s->copied = ct_event_new(f->ctx);
        s->consumed = ct_event_new(f->ctx);
        if (s->consumed) /* the first copy comes after the zeros that new tensors are filled with */
            ct_event_record(f->ctx, s->consumed);
    }
    if (ct_error_code(f->ctx) != CT_OK) {
        drop(f, i);
        return ct_error_code(f->ctx);
    }
    f->size[i].count = count;
    *out = i;
    return CT_OK;
}

/* The place of batches of that size; its x and y. Negative: the error. */
static int size_for(cti_feed *f, int64_t count, ct_tensor **x, ct_tensor **y)
{
    int i, r;

    if (ct_error_code(f->ctx) != CT_OK)
        return ct_error_code(f->ctx);
    for (i = 0; i < CTI_FEED_SIZES && f->size[i].count != count; i++)
        ;
    if (i == CTI_FEED_SIZES && (r = make_size(f, count, &i)) < 0)
        return r;
    *x = f->size[i].x;
    *y = f->size[i].y;
    return i;
}

void cti_feed_clear(cti_feed *f)
{
    ct_error before;

    if (!f->ctx)
        return;
    before = *ct_error_get(f->ctx);
    ct_error_clear(f->ctx); /* the copies must be waited for all the same */
    reclaim(f, 0);
    *ct_error_record(f->ctx) = before;
    for (int i = 0; i < CTI_FEED_SIZES; i++)
        drop(f, i);
    ct_loader_free(f->loader);
    *f = (cti_feed){0};
}

/* ---- batches ---- */

static size_t bytes_of(const ct_tensor *t)
{
    return (size_t)ct_tensor_numel(t) * ct_dtype_bytes(ct_tensor_dtype(t));
}

int cti_feed_write(cti_feed *f, void *const *field, int64_t count, ct_tensor **x, ct_tensor **y)
{
    ct_tensor *raw;
    int i = size_for(f, count, x, y), r;

    if (i < 0)
        return i;
    raw = f->size[i].raw ? f->size[i].raw : *x;
    if ((r = ct_tensor_write(f->ctx, raw, field[0], bytes_of(raw))) < 0 ||
        (raw != *x && (r = ct_tensor_copy(f->ctx, *x, raw)) < 0))
        return r;
    return ct_tensor_write(f->ctx, *y, field[1], bytes_of(*y));
}

int cti_feed_take(cti_feed *f, ct_batch *batch, ct_tensor **x, ct_tensor **y)
{
    cti_feed_stage *s;
    int i, r;

    if (!f->async) {
        r = cti_feed_write(f, batch->field, batch->count, x, y);
        ct_loader_release(f->loader, batch);
        return r;
    }
    if ((i = size_for(f, batch->count, x, y)) < 0 || (r = reclaim(f, CTI_FEED_STAGES - 1)) < 0) {
        ct_loader_release(f->loader, batch);
        return ct_error_code(f->ctx);
    }
    s = &f->size[i].stage[f->size[i].turn];
    f->size[i].turn = (f->size[i].turn + 1) % CTI_FEED_STAGES;
    f->away[f->n_away].batch = *batch;
    f->away[f->n_away++].copied = s->copied;
    if ((r = ct_tensor_write_async(f->ctx, s->x, batch->field[0], bytes_of(s->x), s->consumed,
                                   s->copied)) < 0 ||
        (r = ct_tensor_write_async(f->ctx, s->y, batch->field[1], bytes_of(s->y), s->consumed,
                                   s->copied)) < 0 ||
        (r = ct_tensor_copy(f->ctx, *x, s->x)) < 0 || (r = ct_tensor_copy(f->ctx, *y, s->y)) < 0)
        return r;
    return ct_event_record(f->ctx, s->consumed);
}
