/* SPDX-License-Identifier: Apache-2.0 */
/* What a digits run trains on, as raw files, so that another program can train on the same batches:
 *
 *     digits_batches FOLDER SEED BATCH_SIZE EPOCHS FRACTION SHUFFLE DROP_LAST
 *
 * writes into FOLDER, in the machine's byte order, {train,val}-x.f32 (images), {train,val}-y.i64
 * (labels), and batches.i64: for each batch its number of samples, then their places in train-x. */
#include <ctrain/data.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ct_error err;

static int failed(const char *what)
{
    fprintf(stderr, "digits_batches: %s: %s\n", what, err.code ? err.text : strerror(errno));
    return 1;
}

static FILE *create(const char *folder, const char *name)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(path, "wb");
}

static int write_samples(const char *folder, const char *part, ct_dataset *ds)
{
    const ct_dataset_info *info = ct_dataset_get_info(ds);
    size_t pixels = 1;
    char name[64];
    FILE *fx, *fy;
    float *image;
    int64_t label;
    int bad = 0;

    for (int d = 0; d < info->field[0].ndim; d++)
        pixels *= (size_t)info->field[0].shape[d];
    snprintf(name, sizeof name, "%s-x.f32", part);
    fx = create(folder, name);
    snprintf(name, sizeof name, "%s-y.i64", part);
    fy = create(folder, name);
    image = malloc(pixels * sizeof *image);
    if (!fx || !fy || !image)
        bad = failed(part);
    for (int64_t i = 0; !bad && i < info->count; i++) {
        void *out[CT_MAX_FIELDS] = {image, &label};
        if (ct_dataset_get(ds, i, out, &err) < 0 ||
            fwrite(image, sizeof *image, pixels, fx) != pixels ||
            fwrite(&label, sizeof label, 1, fy) != 1)
            bad = failed(part);
    }
    if ((fx && fclose(fx) != 0) | (fy && fclose(fy) != 0) && !bad)
        bad = failed(part);
    free(image);
    return bad;
}

static int write_batches(const char *folder, ct_dataset *ds, ct_loader_opts opts, int64_t epochs)
{
    ct_loader *loader = ct_loader_new(ds, opts, &err);
    FILE *f = create(folder, "batches.i64");
    ct_batch b;
    int r = 1, bad = !loader || !f;

    for (int64_t e = 0; !bad && e < epochs; e += r == 0) {
        if ((r = ct_loader_next(loader, &b, &err)) < 0)
            bad = 1;
        else if (r > 0)
            bad = fwrite(&b.count, sizeof b.count, 1, f) != 1 ||
                  fwrite(b.ids, sizeof *b.ids, (size_t)b.count, f) != (size_t)b.count;
    }
    if (f && fclose(f) != 0)
        bad = 1;
    ct_loader_free(loader);
    return bad ? failed("batches") : 0;
}

int main(int argc, char **argv)
{
    ct_loader_opts opts = ct_loader_defaults();
    ct_dataset *all, *train = NULL, *val = NULL;
    int bad;

    if (argc != 8) {
        fputs("usage: digits_batches FOLDER SEED BATCH_SIZE EPOCHS FRACTION SHUFFLE DROP_LAST\n",
              stderr);
        return 2;
    }
    opts.seed = strtoull(argv[2], NULL, 10);
    opts.batch_size = strtoll(argv[3], NULL, 10);
    opts.shuffle = strcmp(argv[6], "true") == 0;
    opts.drop_last = strcmp(argv[7], "true") == 0;
    all = ct_digits_open(&err);
    if (all) {
        train = ct_dataset_split(all, strtod(argv[5], NULL), false, &err);
        val = ct_dataset_split(all, strtod(argv[5], NULL), true, &err);
    }
    bad = !train || !val ? failed("digits") : 0;
    bad = bad || write_samples(argv[1], "train", train) || write_samples(argv[1], "val", val) ||
          write_batches(argv[1], train, opts, strtoll(argv[4], NULL, 10));
    ct_dataset_free(train);
    ct_dataset_free(val);
    ct_dataset_free(all);
    return bad;
}
