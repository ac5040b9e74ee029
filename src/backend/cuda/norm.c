/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm by cuDNN in training, and by our own kernels (norm_native.cu) everywhere else.
 *
 * cuDNN 9.19 on an H200 takes dense channels-last data whose channels fill whole 16 bytes (a multiple of 4 in
 * f32, of 8 in bf16 and f16), with f32 parameters and statistics, 1x1 images and absent running statistics
 * included; other numbers of channels are refused, so it is not asked. Its engines are compiled when a
 * shape is first met, which takes some tenths of a second. */
#include "backend/cuda/norm.h"
#include "backend/cuda/dnn.h"

#include <string.h>

/* Dense [N,C,H,W] with the channels innermost; sizes of 1 have any strides. */
static bool is_channels_last(const ct_view *v)
{
    static const int order[] = {1, 3, 2, 0}; /* innermost first */
    int64_t n = 1;
    if (v->ndim != 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const int d = order[i];
        if (v->shape[d] != 1 && v->stride[d] != n)
            return false;
        n *= v->shape[d];
    }
    return true;
}

/* f32 and dense, if it is there. */
static bool is_vector(const ct_view *v)
{
    return !v || (v->dtype == CT_F32 && (v->shape[0] == 1 || v->stride[0] == 1));
}

/* The problem, or false: not for cuDNN. A channel of one element has no variance to speak of: PyTorch's rule
 * for that is our own kernels'. */
static bool make_key(cti_dnn_kind kind, const ct_view *x, int n_others,
                     const ct_view *const *others, cti_dnn_key *key)
{
    const int64_t esize = (int64_t)ct_dtype_bytes(x->dtype);
    uintptr_t all = (uintptr_t)x->data;
    if (x->dtype != CT_F32 && x->dtype != CT_BF16 && x->dtype != CT_F16)
        return false;
    if (!is_channels_last(x) || x->shape[1] * esize % 16 != 0)
        return false;
    if (ct_view_numel(x) <= x->shape[1])
        return false;
    for (int i = 0; i < n_others; i++) {
        if (others[i]->dtype != x->dtype || !is_channels_last(others[i]))
            return false;
        all |= (uintptr_t)others[i]->data;
    }
    memset(key, 0, sizeof *key);
    key->kind = (int32_t)kind;
    key->dtype = (int32_t)x->dtype;
    key->aligned = all % 16 == 0;
    key->n = x->shape[0];
    key->c = x->shape[1];
    key->h = x->shape[2];
    key->w = x->shape[3];
    return key->aligned;
}

/* Where cuDNN has no plan: *plan NULL. `running`: with running statistics. */
static int train_plan(ct_stream *s, const ct_view *x, const ct_view *y, bool running,
                      const cti_dnn_plan **plan)
{
    cti_dnn_key key;
    *plan = NULL;
    if (!make_key(CTI_DNN_NORM_TRAIN, x, 1, &y, &key))
        return CT_OK;
    key.running = running;
    return cti_dnn_get(s, &key, plan);
}

static int grad_plan(ct_stream *s, const ct_view *x, const ct_view *dy, const ct_view *dx,
                     const cti_dnn_plan **plan)
{
    const ct_view *others[] = {dy, dx};
    cti_dnn_key key;
    *plan = NULL;
    return make_key(CTI_DNN_NORM_GRAD, x, 2, others, &key) ? cti_dnn_get(s, &key, plan) : CT_OK;
}

/* The plan is not known yet when workspace is asked for: plans that want more are passed over. They want
 * some hundred KB. */
static size_t plan_room(const ct_view *x)
{
    return ((size_t)1 << 20) + (size_t)x->shape[1] * 1024;
}

static bool fits(const cti_dnn_plan *plan, const ct_view *x)
{
    return plan && cti_dnn_workspace(plan) <= plan_room(x);
}

size_t cti_cuda_batchnorm_workspace(ct_stream *s, const ct_view *x)
{
    const size_t native = cti_cuda_bn_native_workspace(s, x);
    cti_dnn_key key;
    if (!make_key(CTI_DNN_NORM_TRAIN, x, 0, NULL, &key))
        return native;
    return native > plan_room(x) ? native : plan_room(x);
}

int cti_cuda_batchnorm_train(ct_stream *s, const ct_batchnorm_args *a)
{
    static const int64_t uid[] = {CTI_DNN_X,           CTI_DNN_Y,         CTI_DNN_SCALE,
                                  CTI_DNN_BIAS,        CTI_DNN_MEAN,      CTI_DNN_INVSTD,
                                  CTI_DNN_EPS,         CTI_DNN_MOMENTUM,  CTI_DNN_RUNNING_MEAN,
                                  CTI_DNN_RUNNING_VAR, CTI_DNN_NEXT_MEAN, CTI_DNN_NEXT_VAR};
    const ct_view *rm = a->running_mean, *rv = a->running_var;
    const bool good = a->weight && a->bias && is_vector(a->weight) && is_vector(a->bias) &&
                      is_vector(&a->mean) && is_vector(&a->invstd) && !rm == !rv && is_vector(rm) &&
                      is_vector(rv);
    const cti_dnn_plan *plan = NULL;
    int r = good ? train_plan(s, &a->x, &a->y, rm != NULL, &plan) : CT_OK;
    if (r < 0)
        return r;
    if (!fits(plan, &a->x))
        return cti_cuda_bn_native_train(s, a);
    float eps = (float)a->eps, momentum = (float)a->momentum;
    void *const data[] = {a->x.data,
                          a->y.data,
                          a->weight->data,
                          a->bias->data,
                          a->mean.data,
                          a->invstd.data,
                          &eps,
                          &momentum,
                          rm ? rm->data : NULL,
                          rv ? rv->data : NULL,
                          rm ? rm->data : NULL,
                          rv ? rv->data : NULL};
    return cti_dnn_run(s, plan, rm ? 12 : 7, uid, data, a->workspace);
}

int cti_cuda_batchnorm_eval(ct_stream *s, const ct_batchnorm_args *args)
{
    return cti_cuda_bn_native_eval(s, args);
}

int cti_cuda_batchnorm_grad(ct_stream *s, bool train, const ct_view *dx, int beta,
                            const ct_view *dw, const ct_view *db, const ct_view *dy,
                            const ct_view *x, const ct_view *weight, const ct_view *mean,
                            const ct_view *invstd, void *workspace)
{
    static const int64_t uid[] = {CTI_DNN_X,    CTI_DNN_Y,      CTI_DNN_DX,     CTI_DNN_SCALE,
                                  CTI_DNN_MEAN, CTI_DNN_INVSTD, CTI_DNN_DSCALE, CTI_DNN_DBIAS};
    const bool good = train && dx && !beta && dw && db && weight && is_vector(dw) &&
                      is_vector(db) && is_vector(weight) && is_vector(mean) && is_vector(invstd);
    const cti_dnn_plan *plan = NULL;
    int r = good ? grad_plan(s, x, dy, dx, &plan) : CT_OK;
    if (r < 0)
        return r;
    if (!fits(plan, x))
        return cti_cuda_bn_native_grad(s, train, dx, beta, dw, db, dy, x, weight, mean, invstd,
                                       workspace);
    void *const data[] = {x->data,    dy->data,     dx->data, weight->data,
                          mean->data, invstd->data, dw->data, db->data};
    return cti_dnn_run(s, plan, 8, uid, data, workspace);
}
