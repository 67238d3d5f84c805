// Races and uninitialised reads. Each stretch of 4 bytes (1 or 2 where the type or an access is narrower) remembers its last
// writer, its last atomic and two of its last readers: in which interval between barriers, by which thread, at which of that
// thread's warp synchronisations and fences. Two accesses of one place are ordered by __syncthreads, by __syncwarp among its
// lanes, by grid.sync, or by fence - atomic - atomic; by nothing else. A shuffle orders no memory.
#include <string.h>

#include <algorithm>

#include "runtime_known.h"
#include "runtime_settled.h"

namespace laptop {

static bool follows;             // see can_follow
static inline bool acquired(const Thread* t, uint64_t mark, uint32_t block) {
    return any_fence ? learnt(t, mark, block) : !follows;
}

static bool unordered_within(uint64_t mark, const Thread* t) {       // its block and interval
    uint32_t other = thread_of(mark);
    if (other == t->index) return false;
    uint32_t lane = other - (t->index - t->lane);
    if (lane < run->warp_size && seen_by(*t->warp, t->lane, lane) >= (mark & CLOCK_MASK)) return false;
    return !any_fence || !acquired(t, mark, t->warp->block->linear);
}

bool is_ordered_before(uint64_t mark, const Thread* t) { return !unordered_within(mark, t); }

static inline bool unordered_elsewhere(uint64_t mark, const Thread* t) { // in another interval, of memory of all blocks
    if (mark == 0) return false;
    const Interval& i = run->intervals[interval_of(mark)];
    uint32_t block = t->warp->block->linear;
    return i.block != block && i.grid_epoch == run->grid_epoch && !acquired(t, mark, i.block);
}

// __syncwarp among `lanes`: each now knows what any of them knew.
void warp_ordered(Warp& w, unsigned lanes) {
    unsettle();
    w.ordered_in = w.block->interval;
    bool everybody = (lanes & w.alive) == w.alive;
    if (!everybody && w.alike) {
        for (int lane = 0; lane < 32; ++lane) memcpy(&w.known[lane * 32], w.known_to_all, sizeof w.known_to_all);
        w.alike = false;
    }
    uint32_t all[32] = {};
    for (unsigned l = w.alike ? lanes & -lanes : lanes; l; l &= l - 1) {
        int lane = __builtin_ctz(l);
        for (int k = 0; k < 32; ++k) all[k] = std::max(all[k], seen_by(w, lane, k));
    }
    for (unsigned l = lanes; l; l &= l - 1) {
        Thread* t = w.lanes[__builtin_ctz(l)];
        all[t->lane] = t->clock++;
    }
    for (unsigned l = w.alike ? 0 : lanes; l; l &= l - 1) memcpy(&w.known[__builtin_ctz(l) * 32], all, sizeof all);
    if (everybody) {
        memcpy(w.known_to_all, all, sizeof all);
        w.alike = true;
    }
    if (any_fence) share_what_was_learnt(w, lanes);
}

struct Suspicion {               // a store that conflicts; an error only if it changes the value
    uintptr_t address;
    size_t size;
    unsigned char before[16];
    laptop_error error;
    bool one_store;              // of several lanes of a warp
};
static Suspicion suspicion;
bool pending = false;

// Volatile accesses are taken for relaxed atomics, as PTX does, but lanes of one warp that pass values on by nothing else
// trust it to run in step; and in shared memory a volatile store is a flag only of a thread that has fenced.
static laptop_error race_between(uint64_t mark, uint32_t mark_pc, int mark_action, uintptr_t address, size_t size,
                                 int action, const void* pc) {
    laptop_error e = make_error("race", "", pc, action);
    const Block& b = *current->warp->block;
    locate(e, b, address, size);
    uint32_t block = run->intervals[interval_of(mark)].block, thread = thread_of(mark);
    add_other(e, party_of(block, thread, mark_pc & PLACE, mark_action));
    e.reason = block != b.linear ? "between blocks"
               : thread / run->warp_size == current->index / run->warp_size ? "inside a warp" : "inside a block";
    return e;
}

static bool written_before(const Found& f, uintptr_t address, size_t size) {
    const uint8_t* init = nullptr;
    if (f.region->space == LAPTOP_IN_SHARED) {
        const Block& b = *current->warp->block;
        init = b.shared_initialised + (address - (uintptr_t)b.shared);
    } else if (f.region->initialised) {
        init = f.region->initialised + (address - f.low);
    }
    return !init || std::all_of(init, init + size, [](uint8_t x) { return x != 0; });
}

static void suspect(const laptop_error& e, const Found& f, uintptr_t address, size_t size, int action, bool one_store) {
    if (action != 1 || size > 16 || !written_before(f, address, size)) fail(e);
    suspicion.one_store = one_store;
    suspicion.address = address;
    suspicion.size = size;
    suspicion.error = e;
    memcpy(suspicion.before, (void*)address, size);
    pending = true;
    unsettle();
}

void resolve_pending() {
    pending = false;
    if (memcmp(suspicion.before, (void*)suspicion.address, suspicion.size) != 0) {
        const Suspicion& s = suspicion;
        if (!s.one_store || !either_stays(s.error, (void*)s.address, s.before, s.size)) fail(s.error);
        return;
    }
    remark(suspicion.error, "same value");
}

void remark(laptop_error e, const char* reason) {
    auto known = [&](const laptop_error& n) { return n.who.pc == e.who.pc; };
    if (run->notes.size() >= 16 || std::any_of(run->notes.begin(), run->notes.end(), known)) return;
    Busy busy;
    e.reason = reason;
    run->notes.push_back(e);
}

void one_memory(const char* names) {
    if (!current || !current->log || !run->sanitizing) return;
    for (const laptop_error& n : run->notes) {
        if (n.detail && !strcmp(n.detail, names)) return;
    }
    Busy busy;
    laptop_error e = make_error("overlap", "", LAPTOP_SITE, 5);
    e.detail = names;
    run->notes.push_back(e);
}

// A plain read next to others' atomics is how a compare-and-swap loop begins, and right if the reader's own
// compare-and-swap of the word follows. If none does before the interval ends, it is a race.
struct Optimist {
    laptop_error error;
    uintptr_t address;
    uint32_t block, thread;      // the reader
};
static std::vector<Optimist> optimists;

static void trust(const laptop_error& e, uintptr_t address, uint32_t block, uint32_t thread) {
    for (const Optimist& o : optimists) {
        if (o.address == address && o.block == block && o.thread == thread) return;
    }
    Busy busy;
    if (optimists.size() < 1024) optimists.push_back({e, address, block, thread});
}

void forget_trust(const Block& b) {
    auto of_it = [&](const Optimist& o) { return o.block == b.linear; };
    optimists.erase(std::remove_if(optimists.begin(), optimists.end(), of_it), optimists.end());
}

static void confirm(uintptr_t address, const Thread* t) {
    for (size_t i = optimists.size(); i-- > 0;) {
        const Optimist& o = optimists[i];
        if (o.address != address || o.thread != t->index || o.block != t->warp->block->linear) continue;
        optimists[i] = optimists.back();
        optimists.pop_back();
    }
}

static const int ACTIONS[Cell::MARKS] = {1, 2, 0, 0};

struct Look {                    // one access
    uintptr_t address;
    size_t size;
    int action, space;
    bool atomic;
    const void* pc;
    uint32_t offset;             // of pc; with VOLATILE
    Thread* t;
    uint64_t me;
    bool compares = false;

