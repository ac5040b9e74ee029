/* SPDX-License-Identifier: Apache-2.0 */
/* The device: a small one of the compute capability of CTD_CC, and the names of errors. */
#include "ctd.h"

#include <cstdio>
#include <cstring>

using namespace ctd;

enum {
    SMS = 4,
    MAX_SHARED = 48 << 10,
    MAX_SHARED_OPTIN = 227 << 10,
    L2_BYTES = 4 << 20,
    VERSION = 13000
};

static int attribute(cudaDeviceAttr a)
{
    switch (a) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
        return 1024;
    case cudaDevAttrMaxBlockDimZ:
        return 64;
    case cudaDevAttrMaxGridDimX:
        return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return MAX_SHARED;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return MAX_SHARED_OPTIN;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return 228 << 10;
    case cudaDevAttrReservedSharedMemoryPerBlock:
        return 1024;
    case cudaDevAttrTotalConstantMemory:
        return 64 << 10;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        return 65536;
    case cudaDevAttrMultiProcessorCount:
        return SMS;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        return 32;
    case cudaDevAttrL2CacheSize:
        return L2_BYTES;
    case cudaDevAttrClockRate:
        return 1000000;
    case cudaDevAttrMemoryClockRate:
        return 2000000;
    case cudaDevAttrGlobalMemoryBusWidth:
        return 256;
    case cudaDevAttrComputeCapabilityMajor:
        return config.cc / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return config.cc % 10;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCooperativeLaunch:
        return 1;
    case cudaDevAttrAsyncEngineCount:
        return 2;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrComputeMode:
    case cudaDevAttrIntegrated:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        return 0;
    default:
        warn("cudaDeviceGetAttribute(%d) isn't modelled: 0", (int)a);
        return 0;
    }
}

static cudaError_t bad_device(int d)
{
    return d >= 0 && d < config.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

#define CTD_ERRORS(X)                                                                             \
    X(Success, "no error")                                                                        \
    X(ErrorInvalidValue, "invalid argument")                                                      \
    X(ErrorMemoryAllocation, "out of memory")                                                     \
    X(ErrorInitializationError, "initialization error")                                           \
    X(ErrorInvalidConfiguration, "invalid configuration argument")                                \
    X(ErrorStubLibrary, "CUDA driver is a stub library")                                          \
    X(ErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")    \
    X(ErrorInvalidDeviceFunction, "invalid device function")                                      \
    X(ErrorNoDevice, "no CUDA-capable device is detected")                                        \
    X(ErrorInvalidDevice, "invalid device ordinal")                                               \
    X(ErrorNoKernelImageForDevice, "no kernel image is available for execution on the device")    \
    X(ErrorInvalidResourceHandle, "invalid resource handle")                                      \
    X(ErrorIllegalState, "the operation cannot be performed in the present state")                \
    X(ErrorNotReady, "device not ready")                                                          \
    X(ErrorIllegalAddress, "an illegal memory access was encountered")                            \
    X(ErrorLaunchOutOfResources, "too many resources requested for launch")                       \
    X(ErrorLaunchFailure, "unspecified launch failure")                                           \
    X(ErrorNotSupported, "operation not supported")                                               \
    X(ErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")          \
    X(ErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")   \
    X(ErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences") \
    X(ErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began")        \
    X(ErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                           \
    X(ErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")     \
    X(ErrorStreamCaptureImplicit,                                                                 \
      "operation would make the legacy stream depend on a capturing blocking stream")             \
    X(ErrorCapturedEvent,                                                                         \
      "operation not permitted on an event last recorded in a capturing stream")                  \
    X(ErrorStreamCaptureWrongThread,                                                              \
      "attempt to terminate a thread-local capture sequence from another thread")                 \
    X(ErrorUnknown, "unknown error")

extern "C" {
const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
#define X(name, text) \
    case cuda##name:  \
        return "cuda" #name;
        CTD_ERRORS(X)
#undef X
    default:
        return "unrecognized error code";
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
#define X(name, text) \
    case cuda##name:  \
        return text;
        CTD_ERRORS(X)
#undef X
    default:
        return "unrecognized error code";
    }
}

/* CTD_DEVICES=0: a driver without a device; -1: no driver. */
cudaError_t cudaGetDeviceCount(int *n)
{
    CTD_CALL(cudaErrorNoDevice);
    *n = config.devices > 0 ? config.devices : 0;
    if (*n)
        return cudaSuccess;
    return fail(config.devices < 0 ? cudaErrorInsufficientDriver : cudaErrorNoDevice,
                "cudaGetDeviceCount");
}

cudaError_t cudaDriverGetVersion(int *v)
{
    CTD_CALL(cudaErrorInvalidValue);
    *v = config.devices < 0 ? 0 : VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
    CTD_CALL(cudaErrorInvalidValue);
    *v = VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int device)
{
    CTD_CALL(cudaErrorInvalidValue);
    if (cudaError_t e = bad_device(device))
        return fail(e, "cudaDeviceGetAttribute");
    *v = attribute(a);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    CTD_CALL(cudaErrorInvalidValue);
    if (cudaError_t e = bad_device(device))
        return fail(e, "cudaGetDeviceProperties");
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "software double");
    p->totalGlobalMem = config.memory;
    p->sharedMemPerBlock = MAX_SHARED;
    p->sharedMemPerBlockOptin = MAX_SHARED_OPTIN;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 64 << 10;
    p->major = config.cc / 10;
    p->minor = config.cc % 10;
    p->multiProcessorCount = SMS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = p->cooperativeLaunch = 1;
    p->streamPrioritiesSupported = 1;
    p->asyncEngineCount = 2;
    p->l2CacheSize = L2_BYTES;
    p->memoryBusWidth = 256;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CTD_CALL(cudaErrorUnknown);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device)
{
    CTD_CALL(cudaErrorInvalidValue);
    if (cudaError_t e = bad_device(device))
        return fail(e, "cudaDeviceGetPCIBusId");
    snprintf(id, (size_t)n, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}
}
