/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a device; its memory, queues, marks and captured graphs. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/staging.h"

#include <stdio.h>
#include <string.h>

struct ct_mark {
    cudaEvent_t event;
    bool set;
};

struct ct_graph {
    cudaGraphExec_t exec;
};

/* Device memory of a stream, by address: what free gives back to the counts. */
typedef struct block {
    struct block *next;
    void *p;
    size_t bytes;
} block;

#define BUCKETS 1024

struct cti_blocks {
    block *bucket[BUCKETS];
};

/* ---- errors ---- */

/* After these every later call fails too: only a new process helps. */
static bool is_sticky(cudaError_t e)
{
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
        return true;
    default:
        return false;
    }
}

int cti_cuda_check(ct_stream *s, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return CT_OK;
    cudaGetLastError(); /* not to be found again by the next call */
    if (is_sticky(e) && !s->sticky)
        s->sticky = e;
    if (s->sticky)
        return cti_fail(s->err, CT_EDEVICE,
                        "cuda:%d failed: %s (%s); seen at %s, its cause may be any work queued "
                        "before. The device can't be used again by this process; "
                        "CUDA_LAUNCH_BLOCKING=1 finds the call",
                        s->device, cudaGetErrorString(s->sticky), cudaGetErrorName(s->sticky),
                        what);
    return cti_fail(s->err, e == cudaErrorMemoryAllocation ? CT_ENOMEM : CT_EDEVICE,
                    "%s failed on cuda:%d: %s (%s)", what, s->device, cudaGetErrorString(e),
                    cudaGetErrorName(e));
}

int cti_lt_check(ct_stream *s, cublasStatus_t e, const char *what)
{
    if (e == CUBLAS_STATUS_SUCCESS)
        return CT_OK;
    cti_cuda_check(s, cudaPeekAtLastError(), what);
    return cti_fail(s->err, e == CUBLAS_STATUS_ALLOC_FAILED ? CT_ENOMEM : CT_EDEVICE,
                    "%s failed on cuda:%d: %s", what, s->device, cublasLtGetStatusString(e));
}

int cti_dnn_check(ct_stream *s, cudnnStatus_t e, const char *what)
{
    char text[300] = "";
    if (e == CUDNN_STATUS_SUCCESS)
        return CT_OK;
    cti_cuda_check(s, cudaPeekAtLastError(), what);
    cudnnGetLastErrorString(text, sizeof text);
    return cti_fail(s->err, e == CUDNN_STATUS_ALLOC_FAILED ? CT_ENOMEM : CT_EDEVICE,
                    "%s failed on cuda:%d: %s%s%s", what, s->device, cudnnGetErrorString(e),
                    text[0] ? ": " : "", text);
}

int cti_cuda_no_dtype(ct_stream *s, const char *what, ct_dtype dtype)
{
    return cti_fail(s->err, CT_EDTYPE,
                    "%s: %s isn't possible on cuda; float32, bfloat16 and float16 are", what,
                    ct_dtype_name(dtype));
}

/* ---- opening ---- */

/* The oldest architecture that the kernels are built for. */
#define OLDEST_CC 80

