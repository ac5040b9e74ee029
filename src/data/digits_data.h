/* SPDX-License-Identifier: Apache-2.0 */
/* The files of data/digits as arrays. The build makes their definitions:
 *   tools/embed OUT.c cti_digits_images=FILE cti_digits_labels=FILE */
#ifndef DATA_DIGITS_DATA_H
#define DATA_DIGITS_DATA_H

#include <stddef.h>

extern const unsigned char cti_digits_images[];
extern const size_t cti_digits_images_bytes;
extern const unsigned char cti_digits_labels[];
extern const size_t cti_digits_labels_bytes;

#endif
