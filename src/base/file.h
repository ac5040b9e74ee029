/* SPDX-License-Identifier: Apache-2.0 */
/* Files: whole reads, atomic durable writes, directories, locks, checksums. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/mem.h"
#include <ctrain/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Reads a whole file (owned by the caller, cti_free; one zero byte follows the end). A missing file
 * is CT_EIO unless `code_if_missing` says otherwise. A directory is an error that says so. */
int cti_file_read(cti_mem *m, const char *path, int code_if_missing, void **data, size_t *bytes,
                  ct_error *err);
/* The same, and gunzips when the content starts with gzip's magic. At most `limit` bytes. */
int cti_file_read_gz(cti_mem *m, const char *path, size_t limit, void **data, size_t *bytes,
                     ct_error *err);

/* Writes a file in place and fsyncs it: for files in a directory that is renamed as a whole. */
int cti_file_write(const char *path, const void *data, size_t bytes, ct_error *err);
/* Writes PATH.tmp, fsyncs, renames over PATH, fsyncs the directory: a reader sees old or new. */
int cti_file_write_atomic(const char *path, const void *data, size_t bytes, ct_error *err);

/* A file being written in pieces, hashed (XXH64, seed 0) and counted on the way. */
typedef struct cti_writer cti_writer;
cti_writer *cti_writer_open(cti_mem *m, const char *path, ct_error *err);
int cti_writer_put(cti_writer *w, const void *data, size_t bytes, ct_error *err);
/* fsyncs and closes; frees `w` also when it fails. `hash`, `bytes` may be NULL. */
int cti_writer_close(cti_writer *w, uint64_t *hash, uint64_t *bytes, ct_error *err);
void cti_writer_abandon(cti_writer *w); /* closes without fsync; NULL is fine */

int cti_file_hash(const char *path, uint64_t *hash, uint64_t *bytes, ct_error *err);
uint64_t cti_hash(const void *data, size_t bytes, uint64_t seed);

int cti_dir_make(const char *path, ct_error *err); /* with parents; existing is fine */
int cti_dir_sync(const char *path, ct_error *err);
int cti_dir_remove(const char *path, ct_error *err); /* with all in it; missing is fine */
int cti_rename_sync(const char *from, const char *to, ct_error *err); /* and fsync the parent */
bool cti_path_exists(const char *path);
bool cti_path_is_dir(const char *path);
/* Calls fn for each entry but . and .., in name order; a non-zero return stops and is returned. */
int cti_dir_list(cti_mem *m, const char *path, int (*fn)(const char *name, void *user), void *user,
                 ct_error *err);

/* snprintf of a path; CT_EINVAL when it does not fit. */
int cti_path(char *out, size_t cap, ct_error *err, const char *fmt, ...) CT_PRINTF(4, 5);
/* `path` itself when absolute, else relative to the folder of the file `base_file`. */
int cti_path_relative_to(char *out, size_t cap, const char *base_file, const char *path,
                         ct_error *err);

/* `path` itself when absolute, else below the current directory. */
int cti_path_absolute(char *out, size_t cap, const char *path, ct_error *err);

/* An exclusive flock on PATH (made when missing), held until released or the process ends. CT_EBUSY
 * when another holds it. */
int cti_lock_take(const char *path, int *fd, ct_error *err);
void cti_lock_release(int fd); /* -1 is fine */

/* Test hook: the n-th write from now fails with ENOSPC (0: off). Only in force in this process. */
void cti_file_fail_write_at(int n);

#endif
