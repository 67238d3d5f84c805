// Fence - atomic - atomic: the order of memory that does without a barrier.
// A thread that fences and then updates a variable atomically releases what it wrote, and what its block wrote before
// the last barrier (if it fenced after that, or the writers did before). Whoever updates the variable later knows it;
// the rest of that block after its next barrier, the rest of the warp after a __syncwarp.
#include <algorithm>
#include <memory>
#include <unordered_map>

#include "runtime_known.h"
#include "runtime_settled.h"

namespace laptop {

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
bool any_fence = false;

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

bool can_follow() { return run->n_blocks <= 65536 && run->n_blocks * run->n_threads <= 1 << 24; }

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

void acquire_at(uintptr_t address) {
    Busy busy;
    Thread* t = current;
    auto found = released.find(address);
    if (found != released.end()) learn(learnt_by(mine(t), t->index), found->second);
}

void release_at(uintptr_t address) {
    Busy busy;
    Thread* t = current;
    OfBlock& o = mine(t);
    uint32_t fenced_in = std::max(o.last_fence[t->index], o.fenced_upto);
    if (!fenced_in && o.fenced.empty()) return;
    Known& r = released[address];
    if (fenced_in) learn_upto(r, t->warp->block->linear, fenced_in);
    auto now = o.fences.find(t->index);
    if (now != o.fences.end()) learn_own(r, (uint64_t)o.interval << 10 | t->index, now->second);
    for (auto& f : o.fenced) learn_own(r, f.first, f.second);
    learn(r, o.at_start);
    if (o.threads[t->index]) learn(r, *o.threads[t->index]);
}

void synchronise(uintptr_t address) {
    if (!any_fence) return;
    acquire_at(address);
    release_at(address);
}

void release_for(uintptr_t address, uint64_t who, uint32_t clock) { learn_own(released[address], who, clock); }

bool learnt(const Thread* t, uint64_t mark, uint32_t block) {
    const OfBlock& o = mine(t);
    return knows(o.at_start, mark, block) || (o.threads[t->index] && knows(*o.threads[t->index], mark, block));
}

void share_what_was_learnt(Warp& w, unsigned lanes) {
    OfBlock& o = mine(w.lanes[__builtin_ctz(lanes)]);
    Known all;
    bool any = false;
    for (unsigned l = lanes; l; l &= l - 1) {
        auto& learnt = o.threads[w.lanes[__builtin_ctz(l)]->index];
        if (learnt) learn(all, *learnt), any = true;
    }
    for (unsigned l = lanes; any && l; l &= l - 1) learn(learnt_by(o, w.lanes[__builtin_ctz(l)]->index), all);
}

void start_knowing() {
    released.clear();
    of_block.clear();
    any_fence = false;
}

struct PutAway {
    std::unordered_map<uintptr_t, Known> was_released;
    std::unordered_map<uint32_t, OfBlock> by_block;
    bool fenced;
};
static std::vector<PutAway> put_away_known;              // of the launches that wait for children
void put_known_away() {
    put_away_known.push_back({std::move(released), std::move(of_block), any_fence});
}
void take_known_up() {
    PutAway& last = put_away_known.back();
    released = std::move(last.was_released);
    of_block = std::move(last.by_block);
    any_fence = last.fenced;
    put_away_known.pop_back();
}
}  // namespace laptop
