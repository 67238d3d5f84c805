// The line between Python, the kernels and the runtime: what a launch says, what comes back, and the
// few primitives from which the CUDA headers in this folder are made.
//
// A block's threads are fibers on one OS thread. A fiber runs until it waits (barrier, warp exchange)
// or ends; so between two waits nothing else runs, and header code needs no locks.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    void* host;              // the tensor storage
    uint64_t bytes;
    uint8_t* initialised;    // one flag byte per data byte, 1 = written; null: all of it is. Updated on success.
} laptop_storage;

typedef struct {             // one for each pointer parameter
    const char* name;
    const char* dtype;
    uint32_t itemsize;
    int32_t storage;         // index into storages; -1: a null pointer
    uint64_t offset, bytes;  // inside the storage
    int32_t ndim;
    int64_t shape[8];
} laptop_array;

typedef struct {
    int32_t argument;        // a value of so many bytes, which holds an address at byte `at`
    uint32_t at, bytes;
    int32_t array;           // index into arrays; the address is `offset` bytes after its start
    uint64_t offset;
} laptop_address;

enum { LAPTOP_PLAIN = 0, LAPTOP_PROFILE = 1, LAPTOP_SANITIZE = 2, LAPTOP_RECORD = 4,      // added up: 3 = the first two
       LAPTOP_TIMELINE = 8 };    // of the recorded blocks
enum { LAPTOP_FORWARD = 0, LAPTOP_REVERSE = 1, LAPTOP_SEEDED = 2, LAPTOP_EARLY = 3 };     // early: forward, copies at once

typedef struct {             // of all launches together
    double seconds, began;   // began: 0 before the first launch
    double checked;          // seconds that checks have taken
    uint64_t launches;
} laptop_limit;

struct laptop_parent;
struct laptop_result;
typedef struct laptop_launch {
    void (*entry)(void**);
    const char* kernel;
    uint32_t grid[3], block[3];
    uint64_t shared_bytes;   // dynamic shared memory
    void** args;             // args[j] points at the value of argument j
    int32_t n_args;
    const int32_t* arg_array;    // for each argument its index into arrays, or -1
    const laptop_array* arrays;
    int32_t n_arrays;
    const laptop_storage* storages;
    int32_t n_storages;
    int32_t mode, order;
    uint64_t seed;
    uint64_t step_limit;     // basic blocks per thread block, 0 = no limit (plain runs have none)
    int32_t max_threads;     // __launch_bounds__, 0 = none
    uint64_t shared_limit;   // 0 = 48 KiB, what CUDA allows without asking
    const char* library;     // path of the kernel's library
    int32_t in_place;        // a launch of host code: its arrays are in device memory, and stay there
    uint32_t banks, bank_bytes, sector_bytes;    // of the machine that is counted; 0: 32 banks of 4 bytes, sectors of 32
    uint32_t warp_size;                          // 8, 16 or 32; 0: 32
    // LAPTOP_RECORD, which needs LAPTOP_PROFILE and leaves the host's memory as it is:
    const uint32_t* record_blocks;   // linear numbers, ascending: what these blocks do is recorded; null: all blocks
    int32_t n_record_blocks;
    uint64_t record_events;  // at most
    int32_t watch_array;     // only accesses to bytes [watch_low, watch_high) of this array; -1: all accesses
    uint64_t watch_low, watch_high;
    const laptop_address* addresses;     // inside values, in a traced launch of arrays that are the host's
    int32_t n_addresses;
    // Of launches by kernels: who made this one, null if host code did; and who is told of each, when it has ended.
    const struct laptop_parent* parent;
    void (*child_done)(const struct laptop_launch*, const struct laptop_result*);
    laptop_limit* limit;     // null: none. Else some blocks are not checked where all would take too long
    uint32_t cluster[3];     // its size; 0: as the kernel says
    uint32_t cluster_limit;  // of its blocks; 0: the 8 that every card allows
    uint32_t no_grid_sync;   // made by host code, and not cooperative
} laptop_launch;

