/* SPDX-License-Identifier: Apache-2.0 */
/* From a config to data, model, optimizer and schedule, with everything checked that can be before
 * the first step. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int cti_take(cti_trainer *t)
{
    int code = ct_error_code(t->ctx);

    if (code == CT_OK)
        return CT_OK;
    ct_error_set(t->err, code, ct_error_get(t->ctx)->where, "%s", ct_error_get(t->ctx)->text);
    ct_error_clear(t->ctx);
    return code;
}

int cti_take_setup(cti_trainer *t)
{
    int code = ct_error_code(t->ctx);
    bool config =
        code == CT_ESHAPE || code == CT_EINVAL || code == CT_EDTYPE || code == CT_ENOTIMPL;

    if (code == CT_OK)
        return CT_OK;
    ct_error_set(t->err, config ? CT_ECONFIG : code, ct_error_get(t->ctx)->where, "%s",
                 ct_error_get(t->ctx)->text);
    ct_error_clear(t->ctx);
    return t->err->code;
}

unsigned cti_autocast_of(const ct_config *c)
{
    const char *precision = ct_config_get(c, "run", "precision");

    return strcmp(precision, "bf16") == 0 ? CT_SCOPE_AUTOCAST_BF16 :
           strcmp(precision, "fp16") == 0 ? CT_SCOPE_AUTOCAST_F16 :
                                            0;
}

void cti_read_settings(cti_settings *s, const ct_config *c)
{
    *s = (cti_settings){
        .batch_size = cti_config_i64(c, "data", "batch_size"),
        .accumulate = cti_config_i64(c, "train", "accumulate"),
        .epochs = cti_config_i64(c, "train", "epochs"),
        .smoothing = cti_config_f64(c, "loss", "label_smoothing"),
        .clip_norm = cti_config_f64(c, "train", "clip_norm"),
        .lr = cti_config_f64(c, "optimizer", "lr"),
        .stop_nonfinite = strcmp(ct_config_get(c, "train", "nonfinite"), "skip") != 0,
        .autocast = cti_autocast_of(c),
        .larger_is_better = strcmp(ct_config_get(c, "train", "monitor"), "val_loss") != 0,
        .min_delta = cti_config_f64(c, "train", "early_stop_min_delta"),
        .patience = cti_config_i64(c, "train", "early_stop_patience"),
        .keep_last = cti_config_i64(c, "checkpoint", "keep_last"),
        .keep_best = cti_config_i64(c, "checkpoint", "keep_best"),
        .save_every = cti_config_interval(c, "checkpoint", "every"),
        .log_every = cti_config_interval(c, "log", "every"),
    };
}

/* ---- context ---- */

/* A lower precision is asked for to save time: says where it doesn't. */
static void tell_precision(cti_trainer *t)
{
    bool cpu = strncmp(t->build.device, "cpu", 3) == 0;

    if (cpu && t->set.autocast == CT_SCOPE_AUTOCAST_F16)
        cti_tell(&t->say, CT_LOG_WARN,
                 "run.precision = fp16: this device computes float16 in float32, which is slower "
                 "than fp32; bf16 is what CPUs have units for");
    else if (cpu && t->set.autocast && !strstr(t->build.isa, "bf16") &&
             !strstr(t->build.isa, "amx"))
        cti_tell(&t->say, CT_LOG_WARN,
                 "run.precision = bf16: this CPU (%s) has no bfloat16 units, so it may be slower "
                 "than fp32",
                 t->build.isa);
}

int cti_make_context(cti_trainer *t, int threads)
{
    const char *precision = ct_config_get(t->config, "run", "precision");
    ct_ctx_opts o = ct_ctx_defaults();

    o.device = ct_config_get(t->config, "run", "device");
    o.dtype = strcmp(precision, "fp64") == 0 ? CT_F64 : CT_F32;
    o.tf32 = cti_config_bool(t->config, "run", "tf32");
    o.threads = threads > 0 ? threads : (int)cti_config_i64(t->config, "run", "threads");
    o.seed = (uint64_t)cti_config_i64(t->config, "run", "seed");
    if (o.dtype == CT_F64 && strncmp(o.device, "cuda", 4) == 0)
        return cti_fail(t->err, CT_ECONFIG,
                        "run.precision = fp64 works on the cpu alone, not on %s", o.device);
    t->ctx = ct_ctx_new(o, t->err);
    if (!t->ctx)
        return t->err->code;
    ct_ctx_build_info(t->ctx, &t->build);
    tell_precision(t);
    return CT_OK;
}

/* ---- model ---- */

