/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets: the checked shell around what a source gives, and the split of one in two. */
#include "data/dataset.h"

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct ct_dataset {
    cti_mem *mem;
    ct_dataset_info info;
    ct_dataset_ops ops;
    void *self;
    bool check_label; /* field 1 is a class number */
};

/* No sample and no slab is larger: leaves room for sums of sizes. */
#define SIZE_LIMIT ((int64_t)(PTRDIFF_MAX / 16))

bool cti_size_mul(int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0 || (b > 0 && a > SIZE_LIMIT / b))
        return false;
    *out = a * b;
    return true;
}

static bool field_bytes(const ct_field *f, int64_t *bytes)
{
    int64_t n = (int64_t)ct_dtype_bytes(f->dtype);
    for (int d = 0; d < f->ndim; d++)
        if (!cti_size_mul(n, f->shape[d], &n))
            return false;
    *bytes = n;
    return true;
}

int64_t cti_field_bytes(const ct_field *f)
{
    int64_t bytes = 0;
    return field_bytes(f, &bytes) ? bytes : 0;
}

/* ---- making one ---- */

static bool is_text(const char *s, size_t cap)
{
    return s[0] && memchr(s, 0, cap);
}

static int check_field(const ct_dataset_info *info, int i, ct_error *err)
{
    const ct_field *f = &info->field[i];
    int64_t bytes;

    if (!is_text(f->name, sizeof(f->name)))
        return cti_fail(err, CT_EINVAL, "dataset '%s': field %d has no name", info->name, i);
    for (int j = 0; j < i; j++)
        if (!strcmp(f->name, info->field[j].name))
            return cti_fail(err, CT_EINVAL, "dataset '%s': fields %d and %d are both named '%s'",
                            info->name, j, i, f->name);
    if ((int)f->dtype < 0 || f->dtype >= CT_DTYPE_COUNT)
        return cti_fail(err, CT_EDTYPE, "dataset '%s': field '%s' has dtype %d, which is none",
                        info->name, f->name, (int)f->dtype);
    if (f->ndim < 0 || f->ndim > CT_MAX_DIMS)
        return cti_fail(err, CT_EINVAL,
                        "dataset '%s': field '%s' has %d dimensions; 0 to %d are ok", info->name,
                        f->name, f->ndim, CT_MAX_DIMS);
    for (int d = 0; d < f->ndim; d++)
        if (f->shape[d] < 1)
            return cti_fail(err, CT_ESHAPE,
                            "dataset '%s': field '%s' has size %" PRId64 " in dimension %d",
                            info->name, f->name, f->shape[d], d);
    if (!field_bytes(f, &bytes))
        return cti_fail(
            err, CT_ESHAPE,
            "dataset '%s': a sample of field '%s' is too large for this machine's memory",
            info->name, f->name);
    return 0;
}

static int check_info(const ct_dataset_info *info, ct_error *err)
{
    int r;

    if (!is_text(info->name, sizeof(info->name)))
        return cti_fail(err, CT_EINVAL, "a dataset needs a name of 1 to %d bytes",
                        (int)sizeof(info->name) - 1);
    if (info->count < 1)
        return cti_fail(err, CT_EDATA, "dataset '%s' is empty (count %" PRId64 ")", info->name,
                        info->count);
    if (info->n_fields < 1 || info->n_fields > CT_MAX_FIELDS)
        return cti_fail(err, CT_EINVAL, "dataset '%s' has %d fields; 1 to %d are ok", info->name,
                        info->n_fields, CT_MAX_FIELDS);
    for (int i = 0; i < info->n_fields; i++)
        if ((r = check_field(info, i, err)) < 0)
            return r;
    if (info->n_classes < 0 || (info->n_classes > 0 && info->n_fields < 2))
        return cti_fail(err, CT_EINVAL,
                        "dataset '%s' has n_classes %" PRId64
                        " and %d fields; classes need a target "
                        "in field 1, and 0 means there are none",
                        info->name, info->n_classes, info->n_fields);
    return 0;
}

