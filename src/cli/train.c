/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain CONFIG */
#include "cli/cli.h"
#include "cli/zoo.h"

#include <string.h>

typedef struct session {
    cli_bar bar;
    ct_log_level level;
    bool told_output; /* that stdout can't be written any more */
} session;

static void on_line(ct_log_level level, const char *text, void *user)
{
    session *s = user;

    if (level > s->level)
        return;
    cli_bar_erase(&s->bar);
    if (level == CT_LOG_ERROR) {
        cli_error("%s", text);
    } else if (level == CT_LOG_WARN) {
        cli_warn("%s", text);
    } else {
        cli_out("%s\n", text);
        cli_out_flush();
    }
    if (cli_out_error() && !s->told_output) {
        s->told_output = true;
        cli_warn(
            "standard output can't be written any more (%s); the run goes on, its lines are in "
            "log.txt",
            strerror(cli_out_error()));
    }
}

static void on_progress(const ct_progress *p, void *user)
{
    cli_bar_draw(&((session *)user)->bar, p);
}

/* Options that can't be meant together. */
static bool fits(const cli_line *line)
{
    const char *resume = line->given[CLI_RESUME] ? "--resume" : NULL;
    const char *overfit = line->given[CLI_OVERFIT] ? "--overfit-one-batch" : NULL;
    const char *dry = line->given[CLI_DRY_RUN] ? "--dry-run" : NULL;
    const char *a = resume ? resume : overfit, *b = dry ? dry : overfit;

    if (!a || !b || a == b)
        return true;
    cli_error("%s and %s don't go together", a, b);
    return false;
}

int cli_train_with(const cli_line *line, bool dry_run)
{
    ct_error err = {0};
    session s = {.level = line->given[CLI_QUIET]   ? CT_LOG_WARN :
                          line->given[CLI_VERBOSE] ? CT_LOG_DETAIL :
                                                     CT_LOG_INFO};
    ct_run_opts opts = ct_run_defaults();
    ct_run_result result;
    ct_config *config;
    int r;

    if (!fits(line))
        return CLI_EUSAGE;
    config = ct_config_load(line->operands[0], line->sets, line->n_sets, ct_zoo, &err);
    if (!config)
        return cli_fail(&err);
    opts.models = ct_zoo;
    opts.resume = line->given[CLI_RESUME];
    opts.resume_from = line->value[CLI_RESUME];
    opts.overfit_one_batch = line->given[CLI_OVERFIT];
    opts.dry_run = dry_run;
    opts.on_line = on_line;
    opts.user = &s;
    if (!dry_run) {
        cli_openmp_calm(line->argv);
        cli_bar_init(&s.bar, s.level > CT_LOG_WARN);
        cli_signals_catch();
        opts.on_progress = on_progress;
        opts.should_stop = cli_signals_stop;
    }
    r = ct_run(config, opts, &result, &err);
    cli_bar_erase(&s.bar);
    ct_config_free(config);
    return r == CT_OK ? CLI_OK : cli_fail(&err);
}

int cli_train(const cli_line *line)
{
    return cli_train_with(line, line->given[CLI_DRY_RUN]);
}