static int describe(int index, struct cudaDeviceProp *prop, char *what, size_t cap)
{
    int n = 0, driver = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    cudaDriverGetVersion(&driver);
    if (e != cudaSuccess)
        cudaGetLastError();
    if (e == cudaErrorInsufficientDriver)
        snprintf(what, cap,
                 driver ? "the NVIDIA driver is too old (it is for CUDA %d.%d, %d.%d is needed)" :
                          "no NVIDIA driver",
                 driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
    else if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        snprintf(what, cap, "no NVIDIA device");
    else if (e != cudaSuccess)
        snprintf(what, cap, "%s", cudaGetErrorString(e));
    else if (index >= n)
        snprintf(what, cap, "there is no cuda:%d; there %s %d device%s", index, n == 1 ? "is" : "are",
                 n, n == 1 ? "" : "s");
    else if ((e = cudaGetDeviceProperties(prop, index)) != cudaSuccess)
        snprintf(what, cap, "cuda:%d: %s", index, cudaGetErrorString(e));
    else if (prop->major * 10 + prop->minor < OLDEST_CC)
        snprintf(what, cap, "cuda:%d (%.80s) is too old: compute capability %d.%d, %d.%d is needed",
                 index, prop->name, prop->major, prop->minor, OLDEST_CC / 10, OLDEST_CC % 10);
    else
        return snprintf(what, cap, "%.100s, sm_%d%d", prop->name, prop->major, prop->minor), CT_OK;
    return CT_EDEVICE;
}

int cti_cuda_probe(int index, char *what, size_t cap)
{
    struct cudaDeviceProp prop;
    return describe(index, &prop, what, cap);
}

static int open_queues(ct_stream *s)
{
    int r = cti_cuda_check(s, cudaSetDevice(s->device), "cudaSetDevice");
    if (r == CT_OK)
        r = cti_cuda_check(s, cudaStreamCreateWithFlags(&s->compute, cudaStreamNonBlocking),
                           "making a stream");
    if (r == CT_OK)
        r = cti_cuda_check(s, cudaStreamCreateWithFlags(&s->copy, cudaStreamNonBlocking),
                           "making a stream");
    if (r == CT_OK)
        r = cti_staging_open(s);
    if (r == CT_OK)
        r = cti_lt_open(s);
    return r == CT_OK ? cti_dnn_open(s) : r;
}

static void mem_close(ct_stream *s)
{
    if (!s)
        return;
    if (s->compute)
        cudaStreamSynchronize(s->compute);
    if (s->copy)
        cudaStreamSynchronize(s->copy);
    cti_dnn_close(s);
    cti_lt_close(s);
    cti_staging_close(s);
    for (int i = 0; s->blocks && i < BUCKETS; i++) {
        for (block *b = s->blocks->bucket[i], *next; b; b = next) {
            next = b->next;
            cudaFree(b->p);
            cti_mem_give(s->mem, b->bytes);
            cti_free(s->mem, b);
        }
    }
    if (s->compute)
        cudaStreamDestroy(s->compute);
    if (s->copy)
        cudaStreamDestroy(s->copy);
    cudaGetLastError();
    cti_free(s->mem, s->blocks);
    cti_free(s->mem, s);
}

static int mem_open(const ct_stream_opts *opts, ct_stream **out)
{
    struct cudaDeviceProp prop;
    char what[160];
    *out = NULL;
    if (describe(opts->index, &prop, what, sizeof what) < 0)
        return cti_fail(opts->err, CT_EDEVICE, "%s", what);
    ct_stream *s = cti_alloc(opts->mem, sizeof *s, "CUDA stream");
    struct cti_blocks *blocks = cti_alloc(opts->mem, sizeof *blocks, "CUDA stream");
    if (!s || !blocks) {
        cti_free(opts->mem, s);
        cti_free(opts->mem, blocks);
        return cti_fail(opts->err, CT_ENOMEM, "out of memory for a CUDA stream");
    }
    *s = (ct_stream){.mem = opts->mem,
                     .err = opts->err,
                     .device = opts->index,
                     .threads = opts->threads,
                     .sms = prop.multiProcessorCount,
                     .cc = prop.major * 10 + prop.minor,
                     .tf32 = opts->tf32,
                     .blocks = blocks};
    int r = open_queues(s);
    if (r < 0) {
        mem_close(s);
        return r;
    }
    *out = s;
    return CT_OK;
}

static void mem_enter(ct_stream *s)
{
    cudaSetDevice(s->device); /* a failure is found by the work itself */
}

/* ---- memory ---- */

static block **find(ct_stream *s, const void *p)
{
    block **at = &s->blocks->bucket[(uintptr_t)p / 256 % BUCKETS];
    while (*at && (*at)->p != p)
        at = &(*at)->next;
    return at;
}

static void *mem_alloc(ct_stream *s, size_t bytes)
{
    block *b;
    if (!cti_mem_take(s->mem, bytes))
        return NULL;
    b = cti_alloc(s->mem, sizeof *b, "CUDA block");
    if (!b || cudaMalloc(&b->p, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError(); /* out of memory is no fault of the device: told by the caller */
        cti_free(s->mem, b);
        cti_mem_give(s->mem, bytes);
        return NULL;
    }
    b->bytes = bytes;
    *find(s, b->p) = b;
    s->counters.bytes += bytes;
    if (s->counters.bytes > s->counters.peak_bytes)
        s->counters.peak_bytes = s->counters.bytes;
    return b->p;
}

static void mem_free(ct_stream *s, void *p)
{
    if (!p)
        return;
    block **at = find(s, p), *b = *at;
    *at = b->next;
    s->counters.syncs++; /* cudaFree waits for the device */
    cudaFree(p);
    s->counters.bytes -= b->bytes;
    cti_mem_give(s->mem, b->bytes);
    cti_free(s->mem, b);
}

static int mem_room(ct_stream *s, size_t *free, size_t *total)
{
    return cti_cuda_check(s, cudaMemGetInfo(free, total), "cudaMemGetInfo");
}

static void *mem_pinned_alloc(ct_stream *s, size_t bytes)
{
    void *p = NULL;
    if (!cti_mem_take(s->mem, 0))
        return NULL;
    cudaError_t e = cudaMallocHost(&p, bytes ? bytes : 1);
    if (e == cudaSuccess)
        return p;
    cti_mem_give(s->mem, 0);
    if (e == cudaErrorMemoryAllocation)
        cudaGetLastError(); /* told by the caller */
    else
        cti_cuda_check(s, e, "pinning memory");
    return NULL;
}

static void mem_pinned_free(ct_stream *s, void *p)
{
    if (!p)
        return;
    cudaFreeHost(p);
    cti_mem_give(s->mem, 0);
}

/* ---- copies ---- */

static cudaStream_t queue_of(const ct_stream *s, ct_queue q)
{
    return q == CT_QUEUE_COPY ? s->copy : s->compute;
}

static int mem_sync(ct_stream *s)
{
    s->counters.syncs++;
    int r = cti_cuda_check(s, cudaStreamSynchronize(s->copy), "waiting for the device");
    return r < 0 ? r : cti_cuda_check(s, cudaStreamSynchronize(s->compute), "waiting for the device");
}

static int mem_download(ct_stream *s, void *host, const void *src, size_t bytes)
{
    if (!bytes)
        return CT_OK;
    int r = cti_cuda_check(
        s, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, s->compute), "a download");
    if (r < 0)
        return r;
    s->counters.syncs++;
    return cti_cuda_check(s, cudaStreamSynchronize(s->compute), "a download");
}

static int mem_copy_in(ct_stream *s, ct_queue q, void *dst, const void *pinned, size_t bytes)
{
    if (!bytes)
        return CT_OK;
    return cti_cuda_check(
        s, cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, queue_of(s, q)), "a copy in");
}

