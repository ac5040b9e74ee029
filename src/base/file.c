/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of files; directories, paths and locks are in dir.c. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/file.h"

#include "base/error.h"

#define XXH_INLINE_ALL
#define ZLIB_CONST
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

/* ---- reading ---- */

/* Opens for reading; a directory is refused here, since read() would only say EISDIR. */
static int open_read(const char *path, int code_if_missing, int *fd, struct stat *st, ct_error *err)
{
    int f, r;

    do
        f = open(path, O_RDONLY | O_CLOEXEC);
    while (f < 0 && errno == EINTR);
    if (f < 0)
        return cti_fail_errno(err, code_if_missing, errno, "open", path);
    if (fstat(f, st) != 0)
        r = cti_fail_errno(err, 0, errno, "read", path);
    else if (S_ISDIR(st->st_mode))
        r = cti_fail(err, code_if_missing < 0 ? code_if_missing : CT_EIO,
                     "read %s: it is a directory; give the path of a file", path);
    else
        r = CT_OK;
    if (r < 0)
        close(f);
    else
        *fd = f;
    return r;
}

static ssize_t read_some(int fd, void *data, size_t bytes)
{
    ssize_t n;

    do
        n = read(fd, data, bytes > INT_MAX ? INT_MAX : bytes);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Reads to the end, not to the size of before: a file may grow, and pipes have no size. */
static int read_all(cti_mem *m, int fd, const char *path, size_t expect, size_t limit, void **data,
                    size_t *bytes, ct_error *err)
{
    size_t cap = expect + 2, n = 0; /* room for the zero byte, and one to meet the end */
    void *p = cti_alloc_raw(m, cap, "cti_file_read");
    ssize_t got;
    int r;

    for (;;) {
        if (!p || cti_grow(m, &p, &cap, n + 2, 1, "cti_file_read") < 0) {
            r = cti_fail(err, CT_ENOMEM, "read %s: out of memory for its %zu bytes", path,
                         n > expect ? n : expect);
            goto fail;
        }
        got = read_some(fd, (char *)p + n, cap - 1 - n);
        if (got < 0) {
            r = cti_fail_errno(err, 0, errno, "read", path);
            goto fail;
        }
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > limit) {
            r = cti_fail(err, CT_EFORMAT, "read %s: more than the %zu bytes allowed here", path,
                         limit);
            goto fail;
        }
    }
    ((char *)p)[n] = '\0';
    *data = p;
    *bytes = n;
    return CT_OK;
fail:
    cti_free(m, p);
    return r;
}

static int read_file(cti_mem *m, const char *path, int code_if_missing, size_t limit, void **data,
                     size_t *bytes, ct_error *err)
{
    struct stat st;
    int fd = -1, r;

    if ((r = open_read(path, code_if_missing, &fd, &st, err)) < 0)
        return r;
    if (st.st_size > 0 && (uintmax_t)st.st_size > limit)
        r = cti_fail(err, CT_EFORMAT, "read %s: %jd bytes, more than the %zu allowed here", path,
                     (intmax_t)st.st_size, limit);
    else
        r = read_all(m, fd, path, st.st_size > 0 ? (size_t)st.st_size : 0, limit, data, bytes, err);
    close(fd);
    return r;
}

int cti_file_read(cti_mem *m, const char *path, int code_if_missing, void **data, size_t *bytes,
                  ct_error *err)
{
    return read_file(m, path, code_if_missing, PTRDIFF_MAX - 4096, data, bytes, err);
}

/* ---- gzip ---- */

typedef struct inflater {
    z_stream z;
    cti_mem *m;
    const char *path;
    const unsigned char *in;
    size_t in_bytes, in_used;
    void *out;
    size_t cap, n, limit;
} inflater;

static voidpf zlib_alloc(voidpf user, uInt items, uInt size)
{
    return cti_alloc((cti_mem *)user, (size_t)items * size, "inflate");
}

