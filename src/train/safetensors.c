/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors to and from safetensors files. */
#include "train/safetensors.h"

#include "base/ctxmem.h"
#include "base/error.h"
#include "base/file.h"
#include <ctrain/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

/* An error of the context becomes one of `err`, and the context can go on: whoever saves decides.
 */
static int take_ctx_error(ct_ctx *ctx, ct_error *err)
{
    ct_error *pending = ct_error_record(ctx);
    int code = pending->code;

    if (err == pending)
        return code;
    cti_fail(err, code, "%s", pending->text);
    ct_error_clear(ctx);
    return code;
}

/* Larger elements first, so that each tensor stays aligned without holes; then by name. */
static int by_alignment(const void *a, const void *b)
{
    const ct_named_tensor *x = *(const ct_named_tensor *const *)a;
    const ct_named_tensor *y = *(const ct_named_tensor *const *)b;
    size_t ax = ct_dtype_bytes(ct_tensor_dtype(x->tensor));
    size_t ay = ct_dtype_bytes(ct_tensor_dtype(y->tensor));

    if (ax != ay)
        return ax > ay ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int tensor_by_name(const void *a, const void *b)
{
    return strcmp((*(const ct_named_tensor *const *)a)->name,
                  (*(const ct_named_tensor *const *)b)->name);
}

static size_t bytes_of(const ct_tensor *t)
{
    return (size_t)ct_tensor_numel(t) * ct_dtype_bytes(ct_tensor_dtype(t));
}

static void put_entry(cti_jw *w, const ct_named_tensor *t, size_t at)
{
    cti_jw_object(w, t->name);
    cti_jw_string(w, "dtype", cti_st_dtype(ct_tensor_dtype(t->tensor)));
    cti_jw_array(w, "shape");
    for (int d = 0; d < ct_tensor_ndim(t->tensor); d++)
        cti_jw_i64(w, NULL, ct_tensor_shape(t->tensor)[d]);
    cti_jw_end(w);
    cti_jw_array(w, "data_offsets");
    cti_jw_i64(w, NULL, (int64_t)at);
    cti_jw_i64(w, NULL, (int64_t)(at + bytes_of(t->tensor)));
    cti_jw_end(w);
    cti_jw_end(w);
}

/* The JSON of the header, without its padding. Borrowed from w; NULL when out of memory. */
static const char *header_text(cti_jw *w, const ct_named_tensor *const *order, int n, size_t *bytes,
                               size_t *data_bytes)
{
    size_t at = 0;

    cti_jw_object(w, NULL);
    for (int i = 0; i < n; i++) {
        put_entry(w, order[i], at);
        at += bytes_of(order[i]->tensor);
    }
    cti_jw_end(w);
    *data_bytes = at;
    return cti_jw_text(w, bytes);
}

/* Length, JSON, blanks up to a multiple of 64, data. */
static int make_image(ct_ctx *ctx, cti_mem *m, const char *what, const ct_named_tensor **order,
                      int n, cti_jw *w, void **out, size_t *out_bytes, ct_error *err)
{
    size_t text_bytes = 0, data_bytes, header;
    const char *text = header_text(w, order, n, &text_bytes, &data_bytes);
    char *image, *p;

    header = (8 + text_bytes + 63) / 64 * 64;
    image = text ? cti_alloc_raw(m, header + data_bytes, "safetensors image") : NULL;
    if (!image)
        return cti_fail(err, CT_ENOMEM, "%s: out of memory for its %zu bytes", what,
                        header + data_bytes);
    for (int i = 0; i < 8; i++)
        image[i] = (char)((uint64_t)(header - 8) >> (8 * i));
    memcpy(image + 8, text, text_bytes);
    memset(image + 8 + text_bytes, ' ', header - 8 - text_bytes);
    p = image + header;
    for (int i = 0; i < n; i++) {
        size_t bytes = bytes_of(order[i]->tensor);
        if (bytes && ct_tensor_read(ctx, order[i]->tensor, p, bytes) < 0) {
            cti_free(m, image);
            return take_ctx_error(ctx, err);
        }
        p += bytes;
    }
    *out = image;
    *out_bytes = header + data_bytes;
    return CT_OK;
}

static int image_of(ct_ctx *ctx, cti_mem *m, const char *what, const ct_named_tensor **order, int n,
                    cti_jw *w, void **out, size_t *bytes, ct_error *err)
{
    if (n > 1)
        qsort(order, (size_t)n, sizeof *order, tensor_by_name);
    for (int i = 1; i < n; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            return cti_fail(err, CT_EINVAL, "%s: two tensors are named '%s'", what, order[i]->name);
    if (n > 1)
        qsort(order, (size_t)n, sizeof *order, by_alignment);
    return make_image(ctx, m, what, order, n, w, out, bytes, err);
}

int cti_st_image(ct_ctx *ctx, cti_mem *m, const char *what, const ct_named_tensor *tensors, int n,
                 void **out, size_t *bytes, ct_error *err)
{
    const ct_named_tensor **order;
    cti_jw *w;
    int r;

    for (int i = 0; i < n; i++)
        if (!tensors[i].tensor)
            return cti_fail(err, CT_EINVAL, "%s: there is no tensor for '%s'", what,
                            tensors[i].name);
    order = cti_alloc(m, ((size_t)n + 1) * sizeof *order, "safetensors order");
    w = cti_jw_new(m, false);
    if (order && w) {
        for (int i = 0; i < n; i++)
            order[i] = &tensors[i];
        r = image_of(ctx, m, what, order, n, w, out, bytes, err);
    } else {
        r = cti_fail(err, CT_ENOMEM, "%s: out of memory", what);
    }
    cti_jw_free(w);
    cti_free(m, order);
    return r;
}

int ct_safetensors_save(ct_ctx *ctx, const char *path, const ct_named_tensor *tensors, int n)
{
    ct_error *err = ct_error_record(ctx);
    void *image;
    size_t bytes;
    int r;

    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    if (!path || n < 0 || (n > 0 && !tensors))
        return cti_fail(err, CT_EINVAL, "ct_safetensors_save needs a path and tensors");
    if ((r = cti_st_image(ctx, cti_ctx_mem(ctx), path, tensors, n, &image, &bytes, err)) < 0)
        return r;
    r = cti_file_write_atomic(path, image, bytes, err);
    cti_free(cti_ctx_mem(ctx), image);
    return r;
}

/* ---- matching names ---- */

/* A list of names in an error: as many as fit, then how many more. */
typedef struct name_list {
    char text[560];
    size_t used;
    int count, left_out;
} name_list;

static void list_add(name_list *l, const char *fmt, const char *name, const char *detail)
{
    char item[320];
    int n = snprintf(item, sizeof item, fmt, name, detail);

    l->count++;
    if (n < 0 || (size_t)n >= sizeof item || l->used + (size_t)n + 3 > sizeof l->text) {
        l->left_out++;
        return;
    }
    l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s%s",
                                l->used ? ", " : "", item);
}

static void list_print(const name_list *l, const char *what, char *out, size_t cap)
{
    size_t used = strlen(out);
    int n;

    if (l->count == 0)
        return;
    n = snprintf(out + used, cap - used, "%s%s (%d): %s", used ? "; " : "", what, l->count,
                 l->text);
    if (n > 0 && (size_t)n < cap - used && l->left_out)
        snprintf(out + used + n, cap - used - (size_t)n, " and %d more", l->left_out);
}

static void shape_text(char *out, size_t cap, ct_dtype dtype, int ndim, const int64_t *shape)
{
    size_t used = (size_t)snprintf(out, cap, "%s [", ct_dtype_name(dtype));

    for (int i = 0; i < ndim && used < cap; i++)
        used +=
            (size_t)snprintf(out + used, cap - used, "%s%lld", i ? "," : "", (long long)shape[i]);
    if (used < cap)
        snprintf(out + used, cap - used, "]");
}

static bool fits(const cti_st_entry *e, const ct_tensor *t)
{
    ct_dtype have = ct_tensor_dtype(t);

    if (e->dtype != have && !(ct_dtype_is_float(e->dtype) && ct_dtype_is_float(have)))
        return false;
    return e->ndim == ct_tensor_ndim(t) &&
           memcmp(e->shape, ct_tensor_shape(t), (size_t)e->ndim * sizeof *e->shape) == 0;
}

static void add_misfit(name_list *l, const cti_st_entry *e, const ct_tensor *t)
{
    char in_file[96], here[96], detail[240];

    shape_text(in_file, sizeof in_file, e->dtype, e->ndim, e->shape);
    shape_text(here, sizeof here, ct_tensor_dtype(t), ct_tensor_ndim(t), ct_tensor_shape(t));
    snprintf(detail, sizeof detail, "%s in the file, %s here", in_file, here);
    list_add(l, "%s (%s)", e->name, detail);
}

static int entry_by_name(const void *a, const void *b)
{
    return strcmp((*(const cti_st_entry *const *)a)->name, (*(const cti_st_entry *const *)b)->name);
}

/* Walks both lists in name order. match[i]: the entry of tensors[i]. */
static int match_names(const char *path, const cti_st_entry **entries, int n_entries,
                       const ct_named_tensor **sorted, int n, const ct_named_tensor *tensors,
                       const cti_st_entry **match, ct_error *err)
{
    name_list missing = {.used = 0}, unexpected = {.used = 0}, misfit = {.used = 0};
    char text[1900] = "";
    int i = 0, j = 0;

    while (i < n || j < n_entries) {
        int c = i == n ? 1 : j == n_entries ? -1 : strcmp(sorted[i]->name, entries[j]->name);
        if (c < 0) {
            list_add(&missing, "%s%s", sorted[i++]->name, "");
        } else if (c > 0) {
            list_add(&unexpected, "%s%s", entries[j++]->name, "");
        } else {
            if (!fits(entries[j], sorted[i]->tensor))
                add_misfit(&misfit, entries[j], sorted[i]->tensor);
            match[sorted[i] - tensors] = entries[j];
            i++;
            j++;
        }
    }
    list_print(&missing, "missing", text, sizeof text);
    list_print(&unexpected, "unexpected", text, sizeof text);
    list_print(&misfit, "wrong shape or dtype", text, sizeof text);
    if (text[0])
        return cti_fail(err, CT_ECONFIG, "%s does not fit: %s. Nothing was changed.", path, text);
    return CT_OK;
}

static int match_all(cti_mem *m, const char *path, const cti_st *st, const ct_named_tensor *tensors,
                     int n, const cti_st_entry **match, ct_error *err)
{
    const cti_st_entry **entries =
        cti_alloc(m, ((size_t)st->n + 1) * sizeof *entries, "safetensors");
    const ct_named_tensor **sorted = cti_alloc(m, ((size_t)n + 1) * sizeof *sorted, "safetensors");
    int r;

    if (entries && sorted) {
        for (int i = 0; i < st->n; i++)
            entries[i] = &st->entry[i];
        for (int i = 0; i < n; i++)
            sorted[i] = &tensors[i];
        if (st->n > 1)
            qsort(entries, (size_t)st->n, sizeof *entries, entry_by_name);
        if (n > 1)
            qsort(sorted, (size_t)n, sizeof *sorted, tensor_by_name);
        r = match_names(path, entries, st->n, sorted, n, tensors, match, err);
    } else {
        r = cti_fail(err, CT_ENOMEM, "%s: out of memory", path);
    }
    cti_free(m, entries);
    cti_free(m, sorted);
    return r;
}

/* ---- reading ---- */

static int check_bools(const cti_st_entry *e, const unsigned char *p, const char *path,
                       ct_error *err)
{
    for (size_t i = 0; i < e->bytes; i++)
        if (p[i] > 1)
            return cti_fail(err, CT_EFORMAT, "%s: tensor '%s': a BOOL with the value %d", path,
                            e->name, p[i]);
    return CT_OK;
}

/* Everything that can fail comes before the first write: the values in their final dtypes. */
static int stage(ct_ctx *ctx, const char *path, const unsigned char *data,
                 const ct_named_tensor *tensors, int n, const cti_st_entry **match,
                 ct_tensor **staged)
{
    ct_error *err = ct_error_record(ctx);

    for (int i = 0; i < n; i++) {
        const cti_st_entry *e = match[i];
        ct_dtype want = ct_tensor_dtype(tensors[i].tensor);
        if (e->dtype == CT_BOOL && check_bools(e, data + e->begin, path, err) < 0)
            return err->code;
        if (e->dtype == want)
            continue;
        ct_tensor *as_saved = ct_tensor_from(ctx, e->dtype, e->ndim, e->shape, data + e->begin);
        staged[i] = ct_tensor_retain(ct_cast(as_saved, want));
        ct_tensor_release(as_saved);
        if (!staged[i])
            return cti_error_prefix(err, "%s: %s", path, e->name);
    }
    return CT_OK;
}

static int put_values(ct_ctx *ctx, const unsigned char *data, const ct_named_tensor *tensors, int n,
                      const cti_st_entry **match, ct_tensor **staged)
{
    int r;

    for (int i = 0; i < n; i++) {
        const cti_st_entry *e = match[i];
        if (staged[i])
            r = ct_tensor_copy(ctx, tensors[i].tensor, staged[i]);
        else
            r = e->bytes ? ct_tensor_write(ctx, tensors[i].tensor, data + e->begin, e->bytes) :
                           CT_OK;
        if (r < 0)
            return r;
    }
    return CT_OK;
}

static int load_matched(ct_ctx *ctx, const char *path, const cti_st *st, const unsigned char *data,
                        const ct_named_tensor *tensors, int n)
{
    ct_error *err = ct_error_record(ctx);
    cti_mem *m = cti_ctx_mem(ctx);
    const cti_st_entry **match = cti_alloc(m, ((size_t)n + 1) * sizeof *match, "safetensors");
    ct_tensor **staged = cti_alloc(m, ((size_t)n + 1) * sizeof(ct_tensor *), "safetensors");
    int r, ended;

    if (!match || !staged) {
        r = cti_fail(err, CT_ENOMEM, "%s: out of memory", path);
        goto out;
    }
    if ((r = match_all(m, path, st, tensors, n, match, err)) < 0 ||
        (r = ct_scope_begin(ctx, CT_SCOPE_NO_GRAD)) < 0)
        goto out;
    if ((r = stage(ctx, path, data, tensors, n, match, staged)) == CT_OK)
        r = put_values(ctx, data, tensors, n, match, staged);
    ended = ct_scope_end(ctx);
    if (r == CT_OK)
        r = ended;
out:
    for (int i = 0; staged && i < n; i++)
        ct_tensor_release(staged[i]);
    cti_free(m, staged);
    cti_free(m, match);
    return r;
}

int ct_safetensors_load(ct_ctx *ctx, const char *path, const ct_named_tensor *tensors, int n)
{
    ct_error *err = ct_error_record(ctx);
    cti_mem *m = cti_ctx_mem(ctx);
    void *data = NULL;
    size_t bytes;
    cti_st st;
    int r;

    if (ct_error_code(ctx) != CT_OK)
        return ct_error_code(ctx);
    if (!path || n < 0 || (n > 0 && !tensors))
        return cti_fail(err, CT_EINVAL, "ct_safetensors_load needs a path and tensors");
    if ((r = cti_file_read(m, path, CT_EDATA, &data, &bytes, err)) < 0)
        return r;
    if ((r = cti_st_parse(m, data, bytes, path, &st, err)) == CT_OK) {
        r = load_matched(ctx, path, &st, data, tensors, n);
        cti_st_clear(&st);
    }
    cti_free(m, data);
    return r;
}
