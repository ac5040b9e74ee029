/* SPDX-License-Identifier: Apache-2.0 */
/* Kills the built `ctrain` (its path is in CT_CTRAIN) by SIGKILL at many moments, resumes in new
 * processes, and compares with a run that nobody disturbed: the same bytes of weights and
 * optimizer, the same values in metrics.jsonl, times aside. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "../unit/train_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Tests of this file are slow on a busy machine: each run is a process of its own. */
TestSuite(train_resume, .init = enter_folder, .fini = leave_folder, .timeout = 600);

enum { LAST_STEP = 92, MAX_ARGS = 40 };

static const char *program(void)
{
    const char *path = getenv("CT_CTRAIN");

    if (!path || !*path)
        cr_skip_test("CT_CTRAIN is not set: no program to kill");
    return path;
}

static void put_config(void)
{
    static const char text[] = "[run]\nname = kill\nseed = 3\nthreads = 1\n"
                               "[data]\ndataset = digits\nbatch_size = 64\n"
                               "[model]\nname = layers\n"
                               "layers = conv2d(4, 3) batchnorm2d relu flatten linear(16) relu\n"
                               "    dropout(0.1) linear(10)\n"
                               "[optimizer]\nname = adamw\nlr = 0.003\n"
                               "[schedule]\nname = onecycle\n"
                               "[train]\nepochs = 4\nclip_norm = 1\n";

    put_file(in_folder("kill.ini"), text, sizeof text - 1);
}

static pid_t start(const char *dir, int workers, bool resume)
{
    static char set_dir[600], set_workers[64], set_device[64];
    const char *args[MAX_ARGS] = {program(), in_folder("kill.ini"), "--set", set_dir,
                                  "--set",   set_workers,           "--set", "log.every=10",
                                  "--set",   "checkpoint.every=7",  "-q"};
    pid_t pid;

    snprintf(set_dir, sizeof set_dir, "run.dir=%s", in_folder(dir));
    snprintf(set_workers, sizeof set_workers, "data.workers=%d", workers);
    if (getenv("CT_TEST_DEVICE")) {
        snprintf(set_device, sizeof set_device, "run.device=%s", getenv("CT_TEST_DEVICE"));
        args[11] = "--set";
        args[12] = set_device;
    }
    if (resume)
        args[args[11] ? 13 : 11] = "--resume";
    pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execv(args[0], (char *const *)args);
        _exit(127);
    }
    return pid;
}