static void zlib_free(voidpf user, voidpf p)
{
    cti_free((cti_mem *)user, p);
}

static int fail_gzip(inflater *f, const char *why, ct_error *err)
{
    return cti_fail(err, CT_EFORMAT,
                    "%s: damaged gzip data at byte %zu of %zu: %s; fetch or make the file again",
                    f->path, f->in_used, f->in_bytes, why);
}

/* The size that the last member claims for itself, if deflate can have made it of so few bytes. */
static size_t first_room(const inflater *f)
{
    const unsigned char *end = f->in + f->in_bytes;
    size_t claim = 0;

    for (int i = 1; i <= 4 && f->in_bytes >= 18; i++)
        claim = claim << 8 | end[-i];
    return claim / 1032 <= f->in_bytes ? claim + 2 : 64 << 10;
}

/* One call of inflate over as much input and room as there is; Z_STREAM_END at a member's end. */
static int inflate_some(inflater *f, int *zr, ct_error *err)
{
    size_t in = f->in_bytes - f->in_used, room, want = f->n + 2;
    size_t most = f->limit + 2; /* the zero byte, and one more than allowed to notice too much */

    if (want > f->cap) {
        size_t to = f->n == 0 ? first_room(f) : want;
        if (to > most)
            to = most;
        if (cti_grow(f->m, &f->out, &f->cap, to, 1, "cti_file_read_gz") < 0)
            return cti_fail(err, CT_ENOMEM, "%s: out of memory for more than %zu bytes of content",
                            f->path, f->n);
    }
    room = f->cap - 1 - f->n;
    f->z.next_in = f->in + f->in_used;
    f->z.avail_in = in > INT_MAX ? INT_MAX : (uInt)in;
    f->z.next_out = (unsigned char *)f->out + f->n;
    f->z.avail_out = room > INT_MAX ? INT_MAX : (uInt)room;
    in = f->z.avail_in;
    room = f->z.avail_out;
    *zr = inflate(&f->z, Z_NO_FLUSH);
    f->in_used += in - f->z.avail_in;
    f->n += room - f->z.avail_out;
    if (f->n > f->limit)
        return cti_fail(err, CT_EFORMAT, "%s: gunzipped, more than the %zu bytes allowed here",
                        f->path, f->limit);
    if (*zr == Z_OK || *zr == Z_STREAM_END)
        return CT_OK;
    if (*zr == Z_MEM_ERROR)
        return cti_fail(err, CT_ENOMEM, "%s: out of memory to gunzip it", f->path);
    if (*zr == Z_BUF_ERROR)
        return fail_gzip(f, "it ends in the middle", err);
    return fail_gzip(f, f->z.msg ? f->z.msg : "not readable", err);
}

/* All members; gzip's own tool pads with zeros to whole blocks on tapes, so those may follow. */
static int inflate_members(inflater *f, ct_error *err)
{
    int r, zr = Z_OK;

    for (;;) {
        do {
            if ((r = inflate_some(f, &zr, err)) < 0)
                return r;
        } while (zr != Z_STREAM_END);
        const unsigned char *rest = f->in + f->in_used;
        size_t n = f->in_bytes - f->in_used;
        if (n >= 2 && rest[0] == 0x1f && rest[1] == 0x8b) {
            inflateReset(&f->z);
            continue;
        }
        while (n > 0 && *rest == 0)
            rest++, n--;
        if (n > 0)
            return fail_gzip(f, "other data follows the end of the gzip data", err);
        return CT_OK;
    }
}

