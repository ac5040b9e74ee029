/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by logical index: element i takes word i % 4 of Philox counter (i / 4, step, micro,
 * ordinal), wherever it lies in memory.
 *
 *  dropout  u = the word's upper 24 bits, for f32 and f64 alike: one mask.
 *  uniform  f32: the same 24 bits. f64: 53 bits, the word in front and one of the counter with ordinal +
 *           2^31 behind it, so that f32 and f64 draws agree to f32's precision. Ordinals stay below 2^31.
 *  normal   Box-Muller in double on words 2k and 2k + 1 (u = (w + 1/2) / 2^32, so never 0, and 6.7
 *           sigma is the end): elements 2k and 2k + 1 are r cos and r sin. f32 is the double, rounded. */
#include "backend/cpu/loop.h"

#include <math.h>

enum { CHUNK = 512 }; /* elements of a task */

#define ROUND                                                                      \
    do {                                                                           \
        uint64_t a_ = (uint64_t)c0 * 0xD2511F53u, b_ = (uint64_t)c2 * 0xCD9E8D57u; \
        c0 = (uint32_t)(b_ >> 32) ^ c1 ^ k0;                                       \
        c2 = (uint32_t)(a_ >> 32) ^ c3 ^ k1;                                       \
        c1 = (uint32_t)b_;                                                         \
        c3 = (uint32_t)a_;                                                         \
        k0 += 0x9E3779B9u;                                                         \
        k1 += 0xBB67AE85u;                                                         \
    } while (0)

/* Words of the counters first.. in logical order, as cti_rng_words. Straight-line rounds, so that the loop
 * over counters vectorises. */
static CTI_ISA void philox(const ct_rng *g, uint32_t ordinal, uint32_t first,
                           uint32_t *restrict out)
{
    uint32_t key0 = g->key.v[0], key1 = g->key.v[1], step = g->step, micro = g->micro;

    for (uint32_t j = 0; j < CHUNK / 4; j++) {
        uint32_t c0 = first + j, c1 = step, c2 = micro, c3 = ordinal, k0 = key0, k1 = key1;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        out[4 * j] = c0;
        out[4 * j + 1] = c1;
        out[4 * j + 2] = c2;
        out[4 * j + 3] = c3;
    }
}
#undef ROUND

typedef struct job {
    cti_loop l; /* in row-major order */
    const ct_rng *rng;
    cti_span_fn fn;
    bool wide; /* needs second words */
    int beta;
    uint32_t threshold; /* dropout keeps words >> 8 from here on */
    double a, b;        /* scale; low, width; mean, std */
} job;

/* One chunk under way: words, and the next to use. */
typedef struct chunk {
    const job *j;
    int64_t at;
    const uint32_t *w, *w2;
    const double *z;
} chunk;

#define DROPOUT(T, S)                                                                          \
    CTI_INLINE void dropout_row_##S(char *y, int64_t ys, const char *x, int64_t xs, int64_t n, \
                                    const uint32_t *w, const job *j)                           \
    {                                                                                          \
        T scale = (T)j->a;                                                                     \
        uint32_t from = j->threshold;                                                          \
        int beta = j->beta;                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                      \
            T v = *(const T *)(x + i * xs) * scale, *to = (T *)(y + i * ys);                   \
            v = w[i] >> 8 >= from ? v : 0;                                                     \
            *to = beta ? *to + v : v;                                                          \
        }                                                                                      \
    }                                                                                          \
    static CTI_ISA void dropout_##S(const cti_span *sp, const void *arg)                       \
    {                                                                                          \
        chunk *c = *(chunk *const *)arg;                                                       \
        int64_t size = (int64_t)sizeof(T);                                                     \
        for (int64_t r = 0; r < sp->rows; r++) {                                               \
            char *y = sp->p[0] + r * sp->rs[0];                                                \
            const char *x = sp->p[1] + r * sp->rs[1];                                          \
            if (sp->s[0] == size && sp->s[1] == size)                                          \
                dropout_row_##S(y, sizeof(T), x, sizeof(T), sp->n, c->w + c->at, c->j);        \
            else                                                                               \
                dropout_row_##S(y, sp->s[0], x, sp->s[1], sp->n, c->w + c->at, c->j);          \
            c->at += sp->n;                                                                    \
        }                                                                                      \
    }

