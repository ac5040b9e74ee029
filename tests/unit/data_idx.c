/* SPDX-License-Identifier: Apache-2.0 */
/* The IDX reader against good files and every kind of bad one, and MNIST's folder in all its forms. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "data/idx.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- making files ---- */

typedef struct bytes {
    unsigned char b[4096];
    size_t n;
} bytes;

/* An IDX file of unsigned bytes 1, 2, 3, ..., with as many elements as claimed (up to 2000). */
static bytes idx(int ndim, const uint32_t *dim)
{
    bytes f = {.b = {0, 0, 8, (unsigned char)ndim}, .n = 4};
    uint64_t size = 1;

    for (int d = 0; d < ndim; d++) {
        for (int k = 0; k < 4; k++)
            f.b[f.n++] = (unsigned char)(dim[d] >> (24 - 8 * k));
        size *= dim[d];
    }
    for (uint64_t i = 0; i < size && i < 2000; i++)
        f.b[f.n++] = (unsigned char)(i + 1);
    return f;
}

static bytes images(uint32_t n, uint32_t h, uint32_t w)
{
    return idx(3, (uint32_t[]){n, h, w});
}

static bytes labels(uint32_t n)
{
    bytes f = idx(1, &n);
    for (size_t i = 8; i < f.n; i++)
        f.b[i] = (unsigned char)((i - 8) % 10);
    return f;
}

static char folder[256];

static void make_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/ct-idx-XXXXXX", tmp ? tmp : "/tmp");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void)
{
    static const char *const part[] = {"train", "t10k"}, *const what[] = {"images", "labels"};
    char path[512];
    for (int i = 0; i < 16; i++) {
        snprintf(path, sizeof(path), "%s/%s-%s%cidx%d-ubyte%s", folder, part[i & 1],
                 what[i >> 1 & 1], i & 4 ? '-' : '.', i >> 1 & 1 ? 1 : 3, i & 8 ? ".gz" : "");
        remove(path);
    }
    rmdir(folder);
}

static void put(const char *name, bytes f)
{
    char path[512];
    size_t n = strlen(name);

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (n > 3 && !strcmp(name + n - 3, ".gz")) {
        gzFile z = gzopen(path, "wb");
        cr_assert_eq(gzwrite(z, f.b, (unsigned)f.n), (int)f.n);
        gzclose(z);
    } else {
        FILE *o = fopen(path, "wb");
        cr_assert_eq(fwrite(f.b, 1, f.n, o), f.n);
        fclose(o);
    }
}

/* ---- the reader ---- */

Test(data_idx, a_good_file_gives_its_dimensions_and_elements)
{
    bytes f = images(3, 2, 4);
    ct_error err = {0};
    cti_idx x, y;

    cr_assert_eq(cti_idx_parse("f", f.b, f.n, 3, &x, &err), 0, "%s", err.text);
    cr_assert(x.ndim == 3 && x.dim[0] == 3 && x.dim[1] == 2 && x.dim[2] == 4);
    cr_assert(x.data == f.b + 16 && x.data[0] == 1 && x.data[23] == 24);
    f.b[39]++;
    cr_assert_eq(cti_idx_parse("f", f.b, f.n, 3, &y, &err), 0);
    cr_assert_neq(x.hash, y.hash);
}

static void rejected(bytes f, int ndim, const char *words)
{
    /* A copy of its own size: a sanitizer sees a read beyond it. */
    unsigned char *exact = malloc(f.n ? f.n : 1);
    ct_error err = {0};
    cti_idx x;

    memcpy(exact, f.b, f.n);
    cr_assert_eq(cti_idx_parse("a/file", exact, f.n, ndim, &x, &err), CT_EFORMAT);
    cr_assert_eq(strncmp(err.text, "a/file: ", 8), 0, "%s", err.text);
    cr_assert(strstr(err.text, words), "'%s' has no '%s'", err.text, words);
    free(exact);
}

static bytes text(const char *s, size_t n)
{
    bytes f = {.n = n};
    memcpy(f.b, s, n);
    return f;
}

