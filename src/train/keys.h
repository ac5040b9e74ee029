/* SPDX-License-Identifier: Apache-2.0 */
/* The table of config keys: parser, `ctrain keys`, docs and errors are made from it. */
#ifndef TRAIN_KEYS_H
#define TRAIN_KEYS_H

#include "train/config.h"

typedef enum cti_key_type {
    CTI_KEY_STRING,
    CTI_KEY_PATH, /* relative to the config file's folder */
    CTI_KEY_INT,
    CTI_KEY_FLOAT,
    CTI_KEY_BOOL,   /* true, false */
    CTI_KEY_CHOICE, /* one of `allowed`, which lists them separated by '|' */
    CTI_KEY_INTERVAL
} cti_key_type;

typedef struct cti_key {
    const char *section, *name;
    cti_key_type type;
    const char *default_value;
    const char *allowed; /* CHOICE: the words; else the range in words, checked by min and max */
    double min, max;     /* INT, FLOAT: inclusive, unless `open` */
    bool open;           /* the bounds themselves are not allowed */
    cti_resume_class resume;
    const char *doc;
} cti_key;

extern const cti_key cti_keys[];
extern const int cti_n_keys;

const cti_key *cti_key_find(const char *section, const char *name); /* NULL: unknown */

#endif
