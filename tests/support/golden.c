/* SPDX-License-Identifier: Apache-2.0 */
/* A small reader of safetensors files: the golden files are ours, so what is odd is refused. */
#include "support.h"

#include "base/json.h"
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CT_GOLDEN_DIR
#error "CT_GOLDEN_DIR: the folder of the golden files, as a string"
#endif

void ts_load_bytes(ts_array *a, const void *bytes); /* array.c */

struct ts_golden {
    cti_json *header;
    int n;
    const char **names;
    ts_array *arrays;
};

static int dtype_of(const char *name)
{
    static const struct {
        const char *name;
        ct_dtype dtype;
    } all[] = {{"BOOL", CT_BOOL}, {"U8", CT_U8},     {"I32", CT_I32}, {"I64", CT_I64},
               {"F16", CT_F16},   {"BF16", CT_BF16}, {"F32", CT_F32}, {"F64", CT_F64}};
    for (int i = 0; name && i < TS_LEN(all); i++)
        if (!strcmp(name, all[i].name))
            return (int)all[i].dtype;
    return -1;
}

static unsigned char *slurp(const char *file, size_t *bytes, char *msg, size_t cap)
{
    char path[4096];
    const char *dir = getenv("CT_GOLDEN_DIR"); /* tests carried to another machine */
    snprintf(path, sizeof(path), "%s/%s", dir && *dir ? dir : CT_GOLDEN_DIR, file);
    FILE *f = fopen(path, "rb");
    if (!f) {
        snprintf(msg, cap, "no golden file %s: run tests/golden/make.py", file);
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    unsigned char *data = ts_alloc((size_t)size + 1);
    *bytes = fread(data, 1, (size_t)size, f);
    fclose(f);
    if (*bytes != (size_t)size || size < 8) {
        snprintf(msg, cap, "%s can't be read whole", file);
        free(data);
        return NULL;
    }
    return data;
}

/* One tensor of the header; `data` is what follows it. */
static bool read_entry(const cti_json *entry, const unsigned char *data, size_t bytes,
                       ts_array *out)
{
    int dtype = dtype_of(cti_json_string(cti_json_get(entry, "dtype")));
    const cti_json *dims = cti_json_get(entry, "shape");
    const cti_json *offsets = cti_json_get(entry, "data_offsets");
    int64_t shape[CT_MAX_DIMS], begin, end;
    int ndim = dims ? cti_json_len(dims) : -1;
    if (dtype < 0 || ndim < 0 || ndim > CT_MAX_DIMS || !offsets)
        return false;
    for (int d = 0; d < ndim; d++)
        if (!cti_json_i64(cti_json_at(dims, d), &shape[d]) || shape[d] < 0)
            return false;
    if (!cti_json_i64(cti_json_at(offsets, 0), &begin) ||
        !cti_json_i64(cti_json_at(offsets, 1), &end) || begin < 0 || end < begin ||
        (size_t)end > bytes)
        return false;
    ts_array a = ts_array_new((ct_dtype)dtype, ndim, shape);
    if ((size_t)a.n * ct_dtype_bytes(a.dtype) != (size_t)(end - begin)) {
        ts_array_free(&a);
        return false;
    }
    ts_load_bytes(&a, data + begin);
    *out = a;
    return true;
}

static bool read_all(ts_golden *g, const unsigned char *data, size_t bytes, char *msg, size_t cap)
{
    int len = cti_json_len(g->header);
    g->names = ts_alloc((size_t)(len + 1) * sizeof(*g->names));
    g->arrays = ts_alloc((size_t)(len + 1) * sizeof(*g->arrays));
    for (const cti_json *e = cti_json_first(g->header); e; e = cti_json_next(e)) {
        const char *key = cti_json_key(e);
        if (!strcmp(key, "__metadata__"))
            continue;
        if (!read_entry(e, data, bytes, &g->arrays[g->n])) {
            snprintf(msg, cap, "golden entry \"%s\" is damaged", key);
            return false;
        }
        g->names[g->n++] = key;
    }
    return true;
}

ts_golden *ts_golden_open(const char *file, char *msg, size_t cap)
{
    size_t bytes;
    unsigned char *data = slurp(file, &bytes, msg, cap);
    if (!data)
        return NULL;
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | data[i];
    ts_golden *g = ts_alloc(sizeof(*g));
    ct_error err = {0};
    bool ok = header <= bytes - 8;
    if (!ok)
        snprintf(msg, cap, "%s has a header longer than the file", file);
    if (ok && !(g->header = cti_json_parse((const char *)data + 8, header, file, &err))) {
        snprintf(msg, cap, "%s", err.text);
        ok = false;
    }
    ok = ok && read_all(g, data + 8 + header, bytes - 8 - header, msg, cap);
    free(data);
    if (!ok) {
        ts_golden_close(g);
        return NULL;
    }
    return g;
}

ts_golden *ts_golden_must_open(const char *file)
{
    char msg[512];
    ts_golden *g = ts_golden_open(file, msg, sizeof(msg));
    if (!g)
        cr_assert(false, "%s", msg);
    return g;
}

void ts_golden_close(ts_golden *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n; i++)
        ts_array_free(&g->arrays[i]);
    free(g->arrays);
    free(g->names);
    cti_json_free(g->header);
    free(g);
}

const char *ts_golden_meta(const ts_golden *g, const char *key)
{
    return cti_json_string(cti_json_get(cti_json_get(g->header, "__metadata__"), key));
}

int ts_golden_count(const ts_golden *g)
{
    return g->n;
}

const char *ts_golden_name(const ts_golden *g, int i)
{
    return g->names[i];
}

static const ts_array *find(const ts_golden *g, const char *name)
{
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->names[i], name))
            return &g->arrays[i];
    return NULL;
}

const ts_array *ts_golden_get(const ts_golden *g, const char *name, ...)
{
    char full[256];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof(full), name, args);
    va_end(args);
    return find(g, full);
}

const ts_array *ts_golden_must_get(const ts_golden *g, const char *name, ...)
{
    static const ts_array none = {0};
    char full[256];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof(full), name, args);
    va_end(args);
    const ts_array *a = find(g, full);
    cr_expect(a != NULL, "the golden file has no \"%s\": run the script that makes it", full);
    return a ? a : &none;
}
