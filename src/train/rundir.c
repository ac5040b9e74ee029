/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "train/rundir.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- which directory ---- */

static int configured_dir(const ct_config *config, char out[1024], ct_error *err)
{
    const char *dir = ct_config_get(config, "run", "dir");

    out[0] = '\0';
    if (!dir || !dir[0])
        return CT_OK;
    return cti_path_relative_to(out, 1024, cti_config_path(config), dir, err);
}

/* "NAME-YYYYMMDD-HHMMSS", perhaps with "-2". */
static bool is_run_of(const char *entry, const char *name)
{
    size_t n = strlen(name);
    const char *p = entry + n;

    if (strncmp(entry, name, n) != 0 || *p != '-')
        return false;
    for (int i = 0; i < 15; i++) {
        int c = (unsigned char)p[1 + i];
        if (i == 8 ? c != '-' : !isdigit(c))
            return false;
    }
    p += 16;
    return *p == '\0' || (*p == '-' && isdigit((unsigned char)p[1]));
}

typedef struct newest {
    const char *name;
    char found[256];
} newest;

static int keep_newest(const char *entry, void *user)
{
    newest *n = user;

    if (is_run_of(entry, n->name) && strlen(entry) < sizeof n->found && strcmp(entry, n->found) > 0)
        memcpy(n->found, entry, strlen(entry) + 1);
    return 0;
}

/* The newest run of run.name; out is "" when there is none. */
static int newest_run(cti_mem *m, const ct_config *config, char out[1024], ct_error *err)
{
    newest n = {.name = ct_config_get(config, "run", "name")};
    int r;

    out[0] = '\0';
    if (!cti_path_is_dir("runs"))
        return CT_OK;
    if ((r = cti_dir_list(m, "runs", keep_newest, &n, err)) < 0)
        return r;
    return n.found[0] ? cti_path(out, 1024, err, "runs/%s", n.found) : CT_OK;
}

static bool has_file(const char *dir, const char *name)
{
    char path[CTI_PATH_CAP];

    return cti_path(path, sizeof path, NULL, "%s/%s", dir, name) == CT_OK && cti_path_exists(path);
}

/* The folder above, with links and dots resolved; "" when there is none. */
static void parent_of(const char *path, char out[1024])
{
    char *real = realpath(path, NULL), *slash = real ? strrchr(real, '/') : NULL;

    out[0] = '\0';
    if (slash && slash != real && (size_t)(slash - real) < 1024) {
        memcpy(out, real, (size_t)(slash - real));
        out[slash - real] = '\0';
    }
    free(real);
}

int cti_rundir_locate(cti_mem *m, const char *path, const char *pointer, const cti_say *say,
                      char run_dir[1024], char checkpoint[CTI_PATH_CAP], ct_error *err)
{
    char folder[1024], name[CTI_CKPT_NAME_CAP];
    int r;

    run_dir[0] = '\0';
    if (!cti_path_is_dir(path))
        return cti_fail(err, CT_EDATA, "%s: there is no such directory", path);
    if (has_file(path, "MANIFEST") || has_file(path, "state.json")) {
        parent_of(path, folder);
        if (folder[0])
            parent_of(folder, run_dir);
        if (run_dir[0] && !has_file(run_dir, "config.ini"))
            run_dir[0] = '\0';
        return cti_path(checkpoint, CTI_PATH_CAP, err, "%s", path);
    }
    if ((r = cti_path(run_dir, 1024, err, "%s", path)) < 0)
        return r;
    for (size_t n = strlen(run_dir); n > 1 && run_dir[n - 1] == '/'; n--)
        run_dir[n - 1] = '\0';
    if ((r = cti_path(folder, sizeof folder, err, "%s/checkpoints", run_dir)) < 0)
        return r;
    if (!cti_path_is_dir(folder))
        return cti_fail(
            err, CT_EDATA,
            "%s is neither a run directory (it has no checkpoints/) nor a checkpoint (it has "
            "no MANIFEST)",
            path);
    if (!pointer) {
        cti_ckpt_pointer(m, folder, "best", name);
        pointer = name[0] ? "best" : "last";
    }
    if ((r = cti_ckpt_find(m, folder, pointer, say, name, err)) < 0)
        return r;
    return cti_path(checkpoint, CTI_PATH_CAP, err, "%s/%s", folder, name);
}

