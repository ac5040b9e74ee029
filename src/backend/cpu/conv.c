/* SPDX-License-Identifier: Apache-2.0 */
/* f32 and bf16 by oneDNN's direct convolution on channels-last memory, f64 by our own tiles; f16, and bf16 where
 * oneDNN has none, in f32. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/dnnl.h"
#include "backend/cpu/half.h"
#include "backend/cpu/tile.h"

#include <string.h>

enum { ROWS = CTI_TILE_ROWS, COLS = CTI_TILE_COLS };

/* ---- f32, bf16 ---- */
static int get_op(ct_stream *s, ct_conv_pass pass, const ct_conv_args *a, cti_dnnl_op **op)
{
    cti_dnnl_key key;
    cti_dnnl_key_init(&key, CTI_DNNL_CONV);
    cti_dnnl_conv *k = &key.u.conv;
    k->pass = (int32_t)pass;
    k->bias = pass == CT_CONV_FORWARD && a->bias != NULL;
    k->bf16 = (a->x.dtype == CT_BF16 ? CTI_BF16_IN : 0) |
              (a->w.dtype == CT_BF16 ? CTI_BF16_WEIGHT : 0) |
              (k->bias && a->bias->dtype == CT_BF16 ? CTI_BF16_BIAS : 0);
    k->n = a->x.shape[0];
    k->c = a->x.shape[1];
    k->h = a->x.shape[2];
    k->w = a->x.shape[3];
    k->k = a->w.shape[0];
    k->r = a->w.shape[2];
    k->s = a->w.shape[3];
    k->p = a->y.shape[2];
    k->q = a->y.shape[3];
    k->groups = a->groups;
    for (int i = 0; i < 2; i++) {
        int64_t extent = (a->w.shape[2 + i] - 1) * a->dilation[i] + 1;
        k->stride[i] = a->stride[i];
        k->dilation[i] = a->dilation[i];
        k->pad_begin[i] = a->pad_begin[i];
        /* What the last window really covers: rows cut off by the stride are no padding. */
        k->pad_end[i] =
            (a->y.shape[2 + i] - 1) * a->stride[i] + extent - a->x.shape[2 + i] - a->pad_begin[i];
    }
    return cti_dnnl_get(s, &key, op);
}

static int run_dnnl(ct_stream *s, ct_conv_pass pass, const ct_conv_args *a)
{
    cti_dnnl_op *op;
    int rc = get_op(s, pass, a, &op);
    if (rc)
        return rc;
    const bool bias = pass == CT_CONV_FORWARD && a->bias;
    cti_dnnl_data data = {
        .in = a->x.data, .w = a->w.data, .bias = bias ? a->bias->data : NULL, .out = a->y.data};
    return cti_dnnl_run(s, op, &data, a->workspace);
}

/* ---- f64: forward and backward data ----
 * Both are sums over taps of (pixels x channels) by (channels x channels), out of the `source`
 * image into the `target` image; they differ in the pixel a tap reads and in the packing. */
typedef struct sum_over_taps {
    const double *source;
    double *target;
    const double *bias;
    const double *packed; /* [group][block of COLS target channels][r][s][source channel][COLS] */
    const double *zeros;  /* what a tap outside the image reads: one row of channels */
    int64_t n, sc, sh, sw, tc, th, tw; /* channels per image pixel, all groups */
    int64_t groups, sg, tg, r, s;      /* channels per group; taps */
    const ct_conv_args *args;
    bool transposed; /* backward data */
} sum_over_taps;

/* The source coordinate that a tap of target coordinate `t` reads, or -1. */
static int64_t source_at(const sum_over_taps *c, int axis, int64_t t, int64_t tap)
{
    const ct_conv_args *a = c->args;
    const int64_t limit = axis ? c->sw : c->sh;
    int64_t at;
    if (c->transposed) {
        at = t + a->pad_begin[axis] - tap * a->dilation[axis];
        if (at < 0 || at % a->stride[axis])
            return -1;
        at /= a->stride[axis];
    } else {
        at = t * a->stride[axis] - a->pad_begin[axis] + tap * a->dilation[axis];
    }
    return at >= 0 && at < limit ? at : -1;
}

/* Points the rows of a tile at what the tap reads; false when all of it is outside. */
static bool tap_rows(const sum_over_taps *c, const double *line, int64_t t0, int64_t tap,
                     const double *row[ROWS])
{
    bool any = false;
    for (int i = 0; i < ROWS; i++) {
        int64_t at = t0 + i < c->tw ? source_at(c, 1, t0 + i, tap) : -1;
        row[i] = at < 0 ? c->zeros : line + at * c->sc;
        any = any || at >= 0;
    }
    return any;
}

