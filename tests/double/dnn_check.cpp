/* SPDX-License-Identifier: Apache-2.0 */
/* What cuDNN's Finalize checks: attributes that must be there, and shapes. */
#include "dnn.h"

#include <set>

namespace ctd
{
Tensor tensor_of(const Desc *d)
{
    Tensor t;
    std::vector<int64_t> dim = d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                         stride = d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    t.dtype = d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.nd = (int)dim.size();
    for (int i = 0; i < t.nd; i++) {
        t.dim[i] = dim[(size_t)i];
        t.stride[i] = stride[(size_t)i];
    }
    return t;
}

cudaDataType cuda_type(cudnnDataType_t t)
{
    switch (t) {
    case CUDNN_DATA_FLOAT:
        return CUDA_R_32F;
    case CUDNN_DATA_BFLOAT16:
        return CUDA_R_16BF;
    case CUDNN_DATA_HALF:
        return CUDA_R_16F;
    case CUDNN_DATA_INT8:
        return CUDA_R_8I;
    case CUDNN_DATA_INT32:
        return CUDA_R_32I;
    case CUDNN_DATA_INT64:
        return CUDA_R_64I;
    default:
        return CUDA_R_64F;
    }
}

size_t bytes_of(const Tensor &t)
{
    size_t n = 1;
    for (int i = 0; i < t.nd; i++)
        n += (size_t)(t.dim[i] - 1) * (size_t)t.stride[i];
    return n * size_of(cuda_type(t.dtype));
}

/* In the order of strides, each must step over all below it. */
bool overlaps(const Tensor &t)
{
    int o[MAX_DIMS];
    int64_t reach = 0;
    int n = 0;
    for (int i = 0; i < t.nd && i < MAX_DIMS; i++) { /* sorted by insertion: there are few */
        int j = n++;
        for (; j > 0 && t.stride[o[j - 1]] > t.stride[i]; j--)
            o[j] = o[j - 1];
        o[j] = i;
    }
    for (int i = 0; i < n; i++) {
        if (t.dim[o[i]] == 1)
            continue;
        if (t.stride[o[i]] <= reach)
            return true;
        reach += t.stride[o[i]] * (t.dim[o[i]] - 1);
    }
    return false;
}

const std::vector<Role> &roles_of(const Desc *op)
{
    static const std::map<int, std::vector<Role>> table = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, true}}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, true}}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, true}}},
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, false},
          {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, false},
          {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, false},
          {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, true},
          {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, true}}},
        {CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, false},
          {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, true}, /* an input of inference */
          {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, true},
          {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, true},
          {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, true},
          {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, true}}},
        {CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, false},
          {CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, false},
          {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC, false},
          {CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, true},
          {CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, true},
          {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, true}}},
        {CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, false},
          {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, true}}},
        {CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, false},
          {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC, false},
          {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC, false},
          {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, true}}},
    };
    static const std::vector<Role> none;
    auto it = table.find(op->type);
    return it == table.end() ? none : it->second;
}

/* ---- windows ---- */

static void read_pair(const Desc *d, int a, int64_t out[2])
{
    const Attribute *at = d->find(a);
    if (at && at->type == CUDNN_TYPE_FRACTION) {
        std::vector<cudnnFraction_t> f = d->all<cudnnFraction_t>(a);
        for (size_t i = 0; i < 2 && i < f.size(); i++)
            out[i] = f[i].denominator ? f[i].numerator / f[i].denominator : 0;
        return;
    }
    std::vector<int64_t> v = d->all<int64_t>(a);
    for (size_t i = 0; i < 2 && i < v.size(); i++)
        out[i] = v[i];
}

Window conv_window(const Desc *c, const Tensor &w)
{
    Window r = {{w.dim[2], w.dim[3]}, {0, 0}, {0, 0}, {1, 1}, {1, 1}};
    read_pair(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, r.pre);
    read_pair(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, r.post);
    read_pair(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, r.stride);
    read_pair(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, r.dilation);
    return r;
}

Window pool_window(const Desc *c)
{
    Window r = {{1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}};
    read_pair(c, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, r.size);
    read_pair(c, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, r.pre);
    read_pair(c, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, r.post);
    read_pair(c, CUDNN_ATTR_RESAMPLE_STRIDES, r.stride);
    return r;
}

int64_t window_out(const Window &w, int i, int64_t in)
{
    int64_t room = in + w.pre[i] + w.post[i] - (w.dilation[i] * (w.size[i] - 1) + 1);
    return room < 0 || w.stride[i] < 1 ? 0 : room / w.stride[i] + 1;
}

/* ---- operations ---- */

bool conv_op(const Desc *op, ConvOp *c)
{
    static const int fwd[] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    static const int data[] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    static const int filter[] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    const int *a;
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        c->kind = ConvOp::FORWARD;
        a = fwd;
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        c->kind = ConvOp::BACKWARD_DATA;
        a = data;
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        c->kind = ConvOp::BACKWARD_FILTER;
        a = filter;
        break;
    default:
        return false;
    }
    auto scalar = [&](int at, float none) {
        const Attribute *v = op->find(at);
        return v && v->type == CUDNN_TYPE_DOUBLE ? (float)op->get<double>(at) :
                                                   op->get<float>(at, none);
    };
    c->desc = op->child(a[0]);
    c->x = op->child(a[1]);
    c->w = op->child(a[2]);
    c->y = op->child(a[3]);
    c->alpha = scalar(a[4], 1);
    c->beta = scalar(a[5], 0);
    return true;
}

