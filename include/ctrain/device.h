/* SPDX-License-Identifier: Apache-2.0 */
/* What runs beside the program: devices, events, copies that don't wait, work that is captured once and
 * replayed. On the CPU all work is done when its call returns: memory is plain, copies are done, events
 * have happened and captured work is simply called. */
#ifndef CTRAIN_DEVICE_H
#define CTRAIN_DEVICE_H

#include <ctrain/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Could a context be opened on "cpu", "cuda" or "cuda:N"? CT_OK with what it is in `what` ("NVIDIA H200,
 * sm_90"), CT_EDEVICE with why not ("no NVIDIA driver (libcuda.so.1 not found)"), CT_EINVAL for a name
 * that is none. CUDA is a plug-in, libctrain-cuda.so, looked for beside the library, then as the system
 * looks for libraries; the environment's CTRAIN_CUDA_PLUGIN names another file. */
int ct_device_check(const char *device, char *what, size_t cap);

/* ---- host memory ---- */

/* Memory that asynchronous copies need: pinned on CUDA. NULL: out of memory (recorded). Owned; free it
 * before the context, when no copy uses it any more. */
CT_NODISCARD void *ct_host_alloc(ct_ctx *ctx, size_t bytes);
void ct_host_free(ct_ctx *ctx, void *p);

/* ---- events ---- */

typedef struct ct_event ct_event;

/* Owned; free it before the context. */
CT_NODISCARD ct_event *ct_event_new(ct_ctx *ctx);
void ct_event_free(ct_event *e);
/* The event is now: when all work queued so far is done. */
int ct_event_record(ct_ctx *ctx, ct_event *e);
/* 1 when it has happened (or was never recorded), 0 when not, or an error. Doesn't wait. */
int ct_event_query(ct_ctx *ctx, ct_event *e);
/* Waits for it. */
int ct_event_sync(ct_ctx *ctx, ct_event *e);

/* ---- copies ---- */

/* Copies `bytes` (all of t) from memory of ct_host_alloc beside the computation: after `after` (NULL: after
 * all work queued so far); work queued later sees the new values. The host must leave the memory alone
 * until `done` (recorded here; not NULL) has happened. t: contiguous, no gradient recorded. CT_EINVAL,
 * CT_ESTATE, CT_EDEVICE. */
int ct_tensor_write_async(ct_ctx *ctx, ct_tensor *t, const void *host, size_t bytes,
                          ct_event *after, ct_event *done);
/* Copies all of t, contiguous, to memory of ct_host_alloc after all work queued so far; the values are
 * there when `done` has happened. */
int ct_tensor_read_async(ct_ctx *ctx, const ct_tensor *t, void *host, size_t bytes, ct_event *done);

/* ---- captured work ---- */

typedef struct ct_capture ct_capture;

/* A piece of work that is queued again and again with the same shapes. Owned; free it before the context. */
CT_NODISCARD ct_capture *ct_capture_new(ct_ctx *ctx);
void ct_capture_free(ct_capture *c);
/* Runs fn(user), which queues the work and returns a status. The first time it is called (and warms
 * caches up), the second time captured into a CUDA graph, from then on the graph is launched without
 * calling fn. fn must queue the same work each time and read nothing back; its tensors must be there
 * before and live on (its own results end with it; gradients of leaves stay, at fixed addresses). What
 * changes from call to call must be in tensors, in what ct_optim_prepare sends, or be the position that
 * ct_ctx_set_position sets. Work that can't be captured is called each time, and ct_capture_refused says
 * why. */
int ct_capture_run(ct_ctx *ctx, ct_capture *c, int (*fn)(void *user), void *user);
/* Launches of the graph so far. */
uint64_t ct_capture_replays(const ct_capture *c);
/* Why it isn't captured: "" when it is or may yet be. */
const char *ct_capture_refused(const ct_capture *c);

#ifdef __cplusplus
}
#endif
#endif