/* ROWS pixels of a line by COLS channels. */
static void target_tile(const sum_over_taps *c, int64_t image, int64_t line, int64_t t0,
                        int64_t group, int64_t block)
{
    double acc[ROWS][COLS] = {{0}};
    const double *row[ROWS];
    const int64_t blocks = cti_ceil_div(c->tg, COLS);
    const double *panel = c->packed + (group * blocks + block) * c->r * c->s * c->sg * COLS;
    for (int64_t r = 0; r < c->r; r++) {
        int64_t at = source_at(c, 0, line, r);
        if (at < 0)
            continue;
        const double *source = c->source + (image * c->sh + at) * c->sw * c->sc + group * c->sg;
        for (int64_t s = 0; s < c->s; s++)
            if (tap_rows(c, source, t0, s, row))
                cti_cpu_tile(c->sg, row, 1, panel + (r * c->s + s) * c->sg * COLS, COLS, acc);
    }
    const int64_t first = group * c->tg + block * COLS;
    const int64_t cols = c->tg - block * COLS < COLS ? c->tg - block * COLS : COLS;
    const int64_t rows = c->tw - t0 < ROWS ? c->tw - t0 : ROWS;
    for (int64_t i = 0; i < rows; i++) {
        double *to = c->target + ((image * c->th + line) * c->tw + t0 + i) * c->tc + first;
        for (int64_t j = 0; j < cols; j++)
            to[j] = c->bias ? acc[i][j] + c->bias[first + j] : acc[i][j];
    }
}

static size_t packed_doubles(ct_conv_pass pass, const ct_conv_args *a)
{
    const int64_t cg = a->w.shape[1], kg = a->w.shape[0] / a->groups;
    const int64_t sg = pass == CT_CONV_FORWARD ? cg : kg, tg = pass == CT_CONV_FORWARD ? kg : cg;
    return (size_t)(a->groups * cti_ceil_div(tg, COLS) * COLS * a->w.shape[2] * a->w.shape[3] * sg);
}

static void pack_weights(const sum_over_taps *c, const double *w, double *to)
{
    const int64_t blocks = cti_ceil_div(c->tg, COLS), taps = c->r * c->s;
    const int64_t by_source = c->transposed ? c->tg * taps : taps;
    const int64_t by_target = c->transposed ? taps : c->sg * taps;
    for (int64_t g = 0; g < c->groups; g++) {
        const double *from = w + g * c->tg * c->sg * taps;
        for (int64_t b = 0; b < blocks; b++)
            for (int64_t tap = 0; tap < taps; tap++)
                for (int64_t i = 0; i < c->sg; i++)
                    for (int64_t j = b * COLS; j < (b + 1) * COLS; j++)
                        *to++ = j < c->tg ? from[i * by_source + j * by_target + tap] : 0;
    }
}

static void run_sum_f64(ct_stream *s, ct_conv_pass pass, const ct_conv_args *a)
{
    const bool transposed = pass == CT_CONV_BACKWARD_DATA;
    const ct_view *src = transposed ? &a->y : &a->x, *dst = transposed ? &a->x : &a->y;
    double *packed = a->workspace, *zeros = packed + packed_doubles(pass, a);
    const sum_over_taps c = {.source = src->data,
                             .target = dst->data,
                             .bias = a->bias && !transposed ? a->bias->data : NULL,
                             .packed = packed,
                             .zeros = zeros,
                             .n = dst->shape[0],
                             .sc = src->shape[1],
                             .sh = src->shape[2],
                             .sw = src->shape[3],
                             .tc = dst->shape[1],
                             .th = dst->shape[2],
                             .tw = dst->shape[3],
                             .groups = a->groups,
                             .sg = src->shape[1] / a->groups,
                             .tg = dst->shape[1] / a->groups,
                             .r = a->w.shape[2],
                             .s = a->w.shape[3],
                             .args = a,
                             .transposed = transposed};
    pack_weights(&c, a->w.data, packed);
    memset(zeros, 0, (size_t)c.sg * sizeof *zeros);
    const int64_t blocks = cti_ceil_div(c.tg, COLS), lines = c.n * c.th;
    const int64_t work = ct_view_numel(dst) * c.sg * c.r * c.s / 4;
#pragma omp parallel for num_threads(cti_cpu_team(s, work)) schedule(static)
    for (int64_t l = 0; l < lines; l++)
        for (int64_t g = 0; g < c.groups; g++)
            for (int64_t b = 0; b < blocks; b++)
                for (int64_t t = 0; t < c.tw; t += ROWS)
                    target_tile(&c, l / c.th, l % c.th, t, g, b);
}