static int find_named(const char *path, cti_target *out, ct_error *err)
{
    char *real, *slash;
    int64_t step;

    if (!cti_path_is_dir(path))
        return cti_fail(err, CT_EDATA, "nothing to resume: there is no directory %s", path);
    real = realpath(path, NULL);
    slash = real ? strrchr(real, '/') : NULL;
    if (slash && cti_ckpt_step(slash + 1, &step)) {
        memcpy(out->checkpoint, slash + 1, strlen(slash + 1) + 1);
        parent_of(path, out->dir);
        parent_of(out->dir, out->dir);
        if (!has_file(out->dir, "config.ini"))
            out->dir[0] = '\0';
    } else if (slash && cti_path_is_dir(real) && has_file(real, "checkpoints") &&
               strlen(real) < 1024) {
        snprintf(out->dir, sizeof out->dir, "%s", real);
        snprintf(out->pointer, sizeof out->pointer, "last");
    }
    free(real);
    if (!out->dir[0])
        return cti_fail(
            err, CT_EDATA,
            "%s is neither a run directory nor a checkpoint in the checkpoints/ of one; to "
            "begin a new run with a checkpoint's weights, set model.init to its "
            "model.safetensors",
            path);
    return CT_OK;
}

static int nothing_to_resume(const ct_config *config, const char *from, const cti_say *say,
                             cti_target *out, ct_error *err)
{
    const char *name = ct_config_get(config, "run", "name");
    char what[1100];

    if (out->dir[0])
        snprintf(what, sizeof what, "there is no directory %s", out->dir);
    else
        snprintf(what, sizeof what, "runs/ has no run named '%.200s'", name ? name : "");
    if (from)
        return cti_fail(err, CT_EDATA, "nothing to resume: %s", what);
    cti_tell(say, CT_LOG_WARN, "nothing to resume: %s; starting from the beginning", what);
    out->resume = false;
    return CT_OK;
}

int cti_target_find(cti_mem *m, const ct_config *config, const ct_run_opts *opts,
                    const cti_say *say, cti_target *out, ct_error *err)
{
    const char *from = opts->resume_from;
    bool pointer = !from || strcmp(from, "last") == 0 || strcmp(from, "best") == 0;
    char folder[CTI_PATH_CAP];
    int r;

    *out = (cti_target){.resume = opts->resume, .named = opts->resume && from};
    if (opts->resume && !pointer)
        return find_named(from, out, err);
    if ((r = configured_dir(config, out->dir, err)) < 0)
        return r;
    if (opts->resume) {
        snprintf(out->pointer, sizeof out->pointer, "%s", from ? from : "last");
        if (!out->dir[0] && (r = newest_run(m, config, out->dir, err)) < 0)
            return r;
        if (!out->dir[0] || !cti_path_is_dir(out->dir))
            return nothing_to_resume(config, from, say, out, err);
        return CT_OK;
    }
    if (!out->dir[0])
        return CT_OK;
    if ((r = cti_path(folder, sizeof folder, err, "%s/checkpoints", out->dir)) < 0)
        return r;
    if (cti_ckpt_any(m, folder))
        return cti_fail(
            err, CT_ECONFIG,
            "%s holds a run with checkpoints; go on with it by --resume, or choose another "
            "run.dir",
            out->dir);
    return CT_OK;
}