enum { LAPTOP_GLOBAL_LOAD, LAPTOP_GLOBAL_STORE, LAPTOP_SHARED_LOAD, LAPTOP_SHARED_STORE,
       LAPTOP_GLOBAL_ATOMIC, LAPTOP_SHARED_ATOMIC, LAPTOP_BARRIER,
       LAPTOP_LINE, LAPTOP_EXCHANGE,                         // these two are only recorded
       LAPTOP_COPY_IN, LAPTOP_COPY_OUT,                      // a copy engine's: from, and to, global memory
       LAPTOP_PRODUCT, LAPTOP_CLASSES };                     // of the tensor cores; its lanes are operations
enum { LAPTOP_IN_GLOBAL, LAPTOP_IN_SHARED, LAPTOP_IN_MODULE };

typedef struct {
    const char* name;
    int32_t space;           // LAPTOP_IN_...
    int32_t parameter;       // index into launch->arrays, -1 for shared arrays and module variables
    uint32_t itemsize;       // of a shared array: its alignment, which is that of an element
    uint64_t bytes;
    uint64_t offset;         // of a shared array: true offset in shared memory, red zones not counted
} laptop_memory;

typedef struct {             // one source operation on one array
    uint32_t pc;             // offset in the library of the instruction after the call
    int32_t operation;       // LAPTOP_GLOBAL_LOAD, ...
    int32_t memory;          // index into memories, -1 for barriers
    uint64_t requests, lanes, bytes, sectors, wavefronts, excess, unique_sectors;
    const uint64_t* unique;  // bitmap of the sectors touched, n_unique words; null for shared memory
} laptop_site;

typedef struct {             // one request of the block whose accesses are kept for the picture
    uint32_t pc, warp, lanes, size;
    int32_t operation, memory;
    int64_t offset[32];      // bytes from the start of the array, -1 where the lane was not active
} laptop_request;

typedef struct {             // a basic block of the traced build, or the place after a call
    uint32_t pc;             // offset in the library of the instruction after the call of its hook
    uint64_t warps, lanes;   // how often a warp ran it, and its active lanes summed over these times
} laptop_step;

typedef struct {             // what a warp did in one step, in the order of lockstep
    uint32_t block, warp, interval;      // interval: barriers that the block had passed
    uint32_t pc, lanes;      // lanes: those that took part
    int32_t operation;       // LAPTOP_GLOBAL_LOAD ... LAPTOP_BARRIER, LAPTOP_LINE: a basic block, LAPTOP_EXCHANGE
    int32_t memory;          // of a request: index into memories
    uint32_t size, sectors, wavefronts, excess;
    uint64_t first_event;    // of a request: its lanes' accesses follow each other
    uint32_t n_events;
} laptop_warp_step;

typedef struct {             // one lane's part in a request
    uint64_t time;           // its place in the order in which the accesses ran
    uint64_t address;        // differs for each byte of each array of a launch
    int64_t offset;          // in bytes, from the start of the memory
    int32_t memory;
    uint32_t step, block, thread, interval, pc, size;
    int32_t operation;
    unsigned char before[16], after[16];         // the bytes there before and after it
} laptop_event;

enum { LAPTOP_COPY_ISSUED, LAPTOP_COPY_LANDED, LAPTOP_ARRIVES, LAPTOP_WAIT_BEGINS, LAPTOP_WAIT_ENDS, LAPTOP_PRODUCT_ISSUED,
       LAPTOP_PRODUCTS_WAITED, LAPTOP_COPIES_WAITED };

typedef struct {             // of a timeline, in the order in which they ran
    const void *name, *barrier;      // of a copy or product; its mbarrier, or 1 and up: barriers 0 to 15 of the block; null: none
    int64_t offset;          // of the mbarrier in its memory
    int32_t memory, what;
    uint32_t thread, pc, phase, bytes;
} laptop_moment;

typedef struct {
    uint32_t block[3], thread[3];
    uint32_t pc;             // 0 = unknown
    int32_t action;          // 0 read, 1 write, 2 atomic, 3 barrier, 4 free, 5 not known
} laptop_party;

typedef struct laptop_parent {
    const char* kernel;
    uint32_t grid[3], block[3];
    laptop_party who;        // the thread that launched, and where
    uint32_t line;           // the same place, where no pc is known
    uint32_t depth;          // of nesting: 1 if host code launched the parent
} laptop_parent;

enum { LAPTOP_BLOCK_ONLY = 2 };

