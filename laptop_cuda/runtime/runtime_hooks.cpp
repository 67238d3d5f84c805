// What the compiler calls before each load and store (-fsanitize=thread), at each basic block
// (-fsanitize-coverage=trace-pc) and on a bad index or division (-fsanitize=bounds,integer-divide-by-zero),
// here without the sanitizers' libraries. Outside a traced launch they ask only whether host code touches device memory.
#include <string.h>

#include <algorithm>
#include "runtime.h"
#include "runtime_settled.h"

#define PC LAPTOP_SITE
#if defined(__wasm__)
#define FRAME nullptr            // clang calls for the kernel's own functions alone
#else
#define FRAME (*(const void**)__builtin_frame_address(0))        // of the caller, which is compiled with -O0
#endif

namespace laptop {

static void bad_access(const char* kind, const char* why, uintptr_t address, size_t size, int action, const void* pc) {
    laptop_error e = make_error(kind, why, pc, action);
    locate(e, *current->warp->block, address, size);
    fail(e);
}

void must_align(const void* p, size_t bytes, bool writes, const void* site) {
    bool wrong = current && current->log && bytes && (uintptr_t)p % bytes;
    if (wrong) bad_access("misaligned", "", (uintptr_t)p, bytes, writes, site);
}

// The address to which a function returns is beside its arrays, and a pointer gone wrong has written it.
[[maybe_unused]] static void written_return(Thread* t) {
    fail(make_error("out of bounds", "return address", t->returns[t->depth], 1));
}

void check_in_flight(const std::vector<InFlight>& all, uintptr_t address, size_t size, int action, const void* pc) {
    Block& b = *current->warp->block;
    for (const InFlight& f : all) {
        if (f.source ? !action : f.reduces && action == 2) continue;
        if (!f.meets(address, size)) continue;
        laptop_error e = make_error("race", f.reason, pc, action);
        locate(e, b, address, size);
        add_other(e, party(&(f.issuer ? *f.issuer : b).threads[f.thread], f.pc, !f.source));
        fail(e);
    }
}

static const int OPERATIONS[2][3] = {{LAPTOP_GLOBAL_LOAD, LAPTOP_GLOBAL_STORE, LAPTOP_GLOBAL_ATOMIC},
                                     {LAPTOP_SHARED_LOAD, LAPTOP_SHARED_STORE, LAPTOP_SHARED_ATOMIC}};

// Structs of the source's own copy themselves in functions of the compiler's: an access there is one of the line that
// calls for the copy. Null: the copy of a kernel's argument, which the host has read, and of its members that copy themselves.
static bool copies(const void* pc) {
    auto after = std::upper_bound(run->copiers.begin(), run->copiers.end(), Code{(uintptr_t)pc, ~(uintptr_t)0});
    return after != run->copiers.begin() && (uintptr_t)pc <= (after - 1)->second;
}
static const void* site_of(const Thread* t, const void* pc) {
    if (t->depth > KERNEL_DEPTH && run->by_code && copies(t->returns[KERNEL_DEPTH])) return nullptr;
    if (!copies(pc)) return pc;
    return t->depth > KERNEL_DEPTH ? t->returns[t->depth <= 64 ? t->depth - 1 : 63] : nullptr;
}

// Whether an access may be; `pc` becomes the place that answers for it. Null: nothing to count.
static inline __attribute__((always_inline)) Region* checked(Thread* t, uintptr_t address, size_t size, int action,
                                                             bool is_volatile, const void*& pc) {
    if (pending) resolve_pending();
    if (address - (uintptr_t)t->stack.low < STACK_BYTES) {
        if (t->owes) seams.touched_own(address, action, pc);
        return nullptr;
    }
    if (run->by_code && t->depth <= 1) return nullptr;   // the launch itself, which reads the host's variables
    if (!run->copiers.empty() && !(pc = site_of(t, pc))) return nullptr;
    Found f = found_quickly(t, address, size);
    if (!f.region) f = find(address, size, action, pc);
    if (!f.region) return nullptr;
    if (address & (size - 1) && (size & (size - 1)) == 0) bad_access("misaligned", "", address, size, action, pc);
    if (action && f.region->constant) bad_access("out of bounds", "constant", address, size, action, pc);
    if (run->sanitizing) {
        bool in_shared = f.region->space == LAPTOP_IN_SHARED;
        const Block& b = *t->warp->block;
        const Block* peer = in_shared && address - (uintptr_t)b.shared >= SHARED_SPAN ? peer_at((void*)address) : nullptr;
        const auto& in_flight = peer ? peer->in_flight : in_shared ? b.in_flight : b.in_flight_elsewhere;
        if (!in_flight.empty()) check_in_flight(in_flight, address, size, action, pc);
        check(f, address, size, action, is_volatile, pc);
        t->last_pc = pc_in_kernel(t, pc);
    }
    return f.region;
}

static inline Access& log_access(Log& log, const Region& region, uintptr_t address, size_t size, int action, const void* pc) {
    int operation = OPERATIONS[region.space == LAPTOP_IN_SHARED][action];
    Access& a = log.access[log.n_accesses++];
    a = {address, access_kind((uint32_t)((uintptr_t)pc - settled.code), operation, (unsigned)size, log.n_steps)};
    return a;
}

static void looked_often(Thread* t) {    // perhaps for what a thread will do that has not had its turn
    ++t->warp->block->rounds;
    t->spins = 0;
    park(State::FULL);
}

// action: 0 load, 1 store, 2 atomic
template <bool WAITS>
static inline __attribute__((always_inline)) void touch_once(uintptr_t address, size_t size, int action, bool is_volatile, const void* pc) {
    Thread* t = current;
    if (!t) return host_touches(address, size, action | (is_volatile ? RELAXED : 0), pc);
    if (is_volatile) t->awaits = address;
    if (!t->log) {
        if (action || is_volatile) pass_unwatched(t, address, size, action, is_volatile);
        return is_volatile ? perhaps_waits(t) : void();
    }
    t->spins += is_volatile || action == 2;
    if (WAITS && t->spins >= 256 && !run->profiling) looked_often(t);
    Region* region = checked(t, address, size, action, is_volatile, pc);
    if (!region || !run->profiling || region->constant) return;
    Log& log = *t->log;
    if (WAITS && log.n_accesses >= Log::ACCESSES + Log::SPARE) park(State::FULL);
    const Access& a = log_access(log, *region, address, size, action, pc);
    if (log.recorded) record_access(log, a, size, action != 0);
}

void touch(uintptr_t address, size_t size, int action, bool is_volatile, const void* pc) {
    touch_once<true>(address, size, action, is_volatile, pc);
}

// What nearly every access is where accesses are only counted. False: nothing was done.
template <size_t SIZE> static inline bool counted_quickly(Thread* t, uintptr_t address, int action, const void* pc) {
    if (!settled.only_counts || !t->log || t->depth <= 1 || t->owes) return false;
    if (address - (uintptr_t)t->stack.low < STACK_BYTES) return true;
    Region* region = found_quickly(t, address, SIZE).region;
    if (!region || region->constant || address % SIZE || t->log->n_accesses >= Log::ACCESSES + Log::SPARE) return false;
    log_access(*t->log, *region, address, SIZE, action, pc);
    return true;
}

constexpr bool IN_A_PAGE = sizeof(void*) == 4;   // whose texts have a step before the log is full: no plain access waits
void pass(Thread* t, uintptr_t address, size_t size, int action, const void* pc) {
    if (is_own(t, address)) return own_scalar(t, address, size, action, pc);
    touch_once<!IN_A_PAGE>(address, size, action, false, pc);
    if (size >= 8 && action && t->log && run->sanitizing) moves_struct(t, {address, size, (intptr_t)pc, action});
}
template <size_t SIZE> static inline void load(uintptr_t address, const void* pc) {
    Thread* t = current;
    if (!t) return host_touches(address, SIZE, 0, pc);
    if (is_own(t, address)) {
        own_scalar(t, address, SIZE, 0, pc);
    } else if (SIZE >= 4 && is_settled<SIZE>(t, address)) {
        t->last_pc = pc_in_kernel(t, pc);
    } else if (counted_quickly<SIZE>(t, address, 0, pc)) {
        return;
    } else if (SIZE == 16 && t->log && run->sanitizing) {
        pass_padding(address, SIZE, true);       // g++ copies a struct of 16 bytes so, too
        pass(t, address, SIZE, 0, pc);
    } else if (SIZE == 4 && settled.shared.bytes) {
        load4(t, address, pc);
    } else {
        pass(t, address, SIZE, 0, pc);
    }
}

template <size_t SIZE> static inline void store(uintptr_t address, const void* pc) {
    Thread* t = current;
    if (!t) return host_touches(address, SIZE, 1, pc);
    if (is_own(t, address)) {
        own_scalar(t, address, SIZE, 1, pc);
    } else if (SIZE == 4 && settled.shared.bytes) {
        store4(t, address, pc);
    } else if (!counted_quickly<SIZE>(t, address, 1, pc)) {
        pass(t, address, SIZE, 1, pc);
    }
}

static size_t widest(uintptr_t address, size_t bytes) {
    size_t piece = 16;
    while ((bytes | address) & (piece - 1)) piece /= 2;
    return piece;
}

// Bytes in the widest pieces that start and size allow: a struct of 12 bytes is three of 4 in each lane.
void touch_range(uintptr_t address, size_t bytes, int action, const void* pc) {
    if (!current) return host_touches(address, bytes, action, pc);
    if (!current->log && !run->sanitizing) return;
    size_t piece = widest(address, bytes);
    if (!action && bytes > 4 && bytes <= 256 && run->sanitizing) pass_padding(address, bytes);
    for (uintptr_t end = address + bytes; address < end; address += piece) touch(address, piece, action, false, pc);
    if (run->sanitizing && current->log) moves_struct(current, {address - bytes, bytes, (intptr_t)pc, action});
}

void check_range(uintptr_t address, size_t bytes, int action, const void* pc) {
    size_t piece = widest(address, bytes);
    for (uintptr_t end = address + bytes; address < end; address += piece) {
        const void* site = pc;
        checked(current, address, piece, action, false, site);
    }
}

// Of an array, of shared memory or of the module: a copy elsewhere may be one of the headers, in the runtime's memory.
static bool is_known(uintptr_t address) {
    return !current || (address - run->arena < run->arena_bytes || is_shared((void*)address) ||
                       (address >= run->image_low && address < run->image_high));
}

void move_unseen(void* to, const void* from, size_t bytes) { memmove(to, from, bytes); }
void set_unseen(void* to, int value, size_t bytes) { memset(to, value, bytes); }

static inline void touch_any(uintptr_t address, size_t bytes, int action, const void* site, bool in_pieces = false) {
    if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && !in_pieces) touch(address, bytes, action, false, site);
    else touch_range(address, bytes, action, site);
}
void will_read(const void* p, size_t bytes, const void* site) { touch_any((uintptr_t)p, bytes, 0, site); }
void will_read_constant(const void* p, size_t bytes, const void* site) {
    if (current && current->log && run->sanitizing) must_be_unwritten(find((uintptr_t)p, bytes, 0, site), (uintptr_t)p, bytes, site);
    will_read(p, bytes, site);
}
void will_write(void* p, size_t bytes, const void* site) { touch_any((uintptr_t)p, bytes, 1, site); }

