/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers of the CUDA backend against the CPU's. */
#include "pair.h"

TestSuite(cuda_optim);

enum { MOST = 1300 };

/* Parameters with all their state on both sides, by the twins' memory. */
typedef struct params {
    int n;
    twin p[MOST], g[MOST], s0[MOST], s1[MOST], steps;
    ct_opt_param cuda[MOST], cpu[MOST];
    ct_opt_scalars sc, *device; /* the CPU's, and the device's */
    void *workspace, *cpu_workspace;
    twin weight, loss;
} params;

static params all; /* large */

/* n[i] elements each; a negative number: -n of them, but no gradient. `shift`: from 16-byte
 * addresses. */
static params *make(pair *p, int count, const int64_t *n, bool momentum, int64_t shift)
{
    params *u = &all;
    memset(u, 0, sizeof *u);
    p->oracle = CT_F32;
    u->n = count;
    u->steps = twin_new(p, CT_I64, ROWS, 1, SHAPE(count));
    for (int i = 0; i < count; i++) {
        int64_t m = n[i] < 0 ? -n[i] : n[i], room = m + shift;
        twin *t[] = {&u->p[i], &u->g[i], &u->s0[i], &u->s1[i]};
        for (int k = 0; k < 4; k++) {
            *t[k] = twin_rand(p, CT_F32, ROWS, 1, &room, (uint64_t)(i * 4 + k));
            if (k == 3)
                twin_noise(p, t[k], 5, 0.2, 0.5);
        }
        twin_put(p, &u->steps, i, i % 4);
        for (int side = 0; side < 2; side++) {
            void *at[4];
            for (int k = 0; k < 4; k++)
                at[k] = (float *)(side ? t[k]->o.data : t[k]->v.data) + shift;
            *(side ? &u->cpu[i] : &u->cuda[i]) = (ct_opt_param){
                .p = at[0],
                .g = n[i] < 0 ? NULL : at[1],
                .s0 = momentum ? at[2] : NULL,
                .s1 = at[3],
                .n = m,
                .step = (int64_t *)(side ? u->steps.o.data : u->steps.v.data) + i,
                .weight_decay = i % 3 * 0.01,
                .lr_scale = i % 5 ? 1 : 0.5,
            };
        }
    }
    twin_upload(p, &u->steps);
    u->weight = twin_new(p, CT_F32, ROWS, 0, n), u->loss = twin_new(p, CT_F32, ROWS, 0, n);
    u->device = pair_scratch(p, sizeof u->sc);
    u->workspace = pair_scratch(p, cti_cuda_optim_workspace(p->cuda, CT_F32, count, u->cuda));
    u->cpu_workspace = malloc(p->be->optim->workspace(p->cpu, CT_F32, count, u->cpu) + 1);
    return u;
}

static void drop(pair *p, params *u)
{
    for (int i = 0; i < u->n; i++)
        twin_free(p, &u->p[i]), twin_free(p, &u->g[i]), twin_free(p, &u->s0[i]),
            twin_free(p, &u->s1[i]);
    twin_free(p, &u->steps), twin_free(p, &u->weight), twin_free(p, &u->loss);
    pair_scratch_free(p, u->device), pair_scratch_free(p, u->workspace);
    free(u->cpu_workspace);
}

static void put_scalar(pair *p, twin *t, double x)
{
    twin_put(p, t, 0, x);
    twin_upload(p, t);
}

static void near(double a, double b, const char *what)
{
    cr_assert((isnan(a) && isnan(b)) || a == b || fabs(a - b) <= 1e-12 * fabs(b),
              "%s: %.17g, not %.17g", what, a, b);
}

static void scalars_same(pair *p, const params *u)
{
    ct_opt_scalars got;
    pair_ok(p, cti_cuda_mem.download(p->cuda, &got, u->device, sizeof got));
    near(got.weight, u->sc.weight, "weight");
    near(got.grad_norm, u->sc.grad_norm, "norm");
    cr_assert_eq(got.nonfinite, u->sc.nonfinite, "flags %d, not %d", got.nonfinite,
                 u->sc.nonfinite);
    cr_assert_eq(got.latched, u->sc.latched);
    cr_assert_eq(got.applied, u->sc.applied);
    cr_assert_eq(got.skipped, u->sc.skipped);
    cr_assert_eq(got.loss_scale, u->sc.loss_scale);
    cr_assert_eq(got.scale_clean, u->sc.scale_clean);
    cr_assert(got.lr == u->sc.lr && got.latch == u->sc.latch && got.max_norm == u->sc.max_norm);
}

