// Shuffles, votes and __syncwarp: the lanes of a mask wait for each other, leave a value and read the others'.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "runtime.h"

namespace laptop {

void leave_meeting(Thread* t) {
    if (!t->meeting) return;
    t->meeting->readers &= ~(1u << t->lane);
    t->meeting = nullptr;
}

// Lanes that have ended are not waited for, unless they took another way around this meeting.
static void check_the_absent(const Warp& w, const Rendezvous& r) {
    const Thread* first = w.lanes[__builtin_ctz(r.data.present)];
    uint32_t place = place_in_kernel(first, first->site);
    for (unsigned l = r.mask & ~r.data.present; l; l &= l - 1) {
        const Thread* absent = w.lanes[__builtin_ctz(l)];
        if (!absent || !jumped_over(*absent, {place, 0, 0})) continue;
        char mask[16];
        snprintf(mask, sizeof mask, "0x%08x", r.mask);
        laptop_error e = gone_past("deadlock", first, absent);
        e.detail = mask;
        fail(e);
    }
}

static bool complete(Warp& w, Rendezvous& r) {
    if (!r.open || (r.data.present & w.alive) != (r.mask & w.alive)) return false;
    if (run->sanitizing && w.block->watched) check_the_absent(w, r);
    r.open = false;
    r.readers = r.data.present;
    if (r.orders_memory && run->sanitizing) warp_ordered(w, r.data.present);
    return true;
}

void complete_meetings(Warp& w) {
    for (auto& r : w.meetings) {
        if (!complete(w, *r)) continue;
        for (unsigned l = r->data.present; l; l &= l - 1) wake(w.lanes[__builtin_ctz(l)]);
    }
}

static Rendezvous& meeting_for(Warp& w, unsigned mask, Operation operation, unsigned lane) {
    Rendezvous* unused = nullptr;
    for (auto& r : w.meetings) {
        if (r->open && r->mask == mask && r->operation == operation && !(r->data.present >> lane & 1)) return *r;
        if (!r->open && r->readers == 0) unused = r.get();
    }
    if (!unused) {
        Busy busy;
        w.meetings.emplace_back(new Rendezvous);
        unused = w.meetings.back().get();
    }
    unused->open = true;
    unused->mask = mask;
    unused->operation = operation;
    unused->orders_memory = false;
    unused->data.present = 0;
    unused->readers = 0;
    return *unused;
}

const Exchange& warp_exchange(unsigned mask, const void* value, unsigned bytes, Operation operation,
                              bool orders_memory, const void* site) {
    Thread* t = current;
    if (!t) {
        fprintf(stderr, "a warp function was called outside a kernel\n");
        abort();
    }
    if (!(mask >> t->lane & 1)) fail(make_error("deadlock", "not in its own mask", site, 3));
    Warp& w = *t->warp;
    leave_meeting(t);
    Rendezvous& r = meeting_for(w, mask, operation, t->lane);
    if (bytes) memcpy(r.data.slot[t->lane], value, bytes);
    r.data.present |= 1u << t->lane;
    r.orders_memory |= orders_memory;
    t->site = site;
    t->meeting = &r;
    if (run->sanitizing && w.block->watched) remember_meeting(t);
    if (complete(w, r)) {
        for (unsigned lanes = r.data.present; lanes; lanes &= lanes - 1) wake(w.lanes[__builtin_ctz(lanes)]);
        give_way();
    } else {
        park(State::EXCHANGE);
    }
    if (t->log) log_meeting(t, r.data.present, false);
    return r.data;
}

void undefined_value(void* value, size_t bytes, int lane, const void* site) {
    memset(value, run ? run->poison : 0xff, bytes);
    for (size_t i = 0; run && run->by_code && i + 4 <= bytes; i += 4) memcpy((char*)value + i, &UNDEFINED_FLOAT, 4);
    if (!run || !run->sanitizing || run->undefined.kind) return;
    run->undefined = make_error("uninitialized", "shuffle", site, 0);
    run->undefined.offset = lane;
    run->undefined.size = !(current->meeting->mask >> lane & 1);
}

unsigned converged_lanes(const void* site, int line) {
    Thread* t = current;
    t->site = site;
    t->converging_at = run->traced ? (uintptr_t)site : (uintptr_t)line;
    t->warp->converging |= 1u << t->lane;
    park(State::CONVERGE);
    if (t->log) log_meeting(t, t->converged, false);
    return t->converged;
}

// Nobody in the warp can run: those who asked at the same place who is with them are together. In an optimised build
// the compiler duplicates and merges calls, and only the source line tells two places apart.
void release_converged(Warp& w) {
    uintptr_t first = UINTPTR_MAX;
    for (unsigned l = w.converging; l; l &= l - 1) first = std::min(first, w.lanes[__builtin_ctz(l)]->converging_at);
    unsigned together = 0;
    for (unsigned l = w.converging; l; l &= l - 1) {
        int lane = __builtin_ctz(l);
        if (w.lanes[lane]->converging_at == first) together |= 1u << lane;
    }
    w.converging &= ~together;
    for (unsigned l = together; l; l &= l - 1) {
        Thread* t = w.lanes[__builtin_ctz(l)];
        t->converged = together;
        wake(t);
    }
}

// A synchronisation is a step in the lanes' logs, so that the merge lines the lanes up there.
void log_meeting(Thread* t, unsigned lanes, bool of_block) {
    Log& log = *t->log;
    if (log.n_steps >= Log::STEPS || t->steps >= Log::STEPS) park(State::FULL);
    if (!run->profiling) {
        t->steps += MEETING_WORDS;
        return;
    }
    ++t->span;
    log.step[log.n_steps++] = of_block ? BLOCK_MEETING : MEETING;
    log.step[log.n_steps++] = lanes;
    log.step[log.n_steps++] = code_offset(t->site);
}

int lane_id() { return current ? current->lane : 0; }
unsigned active_lanes() { return current ? current->warp->alive : 1; }
bool in_kernel() { return current != nullptr; }
}  // namespace laptop
