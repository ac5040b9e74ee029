/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* _SC_PHYS_PAGES */
#include "backend/cpu/cpu.h"
#include "backend/cpu/dnnl.h"
#include "backend/cpu/half.h"
#include "backend/cpu/parallel.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *cti_cpu_loops_isa(void)
{
#if CTI_ISA_CLONES
    if (__builtin_cpu_supports("x86-64-v4"))
        return "avx512";
    if (__builtin_cpu_supports("x86-64-v3"))
        return "avx2";
#endif
    return "baseline";
}

/* Asked-for and real team differ under a thread limit, or inside another parallel region. */
static int measured_team(int threads)
{
    int team = 1;
#pragma omp parallel num_threads(threads) shared(team)
    {
#pragma omp single
        team = omp_get_num_threads();
    }
    return team;
}

static int mem_open(const ct_stream_opts *opts, ct_stream **out)
{
    *out = NULL;
    if (opts->index != 0)
        return cti_fail(opts->err, CT_EDEVICE, "cpu:%d: there is one CPU device, cpu:0",
                        opts->index);
    if (opts->threads < 0)
        return cti_fail(opts->err, CT_EINVAL, "threads = %d: must be 0 (all) or more",
                        opts->threads);
    ct_stream *s = cti_alloc(opts->mem, sizeof *s, "CPU stream");
    if (!s)
        return CT_ENOMEM;
    s->mem = opts->mem;
    s->err = opts->err;
    s->threads = opts->threads ? opts->threads : omp_get_max_threads();
    s->threads = measured_team(s->threads);
    int rc = cti_dnnl_open(s);
    if (rc) {
        cti_free(opts->mem, s);
        return rc;
    }
    *out = s;
    return CT_OK;
}

static void mem_close(ct_stream *s)
{
    if (!s)
        return;
    cti_half_close(s);
    cti_dnnl_close(s);
    cti_free(s->mem, s);
}

static void *mem_alloc(ct_stream *s, size_t bytes)
{
    return cti_alloc_raw(s->mem, bytes, "CPU device memory");
}

static void mem_free(ct_stream *s, void *p)
{
    cti_free(s->mem, p);
}

static int mem_upload(ct_stream *s, void *dst, const void *host, size_t bytes)
{
    (void)s;
    if (bytes)
        memcpy(dst, host, bytes);
    return CT_OK;
}

static int mem_download(ct_stream *s, void *host, const void *src, size_t bytes)
{
    (void)s;
    if (bytes)
        memcpy(host, src, bytes);
    return CT_OK;
}

static int mem_sync(ct_stream *s)
{
    (void)s; /* every kernel is done when it returns */
    return CT_OK;
}

static void mem_info(ct_stream *s, ct_device_info *out)
{
    char isa[32];
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "cpu");
    cti_dnnl_isa(isa, sizeof isa);
    snprintf(out->isa, sizeof out->isa, "%s, loops %s", isa, cti_cpu_loops_isa());
    cti_dnnl_version(out->libraries, sizeof out->libraries);
    out->threads = measured_team(s->threads);
}

static void mem_counters(ct_stream *s, ct_device_counters *out)
{
    *out = s->counters;
}

static int mem_room(ct_stream *s, size_t *free, size_t *total)
{
    long page = sysconf(_SC_PAGESIZE), n = sysconf(_SC_PHYS_PAGES);
#ifdef _SC_AVPHYS_PAGES
    long left = sysconf(_SC_AVPHYS_PAGES);
#else
    long left = n;
#endif
    (void)s;
    *free = page > 0 && left > 0 ? (size_t)left * (size_t)page : 0;
    *total = page > 0 && n > 0 ? (size_t)n * (size_t)page : 0;
    return CT_OK;
}

const ct_k_mem cti_cpu_mem = {
    .open = mem_open,
    .close = mem_close,
    .alloc = mem_alloc,
    .free = mem_free,
    .upload = mem_upload,
    .download = mem_download,
    .sync = mem_sync,
    .info = mem_info,
    .counters = mem_counters,
    .room = mem_room,
};
