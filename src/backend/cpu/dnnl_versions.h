/* SPDX-License-Identifier: Apache-2.0 */
/* The differences between oneDNN 2.x and 3.x, and nothing else: descriptors are structs in the one and
 * handles in the other, and primitive descriptors are made in two steps or in one. For dnnl.c alone. */
#ifndef BACKEND_CPU_DNNL_VERSIONS_H
#define BACKEND_CPU_DNNL_VERSIONS_H

#include "backend/cpu/dnnl.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc; /* an owned handle */
typedef const_dnnl_memory_desc_t desc_ref;
#define REF(d) (d)
#else
typedef dnnl_memory_desc_t desc; /* a struct */
typedef const dnnl_memory_desc_t *desc_ref;
#define REF(d) (&(d))
#endif

static void desc_clear(desc *d)
{
#if DNNL_VERSION_MAJOR >= 3
    if (*d)
        dnnl_memory_desc_destroy(*d);
    *d = NULL;
#else
    memset(d, 0, sizeof *d);
#endif
}

static dnnl_status_t desc_strided(desc *d, bool bf16, int ndim, const int64_t *dim,
                                  const int64_t *stride)
{
    const dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t dims, strides;
    memcpy(dims, dim, (size_t)ndim * sizeof *dim);
    memcpy(strides, stride, (size_t)ndim * sizeof *stride);
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(d, ndim, dims, type, strides);
#else
    return dnnl_memory_desc_init_by_strides(d, ndim, dims, type, strides);
#endif
}

static dnnl_status_t desc_tagged(desc *d, bool bf16, int ndim, const int64_t *dim,
                                 dnnl_format_tag_t tag)
{
    const dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t dims;
    memcpy(dims, dim, (size_t)ndim * sizeof *dim);
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(d, ndim, dims, type, tag);
#else
    return dnnl_memory_desc_init_by_tag(d, ndim, dims, type, tag);
#endif
}

static dnnl_status_t post_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1.0F, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1.0F);
#endif
}

static dnnl_status_t matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, desc_ref a,
                               desc_ref b, desc_ref bias, desc_ref y, dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(pd, engine, a, b, bias, y, attr);
#else
    dnnl_matmul_desc_t op;
    dnnl_status_t st = dnnl_matmul_desc_init(&op, a, b, bias, y);
    return st ? st : dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
#endif
}

/* What a convolution's descriptor is made of. */
typedef struct conv_descs {
    desc x, w, bias, y;
    dnnl_dims_t stride, dilation, pad_begin, pad_end;
    bool has_bias;
} conv_descs;

static dnnl_status_t conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, ct_conv_pass pass,
                             const conv_descs *c, dnnl_primitive_desc_t hint,
                             dnnl_primitive_attr_t attr)
{
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    desc_ref x = REF(c->x), w = REF(c->w), y = REF(c->y), bias = c->has_bias ? REF(c->bias) : NULL;
#if DNNL_VERSION_MAJOR >= 3
    if (pass == CT_CONV_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, dnnl_forward_training, alg, x, w, bias, y, c->stride, c->dilation,
            c->pad_begin, c->pad_end, attr);
    if (pass == CT_CONV_BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, alg, x, w, y, c->stride, c->dilation, c->pad_begin, c->pad_end, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, alg, x, w, NULL, y, c->stride, c->dilation, c->pad_begin, c->pad_end, hint,
        attr);
#else
    dnnl_convolution_desc_t op;
    dnnl_status_t st;
    if (pass == CT_CONV_FORWARD)
        st = dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training, alg, x, w, bias,
                                                        y, c->stride, c->dilation, c->pad_begin,
                                                        c->pad_end);
    else if (pass == CT_CONV_BACKWARD_DATA)
        st = dnnl_dilated_convolution_backward_data_desc_init(
            &op, alg, x, w, y, c->stride, c->dilation, c->pad_begin, c->pad_end);
    else
        st = dnnl_dilated_convolution_backward_weights_desc_init(
            &op, alg, x, w, NULL, y, c->stride, c->dilation, c->pad_begin, c->pad_end);
    return st ? st : dnnl_primitive_desc_create(pd, &op, attr, engine, hint);
#endif
}

#endif
