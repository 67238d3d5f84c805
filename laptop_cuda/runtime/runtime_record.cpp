// What each lane and warp did, kept for a replay: the requests that runtime_trace.cpp makes of the lanes' logs, with
// the values that were loaded and stored, between the basic blocks and synchronisations of the warp.
#include <string.h>

#include <algorithm>

#include "runtime.h"

namespace laptop {

// A store is announced before it happens: its value is fetched at the thread's next step. The pieces of one store
// of many bytes are announced together, from one place in the code.
struct Announced { uintptr_t address; uint32_t size, pc; Recorded* recorded; };
static std::vector<Announced> announced;
bool values_wanted = false;

void record_values() {
    for (const Announced& a : announced) memcpy(a.recorded->after, (void*)a.address, a.size);
    announced.clear();
    values_wanted = false;
}

void start_recording() {
    static Recorded* room = nullptr;
    if (run->recording && !room) room = new Recorded[32 * Log::MOST];
    for (int i = 0; i < 32; ++i) run->logs[i].recorded = run->recording ? room + i * Log::MOST : nullptr;
    announced.clear();
    values_wanted = false;
}

void record_access(const Log& log, const Access& a, size_t size, bool writes) {
    Busy busy;
    uint32_t pc = (uint32_t)a.what, bytes = (uint32_t)std::min<size_t>(size, 16);
    if (values_wanted && announced[0].pc != pc) record_values();
    Recorded& r = log.recorded[&a - log.access];
    r.time = run->time++;
    r.interval = current->warp->block->barriers;
    memcpy(r.before, (void*)a.address, bytes);
    memcpy(r.after, r.before, bytes);
    if (!writes) return;
    announced.push_back({(uintptr_t)a.address, bytes, pc, &r});
    values_wanted = true;
}

static bool in_recorded_block(const Block& b) {
    const laptop_launch& l = *run->launch;
    return !l.record_blocks || std::binary_search(l.record_blocks, l.record_blocks + l.n_record_blocks, b.linear);
}

// Whether its steps are wanted too, and not only the accesses to some bytes.
bool is_recorded(const Block& b) { return run->recording && run->launch->watch_array < 0 && in_recorded_block(b); }

bool nothing_left_to_record(uint64_t block) {
    const laptop_launch& l = *run->launch;
    if (run->sanitizing) return false;           // it runs on to its error
    if (l.order == LAPTOP_REVERSE) return l.n_record_blocks && block < l.record_blocks[0];
    return l.record_blocks && (!l.n_record_blocks || block > l.record_blocks[l.n_record_blocks - 1]);
}

static bool watched(const laptop_event& e) {
    const laptop_launch& l = *run->launch;
    return l.watch_array < 0 || (e.memory == l.watch_array && e.offset < (int64_t)l.watch_high &&
                                 e.offset + (int64_t)e.size > (int64_t)l.watch_low);
}

// A sanitized launch runs on to its error, so what came last is kept: the older half makes room.
static void make_room() {
    auto& steps = run->recorded_steps;
    auto& events = run->recorded_events;
    run->older_gone = true;
    size_t gone = std::lower_bound(steps.begin(), steps.end(), events.size() / 2, [](const laptop_warp_step& s, size_t n) {
                      return s.first_event < n;
                  }) - steps.begin();
    gone = std::max(gone, steps.size() / 2);
    size_t gone_events = gone < steps.size() ? steps[gone].first_event : events.size();
    steps.erase(steps.begin(), steps.begin() + gone);
    events.erase(events.begin(), events.begin() + gone_events);
    for (laptop_warp_step& s : steps) s.first_event -= gone_events;
    for (laptop_event& e : events) e.step -= (uint32_t)gone;
}

void record_request(const Warp& w, const laptop_warp_step& request, const Access* const* accesses, const uint8_t* lanes,
                    int n) {
    if (!run->recording || run->cut || !in_recorded_block(*w.block)) return;
    auto& events = run->recorded_events;
    if (events.size() + n > run->launch->record_events) {
        if (!run->sanitizing || !run->launch->record_events) {
            run->cut = true;
            return;
        }
        make_room();
    }
    size_t first = events.size();
    for (int i = 0; i < n; ++i) {
        const Log& log = *w.lanes[lanes[i]]->log;
        const Recorded& r = log.recorded[accesses[i] - log.access];
        laptop_event e = {};
        e.time = r.time;
        e.address = accesses[i]->address;
        e.memory = memory_at(*w.block, e.address, &e.offset);
        e.step = (uint32_t)run->recorded_steps.size();
        e.block = w.block->linear;
        e.thread = w.lanes[lanes[i]]->index;
        e.interval = r.interval;
        e.pc = request.pc, e.size = request.size, e.operation = request.operation;
        memcpy(e.before, r.before, 16);
        memcpy(e.after, r.after, 16);
        if (watched(e)) events.push_back(e);
    }
    if (events.size() == first) return;
    laptop_warp_step s = request;
    s.block = w.block->linear, s.warp = w.index, s.interval = events[first].interval;
    s.first_event = first, s.n_events = (uint32_t)(events.size() - first);
    run->recorded_steps.push_back(s);
}

void record_step(Warp& w, unsigned lanes, const uint32_t* words) {
    if (!is_recorded(*w.block) || run->cut) return;
    laptop_warp_step s = {};
    s.block = w.block->linear, s.warp = w.index, s.interval = w.merged_interval;
    s.lanes = lanes;
    s.memory = -1;
    s.operation = words[0] == BLOCK_MEETING ? LAPTOP_BARRIER : words[0] == MEETING ? LAPTOP_EXCHANGE : LAPTOP_LINE;
    s.pc = is_meeting(words[0]) ? words[2] : words[0] & 0xffffff;
    s.first_event = run->recorded_events.size();
    if (s.operation == LAPTOP_BARRIER) ++w.merged_interval;
    run->recorded_steps.push_back(s);
    if (run->recorded_steps.size() <= 8 * run->launch->record_events) return;
    if (run->sanitizing && run->launch->record_events) make_room();
    else run->cut = true;
}

void put_down(const Block& b, uint32_t thread, int what, const void* barrier, uint32_t phase, const void* site,
              const void* name, uint32_t bytes) {
    constexpr size_t MOST = 1 << 20;
    if (!in_recorded_block(b) || run->moments.size() == MOST) return;
    Busy busy;
    laptop_moment m = {name, barrier, 0, -1, what, thread, code_offset(site), phase, bytes};
    m.memory = memory_at(b, (uintptr_t)barrier, &m.offset);
    run->moments.push_back(m);
}

void record_end() {
    if (!run->recording) return;
    record_values();
    if (current) merge(*current->warp, true);
}
}  // namespace laptop