static int mem_copy_out(ct_stream *s, ct_queue q, void *pinned, const void *src, size_t bytes)
{
    if (!bytes)
        return CT_OK;
    return cti_cuda_check(
        s, cudaMemcpyAsync(pinned, src, bytes, cudaMemcpyDeviceToHost, queue_of(s, q)),
        "a copy out");
}

/* ---- marks ---- */

static int mem_mark_new(ct_stream *s, ct_mark **out)
{
    *out = NULL;
    ct_mark *m = cti_alloc(s->mem, sizeof *m, "CUDA mark");
    if (!m)
        return cti_fail(s->err, CT_ENOMEM, "out of memory for an event");
    int r = cti_cuda_check(s, cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming),
                           "making an event");
    if (r < 0) {
        cti_free(s->mem, m);
        return r;
    }
    *out = m;
    return CT_OK;
}

static void mem_mark_free(ct_stream *s, ct_mark *m)
{
    if (!m)
        return;
    cudaEventDestroy(m->event);
    cti_free(s->mem, m);
}

static int mem_mark_set(ct_stream *s, ct_queue q, ct_mark *m)
{
    m->set = true;
    return cti_cuda_check(s, cudaEventRecord(m->event, queue_of(s, q)), "recording an event");
}

static int mem_mark_wait(ct_stream *s, ct_queue q, ct_mark *m)
{
    if (!m->set)
        return CT_OK;
    return cti_cuda_check(s, cudaStreamWaitEvent(queue_of(s, q), m->event, 0),
                          "waiting for an event");
}

