// The order of streams, events and host code in checked programs. All work is done when a call returns; what may still
// be under way on a card, as nothing that the host has waited for comes after it, is kept with the memory that it used.
// A clock says for each stream up to which operation others come after it: it is passed on by events and by waiting.
#include <string.h>

#include <algorithm>
#include <deque>
#include <set>

#include "programs.h"

namespace laptop {

typedef std::vector<uint64_t> Clock;             // for each stream: so many of its operations have ended
struct Use { uintptr_t low; size_t bytes; bool writes; };
struct Touched { bool reads, writes, updates; };

struct Work {
    size_t stream;
    uint64_t number;
    std::string what;
    const void* site;
    std::vector<Use> uses;
    std::vector<Region> regions;                 // of a launch: cells that say what it touched
    Clock before;
    ~Work() {
        for (Region& r : regions) munmap(r.cells, r.bytes * sizeof(Cell));
    }
};

struct Stream { Clock knows; bool blocking = true; uint64_t issued = 0; };
enum { HOST, DEFAULT };
static std::deque<Stream> streams(2);
static std::map<const void*, size_t> numbers;    // of handles
static std::map<const void*, Clock> recorded;    // events
static std::deque<std::unique_ptr<Work>> under_way;      // that the host has not waited for
static bool several = false;                     // streams that do not all wait for each other
static std::recursive_mutex ordering;
typedef std::lock_guard<std::recursive_mutex> Ordering;
static __thread Work* issuing __attribute__((tls_model("initial-exec"))) = nullptr;
constexpr size_t MOST_OPEN = 64, MOST_BYTES = 64 << 20;

static void learn(Clock& to, const Clock& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}
static bool has(const Clock& c, const Work& o) { return o.stream < c.size() && c[o.stream] >= o.number; }

static void host_learns(const Clock& c) {
    learn(streams[HOST].knows, c);
    auto ended = [](const std::unique_ptr<Work>& o) { return has(streams[HOST].knows, *o); };
    under_way.erase(std::remove_if(under_way.begin(), under_way.end(), ended), under_way.end());
}

static size_t make_stream(const void* stream, bool blocking) {
    several |= !blocking || streams.size() > 2;
    streams.emplace_back();
    streams.back().blocking = blocking;
    return numbers[stream] = streams.size() - 1;
}
static size_t number_of(const void* stream) {
    if ((uintptr_t)stream <= 1) return DEFAULT;
    auto found = numbers.find(stream);
    return found == numbers.end() ? make_stream(stream, true) : found->second;
}

// After what an operation comes that is issued now: the default stream and the blocking ones wait for each other.
static Clock& now_in(size_t s) {
    Clock& c = streams[s].knows;
    learn(c, streams[HOST].knows);
    for (Stream& other : streams) {
        if (streams[s].blocking && other.blocking && (s == DEFAULT || &other == &streams[DEFAULT])) learn(c, Clock(other.knows));
    }
    return c;
}

static bool is_followed() { return !current && is_sanitized(); }
void stream_made(const void* stream, bool blocking) {
    if (!is_followed()) return;
    Ordering lock(ordering);
    make_stream(stream, blocking);
}
void event_recorded(const void* event, const void* stream) {
    if (!is_followed()) return;
    Ordering lock(ordering);
    recorded[event] = now_in(number_of(stream));
}
void stream_awaits(const void* stream, const void* event) {
    if (!is_followed()) return;
    Ordering lock(ordering);
    learn(now_in(number_of(stream)), recorded[event]);
}
void host_awaits_event(const void* event) {
    if (!is_followed()) return;
    Ordering lock(ordering);
    host_learns(recorded[event]);
}
void host_awaits_stream(const void* stream) {
    if (!is_followed()) return;
    Ordering lock(ordering);
    host_learns(Clock(now_in(number_of(stream))));
}
void host_awaits_all(bool host_too) {
    if (!is_followed()) return;
    Ordering lock(ordering);
    Clock all;
    for (const Stream& s : streams) learn(all, s.knows);
    for (Stream& s : streams) {
        if (host_too || &s != &streams[HOST]) learn(s.knows, all);
    }
    if (host_too) host_learns(all);
}

static void add(Touched& to, const Region& r, uintptr_t low, uintptr_t high) {
    low = std::max(low, r.low), high = std::min(high, r.low + r.bytes);
    for (uintptr_t at = low; at < high; at += r.grain) {
        const uint64_t* mark = r.cells[(at - r.low) / r.grain].mark;
        to.writes |= mark[Cell::WRITER] != 0;
        to.updates |= mark[Cell::UPDATER] != 0;
        to.reads |= mark[Cell::READER] || mark[Cell::OTHER_READER];
    }
}
static Touched touched_by(const Work& o, uintptr_t low, size_t bytes) {
    Touched t = {};
    for (const Use& u : o.uses) {
        if (low < u.low + u.bytes && u.low < low + bytes) (u.writes ? t.writes : t.reads) = true;
    }
    for (const Region& r : o.regions) add(t, r, low, low + bytes);
    return t;
}
static bool conflict(Touched a, Touched b) {
    return (a.writes && (b.reads || b.writes || b.updates)) || (b.writes && (a.reads || a.updates)) ||
           (a.updates && b.reads) || (b.updates && a.reads);
}

static const char* verb(Touched t) { return t.writes ? "written" : t.updates ? "updated" : "read"; }
static std::string named(const std::string& what) { return what.compare(0, 4, "cuda") ? "kernel " + what : what; }
static void tell_of(const Work& first, Touched by_first, const std::string& second, Touched by_second, uintptr_t at,
                    const void* site, const char* missing) {
    told_unordered(element_at(at) + " is " + verb(by_first) + " by " + named(first.what) + " and " + verb(by_second) + " by " +
                       second + ", " + missing, site, first.site);
}

static bool meet_at(const Work& first, const Work& second, uintptr_t at, size_t bytes, Touched t) {
    Touched before = touched_by(first, at, bytes);
    if (!conflict(before, t)) return false;
    tell_of(first, before, named(second.what), t, at, second.site,
            "in another stream: no event, default stream or waiting host orders them");
    return true;
}
static void compare(const Work& first, const Work& second) {
    for (const Use& u : second.uses) {
        if (meet_at(first, second, u.low, u.bytes, {!u.writes, u.writes, false})) return;
    }
    for (const Region& r : second.regions) {
        auto both = [&](const auto& of) { return of.low < r.low + r.bytes && r.low < of.low + of.bytes; };
        if (std::none_of(first.uses.begin(), first.uses.end(), both) &&
            std::none_of(first.regions.begin(), first.regions.end(), both)) continue;
        for (size_t at = 0; at < r.bytes; at += r.grain) {
            Touched t = {};
            add(t, r, r.low + at, r.low + at + r.grain);
            if ((t.reads || t.writes || t.updates) && meet_at(first, second, r.low + at, r.grain, t)) return;
        }
    }
}

Issued::Issued(const void* stream, const char* what, const void* site, bool waits) : waits(waits) {
    if (!is_followed() || issuing) return;
    Ordering lock(ordering);
    size_t s = number_of(stream);
    Clock& c = now_in(s);
    issuing = made = new Work{s, ++streams[s].issued, what, site, {}, {}, c};
    if (c.size() <= s) c.resize(s + 1);
    c[s] = made->number;
}
Issued::~Issued() {
    if (!made) return;
    Ordering lock(ordering);
    issuing = nullptr;
    std::unique_ptr<Work> ended(made);
    for (auto& o : under_way) {
        if (!has(ended->before, *o)) compare(*o, *ended);
    }
    if (waits) host_learns(Clock(streams[ended->stream].knows));
    else if (!ended->uses.empty() || !ended->regions.empty()) under_way.push_back(std::move(ended));
    if (under_way.size() > MOST_OPEN) under_way.pop_front();
}
void Issued::uses(const void* p, size_t bytes, bool writes) {
    if (made && place_of(p, bytes) != Place::HOST) made->uses.push_back({(uintptr_t)p, bytes, writes});
}

// What a launch touched of memory that another stream, or the host, may touch before it is waited for.
void keep_touched(Run& r) {
    size_t kept = 0;
    for (auto& o : under_way) for (Region& g : o->regions) kept += g.bytes;
    for (Storage& s : r.storages) {
        Region& g = s.region;
        if (!issuing || !g.cells || !(several || is_for_host((void*)g.low)) || (kept += g.bytes) > MOST_BYTES) continue;
        issuing->regions.push_back(g);
        g.cells = nullptr;
    }
}

// Host code: main, or a function that waits in a stream for its turn.
void used_by_host(uintptr_t address, size_t size, bool writes, const void* pc) {
    if (issuing) return issuing->uses.push_back({address, size, writes});
    if (under_way.empty()) return;
    Ordering lock(ordering);
    Touched t = {!writes, writes, false};
    for (auto& o : under_way) {
        Touched by = touched_by(*o, address, size);
        if (conflict(by, t)) return tell_of(*o, by, "host code", t, address, pc, "which has not waited for it");
    }
}
}  // namespace laptop
