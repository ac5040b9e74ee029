/* SPDX-License-Identifier: Apache-2.0 */
/* Going on from a checkpoint: what it was made under is compared with what is asked for now, then
 * all is restored so that the rest of the run gives the bytes that an uninterrupted one gives. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "train/trainer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/ini.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the saved config ---- */

static char *override_of(cti_mem *m, const cti_ini_entry *e)
{
    size_t n = strlen(e->section) + strlen(e->key) + strlen(e->value) + 3;
    char *s = cti_alloc(m, n, "saved config");

    if (s)
        snprintf(s, n, "%s.%s=%s", e->section, e->key, e->value);
    return s;
}

/* Each entry as an override of nothing: the reader of configs reads files alone. */
static ct_config *config_of_ini(cti_mem *m, const cti_ini *ini, const char *const *overrides, int n,
                                const ct_model_def *const *models, ct_error *err)
{
    int count = cti_ini_count(ini);
    char **list = cti_alloc(m, (size_t)(count + n + 1) * sizeof *list, "saved config");
    ct_config *c = NULL;
    bool ok = list != NULL;

    for (int i = 0; ok && i < count; i++)
        ok = (list[i] = override_of(m, cti_ini_at(ini, i))) != NULL;
    for (int i = 0; ok && i < n; i++)
        list[count + i] = (char *)overrides[i];
    if (ok)
        c = ct_config_load(NULL, (const char *const *)list, count + n, models, err);
    else
        cti_fail(err, CT_ENOMEM, "out of memory for the saved config");
    for (int i = 0; list && i < count; i++)
        cti_free(m, list[i]);
    cti_free(m, list);
    return c;
}

ct_config *cti_config_of_text(cti_mem *m, const char *text, const char *const *overrides, int n,
                              const ct_model_def *const *models, ct_error *err)
{
    cti_ini *ini = NULL;
    ct_config *c = NULL;

    if (cti_ini_parse(m, text, strlen(text), NULL, NULL, &ini) < 0)
        cti_fail(err, CT_EFORMAT, "the config saved in the checkpoint is damaged");
    else
        c = config_of_ini(m, ini, overrides, n, models, err);
    cti_ini_free(ini);
    return c;
}

/* ---- comparing ---- */

typedef struct diff {
    cti_trainer *t;
    int changes;
    char refused[1500];
} diff;

static void add_difference(const char *section, const char *key, const char *old_value,
                           const char *new_value, cti_resume_class cls, void *user)
{
    static const char *const word[] = {"allowed", "allowed: the run goes on differently",
                                       "refused"};
    diff *d = user;
    size_t used = strlen(d->refused);
    char line[400];

    snprintf(line, sizeof line, "[%s] %s: '%.120s' -> '%.120s' (%s)", section, key, old_value,
             new_value, word[cls]);
    if (cls == CTI_RESUME_REFUSED)
        snprintf(d->refused + used, sizeof d->refused - used, "%s%s", used ? "; " : "", line);
    else
        cti_tell(&d->t->say, cls == CTI_RESUME_FREE ? CT_LOG_INFO : CT_LOG_WARN, "resume: %s",
                 line);
    d->changes += cls == CTI_RESUME_CHANGES;
}

/* The config that the checkpoint was made under, against the one asked for. */
static int compare_configs(cti_trainer *t)
{
    diff d = {.t = t};
    ct_error err = {0};
    ct_config *old = cti_config_of_text(t->mem, t->state.config, NULL, 0, t->opts.models, &err);

    if (!old) { /* e.g. of an application's model: nothing to compare with */
        cti_tell(&t->say, CT_LOG_WARN, "resume: the saved config can't be compared: %s", err.text);
        return CT_OK;
    }
    cti_config_diff(old, t->config, add_difference, &d);
    ct_config_free(old);
    t->config_changes = d.changes;
    if (d.refused[0])
        return cti_fail(
            t->err, CT_ECONFIG,
            "resume: %s. These can't change within a run; begin a new one (another run.name or "
            "run.dir)",
            d.refused);
    return CT_OK;
}

int cti_resume_read(cti_trainer *t)
{
    char path[CTI_PATH_CAP];
    int r;

    if ((r = cti_path(path, sizeof path, t->err, "%s/checkpoints/%s", t->target.dir,
                      t->target.checkpoint)) < 0 ||
        (r = cti_ckpt_read_state(t->mem, path, &t->state, t->err)) < 0)
        return r;
    return compare_configs(t);
}

static void differs(cti_trainer *t, const char *what, const char *was, const char *is)
{
    if (strcmp(was, is) != 0)
        cti_tell(&t->say, CT_LOG_WARN,
                 "resume: not byte-equal to an uninterrupted run: %s was %s, is %s", what, was, is);
}

/* Byte equality holds for one build, ISA, libraries, device and number of threads. */
static int compare_build(cti_trainer *t)
{
    const ct_dataset_info *train = ct_dataset_get_info(t->data.train);
    const ct_dataset_info *val = ct_dataset_get_info(t->data.val);
    const cti_state *s = &t->state;
    char was[32], is[32];

    differs(t, "ctrain", s->version, t->build.version);
    differs(t, "the device", s->device, t->build.device);
    differs(t, "the ISA", s->isa, t->build.isa);
    differs(t, "the library", s->libraries, t->build.libraries);
    snprintf(was, sizeof was, "%" PRId64, s->threads);
    snprintf(is, sizeof is, "%d", t->build.threads);
    differs(t, "the number of threads", was, is);
    if (s->fingerprint != train->fingerprint || s->train_count != train->count)
        return cti_fail(t->err, CT_ECONFIG,
                        "resume: the training data '%s' is not what the run began with (%" PRId64
                        " samples, fingerprint %016" PRIx64 "; now %" PRId64 ", %016" PRIx64 ")",
                        train->name, s->train_count, s->fingerprint, train->count,
                        train->fingerprint);
    if (s->val_fingerprint != val->fingerprint)
        cti_tell(&t->say, CT_LOG_WARN,
                 "resume: the validation data '%s' has changed: best and patience "
                 "compare values of both",
                 val->name);
    return CT_OK;
}

