// Races and uninitialised reads. Each stretch of 4 bytes (1 or 2 where the type or an access is narrower)
// remembers its last writer, its last atomic and two of its last readers: in which interval between barriers, by which
// thread, at which of that thread's warp synchronisations and fences. Two accesses of one place are ordered by
// __syncthreads, by __syncwarp among its lanes, by grid.sync, or by fence - atomic - atomic; by nothing
// else. A shuffle orders no memory.
#include <string.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "runtime.h"
#include "runtime_settled.h"

namespace laptop {

// ------------------------------------------------------------------ marks
constexpr uint64_t CLOCK_MASK = (1ull << 22) - 1;
static uint32_t interval_of(uint64_t mark) { return (uint32_t)(mark >> 32); }
static uint32_t thread_of(uint64_t mark) { return mark >> 22 & 1023; }

static uint64_t mark_of(const Thread* t) {
    return (uint64_t)t->warp->block->interval << 32 | (uint64_t)t->index << 22 | (t->clock & CLOCK_MASK);
}

// ------------------------------------------------------------------ fence - atomic - atomic
// A thread that fences and then updates a variable atomically releases what it wrote, and what its block wrote before
// the last barrier (if it fenced after that, or the writers did before). Whoever updates the variable later knows it;
// the rest of that block after its next barrier, the rest of the warp after a __syncwarp.
struct Known {
    std::vector<uint32_t> upto;                          // per block: writes of intervals below this one
    std::unordered_map<uint64_t, uint32_t> own;          // interval, thread -> writes below this clock
};
struct OfBlock {
    uint32_t interval = 0, fenced_upto = 0;              // all threads fenced in an interval: as if one had, after it
    Known at_start;                                      // of the interval
    std::vector<std::unique_ptr<Known>> threads;         // learnt since
    std::vector<uint32_t> last_fence;                    // per thread: its interval
    std::unordered_map<uint32_t, uint32_t> fences;       // of this interval: thread -> clock
    std::unordered_map<uint64_t, uint32_t> fenced;       // of earlier intervals
};
constexpr size_t MOST_OWN = 4096;
static std::unordered_map<uintptr_t, Known> released;
static std::unordered_map<uint32_t, OfBlock> of_block;
static bool any_fence = false;

static void learn_upto(Known& k, uint32_t block, uint32_t interval) {
    if (k.upto.size() <= block) k.upto.resize(run->n_blocks);
    k.upto[block] = std::max(k.upto[block], interval);
}

static void learn_own(Known& k, uint64_t who, uint32_t clock) {
    if (k.own.size() >= MOST_OWN) {                      // too many to follow: the whole interval counts as known
        for (auto& o : k.own) learn_upto(k, run->intervals[o.first >> 10].block, (uint32_t)(o.first >> 10) + 1);
        k.own.clear();
    }
    uint32_t& known = k.own[who];
    known = std::max(known, clock);
}

static void learn(Known& to, const Known& from) {
    if (to.upto.size() < from.upto.size()) to.upto.resize(from.upto.size());
    for (size_t i = 0; i < from.upto.size(); ++i) to.upto[i] = std::max(to.upto[i], from.upto[i]);
    for (auto& o : from.own) learn_own(to, o.first, o.second);
}

static bool knows(const Known& k, uint64_t mark, uint32_t block) {
    uint32_t interval = interval_of(mark);
    if (block < k.upto.size() && interval < k.upto[block]) return true;
    auto own = k.own.find((uint64_t)interval << 10 | thread_of(mark));
    return own != k.own.end() && (mark & CLOCK_MASK) < own->second;
}

static OfBlock& mine(const Thread* t) {
    const Block& b = *t->warp->block;
    OfBlock& o = of_block[b.linear];
    if (o.threads.empty()) o.threads.resize(run->n_threads), o.last_fence.resize(run->n_threads);
    if (o.interval == b.interval) return o;
    for (auto& learnt : o.threads) {
        if (learnt) learn(o.at_start, *learnt);
        learnt.reset();
    }
    if (!o.fences.empty() && o.fences.size() >= b.alive) {
        o.fenced_upto = o.interval + 1;
        o.fenced.clear();
    } else {
        for (auto& f : o.fences) o.fenced[(uint64_t)o.interval << 10 | f.first] = f.second;
    }
    o.fences.clear();
    o.interval = b.interval;
    return o;
}

static Known& learnt_by(OfBlock& o, uint32_t thread) {
    if (!o.threads[thread]) o.threads[thread].reset(new Known);
    return *o.threads[thread];
}

static bool can_follow() { return run->n_blocks <= 65536 && run->n_blocks * run->n_threads <= 1 << 24; }

void fence(bool) {
    if (!run->sanitizing || !can_follow()) return;
    Busy busy;
    Thread* t = current;
    OfBlock& o = mine(t);
    any_fence = true;
    unsettle();
    if (t->clock < 1u << 21) ++t->clock;
    o.fences[t->index] = t->clock;
    o.last_fence[t->index] = o.interval;
}

void synchronise(uintptr_t address) {
    if (!any_fence) return;
    Busy busy;
    Thread* t = current;
    uint32_t block = t->warp->block->linear, fenced_in = 0;
    OfBlock& o = mine(t);
    fenced_in = std::max(o.last_fence[t->index], o.fenced_upto);
    auto found = released.find(address);
    if (found != released.end()) learn(learnt_by(o, t->index), found->second);
    if (!fenced_in && o.fenced.empty()) return;
    Known& r = released[address];
    if (fenced_in) learn_upto(r, block, fenced_in);
    auto now = o.fences.find(t->index);
    if (now != o.fences.end()) learn_own(r, (uint64_t)o.interval << 10 | t->index, now->second);
    for (auto& f : o.fenced) learn_own(r, f.first, f.second);
    learn(r, o.at_start);
    if (o.threads[t->index]) learn(r, *o.threads[t->index]);
}

static bool learnt(const Thread* t, uint64_t mark, uint32_t block) {
    const OfBlock& o = mine(t);
    return knows(o.at_start, mark, block) || (o.threads[t->index] && knows(*o.threads[t->index], mark, block));
}

static bool follows;             // else there are too many to follow, and no race is claimed
static inline bool acquired(const Thread* t, uint64_t mark, uint32_t block) {
    return any_fence ? learnt(t, mark, block) : !follows;
}

static void share_what_was_learnt(Warp& w, unsigned lanes) {
    OfBlock& o = mine(w.lanes[__builtin_ctz(lanes)]);
    Known all;
    bool any = false;
    for (unsigned l = lanes; l; l &= l - 1) {
        auto& learnt = o.threads[w.lanes[__builtin_ctz(l)]->index];
        if (learnt) learn(all, *learnt), any = true;
    }
    for (unsigned l = lanes; any && l; l &= l - 1) learn(learnt_by(o, w.lanes[__builtin_ctz(l)]->index), all);
}

// ------------------------------------------------------------------ order
static inline uint32_t seen(const Warp& w, uint32_t lane, uint32_t other) {
    return w.alike ? w.known_to_all[other] : w.known[lane * 32 + other];
}

static bool unordered_within(uint64_t mark, const Thread* t) {       // its block and interval
    uint32_t other = thread_of(mark);
    if (other == t->index) return false;
    uint32_t lane = other - (t->index - t->lane);
    if (lane < run->warp_size && seen(*t->warp, t->lane, lane) >= (mark & CLOCK_MASK)) return false;
    return !any_fence || !acquired(t, mark, t->warp->block->linear);
}

static inline bool unordered_elsewhere(uint64_t mark, const Thread* t) { // in another interval, of memory of all blocks
    if (mark == 0) return false;
    const Interval& i = run->intervals[interval_of(mark)];
    uint32_t block = t->warp->block->linear;
    return i.block != block && i.grid_epoch == run->grid_epoch && !acquired(t, mark, i.block);
}

// __syncwarp among `lanes`: each now knows what any of them knew.
void warp_ordered(Warp& w, unsigned lanes) {
    unsettle();
    bool everybody = (lanes & w.alive) == w.alive;
    if (!everybody && w.alike) {
        for (int lane = 0; lane < 32; ++lane) memcpy(&w.known[lane * 32], w.known_to_all, sizeof w.known_to_all);
        w.alike = false;
    }
    uint32_t all[32] = {};
    for (unsigned l = w.alike ? lanes & -lanes : lanes; l; l &= l - 1) {
        int lane = __builtin_ctz(l);
        for (int k = 0; k < 32; ++k) all[k] = std::max(all[k], seen(w, lane, k));
    }
    for (unsigned l = lanes; l; l &= l - 1) {
        Thread* t = w.lanes[__builtin_ctz(l)];
        all[t->lane] = t->clock++;
    }
    for (unsigned l = w.alike ? 0 : lanes; l; l &= l - 1) {
        memcpy(&w.known[__builtin_ctz(l) * 32], all, sizeof all);
    }
    if (everybody) {
        memcpy(w.known_to_all, all, sizeof all);
        w.alike = true;
    }
    if (any_fence) share_what_was_learnt(w, lanes);
}

// ------------------------------------------------------------------ races
struct Suspicion {               // a store that conflicts; an error only if it changes the value
    uintptr_t address;
    size_t size;
    unsigned char before[16];
    laptop_error error;
};
static Suspicion suspicion;
bool pending = false;

static laptop_error race_between(uint64_t mark, uint32_t mark_pc, int mark_action, uintptr_t address, size_t size,
                                 int action, const void* pc) {
    laptop_error e = make_error("race", "", pc, action);
    const Block& b = *current->warp->block;
    e.memory = memory_at(b, address, &e.offset);
    e.size = (uint32_t)size;
    Thread other = {};
    Warp warp = {};
    Block block = {};
    uint32_t linear = run->intervals[interval_of(mark)].block;
    const uint32_t* grid = run->launch->grid;
    block.index[0] = linear % grid[0];
    block.index[1] = linear / grid[0] % grid[1];
    block.index[2] = linear / grid[0] / grid[1];
    warp.block = &block;
    other.warp = &warp;
    other.index = thread_of(mark);
    e.other = party(&other, mark_pc, mark_action);
    e.has_other = 1;
    bool same_block = linear == b.linear;
    e.reason = !same_block ? "between blocks"
               : other.index / run->warp_size == current->index / run->warp_size ? "inside a warp" : "inside a block";
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

static void suspect(const laptop_error& e, const Found& f, uintptr_t address, size_t size, int action) {
    if (action != 1 || size > 16 || !written_before(f, address, size)) fail(e);
    suspicion.address = address;
    suspicion.size = size;
    suspicion.error = e;
    memcpy(suspicion.before, (void*)address, size);
    pending = true;
    unsettle();
}

void resolve_pending() {
    pending = false;
    if (memcmp(suspicion.before, (void*)suspicion.address, suspicion.size) != 0) fail(suspicion.error);
    for (const laptop_error& n : run->notes) {
        if (n.who.pc == suspicion.error.who.pc) return;
    }
    Busy busy;
    suspicion.error.reason = "same value";
    if (run->notes.size() < 16) run->notes.push_back(suspicion.error);
}

// A plain read next to others' atomics is how a compare-and-swap loop begins, and right if the reader's own
// atomic on the word follows. If none does before the interval ends, it is a race.
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
    uint32_t offset;             // of pc
    Thread* t;
    uint64_t me;

    bool own(uint64_t mark) const { return mark >> 22 == me >> 22; }
    bool conflicts(uint64_t mark) const {
        if (interval_of(mark) == interval_of(me)) return !own(mark) && unordered_within(mark, t);
        return space != LAPTOP_IN_SHARED && unordered_elsewhere(mark, t);
    }
};

static void raced_with(const Cell& c, int k, const Look& l) {
    laptop_error e = race_between(c.mark[k], c.pc[k], ACTIONS[k], l.address, l.size, l.action, l.pc);
    if (k != Cell::UPDATER) fail(e);
    trust(e, l.address, l.t->warp->block->linear, l.t->index);
}

static void look_for_writers(const Cell& c, const Look& l) {
    if (l.conflicts(c.mark[Cell::WRITER])) raced_with(c, Cell::WRITER, l);
    if (!l.atomic && l.conflicts(c.mark[Cell::UPDATER])) raced_with(c, Cell::UPDATER, l);
}

static void write_cells(Cell* first, Cell* last, const Look& l, const Found& f) {
    bool suspected = false;
    for (Cell* c = first; c <= last; ++c) {
        for (int k = 0; k < Cell::MARKS && !suspected; ++k) {
            if (!l.conflicts(c->mark[k])) continue;
            if (l.atomic && k == Cell::UPDATER) continue;
            laptop_error e = race_between(c->mark[k], c->pc[k], ACTIONS[k], l.address, l.size, l.action, l.pc);
            if (l.atomic && k >= Cell::READER) {
                trust(e, l.address, run->intervals[interval_of(c->mark[k])].block, thread_of(c->mark[k]));
                continue;
            }
            suspect(e, f, l.address, l.size, l.action);
            suspected = true;
        }
        for (int k = Cell::READER; l.atomic && k < Cell::MARKS; ++k) {
            if (l.own(c->mark[k])) c->mark[k] = 0;       // its read led to this atomic
        }
        int slot = l.atomic ? Cell::UPDATER : Cell::WRITER;
        c->mark[slot] = l.me;
        c->pc[slot] = l.offset;
    }
}

// ------------------------------------------------------------------ what is settled by a read
SettledNow settled;

// How far it can be said that what holds for the thread that looks holds for others too.
enum class For { ITSELF, ITS_WARP, ITS_BLOCK };

static inline bool of_this_warp(uint64_t mark, const Look& l) {
    return thread_of(mark) - (l.t->index - l.t->lane) < run->warp_size;
}

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
    if (l.atomic) return For::ITSELF;
    int slot = first ? Cell::OTHER_READER : Cell::READER;
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
    bool atomic = action == 2 || (is_volatile && r.space != LAPTOP_IN_SHARED);
    if (atomic) synchronise(address);
    Look l = {address, size, action, r.space, atomic, pc, code_offset(pc), current, mark_of(current)};
    if (action) {
        if (atomic && !optimists.empty()) confirm(address, l.t);
        write_cells(first, last, l, f);
        init_check(f, address, size, action, pc);
        return;
    }
    for (Cell* c = first; c <= last; ++c) look_for_writers(*c, l);
    bool settles = init_check(f, address, size, action, pc) && s && !any_fence && r.settles && r.grain == 4;
    for (Cell* c = first; c <= last; ++c) {
        For whom = mark_reader(*c, l);
        if (settles && !atomic) settle(*c, l, whom, *s, (address - s->low) / 4 + (c - first));
    }
}

