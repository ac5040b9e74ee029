/* SPDX-License-Identifier: Apache-2.0 */
/* Device and pinned memory. Addresses are handed out once: each allocation ends at a page that
 * can't be touched, as closely as an alignment of 256 bytes allows, and freed memory stays
 * unusable. Device memory is closed to the host, and opened to the thread that runs device
 * operations: by a protection key where the processor has them, else by one mprotect over all of
 * it, for which guard pages map an empty file (touching them is SIGBUS whatever their
 * protection). Fresh memory reads as 0xff, NaN. */
#include "ctd.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace ctd
{
enum { PAGE = 4096, GUARD = 16 * PAGE, FILL_BYTES = 1 << 20, CHECKED_PER_FLUSH = 32 };

struct Arena {
    uintptr_t base = 0, next = 0, end = 0;
    std::vector<Alloc> allocs; /* by address */
};
static Arena *const arenas = new Arena[2]; /* never destroyed: programs free at exit, too */
static int empty_file = -1, fill_file = -1;
static int pkey = -1;
static uint64_t next_id = 1;
static size_t device_live;
static int depth; /* of Running */
static size_t check_next;
static struct sigaction old_segv, old_bus;
static thread_local int device_now;

int current_device()
{
    return device_now;
}

/* ---- the fence ---- */

static void open_fence(bool open)
{
    Arena &a = arenas[(int)Kind::DEVICE];
    if (!config.fence || !a.base)
        return;
    if (pkey >= 0)
        pkey_set(pkey, open ? 0 : PKEY_DISABLE_ACCESS);
    else if (a.next > a.base)
        mprotect((void *)a.base, a.next - a.base, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void say(const char *text, int n)
{
    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(71);
}

static void on_fault(int sig, siginfo_t *info, void *)
{
    uintptr_t q = (uintptr_t)info->si_addr;
    const char *who = depth ? "a device operation" : "host code";
    Alloc *a = find_alloc((void *)q), *before = nullptr;
    char b[400];
    int n;
    for (int k = 0; k < 2; k++)
        for (Alloc &c : arenas[k].allocs)
            if (q >= c.map + c.map_bytes && q < c.map + c.map_bytes + GUARD)
                before = &c;
    if (a && a->kind == Kind::DEVICE)
        n = snprintf(
            b, sizeof b,
            "ctd: FAULT: %s touched device memory at %#zx: allocation #%zu of %zu bytes%s, "
            "offset %td%s%s\n",
            who, q, (size_t)a->id, a->size, a->live ? "" : " (FREED)", (ptrdiff_t)(q - a->p),
            depth ? ", in " : "", current_op);
    else if (a)
        n = snprintf(b, sizeof b,
                     "ctd: FAULT: %s touched pinned buffer #%zu (%zu bytes), offset %td, %s%s%s\n",
                     who, (size_t)a->id, a->size, (ptrdiff_t)(q - a->p),
                     a->live ? "while a copy that uses it is pending" : "which is FREED",
                     depth ? ", in " : "", current_op);
    else if (before)
        n = snprintf(
            b, sizeof b,
            "ctd: FAULT: %s touched %td bytes past the end of %s allocation #%zu (%zu bytes)%s%s\n",
            who, (ptrdiff_t)(q - before->p - before->size),
            before->kind == Kind::DEVICE ? "device" : "pinned", (size_t)before->id, before->size,
            depth ? ", in " : "", current_op);
    else if (depth)
        n = snprintf(
            b, sizeof b,
            "ctd: FAULT: segmentation fault at %#zx in %s: no allocation of the double is there; "
            "a host pointer passed to a kernel, or far past an end\n",
            q, current_op);
    else { /* not ours */
        sigaction(sig, sig == SIGBUS ? &old_bus : &old_segv, nullptr);
        return;
    }
    say(b, n);
    _exit(70);
}

static bool arena_open(Arena &a, bool device)
{
    static const size_t sizes[] = {(size_t)8 << 40, (size_t)1 << 40, (size_t)64 << 30};
    for (size_t n : sizes) {
        void *p = mmap(nullptr, n, PROT_NONE, MAP_SHARED | MAP_NORESERVE, empty_file, 0);
        if (p == MAP_FAILED)
            continue;
        a.base = a.next = (uintptr_t)p;
        a.end = a.base + n;
        break;
    }
    if (device && config.fence && !config.pages) {
        pkey = pkey_alloc(0, 0);
        open_fence(depth > 0);
    }
    return a.base != 0;
}

static bool memory_open()
{
    if (fill_file >= 0)
        return true;
    empty_file = memfd_create("ctd-guard", MFD_CLOEXEC);
    fill_file = memfd_create("ctd-fresh", MFD_CLOEXEC);
    std::vector<char> ff(FILL_BYTES, (char)0xff);
    if (empty_file < 0 || fill_file < 0 ||
        write(fill_file, ff.data(), ff.size()) != (ssize_t)ff.size() ||
        !arena_open(arenas[0], true) || !arena_open(arenas[1], false)) {
        fprintf(stderr, "ctd: no address space for device memory\n");
        _exit(70);
    }
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_fault;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &sa, &old_segv);
    sigaction(SIGBUS, &sa, &old_bus);
    return true;
}

Running::Running()
{
    if (depth++ == 0 && memory_open())
        open_fence(true);
}

/* Bytes between an allocation and its pages' ends must be as they were. */
static void check_slack(const Alloc &a, bool all)
{
    uintptr_t first = all ? a.map : std::max(a.map, a.p - 256);
    for (uintptr_t q = a.p + a.size; q < a.map + a.map_bytes; q++)
        if (*(unsigned char *)q != 0xff) {
            fault(
                "something wrote past the end of device allocation #%zu (%zu bytes), at offset %zu",
                (size_t)a.id, a.size, (size_t)(q - a.p));
            return;
        }
    for (uintptr_t q = first; q < a.p; q++)
        if (*(unsigned char *)q != 0xff) {
            fault("something wrote before the start of device allocation #%zu (%zu bytes)",
                  (size_t)a.id, a.size);
            return;
        }
}

Running::~Running()
{
    if (depth == 1) {
        std::vector<Alloc> &v = arenas[0].allocs;
        for (size_t i = 0; i < std::min<size_t>(v.size(), CHECKED_PER_FLUSH); i++) {
            const Alloc &a = v[check_next++ % v.size()];
            if (a.live)
                check_slack(a, false);
        }
        open_fence(false);
    }
    depth--;
}

HostCode::HostCode() : depth(ctd::depth)
{
    ctd::depth = 0;
    open_fence(false);
}

HostCode::~HostCode()
{
    ctd::depth = depth;
    open_fence(true);
}

/* ---- allocations ---- */

Alloc *find_alloc(const void *p)
{
    uintptr_t q = (uintptr_t)p;
    for (int k = 0; k < 2; k++) {
        Arena &r = arenas[k];
        if (q < r.base || q >= r.next)
            continue;
        auto it = std::upper_bound(r.allocs.begin(), r.allocs.end(), q,
                                   [](uintptr_t x, const Alloc &a) { return x < a.map; });
        if (it == r.allocs.begin())
            return nullptr;
        Alloc &a = *--it;
        return q < a.map + a.map_bytes ? &a : nullptr;
    }
    return nullptr;
}

bool is_device(const void *p)
{
    Alloc *a = find_alloc(p);
    return a && a->kind == Kind::DEVICE;
}

bool check_range(const char *who, const char *what, const void *p, size_t bytes)
{
    Alloc *a = find_alloc(p);
    if (bytes == 0)
        return true;
    if (!a || a->kind != Kind::DEVICE)
        fault("%s: %s = %p isn't device memory", who, what, p);
    else if (!a->live)
        fault("%s: %s points into freed device allocation #%zu", who, what, (size_t)a->id);
    else if ((uintptr_t)p < a->p || (uintptr_t)p + bytes > a->p + a->size)
        fault("%s: %s needs %zu bytes from offset %td, device allocation #%zu has %zu", who, what,
              bytes, (ptrdiff_t)((uintptr_t)p - a->p), (size_t)a->id, a->size);
    else
        return true;
    return false;
}

size_t live_bytes()
{
    return device_live;
}

void leaks(long *device, long *pinned, bool print)
{
    long n[2] = {0, 0};
    for (int k = 0; k < 2; k++)
        for (const Alloc &a : arenas[k].allocs)
            if (a.live && ++n[(int)a.kind] <= 5 && print)
                fprintf(stderr, "ctd: leak: %s allocation #%zu, %zu bytes\n",
                        a.kind == Kind::DEVICE ? "device" : "pinned", (size_t)a.id, a.size);
    *device = n[0];
    *pinned = n[1];
}

static void *allocate(size_t bytes, Kind kind)
{
    Arena &r = arenas[(int)kind];
    size_t body = (bytes + PAGE - 1) / PAGE * PAGE;
    if (!memory_open() || r.next + body + 2 * GUARD > r.end)
        return nullptr;
    uintptr_t map = r.next + GUARD, p = map;
    int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    for (size_t at = 0; at < body; at += FILL_BYTES)
        if (mmap((void *)(map + at), std::min<size_t>(body - at, FILL_BYTES),
                 PROT_READ | PROT_WRITE, flags, fill_file, 0) == MAP_FAILED)
            return nullptr;
    if (kind == Kind::DEVICE) {
        p += (body - bytes) / 256 * 256;
        if (pkey >= 0)
            pkey_mprotect((void *)map, body, PROT_READ | PROT_WRITE, pkey);
        else if (config.fence && !depth)
            mprotect((void *)map, body, PROT_NONE);
        device_live += bytes;
    }
    r.next = map + body;
    r.allocs.push_back(Alloc{p, bytes, map, body, next_id++, kind, device_now, true});
    counters.mallocs++;
    return (void *)p;
}

static void release(Alloc *a)
{
    Arena &r = arenas[(int)a->kind];
    a->live = false;
    if (a->kind == Kind::DEVICE) {
        {
            Running open;
            check_slack(*a, true);
        }
        device_live -= a->size;
    }
    /* The guard again: offsets follow addresses, so that the kernel joins it with its
     * neighbours. */
    mmap((void *)a->map, a->map_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
         empty_file, (off_t)(a->map - r.base));
}

static cudaError_t free_of_kind(void *p, Kind kind, const char *who)
{
    Alloc *a = find_alloc(p);
    if (!a || a->kind != kind || a->p != (uintptr_t)p)
        return fail(cudaErrorInvalidValue, who);
    if (!a->live) {
        fault("%s: allocation #%zu was freed before", who, (size_t)a->id);
        return fail(cudaErrorInvalidValue, who);
    }
    counters.syncs++;
    drain_all();
    release(a);
    return sticky();
}

static cudaError_t allocate_device(void **p, size_t bytes)
{
    *p = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (bytes > config.memory || device_live > config.memory - bytes)
        return cudaErrorMemoryAllocation;
    *p = allocate(bytes, Kind::DEVICE);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
} // namespace ctd

using namespace ctd;

extern "C" {
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    CTD_CALL(cudaErrorMemoryAllocation);
    if (spoils_capture("cudaMalloc"))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaMalloc");
    return fail(allocate_device(p, bytes), "cudaMalloc");
}

/* Memory is given back even after a sticky error, so that leaks can be told. */
cudaError_t cudaFree(void *p)
{
    Lock lock;
    if (injected("cudaFree"))
        return fail(cudaErrorUnknown, "cudaFree");
    if (!p)
        return sticky();
    if (spoils_capture("cudaFree"))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaFree");
    return free_of_kind(p, Kind::DEVICE, "cudaFree");
}

static cudaError_t pinned(void **p, size_t bytes, const char *who)
{
    if (spoils_capture(who))
        return fail(cudaErrorStreamCaptureUnsupported, who);
    *p = bytes ? allocate(bytes, Kind::PINNED) : nullptr;
    return *p || !bytes ? cudaSuccess : fail(cudaErrorMemoryAllocation, who);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    CTD_CALL(cudaErrorMemoryAllocation);
    return pinned(p, bytes, "cudaMallocHost");
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    CTD_CALL(cudaErrorMemoryAllocation);
    return pinned(p, bytes, "cudaHostAlloc");
}

cudaError_t cudaFreeHost(void *p)
{
    Lock lock;
    if (injected("cudaFreeHost"))
        return fail(cudaErrorUnknown, "cudaFreeHost");
    if (p && spoils_capture("cudaFreeHost"))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaFreeHost");
    return p ? free_of_kind(p, Kind::PINNED, "cudaFreeHost") : sticky();
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    CTD_CALL(cudaErrorUnknown);
    *total = config.memory;
    *free = config.memory - std::min(config.memory, device_live);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *at, const void *p)
{
    CTD_CALL(cudaErrorInvalidValue);
    Alloc *a = find_alloc(p);
    memset(at, 0, sizeof *at);
    at->device = -2; /* cudaInvalidDeviceId */
    at->type = cudaMemoryTypeUnregistered;
    at->hostPointer = (void *)p;
    if (a && a->live) {
        at->device = a->device;
        at->devicePointer = (void *)p;
        at->type = a->kind == Kind::DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        at->hostPointer = a->kind == Kind::DEVICE ? nullptr : (void *)p;
    }
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int d)
{
    CTD_CALL(cudaErrorInvalidDevice);
    if (d < 0 || d >= config.devices)
        return fail(config.devices > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice,
                    "cudaSetDevice");
    device_now = d;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *d)
{
    CTD_CALL(cudaErrorUnknown);
    *d = device_now;
    return cudaSuccess;
}
}
