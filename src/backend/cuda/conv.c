/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution by cuDNN, and by our own kernels (conv_native.cu) where no engine of cuDNN takes the problem.
 *
 * What cuDNN 9.19 takes, asked for an H200 with the rules of dnn.c: all of forward, forward + bias, backward
 * data and backward weight in f32 (without tensor cores, and with tf32), bf16 and f16, with 1 or odd numbers
 * of channels, groups and depthwise, dilation, stride, padding that differs on both sides, data that is
 * aligned to its elements alone, and row-major weights with channels-last data. None was refused, so
 * our own kernels are for other versions of cuDNN and other devices; a refusal costs its search once. */
#include "backend/cuda/conv.h"
#include "backend/cuda/dnn.h"

#include <string.h>

static int check_dtype(ct_stream *s, ct_conv_pass pass, const ct_conv_args *a)
{
    const ct_dtype d = a->x.dtype;
    const bool bias = pass == CT_CONV_FORWARD && a->bias;
    if (d != CT_F32 && d != CT_BF16 && d != CT_F16)
        return cti_cuda_no_dtype(s, "conv2d", d);
    const ct_dtype others[] = {a->w.dtype, a->y.dtype, bias ? a->bias->dtype : d};
    for (int i = 0; i < 3; i++)
        if (others[i] != d)
            return cti_fail(s->err, CT_EDTYPE, "conv2d: %s with %s", ct_dtype_name(d),
                            ct_dtype_name(others[i]));
    return CT_OK;
}

static void make_key(cti_dnn_kind kind, const ct_conv_args *a, cti_dnn_key *key)
{
    uintptr_t all = (uintptr_t)a->x.data | (uintptr_t)a->w.data | (uintptr_t)a->y.data;
    if (kind == CTI_DNN_FORWARD_BIAS)
        all |= (uintptr_t)a->bias->data;
    memset(key, 0, sizeof *key); /* also between its members */
    key->kind = (int32_t)kind;
    key->dtype = (int32_t)a->x.dtype;
    key->aligned = all % 16 == 0;
    key->n = a->x.shape[0];
    key->c = a->x.shape[1];
    key->h = a->x.shape[2];
    key->w = a->x.shape[3];
    key->k = a->w.shape[0];
    key->r = a->w.shape[2];
    key->s = a->w.shape[3];
    key->p = a->y.shape[2];
    key->q = a->y.shape[3];
    key->groups = a->groups;
    for (int i = 0; i < 2; i++) {
        key->stride[i] = a->stride[i];
        key->dilation[i] = a->dilation[i];
        key->pad_begin[i] = a->pad_begin[i];
        key->pad_end[i] = a->pad_end[i];
    }
}

/* *plan NULL: our own kernel does it. *add_bias: in a step of its own. */
static int find_plan(ct_stream *s, ct_conv_pass pass, const ct_conv_args *a,
                     const cti_dnn_plan **plan, bool *add_bias)
{
    static const cti_dnn_kind kinds[] = {[CT_CONV_FORWARD] = CTI_DNN_FORWARD,
                                         [CT_CONV_BACKWARD_DATA] = CTI_DNN_BACKWARD_DATA,
                                         [CT_CONV_BACKWARD_WEIGHT] = CTI_DNN_BACKWARD_WEIGHT};
    const bool bias = pass == CT_CONV_FORWARD && a->bias;
    cti_dnn_key key;
    *plan = NULL;
    *add_bias = false;
    if (!ct_view_numel(&a->x) || !ct_view_numel(&a->w) || !ct_view_numel(&a->y))
        return CT_OK; /* no tensors for cuDNN: our own kernel gives zeros, or the bias */
    make_key(bias ? CTI_DNN_FORWARD_BIAS : kinds[pass], a, &key);
    int r = cti_dnn_get(s, &key, plan);
    if (r < 0 || *plan || !bias)
        return r;
    make_key(CTI_DNN_FORWARD, a, &key);
    *add_bias = true;
    return cti_dnn_get(s, &key, plan);
}

int cti_cuda_conv_workspace(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args,
                            size_t *bytes)
{
    const cti_dnn_plan *plan;
    bool add_bias;
    *bytes = 0;
    int r = check_dtype(s, pass, args);
    if (r == CT_OK)
        r = find_plan(s, pass, args, &plan, &add_bias);
    if (r == CT_OK && plan)
        *bytes = cti_dnn_workspace(plan);
    return r;
}

int cti_cuda_conv(ct_stream *s, ct_conv_pass pass, const ct_conv_args *args)
{
    static const int64_t uid[] = {CTI_DNN_X, CTI_DNN_W, CTI_DNN_Y, CTI_DNN_BIAS};
    const bool bias = pass == CT_CONV_FORWARD && args->bias;
    const cti_dnn_plan *plan;
    bool add_bias;
    int r = check_dtype(s, pass, args);
    if (r == CT_OK)
        r = find_plan(s, pass, args, &plan, &add_bias);
    if (r < 0)
        return r;
    if (!plan)
        return cti_cuda_conv_native(s, pass, args);
    void *const data[] = {args->x.data, args->w.data, args->y.data, bias ? args->bias->data : NULL};
    r = cti_dnn_run(s, plan, bias && !add_bias ? 4 : 3, uid, data, args->workspace);
    if (r < 0 || !add_bias)
        return r;
    ct_view wide = args->y;
    wide.data = args->bias->data;
    for (int i = 0; i < 4; i++)
        wide.stride[i] = i == 1;
    return cti_cuda_binary(s, CT_BIN_ADD, &args->y, &args->y, &wide);
}