// ------------------------------------------------------------------ uninitialised reads
// Not an error yet: if another thread writes the place before the next barrier, it is a race, whichever of
// the two came first in our order.
struct Unwritten {
    laptop_error error;
    uint32_t block, thread;
    bool in_shared;
};
static std::vector<Unwritten> unwritten;

bool uninitialised_read_of(const Thread* t) {
    return std::any_of(unwritten.begin(), unwritten.end(), [t](const Unwritten& u) {
        return u.thread == t->index && u.block == t->warp->block->linear;
    });
}

static inline bool all_set(const uint8_t* flags, size_t size) {
    if (size != 4) return std::all_of(flags, flags + size, [](uint8_t x) { return x != 0; });
    uint32_t four;
    memcpy(&four, flags, 4);
    return !((four - 0x01010101u) & ~four & 0x80808080u);        // no byte of it is 0
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
        size == 4 ? (void)memset(init, 1, 4) : (void)memset(init, 1, size);
        return true;
    }
    if (all_set(init, size)) return true;
    if (action == 2) memset(init, 1, size);
    if (unwritten.size() >= 64) return false;
    Busy busy;
    Unwritten u;
    u.error = make_error("uninitialized", in_shared ? "shared" : "global", pc, action);
    u.error.memory = memory_at(b, address, &u.error.offset);
    u.error.size = (uint32_t)size;
    u.block = b.linear;
    u.thread = current->index;
    u.in_shared = in_shared;
    unwritten.push_back(u);
    return false;
}

