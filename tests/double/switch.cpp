/* SPDX-License-Identifier: Apache-2.0 */
/* Switching of stacks: a few instructions on x86-64, ucontext elsewhere. AddressSanitizer is
 * told. The jump at its end, instead of a return, spares a misprediction. */
#include "fiber.h"

#include <cstdlib>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace ctd
{
enum { STACK_BYTES = 256 << 10, PAGE = 4096 };

struct Fiber {
    char *base;
    void *fake; /* AddressSanitizer's fake stack */
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
};

#if defined(__SANITIZE_ADDRESS__)
static const void *scheduler_bottom;
static size_t scheduler_size;
#endif

#if defined(__x86_64__)
static void *scheduler_sp;

extern "C" void ctd_switch(void **save, void *to);
__asm__(R"(
.text
.hidden ctd_switch
.globl ctd_switch
.type ctd_switch,@function
ctd_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.size ctd_switch,.-ctd_switch
)");
#else
static ucontext_t scheduler_context;
#endif

static Fiber *entering;

static void fiber_main()
{
    Fiber *self = entering;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);
#endif
    fiber_body(self);
}

Fiber *fiber_new()
{
    Fiber *f = new Fiber();
    char *p = (char *)mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE))
        abort();
    f->base = p + PAGE;
#if defined(__x86_64__)
    /* Tops at one offset in their pages would share one set of the cache. */
    static size_t color;
    void **top = (void **)(f->base + STACK_BYTES - 192 * (color++ % 61));
    *--top = nullptr; /* so that the stack is aligned as after a call */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f->sp = top;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->base;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, fiber_main, 0);
#endif
    return f;
}

void fiber_enter(Fiber *f)
{
    entering = f;
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    __sanitizer_start_switch_fiber(&fake, f->base, STACK_BYTES);
#endif
#if defined(__x86_64__)
    ctd_switch(&scheduler_sp, f->sp);
#else
    swapcontext(&scheduler_context, &f->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void fiber_leave(Fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&f->fake, scheduler_bottom, scheduler_size);
#endif
#if defined(__x86_64__)
    ctd_switch(&f->sp, scheduler_sp);
#else
    swapcontext(&f->context, &scheduler_context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    /* Another host thread may have entered this time. */
    __sanitizer_finish_switch_fiber(f->fake, &scheduler_bottom, &scheduler_size);
#endif
}
} // namespace ctd
