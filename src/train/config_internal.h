/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_CONFIG_INTERNAL_H
#define TRAIN_CONFIG_INTERNAL_H

#include "base/mem.h"
#include "train/config.h"
#include "train/keys.h"

/* The value in force of one key, and where it came from. */
typedef struct cti_value {
    char *text; /* owned */
    bool set;   /* by the file or by --set */
    bool by_override;
    int line, column; /* of the key in the file */
} cti_value;

struct ct_config {
    cti_mem *mem;
    char *path; /* owned; "" for none */
    const ct_model_def *const *models;
    const ct_model_def *model; /* NULL: layers */
    cti_value *value;          /* [cti_n_keys] */
    cti_value model_value[CT_MODEL_MAX_KEYS];
    char *text; /* of ct_config_text; owned */
};

/* One name for a key of the table and for a model's own key: where its value is. NULL: unknown. */
cti_value *cti_config_value(const ct_config *c, const char *section, const char *name);

bool cti_parse_i64(const char *s, int64_t *out);
bool cti_parse_f64(const char *s, double *out); /* finite alone; '.' whatever the locale */
bool cti_parse_bool(const char *s, bool *out);
bool cti_parse_interval(const char *s, cti_interval *out);
bool cti_is_device(const char *s);   /* auto, cpu, cuda, cuda:N */
bool cti_is_run_name(const char *s); /* may begin a folder's name */

#endif