    bool own(uint64_t mark) const { return mark >> 22 == me >> 22; }
    bool conflicts(uint64_t mark) const {
        if (interval_of(mark) == interval_of(me)) return !own(mark) && unordered_within(mark, t);
        return (space != LAPTOP_IN_SHARED || run->clustered) && unordered_elsewhere(mark, t);
    }
};

static inline bool of_this_warp(uint64_t mark, const Look& l) {
    return thread_of(mark) - (l.t->index - l.t->lane) < run->warp_size;
}

// Whether two volatile accesses rely on the order in which lanes of a warp run.
static bool in_step(const Cell& c, int k, const Look& l) {
    return c.pc[k] & l.offset & VOLATILE && !any_fence && interval_of(c.mark[k]) == interval_of(l.me) &&
           of_this_warp(c.mark[k], l) && l.conflicts(c.mark[k]);
}

// Whether its updates are atomic only among threads of one block, of which the other is none.
static bool too_narrow(const Cell& c, const Look& l) {
    uint64_t mark = c.mark[Cell::UPDATER];
    return (c.pc[Cell::UPDATER] | l.offset) & NARROW && l.conflicts(mark) &&
           run->intervals[interval_of(mark)].block != l.t->warp->block->linear;
}

static void raced_narrowly(const Cell& c, const Look& l) {
    laptop_error e = race_between(c.mark[Cell::UPDATER], c.pc[Cell::UPDATER], 2, l.address, l.size, l.action, l.pc);
    e.reason = "scope";
    fail(e);
}

static bool goes_on(uint32_t interval) {
    return std::any_of(run->blocks.begin(), run->blocks.end(),
                       [=](const std::unique_ptr<Block>& b) { return b->alive && b->interval == interval; });
}

static void raced_with(const Cell& c, int k, const Look& l) {
    laptop_error e = race_between(c.mark[k], c.pc[k], ACTIONS[k], l.address, l.size, l.action, l.pc);
    if (k != Cell::UPDATER) fail(e);
    trust(e, l.address, l.t->warp->block->linear, l.t->index);
}

// Without any fence another block's later atomic may be seen before what it stored by a volatile or relaxed store.
static void see(const Cell& c, const Look& l) {
    uint64_t mark = c.mark[Cell::UPDATER];
    Block& b = *l.t->warp->block;
    if (!run->stores_relaxed || any_fence || l.space == LAPTOP_IN_SHARED || !l.conflicts(mark)) return;
    for (const Seen& s : b.seen) {
        bool later = s.mark > mark && run->intervals[interval_of(s.mark)].block == run->intervals[interval_of(mark)].block &&
                     (interval_of(s.mark) > interval_of(mark) || thread_of(s.mark) == thread_of(mark));
        if (l.action || !later || !(c.pc[Cell::UPDATER] & VOLATILE) || (s.thread != l.t->index && s.interval == b.interval)) continue;
        laptop_error e = race_between(mark, c.pc[Cell::UPDATER], 1, l.address, l.size, 0, l.pc);
        if (strcmp(e.reason, "between blocks")) return;
        e.reason = "relaxed";
        fail(e);
    }
    Busy busy;
    if (b.seen.size() == 8) b.seen.erase(b.seen.begin());
    if (b.seen.empty() || b.seen.back().mark != mark) b.seen.push_back({mark, l.t->index, b.interval});
}

static void look_for_writers(const Cell& c, const Look& l) {
    if (l.atomic) see(c, l);
    if (l.conflicts(c.mark[Cell::WRITER])) raced_with(c, Cell::WRITER, l);
    if (!l.atomic && l.conflicts(c.mark[Cell::UPDATER])) raced_with(c, Cell::UPDATER, l);
    if (l.atomic && in_step(c, Cell::UPDATER, l))
        fail(race_between(c.mark[Cell::UPDATER], c.pc[Cell::UPDATER], 1, l.address, l.size, 0, l.pc));
    if (l.atomic && too_narrow(c, l)) raced_narrowly(c, l);
}

// What holds for one word of a wide access holds for those that nobody else has touched alone.
static inline bool alike(const Cell& a, const Cell& b) {
    uint64_t differs = 0;
    for (int k = 0; k < Cell::MARKS; ++k) differs |= (a.mark[k] ^ b.mark[k]) | (a.pc[k] ^ b.pc[k]);
    return !differs;
}

static void write_cells(Cell* first, Cell* last, const Look& l, const Found& f) {
    bool suspected = false;
    const Cell before = *first;
    if (l.atomic) see(*first, l);
    for (Cell* c = first; c <= last; ++c) {
        const bool same = c > first && !l.atomic && alike(*c, before);
        for (int k = 0; k < Cell::MARKS && !suspected && !same; ++k) {
            if (!l.conflicts(c->mark[k])) continue;
            if (l.atomic && k == Cell::UPDATER) {
                if (too_narrow(*c, l)) raced_narrowly(*c, l);
                continue;
            }
            if (k <= Cell::UPDATER && c->pc[k] & l.offset & VOLATILE) continue;      // both relaxed: one of them is last
            if (l.atomic && k >= Cell::READER && c->pc[k] & VOLATILE && !in_step(*c, k, l)) continue;
            laptop_error e = race_between(c->mark[k], c->pc[k], ACTIONS[k], l.address, l.size, l.action, l.pc);
            if (l.atomic && k >= Cell::READER && !(c->pc[k] & VOLATILE) && goes_on(interval_of(c->mark[k]))) {
                trust(e, l.address, run->intervals[interval_of(c->mark[k])].block, thread_of(c->mark[k]));
                continue;
            }
            bool one_store = k == Cell::WRITER && c->pc[k] == l.offset && !strcmp(e.reason, "inside a warp") && interval_of(c->mark[k]) == interval_of(l.me);
            suspect(e, f, l.address, l.size, l.action, one_store);
            suspected = true;
        }
        for (int k = Cell::READER; l.compares && k < Cell::MARKS; ++k) {
            if (l.own(c->mark[k])) c->mark[k] = 0;       // its read led to this atomic
        }
        int slot = l.atomic ? Cell::UPDATER : Cell::WRITER;
        c->mark[slot] = l.me;
        c->pc[slot] = l.offset;
    }
}

SettledNow settled;

// How far it can be said that what holds for the thread that looks holds for others too.
enum class For { ITSELF, ITS_WARP, ITS_BLOCK };

// A mark that the thread itself does not know: who else does not, and will not before somebody synchronises?
static inline For unknown(uint64_t mark, const Look& l) {
    if (interval_of(mark) != interval_of(l.me)) return For::ITS_BLOCK;
    if ((mark & CLOCK_MASK) == l.t->warp->block->threads[thread_of(mark)].clock) return For::ITS_BLOCK;
    return of_this_warp(mark, l) ? For::ITSELF : For::ITS_WARP;
}

// A mark that the thread itself knows: who else does?
static inline For known(uint64_t mark, const Look& l) {
    if (interval_of(mark) != interval_of(l.me)) return For::ITS_BLOCK;
    if (!of_this_warp(mark, l)) return For::ITSELF;
    bool to_all = l.t->warp->known_to_all[thread_of(mark) % run->warp_size] >= (mark & CLOCK_MASK);
    return to_all ? For::ITS_WARP : For::ITSELF;
}

// Keeps two readers that are not ordered with each other; one of them is not the next writer. Nobody wrote in between:
// for whom is a read of this place no news from now on?
static inline __attribute__((always_inline)) For mark_reader(Cell& c, const Look& l) {
    For whom = std::min(known(c.mark[Cell::WRITER], l), known(c.mark[Cell::UPDATER], l));
    bool first = l.conflicts(c.mark[Cell::READER]), second = l.conflicts(c.mark[Cell::OTHER_READER]);
    if (first) whom = std::min(whom, unknown(c.mark[Cell::READER], l));
    if (second) whom = std::min(whom, unknown(c.mark[Cell::OTHER_READER], l));
    if (first && second) return whom;
    int slot = first ? Cell::OTHER_READER : Cell::READER;
    bool mixed = !(c.pc[slot] & VOLATILE) && interval_of(c.mark[slot]) == interval_of(l.me);
    if (l.atomic && mixed) return For::ITSELF;           // a plain read says more
    c.mark[slot] = l.me;
    c.pc[slot] = l.offset;
    return first || second ? whom : For::ITSELF;
}

static inline __attribute__((always_inline)) void settle(const Cell& c, const Look& l, For whom, Settled& s, size_t i) {
    if (whom != For::ITSELF) {
        uint64_t first = c.mark[Cell::READER], second = c.mark[Cell::OTHER_READER];
        uint64_t epoch = whom == For::ITS_BLOCK ? settled.epoch : settled.of_warp;
        s.word[i] = epoch | (uint64_t)thread_of(first) << 10 | thread_of(second);
        if (interval_of(first) == interval_of(l.me)) s.pc[i][0] = c.pc[Cell::READER];
        if (interval_of(second) == interval_of(l.me)) s.pc[i][1] = c.pc[Cell::OTHER_READER];
    } else if (l.space == LAPTOP_IN_SHARED && interval_of(c.mark[Cell::UPDATER]) != interval_of(l.me)) {
        s.word[i] = (settled.epoch ^ OPEN) | (uint64_t)l.t->index << 10 | l.t->index;
        s.pc[i][0] = l.offset;
    } else {
        s.word[i] = 0;
    }
}

// Whether this thread reads a word again from the same place in the code, with nothing new in between.
static inline bool reads_again(const Settled& s, size_t i, uint32_t thread, uint32_t pc) {
    uint64_t word = s.word[i], readers = open_readers(word);
    if (readers >= OPEN) readers = word ^ settled.epoch ^ OPEN;          // only its reader may
    if (readers >= OPEN) return false;
    if (readers >> 10 == thread) return s.pc[i][0] == pc;
    return (readers & 1023) == thread && s.pc[i][1] == pc;
}

static void clear_settled(Settled& s, uintptr_t address, size_t size) {
    for (size_t i = (address - s.low) / 4; i <= (address + size - 1 - s.low) / 4; ++i) s.word[i] = 0;
}

void must_be_unwritten(Found f, uintptr_t address, size_t size, const void* pc) {
    if (!f.region || !f.region->cells) return;
    unsigned shift = f.region->grain / 2;
    for (size_t i = (address - f.low) >> shift; i <= (address + size - 1 - f.low) >> shift; ++i) {
        const Cell& c = f.region->cells[i];
        int k = c.mark[Cell::WRITER] ? Cell::WRITER : Cell::UPDATER;
        if (!c.mark[k]) continue;
        laptop_error e = race_between(c.mark[k], c.pc[k], ACTIONS[k], address, size, 0, pc);
        e.reason = "not constant";
        fail(e);
    }
}

void check(Found f, uintptr_t address, size_t size, int action, bool is_volatile, const void* pc) {
    Region& r = *f.region;
    Settled* s = settled_at(address);
    if (s) clear_settled(*s, address, size);
    if (r.constant) return (void)init_check(f, address, size, action, pc);
    Cell* cells = cells_of(r);
    if (size < r.grain) refine(r);
    unsigned shift = r.grain / 2;        // a grain is 1, 2 or 4
    Cell* first = cells + ((address - f.low) >> shift);
    Cell* last = cells + ((address + size - 1 - f.low) >> shift);
    bool relaxed = is_volatile && (r.space != LAPTOP_IN_SHARED || !action || current->fenced);
    bool atomic = action == 2 || relaxed, narrow = action == 2 && update_how & OF_BLOCK;
    if (atomic) synchronise(address, !narrow);
    uint32_t flag = is_volatile ? VOLATILE : narrow ? NARROW : 0;
    Look l = {address, size, action, r.space, atomic, pc, code_offset(pc) | flag, current, mark_of(current)};
    l.compares = action == 2 && update_how & COMPARES;
    if (action) {
        if (l.compares && !optimists.empty()) confirm(address, l.t);
        write_cells(first, last, l, f);
        init_check(f, address, size, action, pc);
        if (action == 1 && relaxed && r.space != LAPTOP_IN_SHARED && current->clock < 1u << 21) run->stores_relaxed = true, ++current->clock;
        return;
    }
    const Cell before = *first;
    for (Cell* c = first; c <= last; ++c)
        if (c == first || atomic || !alike(*c, before)) look_for_writers(*c, l);
    bool settles = init_check(f, address, size, action, pc) && s && !any_fence && r.settles && r.grain == 4;
    For of_first = mark_reader(*first, l);
    for (Cell* c = first; c <= last; ++c) {
        bool same = c == first || (!atomic && alike(*c, before));
        For whom = same ? of_first : mark_reader(*c, l);
        if (same) *c = *first;
        if (settles && !atomic) settle(*c, l, whom, *s, (address - s->low) / 4 + (c - first));
    }
}

// Not an error yet: if another writes the place before the next barrier, it is a race, whoever came first here.
struct Unwritten {
    laptop_error error;
    uint32_t block, thread;
    bool in_shared;
    const void* byte_at;         // where a byte was read
};
static std::vector<Unwritten> unwritten;

// C++ lets a byte be copied on before it is set; then it is not set where it goes, either.
static bool copies_unset_byte(const Block& b) {
    if (unwritten.empty()) return false;
    const Unwritten& u = unwritten.back();
    if (!u.byte_at || u.byte_at != current->last_pc || u.thread != current->index || u.block != b.linear) return false;
    return unwritten.pop_back(), true;
}

bool uninitialised_read_of(const Thread* t) {
    return std::any_of(unwritten.begin(), unwritten.end(), [t](const Unwritten& u) {
        return u.thread == t->index && u.block == t->warp->block->linear;
    });
}

static inline bool all_set(const uint8_t* flags, size_t size) {
    if (size != 4) return std::all_of(flags, flags + size, [](uint8_t x) { return x != 0; });
    uint32_t four;
    memcpy(&four, flags, 4);
    return four == 0x01010101u;
}

uint8_t* flags_of(const Thread* t, Found f, uintptr_t address) {
    const Block& b = *t->warp->block;
    if (f.region->space == LAPTOP_IN_SHARED) return b.shared_initialised + (address - (uintptr_t)b.shared);
    return f.region->initialised ? f.region->initialised + (address - f.low) : nullptr;
}

// A struct of which a part was written is written: what lies between its members never is. Perhaps it is a float4: then
// words that are not behind a written one are no padding, nor in shared memory, but where elements align to 8 bytes.
void pass_padding(uintptr_t address, size_t bytes, bool perhaps) {
    Found f = found_quickly(current, address, bytes);
    if (!f.region || (perhaps && f.region->space == LAPTOP_IN_SHARED && run->memories[f.region->memory].itemsize != 8)) return;
    uint8_t* flags = flags_of(current, f, address);
    if (!flags) return;
    bool any = perhaps ? flags[0] && flags[8] : std::any_of(flags, flags + bytes, [](uint8_t x) { return x != 0; });
    if (any) memset(flags, 1, bytes);
}

bool init_check(Found f, uintptr_t address, size_t size, int action, const void* pc) {
    uint8_t* init;
    Block& b = *current->warp->block;
    bool in_shared = f.region->space == LAPTOP_IN_SHARED;
    if (in_shared) {
        init = b.shared_initialised + (address - (uintptr_t)b.shared);
    } else if (f.region->initialised) {
        init = f.region->initialised + (address - f.low);
    } else {
        return true;
    }
    if (action == 1) {
        if (size == 1 && copies_unset_byte(b)) return *init = 0, true;
        size == 4 ? (void)memset(init, 1, 4) : (void)memset(init, 1, size);
        return true;
    }
    if (all_set(init, size)) return true;
    if (action == 2) memset(init, 1, size);
    if (unwritten.size() >= 64) return false;
    Busy busy;
    Unwritten u;
    const char* why = *init == COPIED_UNSET ? "member" : *init == EITHER ? "either" : in_shared ? "shared" : "global";
    u.error = make_error("uninitialized", why, pc, action);
    locate(u.error, b, address, size);
    u.block = b.linear;
    u.thread = current->index;
    u.in_shared = in_shared;
    u.byte_at = size == 1 && !action ? pc_in_kernel(current, pc) : nullptr;
    unwritten.push_back(u);
    return false;
}

// A plain load or store of 4 bytes, shared or of an array. False: nothing was done, as marks may not be enough.
template <bool STORES> static inline bool look_quickly(Thread* t, uintptr_t address, const void* pc) {
    Block& b = *t->warp->block;
    Settled* s = settled_at(address);
    bool of_launch = run->by_code && t->depth <= 1;     // which reads its arguments: see touch
    if (!s || pending || address % 4 || !b.in_flight.empty() || of_launch) return false;
    size_t i = (address - s->low) / 4;
    Found f = found_quickly(t, address, 4);
    if (!f.region || !f.region->cells || f.region->grain != 4 || f.region->constant) return false;
    Look l = {address, 4, STORES, f.region->space, false, pc, code_offset(pc), t, mark_of(t)};
    uint8_t* flags = flags_of(t, f, address);
    Cell& c = f.region->cells[(address - f.low) / 4];
    __builtin_prefetch(&c + 2);          // nearly always the next access is to a neighbour
    if (l.conflicts(c.mark[Cell::WRITER]) || l.conflicts(c.mark[Cell::UPDATER])) return false;
    if (STORES) {
        if (l.conflicts(c.mark[Cell::READER]) || l.conflicts(c.mark[Cell::OTHER_READER])) return false;
        c.mark[Cell::WRITER] = l.me;
        c.pc[Cell::WRITER] = l.offset;
        if (flags) memset(flags, 1, 4);
        s->word[i] = 0;
    } else {
        if (flags && !all_set(flags, 4)) return false;
        For whom = mark_reader(c, l);
        s->word[i] = 0;
        if (!any_fence && f.region->settles) settle(c, l, whom, *s, i);
    }
    t->last_pc = pc_in_kernel(t, pc);
    return true;
}
__attribute__((noinline)) static void mark4(Thread* t, uintptr_t address, const void* pc) {
    if (!look_quickly<false>(t, address, pc)) pass(t, address, 4, 0, pc);
}
__attribute__((noinline)) void load4(Thread* t, uintptr_t address, const void* pc) {
    const Settled* s = settled_at(address);
    if (!s) return pass(t, address, 4, 0, pc);
    uint32_t here = (uint32_t)((uintptr_t)pc - settled.code);
    if (address % 4 || !reads_again(*s, (address - s->low) / 4, t->index, here)) return mark4(t, address, pc);
    t->last_pc = pc_in_kernel(t, pc);
}
__attribute__((noinline)) void store4(Thread* t, uintptr_t address, const void* pc) {
    if (!settled_at(address) || !look_quickly<true>(t, address, pc)) pass(t, address, 4, 1, pc);
}

void start_interval(Block& b) {
    Busy busy;
    unsettle();
    b.interval = (uint32_t)run->intervals.size();
    run->intervals.push_back({b.linear, run->grid_epoch});
    if (any_fence) barrier_passed(b);
    for (Warp& w : b.warps) {
        if (w.lanes[0]->clock < 1u << 20) continue;
        std::fill(w.known_to_all, w.known_to_all + 32, 0);
        w.alike = true;
        for (Thread* t : w.lanes) {
            if (t) t->clock = 1;
        }
    }
}

void end_interval(Block& b) {
    for (const Optimist& o : optimists) {
        if (o.block == b.linear) fail(o.error);
    }
    for (const Unwritten& u : unwritten) {
        if (u.in_shared && u.block == b.linear) fail(u.error);
    }
}

void start_sanitizing() {
    run->intervals.assign(1, Interval{0, 0});    // 0 means never
    unwritten.clear();
    optimists.clear();
    start_knowing();
    pending = false;
    follows = can_follow();
}

void end_sanitizing() { if (!unwritten.empty()) fail(unwritten[0].error); }

struct Watched {
    std::vector<Unwritten> read_unwritten;
    std::vector<Optimist> trusted;
    bool followed;
};
static void exchange(Watched& w) {
    unwritten.swap(w.read_unwritten);
    optimists.swap(w.trusted);
    std::swap(follows, w.followed);
}
Unwatched::Unwatched() : kept(new Watched{}) {
    exchange(*kept);
    put_known_away();
}
Unwatched::~Unwatched() {
    exchange(*kept);
    take_known_up();
}
}  // namespace laptop
