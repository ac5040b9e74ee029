/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <Random123/philox.h>
#include <assert.h>

/* Part of what a seed means, as the stream numbers are: never change. */
#define KEY_OF_KEYS     0x63747261u /* "ctra" */
#define KEY_COUNTER     0x696e3031u /* "in01" */
#define PERMUTE_COUNTER 0x7065726du /* "perm": apart from the draws of the same key */

enum { PERMUTE_ROUNDS = 10 };

cti_rng_key cti_rng_key_make(uint64_t seed, uint32_t stream)
{
    philox4x32_ctr_t c = {{(uint32_t)seed, (uint32_t)(seed >> 32), stream, KEY_COUNTER}};
    philox4x32_key_t k = {{KEY_OF_KEYS, KEY_COUNTER}};
    philox4x32_ctr_t r = philox4x32(c, k);

    return (cti_rng_key){{r.v[0], r.v[1]}};
}

void cti_rng_words(cti_rng_key key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                   uint32_t out[4])
{
    philox4x32_ctr_t c = {{c0, c1, c2, c3}};
    philox4x32_key_t k = {{key.v[0], key.v[1]}};
    philox4x32_ctr_t r = philox4x32(c, k);

    for (int i = 0; i < 4; i++)
        out[i] = r.v[i];
}

/* MurmurHash3's finalizer: each bit of x reaches each bit of the result. */
static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

uint64_t cti_permute(cti_rng_key key, uint32_t epoch, uint64_t n, uint64_t k)
{
    int half = 4; /* bits of one side; both cover n, and 8 bits at least, to mix well */
    uint32_t mask, left, right, w[4];

    assert(k < n);
    if (n < 2)
        return 0;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    mask = half == 32 ? UINT32_MAX : ((uint32_t)1 << half) - 1;
    /* Philox makes the keys of the rounds; inside a round a cheap mixer is enough. */
    cti_rng_words(key, epoch, 0, 0, PERMUTE_COUNTER, w);
    /* A walk along the cycle of k ends inside 0..n-1 since k is inside; fewer than four steps on
     * average once n is above 64. */
    do {
        left = (uint32_t)(k >> half);
        right = (uint32_t)(k & mask);
        for (uint32_t round = 0; round < PERMUTE_ROUNDS; round++) {
            uint32_t next =
                left ^ (mix(mix(right + w[round & 3]) ^ (w[(round + 1) & 3] + round)) & mask);
            left = right;
            right = next;
        }
        k = ((uint64_t)left << half) | right;
    } while (k >= n);
    return k;
}
