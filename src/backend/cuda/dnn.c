/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs are made with the cudnnBackend* API: it is C, and it is what cuDNN goes on with.
 *
 * Which engine: the first that the heuristics (mode A, then the fallbacks) name, that has none of the
 * numerical notes of `refused_notes`, whose plan can be made and whose workspace is small enough. Without
 * NONDETERMINISTIC engines a resumed run gives the same bytes. f32 without tf32 takes no tensor cores, no
 * down-converted inputs and no Winograd or FFT: what is left are plain f32 sums.
 *
 * A variant pack, cuDNN's form of an argument list, can't be changed once it is finalized: it is made for
 * each call and dropped after it, as cuDNN's own frontend does. We allocate nothing for it. */
#include "backend/cuda/dnn.h"

#include <string.h>

typedef cudnnBackendDescriptor_t desc;

#define MOST_DESCRIPTORS 32 /* of one graph */
#define MOST_CONFIGS     64 /* that are asked of the heuristics */
#define BUCKETS          256

struct cti_dnn_plan {
    cti_dnn_plan *next;
    cti_dnn_key key;
    bool refused;
    desc plan;
    int64_t workspace;
    int n; /* what the plan is made of: stays with it */
    desc made[MOST_DESCRIPTORS];
};

struct cti_dnn_cache {
    cti_dnn_plan *bucket[BUCKETS];
};

/* ---- descriptors ---- */

/* A graph in the making. After the first failure the calls do nothing. */
typedef struct builder {
    ct_stream *s;
    cti_dnn_plan *p;
    cudnnStatus_t status;
    const char *what; /* that failed */
} builder;

static void note(builder *b, cudnnStatus_t e, const char *what)
{
    if (b->status != CUDNN_STATUS_SUCCESS || e == CUDNN_STATUS_SUCCESS)
        return;
    b->status = e;
    b->what = what;
}

static desc make(builder *b, cudnnBackendDescriptorType_t type)
{
    desc d = NULL;
    if (b->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    note(b, cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    if (d)
        b->p->made[b->p->n++] = d;
    return d;
}

static void set(builder *b, desc d, int name, cudnnBackendAttributeType_t type, int64_t n,
                const void *v)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        note(b, cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)name, type, n, v),
             "cudnnBackendSetAttribute");
}

static void set_desc(builder *b, desc d, int name, desc v)
{
    set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v);
}

static void set_type(builder *b, desc d, int name, cudnnDataType_t v)
{
    set(b, d, name, CUDNN_TYPE_DATA_TYPE, 1, &v);
}

static void finish(builder *b, desc d, const char *what)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        note(b, cudnnBackendFinalize(d), what);
}

/* ---- tensors ---- */

static cudnnDataType_t type_of(int32_t dtype)
{
    return dtype == CT_BF16 ? CUDNN_DATA_BFLOAT16 :
           dtype == CT_F16  ? CUDNN_DATA_HALF :
                              CUDNN_DATA_FLOAT;
}

typedef struct tensor_of {
    int64_t uid;
    cudnnDataType_t type;
    int64_t shape[4];
    int64_t align;
    bool row_major, virtual, by_value;
} tensor_of;

/* Channels-last unless it is row-major. */
static desc tensor(builder *b, const tensor_of *t)
{
    const int64_t *d = t->shape;
    const int64_t last[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
    const int64_t rows[4] = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
    const bool yes = true;
    desc v = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(b, v, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t->uid);
    set_type(b, v, CUDNN_ATTR_TENSOR_DATA_TYPE, t->type);
    set(b, v, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d);
    set(b, v, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->row_major ? rows : last);
    set(b, v, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &t->align);
    if (t->virtual)
        set(b, v, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (t->by_value)
        set(b, v, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(b, v, "a tensor of cuDNN");
    return v;
}

static int64_t alignment(const builder *b)
{
    return b->p->key.aligned ? 16 : (int64_t)ct_dtype_bytes((ct_dtype)b->p->key.dtype);
}

/* A tensor of the data's dtype. */
static desc data_tensor(builder *b, int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w)
{
    const tensor_of t = {
        .uid = uid, .type = type_of(b->p->key.dtype), .shape = {n, c, h, w}, .align = alignment(b)};
    return tensor(b, &t);
}

/* cuDNN turns weights itself, in its workspace, where an engine wants them channels-last. */
static desc weight_tensor(builder *b)
{
    const cti_dnn_key *k = &b->p->key;
    const tensor_of t = {.uid = CTI_DNN_W,
                         .type = type_of(k->dtype),
                         .shape = {k->k, k->c / k->groups, k->r, k->s},
                         .align = alignment(b),
                         .row_major = true};
    return tensor(b, &t);
}

/* f32 [1,C,1,1], whose memory is a parameter's or a statistic's: maybe in the middle of a block. */
static desc channel_tensor(builder *b, int64_t uid)
{
    const tensor_of t = {
        .uid = uid, .type = CUDNN_DATA_FLOAT, .shape = {1, b->p->key.c, 1, 1}, .align = 4};
    return tensor(b, &t);
}

static desc scalar_tensor(builder *b, int64_t uid)
{
    const tensor_of t = {
        .uid = uid, .type = CUDNN_DATA_FLOAT, .shape = {1, 1, 1, 1}, .align = 4, .by_value = true};
    return tensor(b, &t);
}

/* ---- convolutions ---- */

static desc conv_params(builder *b)
{
    const cti_dnn_key *k = &b->p->key;
    const int64_t dims = 2;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    desc d = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set_type(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, k->pad_begin);
    set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, k->pad_end);
    set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, k->dilation);
    set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, k->stride);
    finish(b, d, "a convolution of cuDNN");
    return d;
}

