/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/half.h"

#include "backend/cpu/copy.h"

#include <string.h>

/* ---- elementwise loops ---- */
enum { PIECE = 512 };

typedef struct wide_arg {
    cti_span_fn fn;
    const void *arg;
    const cti_loop *l;
    ct_dtype dtype[CTI_LOOP_OPS];
    bool reads_out;
} wide_arg;

static void convert(ct_dtype to, ct_dtype from, char *dst, int64_t dst_stride, char *src,
                    int64_t src_stride, int64_t n)
{
    const cti_span sp = {.rows = 1, .n = n, .p = {dst, src}, .s = {dst_stride, src_stride}};
    cti_cpu_convert(to, from)(&sp, NULL);
}

static void wide_piece(const cti_span *sp, const wide_arg *w, char *const *p, int64_t n)
{
    float buf[CTI_LOOP_OPS][PIECE];
    cti_span q = {.rows = 1, .n = n};
    for (int o = 0; o < w->l->nop; o++) {
        q.p[o] = p[o];
        q.s[o] = sp->s[o];
        if (!cti_is_half(w->dtype[o]))
            continue;
        q.p[o] = (char *)buf[o];
        q.s[o] = sizeof(float);
        if (o > 0 || w->reads_out)
            convert(CT_F32, w->dtype[o], q.p[o], q.s[o], p[o], sp->s[o], n);
    }
    w->fn(&q, w->arg);
    if (cti_is_half(w->dtype[0]))
        convert(w->dtype[0], CT_F32, p[0], sp->s[0], q.p[0], q.s[0], n);
}

static void wide_span(const cti_span *sp, const void *arg)
{
    const wide_arg *w = arg;
    for (int64_t r = 0; r < sp->rows; r++)
        for (int64_t i = 0; i < sp->n; i += PIECE) {
            char *p[CTI_LOOP_OPS] = {0};
            for (int o = 0; o < w->l->nop; o++)
                p[o] = sp->p[o] + r * sp->rs[o] + i * sp->s[o];
            wide_piece(sp, w, p, CTI_MIN(PIECE, sp->n - i));
        }
}

void cti_loop_run_wide(const ct_stream *s, const cti_loop *l, const ct_view *const *v,
                       bool reads_out, cti_span_fn fn, const void *arg)
{
    wide_arg w = {.fn = fn, .arg = arg, .l = l, .reads_out = reads_out};
    bool any = false;
    for (int o = 0; o < l->nop; o++) {
        w.dtype[o] = v[o]->dtype;
        any = any || cti_is_half(v[o]->dtype);
    }
    if (any)
        cti_loop_run(s, l, wide_span, &w);
    else
        cti_loop_run(s, l, fn, arg);
}

/* ---- buffers ---- */
ct_view cti_wide_meta(const ct_view *v)
{
    ct_view w = *v;
    bool done[CT_MAX_DIMS] = {false};
    int64_t n = 1;
    w.data = NULL;
    if (!cti_is_half(v->dtype))
        return w;
    w.dtype = CT_F32;
    for (int k = 0; k < v->ndim; k++) {
        int next = -1;
        for (int d = v->ndim - 1; d >= 0; d--)
            if (!done[d] && (next < 0 || v->stride[d] < v->stride[next]))
                next = d;
        done[next] = true;
        if (v->stride[next] == 0)
            continue;
        w.stride[next] = n;
        n *= v->shape[next];
    }
    return w;
}

static void *buffer(ct_stream *s, int i, size_t bytes)
{
    if (s->half[i].bytes < bytes) {
        cti_free(s->mem, s->half[i].at);
        s->half[i].at = cti_alloc_raw(s->mem, bytes, "bf16 and f16 operands in float32");
        s->half[i].bytes = s->half[i].at ? bytes : 0;
    }
    return s->half[i].at;
}

static const ct_view *widen(cti_half *h, const ct_view *v, bool reads)
{
    if (!v || !cti_is_half(v->dtype) || h->rc)
        return v;
    ct_view *w = &h->wide[h->n];
    *w = cti_wide_meta(v);
    int64_t n = 1;
    for (int d = 0; d < v->ndim; d++)
        n *= v->stride[d] || !v->shape[d] ? v->shape[d] : 1;
    w->data = buffer(h->s, h->n, (size_t)n * sizeof(float));
    if (n && !w->data) {
        h->rc = CT_ENOMEM;
        return v;
    }
    h->n++;
    if (reads && n) {
        /* A broadcast dimension is converted once. */
        ct_view dst = *w, src = *v;
        for (int d = 0; d < v->ndim; d++)
            if (!v->stride[d])
                dst.shape[d] = src.shape[d] = 1;
        h->rc = cti_cpu_copy(h->s, &dst, &src);
    }
    return w;
}

const ct_view *cti_half_in(cti_half *h, const ct_view *v)
{
    return widen(h, v, true);
}

const ct_view *cti_half_out(cti_half *h, const ct_view *v, bool reads)
{
    const ct_view *w = widen(h, v, reads);
    if (w != v)
        h->result[h->n - 1] = v;
    return w;
}

int cti_half_done(cti_half *h, int rc)
{
    for (int i = 0; i < h->n && !rc; i++)
        if (h->result[i])
            rc = cti_cpu_copy(h->s, h->result[i], &h->wide[i]);
    return rc;
}

void cti_half_close(ct_stream *s)
{
    for (int i = 0; i < CTI_HALF_MAX; i++)
        cti_free(s->mem, s->half[i].at);
}