int cti_target_checkpoint(cti_mem *m, const cti_say *say, cti_target *target, ct_error *err)
{
    char folder[CTI_PATH_CAP], path[CTI_PATH_CAP];
    int r;

    if ((r = cti_path(folder, sizeof folder, err, "%s/checkpoints", target->dir)) < 0)
        return r;
    if (target->checkpoint[0]) {
        if ((r = cti_path(path, sizeof path, err, "%s/%s", folder, target->checkpoint)) < 0)
            return r;
        return cti_ckpt_verify(m, path, err);
    }
    if (cti_ckpt_any(m, folder))
        return cti_ckpt_find(m, folder, target->pointer, say, target->checkpoint, err);
    if (target->named)
        return cti_fail(err, CT_EDATA, "%s has no checkpoint to resume from", target->dir);
    cti_tell(say, CT_LOG_WARN, "%s has no checkpoint yet: starting from the beginning",
             target->dir);
    target->resume = false;
    return CT_OK;
}

/* ---- making and locking ---- */

static int make_new_name(char out[1024], const char *name, ct_error *err)
{
    time_t now = time(NULL);
    struct tm tm;
    char stamp[32];
    int r;

    if (!localtime_r(&now, &tm) || strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm) == 0)
        return cti_fail(err, CT_EINTERNAL, "the clock gives no date");
    if ((r = cti_dir_make("runs", err)) < 0)
        return r;
    for (int i = 1; i < 100; i++) {
        r = i == 1 ? cti_path(out, 1024, err, "runs/%s-%s", name, stamp) :
                     cti_path(out, 1024, err, "runs/%s-%s-%d", name, stamp, i);
        if (r < 0)
            return r;
        if (mkdir(out, 0777) == 0)
            return CT_OK;
        if (errno != EEXIST)
            return cti_fail_errno(err, 0, errno, "make directory", out);
    }
    return cti_fail(err, CT_EIO, "make directory %s: that name is taken", out);
}

int cti_rundir_open(cti_rundir *rd, const ct_config *config, const cti_target *target,
                    ct_error *err)
{
    char path[CTI_PATH_CAP];
    ct_error busy = {0};
    int r;

    *rd = (cti_rundir){.lock = -1, .log = -1};
    if (target->dir[0]) {
        if ((r = cti_path(rd->dir, sizeof rd->dir, err, "%s", target->dir)) < 0 ||
            (r = cti_dir_make(rd->dir, err)) < 0)
            return r;
    } else if ((r = make_new_name(rd->dir, ct_config_get(config, "run", "name"), err)) < 0) {
        return r;
    }
    if ((r = cti_path(path, sizeof path, err, "%s/.lock", rd->dir)) < 0)
        return r;
    if ((r = cti_lock_take(path, &rd->lock, &busy)) == CT_EBUSY)
        return cti_fail(err, r, "run directory %s is in use by another process", rd->dir);
    if (r < 0)
        return cti_fail(err, r, "%s", busy.text);
    if ((r = cti_path(rd->checkpoints, sizeof rd->checkpoints, err, "%s/checkpoints", rd->dir)) <
            0 ||
        (r = cti_dir_make(rd->checkpoints, err)) < 0 ||
        (r = cti_path(path, sizeof path, err, "%s/log.txt", rd->dir)) < 0)
        return r;
    rd->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (rd->log < 0)
        return cti_fail_errno(err, 0, errno, "open", path);
    /* A directory that can't be written is told now, not at the first checkpoint. */
    if ((r = cti_path(path, sizeof path, err, "%s/.tmp-probe", rd->checkpoints)) < 0 ||
        (r = cti_file_write(path, "probe\n", 6, err)) < 0)
        return r;
    unlink(path);
    return CT_OK;
}

void cti_rundir_close(cti_rundir *rd)
{
    if (rd->log >= 0)
        close(rd->log);
    cti_lock_release(rd->lock);
    rd->log = rd->lock = -1;
}