static ct_module *build_model(cti_trainer *t, const ct_dataset_info *info)
{
    const ct_model_def *def = cti_config_model(t->config);
    const char *values[CT_MODEL_MAX_KEYS] = {0};
    ct_model_spec spec = {
        .ndim = info->field[0].ndim, .n_classes = info->n_classes, .values = values};

    if (!def)
        return ct_nn_layers_new(t->ctx, ct_config_get(t->config, "model", "layers"),
                                info->field[0].ndim, info->field[0].shape);
    memcpy(spec.shape, info->field[0].shape, sizeof spec.shape);
    for (int i = 0; i < CT_MODEL_MAX_KEYS && def->keys[i].name; i++)
        values[i] = ct_config_get(t->config, "model", def->keys[i].name);
    return def->build(t->ctx, &spec);
}

static int load_init(cti_trainer *t)
{
    const char *init = ct_config_get(t->config, "model", "init");
    char path[CTI_PATH_CAP];
    int r;

    if (!init || !init[0] || t->target.resume)
        return CT_OK;
    if ((r = cti_path_relative_to(path, sizeof path, cti_config_path(t->config), init, t->err)) < 0)
        return r;
    if (ct_safetensors_load(t->ctx, path, t->params, t->n_params) < 0) {
        cti_take(t);
        return cti_error_prefix(t->err, "[model] init");
    }
    cti_tell(&t->say, CT_LOG_INFO, "initial weights from %s", path);
    return CT_OK;
}

int cti_make_model(cti_trainer *t, const ct_dataset_info *info)
{
    t->model = build_model(t, info);
    if (!t->model) {
        if (ct_error_code(t->ctx) == CT_OK)
            return cti_fail(t->err, CT_EINTERNAL,
                            "[model] the model's build failed without a reason");
        return cti_take_setup(t);
    }
    t->n_params = ct_module_state(t->model, NULL, 0);
    t->params = cti_alloc(t->mem, ((size_t)t->n_params + 1) * sizeof *t->params, "trainer");
    if (!t->params)
        return cti_fail(t->err, CT_ENOMEM, "out of memory for the list of parameters");
    ct_module_state(t->model, t->params, t->n_params);
    return load_init(t);
}

/* The path and name of the layer whose output is the model's: "'7' (Linear)". */
static void last_layer(ct_module *m, char *out, size_t cap)
{
    char path[256] = "";
    const char *name;

    while (ct_module_n_children(m) > 0) {
        m = ct_module_child(m, ct_module_n_children(m) - 1, &name);
        snprintf(path + strlen(path), sizeof path - strlen(path), "%s%s", path[0] ? "." : "", name);
    }
    snprintf(out, cap, "'%s' (%s)", path, ct_module_name(m));
}

static int check_output(cti_trainer *t, const ct_tensor *out, const ct_dataset_info *info,
                        int64_t n)
{
    char layer[320], got[128];

    if (!out)
        return cti_take_setup(t);
    if (ct_tensor_ndim(out) == 2 && ct_tensor_size(out, 0) == n &&
        ct_tensor_size(out, 1) == info->n_classes)
        return CT_OK;
    last_layer(t->model, layer, sizeof layer);
    return cti_fail(t->err, CT_ECONFIG,
                    "[model] the last layer, %s, gives %s for %" PRId64
                    " samples, but '%s' has %" PRId64 " classes: expected [%" PRId64 ",%" PRId64
                    "]",
                    layer, ct_tensor_describe(out, got, sizeof got), n, info->name, info->n_classes,
                    n, info->n_classes);
}

/* A batch of zeros of `n` samples: shapes alone matter. */
static int make_zeros(cti_trainer *t, const ct_dataset_info *info, int64_t n, void *field[])
{
    for (int f = 0; f < info->n_fields; f++) {
        size_t bytes = ct_dtype_bytes(info->field[f].dtype) * (size_t)n;
        for (int d = 0; d < info->field[f].ndim; d++)
            bytes *= (size_t)info->field[f].shape[d];
        field[f] = cti_alloc(t->mem, bytes, "model check");
        if (!field[f])
            return cti_fail(t->err, CT_ENOMEM, "out of memory for a batch of %" PRId64, n);
    }
    return CT_OK;
}