/* ---- restoring ---- */

static int load_tensors(cti_trainer *t, const char *name, const ct_named_tensor *list, int n)
{
    char path[CTI_PATH_CAP];
    int r;

    if ((r = cti_path(path, sizeof path, t->err, "%s/%s/%s", t->run.checkpoints,
                      t->target.checkpoint, name)) < 0)
        return r;
    if (ct_safetensors_load(t->ctx, path, list, n) < 0) {
        cti_take(t);
        return cti_error_prefix(t->err, "the checkpoint is of another model or optimizer");
    }
    return CT_OK;
}

/* `best` says what the restored state says: it may have moved on before the run was killed. */
static int restore_pointers(cti_trainer *t)
{
    char name[CTI_CKPT_NAME_CAP], path[CTI_PATH_CAP];
    int r;

    if ((r = cti_ckpt_point(t->run.checkpoints, "last", t->target.checkpoint, t->err)) < 0)
        return r;
    cti_ckpt_name(name, t->state.best_step);
    if (t->state.has_best) {
        if ((r = cti_path(path, sizeof path, t->err, "%s/%s", t->run.checkpoints, name)) < 0)
            return r;
        if (cti_path_is_dir(path))
            return cti_ckpt_point(t->run.checkpoints, "best", name, t->err);
    }
    if ((r = cti_path(path, sizeof path, t->err, "%s/best", t->run.checkpoints)) < 0)
        return r;
    unlink(path);
    return CT_OK;
}

int cti_resume_restore(cti_trainer *t)
{
    cti_state *s = &t->state;
    char path[CTI_PATH_CAP];
    double momentum = ct_schedule_momentum(&t->schedule, s->step);
    int r;

    if (!isnan(momentum))
        ct_optim_set_momentum(t->optim, momentum);
    if ((r = compare_build(t)) < 0 ||
        (r = load_tensors(t, "model.safetensors", t->params, t->n_params)) < 0 ||
        (r = cti_list_slots(t)) < 0 ||
        (r = load_tensors(t, "optimizer.safetensors", t->slots, t->n_slots)) < 0)
        return r;
    if (ct_optim_set_counts(t->ctx, t->optim, s->applied, s->skipped) < 0)
        return cti_take(t);
    if (ct_optim_loss_scale(t->optim) &&
        ct_optim_set_loss_scale(t->ctx, t->optim, s->loss_scale, s->growth_tracker) < 0)
        return cti_take(t);
    if ((r = cti_put_sums(t)) < 0 ||
        (r = ct_loader_seek(t->loader, s->epoch, s->batch, t->err)) < 0 ||
        (r = cti_path(path, sizeof path, t->err, "%s/metrics.jsonl", t->run.dir)) < 0 ||
        (r = cti_metrics_cut(t->mem, path, s->step, !s->eval_due, t->err)) < 0 ||
        (r = restore_pointers(t)) < 0)
        return r;
    t->saved_step = t->good_step = s->step;
    t->saved_due = strcmp(s->why, "stop") != 0;
    t->checked_skips = s->skipped;
    return CT_OK;
}

/* ---- finished already ---- */

bool cti_resume_finished(cti_trainer *t, ct_run_result *out)
{
    const cti_state *s = &t->state;
    char path[CTI_PATH_CAP];
    cti_end end;
    bool early;

    if (cti_path(path, sizeof path, NULL, "%s/metrics.jsonl", t->target.dir) < 0)
        return false;
    cti_metrics_last(t->mem, path, &end);
    early = end.there && strcmp(end.status, "early_stop") == 0;
    if (!end.there || end.step != s->step || (strcmp(end.status, "done") != 0 && !early))
        return false;
    if (early ? t->config_changes > 0 : s->step < cti_total_steps(t))
        return false;
    out->already_done = true;
    out->step = end.step;
    out->epoch = end.epoch;
    out->train_loss = end.train_loss;
    out->val_loss = end.val_loss;
    out->val_acc = end.val_acc;
    out->best = s->has_best ? s->best : NAN;
    out->best_step = s->best_step;
    if (end.has_best) {
        out->best = end.best;
        out->best_step = end.best_step;
    }
    int64_t steps = cti_config_i64(t->config, "train", "steps");
    const char *key = early     ? "train.early_stop_patience" :
                      steps > 0 ? "train.steps" :
                                  "train.epochs";
    int64_t value = early ? t->set.patience : steps > 0 ? steps : t->set.epochs;
    cti_tell(&t->say, CT_LOG_INFO,
             "%s: this run is done (step %" PRId64 ", epoch %" PRId64
             "%s); to go on, raise %s, e.g. --set %s=%" PRId64,
             t->target.dir, end.step, end.epoch, early ? ", stopped early" : "", key, key,
             2 * (value > 0 ? value : 1));
    return true;
}
