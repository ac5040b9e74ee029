/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Test(base_rng, words_equal_the_known_answers_of_random123)
{
    static const struct {
        uint32_t c[4], k[2], want[4];
    } v[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (int i = 0; i < 3; i++) {
        cti_rng_key key = {{v[i].k[0], v[i].k[1]}};
        uint32_t out[4];
        cti_rng_words(key, v[i].c[0], v[i].c[1], v[i].c[2], v[i].c[3], out);
        for (int j = 0; j < 4; j++)
            cr_assert_eq(out[j], v[i].want[j], "vector %d word %d: %08x", i, j, out[j]);
    }
}

Test(base_rng, the_meaning_of_a_seed_is_pinned)
{
    /* What these were when the first run was made with them: a change breaks every saved seed. */
    cti_rng_key k = cti_rng_key_make(42, CTI_STREAM_SHUFFLE);
    static const uint64_t want[10] = {7, 0, 9, 4, 6, 2, 8, 3, 5, 1};

    cr_assert_eq(k.v[0], 0x94d1f354, "%08x", k.v[0]);
    cr_assert_eq(k.v[1], 0x10dc2676, "%08x", k.v[1]);
    for (uint64_t i = 0; i < 10; i++)
        cr_assert_eq(cti_permute(k, 3, 10, i), want[i]);
}

Test(base_rng, keys_of_near_seeds_and_streams_differ_everywhere)
{
    /* Over all pairs of neighbours about half of the 64 bits must flip: 32 +- a few. */
    double flips = 0;
    int n = 0;

    for (uint64_t seed = 0; seed < 200; seed++)
        for (uint32_t stream = 1; stream <= 7; stream++) {
            cti_rng_key a = cti_rng_key_make(seed, stream);
            cti_rng_key b[3] = {cti_rng_key_make(seed + 1, stream),
                                cti_rng_key_make(seed, stream + 1),
                                cti_rng_key_make(seed + ((uint64_t)1 << 32), stream)};
            for (int i = 0; i < 3; i++, n++) {
                cr_assert(memcmp(&a, &b[i], sizeof a) != 0);
                for (int w = 0; w < 2; w++)
                    for (uint32_t x = a.v[w] ^ b[i].v[w]; x; x &= x - 1)
                        flips++;
            }
        }
    cr_assert_float_eq(flips / n, 32.0, 0.4);
}

Test(base_rng, uniform_numbers_stay_below_one_and_reach_both_ends)
{
    cr_assert_eq(cti_u01_f32(0), 0.0f);
    cr_assert_eq(cti_u01_f32(0xff), 0.0f);
    cr_assert_eq(cti_u01_f32(0xffffffff), 1.0f - 0x1p-24f);
    cr_assert_eq(cti_u01_f32(0x80000000), 0.5f);
    cr_assert_eq(cti_u01_f64(0, 0), 0.0);
    cr_assert_eq(cti_u01_f64(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
    cr_assert_eq(cti_u01_f64(0x80000000, 0), 0.5);
}

Test(base_rng, a_permutation_takes_each_number_once)
{
    static const uint64_t sizes[] = {1, 2, 3, 10, 255, 256, 257, 1797, 60000};

    for (int s = 0; s < 9; s++) {
        uint64_t n = sizes[s];
        unsigned char *seen = malloc(n);
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            cti_rng_key key = cti_rng_key_make(epoch * 77u + n, CTI_STREAM_SHUFFLE);
            memset(seen, 0, n);
            for (uint64_t k = 0; k < n; k++) {
                uint64_t v = cti_permute(key, epoch, n, k);
                cr_assert_lt(v, n);
                cr_assert_not(seen[v], "n %lu epoch %u: %lu twice", n, epoch, v);
                seen[v] = 1;
            }
        }
        free(seen);
    }
}

Test(base_rng, a_permutation_works_up_to_the_largest_sizes)
{
    static const uint64_t sizes[] = {((uint64_t)1 << 32) - 1, ((uint64_t)1 << 32) + 1,
                                     ((uint64_t)1 << 40) + 7, (uint64_t)1 << 63, UINT64_MAX};
    cti_rng_key key = cti_rng_key_make(1, CTI_STREAM_SHUFFLE);

    for (int s = 0; s < 5; s++) {
        uint64_t a = cti_permute(key, 0, sizes[s], 0), b = cti_permute(key, 0, sizes[s], 1);
        uint64_t c = cti_permute(key, 0, sizes[s], sizes[s] - 1);
        cr_assert(a < sizes[s] && b < sizes[s] && c < sizes[s]);
        cr_assert(a != b && b != c && a != c);
    }
}

Test(base_rng, seeds_and_epochs_give_other_orders)
{
    cti_rng_key a = cti_rng_key_make(1, CTI_STREAM_SHUFFLE);
    cti_rng_key b = cti_rng_key_make(2, CTI_STREAM_SHUFFLE);
    int same_seed = 0, same_epoch = 0, fixed = 0;

    for (uint64_t k = 0; k < 1797; k++) {
        uint64_t v = cti_permute(a, 0, 1797, k);
        same_seed += v == cti_permute(b, 0, 1797, k);
        same_epoch += v == cti_permute(a, 1, 1797, k);
        fixed += v == k;
        cr_assert_eq(v, cti_permute(a, 0, 1797, k), "a pure function");
    }
    /* Each is Poisson with mean 1. */
    cr_assert_lt(same_seed, 9);
    cr_assert_lt(same_epoch, 9);
    cr_assert_lt(fixed, 9);
}

/* Chi-square over `cells` counts of equal expectation, as a number of standard deviations. */
static double chi2_z(const int *count, int cells, double expected, int dof)
{
    double x = 0;

    for (int i = 0; i < cells; i++)
        x += (count[i] - expected) * (count[i] - expected) / expected;
    return (x - dof) / sqrt(2.0 * dof);
}

Test(base_rng, every_number_comes_equally_often_at_every_position)
{
    enum { N = 10, EPOCHS = 20000 };
    cti_rng_key key = cti_rng_key_make(7, CTI_STREAM_SHUFFLE);
    int count[N * N] = {0};

    for (uint32_t e = 0; e < EPOCHS; e++)
        for (uint64_t k = 0; k < N; k++)
            count[k * N + cti_permute(key, e, N, k)]++;
    /* Rows and columns have fixed sums: (N-1)^2 degrees of freedom. */
    double z = chi2_z(count, N * N, EPOCHS / (double)N, (N - 1) * (N - 1));
    cr_assert_lt(fabs(z), 4.0, "z = %g", z);
}

Test(base_rng, neighbours_are_independent)
{
    enum { N = 10, EPOCHS = 20000 };
    cti_rng_key key = cti_rng_key_make(8, CTI_STREAM_SHUFFLE);
    int count[N * (N - 1)] = {0};

    for (uint32_t e = 0; e < EPOCHS; e++) {
        uint64_t at = e % (N - 1); /* one pair an epoch, so that the counts are independent */
        int a = (int)cti_permute(key, e, N, at), b = (int)cti_permute(key, e, N, at + 1);
        count[a * (N - 1) + (b < a ? b : b - 1)]++;
    }
    double z = chi2_z(count, N * (N - 1), EPOCHS / (double)(N * (N - 1)), N * (N - 1) - 1);
    cr_assert_lt(fabs(z), 4.0, "z = %g", z);
}

Test(base_rng, all_orders_of_five_come_equally_often)
{
    enum { N = 5, ORDERS = 120, EPOCHS = 60000 };
    cti_rng_key key = cti_rng_key_make(9, CTI_STREAM_SHUFFLE);
    int count[ORDERS] = {0};

    for (uint32_t e = 0; e < EPOCHS; e++) {
        uint64_t v[N];
        int rank = 0;
        for (uint64_t k = 0; k < N; k++)
            v[k] = cti_permute(key, e, N, k);
        for (int i = 0; i < N; i++) {
            int smaller = 0;
            for (int j = i + 1; j < N; j++)
                smaller += v[j] < v[i];
            rank = rank * (N - i) + smaller;
        }
        count[rank]++;
    }
    double z = chi2_z(count, ORDERS, EPOCHS / (double)ORDERS, ORDERS - 1);
    cr_assert_lt(fabs(z), 4.0, "z = %g", z);
}

Test(base_rng, large_orders_show_no_trend)
{
    /* Correlation of position and value, and of neighbours' values: within 4 / sqrt(n). */
    enum { N = 60000 };
    cti_rng_key key = cti_rng_key_make(10, CTI_STREAM_SHUFFLE);
    double mean = (N - 1) / 2.0, var = ((double)N * N - 1) / 12.0;
    double trend = 0, pairs = 0, last = 0;

    for (uint64_t k = 0; k < N; k++) {
        double v = (double)cti_permute(key, 0, N, k) - mean;
        trend += v * ((double)k - mean);
        if (k > 0)
            pairs += v * last;
        last = v;
    }
    cr_assert_lt(fabs(trend / N / var), 4 / sqrt(N));
    cr_assert_lt(fabs(pairs / N / var), 4 / sqrt(N));
}
