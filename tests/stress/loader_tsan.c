/* SPDX-License-Identifier: Apache-2.0 */
/* The loader in storms, for ThreadSanitizer. A plain main (Criterion doesn't start under it): exit
 * status 0 when all batches were right; the sanitizer reports races by itself.
 *
 *     loader_tsan [ROUNDS]     40 when not given */
#include <ctrain/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 101

typedef struct source {
    int work;    /* turns of a loop per sample: 0 to some thousand */
    int64_t bad; /* this sample fails; -1: none */
} source;

static int source_get(void *self, int64_t i, void *const *out, ct_error *err)
{
    const source *s = self;
    volatile int64_t turns = 0;
    float x = (float)i * 3;
    int64_t label = i % 10;

    while (turns < s->work * (1 + i % 5))
        turns = turns + 1;
    if (i == s->bad)
        return ct_error_set(err, CT_EDATA, "source_get", "bad sample");
    memcpy(out[0], &x, sizeof(x));
    memcpy(out[1], &label, sizeof(label));
    return 0;
}

static ct_dataset *open_source(source *s)
{
    static const ct_dataset_ops ops = {.get = source_get};
    ct_dataset_info info = {.name = "storm",
                            .count = COUNT,
                            .n_fields = 2,
                            .field = {{"x", CT_F32, 0, {0}}, {"label", CT_I64, 0, {0}}},
                            .n_classes = 10};
    return ct_dataset_new(&info, &ops, s, NULL);
}

static uint32_t roll(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

static int batch_is_right(const ct_batch *b, ct_dataset *ds, ct_loader_opts o)
{
    ct_loader *l;
    ct_batch ref;
    ct_error err = {0};
    int right;

    o.workers = 0;
    if (!(l = ct_loader_new(ds, o, &err)) || ct_loader_seek(l, b->epoch, b->index, &err) < 0 ||
        ct_loader_next(l, &ref, &err) != 1) {
        fprintf(stderr, "reference: %s\n", err.text);
        ct_loader_free(l);
        return 0;
    }
    right = ref.count == b->count && !memcmp(ref.ids, b->ids, (size_t)b->count * sizeof(*b->ids)) &&
            !memcmp(ref.field[0], b->field[0], (size_t)b->count * sizeof(float)) &&
            !memcmp(ref.field[1], b->field[1], (size_t)b->count * sizeof(int64_t));
    ct_loader_free(l);
    return right;
}

/* Does anything a caller may do, in any order. */
static int storm(uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1;
    source s = {.work = (int)(roll(&x) % 300),
                .bad = roll(&x) % 3 ? -1 : (int64_t)(roll(&x) % COUNT)};
    ct_dataset *ds = open_source(&s);
    ct_loader_opts o = {.batch_size = 1 + roll(&x) % 20,
                        .workers = (int)(roll(&x) % 5),
                        .prefetch = 1 + (int)(roll(&x) % 6),
                        .shuffle = roll(&x) % 2,
                        .drop_last = roll(&x) % 2,
                        .seed = seed};
    ct_loader *l = ds ? ct_loader_new(ds, o, NULL) : NULL;
    int wrong = !l, turns = (int)(roll(&x) % 120);

    for (int i = 0; l && i < turns && !wrong; i++) {
        ct_error err = {0};
        ct_batch b;
        uint32_t what = roll(&x) % 8;
        if (what == 0 && ct_loader_seek(l, roll(&x) % 4,
                                        roll(&x) % (uint32_t)(ct_loader_batches(l) + 1), &err) < 0)
            wrong = 1;
        if (what == 0)
            continue;
        int r = ct_loader_next(l, &b, &err);
        if (r < 0 && s.bad < 0)
            wrong = 1;
        if (r == 1 && what == 1 && s.bad < 0 && !batch_is_right(&b, ds, o))
            wrong = 1;
        if (what < 5)
            ct_loader_release(l, &b);
    }
    ct_loader_free(l); /* workers are busy, and a batch may be held */
    ct_dataset_free(ds);
    if (wrong)
        fprintf(stderr, "loader_tsan: storm %u: wrong\n", (unsigned)seed);
    return wrong;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 40, wrong = 0;

    for (int i = 0; i < rounds; i++)
        wrong += storm((uint32_t)i);
    printf("loader_tsan: %d storms, %d wrong\n", rounds, wrong);
    return wrong ? 1 : 0;
}