typedef struct {
    const char* kind;        // null = no error
    const char* reason;      // which of the ways to earn that kind (a word for the message)
    const char* detail;      // free text, may be null
    laptop_party who, other; // other: the second side of a race or of a split barrier
    int32_t has_thread, has_other;       // has_thread: 1, or LAPTOP_BLOCK_ONLY where a loop over threads ran
    int32_t memory;          // index into memories or -1
    int64_t offset;          // bytes from the start of that memory (negative: before it)
    uint32_t size;           // of the access
    const char* file;        // where known without the program counter (asserts, local arrays)
    uint32_t line, column;
    int32_t owner;           // 1 + the block, by its linear number, of whose shared memory this is; 0: of its own
} laptop_error;

typedef struct laptop_result {
    laptop_error error;
    int32_t interrupted;     // the user pressed the stop button
    const char* printed;     // what the kernel printed
    const laptop_memory* memories;
    uint64_t n_memories;
    const laptop_site* sites;
    uint64_t n_sites;
    uint64_t n_unique;       // words in each site's bitmap
    uint64_t unique_sectors[LAPTOP_CLASSES];     // over the whole launch
    uint64_t atomic_addresses[LAPTOP_CLASSES];   // distinct words that atomics touched
    uint64_t barriers;       // block barriers completed, summed over blocks
    uint64_t steps, divergent_steps;             // basic blocks that warps ran; of them, those without all live lanes
    // The span, when profiling: of the thread that did most, its loads, stores and atomics of counted memory and its
    // meetings (barriers, shuffles, votes); of the warp that did most, its requests and meetings.
    uint64_t longest_thread, longest_warp;
    uint64_t stack_bytes;    // most that a thread has had on its stack, from the kernel on: depends on the compiler
    const laptop_request* requests;
    uint64_t n_requests;
    uint64_t shared_bytes;   // static and dynamic, without red zones
    const laptop_error* notes;                   // not wrong, but worth saying (the same value written twice)
    uint64_t n_notes;
    const laptop_step* executed;                 // only when profiling
    uint64_t n_executed;
    const laptop_warp_step* recorded_steps;
    uint64_t n_recorded_steps;
    const laptop_event* recorded_events;
    uint64_t n_recorded_events;
    int32_t cut;             // there was more than record_events
    uint64_t checked_blocks; // from their start to their end, where there was a limit
    uint32_t checked[3];     // the first of them, and the last
    const laptop_moment* moments;
    uint64_t n_moments;
} laptop_result;

typedef struct { uint32_t block, thread, pc; int32_t action; } laptop_who;      // of an error, by linear numbers
typedef struct {             // an interval between barriers
    uint32_t block, number, first_step, n_steps;
    uint32_t ends, pc;       // 0: with its block, 1: at the barrier of this place, 2: the recording ends
} laptop_span;

typedef struct {
    laptop_warp_step* steps; // as recorded, then in order; each with room for one more, as spans too
    laptop_event* events;
    laptop_span* spans;      // these are found
    uint64_t n_steps, n_events, n_spans;
    const uint32_t* lines;   // of each step's place; 0: it is not the source's
    uint64_t most;           // only the last events; 0: all
    int32_t broken;          // it was cut, or has an error:
    int32_t n_sides;
    laptop_who sides[2];
    int64_t offset;          // the bytes of which it speaks
    int32_t memory;
    uint32_t size;
    int32_t in_shared, unset;
    uint32_t warp_size, sector_bytes;
    uint64_t first;          // where a person begins: a conflict, else wasted bytes, else an access
    int32_t refused;         // whether the last event was added: an access that the error came before
    int32_t n_marked;        // events of which the error speaks
    uint64_t marked[2];
} laptop_in_order;

laptop_result* laptop_run(const laptop_launch*);
void laptop_free(laptop_result*);
void laptop_order(laptop_in_order*);
#ifdef __cplusplus
}

// Primitives for the CUDA headers
// `site` is always the return address in the student's code, LAPTOP_SITE taken in the function that the student called. That
// function must be LAPTOP_FN (no hooks inside it): then at -O0, where nothing is inlined, each source call has its own address.
#if defined(__wasm__)
extern "C" const void* laptop_called_at;      // WebAssembly tells no address of its code: see page/hooked.py
#define LAPTOP_SITE laptop_called_at
#else
#define LAPTOP_SITE __builtin_return_address(0)
#endif
#if defined(__clang__)
#define LAPTOP_QUIET \
    __attribute__((no_sanitize("thread", "coverage", "undefined"), disable_sanitizer_instrumentation))