int cti_file_read_gz(cti_mem *m, const char *path, size_t limit, void **data, size_t *bytes,
                     ct_error *err)
{
    inflater f = {.m = m, .path = path};
    void *raw;
    int r;

    if (limit > PTRDIFF_MAX / 2)
        limit = PTRDIFF_MAX / 2;
    /* What can't be packed is a little longer in gzip than plain. */
    if ((r = read_file(m, path, 0, limit + limit / 64 + (64 << 10), &raw, &f.in_bytes, err)) < 0)
        return r;
    f.in = raw;
    f.limit = limit;
    if (f.in_bytes < 2 || f.in[0] != 0x1f || f.in[1] != 0x8b) {
        if (f.in_bytes > limit) {
            cti_free(m, raw);
            return cti_fail(err, CT_EFORMAT, "read %s: %zu bytes, more than the %zu allowed here",
                            path, f.in_bytes, limit);
        }
        *data = raw;
        *bytes = f.in_bytes;
        return CT_OK;
    }
    f.z.zalloc = zlib_alloc;
    f.z.zfree = zlib_free;
    f.z.opaque = m;
    if (inflateInit2(&f.z, 15 + 16) != Z_OK) {
        r = cti_fail(err, CT_ENOMEM, "%s: out of memory to gunzip it", path);
    } else {
        r = inflate_members(&f, err);
        inflateEnd(&f.z);
    }
    cti_free(m, raw);
    if (r < 0) {
        cti_free(m, f.out);
        return r;
    }
    ((char *)f.out)[f.n] = '\0';
    *data = f.out;
    *bytes = f.n;
    return CT_OK;
}

/* ---- writing ---- */

static atomic_int fail_write_in; /* the test hook of the header; 0: off */

void cti_file_fail_write_at(int n)
{
    atomic_store(&fail_write_in, n > 0 ? n : 0);
}

static bool write_must_fail(void)
{
    int n = atomic_load(&fail_write_in);

    while (n > 0)
        if (atomic_compare_exchange_weak(&fail_write_in, &n, n - 1))
            return n == 1;
    return false;
}

static int open_write(const char *path, int *fd, ct_error *err)
{
    int f;

    do
        f = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    while (f < 0 && errno == EINTR);
    if (f < 0)
        return cti_fail_errno(err, 0, errno, "create", path);
    *fd = f;
    return CT_OK;
}

