/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain: reads the line, finds the command, ends with its exit code. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* With stdin, stdout or stderr closed, the next file opened would take its number, and lines for
 * people would be written into a checkpoint. What is put there instead refuses writing, as a
 * closed one does. */
static void keep_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) != fd)
            return;
    }
}

/* A word that names no command is a config: when there is such a file, or when it looks like a
 * path. */
static bool is_config(const char *word)
{
    struct stat st;

    return strpbrk(word, "/.") || stat(word, &st) == 0;
}

/* Sets the command that the line means; false when its first word is none. */
static bool choose(cli_line *line)
{
    const char *word = line->n_operands ? line->operands[0] : NULL;
    const cli_command *c = word && !line->first_is_file ? cli_command_find(word) : NULL;

    if (c) {
        line->command = c;
        line->operands++;
        line->n_operands--;
        return true;
    }
    line->command = cli_commands[0];
    return !word || line->first_is_file || is_config(word);
}

static int run(cli_line *line)
{
    if (!choose(line))
        return cli_unknown_command(line->operands[0]);
    if (line->given[CLI_HELP]) {
        cli_help_of(line->command->name[0] ? line->command : NULL);
        return CLI_OK;
    }
    if (line->wrong[0]) {
        cli_error("%s", line->wrong);
        return CLI_EUSAGE;
    }
    if (line->given[CLI_VERSION])
        return cli_version(line);
    if (!line->command->name[0] && line->n_operands == 0) {
        cli_usage();
        return CLI_EUSAGE;
    }
    return cli_line_fits(line) ? line->command->run(line) : CLI_EUSAGE;
}

/* Results that nobody got are a failure, unless the reader of a pipe went away on purpose. A
 * run's result is on the disk. */
static int check_output(const cli_line *line, int code)
{
    int e;

    cli_out_flush();
    e = cli_out_error();
    if (code != CLI_OK || e == 0 || e == EPIPE ||
        (line->command && line->command->run == cli_train))
        return code;
    cli_error("standard output can't be written: %s", strerror(e));
    return CLI_EIO;
}

int main(int argc, char **argv)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    cli_line line;
    int code;

    keep_standard_files();
    /* A reader that goes away must not end a run: writes fail instead. */
    sigaction(SIGPIPE, &ignore, NULL);
    if (!cli_line_read(&line, argc, argv)) {
        cli_error("out of memory");
        return CLI_EDEVICE;
    }
    code = check_output(&line, run(&line));
    cli_line_clear(&line);
    return code;
}
