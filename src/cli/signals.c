/* SPDX-License-Identifier: Apache-2.0 */
/* The first request to stop is polled by the run, which saves; the second ends the program by
 * the signal's own action, so that a shell sees what it was. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static volatile sig_atomic_t on_terminal;

static void tell(void)
{
    static const char text[] =
        "\r\033[Kctrain: stopping after this step and saving; once more to stop "
        "at once\n";
    const char *from = on_terminal ? text : strchr(text, 'c');
    ssize_t ignored = write(STDERR_FILENO, from, strlen(from));

    (void)ignored;
}

static void on_signal(int sig)
{
    int saved = errno;

    /* A closing terminal sends SIGHUP more than once. */
    if (asked && sig != SIGHUP) {
        signal(sig, SIG_DFL);
        raise(sig);
    } else if (!asked) {
        asked = 1;
        tell();
    }
    errno = saved;
}

void cli_signals_catch(void)
{
    struct sigaction catch = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;

    on_terminal = cli_is_terminal(STDERR_FILENO);
    sigfillset(&catch.sa_mask);
    sigaction(SIGINT, &catch, NULL);
    sigaction(SIGTERM, &catch, NULL);
    /* nohup has it ignored: then it stays so. */
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &catch, NULL);
}

bool cli_signals_stop(void *unused)
{
    (void)unused;
    return asked != 0;
}
