// Fence - atomic - atomic: the order of memory that does without a barrier.
// A thread that fences and then updates a variable atomically releases what it wrote, what lanes wrote before a
// __syncwarp with it, and what its block wrote before the last barrier (if it fenced after these, or the writers did
// before). Whoever updates the variable later has seen it, and knows it after a fence of its own; the rest of that block
// after its next barrier, the rest of the warp after a __syncwarp. Between blocks only what has the device for its scope
// counts, fences and atomics alike: so what is released at an address is kept for all, and for each block apart.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <unordered_map>

#include "runtime_known.h"
#include "runtime_settled.h"

namespace laptop {

struct Known {
    std::vector<uint32_t> upto;                          // per block: writes of intervals below this one
    std::unordered_map<uint64_t, uint32_t> own;          // interval, thread -> writes below this clock
    std::map<uint32_t, std::shared_ptr<const Arrivals>> arrived;         // per block, at its cluster's barrier
};
struct Fences {                  // of one scope
    uint32_t upto = 0;                                   // all threads fenced in an interval: as if one had, after it
    std::vector<uint32_t> last;                          // per thread: its interval
    std::unordered_map<uint32_t, uint32_t> now;          // of this interval: thread -> clock
    std::unordered_map<uint32_t, std::array<uint32_t, 32>> lanes;        // thread -> of its warp, what its fence covers
    std::unordered_map<uint64_t, uint32_t> before;       // of earlier intervals: interval, thread -> clock
};
struct OfBlock {
    uint32_t interval = 0;
    Known at_start;                                      // of the interval
    std::vector<std::unique_ptr<Known>> threads;         // learnt since
    std::unordered_map<uint32_t, std::vector<uint64_t>> seen;    // by thread: keys of what it read; no fence since
    Fences fences[2];                                    // of any scope; of the device
};
constexpr size_t MOST_OWN = 4096;
constexpr size_t MOST_SEEN = 64;
static std::unordered_map<uint64_t, Known> released;     // by address, or by address and block
static std::unordered_map<uint32_t, OfBlock> of_block;
bool any_fence = false;
static uint64_t lessons = 0;     // how often anybody has learnt anything

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
    for (auto& a : from.arrived) {
        auto& known = to.arrived[a.first];
        if (!known || known->phase < a.second->phase) known = a.second;
    }
}

static bool knows(const Known& k, uint64_t mark, uint32_t block) {
    uint32_t interval = interval_of(mark);
    if (block < k.upto.size() && interval < k.upto[block]) return true;
    auto arrived = k.arrived.find(block);
    if (arrived != k.arrived.end()) {
        const Arrivals& a = *arrived->second;
        if (interval < a.interval || (interval == a.interval && (mark & CLOCK_MASK) < a.clocks[thread_of(mark)])) return true;
    }
    auto own = k.own.find((uint64_t)interval << 10 | thread_of(mark));
    return own != k.own.end() && (mark & CLOCK_MASK) < own->second;
}

static uint64_t key_in(uint32_t block, uintptr_t address) { return address ^ (uint64_t)(block + 1) << 47; }

static void learn_at(Known& k, uint64_t key) {
    auto found = released.find(key);
    if (found != released.end()) learn(k, found->second);
}

static void next_interval(Fences& f, const OfBlock& o, uint32_t alive) {
    if (!f.now.empty() && f.now.size() >= alive) {
        f.upto = o.interval + 1;
        f.before.clear();
    } else {
        for (auto& n : f.now) f.before[(uint64_t)o.interval << 10 | n.first] = n.second;
        for (auto& l : f.lanes) {
            for (uint32_t k = 0; k < run->warp_size; ++k) {
                uint32_t& upto = f.before[(uint64_t)o.interval << 10 | (l.first / run->warp_size * run->warp_size + k)];
                upto = std::max(upto, l.second[k]);
            }
        }
    }
    f.now.clear();
    f.lanes.clear();
}

