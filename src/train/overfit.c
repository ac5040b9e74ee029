/* SPDX-License-Identifier: Apache-2.0 */
/* --overfit-one-batch: a net that can't learn one frozen batch by heart has a bug, not bad luck.
 * Everything that makes it harder is off; it has to bring the loss near its floor and every sample
 * right. When it fails, the likeliest cause is looked for and named. Leaves no files. */
#include "train/trainer.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 200 };
#define PASS 0.01 /* of the first excess over the floor, which is 0 for class targets */

typedef struct trial {
    double lr, first, last, accuracy, least_grad, most_grad;
    int64_t steps;
    bool passed, nonfinite;
} trial;

/* The frozen batch, in memory of the trainer. */
typedef struct frozen {
    void *field[CT_MAX_FIELDS];
    size_t bytes[CT_MAX_FIELDS]; /* of one sample */
    int64_t *ids;
    int64_t count;
} frozen;

/* ---- the batch ---- */

static int copy_batch(cti_trainer *t, const ct_batch *batch, frozen *fz)
{
    const ct_dataset_info *info = ct_dataset_get_info(t->data.train);

    fz->count = batch->count;
    fz->ids = cti_alloc(t->mem, (size_t)batch->count * sizeof *fz->ids, "frozen batch");
    if (!fz->ids)
        return cti_fail(t->err, CT_ENOMEM, "out of memory for the frozen batch");
    memcpy(fz->ids, batch->ids, (size_t)batch->count * sizeof *fz->ids);
    for (int f = 0; f < info->n_fields; f++) {
        size_t bytes = ct_dtype_bytes(info->field[f].dtype);
        for (int d = 0; d < info->field[f].ndim; d++)
            bytes *= (size_t)info->field[f].shape[d];
        fz->bytes[f] = bytes;
        fz->field[f] = cti_alloc(t->mem, bytes * (size_t)batch->count, "frozen batch");
        if (!fz->field[f])
            return cti_fail(t->err, CT_ENOMEM, "out of memory for the frozen batch");
        memcpy(fz->field[f], batch->field[f], bytes * (size_t)batch->count);
    }
    return CT_OK;
}

/* The first batch that training would see. */
static int freeze(cti_trainer *t, frozen *fz)
{
    ct_loader_opts o = ct_loader_defaults();
    ct_loader *loader;
    ct_batch batch;
    int r;

    o.batch_size = t->set.batch_size;
    o.shuffle = cti_config_bool(t->config, "data", "shuffle");
    o.seed = (uint64_t)cti_config_i64(t->config, "run", "seed");
    loader = ct_loader_new(t->data.train, o, t->err);
    if (!loader)
        return t->err->code;
    r = ct_loader_next(loader, &batch, t->err);
    if (r > 0)
        r = copy_batch(t, &batch, fz);
    ct_loader_free(loader);
    return r;
}

static void thaw(cti_trainer *t, frozen *fz)
{
    for (int f = 0; f < CT_MAX_FIELDS; f++)
        cti_free(t->mem, fz->field[f]);
    cti_free(t->mem, fz->ids);
}

/* ---- a trial ---- */

