/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules against values that PyTorch 2.15 gave (lr and momentum, each to 1e-12), and what is refused. */
#include <criterion/criterion.h>
#include <ctrain/optim.h>
#include <math.h>

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void expect_lr(const char *what, const ct_schedule *s, int n, const double *lr)
{
    ct_error err = {0};

    cr_expect_eq(ct_schedule_check(s, &err), CT_OK, "%s: %s", what, err.text);
    for (int i = 0; i < n; i++)
        cr_expect_leq(fabs(ct_schedule_lr(s, i) - lr[i]), 1e-12,
                      "%s: step %d: got %.17g, want %.17g", what, i, ct_schedule_lr(s, i), lr[i]);
    /* Beyond the end nothing moves, before the start neither. */
    if (n == s->total) {
        cr_expect_eq(ct_schedule_lr(s, n), ct_schedule_lr(s, n - 1), "%s", what);
        cr_expect_eq(ct_schedule_lr(s, INT64_MAX), ct_schedule_lr(s, n - 1), "%s", what);
    }
    cr_expect_eq(ct_schedule_lr(s, -1), ct_schedule_lr(s, 0), "%s", what);
}

static void expect_momentum(const char *what, const ct_schedule *s, int n, const double *m)
{
    for (int i = 0; i < n; i++)
        cr_expect_leq(fabs(ct_schedule_momentum(s, i) - m[i]), 1e-12,
                      "%s: step %d: got %.17g, want %.17g", what, i, ct_schedule_momentum(s, i),
                      m[i]);
}

Test(optim_schedule, onecycle)
{
    ct_schedule s = ct_schedule_defaults(CT_SCHEDULE_ONECYCLE, 10, 1);
    const double lr[] = {0.040000000000000036,
                         0.52,
                         1.0,
                         0.9504846320134737,
                         0.8117456539497631,
                         0.6112620219362893,
                         0.38874197806371075,
                         0.18825834605023697,
                         0.049519367986526286,
                         4e-06};
    const double m[] = {0.95,
                        0.8999999999999999,
                        0.85,
                        0.854951556604879,
                        0.8688255099070633,
                        0.8888739533021842,
                        0.9111260466978157,
                        0.9311744900929366,
                        0.945048443395121,
                        0.95};
    const double linear_lr[] = {0.04,
                                0.52,
                                1.0,
                                0.8571434285714286,
                                0.7142868571428571,
                                0.5714302857142857,
                                0.42857371428571434,
                                0.2857171428571429,
                                0.14286057142857145,
                                4.000000000004e-06};
    const double linear_m[] = {0.95,
                               0.8999999999999999,
                               0.85,
                               0.8642857142857142,
                               0.8785714285714286,
                               0.8928571428571428,
                               0.9071428571428571,
                               0.9214285714285714,
                               0.9357142857142857,
                               0.95};

    expect_lr("cos", &s, LEN(lr), lr);
    expect_momentum("cos", &s, LEN(m), m);
    cr_expect_eq(ct_schedule_momentum(&s, 10), ct_schedule_momentum(&s, 9));
    s.linear = true;
    expect_lr("linear", &s, LEN(linear_lr), linear_lr);
    expect_momentum("linear", &s, LEN(linear_m), linear_m);
    s.cycle_momentum = false;
    cr_expect(isnan(ct_schedule_momentum(&s, 3)));
}

Test(optim_schedule, onecycle_three_phases)
{
    ct_schedule s = ct_schedule_defaults(CT_SCHEDULE_ONECYCLE, 10, 1);
    const double lr[] = {0.040000000000000036,
                         0.52,
                         1.0,
                         0.52,
                         0.04,
                         0.0361807218535102,
                         0.0261817218535102,
                         0.013822278146489805,
                         0.0038232781464898036,
                         4e-06};
    const double m[] = {
        0.95, 0.8999999999999999, 0.85, 0.8999999999999999, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95};

    s.three_phase = true;
    expect_lr("three", &s, LEN(lr), lr);
    expect_momentum("three", &s, LEN(m), m);
}

Test(optim_schedule, onecycle_edges)
{
    ct_schedule s = ct_schedule_defaults(CT_SCHEDULE_ONECYCLE, 10, 1);
    const double early[] = {0.9931806789787544, 0.9397371166557421, 0.8386414312497273};
    const double early_m[] = {0.8506819348298639, 0.8560263124396755, 0.8661359214187129};
    const double none[] = {0.8535539763797113, 0.500002, 0.14645002362028864, 4e-06};
    const double none_m[] = {0.8646446609406726, 0.8999999999999999, 0.9353553390593273, 0.95};
    const double one[] = {4e-06};

    s.pct_start = 0.05;
    expect_lr("pct .05", &s, LEN(early), early);
    expect_momentum("pct .05", &s, LEN(early_m), early_m);
    s.total = 4;
    s.pct_start = 0;
    expect_lr("pct 0", &s, LEN(none), none);
    expect_momentum("pct 0", &s, LEN(none_m), none_m);
    s.total = 1;
    s.pct_start = 0.3;
    expect_lr("one step", &s, 1, one);
}

