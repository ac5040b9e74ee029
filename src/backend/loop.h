/* SPDX-License-Identifier: Apache-2.0 */
/* A loop over up to CTI_LOOP_OPS views of one shape. Dimensions of size 1 go, the rest is sorted by the
 * first operand's strides (so that channels-last, transposed and sliced views run along memory) and
 * neighbours are merged. */
#ifndef BACKEND_LOOP_H
#define BACKEND_LOOP_H

#include "backend/backend.h"

#define CTI_LOOP_OPS 5

typedef struct cti_loop {
    int nop, ndim; /* ndim is 1 or more */
    int64_t numel;
    int64_t shape[CT_MAX_DIMS];                /* outermost first */
    int64_t stride[CTI_LOOP_OPS][CT_MAX_DIMS]; /* in bytes */
    char *data[CTI_LOOP_OPS];
} cti_loop;

static inline int64_t cti_abs64(int64_t v)
{
    return v < 0 ? -v : v;
}

/* True when dimension a must be outside dimension b: by the first operand whose strides differ. */
static inline bool cti_loop_before(const cti_loop *l, int a, int b)
{
    for (int o = 0; o < l->nop; o++) {
        int64_t sa = cti_abs64(l->stride[o][a]), sb = cti_abs64(l->stride[o][b]);
        if (sa != sb)
            return sa > sb;
    }
    return true;
}

static inline void cti_loop_swap(cti_loop *l, int a, int b)
{
    int64_t t = l->shape[a];
    l->shape[a] = l->shape[b];
    l->shape[b] = t;
    for (int o = 0; o < l->nop; o++) {
        t = l->stride[o][a];
        l->stride[o][a] = l->stride[o][b];
        l->stride[o][b] = t;
    }
}

static inline void cti_loop_merge(cti_loop *l)
{
    int last = 0;
    for (int d = 1; d < l->ndim; d++) {
        bool merge = true;
        for (int o = 0; o < l->nop; o++)
            merge = merge && l->stride[o][last] == l->stride[o][d] * l->shape[d];
        if (merge) {
            l->shape[last] *= l->shape[d];
        } else {
            last++;
            l->shape[last] = l->shape[d];
        }
        for (int o = 0; o < l->nop; o++)
            l->stride[o][last] = l->stride[o][d];
    }
    l->ndim = last + 1;
}

/* `dims`: bit d set = dimension d takes part. `sort` false keeps the row-major order, for what goes by
 * logical index. The shape is the first view's. */
static inline void cti_loop_init_dims(cti_loop *l, int nop, const ct_view *const *v, unsigned dims,
                                      bool sort)
{
    l->nop = nop;
    l->ndim = 0;
    l->numel = 1;
    for (int o = 0; o < nop; o++)
        l->data[o] = (char *)v[o]->data;
    for (int d = 0; d < v[0]->ndim; d++) {
        if (!(dims >> d & 1))
            continue;
        l->numel *= v[0]->shape[d];
        if (v[0]->shape[d] == 1)
            continue;
        l->shape[l->ndim] = v[0]->shape[d];
        for (int o = 0; o < nop; o++)
            l->stride[o][l->ndim] = v[o]->stride[d] * (int64_t)ct_dtype_bytes(v[o]->dtype);
        l->ndim++;
    }
    if (l->ndim == 0) {
        l->ndim = 1;
        l->shape[0] = 1;
        for (int o = 0; o < nop; o++)
            l->stride[o][0] = (int64_t)ct_dtype_bytes(v[o]->dtype);
        return;
    }
    for (int i = 1; sort && i < l->ndim; i++)
        for (int j = i; j > 0 && !cti_loop_before(l, j - 1, j); j--)
            cti_loop_swap(l, j - 1, j);
    cti_loop_merge(l);
}

static inline void cti_loop_init(cti_loop *l, int nop, const ct_view *const *v)
{
    cti_loop_init_dims(l, nop, v, ~0u, true);
}

/* The byte offset of flat element i (in the loop's own order) for operand o. */
static inline int64_t cti_loop_offset(const cti_loop *l, int o, int64_t i)
{
    int64_t off = 0;
    for (int d = l->ndim - 1; d >= 0; d--) {
        off += i % l->shape[d] * l->stride[o][d];
        i /= l->shape[d];
    }
    return off;
}

#endif
