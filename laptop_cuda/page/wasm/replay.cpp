// A recorded launch as the player wants it: what replay/rows.py and pictures/player.py make of the same tables (a test
// holds the two together). Values are left as bytes, which the page reads by the type of their array.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "page.h"
#include "runtime.h"

namespace laptop {
using Step = laptop_warp_step;
using Event = laptop_event;
static std::vector<Step> steps;
static std::vector<Event> events;

static bool is_line(const Step& s) { return s.operation == LAPTOP_LINE; }
static auto kin(const Step& s) {
    return std::tuple(s.block, s.warp, s.interval, s.lanes, place_of(s.pc) & 0xffffff, s.operation);
}

// The last steps, with at most so many events.
static void keep_last(uint64_t most) {
    auto first = std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return events.size() - s.first_event <= most; });
    uint64_t gone = first == steps.end() ? events.size() : first->first_event;
    steps.erase(steps.begin(), first);
    for (Step& s : steps) s.first_event -= gone;
    events.erase(events.begin(), events.begin() + gone);
}

// By block and interval; code that is not the source's goes, and of pieces of one line in a row all but the first.
static void sort_steps() {
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
        return std::pair(a.block, a.interval) < std::pair(b.block, b.interval); });
    std::vector<Step> kept;
    std::vector<Event> moved;
    for (size_t i = 0; i < steps.size(); ++i) {
        Step s = steps[i];
        if (is_line(s) && (!(place_of(s.pc) & 0xffffff) || (i && kin(s) == kin(steps[i - 1])))) continue;
        for (uint64_t e = s.first_event; e < s.first_event + s.n_events; ++e) {
            moved.push_back(events[e]);
            moved.back().step = (uint32_t)kept.size();
        }
        s.first_event = moved.size() - s.n_events;
        kept.push_back(s);
    }
    steps.swap(kept), events.swap(moved);
}

static uint32_t number(const uint32_t (&at)[3], const uint32_t (&size)[3]) {
    return at[0] + size[0] * (at[1] + size[1] * at[2]);
}

// The access that was refused, which is not recorded: at the end.
static void add_refused(const laptop_error& e, const laptop_party& p, uint32_t block, uint32_t thread) {
    Event event = {};
    Step step = {};
    bool in_shared = run->memories[e.memory].space == LAPTOP_IN_SHARED;
    event.operation = step.operation = p.action == 2 ? (in_shared ? LAPTOP_SHARED_ATOMIC : LAPTOP_GLOBAL_ATOMIC)
                                                     : p.action + (in_shared ? LAPTOP_SHARED_LOAD : LAPTOP_GLOBAL_LOAD);
    for (const Event& other : events) {
        if (other.block == block) step.interval = std::max(step.interval, other.interval);
    }
    event.offset = e.offset, event.memory = step.memory = e.memory, event.step = (uint32_t)steps.size();
    event.thread = thread, event.size = step.size = e.size, step.block = block, step.warp = thread / 32;
    event.pc = step.pc = p.pc, step.lanes = 1u << thread % 32, step.first_event = events.size(), step.n_events = 1;
    steps.push_back(step), events.push_back(event);
}

// The events of which the error speaks, and whether the last of all is one that was refused.
static std::vector<size_t> marked(const laptop_error& e, bool* refused) {
    std::vector<size_t> found;
    const laptop_launch& l = *run->launch;
    for (const laptop_party* p : {&e.who, &e.other}) {
        if (!(p == &e.who ? e.has_thread : e.has_other) || p->action > 2) continue;
        uint32_t block = number(p->block, l.grid), thread = number(p->thread, l.block);
        std::vector<size_t> mine;
        for (size_t i = 0; i < events.size(); ++i) {
            const Event& a = events[i];
            bool meets = a.memory == e.memory && a.offset < e.offset + e.size && a.offset + a.size > e.offset;
            if (meets && a.block == block && a.thread == thread && a.pc == p->pc) mine.push_back(i);
        }
        if (mine.empty() && (p != &e.who || e.memory < 0)) continue;
        if (mine.empty()) add_refused(e, *p, block, thread), mine = {events.size() - 1}, *refused = true;
        found.push_back(std::string(e.kind) == "uninitialized" ? mine[0] : mine.back());
    }
    return found;
}

