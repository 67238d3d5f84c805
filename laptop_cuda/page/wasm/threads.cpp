// What the runtime asks of a system, in WebAssembly: threads by Asyncify, memory that grows, and the way out of an error.
// A thread that waits is unwound: its frames go into the low part of its stack, and are taken from there when it goes on.
#include <fenv.h>
#include <sys/mman.h>

#include "runtime.h"

#define FROM(module, name) __attribute__((import_module(module), import_name(name)))

extern "C" {
FROM("asyncify", "start_unwind") void start_unwind(void*);
FROM("asyncify", "stop_unwind") void stop_unwind();
FROM("asyncify", "start_rewind") void start_rewind(void*);
FROM("asyncify", "stop_rewind") void stop_rewind();
FROM("page", "attempt") int page_attempt();      // calls `perform`; 1: it was left by `page_escape`
FROM("page", "escape") [[noreturn]] void page_escape();
FROM("page", "enter") int page_enter();          // calls `enter`; 1: it was left by `page_leave`
FROM("page", "leave") [[noreturn]] void page_leave();
const void* laptop_called_at = nullptr;
}

asm(".globaltype __stack_pointer, i32\n");
static inline __attribute__((always_inline)) char* stack_pointer() {
    char* p;
    asm volatile("global.get __stack_pointer\nlocal.set %0" : "=r"(p));
    return p;
}
static inline __attribute__((always_inline)) void set_stack_pointer(char* p) {
    asm volatile("local.get %0\nglobal.set __stack_pointer" ::"r"(p));
}

void* mmap(void*, size_t bytes, int, int, int, long) {
    constexpr size_t PAGE = 64 << 10;
    size_t end = __builtin_wasm_memory_grow(0, (bytes + PAGE - 1) / PAGE);       // in pages, before it grew
    return end == (size_t)-1 ? MAP_FAILED : (void*)(end * PAGE);
}

namespace laptop {

struct Fiber {
    char *at, *end;              // as Asyncify wants them: where frames go
    char* stack_pointer;
    void (*body)();
    bool started;
};
constexpr size_t FRAMES = STACK_BYTES / 4;
static Fiber *running = nullptr, *next = nullptr;
static bool resuming = false;

Stack new_stack(size_t bytes) {
    char* low = (char*)reserve(bytes, true);
    return {low, low + bytes - 64, bytes};
}

void* fiber_start(const Stack& stack, void (*body)()) {
    Fiber* made = (Fiber*)stack.low;
    *made = {nullptr, stack.low + FRAMES, stack.top, body, false};
    return made;
}

// The scheduler's side: this fiber, and those that it is changed for, until one leaves.
__attribute__((noinline)) void enter_fiber(void**, void* fiber, const Stack&) {
    char* own = stack_pointer();
    for (next = (Fiber*)fiber; next;) {
        running = next, next = nullptr;
        set_stack_pointer(running->stack_pointer);
        if (running->started) resuming = true, start_rewind(running);
        running->started = true;
        if (!page_enter()) stop_unwind();
        set_stack_pointer(own);
    }
}

static __attribute__((noinline)) void leave(void** save, void* other) {
    if (resuming) {
        resuming = false;
        return stop_rewind();
    }
    *save = running;
    next = (Fiber*)other;
    running->stack_pointer = stack_pointer();
    running->at = (char*)(running + 1);
    start_unwind(running);
}
void change_fiber(void** save, void* fiber, const Stack&) { leave(save, fiber); }
void leave_fiber(void** save, void*) { leave(save, nullptr); }
// By an exception of JavaScript's: what ends a thread is not rewound, and what may end one need not be ready for it.
void end_fiber(void**, void*) { page_leave(); }
extern "C" __attribute__((export_name("enter"))) void enter_running() { running->body(); }
size_t fiber_bytes(const Stack& stack, void*) { return stack.top - stack.low; }
void free_stack(const Stack&) {} void stack_abandoned(const Stack&) {}
void fiber_entered() {} void about_to_jump_out() {} void jumped_out() {}

// Errors leave by an exception of JavaScript's, which ends all frames between here and `attempt`.
static void (*to_perform)(const laptop_launch&);
static const laptop_launch* of_launch;
extern "C" __attribute__((export_name("perform"))) void perform_launch() { to_perform(*of_launch); }
void attempt(void (*perform)(const laptop_launch&), const laptop_launch& l) {
    to_perform = perform, of_launch = &l;
    char* own = stack_pointer();
    page_attempt();
    set_stack_pointer(own);
    current = nullptr;
}
void escape() { page_escape(); }
bool was_interrupted() { return false; }         // a worker is ended as a whole
void check_interrupt() {}
Busy::Busy() {} Busy::~Busy() {} Signals::Signals() {} Signals::~Signals() {}

extern "C" int laptop_page_rounds(int direction) {
    if (direction != FE_TONEAREST) not_supported("rounding that is not to the nearest", LAPTOP_SITE);
    return 0;
}

double now() { return 0; }
laptop_error& launch_error() { return run->error; }
void run_whole_blocks(Block& b) {
    for (uint64_t i = 0; i < run->n_blocks; ++i) run_whole(b, i);
}
}  // namespace laptop
