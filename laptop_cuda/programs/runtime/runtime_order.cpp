// The order of streams, events and host code in checked programs. All work is done when a call returns; what may still
// be under way on a card, as the host has waited for nothing that comes after it, is kept with what it touched.
#include <algorithm>

#include "programs.h"

namespace laptop {

typedef std::vector<uint64_t> Clock;             // for each stream: so many of its works have ended
constexpr int READS = 1, WRITES = 2, UPDATES = 4;
struct Use { uintptr_t low; size_t bytes; int how; };

struct Work {
    size_t stream;
    uint64_t number;
    Clock before;
    std::string what;
    const void* site;
    std::vector<Use> uses;
    std::vector<Region> regions;                 // of a launch: cells that say what it touched
    ~Work() { for (Region& r : regions) munmap(r.cells, r.bytes * sizeof(Cell)); }
};

struct Stream { bool blocking; Clock knows; uint64_t issued; };
enum { HOST, DEFAULT };
static std::deque<Stream> streams = {{true, {}, 0}, {true, {}, 0}};
static std::map<const void*, size_t> numbers;    // of handles
static std::map<const void*, Clock> recorded;    // events
static std::deque<std::unique_ptr<Work>> under_way;      // that the host has not waited for
static __thread Work* issuing __attribute__((tls_model("initial-exec"))) = nullptr;
constexpr size_t MOST_WORKS = 64, MOST_BYTES = 64 << 20;
typedef std::lock_guard<std::recursive_mutex> Lock;

static void learn(Clock& to, Clock from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}
static bool has(const Clock& c, const Work& w) { return w.stream < c.size() && c[w.stream] >= w.number; }

static void host_learns(const Clock& c) {
    learn(streams[HOST].knows, c);
    auto ended = [](const std::unique_ptr<Work>& w) { return has(streams[HOST].knows, *w); };
    under_way.erase(std::remove_if(under_way.begin(), under_way.end(), ended), under_way.end());
}

static size_t make_stream(const void* stream, bool blocking) {
    streams.push_back({blocking, {}, 0});
    return numbers[stream] = streams.size() - 1;
}
static size_t number_of(const void* stream) {
    if ((uintptr_t)stream <= 1) return DEFAULT;
    return numbers.count(stream) ? numbers[stream] : make_stream(stream, true);
}

// After what a work comes that is issued now: the default stream and the blocking ones wait for each other.
static Clock& now_in(const void* stream) {
    size_t number = number_of(stream);
    Stream& s = streams[number];
    learn(s.knows, streams[HOST].knows);
    for (size_t other = DEFAULT; s.blocking && other < streams.size(); ++other)
        if (streams[other].blocking && (number == DEFAULT || other == DEFAULT)) learn(s.knows, streams[other].knows);
    return s.knows;
}

void order(Order what, const void* stream, const void* event) {
    if (current || !is_sanitized()) return;
    Lock lock(one_at_a_time);
    Clock all;
    for (const Stream& s : streams) learn(all, s.knows);
    switch (what) {
        case Order::MADE: case Order::MADE_APART: make_stream(stream, what == Order::MADE); break;
        case Order::RECORDED: recorded[event] = now_in(stream); break;
        case Order::AWAITS_EVENT: learn(now_in(stream), recorded[event]); break;
        case Order::HOST_AWAITS_EVENT: host_learns(recorded[event]); break;
        case Order::HOST_AWAITS: host_learns(now_in(stream)); break;
        case Order::HOST_AWAITS_ALL: if (!issuing) host_learns(all); break;
        case Order::STREAMS_MEET: for (size_t s = DEFAULT; s < streams.size(); ++s) streams[s].knows = all;
    }
}

bool host_has_waited(const void* event) {
    Lock lock(one_at_a_time);
    Clock both = streams[HOST].knows;
    learn(both, recorded[event]);
    return !is_sanitized() || both == streams[HOST].knows;
}

static int touched(const Region& r, uintptr_t low, uintptr_t high) {
    int how = 0;
    high = std::min(high, r.low + r.bytes);
    for (uintptr_t at = std::max(low, r.low); at < high; at += r.grain) {
        const uint64_t* mark = r.cells[(at - r.low) / r.grain].mark;
        if (mark[Cell::READER] || mark[Cell::OTHER_READER]) how |= READS;
        how |= (mark[Cell::WRITER] ? WRITES : 0) | (mark[Cell::UPDATER] ? UPDATES : 0);
    }
    return how;
}
static int touched(const Work& w, uintptr_t low, uintptr_t high) {
    int how = 0;
    for (const Use& u : w.uses) how |= low < u.low + u.bytes && u.low < high ? u.how : 0;
    for (const Region& r : w.regions) how |= touched(r, low, high);
    return how;
}

const void* issued_at() { return issuing ? issuing->site : nullptr; }

static std::string done(int how, const std::string& by) {
    if (by == "cudaFreeAsync" || by == "cudaMallocAsync") return by[4] == 'F' ? " is freed by " + by : " is given by " + by;
    const char* verb = how & WRITES ? " is written by " : how & UPDATES ? " is updated by " : " is read by ";
    return verb + (by.compare(0, 4, "cuda") && by != "host code" ? "kernel " + by : by);
}
static bool meet(const Work& first, const std::string& second, const Use& use, const void* site, const char* why) {
    int before = touched(first, use.low, use.low + use.bytes), how = use.how;
    if (!before || !((before | how) & WRITES || (before ^ how) & UPDATES)) return false;
    std::string said = element_at(use.low) + done(before, first.what) + " and" + done(how, second) + why;
    refused_call(said.c_str(), "", site, first.site);
    return true;
}

static void compare(const Work& first, const Work& second) {
    const char* why = " in another stream: no event and no wait of the host orders them";
    for (const Use& u : second.uses) {
        if (meet(first, second.what, u, second.site, why)) return;
    }
    for (const Region& r : second.regions) {
        auto both = [&](const auto& of) { return of.low < r.low + r.bytes && r.low < of.low + of.bytes; };
        bool apart = std::none_of(first.uses.begin(), first.uses.end(), both) &&
                     std::none_of(first.regions.begin(), first.regions.end(), both);
        for (uintptr_t at = r.low; !apart && at < r.low + r.bytes; at += r.grain) {
            Use u = {at, r.grain, touched(r, at, at + r.grain)};
            if (u.how && meet(first, second.what, u, second.site, why)) return;
        }
    }
}

Issued::Issued(const void* stream, const char* what, const void* site, bool waits) : waits(waits) {
    if (current || issuing || !is_sanitized()) return;
    Lock lock(one_at_a_time);
    size_t s = number_of(stream);
    Clock& c = now_in(stream);
    issuing = made = new Work{s, ++streams[s].issued, c, what, site, {}, {}};
    if (c.size() <= s) c.resize(s + 1);
    c[s] = made->number;
}
Issued::~Issued() {
    if (!made) return;
    Lock lock(one_at_a_time);
    std::unique_ptr<Work> ended(made);
    issuing = nullptr;
    for (auto w = under_way.rbegin(); w != under_way.rend(); ++w) {       // of several, the last is told
        if (!has(ended->before, **w)) compare(**w, *ended);
    }
    if (waits) host_learns(streams[ended->stream].knows);
    else if (!ended->uses.empty() || !ended->regions.empty()) under_way.push_back(std::move(ended));
    if (under_way.size() > MOST_WORKS) under_way.pop_front();
}
void Issued::uses(const void* p, size_t bytes, bool writes) {
    if (made && place_of(p, bytes) != Place::HOST) made->uses.push_back({(uintptr_t)p, bytes, writes ? WRITES : READS});
}

// What a launch touched of memory that another stream, or the host, may touch before it is waited for.
void keep_touched(Run& r) {
    size_t kept = 0;
    for (auto& w : under_way) for (Region& g : w->regions) kept += g.bytes;
    for (Storage& s : r.storages) {
        Region& g = s.region;
        bool shared = streams.size() > 2 || place_of((void*)g.low, 1) == Place::BOTH;
        if (!issuing || !g.cells || !shared || (kept += g.bytes) > MOST_BYTES) continue;
        issuing->regions.push_back(g);
        g.cells = nullptr;
    }
}

// Host code: main's, or that of a function that waits in a stream for its turn.
void used_by_host(uintptr_t address, size_t size, bool writes, const void* pc) {
    Use use = {address, size, writes ? WRITES : READS};
    if (issuing) return issuing->uses.push_back(use);
    if (under_way.empty()) return;
    Lock lock(one_at_a_time);
    const char* why = ", which has not waited: no cudaDeviceSynchronize(), cudaStreamSynchronize() or event in between";
    for (auto& w : under_way) {
        if (meet(*w, "host code", use, pc, why)) return;
    }
}
}  // namespace laptop
