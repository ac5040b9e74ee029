/* SPDX-License-Identifier: Apache-2.0 */
/* Prints cuDNN's description of device 0: what tests/double/plans reads instead of a device. */
#include <cudnn.h>
#include <stdint.h>
#include <stdio.h>

static char json[1 << 16];

int main(void)
{
    cudnnBackendDescriptor_t d;
    int32_t device = 0;
    int64_t n = 0;
    char why[300] = "";

    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d) == 0 &&
        cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1,
                                 &device) == 0 &&
        cudnnBackendFinalize(d) == 0 &&
        cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 sizeof json, &n, json) == 0) {
        fwrite(json, 1, (size_t)n, stdout);
        return 0;
    }
    cudnnGetLastErrorString(why, sizeof why);
    fprintf(stderr, "no description of device 0: %s\n", why);
    return 1;
}
