/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: where it is, whose it is (flock), what lies in it. */
#ifndef TRAIN_RUNDIR_H
#define TRAIN_RUNDIR_H

#include "train/checkpoint.h"
#include "train/config.h"

typedef struct cti_rundir {
    char dir[1024];
    char checkpoints[1040];
    int lock; /* descriptor; -1: not held */
    int log;  /* descriptor of log.txt; -1: closed */
} cti_rundir;

/* What a run is to do, before anything is made. */
typedef struct cti_target {
    char dir[1024];  /* "" : a new name under runs/ */
    bool resume;     /* asked for, and there is a directory to resume in */
    bool named;      /* a place was named: nothing there is an error, not a new start */
    char pointer[8]; /* "last", "best"; "" when `checkpoint` was named */
    char checkpoint[CTI_CKPT_NAME_CAP];
} cti_target;

/* Finds the run directory that config and options mean. Without resume: CT_ECONFIG when run.dir
 * holds a checkpoint. With resume and no directory to resume in: CT_EDATA when a place was named
 * (last, best, a directory), else resume = false, loudly. Makes nothing, locks nothing, looks into
 * no checkpoint. */
int cti_target_find(cti_mem *m, const ct_config *config, const ct_run_opts *opts,
                    const cti_say *say, cti_target *out, ct_error *err);
/* Under the lock: the valid checkpoint to resume from, into target->checkpoint. A directory without
 * any gives resume = false, loudly, unless a place was named (CT_EDATA). */
int cti_target_checkpoint(cti_mem *m, const cti_say *say, cti_target *target, ct_error *err);

/* Makes the directory (the new name is put into `rd`) and takes its lock: CT_EBUSY when another
 * process has it. Checks that it can be written: CT_EIO. */
int cti_rundir_open(cti_rundir *rd, const ct_config *config, const cti_target *target,
                    ct_error *err);
void cti_rundir_close(cti_rundir *rd);
/* Removes what an earlier start left in a directory without checkpoints (log.txt goes on). */
int cti_rundir_reset(cti_rundir *rd, ct_error *err);

/* CT_EIO when the disk has no room for `bytes`, said with both numbers. */
int cti_rundir_room(const cti_rundir *rd, int64_t bytes, ct_error *err);
int cti_rundir_write_config(const cti_rundir *rd, ct_config *config, ct_error *err);
int cti_rundir_write_env(cti_mem *m, const cti_rundir *rd, const ct_build_info *info,
                         ct_error *err);
/* A line with the time into log.txt; failures are ignored: people have been told already. */
void cti_rundir_log(const cti_rundir *rd, ct_log_level level, const char *text);

/* A run or checkpoint directory named by a person -> the run directory and the checkpoint in it
 * that `pointer` means (NULL: best, else last). `run_dir` is "" for a checkpoint outside of a run.
 */
int cti_rundir_locate(cti_mem *m, const char *path, const char *pointer, const cti_say *say,
                      char run_dir[1024], char checkpoint[CTI_PATH_CAP], ct_error *err);

#endif