void will_move(void* to, const void* from, size_t bytes, const void* site) {
    touch_any((uintptr_t)from, bytes, 0, site, (uintptr_t)from & (bytes - 1));
    touch_any((uintptr_t)to, bytes, 1, site, (uintptr_t)to & (bytes - 1));
}

void perhaps_waits(Thread* t) {
    if (run->loops || ++t->spins % (run->sanitizing ? 256 : 4096)) return;
    ++t->warp->block->rounds;
    park(State::FULL);           // for a thread that has not had its turn
}
void in_loop(bool only_looks) {
    if (!current || current->log) return;
    if (!only_looks) run->slices = 0;        // it comes further by what it writes, perhaps
    perhaps_waits(current);
}

int update_how = 0;
void will_update(void* p, size_t bytes, const void* site, int how) {
    Thread* t = current;
    if (!t) return host_touches((uintptr_t)p, bytes, 2, site);
    t->awaits = (uintptr_t)p;
    if (run->traced) update_how = how;
    if (run->sanitizing && how & ONLY_WRITES && t->log) {
        Found f = find((uintptr_t)p, bytes, 2, site);
        if (f.region) init_check(f, (uintptr_t)p, bytes, 1, site);
    }
    if (run->traced) touch((uintptr_t)p, bytes, 2, false, site);
    if (!t->log) perhaps_waits(t);
}