Test(data_idx, what_is_no_idx_file_is_refused_and_often_recognised)
{
    bytes f = images(3, 2, 4);

    f.b[2] = 0x0d;
    rejected(f, 3, "type 0x0d (float) found, expected 0x08 (unsigned byte)");
    f.b[2] = 0x55;
    rejected(f, 3, "type 0x55 (unknown)");
    f.b[2] = 8, f.b[0] = 7;
    rejected(f, 3, "starts with bytes 07 00, expected 00 00");
    rejected(images(3, 2, 4), 1, "3 dimensions found, expected 1; images where labels belong?");
    rejected(labels(3), 3, "1 dimensions found, expected 3; labels where images belong?");
    rejected(idx(2, (uint32_t[]){3, 2}), 3, "2 dimensions found, expected 3");
    rejected(text("version https://git-lfs.github.com/spec/v1", 42), 3, "Git LFS pointer");
    rejected(text("<!DOCTYPE html>", 15), 3, "web page");
    rejected(text("<html>", 6), 3, "web page");
    rejected(text("\x1f\x8b\x08\x00", 4), 3, "gzip inside gzip");
    rejected(text("PK\x03\x04", 4), 3, "zip archive");
}

Test(data_idx, a_file_cut_anywhere_is_refused)
{
    bytes f = images(3, 2, 4), g = labels(5);
    size_t whole = f.n;

    for (f.n = 0; f.n < whole; f.n++)
        rejected(f, 3, "truncated");
    for (whole = g.n, g.n = 0; g.n < whole; g.n++)
        rejected(g, 1, "truncated");
    f.n = 30;
    rejected(f, 3, "14 bytes of data found, expected 24 (3x2x4)");
}

Test(data_idx, bytes_beyond_the_end_are_refused)
{
    bytes f = images(3, 2, 4);
    for (int i = 0; i < 20; i++) {
        f.n++;
        rejected(f, 3, "too many");
    }
    f.n -= 15;
    rejected(f, 3, "29 bytes of data found, expected 24 (3x2x4): 5 bytes too many");
}

Test(data_idx, a_header_that_lies_is_refused_without_a_crash)
{
    bytes f = images(UINT32_MAX, UINT32_MAX, UINT32_MAX);

    rejected(f, 3, "4294967295x4294967295x4294967295");
    rejected(images(65536, 65536, 65536 * 4), 3, "expected");           /* 2^50 */
    rejected(images(1u << 31, 1u << 31, 4), 3, "more than any memory"); /* 2^64: 0 in 64 bits */
    rejected(images(1u << 31, 1u << 30, 8), 3, "more than any memory");
    rejected(images(60000, 28, 28), 3, "2000 bytes of data found, expected 47040000 (60000x28x28)");
    rejected(images(0, 28, 28), 3, "empty");
    rejected(images(3, 0, 28), 3, "empty");
    rejected(labels(0), 1, "empty");
}

Test(data_idx, every_byte_of_a_header_counts)
{
    for (size_t i = 0; i < 16; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes f = images(3, 2, 4);
            f.b[i] ^= (unsigned char)(1 << bit);
            rejected(f, 3, "");
        }
}

/* ---- MNIST's folder ---- */

static ct_dataset *mnist(bool train)
{
    ct_error err = {0};
    ct_dataset *ds = ct_mnist_open(folder, train, &err);
    cr_assert(ds, "%s", err.text);
    return ds;
}

static void mnist_fails(int code, const char *words, const char *more)
{
    ct_error err = {0};
    cr_assert_null(ct_mnist_open(folder, true, &err));
    cr_assert_eq(err.code, code, "%s: %s", ct_status_name(err.code), err.text);
    cr_assert(strstr(err.text, folder), "%s", err.text);
    cr_assert(strstr(err.text, words) && strstr(err.text, more), "'%s' has no '%s' or '%s'",
              err.text, words, more);
}

TestSuite(data_mnist, .init = make_folder, .fini = remove_folder);

