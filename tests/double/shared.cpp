/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of the running block, with a record of who touched each element since which
 * barrier. */
#include "fiber.h"

#include <cstdlib>
#include <unordered_map>
#include <vector>

namespace ctd
{
enum { STATIC_LIMIT = 48 << 10, NOBODY = -1, ATOMICS = -2 };

/* Epochs count barriers, and never restart; a warp's count its exchanges. An access is ordered
 * before this one if a barrier is between, or both are of one warp and an exchange is between. */
struct Touch {
    int writer, reader;
    unsigned write_epoch, read_epoch, write_warp_epoch, read_warp_epoch;
    bool many_lanes, many_warps; /* of the readers since */
};
struct Shadow {
    const char *name;
    size_t elem = 0, n = 0;
    std::vector<char> data;
    std::vector<Touch> touch;
    uint64_t block = 0, launch = 0;
};

static std::unordered_map<const void *, Shadow> shadows;
static struct {
    const void *key;
    Shadow *shadow;
} cache[64];
static Shadow dynamic;
static size_t dynamic_bytes, static_bytes;
static uint64_t blocks, launches;
static unsigned epoch = 1;

void shared_launch(size_t bytes)
{
    launches++;
    dynamic_bytes = bytes;
    static_bytes = 0;
}

void shared_block()
{
    blocks++;
    epoch++;
}

void shared_barrier()
{
    epoch++;
}

static void begin(Shadow &s, size_t elem, size_t n, const char *name)
{
    s.name = name;
    if (s.elem != elem || s.n != n) {
        s.elem = elem;
        s.n = n;
        s.data.resize(elem * n + 16);
        s.touch.assign(n, Touch{NOBODY, NOBODY, 0, 0, 0, 0, false, false});
    }
    memset(s.data.data(), 0xff, s.data.size());
    s.block = blocks;
}

void *shared_get(const void *key, size_t elem, size_t n, const char *name, Shadow **out)
{
    auto &c = cache[(uintptr_t)key * 0x9E3779B97F4A7C15ull >> 58];
    if (c.key != key) {
        c.key = key;
        c.shadow = &shadows[key];
    }
    Shadow &s = *c.shadow;
    if (s.launch != launches) {
        s.launch = launches;
        static_bytes += elem * n;
        if (static_bytes > STATIC_LIMIT)
            fault("kernel %s: %zu bytes of static shared memory, the limit is %d", kernel(),
                  static_bytes, (int)STATIC_LIMIT);
    }
    if (s.block != blocks)
        begin(s, elem, n, name);
    *out = &s;
    return s.data.data();
}

void *shared_dynamic(size_t elem, const char *name, Shadow **out, size_t *n)
{
    if (dynamic.block != blocks)
        begin(dynamic, elem, dynamic_bytes / elem, name);
    if (dynamic.elem != elem)
        fault("kernel %s: dynamic shared memory is used as %s of %zu bytes and as %s of %zu",
              kernel(), dynamic.name, dynamic.elem, name, elem);
    *out = &dynamic;
    *n = dynamic.n;
    return dynamic.data.data();
}

void shared_bounds(const char *name, size_t i, size_t n)
{
    fault("kernel %s: thread %u: shared array %s[%zd] is out of bounds (%zu elements)", kernel(),
          thread_number(), name, (ssize_t)i, n);
    abort();
}

static void race(const Shadow *s, size_t i, const char *before, int who, const char *now)
{
    char other[32] = "an atomic";
    if (who >= 0)
        snprintf(other, sizeof other, "thread %d", who);
    fault("kernel %s: race on shared %s[%zu]: %s %s, thread %u %s with no barrier between",
          kernel(), s->name, i, other, before, thread_number(), now);
}

static bool ordered(int other, unsigned at, unsigned at_warp, int me)
{
    return other == NOBODY || other == me || at != epoch ||
           (other >= 0 && other / 32 == me / 32 && at_warp != warp_epoch());
}

void shared_access(Shadow *s, size_t i, Access how)
{
    static const char *const text[] = {"reads", "writes", "updates by an atomic"};
    Touch &t = s->touch[i];
    int me = (int)thread_number();
    if (!(how == ATOMIC && t.writer == ATOMICS) &&
        !ordered(t.writer, t.write_epoch, t.write_warp_epoch, me))
        race(s, i, "wrote", t.writer, text[how]);
    if (how == READ) {
        bool same_epoch = t.read_epoch == epoch && t.reader != NOBODY;
        bool same_warp = same_epoch && t.reader / 32 == me / 32;
        t.many_warps = same_epoch && (t.many_warps || !same_warp);
        t.many_lanes =
            same_warp && t.read_warp_epoch == warp_epoch() && (t.many_lanes || t.reader != me);
        t.reader = me;
        t.read_epoch = epoch;
        t.read_warp_epoch = warp_epoch();
        return;
    }
    if (t.read_epoch == epoch && t.reader != NOBODY) {
        bool same_warp = t.reader / 32 == me / 32;
        if (t.many_warps || !same_warp ||
            (t.read_warp_epoch == warp_epoch() && (t.many_lanes || t.reader != me)))
            race(s, i, "read", t.reader, text[how]);
    }
    t.writer = how == ATOMIC ? (int)ATOMICS : me;
    t.write_epoch = epoch;
    t.write_warp_epoch = warp_epoch();
    t.reader = NOBODY;
}
} // namespace ctd
