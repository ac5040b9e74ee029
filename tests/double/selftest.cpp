/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of the software double: what CUDA documents must work, what it forbids must be a
 * finding. A schedule other than `now` is what makes missing waits visible. */
#include "selftest.h"

#include "hooks.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

int failures;
cudaStream_t stream;

bool check(bool ok, const char *text, const char *file, int line)
{
    if (!ok) {
        failures++;
        printf("FAIL %s:%d: %s\n", file, line, text);
    }
    return ok;
}

float random_float()
{
    static uint32_t r = 7;
    r = r * 1664525u + 1013904223u;
    return (float)(r >> 8) / 8388608.f - 1.f;
}

void *device(const void *from, size_t bytes)
{
    void *p;
    OK(cudaMalloc(&p, bytes));
    if (from)
        OK(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
    return p;
}

void host(void *to, const void *from, size_t bytes)
{
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void check_fault(const char *what, const char *words, void (*f)())
{
    int fd[2], status = 0;
    char text[4000];
    size_t n = 0;
    ssize_t got;
    fflush(nullptr);
    if (pipe(fd))
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 2);
        close(fd[0]);
        close(fd[1]);
        f();
        _exit(0);
    }
    close(fd[1]);
    while (n < sizeof text - 1 && (got = read(fd[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(fd[0]);
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 70 || !strstr(text, words)) {
        failures++;
        printf("FAIL %s: no finding with \"%s\" (status %d): %s\n", what, words, status, text);
    }
}

static float *x_dev;
static float *pinned_buffer;
enum { N = 1000 };

/* ---- kernels ---- */

static void test_kernels()
{
    std::vector<float> x(N), y(N), r(N);
    for (int i = 0; i < N; i++) {
        x[i] = random_float();
        y[i] = random_float();
    }
    float *dx = (float *)device(x.data(), N * 4), *dy = (float *)device(y.data(), N * 4);
    float *ds = (float *)device(nullptr, 5 * 4), s[5], want = 0;
    long before = ctd_count("axpy<float, 1>");
    OK(k_axpy(dy, dx, 2.f, N, stream));
    OK(k_sum(ds, dx, N, 5, stream));
    host(r.data(), dy, N * 4);
    host(s, ds, sizeof s);
    for (int i = 0; i < N; i++) {
        CHECK(r[i] == y[i] + 2.f * x[i]);
        want += x[i];
    }
    for (float v : s)
        CHECK(fabsf(v - want) < 1e-4f);
    CHECK(ctd_count("axpy<float, 1>") == before + 1);

    int v[192], w[192];
    unsigned counts[2] = {0, 0};
    for (int i = 0; i < 192; i++)
        v[i] = i;
    int *dv = (int *)device(v, sizeof v);
    unsigned *dc = (unsigned *)device(counts, sizeof counts);
    OK(k_features(dv, dc, 3, stream));
    host(w, dv, sizeof w);
    host(counts, dc, sizeof counts);
    for (int i = 0; i < 192; i++)
        CHECK(w[i] == i / 64 * 64 + 63 - i % 64);
    CHECK(counts[0] == 96 && counts[1] == 1);

    __nv_bfloat16 h[40], g[40];
    for (int i = 0; i < 40; i++)
        h[i] = __float2bfloat16(0.5f);
    __nv_bfloat16 *dh = (__nv_bfloat16 *)device(h, sizeof h);
    OK(k_axpy_bf16(dh, dh, 1.f, 40, stream));
    host(g, dh, sizeof g);
    CHECK(__bfloat162float(g[39]) == 1.5f);
    for (void *p : {(void *)dx, (void *)dy, (void *)ds, (void *)dv, (void *)dc, (void *)dh})
        OK(cudaFree(p));
    CHECK(k_axpy(dx, dx, 1.f, 0, stream) == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess);
}

template <int WHICH> static void run_wrong()
{
    OK(k_wrong(WHICH, x_dev, N, stream));
    cudaStreamSynchronize(stream);
    cudaFree(x_dev);
}

static void test_wrong_kernels()
{
    check_fault("a missing barrier", "race on shared part", run_wrong<WRONG_RACE>);
    check_fault("one element past the end", "past the end", run_wrong<WRONG_OVERRUN>);
    check_fault("a divergent barrier", "__syncthreads is not reached", run_wrong<WRONG_DIVERGENT>);
    check_fault("a mask with exited lanes", "mask", run_wrong<WRONG_MASK>);
    check_fault("shared bounds", "out of bounds", run_wrong<WRONG_BOUNDS>);
}

/* ---- memory ---- */

static bool set_to(const char *name, const char *value)
{
    const char *v = getenv(name);
    return v && !strcmp(v, value);
}

static void test_fence()
{
    if (!set_to("CTD_FENCE", "0"))
        check_fault("host reads device memory", "host code touched device memory",
                    [] { printf("%f", (double)*(volatile float *)x_dev); });
    check_fault("use after free", "FREED", [] {
        cudaFree(x_dev);
        k_axpy(x_dev, x_dev, 1.f, 10, stream);
        cudaStreamSynchronize(stream);
    });
    check_fault("far past the end", "past the end", [] {
        k_axpy(x_dev, x_dev, 1.f, 3000, stream);
        cudaStreamSynchronize(stream);
    });
    check_fault("a double free", "freed before", [] {
        cudaFree(x_dev);
        cudaFree(x_dev);
    });
    check_fault("a copy past the end", "needs", [] {
        cudaMemcpyAsync(pinned_buffer, x_dev + 1, N * 4, cudaMemcpyDeviceToHost, stream);
    });
    check_fault("the legacy stream", "legacy", [] { cudaMemsetAsync(x_dev, 0, 4, nullptr); });
    check_fault("a destroyed stream", "destroyed", [] {
        cudaStream_t s;
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        cudaStreamDestroy(s);
        cudaMemsetAsync(x_dev, 0, 4, s);
    });
    float *fresh = (float *)device(nullptr, 64), v[16];
    host(v, fresh, 64);
    CHECK(v[0] != v[0] && v[15] != v[15]);
    OK(cudaFree(fresh));
    size_t free_bytes, total;
    void *p = nullptr;
    OK(cudaMemGetInfo(&free_bytes, &total));
    CHECK(cudaMalloc(&p, free_bytes + 1) == cudaErrorMemoryAllocation && !p);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, free_bytes)); /* costs nothing until it is touched */
    OK(cudaFree(p));
    cudaPointerAttributes at;
    OK(cudaPointerGetAttributes(&at, x_dev));
    CHECK(at.type == cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&at, &at));
    CHECK(at.type == cudaMemoryTypeUnregistered);
    cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 0));
    CHECK(prop.multiProcessorCount > 0 && prop.warpSize == 32);
}