static cudnnStatus_t bad(const char *why)
{
    return dnn_fail(CUDNN_STATUS_BAD_PARAM, "%s", why);
}

static cudnnStatus_t need(const Desc *d, std::initializer_list<int> attributes)
{
    for (int a : attributes)
        if (!d->find(a))
            return dnn_fail(CUDNN_STATUS_BAD_PARAM, "descriptor type %d: attribute %d is missing",
                            (int)d->type, a);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_tensor(const Desc *d)
{
    if (cudnnStatus_t s = need(d, {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_DATA_TYPE,
                                   CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES,
                                   CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT}))
        return s;
    std::vector<int64_t> dim = d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    int64_t align = d->get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if (dim.size() != d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES).size() || dim.empty() ||
        dim.size() > MAX_DIMS)
        return bad("tensor: the numbers of dimensions and strides");
    for (int64_t n : dim)
        if (n < 1)
            return bad("tensor: a dimension below 1");
    for (int64_t n : d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES))
        if (n < 1)
            return bad("tensor: a stride below 1");
    if (align < 1 || (align & (align - 1)))
        return bad("tensor: the alignment is not a power of 2");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_conv_desc(const Desc *d)
{
    if (cudnnStatus_t s =
            need(d, {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                     CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                     CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_DILATIONS,
                     CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES}))
        return s;
    int64_t n = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    for (int a : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                  CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES})
        if (d->find(a)->count != n)
            return bad("convolution: an attribute is not as long as SPATIAL_DIMS");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_conv(const Desc *op, const ConvOp &c)
{
    if (!c.desc || !c.x || !c.w || !c.y)
        return bad("convolution: a tensor or its descriptor is missing");
    Tensor x = tensor_of(c.x), w = tensor_of(c.w), y = tensor_of(c.y);
    Window win = conv_window(c.desc, w);
    if (x.nd != 4 || w.nd != 4 || y.nd != 4)
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "convolution: the double has 2-D ones only");
    if (x.dim[0] != y.dim[0] || w.dim[0] != y.dim[1] || x.dim[1] % w.dim[1] ||
        w.dim[0] % (x.dim[1] / w.dim[1]))
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "convolution: batch or channels");
    for (int i = 0; i < 2; i++)
        if (y.dim[2 + i] != window_out(win, i, x.dim[2 + i]))
            return dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                            "convolution: y is %ld wide, not %ld", (long)y.dim[2 + i],
                            (long)window_out(win, i, x.dim[2 + i]));
    if (overlaps(x) || overlaps(w) || overlaps(y))
        return bad("convolution: overlapping strides");
    (void)op;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_pointwise(const Desc *op)
{
    Desc *pw = op->child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    bool forward = op->child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (!pw || !op->child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC) ||
        (!forward && (!op->child(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) ||
                      !op->child(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC))))
        return bad("pointwise: a tensor or its descriptor is missing");
    if (!known_pointwise(pw->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)))
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "pointwise: the double lacks this mode");
    Tensor y = tensor_of(op->child(forward ? CUDNN_ATTR_OPERATION_POINTWISE_YDESC :
                                             CUDNN_ATTR_OPERATION_POINTWISE_DXDESC));
    for (const Role &r : roles_of(op)) {
        const Desc *t = op->child(r.attribute);
        Tensor x = t ? tensor_of(t) : y;
        for (int i = 0; i < y.nd; i++)
            if (x.nd != y.nd || (x.dim[i] != y.dim[i] && x.dim[i] != 1))
                return dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "pointwise: shapes");
    }
    return CUDNN_STATUS_SUCCESS;
}

static bool per_channel(const Desc *t, int64_t channels)
{
    if (!t)
        return true;
    Tensor s = tensor_of(t);
    return s.nd >= 2 && s.dim[1] == channels && s.numel() == channels;
}