void will_communicate(void* p, size_t bytes, bool writes, const void* site) {
    Thread* t = current;
    if (!t) return;
    if (!t->log) perhaps_waits(t);
    if (!run->traced) return;
    size_t piece = bytes < 16 ? bytes : 16;
    for (size_t at = 0; at < bytes; at += piece) touch((uintptr_t)p + at, piece, writes, true, site);
}

bool& carry_flag() {
    static thread_local bool of_host;
    return current ? current->carry : of_host;
}

void memory_fence(bool whole_device) { if (current) fence(whole_device); }

// `frame`: of the function that stepped. Compilers without no_sanitize_coverage call for the headers' functions too,
// which are not the kernel's own body, wherever the linker has put them.
__attribute__((noinline)) static void full_step(Thread* t, const void* pc, const void* frame) {
    if (!t->log) {
        if (t->steps >= UNWATCHED_STEPS) t->steps = 0, park(State::FULL);
        return;
    }
    Log& log = *t->log;
    if (values_wanted) record_values();
    if (log.n_steps >= Log::STEPS || log.n_accesses >= Log::ACCESSES || t->steps >= Log::STEPS) {
        t->warp->block->rounds += t->spins >= (run->profiling ? 256 : 64);
        t->spins = 0;
        park(State::FULL);
    }
    uint32_t deep = t->depth > 254 ? 0 : 255 - t->depth, here = (uint32_t)((uintptr_t)pc - run->code);
    if (t->depth == KERNEL_DEPTH && here > t->furthest && frame == t->frame) t->furthest = here;
    t->last_step = deep << 24 | (here & 0xffffff);
    if (run->profiling) log.step[log.n_steps++] = t->last_step;
    else ++t->steps;
}

