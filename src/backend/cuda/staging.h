/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads from any host memory without a wait: the bytes go through a pinned ring, whose parts are
 * used again when the copies from them are done. */
#ifndef BACKEND_CUDA_STAGING_H
#define BACKEND_CUDA_STAGING_H

#include "backend/cuda/cuda.h"

int cti_staging_open(ct_stream *s);
void cti_staging_close(ct_stream *s);
int cti_staging_upload(ct_stream *s, void *dst, const void *host, size_t bytes);

#endif
