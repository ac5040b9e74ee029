/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one grid: blocks one after another, the threads of a block as fibers that switch only
 * where a thread has to wait. One fiber runs thread after thread until one of them waits, so
 * that a kernel without barriers needs a single fiber. */
#include "fiber.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

namespace ctd
{
uint3 tidx, bidx;
dim3 bdim, gdim;

enum State : uint8_t { NEW, READY, AT_BLOCK, AT_WARP, DONE };

struct Lane {
    Fiber *fiber;
    uint3 tid;
    unsigned mask, source;
    uint64_t bits, result;
    int line, predicate;
    unsigned warp_epoch;
    WarpOp op;
};
struct Warp {
    unsigned waiting, exited;
};

enum { MAX_THREADS = 1024 };
static Lane lanes[MAX_THREADS];
static State states[MAX_THREADS];
static Warp warps[MAX_THREADS / 32];
static uint16_t order[MAX_THREADS];
static unsigned cur; /* the running thread */
static unsigned n_threads, next_new, n_left, n_at_block, n_ready;
static int block_result;
static unsigned block_number;
static const char *kernel_name;
static const std::function<void()> *kernel_body;
static Fiber *running;
static std::vector<Fiber *> &idle = *new std::vector<Fiber *>; /* never destroyed */

unsigned lane_id()
{
    return cur & 31;
}

unsigned thread_number()
{
    return cur;
}

const char *kernel()
{
    return kernel_name;
}

unsigned warp_epoch()
{
    return lanes[cur].warp_epoch;
}

static void to_scheduler()
{
    fiber_leave(running);
}

static void thread_ends()
{
    Warp &w = warps[cur / 32];
    states[cur] = DONE;
    n_left--;
    w.exited |= 1u << (cur & 31);
    if (!w.waiting)
        return;
    for (unsigned i = 0; i < 32; i++)
        if ((w.waiting >> i & 1) && (lanes[cur / 32 * 32 + i].mask >> (cur & 31) & 1))
            fault(
                "kernel %s: thread %u exits while lane %u waits in a warp exchange (line %d) whose "
                "mask %#x names it",
                kernel_name, cur, i, lanes[cur / 32 * 32 + i].line, lanes[cur / 32 * 32 + i].mask);
}

/* The body of each fiber, for the life of the process: take threads that have not begun until
 * there are none; then the fiber is idle. */
void fiber_body(Fiber *self)
{
    for (;;) {
        while (next_new < n_threads) {
            unsigned t = order[next_new++];
            Lane &l = lanes[t];
            cur = t;
            l.tid = bdim.y * bdim.z == 1 ?
                        make_uint3(t, 0, 0) :
                        make_uint3(t % bdim.x, t / bdim.x % bdim.y, t / bdim.x / bdim.y);
            l.warp_epoch = 1;
            l.fiber = self;
            tidx = l.tid;
            states[t] = READY;
            (*kernel_body)();
            thread_ends();
        }
        idle.push_back(self);
        fiber_leave(self);
    }
}

static void resume(Fiber *f)
{
    running = f;
    fiber_enter(f);
}

static Fiber *idle_fiber()
{
    if (idle.empty())
        return fiber_new();
    Fiber *f = idle.back();
    idle.pop_back();
    return f;
}

int sync_block(int predicate, int line)
{
    Lane &me = lanes[cur];
    me.line = line;
    me.predicate = predicate;
    states[cur] = AT_BLOCK;
    n_at_block++;
    to_scheduler();
    return block_result;
}

/* The last lane of the mask has come: everyone gets its result. */
static bool release_warp(unsigned base, const Lane &me)
{
    unsigned ballot = 0;
    for (unsigned i = 0; i < 32; i++) {
        const Lane &l = lanes[base + i];
        if (!(me.mask >> i & 1))
            continue;
        if (l.mask != me.mask || l.op != me.op)
            return false; /* a deadlock, reported by the scheduler */
        ballot |= (unsigned)(l.bits != 0) << i;
    }
    for (unsigned i = 0; i < 32; i++) {
        Lane &l = lanes[base + i];
        if (!(me.mask >> i & 1))
            continue;
        l.result = l.op == WARP_BALLOT ? ballot : lanes[base + (l.source & 31)].bits;
        l.warp_epoch++;
        states[base + i] = READY;
        n_ready++;
    }
    warps[base / 32].waiting &= ~me.mask;
    return true;
}

uint64_t sync_warp(WarpOp op, unsigned mask, uint64_t bits, unsigned source, int line)
{
    unsigned base = cur / 32 * 32, bit = cur & 31;
    Warp &w = warps[base / 32];
    Lane &me = lanes[cur];
    if (!(mask >> bit & 1))
        fault("kernel %s: thread %u calls a warp exchange with mask %#x, which lacks it",
              kernel_name, cur, mask);
    if (op == WARP_SHUFFLE && !(mask >> (source & 31) & 1))
        fault("kernel %s: thread %u shuffles from lane %u, not in mask %#x", kernel_name, cur,
              source, mask);
    if (mask & w.exited)
        fault("kernel %s: thread %u in a warp exchange whose mask %#x names lane %d, which has "
              "exited or doesn't exist",
              kernel_name, cur, mask, __builtin_ctz(mask & w.exited));
    me.op = op;
    me.mask = mask;
    me.bits = bits;
    me.source = source;
    me.line = line;
    states[cur] = AT_WARP;
    w.waiting |= 1u << bit;
    if ((w.waiting & mask) == mask && release_warp(base, me)) {
        n_ready--; /* this lane runs on, ahead of the others */
        return me.result;
    }
    to_scheduler();
    return me.result;
}

static void where(unsigned t, char *b, size_t n)
{
    static const char *const text[] = {"not started", "running", "at __syncthreads",
                                       "in a warp exchange", "exited"};
    snprintf(b, n, "thread %u %s (line %d)", t, text[states[t]], lanes[t].line);
}

/* No thread can go on: either all wait at the barrier, or it is a finding. */
static void release_block()
{
    char a[80] = "", b[80] = "";
    unsigned first = MAX_THREADS;
    if (n_at_block < n_left || n_left < n_threads) {
        for (unsigned t = 0; t < n_threads; t++) {
            if (states[t] == DONE && n_at_block < n_left)
                continue;
            if (first == MAX_THREADS) {
                first = t;
                where(t, a, sizeof a);
            } else if (states[t] != states[first] || lanes[t].line != lanes[first].line) {
                where(t, b, sizeof b);
                break;
            }
        }
        fault("kernel %s block %u: %s: %s; %s", kernel_name, block_number,
              n_at_block < n_left ? "threads wait for each other" :
                                    "__syncthreads is not reached by threads that have exited",
              a, b);
        if (n_at_block < n_left)
            abort();
    }
    block_result = 0;
    for (unsigned t = 0; t < n_threads; t++)
        if (states[t] == AT_BLOCK) {
            block_result += lanes[t].predicate;
            lanes[t].warp_epoch++;
            states[t] = READY;
            n_ready++;
        }
    n_at_block = 0;
    shared_barrier();
}

static void run_block()
{
    next_new = 0;
    n_left = n_threads;
    n_at_block = n_ready = 0;
    for (unsigned w = 0; w < (n_threads + 31) / 32; w++) {
        unsigned have = n_threads - w * 32;
        warps[w] = Warp{0, have >= 32 ? 0 : ~0u << have};
    }
    shared_block();
    while (n_left) {
        while (next_new < n_threads)
            resume(idle_fiber());
        while (n_ready)
            for (unsigned i = 0; i < n_threads; i++) {
                unsigned t = order[i];
                if (states[t] != READY)
                    continue;
                n_ready--;
                cur = t;
                tidx = lanes[t].tid;
                resume(lanes[t].fiber);
            }
        if (n_left)
            release_block();
    }
}

static uint64_t coprime(uint64_t n)
{
    for (;;) {
        uint64_t a = rnd() % n, x = a, y = n;
        while (y) {
            uint64_t r = x % y;
            x = y;
            y = r;
        }
        if (x == 1)
            return a;
    }
}

void run_grid(const char *name, dim3 grid, dim3 block, size_t shared,
              const std::function<void()> &body)
{
    uint64_t n_blocks = (uint64_t)grid.x * grid.y * grid.z, mul = 1, add = 0;
    kernel_name = name;
    kernel_body = &body;
    bdim = block;
    gdim = grid;
    n_threads = block.x * block.y * block.z;
    shared_launch(shared);
    for (unsigned i = 0; i < n_threads; i++)
        order[i] = (uint16_t)(config.order == Config::REV ? n_threads - 1 - i : i);
    if (config.order == Config::SHUFFLE) {
        for (unsigned i = n_threads; i > 1; i--)
            std::swap(order[i - 1], order[rnd() % i]);
        mul = coprime(n_blocks);
        add = rnd() % n_blocks;
    }
    for (uint64_t i = 0; i < n_blocks; i++) {
        uint64_t b = config.order == Config::REV ? n_blocks - 1 - i : (i * mul + add) % n_blocks;
        block_number = (unsigned)b;
        bidx = make_uint3((unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                          (unsigned)(b / grid.x / grid.y));
        run_block();
    }
}
} // namespace ctd
