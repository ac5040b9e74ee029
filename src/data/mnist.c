/* SPDX-License-Identifier: Apache-2.0 */
/* A folder with MNIST's four files, or those of a set in its form (Fashion-MNIST, KMNIST, EMNIST). */
#include "base/error.h"
#include "base/file.h"
#include "data/idx.h"

#include <stdio.h>
#include <string.h>

#define PATH_CAP 480

/* The names a file goes by: as published, and as some archives unpack it; plain ones first. */
static const struct {
    char join; /* between "images" and "idx3" */
    const char *suffix;
} forms[] = {{'-', ""}, {'.', ""}, {'-', ".gz"}, {'.', ".gz"}};
#define N_FORMS ((int)(sizeof(forms) / sizeof(forms[0])))

/* The path of PART-WHAT-IDX-ubyte in the first of its forms that exists. */
static int find(const char *folder, const char *part, const char *what, const char *idx,
                char out[PATH_CAP], ct_error *err)
{
    char tried[256] = "";
    int r;

    for (int i = 0; i < N_FORMS; i++) {
        size_t at = strlen(tried);
        if ((r = cti_path(out, PATH_CAP, err, "%s/%s-%s%c%s-ubyte%s", folder, part, what,
                          forms[i].join, idx, forms[i].suffix)) < 0)
            return r;
        if (cti_path_exists(out))
            return 0;
        snprintf(tried + at, sizeof(tried) - at, "%s%s", i ? ", " : "", out + strlen(folder) + 1);
    }
    return cti_fail(err, CT_EDATA, "%s: the file of %s %s is missing; tried %s", folder, part, what,
                    tried);
}

ct_dataset *ct_mnist_open(const char *folder, bool train, ct_error *err)
{
    const char *part = train ? "train" : "t10k";
    char images[PATH_CAP], labels[PATH_CAP];
    cti_idx_set *set;

    if (!folder || !folder[0]) {
        cti_fail(err, CT_EINVAL, "mnist needs the folder of its files");
        return NULL;
    }
    if (!cti_path_is_dir(folder)) {
        cti_fail(err, CT_EDATA,
                 "%s: %s; mnist needs the folder of its files (%s-images-idx3-ubyte, "
                 "plain or .gz, and the other three)",
                 folder, cti_path_exists(folder) ? "not a folder" : "no such folder", part);
        return NULL;
    }
    if (find(folder, part, "images", "idx3", images, err) < 0 ||
        find(folder, part, "labels", "idx1", labels, err) < 0 || !(set = cti_idx_set_new(255, err)))
        return NULL;
    snprintf(set->name, sizeof(set->name), "%s", images);
    if (cti_idx_read(set->mem, images, 3, &set->images, &set->image_file, err) < 0 ||
        cti_idx_read(set->mem, labels, 1, &set->labels, &set->label_file, err) < 0 ||
        cti_idx_check_pair(images, &set->images, labels, &set->labels, err) < 0) {
        cti_idx_set_free(set);
        return NULL;
    }
    return cti_idx_set_open(set, "mnist", 10, err);
}