/* ---- order ---- */

static bool lazy()
{
    const char *s = getenv("CTD_SCHED");
    return !s || !strcmp(s, "lazy");
}

static void touch_too_early()
{
    cudaMemcpyAsync(x_dev, pinned_buffer, 4, cudaMemcpyHostToDevice, stream);
    pinned_buffer[1] = 1.f;
}

static void test_order()
{
    bool late = lazy() && !set_to("CTD_PIN", "fence");
    cudaStream_t other;
    cudaEvent_t e;
    float *pin, *back, *a = (float *)device(nullptr, 4 * N);
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaMallocHost((void **)&pin, 4 * N));
    OK(cudaMallocHost((void **)&back, 4 * N));
    for (int i = 0; i < N; i++)
        pin[i] = 1.f;
    OK(cudaMemcpyAsync(a, pin, 4 * N, cudaMemcpyHostToDevice, other));
    if (late) {
        for (int i = 0; i < N; i++)
            pin[i] = 2.f; /* too early: the copy has not run */
    }
    OK(cudaEventRecord(e, other));
    OK(cudaStreamWaitEvent(stream, e, 0));
    OK(k_axpy(a, a, 1.f, N, stream));
    OK(cudaMemcpyAsync(back, a, 4 * N, cudaMemcpyDeviceToHost, stream));
    if (late)
        CHECK(back[5] != back[5]); /* not yet */
    OK(cudaEventRecord(e, stream));
    for (int i = 0; i < 1000 && cudaEventQuery(e) == cudaErrorNotReady; i++) {
    }
    OK(cudaEventSynchronize(e));
    CHECK(back[5] == (late ? 4.f : 2.f));
    if (lazy() && !late)
        check_fault("a pinned buffer written too early", "pinned buffer", touch_too_early);

    /* Pageable memory is read by the call, and a copy to it waits. */
    float v[4] = {3, 3, 3, 3}, w[4] = {0};
    OK(cudaMemcpyAsync(a, v, sizeof v, cudaMemcpyHostToDevice, stream));
    v[0] = 9;
    long syncs = ctd_syncs();
    OK(cudaMemcpyAsync(w, a, sizeof w, cudaMemcpyDeviceToHost, stream));
    CHECK(w[0] == 3.f && ctd_syncs() == syncs + 1);
    /* cudaMemcpy doesn't wait for a stream of its own. */
    if (lazy()) {
        OK(cudaMemsetAsync(a, 0, 16, stream));
        OK(cudaMemcpy(w, a, sizeof w, cudaMemcpyDeviceToHost));
        CHECK(w[0] == 3.f);
    }
    CHECK(cudaMemcpyAsync(a, pin, 4, cudaMemcpyDeviceToHost, stream) == cudaErrorInvalidValue);
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(other)); /* with nothing left, or something: both are fine */
    OK(cudaFreeHost(pin));
    OK(cudaFreeHost(back));
    OK(cudaFree(a));
    cudaGetLastError();
}

/* ---- capture ---- */

