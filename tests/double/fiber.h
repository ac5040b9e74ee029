/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers (switch.cpp), the scheduler of a block (fiber.cpp) and its shared memory (shared.cpp). */
#ifndef DOUBLE_FIBER_H
#define DOUBLE_FIBER_H

#include "ctd.h"
#include "kernel.h"

namespace ctd
{
/* A stack of its own. Fibers are made when needed and kept. */
struct Fiber;
Fiber *fiber_new();
void fiber_enter(Fiber *f); /* from the scheduler; returns when the fiber leaves */
void fiber_leave(Fiber *f); /* from the fiber to the scheduler */
void fiber_body(Fiber *self);

unsigned thread_number(), warp_epoch();
const char *kernel();

/* Shared memory begins undefined in each block, as 0xff. */
void shared_launch(size_t dynamic_bytes);
void shared_block();
void shared_barrier();
} // namespace ctd

#endif
