/* SPDX-License-Identifier: Apache-2.0 */
/* The op table, made from the list in meson.build. */
#include "autograd/op.h"

#define CT_OP(name) extern const ct_op cti_op_##name;
#include "ops.def"
#undef CT_OP

const ct_op *const cti_ops[] = {
#define CT_OP(name) &cti_op_##name,
#include "ops.def"
#undef CT_OP
};

const int cti_n_ops = (int)(sizeof cti_ops / sizeof cti_ops[0]);
