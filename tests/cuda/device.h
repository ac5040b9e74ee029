/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the whole on CUDA: contexts on the device that CTRAIN_CUDA_PLUGIN opens, and what the double
 * lets them do. */
#ifndef TESTS_CUDA_DEVICE_H
#define TESTS_CUDA_DEVICE_H

#include "double/hooks.h"

#include <criterion/criterion.h>
#include <ctrain/ctrain.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* A function of the double by name; the test is skipped on a real device. */
static inline void *double_symbol(const char *name)
{
    const char *plugin = getenv("CTRAIN_CUDA_PLUGIN");
    void *so = plugin ? dlopen(plugin, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *p = so ? dlsym(so, name) : NULL;

    if (!p)
        cr_skip_test("not on the software double");
    return p;
}

static inline void device_fail(const char *spec)
{
    void *p = double_symbol("ctd_fail");
    void (*fail)(const char *);

    memcpy(&fail, &p, sizeof fail);
    fail(spec);
}

static inline long device_count(const char *prefix)
{
    void *p = double_symbol("ctd_count");
    long (*count)(const char *);

    memcpy(&count, &p, sizeof count);
    return count(prefix);
}

static inline long device_leaks(void)
{
    void *p = double_symbol("ctd_leaks");
    long (*leaks)(void);

    memcpy(&leaks, &p, sizeof leaks);
    return leaks();
}

static inline ct_ctx *device_ctx(const char *device)
{
    ct_ctx_opts o = ct_ctx_defaults();
    ct_error err = {0};
    ct_ctx *ctx;

    o.device = device;
    o.threads = 1;
    o.seed = 7;
    o.direct_alloc = false;
    ctx = ct_ctx_new(o, &err);
    cr_assert_not_null(ctx, "%s", err.text);
    return ctx;
}

#define OK(ctx, call) cr_assert((call) >= 0, "%s: %s", #call, ct_error_get(ctx)->text)

#endif
