/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain eval RUN_OR_CHECKPOINT_DIR */
#include "cli/cli.h"
#include "cli/zoo.h"

#include <inttypes.h>
#include <math.h>

/* stdout is for the result alone. */
static void on_line(ct_log_level level, const char *text, void *user)
{
    const bool *verbose = user;

    if (level == CT_LOG_WARN)
        cli_warn("%s", text);
    else if (level == CT_LOG_ERROR || *verbose)
        cli_error("%s", text);
}

static void print_text(const ct_eval_result *e)
{
    cli_out("checkpoint  %s\n", e->checkpoint);
    cli_out("step        %" PRId64 "\n", e->step);
    cli_out("samples     %" PRId64 "\n", e->samples);
    cli_out("loss        %.6g\n", e->loss);
    if (!isnan(e->accuracy))
        cli_out("accuracy    %.2f %%\n", 100 * e->accuracy);
}

static void print_json(const ct_eval_result *e)
{
    cli_out("{\"checkpoint\": ");
    cli_out_json(e->checkpoint);
    cli_out(", \"step\": %" PRId64 ", \"samples\": %" PRId64 ", \"loss\": ", e->step, e->samples);
    cli_out_json_number(e->loss);
    cli_out(", \"accuracy\": ");
    if (isnan(e->accuracy)) /* the target is no class */
        cli_out("null");
    else
        cli_out_json_number(e->accuracy);
    cli_out("}\n");
}

int cli_eval(const cli_line *line)
{
    bool verbose = line->given[CLI_VERBOSE];
    ct_run_opts opts = ct_run_defaults();
    ct_eval_result result;
    ct_error err = {0};

    opts.models = ct_zoo;
    opts.on_line = on_line;
    opts.user = &verbose;
    cli_openmp_calm(line->argv);
    if (ct_eval(line->operands[0], line->sets, line->n_sets, opts, &result, &err) != CT_OK)
        return cli_fail(&err);
    if (line->given[CLI_JSON])
        print_json(&result);
    else
        print_text(&result);
    return CLI_OK;
}
