#pragma once
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>

namespace laptop {
// Set by the launch, and by each thread that runs blocks of it; taken by every error.
extern __thread sigjmp_buf* way_out __attribute__((tls_model("initial-exec")));
struct HandlerStack {            // of a thread: a handler cannot run on a stack that overflowed
    char* memory;
    HandlerStack();
    ~HandlerStack();
};
void use_handler_stack(stack_t* old);
uintptr_t program_counter(void* context);        // of a handler
bool on_other_core();            // whether this thread was made for a part of a launch's blocks
void interrupt_other_cores();
}  // namespace laptop
