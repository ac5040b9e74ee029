/* SPDX-License-Identifier: Apache-2.0 */
#include "train/data.h"

#include "base/error.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static int open_named(const ct_config *c, const char *name, const char *section, bool train,
                      ct_dataset **out, ct_error *err)
{
    const char *path = ct_config_get(c, section, "path");
    char folder[1024];
    int r;

    *out = NULL;
    if (strcmp(name, "digits") == 0) {
        *out = ct_digits_open(err);
        return *out ? CT_OK : err->code;
    }
    if (strcmp(name, "mnist") != 0)
        return cti_fail(err, CT_ECONFIG, "[%s] dataset '%s' is not known", section, name);
    if ((!path || !path[0]) && strcmp(section, "data") != 0)
        path = ct_config_get(c, "data", "path");
    if (!path || !path[0])
        return cti_fail(err, CT_ECONFIG,
                        "[%s] dataset = mnist needs path: the folder with its IDX files", section);
    if ((r = cti_path_relative_to(folder, sizeof folder, cti_config_path(c), path, err)) < 0)
        return r;
    *out = ct_mnist_open(folder, train, err);
    return *out ? CT_OK : err->code;
}

/* Validation is a part of the source: both are views of it. */
static int open_split(cti_data *d, const ct_config *c, ct_error *err)
{
    double fraction = cti_config_f64(c, "data.val", "fraction");

    d->source = d->train;
    d->train = ct_dataset_split(d->source, fraction, false, err);
    d->val = d->train ? ct_dataset_split(d->source, fraction, true, err) : NULL;
    return d->val ? CT_OK : err->code;
}

static void shape_text(char out[128], const ct_field *f)
{
    size_t used = (size_t)snprintf(out, 128, "%s [", ct_dtype_name(f->dtype));

    for (int i = 0; i < f->ndim && used < 120; i++)
        used += (size_t)snprintf(out + used, 128 - used, "%s%" PRId64, i ? "," : "", f->shape[i]);
    if (used < 127)
        snprintf(out + used, 128 - used, "]");
}

static int check_together(const cti_data *d, ct_error *err)
{
    const ct_dataset_info *a = ct_dataset_get_info(d->train), *b = ct_dataset_get_info(d->val);
    char want[128], got[128];

    if (a->count == 0)
        return cti_fail(err, CT_EDATA, "[data] '%s' has no samples", a->name);
    if (b->count == 0)
        return cti_fail(err, CT_EDATA, "[data.val] '%s' has no samples", b->name);
    if (a->n_fields < 2 || b->n_fields < 2)
        return cti_fail(err, CT_EDATA,
                        "[data] '%s' has no target: training needs inputs and targets",
                        a->n_fields < 2 ? a->name : b->name);
    for (int i = 0; i < 2; i++) {
        const ct_field *f = &a->field[i], *g = &b->field[i];
        if (f->dtype == g->dtype && f->ndim == g->ndim &&
            memcmp(f->shape, g->shape, (size_t)f->ndim * sizeof *f->shape) == 0)
            continue;
        shape_text(want, f);
        shape_text(got, g);
        return cti_fail(
            err, CT_ECONFIG,
            "[data.val] the %s of '%s' is %s, that of the training data '%s' is %s: they "
            "must be equal",
            g->name, b->name, got, a->name, want);
    }
    if ((a->n_classes == 0) != (b->n_classes == 0) || b->n_classes > a->n_classes)
        return cti_fail(err, CT_ECONFIG,
                        "[data.val] '%s' has %" PRId64
                        " classes, the training data '%s' has %" PRId64,
                        b->name, b->n_classes, a->name, a->n_classes);
    return CT_OK;
}

int cti_data_open(cti_data *d, const ct_config *config, ct_error *err)
{
    const char *name = ct_config_get(config, "data", "dataset");
    const char *val = ct_config_get(config, "data.val", "dataset");
    bool is_auto = strcmp(val, "auto") == 0;
    int r;

    *d = (cti_data){0};
    r = open_named(config, name, "data", true, &d->train, err);
    /* digits has no test split of its own, so validation on digits is a part of it. */
    if (r == CT_OK && strcmp(name, "digits") == 0 && (is_auto || strcmp(val, "digits") == 0))
        r = open_split(d, config, err);
    else if (r == CT_OK)
        r = open_named(config, is_auto ? name : val, "data.val", false, &d->val, err);
    if (r == CT_OK)
        r = check_together(d, err);
    if (r < 0)
        cti_data_close(d);
    return r;
}

void cti_data_close(cti_data *d)
{
    ct_dataset_free(d->train);
    ct_dataset_free(d->val);
    ct_dataset_free(d->source);
    *d = (cti_data){0};
}