int cti_rundir_reset(cti_rundir *rd, ct_error *err)
{
    static const char *const names[] = {"metrics.jsonl", "checkpoints/last", "checkpoints/best"};
    char path[CTI_PATH_CAP];
    int r;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((r = cti_path(path, sizeof path, err, "%s/%s", rd->dir, names[i])) < 0)
            return r;
        if (unlink(path) != 0 && errno != ENOENT)
            return cti_fail_errno(err, 0, errno, "remove", path);
    }
    return CT_OK;
}

int cti_rundir_room(const cti_rundir *rd, int64_t bytes, ct_error *err)
{
    struct statvfs fs;
    double room;

    if (statvfs(rd->dir, &fs) != 0)
        return CT_OK; /* some file systems can't say */
    room = (double)fs.f_bavail * (double)fs.f_frsize;
    if (fs.f_blocks > 0 && room < (double)bytes)
        return cti_fail(
            err, CT_EIO,
            "no room for a checkpoint in %s: it needs %.1f MB, %.1f MB are free; make room or "
            "choose another run.dir",
            rd->dir, (double)bytes / 1e6, room / 1e6);
    return CT_OK;
}

/* ---- files ---- */

int cti_rundir_write_config(const cti_rundir *rd, ct_config *config, ct_error *err)
{
    char path[CTI_PATH_CAP];
    const char *text = ct_config_text(config);
    int r;

    if (!text)
        return cti_fail(err, CT_ENOMEM, "out of memory for the resolved config");
    if ((r = cti_path(path, sizeof path, err, "%s/config.ini", rd->dir)) < 0)
        return r;
    return cti_file_write_atomic(path, text, strlen(text), err);
}

int cti_rundir_write_env(cti_mem *m, const cti_rundir *rd, const ct_build_info *info, ct_error *err)
{
    char path[CTI_PATH_CAP], cwd[1024];
    cti_jw *w = cti_jw_new(m, true);
    struct utsname u;
    const char *text;
    size_t n;
    int r;

    if (!w)
        return cti_fail(err, CT_ENOMEM, "out of memory for env.json");
    cti_jw_object(w, NULL);
    cti_jw_string(w, "ctrain", info->version);
    cti_jw_string(w, "device", info->device);
    cti_jw_string(w, "isa", info->isa);
    cti_jw_string(w, "libraries", info->libraries);
    cti_jw_i64(w, "threads", info->threads);
    if (uname(&u) == 0) {
        cti_jw_string(w, "system", u.sysname);
        cti_jw_string(w, "release", u.release);
        cti_jw_string(w, "machine", u.machine);
        cti_jw_string(w, "host", u.nodename);
    }
    cti_jw_i64(w, "pid", (int64_t)getpid());
    cti_jw_string(w, "folder", getcwd(cwd, sizeof cwd) ? cwd : "");
    cti_jw_i64(w, "started_s", (int64_t)time(NULL));
    cti_jw_end(w);
    text = cti_jw_text(w, &n);
    if (!text)
        r = cti_fail(err, CT_ENOMEM, "out of memory for env.json");
    else if ((r = cti_path(path, sizeof path, err, "%s/env.json", rd->dir)) == CT_OK)
        r = cti_file_write_atomic(path, text, n, err); /* one object, no final newline */
    cti_jw_free(w);
    return r;
}

void cti_rundir_log(const cti_rundir *rd, ct_log_level level, const char *text)
{
    static const char *const mark[] = {"ERROR ", "WARN ", "", ""};
    char line[2600], stamp[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    ssize_t wrote;
    int n;

    if (rd->log < 0)
        return;
    if (localtime_r(&now, &tm))
        strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S ", &tm);
    n = snprintf(line, sizeof line - 1, "%s%s%s", stamp, mark[level], text);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof line - 1)
        n = (int)sizeof line - 2;
    line[n] = '\n';
    do
        wrote = write(rd->log, line, (size_t)n + 1);
    while (wrote < 0 && errno == EINTR);
}