static inline void step(Thread* t, const void* pc, const void* frame) {
    uint32_t here = (uint32_t)((uintptr_t)pc - settled.code);
    bool further = here > t->furthest && t->depth == KERNEL_DEPTH;
    Log* log = settled.counts_steps ? t->log : nullptr;
    if (log && !further && log->n_steps < Log::STEPS && log->n_accesses < Log::ACCESSES && t->depth <= 254) {
        log->step[log->n_steps++] = t->last_step = (255 - t->depth) << 24 | (here & 0xffffff);
        return;
    }
    if (t->steps >= settled.most_steps || further) return full_step(t, pc, frame);
    t->last_step = here;
    ++t->steps;
}

struct SourceLocation { const char* file; uint32_t line, column; };
struct TypeDescriptor { uint16_t kind, info; char name[1]; };
struct OutOfBoundsData { SourceLocation where; TypeDescriptor* array; TypeDescriptor* index; };
struct OverflowData { SourceLocation where; TypeDescriptor* type; };
struct TypeMismatchData { SourceLocation where; TypeDescriptor* type; unsigned char log_alignment, check; };

static laptop_error source_error(const char* kind, const char* reason, const SourceLocation& where, const void* pc) {
    laptop_error e = make_error(kind, reason, pc, 0);
    e.file = where.file;
    e.line = where.line;
    e.column = where.column;
    return e;
}

