// A crash inside a kernel ends the launch, not the process; so does the stop button. The handlers are installed
// only while a launch lasts. They run on a stack of their own: a thread's may be the one that overflowed.
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#include <new>

#include "runtime.h"
#include "runtime_signals.h"

namespace laptop {

__thread sigjmp_buf* way_out __attribute__((tls_model("initial-exec"))) = nullptr;
static volatile sig_atomic_t interrupted = 0;
static __thread volatile sig_atomic_t busy __attribute__((tls_model("initial-exec"))) = 0;
static pthread_t runner;
static const int CAUGHT[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGINT};
static struct sigaction old_action[5];
static stack_t old_stack;
static char* handler_stack = nullptr;
constexpr size_t HANDLER_STACK = 64 << 10;

void escape() {
    if (!run->shared_out) about_to_jump_out();           // else it stays on its stack
    siglongjmp(*way_out, 1);
}

void attempt(void (*perform)(const laptop_launch&), const laptop_launch& l) {
    sigjmp_buf here, *outer = way_out;
    way_out = &here;
    if (sigsetjmp(here, 1) == 0) {
        try {
            perform(l);
        } catch (const std::bad_alloc&) {
            run->error = bad_launch("out of memory", 0);
        }
    } else {
        jumped_out();
        fesetround(FE_TONEAREST);                // the stop button may have met a thread within __fadd_rd
    }
    current = nullptr;
    way_out = outer;
}

bool was_interrupted() { return interrupted; }
void check_interrupt() { if (interrupted) escape(); }

Busy::Busy() { busy = busy + 1; }
Busy::~Busy() {
    busy = busy - 1;
    if (interrupted && !busy && current) escape();
}

static void on_interrupt(int signal) {
    bool told = on_other_core() && interrupted;          // by the runner
    if (!told && !pthread_equal(pthread_self(), runner)) {       // Python runs in more than one thread
        pthread_kill(runner, signal);
        return;
    }
    interrupted = 1;
    if (!told) interrupt_other_cores();
    if (current && !busy) escape();                      // in the student's code: a loop may never look
}

uintptr_t program_counter(void* context) {
#if defined(__APPLE__) && defined(__aarch64__)
    return ((ucontext_t*)context)->uc_mcontext->__ss.__pc;
#elif defined(__APPLE__)
    return ((ucontext_t*)context)->uc_mcontext->__ss.__rip;
#elif defined(__x86_64__)
    return (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return ((ucontext_t*)context)->uc_mcontext.pc;
#else
    return 0;
#endif
}

static void on_crash(int signal, siginfo_t* info, void* context) {
    if (!current) {                                      // not in a kernel
        for (int i = 0; i < 5; ++i) {
            if (CAUGHT[i] == signal) sigaction(signal, &old_action[i], nullptr);     // it happens again, there
        }
        return;
    }
    uintptr_t address = (uintptr_t)info->si_addr, low = (uintptr_t)current->stack.low;
    bool overflow = address + GUARD_BYTES >= low && address < low + 4096;
    const char* kind = signal == SIGFPE ? "division by zero" : signal == SIGILL ? "assertion"
                       : overflow ? "stack overflow" : "out of bounds";
    const char* reason = signal == SIGILL ? "no return" : run->traced ? "signal" : "unchecked";
    laptop_error e = make_error(kind, reason, nullptr, 0);
    e.offset = (int64_t)address;
    e.who.pc = code_offset((void*)program_counter(context));
    if (e.who.pc) ++e.who.pc;                            // pcs are return addresses: one past what did it
    uint32_t depth = current->depth < 64 ? current->depth : 64;
    if (!e.who.pc && depth) e.who.pc = code_offset(current->returns[depth - 1]);
    launch_error() = e;
    pending = false;
    escape();
}

HandlerStack::HandlerStack() : memory((char*)malloc(HANDLER_STACK)) {
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = HANDLER_STACK;
    sigaltstack(&stack, nullptr);
}
HandlerStack::~HandlerStack() {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    free(memory);
}

void use_handler_stack(stack_t* old) {
    if (!handler_stack) handler_stack = (char*)malloc(HANDLER_STACK);
    stack_t stack = {};
    stack.ss_sp = handler_stack;
    stack.ss_size = HANDLER_STACK;
    sigaltstack(&stack, old);
}

Signals::Signals() {
    interrupted = busy = 0;
    runner = pthread_self();
    use_handler_stack(&old_stack);
    for (int i = 0; i < 5; ++i) {
        struct sigaction action = {};
        sigemptyset(&action.sa_mask);
        action.sa_flags = SA_ONSTACK | SA_RESTART;
        if (CAUGHT[i] == SIGINT) {
            action.sa_handler = on_interrupt;
        } else {
            action.sa_flags |= SA_SIGINFO;
            action.sa_sigaction = on_crash;
        }
        sigaction(CAUGHT[i], &action, &old_action[i]);
    }
}

Signals::~Signals() {
    for (int i = 0; i < 5; ++i) sigaction(CAUGHT[i], &old_action[i], nullptr);
    sigaltstack(&old_stack, nullptr);
}
}  // namespace laptop