/* ---- f64: backward weight ----
 * One task owns the weights of COLS output channels and one tap, so that no sum is split. Output
 * channels are the tile's columns: they are often a multiple of COLS, input channels aren't. */
typedef struct weight_task {
    const ct_conv_args *a;
    int64_t group, k0, r, s; /* k0: in the group */
    int64_t q0, q1;          /* outputs of a line whose tap is inside x */
    int64_t cols;
} weight_task;

/* Outputs whose tap is inside the image along an axis. */
static void inside(const ct_conv_args *a, int axis, int64_t tap, int64_t *begin, int64_t *end)
{
    const int64_t shift = tap * a->dilation[axis] - a->pad_begin[axis], stride = a->stride[axis];
    const int64_t room = a->x.shape[2 + axis] - shift, outputs = a->y.shape[2 + axis];
    *begin = shift < 0 ? cti_ceil_div(-shift, stride) : 0;
    *end = room <= 0 ? 0 : cti_ceil_div(room, stride);
    if (*end > outputs)
        *end = outputs;
}

/* acc[c][k] += a line of x times a line of dy, for `rows` input channels. */
static void weight_line(const weight_task *t, const double *x, const double *dy, int64_t rows,
                        double acc[ROWS][COLS])
{
    const ct_conv_args *a = t->a;
    const int64_t count = t->q1 - t->q0, k = a->y.shape[1], step = a->x.shape[1] * a->stride[1];
    const double *row[ROWS];
    for (int i = 0; i < ROWS; i++)
        row[i] = x + (i < rows ? i : 0);
    if (t->cols == COLS) {
        cti_cpu_tile(count, row, step, dy, k, acc);
        return;
    }
    for (int64_t p = 0; p < count; p++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < t->cols; j++)
                acc[i][j] += row[i][p * step] * dy[p * k + j];
}

/* The weights from ROWS input channels. */
static void weight_block(const weight_task *t, int64_t c0)
{
    const ct_conv_args *a = t->a;
    const int64_t *xs = a->x.shape, *ys = a->y.shape, *ws = a->w.shape;
    const int64_t kg = ws[0] / a->groups, cg = ws[1], rows = CTI_MIN(cg - c0, ROWS);
    const int64_t shift_h = t->r * a->dilation[0] - a->pad_begin[0];
    const int64_t w = t->q0 * a->stride[1] + t->s * a->dilation[1] - a->pad_begin[1];
    double acc[ROWS][COLS] = {{0}};
    int64_t p0, p1;
    inside(a, 0, t->r, &p0, &p1);
    for (int64_t n = 0; n < xs[0] && t->q0 < t->q1; n++)
        for (int64_t p = p0; p < p1; p++) {
            const int64_t h = p * a->stride[0] + shift_h;
            const double *x = (const double *)a->x.data + ((n * xs[2] + h) * xs[3] + w) * xs[1] +
                              t->group * cg + c0;
            const double *dy = (const double *)a->y.data +
                               ((n * ys[2] + p) * ys[3] + t->q0) * ys[1] + t->group * kg + t->k0;
            weight_line(t, x, dy, rows, acc);
        }
    for (int64_t j = 0; j < t->cols; j++) {
        double *dw = (double *)a->w.data + (t->group * kg + t->k0 + j) * cg * ws[2] * ws[3];
        for (int64_t i = 0; i < rows; i++)
            dw[((c0 + i) * ws[2] + t->r) * ws[3] + t->s] = acc[i][j];
    }
}

static void run_weight_f64(ct_stream *s, const ct_conv_args *a)
{
    const int64_t kg = a->w.shape[0] / a->groups, cg = a->w.shape[1];
    const int64_t rr = a->w.shape[2], ss = a->w.shape[3], kb = cti_ceil_div(kg, COLS);
    const int64_t tasks = a->groups * kb * rr * ss;
    const int64_t work = ct_view_numel(&a->y) * cg * rr * ss / 4;
#pragma omp parallel for num_threads(cti_cpu_team(s, work)) schedule(static)
    for (int64_t i = 0; i < tasks; i++) {
        weight_task t = {.a = a,
                         .s = i % ss,
                         .r = i / ss % rr,
                         .k0 = i / ss / rr % kb * COLS,
                         .group = i / ss / rr / kb};
        t.cols = CTI_MIN(kg - t.k0, COLS);
        inside(a, 1, t.s, &t.q0, &t.q1);
        for (int64_t c = 0; c < cg; c += ROWS)
            weight_block(&t, c);
    }
}

