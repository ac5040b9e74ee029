/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of safetensors headers: what it accepts lies in the file, without holes or
 * overlap, and every refusal has a reason. */
#include "train/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every tensor follows the one before, and the last ends with the file. */
static void check_layout(const cti_st *st, size_t size)
{
    size_t at = st->n ? st->entry[0].begin : size;

    for (int i = 0; i < st->n; i++) {
        const cti_st_entry *e = &st->entry[i];
        size_t bytes = ct_dtype_bytes(e->dtype);

        for (int d = 0; d < e->ndim; d++)
            bytes *= (size_t)e->shape[d];
        if (!e->name || e->begin != at || e->bytes != bytes || e->bytes > size - at)
            abort();
        at += e->bytes;
    }
    if (at != size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cti_mem *m = cti_mem_new(NULL);
    ct_error err = {0};
    cti_st st;

    if (!m)
        return 0;
    if (cti_st_parse(m, data, size, "fuzz", &st, &err) < 0) {
        if (err.code != CT_EFORMAT || !err.text[0])
            abort();
    } else {
        if (err.code)
            abort();
        check_layout(&st, size);
        cti_st_clear(&st);
    }
    if (cti_mem_get_stats(m).live_blocks != 0)
        abort();
    cti_mem_free(m, NULL, NULL);
    return 0;
}
