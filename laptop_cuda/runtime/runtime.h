// What the parts of the runtime know of each other. Kernels never include this.
//
//   runtime_fibers.cpp     stacks and the switch between them
//   runtime_schedule.cpp   blocks, warps, barriers: who runs next
//   runtime_cores.cpp      blocks over the cores of the machine
//   runtime_clusters.cpp   blocks of a cluster: their barrier, and each other's shared memory
//   runtime_phases.cpp     cuda::barrier, asynchronous copies
//   runtime_warp.cpp       shuffles, votes, __syncwarp: lanes that wait for each other
//   runtime_memory.cpp     the bytes that kernels may touch, and their names
//   runtime_image.cpp      the variables of the kernel's library
//   runtime_trace.cpp      lanes' accesses -> warp requests -> counts
//   runtime_sanitize.cpp   races, uninitialised reads
//   runtime_limit.cpp      which blocks are checked, in a run that is to answer in time
//   runtime_known.cpp      what threads know of each other by fences and atomics
//   runtime_settled.h      reads of which the sanitizer knows that they are no news
//   runtime_record.cpp     what each lane and warp did, kept for a replay
//   runtime_hooks.cpp      what the compiler calls before each load, store and basic block
//   runtime_signals.cpp    crashes and the stop button
//   runtime_launch.cpp     one launch from its description to its result
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <string>
#include <utility>
#include <vector>

#include "engine.h"

#if !defined(MAP_ANONYMOUS)
#define MAP_ANONYMOUS MAP_ANON
#endif
#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif
extern int warpSize;              // as kernels see it; written before a launch
#pragma GCC visibility push(hidden)      // calls among the parts go straight
#pragma GCC diagnostic ignored "-Wattributes"    // of a part, with members of hidden types

