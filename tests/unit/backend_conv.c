/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's convolution, all passes, f32 and f64, against double loops written here. */
#include "backend_fixture.h"
#include <stdio.h>

typedef struct shape {
    int64_t n, c, h, w, k, r, s, groups;
    int64_t stride[2], dilation[2], pad_begin[2], pad_end[2];
} shape;

typedef struct problem {
    ct_conv_args args;
    ct_view bias;
} problem;

static const ct_conv_pass passes[] = {CT_CONV_FORWARD, CT_CONV_BACKWARD_DATA,
                                      CT_CONV_BACKWARD_WEIGHT};
static const char *const pass_names[] = {"forward", "backward data", "backward weight"};

static int64_t output(const shape *g, int axis)
{
    int64_t in = axis ? g->w : g->h, taps = axis ? g->s : g->r;
    int64_t room = in + g->pad_begin[axis] + g->pad_end[axis] - g->dilation[axis] * (taps - 1) - 1;
    return room < 0 ? 0 : room / g->stride[axis] + 1;
}

static ct_view channels_last(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (ct_view){.ndim = 4, .shape = {n, c, h, w}, .stride = {h * w * c, 1, w * c, c}};
}

static ct_view row_major(int64_t k, int64_t c, int64_t r, int64_t s)
{
    return (ct_view){.ndim = 4, .shape = {k, c, r, s}, .stride = {c * r * s, r * s, s, 1}};
}

static void make(fixture *f, problem *p, const shape *g, ct_dtype dtype, bool bias, uint64_t seed)
{
    ct_conv_args *a = &p->args;
    memset(p, 0, sizeof *p);
    a->x = channels_last(g->n, g->c, g->h, g->w);
    a->y = channels_last(g->n, g->k, output(g, 0), output(g, 1));
    a->w = row_major(g->k, g->c / g->groups, g->r, g->s);
    a->groups = g->groups;
    memcpy(a->stride, g->stride, sizeof a->stride);
    memcpy(a->dilation, g->dilation, sizeof a->dilation);
    memcpy(a->pad_begin, g->pad_begin, sizeof a->pad_begin);
    memcpy(a->pad_end, g->pad_end, sizeof a->pad_end);
    p->bias = (ct_view){.ndim = 1, .shape = {g->k}, .stride = {1}};
    back(f, &a->x, dtype);
    back(f, &a->y, dtype);
    back(f, &a->w, dtype);
    const bool half = dtype == CT_BF16 || dtype == CT_F16;
    back(f, &p->bias, half && (seed & 2) ? CT_F32 : dtype);
    fill(&a->x, seed + 1);
    fill(&a->y, seed + 2);
    fill(&a->w, seed + 3);
    fill(&p->bias, seed + 4);
    a->bias = bias ? &p->bias : NULL;
}

static void drop(fixture *f, problem *p)
{
    void *data[4] = {p->args.x.data, p->args.y.data, p->args.w.data, p->bias.data};
    for (int i = 0; i < 4; i++)
        f->be->mem->free(f->s, data[i]);
}

static const ct_view *result(const ct_conv_args *a, ct_conv_pass pass)
{
    return pass == CT_CONV_FORWARD ? &a->y : pass == CT_CONV_BACKWARD_DATA ? &a->x : &a->w;
}

/* The definition: one product per (image, output pixel, tap, channel pair), added where it belongs.
 * The result has the layout of the pass's output memory. */
