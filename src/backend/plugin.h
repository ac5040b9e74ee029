/* SPDX-License-Identifier: Apache-2.0 */
/* Backends that are opened at run time. */
#ifndef BACKEND_PLUGIN_H
#define BACKEND_PLUGIN_H

#include "backend/backend.h"

/* The CUDA backend; NULL with the reason in `why` ("no NVIDIA driver (libcuda.so.1 not found)"). Once
 * opened it stays loaded. The probe for a driver costs 0.1 ms, opening the plug-in far more. */
const ct_backend *cti_plugin_cuda(char *why, size_t cap);

#endif