namespace laptop {

struct Block;
struct Warp;
struct Cluster;

struct Stack {
    char* low = nullptr;         // first usable byte; the page below it is the guard
    char* top = nullptr;         // where the first frame starts
    size_t bytes = 0;            // from low on
};
#if defined(__wasm__)
constexpr size_t STACK_BYTES = 64 << 10;         // all memory is 4 GiB
#else
constexpr size_t STACK_BYTES = 256 << 10;
#endif
constexpr size_t BLOCK_STACK_BYTES = 16 << 20;
constexpr size_t GUARD_BYTES = 64 << 10;     // a whole number of pages on every system, arm64 included
Stack new_stack(size_t bytes = STACK_BYTES);
void free_stack(const Stack&);
void* fiber_start(const Stack&, void (*run)());      // the stack pointer to switch to
void enter_fiber(void** save, void* fiber, const Stack&);      // from the scheduler
void change_fiber(void** save, void* fiber, const Stack&);     // from another fiber
void leave_fiber(void** save, void* scheduler);
[[noreturn]] void end_fiber(void** save, void* scheduler);     // nobody resumes it
size_t fiber_bytes(const Stack&, void* sp);          // of its stack that a fiber uses while it does not run
void fiber_entered();                                // first call on a new fiber
void stack_abandoned(const Stack&);                  // its frames are gone
void about_to_jump_out();                            // around the jump from an error to the launch
void jumped_out();

enum class State : uint8_t { READY, FULL, BARRIER, EXCHANGE, CONVERGE, GRID, PHASE, CHILDREN, DONE };

struct Rendezvous {
    Exchange data;
    unsigned mask, readers;
    Operation operation;
    bool open, orders_memory;
};

struct Access {                  // one load or store of one lane
    uint64_t address;
    uint64_t what;               // see access_kind: the same for all lanes of a request
    uint16_t step() const { return (uint16_t)(what >> 48); }     // basic blocks this lane had logged before it
    uint64_t kind() const { return what << 16; }
};
constexpr unsigned ASYNCHRONOUS = 0x80;          // beside the size of a store: cp.async makes it
inline uint64_t access_kind(uint32_t pc, unsigned operation, unsigned size, uint32_t step) {
    return (uint64_t)step << 48 | (uint64_t)operation << 40 | (uint64_t)size << 32 | pc;
}

struct Recorded {                // what a recording knows of an access besides
    uint64_t time;
    uint32_t interval;
    unsigned char before[16], after[16];
};

struct Log {                     // what a lane did since the last merge
    static constexpr uint32_t STEPS = 4096, ACCESSES = 2048, SPARE = 64;
    static constexpr uint32_t MOST = ACCESSES + 2 * SPARE;       // the last few for hooks that cannot wait
    Recorded* recorded = nullptr;        // one for each access, while a launch is recorded
    uint32_t n_steps = 0, n_accesses = 0, at_step = 0, at_access = 0;
    uint32_t step[STEPS + SPARE];
    Access access[MOST];
};

struct Met {                     // a place in the kernel's own body where a thread met others
    uint32_t place, times;
    uint32_t loop_end;           // the furthest step before it came again; 0: it never did
};

constexpr uint32_t KERNEL_DEPTH = 2;  // of the functions with hooks the generated entry is 1 deep, the kernel 2
struct __attribute__((visibility("default"))) Coordinates { unsigned x, y, z; };    // threadIdx and its kin

struct Unset { uintptr_t address; size_t bytes; const char* name; int line; uint32_t depth; unsigned char with; bool in_parts; };
struct Nothing { const void* pc; uintptr_t address; size_t size; uintptr_t to; };        // a read of what was never set
struct Half { uintptr_t address; size_t bytes; intptr_t pc; int action; };       // of a copy of a struct
struct alignas(64) Thread {      // the first two lines of the cache hold what every switch needs
    void* sp = nullptr;          // null: not started
    Warp* warp = nullptr;
    Coordinates place = {};
    uint32_t index = 0;          // in the block, x fastest
    uint8_t lane = 0;
    State state = State::DONE;
    const void* site = nullptr;  // where it waits
    uint32_t number = 0;         // and, of inline PTX, at which barrier
    Rendezvous* meeting = nullptr;
    Log* log = nullptr;          // only in traced runs; lane i of every warp uses log i
    Stack stack;
    std::vector<char> kept;      // what was on its stack, while its block waits for the others of the grid
    uint32_t depth = 0;          // of calls
    uint32_t clock = 1;          // counts the warp synchronisations that order memory
    uint32_t last_place = 0;     // where it was as its warp was last looked at
    const void* last_pc = nullptr;       // in the kernel's own body, of its last access
    const void* earlier_pc = nullptr;    // the same, where nothing was accessed since it passed a barrier by
    uint32_t passed = 0;                 // the place behind that barrier's `if`
    bool went_on = false;                // having passed it by
    uint32_t steps = 0, last_step = 0;   // since the last merge, where nothing is counted: no log is kept
    uint64_t span = 0;           // its counted operations, up to the last merge
    uint32_t furthest = 0;       // of the steps in the kernel's own body
    uint32_t spins = 0;
    bool carry = false;          // of inline PTX
    bool owes = false;           // its own variables to products under way
    uintptr_t converging_at = 0;
    unsigned converged = 0;      // answer of converged_lanes
    uint32_t async_group = 0;
    const void* awaited = nullptr;       // the cuda::barrier that it waits for
    const void* shown = nullptr;
    void* returns[64] = {};      // return addresses, so that a return is a step of its own
    const void* frame = nullptr; // of the kernel's own body
    const char* base = nullptr;  // of its stack, where the kernel's own begins
    bool left_early = false;     // it returned from within a loop
    bool fenced = false;
    int last_error = 0;          // of its calls of the CUDA API
    std::vector<Met> met;
    std::vector<Unset> unset;    // variables that the compiler suspects
    Nothing nothing = {};
    Half half = {};
    uintptr_t awaits = 0;        // what it has read last by a volatile or atomic load
};

struct Warp {
    Block* block = nullptr;
    uint32_t index = 0;
    unsigned alive = 0, ready = 0, full = 0, converging = 0, at_barrier = 0;
    uint32_t merged_interval = 0;        // barriers that it had passed where its merged steps end
    uint64_t span = 0;                   // its requests and meetings
    Thread* lanes[32] = {};
    std::vector<std::unique_ptr<Rendezvous>> meetings;
    uint32_t known_to_all[32] = {};      // up to which clock all its lanes have seen each
    uint32_t ordered_in = 0;             // the interval of its last __syncwarp
    bool alike = true;                   // no lane knows more than that; else
    std::vector<uint32_t> known;         // known[a * 32 + b]: up to which clock lane a has seen lane b
};

struct InFlight {
    uintptr_t address;
    uint32_t bytes, thread, group, pc;
    const void* barrier;
    const char* reason = "copy in flight";
    bool source = false;         // what is copied: it may be read
    uint32_t rows = 1;           // of so many bytes, and so far from one to the next
    uint64_t step = 0;
    const Block* issuer = nullptr;       // null: the block whose list this is
    bool reduces = false;        // what is there, as atomics may
    uint64_t mark = 0;           // of a thread's own copy (cp.async): when it was issued

