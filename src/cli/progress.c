/* SPDX-License-Identifier: Apache-2.0 */
/* The line that shows on a terminal how far a run is. It stands on stderr, so that stdout can be
 * kept. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int columns(void)
{
    struct winsize w = {0};

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

typedef struct sink {
    char *out;
    size_t cap, n;
} sink;

static void CT_PRINTF(2, 3) put(sink *s, const char *fmt, ...)
{
    va_list args;
    int n;

    if (s->n + 1 >= s->cap)
        return;
    va_start(args, fmt);
    n = vsnprintf(s->out + s->n, s->cap - s->n, fmt, args);
    va_end(args);
    s->n += n > 0 ? (size_t)n : 0;
    if (s->n >= s->cap)
        s->n = s->cap - 1;
}

static void put_time(sink *s, double seconds)
{
    int64_t t = seconds < 1e9 ? (int64_t)(seconds + 0.5) : 1000000000;

    if (t >= 3600)
        put(s, "  eta %" PRId64 ":%02d:%02d", t / 3600, (int)(t / 60 % 60), (int)(t % 60));
    else
        put(s, "  eta %d:%02d", (int)(t / 60), (int)(t % 60));
}

/* All fields but the last `left_out` of those that matter least. */
static size_t compose(char *out, size_t cap, const ct_progress *p, int cells, int left_out)
{
    sink s = {out, cap, 0};
    double part = p->total_steps > 0 ? (double)p->step / (double)p->total_steps : 0;
    int full = part >= 1 ? cells : part > 0 ? (int)(part * cells) : 0;

    out[0] = '\0';
    put(&s, "[%.*s%.*s] %" PRId64 "/%" PRId64 "  epoch %" PRId64 "/%" PRId64, full,
        "####################", cells - full, "....................", p->step, p->total_steps,
        p->epoch, p->total_epochs);
    /* Before the first log point there is no loss. */
    if (!isnan(p->loss))
        put(&s, "  loss %.4g", p->loss);
    if (!isnan(p->lr) && left_out < 4)
        put(&s, "  lr %.3g", p->lr);
    if (!isnan(p->grad_norm) && left_out < 3)
        put(&s, "  |g| %.3g", p->grad_norm);
    if (p->samples_per_s > 0 && left_out < 2)
        put(&s, "  %.0f/s", p->samples_per_s);
    if (p->samples_per_s > 0 && left_out < 1)
        put(&s, "  wait %.0f%%", 100 * p->wait_fraction);
    if (isfinite(p->eta_s) && p->eta_s >= 0)
        put_time(&s, p->eta_s);
    return s.n;
}

void cli_bar_text(char *out, size_t cap, const ct_progress *p, int width)
{
    int cells = width < 100 ? 10 : 20, left_out = 0;

    if (cap == 0 || width < 0)
        return;
    while (compose(out, cap, p, cells, left_out) > (size_t)width && left_out < 4)
        left_out++;
    if (strlen(out) > (size_t)width)
        out[width] = '\0';
}

void cli_bar_init(cli_bar *bar, bool wanted)
{
    *bar = (cli_bar){.on = wanted && cli_is_terminal(STDERR_FILENO)};
}

void cli_bar_draw(cli_bar *bar, const ct_progress *p)
{
    char text[256];
    double now;

    if (!bar->on || (now = now_s()) - bar->drawn_s < 0.1)
        return;
    bar->drawn_s = now;
    bar->shown = true;
    cli_bar_text(text, sizeof text, p, columns() - 1);
    /* One write: a line from elsewhere can't come between. */
    if (cli_may_colour(STDERR_FILENO))
        fprintf(stderr, "\r\033[36m%s\033[0m\033[K", text);
    else
        fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
}

void cli_bar_erase(cli_bar *bar)
{
    if (!bar->shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar->shown = false;
}
