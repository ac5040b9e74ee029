/* SPDX-License-Identifier: Apache-2.0 */
/* A run: config, trainer, checkpoints. What `ctrain` does, an application can do with these. */
#ifndef CTRAIN_TRAIN_H
#define CTRAIN_TRAIN_H

#include <ctrain/data.h>
#include <ctrain/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- safetensors ---- */

/* Writes names and tensors (row-major), in the order of descending alignment, then name, 64-byte aligned
 * data, no times or paths. Atomic. */
CT_NODISCARD int ct_safetensors_save(ct_ctx *ctx, const char *path, const ct_named_tensor *tensors,
                                     int n);
/* Writes the file's values into `tensors` by name, converting float dtypes. Strict: missing, unexpected and
 * misshapen names are all listed in one CT_ECONFIG, and then nothing was changed. CT_EFORMAT: cut file,
 * overlapping or lying offsets, wrong header; says when the file is really a git-lfs pointer, HTML or a
 * zip (PyTorch's .pth). */
CT_NODISCARD int ct_safetensors_load(ct_ctx *ctx, const char *path, const ct_named_tensor *tensors,
                                     int n);

/* ---- config ---- */

typedef struct ct_config ct_config;

/* Reads an INI file (NULL: none, all defaults), applies overrides ("section.key=value"), checks every
 * key against the table and against the models' own keys. All mistakes of the file are in one text, a line
 * each: "FILE:LINE:COL: what; did you mean ...?". CT_ECONFIG, CT_EIO. Owned. */
CT_NODISCARD ct_config *ct_config_load(const char *path, const char *const *overrides,
                                       int n_overrides, const ct_model_def *const *models,
                                       ct_error *err);
void ct_config_free(ct_config *c);
/* The value in force as text; NULL for an unknown name. Borrowed. */
const char *ct_config_get(const ct_config *c, const char *section, const char *key);
/* Every key with its value in force, as an INI text that reads back to the same run (paths absolute).
 * Borrowed. */
const char *ct_config_text(ct_config *c);

/* One key of the table, for `ctrain keys` and the docs. */
typedef struct ct_config_key {
    const char *section, *name, *type, *default_value, *allowed, *doc;
} ct_config_key;
/* All keys in the table's order: the i-th; false past the end. */
bool ct_config_key_at(int i, ct_config_key *out);

/* ---- a run ---- */

typedef enum ct_log_level { CT_LOG_ERROR, CT_LOG_WARN, CT_LOG_INFO, CT_LOG_DETAIL } ct_log_level;

typedef struct ct_progress {
    int64_t step, total_steps, epoch, total_epochs;
    double loss, lr, grad_norm, samples_per_s, wait_fraction, eta_s;
} ct_progress;

typedef struct ct_run_opts {
    const ct_model_def *const *models; /* ends with NULL */
    bool resume;
    const char *resume_from; /* NULL or "last", "best", or a run or checkpoint directory */
    bool overfit_one_batch;
    bool dry_run; /* check everything, train nothing */
    /* Lines for people (no final newline), and the state after each step (for a progress bar). Called from
     * ct_run's thread. Optional. */
    void (*on_line)(ct_log_level level, const char *text, void *user);
    void (*on_progress)(const ct_progress *p, void *user);
    /* Polled after each step: true asks for a save and CT_EINTERRUPTED. Optional. */
    bool (*should_stop)(void *user);
    void *user;
} ct_run_opts;
ct_run_opts ct_run_defaults(void);

typedef struct ct_run_result {
    char dir[1024];                       /* the run directory; "" for a dry run and overfit */
    int64_t step, epoch;                  /* done */
    double train_loss, val_loss, val_acc; /* of the last evaluation; NaN when there was none */
    double best;
    int64_t best_step;
    double train_s;    /* time in steps, evaluation and saving */
    bool already_done; /* the resumed run had finished before */
} ct_run_result;

/* Trains as the config says. 0, or the error (also in err): CT_ECONFIG, CT_EDATA, CT_EFORMAT, CT_ENONFINITE,
 * CT_ECHECK (overfit-one-batch failed), CT_EDEVICE, CT_ENOMEM, CT_EIO, CT_EBUSY, CT_EINTERRUPTED. */
CT_NODISCARD int ct_run(const ct_config *config, ct_run_opts opts, ct_run_result *out,
                        ct_error *err);

/* Evaluates a checkpoint, or a run's best (else last) one, on its validation data; `config` NULL: the
 * one saved with the run. */
typedef struct ct_eval_result {
    char checkpoint[1024];
    int64_t step, samples;
    double loss, accuracy; /* accuracy NaN when the target is no class */
} ct_eval_result;
CT_NODISCARD int ct_eval(const char *dir, const char *const *overrides, int n_overrides,
                         ct_run_opts opts, ct_eval_result *out, ct_error *err);

#ifdef __cplusplus
}
#endif
#endif
