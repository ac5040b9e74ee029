/* SPDX-License-Identifier: Apache-2.0 */
/* Events. A record is a version of the event; a wait is for the version of its time. */
#include "ctd.h"

#include <set>

namespace ctd
{
static std::set<CUevent_st *> &live = *new std::set<CUevent_st *>;

static bool good(cudaEvent_t e, const char *who)
{
    if (live.count(e))
        return true;
    fault("%s: an event that was destroyed, or never made", who);
    return false;
}

static bool done(const CUevent_st *e)
{
    return e->state->done >= e->state->recorded;
}
} // namespace ctd

using namespace ctd;

extern "C" {
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    CTD_CALL(cudaErrorMemoryAllocation);
    *e = new CUevent_st;
    (*e)->timing = !(flags & cudaEventDisableTiming);
    live.insert(*e);
    counters.events++;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}

/* Records and waits in queues keep what they need. */
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    Lock lock;
    if (injected("cudaEventDestroy"))
        return fail(cudaErrorUnknown, "cudaEventDestroy");
    if (!good(e, "cudaEventDestroy"))
        return fail(cudaErrorInvalidResourceHandle, "cudaEventDestroy");
    live.erase(e);
    counters.events--;
    delete e;
    return sticky();
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    CTD_CALL(cudaErrorUnknown);
    CUstream_st *t = stream_of(s);
    if (!t || !good(e, "cudaEventRecord"))
        return fail(cudaErrorInvalidResourceHandle, "cudaEventRecord");
    e->captured_in = t->capture ? t : nullptr;
    e->captured_graph = t->capture;
    e->captured_at = t->captured;
    if (t->capture)
        return cudaSuccess;
    Op o;
    o.kind = Op::RECORD;
    o.name = "event record";
    o.event = e->state;
    o.version = ++e->state->recorded;
    e->state->where.push_back({o.version, t});
    return push(t, std::move(o));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned)
{
    return cudaEventRecord(e, s);
}

/* An event of a capture draws the waiting stream into the capture, or brings it back. */
static cudaError_t wait_in_capture(CUstream_st *t, cudaEvent_t e)
{
    CUstream_st *from = e->captured_in;
    if (!from || from->capture != e->captured_graph ||
        (t->capture && t->capture != from->capture)) {
        if (t->capture)
            t->origin->spoilt = true;
        return fail(from ? cudaErrorCapturedEvent : cudaErrorStreamCaptureIsolation,
                    "cudaStreamWaitEvent");
    }
    if (from != t && from->joined < e->captured_at)
        from->joined = e->captured_at;
    if (!t->capture) {
        t->capture = from->capture;
        t->origin = from->origin;
        t->joined = 0;
        t->captured = 1; /* must come back */
    }
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    CTD_CALL(cudaErrorUnknown);
    CUstream_st *t = stream_of(s);
    if (!t || !good(e, "cudaStreamWaitEvent"))
        return fail(cudaErrorInvalidResourceHandle, "cudaStreamWaitEvent");
    if (e->captured_graph || t->capture)
        return wait_in_capture(t, e);
    if (e->state->recorded == 0)
        return cudaSuccess;
    Op o;
    o.kind = Op::WAIT;
    o.name = "event wait";
    o.event = e->state;
    o.version = e->state->recorded;
    return push(t, std::move(o));
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    CTD_CALL(cudaErrorLaunchFailure);
    if (!good(e, "cudaEventSynchronize"))
        return fail(cudaErrorInvalidResourceHandle, "cudaEventSynchronize");
    if (spoils_capture("cudaEventSynchronize"))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaEventSynchronize");
    if (e->captured_graph)
        return fail(cudaErrorCapturedEvent, "cudaEventSynchronize");
    counters.syncs++;
    await(e->state.get(), e->state->recorded);
    return fail(sticky(), "cudaEventSynchronize");
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    CTD_CALL(cudaErrorLaunchFailure);
    if (!good(e, "cudaEventQuery"))
        return fail(cudaErrorInvalidResourceHandle, "cudaEventQuery");
    if (spoils_capture("cudaEventQuery"))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaEventQuery");
    if (e->captured_graph)
        return fail(cudaErrorCapturedEvent, "cudaEventQuery");
    if (!done(e))
        progress(e->state->where.back().stream);
    if (sticky())
        return fail(sticky(), "cudaEventQuery");
    return done(e) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    CTD_CALL(cudaErrorUnknown);
    if (!good(a, "cudaEventElapsedTime") || !good(b, "cudaEventElapsedTime") || !a->timing ||
        !b->timing || !a->state->recorded || !b->state->recorded)
        return fail(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime");
    if (!done(a) || !done(b))
        return cudaErrorNotReady;
    *ms = (float)(b->state->time - a->state->time);
    return cudaSuccess;
}
}
