/* SPDX-License-Identifier: Apache-2.0 */
/* Directories, paths and locks: the part of file.h that is not about contents. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* flock */
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/error.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 64 }; /* of a tree to remove: each level holds a descriptor */

/* ---- paths ---- */

bool cti_path_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

bool cti_path_is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int cti_path(char *out, size_t cap, ct_error *err, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(out, cap, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < cap)
        return CT_OK;
    if (n < 0 || cap == 0)
        cti_fail(err, CT_EINVAL, "a path is too long (at most %zu bytes)", cap ? cap - 1 : 0);
    else
        cti_fail(err, CT_EINVAL, "a path of %d bytes is too long (at most %zu): %.200s...", n,
                 cap - 1, out);
    if (cap > 0)
        out[0] = '\0'; /* a cut path would name another file */
    return CT_EINVAL;
}

int cti_path_relative_to(char *out, size_t cap, const char *base_file, const char *path,
                         ct_error *err)
{
    const char *slash = strrchr(base_file, '/');

    if (path[0] == '/' || !slash)
        return cti_path(out, cap, err, "%s", path);
    return cti_path(out, cap, err, "%.*s/%s", slash == base_file ? 0 : (int)(slash - base_file),
                    base_file, path);
}

/* The folder of `path`, whose trailing slashes don't count: "a/b/" is in "a". */
static int parent_of(char *out, size_t cap, const char *path, ct_error *err)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0)
        return cti_path(out, cap, err, ".");
    return cti_path(out, cap, err, "%.*s", (int)n, path);
}

/* ---- making and syncing ---- */

static int make_one(const char *path, ct_error *err)
{
    int e;

    if (mkdir(path, 0777) == 0)
        return CT_OK;
    e = errno;
    if (cti_path_is_dir(path)) /* whatever mkdir says: a read-only root gives EROFS for one there */
        return CT_OK;
    if (e == EEXIST)
        return cti_fail(err, CT_EIO, "make directory %s: something else has that name", path);
    return cti_fail_errno(err, 0, e, "make directory", path);
}

int cti_dir_make(const char *path, ct_error *err)
{
    char part[PATH_MAX];
    int r;

    if (path[0] == '\0')
        return cti_fail(err, CT_EINVAL, "make directory: the path is empty");
    if ((r = cti_path(part, sizeof part, err, "%s", path)) < 0)
        return r;
    for (char *p = part + 1; *p; p++) {
        if (*p != '/' || p[-1] == '/')
            continue;
        *p = '\0';
        r = make_one(part, err);
        *p = '/';
        if (r < 0)
            return r;
    }
    return make_one(part, err);
}

int cti_dir_sync(const char *path, ct_error *err)
{
    int fd, r = CT_OK;

    do
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return cti_fail_errno(err, 0, errno, "open directory", path);
    while (fsync(fd) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EINVAL && errno != ENOTSUP) /* file systems without it, nothing to be done */
            r = cti_fail_errno(err, 0, errno, "fsync directory", path);
        break;
    }
    close(fd);
    return r;
}

int cti_rename_sync(const char *from, const char *to, ct_error *err)
{
    char to_dir[PATH_MAX], from_dir[PATH_MAX];
    int r;

    if ((r = parent_of(to_dir, sizeof to_dir, to, err)) < 0 ||
        (r = parent_of(from_dir, sizeof from_dir, from, err)) < 0)
        return r;
    if (rename(from, to) != 0) {
        int e = errno;
        cti_fail_errno(err, 0, e, "rename to", to);
        return cti_error_prefix(err, "%s", from);
    }
    if ((r = cti_dir_sync(to_dir, err)) < 0 || strcmp(from_dir, to_dir) == 0)
        return r;
    return cti_dir_sync(from_dir, err);
}

/* ---- removing ---- */

static int remove_tree(int parent, const char *name, const char *top, int depth, ct_error *err);

