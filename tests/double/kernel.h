/* SPDX-License-Identifier: Apache-2.0 */
/* What a .cu file sees when g++ compiles it: launches, thread indices, barriers, warp exchanges,
 * shared memory and atomics. Everything else (math, bf16, f16) comes from the toolkit's own
 * headers, which work on the host. Compile with -ffp-contract=off -Wno-unknown-pragmas.  Shared
 * arrays are proxies, so that each access is checked: read an element into a variable of its
 * type (auto would name the element, which does not compile), and don't take its address but for
 * an atomic. */
#ifndef DOUBLE_KERNEL_H
#define DOUBLE_KERNEL_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#undef __align__
#define __global__
#define __device__
#define __host__
#define __shared__   the_dialect_has_CTI_SHARED_instead
#define __constant__ the_dialect_has_no_constant_memory
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __align__(n)    alignas(n)

namespace ctd
{
/* The running simulated thread. Kernels run under the double's lock, one thread at a time. */
extern uint3 tidx, bidx;
extern dim3 bdim, gdim;

enum WarpOp : uint8_t { WARP_SYNC, WARP_SHUFFLE, WARP_BALLOT };

int sync_block(int predicate, int line); /* number of threads whose predicate is nonzero */
uint64_t sync_warp(WarpOp op, unsigned mask, uint64_t bits, unsigned source, int line);
unsigned lane_id();

struct Shadow; /* who last touched each element of a shared array */
void *shared_get(const void *key, size_t elem, size_t n, const char *name, Shadow **shadow);
void *shared_dynamic(size_t elem, const char *name, Shadow **shadow, size_t *n);
enum Access : uint8_t { READ, WRITE, ATOMIC };
void shared_access(Shadow *shadow, size_t i, Access how);
[[noreturn]] void shared_bounds(const char *name, size_t i, size_t n);

cudaError_t launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
                   cudaStream_t s, size_t args_bytes, std::function<void()> body);

template <class T> struct Shared {
    T *p;
    Shadow *shadow;
    size_t n;
    const char *name;
    Shared(const void *key, size_t count, const char *nm) : n(count), name(nm)
    {
        p = (T *)shared_get(key, sizeof(T), count, nm, &shadow);
    }
    explicit Shared(const char *nm) : name(nm)
    {
        p = (T *)shared_dynamic(sizeof(T), nm, &shadow, &n);
    }
    T load(size_t i) const
    {
        shared_access(shadow, i, READ);
        return p[i];
    }
    void store(size_t i, T v) const
    {
        shared_access(shadow, i, WRITE);
        p[i] = v;
    }

    /* &array[i]: what atomics take. */
    struct Address {
        typedef T type;
        T *p;
        Shadow *shadow;
        size_t i;
    };
    struct Element {
        const Shared &a;
        size_t i;
        Element(const Shared &array, size_t index) : a(array), i(index)
        {
        }
        Element(const Element &) = default;
        operator T() const &&
        {
            return a.load(i);
        }
        const Element &operator=(T v) const &&
        {
            a.store(i, v);
            return *this;
        }
        const Element &operator=(const Element &o) const &&
        {
            a.store(i, o.a.load(o.i));
            return *this;
        }
        void operator+=(T v) const &&
        {
            a.store(i, a.load(i) + v);
        }
        void operator-=(T v) const &&
        {
            a.store(i, a.load(i) - v);
        }
        void operator*=(T v) const &&
        {
            a.store(i, a.load(i) * v);
        }
        Address operator&() const &&
        {
            return Address{a.p + i, a.shadow, i};
        }
        friend void swap(Element x, Element y)
        {
            T t = x.a.load(x.i);
            x.a.store(x.i, y.a.load(y.i));
            y.a.store(y.i, t);
        }
    };
    template <class I> Element operator[](I i) const
    {
        static_assert(std::is_integral<I>::value, "an index is an integer");
        if ((size_t)i >= n)
            shared_bounds(name, (size_t)i, n);
        return Element(*this, (size_t)i);
    }
};

/* A launch: a call through this converts the arguments as a call of the kernel would, now and
 * not when the kernel runs. */
