// Waiting that is no barrier of the whole block: for phases of a pack's barriers, at barriers of a part of the block, and
// for asynchronous copies.
#include <algorithm>

#include "runtime_known.h"

namespace laptop {

void await_phase(const void* barrier, const void* site) {
    Thread* t = current;
    if (!t) return;
    t->site = site;
    t->awaited = barrier;
    park(State::PHASE);
}

void wake_all_at(Block& b, const void* awaited) {
    for (Thread& t : b.threads)
        if (t.state == State::PHASE && t.awaited == awaited) wake(&t);
}

// All who were expected have arrived. What they did before is ordered before what anyone of the block does from now on:
// for the threads that the barrier does not concern this is more than CUDA grants, so a race with them may be missed.
static void phase_over(const void* barrier) {
    if (pending) resolve_pending();
    Block& b = *current->warp->block;
    if (run->sanitizing) {
        Busy busy;
        end_interval(b);
        start_interval(b);
    }
    wake_all_at(b, barrier);
}

void partial_barrier(uint32_t key, unsigned threads, const void* site, bool waits) {
    Thread* t = current;
    if (!t) return;
    Block& b = *t->warp->block;
    uint32_t turn = key < 16 ? b.turns[key] : 0;
    if (key < 16) note(b, t->index, waits ? LAPTOP_WAIT_BEGINS : LAPTOP_ARRIVES, (void*)(uintptr_t)(key + 1), turn, site);
    uint32_t none = 0, &gone_on = key < 16 ? b.arrived_at[key] : none;
    const void* name = (const void*)(uintptr_t)(key + 1);        // no address of a cuda::barrier
    unsigned arrived = 1 + gone_on;
    for (const Thread& other : b.threads) arrived += other.state == State::PHASE && other.awaited == name;
    if (arrived >= threads) {
        gone_on = 0;
        if (key < 16) ++b.turns[key];
        phase_over(name);
    } else if (waits) {
        await_phase(name, site);
    } else {
        ++gone_on;
    }
    if (key < 16 && waits) note(b, t->index, LAPTOP_WAIT_ENDS, name, turn, site);
}
void show(const void* value) { if (current) current->shown = value; }
const void* shown_by(unsigned thread) { return current->warp->block->threads[thread].shown; }

void async_copy(void* to, const void* from, size_t bytes, const void* site, const void* barrier, size_t unread) {
    Thread* t = current;
    if (!t || !t->log) return;
    if (from && bytes > unread) touch_range((uintptr_t)from, bytes - unread, 0, site);      // null: zeros are written, nothing is read
    touch_range((uintptr_t)to, bytes, 1, site);
    Access* last = t->log->n_accesses ? t->log->access + t->log->n_accesses - 1 : nullptr;
    if (run->profiling && bytes >= 4 && last && last->address == (uintptr_t)to) last->what |= (uint64_t)ASYNCHRONOUS << 32;
    if (!run->sanitizing) return;
    Busy busy;
    auto& all = t->warp->block->in_flight;
    all.push_back({(uintptr_t)to, (uint32_t)bytes, t->index, t->async_group, code_offset(site), barrier});
    all.back().mark = mark_of(t);
}
void async_commit() { if (current) ++current->async_group; }
void async_wait(int groups_left) {
    Thread* t = current;
    if (!t || !t->log) return;
    Busy busy;
    auto& all = t->warp->block->in_flight;
    all.erase(std::remove_if(all.begin(), all.end(), [&](const InFlight& f) {
        return !f.barrier && f.thread == t->index && (int64_t)f.group < (int64_t)t->async_group - groups_left;
    }), all.end());
}
}  // namespace laptop
