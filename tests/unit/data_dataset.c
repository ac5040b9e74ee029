/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets: what is refused when one is made, what one gives, the built-in digits, the split. */
#include "data/dataset.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- an application's own dataset ---- */

typedef struct mine {
    int frees;
    int returns; /* what get returns */
} mine;

static int mine_get(void *self, int64_t i, void *const *out, ct_error *err)
{
    int32_t v = (int32_t)i * 10;
    (void)err;
    memcpy(out[0], &v, sizeof(v));
    return ((mine *)self)->returns;
}

static void mine_free(void *self)
{
    ((mine *)self)->frees++;
}

static const ct_dataset_ops mine_ops = {.get = mine_get, .free = mine_free};

static ct_dataset_info mine_info(int64_t count)
{
    return (ct_dataset_info){.name = "mine",
                             .count = count,
                             .n_fields = 1,
                             .field = {{.name = "x", .dtype = CT_I32}},
                             .fingerprint = 77};
}

static ct_dataset *open_mine(mine *m, int64_t count)
{
    ct_dataset_info info = mine_info(count);
    ct_error err = {0};
    ct_dataset *ds = ct_dataset_new(&info, &mine_ops, m, &err);
    cr_assert(ds, "%s", err.text);
    return ds;
}

Test(data_dataset, an_applications_own_dataset_gives_its_samples_and_is_freed_once)
{
    mine m = {0};
    ct_dataset *ds = open_mine(&m, 5);
    int32_t v;
    void *out[] = {&v};
    char name[64], tiny[5];

    cr_assert_eq(ct_dataset_get_info(ds)->count, 5);
    cr_assert_eq(ct_dataset_get(ds, 3, out, NULL), 0);
    cr_assert_eq(v, 30);
    ct_dataset_describe(ds, 3, name, sizeof(name));
    cr_assert_str_eq(name, "mine[3]");
    ct_dataset_describe(ds, 3, tiny, sizeof(tiny));
    cr_assert_str_eq(tiny, "mine");
    ct_dataset_free(ds);
    cr_assert_eq(m.frees, 1);
}

Test(data_dataset, a_sample_outside_is_refused_with_the_range)
{
    mine m = {0};
    ct_dataset *ds = open_mine(&m, 5);
    int32_t v;
    void *out[] = {&v};
    static const int64_t bad[] = {-1, 5, INT64_MAX, INT64_MIN};

    for (int i = 0; i < 4; i++) {
        ct_error err = {0};
        cr_assert_eq(ct_dataset_get(ds, bad[i], out, &err), CT_EINVAL);
        cr_assert(strstr(err.text, "0..4"), "%s", err.text);
    }
    ct_dataset_free(ds);
}

Test(data_dataset, a_failure_never_looks_like_a_success)
{
    mine m = {.returns = 3};
    ct_dataset *ds = open_mine(&m, 5);
    int32_t v;
    void *out[] = {&v};
    ct_error err = {0};

    cr_assert_eq(ct_dataset_get(ds, 1, out, &err), CT_EDATA);
    cr_assert_eq(err.code, CT_EDATA);
    cr_assert(strstr(err.text, "mine[1]"), "%s", err.text);
    m.returns = CT_EIO;
    cr_assert_eq(ct_dataset_get(ds, 1, out, NULL), CT_EIO);
    ct_dataset_free(ds);
}

static void refused(ct_dataset_info info, int code, const char *words)
{
    mine m = {0};
    ct_error err = {0};
    cr_assert_null(ct_dataset_new(&info, &mine_ops, &m, &err));
    cr_assert_eq(err.code, code, "%s", err.text);
    cr_assert(strstr(err.text, words), "'%s' has no '%s'", err.text, words);
    cr_assert_eq(m.frees, 0, "self stays the caller's");
}

