/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, by Random123). A draw is a pure
 * function of (seed, stream, four counters); nothing here has a state. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* Each use of randomness has a stream of its own, so that one never disturbs another. The numbers
 * are part of what a seed means: never renumber. */
typedef enum cti_stream_id {
    CTI_STREAM_INIT = 1,
    CTI_STREAM_SHUFFLE = 2,
    CTI_STREAM_AUGMENT = 3,
    CTI_STREAM_DROPOUT = 4,
    CTI_STREAM_EVAL = 5,
    CTI_STREAM_SPLIT = 6,
    CTI_STREAM_USER = 7,
} cti_stream_id;

typedef struct cti_rng_key {
    uint32_t v[2];
} cti_rng_key;

/* The Philox key of (seed, stream): a Philox hash of both, so that near seeds are unrelated. */
cti_rng_key cti_rng_key_make(uint64_t seed, uint32_t stream);

/* Four uniform 32-bit words for the counter (c0, c1, c2, c3). */
void cti_rng_words(cti_rng_key key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                   uint32_t out[4]);

/* [0, 1): 24 and 53 bits of randomness, as PyTorch's uniform_. */
static inline float cti_u01_f32(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24f;
}
static inline double cti_u01_f64(uint32_t hi, uint32_t lo)
{
    return (double)((((uint64_t)hi << 32) | lo) >> 11) * 0x1p-53;
}

/* A keyed permutation of 0..n-1: the k-th element, by a Feistel network with cycle walking. A pure
 * function, so an epoch's order needs neither memory nor state. 0 <= k < n. */
uint64_t cti_permute(cti_rng_key key, uint32_t epoch, uint64_t n, uint64_t k);

#endif