static cudaGraphExec_t stale;
static void test_capture()
{
    cudaStream_t side;
    cudaEvent_t fork, join;
    cudaGraph_t g = nullptr;
    cudaGraphExec_t exec;
    float *pin, *a = (float *)device(nullptr, 16), v[4];
    OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    OK(cudaMallocHost((void **)&pin, 16));
    pin[0] = 1.f;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemcpyAsync(a, pin, 16, cudaMemcpyHostToDevice, stream));
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(side, fork, 0));
    OK(k_axpy(a, a, 1.f, 4, side));
    OK(cudaEventRecord(join, side));
    OK(cudaStreamWaitEvent(stream, join, 0));
    OK(cudaStreamEndCapture(stream, &g));
    OK(cudaGraphInstantiate(&exec, g, 0));
    OK(cudaGraphDestroy(g));
    pin[0] = 5.f; /* read when the graph runs */
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaGraphLaunch(exec, side)); /* after the first */
    OK(cudaStreamSynchronize(side));
    host(v, a, 16);
    CHECK(v[0] == 10.f);

    auto spoilt = [&](auto call) {
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        CHECK(call() != cudaSuccess);
        CHECK(cudaStreamEndCapture(stream, &g) == cudaErrorStreamCaptureInvalidated && !g);
        cudaGetLastError();
    };
    void *p;
    spoilt([&] { return cudaMalloc(&p, 16); });
    spoilt([&] { return cudaFree(a); });
    spoilt([&] { return cudaStreamSynchronize(stream); });
    spoilt([&] { return cudaDeviceSynchronize(); });
    spoilt([&] { return cudaEventQuery(join); });
    spoilt([&] { return cudaMemcpyAsync(a, v, 16, cudaMemcpyHostToDevice, stream); });
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(side, fork, 0));
    OK(k_axpy(a, a, 1.f, 4, side));
    CHECK(cudaStreamEndCapture(stream, &g) == cudaErrorStreamCaptureUnjoined);
    cudaGetLastError();
    stale = exec;
    OK(cudaFree(a));
    check_fault("a graph with freed memory", "FREED", [] {
        cudaGraphLaunch(stale, stream);
        cudaStreamSynchronize(stream);
    });
    OK(cudaGraphExecDestroy(exec));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
    OK(cudaStreamDestroy(side));
    OK(cudaFreeHost(pin));
}

/* ---- failures asked for ---- */

static void test_failures()
{
    void *p = nullptr;
    ctd_fail("cudaMalloc:2,launch:1");
    OK(cudaMalloc(&p, 16));
    OK(cudaFree(p));
    CHECK(cudaMalloc(&p, 16) == cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 16));
    CHECK(k_axpy((float *)p, (float *)p, 1.f, 4, stream) == cudaErrorLaunchFailure);
    cudaGetLastError();
    OK(k_axpy((float *)p, (float *)p, 1.f, 4, stream));
    OK(cudaStreamSynchronize(stream));
    ctd_fail("sticky:2");
    OK(k_axpy((float *)p, (float *)p, 1.f, 4, stream));
    k_axpy((float *)p, (float *)p, 1.f, 4, stream);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    CHECK(cudaMemsetAsync(p, 0, 4, stream) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    long leaks = ctd_leaks();
    CHECK(cudaFree(p) == cudaErrorIllegalAddress && ctd_leaks() == leaks - 1);
    ctd_fail(nullptr);
    ctd_unstick();
    OK(cudaStreamSynchronize(stream));
    ctd_fail("any:1+");
    CHECK(cudaMalloc(&p, 16) != cudaSuccess && cudaStreamSynchronize(stream) != cudaSuccess);
    ctd_fail("");
    cudaGetLastError();
}

static double now_us()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void speed()
{
    enum { LAUNCHES = 2000 };
    double t = now_us();
    for (int i = 0; i < LAUNCHES; i++)
        k_axpy(x_dev, x_dev, 0.f, 256, stream);
    cudaStreamSynchronize(stream);
    double each = (now_us() - t) / LAUNCHES;
    t = now_us();
    for (int i = 0; i < LAUNCHES; i++) {
        k_axpy(x_dev, x_dev, 0.f, 256, stream);
        cudaStreamSynchronize(stream);
    }
    double synced = (now_us() - t) / LAUNCHES;
    t = now_us();
    for (int i = 0; i < LAUNCHES; i++)
        k_sum(x_dev, x_dev, 256, 1, stream);
    cudaStreamSynchronize(stream);
    printf("a launch of 256 threads: %.1f us, with a wait %.1f us; of 128 that reduce: %.1f us\n",
           each, synced, (now_us() - t) / LAUNCHES);
}

int main(int argc, char **)
{
    long leaks = ctd_leaks();
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    x_dev = (float *)device(nullptr, N * 4);
    OK(cudaMallocHost((void **)&pinned_buffer, N * 4));
    OK(cudaMemsetAsync(x_dev, 0, N * 4, stream));
    OK(cudaStreamSynchronize(stream));
    test_kernels();
    test_wrong_kernels();
    test_fence();
    test_order();
    test_capture();
    test_lt();
    test_dnn();
    test_failures();
    if (argc > 1)
        speed();
    OK(cudaFree(x_dev));
    OK(cudaFreeHost(pinned_buffer));
    OK(cudaStreamDestroy(stream));
    CHECK(ctd_leaks() == leaks && ctd_live_bytes() == 0);
    printf("%s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