Test(data_dataset, a_wrong_info_is_refused_with_a_reason)
{
    ct_dataset_info ok = mine_info(5), i;
    ct_error err = {0};
    ct_dataset_ops no_get = {0};

    cr_assert_null(ct_dataset_new(&ok, &no_get, NULL, &err));
    cr_assert_null(ct_dataset_new(NULL, &mine_ops, NULL, NULL));
    i = ok, i.count = 0, refused(i, CT_EDATA, "'mine' is empty");
    i = ok, i.count = -4, refused(i, CT_EDATA, "count -4");
    i = ok, i.name[0] = 0, refused(i, CT_EINVAL, "needs a name");
    i = ok, memset(i.name, 'a', sizeof(i.name)), refused(i, CT_EINVAL, "1 to 63");
    i = ok, i.n_fields = 0, refused(i, CT_EINVAL, "0 fields");
    i = ok, i.n_fields = 5, refused(i, CT_EINVAL, "5 fields");
    i = ok, i.field[0].name[0] = 0, refused(i, CT_EINVAL, "no name");
    i = ok, i.n_fields = 2, i.field[1] = i.field[0], refused(i, CT_EINVAL, "both named 'x'");
    i = ok, i.field[0].dtype = (ct_dtype)99, refused(i, CT_EDTYPE, "dtype 99");
    i = ok, i.field[0].ndim = 9, refused(i, CT_EINVAL, "9 dimensions");
    i = ok, i.field[0].ndim = -1, refused(i, CT_EINVAL, "-1 dimensions");
    i = ok, i.field[0].ndim = 1, refused(i, CT_ESHAPE, "size 0");
    i.field[0].shape[0] = -3, refused(i, CT_ESHAPE, "size -3");
    i.field[0].ndim = 2, i.field[0].shape[0] = i.field[0].shape[1] = (int64_t)1 << 32;
    refused(i, CT_ESHAPE, "too large");
    i.field[0].shape[0] = INT64_MAX, i.field[0].shape[1] = 2;
    refused(i, CT_ESHAPE, "too large");
    i = ok, i.n_classes = 10, refused(i, CT_EINVAL, "classes");
    i = ok, i.n_classes = -1, refused(i, CT_EINVAL, "n_classes -1");
}

Test(data_dataset, null_is_fine_where_the_contract_says_so)
{
    char name[8] = "x";
    ct_dataset_free(NULL);
    ct_dataset_describe(NULL, 0, name, sizeof(name));
    cr_assert_str_eq(name, "");
    cr_assert_null(ct_dataset_get_info(NULL));
    cr_assert_eq(ct_dataset_get(NULL, 0, NULL, NULL), CT_EINVAL);
}

/* ---- digits ---- */

Test(data_dataset, the_digits_are_the_real_ones)
{
    ct_error err = {0};
    ct_dataset *ds = ct_digits_open(&err), *again = ct_digits_open(&err);
    float x[64], top = 0;
    int64_t label, of[10] = {0};
    void *out[] = {x, &label};
    /* scikit-learn: load_digits().images[0][0], .target[0], bincount(target) */
    static const float first[8] = {0, 0, 5, 13, 9, 1, 0, 0};
    static const int64_t counts[10] = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};

    cr_assert(ds && again, "%s", err.text);
    const ct_dataset_info *i = ct_dataset_get_info(ds);
    cr_assert(i->count == 1797 && i->n_classes == 10 && i->n_fields == 2);
    cr_assert(i->field[0].dtype == CT_F32 && i->field[0].ndim == 3);
    cr_assert(i->field[0].shape[0] == 1 && i->field[0].shape[1] == 8 && i->field[0].shape[2] == 8);
    cr_assert(i->field[1].dtype == CT_I64 && i->field[1].ndim == 0);
    cr_assert(i->fingerprint != 0 && i->fingerprint == ct_dataset_get_info(again)->fingerprint);
    for (int64_t k = 0; k < i->count; k++) {
        cr_assert_eq(ct_dataset_get(ds, k, out, &err), 0);
        for (int p = 0; p < 64; p++) {
            cr_assert(x[p] >= 0 && x[p] <= 1 && x[p] * 16 == floorf(x[p] * 16));
            top = x[p] > top ? x[p] : top;
        }
        for (int p = 0; k == 0 && p < 8; p++)
            cr_assert_eq(x[p], first[p] / 16);
        cr_assert(k != 0 || label == 0);
        of[label]++;
    }
    cr_assert_eq(top, 1.0f);
    for (int c = 0; c < 10; c++)
        cr_assert_eq(of[c], counts[c]);
    ct_dataset_free(ds);
    ct_dataset_free(again);
}

/* ---- split ---- */

/* The parts of mine(count) at `fraction`, as indices into it; either may be NULL (empty). */
static void check_split(int64_t count, double fraction)
{
    mine m = {0};
    ct_dataset *ds = open_mine(&m, count);
    int64_t expect_out = llround(fraction * (double)count), total = 0;
    int times[200] = {0};

    for (int held_out = 0; held_out < 2; held_out++) {
        ct_error err = {0};
        int64_t expect = held_out ? expect_out : count - expect_out;
        ct_dataset *part = ct_dataset_split(ds, fraction, held_out, &err);
        if (expect == 0) {
            cr_assert_null(part);
            cr_assert(err.code == CT_EDATA &&
                      strstr(err.text, held_out ? "validation" : "training"));
            continue;
        }
        cr_assert(part, "%s", err.text);
        const ct_dataset_info *i = ct_dataset_get_info(part);
        cr_assert_eq(i->count, expect);
        cr_assert_neq(i->fingerprint, ct_dataset_get_info(ds)->fingerprint);
        int32_t v, last = -1;
        void *out[] = {&v};
        for (int64_t k = 0; k < i->count; k++, total++) {
            cr_assert_eq(ct_dataset_get(part, k, out, &err), 0);
            cr_assert_gt(v, last, "ascending");
            last = v;
            times[v / 10]++;
        }
        ct_dataset_free(part);
    }
    cr_assert_eq(total, count);
    for (int64_t k = 0; k < count; k++)
        cr_assert_eq(times[k], 1, "disjoint and complete");
    ct_dataset_free(ds);
    cr_assert_eq(m.frees, 1, "parts borrow");
}