ct_dataset *ct_dataset_new(const ct_dataset_info *info, const ct_dataset_ops *ops, void *self,
                           ct_error *err)
{
    cti_mem *m;
    ct_dataset *ds;

    if (!info || !ops || !ops->get) {
        cti_fail(err, CT_EINVAL, "a dataset needs an info, ops, and a get in the ops");
        return NULL;
    }
    if (check_info(info, err) < 0)
        return NULL;
    m = cti_mem_new(NULL);
    ds = m ? cti_alloc(m, sizeof(*ds), "dataset") : NULL;
    if (!ds) {
        if (m)
            cti_mem_free(m, NULL, NULL);
        cti_fail(err, CT_ENOMEM, "dataset '%s': out of memory", info->name);
        return NULL;
    }
    ds->mem = m;
    ds->info = *info;
    ds->ops = *ops;
    ds->self = self;
    ds->check_label =
        info->n_classes > 0 && info->field[1].dtype == CT_I64 && info->field[1].ndim == 0;
    return ds;
}

void ct_dataset_free(ct_dataset *ds)
{
    cti_mem *m;

    if (!ds)
        return;
    if (ds->ops.free)
        ds->ops.free(ds->self);
    m = ds->mem;
    cti_free(m, ds);
    cti_mem_free(m, NULL, NULL);
}

const ct_dataset_info *ct_dataset_get_info(const ct_dataset *ds)
{
    return ds ? &ds->info : NULL;
}

/* ---- using one ---- */

/* A source's answer made whole: never a failure without code and text, never one that looks well. */
static int settle(const ct_dataset *ds, int64_t index, int r, ct_error *err)
{
    if (r == 0)
        return 0;
    if (r > 0)
        r = CT_EDATA;
    return cti_fail(err, r, "%s[%" PRId64 "]: the dataset's get returned %s without saying why",
                    ds->info.name, index, ct_status_name(r));
}

int ct_dataset_get(ct_dataset *ds, int64_t index, void *const *out, ct_error *err)
{
    if (!ds || !out)
        return cti_fail(err, CT_EINVAL, "no dataset or no place for the sample");
    if (index < 0 || index >= ds->info.count)
        return cti_fail(err, CT_EINVAL, "%s[%" PRId64 "]: the samples are 0..%" PRId64,
                        ds->info.name, index, ds->info.count - 1);
    return settle(ds, index, ds->ops.get(ds->self, index, out, err), err);
}

void ct_dataset_describe(ct_dataset *ds, int64_t index, char *out, size_t cap)
{
    if (!out || !cap)
        return;
    out[0] = 0;
    if (!ds)
        return;
    if (ds->ops.describe)
        ds->ops.describe(ds->self, index, out, cap);
    out[cap - 1] = 0;
    if (!out[0])
        snprintf(out, cap, "%s[%" PRId64 "]", ds->info.name, index);
}

/* Puts the sample's name and number before the text, unless the source has said them. */
static int name_sample(ct_dataset *ds, int64_t index, ct_error *err)
{
    char name[512], number[32];
    size_t n, k;

    ct_dataset_describe(ds, index, name, sizeof(name));
    snprintf(number, sizeof(number), "[%" PRId64 "]", index);
    n = strlen(name);
    k = strlen(number);
    bool numbered = n >= k && !strcmp(name + n - k, number);
    bool named = !strncmp(err->text, name, n);
    if (numbered && named)
        return err->code;
    if (numbered)
        return cti_error_prefix(err, "%s", name);
    if (named)
        return cti_error_prefix(err, "sample %" PRId64 " of '%s'", index, ds->info.name);
    return cti_error_prefix(err, "%s (sample %" PRId64 " of '%s')", name, index, ds->info.name);
}

int cti_dataset_fetch(ct_dataset *ds, int64_t index, void *const *out, ct_error *err)
{
    int r = ct_dataset_get(ds, index, out, err);

    if (r == 0 && err->code) /* filled an error, yet returned 0: believe the error */
        r = err->code;
    if (r == 0 && ds->check_label) {
        int64_t label, n = ds->info.n_classes;
        memcpy(&label, out[1], sizeof(label));
        if (label < 0 || label >= n)
            r = cti_fail(err, CT_EDATA,
                         "label %" PRId64 ", but there are %" PRId64 " classes (0..%" PRId64 ")%s",
                         label, n, n - 1, label == n ? "; 1-based?" : "");
    }
    return r == 0 ? 0 : name_sample(ds, index, err);
}