static OfBlock& mine(const Block& b) {
    OfBlock& o = of_block[b.linear];
    if (o.threads.empty()) {
        o.threads.resize(run->n_threads);
        for (Fences& f : o.fences) f.last.resize(run->n_threads);
    }
    if (o.interval == b.interval) return o;
    ++lessons;
    for (auto& learnt : o.threads) {
        if (learnt) learn(o.at_start, *learnt);
        learnt.reset();
    }
    for (auto& s : o.seen) for (uint64_t key : s.second) learn_at(o.at_start, key);
    o.seen.clear();
    for (Fences& f : o.fences) next_interval(f, o, b.alive);
    o.interval = b.interval;
    return o;
}
static OfBlock& mine(const Thread* t) { return mine(*t->warp->block); }

void barrier_passed(const Block& b) { if (of_block.count(b.linear)) mine(b); }

static Known& learnt_by(OfBlock& o, uint32_t thread) {
    ++lessons;
    if (!o.threads[thread]) o.threads[thread].reset(new Known);
    return *o.threads[thread];
}

bool can_follow() { return run->n_blocks <= 65536 && run->n_blocks * run->n_threads <= 1 << 24; }

// What the thread has read becomes known to it; by a fence of its block's scope, only what was released in that block.
static void know_what_was_seen(OfBlock& o, const Thread* t, bool device) {
    auto seen = o.seen.find(t->index);
    if (seen == o.seen.end()) return;
    for (uint64_t key : seen->second) {
        if (device || key >> 47) learn_at(learnt_by(o, t->index), key);
    }
    if (device) o.seen.erase(seen);
}

void fence(bool device) {
    if (!run->sanitizing || !can_follow()) return;
    Busy busy;
    Thread* t = current;
    const Warp& w = *t->warp;
    OfBlock& o = mine(t);
    any_fence = t->fenced = true;
    unsettle();
    if (t->clock < 1u << 21) ++t->clock;
    for (int scope = 0; scope <= device; ++scope) {
        Fences& f = o.fences[scope];
        f.now[t->index] = t->clock;
        f.last[t->index] = o.interval;
        if (w.ordered_in != o.interval) continue;
        auto& lanes = f.lanes[t->index];
        for (uint32_t k = 0; k < 32; ++k) lanes[k] = std::max(lanes[k], seen_by(w, t->lane, k) + 1);
    }
    know_what_was_seen(o, t, device);
}

void acquire_at(uintptr_t address, bool of_block) {
    Busy busy;
    Known& known = learnt_by(mine(current), current->index);
    learn_at(known, key_in(current->warp->block->linear, address));
    if (!of_block) learn_at(known, address);
}

static void release(uint64_t key, const Thread* t, const OfBlock& o, const Fences& f) {
    uint32_t fenced_in = std::max(f.last[t->index], f.upto);
    if (!fenced_in && f.before.empty()) return;
    Known& r = released[key];
    uint32_t warp = t->index - t->lane;
    if (fenced_in) learn_upto(r, t->warp->block->linear, fenced_in);
    auto now = f.now.find(t->index);
    if (now != f.now.end()) learn_own(r, (uint64_t)o.interval << 10 | t->index, now->second);
    auto lanes = f.lanes.find(t->index);
    for (uint32_t k = 0; lanes != f.lanes.end() && k < 32; ++k) {
        if (lanes->second[k] > 1) learn_own(r, (uint64_t)o.interval << 10 | (warp + k), lanes->second[k]);
    }
    for (auto& b : f.before) learn_own(r, b.first, b.second);
    learn(r, o.at_start);
    if (o.threads[t->index]) learn(r, *o.threads[t->index]);
}

void release_at(uintptr_t address, bool of_block) {
    Busy busy;
    OfBlock& o = mine(current);
    release(key_in(current->warp->block->linear, address), current, o, o.fences[0]);
    if (!of_block) release(address, current, o, o.fences[0]);
}

void synchronise(uintptr_t address, bool device) {
    if (!any_fence) return;
    Busy busy;
    Thread* t = current;
    OfBlock& o = mine(t);
    for (int scope = 0; scope <= device; ++scope) {
        uint64_t key = scope ? address : key_in(t->warp->block->linear, address);
        if (released.count(key)) {
            auto& seen = o.seen[t->index];
            if (seen.size() >= MOST_SEEN) know_what_was_seen(o, t, true);        // too many to follow
            if (seen.empty() || std::find(seen.begin(), seen.end(), key) == seen.end()) seen.push_back(key);
        }
        release(key, t, o, o.fences[scope]);
    }
}

