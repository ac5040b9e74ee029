/* SPDX-License-Identifier: Apache-2.0 */
/* Streams are queues of operations that run as late, as early, or in as odd an order as the
 * rules allow: `lazy` runs only what someone waits for, `eager` everything else first, `rand`
 * draws; `now` runs each at once, as a naive mock would. */
#include "ctd.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <sys/mman.h>

namespace ctd
{
static std::vector<CUstream_st *> &all = *new std::vector<CUstream_st *>; /* never destroyed */
static std::map<const void *, int> &max_shared = *new std::map<const void *, int>;
static CUstream_st *legacy;
static unsigned next_stream = 1;
static bool dead_streams;

const std::vector<CUstream_st *> &streams()
{
    return all;
}

static void forget(EventState *e, uint64_t version)
{
    auto past = [=](const EventState::Where &w) { return w.version <= version; };
    e->done = std::max(e->done, version);
    e->where.erase(std::remove_if(e->where.begin(), e->where.end(), past), e->where.end());
}

/* After a sticky error nothing runs any more, and nobody waits. */
static void drop_all()
{
    for (CUstream_st *s : all) {
        for (Op &o : s->queue)
            if (o.kind == Op::RECORD)
                forget(o.event.get(), o.version);
        s->queue.clear();
    }
}

/* ---- pinned memory of pending copies ---- */

static void protect(const Op &o, int prot)
{
    uintptr_t page = 4096, first = o.pin / page * page;
    mprotect((void *)first, (o.pin + o.pin_bytes + page - 1) / page * page - first, prot);
}

static void protect_pending(const Op &o)
{
    if (o.pin && config.pin_fence)
        protect(o, o.pin_write ? PROT_NONE : PROT_READ);
}

static void unprotect(const Op &o)
{
    if (!o.pin || !config.pin_fence)
        return;
    protect(o, PROT_READ | PROT_WRITE);
}

static bool overlaps_pending(const Op &o)
{
    for (CUstream_st *s : all)
        for (const Op &q : s->queue)
            if (q.pin && q.pin < o.pin + o.pin_bytes && o.pin < q.pin + q.pin_bytes)
                return true;
    return false;
}

/* ---- running ---- */

static void run(Op &o)
{
    if (o.kind == Op::RECORD) {
        forget(o.event.get(), o.version);
        o.event->time = std::chrono::duration<double, std::milli>(
                            std::chrono::steady_clock::now().time_since_epoch())
                            .count();
    }
    if (o.kind != Op::RUN)
        return;
    if (injected_sticky()) {
        trace("%s makes an illegal access, as asked for", o.name);
        set_sticky();
        return;
    }
    count_op(o.name);
    current_op = o.name;
    o.run();
    current_op = "";
}

static void run_first(CUstream_st *s)
{
    Op o = std::move(s->queue.front());
    s->queue.pop_front();
    trace("[stream %u] %s", s->id, o.name);
    if (o.pin) {
        unprotect(o);
        run(o);
        if (config.pin_fence) /* pages of this buffer that others still wait for */
            for (CUstream_st *t : all)
                for (const Op &q : t->queue)
                    protect_pending(q);
    } else {
        run(o);
    }
    if (sticky())
        drop_all();
}

static bool blocked(CUstream_st *s)
{
    const Op &o = s->queue.front();
    return o.kind == Op::WAIT && o.event->done < o.version;
}

void await(EventState *e, uint64_t version)
{
    while (e->done < version) {
        auto at = std::find_if(e->where.begin(), e->where.end(),
                               [=](const EventState::Where &w) { return w.version >= version; });
        if (at == e->where.end() || !progress(at->stream))
            return;
    }
}

bool progress(CUstream_st *s)
{
    Running open;
    if (s->queue.empty())
        return false;
    if (blocked(s)) {
        std::shared_ptr<EventState> e = s->queue.front().event;
        await(e.get(), s->queue.front().version);
    }
    if (!s->queue.empty())
        run_first(s);
    return true;
}

static void sweep()
{
    if (!dead_streams)
        return;
    dead_streams = false;
    for (size_t i = all.size(); i-- > 0;) {
        if (all[i]->alive)
            continue;
        if (all[i]->queue.empty()) {
            delete all[i];
            all.erase(all.begin() + (ptrdiff_t)i);
        } else {
            dead_streams = true;
        }
    }
}

void drain(CUstream_st *s)
{
    if (s->queue.empty() && (config.sched == Config::LAZY || config.sched == Config::NOW))
        return;
    Running open;
    for (bool any = config.sched == Config::EAGER; any;) {
        any = false;
        for (size_t i = all.size(); i-- > 0;)
            if (all[i] != s && !all[i]->queue.empty() && !blocked(all[i])) {
                run_first(all[i]);
                any = true;
            }
    }
    while (config.sched == Config::RAND && !s->queue.empty()) {
        CUstream_st *t = all[rnd() % all.size()];
        if (!t->queue.empty() && !blocked(t))
            run_first(t);
        else if (rnd() % 4 == 0)
            progress(s);
    }
    while (progress(s)) {
    }
    sweep();
}

void drain_all()
{
    if (pending_ops() == 0)
        return;
    Running open;
    if (config.sched == Config::RAND)
        for (size_t k = 0; k < 16 * all.size(); k++) {
            CUstream_st *t = all[rnd() % all.size()];
            if (!t->queue.empty() && !blocked(t))
                run_first(t);
        }
    for (size_t i = 0; i < all.size(); i++)
        while (progress(all[i])) {
        }
    sweep();
}

void drain_blocking()
{
    for (size_t i = 0; i < all.size(); i++)
        if (all[i]->blocking)
            while (progress(all[i])) {
            }
}

void run_alone(Op op)
{
    Running open;
    run(op);
    if (sticky())
        drop_all();
}

long pending_ops()
{
    long n = 0;
    for (CUstream_st *s : all)
        n += (long)s->queue.size();
    return n;
}

/* ---- queueing ---- */

CUstream_st *stream_of(cudaStream_t s)
{
    if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) {
        if (!config.legacy_ok)
            fault("the legacy default stream is used; give every call a stream");
        if (!legacy) {
            legacy = new CUstream_st;
            legacy->blocking = true;
            all.push_back(legacy);
        }
        return legacy;
    }
    for (CUstream_st *t : all)
        if (t == s && t->alive)
            return t;
    fault("a stream that was destroyed, or never made, is used");
    return nullptr;
}