/* The exit code, or minus the signal. */
static int wait_for(pid_t pid)
{
    int status;

    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- moments to kill at ---- */

static bool text_has(const char *path, const char *part)
{
    FILE *f = fopen(path, "rb");
    char buffer[65536];
    size_t n;

    if (!f)
        return false;
    n = fread(buffer, 1, sizeof buffer - 1, f);
    fclose(f);
    buffer[n] = '\0';
    return strstr(buffer, part) != NULL;
}

static int is_temporary(const char *name, void *user)
{
    return strncmp(name, ".tmp-step", 9) == 0;
}

typedef enum moment {
    AT_ONCE,   /* in the start */
    LOCKED,    /* the directory is there, no checkpoint is */
    MID_EPOCH, /* a step line of the middle of an epoch */
    SAVING,    /* a temporary directory of a checkpoint is there */
    EVALUATED, /* right after an evaluation */
    N_MOMENTS
} moment;

static bool has_come(moment when, const char *dir)
{
    static cti_mem *mem;
    char path[700];
    bool come = false;

    if (!mem)
        mem = cti_mem_new(NULL);
    switch (when) {
    case AT_ONCE:
        return true;
    case LOCKED:
        snprintf(path, sizeof path, "%s/config.ini", in_folder(dir));
        return cti_path_exists(path);
    case SAVING:
        snprintf(path, sizeof path, "%s/checkpoints", in_folder(dir));
        come = cti_dir_list(mem, path, is_temporary, NULL, NULL) == 1;
        return come;
    case MID_EPOCH:
    case EVALUATED:
        snprintf(path, sizeof path, "%s/metrics.jsonl", in_folder(dir));
        return text_has(path, when == EVALUATED ? "\"event\":\"eval\",\"step\":46," :
                                                  "\"event\":\"step\",\"step\":30,");
    case N_MOMENTS:
        break;
    }
    return false;
}

/* Kills it once the moment has come; it may be done before that. */
static void kill_at(pid_t pid, moment when, const char *dir)
{
    int status;

    while (!has_come(when, dir)) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    kill(pid, SIGKILL);
    wait_for(pid);
}

/* ---- comparing ---- */

static void expect_same_bytes(const char *a, const char *b, const char *name)
{
    char x[300], y[300], *p, *q;
    size_t n, m;

    snprintf(x, sizeof x, "%s/%s", a, name);
    snprintf(y, sizeof y, "%s/%s", b, name);
    p = get_file(in_folder(x), &n);
    q = get_file(in_folder(y), &m);
    cr_assert(n == m && memcmp(p, q, n) == 0, "%s and %s differ", x, y);
    free(p);
    free(q);
}

static char *metrics_without_times(const char *dir)
{
    char path[300], *text, *at;

    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    text = get_file(in_folder(path), NULL);
    while ((at = strstr(text, "_ms\":")) != NULL) {
        size_t n = strcspn(at, ",}");
        memmove(at, at + n, strlen(at + n) + 1);
    }
    return text;
}

static void expect_same_run(const char *a, const char *b)
{
    char name[128], *p = metrics_without_times(a), *q = metrics_without_times(b);

    cr_assert_str_eq(p, q, "%s and %s", a, b);
    free(p);
    free(q);
    snprintf(name, sizeof name, "checkpoints/step-%08d/model.safetensors", LAST_STEP);
    expect_same_bytes(a, b, name);
    snprintf(name, sizeof name, "checkpoints/step-%08d/optimizer.safetensors", LAST_STEP);
    expect_same_bytes(a, b, name);
    expect_same_bytes(a, b, "checkpoints/last");
    expect_same_bytes(a, b, "checkpoints/best");
}

/* ---- tests ---- */

Test(train_resume, killed_at_each_kind_of_moment_and_resumed_with_any_workers)
{
    static const int workers[] = {0, 1, 4};

    program();
    put_config();
    cr_assert_eq(wait_for(start("whole", 0, false)), 0);
    for (int when = 0; when < N_MOMENTS; when++) {
        char dir[32];

        snprintf(dir, sizeof dir, "moment%d", when);
        kill_at(start(dir, workers[when % 3], false), (moment)when, dir);
        cr_assert_eq(wait_for(start(dir, workers[(when + 1) % 3], true)), 0, "moment %d", when);
        expect_same_run("whole", dir);
    }
}

Test(train_resume, killed_again_and_again_at_any_time)
{
    static const int workers[] = {0, 1, 4};
    unsigned seed = 12345;

    program();
    put_config();
    cr_assert_eq(wait_for(start("whole", 0, false)), 0);
    for (int round = 0; round < 6; round++) {
        char dir[32];
        int code = -1;

        snprintf(dir, sizeof dir, "round%d", round);
        for (int i = 0; code != 0 && i < 4; i++) {
            pid_t pid = start(dir, workers[(round + i) % 3], i > 0);
            seed = seed * 1664525u + 1013904223u;
            if (i < 3) {
                nap_ms(20 + (long)(seed >> 16) % 400);
                kill(pid, SIGKILL);
            }
            code = wait_for(pid);
            cr_assert(code == 0 || code == -SIGKILL, "round %d: exit %d", round, code);
        }
        cr_assert_eq(code, 0);
        expect_same_run("whole", dir);
    }
}

Test(train_resume, a_request_to_stop_saves_and_exits_75)
{
    pid_t pid;
    int code;

    program();
    put_config();
    cr_assert_eq(wait_for(start("whole", 1, false)), 0);
    pid = start("a", 1, false);
    while (!has_come(MID_EPOCH, "a"))
        nap_ms(1);
    kill(pid, SIGTERM);
    code = wait_for(pid);
    cr_assert(code == 75 || code == 0, "exit %d", code);
    cr_assert_eq(wait_for(start("a", 4, true)), 0);
    expect_same_run("whole", "a");
}