// ------------------------------------------------------------------ the quick way
// A plain load or store of 4 bytes of shared memory or of an array. False: nothing was done, as more than marks may be
// needed.
template <bool STORES> static inline bool look_quickly(Thread* t, uintptr_t address, const void* pc) {
    Block& b = *t->warp->block;
    Settled* s = settled_at(address);
    bool of_launch = run->in_place && t->depth <= 1;     // which reads its arguments: see touch
    if (!s || pending || address % 4 || !b.in_flight.empty() || of_launch) return false;
    size_t i = (address - s->low) / 4;
    Found f = found_quickly(t, address, 4);
    if (!f.region || !f.region->cells || f.region->grain != 4 || f.region->constant) return false;
    bool in_shared = f.region->space == LAPTOP_IN_SHARED;
    Look l = {address, 4, STORES, f.region->space, false, pc, code_offset(pc), t, mark_of(t)};
    uint8_t* flags = in_shared ? b.shared_initialised + (address - (uintptr_t)b.shared)
                     : f.region->initialised ? f.region->initialised + (address - f.low) : nullptr;
    Cell& c = f.region->cells[(address - f.low) / 4];
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
    if (!look_quickly<false>(t, address, pc)) touch(address, 4, 0, false, pc);
}
__attribute__((noinline)) void load4(Thread* t, uintptr_t address, const void* pc) {
    const Settled* s = settled_at(address);
    uint32_t here = (uint32_t)((uintptr_t)pc - settled.code);
    if (!s || address % 4 || !reads_again(*s, (address - s->low) / 4, t->index, here)) return mark4(t, address, pc);
    t->last_pc = pc_in_kernel(t, pc);
}
__attribute__((noinline)) void store4(Thread* t, uintptr_t address, const void* pc) {
    if (!look_quickly<true>(t, address, pc)) touch(address, 4, 1, false, pc);
}

void start_interval(Block& b) {
    Busy busy;
    unsettle();
    b.interval = (uint32_t)run->intervals.size();
    run->intervals.push_back({b.linear, run->grid_epoch});
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
    released.clear();
    of_block.clear();
    any_fence = pending = false;
    follows = can_follow();
}

void end_sanitizing() {
    if (!unwritten.empty()) fail(unwritten[0].error);
}
}  // namespace laptop