#elif defined(__has_attribute)
#if __has_attribute(no_sanitize_coverage)
#define LAPTOP_QUIET __attribute__((no_sanitize("thread", "undefined"), no_sanitize_coverage))
#else
#define LAPTOP_QUIET __attribute__((no_sanitize("thread", "undefined")))
#endif
#endif
#define LAPTOP_FN inline LAPTOP_QUIET

#if defined(__SANITIZE_THREAD__)
#define LAPTOP_TRACED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LAPTOP_TRACED 1
#endif
#endif
#ifndef LAPTOP_TRACED
#define LAPTOP_TRACED 0
#endif

namespace laptop {

// Warp rendezvous. The calling lane publishes `bytes` (at most 64) and waits until every lane of `mask` that has not exited has
// called with the same mask and operation. Then `present` says who came and slot[L] holds what lane L published. The answer is
// valid until this lane's next call of the runtime: copy what you need. A shuffle orders no memory; `orders_memory` is for
// __syncwarp and tile.sync(). Everything else (votes, reductions, wmma fragments, tiles) can be written on this one function.
struct Exchange {
    unsigned present;
    alignas(16) unsigned char slot[32][64];
};
enum Operation { SYNCWARP, SHUFFLE, VOTE, MATCH, REDUCE, MMA, OTHER };
const Exchange& warp_exchange(unsigned mask, const void* value, unsigned bytes, Operation operation,
                              bool orders_memory, const void* site);

// A shuffle read a lane that is not in its mask, has ended or does not exist: the value is undefined. It is a poison
// here, and an error of the sanitizer if the result of the launch depends on it.
void undefined_value(void* value, size_t bytes, int lane, const void* site);

// The lanes of this warp that reached this very call together (__activemask, coalesced_threads). `line` of the source
// stands for the call in optimised code, which has copies of it or shares one.
unsigned converged_lanes(const void* site, int line);

// Block barrier. Returns how many threads (bit 0..30) gave a predicate that is not 0, with `threads`
// filled with how many took part: count, and, or follow from the two. A `number` is one of inline PTX, whose warps may
// come to it from different places: see numbered.
struct Arrived { int count, threads; };
Arrived block_barrier(bool predicate, const void* site, uint32_t number = 0);
enum { NUMBERED = 0x100, ALIGNED = 0x200 };      // ALIGNED: the lanes of a warp come from one place
void grid_barrier(const void* site);      // cooperative groups' grid.sync()
bool grid_barrier_possible();
// Clusters. A kernel with __cluster_dims__ says so as it begins; the launch starts again, if that is news.
void cluster_dims(unsigned x, unsigned y = 1, unsigned z = 1);
unsigned in_cluster(int which, int axis);
unsigned rank_in_cluster(), cluster_size(), owner_rank(const void* p);
void cluster_arrive(bool relaxed, const void* site);
void cluster_wait(const void* site);
void* in_block_of_cluster(const void* p, unsigned rank, const void* site);   // the same place in another's shared memory
// An instruction of the tensor cores, told by one thread of those that issue it: so many multiplications and additions, and
// bytes that it reads in shared memory itself.
void count_product(uint64_t operations, const void* site, uint64_t shared_bytes = 0);
// A barrier of so many threads of the block, those that name the same key; and a value that a thread shows the
// others between two barriers.
void partial_barrier(uint32_t key, unsigned threads, const void* site, bool waits = true);
void show(const void* value);
const void* shown_by(unsigned thread);

// Memory that code without hooks touches (LAPTOP_FN functions, memcpy): say so before touching it.
void will_read(const void* p, size_t bytes, const void* site);
void declared(void* p, size_t bytes, const char* name, int line, bool in_parts = false);     // a variable that may be read before it is set
void has_no_value(const void* site);       // a variable whose element is used
void will_write(void* p, size_t bytes, const void* site);
void will_move(void* to, const void* from, size_t bytes, const void* site);     // however they are aligned
void will_read_constant(const void* p, size_t bytes, const void* site);         // __ldg: nobody writes it in this launch
enum { OF_BLOCK = 1, COMPARES = 2, ONLY_WRITES = 4 };         // an atomic of the block's scope; one that is a CAS
void will_update(void* p, size_t bytes, const void* site, int how = 0);         // an atomic
void took_lock();
// Before a volatile access, or one that acquires, releases or is relaxed: a thread may wait for what it sees there.
void will_communicate(void* p, size_t bytes, bool writes, const void* site);
void move_unseen(void* to, const void* from, size_t bytes);   // for those who have said so
void set_unseen(void* to, int value, size_t bytes);
void memory_fence(bool whole_device);                         // __threadfence
// cp.async: the destination must not be touched by this thread (or, past a barrier, by anyone)
// between async_begin and the wait that covers it. The copy itself is done by the caller, at once.
// A copy that is bound to a cuda::barrier is covered by the phase in which it was begun.
void async_copy(void* shared, const void* global, size_t bytes, const void* site, const void* barrier = nullptr,
                size_t unread = 0);       // so many bytes at its end are zeros
void must_align(const void* p, size_t bytes, bool writes, const void* site);
void async_commit();
void async_wait(int groups_left);

void* shared(const char* name, int line, size_t bytes, size_t align, const char* function);
void* dynamic_shared(const char* name, size_t itemsize, size_t align = 16);
void one_memory(const char* names);       // a note: two arrays that a function declares `extern __shared__`

LAPTOP_FN void copy_unseen(void* to, const void* from, size_t bytes) {
    if (LAPTOP_TRACED) move_unseen(to, from, bytes);
    else ::__builtin_memcpy(to, from, bytes);
}
void in_loop(bool only_looks);
LAPTOP_FN constexpr void turn(bool only_looks = true) {       // of a loop that may wait for others; or come to an end by what it does
    if (!LAPTOP_TRACED && !__builtin_is_constant_evaluated()) in_loop(only_looks);
}
#if LAPTOP_TRACED
#define LAPTOP_MAY_WAIT(ONLY_LOOKS)       // its accesses are seen
#else
#define LAPTOP_MAY_WAIT(ONLY_LOOKS) if (laptop::turn(ONLY_LOOKS), false) {} else
#endif
void left_early();                        // this thread returns from within a loop
void passed_by(const void* site);         // an `if` in a loop with a barrier inside
LAPTOP_FN void passed_by() { if (LAPTOP_TRACED) passed_by(LAPTOP_SITE); }
// Whether a kernel that can run a whole block at once is to do so; and whether its blocks, which reach each other through
// plain global memory only, may run on several cores.
bool loops_over_threads(bool blocks_apart);
const uint32_t* this_block();             // its coordinates
int lane_id();                            // 0..31
unsigned active_lanes();                  // lanes of this warp that have not exited
bool in_kernel();                         // false in host code
long long clock();
bool& carry_flag();                       // of inline PTX: add.cc sets what addc adds, in this thread
int print(const char* format, ...) __attribute__((format(printf, 1, 2)));
void host_prints(const char* format, const char* const* strings, size_t n, const void* site);     // null: no string
[[noreturn]] void assert_failed(const char* expression, const char* file, int line);
[[noreturn]] void trap(const char* what, const void* site);
[[noreturn]] void not_supported(const char* what, const void* site);
[[noreturn]] LAPTOP_FN void unknown(const char* what) { not_supported(what, LAPTOP_SITE); }      // in generated code
// An address in the shared memory of this block as PTX has it, 32 bits, and back.
uint32_t shared_address(const void* p);
void* shared_pointer(uint32_t address);
bool is_shared(const void* p), is_local(const void* p), is_constant(const void* p);
}  // namespace laptop

// Older clang copies structs by calls of memcpy, as it does in code without hooks.
extern "C" void* laptop_struct_copied(void* to, const void* from, size_t bytes, const void* site) noexcept;
#if LAPTOP_TRACED && defined(__clang__) && __clang_major__ < 16
extern "C" __attribute__((visibility("hidden"), weak)) LAPTOP_QUIET void* memcpy(void* to, const void* from, size_t n) {
    return laptop_struct_copied(to, from, n, LAPTOP_SITE);
}
#endif
#endif
