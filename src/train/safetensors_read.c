/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file. It comes from strangers: nothing in it is believed. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "train/safetensors.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    ct_dtype dtype;
} dtypes[] = {
    {"BOOL", CT_BOOL}, {"U8", CT_U8},     {"I32", CT_I32}, {"I64", CT_I64},
    {"F16", CT_F16},   {"BF16", CT_BF16}, {"F32", CT_F32}, {"F64", CT_F64},
};

enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *cti_st_dtype(ct_dtype dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return "?";
}

static bool starts_with(const unsigned char *p, size_t n, const char *text)
{
    size_t len = strlen(text);

    return n >= len && memcmp(p, text, len) == 0;
}

/* What people save under the name of weights by mistake; NULL when it is none of these. */
static const char *impostor(const unsigned char *p, size_t n)
{
    size_t at = 0;

    if (starts_with(p, n, "version https://git-lfs"))
        return "it is a git-lfs pointer, not the weights: run `git lfs pull`";
    if (starts_with(p, n, "PK\003\004"))
        return "it is a zip archive (PyTorch's .pth or .pt?): save the weights as safetensors";
    if (starts_with(p, n, "\x80\x02") || starts_with(p, n, "\x80\x03") ||
        starts_with(p, n, "\x80\x04"))
        return "it is a Python pickle (PyTorch's old .pth?): save the weights as safetensors";
    if (starts_with(p, n, "GGUF"))
        return "it is a GGUF file: safetensors are wanted";
    if (starts_with(p, n, "\x89HDF"))
        return "it is an HDF5 file: safetensors are wanted";
    if (starts_with(p, n, "\x1f\x8b"))
        return "it is gzipped: gunzip it first";
    while (at < n && at < 64 && strchr(" \t\r\n", p[at]) && p[at])
        at++;
    if ((n - at >= 9 && strncasecmp((const char *)p + at, "<!doctype", 9) == 0) ||
        (n - at >= 5 && strncasecmp((const char *)p + at, "<html", 5) == 0))
        return "it is an HTML page (a failed download?): fetch the file itself";
    return NULL;
}

static int header_length(const unsigned char *p, size_t bytes, const char *what, size_t *out,
                         ct_error *err)
{
    const char *other = impostor(p, bytes);
    uint64_t n = 0;

    if (other)
        return cti_fail(err, CT_EFORMAT, "%s: not a safetensors file: %s", what, other);
    if (bytes < 8)
        return cti_fail(err, CT_EFORMAT,
                        "%s: %zu bytes are too few for a safetensors file; it is cut, or none",
                        what, bytes);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    if (n > CTI_ST_HEADER_MAX)
        return cti_fail(err, CT_EFORMAT,
                        "%s: its header claims %" PRIu64
                        " bytes, more than the %d allowed; it is damaged, or no safetensors file",
                        what, n, CTI_ST_HEADER_MAX);
    if (n > bytes - 8)
        return cti_fail(err, CT_EFORMAT,
                        "%s: its header claims %" PRIu64
                        " bytes, but only %zu follow; the file is cut, or damaged",
                        what, n, bytes - 8);
    if (n < 2 || p[8] != '{')
        return cti_fail(err, CT_EFORMAT,
                        "%s: its header doesn't begin with '{'; it is damaged, or "
                        "no safetensors file",
                        what);
    *out = (size_t)n;
    return CT_OK;
}

/* A whole number that is really written as one: the JSON layer takes strings of digits too. */
static bool size_of(const cti_json *j, int64_t *out)
{
    return j && !cti_json_string(j) && cti_json_i64(j, out) && *out >= 0;
}

static int read_shape(const cti_json *shape, cti_st_entry *e, const char *what, ct_error *err)
{
    int n = 0;

    if (!shape || !cti_json_is_array(shape))
        return cti_fail(err, CT_EFORMAT, "%s: tensor '%s' has no shape", what, e->name);
    if (cti_json_len(shape) > CT_MAX_DIMS)
        return cti_fail(err, CT_EFORMAT,
                        "%s: tensor '%s' has %d dimensions, at most %d are supported", what,
                        e->name, cti_json_len(shape), CT_MAX_DIMS);
    for (const cti_json *d = cti_json_first(shape); d; d = cti_json_next(d))
        if (!size_of(d, &e->shape[n++]))
            return cti_fail(err, CT_EFORMAT, "%s: tensor '%s': size %d of its shape is no size",
                            what, e->name, n - 1);
    e->ndim = n;
    return CT_OK;
}

/* shape x dtype, or false when that is no size. */
static bool tensor_bytes(const cti_st_entry *e, uint64_t *out)
{
    uint64_t n = ct_dtype_bytes(e->dtype);

    for (int i = 0; i < e->ndim; i++)
        if (e->shape[i] == 0) {
            *out = 0;
            return true;
        }
    for (int i = 0; i < e->ndim; i++) {
        if (n > (uint64_t)INT64_MAX / (uint64_t)e->shape[i])
            return false;
        n *= (uint64_t)e->shape[i];
    }
    *out = n;
    return true;
}

static int read_dtype(const cti_json *j, cti_st_entry *e, const char *what, ct_error *err)
{
    const char *name = cti_json_string(j);

    if (!name)
        return cti_fail(err, CT_EFORMAT, "%s: tensor '%s' has no dtype", what, e->name);
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            e->dtype = dtypes[i].dtype;
            return CT_OK;
        }
    return cti_fail(
        err, CT_EFORMAT,
        "%s: tensor '%s': dtype '%.32s' is not supported (BOOL, U8, I32, I64, F16, BF16, "
        "F32 and F64 are)",
        what, e->name, name);
}