template <class... P> struct Launch {
    const char *name;
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    void (*kernel)(P...);
    cudaError_t operator()(P... args) const
    {
        static_assert((std::is_trivially_copyable<std::remove_reference_t<P>>::value && ...),
                      "arguments of kernels are copied as bytes");
        static_assert((!std::is_reference<P>::value && ...), "kernels take no references");
        void (*k)(P...) = kernel;
        std::tuple<P...> held(args...);
        return launch(name, (const void *)k, grid, block, shared, stream, (sizeof(P) + ... + 0),
                      [k, held] { std::apply(k, held); });
    }
};
template <class... P>
Launch<P...> prepare(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                     void (*kernel)(P...))
{
    return Launch<P...>{name, grid, block, shared, stream, kernel};
}

template <class T> inline uint64_t to_bits(T v)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &v, sizeof v);
    return bits;
}
template <class T> inline T from_bits(uint64_t bits)
{
    T v;
    std::memcpy((void *)&v, &bits, sizeof v);
    return v;
}

template <class T> struct same {
    typedef T type;
};
template <class T, class... L> constexpr bool one_of = (std::is_same<T, L>::value || ...);

template <class T> inline T &slot(T *p)
{
    return *p;
}
template <class A> inline typename A::type &slot(A a)
{
    shared_access(a.shadow, a.i, ATOMIC);
    return *a.p;
}
template <class A> struct pointee {
    typedef typename A::type type;
};
template <class T> struct pointee<T *> {
    typedef T type;
};
} // namespace ctd

#define CTI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    (ctd::prepare(#kernel, (grid), (block), (shared_bytes), (stream), kernel)(__VA_ARGS__))
#define CTI_SHARED(type, name, n) \
    static char ctd_key_##name;   \
    const ctd::Shared<type> name(&ctd_key_##name, std::integral_constant<size_t, (n)>::value, #name)
#define CTI_DYN_SHARED(type, name) const ctd::Shared<type> name(#name)

#define threadIdx ctd::tidx
#define blockIdx  ctd::bidx
#define blockDim  ctd::bdim
#define gridDim   ctd::gdim
#define warpSize  32

#define __syncthreads()        ((void)ctd::sync_block(0, __LINE__))
#define __syncthreads_count(p) ctd::sync_block((p) != 0, __LINE__)
#define __syncthreads_or(p)    (ctd::sync_block((p) != 0, __LINE__) != 0)
#define __syncthreads_and(p)   (ctd::sync_block((p) == 0, __LINE__) == 0)
#define __syncwarp(...)        (ctd::SyncWarp{__LINE__}(__VA_ARGS__))
#define __ballot_sync(m, p) \
    ((unsigned)ctd::sync_warp(ctd::WARP_BALLOT, (m), (p) ? 1 : 0, 0, __LINE__))
#define __any_sync(m, p) (__ballot_sync((m), (p)) != 0)
#define __all_sync(m, p) (__ballot_sync((m), !(p)) == 0)

namespace ctd
{
struct SyncWarp {
    int line;
    void operator()(unsigned mask = 0xffffffffu) const
    {
        sync_warp(WARP_SYNC, mask, 0, 0, line);
    }
};
} // namespace ctd

template <class T> static inline T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32)
{
    unsigned l = ctd::lane_id(), s = (l & (unsigned)(w - 1)) + d >= (unsigned)w ? l : l + d;
    return ctd::from_bits<T>(ctd::sync_warp(ctd::WARP_SHUFFLE, m, ctd::to_bits(v), s, 0));
}
template <class T> static inline T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32)
{
    unsigned l = ctd::lane_id(), s = (l & (unsigned)(w - 1)) < d ? l : l - d;
    return ctd::from_bits<T>(ctd::sync_warp(ctd::WARP_SHUFFLE, m, ctd::to_bits(v), s, 0));
}
template <class T> static inline T __shfl_xor_sync(unsigned m, T v, unsigned x, int w = 32)
{
    unsigned l = ctd::lane_id(), s = l ^ x;
    s = s / (unsigned)w > l / (unsigned)w ? l : s;
    return ctd::from_bits<T>(ctd::sync_warp(ctd::WARP_SHUFFLE, m, ctd::to_bits(v), s, 0));
}
template <class T> static inline T __shfl_sync(unsigned m, T v, int from, int w = 32)
{
    unsigned l = ctd::lane_id(), u = (unsigned)w, s = l / u * u + (unsigned)from % u;
    return ctd::from_bits<T>(ctd::sync_warp(ctd::WARP_SHUFFLE, m, ctd::to_bits(v), s, 0));
}

