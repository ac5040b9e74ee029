/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of shapes and strides. Dimensions of size 1 never count: their strides mean nothing. */
#include "autograd/internal.h"

#include <inttypes.h>
#include <stdio.h>

void cti_row_major(int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i] > 1 ? shape[i] : 1;
    }
}

/* The dimensions from the outermost in memory to the innermost, those of size 1 first; false when one
 * is broadcast. Equal strides keep their order. */
static bool memory_order(const ct_view *v, int *order)
{
    bool plain = true;
    int n = 0;
    for (int i = 0; i < v->ndim; i++) {
        if (v->shape[i] == 1)
            order[n++] = i;
    }
    int first = n;
    for (int i = 0; i < v->ndim; i++) {
        if (v->shape[i] == 1)
            continue;
        plain = plain && !(v->shape[i] > 1 && v->stride[i] == 0);
        int j = n++;
        for (; j > first && v->stride[order[j - 1]] < v->stride[i]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    return plain;
}

void cti_dense_order(const ct_view *like, int64_t *stride)
{
    int order[CT_MAX_DIMS];
    if (cti_view_channels_last(like)) { /* exact also where N, H or W are 1 */
        stride[1] = 1;
        stride[3] = like->shape[1] > 1 ? like->shape[1] : 1;
        stride[2] = stride[3] * (like->shape[3] > 1 ? like->shape[3] : 1);
        stride[0] = stride[2] * (like->shape[2] > 1 ? like->shape[2] : 1);
        return;
    }
    if (!memory_order(like, order)) {
        cti_row_major(like->ndim, like->shape, stride);
        return;
    }
    int64_t step = 1;
    for (int k = like->ndim - 1; k >= 0; k--) {
        int i = order[k];
        stride[i] = step;
        step *= like->shape[i] > 1 ? like->shape[i] : 1;
    }
}

bool cti_view_is_row_major(const ct_view *v)
{
    int64_t step = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        if (v->shape[i] == 0)
            return true;
        if (v->shape[i] != 1 && v->stride[i] != step)
            return false;
        step *= v->shape[i];
    }
    return true;
}

bool cti_view_channels_last(const ct_view *v)
{
    if (v->ndim != 4)
        return false;
    static const int order[4] = {1, 3, 2, 0};
    int64_t step = 1;
    for (int k = 0; k < 4; k++) {
        int i = order[k];
        if (v->shape[i] == 0)
            return true;
        if (v->shape[i] != 1 && v->stride[i] != step)
            return false;
        step *= v->shape[i];
    }
    return true;
}

bool cti_view_is_dense(const ct_view *v)
{
    int order[CT_MAX_DIMS];
    if (ct_view_numel(v) == 0)
        return true;
    if (!memory_order(v, order))
        return false;
    int64_t step = 1;
    for (int k = v->ndim - 1; k >= 0; k--) {
        int i = order[k];
        if (v->shape[i] == 1)
            continue;
        if (v->stride[i] != step)
            return false;
        step *= v->shape[i];
    }
    return true;
}

bool cti_same_shape(const ct_view *a, const ct_view *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

bool cti_view_dense_like(const ct_view *v, const ct_view *like)
{
    bool same = v->dtype == like->dtype && cti_same_shape(v, like) && cti_view_is_dense(v);
    for (int i = 0; same && i < v->ndim; i++)
        same = v->shape[i] <= 1 || v->stride[i] == like->stride[i];
    return same;
}

ct_view cti_view_expand(const ct_view *v, int ndim, const int64_t *shape)
{
    ct_view out = {.data = v->data, .dtype = v->dtype, .ndim = ndim};
    int lead = ndim - v->ndim;
    for (int i = 0; i < ndim; i++) {
        bool from_v = i >= lead && v->shape[i - lead] == shape[i];
        out.shape[i] = shape[i];
        out.stride[i] = from_v ? v->stride[i - lead] : 0;
    }
    return out;
}

const char *cti_shape_str(const ct_view *v, char *buf, size_t cap)
{
    size_t n = 0;
    if (cap == 0)
        return buf;
    buf[0] = '\0';
    for (int i = -1; i <= v->ndim && n < cap; i++) {
        if (i < 0)
            n += (size_t)snprintf(buf + n, cap - n, "[");
        else if (i == v->ndim)
            n += (size_t)snprintf(buf + n, cap - n, "]");
        else
            n += (size_t)snprintf(buf + n, cap - n, "%s%" PRId64, i ? "," : "", v->shape[i]);
    }
    return buf;
}