static std::string list(const std::vector<std::string>& parts) {
    std::string made = "[";
    for (const std::string& part : parts) made += (made.size() > 1 ? "," : "") + part;
    return made + "]";
}
template <typename... T>
static std::string row(T... numbers) { return list({std::to_string((int64_t)numbers)...}); }

static std::string bytes_of(const Event& e) {
    std::string hex(2 * std::min<uint32_t>(e.size, 16), '0');
    for (size_t i = 0; i < hex.size(); ++i) hex[i] = "0123456789abcdef"[e.after[i / 2] >> (i % 2 ? 0 : 4) & 15];
    return hex;
}

static std::string intervals(bool broken) {
    std::map<std::pair<uint32_t, uint32_t>, std::vector<size_t>> found;
    std::vector<std::string> rows;
    for (size_t i = 0; i < steps.size(); ++i) found[{steps[i].block, steps[i].interval}].push_back(i);
    for (auto at = found.begin(); at != found.end(); ++at) {
        auto is_barrier = [](size_t i) { return steps[i].operation == LAPTOP_BARRIER; };
        auto barrier = std::find_if(at->second.begin(), at->second.end(), is_barrier);
        auto next = at;
        bool ends = barrier != at->second.end(), last = ++next == found.end() || next->first.first != at->first.first;
        rows.push_back("{\"block\":" + std::to_string(at->first.first) + ",\"number\":" + std::to_string(at->first.second) +
            ",\"first_step\":" + std::to_string(at->second[0]) + ",\"n_steps\":" + std::to_string(at->second.size()) +
            ",\"ends\":\"" + (ends ? "barrier" : broken && last ? "cut" : "end") + "\",\"line\":" +
            std::to_string(ends ? place_of(steps[*barrier].pc) & 0xffffff : 0) + "}");
    }
    return list(rows);
}

std::string replay_of(const laptop_result& r, uint64_t most) {
    steps.assign(r.recorded_steps, r.recorded_steps + r.n_recorded_steps);
    events.assign(r.recorded_events, r.recorded_events + r.n_recorded_events);
    bool cut = r.cut || events.size() > most, refused = false;
    if (r.error.kind && cut) keep_last(most);
    sort_steps();
    std::string made = "{\"cut\":" + std::to_string(cut);
    std::vector<size_t> of_error = r.error.kind ? marked(r.error, &refused) : std::vector<size_t>();
    std::vector<std::string> rows, parts, accesses, starts(r.n_memories, "0"), memories;
    for (const Step& s : steps) {
        uint32_t place = place_of(s.pc);
        rows.push_back(row(s.block, s.warp, s.interval, s.operation, place >> 24, place & 0xffffff, s.lanes, s.memory, s.size,
                           s.sectors, s.wavefronts, s.excess, s.first_event, s.n_events));
    }
    for (const Event& e : events) {
        bool known = e.memory >= 0 && !(refused && &e == &events.back());
        parts.push_back(list({row(e.thread % 32, e.offset, e.size, e.memory), '"' + (known ? bytes_of(e) : "") + '"'}));
        if (e.memory >= 0 && e.address) starts[e.memory] = std::to_string((e.address - e.offset) % 128);
    }
    for (size_t i : of_error) {
        auto [step, lane] = std::pair(std::to_string(events[i].step), std::to_string(events[i].thread % 32));
        accesses.push_back("{\"step\":" + step + ",\"lane\":" + lane + "}");
    }
    for (size_t i = 0; i < r.n_memories; ++i) {
        const laptop_memory& m = r.memories[i];
        memories.push_back(list({std::string("\"") + m.name + '"', row(m.space, m.parameter, m.itemsize, m.bytes, m.offset),
                                 m.space == LAPTOP_IN_SHARED ? "0" : starts[i]}));
    }
    return made + ",\"steps\":" + list(rows) + ",\"events\":" + list(parts) + ",\"accesses\":" + list(accesses) +
           ",\"memories\":" + list(memories) + ",\"intervals\":" + intervals(cut || r.error.kind) + "}";
}
}  // namespace laptop
