/* SPDX-License-Identifier: Apache-2.0 */
/* Typed reading of a checked config: the names exist and the values have been checked, so these
 * can't fail. */
#ifndef TRAIN_CONFIG_H
#define TRAIN_CONFIG_H

#include <ctrain/train.h>

/* "500st", "2ep", "10min", or a bare number of optimizer steps. value 0: never. */
typedef enum cti_interval_unit { CTI_STEPS, CTI_EPOCHS, CTI_MINUTES } cti_interval_unit;
typedef struct cti_interval {
    cti_interval_unit unit;
    double value;
} cti_interval;

int64_t cti_config_i64(const ct_config *c, const char *section, const char *key);
double cti_config_f64(const ct_config *c, const char *section, const char *key);
bool cti_config_bool(const ct_config *c, const char *section, const char *key);
cti_interval cti_config_interval(const ct_config *c, const char *section, const char *key);
/* True when the file or an override gave the key, false when the default is in force. */
bool cti_config_is_set(const ct_config *c, const char *section, const char *key);
/* ct_config_load of a text that is in memory (NULL: none); `path` is where it is said to stand:
 * for messages and for the relative paths in it (NULL: below the current directory). Owned. */
ct_config *cti_config_parse(const char *path, const char *text, size_t bytes,
                            const char *const *overrides, int n_overrides,
                            const ct_model_def *const *models, ct_error *err);

/* The file the config came from ("" when none), for messages; "FILE:LINE" of a key or "--set". */
const char *cti_config_path(const ct_config *c);
void cti_config_where(const ct_config *c, const char *section, const char *key, char *out,
                      size_t cap);

/* The model asked for; NULL for name = layers. */
const ct_model_def *cti_config_model(const ct_config *c);

/* How a key may differ when a run is resumed. */
typedef enum cti_resume_class {
    CTI_RESUME_FREE,    /* changes nothing that is computed: log.every, workers */
    CTI_RESUME_CHANGES, /* allowed, listed: the run goes on differently (lr, epochs) */
    CTI_RESUME_REFUSED  /* weights, data or order would not fit: model, dataset, seed, batch_size */
} cti_resume_class;
/* Calls fn for each key whose value differs between the two. */
void cti_config_diff(const ct_config *old_config, const ct_config *new_config,
                     void (*fn)(const char *section, const char *key, const char *old_value,
                                const char *new_value, cti_resume_class cls, void *user),
                     void *user);

#endif