/* A step on both sides; guards[0] is the device's list. */
static void step(pair *p, params *u, ct_opt_kind kind, bool weight, bool loss, int n_guards,
                 const ct_opt_guard *const guards[2])
{
    pair_ok(p, cti_cuda_optim_norm(p->cuda, CT_F32, u->n, u->cuda, weight ? u->weight.v.data : NULL,
                                   loss ? u->loss.v.data : NULL, u->device, u->workspace));
    pair_ok(p, cti_cuda_optim_step(p->cuda, kind, CT_F32, u->n, u->cuda, n_guards,
                                   guards ? guards[0] : NULL, u->device));
    pair_ok(p, p->be->optim->norm(p->cpu, CT_F32, u->n, u->cpu, weight ? u->weight.o.data : NULL,
                                  loss ? u->loss.o.data : NULL, &u->sc, u->cpu_workspace));
    pair_ok(p, p->be->optim->step(p->cpu, kind, CT_F32, u->n, u->cpu, n_guards,
                                  guards ? guards[1] : NULL, &u->sc));
}

static void same(pair *p, const params *u, double factor)
{
    for (int i = 0; i < u->n; i++) {
        char what[40];
        snprintf(what, sizeof what, "parameter %d", i);
        twin_same(p, &u->p[i], factor, what);
        twin_same(p, &u->s0[i], factor, what), twin_same(p, &u->s1[i], factor, what);
        twin_untouched(p, &u->g[i], what);
    }
    twin_same(p, &u->steps, 0, "counters");
    scalars_same(p, u);
}

static void set(pair *p, params *u, ct_opt_scalars sc)
{
    u->sc = sc;
    pair_ok(p, cti_cuda_mem.upload(p->cuda, u->device, &sc, sizeof sc));
}

static const int64_t sizes[] = {1, 3,    31,   32,   33,    255, 257, -40,
                                0, 8191, 8192, 8193, 20001, 5,   -3,  4};
enum { SIZES = (int)(sizeof sizes / sizeof *sizes) };

Test(cuda_optim, rules)
{
    pair p;
    pair_open(&p);
    for (int k = 0; k < 12;
         k++) { /* kinds; momentum, nesterov, dampening, clipping; odd addresses */
        ct_opt_kind kind = k < 6 ? CT_OPT_SGD : k < 9 ? CT_OPT_ADAM : CT_OPT_ADAMW;
        params *u = make(&p, SIZES, sizes, k != 0, k % 3 == 2 ? 3 : 0);
        ct_opt_scalars sc = {.lr = 0.05,
                             .beta1 = k == 1 ? 0 :
                                      k == 7 ? 0.3 :
                                               0.9,
                             .beta2 = 0.99,
                             .eps = 1e-6,
                             .dampening = k == 3 ? 0.5 : 0,
                             .nesterov = k >= 4,
                             .max_norm = k % 2  ? 0.7 :
                                         k == 4 ? 1e6 :
                                                  0};
        put_scalar(&p, &u->weight, 2.5);
        set(&p, u, sc);
        for (int i = 0; i < 3; i++) {
            step(&p, u, kind, k & 1, false, 0, NULL);
            same(&p, u, 1);
            /* what a captured step must see: values that change on the device */
            u->sc.lr *= 0.5;
            ct_opt_scalars now = u->sc;
            set(&p, u, now);
        }
        drop(&p, u);
    }
    pair_close(&p);
}

Test(cuda_optim, flags_guards_latch)
{
    static const int64_t n[] = {5, 9000};
    pair p;
    pair_open(&p);
    for (int kind = 0; kind < 7; kind++)
        for (int mode = 0; mode < 4; mode++) {
            const bool latch = mode & 1, scaled = mode & 2;
            params *u = make(&p, 2, n, true, 0);
            twin stat = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(333), 50);
            twin backup = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(333), 51);
            const ct_opt_guard device[] = {
                {stat.v.data, backup.v.data, 600 * 2},
                {(char *)stat.v.data + 1201, (char *)backup.v.data + 1201, 99}};
            const ct_opt_guard host[] = {
                {stat.o.data, backup.o.data, 600 * 2},
                {(char *)stat.o.data + 1201, (char *)backup.o.data + 1201, 99}};
            const ct_opt_guard *const guards[] = {device, host};
            ct_opt_scalars sc = {
                .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .latch = latch};
            if (scaled) {
                sc.scale_growth = 2, sc.scale_backoff = 0.5, sc.scale_interval = 2;
                sc.loss_scale = 16;
            }
            set(&p, u, sc);
            double bad = kind == 1 ? (double)NAN : kind == 2 ? INFINITY : kind == 3 ? -INFINITY : 1;
            twin_put(&p, &u->g[1], 8990, bad);
            twin_upload(&p, &u->g[1]);
            put_scalar(&p, &u->weight, kind == 4 ? 0 : kind == 6 ? (double)NAN : 2);
            put_scalar(&p, &u->loss, kind == 5 ? INFINITY : 3);
            for (int i = 0; i < 3;
                 i++) { /* the next steps are clean: only a latch holds them back */
                step(&p, u, CT_OPT_ADAMW, true, true, 2, guards);
                same(&p, u, 1);
                twin_same(&p, &stat, 0, "guarded"), twin_same(&p, &backup, 0, "backup");
                put_scalar(&p, &u->weight, 2), put_scalar(&p, &u->loss, 3);
                twin_put(&p, &u->g[1], 8990, 1);
                twin_upload(&p, &u->g[1]);
                twin_noise(&p, &stat, (uint64_t)i, 1, 0);
            }
            cr_assert_eq(u->sc.nonfinite, 0);
            cr_assert_eq(u->sc.latched,
                         latch && ((kind >= 1 && kind <= 3 && !scaled) || kind == 5));
            if (scaled)
                cr_assert_eq(u->sc.loss_scale,
                             kind == 0              ? 32 :
                             kind == 5 && latch     ? 16 :
                             kind == 4 || kind == 6 ? 32 :
                                                      16,
                             "kind %d: %g", kind, u->sc.loss_scale);
            twin_free(&p, &stat), twin_free(&p, &backup);
            drop(&p, u);
        }
    pair_close(&p);
}

