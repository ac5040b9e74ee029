/* SPDX-License-Identifier: Apache-2.0 */
/* All of ctrain. */
#ifndef CTRAIN_CTRAIN_H
#define CTRAIN_CTRAIN_H

#include <ctrain/autograd.h>
#include <ctrain/ctx.h>
#include <ctrain/data.h>
#include <ctrain/device.h>
#include <ctrain/dtype.h>
#include <ctrain/error.h>
#include <ctrain/nn.h>
#include <ctrain/ops.h>
#include <ctrain/optim.h>
#include <ctrain/tensor.h>
#include <ctrain/train.h>

#endif