static int read_entry(const cti_json *j, size_t base, size_t data_bytes, cti_st_entry *e,
                      const char *what, ct_error *err)
{
    const cti_json *offsets = cti_json_get(j, "data_offsets");
    int64_t begin, end;
    uint64_t want;
    int r;

    if (!cti_json_is_object(j))
        return cti_fail(err, CT_EFORMAT, "%s: '%s' in its header is no tensor", what, e->name);
    if ((r = read_dtype(cti_json_get(j, "dtype"), e, what, err)) < 0 ||
        (r = read_shape(cti_json_get(j, "shape"), e, what, err)) < 0)
        return r;
    if (!offsets || !cti_json_is_array(offsets) || cti_json_len(offsets) != 2 ||
        !size_of(cti_json_at(offsets, 0), &begin) || !size_of(cti_json_at(offsets, 1), &end) ||
        begin > end)
        return cti_fail(err, CT_EFORMAT,
                        "%s: tensor '%s': its data_offsets are not a begin and an end", what,
                        e->name);
    if ((uint64_t)end > data_bytes)
        return cti_fail(err, CT_EFORMAT,
                        "%s: tensor '%s' ends at byte %" PRId64
                        " of the data, but there are only %zu; "
                        "the file is cut, or its header lies",
                        what, e->name, end, data_bytes);
    if (!tensor_bytes(e, &want) || want != (uint64_t)(end - begin))
        return cti_fail(err, CT_EFORMAT,
                        "%s: tensor '%s': its offsets give it %" PRId64
                        " bytes, its shape and dtype (%s) make another size; the header lies",
                        what, e->name, end - begin, cti_st_dtype(e->dtype));
    e->begin = base + (size_t)begin;
    e->bytes = (size_t)want;
    return CT_OK;
}

static int by_place(const void *a, const void *b)
{
    const cti_st_entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte of the data belongs to one tensor. */
static int check_cover(const cti_st *st, size_t base, size_t bytes, const char *what, ct_error *err)
{
    size_t at = base;

    for (int i = 0; i < st->n; i++) {
        const cti_st_entry *e = &st->entry[i];
        if (e->begin < at)
            return cti_fail(err, CT_EFORMAT, "%s: tensors '%s' and '%s' overlap; the header lies",
                            what, st->entry[i - 1].name, e->name);
        if (e->begin > at)
            return cti_fail(err, CT_EFORMAT,
                            "%s: a hole of %zu bytes before tensor '%s'; the header lies", what,
                            e->begin - at, e->name);
        at += e->bytes;
    }
    if (at < bytes)
        return cti_fail(err, CT_EFORMAT, "%s: %zu bytes follow the last tensor; the header lies",
                        what, bytes - at);
    return CT_OK;
}

static int check_metadata(const cti_json *j, const char *what, ct_error *err)
{
    if (!cti_json_is_object(j))
        return cti_fail(err, CT_EFORMAT, "%s: __metadata__ is no object", what);
    for (const cti_json *v = cti_json_first(j); v; v = cti_json_next(v))
        if (!cti_json_string(v))
            return cti_fail(err, CT_EFORMAT, "%s: __metadata__ '%s' is no string", what,
                            cti_json_key(v));
    return CT_OK;
}

static int read_entries(cti_st *st, size_t base, size_t bytes, const char *what, ct_error *err)
{
    int r;

    for (const cti_json *j = cti_json_first(st->doc); j; j = cti_json_next(j)) {
        const char *name = cti_json_key(j);
        if (strcmp(name, "__metadata__") == 0) {
            if ((r = check_metadata(j, what, err)) < 0)
                return r;
            continue;
        }
        st->entry[st->n].name = name;
        if ((r = read_entry(j, base, bytes - base, &st->entry[st->n], what, err)) < 0)
            return r;
        st->n++;
    }
    if (st->n > 1)
        qsort(st->entry, (size_t)st->n, sizeof *st->entry, by_place);
    return check_cover(st, base, bytes, what, err);
}

int cti_st_parse(cti_mem *m, const void *data, size_t bytes, const char *what, cti_st *out,
                 ct_error *err)
{
    const unsigned char *p = data;
    size_t header = 0;
    int r, n;

    *out = (cti_st){.mem = m};
    if ((r = header_length(p, bytes, what, &header, err)) < 0)
        return r;
    out->doc = cti_json_parse((const char *)p + 8, header, what, err);
    if (!out->doc)
        return err && err->code ? err->code : CT_EFORMAT;
    n = cti_json_len(out->doc);
    out->entry = cti_alloc(m, (size_t)(n + 1) * sizeof *out->entry, "safetensors header");
    if (!out->entry)
        r = cti_fail(err, CT_ENOMEM, "%s: out of memory for its header of %d tensors", what, n);
    else
        r = read_entries(out, 8 + header, bytes, what, err);
    if (r < 0)
        cti_st_clear(out);
    return r;
}

void cti_st_clear(cti_st *st)
{
    cti_free(st->mem, st->entry);
    cti_json_free(st->doc);
    *st = (cti_st){.mem = st->mem};
}
