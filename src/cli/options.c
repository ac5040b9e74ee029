/* SPDX-License-Identifier: Apache-2.0 */
/* The options of all commands, and reading them: before and after the other words alike. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_option cli_options[CLI_N_OPTIONS] = {
    [CLI_RESUME] =
        {"resume", 0, CLI_MAY_TAKE_VALUE, "last|best|DIR",
         "go on with run.dir, else with the newest run of that name; best: from its best "
         "checkpoint; DIR: a run or checkpoint directory"},
    [CLI_OVERFIT] =
        {"overfit-one-batch", 0, CLI_NO_VALUE, NULL,
         "can the net learn one batch by heart? Passes or fails (exit 5) with the cause"},
    [CLI_DRY_RUN] = {"dry-run", 0, CLI_NO_VALUE, NULL,
                     "check config, data and model, train nothing; the same as ctrain check"},
    [CLI_SET] = {"set", 0, CLI_TAKES_VALUE, "section.key=value",
                 "overrides the config file; may be repeated"},
    [CLI_JSON] = {"json", 0, CLI_NO_VALUE, NULL, "for programs: JSON on stdout"},
    [CLI_QUIET] = {"quiet", 'q', CLI_NO_VALUE, NULL, "warnings and errors alone"},
    [CLI_VERBOSE] = {"verbose", 'v', CLI_NO_VALUE, NULL,
                     "a line for each log point and checkpoint too"},
    [CLI_HELP] = {"help", 'h', CLI_NO_VALUE, NULL, "this text"},
    [CLI_VERSION] = {"version", 'V', CLI_NO_VALUE, NULL,
                     "version, backends, libraries, ISA, threads"},
};

static void CT_PRINTF(2, 3) wrong(cli_line *line, const char *fmt, ...)
{
    va_list args;

    if (line->wrong[0])
        return;
    va_start(args, fmt);
    vsnprintf(line->wrong, sizeof line->wrong, fmt, args);
    va_end(args);
}

static void unknown(cli_line *line, const char *word, size_t n)
{
    const char *words[CLI_N_OPTIONS + 1] = {NULL}, *near;
    char name[64], hint[64] = "";

    for (int i = 0; i < CLI_N_OPTIONS; i++)
        words[i] = cli_options[i].name;
    snprintf(name, sizeof name, "%.*s", n < 63 ? (int)n - 2 : 61, word + 2);
    near = cli_nearest(name, words);
    if (near)
        snprintf(hint, sizeof hint, "; did you mean '--%s'?", near);
    wrong(line, "unknown option '%.*s'%s (ctrain --help lists them)", n < 100 ? (int)n : 100, word,
          hint);
}

static void take(cli_line *line, int id, const char *value)
{
    line->given[id] = true;
    line->value[id] = value;
    if (id == CLI_SET)
        line->sets[line->n_sets++] = value;
}

/* "--name", "--name=value"; `next` is the word after it. Returns how many words were used. */
static int take_long(cli_line *line, const char *word, const char *next)
{
    size_t n = strcspn(word, "=");
    const char *value = word[n] == '=' ? word + n + 1 : NULL;

    for (int i = 0; i < CLI_N_OPTIONS; i++) {
        const cli_option *o = &cli_options[i];
        if (strlen(o->name) != n - 2 || memcmp(o->name, word + 2, n - 2) != 0)
            continue;
        if (o->takes == CLI_NO_VALUE && value)
            wrong(line, "option '--%s' takes no value", o->name);
        else if (o->takes != CLI_NO_VALUE && value && !value[0])
            wrong(line, "option '--%s=' has no value: expected --%s=%s", o->name, o->name,
                  o->value);
        else if (o->takes == CLI_TAKES_VALUE && !value && !next)
            wrong(line, "option '--%s' needs a value: --%s %s", o->name, o->name, o->value);
        else if (o->takes == CLI_TAKES_VALUE && !value) {
            take(line, i, next);
            return 2;
        } else
            take(line, i, value);
        return 1;
    }
    unknown(line, word, n);
    return 1;
}

/* "-q", "-qv". */
static void take_letters(cli_line *line, const char *word)
{
    for (const char *p = word + 1; *p; p++) {
        int i = 0;
        while (i < CLI_N_OPTIONS && cli_options[i].letter != *p)
            i++;
        if (i == CLI_N_OPTIONS) {
            wrong(line, "unknown option '%.100s' (ctrain --help lists them)", word);
            return;
        }
        take(line, i, NULL);
    }
}

bool cli_line_read(cli_line *line, int argc, char **argv)
{
    const char **words = calloc((size_t)argc * 2 + 2, sizeof *words);
    bool options = true;

    *line = (cli_line){.argv = argv};
    if (!words)
        return false;
    line->operands = words;
    line->sets = words + argc + 1;
    for (int i = 1; i < argc;) {
        const char *word = argv[i];
        if (!options || word[0] != '-' || word[1] == '\0') {
            line->first_is_file |= !options && line->n_operands == 0;
            line->operands[line->n_operands++] = word;
            i++;
        } else if (strcmp(word, "--") == 0) {
            options = false;
            i++;
        } else if (word[1] == '-') {
            i += take_long(line, word, i + 1 < argc ? argv[i + 1] : NULL);
        } else {
            take_letters(line, word);
            i++;
        }
    }
    line->operands = words;
    return true;
}

void cli_line_clear(cli_line *line)
{
    /* The sets stand where they were put; the operands may have been moved on by one. */
    if (line->command && line->command->name[0])
        line->operands--;
    free(line->operands);
    *line = (cli_line){0};
}

static const char *title(const cli_command *c, char *out, size_t cap)
{
    snprintf(out, cap, "ctrain%s%s", c->name[0] ? " " : "", c->name);
    return out;
}

bool cli_line_fits(const cli_line *line)
{
    const cli_command *c = line->command;
    char name[64];

    title(c, name, sizeof name);
    for (int i = 0; i < CLI_N_OPTIONS; i++) {
        if (!line->given[i] || i == CLI_HELP || (c->options & CLI_BIT(i)))
            continue;
        cli_error("option '--%s' is not for %s (%s --help lists its options)", cli_options[i].name,
                  c->name[0] ? name : "training", name);
        return false;
    }
    if (line->given[CLI_QUIET] && line->given[CLI_VERBOSE]) {
        cli_error("-q and -v don't go together");
        return false;
    }
    if (line->n_operands < c->min_operands) {
        cli_error("%s needs %s (%s --help tells more)", name, c->operands, name);
        return false;
    }
    if (line->n_operands > c->max_operands) {
        const char *extra = line->operands[c->max_operands];
        bool resume = line->given[CLI_RESUME] && !line->value[CLI_RESUME];
        cli_error("unexpected '%.200s'%s%.200s%s (%s --help tells more)", extra,
                  resume ? "; did you mean '--resume=" : "", resume ? extra : "",
                  resume ? "'?" : "", name);
        return false;
    }
    return true;
}
