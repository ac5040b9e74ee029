/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator of a context, for layers that see the context only by its public handle. */
#ifndef BASE_CTXMEM_H
#define BASE_CTXMEM_H

struct ct_ctx;
struct cti_mem;

struct cti_mem *cti_ctx_mem(const struct ct_ctx *ctx);

#endif
