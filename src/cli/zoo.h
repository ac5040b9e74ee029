/* SPDX-License-Identifier: Apache-2.0 */
/* The models that are compiled into the program (models/zoo.c). */
#ifndef CLI_ZOO_H
#define CLI_ZOO_H

#include <ctrain/nn.h>

extern const ct_model_def *const ct_zoo[]; /* ends with NULL */

#endif