static double *expected(const ct_conv_args *a, ct_conv_pass pass)
{
    const ct_view *x = &a->x, *w = &a->w, *y = &a->y, *out = result(a, pass);
    const int64_t n = ct_view_numel(out), cg = w->shape[1], kg = w->shape[0] / a->groups;
    double *want = calloc((size_t)(n ? n : 1), sizeof *want);
    const int64_t pixels = ct_view_numel(y), taps = w->shape[2] * w->shape[3];
    for (int64_t i = 0; i < pixels; i++) {
        int64_t q = i % y->shape[3], p = i / y->shape[3] % y->shape[2];
        int64_t k = i / y->shape[3] / y->shape[2] % y->shape[1];
        int64_t image = i / y->shape[3] / y->shape[2] / y->shape[1], yi = place(y, i);
        if (pass == CT_CONV_FORWARD && a->bias)
            want[yi] += load(a->bias, k);
        for (int64_t j = 0; j < taps * cg; j++) {
            int64_t c = j / taps, r = j % taps / w->shape[3], s = j % w->shape[3];
            int64_t h = p * a->stride[0] - a->pad_begin[0] + r * a->dilation[0];
            int64_t v = q * a->stride[1] - a->pad_begin[1] + s * a->dilation[1];
            if (h < 0 || h >= x->shape[2] || v < 0 || v >= x->shape[3])
                continue;
            int64_t xi =
                image * x->stride[0] + (k / kg * cg + c) + h * x->stride[2] + v * x->stride[3];
            int64_t wi = k * w->stride[0] + j;
            if (pass == CT_CONV_FORWARD)
                want[yi] += load(x, xi) * load(w, wi);
            else if (pass == CT_CONV_BACKWARD_DATA)
                want[xi] += load(y, yi) * load(w, wi);
            else
                want[wi] += load(y, yi) * load(x, xi);
        }
    }
    return want;
}

static int run(fixture *f, ct_conv_pass pass, ct_conv_args *a)
{
    size_t bytes = 1;
    int rc = f->be->conv->workspace(f->s, pass, a, &bytes);
    if (rc)
        return rc;
    a->workspace = f->be->mem->alloc(f->s, bytes + GUARD);
    cr_assert_not_null(a->workspace);
    for (int i = 0; i < 2 && !rc; i++) { /* nothing is kept in the workspace between calls */
        memset(a->workspace, 0xff, bytes + GUARD);
        rc = f->be->conv->run(f->s, pass, a);
    }
    cr_assert(untouched(a->workspace, bytes));
    f->be->mem->free(f->s, a->workspace);
    a->workspace = NULL;
    return rc;
}

static void check(fixture *f, const shape *g, ct_dtype dtype, bool bias, uint64_t seed)
{
    problem p;
    make(f, &p, g, dtype, bias, seed);
    for (int i = 0; i < 3; i++) {
        const ct_view *out = result(&p.args, passes[i]);
        if (passes[i] == CT_CONV_BACKWARD_WEIGHT && (dtype == CT_BF16 || dtype == CT_F16) &&
            (seed & 1)) {
            f->be->mem->free(f->s, p.args.w.data);
            back(f, &p.args.w, CT_F32);
        }
        double *want = expected(&p.args, passes[i]);
        int64_t n = ct_view_numel(out);
        int rc = run(f, passes[i], &p.args);
        cr_assert_eq(rc, CT_OK, "%s: %d %s", pass_names[i], rc, f->err.text);
        const double terms =
            passes[i] == CT_CONV_FORWARD       ? (double)(g->c / g->groups * g->r * g->s) :
            passes[i] == CT_CONV_BACKWARD_DATA ? (double)(g->k / g->groups * g->r * g->s) :
                                                 (double)(g->n * g->h * g->w);
        for (int64_t j = 0; j < n; j++)
            cr_assert(fabs(load(out, j) - want[j]) <= tolerance(out->dtype, want[j], terms + 2),
                      "%s %s, seed %llu, [%lld,%lld,%lld,%lld] k %lld %lldx%lld groups %lld, place "
                      "%lld: got %.9g, want %.9g",
                      ct_dtype_name(dtype), pass_names[i], (unsigned long long)seed,
                      (long long)g->n, (long long)g->c, (long long)g->h, (long long)g->w,
                      (long long)g->k, (long long)g->r, (long long)g->s, (long long)g->groups,
                      (long long)j, load(out, j), want[j]);
        free(want);
        fill(&p.args.x, seed + 1); /* what a pass wrote, as it was */
        fill(&p.args.y, seed + 2);
        fill(&p.args.w, seed + 3);
    }
    drop(f, &p);
}

static shape simple(int64_t n, int64_t c, int64_t hw, int64_t k, int64_t r, int64_t pad)
{
    return (shape){n, c, hw, hw, k, r, r, 1, {1, 1}, {1, 1}, {pad, pad}, {pad, pad}};
}

