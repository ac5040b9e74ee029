/* SPDX-License-Identifier: Apache-2.0 */
#include <ctrain/dtype.h>

static const struct {
    const char *name;
    unsigned char bytes, is_float;
} dtypes[CT_DTYPE_COUNT] = {
    [CT_BOOL] = {"bool", 1, 0},   [CT_U8] = {"uint8", 1, 0},    [CT_I32] = {"int32", 4, 0},
    [CT_I64] = {"int64", 8, 0},   [CT_F16] = {"float16", 2, 1}, [CT_BF16] = {"bfloat16", 2, 1},
    [CT_F32] = {"float32", 4, 1}, [CT_F64] = {"float64", 8, 1},
};

static int is_dtype(ct_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < CT_DTYPE_COUNT;
}

size_t ct_dtype_bytes(ct_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

const char *ct_dtype_name(ct_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

int ct_dtype_is_float(ct_dtype dtype)
{
    return is_dtype(dtype) && dtypes[dtype].is_float;
}
