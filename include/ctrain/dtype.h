/* SPDX-License-Identifier: Apache-2.0 */
/* Element types. */
#ifndef CTRAIN_DTYPE_H
#define CTRAIN_DTYPE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order is the promotion order of PyTorch's categories: bool < integers < floats. */
typedef enum ct_dtype {
    CT_BOOL, /* one byte, 0 or 1 */
    CT_U8,
    CT_I32,
    CT_I64,
    CT_F16,  /* storage and casts; IEEE binary16 */
    CT_BF16, /* storage and casts; the upper half of an f32, rounded to nearest even */
    CT_F32,
    CT_F64,
    CT_DTYPE_COUNT
} ct_dtype;

size_t ct_dtype_bytes(ct_dtype dtype);
/* "float32", "int64", ...: PyTorch's name. Static storage; "?" for a number that is no dtype. */
const char *ct_dtype_name(ct_dtype dtype);
int ct_dtype_is_float(ct_dtype dtype);

/* The largest number of dimensions of a tensor. */
#define CT_MAX_DIMS 8

#ifdef __cplusplus
}
#endif
#endif