Test(backend_conv, chosen_problems)
{
    static const shape g[] = {
        {2, 3, 9, 9, 8, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
        {3, 1, 12, 12, 6, 5, 5, 1, {1, 1}, {1, 1}, {2, 2}, {2, 2}},  /* LeNet's first */
        {2, 6, 14, 14, 16, 5, 5, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}}, /* and second */
        {2, 16, 8, 8, 32, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},  /* 1x1 */
        {2, 17, 8, 8, 5, 1, 1, 1, {2, 2}, {1, 1}, {0, 0}, {0, 0}},   /* rows cut off */
        {2, 16, 9, 7, 16, 3, 3, 16, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, /* depthwise */
        {2, 5, 9, 7, 10, 3, 3, 5, {2, 1}, {1, 1}, {1, 1}, {1, 1}},   /* and a multiplier */
        {2, 12, 8, 8, 8, 3, 3, 4, {1, 1}, {1, 1}, {1, 1}, {1, 1}},   /* groups */
        {1, 32, 8, 8, 32, 3, 3, 2, {1, 1}, {2, 2}, {2, 2}, {2, 2}},  /* dilation */
        {2, 7, 11, 10, 9, 2, 4, 1, {3, 2}, {2, 1}, {0, 3}, {1, 0}},  /* asymmetric */
        {2, 3, 4, 4, 4, 3, 3, 1, {1, 1}, {1, 1}, {5, 5}, {4, 6}},    /* padding over the kernel */
        {1, 4, 1, 1, 4, 1, 1, 1, {1, 1}, {1, 1}, {2, 0}, {0, 2}},    /* padding on 1x1 */
        {2, 4, 6, 1, 3, 3, 1, 1, {1, 1}, {1, 1}, {1, 0}, {1, 0}},    /* a conv1d */
        {1, 4, 5, 5, 3, 5, 5, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},    /* one output pixel */
        {2, 64, 8, 8, 48, 3, 3, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
        {1, 2, 7, 7, 2, 2, 2, 1, {4, 4}, {1, 1}, {0, 0}, {0, 0}}, /* stride over the kernel */
    };
    for (int threads = 1; threads <= 2; threads++) {
        fixture f;
        fixture_open(&f, threads);
        for (size_t i = 0; i < sizeof g / sizeof *g; i++) {
            check(&f, &g[i], CT_F64, i % 2, i * 10);
            check(&f, &g[i], CT_F32, true, i * 10);
            check(&f, &g[i], CT_F32, false, i * 10);
            check(&f, &g[i], CT_BF16, i % 2, i * 10);
            check(&f, &g[i], CT_F16, true, i * 11);
        }
        fixture_close(&f);
    }
}

Test(backend_conv, random_problems)
{
    fixture f;
    fixture_open(&f, 2);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t s = seed;
        shape g = {.n = pick(&s, 1, 3), .groups = next(&s) % 3 ? 1 : pick(&s, 2, 4)};
        g.c = g.groups * pick(&s, 1, 19);
        g.k = g.groups * pick(&s, 1, 19);
        g.h = pick(&s, 1, 12);
        g.w = pick(&s, 1, 12);
        g.r = pick(&s, 1, 4);
        g.s = pick(&s, 1, 4);
        for (int i = 0; i < 2; i++) {
            g.stride[i] = pick(&s, 1, 3);
            g.dilation[i] = pick(&s, 1, 2);
            g.pad_begin[i] = pick(&s, 0, 3);
            g.pad_end[i] = pick(&s, 0, 3);
        }
        if (!output(&g, 0) || !output(&g, 1))
            continue;
        check(&f, &g, CT_F64, next(&s) & 1, seed);
        check(&f, &g, CT_F32, next(&s) & 1, seed);
        check(&f, &g, CT_BF16, next(&s) & 1, seed);
    }
    fixture_close(&f);
}

Test(backend_conv, f64_is_the_same_for_any_team)
{
    problem p[2];
    fixture f[2];
    const shape g = simple(3, 11, 13, 19, 3, 1);
    for (int t = 0; t < 2; t++)
        fixture_open(&f[t], t + 1);
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < 2; t++) {
            make(&f[t], &p[t], &g, CT_F64, true, 7);
            cr_assert_eq(run(&f[t], passes[i], &p[t].args), CT_OK);
        }
        const ct_view *a = result(&p[0].args, passes[i]), *b = result(&p[1].args, passes[i]);
        cr_assert_eq(memcmp(a->data, b->data, (size_t)ct_view_numel(a) * sizeof(double)), 0, "%s",
                     pass_names[i]);
        for (int t = 0; t < 2; t++)
            drop(&f[t], &p[t]);
    }
    for (int t = 0; t < 2; t++)
        fixture_close(&f[t]);
}

