/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10 in kernels: the words that base/rng.c gives. Random123's own header has exceptions
 * in it, which device code's host side is compiled without. */
#ifndef BACKEND_CUDA_PHILOX_CUH
#define BACKEND_CUDA_PHILOX_CUH

#include "backend/backend.h"
#include "backend/cuda/launch.h"

namespace cti
{

struct words {
    uint32_t v[4];
};

/* Of counter (counter, step, micro, ordinal). */
__device__ inline words words_of(const ct_rng &g, uint32_t counter)
{
    uint32_t k0 = g.key.v[0], k1 = g.key.v[1];
    words w = {{counter, g.position ? g.position[0] : g.step, g.position ? g.position[1] : g.micro,
                g.ordinal}};
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)w.v[0] * 0xD2511F53u, b = (uint64_t)w.v[2] * 0xCD9E8D57u;
        w.v[0] = (uint32_t)(b >> 32) ^ w.v[1] ^ k0;
        w.v[2] = (uint32_t)(a >> 32) ^ w.v[3] ^ k1;
        w.v[1] = (uint32_t)b;
        w.v[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return w;
}

/* As cti_u01_f32. */
__device__ inline float u01(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24f;
}

} // namespace cti

#endif