Test(data_dataset, the_parts_of_a_split_are_disjoint_complete_and_in_order)
{
    static const double fraction[] = {0, 0.01, 0.1, 0.2, 1.0 / 3, 0.5, 0.9, 1};
    static const int64_t count[] = {1, 2, 3, 5, 10, 33, 100, 200};
    for (int c = 0; c < 8; c++)
        for (int f = 0; f < 8; f++)
            check_split(count[c], fraction[f]);
}

static ct_dataset *split(ct_dataset *ds, double fraction, bool held_out)
{
    ct_error err = {0};
    ct_dataset *part = ct_dataset_split(ds, fraction, held_out, &err);
    cr_assert(part, "%s", err.text);
    return part;
}

Test(data_dataset, a_split_depends_on_the_data_alone)
{
    ct_error err = {0};
    ct_dataset *ds = ct_digits_open(&err), *a = split(ds, 0.2, true), *b = split(ds, 0.2, true);
    ct_dataset *rest = split(ds, 0.2, false), *other = split(ds, 0.3, true);
    uint64_t of[] = {ct_dataset_get_info(a)->fingerprint, ct_dataset_get_info(rest)->fingerprint,
                     ct_dataset_get_info(other)->fingerprint, ct_dataset_get_info(ds)->fingerprint};
    char name[2][64];
    int64_t classes[10] = {0}, label;
    float x[64];
    void *out[] = {x, &label};

    cr_assert_eq(ct_dataset_get_info(a)->count, 359);
    cr_assert_eq(ct_dataset_get_info(rest)->count, 1438);
    cr_assert_eq(of[0], ct_dataset_get_info(b)->fingerprint);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            cr_assert_neq(of[i], of[j]);
    for (int64_t k = 0; k < 359; k++) {
        ct_dataset_describe(a, k, name[0], 64);
        ct_dataset_describe(b, k, name[1], 64);
        cr_assert_str_eq(name[0], name[1]);
        cr_assert_eq(ct_dataset_get(a, k, out, &err), 0);
        classes[label]++;
    }
    for (int c = 0; c < 10; c++)
        cr_assert(classes[c] > 18 && classes[c] < 60, "class %d: %d of 359", c, (int)classes[c]);
    ct_dataset_free(a);
    ct_dataset_free(b);
    ct_dataset_free(rest);
    ct_dataset_free(other);
    ct_dataset_free(ds);
}

Test(data_dataset, other_content_is_split_in_another_way)
{
    mine m = {0};
    ct_error err = {0};
    ct_dataset_info info = mine_info(100);
    int same = 0, times[100] = {0};

    for (uint64_t fingerprint = 1; fingerprint <= 2; fingerprint++) {
        info.fingerprint = fingerprint;
        ct_dataset *ds = ct_dataset_new(&info, &mine_ops, &m, &err), *part = split(ds, 0.5, true);
        for (int64_t k = 0; k < 50; k++) {
            int32_t v;
            void *out[] = {&v};
            cr_assert_eq(ct_dataset_get(part, k, out, &err), 0);
            same += times[v / 10]++;
        }
        ct_dataset_free(part);
        ct_dataset_free(ds);
    }
    cr_assert(same > 10 && same < 40, "%d of 50 are held out in both", same);
}

Test(data_dataset, a_fraction_that_is_none_is_refused)
{
    mine m = {0};
    ct_dataset *ds = open_mine(&m, 5);
    static const double bad[] = {-0.1, 1.1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        ct_error err = {0};
        cr_assert_null(ct_dataset_split(ds, bad[i], true, &err));
        cr_assert_eq(err.code, CT_EINVAL);
    }
    cr_assert_null(ct_dataset_split(NULL, 0.5, true, NULL));
    ct_dataset_free(ds);
}

Test(data_dataset, an_error_in_a_part_names_the_sample_of_the_whole)
{
    mine m = {.returns = CT_EIO};
    ct_dataset *ds = open_mine(&m, 50), *part = split(ds, 0.5, true);
    ct_error err = {0};
    char name[64], expect[128];
    int32_t v;
    void *out[] = {&v};

    ct_dataset_describe(part, 20, name, sizeof(name));
    cr_assert_eq(cti_dataset_fetch(part, 20, out, &err), CT_EIO);
    snprintf(expect, sizeof(expect), "sample 20 of 'mine': %s: ", name);
    cr_assert_eq(strncmp(err.text, expect, strlen(expect)), 0, "%s", err.text);
    ct_dataset_free(part);
    ct_dataset_free(ds);
}
