/* SPDX-License-Identifier: Apache-2.0 */
/* The main of a fuzz target that is built without a fuzzer: runs it on each file given, and on all
 * files in each folder given. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL, *more;
    size_t n = 0, got;

    if (!f) {
        perror(path);
        return -1;
    }
    do {
        more = realloc(data, n + 4096);
        if (!more) {
            free(data);
            fclose(f);
            fprintf(stderr, "%s: out of memory\n", path);
            return -1;
        }
        data = more;
        got = fread(data + n, 1, 4096, f);
        n += got;
    } while (got > 0);
    fclose(f);
    /* A copy of just its size, so that a sanitizer sees reads beyond the end. */
    more = malloc(n ? n : 1);
    if (more) {
        for (size_t i = 0; i < n; i++)
            more[i] = data[i];
        fprintf(stderr, "%s: %zu bytes\n", path, n); /* first: it may crash */
        LLVMFuzzerTestOneInput(more, n);
    }
    free(more);
    free(data);
    return more ? 1 : -1;
}

static int replay(const char *path)
{
    char inner[4096];
    struct dirent *e;
    struct stat st;
    DIR *dir;
    int ran = 0;

    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return replay_file(path);
    dir = opendir(path);
    if (!dir) {
        perror(path);
        return -1;
    }
    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        int r = replay(inner);
        if (r < 0) {
            closedir(dir);
            return -1;
        }
        ran += r;
    }
    closedir(dir);
    return ran;
}

int main(int argc, char **argv)
{
    int ran = 0;

    for (int i = 1; i < argc; i++) {
        int r = replay(argv[i]);
        if (r < 0)
            return 1;
        ran += r;
    }
    printf("%d inputs\n", ran);
    return ran > 0 ? 0 : 1; /* an empty folder is no test */
}
