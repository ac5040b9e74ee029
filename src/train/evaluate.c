/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: all samples once, in file order, without gradients, in evaluation mode and without
 * label smoothing. Losses, weights and hits are summed in f64 on the device and divided once. */
#include "train/trainer.h"

#include "base/error.h"

#include <math.h>

int cti_evaluator_open(cti_evaluator *e, ct_ctx *ctx, ct_dataset *ds, const ct_config *config,
                       ct_error *err)
{
    ct_loader_opts o = ct_loader_defaults();

    *e = (cti_evaluator){.ctx = ctx, .ds = ds, .autocast = cti_autocast_of(config)};
    o.batch_size = cti_config_i64(config, "data", "batch_size");
    o.workers = (int)cti_config_i64(config, "data", "workers");
    o.prefetch = (int)cti_config_i64(config, "data", "prefetch");
    o.shuffle = false;
    cti_feed_init(&e->feed, ctx, ct_dataset_get_info(ds));
    e->loader =
        cti_feed_loader(&e->feed, ds, o, cti_config_bool(config, "data", "pin_memory"), err);
    if (!e->loader)
        return err->code;
    e->captures = (cti_captures){.ctx = ctx, .on = cti_config_bool(config, "run", "capture")};
    e->loss = ct_tensor_scalar(ctx, CT_F64, 0);
    e->weight = ct_tensor_scalar(ctx, CT_F64, 0);
    e->hits = ct_tensor_scalar(ctx, CT_F64, 0);
    e->wide = ct_tensor_scalar(ctx, CT_F64, 0);
    if (ct_error_code(ctx) == CT_OK)
        return CT_OK;
    cti_fail(err, ct_error_code(ctx), "%s", ct_error_get(ctx)->text);
    ct_error_clear(ctx);
    cti_evaluator_close(e);
    return err->code;
}

void cti_evaluator_close(cti_evaluator *e)
{
    cti_captures_clear(&e->captures);
    cti_feed_clear(&e->feed);
    ct_tensor_release(e->loss);
    ct_tensor_release(e->weight);
    ct_tensor_release(e->hits);
    ct_tensor_release(e->wide);
    *e = (cti_evaluator){0};
}

static ct_tensor *count_hits(ct_tensor *out, ct_tensor *target)
{
    ct_tensor *hit = ct_eq(ct_argmax(out, 1, false), target);

    return ct_sum(ct_cast(hit, CT_F64), NULL, 0, false);
}

typedef struct one_batch {
    cti_evaluator *e;
    ct_module *model;
    ct_tensor *x, *y;
} one_batch;

static int measure(void *user)
{
    const one_batch *b = user;
    cti_evaluator *e = b->e;
    ct_tensor *out, *loss, *weight = NULL;
    ct_ctx *ctx = e->ctx;
    int r, ended;

    if ((r = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD | e->autocast)) < 0)
        return r;
    out = ct_module_forward(b->model, b->x);
    loss = cti_loss(out, b->y, 0, &weight);
    if ((r = cti_add_wide(ctx, e->loss, e->wide, loss)) == CT_OK &&
        (r = cti_add_wide(ctx, e->weight, e->wide, weight)) == CT_OK)
        r = cti_add_wide(ctx, e->hits, e->wide, count_hits(out, b->y));
    ended = ct_scope_end(ctx);
    return r < 0 ? r : ended;
}

static int add_batch(cti_evaluator *e, ct_module *model, ct_batch *batch)
{
    one_batch b = {.e = e, .model = model};
    int64_t count = batch->count;
    int r = cti_feed_take(&e->feed, batch, &b.x, &b.y);

    return r < 0 ? r : cti_captured(&e->captures, CTI_WORK_EVAL, count, b.x, measure, &b);
}

/* The error is in err, or in the context. */
static int add_all(cti_evaluator *e, ct_module *model, const ct_run_opts *opts, ct_error *err)
{
    ct_batch batch;
    int r;

    for (;;) {
        if (opts && opts->should_stop && opts->should_stop(opts->user))
            return cti_fail(err, CT_EINTERRUPTED, "asked to stop during an evaluation");
        r = ct_loader_next(e->loader, &batch, err);
        if (r <= 0)
            return r;
        if ((r = add_batch(e, model, &batch)) < 0)
            return r;
    }
}

static int read_scores(cti_evaluator *e, cti_scores *out)
{
    double loss, weight, hits;

    if (ct_tensor_item(e->ctx, e->loss, &loss) < 0 ||
        ct_tensor_item(e->ctx, e->weight, &weight) < 0 ||
        ct_tensor_item(e->ctx, e->hits, &hits) < 0)
        return ct_error_code(e->ctx);
    out->loss = loss / weight;
    out->accuracy = hits / weight;
    out->samples = (int64_t)weight;
    return CT_OK;
}

int cti_evaluator_run(cti_evaluator *e, ct_module *model, const ct_run_opts *opts, cti_scores *out,
                      ct_error *err)
{
    int r;

    *out = (cti_scores){.loss = NAN, .accuracy = NAN};
    /* From the first batch, also after an evaluation that was broken off. */
    if ((r = ct_loader_seek(e->loader, 0, 0, err)) < 0)
        return r;
    ct_module_train(model, false);
    if ((r = ct_tensor_fill(e->ctx, e->loss, 0)) == CT_OK &&
        (r = ct_tensor_fill(e->ctx, e->weight, 0)) == CT_OK &&
        (r = ct_tensor_fill(e->ctx, e->hits, 0)) == CT_OK &&
        (r = add_all(e, model, opts, err)) == CT_OK)
        r = read_scores(e, out);
    ct_module_train(model, true);
    if (r < 0 && !err->code && ct_error_code(e->ctx) != CT_OK)
        cti_fail(err, ct_error_code(e->ctx), "evaluation: %s", ct_error_get(e->ctx)->text);
    ct_error_clear(e->ctx);
    return r;
}