/* In training mode the running statistics are put back. */
static int forward_checked(cti_trainer *t, ct_tensor *x, const ct_dataset_info *info, int64_t n,
                           bool training)
{
    ct_tensor **before =
        cti_alloc(t->mem, (size_t)(t->n_params + 1) * sizeof(ct_tensor *), "check");
    int r;

    if (!before)
        return cti_fail(t->err, CT_ENOMEM, "out of memory");
    for (int i = 0; i < t->n_params && training; i++)
        if (t->params[i].is_buffer)
            before[i] = ct_clone(t->params[i].tensor);
    ct_module_train(t->model, training);
    r = check_output(t, ct_module_forward(t->model, x), info, n);
    ct_module_train(t->model, true);
    for (int i = 0; i < t->n_params; i++)
        if (before[i] && ct_tensor_copy(t->ctx, t->params[i].tensor, before[i]) < 0 && r == CT_OK)
            r = cti_take_setup(t);
    cti_free(t->mem, before);
    return r;
}

static int try_model(cti_trainer *t, const ct_dataset_info *info, int64_t n, bool training)
{
    void *field[CT_MAX_FIELDS] = {0};
    cti_feed feed;
    ct_tensor *x, *y;
    int r;

    cti_feed_init(&feed, t->ctx, info);
    r = make_zeros(t, info, n, field);
    if (r == CT_OK && (cti_feed_write(&feed, field, n, &x, &y) < 0 ||
                       ct_scope_begin(t->ctx, CT_SCOPE_NO_GRAD | t->set.autocast) < 0)) {
        r = cti_take_setup(t);
    } else if (r == CT_OK) {
        r = forward_checked(t, x, info, n, training);
        if (ct_scope_end(t->ctx) < 0 && r == CT_OK)
            r = cti_take_setup(t);
    }
    cti_feed_clear(&feed);
    for (int f = 0; f < CT_MAX_FIELDS; f++)
        cti_free(t->mem, field[f]);
    return r;
}

int cti_check_model(cti_trainer *t, ct_dataset *ds)
{
    const ct_dataset_info *info = ct_dataset_get_info(ds);

    if (info->n_classes <= 0)
        return cti_fail(t->err, CT_ECONFIG, "[loss] cross_entropy needs classes, '%s' has none",
                        info->name);
    return try_model(t, info, info->count < 2 ? info->count : 2, false);
}

/* ---- optimizer, schedule ---- */

double cti_weight_decay(const ct_config *c)
{
    double given = cti_config_f64(c, "optimizer", "weight_decay");

    if (!isnan(given))
        return given;
    return strcmp(ct_config_get(c, "optimizer", "name"), "adamw") == 0 ?
               ct_adamw_defaults().weight_decay :
               0;
}

int cti_make_optim(cti_trainer *t, double lr, double weight_decay)
{
    const ct_config *c = t->config;
    const char *name = ct_config_get(c, "optimizer", "name");
    ct_adam_opts a = {
        .lr = lr,
        .beta1 = cti_config_f64(c, "optimizer", "beta1"),
        .beta2 = cti_config_f64(c, "optimizer", "beta2"),
        .eps = cti_config_f64(c, "optimizer", "eps"),
        .weight_decay = weight_decay,
    };
    ct_sgd_opts s = {
        .lr = lr,
        .momentum = cti_config_f64(c, "optimizer", "momentum"),
        .dampening = cti_config_f64(c, "optimizer", "dampening"),
        .nesterov = cti_config_bool(c, "optimizer", "nesterov"),
        .weight_decay = weight_decay,
    };

    if (strcmp(name, "sgd") == 0)
        t->optim = ct_sgd_new(t->ctx, t->params, t->n_params, s);
    else if (strcmp(name, "adam") == 0)
        t->optim = ct_adam_new(t->ctx, t->params, t->n_params, a);
    else
        t->optim = ct_adamw_new(t->ctx, t->params, t->n_params, a);
    if (!t->optim) {
        cti_take_setup(t);
        return cti_error_prefix(t->err, "[optimizer]");
    }
    if (t->set.autocast == CT_SCOPE_AUTOCAST_F16 &&
        ct_optim_set_scaler(t->ctx, t->optim, ct_scaler_defaults()) < 0)
        return cti_take(t);
    return CT_OK;
}