Test(data_mnist, all_forms_of_names_are_read_and_give_the_same)
{
    static const char *const form[4][2] = {
        {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
        {"train-images.idx3-ubyte", "train-labels.idx1-ubyte"},
        {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"},
        {"train-images.idx3-ubyte.gz", "train-labels.idx1-ubyte.gz"},
    };
    uint64_t fingerprint = 0;

    for (int f = 0; f < 4; f++) {
        put(form[f][0], images(12, 2, 3));
        put(form[f][1], labels(12));
        ct_dataset *ds = mnist(true);
        const ct_dataset_info *i = ct_dataset_get_info(ds);
        float x[6];
        int64_t label;
        void *out[] = {x, &label};
        char name[600], path[600];
        cr_assert(i->count == 12 && i->n_classes == 10 && i->n_fields == 2);
        cr_assert(i->field[0].shape[0] == 1 && i->field[0].shape[1] == 2 &&
                  i->field[0].shape[2] == 3);
        cr_assert(f == 0 || i->fingerprint == fingerprint);
        fingerprint = i->fingerprint;
        cr_assert_eq(ct_dataset_get(ds, 11, out, NULL), 0);
        cr_assert_eq(label, 1);
        for (int p = 0; p < 6; p++)
            cr_assert_eq(x[p], (float)(11 * 6 + p + 1) / 255.0f);
        ct_dataset_describe(ds, 11, name, sizeof(name));
        snprintf(path, sizeof(path), "%s/%s[11]", folder, form[f][0]);
        cr_assert_str_eq(name, path);
        ct_dataset_free(ds);
        remove_folder();
        cr_assert_eq(mkdir(folder, 0700), 0);
    }
}

Test(data_mnist, train_and_test_are_apart_and_content_makes_the_fingerprint)
{
    bytes other = images(4, 2, 3);

    put("train-images-idx3-ubyte", images(5, 2, 3));
    put("train-labels-idx1-ubyte", labels(5));
    put("t10k-images-idx3-ubyte", images(4, 2, 3));
    put("t10k-labels-idx1-ubyte", labels(4));
    ct_dataset *train = mnist(true), *test = mnist(false);
    cr_assert_eq(ct_dataset_get_info(train)->count, 5);
    cr_assert_eq(ct_dataset_get_info(test)->count, 4);
    uint64_t before = ct_dataset_get_info(test)->fingerprint;
    cr_assert_neq(ct_dataset_get_info(train)->fingerprint, before);
    ct_dataset_free(test);
    other.b[other.n - 1]++;
    put("t10k-images-idx3-ubyte", other);
    test = mnist(false);
    cr_assert_neq(ct_dataset_get_info(test)->fingerprint, before);
    ct_dataset_free(train);
    ct_dataset_free(test);
}

Test(data_mnist, more_than_ten_classes_are_counted)
{
    bytes l = labels(5);
    l.b[10] = 46;
    put("train-images-idx3-ubyte", images(5, 2, 3));
    put("train-labels-idx1-ubyte", l);
    ct_dataset *ds = mnist(true);
    cr_assert_eq(ct_dataset_get_info(ds)->n_classes, 47);
    ct_dataset_free(ds);
}

Test(data_mnist, missing_files_are_told_with_all_names_tried)
{
    ct_error err = {0};

    mnist_fails(CT_EDATA, "train-images-idx3-ubyte, train-images.idx3-ubyte",
                "train-images-idx3-ubyte.gz, train-images.idx3-ubyte.gz");
    put("train-images-idx3-ubyte", images(5, 2, 3));
    mnist_fails(CT_EDATA, "train labels", "train-labels.idx1-ubyte.gz");
    cr_assert_null(ct_mnist_open("/no/such/folder", true, &err));
    cr_assert(err.code == CT_EDATA && strstr(err.text, "/no/such/folder: no such folder"), "%s",
              err.text);
    err = (ct_error){0};
    cr_assert_null(ct_mnist_open("", true, &err));
    cr_assert_eq(err.code, CT_EINVAL);
    cr_assert_null(ct_mnist_open(NULL, true, NULL));
}

Test(data_mnist, images_and_labels_must_be_of_one_number)
{
    put("train-images-idx3-ubyte", images(5, 2, 3));
    put("train-labels-idx1-ubyte", labels(4));
    mnist_fails(CT_EFORMAT, "train-labels-idx1-ubyte has 4 labels, expected 5", "train-images");
}

Test(data_mnist, a_damaged_file_is_told_by_its_path)
{
    bytes f = images(5, 2, 3);
    char path[512];

    put("train-labels-idx1-ubyte", labels(5));
    f.n -= 3;
    put("train-images-idx3-ubyte.gz", f);
    mnist_fails(CT_EFORMAT, "train-images-idx3-ubyte.gz: truncated", "27 bytes of data found");
    snprintf(path, sizeof(path), "%s/train-images-idx3-ubyte.gz", folder);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(truncate(path, st.st_size - 6), 0); /* the gzip stream itself is cut */
    mnist_fails(CT_EFORMAT, "train-images-idx3-ubyte.gz", "");
    put("train-images-idx3-ubyte", labels(5));
    mnist_fails(CT_EFORMAT, "train-images-idx3-ubyte: 1 dimensions", "labels where images belong");
    put("train-images-idx3-ubyte", images(5, 2, 3));
    put("train-labels-idx1-ubyte", images(5, 2, 3));
    mnist_fails(CT_EFORMAT, "train-labels-idx1-ubyte: 3 dimensions", "images where labels belong");
}