/* One thread runs at a time, so that an atomic is a plain operation; on shared memory it is checked
 * against plain accesses. The types are those of the device's instructions. */
#define CTD_ATOMIC(name, result, ...)                                \
    template <class A, class T = typename ctd::pointee<A>::type,     \
              class = std::enable_if_t<ctd::one_of<T, __VA_ARGS__>>> \
    static inline T name(A at, typename ctd::same<T>::type v)        \
    {                                                                \
        T &r = ctd::slot(at);                                        \
        T old = r;                                                   \
        r = (result);                                                \
        return old;                                                  \
    }
#define CTD_INTS int, unsigned, unsigned long long
CTD_ATOMIC(atomicAdd, old + v, CTD_INTS, float, double)
CTD_ATOMIC(atomicSub, old - v, int, unsigned)
CTD_ATOMIC(atomicExch, v, CTD_INTS, float)
CTD_ATOMIC(atomicMax, v > old ? v : old, CTD_INTS, long long)
CTD_ATOMIC(atomicMin, v < old ? v : old, CTD_INTS, long long)
CTD_ATOMIC(atomicAnd, old &v, CTD_INTS)
CTD_ATOMIC(atomicOr, old | v, CTD_INTS)
CTD_ATOMIC(atomicXor, old ^ v, CTD_INTS)
CTD_ATOMIC(atomicInc, old >= v ? 0 : old + 1, unsigned)
CTD_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1, unsigned)
#undef CTD_ATOMIC
template <class A, class T = typename ctd::pointee<A>::type,
          class = std::enable_if_t<ctd::one_of<T, CTD_INTS, unsigned short>>>
static inline T atomicCAS(A at, typename ctd::same<T>::type expected, typename ctd::same<T>::type v)
{
    T &r = ctd::slot(at);
    T old = r;
    r = old == expected ? v : old;
    return old;
}
#undef CTD_INTS

static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}
static inline void __threadfence_system()
{
}
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}

template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

static inline float __uint_as_float(unsigned u)
{
    return ctd::from_bits<float>(u);
}
static inline float __int_as_float(int i)
{
    return ctd::from_bits<float>((unsigned)i);
}
static inline unsigned __float_as_uint(float f)
{
    return (unsigned)ctd::to_bits(f);
}
static inline int __float_as_int(float f)
{
    return (int)__float_as_uint(f);
}
static inline double __longlong_as_double(long long i)
{
    return ctd::from_bits<double>((uint64_t)i);
}
static inline long long __double_as_longlong(double d)
{
    return (long long)ctd::to_bits(d);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)((wide)a * b >> 64);
}
static inline int __popc(unsigned u)
{
    return __builtin_popcount(u);
}
static inline int __ffs(int i)
{
    return __builtin_ffs(i);
}
static inline int __clz(int i)
{
    return i ? __builtin_clz((unsigned)i) : 32;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline float __saturatef(float x)
{
    return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f;
}
static inline float sinpif(float x)
{
    return (float)sin(3.14159265358979323846 * fmod((double)x, 2.0));
}
static inline float cospif(float x)
{
    return (float)cos(3.14159265358979323846 * fmod((double)x, 2.0));
}
static inline void sincospif(float x, float *s, float *c)
{
    *s = sinpif(x);
    *c = cospif(x);
}
/* The fast forms differ from these by a few units in the last place. */
#define __expf(x)          expf(x)
#define __logf(x)          logf(x)
#define __log2f(x)         log2f(x)
#define __powf(x, y)       powf((x), (y))
#define __sinf(x)          sinf(x)
#define __cosf(x)          cosf(x)
#define __fdividef(a, b)   ((a) / (b))
#define __frcp_rn(x)       (1.0f / (x))
#define __frsqrt_rn(x)     rsqrtf(x)
#define __sincosf(x, s, c) sincosf((x), (s), (c))

#endif