Test(optim_schedule, cosine)
{
    ct_schedule s = ct_schedule_defaults(CT_SCHEDULE_COSINE, 5, 1);
    const double lr[] = {1.0, 0.9140576474687263, 0.6890576474687263, 0.41094235253127365,
                         0.1859423525312737};
    const double warm[] = {0.25,
                           0.5,
                           0.75,
                           1.0,
                           0.9140576474687263,
                           0.6890576474687263,
                           0.41094235253127365,
                           0.1859423525312737};

    s.min_lr = 0.1;
    expect_lr("cosine", &s, LEN(lr), lr);
    s.total = 8; /* LinearLR(start_factor=.25, total_iters=3), then the same cosine */
    s.warmup_steps = 3;
    s.warmup_start = 0.25;
    expect_lr("warm-up", &s, LEN(warm), warm);
    cr_expect(isnan(ct_schedule_momentum(&s, 0)));
}

Test(optim_schedule, step_and_constant)
{
    ct_schedule s = ct_schedule_defaults(CT_SCHEDULE_STEP, 8, 1);
    const double lr[] = {1, 1, 1, .5, .5, .5, .25, .25}, flat[] = {.3, .3, .3};

    s.step_size = 3;
    s.gamma = 0.5;
    expect_lr("step", &s, LEN(lr), lr);
    s = ct_schedule_defaults(CT_SCHEDULE_CONSTANT, 3, .3);
    expect_lr("constant", &s, LEN(flat), flat);
    cr_expect(isnan(ct_schedule_momentum(&s, 0)));
    s.max_lr = 0;
    cr_expect_eq(ct_schedule_check(&s, NULL), CT_OK);
}

/* ---- what is refused ---- */

static void expect_refused(ct_schedule s, const char *text)
{
    ct_error err = {0};

    cr_expect_eq(ct_schedule_check(&s, &err), CT_ECONFIG);
    cr_expect_str_eq(err.text, text, "got  \"%s\"\nwant \"%s\"", err.text, text);
}

#define REFUSED(kind, key, value, text)                                   \
    do {                                                                  \
        ct_schedule s_ = ct_schedule_defaults(CT_SCHEDULE_##kind, 10, 1); \
        s_.key = value;                                                   \
        expect_refused(s_, text);                                         \
    } while (0)

Test(optim_schedule, refused)
{
    ct_schedule s = ct_schedule_defaults(CT_SCHEDULE_ONECYCLE, 10, 1);
    ct_error err = {0};

    REFUSED(
        ONECYCLE, pct_start, 0.1,
        "schedule.pct_start = 0.1: the rise over 0.1 of 10 steps would be a single step, which has no "
        "slope; take another pct_start (0: no rise) or more steps");
    REFUSED(ONECYCLE, pct_start, 1, "schedule.pct_start = 1: must be at least 0 and less than 1");
    REFUSED(ONECYCLE, pct_start, -0.5,
            "schedule.pct_start = -0.5: must be at least 0 and less than 1");
    REFUSED(ONECYCLE, pct_start, NAN,
            "schedule.pct_start = nan: must be at least 0 and less than 1");
    REFUSED(ONECYCLE, div_factor, 0, "schedule.div_factor = 0: must be over 0");
    REFUSED(ONECYCLE, final_div_factor, -1, "schedule.final_div_factor = -1: must be over 0");
    REFUSED(ONECYCLE, base_momentum, 1,
            "schedule.base_momentum = 1: must be at least 0 and less than 1");
    REFUSED(ONECYCLE, max_momentum, -1,
            "schedule.max_momentum = -1: must be at least 0 and less than 1");
    REFUSED(ONECYCLE, max_lr, -1, "schedule.max_lr = -1: must be at least 0");
    REFUSED(CONSTANT, max_lr, INFINITY, "schedule.max_lr = inf: must be at least 0");
    REFUSED(CONSTANT, total, 0, "a schedule over 0 steps: there must be at least 1");
    REFUSED(COSINE, warmup_steps, 10,
            "schedule.warmup_steps = 10: must be at least 0 and less than all steps (10)");
    REFUSED(COSINE, warmup_steps, -1,
            "schedule.warmup_steps = -1: must be at least 0 and less than all steps (10)");
    REFUSED(COSINE, warmup_start, 2,
            "schedule.warmup_start = 2: must be in 0..1 (a part of max_lr)");
    REFUSED(COSINE, min_lr, 3, "schedule.min_lr = 3: must be at least 0 and at most max_lr (1)");
    REFUSED(STEP, step_size, 0, "schedule.step_size = 0: must be at least 1 step");
    s.three_phase = true;
    s.pct_start = 0.6;
    expect_refused(
        s, "schedule.pct_start = 0.6: with three_phase it must be at most 0.5, or the last phase "
           "never comes");
    s = ct_schedule_defaults(CT_SCHEDULE_STEP, 10, 1);
    s.step_size = 2;
    s.gamma = 0;
    expect_refused(s, "schedule.gamma = 0: must be over 0");
    s.kind = (ct_schedule_kind)9;
    cr_expect_eq(ct_schedule_check(&s, &err), CT_EINVAL);
    cr_expect_eq(ct_schedule_check(NULL, NULL), CT_EINVAL);
}
