/* SPDX-License-Identifier: Apache-2.0 */
/* Which device a context gets. */
#include "autograd/internal.h"
#include "backend/plugin.h"
#include <ctrain/device.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "cuda" or "cuda:N" with N of up to three digits. */
static bool is_cuda(const char *name, int *index)
{
    *index = 0;
    if (strncmp(name, "cuda", 4) != 0)
        return false;
    if (name[4] == '\0')
        return true;
    size_t digits = strspn(name + 5, "0123456789");
    if (name[4] != ':' || digits == 0 || digits > 3 || name[5 + digits])
        return false;
    *index = atoi(name + 5);
    return true;
}

bool cti_device_name_ok(const char *name)
{
    int index;
    return strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0 || is_cuda(name, &index);
}

static const ct_backend *find_cuda(int index, char *what, size_t cap)
{
    const ct_backend *be = cti_plugin_cuda(what, cap);
    return be && be->probe(index, what, cap) == CT_OK ? be : NULL;
}

int ct_device_check(const char *device, char *what, size_t cap)
{
    char mine[256];
    int index = 0;
    if (!what) {
        what = mine;
        cap = sizeof mine;
    }
    if (!device || (strcmp(device, "cpu") != 0 && !is_cuda(device, &index))) {
        snprintf(what, cap, "device '%s' is unknown; allowed: cpu, cuda, cuda:N",
                 device ? device : "(NULL)");
        return CT_EINVAL;
    }
    if (strcmp(device, "cpu") == 0)
        return cti_backend_cpu.probe(0, what, cap);
    return find_cuda(index, what, cap) ? CT_OK : CT_EDEVICE;
}

static int open_stream(ct_ctx *ctx, const ct_backend *be, int index)
{
    ct_stream_opts so = {.index = index,
                         .threads = ctx->opts.threads,
                         .tf32 = ctx->opts.tf32,
                         .mem = ctx->mem,
                         .err = &ctx->err};
    ctx->device.be = be;
    int r = be->mem->open(&so, &ctx->device.stream);
    if (r < 0 && !ctx->err.code)
        cti_fail(&ctx->err, r, "can't open device %s (%s)", be->name, ct_status_name(r));
    return r;
}

/* auto: CUDA when it is there, can be opened and computes with the context's dtype. */
static int open_auto(ct_ctx *ctx)
{
    if (ctx->opts.dtype == CT_F64)
        return open_stream(ctx, &cti_backend_cpu, 0);
    const ct_backend *be = find_cuda(0, ctx->fallback, sizeof ctx->fallback);
    if (be && open_stream(ctx, be, 0) == CT_OK) {
        ctx->fallback[0] = '\0';
        return CT_OK;
    }
    if (be) {
        snprintf(ctx->fallback, sizeof ctx->fallback, "%.255s", ctx->err.text);
        ct_error_clear(ctx);
    }
    return open_stream(ctx, &cti_backend_cpu, 0);
}

int cti_device_open(ct_ctx *ctx)
{
    const char *name = ctx->opts.device ? ctx->opts.device : "auto";
    char why[256];
    int index;
    if (strcmp(name, "auto") == 0)
        return open_auto(ctx);
    if (!is_cuda(name, &index))
        return open_stream(ctx, &cti_backend_cpu, 0);
    if (ctx->opts.dtype == CT_F64)
        return cti_fail(&ctx->err, CT_EDTYPE,
                        "device %s computes with float32, bfloat16 and float16: float64 is for the "
                        "cpu",
                        name);
    const ct_backend *be = find_cuda(index, why, sizeof why);
    if (!be)
        return cti_fail(&ctx->err, CT_EDEVICE, "device %s is not there: %s; use device = cpu", name,
                        why);
    return open_stream(ctx, be, index);
}

const char *ct_ctx_fallback(const ct_ctx *ctx)
{
    return ctx->fallback;
}
