// A fiber is a stack and the registers that a called function must preserve. Switching is an ordinary
// call that saves them on one stack and restores them from another: 6 ns, where ucontext takes 230
// (it makes a system call to save the signal mask) and a thread of the operating system 2,000.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__APPLE__)
#define SYMBOL(name) "_" name
#else
#define SYMBOL(name) name
#endif

#if defined(LAPTOP_UCONTEXT) || !(defined(__x86_64__) || defined(__aarch64__))
#undef LAPTOP_UCONTEXT
#define LAPTOP_UCONTEXT 1
#include <ucontext.h>
#endif

namespace laptop {

Stack new_stack(size_t bytes) {
    void* p = mmap(nullptr, bytes + GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE) != 0) {
        perror("the stack of a CUDA thread");
        abort();
    }
    Stack stack;
    stack.low = (char*)p + GUARD_BYTES;
    // Tops on many lines of the first two caches: 256 threads at multiples of 64 KiB would evict each other.
    static unsigned count = 0;
    stack.bytes = bytes;
    stack.top = stack.low + bytes - 64 - (count++ * 5 % 509) * 64;
    return stack;
}

void free_stack(const Stack& stack) { munmap(stack.low - GUARD_BYTES, stack.bytes + GUARD_BYTES); }

#if defined(LAPTOP_UCONTEXT)

// The portable way. What the others keep in a stack pointer is here a ucontext at the top of the stack.
void* fiber_start(const Stack& stack, void (*body)()) {
    ucontext_t* context = (ucontext_t*)(((uintptr_t)stack.top - sizeof(ucontext_t)) & ~(uintptr_t)63);
    getcontext(context);
    context->uc_stack.ss_sp = stack.low;
    context->uc_stack.ss_size = (size_t)((char*)context - stack.low);
    context->uc_link = nullptr;
    makecontext(context, body, 0);
    return context;
}
constexpr size_t BELOW = 4096;                   // what swapcontext itself has there
static void switch_stacks(void** save, void* load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, (ucontext_t*)load);
}

#else

extern "C" void laptop_switch(void** save, void* load);

#if defined(__x86_64__)
asm(".text\n.p2align 4\n.globl " SYMBOL("laptop_switch") "\n" SYMBOL("laptop_switch") ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
constexpr int SAVED = 6;
void* fiber_start(const Stack& stack, void (*body)()) {
    void** sp = (void**)((uintptr_t)stack.top & ~(uintptr_t)15);
    *--sp = nullptr;                             // `body` finds the stack as after a call
    *--sp = (void*)body;                         // where `ret` goes
    for (int i = 0; i < SAVED; ++i) *--sp = nullptr;
    return sp;
}
#else
asm(".text\n.p2align 4\n.globl " SYMBOL("laptop_switch") "\n" SYMBOL("laptop_switch") ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n  ret\n");
void* fiber_start(const Stack& stack, void (*body)()) {
    void** sp = (void**)((uintptr_t)stack.top & ~(uintptr_t)15) - 20;
    memset(sp, 0, 160);
    sp[11] = (void*)body;                        // x30, where `ret` goes
    return sp;
}
#endif
static void switch_stacks(void** save, void* load) { laptop_switch(save, load); }
constexpr size_t BELOW = 0;
#endif

size_t fiber_bytes(const Stack& stack, void* sp) {
    return std::min((size_t)(stack.top - (char*)sp) + BELOW, (size_t)(stack.top - stack.low));
}

#if defined(__SANITIZE_ADDRESS__)
static const void* main_low;
static size_t main_bytes;
static bool from_main;           // the switch in progress
#endif

static void switch_to(void** save, void* load, const void* low, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake;
    __sanitizer_start_switch_fiber(&fake, low, bytes);
    switch_stacks(save, load);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    (void)low, (void)bytes;
    switch_stacks(save, load);
#endif
}

void enter_fiber(void** save, void* fiber, const Stack& stack) {
#if defined(__SANITIZE_ADDRESS__)
    from_main = true;
#endif
    switch_to(save, fiber, stack.low, stack.bytes);
}

void change_fiber(void** save, void* fiber, const Stack& stack) {
#if defined(__SANITIZE_ADDRESS__)
    from_main = false;
#endif
    switch_to(save, fiber, stack.low, stack.bytes);
}

void leave_fiber(void** save, void* scheduler) {
#if defined(__SANITIZE_ADDRESS__)
    switch_to(save, scheduler, main_low, main_bytes);
#else
    switch_to(save, scheduler, nullptr, 0);
#endif
}
void end_fiber(void** save, void* scheduler) {
    leave_fiber(save, scheduler);
    __builtin_unreachable();
}

// For a runtime that is itself built with AddressSanitizer: it must know whose stack this is, and that the
// frames of an abandoned fiber, or those jumped over on the way out, are gone. Otherwise nothing.
void fiber_entered() {
#if defined(__SANITIZE_ADDRESS__)
    const void* low;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &low, &bytes);
    if (from_main) main_low = low, main_bytes = bytes;
#endif
}
void stack_abandoned(const Stack& stack) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack.low, stack.bytes);
#endif
    (void)stack;
}
void about_to_jump_out() {
#if defined(__SANITIZE_ADDRESS__)
    if (current) __sanitizer_start_switch_fiber(nullptr, main_low, main_bytes);
#endif
}
void jumped_out() {
#if defined(__SANITIZE_ADDRESS__)
    if (current) __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    if (main_low) __asan_unpoison_memory_region(main_low, (char*)__builtin_frame_address(0) - (char*)main_low);
#endif
}
}  // namespace laptop
