// Marks of the sanitizer, and what threads know of each other's by fence - atomic - atomic.
#pragma once
#include "runtime.h"
#pragma GCC visibility push(hidden)

namespace laptop {

constexpr uint64_t CLOCK_MASK = (1ull << 22) - 1;
inline uint32_t interval_of(uint64_t mark) { return (uint32_t)(mark >> 32); }
inline uint32_t thread_of(uint64_t mark) { return mark >> 22 & 1023; }

inline uint64_t mark_of(const Thread* t) {
    return (uint64_t)t->warp->block->interval << 32 | (uint64_t)t->index << 22 | (t->clock & CLOCK_MASK);
}

// In the pc of a mark: volatile (see runtime_sanitize.cpp); written by a copy, not by a thread; of the block's scope.
constexpr uint32_t VOLATILE = 1u << 31, BY_COPY = 1u << 30, NARROW = 1u << 29, PLACE = NARROW - 1;

// Up to which clock a lane has seen another, by __syncwarp.
inline uint32_t seen_by(const Warp& w, uint32_t lane, uint32_t other) {
    return w.alike ? w.known_to_all[other] : w.known[lane * 32 + other];
}

extern bool any_fence;           // in this launch
void start_knowing();
void put_known_away();           // while children run,
void take_known_up();            // and after them
void barrier_passed(const Block&);
bool learnt(const Thread*, uint64_t mark, uint32_t block);       // after some fence
void share_what_was_learnt(Warp&, unsigned lanes);
// A cluster's barrier, by the address that stands for a phase: what one thread knew, where a block's threads arrived, and
// who may know all of it.
struct Arrivals { uint32_t interval, phase; std::vector<uint32_t> clocks; };
void add_what_is_known(uintptr_t phase, const Thread*), know_phase(uintptr_t phase);
void add_arrivals(uintptr_t phase, uint32_t block, const Arrivals&);
uint32_t fenced_at(const Thread*);       // the clock of its last fence in this interval, or 0
bool is_ordered_before(uint64_t mark, const Thread*);     // both of one interval
bool can_follow();               // else there are too many threads, and no race is claimed
}  // namespace laptop
#pragma GCC visibility pop