void release_for(const Block& b, uintptr_t address, uint64_t who, uint32_t clock) {
    learn_own(released[key_in(b.linear, address)], who, clock);
}

void add_what_is_known(uintptr_t phase, const Thread* t) {
    OfBlock& o = mine(t);
    learn(released[phase], o.at_start);
    if (o.threads[t->index]) learn(released[phase], *o.threads[t->index]);
}
void add_arrivals(uintptr_t phase, uint32_t block, const Arrivals& a) {
    released[phase].arrived[block] = std::make_shared<Arrivals>(a);
}
void know_phase(uintptr_t phase) { learn_at(learnt_by(mine(current), current->index), phase); }

uint32_t fenced_at(const Thread* t) {
    auto& now = mine(t).fences[0].now;
    auto found = now.find(t->index);
    return found == now.end() ? 0 : found->second;
}

// The same is asked again of each word of a tile: so the last answers are kept until somebody learns more.
bool learnt(const Thread* t, uint64_t mark, uint32_t block) {
    static struct Answer { const Thread* of; uint64_t mark, lessons; bool is; } answers[64];
    Answer& a = answers[(thread_of(mark) ^ mark) % 64];
    if (a.of == t && a.mark == mark && a.lessons == lessons) return a.is;
    const OfBlock& o = mine(t);
    a = {t, mark, lessons, knows(o.at_start, mark, block) || (o.threads[t->index] && knows(*o.threads[t->index], mark, block))};
    return a.is;
}

// Where lanes have fenced and one goes on to update a variable, it is as if it had fenced after them.
static void share_fences(Fences& f, const Warp& w, unsigned lanes) {
    if (f.now.empty() && f.lanes.empty()) return;
    std::array<uint32_t, 32> all = {};
    uint32_t last = 0, first = w.index * run->warp_size;
    for (unsigned l = lanes; l; l &= l - 1) {
        uint32_t lane = __builtin_ctz(l);
        auto now = f.now.find(first + lane);
        auto covered = f.lanes.find(first + lane);
        if (now != f.now.end()) all[lane] = std::max(all[lane], now->second);
        for (uint32_t k = 0; covered != f.lanes.end() && k < 32; ++k) all[k] = std::max(all[k], covered->second[k]);
        last = std::max(last, f.last[first + lane]);
    }
    for (unsigned l = last ? lanes : 0; l; l &= l - 1) {
        uint32_t thread = first + __builtin_ctz(l);
        f.lanes[thread] = all;
        f.last[thread] = last;
    }
}

void share_what_was_learnt(Warp& w, unsigned lanes) {
    OfBlock& o = mine(*w.block);
    Known all;
    bool any = false;
    for (Fences& f : o.fences) share_fences(f, w, lanes);
    for (unsigned l = lanes; l; l &= l - 1) {
        know_what_was_seen(o, w.lanes[__builtin_ctz(l)], true);
        auto& learnt = o.threads[w.lanes[__builtin_ctz(l)]->index];
        if (learnt) learn(all, *learnt), any = true;
    }
    for (unsigned l = lanes; any && l; l &= l - 1) learn(learnt_by(o, w.lanes[__builtin_ctz(l)]->index), all);
}

void start_knowing() {
    released.clear();
    of_block.clear();
    ++lessons;
    any_fence = run->clustered;          // their barrier orders as a fence does
}

struct PutAway {
    std::unordered_map<uint64_t, Known> was_released;
    std::unordered_map<uint32_t, OfBlock> by_block;
    bool fenced;
};
static std::vector<PutAway> put_away_known;              // of the launches that wait for children
void put_known_away() { ++lessons, put_away_known.push_back({std::move(released), std::move(of_block), any_fence}); }
void take_known_up() {
    PutAway& last = put_away_known.back();
    released = std::move(last.was_released);
    of_block = std::move(last.by_block);
    any_fence = last.fenced;
    ++lessons;
    put_away_known.pop_back();
}
}  // namespace laptop
