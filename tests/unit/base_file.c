/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* POSIX, whatever the build's flags are */
#endif
#include "base/file.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

static char dir[256]; /* of this test; each runs in a process of its own */
static cti_mem *m;
static ct_error err;

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(dir, sizeof dir, "%s/ct-file-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    cr_assert_not_null(mkdtemp(dir));
    m = cti_mem_new(NULL);
}

static void fail_on_leak(const char *maker, uint64_t n, uint64_t bytes, void *user)
{
    (void)n, (void)bytes, (void)user;
    cr_assert_fail("%s leaks", maker);
}

static void teardown(void)
{
    cti_mem_free(m, fail_on_leak, NULL);
    cr_assert_eq(cti_dir_remove(dir, NULL), CT_OK);
}

TestSuite(base_file, .init = setup, .fini = teardown);

/* A path in the test's folder; the last four stay valid. */
static const char *in(const char *name)
{
    static char path[4][512];
    static int k;

    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

/* The text of the error, with the folder's name as "DIR"; clears the record. */
static const char *told(void)
{
    static char text[2048];
    char *out = text;

    for (const char *s = err.text; *s;) {
        if (strncmp(s, dir, strlen(dir)) == 0) {
            out += sprintf(out, "DIR");
            s += strlen(dir);
        } else {
            *out++ = *s++;
        }
    }
    *out = '\0';
    memset(&err, 0, sizeof err);
    return text;
}

static void write_file(const char *path, const void *data, size_t n)
{
    cr_assert_eq(cti_file_write(path, data, n, &err), CT_OK, "%s", err.text);
}

static void expect_content(const char *path, const char *want)
{
    void *data;
    size_t n;

    cr_assert_eq(cti_file_read(m, path, 0, &data, &n, &err), CT_OK, "%s", err.text);
    cr_assert_eq(n, strlen(want));
    cr_assert_str_eq(data, want);
    cti_free(m, data);
}

static int entries_of(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

/* ---- reading ---- */

Test(base_file, a_file_is_read_whole_with_a_zero_after_it)
{
    static char big[300000];

    write_file(in("a"), "hello\n", 6);
    expect_content(in("a"), "hello\n");
    write_file(in("a"), "x", 1);
    expect_content(in("a"), "x");
    write_file(in("empty"), NULL, 0);
    expect_content(in("empty"), "");
    memset(big, 'x', sizeof big - 1);
    write_file(in("big"), big, sizeof big - 1);
    expect_content(in("big"), big);
}

Test(base_file, a_file_without_a_size_is_read_to_its_end)
{
    void *data;
    size_t n;

    cr_assert_eq(cti_file_read(m, "/proc/self/status", 0, &data, &n, &err), CT_OK);
    cr_assert_gt(n, 100);
    cti_free(m, data);
}

static void *feed(void *path)
{
    int fd = open(path, O_WRONLY);

    for (int i = 0; i < 1000; i++)
        cr_assert_eq(write(fd, "0123456789", 10), 10);
    close(fd);
    return NULL;
}

Test(base_file, a_pipe_is_read_to_its_end_and_within_the_limit)
{
    static char path[512];
    pthread_t t;
    void *data;
    size_t n;

    strcpy(path, in("fifo"));
    cr_assert_eq(mkfifo(path, 0600), 0);
    pthread_create(&t, NULL, feed, path);
    cr_assert_eq(cti_file_read(m, path, 0, &data, &n, &err), CT_OK);
    pthread_join(t, NULL);
    cr_assert_eq(n, 10000);
    cti_free(m, data);
}

Test(base_file, a_missing_file_says_so_with_the_callers_code)
{
    void *data = &err;
    size_t n = 5;

    cr_assert_eq(cti_file_read(m, in("no"), 0, &data, &n, &err), CT_EIO);
    cr_assert_str_eq(told(), "open DIR/no: No such file or directory");
    cr_assert_eq(cti_file_read(m, in("no"), CT_ECONFIG, &data, &n, &err), CT_ECONFIG);
    cr_assert_eq(err.code, CT_ECONFIG);
    cr_assert(data == &err && n == 5, "untouched");
}

Test(base_file, a_directory_is_refused_as_one)
{
    void *data;
    size_t n;
    uint64_t h;

    cr_assert_eq(cti_file_read(m, dir, 0, &data, &n, &err), CT_EIO);
    cr_assert_str_eq(told(), "read DIR: it is a directory; give the path of a file");
    cr_assert_eq(cti_file_read(m, dir, CT_ECONFIG, &data, &n, &err), CT_ECONFIG);
    told();
    cr_assert_eq(cti_file_hash(dir, &h, NULL, &err), CT_EIO);
    cr_assert_str_eq(told(), "read DIR: it is a directory; give the path of a file");
}

Test(base_file, reading_without_memory_is_an_error_and_leaks_nothing)
{
    void *data;
    size_t n;

    write_file(in("a"), "hello", 5);
    cti_mem_fail_at(m, 1, false);
    cr_assert_eq(cti_file_read(m, in("a"), 0, &data, &n, &err), CT_ENOMEM);
    cr_assert_str_eq(told(), "read DIR/a: out of memory for its 5 bytes");
}

/* ---- gzip ---- */

static size_t gzip(const void *data, size_t n, unsigned char *out, size_t cap)
{
    z_stream z = {0};

    cr_assert_eq(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static int read_gz(const char *name, size_t limit, char **text, size_t *n)
{
    void *data = NULL;
    int r = cti_file_read_gz(m, in(name), limit, &data, n, &err);

    *text = data;
    return r;
}

Test(base_file, gzip_is_unpacked_and_plain_files_are_not)
{
    unsigned char z[1000];
    size_t a = gzip("hello ", 6, z, sizeof z), n;
    char *text;

    write_file(in("plain"), "\x1f plain", 7);
    cr_assert_eq(read_gz("plain", 100, &text, &n), CT_OK);
    cr_assert(n == 7 && strcmp(text, "\x1f plain") == 0);
    cti_free(m, text);

    write_file(in("one.gz"), z, a);
    cr_assert_eq(read_gz("one.gz", 100, &text, &n), CT_OK);
    cr_assert(n == 6 && strcmp(text, "hello ") == 0);
    cti_free(m, text);

    size_t b = gzip("", 0, z + a, sizeof z - a);
    size_t c = gzip("world", 5, z + a + b, sizeof z - a - b);
    memset(z + a + b + c, 0, 512);
    write_file(in("three.gz"), z, a + b + c + 100);
    cr_assert_eq(read_gz("three.gz", 100, &text, &n), CT_OK, "%s", err.text);
    cr_assert(n == 11 && strcmp(text, "hello world") == 0);
    cti_free(m, text);
}

Test(base_file, large_gzip_comes_out_equal)
{
    size_t n = 3000000, got;
    unsigned char *data = malloc(n), *z = malloc(n + 10000);
    uint32_t x = 1;
    char *text;

    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        data[i] = (unsigned char)(i < n / 2 ? x >> 24 : 0);
    }
    size_t half = gzip(data, n / 3, z, n), rest = gzip(data + n / 3, n - n / 3, z + half, n);
    write_file(in("big.gz"), z, half + rest);
    cr_assert_eq(read_gz("big.gz", n, &text, &got), CT_OK, "%s", err.text);
    cr_assert(got == n && memcmp(text, data, n) == 0);
    cti_free(m, text);
    cr_assert_eq(read_gz("big.gz", n - 1, &text, &got), CT_EFORMAT);
    cr_assert_str_eq(told(), "DIR/big.gz: gunzipped, more than the 2999999 bytes allowed here");
    free(data);
    free(z);
}

Test(base_file, a_gzip_bomb_stops_at_the_limit)
{
    size_t n = 50 << 20, got;
    unsigned char *data = calloc(1, n), *z = malloc(1 << 20);
    char *text;

    write_file(in("bomb.gz"), z, gzip(data, n, z, 1 << 20));
    free(data);
    free(z);
    cr_assert_eq(read_gz("bomb.gz", 1 << 20, &text, &got), CT_EFORMAT);
    cr_assert_str_eq(told(), "DIR/bomb.gz: gunzipped, more than the 1048576 bytes allowed here");
    cr_assert_lt(cti_mem_get_stats(m).peak_bytes, 4 << 20);
}

Test(base_file, a_plain_file_over_the_limit_is_refused)
{
    char *text;
    size_t n;

    write_file(in("a"), "12345", 5);
    cr_assert_eq(read_gz("a", 5, &text, &n), CT_OK);
    cti_free(m, text);
    cr_assert_eq(read_gz("a", 4, &text, &n), CT_EFORMAT);
    cr_assert_str_eq(told(), "read DIR/a: 5 bytes, more than the 4 allowed here");
    cr_assert_eq(truncate(in("a"), 1 << 20), 0);
    cr_assert_eq(read_gz("a", 4, &text, &n), CT_EFORMAT);
    cr_assert_str_eq(told(), "read DIR/a: 1048576 bytes, more than the 65540 allowed here");
    cr_assert_eq(read_gz("none", 4, &text, &n), CT_EIO);
    cr_assert_str_eq(told(), "open DIR/none: No such file or directory");
}

Test(base_file, gzip_cut_anywhere_is_called_cut)
{
    unsigned char z[1000];
    size_t all = gzip("hello hello hello hello", 23, z, sizeof z), n;
    char *text, want[200];

    for (size_t cut = 2; cut < all; cut++) {
        write_file(in("cut.gz"), z, cut);
        cr_assert_eq(read_gz("cut.gz", 100, &text, &n), CT_EFORMAT, "cut at %zu", cut);
        snprintf(
            want, sizeof want,
            "DIR/cut.gz: damaged gzip data at byte %zu of %zu: it ends in the middle; fetch or "
            "make the file again",
            cut, cut);
        cr_assert_str_eq(told(), want);
    }
}

Test(base_file, damaged_gzip_says_where_and_how)
{
    unsigned char z[1000];
    size_t all = gzip("hello hello hello hello", 23, z, sizeof z), n;
    char *text;

    z[all - 6] ^= 1; /* in the CRC */
    write_file(in("crc.gz"), z, all);
    cr_assert_eq(read_gz("crc.gz", 100, &text, &n), CT_EFORMAT);
    const char *t = told();
    cr_assert(strstr(t, "DIR/crc.gz: damaged gzip data at byte ") == t, "%s", t);
    cr_assert(strstr(t, ": incorrect data check; fetch or make the file again"), "%s", t);
    z[all - 6] ^= 1;
    memcpy(z + all, "junk", 4);
    write_file(in("junk.gz"), z, all + 4);
    cr_assert_eq(read_gz("junk.gz", 100, &text, &n), CT_EFORMAT);
    t = told();
    cr_assert(strstr(t, ": other data follows the end of the gzip data; fetch or make"), "%s", t);
    for (size_t i = 0; i < all;
         i++) /* any damage: an error or, in the header's free fields, none */
        for (int bit = 0; bit < 8; bit++) {
            z[i] ^= (unsigned char)(1 << bit);
            write_file(in("bits.gz"), z, all);
            if (read_gz("bits.gz", 100, &text, &n) == CT_OK)
                cti_free(m, text);
            else
                cr_assert_eq(err.code, CT_EFORMAT);
            z[i] ^= (unsigned char)(1 << bit);
            told();
        }
}

Test(base_file, gunzipping_with_each_allocation_failing_leaks_nothing)
{
    unsigned char z[1000];
    size_t all = gzip("hello hello hello hello", 23, z, sizeof z), n;
    char *text;
    int r;

    write_file(in("a.gz"), z, all);
    for (uint64_t k = 1;; k++) {
        cti_mem_fail_at(m, k, false);
        r = read_gz("a.gz", 100, &text, &n);
        if (!cti_mem_failed(m))
            break;
        cr_assert_eq(r, CT_ENOMEM);
        cr_assert_not_null(strstr(told(), "out of memory"));
        cr_assert_eq(cti_mem_get_stats(m).live_blocks, 0);
    }
    cr_assert_eq(r, CT_OK);
    cti_free(m, text);
}

/* ---- writing ---- */

Test(base_file, a_full_disk_is_told_by_the_write)
{
    cti_writer *w;

    if (access("/dev/full", W_OK) != 0)
        cr_skip_test("no /dev/full here");
    cr_assert_eq(cti_file_write("/dev/full", "x", 1, &err), CT_EIO);
    cr_assert_str_eq(told(), "write /dev/full: No space left on device");
    w = cti_writer_open(m, "/dev/full", &err);
    cr_assert_eq(cti_writer_put(w, "x", 1, &err), CT_OK);
    cr_assert_eq(cti_writer_close(w, NULL, NULL, &err), CT_EIO);
    cr_assert_str_eq(told(), "write /dev/full: No space left on device");
    cr_assert_eq(access("/dev/full", F_OK), 0);
}

Test(base_file, an_atomic_write_replaces_or_leaves_the_old)
{
    cr_assert_eq(cti_file_write_atomic(in("last"), "old", 3, &err), CT_OK);
    expect_content(in("last"), "old");
    cti_file_fail_write_at(1);
    cr_assert_eq(cti_file_write_atomic(in("last"), "new", 3, &err), CT_EIO);
    cr_assert_str_eq(told(), "write DIR/last.tmp: No space left on device");
    expect_content(in("last"), "old");
    cr_assert_eq(entries_of(dir), 1, "the temporary file is gone");
    cr_assert_eq(cti_file_write_atomic(in("last"), "new", 3, &err), CT_OK);
    expect_content(in("last"), "new");
    cr_assert_eq(entries_of(dir), 1);
}

Test(base_file, an_atomic_write_over_a_directory_fails_and_cleans_up)
{
    cr_assert_eq(cti_dir_make(in("d/e"), &err), CT_OK);
    cr_assert_eq(cti_file_write_atomic(in("d"), "new", 3, &err), CT_EIO);
    cr_assert_str_eq(told(), "DIR/d.tmp: rename to DIR/d: Is a directory");
    cr_assert_eq(entries_of(dir), 1);
}

Test(base_file, writing_where_nothing_can_be_says_why)
{
    cr_assert_eq(cti_file_write(in("no/file"), "x", 1, &err), CT_EIO);
    cr_assert_str_eq(told(), "create DIR/no/file: No such file or directory");
    cr_assert_eq(cti_file_write(dir, "x", 1, &err), CT_EIO);
    cr_assert_str_eq(told(), "create DIR: Is a directory");
    cr_assert_null(cti_writer_open(m, in("no/file"), &err));
    cr_assert_str_eq(told(), "create DIR/no/file: No such file or directory");
}

Test(base_file, a_limit_of_the_file_size_is_an_error_not_a_short_file)
{
    static char big[100000];
    struct rlimit limit = {65536, 65536};

    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_assert_eq(cti_file_write(in("a"), big, sizeof big, &err), CT_EIO);
    cr_assert_str_eq(told(), "write DIR/a: File too large");
}

Test(base_file, the_nth_write_fails_once)
{
    cti_file_fail_write_at(3);
    write_file(in("a"), "1", 1);
    write_file(in("a"), "2", 1);
    cr_assert_eq(cti_file_write(in("a"), "3", 1, &err), CT_EIO);
    cr_assert_str_eq(told(), "write DIR/a: No space left on device");
    write_file(in("a"), "4", 1);
    cti_file_fail_write_at(1);
    cti_file_fail_write_at(0);
    write_file(in("a"), "5", 1);
    expect_content(in("a"), "5");
}

Test(base_file, a_writer_hashes_and_counts_what_it_writes)
{
    size_t n = 1000003, at = 0;
    char *data = malloc(n);
    uint64_t hash, bytes, file_hash, file_bytes;
    cti_writer *w = cti_writer_open(m, in("w"), &err);

    for (size_t i = 0; i < n; i++)
        data[i] = (char)(i * i >> 3);
    for (size_t step = 0; at < n; step = (step * 5 + 3) % 200000) {
        size_t k = n - at < step ? n - at : step;
        cr_assert_eq(cti_writer_put(w, data + at, k, &err), CT_OK);
        at += k;
    }
    cr_assert_eq(cti_writer_close(w, &hash, &bytes, &err), CT_OK);
    cr_assert_eq(bytes, n);
    cr_assert_eq(hash, cti_hash(data, n, 0));
    cr_assert_eq(cti_file_hash(in("w"), &file_hash, &file_bytes, &err), CT_OK);
    cr_assert_eq(file_hash, hash);
    cr_assert_eq(file_bytes, n);
    void *back;
    cr_assert_eq(cti_file_read(m, in("w"), 0, &back, &at, &err), CT_OK);
    cr_assert(at == n && memcmp(back, data, n) == 0);
    cti_free(m, back);
    free(data);
}

Test(base_file, hashes_equal_the_published_ones)
{
    uint64_t h;

    cr_assert_eq(cti_hash("", 0, 0), 0xEF46DB3751D8E999u);
    cr_assert_eq(cti_hash("a", 1, 0), 0xD24EC4F1A98C6E5Bu);
    cr_assert_eq(cti_hash("abc", 3, 0), 0x44BC2CF5AD770999u);
    write_file(in("abc"), "abc", 3);
    cr_assert_eq(cti_file_hash(in("abc"), &h, NULL, &err), CT_OK);
    cr_assert_eq(h, 0x44BC2CF5AD770999u);
    cr_assert_eq(cti_file_hash(in("no"), &h, NULL, &err), CT_EIO);
    cr_assert_str_eq(told(), "open DIR/no: No such file or directory");
}

Test(base_file, a_writer_that_failed_once_never_closes_well)
{
    static char big[70000];
    cti_writer *w = cti_writer_open(m, in("w"), &err);

    cti_file_fail_write_at(1);
    cr_assert_eq(cti_writer_put(w, big, sizeof big, &err), CT_EIO);
    cr_assert_str_eq(told(), "write DIR/w: No space left on device");
    cr_assert_eq(cti_writer_put(w, "x", 1, &err), CT_EIO);
    cr_assert_str_eq(told(), "write DIR/w: an earlier write to it has failed");
    cr_assert_eq(cti_writer_close(w, NULL, NULL, &err), CT_EIO);
    cr_assert_str_eq(told(), "write DIR/w: an earlier write to it has failed");
}

Test(base_file, an_abandoned_writer_leaks_nothing)
{
    cti_writer *w = cti_writer_open(m, in("w"), &err);

    cti_writer_put(w, "x", 1, &err);
    cti_writer_abandon(w);
    cti_writer_abandon(NULL);
    for (uint64_t k = 1; k <= 2; k++) {
        cti_mem_fail_at(m, k, false);
        cr_assert_null(cti_writer_open(m, in("w"), &err));
        cr_assert_str_eq(told(), "write DIR/w: out of memory");
    }
}

/* ---- directories ---- */

Test(base_file, directories_are_made_with_their_parents)
{
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(cti_dir_make(in("a/b//c/"), &err), CT_OK, "%s", err.text);
        cr_assert(cti_path_is_dir(in("a/b/c")));
    }
    cr_assert_eq(cti_dir_make("/", &err), CT_OK);
    cr_assert_eq(cti_dir_make(".", &err), CT_OK);
    cr_assert_eq(cti_dir_make("", &err), CT_EINVAL);
    cr_assert_str_eq(told(), "make directory: the path is empty");
    write_file(in("file"), "", 0);
    cr_assert_eq(cti_dir_make(in("file"), &err), CT_EIO);
    cr_assert_str_eq(told(), "make directory DIR/file: something else has that name");
    cr_assert_eq(cti_dir_make(in("file/sub"), &err), CT_EIO);
    cr_assert_str_eq(told(), "make directory DIR/file: something else has that name");
}

Test(base_file, removing_takes_a_tree_and_follows_no_link)
{
    cr_assert_eq(cti_dir_make(in("keep/deep"), &err), CT_OK);
    write_file(in("keep/file"), "precious", 8);
    cr_assert_eq(cti_dir_make(in("tree/a/b"), &err), CT_OK);
    write_file(in("tree/a/b/f"), "x", 1);
    write_file(in("tree/.hidden"), "x", 1);
    cr_assert_eq(symlink("../keep", in("tree/link")), 0);
    cr_assert_eq(symlink(in("keep/file"), in("tree/a/link")), 0);
    cr_assert_eq(symlink("nowhere", in("tree/a/broken")), 0);
    cr_assert_eq(mkfifo(in("tree/fifo"), 0600), 0);
    cr_assert_eq(cti_dir_remove(in("tree/"), &err), CT_OK, "%s", err.text);
    cr_assert_not(cti_path_exists(in("tree")));
    expect_content(in("keep/file"), "precious");
    cr_assert(cti_path_is_dir(in("keep/deep")));
    cr_assert_eq(cti_dir_remove(in("tree"), &err), CT_OK, "missing is fine");
}

Test(base_file, removing_a_link_leaves_what_it_shows)
{
    cr_assert_eq(cti_dir_make(in("keep/deep"), &err), CT_OK);
    cr_assert_eq(symlink("keep", in("link")), 0);
    cr_assert_eq(cti_dir_remove(in("link/"), &err), CT_OK);
    cr_assert_eq(entries_of(dir), 1);
    cr_assert(cti_path_is_dir(in("keep/deep")));
}

Test(base_file, removing_refuses_what_is_no_directory_of_its_own)
{
    static const char *const refused[] = {"/", "", ".", "..", "///", "a/..", "a/./"};
    char want[100];

    for (int i = 0; i < 7; i++) {
        cr_assert_eq(cti_dir_remove(refused[i], &err), CT_EINVAL, "%s", refused[i]);
        snprintf(want, sizeof want, "remove '%s': not a directory with a name of its own",
                 refused[i]);
        cr_assert_str_eq(told(), want);
    }
    write_file(in("file"), "x", 1);
    cr_assert_eq(cti_dir_remove(in("file"), &err), CT_EIO);
    cr_assert_str_eq(told(), "remove DIR/file: it is a file, a directory was expected");
    cr_assert(cti_path_exists(in("file")));
}

Test(base_file, removing_stops_at_a_depth_no_run_has)
{
    char path[512];
    int n = snprintf(path, sizeof path, "%s/t", dir);

    mkdir(path, 0777);
    for (int i = 0; i < 70; i++) {
        n += snprintf(path + n, sizeof path - (size_t)n, "/d");
        mkdir(path, 0777);
    }
    cr_assert_eq(cti_dir_remove(in("t"), &err), CT_EIO);
    const char *t = told(), *end = "remove DIR/t: more than 64 levels deep; remove it by hand";
    cr_assert_str_eq(t + strlen(t) - strlen(end), end);
    cr_assert_eq(strncmp(t, "d: d: ", 6), 0, "says where");
    cr_assert_eq(rename(in("t/d/d/d/d/d/d/d/d/d/d"), in("u")),
                 0); /* so that the end can clean up */
    cr_assert_eq(cti_dir_remove(in("u"), &err), CT_OK);
}

static int collect(const char *name, void *user)
{
    char *all = user;

    if (strcmp(name, "stop") == 0)
        return 42;
    strcat(strcat(all, name), " ");
    return 0;
}

Test(base_file, a_listing_is_in_name_order_and_can_be_stopped)
{
    char all[100] = "";

    write_file(in("step-10"), "", 0);
    write_file(in("step-09"), "", 0);
    write_file(in(".dot"), "", 0);
    cr_assert_eq(cti_dir_make(in("a"), &err), CT_OK);
    cr_assert_eq(cti_dir_list(m, dir, collect, all, &err), 0);
    cr_assert_str_eq(all, ".dot a step-09 step-10 ");
    write_file(in("stop"), "", 0);
    write_file(in("z"), "", 0);
    all[0] = '\0';
    cr_assert_eq(cti_dir_list(m, dir, collect, all, &err), 42);
    cr_assert_str_eq(all, ".dot a step-09 step-10 ");
    all[0] = '\0';
    cr_assert_eq(cti_dir_list(m, in("a"), collect, all, &err), 0);
    cr_assert_str_eq(all, "");
    cr_assert_eq(cti_dir_list(m, in("no"), collect, all, &err), CT_EIO);
    cr_assert_str_eq(told(), "list directory DIR/no: No such file or directory");
    for (uint64_t k = 1; k <= 6; k++) {
        cti_mem_fail_at(m, k, false);
        cr_assert_eq(cti_dir_list(m, dir, collect, all, &err), CT_ENOMEM);
        cr_assert_str_eq(told(), "list directory DIR: out of memory");
        cr_assert_eq(cti_mem_get_stats(m).live_blocks, 0);
    }
}

Test(base_file, a_rename_moves_and_syncs)
{
    cr_assert_eq(cti_dir_make(in("tmp/x"), &err), CT_OK);
    cr_assert_eq(cti_dir_make(in("to"), &err), CT_OK);
    cr_assert_eq(cti_rename_sync(in("tmp/x"), in("to/y/"), &err), CT_OK, "%s", err.text);
    cr_assert(cti_path_is_dir(in("to/y")));
    cr_assert_eq(cti_rename_sync(in("tmp/x"), in("to/z"), &err), CT_EIO);
    cr_assert_str_eq(told(), "DIR/tmp/x: rename to DIR/to/z: No such file or directory");
    cr_assert_eq(chdir(dir), 0);
    cr_assert_eq(cti_rename_sync("tmp", "tmp2", &err), CT_OK, "relative to the current directory");
    cr_assert(cti_path_is_dir(in("tmp2")));
    cr_assert_eq(cti_dir_sync(in("tmp2"), &err), CT_OK);
    cr_assert_eq(cti_dir_sync(in("no"), &err), CT_EIO);
    cr_assert_str_eq(told(), "open directory DIR/no: No such file or directory");
}

Test(base_file, existence_is_told)
{
    write_file(in("f"), "", 0);
    cr_assert(cti_path_exists(in("f")) && !cti_path_is_dir(in("f")));
    cr_assert(cti_path_exists(dir) && cti_path_is_dir(dir));
    cr_assert(!cti_path_exists(in("no")) && !cti_path_is_dir(in("no")));
}

/* ---- paths ---- */

Test(base_file, a_path_that_does_not_fit_is_an_error_not_another_path)
{
    char out[8];

    cr_assert_eq(cti_path(out, sizeof out, &err, "%s/%d", "abc", 123), CT_OK);
    cr_assert_str_eq(out, "abc/123");
    cr_assert_eq(cti_path(out, sizeof out, &err, "%s/%d", "abc", 1234), CT_EINVAL);
    cr_assert_str_eq(told(), "a path of 8 bytes is too long (at most 7): abc/123...");
    cr_assert_str_eq(out, "");
    cr_assert_eq(cti_path(out, 0, &err, "abc"), CT_EINVAL);
    cr_assert_str_eq(told(), "a path is too long (at most 0 bytes)");
}

Test(base_file, relative_paths_start_at_the_config_file)
{
    static const char *const cases[][3] = {
        {"configs/a.ini", "data/x", "configs/data/x"},
        {"a.ini", "data/x", "data/x"},
        {"./a.ini", "x", "./x"},
        {"/a.ini", "x", "/x"},
        {"/etc/ct/a.ini", "../x", "/etc/ct/../x"},
        {"configs/a.ini", "/data", "/data"},
    };
    char out[64];

    for (int i = 0; i < 6; i++) {
        cr_assert_eq(cti_path_relative_to(out, sizeof out, cases[i][0], cases[i][1], &err), CT_OK);
        cr_assert_str_eq(out, cases[i][2]);
    }
    cr_assert_eq(cti_path_relative_to(out, 4, "c/a.ini", "data", &err), CT_EINVAL);
    cr_assert_str_eq(told(), "a path of 6 bytes is too long (at most 3): c/d...");
}

/* ---- locks ---- */

Test(base_file, a_lock_excludes_others_until_released)
{
    int a = -1, b = -1;

    cr_assert_eq(cti_lock_take(in("lock"), &a, &err), CT_OK);
    cr_assert_eq(cti_lock_take(in("lock"), &b, &err), CT_EBUSY);
    cr_assert_str_eq(told(),
                     "DIR/lock is locked by another process; wait for it to end, or stop it");
    cr_assert_eq(b, -1);
    cti_lock_release(a);
    cr_assert_eq(cti_lock_take(in("lock"), &b, &err), CT_OK);
    cti_lock_release(b);
    cti_lock_release(-1);
    cr_assert_eq(cti_lock_take(in("no/lock"), &a, &err), CT_EIO);
    cr_assert_str_eq(told(), "open lock DIR/no/lock: No such file or directory");
}

Test(base_file, a_lock_ends_with_its_process)
{
    int fd, status;
    pid_t child = fork();

    if (child == 0) {
        _exit(cti_lock_take(in("lock"), &fd, NULL) == CT_OK ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_eq(cti_lock_take(in("lock"), &fd, &err), CT_OK);
    cti_lock_release(fd);
}
