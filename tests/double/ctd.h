/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the software double share: the lock, findings, injected failures, device
 * memory, and the queue of device operations. */
#ifndef DOUBLE_CTD_H
#define DOUBLE_CTD_H

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ctd
{
/* ---- state.cpp ---- */
struct Config {
    enum { NOW, LAZY, EAGER, RAND } sched = LAZY;
    enum { FWD, REV, SHUFFLE } order = FWD; /* of threads and blocks */
    bool pin_fence = false;
    bool fence = true, pages = false;
    bool keep_going = false, leak_check = false, trace = false, legacy_ok = false;
    size_t memory = (size_t)2 << 30;
    int devices = 1, cc = 90;
    const char *plans = nullptr, *refuse = "";
};
extern Config config;
uint64_t rnd(); /* the schedule's randomness: CTD_SEED */

/* Everything of the double happens under one lock. Calls within calls are fine. */
struct Lock {
    Lock();
    ~Lock();
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;
};

/* A finding: prints "ctd: FAULT: ..." with the operation that ran, and exits with status 70, unless
 * CTD_CONTINUE=1 (which makes it a sticky error of the device instead). */
[[gnu::format(printf, 1, 2)]] void fault(const char *fmt, ...);
[[gnu::format(printf, 1, 2)]] void warn(const char *fmt, ...); /* each text once */
void trace(const char *fmt, ...);

extern const char *current_op; /* the device operation that runs now, or "" */

/* True when CTD_FAIL or ctd_fail() wants this call to fail. */
bool injected(const char *function);
bool injected_sticky(); /* asked once for each device operation */
/* The error that a call of the runtime begins with: an injected one or the sticky one, else 0. */
cudaError_t enter(const char *function, cudaError_t natural);
cudaError_t sticky();
void set_sticky();
cudaError_t fail(cudaError_t e, const char *who); /* records the thread's last error */

struct Counters {
    long syncs = 0, mallocs = 0;
    long streams = 0, events = 0, graphs = 0; /* live */
    long handles = 0;                         /* live handles and descriptors of the libraries */
};
extern Counters counters;
void count_op(const char *name);
const char *intern(const std::string &text); /* a copy that lives as long as the process */

/* ---- memory.cpp ---- */
enum class Kind { DEVICE, PINNED };
struct Alloc {
    uintptr_t p;
    size_t size;
    uintptr_t map; /* its pages */
    size_t map_bytes;
    uint64_t id;
    Kind kind;
    int device;
    bool live;
};
Alloc *find_alloc(const void *p); /* also freed ones, whose addresses never come back */
bool is_device(const void *p);
/* [p, p + bytes) must lie in one live device allocation, else it is a finding and false. */
bool check_range(const char *who, const char *what, const void *p, size_t bytes);
size_t live_bytes();
void leaks(long *device, long *pinned, bool print);
/* Opens device memory to this thread while device operations run. */
struct Running {
    Running();
    ~Running();
    Running(const Running &) = delete;
    Running &operator=(const Running &) = delete;
};
struct HostCode { /* the opposite, inside of Running: a host function of a stream */
    int depth;
    HostCode();
    ~HostCode();
};
int current_device();

/* ---- stream.cpp ---- */
struct EventState {
    uint64_t recorded = 0, done = 0;
    struct Where {
        uint64_t version;
        CUstream_st *stream;
    };
    std::vector<Where> where; /* streams that will record the versions not done */
    double time = 0;
};
struct Op {
    enum Kind { RUN, RECORD, WAIT } kind = RUN;
    const char *name = "";
    std::function<void()> run;
    std::shared_ptr<EventState> event;
    uint64_t version = 0;
    uintptr_t pin = 0; /* a pinned range that the operation reads, or writes */
    size_t pin_bytes = 0;
    bool pin_write = false;
};
cudaError_t enqueue(cudaStream_t s, const char *name, std::function<void()> run);
cudaError_t push(CUstream_st *s, Op op); /* or into the capture */
CUstream_st *stream_of(cudaStream_t s);  /* NULL after a finding: not a live stream */
const std::vector<CUstream_st *> &streams();
void drain(CUstream_st *s);
void drain_all();
void drain_blocking();         /* what the legacy default stream waits for */
void run_alone(Op op);         /* now */
bool progress(CUstream_st *s); /* runs one operation; false: there is none */
void await(EventState *e, uint64_t version);
long pending_ops();
/* True, and captures in progress are spoilt, where `who` is not allowed during a capture. */
bool spoils_capture(const char *who);
void capture_op(CUstream_st *s, Op op); /* graph.cpp */

/* ---- fiber.cpp ---- */
void run_grid(const char *name, dim3 grid, dim3 block, size_t shared,
              const std::function<void()> &body);
size_t max_dynamic_shared(const void *kernel);
} // namespace ctd

struct CUstream_st {
    std::deque<ctd::Op> queue;
    unsigned id = 0;
    bool blocking = false, alive = true;
    CUgraph_st *capture = nullptr;
    CUstream_st *origin = nullptr; /* where the capture began */
    bool spoilt = false;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread; /* that began the capture */
    uint64_t captured = 0,
             joined = 0; /* operations in the capture; of them waited for by another */
};
struct CUevent_st {
    std::shared_ptr<ctd::EventState> state = std::make_shared<ctd::EventState>();
    bool timing = true;
    CUstream_st *captured_in = nullptr; /* last recorded in this capturing stream */
    CUgraph_st *captured_graph = nullptr;
    uint64_t captured_at = 0;
};
struct CUgraph_st {
    std::vector<ctd::Op> ops;
};
struct CUgraphExec_st {
    std::vector<ctd::Op> ops;
    std::shared_ptr<ctd::EventState> last = std::make_shared<ctd::EventState>();
    CUstream_st *last_stream = nullptr;
};

/* The beginning of each function of the runtime. */
#define CTD_CALL(natural)                                       \
    ctd::Lock lock_;                                            \
    if (cudaError_t entered_ = ctd::enter(__func__, (natural))) \
    return entered_
/* Of cublasLt and cuDNN: what an injected failure returns. */
#define CTD_LIBRARY(failure)     \
    ctd::Lock lock_;             \
    if (ctd::injected(__func__)) \
    return (failure)

#define CTD_EXPORT extern "C" __attribute__((visibility("default")))

#endif
