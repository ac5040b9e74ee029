/* SPDX-License-Identifier: Apache-2.0 */
/* The loader, as its tests see it. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "base/mem.h"
#include <ctrain/data.h>

/* All memory of a loader is its own and comes from here: `calls` stands still after ct_loader_new. */
cti_mem_stats cti_loader_mem_stats(const ct_loader *l);

#endif