static const struct conv_names {
    cudnnBackendDescriptorType_t type;
    int params, x, w, y, alpha, beta;
} conv_names[] = {
    [CTI_DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CTI_DNN_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CTI_DNN_BACKWARD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

static desc conv_op(builder *b, cti_dnn_kind kind, desc x, desc w, desc y)
{
    const struct conv_names *c = &conv_names[kind];
    const float one = 1, zero = 0;
    desc params = conv_params(b), op = make(b, c->type);
    set_desc(b, op, c->params, params);
    set_desc(b, op, c->x, x);
    set_desc(b, op, c->w, w);
    set_desc(b, op, c->y, y);
    set(b, op, c->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, op, c->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(b, op, "a convolution of cuDNN");
    return op;
}

/* y = sum + bias */
static desc bias_op(builder *b, desc sum, desc y)
{
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    desc bias = data_tensor(b, CTI_DNN_BIAS, 1, b->p->key.k, 1, 1);
    desc add = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(b, add, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(b, add, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    finish(b, add, "a sum of cuDNN");
    desc op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add);
    set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum);
    set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
    set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish(b, op, "a sum of cuDNN");
    return op;
}

static int conv_ops(builder *b, desc ops[2])
{
    const cti_dnn_key *k = &b->p->key;
    desc x = data_tensor(b, CTI_DNN_X, k->n, k->c, k->h, k->w);
    desc w = weight_tensor(b);
    desc y = data_tensor(b, CTI_DNN_Y, k->n, k->k, k->p, k->q);
    if (k->kind != CTI_DNN_FORWARD_BIAS) {
        ops[0] = conv_op(b, (cti_dnn_kind)k->kind, x, w, y);
        return 1;
    }
    const tensor_of between = {.uid = CTI_DNN_TENSORS,
                               .type = CUDNN_DATA_FLOAT,
                               .shape = {k->n, k->k, k->p, k->q},
                               .align = 16,
                               .virtual = true};
    desc sum = tensor(b, &between);
    ops[0] = conv_op(b, CTI_DNN_FORWARD, x, w, sum);
    ops[1] = bias_op(b, sum, y);
    return 2;
}

/* ---- batch norm ---- */

typedef struct operand {
    int name;
    int64_t uid;
} operand;

/* Operands of x's shape, and vectors over the channels. */
static void norm_operands(builder *b, desc op, int n, const operand *data, int n_vectors,
                          const operand *vectors)
{
    const cti_dnn_key *k = &b->p->key;
    for (int i = 0; i < n; i++)
        set_desc(b, op, data[i].name, data_tensor(b, data[i].uid, k->n, k->c, k->h, k->w));
    for (int i = 0; i < n_vectors; i++)
        set_desc(b, op, vectors[i].name, channel_tensor(b, vectors[i].uid));
}

static desc norm_train_op(builder *b)
{
    static const operand data[] = {{CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, CTI_DNN_X},
                                   {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, CTI_DNN_Y}};
    static const operand vectors[] = {
        {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, CTI_DNN_MEAN},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, CTI_DNN_INVSTD},
        {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, CTI_DNN_SCALE},
        {CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, CTI_DNN_BIAS},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, CTI_DNN_RUNNING_MEAN},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, CTI_DNN_RUNNING_VAR},
        {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, CTI_DNN_NEXT_MEAN},
        {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, CTI_DNN_NEXT_VAR}};
    const bool running = b->p->key.running != 0;
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    desc op = make(b, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    set(b, op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set(b, op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
    norm_operands(b, op, 2, data, running ? 8 : 4, vectors);
    set_desc(b, op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, scalar_tensor(b, CTI_DNN_EPS));
    if (running)
        set_desc(b, op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
                 scalar_tensor(b, CTI_DNN_MOMENTUM));
    finish(b, op, "a batch norm of cuDNN");
    return op;
}

static desc norm_grad_op(builder *b)
{
    static const operand data[] = {{CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, CTI_DNN_X},
                                   {CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, CTI_DNN_Y},
                                   {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, CTI_DNN_DX}};
    static const operand vectors[] = {
        {CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, CTI_DNN_MEAN},
        {CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, CTI_DNN_INVSTD},
        {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CTI_DNN_SCALE},
        {CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, CTI_DNN_DSCALE},
        {CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, CTI_DNN_DBIAS}};
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    desc op = make(b, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    set(b, op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    norm_operands(b, op, 3, data, 5, vectors);
    finish(b, op, "a batch norm of cuDNN");
    return op;
}

/* ---- engines ---- */

/* What isn't for cuDNN's engines shows when the graph is made or when the engines are asked. Anything else
 * is an error. */
static bool is_refusal(cudnnStatus_t e)
{
    return e / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ||
           e / 1000 == CUDNN_STATUS_BAD_PARAM / 1000;
}

static unsigned refused_notes(const builder *b)
{
    unsigned no = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                  1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    if (b->p->key.dtype == CT_F32)
        no |= 1u << CUDNN_NUMERICAL_NOTE_FFT | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD |
              1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
              1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
              1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    if (b->p->key.dtype == CT_F32 && !b->s->tf32)
        no |=
            1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    return no;
}

/* The calls of cuDNN in a row, each only when those before went well. */
static cudnnStatus_t create(cudnnBackendDescriptorType_t type, desc *d)
{
    *d = NULL;
    return cudnnBackendCreateDescriptor(type, d);
}

static cudnnStatus_t put(cudnnStatus_t e, desc d, int name, cudnnBackendAttributeType_t type,
                         int64_t n, const void *v)
{
    return e ? e : cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)name, type, n, v);
}

static cudnnStatus_t put_desc(cudnnStatus_t e, desc d, int name, desc v)
{
    return put(e, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v);
}

/* *n: how many there are. */
static cudnnStatus_t get(cudnnStatus_t e, desc d, int name, cudnnBackendAttributeType_t type,
                         int64_t cap, int64_t *n, void *v)
{
    *n = 0;
    return e ? e : cudnnBackendGetAttribute(d, (cudnnBackendAttributeName_t)name, type, cap, n, v);
}

static void destroy(desc d)
{
    if (d)
        cudnnBackendDestroyDescriptor(d);
}

/* The numerical notes of a configuration's engine, as bits; all of them when they can't be read. */
static unsigned notes_of(desc config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n;
    unsigned bits = 0;
    desc engine;
    cudnnStatus_t e = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    e = get(e, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    e = get(e, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes);
    for (int64_t i = 0; i < n && !e; i++)
        bits |= 1u << notes[i];
    destroy(engine);
    return e ? ~0u : bits;
}

/* A plan of this configuration, or NULL. */
static desc plan_of(builder *b, desc config, int64_t *workspace)
{
    desc plan;
    int64_t n;
    cudnnStatus_t e = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    e = put_desc(e, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    e = put(e, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->s->dnn);
    e = e ? e : cudnnBackendFinalize(plan);
    e = get(e, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, workspace);
    if (!e && *workspace <= (int64_t)CTI_CUDA_WORKSPACE_MAX)
        return plan;
    destroy(plan);
    return NULL;
}

/* Configurations that a mode of the heuristics gives, best first. */
static int64_t configs(builder *b, desc graph, cudnnBackendHeurMode_t mode, desc *out)
{
    desc heur;
    int64_t n = 0, made = 0;
    cudnnStatus_t e = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur);
    e = put_desc(e, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    e = put(e, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    e = e ? e : cudnnBackendFinalize(heur);
    while (!e && made < MOST_CONFIGS) {
        e = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out[made]);
        made += !e;
    }
    e = get(e, heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &n, out);
    note(b, is_refusal(e) ? CUDNN_STATUS_SUCCESS : e, "asking cuDNN for an engine");
    for (n = e ? 0 : n; made > n; made--)
        destroy(out[made - 1]);
    destroy(heur);
    return n;
}

/* The plan of the first good engine, if there is one. */
static void choose(builder *b, desc graph)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    const unsigned no = refused_notes(b);
    desc config[MOST_CONFIGS];
    for (int m = 0; m < 2 && !b->p->plan; m++) {
        const int64_t n = configs(b, graph, modes[m], config);
        int64_t taken = -1;
        for (int64_t i = 0; i < n && taken < 0; i++) {
            if (notes_of(config[i]) & no)
                continue;
            b->p->plan = plan_of(b, config[i], &b->p->workspace);
            if (b->p->plan)
                taken = i;
        }
        for (int64_t i = 0; i < n; i++)
            if (i != taken)
                destroy(config[i]);
        if (taken >= 0)
            b->p->made[b->p->n++] = config[taken];
    }
}

/* ---- plans ---- */

static void drop(cti_dnn_plan *p)
{
    destroy(p->plan);
    p->plan = NULL;
    while (p->n > 0)
        destroy(p->made[--p->n]);
}

static int build(ct_stream *s, cti_dnn_plan *p)
{
    builder b = {.s = s, .p = p};
    desc ops[2];
    int n = 1;
    if (p->key.kind == CTI_DNN_NORM_TRAIN)
        ops[0] = norm_train_op(&b);
    else if (p->key.kind == CTI_DNN_NORM_GRAD)
        ops[0] = norm_grad_op(&b);
    else
        n = conv_ops(&b, ops);
    desc graph = make(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    set(&b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &s->dnn);
    finish(&b, graph, "a graph of cuDNN");
    if (b.status == CUDNN_STATUS_SUCCESS)
        choose(&b, graph);
    p->refused = !p->plan;
    if (p->refused)
        drop(p);
    if (p->refused && b.status != CUDNN_STATUS_SUCCESS && !is_refusal(b.status))
        return cti_dnn_check(s, b.status, b.what);
    s->counters.primitives += !p->refused;
    return CT_OK;
}

static int open_handle(ct_stream *s)
{
    if (s->dnn)
        return CT_OK;
    int r = cti_dnn_check(s, cudnnCreate(&s->dnn), "opening cuDNN");
    if (r < 0) {
        s->dnn = NULL;
        return r;
    }
    s->counters.primitives++;
    return cti_dnn_check(s, cudnnSetStream(s->dnn, s->compute), "cudnnSetStream");
}

static cti_dnn_plan **bucket_of(ct_stream *s, const cti_dnn_key *key)
{
    const unsigned char *at = (const unsigned char *)key;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *key; i++)
        h = (h ^ at[i]) * 1099511628211u;
    return &s->dnn_cache->bucket[(h ^ h >> 32) % BUCKETS];
}

int cti_dnn_get(ct_stream *s, const cti_dnn_key *key, const cti_dnn_plan **plan)
{
    cti_dnn_plan **bucket = bucket_of(s, key), *p = *bucket;
    *plan = NULL;
    while (p && memcmp(&p->key, key, sizeof *key) != 0)
        p = p->next;
    if (!p) {
        if (s->capturing)
            return cti_fail(s->err, CT_EDEVICE,
                            "this shape is new to cuDNN, which can't prepare it during a capture; "
                            "do the step once before");
        p = cti_alloc(s->mem, sizeof *p, "cuDNN plan");
        if (!p)
            return cti_fail(s->err, CT_ENOMEM, "out of memory for a plan of cuDNN");
        p->key = *key;
        int r = open_handle(s);
        if (r == CT_OK)
            r = build(s, p);
        if (r < 0) {
            cti_free(s->mem, p);
            return r;
        }
        p->next = *bucket;
        *bucket = p;
    }
    *plan = p->refused ? NULL : p;
    return CT_OK;
}

size_t cti_dnn_workspace(const cti_dnn_plan *plan)
{
    return (size_t)plan->workspace;
}

int cti_dnn_run(ct_stream *s, const cti_dnn_plan *plan, int n, const int64_t *uid,
                void *const *data, void *workspace)
{
    desc pack;
    cudnnStatus_t e = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    e = put(e, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
    e = put(e, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid);
    e = put(e, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    e = e ? e : cudnnBackendFinalize(pack);
    e = e ? e : cudnnBackendExecute(s->dnn, plan->plan, pack);
    int r = cti_dnn_check(s, e, "cudnnBackendExecute"); /* its text goes with the next call */
    destroy(pack);
    return r;
}

/* ---- the cache ---- */

int cti_dnn_open(ct_stream *s)
{
    s->dnn_cache = cti_alloc(s->mem, sizeof *s->dnn_cache, "cuDNN plans");
    return s->dnn_cache ? CT_OK : cti_fail(s->err, CT_ENOMEM, "out of memory for cuDNN's plans");
}

void cti_dnn_close(ct_stream *s)
{
    cti_dnn_cache *c = s->dnn_cache;
    if (!c)
        return;
    for (int i = 0; i < BUCKETS; i++) {
        while (c->bucket[i]) {
            cti_dnn_plan *p = c->bucket[i];
            c->bucket[i] = p->next;
            drop(p);
            cti_free(s->mem, p);
        }
    }
    if (s->dnn)
        cudnnDestroy(s->dnn);
    cti_free(s->mem, c);
    s->dnn = NULL;
    s->dnn_cache = NULL;
}
