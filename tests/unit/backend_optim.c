/* SPDX-License-Identifier: Apache-2.0 */
/* The trajectories are PyTorch 2.15's: p = 1, lr = .1, g = .5, -.2, 1. */
#include "backend_test.h"

#define OPT (&cti_cpu_optim)

TestSuite(backend_optim);

/* One parameter in either dtype, and its state. */
typedef struct one {
    double p[1], g[1], s0[1], s1[1];
    float pf[1], gf[1], s0f[1], s1f[1];
    int64_t step;
} one;

static ct_opt_param param_of(one *o, bool f64, double wd)
{
    ct_opt_param p = {f64 ? (void *)o->p : o->pf,
                      f64 ? (void *)o->g : o->gf,
                      f64 ? (void *)o->s0 : o->s0f,
                      f64 ? (void *)o->s1 : o->s1f,
                      1,
                      &o->step,
                      wd,
                      1};
    return p;
}

static void step_all(int threads, ct_opt_kind kind, ct_dtype t, int n, const ct_opt_param *p,
                     const void *weight, const void *loss, ct_opt_scalars *sc)
{
    ct_stream s = stream_of(threads);
    void *w = workspace(OPT->workspace(&s, t, n, p));
    cr_assert_eq(OPT->norm(&s, t, n, p, weight, loss, sc, w), CT_OK);
    cr_assert_eq(OPT->step(&s, kind, t, n, p, 0, NULL, sc), CT_OK);
    free(w);
}

static void trajectory(ct_opt_kind kind, ct_opt_scalars sc, double wd, const double want[3])
{
    static const double grads[] = {0.5, -0.2, 1};
    for (int f64 = 0; f64 < 2; f64++) {
        one o = {.p = {1}, .pf = {1}};
        ct_opt_param p = param_of(&o, f64, wd);
        for (int i = 0; i < 3; i++) {
            o.g[0] = grads[i];
            o.gf[0] = (float)grads[i];
            step_all(1, kind, f64 ? CT_F64 : CT_F32, 1, &p, NULL, NULL, &sc);
            expect_near(f64 ? o.p[0] : (double)o.pf[0], want[i], f64 ? 1e-14 : 3e-7, "step", i);
        }
        cr_assert_eq(o.step, 3);
    }
    cr_assert_eq(sc.applied, 6);
}

Test(backend_optim, adamw_and_adam_as_pytorch)
{
    ct_opt_scalars sc = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    trajectory(CT_OPT_ADAMW, sc, 0.01,
               (const double[]){0.899000002, 0.8635404181145108, 0.79376306855655});
    trajectory(CT_OPT_ADAM, sc, 0.01,
               (const double[]){0.9000000019607843, 0.8633641380701821, 0.7936961280319241});
}

Test(backend_optim, sgd_as_pytorch)
{
    ct_opt_scalars sc = {.lr = 0.1, .beta1 = 0.9};
    trajectory(CT_OPT_SGD, sc, 0, (const double[]){0.95, 0.925, 0.8025});
    sc.dampening = 0.5;
    trajectory(CT_OPT_SGD, sc, 0, (const double[]){0.95, 0.915, 0.8335});
    sc.dampening = 0;
    sc.nesterov = 1;
    trajectory(CT_OPT_SGD, sc, 0.1, (const double[]){0.886, 0.858566, 0.617536646});
    sc.nesterov = 0;
    sc.beta1 = 0;
    trajectory(CT_OPT_SGD, sc, 0, (const double[]){0.95, 0.97, 0.87});
}

Test(backend_optim, adamw_decays_without_gradient_value)
{
    one o = {.p = {1}};
    ct_opt_param p = param_of(&o, true, 0.01);
    ct_opt_scalars sc = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    step_all(1, CT_OPT_ADAMW, CT_F64, 1, &p, NULL, NULL, &sc);
    expect_near(o.p[0], 0.999, 1e-15, "decay", 0);
    step_all(1, CT_OPT_ADAMW, CT_F64, 1, &p, NULL, NULL, &sc);
    expect_near(o.p[0], 0.998001, 1e-15, "decay", 1);
    p.g = NULL; /* no gradient at all: nothing happens */
    step_all(1, CT_OPT_ADAMW, CT_F64, 1, &p, NULL, NULL, &sc);
    expect_near(o.p[0], 0.998001, 1e-15, "no gradient", 2);
    cr_assert_eq(o.step, 2);
}

/* SGD with lr 1 and p = 0 leaves -(the gradient it used). */
Test(backend_optim, clipping_and_window_weight)
{
    double g[] = {3, 4}, p[] = {0, 0}, weight = 1;
    int64_t steps[2] = {0, 0};
    ct_opt_param ps[] = {{&p[0], &g[0], NULL, NULL, 1, &steps[0], 0, 1},
                         {&p[1], &g[1], NULL, NULL, 1, &steps[1], 0, 2}};
    ct_opt_scalars sc = {.lr = 1, .max_norm = 1};
    step_all(1, CT_OPT_SGD, CT_F64, 2, ps, &weight, NULL, &sc);
    expect_near(sc.grad_norm, 5, 1e-15, "norm", 0);
    expect_near(p[0], -3 / (5 + 1e-6), 1e-15, "clipped", 0);
    expect_near(p[1], -2 * 4 / (5 + 1e-6), 1e-15, "clipped, lr_scale 2", 1);
    p[0] = p[1] = 0; /* below max_norm: untouched */
    sc.max_norm = 10;
    weight = 10;
    step_all(1, CT_OPT_SGD, CT_F64, 2, ps, &weight, NULL, &sc);
    expect_near(sc.grad_norm, 0.5, 1e-15, "norm over weight", 0);
    expect_near(p[0], -0.3, 1e-15, "divided by the weight", 0);
    p[0] = 0; /* exactly at max_norm */
    sc.max_norm = 0.5;
    step_all(1, CT_OPT_SGD, CT_F64, 2, ps, &weight, NULL, &sc);
    expect_near(p[0], -0.3 * (0.5 / (0.5 + 1e-6)), 1e-15, "always multiplied", 0);
}

