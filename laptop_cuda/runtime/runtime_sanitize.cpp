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

static bool acquired(const Thread* t, uint64_t mark, uint32_t block) {
    if (!any_fence) return !can_follow();                // too many to follow: no race is claimed
    const OfBlock& o = mine(t);
    return knows(o.at_start, mark, block) || (o.threads[t->index] && knows(*o.threads[t->index], mark, block));
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
static bool unordered(uint64_t mark, const Thread* t, int space) {
    uint32_t interval = interval_of(mark);
    if (interval == 0) return false;
    const Block& b = *t->warp->block;
    if (interval == b.interval) {
        uint32_t other = thread_of(mark);
        if (other == t->index) return false;
        uint32_t size = run->warp_size;
        if (other / size == t->index / size && t->warp->known[t->lane * 32 + other % size] >= (mark & CLOCK_MASK)) {
            return false;
        }
        return !any_fence || !acquired(t, mark, b.linear);
    }
    if (space == LAPTOP_IN_SHARED) return false;
    const Interval& i = run->intervals[interval];
    return i.block != b.linear && i.grid_epoch == run->grid_epoch && !acquired(t, mark, i.block);
}

// __syncwarp among `lanes`: each now knows what any of them knew.
void warp_ordered(Warp& w, unsigned lanes) {
    uint32_t all[32] = {};
    for (unsigned l = lanes; l; l &= l - 1) {
        int lane = __builtin_ctz(l);
        for (int k = 0; k < 32; ++k) all[k] = std::max(all[k], w.known[lane * 32 + k]);
    }
    for (unsigned l = lanes; l; l &= l - 1) {
        Thread* t = w.lanes[__builtin_ctz(l)];
        all[t->lane] = t->clock++;
    }
    for (unsigned l = lanes; l; l &= l - 1) {
        memcpy(&w.known[__builtin_ctz(l) * 32], all, sizeof all);
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

void race_check(Found f, uintptr_t address, size_t size, int action, bool is_volatile, const void* pc) {
    Region& r = *f.region;
    if (r.constant) return;
    Cell* cells = cells_of(r);
    if (size < r.grain) refine(r);
    size_t first = (address - f.low) / r.grain, last = (address + size - 1 - f.low) / r.grain;
    Thread* t = current;
    bool atomic = action == 2 || (is_volatile && r.space != LAPTOP_IN_SHARED);
    if (atomic) synchronise(address);
    uint64_t me = mark_of(t);
    uint32_t offset = code_offset(pc);
    if (action == 0) {
        for (Cell* c = cells + first; c <= cells + last; ++c) {
            for (int k = Cell::WRITER; k <= (atomic ? Cell::WRITER : Cell::UPDATER); ++k) {
                if (c->mark[k] >> 22 == me >> 22 || !unordered(c->mark[k], t, r.space)) continue;
                laptop_error e = race_between(c->mark[k], c->pc[k], ACTIONS[k], address, size, action, pc);
                if (k != Cell::UPDATER) fail(e);
                trust(e, address, t->warp->block->linear, t->index);
            }
            // Two readers that are not ordered with each other; one of them is not the next writer.
            int slot = Cell::READER;
            if (c->mark[slot] >> 22 != me >> 22 && unordered(c->mark[slot], t, r.space)) {
                slot = Cell::OTHER_READER;
                if (c->mark[slot] >> 22 != me >> 22 && unordered(c->mark[slot], t, r.space)) continue;
            }
            if (atomic) continue;
            c->mark[slot] = me;
            c->pc[slot] = offset;
        }
        return;
    }
    if (atomic && !optimists.empty()) confirm(address, t);
    bool suspected = false;
    for (Cell* c = cells + first; c <= cells + last; ++c) {
        for (int k = 0; k < Cell::MARKS && !suspected; ++k) {
            if (c->mark[k] >> 22 == me >> 22 || !unordered(c->mark[k], t, r.space)) continue;
            if (atomic && k == Cell::UPDATER) continue;
            if (atomic && k >= Cell::READER) {
                uint32_t block = run->intervals[interval_of(c->mark[k])].block;
                trust(race_between(c->mark[k], c->pc[k], 0, address, size, action, pc), address, block,
                      thread_of(c->mark[k]));
                continue;
            }
            suspect(race_between(c->mark[k], c->pc[k], ACTIONS[k], address, size, action, pc), f, address, size, action);
            suspected = true;
        }
        for (int k = Cell::READER; atomic && k < Cell::MARKS; ++k) {
            if (c->mark[k] >> 22 == me >> 22) c->mark[k] = 0;        // its read led to this atomic
        }
        int slot = atomic ? Cell::UPDATER : Cell::WRITER;
        c->mark[slot] = me;
        c->pc[slot] = offset;
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

void init_check(Found f, uintptr_t address, size_t size, int action, const void* pc) {
    uint8_t* init;
    Block& b = *current->warp->block;
    bool in_shared = f.region->space == LAPTOP_IN_SHARED;
    if (in_shared) {
        init = b.shared_initialised + (address - (uintptr_t)b.shared);
    } else if (f.region->initialised) {
        init = f.region->initialised + (address - f.low);
    } else {
        return;
    }
    if (action == 1) {
        memset(init, 1, size);
        return;
    }
    if (std::all_of(init, init + size, [](uint8_t x) { return x != 0; })) return;
    if (action == 2) memset(init, 1, size);
    if (unwritten.size() >= 64) return;
    Busy busy;
    Unwritten u;
    u.error = make_error("uninitialized", in_shared ? "shared" : "global", pc, action);
    u.error.memory = memory_at(b, address, &u.error.offset);
    u.error.size = (uint32_t)size;
    u.block = b.linear;
    u.thread = current->index;
    u.in_shared = in_shared;
    unwritten.push_back(u);
}

void start_interval(Block& b) {
    Busy busy;
    b.interval = (uint32_t)run->intervals.size();
    run->intervals.push_back({b.linear, run->grid_epoch});
    for (Warp& w : b.warps) {
        if (w.lanes[0]->clock < 1u << 20) continue;
        std::fill(w.known.begin(), w.known.end(), 0);
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
}

void end_sanitizing() {
    if (!unwritten.empty()) fail(unwritten[0].error);
}
}  // namespace laptop