static void bad_index(OutOfBoundsData* data, uintptr_t index, const void* pc) {
    if (!current) return;
    if (pending) resolve_pending();
    laptop_error e = source_error("out of bounds", "index", data->where, pc);
    int bits = 1 << (data->index->info >> 1);
    e.offset = data->index->info & 1 && bits < 64 ? (int64_t)((uint64_t)index << (64 - bits)) >> (64 - bits)
                                                  : (int64_t)index;
    run->detail = data->array->name;
    e.detail = run->detail.c_str();
    fail(e);
}
}  // namespace laptop

using namespace laptop;
extern "C" {

#define HOOKS(size)                                                                                            \
    void __tsan_read##size(void* p) { load<size>((uintptr_t)p, PC); }                                          \
    void __tsan_write##size(void* p) { store<size>((uintptr_t)p, PC); }                                        \
    void __tsan_volatile_read##size(void* p) { touch((uintptr_t)p, size, 0, true, PC); }                       \
    void __tsan_volatile_write##size(void* p) { touch((uintptr_t)p, size, 1, true, PC); }                      \
    void __tsan_read_write##size(void* p) {                                                                    \
        const void* pc = PC;                                                                                   \
        touch((uintptr_t)p, size, 0, false, pc), touch((uintptr_t)p, size, 1, false, pc); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
// Types whose alignment is less than their size: struct { int a, b; }.
#define UNALIGNED(size)                                                                                        \
    void __tsan_unaligned_read##size(void* p) { touch_range((uintptr_t)p, size, 0, PC); }                      \
    void __tsan_unaligned_write##size(void* p) { touch_range((uintptr_t)p, size, 1, PC); }                     \
    void __tsan_unaligned_volatile_read##size(void* p) { touch_range((uintptr_t)p, size, 0, PC); }             \
    void __tsan_unaligned_volatile_write##size(void* p) { touch_range((uintptr_t)p, size, 1, PC); }
UNALIGNED(2) UNALIGNED(4) UNALIGNED(8) UNALIGNED(16)
void __tsan_read_range(void* p, size_t n) { touch_range((uintptr_t)p, n, 0, PC); }
void __tsan_write_range(void* p, size_t n) { touch_range((uintptr_t)p, n, 1, PC); }
// PC is the next thread's, once this one has waited.
#define COPIES(name)                                                                                           \
    void* __tsan_##name(void* to, const void* from, size_t n) {                                                \
        const void* pc = PC;                                                                                   \
        touch_range((uintptr_t)from, n, 0, pc), touch_range((uintptr_t)to, n, 1, pc);                          \
        return name(to, from, n); }
COPIES(memcpy) COPIES(memmove)
void* __tsan_memset(void* to, int value, size_t n) {
    touch_range((uintptr_t)to, n, 1, PC);
    return memset(to, value, n);
}
void* laptop_struct_copied(void* to, const void* from, size_t n, const void* site) noexcept {
    if (is_known((uintptr_t)from)) touch_range((uintptr_t)from, n, 0, site);
    if (is_known((uintptr_t)to)) touch_range((uintptr_t)to, n, 1, site);
    return memcpy(to, from, n);
}
void __tsan_init() {}
void __tsan_vptr_update(void** p, void*) { touch((uintptr_t)p, sizeof *p, 1, false, PC); }
void __tsan_vptr_read(void** p) { touch((uintptr_t)p, sizeof *p, 0, false, PC); }
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}