/* Forward, backward, step; the loss and the hits are those before the step. */
static int one_step(cti_trainer *t, ct_tensor *x, ct_tensor *y, int64_t n, trial *tr)
{
    ct_tensor *out, *loss, *scaled, *weight = NULL, *hits, *scale = ct_optim_loss_scale(t->optim);
    ct_step_opts o = ct_step_defaults();
    ct_step_result result;
    double correct = 0, sum = 0;
    int ended;

    if (ct_scope_begin(t->ctx, CT_SCOPE_STEP | t->set.autocast) < 0)
        return cti_take(t);
    ct_ctx_set_position(t->ctx, (uint32_t)tr->steps, 0);
    ct_optim_zero_grad(t->optim);
    out = ct_module_forward(t->model, x);
    loss = cti_loss(out, y, 0, &weight);
    o.weight = weight;
    o.loss = loss;
    o.max_norm = t->set.clip_norm;
    scaled = scale ? ct_mul(loss, scale) : loss;
    if (ct_backward(t->ctx, scaled, NULL, CT_BACKWARD_DEFAULT) == CT_OK &&
        ct_optim_step(t->ctx, t->optim, o) == CT_OK &&
        ct_optim_result(t->ctx, t->optim, &result) == CT_OK &&
        ct_tensor_item(t->ctx, loss, &sum) == CT_OK &&
        ct_scope_begin(t->ctx, CT_SCOPE_NO_GRAD) == CT_OK) {
        hits = ct_sum(ct_cast(ct_eq(ct_argmax(out, 1, false), y), CT_F64), NULL, 0, false);
        if (hits)
            ended = ct_tensor_item(t->ctx, hits, &correct);
        ended = ct_scope_end(t->ctx);
    }
    ended = ct_scope_end(t->ctx);
    if (ended < 0)
        return cti_take(t);
    tr->last = sum / (double)n;
    tr->accuracy = correct / (double)n;
    tr->nonfinite = (result.nonfinite && !scale) || !isfinite(tr->last);
    if (tr->steps == 0)
        tr->first = tr->last;
    tr->most_grad = fmax(tr->most_grad, result.grad_norm);
    tr->passed = !tr->nonfinite && tr->last < PASS * tr->first && correct == (double)n;
    tr->steps++;
    return CT_OK;
}

static int run_trial(cti_trainer *t, const frozen *fz, double lr, trial *tr)
{
    const ct_dataset_info *info = ct_dataset_get_info(t->data.train);
    ct_tensor *x, *y;
    int r;

    *tr = (trial){.lr = lr, .first = NAN, .last = NAN};
    if (!t->model && (r = cti_make_model(t, info)) < 0)
        return r;
    ct_module_set_dropout(t->model, 0);
    if ((r = cti_make_optim(t, lr, 0)) < 0)
        return r;
    cti_feed_init(&t->feed, t->ctx, info);
    r = cti_feed_write(&t->feed, fz->field, fz->count, &x, &y) < 0 ? cti_take(t) : CT_OK;
    while (r == CT_OK && tr->steps < STEPS && !tr->passed && !tr->nonfinite) {
        if (t->opts.should_stop && t->opts.should_stop(t->opts.user))
            return cti_fail(t->err, CT_EINTERRUPTED, "stopped as asked after %" PRId64 " steps",
                            tr->steps);
        r = one_step(t, x, y, fz->count, tr);
    }
    cti_feed_clear(&t->feed);
    ct_optim_free(t->optim);
    t->optim = NULL;
    ct_module_free(t->model);
    t->model = NULL;
    cti_free(t->mem, t->params);
    t->params = NULL;
    return r;
}

/* ---- why it failed ---- */

/* Two samples that look the same but are called differently can't both be right. */
static bool contradiction(cti_trainer *t, const frozen *fz, char *out, size_t cap)
{
    char a[160], b[160];
    int pairs = 0;

    for (int64_t i = 0; i < fz->count; i++)
        for (int64_t j = i + 1; j < fz->count; j++) {
            const char *x = fz->field[0], *y = fz->field[1];
            if (memcmp(x + (size_t)i * fz->bytes[0], x + (size_t)j * fz->bytes[0], fz->bytes[0]) !=
                    0 ||
                memcmp(y + (size_t)i * fz->bytes[1], y + (size_t)j * fz->bytes[1], fz->bytes[1]) ==
                    0)
                continue;
            if (pairs++ > 0)
                continue;
            ct_dataset_describe(t->data.train, fz->ids[i], a, sizeof a);
            ct_dataset_describe(t->data.train, fz->ids[j], b, sizeof b);
        }
    if (pairs)
        snprintf(
            out, cap,
            "equal inputs have different labels: %s and %s (%d such pairs in the batch); no net can "
            "tell them apart, check the labels",
            a, b, pairs);
    return pairs > 0;
}

static const char *lr_word(const trial *other)
{
    return other->passed ? "it passes with" : "try";
}

