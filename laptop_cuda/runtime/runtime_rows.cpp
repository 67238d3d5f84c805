// A recording in the order of a replay, for the laptop (replay/rows.py) and for a page (page/wasm/replay.cpp).
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "runtime.h"

namespace laptop {
namespace {
using Step = laptop_warp_step;
using Event = laptop_event;

// The last steps, with at most so many events.
void keep_last(laptop_in_order& r) {
    Step* first = std::find_if(r.steps, r.steps + r.n_steps, [&](const Step& s) { return r.n_events - s.first_event <= r.most; });
    uint64_t gone = first - r.steps, gone_events = gone == r.n_steps ? r.n_events : first->first_event;
    std::copy(first, r.steps + r.n_steps, r.steps);
    std::copy(r.events + gone_events, r.events + r.n_events, r.events);
    r.n_steps -= gone, r.n_events -= gone_events, r.lines += gone;
    for (uint64_t i = 0; i < r.n_steps; ++i) r.steps[i].first_event -= gone_events;
}

// By block and interval; code that is not the source's goes, and of pieces of one line in a row all but the first.
void sort(laptop_in_order& r) {
    std::vector<Step> given(r.steps, r.steps + r.n_steps);
    std::vector<Event> events(r.events, r.events + r.n_events);
    std::vector<uint32_t> order(r.n_steps);
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return std::pair(given[a].block, given[a].interval) < std::pair(given[b].block, given[b].interval); });
    auto kin = [&](uint32_t i) {
        const Step& s = given[i];
        return std::tuple(s.block, s.warp, s.interval, s.lanes, r.lines[i], s.operation);
    };
    r.n_steps = r.n_events = 0;
    for (size_t i = 0; i < order.size(); ++i) {
        Step s = given[order[i]];
        if (s.operation == LAPTOP_LINE && (!r.lines[order[i]] || (i && kin(order[i]) == kin(order[i - 1])))) continue;
        uint64_t from = s.first_event;
        s.first_event = r.n_events;
        for (uint64_t e = from; e < from + s.n_events; ++e) {
            events[e].step = (uint32_t)r.n_steps;
            r.events[r.n_events++] = events[e];
        }
        r.steps[r.n_steps++] = s;
    }
}

// The access that was refused, which is not recorded: at the end.
void add_refused(laptop_in_order& r, const laptop_who& p) {
    Event event = {};
    Step step = {};
    event.operation = step.operation = p.action == 2 ? (r.in_shared ? LAPTOP_SHARED_ATOMIC : LAPTOP_GLOBAL_ATOMIC)
                                                     : p.action + (r.in_shared ? LAPTOP_SHARED_LOAD : LAPTOP_GLOBAL_LOAD);
    for (uint64_t i = 0; i < r.n_events; ++i) {
        event.time = std::max(event.time, r.events[i].time + 1);
        if (r.events[i].block == p.block) event.interval = std::max(event.interval, r.events[i].interval);
    }
    event.offset = r.offset, event.memory = step.memory = r.memory, event.step = (uint32_t)r.n_steps;
    event.block = step.block = p.block, event.thread = p.thread, step.interval = event.interval;
    event.pc = step.pc = p.pc, event.size = step.size = r.size, step.warp = p.thread / r.warp_size;
    step.lanes = 1u << p.thread % r.warp_size, step.first_event = r.n_events, step.n_events = 1;
    r.steps[r.n_steps++] = step, r.events[r.n_events++] = event;
    r.refused = 1;
}

// The events of the accesses of which the error speaks.
void mark(laptop_in_order& r) {
    for (int i = 0; i < r.n_sides; ++i) {
        const laptop_who& p = r.sides[i];
        std::vector<uint64_t> mine;
        for (uint64_t n = 0; n < r.n_events && p.action <= 2; ++n) {
            const Event& e = r.events[n];
            bool meets = e.memory == r.memory && e.offset < r.offset + r.size && e.offset + e.size > r.offset;
            if (meets && e.block == p.block && e.thread == p.thread && e.pc == p.pc) mine.push_back(n);
        }
        // an unwritten read is refused at the interval's end; what is refused at once is the last
        if (!mine.empty()) r.marked[r.n_marked++] = r.unset ? mine[0] : mine.back();
        else if (!i && p.action <= 2 && r.memory >= 0) add_refused(r, p), r.marked[r.n_marked++] = r.n_events - 1;
    }
}

void find_spans(laptop_in_order& r) {
    std::map<std::pair<uint32_t, uint32_t>, laptop_span> found;
    for (uint64_t i = 0; i < r.n_steps; ++i) {
        const Step& s = r.steps[i];
        laptop_span& span = found.insert({{s.block, s.interval}, {s.block, s.interval, (uint32_t)i, 0, 0, 0}}).first->second;
        ++span.n_steps;
        if (s.operation == LAPTOP_BARRIER && !span.ends) span.ends = 1, span.pc = s.pc;
    }
    for (auto at = found.begin(); at != found.end(); ++at) {
        auto next = std::next(at);
        bool last = next == found.end() || next->first.first != at->first.first;
        if (!at->second.ends && last && r.broken) at->second.ends = 2;
        r.spans[r.n_spans++] = at->second;
    }
}

void find_first(laptop_in_order& r) {
    for (int test = 0; test < 3; ++test) {
        for (uint64_t i = 0; i < r.n_steps; ++i) {
            const Step& s = r.steps[i];
            bool fits = test == 0 ? s.excess : test == 1 ? r.sector_bytes * s.sectors > s.size * s.n_events : s.n_events;
            if (fits) return void(r.first = i);
        }
    }
}
}  // namespace
}  // namespace laptop

extern "C" void laptop_order(laptop_in_order* r) {
    if (r->most) laptop::keep_last(*r);
    laptop::sort(*r);
    laptop::mark(*r);
    laptop::find_spans(*r);
    laptop::find_first(*r);
}