int cti_make_schedule(cti_trainer *t, int64_t total)
{
    static const char *const names[] = {"constant", "onecycle", "cosine", "step"};
    const ct_config *c = t->config;
    const char *name = ct_config_get(c, "schedule", "name");
    double max_lr = cti_config_f64(c, "schedule", "max_lr");
    ct_schedule *s = &t->schedule;
    int kind = 0, r;

    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0)
            kind = i;
    *s = ct_schedule_defaults((ct_schedule_kind)kind, total, isnan(max_lr) ? t->set.lr : max_lr);
    if (kind == CT_SCHEDULE_CONSTANT)
        s->max_lr = t->set.lr;
    s->pct_start = cti_config_f64(c, "schedule", "pct_start");
    s->div_factor = cti_config_f64(c, "schedule", "div_factor");
    s->final_div_factor = cti_config_f64(c, "schedule", "final_div_factor");
    s->three_phase = cti_config_bool(c, "schedule", "three_phase");
    s->linear = strcmp(ct_config_get(c, "schedule", "anneal"), "linear") == 0;
    s->cycle_momentum = cti_config_bool(c, "schedule", "cycle_momentum");
    s->base_momentum = cti_config_f64(c, "schedule", "base_momentum");
    s->max_momentum = cti_config_f64(c, "schedule", "max_momentum");
    s->warmup_steps = cti_config_i64(c, "schedule", "warmup_steps");
    s->warmup_start = cti_config_f64(c, "schedule", "warmup_start");
    s->min_lr = cti_config_f64(c, "schedule", "min_lr");
    s->step_size = cti_config_i64(c, "schedule", "step_size");
    s->gamma = cti_config_f64(c, "schedule", "gamma");
    if (total > 0 && (r = ct_schedule_check(s, t->err)) < 0)
        return r;
    return CT_OK;
}

/* The optimizer's state may grow (SGD gets buffers with its first momentum), so it is listed anew.
 */
int cti_list_slots(cti_trainer *t)
{
    t->n_slots = ct_optim_state(t->optim, NULL, 0);
    if (t->n_slots > t->cap_slots) {
        cti_free(t->mem, t->slots);
        t->cap_slots = t->n_slots;
        t->slots = cti_alloc(t->mem, (size_t)t->n_slots * sizeof *t->slots, "trainer");
        if (!t->slots) {
            t->cap_slots = 0;
            return cti_fail(t->err, CT_ENOMEM, "out of memory for the optimizer's state");
        }
    }
    ct_optim_state(t->optim, t->slots, t->cap_slots);
    return CT_OK;
}

/* ---- all ---- */

static bool has_batch_norm(ct_module *m)
{
    const char *name;

    if (strncmp(ct_module_name(m), "BatchNorm", 9) == 0)
        return true;
    for (int i = 0; i < ct_module_n_children(m); i++)
        if (has_batch_norm(ct_module_child(m, i, &name)))
            return true;
    return false;
}

static int check_batches(cti_trainer *t, const ct_dataset_info *info)
{
    int64_t size = t->set.batch_size, last = info->count % size;
    bool drop = cti_config_bool(t->config, "data", "drop_last");
    char where[300];
    int r;

    cti_config_where(t->config, "data", "batch_size", where, sizeof where);
    if (size > info->count)
        return cti_fail(t->err, CT_ECONFIG,
                        "%s = %" PRId64 " is larger than the dataset: '%s' has %" PRId64
                        " training samples",
                        where, size, info->name, info->count);
    if (!has_batch_norm(t->model) || (size > 1 && (last != 1 || drop)))
        return CT_OK;
    if ((r = try_model(t, info, 1, true)) == CT_OK) /* enough values per channel in one sample */
        return CT_OK;
    if (size == 1)
        return cti_error_prefix(t->err, "%s = 1", where);
    *t->err = (ct_error){0};
    return cti_fail(t->err, CT_ECONFIG,
                    "%s = %" PRId64 ": the last batch of each epoch would have 1 sample (%" PRId64
                    " = %" PRId64 " x %" PRId64 " + 1), and batch norm needs more than one; set "
                    "data.drop_last = true or another data.batch_size",
                    where, size, info->count, info->count / size, size);
}

int64_t cti_total_steps(const cti_trainer *t)
{
    int64_t count = ct_dataset_get_info(t->data.train)->count, steps;
    int64_t batches = count / t->set.batch_size;

    steps = cti_config_i64(t->config, "train", "steps");
    if (steps > 0)
        return steps;
    if (count % t->set.batch_size && !cti_config_bool(t->config, "data", "drop_last"))
        batches++;
    steps = (batches + t->set.accumulate - 1) / t->set.accumulate;
    return t->set.epochs > INT32_MAX / (steps ? steps : 1) ? INT32_MAX : t->set.epochs * steps;
}

int cti_setup(cti_trainer *t, int threads)
{
    const ct_dataset_info *info;
    int r;

    cti_read_settings(&t->set, t->config);
    if ((r = cti_data_open(&t->data, t->config, t->err)) < 0)
        return r;
    info = ct_dataset_get_info(t->data.train);
    if ((r = cti_make_context(t, threads)) < 0 || (r = cti_make_model(t, info)) < 0 ||
        (r = cti_check_model(t, t->data.train)) < 0)
        return r;
    return check_batches(t, info);
}