    bool meets(uintptr_t other, size_t size) const {
        if (other + size <= address || other >= address + (rows - 1) * step + bytes) return false;
        uint64_t at = other < address || rows == 1 ? 0 : (other - address) / step;
        uintptr_t row = address + at * step;
        return other < row + bytes || (at + 1 < rows && other + size > row + step);
    }
};

struct Settled {                 // see runtime_settled.h: of a stretch of memory
    uintptr_t low = 0;
    size_t bytes = 0;            // 0: nothing is settled here
    uint64_t* word = nullptr;    // epoch | open | reader of 10 bits | reader: they read again at the same place only
    uint32_t (*pc)[2] = nullptr; // where those two read
};

struct Cell {                    // who touched these bytes last; a mark is interval | thread | clock
    enum { WRITER, UPDATER, READER, OTHER_READER, MARKS };
    uint64_t mark[MARKS];
    uint32_t pc[MARKS];
};

struct Region {                  // one object that a kernel may touch
    int space = LAPTOP_IN_GLOBAL;
    uintptr_t low = 0;
    size_t bytes = 0;
    uint8_t* initialised = nullptr;
    Cell* cells = nullptr;       // made at the first sanitized access
    unsigned grain = 4;          // bytes a cell stands for
    bool constant = false;
    bool settles = true;         // its cells are the aligned words of memory, all of them inside it
    int32_t memory = -1;         // index into Run::memories (arrays of a storage: see name_of)
};

struct Seen { uint64_t mark; uint32_t thread, interval; };        // of an atomic, by which thread and when
struct Block {
    uint32_t index[3] = {}, linear = 0;
    uint32_t alive = 0, waiting = 0, at_grid = 0, predicates = 0;
    uint32_t interval = 0;               // serial number of the stretch between two barriers
    uint32_t barriers = 0;               // that it has passed
    uint64_t steps = 0, read_clocks = 0;
    bool barrier_opened = false;
    bool gives_way = false;              // to whoever may take a lock next
    std::vector<Seen> seen;              // of other blocks, the last few
    bool watched = false;                // traced, and not left out for want of time
    bool stays = true;                   // its threads, after their turn, where they were after an earlier one
    std::unordered_set<uint64_t> states;         // then, as sums
    uint32_t rounds = 0;                 // in which its threads looked at memory again and again, since one came further
    bool gave_stacks = false;            // to the blocks that run while it waits for them: they are not its own
    Arrived arrived = {};                // answer of the last block_barrier
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    char* shared = nullptr;              // its shared memory, red zones included
    size_t shared_filled = 0;            // of its bytes, since it began
    uint8_t* shared_initialised = nullptr;
    Settled settled;
    std::vector<InFlight> in_flight;     // into, and out of, shared memory
    std::vector<InFlight> in_flight_elsewhere;
    std::shared_ptr<struct Asynchronous> asynchronous;   // of the pack: its barriers and bulk copies
    uint32_t arrived_at[16] = {};        // of each barrier of a part of the block, those who arrived and do not wait
    uint32_t turns[16] = {};             // and how often it has opened
    Cluster* cluster = nullptr;          // null: it is alone
    uint32_t rank = 0;
    bool moved = false, visited = false; // some thread ran; others of its cluster have touched its shared memory
    bool known_to_run = true;            // the others of its cluster, by its threads
    std::deque<Region> regions;          // of its shared arrays, while another block of its cluster runs
    ~Block();
};

struct SharedArray {
    const char* name;
    int line;
    const char* function;
    size_t bytes, align, offset; // offset: without red zones
    size_t position;             // in Block::shared
    size_t index;                // in Run::shared
    Region region;               // low is relative to the block's shared memory
};

struct SharedSlot { uint32_t low, high; SharedArray* array; };   // the array in, or nearest to, 128 bytes

struct View { uint64_t low, high; int32_t array; };      // an array's bytes in the arena

struct Found { Region* region; uintptr_t low; };         // low: where the object starts

constexpr uint32_t UNDEFINED_FLOAT = 0xfffadbad;
struct Storage {
    int host = 0;                // index into laptop_launch::storages
    uintptr_t data = 0;          // arena address of host byte `from`
    uint64_t from = 0, bytes = 0;
    bool freed = false;          // by cudaFree
    std::vector<View> views;
    Region region;
};

typedef std::pair<uintptr_t, uintptr_t> Code;            // first and last byte of a function

struct Symbol : Region { std::string name; bool writable; };

struct Ended {                   // what the launches of a family came to
    bool failed = false, interrupted = false;
    int code = 0;                // the first cudaError_t that ends them all, else a refused launch's
};
constexpr int INVALID_VALUE = 1, INVALID_CONFIGURATION = 9;      // as cudaError_t has them
inline bool is_refusal(int code) { return code == INVALID_VALUE || code == INVALID_CONFIGURATION; }      // and no more

struct Site {
    laptop_site counts;
    std::vector<uint64_t> unique;
};

struct Interval { uint32_t block, grid_epoch; };

struct Watch {                   // of a launch with a limit
    bool limited = false;
    double share = 0, used = 0, since = 0;       // seconds for checks: allowed, taken, and when a block began
    uint64_t watched = 0, whole = 0;             // blocks
    uint32_t shown[3] = {};
};

struct Run {
    const laptop_launch* launch = nullptr;
    void (*entry)(void**) = nullptr;
    std::vector<void*> args;
    std::vector<void*> pointers;         // arena addresses that args point at
    std::map<int, std::vector<std::max_align_t>> values;     // of args that hold arena addresses
    bool profiling = false, sanitizing = false, traced = false, recording = false;
    bool in_place = false;               // of host code: its arrays are those of the heap
    bool may_loop = false, loops = false;        // the kernel may, and does, run a whole block at once
    bool blocks_apart = false;           // its blocks reach each other through plain global memory only, if at all
    bool shared_out = false;             // several threads run blocks now
    std::mutex placing;                  // of shared arrays
    bool by_code = false;                // of host code or of a kernel: it reads its arguments where those left them
    Run* lender = nullptr;         // the parent, whose copies of the arrays this child works on
    std::shared_ptr<void> children;      // that its kernel has launched
    Ended ended;                         // of it and its children
    unsigned banks = 32, bank_bytes = 4, sector_bytes = 32, warp_size = 32;      // of the machine that is counted
    uint32_t n_threads = 0;
    uint64_t n_blocks = 0;
    uintptr_t code = 0, code_high = 0;   // where the kernel's library is loaded
    std::vector<std::unique_ptr<Block>> blocks;      // one, or all of them once grid.sync() is used
    std::vector<std::unique_ptr<Cluster>> clusters;
    uint32_t cluster[3] = {}, cluster_size = 1;      // 0: nothing is said of clusters
    bool clustered = false;              // of more than one block
    Log* logs = nullptr;                 // 32 of them: the warps take turns
    uint64_t random = 0;
    uint64_t barriers = 0;
    // memory
    uintptr_t arena = 0;
    size_t arena_bytes = 0;
    std::vector<uint32_t> storage_at;    // for each MiB of the arena
    Settled settled;                     // of the arena
    std::vector<Storage> storages;
    std::vector<int> storage_of;         // of each array
    std::deque<SharedArray> shared;
    std::vector<SharedSlot> shared_at;   // for each 128 bytes of a block's shared memory
    size_t shared_used = 0, shared_bytes = 0;
    std::vector<Symbol> symbols;
    std::vector<Code> copiers;           // constructors and operators that copy a class, by address
    uintptr_t image_low = 0, image_high = 0;
    std::vector<laptop_memory> memories;
    // counts
    std::vector<Site> sites;
    std::vector<int32_t> site_table;
    std::vector<uint64_t> unique[LAPTOP_CLASSES];    // sectors touched by loads, stores, atomics
    std::vector<uint64_t> atomic_words;
    uint64_t atomic_word_count = 0;
    uint64_t unique_count[LAPTOP_CLASSES] = {};
    std::vector<laptop_request> requests;
    uint64_t steps = 0, divergent_steps = 0;
    uint64_t counted = 0, longest_thread = 0, longest_warp = 0;      // requests and meetings of all warps; see engine.h
    uint64_t stack_bytes = 0;
    std::vector<laptop_step> executed;
    std::vector<int32_t> executed_table;             // by program counter: index into executed
    // recording
    std::vector<laptop_warp_step> recorded_steps;
    std::vector<laptop_event> recorded_events;
    std::vector<laptop_moment> moments;
    uint64_t time = 0;
    bool cut = false, older_gone = false;        // of what was recorded: the end, the beginning
    // sanitizer
    std::vector<Interval> intervals;
    uint32_t grid_epoch = 0;
    uint64_t slices = 0;                 // of blocks that wait for others in loops, since one came further
    Watch watch;
    laptop_error undefined = {};         // the first undefined value that a shuffle gave
    int locks_taken = 0;
    bool stores_relaxed = false;         // to global memory
    uint64_t used_unset = 0;             // a first read of what may be a fill
    unsigned char poison = 0xff;         // the bytes of an undefined value; where the host's code made the launch, a NaN's
    std::unique_ptr<Run> again;          // the same launch with another poison: does its result differ?
    // answers
    std::string printed;
    laptop_error error = {};
    std::vector<laptop_error> notes;
    std::string detail;
};

struct Result : laptop_result {
    std::unique_ptr<Run> run;
    std::vector<laptop_site> site_list;
};
Result* run_once(const laptop_launch&, Run* lender = nullptr);
void end_launch(Result&, bool copies_back);      // its children have run
laptop_error refused(const laptop_launch&);      // of a wrong size; kind is null if it is none
laptop_error bad_launch(const char* reason, int64_t value);

extern Run* run;                 // null: no launch in progress
// Null: host code, of which there may be several threads, or the scheduler.
extern __thread Thread* current __attribute__((tls_model("initial-exec")));

void run_grid();
void run_whole_blocks(Block&);   // all blocks of a kernel that runs them so, perhaps over several cores
void run_whole(Block&, uint64_t linear);
[[noreturn]] void finish_thread();
uint32_t drawn(uint32_t below);   // of the launch's seed
void park(State);                // the current thread waits; returns when it runs again
void give_way();                 // the others it woke go first
void await_phase(const void* barrier, const void* site);     // until somebody ends it
void wake(Thread*);
void wake_all_at(Block&, const void* awaited);   // who wait for this phase
void leave_meeting(Thread*);
void complete_meetings(Warp&);   // after a lane has ended: perhaps nobody waits for anyone else now
void release_converged(Warp&);   // nobody in the warp can run: see converged_lanes
void log_meeting(Thread*, unsigned lanes, bool of_block);
inline void unfold(uint32_t (&at)[3], uint64_t linear, const uint32_t* size) {
    at[0] = linear % size[0], at[1] = linear / size[0] % size[1], at[2] = linear / size[0] / size[1];
}
laptop_party party_of(uint32_t block, uint32_t thread, uint32_t pc, int action);
laptop_party party(const Thread*, uint32_t pc, int action);
inline uint32_t code_offset(const void* pc) {
    uintptr_t p = (uintptr_t)pc;
    return p >= run->code && p < run->code_high ? (uint32_t)(p - run->code) : 0;
}
uint32_t place_in_kernel(const Thread*, const void* pc);
// What happens in a helper happens, for the kernel's own body, at the call of the helper.
inline const void* pc_in_kernel(const Thread* t, const void* pc) {
    return t->depth > KERNEL_DEPTH ? t->returns[KERNEL_DEPTH] : pc;
}
void remember_meeting(Thread*);
bool jumped_over(const Thread&, Met);
laptop_error gone_past(const char* kind, const Thread* waiting, const Thread* gone);

constexpr uint32_t PORTABLE_CLUSTER = 8;
struct Member { uint32_t arrivals = 0, waits = 0, interval = 0, clock = 0; };        // a thread, and what its arrival covers
struct Cluster {                 // blocks that run together, their shared memory side by side
    uint64_t number = 0;
    std::vector<Block*> blocks;          // by rank
    char* shared = nullptr;
    uint8_t* initialised = nullptr;
    uint32_t phases = 0, arrived = 0;    // of its barrier: phases that are over, threads that wait or may
    std::vector<Member> members;
    ~Cluster();
};
Member& member(const Thread&);
void ask_for_cluster(const uint32_t (&size)[3]);         // or fails: no such cluster, or grid
void start_cluster(uint64_t number, std::vector<Block*>& live);
void start_block(Block&, uint64_t linear, uint64_t watched_with);
void thread_left(const Thread&);         // it has ended
void start_again();              // the launch, from a thread of it
void block_left(const Block&);         // the last one has: did others of the cluster touch its memory too late?
void take_over_shared(Block&), put_shared_away(Block&);       // the regions of run->shared are this block's
Block* peer_at(const void*);     // whose shared memory this is: another block's of the same cluster; else null
Found find_in_peer(Block& owner, uintptr_t address, size_t size, int action, const void* pc);

// Set as the runtime is loaded; null where the pack is not there.
struct Seams {
    void (*map_heap)();                          // before a traced launch of host code: the memory that it works on
    bool (*host_sees)(uintptr_t address);        // while a kernel runs: managed or pinned memory
    bool (*is_registered)(const void* p, size_t bytes);      // memory of the host that kernels may use
    void (*run_children)(const laptop_launch&, Run&);        // what its kernel has launched
    bool (*run_awaited)(Block&);                 // false: none of its threads waits for children
    bool (*deliver)(Block&, bool at_its_end);    // nobody can go on: false if no copy changes that
    std::string (*awaited)(const std::vector<Block*>&);      // by threads of theirs that wait for a phase
    void (*touched_own)(uintptr_t address, int action, const void* pc);      // a variable of a thread that owes some
    void (*touched_by_host)(uintptr_t address, size_t size, int action, const void* pc);
    void (*host_prints)(const char* format, const char* const* strings, size_t n, const void* site);
};
extern Seams seams;
extern std::recursive_mutex one_at_a_time;       // Python, and host code, may launch from several threads

constexpr size_t SLOT = 1 << 20;         // device arrays begin in slots of their own
inline size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }
constexpr size_t SHARED_SPAN = 2 << 20;  // a block's shared memory with its red zones
void* reserve(size_t bytes, bool usable);
void map_arrays();               // plain: the tensors' own memory. Traced: copies in the arena.
void copy_back();
void pointers_of_host(const Run&);  // arrays of addresses as the host has them
void unmap_arrays();
void read_symbols();
extern uintptr_t heap_base;      // of the device memory of whole programs, and so many bytes: 0 until there is some
extern size_t heap_used;
extern uintptr_t variables_low, variables_high;  // around the device variables of whole programs
extern uintptr_t unwritten_low, unwritten_high;  // around bytes of host memory that nobody has written
constexpr int RELAXED = 16;       // of a volatile or atomic access, beside its action
inline void host_touches(uintptr_t address, size_t size, int action, const void* pc) {
    bool near_variables = address - variables_low < variables_high - variables_low;
    bool near_unwritten = address - unwritten_low < unwritten_high - unwritten_low;
    if (address - heap_base < heap_used || near_variables || near_unwritten) seams.touched_by_host(address, size, action, pc);
}
void start_shared(Block&);
void free_shared(Block&);
Found find(uintptr_t address, size_t size, int action, const void* pc);   // or fails: out of bounds
int32_t memory_at(const Block&, uintptr_t address, int64_t* offset);
void locate(laptop_error&, const Block&, uintptr_t address, size_t size);        // says what memory it is about
void touch(uintptr_t address, size_t size, int action, bool is_volatile, const void* pc);
void touch_range(uintptr_t address, size_t bytes, int action, const void* pc);
void check_in_flight(const std::vector<InFlight>&, uintptr_t address, size_t size, int action, const void* pc);
void check_range(uintptr_t address, size_t bytes, int action, const void* pc);   // no access of a thread: it is not counted
Cell* cells_of(Region&);
inline bool is_own(const Thread* t, uintptr_t address) {
    return address - (uintptr_t)t->stack.low < STACK_BYTES && t->log && run->sanitizing;
}
template <class F> void forget_own(Thread* t, F which) {
    for (size_t i = t->unset.size(); i--;)
        if (which(t->unset[i])) t->unset.erase(t->unset.begin() + (std::ptrdiff_t)i);
}
void own_scalar(Thread*, uintptr_t address, size_t size, int action, const void* pc);
void moves_struct(Thread*, const Half&);
void pass(Thread*, uintptr_t address, size_t size, int action, const void* pc);          // of a hook
// Which bytes were written, by a 1; null: not known. A struct may be copied with what it lacks: no 4 bytes of it are read alone.
constexpr uint8_t COPIED_UNSET = 2, EITHER = 3;     // EITHER: two lanes' values, one of which an earlier launch has left
uint8_t* flags_of(const Thread*, Found, uintptr_t address);
void pass_padding(uintptr_t address, size_t bytes, bool perhaps = false);        // of a struct that is read whole
void refine(Region&);            // from 4 bytes a cell to one

