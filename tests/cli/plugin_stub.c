/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of another version: what ctrain reads of one before it trusts it. */
#include "backend/backend.h"

__attribute__((visibility("default"))) const ct_backend ctrain_backend = {
    .abi = STUB_ABI, .version = STUB_VERSION, .name = "cuda"};
