/* SPDX-License-Identifier: Apache-2.0 */
/* What tests may ask of the software double. C. */
#ifndef DOUBLE_HOOKS_H
#define DOUBLE_HOOKS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Failures to come, instead of earlier ones; NULL or "": none. A comma-separated list of NAME:N,
 * the N-th call from now fails, or NAME:N+, so do all later ones. NAME is a function of the
 * runtime, cublasLt or cuDNN; "launch", a kernel launch; "any", any of these; "sticky", the N-th
 * device operation that runs makes an illegal access, after which every call of the runtime
 * fails. */
void ctd_fail(const char *spec);
void ctd_unstick(void); /* as if the process began anew after a sticky error */

/* Device operations run so far whose name begins so: kernels by their name, "memcpy H2D", "memset",
 * "cublasLtMatmul", "cudnnBackendExecute". */
long ctd_count(const char *prefix);
long ctd_syncs(void);   /* calls that made the host wait */
long ctd_mallocs(void); /* allocations of device and pinned memory */
size_t ctd_live_bytes(void);
long ctd_leaks(void); /* live allocations, streams, events, graphs, handles, descriptors */

#ifdef __cplusplus
}
#endif
#endif