static int write_all(int fd, const char *path, const void *data, size_t bytes, ct_error *err)
{
    const char *p = data;

    if (write_must_fail())
        return cti_fail_errno(err, 0, ENOSPC, "write", path);
    while (bytes > 0) {
        ssize_t n = write(fd, p, bytes > INT_MAX ? INT_MAX : bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return cti_fail_errno(err, 0, n < 0 ? errno : EIO, "write", path);
        p += n;
        bytes -= (size_t)n;
    }
    return CT_OK;
}

/* Closes in any case. `r` is what went before: after a failure only the descriptor matters. */
static int sync_close(int fd, const char *path, int r, ct_error *err)
{
    while (r == CT_OK && fsync(fd) != 0) {
        if (errno == EINTR)
            continue;
        if (errno == EINVAL || errno == ENOTSUP) /* a pipe or a device: nothing to make durable */
            break;
        r = cti_fail_errno(err, 0, errno, "fsync", path);
    }
    /* After EINTR the descriptor is gone, and the data is on the disk by the fsync. */
    if (close(fd) != 0 && errno != EINTR && r == CT_OK)
        r = cti_fail_errno(err, 0, errno, "close", path);
    return r;
}

int cti_file_write(const char *path, const void *data, size_t bytes, ct_error *err)
{
    int fd = -1, r;

    if ((r = open_write(path, &fd, err)) < 0)
        return r;
    return sync_close(fd, path, write_all(fd, path, data, bytes, err), err);
}

int cti_file_write_atomic(const char *path, const void *data, size_t bytes, ct_error *err)
{
    char tmp[PATH_MAX];
    int r;

    if ((r = cti_path(tmp, sizeof tmp, err, "%s.tmp", path)) < 0)
        return r;
    if ((r = cti_file_write(tmp, data, bytes, err)) < 0 ||
        (r = cti_rename_sync(tmp, path, err)) < 0)
        unlink(tmp);
    return r;
}

struct cti_writer {
    cti_mem *m;
    char *path;
    int fd;
    int failed; /* the code of the first failure: close() must not call the file good */
    uint64_t bytes;
    XXH64_state_t hash;
    size_t n;
    char buffer[64 << 10];
};

cti_writer *cti_writer_open(cti_mem *m, const char *path, ct_error *err)
{
    cti_writer *w = cti_alloc_raw(m, sizeof *w, "cti_writer_open");

    if (!w) {
        cti_fail(err, CT_ENOMEM, "write %s: out of memory", path);
        return NULL;
    }
    w->m = m;
    w->failed = CT_OK;
    w->bytes = 0;
    w->n = 0;
    XXH64_reset(&w->hash, 0);
    w->path = cti_strdup(m, path);
    if (!w->path) {
        cti_fail(err, CT_ENOMEM, "write %s: out of memory", path);
        cti_free(m, w);
        return NULL;
    }
    if (open_write(path, &w->fd, err) < 0) {
        cti_free(m, w->path);
        cti_free(m, w);
        return NULL;
    }
    return w;
}

static int writer_flush(cti_writer *w, ct_error *err)
{
    int r = w->n ? write_all(w->fd, w->path, w->buffer, w->n, err) : CT_OK;

    w->n = 0;
    if (r < 0)
        w->failed = r;
    return r;
}

static int writer_failed_before(cti_writer *w, ct_error *err)
{
    return cti_fail(err, w->failed, "write %s: an earlier write to it has failed", w->path);
}

int cti_writer_put(cti_writer *w, const void *data, size_t bytes, ct_error *err)
{
    int r;

    if (w->failed)
        return writer_failed_before(w, err);
    if (bytes == 0)
        return CT_OK;
    if (bytes > sizeof w->buffer - w->n && (r = writer_flush(w, err)) < 0)
        return r;
    if (bytes > sizeof w->buffer) {
        if ((r = write_all(w->fd, w->path, data, bytes, err)) < 0) {
            w->failed = r;
            return r;
        }
    } else {
        memcpy(w->buffer + w->n, data, bytes);
        w->n += bytes;
    }
    XXH64_update(&w->hash, data, bytes);
    w->bytes += bytes;
    return CT_OK;
}

int cti_writer_close(cti_writer *w, uint64_t *hash, uint64_t *bytes, ct_error *err)
{
    int r = w->failed ? writer_failed_before(w, err) : writer_flush(w, err);

    r = sync_close(w->fd, w->path, r, err);
    if (r == CT_OK && hash)
        *hash = XXH64_digest(&w->hash);
    if (r == CT_OK && bytes)
        *bytes = w->bytes;
    cti_free(w->m, w->path);
    cti_free(w->m, w);
    return r;
}

void cti_writer_abandon(cti_writer *w)
{
    if (!w)
        return;
    close(w->fd);
    cti_free(w->m, w->path);
    cti_free(w->m, w);
}

/* ---- checksums ---- */

int cti_file_hash(const char *path, uint64_t *hash, uint64_t *bytes, ct_error *err)
{
    char buffer[32 << 10];
    XXH64_state_t state;
    uint64_t total = 0;
    struct stat st;
    ssize_t n;
    int fd = -1, r;

    if ((r = open_read(path, 0, &fd, &st, err)) < 0)
        return r;
    XXH64_reset(&state, 0);
    while ((n = read_some(fd, buffer, sizeof buffer)) > 0) {
        XXH64_update(&state, buffer, (size_t)n);
        total += (uint64_t)n;
    }
    if (n < 0)
        r = cti_fail_errno(err, 0, errno, "read", path);
    close(fd);
    if (r == CT_OK && hash)
        *hash = XXH64_digest(&state);
    if (r == CT_OK && bytes)
        *bytes = total;
    return r;
}

uint64_t cti_hash(const void *data, size_t bytes, uint64_t seed)
{
    return XXH64(data, bytes, seed);
}