Test(backend_conv, empty)
{
    fixture f;
    fixture_open(&f, 2);
    shape no_images = simple(0, 3, 8, 4, 3, 1), no_input = simple(2, 3, 0, 4, 1, 1);
    shape no_outputs = simple(2, 3, 8, 0, 3, 1), no_channels = simple(2, 0, 8, 4, 3, 1);
    for (int d = 0; d < 2; d++) {
        const ct_dtype dtype = d ? CT_F64 : CT_F32;
        check(&f, &no_images, dtype, true, 1);
        check(&f, &no_input, dtype, true, 2);
        check(&f, &no_outputs, dtype, false, 3);
        check(&f, &no_channels, dtype, true, 4);
    }
    fixture_close(&f);
}

Test(backend_conv, other_dtypes_are_refused)
{
    fixture f;
    problem p;
    size_t bytes;
    fixture_open(&f, 1);
    const shape g = simple(1, 2, 4, 2, 3, 1);
    make(&f, &p, &g, CT_F32, true, 1);
    p.args.w.dtype = CT_F64;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(f.be->conv->workspace(f.s, passes[i], &p.args, &bytes), CT_EDTYPE);
        cr_assert_eq(f.be->conv->run(f.s, passes[i], &p.args), CT_EDTYPE);
    }
    drop(&f, &p);
    fixture_close(&f);
}

Test(backend_conv, steady_calls_make_nothing)
{
    fixture f;
    fixture_open(&f, 2);
    const shape g = simple(4, 16, 8, 32, 3, 1);
    uint64_t made = 0;
    for (int round = 0; round < 4; round++) {
        check(&f, &g, CT_F32, true, (uint64_t)round);
        cr_assert(round == 0 || primitives(&f) == made);
        made = primitives(&f);
    }
    cr_assert(made >= 3 && made <= 6); /* a pass and its weight reorder each */
    fixture_close(&f);
}

Test(backend_conv, a_failure_of_the_library_is_told)
{
    fixture f;
    problem p;
    size_t bytes;
    fixture_open(&f, 1);
    shape g = simple(1, 2, 4, 2, 3, 1);
    make(&f, &p, &g, CT_F32, false, 1);
    p.args.stride[0] = -1; /* no caller does this: the only way to make it fail */
    cr_assert_eq(f.be->conv->workspace(f.s, CT_CONV_FORWARD, &p.args, &bytes), CT_EDEVICE);
    cr_assert_eq(f.err.code, CT_EDEVICE);
    cr_assert_not_null(strstr(f.err.text, "oneDNN"));
    cr_assert_not_null(strstr(f.err.text, "[1,2,4,4]"));
    drop(&f, &p);
    fixture_close(&f);
}

Test(backend_cpu, info_and_errors_of_opening)
{
    fixture f;
    ct_device_info info;
    fixture_open(&f, 2);
    f.be->mem->info(f.s, &info);
    cr_assert_str_eq(info.name, "cpu");
    cr_assert_not_null(strstr(info.libraries, "oneDNN "));
    cr_assert(strlen(info.isa) > 5);
    cr_assert(info.threads >= 1 && info.threads <= 2);
    double a[3] = {1, 2, 3}, b[3] = {0}, *d = f.be->mem->alloc(f.s, sizeof a);
    cr_assert_eq((uintptr_t)d % 64, 0);
    cr_assert_eq(f.be->mem->upload(f.s, d, a, sizeof a), CT_OK);
    cr_assert_eq(f.be->mem->download(f.s, b, d, sizeof a), CT_OK);
    cr_assert_eq(f.be->mem->sync(f.s), CT_OK);
    cr_assert_eq(memcmp(a, b, sizeof a), 0);
    f.be->mem->free(f.s, d);
    ct_stream *none;
    ct_stream_opts opts = {.index = 1, .mem = f.mem, .err = &f.err};
    cr_assert_eq(f.be->mem->open(&opts, &none), CT_EDEVICE);
    cr_assert_null(none);
    fixture_close(&f);
}