/* low + width u and mean + std z in the tensor's dtype. */
#define DRAWS(T, S, U01)                                                             \
    static void uniform_##S(const cti_span *sp, const void *arg)                     \
    {                                                                                \
        chunk *c = *(chunk *const *)arg;                                             \
        T low = (T)c->j->a, width = (T)c->j->b;                                      \
        for (int64_t r = 0; r < sp->rows; r++)                                       \
            for (int64_t i = 0; i < sp->n; i++, c->at++)                             \
                *(T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]) = U01 * width + low; \
    }                                                                                \
    static void normal_##S(const cti_span *sp, const void *arg)                      \
    {                                                                                \
        chunk *c = *(chunk *const *)arg;                                             \
        for (int64_t r = 0; r < sp->rows; r++)                                       \
            for (int64_t i = 0; i < sp->n; i++, c->at++)                             \
                *(T *)(sp->p[0] + r * sp->rs[0] + i * sp->s[0]) =                    \
                    (T)(c->z[c->at] * c->j->b + c->j->a);                            \
    }

DROPOUT(float, f32)
DROPOUT(double, f64)
DRAWS(float, f32, cti_u01_f32(c->w[c->at]))
DRAWS(double, f64, cti_u01_f64(c->w[c->at], c->w2[c->at]))
#undef DROPOUT
#undef DRAWS

static void box_muller(const uint32_t *w, double *z, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2) {
        double u = ((double)w[i] + 0.5) * 0x1p-32, v = ((double)w[i + 1] + 0.5) * 0x1p-32;
        double r = sqrt(-2 * log(u)), t = 6.283185307179586477 * v;
        z[i] = r * cos(t);
        z[i + 1] = r * sin(t);
    }
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    uint32_t w[CHUNK], w2[CHUNK];
    double z[CHUNK];
    bool normal = j->fn == normal_f32 || j->fn == normal_f64;

    for (int64_t t = begin; t < end; t++) {
        int64_t b = t * CHUNK, e = CTI_MIN(b + CHUNK, j->l.numel);
        chunk c = {j, 0, w, w2, z}, *at = &c;
        philox(j->rng, j->rng->ordinal, (uint32_t)(b / 4), w);
        if (j->wide)
            philox(j->rng, j->rng->ordinal ^ 0x80000000u, (uint32_t)(b / 4), w2);
        if (normal)
            box_muller(w, z, (e - b + 1) / 2 * 2);
        cti_loop_range(&j->l, b, e, j->fn, &at);
    }
}

/* The words of an element cost about this many elements of a plain loop. */
enum { WORD_COST = 4 };

static int run(ct_stream *s, job *j, const ct_view *y, const ct_view *x, cti_span_fn f32,
               cti_span_fn f64)
{
    const ct_view *v[] = {y, x};

    if ((y->dtype != CT_F32 && y->dtype != CT_F64) || x->dtype != y->dtype)
        return CT_EDTYPE;
    j->fn = y->dtype == CT_F32 ? f32 : f64;
    cti_loop_init_dims(&j->l, 2, v, ~0u, false);
    cti_parallel(s, cti_ceil_div(j->l.numel, CHUNK), j->l.numel * WORD_COST, task, j);
    return CT_OK;
}

static int dropout(ct_stream *s, const ct_view *y, int beta, const ct_view *x, double p,
                   const ct_rng *rng)
{
    /* u >= p with u = (w >> 8) / 2^24. At p = 1 nothing is kept, and the scale isn't inf. */
    job j = {.rng = rng, .beta = beta, .a = p < 1 ? 1 / (1 - p) : 0};
    j.threshold = p <= 0 ? 0 : p >= 1 ? UINT32_MAX : (uint32_t)ceil(p * 0x1p24);
    return run(s, &j, y, x, dropout_f32, dropout_f64);
}

static int uniform(ct_stream *s, const ct_view *y, double low, double high, const ct_rng *rng)
{
    job j = {.rng = rng, .a = low, .b = high - low, .wide = y->dtype == CT_F64};
    return run(s, &j, y, y, uniform_f32, uniform_f64);
}

static int normal(ct_stream *s, const ct_view *y, double mean, double std, const ct_rng *rng)
{
    job j = {.rng = rng, .a = mean, .b = std};
    return run(s, &j, y, y, normal_f32, normal_f64);
}

const ct_k_random cti_cpu_random = {
    .dropout = dropout,
    .uniform = uniform,
    .normal = normal,
};