/* ---- the family ---- */
static int check_dtype(ct_conv_pass pass, const ct_conv_args *a)
{
    const ct_dtype d = a->x.dtype, wide = cti_wide_dtype(d);
    bool fit = a->y.dtype == d && (wide == CT_F32 || wide == CT_F64);
    fit = fit && (a->w.dtype == d || (pass == CT_CONV_BACKWARD_WEIGHT && a->w.dtype == wide));
    if (pass == CT_CONV_FORWARD && a->bias)
        fit = fit && (a->bias->dtype == d || a->bias->dtype == wide);
    return fit ? CT_OK : CT_EDTYPE;
}

static bool is_empty(const ct_conv_args *a)
{
    return !ct_view_numel(&a->x) || !ct_view_numel(&a->w) || !ct_view_numel(&a->y);
}

/* The sums over nothing. */
static void run_empty(ct_conv_pass pass, const ct_conv_args *a)
{
    const ct_view *to = pass == CT_CONV_FORWARD       ? &a->y :
                        pass == CT_CONV_BACKWARD_DATA ? &a->x :
                                                        &a->w;
    const size_t elem = ct_dtype_bytes(to->dtype), n = (size_t)ct_view_numel(to);
    if (!n)
        return;
    if (pass == CT_CONV_FORWARD && a->bias) {
        const size_t row = (size_t)to->shape[1] * elem;
        for (size_t at = 0; at < n * elem; at += row)
            memcpy((char *)to->data + at, a->bias->data, row);
    } else {
        memset(to->data, 0, n * elem);
    }
}

static ct_conv_args wide_args(const ct_conv_args *args, ct_view *bias)
{
    ct_conv_args w = *args;
    w.x = cti_wide_meta(&args->x);
    w.w = cti_wide_meta(&args->w);
    w.y = cti_wide_meta(&args->y);
    if (args->bias) {
        *bias = cti_wide_meta(args->bias);
        w.bias = bias;
    }
    return w;
}

static int workspace(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args, size_t *bytes)
{
    *bytes = 0;
    int rc = check_dtype(pass, args);
    if (rc || is_empty(args))
        return rc;
    ct_view bias;
    const ct_conv_args wide = wide_args(args, &bias);
    if (args->x.dtype == CT_F16)
        return workspace(s, pass, &wide, bytes);
    if (args->x.dtype == CT_F64) {
        const int64_t sg =
            pass == CT_CONV_FORWARD ? args->w.shape[1] : args->w.shape[0] / args->groups;
        if (pass != CT_CONV_BACKWARD_WEIGHT)
            *bytes = (packed_doubles(pass, args) + (size_t)sg) * sizeof(double);
        return CT_OK;
    }
    cti_dnnl_op *op;
    rc = get_op(s, pass, args, &op);
    if (rc == CT_EDTYPE)
        return workspace(s, pass, &wide, bytes);
    if (!rc)
        *bytes = cti_dnnl_workspace(op);
    return rc;
}

static int run(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args);

/* In f32. */
static int wide_run(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args)
{
    cti_half h = {.s = s};
    const bool dx = pass == CT_CONV_BACKWARD_DATA, dw = pass == CT_CONV_BACKWARD_WEIGHT;
    ct_conv_args w = *args;
    w.x = *(dx ? cti_half_out(&h, &args->x, false) : cti_half_in(&h, &args->x));
    w.w = *(dw ? cti_half_out(&h, &args->w, false) : cti_half_in(&h, &args->w));
    w.y = *(dx || dw ? cti_half_in(&h, &args->y) : cti_half_out(&h, &args->y, false));
    w.bias = cti_half_in(&h, args->bias);
    return cti_half_done(&h, h.rc ? h.rc : run(s, pass, &w));
}

static int run(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args)
{
    int rc = check_dtype(pass, args);
    if (rc)
        return rc;
    const ct_dtype d = args->x.dtype;
    if (!is_empty(args) && (d == CT_F32 || d == CT_BF16)) {
        rc = run_dnnl(s, pass, args);
        return rc == CT_EDTYPE ? wide_run(s, pass, args) : rc;
    }
    if (cti_is_half(d))
        return wide_run(s, pass, args);
    if (is_empty(args))
        run_empty(pass, args);
    else if (pass == CT_CONV_BACKWARD_WEIGHT)
        run_weight_f64(s, args);
    else
        run_sum_f64(s, pass, args);
    return CT_OK;
}

const ct_k_conv cti_cpu_conv = {
    .workspace = workspace,
    .run = run,
};
