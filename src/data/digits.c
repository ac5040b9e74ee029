/* SPDX-License-Identifier: Apache-2.0 */
/* The digits of the UCI repository, built into the library (data/digits/README.md). */
#include "data/digits_data.h"
#include "data/idx.h"

#include <stdio.h>

ct_dataset *ct_digits_open(ct_error *err)
{
    cti_idx_set *set = cti_idx_set_new(16, err); /* grey levels are 0..16 */

    if (!set)
        return NULL;
    snprintf(set->name, sizeof(set->name), "digits");
    if (cti_idx_parse("digits (built in): images", cti_digits_images, cti_digits_images_bytes, 3,
                      &set->images, err) < 0 ||
        cti_idx_parse("digits (built in): labels", cti_digits_labels, cti_digits_labels_bytes, 1,
                      &set->labels, err) < 0 ||
        cti_idx_check_pair("digits (built in)", &set->images, "digits (built in)", &set->labels,
                           err) < 0) {
        cti_idx_set_free(set);
        return NULL;
    }
    return cti_idx_set_open(set, "digits", 10, err);
}