cudaError_t push(CUstream_st *s, Op o)
{
    if (!s)
        return fail(cudaErrorInvalidResourceHandle, o.name);
    if (s->capture) {
        capture_op(s, std::move(o));
        return cudaSuccess;
    }
    if (s == legacy && spoils_capture("the legacy stream"))
        return fail(cudaErrorStreamCaptureImplicit, o.name);
    if (s == legacy)
        drain_blocking();
    else if (s->blocking && legacy)
        drain(legacy);
    /* What a copy will write reads as NaN until it has run. */
    if (o.pin_write && !config.pin_fence && !overlaps_pending(o))
        memset((void *)o.pin, 0xff, o.pin_bytes);
    protect_pending(o);
    s->queue.push_back(std::move(o));
    if (config.sched == Config::NOW)
        drain(s);
    return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t s, const char *name, std::function<void()> run)
{
    Op o;
    o.name = name;
    o.run = std::move(run);
    return push(stream_of(s), std::move(o));
}

cudaError_t launch(const char *name, const void *kernel, dim3 g, dim3 b, size_t shared,
                   cudaStream_t s, size_t args_bytes, std::function<void()> body)
{
    Lock lock;
    std::string text = name;
    if (text.size() > 2 && text.front() == '(' && text.back() == ')')
        text = text.substr(1, text.size() - 2);
    const char *nm = intern(text);
    if (cudaError_t e = enter("launch", cudaErrorLaunchFailure))
        return e;
    size_t threads = (size_t)b.x * b.y * b.z;
    if (!threads || threads > 1024 || b.z > 64 || !g.x || !g.y || !g.z || g.y > 65535 ||
        g.z > 65535 || g.x > 2147483647u) {
        warn("launch of %s with grid %u,%u,%u block %u,%u,%u", nm, g.x, g.y, g.z, b.x, b.y, b.z);
        return fail(cudaErrorInvalidConfiguration, nm);
    }
    auto most = max_shared.find(kernel);
    if (shared > (size_t)(most == max_shared.end() ? 48 << 10 : most->second)) {
        warn("launch of %s with %zu bytes of dynamic shared memory", nm, shared);
        return fail(cudaErrorInvalidValue, nm);
    }
    if (args_bytes > 4096)
        fault("launch of %s: its arguments take %zu bytes, more than 4096", nm, args_bytes);
    if (threads % 32)
        warn("launch of %s: a block of %zu threads isn't whole warps", nm, threads);
    return enqueue(s, nm, [=, body = std::move(body)] { run_grid(nm, g, b, shared, body); });
}
} // namespace ctd

