/* SPDX-License-Identifier: Apache-2.0 */
/* What the data folder shares about datasets. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <ctrain/data.h>
#include <stdbool.h>
#include <stddef.h>

/* a * b for sizes; false when it doesn't fit (or either is negative). */
bool cti_size_mul(int64_t a, int64_t b, int64_t *out);

/* Bytes of one sample's field; checked when the dataset was made. */
int64_t cti_field_bytes(const ct_field *f);

/* ct_dataset_get for one who must not go on with a bad sample: also checks the class label, and the
 * error's text begins with the sample's name. `err` must be clear. */
CT_NODISCARD int cti_dataset_fetch(ct_dataset *ds, int64_t index, void *const *out, ct_error *err);

#endif
