/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the IDX parser: whatever it accepts must be all there. */
#include "data/idx.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int ndim = 1; ndim <= CTI_IDX_MAX_DIMS; ndim++) {
        ct_error err = {0};
        cti_idx x;
        if (cti_idx_parse("fuzz", data, size, ndim, &x, &err) < 0) {
            if (err.code != CT_EFORMAT || !err.text[0])
                abort();
            continue;
        }
        int64_t n = 1;
        unsigned sum = 0;
        for (int d = 0; d < ndim; d++)
            n *= x.dim[d];
        for (int64_t i = 0; i < n; i++)
            sum += x.data[i];
        if (err.code || n < 1 || x.data + n != data + size || sum > 255u * (unsigned)n)
            abort();
    }
    return 0;
}
