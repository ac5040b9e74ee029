/* SPDX-License-Identifier: Apache-2.0 */
#include "train/saver.h"

#include "base/error.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

enum { JOBS = 2, WRITE = 0, MOVE = 1 };

/* A job belongs to one thread at a time, and the queues hand it over. */
struct cti_saver {
    cti_mem *mem;
    const char *dir; /* borrowed */
    cti_queue *work, *done;
    cti_threads *threads;
    cti_save_job job[JOBS];
    bool away[JOBS];
    int n_away;
};

/* ---- in the thread ---- */

static void note_line(ct_log_level level, const char *text, void *user)
{
    cti_save_job *job = user;

    if (job->n_lines == CTI_SAVE_LINES)
        return;
    job->line[job->n_lines].level = level;
    snprintf(job->line[job->n_lines++].text, sizeof job->line[0].text, "%s", text);
}

static void move_best(const cti_saver *s, cti_save_job *job, const cti_say *say)
{
    char path[CTI_PATH_CAP];
    ct_error err = {0};

    if (!job->best[0] || cti_path(path, sizeof path, NULL, "%s/%s", s->dir, job->best) < 0 ||
        !cti_path_is_dir(path)) /* its save has failed, and was told */
        return;
    if (cti_ckpt_point(s->dir, "best", job->best, &err) < 0)
        cti_tell(say, CT_LOG_ERROR, "the pointer to the best checkpoint was not moved: %s",
                 err.text);
}

static void do_job(cti_saver *s, cti_save_job *job)
{
    cti_say say = {.line = note_line, .user = job};
    ct_error err = {0};

    if (job->write) {
        if (cti_metrics_sync(job->metrics, &err) < 0)
            cti_tell(&say, CT_LOG_WARN, "%s", err.text);
        job->result = cti_ckpt_save(s->dir, &job->image, &say, &job->err);
    }
    move_best(s, job, &say);
    err = (ct_error){0};
    if (job->result == CT_OK && cti_ckpt_retain(s->mem, s->dir, &job->state, job->keep_last,
                                                job->keep_best, job->resumed_from, &err) < 0)
        cti_tell(&say, CT_LOG_WARN, "old checkpoints were not removed: %s", err.text);
}

static void work(int worker, void *user)
{
    cti_saver *s = user;
    uint64_t i;

    while (cti_queue_pop(s->work, &i)) {
        do_job(s, &s->job[i]);
        if (!cti_queue_push(s->done, i))
            return;
    }
}

/* ---- in the run's thread ---- */

cti_saver *cti_saver_start(cti_mem *m, const char *dir, ct_error *err)
{
    cti_saver *s = cti_alloc(m, sizeof *s, "saver");

    if (s) {
        s->mem = m;
        s->dir = dir;
        s->work = cti_queue_new(m, JOBS);
        s->done = cti_queue_new(m, JOBS);
        if (s->work && s->done && (s->threads = cti_threads_start(m, 1, "ct-saver", work, s, err)))
            return s;
    }
    cti_fail(err, CT_ENOMEM, "out of memory for the thread that saves");
    cti_saver_free(s);
    return NULL;
}

void cti_saver_free(cti_saver *s)
{
    if (!s)
        return;
    while (cti_saver_wait(s))
        ;
    if (s->threads) {
        cti_queue_close(s->work);
        cti_queue_close(s->done);
        cti_threads_join(s->threads);
    }
    cti_queue_free(s->work);
    cti_queue_free(s->done);
    cti_free(s->mem, s);
}

cti_save_job *cti_saver_job(cti_saver *s, bool write)
{
    int i = write ? WRITE : MOVE;

    if (s->away[i])
        return NULL;
    s->job[i] = (cti_save_job){.write = write};
    return &s->job[i];
}

void cti_saver_submit(cti_saver *s, cti_save_job *job)
{
    int i = (int)(job - s->job);

    s->away[i] = true;
    s->n_away++;
    cti_queue_push(s->work, (uint64_t)i); /* never waits: it has room for each job */
}

const cti_save_job *cti_saver_wait(cti_saver *s)
{
    uint64_t i;

    if (s->n_away == 0 || !cti_queue_pop(s->done, &i))
        return NULL;
    s->away[i] = false;
    s->n_away--;
    cti_ckpt_image_free(s->mem, &s->job[i].image);
    return &s->job[i];
}