// Steps that are synchronisations, of lanes of the warp or of the block: three words, the lanes and the site after it.
constexpr uint32_t MEETING = 0xffffffffu, BLOCK_MEETING = 0xfffffffeu, MEETING_WORDS = 3;
inline bool is_meeting(uint32_t step) { return step >= BLOCK_MEETING; }
void merge(Warp&, bool force);   // groups what the warp's lanes logged; force: nobody will say more for now
void count_barrier(const void* site);
// A row of a bulk copy in global memory: each asks for its sectors anew. The copy is counted with the first.
void count_copied(int operation, uintptr_t address, size_t bytes, bool is_first, const void* site);
void check(Found, uintptr_t address, size_t size, int action, bool is_volatile, const void* pc);
void must_be_unwritten(Found, uintptr_t address, size_t size, const void* pc);      // in this launch
extern int update_how;           // of an access with action 2
bool init_check(Found, uintptr_t address, size_t size, int action, const void* pc);      // false: a read of nothing
void resolve_pending();          // was the last suspicious store one that changed anything?
extern bool pending;
void remark(laptop_error, const char* reason);     // a note, once for each place
bool either_stays(const laptop_error&, void* p, const void* before, size_t bytes);       // false: whoever is told of it decides
void compare_winners();          // at the launch's end
void start_interval(Block&);
void end_interval(Block&);       // decides about uninitialised reads of shared memory
void start_sanitizing();
void end_sanitizing();
class Unwatched {                // while it lives, other launches may be checked
public:
    Unwatched();
    ~Unwatched();
private:
    std::unique_ptr<struct Watched> kept;
};
void warp_ordered(Warp&, unsigned lanes);
void forget_trust(const Block&);          // what it read in good faith is not decided
void fence(bool device);
void synchronise(uintptr_t address, bool device);        // a relaxed access: both of these, but for the reader's fence
void acquire_at(uintptr_t address, bool of_block = true);        // what was released in the block; else in others, too
void release_at(uintptr_t address, bool of_block = true);
void release_for(const Block&, uintptr_t address, uint64_t who, uint32_t clock);     // what a copy wrote that `who` issued

