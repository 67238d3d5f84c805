// A run that is to answer in time. Half of it is for checks, or for counts: a launch that is not counted to its end has none.
// Of checks each launch gets a share of what is left of that half, so that later ones have theirs. Where a share does not
// suffice for all blocks, the corners of the grid and some in between are checked, and the rest run with hooks that only
// keep what later checks ask: which bytes were written, and the order that fences and atomics make.
#include <string.h>

#include <algorithm>

#include "runtime.h"
#include "runtime_settled.h"

namespace laptop {

void start_watching() {
    Watch& w = run->watch;
    laptop_limit* l = run->launch->limit;
    w.limited = l;
    if (!w.limited) return;
    if (!l->began) l->began = now();
    w.share = (l->seconds / 2 - l->checked) / (3.0 + (double)l->launches++);
}

static bool is_corner(uint64_t block) {
    const uint32_t* grid = run->launch->grid;
    uint64_t at[3] = {block % grid[0], block / grid[0] % grid[1], block / grid[0] / grid[1]};
    return std::all_of(at, at + 3, [&](uint64_t& x) { return x == 0 || x + 1 == grid[&x - at]; });
}

static bool half_is_over() { return now() - run->launch->limit->began > run->launch->limit->seconds / 2; }

bool to_be_watched(uint64_t block) {
    Watch& w = run->watch;
    if (!w.limited) return true;
    if (run->poison != 0xff) return false;       // a second run, whose results are compared
    check_limit(nullptr);
    if (run->profiling) return !half_is_over();
    double left = w.share - w.used;
    if (!w.watched || (left > 0 && (block == 1 || is_corner(block)))) return true;
    uint64_t after = run->launch->order == LAPTOP_REVERSE ? block : run->n_blocks - block;
    double all = w.used / (double)w.watched * (double)after;
    uint32_t drawn = (uint32_t)((block + 1) * 2654435769u);      // the same in each run
    return left > 0 && (all <= left || drawn < left / 2 / all * UINT32_MAX);
}

void begin_watching(const Block& b) { if (run->watch.limited && b.watched) run->watch.since = now(); }

static void stop(Watch& w) {
    double seconds = now() - w.since;
    w.used += seconds;
    run->launch->limit->checked += seconds;
}

void end_watching(const Block& b, bool ended) {
    Watch& w = run->watch;
    if (!w.limited || !b.watched) return;
    stop(w);
    if (!ended) return;
    ++w.watched;
    w.shown[std::min<uint64_t>(w.whole++, 2)] = b.linear;
}

bool watched_too_long() {
    Watch& w = run->watch;
    if (run->profiling) return half_is_over();
    return w.used + now() - w.since > std::max(w.share, 0.01);
}

void unwatch(Block& b) {
    if (!b.watched) return;
    if (pending) resolve_pending();
    stop(run->watch);
    ++run->watch.watched;
    b.watched = false;
    for (Thread& t : b.threads) {
        t.log = nullptr;
        t.furthest = UINT32_MAX;
        t.steps = 0;
    }
    forget_trust(b);
    settle_in(b);
}

void check_limit(const Thread* t) {
    const laptop_limit* l = run->watch.limited ? run->launch->limit : nullptr;
    if (!l || now() - l->began < l->seconds) return;
    laptop_error e = error_of("timeout", "limit", t, t ? t->last_step & 0xffffff : 0, 0);
    e.offset = (int64_t)l->seconds;
    fail(e);
}

void pass_unwatched(Thread* t, uintptr_t address, size_t size, int action, bool is_volatile) {
    if (address - (uintptr_t)t->stack.low < STACK_BYTES) return;
    if (run->sanitizing && action && address - run->arena < run->arena_bytes) {
        const Storage& s = run->storages[run->storage_at[(address - run->arena) / SLOT]];
        bool inside = address >= s.data && address + size <= s.data + s.bytes;
        if (inside && s.region.initialised) memset(s.region.initialised + (address - s.data), 1, size);
    }
    if (run->sanitizing && (action == 2 || is_volatile)) synchronise(address, action != 2 || !(update_how & OF_BLOCK));
}
}  // namespace laptop
