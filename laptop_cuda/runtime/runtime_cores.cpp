// Plain launches over the cores of the machine. A kernel that runs a whole block at once, and whose blocks can reach
// each other through plain global memory only, has its blocks handed out to threads, a run of them at a time. The
// threads last as long as the launch, so that a process may fork after it.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "runtime.h"
#include "runtime_signals.h"

namespace laptop {

constexpr unsigned MOST_CORES = 64;
constexpr double WORTH = 1e-3, FOR_ONE = 5e-4, SHORT = 1e-4;     // seconds: of all that is left, of a thread, of a run

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// As many as the process may use, or as LAPTOP_CUDA_CORES says.
static unsigned cores() {
    unsigned found = 1;
    const char* asked = getenv("LAPTOP_CUDA_CORES");
    if (asked) {
        found = (unsigned)std::max(atoi(asked), 1);
    } else {
#if defined(__linux__)
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0) found = (unsigned)CPU_COUNT(&set);
#else
        found = (unsigned)std::max(sysconf(_SC_NPROCESSORS_ONLN), 1l);
#endif
    }
    return std::min(found, MOST_CORES);
}

struct Worker {
    Thread thread;               // in the place of all threads of its block
    Block block;
    pthread_t id;
    laptop_error error = {};
    uint64_t at = 0;             // the block that it runs
};

// One launch's blocks
static struct {
    std::atomic<uint64_t> next, last;            // to be handed out; none behind `last`: a block before them failed
    uint64_t run_length = 1;
    std::mutex mutex;
    std::condition_variable ended;
    unsigned working = 0;
} handed_out;
static pthread_t others[MOST_CORES];
static volatile sig_atomic_t n_others = 0;       // of those that may be running
static __thread bool is_other __attribute__((tls_model("initial-exec"))) = false;
static __thread laptop_error* own_error __attribute__((tls_model("initial-exec"))) = nullptr;

laptop_error& launch_error() { return own_error ? *own_error : run->error; }
bool on_other_core() { return is_other; }
void interrupt_other_cores() {
    for (int i = 0; i < n_others; ++i) pthread_kill(others[i], SIGINT);
}

static void run_handed_out(Worker& w) {
    uint64_t first;
    while ((first = handed_out.next.fetch_add(handed_out.run_length)) < run->n_blocks) {
        uint64_t end = std::min(first + handed_out.run_length, run->n_blocks);
        for (w.at = first; w.at < end; ++w.at) {
            if (w.at > handed_out.last || was_interrupted()) return;
            run_whole(w.block, w.at);
        }
    }
}

// Runs blocks until none is left, or one fails.
static void work(Worker& w) {
    sigjmp_buf here, *outer = way_out;
    way_out = &here;
    own_error = &w.error;
    if (sigsetjmp(here, 1) == 0) {
        current = &w.thread;
        run_handed_out(w);
        current = nullptr;
    } else {
        current = nullptr;
        uint64_t last = handed_out.last;
        while (w.error.kind && w.at < last && !handed_out.last.compare_exchange_weak(last, w.at)) {}
    }
    way_out = outer;
    own_error = nullptr;
}

static void* of_thread(void* given) {
    is_other = true;
    {
        HandlerStack handlers;
        work(*(Worker*)given);
    }
    std::lock_guard<std::mutex> lock(handed_out.mutex);
    if (--handed_out.working == 0) handed_out.ended.notify_one();
    return nullptr;
}

static void prepare(Worker& w, const Stack& stack) {
    w.block.warps.resize(1);
    w.block.warps[0].block = &w.block;
    w.block.warps[0].alive = 1;
    w.thread.warp = &w.block.warps[0];
    w.thread.stack = stack;
    w.thread.state = State::READY;
}

// False where the system gives no more threads.
static bool start(Worker& w) {
    static std::vector<Stack> stacks;            // kept: making one costs a system call
    if ((size_t)n_others == stacks.size()) stacks.push_back(new_stack(BLOCK_STACK_BYTES));
    prepare(w, stacks[n_others]);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, w.thread.stack.low, w.thread.stack.bytes);
    std::lock_guard<std::mutex> lock(handed_out.mutex);
    bool started = pthread_create(&w.id, &attributes, of_thread, &w) == 0;
    pthread_attr_destroy(&attributes);
    if (!started) return false;
    ++handed_out.working;
    others[n_others] = w.id;
    n_others = n_others + 1;
    return true;
}

static void wait_for_others(std::vector<std::unique_ptr<Worker>>& workers) {
    {
        std::unique_lock<std::mutex> lock(handed_out.mutex);
        handed_out.ended.wait(lock, [] { return handed_out.working == 0; });
    }
    int n = n_others;
    n_others = 0;
    for (int i = 0; i < n; ++i) pthread_join(workers[i + 1]->id, nullptr);
}

// The blocks from `first` on, of which each is expected to take so many seconds.
static void share_out(uint64_t first, double each, unsigned n) {
    Thread* self = current;
    current = nullptr;                           // the stop button waits: threads are being made
    run->shared_out = true;
    handed_out.next = first;
    handed_out.last = run->n_blocks;
    double in_time = std::min(SHORT / each, (double)(run->n_blocks - first) / (4 * n));
    handed_out.run_length = std::max((uint64_t)in_time, (uint64_t)1);
    std::vector<std::unique_ptr<Worker>> workers;
    for (unsigned i = 0; i < n; ++i) workers.emplace_back(new Worker);
    for (unsigned i = 1; i < n && start(*workers[i]); ++i) {}
    prepare(*workers[0], self->stack);
    work(*workers[0]);
    wait_for_others(workers);
    run->shared_out = false;
    laptop_error* found = nullptr;
    uint64_t least = UINT64_MAX;
    for (auto& w : workers) {
        if (w->error.kind && w->at < least) found = &w->error, least = w->at;
    }
    if (found) run->error = *found;
    workers.clear();
    current = self;
    if (run->error.kind || was_interrupted()) escape();
}

void run_whole_blocks(Block& b) {
    uint64_t i = 0;
    unsigned n = 0;
    double begin = now();
    for (uint64_t look = 1; i < run->n_blocks; ++i) {
        if (i == look && run->blocks_apart) {
            if (!n) n = cores();
            look = n == 1 ? 0 : 2 * i;
            double each = (now() - begin) / (double)i, left = (double)(run->n_blocks - i), rest = each * left;
            double most = std::min({(double)n, left, 1 + rest / FOR_ONE});
            if (n > 1 && rest > WORTH) return share_out(i, each, (unsigned)most);
        }
        run_whole(b, i);
    }
}
}  // namespace laptop
