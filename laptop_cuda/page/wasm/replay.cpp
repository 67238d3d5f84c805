// A recorded launch as the player has it (pictures/player.py packs the same), put in order by the engine. Values are left as
// bytes, which the page reads by the type of their array.
#include <stdio.h>

#include <algorithm>

#include "page.h"
#include "runtime.h"

namespace laptop {
using Step = laptop_warp_step;
using Event = laptop_event;

std::string n(int64_t number) { return std::to_string(number); }
std::string quoted(const char* text) {
    std::string made = "\"";
    for (const char* p = text ? text : ""; *p; ++p) {
        char escaped[8] = {*p};
        if ((unsigned char)*p < 32 || *p == '"' || *p == '\\') snprintf(escaped, sizeof escaped, "\\u%04x", *p);
        made += escaped;
    }
    return made + '"';
}
std::string list(const std::vector<std::string>& parts) {
    std::string made = "[";
    for (const std::string& part : parts) made += (made.size() > 1 ? "," : "") + part;
    return made + "]";
}
std::string object(const Fields& fields) {
    std::string made = "{";
    for (auto& [name, value] : fields) made += (made.size() > 1 ? ",\"" : "\"") + std::string(name) + "\":" + value;
    return made + "}";
}

static std::string bytes_of(const Event& e) {
    std::string hex(2 * std::min<uint32_t>(e.size, 16), '0');
    for (size_t i = 0; i < hex.size(); ++i) hex[i] = "0123456789abcdef"[e.after[i / 2] >> (i % 2 ? 0 : 4) & 15];
    return quoted(hex.c_str());
}

static const char* KINDS[] = {"load", "store", "load", "store", "atomic", "atomic", "barrier", "line", "exchange"};
static const char* ENDS[] = {"end", "barrier", "cut"};
static const char* SPACES[] = {"global", "shared", "module"};

std::string replay_of(const laptop_result& r, uint64_t most) {
    std::vector<Step> steps(r.recorded_steps, r.recorded_steps + r.n_recorded_steps);
    std::vector<Event> events(r.recorded_events, r.recorded_events + r.n_recorded_events);
    std::vector<uint32_t> lines;
    for (const Step& s : steps) lines.push_back(place_of(s.pc) & 0xffffff);
    bool cut = r.cut || events.size() > most;
    laptop_in_order all = {};
    all.n_steps = steps.size(), all.n_events = events.size();
    steps.resize(all.n_steps + 1), events.resize(all.n_events + 1);
    std::vector<laptop_span> spans(steps.size());
    all.steps = steps.data(), all.events = events.data(), all.spans = spans.data(), all.lines = lines.data();
    all.warp_size = all.sector_bytes = 32, all.broken = cut;
    if (const laptop_error& e = r.error; e.kind) {
        all.most = cut ? most : 0, all.broken = true, all.unset = std::string(e.kind) == "uninitialized";
        all.memory = e.memory, all.offset = e.offset, all.size = e.size;
        all.in_shared = e.memory >= 0 && r.memories[e.memory].space == LAPTOP_IN_SHARED;
        for (auto [p, has] : {std::pair(&e.who, e.has_thread), {&e.other, e.has_other}})
            if (has) all.sides[all.n_sides++] = {number(p->block, run->launch->grid), number(p->thread, run->launch->block), p->pc, p->action};
    }
    laptop_order(&all);
    std::vector<std::string> rows, parts, accesses, intervals, arrays, starts(r.n_memories, "0");
    for (const Step* s = all.steps; s < all.steps + all.n_steps; ++s) {
        uint32_t place = place_of(s->pc);
        rows.push_back(list({n(s->block), n(s->warp), n(s->interval), quoted(KINDS[s->operation]), n(place >> 24), n(place & 0xffffff),
                             n(s->lanes), s->memory < 0 ? "null" : n(s->memory), n(s->size), n(s->sectors), n(s->wavefronts),
                             n(s->excess), n(s->first_event), n(s->n_events)}));
    }
    for (const Event* e = all.events; e < all.events + all.n_events; ++e) {
        bool known = e->memory >= 0 && !(all.refused && e == all.events + all.n_events - 1);
        parts.push_back(list({n(e->thread % 32), n(e->offset), n(e->size), known ? bytes_of(*e) : "\"\"", n(e->memory)}));
        if (e->memory >= 0 && e->address) starts[e->memory] = n((e->address - e->offset) % 128);
    }
    for (int i = 0; i < all.n_marked; ++i) {
        const Event& e = events[all.marked[i]];
        all.first = std::max<uint64_t>(i ? all.first : 0, e.step);
        accesses.push_back(object({{"step", n(e.step)}, {"lane", n(e.thread % 32)}}));
    }
    for (const laptop_span* s = all.spans; s < all.spans + all.n_spans; ++s)
        intervals.push_back(object({{"block", n(s->block)}, {"number", n(s->number)}, {"first_step", n(s->first_step)}, {"n_steps", n(s->n_steps)},
                                    {"ends", quoted(ENDS[s->ends])}, {"line", n(s->ends == 1 ? place_of(s->pc) & 0xffffff : 0)}}));
    for (size_t i = 0; i < r.n_memories; ++i) {
        const laptop_memory& m = r.memories[i];
        // what a variable begins with is no array
        arrays.push_back(object({{"name", quoted(m.name)}, {"space", quoted(SPACES[m.space])}, {"parameter", n(m.parameter)},
                                 {"itemsize", n(m.itemsize)}, {"bytes", std::string(m.name).rfind("__const", 0) ? n(m.bytes) : "0"},
                                 {"offset", n(m.offset)}, {"start", m.space == LAPTOP_IN_SHARED ? "0" : starts[i]}}));
    }
    return object({{"cut", cut ? "true" : "false"}, {"rows", list(rows)}, {"events", list(parts)}, {"accesses", list(accesses)},
                   {"arrays", list(arrays)}, {"intervals", list(intervals)}, {"first", n(all.first)}});
}
}  // namespace laptop