Test(cuda_optim, squares_that_overflow_are_finite)
{
    static const int64_t one[] = {2};
    pair p;
    pair_open(&p);
    params *u = make(&p, 1, one, true, 0);
    ct_opt_scalars sc = {.lr = 1, .max_norm = 1};
    set(&p, u, sc);
    twin_put(&p, &u->g[0], 0, 1e30), twin_put(&p, &u->g[0], 1, 3e38);
    twin_upload(&p, &u->g[0]);
    step(&p, u, CT_OPT_SGD, false, false, 0, NULL);
    cr_assert_eq(u->sc.nonfinite, 0);
    same(&p, u, 1);
    drop(&p, u);
    pair_close(&p);
}

/* More parameters, counters and guards than one launch takes. */
Test(cuda_optim, many)
{
    static int64_t n[MOST];
    static ct_opt_guard device[400], host[400];
    pair p;
    pair_open(&p);
    for (int count = 0; count <= MOST; count += count < 960 ? 480 : 340) { /* 0, 480, 960, 1300 */
        for (int i = 0; i < count; i++)
            n[i] = count == 960 ? 1 :
                   i % 7 == 3   ? 0 :
                   i % 11 == 5  ? -4 :
                   i % 200 == 9 ? 9001 :
                                  i % 40;
        params *u = make(&p, count, n, true, 0);
        ct_opt_scalars sc = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .max_norm = 1};
        const ct_opt_guard *const guards[] = {device, host};
        twin stat = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(400), 50);
        twin backup = twin_rand(&p, CT_F32, ROWS, 1, SHAPE(400), 51);
        for (int i = 0; i < 400; i++) {
            device[i] = (ct_opt_guard){(float *)stat.v.data + i, (float *)backup.v.data + i, 4};
            host[i] = (ct_opt_guard){(float *)stat.o.data + i, (float *)backup.o.data + i, 4};
        }
        set(&p, u, sc);
        for (int i = 0; i < 2; i++)
            step(&p, u, CT_OPT_ADAMW, false, false, 400, guards);
        same(&p, u, 1);
        twin_same(&p, &stat, 0, "guarded"), twin_same(&p, &backup, 0, "backup");
        twin_free(&p, &stat), twin_free(&p, &backup);
        drop(&p, u);
    }
    pair_close(&p);
}

/* Captured once, launched three times: the step sees what is in device memory then. */
Test(cuda_optim, captured)
{
    pair p;
    ct_graph *g;
    pair_open(&p);
    params *u = make(&p, SIZES, sizes, true, 0);
    ct_opt_scalars sc = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .max_norm = 1};
    set(&p, u, sc);
    pair_ok(&p, cti_cuda_mem.capture_begin(p.cuda));
    pair_ok(&p, cti_cuda_optim_norm(p.cuda, CT_F32, u->n, u->cuda, NULL, NULL, u->device,
                                    u->workspace));
    pair_ok(&p,
            cti_cuda_optim_step(p.cuda, CT_OPT_ADAM, CT_F32, u->n, u->cuda, 0, NULL, u->device));
    pair_ok(&p, cti_cuda_mem.capture_end(p.cuda, &g));
    for (int i = 0; i < 3; i++) {
        u->sc.lr *= 0.5;
        ct_opt_scalars now = u->sc;
        set(&p, u, now);
        pair_ok(&p, cti_cuda_mem.graph_launch(p.cuda, g));
        pair_ok(&p, p.be->optim->norm(p.cpu, CT_F32, u->n, u->cpu, NULL, NULL, &u->sc,
                                      u->cpu_workspace));
        pair_ok(&p, p.be->optim->step(p.cpu, CT_OPT_ADAM, CT_F32, u->n, u->cpu, 0, NULL, &u->sc));
        same(&p, u, 1);
    }
    cti_cuda_mem.graph_free(p.cuda, g);
    drop(&p, u);
    pair_close(&p);
}

Test(cuda_optim, refused)
{
    pair p;
    pair_open(&p);
    pair_refuses(&p, cti_cuda_optim_norm(p.cuda, CT_F64, 0, NULL, NULL, NULL, NULL, NULL));
    pair_refuses(&p, cti_cuda_optim_step(p.cuda, CT_OPT_SGD, CT_BF16, 0, NULL, 0, NULL, NULL));
    pair_close(&p);
}
