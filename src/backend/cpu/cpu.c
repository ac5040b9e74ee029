/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/half.h"

#include <stdio.h>

static int probe(int index, char *what, size_t cap)
{
    if (index == 0)
        return snprintf(what, cap, "cpu"), CT_OK;
    snprintf(what, cap, "there is one CPU device, cpu:0");
    return CT_EDEVICE;
}

const ct_backend cti_backend_cpu = {
    .abi = CT_BACKEND_ABI,
    .version = CT_VERSION,
    .name = "cpu",
    .host_memory = true,
    .float_dtypes = 1u << CT_F32 | 1u << CT_F64 | 1u << CT_BF16 | 1u << CT_F16,
    .f32_of_half = true,
    .probe = probe,
    .mem = &cti_cpu_mem,
    .ew = &cti_cpu_ew,
    .reduce = &cti_half_reduce,
    .matmul = &cti_cpu_matmul,
    .conv = &cti_cpu_conv,
    .pool = &cti_half_pool,
    .norm = &cti_half_norm,
    .loss = &cti_half_loss,
    .index = &cti_half_index,
    .image = &cti_half_image,
    .random = &cti_half_random,
    .optim = &cti_cpu_optim,
};