static cudnnStatus_t check_norm(const Desc *op, bool forward)
{
    int x_at = forward ? CUDNN_ATTR_OPERATION_NORM_FWD_XDESC : CUDNN_ATTR_OPERATION_NORM_BWD_XDESC;
    int y_at = forward ? CUDNN_ATTR_OPERATION_NORM_FWD_YDESC : CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC;
    int mode = forward ? CUDNN_ATTR_OPERATION_NORM_FWD_MODE : CUDNN_ATTR_OPERATION_NORM_BWD_MODE;
    if (cudnnStatus_t s = forward ?
                              need(op, {x_at, y_at, mode, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE,
                                        CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC}) :
                              need(op, {x_at, y_at, mode, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC,
                                        CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC,
                                        CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
                                        CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC,
                                        CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
                                        CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC}))
        return s;
    if (op->get<cudnnBackendNormMode_t>(mode) != CUDNN_BATCH_NORM)
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "norm: the double has batch mode only");
    Tensor x = tensor_of(op->child(x_at));
    for (const Role &r : roles_of(op)) {
        const Desc *t = op->child(r.attribute);
        bool full = r.attribute == x_at || r.attribute == y_at ||
                    (!forward && r.attribute == CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC);
        bool scalar = r.attribute == CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC ||
                      r.attribute == CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC ||
                      r.attribute == CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC;
        if (t && (full   ? !tensor_of(t).same_shape(x) :
                  scalar ? tensor_of(t).numel() != 1 :
                           !per_channel(t, x.dim[1])))
            return dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                            "norm: the shape of attribute %d", r.attribute);
        if (t && overlaps(tensor_of(t)))
            return bad("norm: overlapping strides");
    }
    if (!forward)
        return CUDNN_STATUS_SUCCESS;
    if (op->get<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) ==
        CUDNN_NORM_FWD_TRAINING)
        return need(op, {CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC});
    return need(op, {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
                     CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC});
}

static cudnnStatus_t check_resample(const Desc *op, bool forward)
{
    const Desc *d = op->child(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC :
                                        CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC);
    const Desc *x = op->child(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC :
                                        CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC);
    const Desc *y = op->child(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC :
                                        CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC);
    if (!d || !x || !y)
        return bad("resample: a tensor or its descriptor is missing");
    if (op->find(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC :
                           CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC))
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "resample: the double has no index tensor");
    Tensor tx = tensor_of(x), ty = tensor_of(y);
    Window w = pool_window(d);
    cudnnResampleMode_t mode = d->get<cudnnResampleMode_t>(CUDNN_ATTR_RESAMPLE_MODE);
    if (tx.nd != 4 || ty.nd != 4 || mode < CUDNN_RESAMPLE_AVGPOOL ||
        d->get<int64_t>(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS) != 2)
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "resample: the double has 2-D pools only");
    if (tx.dim[0] != ty.dim[0] || tx.dim[1] != ty.dim[1] ||
        ty.dim[2] != window_out(w, 0, tx.dim[2]) || ty.dim[3] != window_out(w, 1, tx.dim[3]))
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "resample: the shape of y");
    if (!forward && mode == CUDNN_RESAMPLE_MAXPOOL &&
        !op->child(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC))
        return bad("resample: the gradient of a max pool needs x");
    return CUDNN_STATUS_SUCCESS;
}

/* Distinct tensors have distinct ids, and each virtual one is made by an operation before its
 * use. */
static cudnnStatus_t check_graph(const Desc *g)
{
    std::map<int64_t, const Desc *> by_id;
    std::set<const Desc *> made;
    if (cudnnStatus_t s = need(g, {CUDNN_ATTR_OPERATIONGRAPH_OPS}))
        return s;
    for (const DescPtr &op : g->find(CUDNN_ATTR_OPERATIONGRAPH_OPS)->children) {
        if (roles_of(op.get()).empty())
            return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "graph: the double lacks operation type %d",
                            (int)op->type);
        for (const Role &r : roles_of(op.get())) {
            const Desc *t = op->child(r.attribute);
            if (!t)
                continue;
            auto at = by_id.try_emplace(t->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID), t).first;
            if (at->second != t)
                return dnn_fail(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                                "graph: tensor id %ld twice", (long)at->first);
            if (r.output)
                made.insert(t);
            else if (t->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && !made.count(t))
                return bad("graph: a virtual tensor is used before it is made");
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_plan(Desc *d)
{
    Desc *cfg = d->child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (!cfg || !cfg->child(CUDNN_ATTR_ENGINECFG_ENGINE))
        return bad("plan: no engine config");
    if (!d->find(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) &&
        !d->find(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP))
        return bad("plan: neither a handle nor a device property");
    d->engine = cfg->engine;
    if (dnn_refused(
            cfg->child(CUDNN_ATTR_ENGINECFG_ENGINE)->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)))
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "plan: refused, as asked for");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_engine(Desc *d)
{
    int64_t i = d->get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    if (!d->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH) || i < 0 || i >= N_ENGINES)
        return bad("engine: its graph or index");
    d->engine = (int)i;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_pack(const Desc *d)
{
    std::vector<int64_t> ids = d->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    if (ids.size() != d->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size() ||
        std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size())
        return bad("variant pack: ids and pointers");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t dnn_check(Desc *d)
{
    ConvOp c;
    if (conv_op(d, &c))
        return check_conv(d, c);
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return check_conv_desc(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_pointwise(d);
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
        return check_norm(d, d->type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR:
        return check_resample(d, d->type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return check_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return need(d, {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE});
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return check_engine(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        if (d->child(CUDNN_ATTR_ENGINECFG_ENGINE))
            d->engine = d->child(CUDNN_ATTR_ENGINECFG_ENGINE)->engine;
        return need(d, {CUDNN_ATTR_ENGINECFG_ENGINE});
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return check_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return check_pack(d);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}
} // namespace ctd
