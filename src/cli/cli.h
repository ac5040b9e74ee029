/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: ctrain's first embedding application. main.c reads the line and calls one
 * command; each command is one file and one row in commands.c; each option is one row in
 * options.c. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <ctrain/error.h>
#include <ctrain/train.h>
#include <stdbool.h>
#include <stddef.h>

/* Exit codes, as in the docs. */
enum {
    CLI_OK = 0,
    CLI_EINTERNAL = 1,
    CLI_EUSAGE = 2,
    CLI_EDATA = 3,
    CLI_EDIVERGED = 4,
    CLI_ECHECK = 5,
    CLI_EDEVICE = 6,
    CLI_EIO = 7,
    CLI_EINTERRUPTED = 75
};

/* ---- options.c ---- */
typedef enum cli_option_id {
    CLI_RESUME,
    CLI_OVERFIT,
    CLI_DRY_RUN,
    CLI_SET,
    CLI_JSON,
    CLI_QUIET,
    CLI_VERBOSE,
    CLI_HELP,
    CLI_VERSION,
    CLI_N_OPTIONS
} cli_option_id;

#define CLI_BIT(id) (1u << (id))

typedef enum cli_takes { CLI_NO_VALUE, CLI_MAY_TAKE_VALUE, CLI_TAKES_VALUE } cli_takes;

typedef struct cli_option {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    cli_takes takes;
    const char *value; /* its name in the help */
    const char *doc;
} cli_option;

extern const cli_option cli_options[CLI_N_OPTIONS];

typedef struct cli_command cli_command;

typedef struct cli_line {
    char **argv;                /* as main got it */
    const cli_command *command; /* NULL: no word names one */
    bool given[CLI_N_OPTIONS];
    const char *value[CLI_N_OPTIONS]; /* the last one given; NULL: none */
    const char **operands; /* the words that are no options, without the command's name */
    int n_operands;
    const char **sets; /* of --set, in order */
    int n_sets;
    bool first_is_file; /* it stood after "--": never a command's name */
    char wrong[512];    /* the first mistake in the options; "" when there is none */
} cli_line;

/* Reads argv; false when out of memory. A mistake is in `wrong`: --help counts more. */
bool cli_line_read(cli_line *line, int argc, char **argv);
void cli_line_clear(cli_line *line);
/* Are all options given for this command, and as many operands as it takes? Else tells, and is
 * false. */
bool cli_line_fits(const cli_line *line);

/* ---- commands.c ---- */
struct cli_command {
    const char *name;     /* "eval"; "" for training itself */
    const char *operands; /* "CONFIG", "[SECTION]" */
    int min_operands, max_operands;
    unsigned options; /* CLI_BIT(...) | ... besides --help */
    const char *summary;
    const char *help;                 /* paragraphs */
    int (*run)(const cli_line *line); /* returns an exit code */
};

extern const cli_command *const cli_commands[]; /* ends with NULL; the first is training */

/* By name; NULL: there is none. Training has no name. */
const cli_command *cli_command_find(const char *name);

int cli_train(const cli_line *line);
int cli_check(const cli_line *line);
int cli_eval(const cli_line *line);
int cli_keys(const cli_line *line);
int cli_help(const cli_line *line);
int cli_version(const cli_line *line);

/* Training with these options set: for `check` too. */
int cli_train_with(const cli_line *line, bool dry_run);
void cli_help_of(const cli_command *command); /* NULL: of the program */
void cli_usage(void);                         /* short, to stderr */
/* Tells that a word is no command, with the nearest one and all there are. */
int cli_unknown_command(const char *word);

/* ---- text.c ---- */
/* To stdout. Nothing is written any more after a failure, which cli_out_error keeps. */
void cli_out(const char *fmt, ...) CT_PRINTF(1, 2);
void cli_out_flush(void);
int cli_out_error(void); /* errno of the first failed write to stdout; 0: none */
/* To stderr, "ctrain: " before each line. */
void cli_error(const char *fmt, ...) CT_PRINTF(1, 2);
void cli_warn(const char *fmt, ...) CT_PRINTF(1, 2);
/* Tells the error; returns its exit code. */
int cli_fail(const ct_error *err);
int cli_exit_code(int status);
/* A string of JSON, quotes included; invalid UTF-8 becomes U+FFFD. */
void cli_out_json(const char *s);
void cli_out_json_number(double v); /* "nan", "inf", "-inf" as strings */
/* The most similar of the words (NULL-terminated), or NULL when none is likely. */
const char *cli_nearest(const char *word, const char *const *words);
/* May colours and a moving line be used on this descriptor? */
bool cli_is_terminal(int fd);
bool cli_may_colour(int fd);

/* ---- progress.c ---- */
typedef struct cli_bar {
    bool on;    /* a terminal, and wanted */
    bool shown; /* there is one on the screen now */
    double drawn_s;
} cli_bar;

void cli_bar_init(cli_bar *bar, bool wanted);
void cli_bar_draw(cli_bar *bar, const ct_progress *p);
void cli_bar_erase(cli_bar *bar);
/* The text of a bar, at most `columns` wide. */
void cli_bar_text(char *out, size_t cap, const ct_progress *p, int columns);

/* Before the first work in threads: starts the program again with a calmer OpenMP, unless the
 * environment says how its threads shall wait. */
void cli_openmp_calm(char **argv);

/* ---- signals.c ---- */
/* From now on the first SIGINT, SIGTERM or SIGHUP asks to stop, a second SIGINT or SIGTERM stops
 * at once. */
void cli_signals_catch(void);
bool cli_signals_stop(void *unused);

#endif
