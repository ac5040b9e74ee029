/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "backend/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CT_VERSION
#define CT_VERSION "0.1.0"
#endif

#define FILE_NAME "libctrain-cuda.so"
#define DRIVER    "libcuda.so.1"

/* Beside the file that this code is in. */
static void *open_beside(const char *name)
{
    char path[4096];
    Dl_info here;
    const char *slash;

    if (!dladdr((const void *)&cti_backend_cpu, &here) || !here.dli_fname)
        return NULL;
    slash = strrchr(here.dli_fname, '/');
    if (!slash || snprintf(path, sizeof path, "%.*s/%s", (int)(slash - here.dli_fname),
                           here.dli_fname, name) >= (int)sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void *open_plugin(char *why, size_t cap)
{
    const char *given = getenv("CTRAIN_CUDA_PLUGIN");
    const char *name = given && given[0] ? given : FILE_NAME, *text;
    void *plugin, *driver;

    if (name != given) {
        driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);
        if (!driver) {
            snprintf(why, cap, "no NVIDIA driver (%s not found)", DRIVER);
            return NULL;
        }
        dlclose(driver);
        plugin = open_beside(name);
        if (plugin)
            return plugin;
    }
    plugin = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!plugin) {
        text = dlerror();
        snprintf(why, cap, "the CUDA plug-in can't be opened: %s", text ? text : name);
    }
    return plugin;
}

typedef struct family {
    const char *name;
    const void *kernels; /* a struct of function pointers and nothing else */
    size_t bytes;
} family;

/* The first family with a kernel missing; NULL: complete. Ops call kernels without asking. */
static const char *incomplete(const ct_backend *be)
{
    const family all[] = {
        {"ew", be->ew, sizeof *be->ew},
        {"reduce", be->reduce, sizeof *be->reduce},
        {"matmul", be->matmul, sizeof *be->matmul},
        {"conv", be->conv, sizeof *be->conv},
        {"pool", be->pool, sizeof *be->pool},
        {"norm", be->norm, sizeof *be->norm},
        {"loss", be->loss, sizeof *be->loss},
        {"index", be->index, sizeof *be->index},
        {"image", be->image, sizeof *be->image},
        {"random", be->random, sizeof *be->random},
        {"optim", be->optim, sizeof *be->optim},
    };
    if (!be->probe || !be->mem || !be->mem->open || !be->mem->close)
        return "mem";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void (*kernel)(void);
        if (!all[i].kernels)
            return all[i].name;
        for (size_t at = 0; at < all[i].bytes; at += sizeof kernel) {
            memcpy(&kernel, (const char *)all[i].kernels + at, sizeof kernel);
            if (!kernel)
                return all[i].name;
        }
    }
    return NULL;
}

const ct_backend *cti_plugin_cuda(char *why, size_t cap)
{
    const char *lacks;
    const ct_backend *be;
    void *plugin = open_plugin(why, cap);

    if (!plugin)
        return NULL;
    be = dlsym(plugin, CT_BACKEND_SYMBOL);
    if (!be) {
        snprintf(why, cap, "the CUDA plug-in has no symbol %s: it is of another program",
                 CT_BACKEND_SYMBOL);
    } else if (be->abi != CT_BACKEND_ABI) {
        snprintf(why, cap,
                 "the CUDA plug-in is of another version: its interface is %d, %d is needed",
                 be->abi, CT_BACKEND_ABI);
    } else if (strcmp(be->version, CT_VERSION) != 0) {
        snprintf(why, cap, "the CUDA plug-in is of version %s, ctrain of %s: install both together",
                 be->version, CT_VERSION);
    } else if ((lacks = incomplete(be)) != NULL) {
        snprintf(why, cap, "the CUDA plug-in lacks a kernel of family %s", lacks);
    } else {
        return be;
    }
    dlclose(plugin);
    return NULL;
}