static bool is_real_dir(int parent, const char *name)
{
    struct stat st;

    return fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int remove_entries(int fd, DIR *dir, const char *top, int depth, ct_error *err)
{
    struct dirent *e;
    int r = CT_OK;

    while (r == CT_OK && (errno = 0, e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        int why = errno; /* for a directory: EISDIR on Linux, EPERM by POSIX */
        if (is_real_dir(fd, e->d_name))
            r = remove_tree(fd, e->d_name, top, depth + 1, err);
        else
            r = cti_fail_errno(err, 0, why, "remove from", top);
        if (r < 0)
            cti_error_prefix(err, "%s", e->d_name);
    }
    if (r == CT_OK && errno != 0)
        r = cti_fail_errno(err, 0, errno, "remove: list", top);
    return r;
}

/* Goes by descriptors with O_NOFOLLOW, so that a link put in the way meanwhile can't lead it out of
 * the tree. */
static int remove_tree(int parent, const char *name, const char *top, int depth, ct_error *err)
{
    int fd, r = CT_OK;
    DIR *dir;

    if (depth > MAX_DEPTH)
        return cti_fail(err, CT_EIO, "remove %s: more than %d levels deep; remove it by hand", top,
                        MAX_DEPTH);
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return cti_fail_errno(err, 0, errno, "remove", top);
    dir = fdopendir(fd);
    if (!dir) {
        r = cti_fail_errno(err, 0, errno, "remove", top);
        close(fd);
        return r;
    }
    /* A few rounds: someone may still be writing into it. */
    for (int round = 0; round < 3; round++) {
        if ((r = remove_entries(fd, dir, top, depth, err)) < 0)
            break;
        if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            break;
        if ((errno != ENOTEMPTY && errno != EEXIST) || round == 2) {
            r = cti_fail_errno(err, 0, errno, "remove", top);
            break;
        }
        rewinddir(dir);
    }
    closedir(dir);
    return r;
}

int cti_dir_remove(const char *path, ct_error *err)
{
    char clean[PATH_MAX];
    struct stat st;
    const char *last;
    size_t n;
    int r;

    if ((r = cti_path(clean, sizeof clean, err, "%s", path)) < 0)
        return r;
    n = strlen(clean); /* "link/" would follow the link */
    while (n > 1 && clean[n - 1] == '/')
        clean[--n] = '\0';
    last = strrchr(clean, '/');
    last = last ? last + 1 : clean;
    if (*last == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return cti_fail(err, CT_EINVAL, "remove '%s': not a directory with a name of its own",
                        path);
    if (lstat(clean, &st) != 0)
        return errno == ENOENT ? CT_OK : cti_fail_errno(err, 0, errno, "remove", path);
    if (S_ISLNK(st.st_mode)) /* the link goes, what it shows stays */
        return unlink(clean) == 0 ? CT_OK : cti_fail_errno(err, 0, errno, "remove", path);
    if (!S_ISDIR(st.st_mode))
        return cti_fail(err, CT_EIO, "remove %s: it is a file, a directory was expected", path);
    return remove_tree(AT_FDCWD, clean, clean, 1, err);
}

/* ---- listing ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int cti_dir_list(cti_mem *m, const char *path, int (*fn)(const char *name, void *user), void *user,
                 ct_error *err)
{
    char **names = NULL;
    size_t cap = 0, n = 0;
    struct dirent *e;
    DIR *dir;
    int r = CT_OK;

    dir = opendir(path);
    if (!dir)
        return cti_fail_errno(err, 0, errno, "list directory", path);
    while ((errno = 0, e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (cti_grow(m, (void **)&names, &cap, n + 1, sizeof *names, "cti_dir_list") < 0 ||
            !(names[n] = cti_strdup(m, e->d_name))) {
            r = cti_fail(err, CT_ENOMEM, "list directory %s: out of memory", path);
            goto out;
        }
        n++;
    }
    if (errno != 0) {
        r = cti_fail_errno(err, 0, errno, "list directory", path);
        goto out;
    }
    if (n > 1)
        qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n && r == CT_OK; i++)
        r = fn(names[i], user);
out:
    closedir(dir);
    for (size_t i = 0; i < n; i++)
        cti_free(m, names[i]);
    cti_free(m, names);
    return r;
}

/* ---- locks ---- */

int cti_lock_take(const char *path, int *fd, ct_error *err)
{
    int f, r;

    do
        f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (f < 0 && errno == EINTR);
    if (f < 0)
        return cti_fail_errno(err, 0, errno, "open lock", path);
    while ((r = flock(f, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR)
        ;
    if (r == 0) {
        *fd = f;
        return CT_OK;
    }
    if (errno == EWOULDBLOCK)
        r = cti_fail(err, CT_EBUSY,
                     "%s is locked by another process; wait for it to end, or stop it", path);
    else
        r = cti_fail_errno(err, 0, errno, "lock", path);
    close(f);
    return r;
}

void cti_lock_release(int fd)
{
    if (fd >= 0)
        close(fd); /* the lock goes with the last descriptor */
}

int cti_path_absolute(char *out, size_t cap, const char *path, ct_error *err)
{
    char cwd[4096];
    if (path[0] == '/')
        return cti_path(out, cap, err, "%s", path);
    if (!getcwd(cwd, sizeof cwd))
        return cti_fail_errno(err, CT_EIO, errno, "can't find the current directory for", path);
    return cti_path(out, cap, err, "%s/%s", cwd, path);
}