/* ---- split ---- */

typedef struct part {
    cti_mem *mem;
    ct_dataset *from;
    int64_t *index; /* ascending */
} part;

static int part_get(void *self, int64_t index, void *const *out, ct_error *err)
{
    part *p = self;
    return ct_dataset_get(p->from, p->index[index], out, err);
}

static void part_describe(void *self, int64_t index, char *out, size_t cap)
{
    part *p = self;
    ct_dataset_describe(p->from, p->index[index], out, cap);
}

static void part_free(void *self)
{
    part *p = self;
    cti_mem *m = p->mem;
    cti_free(m, p->index);
    cti_free(m, p);
    cti_mem_free(m, NULL, NULL);
}

static const ct_dataset_ops part_ops = {part_get, part_describe, part_free};

/* The samples of one part: of the keyed permutation, the first `out` elements are held out. */
static int part_fill(part *p, int64_t n, int64_t out, bool held_out, ct_error *err)
{
    uint64_t fingerprint = ct_dataset_get_info(p->from)->fingerprint;
    cti_rng_key key = cti_rng_key_make(fingerprint, CTI_STREAM_SPLIT);
    int64_t count = held_out ? out : n - out, k = 0;
    unsigned char *is_out = cti_alloc(p->mem, (size_t)n, "split");

    p->index = cti_alloc_raw(p->mem, (size_t)count * sizeof(*p->index), "split");
    if (!is_out || !p->index) {
        cti_free(p->mem, is_out);
        return cti_fail(err, CT_ENOMEM, "split of %" PRId64 " samples: out of memory", n);
    }
    for (int64_t i = 0; i < out; i++)
        is_out[cti_permute(key, 0, (uint64_t)n, (uint64_t)i)] = 1;
    for (int64_t i = 0; i < n; i++)
        if (is_out[i] == (held_out ? 1 : 0))
            p->index[k++] = i;
    cti_free(p->mem, is_out);
    return 0;
}

static int part_new(ct_dataset *from, int64_t out, bool held_out, part **made, ct_error *err)
{
    int64_t n = ct_dataset_get_info(from)->count, bytes;
    cti_mem *m = NULL;
    part *p = NULL;
    int r;

    if (!cti_size_mul(n, sizeof(int64_t), &bytes) || !(m = cti_mem_new(NULL)) ||
        !(p = cti_alloc(m, sizeof(*p), "split"))) {
        if (m)
            cti_mem_free(m, NULL, NULL);
        return cti_fail(err, CT_ENOMEM, "split of %" PRId64 " samples: out of memory", n);
    }
    p->mem = m;
    p->from = from;
    if ((r = part_fill(p, n, out, held_out, err)) < 0) {
        part_free(p);
        return r;
    }
    *made = p;
    return 0;
}

ct_dataset *ct_dataset_split(ct_dataset *ds, double fraction, bool held_out, ct_error *err)
{
    ct_dataset_info info;
    ct_dataset *made;
    part *p = NULL;

    if (!ds || !(fraction >= 0 && fraction <= 1)) { /* NaN too */
        cti_fail(err, CT_EINVAL, "a split needs a dataset and a fraction in 0..1, not %g",
                 fraction);
        return NULL;
    }
    info = ds->info;
    int64_t out = (int64_t)round(fraction * (double)info.count);
    out = out > info.count ? info.count : out;
    if (held_out ? out == 0 : out == info.count) {
        cti_fail(err, CT_EDATA,
                 "dataset '%s': a fraction of %g of %" PRId64 " samples holds out %" PRId64
                 " and leaves %s empty",
                 info.name, fraction, info.count, out, held_out ? "validation" : "training");
        return NULL;
    }
    if (part_new(ds, out, held_out, &p, err) < 0)
        return NULL;
    struct {
        uint64_t of, part;
        double fraction;
    } view = {info.fingerprint, held_out ? 2 : 1, fraction == 0 ? 0.0 : fraction};
    info.fingerprint = cti_hash(&view, sizeof(view), 0);
    info.count = held_out ? out : info.count - out;
    if (!(made = ct_dataset_new(&info, &part_ops, p, err)))
        part_free(p);
    return made;
}