Test(backend_optim, flags_guards_latch)
{
    for (int kind = 0; kind < 7; kind++)
        for (int latch = 0; latch < 2; latch++) {
            float g[5] = {1, 1, 1, 1, 1}, p[5] = {1, 1, 1, 1, 1}, m[5] = {0}, v[5] = {0};
            float weight = 2, loss = 3, stat = 8, backup = 7;
            int64_t steps = 4;
            ct_opt_param ps = {p, g, m, v, 5, &steps, 0.1, 1};
            ct_opt_guard guard = {&stat, &backup, sizeof stat};
            ct_opt_scalars sc = {
                .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .latch = latch};
            ct_stream s = stream_of(1);
            void *w = workspace(OPT->workspace(&s, CT_F32, 1, &ps));
            int want = kind == 0 ? 0 : kind <= 3 ? 1 : kind == 4 ? 2 : kind == 5 ? 4 : 2;
            g[3] = kind == 1 ? NAN : kind == 2 ? INFINITY : kind == 3 ? -INFINITY : 1;
            weight = kind == 4 ? 0 : kind == 6 ? NAN : 2;
            loss = kind == 5 ? INFINITY : 3;
            OPT->norm(&s, CT_F32, 1, &ps, &weight, &loss, &sc, w);
            OPT->step(&s, CT_OPT_ADAMW, CT_F32, 1, &ps, 1, &guard, &sc);
            cr_assert_eq(sc.nonfinite, want, "kind %d", kind);
            cr_assert_eq(p[0] == 1, want != 0);
            cr_assert_eq(m[0] == 0, want != 0);
            cr_assert_eq(steps, want ? 4 : 5);
            cr_assert_eq(stat, want ? 7 : 8);
            cr_assert_eq(backup, want ? 7 : 8);
            cr_assert_eq(sc.applied, !want);
            cr_assert_eq(sc.skipped, want != 0);
            /* a clean step after it: only a latch holds it back */
            g[3] = 1, weight = 2, loss = 3;
            bool held = latch && (want & 5);
            OPT->norm(&s, CT_F32, 1, &ps, &weight, &loss, &sc, w);
            int64_t before = steps;
            OPT->step(&s, CT_OPT_ADAMW, CT_F32, 1, &ps, 1, &guard, &sc);
            cr_assert_eq(sc.nonfinite, 0);
            cr_assert_eq(sc.latched, held);
            cr_assert_eq(steps, before + !held);
            free(w);
        }
    /* squares that overflow aren't infinities */
    float big[1] = {1e30f}, p = 0;
    int64_t steps = 0;
    ct_opt_param ps = {&p, big, NULL, NULL, 1, &steps, 0, 1};
    ct_opt_scalars sc = {.lr = 1, .max_norm = 1};
    step_all(1, CT_OPT_SGD, CT_F32, 1, &ps, NULL, NULL, &sc);
    cr_assert_eq(sc.nonfinite, 0);
    expect_near((double)p, -1, 1e-6, "clipped from 1e30", 0);
}

Test(backend_optim, many_parameters_same_bytes_for_any_threads)
{
    enum { N = 40, MOST = 9001 };
    static float p[3][N][MOST], m[3][N][MOST], v[3][N][MOST], g[N][MOST];
    double norm[3];
    for (int t = 0; t < 3; t++) {
        int64_t steps[N];
        ct_opt_param ps[N];
        ct_opt_scalars sc = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .max_norm = 1};
        for (int k = 0; k < N; k++) {
            int64_t n = k % 7 == 3 ? 0 : (k * 997) % MOST;
            steps[k] = k;
            ps[k] = (ct_opt_param){p[t][k], g[k], m[t][k], v[t][k], n, &steps[k], 0.01, 1};
            for (int64_t i = 0; i < n; i++)
                p[t][k][i] = (float)noise(1, i + k), g[k][i] = (float)noise(2, i * 3 + k);
        }
        for (int i = 0; i < 3; i++)
            step_all(t + 1, CT_OPT_ADAMW, CT_F32, N, ps, NULL, NULL, &sc);
        norm[t] = sc.grad_norm;
        cr_assert(memcmp(p[t], p[0], sizeof p[0]) == 0 && memcmp(v[t], v[0], sizeof v[0]) == 0);
        cr_assert_eq(norm[t], norm[0]);
    }
    double want = 0;
    for (int k = 0; k < N; k++)
        for (int64_t i = 0; i < MOST; i++)
            want += (double)g[k][i] * (double)g[k][i];
    expect_near(norm[0], sqrt(want), 1e-12, "norm", 0);
    ct_opt_scalars sc = {.lr = 1};
    step_all(2, CT_OPT_SGD, CT_F32, 0, NULL, NULL, NULL, &sc);
    cr_assert_eq(sc.grad_norm, 0);
    cr_assert_eq(sc.applied, 1);
}
