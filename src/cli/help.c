/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 96, DOC_AT = 30 };

/* `text` from the current column `at` on, its lines broken between words and indented by
 * `indent`. */
static void wrapped(const char *text, int at, int indent)
{
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > indent && at + 1 + n > COLUMNS) {
            cli_out("\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            cli_out(" ");
            at++;
        }
        cli_out("%.*s", n, text);
        at += n;
        text += n;
        text += strspn(text, " ");
    }
    cli_out("\n");
}

static void row(const char *left, const char *doc)
{
    int n = (int)strlen(left) + 2;

    cli_out("  %s", left);
    if (n + 2 > DOC_AT) {
        cli_out("\n");
        n = 0;
    }
    cli_out("%*s", DOC_AT - n, "");
    wrapped(doc, DOC_AT, DOC_AT);
}

static void option_row(const cli_option *o)
{
    char left[80], letter[8] = "    ";

    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "%s--%s%s%s%s", letter, o->name,
             o->takes == CLI_MAY_TAKE_VALUE ? "[=" :
             o->value                       ? " " :
                                              "",
             o->value ? o->value : "", o->takes == CLI_MAY_TAKE_VALUE ? "]" : "");
    row(left, o->doc);
}

static void option_rows(unsigned options)
{
    cli_out("\nOptions:\n");
    for (int i = 0; i < CLI_N_OPTIONS; i++) {
        if (options & CLI_BIT(i))
            option_row(&cli_options[i]);
    }
}

static const char notes[] =
    "Options stand before or after CONFIG; -- ends them. A config file with the name of a\n"
    "command is given as ./NAME. Relative paths in a config are relative to it, those of --set\n"
    "to where ctrain runs. The first Ctrl-C (SIGINT, SIGTERM) saves and stops, the second\n"
    "stops at once.\n\n"
    "Exit codes:\n"
    "  0   done\n"
    "  1   internal error: please report it\n"
    "  2   usage, config, weights that don't fit, run directory in use or holding a run\n"
    "  3   data or checkpoint missing or damaged\n"
    "  4   diverged (non-finite, and train.nonfinite = stop)\n"
    "  5   a check failed\n"
    "  6   device not there, out of memory\n"
    "  7   input/output: full disk, no rights\n"
    "  75  interrupted and saved: go on with --resume\n\n"
    "ctrain keys lists all that a config can say; ctrain help COMMAND tells about a command.";

static void help_of_program(void)
{
    char left[80];

    cli_out("ctrain trains neural networks as an INI file says.\n\n"
            "Usage: ctrain CONFIG [OPTION]...\n"
            "       ctrain COMMAND ...\n\n"
            "Commands:\n");
    for (int i = 0; cli_commands[i]; i++) {
        const cli_command *c = cli_commands[i];
        snprintf(left, sizeof left, "%s%s%s", c->name, c->name[0] ? " " : "", c->operands);
        row(left, c->summary);
    }
    option_rows(cli_commands[0]->options | CLI_BIT(CLI_HELP));
    cli_out("\n%s\n", notes);
}

void cli_help_of(const cli_command *c)
{
    if (!c) {
        help_of_program();
        return;
    }
    cli_out("Usage: ctrain %s %s%s\n\n", c->name, c->operands, c->options ? " [OPTION]..." : "");
    cli_out("%s.\n\n%s\n", c->summary, c->help);
    option_rows(c->options | CLI_BIT(CLI_HELP));
}

void cli_usage(void)
{
    cli_error("usage: ctrain CONFIG [--resume] [--set section.key=value]... | ctrain COMMAND ...\n"
              "ctrain --help tells more");
}

static void list(char *out, size_t cap)
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 1; cli_commands[i] && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i > 1 ? ", " : "", cli_commands[i]->name);
}

int cli_unknown_command(const char *word)
{
    const char *words[32] = {NULL}, *near;
    char all[400];

    for (int i = 1; cli_commands[i] && i < 31; i++)
        words[i - 1] = cli_commands[i]->name;
    near = cli_nearest(word, words);
    list(all, sizeof all);
    cli_error(
        "'%.200s' is neither a command nor a config file%s%s%s\ncommands: %s; ctrain CONFIG trains",
        word, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", all);
    return CLI_EUSAGE;
}

int cli_help(const cli_line *line)
{
    const char *word = line->n_operands ? line->operands[0] : NULL;
    const cli_command *c = word ? cli_command_find(word) : NULL;

    if (word && !c)
        return cli_unknown_command(word);
    cli_help_of(c);
    return CLI_OK;
}
