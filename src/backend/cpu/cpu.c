/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

const ct_backend cti_backend_cpu = {
    .abi = CT_BACKEND_ABI,
    .name = "cpu",
    .host_memory = true,
    .mem = &cti_cpu_mem,
    .ew = &cti_cpu_ew,
    .reduce = &cti_cpu_reduce,
    .matmul = &cti_cpu_matmul,
    .conv = &cti_cpu_conv,
    .pool = &cti_cpu_pool,
    .norm = &cti_cpu_norm,
    .loss = &cti_cpu_loss,
    .random = &cti_cpu_random,
    .optim = &cti_cpu_optim,
};