// How far the thread's stack reaches, as a function begins and, with what alloca has taken, as it ends.
static inline void reaches(Thread* t, const char* here) {
    if (t->depth <= 1) t->base = here;
    else if ((uint64_t)(t->base - here) > run->stack_bytes) run->stack_bytes = (uint64_t)(t->base - here);
}
void __tsan_func_entry(void* return_address) {
    Thread* t = current;
    if (!t || !t->log) return;
    if (t->depth < 64) t->returns[t->depth] = return_address;
    if (++t->depth == KERNEL_DEPTH) t->frame = FRAME;
    if (run->profiling) reaches(t, (const char*)__builtin_frame_address(0));
}
void __tsan_func_exit() {
    Thread* t = current;
    if (!t || !t->log) return;
    if (run->profiling) reaches(t, (const char*)__builtin_frame_address(0));
    if (!t->unset.empty()) forget_own(t, [t](const Unset& u) { return u.depth >= t->depth; });
    --t->depth;
#if defined(__x86_64__)              // elsewhere the address may be stored with a signature
    if (t->depth < 64 && ((const void**)FRAME)[1] != t->returns[t->depth]) written_return(t);
#endif
    if (t->depth > 0) step(t, t->returns[t->depth < 64 ? t->depth : 63], t->frame);
}
void __sanitizer_cov_trace_pc() {
    Thread* t = current;
    if (t) step(t, PC, FRAME);
}

// std::atomic and the guards of static locals. One thread runs at a time, so a plain access will do.
#define FETCH(bits, T, name, value)                                                                            \
    T __tsan_atomic##bits##_fetch_##name(volatile T* p, T v, int) {                                            \
        will_update((void*)p, sizeof(T), PC); T old = *p; *p = (T)(value); return old; }
#define ATOMICS(bits, T)                                                                                       \
    T __tsan_atomic##bits##_load(const volatile T* p, int) {                                                   \
        touch((uintptr_t)p, sizeof(T), 0, true, PC); return *p; }                                              \
    void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                                \
        touch((uintptr_t)p, sizeof(T), 1, true, PC); *p = v; }                                                 \
    T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                                \
        will_update((void*)p, sizeof(T), PC); T old = *p; *p = v; return old; }                                \
    FETCH(bits, T, add, old + v) FETCH(bits, T, sub, old - v) FETCH(bits, T, and, old & v)                     \
    FETCH(bits, T, or, old | v) FETCH(bits, T, xor, old ^ v)                                                   \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {             \
        will_update((void*)p, sizeof(T), PC, COMPARES);                                                        \
        if (*p == *expected) { *p = v; return 1; }                                                             \
        *expected = *p;                                                                                        \
        return 0; }                                                                                            \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int a, int b) {           \
        return __tsan_atomic##bits##_compare_exchange_strong(p, expected, v, a, b); }                          \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int a, int b) {               \
        __tsan_atomic##bits##_compare_exchange_strong(p, &expected, v, a, b); return expected; }
ATOMICS(8, uint8_t) ATOMICS(16, uint16_t) ATOMICS(32, uint32_t) ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int) { memory_fence(true); }
void __tsan_atomic_signal_fence(int) {}

void __ubsan_handle_out_of_bounds(OutOfBoundsData* data, uintptr_t index) { bad_index(data, index, PC); }
void __ubsan_handle_out_of_bounds_abort(OutOfBoundsData* data, uintptr_t index) { bad_index(data, index, PC); }
static void bad_division(OverflowData* data, uintptr_t divisor, const void* pc) {
    if (!current) return;
    fail(source_error("division by zero", divisor == 0 ? "" : "overflow", data->where, pc));
}
void __ubsan_handle_divrem_overflow(OverflowData* data, uintptr_t, uintptr_t b) { bad_division(data, b, PC); }
void __ubsan_handle_divrem_overflow_abort(OverflowData* data, uintptr_t, uintptr_t b) { bad_division(data, b, PC); }
static void bad_pointer(TypeMismatchData* data, uintptr_t address, const void* pc) {
    Thread* t = current;
    size_t alignment = (size_t)1 << data->log_alignment;
    if (!t || !t->log || address - (uintptr_t)t->stack.low < STACK_BYTES || address % alignment == 0) return;
    find(address, 1, 0, pc);     // if it is out of bounds, that is the better message
    bad_access("misaligned", "", address, alignment, data->check == 1, pc);
}
void __ubsan_handle_type_mismatch_v1(TypeMismatchData* data, uintptr_t p) { bad_pointer(data, p, PC); }
void __ubsan_handle_type_mismatch_v1_abort(TypeMismatchData* data, uintptr_t p) { bad_pointer(data, p, PC); }
}
