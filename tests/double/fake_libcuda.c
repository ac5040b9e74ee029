/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 for plans.c alone: with it, cuDNN's engines that are compiled at run time can
 * finish their plans on a machine without a GPU. Nothing can run. */
static char dummy[4096];

#define ANSWERS_0(f) \
    int f(void);     \
    int f(void)      \
    {                \
        return 0;    \
    }
#define GIVES_HANDLE(f) \
    int f(void **out);  \
    int f(void **out)   \
    {                   \
        *out = dummy;   \
        return 0;       \
    }

GIVES_HANDLE(cuLibraryLoadData)
GIVES_HANDLE(cuLibraryLoadFromFile)
GIVES_HANDLE(cuModuleLoadData)
GIVES_HANDLE(cuModuleLoadDataEx)
GIVES_HANDLE(cuModuleLoadFatBinary)
GIVES_HANDLE(cuLibraryGetKernel)
GIVES_HANDLE(cuModuleGetFunction)
GIVES_HANDLE(cuCtxGetCurrent)
GIVES_HANDLE(cuDevicePrimaryCtxRetain)
ANSWERS_0(cuLibraryUnload)
ANSWERS_0(cuModuleUnload)
ANSWERS_0(cuModuleGetGlobal_v2)
ANSWERS_0(cuLaunchKernel)
ANSWERS_0(cuLaunchKernelEx)
ANSWERS_0(cuLaunchCooperativeKernel)
ANSWERS_0(cuLinkCreate)
ANSWERS_0(cuLinkCreate_v2)
ANSWERS_0(cuLinkAddData)
ANSWERS_0(cuLinkAddData_v2)
ANSWERS_0(cuLinkAddFile_v2)
ANSWERS_0(cuLinkComplete)
ANSWERS_0(cuLinkDestroy)
ANSWERS_0(cuCtxPushCurrent)
ANSWERS_0(cuCtxPopCurrent)
ANSWERS_0(cuCtxGetLimit)
ANSWERS_0(cuCtxGetDevice)
ANSWERS_0(cuStreamGetCtx)
ANSWERS_0(cuStreamSynchronize)
ANSWERS_0(cuMemcpyDtoH_v2)
ANSWERS_0(cuKernelSetAttribute)
ANSWERS_0(cuKernelGetAttribute)
ANSWERS_0(cuFuncSetAttribute)
ANSWERS_0(cuFuncGetAttribute)
ANSWERS_0(cuDeviceGet)
ANSWERS_0(cuDeviceGetAttribute)
ANSWERS_0(cuOccupancyMaxPotentialClusterSize)
ANSWERS_0(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ANSWERS_0(cuTensorMapEncodeTiled)
ANSWERS_0(cuDevicePrimaryCtxReset)
ANSWERS_0(cuDevicePrimaryCtxRelease)

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return 100; /* no device */
}

int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n)
{
    *n = 0;
    return 0;
}

int cuDriverGetVersion(int *v);
int cuDriverGetVersion(int *v)
{
    *v = 13000;
    return 0;
}

int cuGetErrorString(int e, const char **s);
int cuGetErrorString(int e, const char **s)
{
    (void)e;
    *s = "fake driver";
    return 0;
}

int cuGetErrorName(int e, const char **s);
int cuGetErrorName(int e, const char **s)
{
    return cuGetErrorString(e, s);
}
