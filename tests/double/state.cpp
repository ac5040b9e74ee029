/* SPDX-License-Identifier: Apache-2.0 */
/* The environment, findings, injected failures, counters, and the hooks for tests. */
#include "ctd.h"
#include "hooks.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <unistd.h>
#include <unordered_map>

namespace ctd
{
Config config;
Counters counters;
const char *current_op = "";

static std::recursive_mutex mutex;
static uint64_t random_state = 88172645463325252ull;
static bool is_sticky;
static thread_local cudaError_t last_error;

Lock::Lock()
{
    mutex.lock();
}

Lock::~Lock()
{
    mutex.unlock();
}

uint64_t rnd()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

void fault(const char *fmt, ...)
{
    char b[1024];
    va_list a;
    va_start(a, fmt);
    vsnprintf(b, sizeof b, fmt, a);
    va_end(a);
    fflush(stdout);
    fprintf(stderr, "ctd: FAULT: %s%s%s%s\n", b, *current_op ? " [in " : "", current_op,
            *current_op ? "]" : "");
    if (!config.keep_going)
        _exit(70);
    set_sticky();
}

void warn(const char *fmt, ...)
{
    static std::set<std::string> told;
    char b[1024];
    va_list a;
    va_start(a, fmt);
    vsnprintf(b, sizeof b, fmt, a);
    va_end(a);
    if (told.insert(b).second)
        fprintf(stderr, "ctd: warning: %s\n", b);
}

void trace(const char *fmt, ...)
{
    va_list a;
    if (!config.trace)
        return;
    va_start(a, fmt);
    fputs("ctd: ", stderr);
    vfprintf(stderr, fmt, a);
    fputc('\n', stderr);
    va_end(a);
}

/* ---- errors ---- */

cudaError_t sticky()
{
    return is_sticky ? cudaErrorIllegalAddress : cudaSuccess;
}

void set_sticky()
{
    is_sticky = true;
    last_error = cudaErrorIllegalAddress;
}

cudaError_t fail(cudaError_t e, const char *who)
{
    if (!e)
        return e;
    last_error = e;
    trace("%s -> %s", who, cudaGetErrorName(e));
    return e;
}

/* ---- injected failures ---- */

struct Injection {
    std::string function;
    long left;
    bool for_good; /* "name:N+": the N-th call and all later ones */
};
static std::vector<Injection> injections;
static std::atomic<bool> any_injection;

static bool fires(const char *function, bool any)
{
    bool hit = false;
    for (Injection &i : injections) {
        if (i.left <= 0 && !i.for_good)
            continue;
        if (i.function != function && !(any && i.function == "any"))
            continue;
        hit = --i.left <= 0 || hit;
    }
    return hit;
}

bool injected(const char *function)
{
    if (!any_injection || !fires(function, true))
        return false;
    trace("%s fails, as asked for", function);
    return true;
}

bool injected_sticky()
{
    return any_injection && fires("sticky", false);
}

cudaError_t enter(const char *function, cudaError_t natural)
{
    if (injected(function))
        return fail(natural, function);
    return is_sticky ? fail(cudaErrorIllegalAddress, function) : cudaSuccess;
}

/* ---- names and counts of operations ---- */

static std::unordered_map<std::string, long> &op_counts()
{
    static auto *counts = new std::unordered_map<std::string, long>;
    return *counts;
}

const char *intern(const std::string &text)
{
    return op_counts().try_emplace(text, 0).first->first.c_str();
}

void count_op(const char *name)
{
    op_counts()[name]++;
}

/* ---- start and end ---- */

static void at_exit()
{
    Lock lock;
    if (config.leak_check && ctd_leaks() != 0) {
        long device, pinned;
        leaks(&device, &pinned, true);
        fprintf(stderr,
                "ctd: LEAK: %ld device and %ld pinned allocations, %ld streams, %ld events, %ld "
                "graphs, %ld library objects; %ld operations never ran\n",
                device, pinned, counters.streams, counters.events, counters.graphs,
                counters.handles, pending_ops());
        fflush(nullptr);
        _exit(72);
    }
}

static const char *choice(const char *name, std::initializer_list<const char *> words, int *out)
{
    const char *v = getenv(name);
    int i = 0;
    if (!v || !*v)
        return nullptr;
    for (const char *w : words) {
        if (!strcmp(v, w)) {
            *out = i;
            return v;
        }
        i++;
    }
    fprintf(stderr, "ctd: %s=%s isn't known\n", name, v);
    _exit(70);
}

static bool flag(const char *name, bool unset)
{
    const char *v = getenv(name);
    return v && *v ? *v != '0' : unset;
}

static struct Start {
    Start()
    {
        int i = 0;
        if (choice("CTD_SCHED", {"now", "lazy", "eager", "rand"}, &i))
            config.sched = (decltype(config.sched))i;
        if (choice("CTD_ORDER", {"fwd", "rev", "rand"}, &i))
            config.order = (decltype(config.order))i;
        if (choice("CTD_PIN", {"plain", "fence"}, &i))
            config.pin_fence = i == 1;
        if (choice("CTD_FENCE", {"0", "1", "pages"}, &i)) {
            config.fence = i != 0;
            config.pages = i == 2;
        }
        config.keep_going = flag("CTD_CONTINUE", false);
        config.leak_check = flag("CTD_LEAKCHECK", false);
        config.trace = flag("CTD_TRACE", false);
        config.legacy_ok = flag("CTD_LEGACY_OK", false);
        if (const char *v = getenv("CTD_SEED"))
            random_state ^= strtoull(v, nullptr, 10) * 0x9E3779B97F4A7C15ull;
        random_state += random_state == 0;
        if (const char *v = getenv("CTD_MEM"))
            config.memory = strtoull(v, nullptr, 10);
        if (const char *v = getenv("CTD_DEVICES"))
            config.devices = atoi(v);
        if (const char *v = getenv("CTD_CC"))
            config.cc = atoi(v);
        if (const char *v = getenv("CTD_DNN_REFUSE"))
            config.refuse = v;
        config.plans = getenv("CTD_PLANS");
        ctd_fail(getenv("CTD_FAIL"));
        atexit(at_exit);
    }
} start;
} // namespace ctd

