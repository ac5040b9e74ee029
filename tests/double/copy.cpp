/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. Pinned memory is read and written when the copy runs; pageable memory is
 * read by the call, and a copy to it makes the caller wait, as documented. */
#include "ctd.h"

#include <cstring>

namespace ctd
{
static cudaMemcpyKind direction(bool to_device, bool from_device)
{
    return to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice) :
                       (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
}

static bool pinned_range(const Alloc *a, const void *p, size_t n, const char *what)
{
    if (!a->live)
        fault("memcpy: %s points into freed pinned buffer #%zu", what, (size_t)a->id);
    else if ((uintptr_t)p < a->p || (uintptr_t)p + n > a->p + a->size)
        fault("memcpy: %s needs %zu bytes from offset %td, pinned buffer #%zu has %zu", what, n,
              (ptrdiff_t)((uintptr_t)p - a->p), (size_t)a->id, a->size);
    else
        return true;
    return false;
}

/* Checks the arguments and makes the operation; host memory is staged where it isn't pinned. */
static cudaError_t make_copy(Op *o, bool *pageable, void *d, const void *s, size_t n,
                             cudaMemcpyKind kind)
{
    Alloc *da = find_alloc(d), *sa = find_alloc(s);
    bool dd = da && da->kind == Kind::DEVICE, sd = sa && sa->kind == Kind::DEVICE;
    *pageable = false;
    if (kind != cudaMemcpyDefault && kind != direction(dd, sd)) {
        warn("memcpy: its direction (%d) doesn't match the pointers (to %s, from %s)", (int)kind,
             dd ? "device" : "host", sd ? "device" : "host");
        return cudaErrorInvalidValue;
    }
    if ((dd && !check_range("memcpy", "its destination", d, n)) ||
        (sd && !check_range("memcpy", "its source", s, n)) ||
        (da && !dd && !pinned_range(da, d, n, "its destination")) ||
        (sa && !sd && !pinned_range(sa, s, n, "its source")))
        return cudaErrorInvalidValue;
    o->run = [=] { memmove(d, s, n); };
    if (dd && sd) {
        o->name = "memcpy D2D";
    } else if (sd) {
        o->name = "memcpy D2H";
        *pageable = !da;
        if (da) {
            o->pin = (uintptr_t)d;
            o->pin_bytes = n;
            o->pin_write = true;
        }
    } else if (sa) {
        o->name = dd ? "memcpy H2D" : "memcpy H2H";
        o->pin = (uintptr_t)s;
        o->pin_bytes = n;
    } else {
        auto staged = std::make_shared<std::vector<char>>((const char *)s, (const char *)s + n);
        o->name = dd ? "memcpy H2D" : "memcpy H2H";
        o->run = [=] { memcpy(d, staged->data(), n); };
        *pageable = true;
    }
    return cudaSuccess;
}
} // namespace ctd

using namespace ctd;

extern "C" {
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    CTD_CALL(cudaErrorLaunchFailure);
    CUstream_st *t = stream_of(stream);
    Op o;
    bool pageable = false;
    if (!t)
        return fail(cudaErrorInvalidResourceHandle, "cudaMemcpyAsync");
    if (n == 0)
        return cudaSuccess;
    if (cudaError_t e = make_copy(&o, &pageable, d, s, n, kind))
        return fail(e, "cudaMemcpyAsync");
    if (pageable && t->capture) {
        t->origin->spoilt = true;
        warn("cudaMemcpyAsync: pageable memory can't be captured");
        return fail(cudaErrorStreamCaptureUnsupported, "cudaMemcpyAsync");
    }
    bool to_host = !strcmp(o.name, "memcpy D2H");
    cudaError_t e = push(t, std::move(o));
    if (!e && pageable && to_host) {
        counters.syncs++;
        drain(t);
        e = fail(sticky(), "cudaMemcpyAsync");
    }
    return e;
}

/* On the legacy stream: waits for blocking streams alone, so that what runs in others must have
 * been waited for. */
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind kind)
{
    CTD_CALL(cudaErrorLaunchFailure);
    Op o;
    bool pageable;
    if (spoils_capture("cudaMemcpy"))
        return fail(cudaErrorStreamCaptureImplicit, "cudaMemcpy");
    if (n == 0)
        return cudaSuccess;
    if (cudaError_t e = make_copy(&o, &pageable, d, s, n, kind))
        return fail(e, "cudaMemcpy");
    counters.syncs++;
    drain_blocking();
    run_alone(std::move(o));
    return fail(sticky(), "cudaMemcpy");
}

cudaError_t cudaMemsetAsync(void *d, int value, size_t n, cudaStream_t stream)
{
    CTD_CALL(cudaErrorLaunchFailure);
    if (!check_range("cudaMemsetAsync", "its destination", d, n))
        return fail(cudaErrorInvalidValue, "cudaMemsetAsync");
    return n ? enqueue(stream, "memset", [=] { memset(d, value, n); }) : cudaSuccess;
}

cudaError_t cudaMemset(void *d, int value, size_t n)
{
    CTD_CALL(cudaErrorLaunchFailure);
    Op o;
    if (spoils_capture("cudaMemset"))
        return fail(cudaErrorStreamCaptureImplicit, "cudaMemset");
    if (!check_range("cudaMemset", "its destination", d, n))
        return fail(cudaErrorInvalidValue, "cudaMemset");
    drain_blocking();
    o.name = "memset";
    o.run = [=] { memset(d, value, n); };
    run_alone(std::move(o));
    return cudaSuccess;
}
}
