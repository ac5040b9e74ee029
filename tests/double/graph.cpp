/* SPDX-License-Identifier: Apache-2.0 */
/* Capture of streams into graphs, and their launches. A graph replays its operations in the
 * order of the capture, with the addresses of that time; copies read pinned memory when they
 * run. */
#include "ctd.h"

#include <set>

namespace ctd
{
static std::set<CUgraph_st *> &graphs = *new std::set<CUgraph_st *>;
static std::set<CUgraphExec_st *> &execs = *new std::set<CUgraphExec_st *>;

void capture_op(CUstream_st *s, Op op)
{
    s->captured++;
    s->capture->ops.push_back(std::move(op));
}

bool spoils_capture(const char *who)
{
    bool any = false;
    for (CUstream_st *s : streams()) {
        if (!s->capture || s->origin != s || s->mode == cudaStreamCaptureModeRelaxed)
            continue;
        if (s->mode == cudaStreamCaptureModeThreadLocal && s->thread != std::this_thread::get_id())
            continue;
        s->spoilt = any = true;
    }
    if (any)
        warn("%s isn't allowed while a stream is capturing", who);
    return any;
}
} // namespace ctd

using namespace ctd;

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
    CTD_CALL(cudaErrorUnknown);
    CUstream_st *t = s ? stream_of(s) : nullptr;
    if (!t)
        return fail(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture");
    if (t->capture)
        return fail(cudaErrorIllegalState, "cudaStreamBeginCapture");
    t->capture = new CUgraph_st;
    t->origin = t;
    t->spoilt = false;
    t->mode = mode;
    t->thread = std::this_thread::get_id();
    t->captured = t->joined = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
    CTD_CALL(cudaErrorUnknown);
    CUstream_st *t = s ? stream_of(s) : nullptr;
    *status = !t || !t->capture ? cudaStreamCaptureStatusNone :
              t->origin->spoilt ? cudaStreamCaptureStatusInvalidated :
                                  cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    Lock lock;
    cudaError_t e = enter("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated);
    CUstream_st *t = s ? stream_of(s) : nullptr;
    *graph = nullptr;
    if (!t || !t->capture)
        return fail(cudaErrorIllegalState, "cudaStreamEndCapture");
    if (t->origin != t)
        return fail(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture");
    if (t->mode != cudaStreamCaptureModeRelaxed && t->thread != std::this_thread::get_id())
        return fail(cudaErrorStreamCaptureWrongThread, "cudaStreamEndCapture");
    CUgraph_st *g = t->capture;
    if (!e && t->spoilt)
        e = cudaErrorStreamCaptureInvalidated;
    for (CUstream_st *u : streams()) {
        if (u->capture != g)
            continue;
        if (u != t && u->joined < u->captured && !e)
            e = cudaErrorStreamCaptureUnjoined;
        u->capture = nullptr;
        u->origin = nullptr;
    }
    if (e) {
        delete g;
        return fail(e, "cudaStreamEndCapture");
    }
    *graph = g;
    graphs.insert(g);
    counters.graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    CTD_CALL(cudaErrorMemoryAllocation);
    if (!graphs.count(graph))
        return fail(cudaErrorInvalidValue, "cudaGraphInstantiate");
    *exec = new CUgraphExec_st;
    (*exec)->ops = graph->ops;
    execs.insert(*exec);
    counters.graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t)
{
    CTD_CALL(cudaErrorUnknown);
    return execs.count(exec) ? cudaSuccess : fail(cudaErrorInvalidValue, "cudaGraphUpload");
}

/* A launch waits for the one before, in whatever stream. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    CTD_CALL(cudaErrorLaunchFailure);
    CUstream_st *t = stream_of(s);
    if (!t || !execs.count(exec)) {
        fault("cudaGraphLaunch: a graph that was destroyed, or a bad stream");
        return fail(cudaErrorInvalidValue, "cudaGraphLaunch");
    }
    if (t->capture) {
        t->origin->spoilt = true;
        return fail(cudaErrorStreamCaptureUnsupported, "cudaGraphLaunch");
    }
    Op wait, record;
    wait.kind = Op::WAIT;
    wait.name = "graph wait";
    record.kind = Op::RECORD;
    record.name = "graph end";
    wait.event = record.event = exec->last;
    wait.version = exec->last->recorded;
    if (exec->last->done < wait.version && exec->last_stream != t)
        push(t, std::move(wait));
    exec->last_stream = t;
    record.version = ++exec->last->recorded;
    exec->last->where.push_back({record.version, t});
    for (const Op &o : exec->ops)
        push(t, o);
    return push(t, std::move(record));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    CTD_CALL(cudaErrorUnknown);
    if (!graphs.count(graph) || nodes)
        return fail(cudaErrorInvalidValue, "cudaGraphGetNodes");
    *n = graph->ops.size();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    Lock lock;
    if (!graphs.erase(graph))
        return fail(cudaErrorInvalidValue, "cudaGraphDestroy");
    counters.graphs--;
    delete graph;
    return sticky();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    Lock lock;
    if (!execs.erase(exec))
        return fail(cudaErrorInvalidValue, "cudaGraphExecDestroy");
    counters.graphs--;
    delete exec;
    return sticky();
}
}
