/* SPDX-License-Identifier: Apache-2.0 */
/* One Criterion test per op, and the table of what was checked. CT_OP=relu runs one op,
 * CT_CHECK=diff one check. */
#define _POSIX_C_SOURCE 200809L
#include "harness.h"

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG "CT_HARNESS_LOG"

/* A row per op goes through a file, since each test is a process of its own. */
ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    (void)set;
    const char *base = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof(path), "%s/ctrain-harness-XXXXXX", base && *base ? base : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0)
        return;
    close(fd);
    setenv(LOG, path, 1);
}

typedef struct row {
    char op[64], at[64], of[256];
    int cases, done[H_CHECKS], failed[H_CHECKS];
    bool finished;
} row;

static row *row_of(row *rows, int *n, const char *op)
{
    for (int i = 0; i < *n; i++)
        if (!strcmp(rows[i].op, op))
            return &rows[i];
    snprintf(rows[*n].op, sizeof(rows[0].op), "%s", op);
    return &rows[(*n)++];
}

static void read_row(row *rows, int *n, char *line)
{
    char *word = strtok(line, "\t\n"), *name = strtok(NULL, "\t\n");
    if (!word || !name)
        return;
    row *r = row_of(rows, n, name);
    if (!strcmp(word, "at")) {
        char *check = strtok(NULL, "\t\n"), *of = strtok(NULL, "\t\n");
        snprintf(r->at, sizeof(r->at), "%s", check ? check : "");
        snprintf(r->of, sizeof(r->of), "%s", of ? of : "");
        return;
    }
    r->finished = true;
    char *cases = strtok(NULL, "\t\n");
    r->cases = cases ? atoi(cases) : 0;
    for (int k = 0; k < H_CHECKS; k++) {
        char *done = strtok(NULL, "\t\n"), *failed = strtok(NULL, "\t\n");
        r->done[k] = done ? atoi(done) : 0;
        r->failed[k] = failed ? atoi(failed) : 0;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const row *)a)->op, ((const row *)b)->op);
}

static void print_table(const row *rows, int n)
{
    int total[H_CHECKS] = {0}, all = 0, failed = 0, cases = 0, finished = 0;
    printf("\n%-20s %5s", "op", "cases");
    for (int k = 0; k < H_CHECKS; k++)
        printf(" %7s", h_check_names[k]);
    printf("\n");
    for (int i = 0; i < n; i++) {
        if (!rows[i].finished) {
            printf("%-20s stopped in check %s, case \"%s\"\n", rows[i].op, rows[i].at, rows[i].of);
            continue;
        }
        finished++;
        printf("%-20s %5d", rows[i].op, rows[i].cases);
        cases += rows[i].cases;
        for (int k = 0; k < H_CHECKS; k++) {
            char cell[32];
            snprintf(cell, sizeof(cell), rows[i].failed[k] ? "%d!%d" : "%d", rows[i].done[k],
                     rows[i].failed[k]);
            printf(" %7s", cell);
            total[k] += rows[i].done[k];
            all += rows[i].done[k];
            failed += rows[i].failed[k];
        }
        printf("\n");
    }
    printf("%-20s %5d", "all", cases);
    for (int k = 0; k < H_CHECKS; k++)
        printf(" %7d", total[k]);
    printf("\n%d ops x %d checks, %d cases: %d assertions, %d failed%s\n", finished, H_CHECKS,
           cases, all, failed, finished < n ? "; NOT ALL OPS FINISHED" : "");
    fflush(stdout);
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    (void)stats;
    const char *path = getenv(LOG);
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f)
        return;
    row *rows = calloc((size_t)cti_n_ops + 64, sizeof(*rows));
    char line[1024];
    int n = 0;
    while (rows && n < cti_n_ops + 63 && fgets(line, sizeof(line), f))
        read_row(rows, &n, line);
    fclose(f);
    unlink(path);
    if (rows && n) {
        qsort(rows, (size_t)n, sizeof(*rows), by_name);
        print_table(rows, n);
    }
    free(rows);
}

static void write_row(const harness *h)
{
    FILE *f = h->log ? fopen(h->log, "a") : NULL;
    if (!f)
        return;
    char line[1024];
    size_t at = (size_t)snprintf(line, sizeof(line), "row\t%s\t%d", h->op->name, h->op->n_cases);
    for (int k = 0; k < H_CHECKS; k++)
        at += (size_t)snprintf(line + at, sizeof(line) - at, "\t%d\t%d", h->done[k], h->failed[k]);
    fprintf(f, "%s\n", line);
    fclose(f);
}

ParameterizedTestParameters(ops, passes_every_check)
{
    size_t n = (size_t)cti_n_ops;
    int *which = cr_malloc((n ? n : 1) * sizeof(int));
    for (size_t i = 0; i < n; i++)
        which[i] = (int)i;
    return cr_make_param_array(int, which, n, NULL);
}

ParameterizedTest(int *which, ops, passes_every_check)
{
    const ct_op *op = cti_ops[*which];
    const char *only = getenv("CT_OP");
    if (only && strcmp(only, op->name))
        return;
    harness h;
    h_open(&h, op, false);
    h.log = getenv(LOG);
    h_run_all(&h);
    int failed = 0;
    for (int k = 0; k < H_CHECKS; k++)
        failed += h.failed[k];
    write_row(&h);
    cr_expect(!failed, "op %s: %d assertions failed", op->name, failed);
    h_close(&h);
}

Test(ops, have_names_and_cases_that_are_unique)
{
    cr_expect(cti_n_ops > 0, "the op table is empty");
    for (int i = 0; i < cti_n_ops; i++) {
        const ct_op *op = cti_ops[i];
        cr_expect(op->name && (op->torch_name || !op->infer), "op %d has no name or torch_name", i);
        cr_expect(op->n_cases > 0 && op->call, "op %s has no cases or no call", op->name);
        for (int k = 0; k < i; k++)
            cr_expect(strcmp(op->name, cti_ops[k]->name), "two ops are called %s", op->name);
        for (int c = 0; c < op->n_cases; c++) {
            cr_expect(op->cases[c].name, "op %s, case %d has no name", op->name, c);
            for (int k = 0; k < c; k++)
                cr_expect(strcmp(op->cases[c].name, op->cases[k].name),
                          "op %s has two cases \"%s\"", op->name, op->cases[c].name);
        }
    }
}
