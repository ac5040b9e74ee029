/* SPDX-License-Identifier: Apache-2.0 */
/* The datasets that a config asks for. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "base/mem.h"
#include "train/config.h"

typedef struct cti_data {
    ct_dataset *source; /* what the splits borrow; NULL when there is no split */
    ct_dataset *train, *val;
} cti_data;

/* Opens [data] and [data.val] and checks that they go together: CT_ECONFIG, CT_EDATA, CT_EFORMAT.
 */
int cti_data_open(cti_data *d, const ct_config *config, ct_error *err);
void cti_data_close(cti_data *d);

#endif