using namespace ctd;

CTD_EXPORT void ctd_fail(const char *spec)
{
    Lock lock;
    injections.clear();
    for (const char *p = spec ? spec : ""; *p;) {
        size_t n = strcspn(p, ",");
        std::string item(p, n);
        size_t colon = item.find(':');
        char *end = nullptr;
        long at = colon == std::string::npos ? 1 : strtol(item.c_str() + colon + 1, &end, 10);
        injections.push_back(Injection{item.substr(0, colon), at, end && *end == '+'});
        p += n + (p[n] == ',');
    }
    any_injection = !injections.empty();
}

CTD_EXPORT void ctd_unstick(void)
{
    Lock lock;
    is_sticky = false;
    last_error = cudaSuccess;
}

CTD_EXPORT long ctd_count(const char *prefix)
{
    Lock lock;
    long n = 0;
    for (const auto &c : op_counts())
        if (!c.first.compare(0, strlen(prefix), prefix))
            n += c.second;
    return n;
}

CTD_EXPORT long ctd_syncs(void)
{
    return counters.syncs;
}

CTD_EXPORT long ctd_mallocs(void)
{
    return counters.mallocs;
}

CTD_EXPORT size_t ctd_live_bytes(void)
{
    return live_bytes();
}

CTD_EXPORT long ctd_leaks(void)
{
    Lock lock;
    long device, pinned;
    leaks(&device, &pinned, false);
    return device + pinned + counters.streams + counters.events + counters.graphs +
           counters.handles;
}

extern "C" {
cudaError_t cudaGetLastError(void)
{
    cudaError_t e = is_sticky ? cudaErrorIllegalAddress : last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return is_sticky ? cudaErrorIllegalAddress : last_error;
}
}