using namespace ctd;

extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    CTD_CALL(cudaErrorMemoryAllocation);
    *s = new CUstream_st;
    (*s)->id = next_stream++;
    (*s)->blocking = !(flags & cudaStreamNonBlocking);
    if ((*s)->blocking)
        warn("a stream is made without cudaStreamNonBlocking");
    all.push_back(*s);
    counters.streams++;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}

/* What is queued still runs, as on the device: destroying waits for nothing. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    Lock lock;
    if (injected("cudaStreamDestroy"))
        return fail(cudaErrorUnknown, "cudaStreamDestroy");
    CUstream_st *t = stream_of(s);
    if (!t || t == legacy)
        return fail(cudaErrorInvalidResourceHandle, "cudaStreamDestroy");
    if (t->capture)
        return fail(cudaErrorStreamCaptureUnsupported, "cudaStreamDestroy");
    t->alive = false;
    dead_streams = true;
    counters.streams--;
    sweep();
    return sticky();
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    CTD_CALL(cudaErrorLaunchFailure);
    CUstream_st *t = stream_of(s);
    if (!t)
        return fail(cudaErrorInvalidResourceHandle, "cudaStreamSynchronize");
    if (t->capture) {
        t->origin->spoilt = true;
        return fail(cudaErrorStreamCaptureUnsupported, "cudaStreamSynchronize");
    }
    counters.syncs++;
    drain(t);
    return fail(sticky(), "cudaStreamSynchronize");
}

cudaError_t cudaDeviceSynchronize(void)
{
    CTD_CALL(cudaErrorLaunchFailure);
    if (spoils_capture("cudaDeviceSynchronize"))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaDeviceSynchronize");
    counters.syncs++;
    drain_all();
    return fail(sticky(), "cudaDeviceSynchronize");
}

/* Asking lets the stream get on a little, so that a program that polls comes to an end. */
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    CTD_CALL(cudaErrorLaunchFailure);
    CUstream_st *t = stream_of(s);
    if (!t)
        return fail(cudaErrorInvalidResourceHandle, "cudaStreamQuery");
    if (t->capture) {
        t->origin->spoilt = true;
        return fail(cudaErrorStreamCaptureUnsupported, "cudaStreamQuery");
    }
    progress(t);
    if (sticky())
        return fail(sticky(), "cudaStreamQuery");
    return t->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data)
{
    CTD_CALL(cudaErrorUnknown);
    return enqueue(s, "host function", [=] {
        HostCode host;
        f(data);
    });
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value)
{
    CTD_CALL(cudaErrorInvalidValue);
    if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > 227 << 10)
            return fail(cudaErrorInvalidValue, "cudaFuncSetAttribute");
        max_shared[kernel] = value;
    }
    return cudaSuccess;
}
}
