/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's descriptors: creating, attributes, finalizing; heuristics, engines and their notes. */
#include "dnn.h"

#include <cstdarg>
#include <cstdio>

namespace ctd
{
static thread_local char last_text[512];

cudnnStatus_t dnn_fail(cudnnStatus_t s, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    vsnprintf(last_text, sizeof last_text, fmt, a);
    va_end(a);
    trace("cuDNN: %s: %s", cudnnGetErrorString(s), last_text);
    return s;
}

size_t attribute_bytes(cudnnBackendAttributeType_t t)
{
    switch (t) {
    case CUDNN_TYPE_FRACTION:
        return sizeof(cudnnFraction_t);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_HANDLE:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    default:
        return 4;
    }
}

static Desc *desc(cudnnBackendDescriptor_t h)
{
    return h ? ((DescHandle *)h)->d.get() : nullptr;
}

static void put_child(Desc *d, int a, const DescPtr &child)
{
    Attribute at;
    at.type = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    at.count = 1;
    at.children.push_back(child);
    d->attributes[a] = at;
}

/* ---- engines ---- */

std::vector<cudnnBackendNumericalNote_t> engine_notes(int engine)
{
    switch (engine) {
    case ENGINE_FAST:
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case ENGINE_TENSOR_CORE:
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    default:
        return {};
    }
}

int64_t engine_workspace(int engine)
{
    static const int64_t bytes[N_ENGINES] = {0, (int64_t)3 << 29, 65536, 4096 + 256};
    return bytes[engine];
}

static bool is_between(const Desc *op, int first, int last)
{
    return op->type >= first && op->type <= last;
}

/* The real library (9.19, for sm_90) has no engine for a normalization whose channels aren't
 * whole vectors of 16 bytes. */
static bool odd_channels(const Desc *op)
{
    bool forward = op->type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR;
    Tensor x = tensor_of(op->child(forward ? CUDNN_ATTR_OPERATION_NORM_FWD_XDESC :
                                             CUDNN_ATTR_OPERATION_NORM_BWD_XDESC));
    return (size_t)x.dim[1] * size_of(cuda_type(x.dtype)) % 16 != 0;
}

bool dnn_refused(const Desc *graph)
{
    std::string words = std::string(",") + config.refuse + ",";
    auto asked = [&](const char *w) {
        return words.find(std::string(",") + w + ",") != std::string::npos;
    };
    bool refused = asked("all");
    for (const DescPtr &op : graph->find(CUDNN_ATTR_OPERATIONGRAPH_OPS)->children) {
        bool conv = is_between(op.get(), CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                               CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
        bool norm = is_between(op.get(), CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
                               CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
        bool pool = is_between(op.get(), CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
                               CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
        refused = refused || (conv && asked("conv")) || (norm && asked("norm")) ||
                  (pool && asked("pool")) || (norm && odd_channels(op.get()));
        for (const Role &r : roles_of(op.get()))
            if (const Desc *t = op->child(r.attribute))
                refused = refused || (config.cc < 80 && tensor_of(t).dtype == CUDNN_DATA_BFLOAT16);
    }
    return refused;
}

/* The first ones are those that a careful backend passes over. */
std::vector<int> engines_for(const Desc *graph, cudnnBackendHeurMode_t mode)
{
    if (dnn_refused(graph))
        return {};
    if (mode == CUDNN_HEUR_MODE_FALLBACK)
        return {ENGINE_PLAIN};
    return {ENGINE_FAST, ENGINE_BIG, ENGINE_TENSOR_CORE, ENGINE_PLAIN};
}

/* ---- GetAttribute of what is computed ---- */

static cudnnStatus_t give_results(const DescPtr &heur, int64_t want, int64_t *got, void *out)
{
    const Attribute *graph = heur->find(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    std::vector<int> list = engines_for(
        graph->children[0].get(), heur->get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
    *got = (int64_t)list.size();
    if (!out)
        return CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; i < want && i < *got; i++) {
        Desc *cfg = desc(((cudnnBackendDescriptor_t *)out)[i]);
        if (!cfg || cfg->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return dnn_fail(CUDNN_STATUS_BAD_PARAM, "ENGINEHEUR_RESULTS: not an engine config");
        DescPtr engine = std::make_shared<Desc>();
        engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
        engine->engine = cfg->engine = list[(size_t)i];
        put_child(engine.get(), CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph->children[0]);
        put_child(cfg, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
        engine->final = cfg->final = true;
    }
    *got = std::min(*got, want);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t give(const Attribute &at, cudnnBackendAttributeType_t t, int64_t want,
                          int64_t *got, void *out)
{
    if (t != at.type)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "GetAttribute: wrong type");
    if (got)
        *got = at.count;
    if (!out)
        return CUDNN_STATUS_SUCCESS;
    if (t == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < std::min(want, at.count); i++) {
            Desc *to = desc(((cudnnBackendDescriptor_t *)out)[i]);
            if (!to || to->type != at.children[(size_t)i]->type)
                return dnn_fail(CUDNN_STATUS_BAD_PARAM,
                                "GetAttribute: a descriptor of another type");
            *to = *at.children[(size_t)i];
        }
    else if (!at.bytes.empty())
        memcpy(out, at.bytes.data(), std::min(at.bytes.size(), (size_t)want * attribute_bytes(t)));
    return CUDNN_STATUS_SUCCESS;
}

template <class T> static Attribute made(cudnnBackendAttributeType_t type, const std::vector<T> &v)
{
    Attribute at;
    at.type = type;
    at.count = (int64_t)v.size();
    at.bytes.assign((const char *)v.data(), (const char *)(v.data() + v.size()));
    return at;
}
} // namespace ctd

using namespace ctd;

extern "C" {
size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t s)
{
    switch (s / 1000) {
    case 0:
        return "CUDNN_STATUS_SUCCESS";
    case 1:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
        return "CUDNN_STATUS_BAD_PARAM";
    case 3:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

void cudnnGetLastErrorString(char *message, size_t size)
{
    if (size)
        snprintf(message, size, "%s", last_text);
    last_text[0] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
    CTD_LIBRARY(CUDNN_STATUS_NOT_INITIALIZED);
    *h = new cudnnContext{nullptr};
    counters.handles++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    Lock lock;
    counters.handles -= h != nullptr;
    delete h;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
    CTD_LIBRARY(CUDNN_STATUS_BAD_PARAM);
    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t h, cudaStream_t *s)
{
    CTD_LIBRARY(CUDNN_STATUS_BAD_PARAM);
    *s = h->stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *d)
{
    CTD_LIBRARY(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    DescHandle *h = new DescHandle{std::make_shared<Desc>()};
    h->d->type = type;
    *d = h;
    counters.handles++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    Lock lock;
    counters.handles -= d != nullptr;
    delete (DescHandle *)d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t h, cudnnBackendAttributeName_t a,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *from)
{
    CTD_LIBRARY(CUDNN_STATUS_BAD_PARAM);
    Desc *d = desc(h);
    Attribute at;
    if (!d || !from || n < 0)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "SetAttribute(%d): NULL", (int)a);
    if (d->final)
        return dnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "SetAttribute(%d) after Finalize", (int)a);
    at.type = type;
    at.count = n;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        for (int64_t i = 0; i < n; i++) {
            DescHandle *c = ((DescHandle *const *)from)[i];
            if (!c || !c->d->final)
                return dnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                "SetAttribute(%d): a descriptor that isn't finalized", (int)a);
            at.children.push_back(c->d);
        }
    } else {
        at.bytes.assign((const char *)from, (const char *)from + (size_t)n * attribute_bytes(type));
    }
    d->attributes[(int)a] = std::move(at);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const h,
                                       cudnnBackendAttributeName_t a,
                                       cudnnBackendAttributeType_t type, int64_t want, int64_t *got,
                                       void *out)
{
    CTD_LIBRARY(CUDNN_STATUS_BAD_PARAM);
    int64_t ignored;
    if (!desc(h) || !desc(h)->final)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "GetAttribute(%d) before Finalize",
                        (int)a);
    DescPtr d = ((DescHandle *)h)->d;
    if (!got)
        got = &ignored;
    if (a == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return give_results(d, want, got, out);
    if (a == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
        return give(made(CUDNN_TYPE_NUMERICAL_NOTE, engine_notes(d->engine)), type, want, got, out);
    if (a == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE)
        return give(made(CUDNN_TYPE_BEHAVIOR_NOTE, std::vector<cudnnBackendBehaviorNote_t>()), type,
                    want, got, out);
    if (a == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
        return give(made(CUDNN_TYPE_INT64, std::vector<int64_t>{d->engine}), type, want, got, out);
    if (a == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        return give(made(CUDNN_TYPE_INT64, std::vector<int64_t>{engine_workspace(d->engine)}), type,
                    want, got, out);
    const Attribute *at = d->find((int)a);
    if (!at)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "GetAttribute(%d): not set", (int)a);
    return give(*at, type, want, got, out);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t h)
{
    CTD_LIBRARY(CUDNN_STATUS_NOT_SUPPORTED);
    Desc *d = desc(h);
    if (!d)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "Finalize: NULL");
    if (d->final)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "Finalize: twice");
    cudnnStatus_t s = dnn_check(d);
    if (s)
        return s;
    d->final = true;
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && config.plans)
        record_graph(((DescHandle *)h)->d);
    return s;
}
}