double now();                    // seconds
void start_watching();
bool to_be_watched(uint64_t block);
void begin_watching(const Block&);
void end_watching(const Block&, bool ended);
bool watched_too_long();
void unwatch(Block&);            // from here on
void check_limit(const Thread*); // or fails: the time of all launches is over
void perhaps_waits(Thread*);     // it looks at memory that others may change
void pass_unwatched(Thread*, uintptr_t address, size_t size, int action, bool is_volatile);

void start_recording();
void record_access(const Log&, const Access&, size_t size, bool writes);
void record_values();            // after the stores that were announced
extern bool values_wanted;
bool is_recorded(const Block&);
void record_request(const Warp&, const laptop_warp_step&, const Access* const* accesses, const uint8_t* lanes, int n);
void record_step(Warp&, unsigned lanes, const uint32_t* words);
bool nothing_left_to_record(uint64_t block);
inline bool has_timeline() { return run->launch->mode & LAPTOP_TIMELINE; }
void put_down(const Block&, uint32_t thread, int what, const void* barrier, uint32_t phase, const void* site,
              const void* name = nullptr, uint32_t bytes = 0);
// Into the timeline: what a thread did, or the copy engine for it.
template <class... T> inline void note(const T&... moment) { if (has_timeline()) put_down(moment...); }
void record_end();               // of a launch that fails: what the warp has logged so far

laptop_error make_error(const char* kind, const char* reason, const void* pc, int action);
laptop_error error_of(const char* kind, const char* reason, const Thread* t, uint32_t place, int action = 3);
void add_other(laptop_error&, const laptop_party&);
[[noreturn]] void fail(const laptop_error&);     // ends the launch, from a fiber or from the scheduler
laptop_error& launch_error();    // where the error of the block that runs here is kept
[[noreturn]] void escape();
void attempt(void (*perform)(const laptop_launch&), const laptop_launch&);       // to its end, or to its first error
bool was_interrupted();
void check_interrupt();
bool uninitialised_read_of(const Thread*);       // an error after one may be its consequence
struct Busy {                    // the stop button waits: the heap may be in use
    Busy();
    ~Busy();
};
struct Signals {                 // handlers for crashes and the stop button, as long as a launch lasts
    Signals();
    ~Signals();
};
}  // namespace laptop
#pragma GCC visibility pop
extern laptop::Coordinates threadIdx, blockIdx, blockDim, gridDim;
