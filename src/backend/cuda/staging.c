/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/staging.h"

#include <string.h>

#define PARTS      4
#define PART_BYTES ((size_t)1 << 20)

struct cti_staging {
    char *ring;               /* pinned */
    cudaEvent_t done[PARTS];  /* the last copy out of the part */
    bool pending[PARTS];
    int part;
    size_t used; /* of the part */
};

void cti_staging_close(ct_stream *s)
{
    cti_staging *g = s->staging;
    if (!g)
        return;
    for (int i = 0; i < PARTS; i++) {
        if (g->done[i])
            cudaEventDestroy(g->done[i]);
    }
    cudaFreeHost(g->ring);
    cti_free(s->mem, g);
    s->staging = NULL;
}

int cti_staging_open(ct_stream *s)
{
    void *ring = NULL;
    cti_staging *g = s->staging = cti_alloc(s->mem, sizeof *g, "CUDA staging");
    if (!g)
        return cti_fail(s->err, CT_ENOMEM, "out of memory for the staging ring");
    int r = cti_cuda_check(s, cudaMallocHost(&ring, PARTS * PART_BYTES), "pinning the staging ring");
    g->ring = ring;
    for (int i = 0; i < PARTS && r == CT_OK; i++)
        r = cti_cuda_check(s, cudaEventCreateWithFlags(&g->done[i], cudaEventDisableTiming),
                           "making an event");
    return r;
}

/* Goes on to the next part, which is full of bytes that may still be under way. */
static int next_part(ct_stream *s, cti_staging *g)
{
    int r = cti_cuda_check(s, cudaEventRecord(g->done[g->part], s->compute), "recording an event");
    if (r < 0)
        return r;
    g->pending[g->part] = true;
    g->part = (g->part + 1) % PARTS;
    g->used = 0;
    if (!g->pending[g->part])
        return CT_OK;
    cudaError_t e = cudaEventQuery(g->done[g->part]);
    if (e == cudaErrorNotReady) {
        cudaGetLastError();
        s->counters.syncs++;
        e = cudaEventSynchronize(g->done[g->part]);
    }
    g->pending[g->part] = false;
    return cti_cuda_check(s, e, "waiting for the staging ring");
}

int cti_staging_upload(ct_stream *s, void *dst, const void *host, size_t bytes)
{
    cti_staging *g = s->staging;
    if (s->capturing)
        return cti_fail(s->err, CT_ESTATE, "an upload can't be a part of captured work");
    for (size_t at = 0, n; at < bytes; at += n) {
        if (g->used == PART_BYTES) {
            int r = next_part(s, g);
            if (r < 0)
                return r;
        }
        n = bytes - at < PART_BYTES - g->used ? bytes - at : PART_BYTES - g->used;
        char *pin = g->ring + (size_t)g->part * PART_BYTES + g->used;
        memcpy(pin, (const char *)host + at, n);
        int r = cti_cuda_check(
            s, cudaMemcpyAsync((char *)dst + at, pin, n, cudaMemcpyHostToDevice, s->compute),
            "an upload");
        if (r < 0)
            return r;
        g->used += (n + 15) / 16 * 16;
        if (g->used > PART_BYTES)
            g->used = PART_BYTES;
    }
    return CT_OK;
}