static int mem_mark_done(ct_stream *s, ct_mark *m)
{
    if (!m->set)
        return 1;
    cudaError_t e = cudaEventQuery(m->event);
    if (e == cudaErrorNotReady) {
        cudaGetLastError();
        return 0;
    }
    int r = cti_cuda_check(s, e, "asking for an event");
    return r < 0 ? r : 1;
}

static int mem_mark_sync(ct_stream *s, ct_mark *m)
{
    int r = mem_mark_done(s, m);
    if (r != 0)
        return r < 0 ? r : CT_OK;
    s->counters.syncs++;
    return cti_cuda_check(s, cudaEventSynchronize(m->event), "waiting for an event");
}

/* ---- capture ---- */

static int mem_capture_begin(ct_stream *s)
{
    /* Thread-local: other contexts may allocate meanwhile. */
    int r = cti_cuda_check(
        s, cudaStreamBeginCapture(s->compute, cudaStreamCaptureModeThreadLocal), "a capture");
    s->capturing = r == CT_OK;
    return r;
}

static int mem_capture_end(ct_stream *s, ct_graph **out)
{
    cudaGraph_t graph = NULL;
    s->capturing = false;
    cudaError_t e = cudaStreamEndCapture(s->compute, &graph);
    if (!out || e != cudaSuccess) {
        if (graph)
            cudaGraphDestroy(graph);
        cudaGetLastError();
        return out ? cti_cuda_check(s, e, "the end of a capture") : CT_OK;
    }
    *out = NULL;
    ct_graph *g = cti_alloc(s->mem, sizeof *g, "CUDA graph");
    int r = g ? cti_cuda_check(s, cudaGraphInstantiate(&g->exec, graph, 0), "making a graph") :
                cti_fail(s->err, CT_ENOMEM, "out of memory for a captured graph");
    cudaGraphDestroy(graph);
    if (r < 0) {
        cti_free(s->mem, g);
        return r;
    }
    *out = g;
    return CT_OK;
}

static int mem_graph_launch(ct_stream *s, ct_graph *g)
{
    return cti_cuda_check(s, cudaGraphLaunch(g->exec, s->compute), "launching a captured graph");
}

static void mem_graph_free(ct_stream *s, ct_graph *g)
{
    if (!g)
        return;
    cudaGraphExecDestroy(g->exec);
    cti_free(s->mem, g);
}

/* ---- looking in ---- */

static void mem_info(ct_stream *s, ct_device_info *out)
{
    struct cudaDeviceProp prop;
    int runtime = 0;
    size_t dnn = cudnnGetVersion(), lt = cublasLtGetVersion();
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "cuda:%d", s->device);
    if (cudaGetDeviceProperties(&prop, s->device) == cudaSuccess)
        snprintf(out->isa, sizeof out->isa, "sm_%d, %.48s", s->cc, prop.name);
    cudaRuntimeGetVersion(&runtime);
    snprintf(out->libraries, sizeof out->libraries, "CUDA %d.%d, cuBLAS %zu.%zu.%zu, cuDNN %zu.%zu.%zu",
             runtime / 1000, runtime % 1000 / 10, lt / 10000, lt / 100 % 100, lt % 100, dnn / 10000,
             dnn / 100 % 100, dnn % 100);
    out->threads = s->threads > 0 ? s->threads : 1;
}

static void mem_counters(ct_stream *s, ct_device_counters *out)
{
    *out = s->counters;
}

const ct_k_mem cti_cuda_mem = {
    .open = mem_open,
    .close = mem_close,
    .enter = mem_enter,
    .alloc = mem_alloc,
    .free = mem_free,
    .upload = cti_staging_upload,
    .download = mem_download,
    .sync = mem_sync,
    .info = mem_info,
    .counters = mem_counters,
    .room = mem_room,
    .pinned_alloc = mem_pinned_alloc,
    .pinned_free = mem_pinned_free,
    .copy_in = mem_copy_in,
    .copy_out = mem_copy_out,
    .mark_new = mem_mark_new,
    .mark_free = mem_mark_free,
    .mark_set = mem_mark_set,
    .mark_wait = mem_mark_wait,
    .mark_done = mem_mark_done,
    .mark_sync = mem_mark_sync,
    .capture_begin = mem_capture_begin,
    .capture_end = mem_capture_end,
    .graph_launch = mem_graph_launch,
    .graph_free = mem_graph_free,
};
