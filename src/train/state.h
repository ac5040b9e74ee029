/* SPDX-License-Identifier: Apache-2.0 */
/* state.json: all of a run that is no tensor. Everything else that a step depends on (order,
 * dropout, schedule) is a pure function of these counters. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "base/mem.h"
#include <ctrain/error.h>
#include <stdbool.h>
#include <stdint.h>

#define CTI_STATE_SCHEMA 1
#define CTI_TOP_MAX      16 /* evaluations remembered for checkpoint.keep_best */

typedef struct cti_top {
    int64_t step;
    double value;
} cti_top;

typedef struct cti_state {
    int64_t schema;
    char why[16]; /* "due", "best", "stop": why it was saved */
    int64_t step; /* optimizer steps attempted: the schedule's index */
    int64_t applied, skipped;
    int64_t samples;   /* seen in training */
    double loss_scale; /* of fp16; 1: none */
    int64_t growth_tracker;

    /* cursor: the next micro-batch */
    int64_t epoch, batch; /* both from 0 */

    /* sums since the last step line, and of the steps since the last evaluation that are in no such
     * interval any more */
    double interval_loss, interval_weight;
    int64_t interval_samples, interval_steps;
    double since_eval_loss, since_eval_weight;

    /* evaluation */
    bool eval_due; /* at this step, and not done when this was saved */
    char monitor[16];
    bool has_best;
    double best;
    int64_t best_step;
    bool has_reference; /* early stopping compares with the last value that was better by min_delta
                         */
    double reference;
    int64_t evals_without;                /* improvement */
    double train_loss, val_loss, val_acc; /* of the last evaluation */
    int64_t n_top;
    cti_top top[CTI_TOP_MAX]; /* best first; of equal ones the earlier */

    /* what the numbers depend on */
    int64_t seed, threads;
    char version[32], device[64], isa[64], libraries[96], precision[16];
    char dataset[64];
    uint64_t fingerprint, val_fingerprint;
    int64_t train_count, val_count, n_classes;
    int64_t total_steps, steps_per_epoch;
    char schedule[32];

    char *config; /* the resolved config; owned */
    cti_mem *mem;
} cti_state;

void cti_state_clear(cti_state *s); /* frees what it owns; NULL is fine */

/* JSON text of `s` (owned by the caller, cti_free). NULL when out of memory. */
char *cti_state_print(cti_mem *m, const cti_state *s, size_t *bytes);
/* Reads what cti_state_print wrote; `what` names the source. CT_EFORMAT. */
int cti_state_parse(cti_mem *m, const char *text, size_t bytes, const char *what, cti_state *out,
                    ct_error *err);

/* A step line has told the interval's sums: they go to those since the last evaluation. */
void cti_state_end_interval(cti_state *s);
/* train_loss = the mean since the last evaluation, of the open interval too; NaN of nothing. */
void cti_state_take_train_loss(cti_state *s);

/* Takes an evaluation into account: best, top, early stopping. `value` may be non-finite (never
 * best). Returns true when it is the new best; of equal values the first stays. */
bool cti_state_judge(cti_state *s, double value, bool larger_is_better, double min_delta);
/* Is the evaluation of `step` one of the n best? */
bool cti_state_is_top(const cti_state *s, int64_t n, int64_t step);

#endif
