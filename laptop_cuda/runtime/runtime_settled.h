// Reads that need no look. After most reads the sanitizer knows of a place what it knew before: two other threads have
// read it since the last synchronisation, and nobody has written it. For each 4 bytes one word says so, for as long as
// nothing is written there and nobody synchronises: then a hook returns after one comparison.
#pragma once
#include "runtime.h"

namespace laptop {

constexpr size_t SETTLED_BYTES = 4;       // for each byte
constexpr uint32_t UNWATCHED_STEPS = 1 << 16;    // before others have their turn

struct SettledNow {
    uintptr_t code = 0;          // where the kernel's library is loaded
    uint32_t most_steps = 0;     // that need only be numbered: none where accesses are counted
    bool counts_steps = false;   // and does not record them
    bool only_counts = false;    // the launch is neither checked nor recorded
    Settled shared, global;      // of the block that runs, of the launch
    uint64_t epoch = 0;          // of an open word; a word of an earlier epoch says nothing
    uint64_t of_warp = 0;        // the epoch of words that hold for the warp that runs, and for no other
    uint64_t last = 0;
};
extern SettledNow settled __attribute__((visibility("hidden")));

constexpr unsigned EPOCH_SHIFT = 21;
constexpr uint64_t OPEN = 1 << 20;       // to other threads than the two

inline void unsettle_warp() { settled.of_warp = ++settled.last << EPOCH_SHIFT | OPEN; }
inline void unsettle() {         // something was synchronised
    settled.epoch = ++settled.last << EPOCH_SHIFT | OPEN;
    unsettle_warp();
}

// The readers that a word names, if it is open in this epoch; else more than 20 bits.
inline uint64_t open_readers(uint64_t word) {
    uint64_t readers = word ^ settled.epoch;
    return readers < OPEN ? readers : word ^ settled.of_warp;
}

// Whether all 4-byte words of an aligned read are open, and name others than this thread.
template <size_t SIZE> inline bool is_settled(const Thread* t, uintptr_t address) {
    size_t at = address - settled.shared.low;
    const uint64_t* words = settled.shared.word;
    if (at >= settled.shared.bytes) {
        at = address - settled.global.low, words = settled.global.word;
        if (at >= settled.global.bytes) return false;
    }
    if (address % SIZE) return false;
    for (size_t i = 0; i < SIZE / 4; ++i) {
        uint64_t readers = open_readers(words[at / 4 + i]);
        if (readers >= OPEN || readers >> 10 == t->index || (readers & 1023) == t->index) return false;
    }
    return true;
}

inline Settled* settled_at(uintptr_t address) {          // null: nothing is settled there
    if (address - settled.shared.low < settled.shared.bytes) return &settled.shared;
    return address - settled.global.low < settled.global.bytes ? &settled.global : nullptr;
}
void settle_in(Block&);          // it runs now
void load4(Thread*, uintptr_t address, const void* pc);      // 4 bytes that are not settled
void store4(Thread*, uintptr_t address, const void* pc);

// What nearly every access is: inside a shared array, or inside a storage of which there is one view.
inline Found found_quickly(const Thread* t, uintptr_t address, size_t size) {
    uintptr_t low = (uintptr_t)t->warp->block->shared, at = address - low;
    if (at < run->shared_used) {
        const SharedSlot& slot = run->shared_at[at / 128];
        if (at >= slot.low && at + size <= slot.high) return {&slot.array->region, low + slot.low};
    } else if (address - run->arena < run->arena_bytes) {
        Storage& s = run->storages[run->storage_at[(address - run->arena) / SLOT]];
        if (s.views.size() == 1 && address >= s.views[0].low && address + size <= s.views[0].high) return {&s.region, s.data};
    }
    return {nullptr, 0};
}
}  // namespace laptop