static int find_cause(cti_trainer *t, const frozen *fz, const trial *tr, char *out, size_t cap)
{
    trial other;
    int r;

    if (tr->lr == 0) {
        snprintf(out, cap, "optimizer.lr is 0: nothing is learned; set it, e.g. to 0.001");
        return CT_OK;
    }
    if (contradiction(t, fz, out, cap))
        return CT_OK;
    if (!(tr->most_grad > 0) && !tr->nonfinite) {
        snprintf(out, cap,
                 "no gradient reaches the parameters (its norm is 0): look for a layer that "
                 "cuts it off, or for dead units");
        return CT_OK;
    }
    if (tr->nonfinite || !(tr->last < tr->first)) {
        if ((r = run_trial(t, fz, tr->lr / 10, &other)) < 0)
            return r;
        snprintf(out, cap, "%s: optimizer.lr = %g is too high, %s %g",
                 tr->nonfinite ? "loss or gradient became NaN or infinite" : "the loss rose",
                 tr->lr, lr_word(&other), tr->lr / 10);
        return CT_OK;
    }
    if ((r = run_trial(t, fz, tr->lr * 10, &other)) < 0)
        return r;
    if (other.passed || other.last < tr->last) {
        snprintf(out, cap, "it learns, but too slowly: raise optimizer.lr (%g), %s %g", tr->lr,
                 lr_word(&other), tr->lr * 10);
        return CT_OK;
    }
    if ((r = run_trial(t, fz, tr->lr / 10, &other)) < 0)
        return r;
    if (other.passed)
        snprintf(out, cap, "optimizer.lr = %g is too high, it passes with %g", tr->lr, tr->lr / 10);
    else
        snprintf(out, cap,
                 "ten times more and less of optimizer.lr (%g) don't help: the net may be too "
                 "small for %" PRId64 " samples, or loses its input on the way",
                 tr->lr, fz->count);
    return CT_OK;
}

static void tell_off(cti_trainer *t)
{
    int dropouts = ct_module_set_dropout(t->model, 0);
    char text[300] = "";

    if (dropouts)
        snprintf(text, sizeof text, " dropout (%d layers),", dropouts);
    if (t->set.smoothing > 0)
        snprintf(text + strlen(text), sizeof text - strlen(text), " label smoothing (%g),",
                 t->set.smoothing);
    if (cti_weight_decay(t->config) > 0)
        snprintf(text + strlen(text), sizeof text - strlen(text), " weight decay (%g),",
                 cti_weight_decay(t->config));
    if (strcmp(ct_config_get(t->config, "schedule", "name"), "constant") != 0)
        snprintf(text + strlen(text), sizeof text - strlen(text), " schedule (%s),",
                 ct_config_get(t->config, "schedule", "name"));
    if (text[0])
        text[strlen(text) - 1] = '\0';
    cti_tell(&t->say, CT_LOG_INFO, "overfit-one-batch: constant lr %g; off:%s", t->set.lr,
             text[0] ? text : " nothing (it was off already)");
}

static int judge(cti_trainer *t, const frozen *fz, ct_run_result *out)
{
    char cause[900] = "";
    trial tr;
    int r;

    tell_off(t);
    if ((r = run_trial(t, fz, t->set.lr, &tr)) < 0)
        return r;
    out->step = tr.steps;
    out->train_loss = tr.last;
    if (tr.passed) {
        cti_tell(&t->say, CT_LOG_INFO,
                 "overfit-one-batch: PASS after %" PRId64 " steps on %" PRId64
                 " samples: loss %.4f -> %.4f (%.2f %%), accuracy 100 %%",
                 tr.steps, fz->count, tr.first, tr.last, 100 * tr.last / tr.first);
        return CT_OK;
    }
    if ((r = find_cause(t, fz, &tr, cause, sizeof cause)) < 0)
        return r;
    return cti_fail(
        t->err, CT_ECHECK,
        "overfit-one-batch: FAIL: %s. (%" PRId64 " steps on %" PRId64
        " samples: loss %.4f -> %.4f, must fall below %.4f; accuracy %.1f %%, must be 100 %%)",
        cause, tr.steps, fz->count, tr.first, tr.last, PASS * tr.first, 100 * tr.accuracy);
}

int cti_overfit(cti_trainer *t, ct_run_result *out)
{
    frozen fz = {.count = 0};
    int r = freeze(t, &fz);

    if (r == CT_OK)
        r = judge(t, &fz, out);
    thaw(t, &fz);
    return r;
}
