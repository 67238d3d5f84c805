// mbarrier, bulk copies, and the fence between their accesses and the threads' own.
//
// In a checked launch a copy is as late as is legal: its destination is poison from its issue until nobody can go on
// without it, and its source is read then. In the orders "early" and "reverse" copies land at once, in a drawn one this
// way or the other: a late copy shows who did not wait for it, an early one who had not left the buffer.
#include <string.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "runtime_asynchronous.h"

namespace laptop {

constexpr uint32_t MOST = (1 << 20) - 1;         // arrivals of a phase, and bytes that are to come in it
constexpr int MOST_POLLS = 1000;

struct Barrier {                 // its phases are numbered by how many have ended
    uint32_t expected, missing, ended;
    int64_t bytes;               // still to come in this phase
    bool seen;                   // somebody has seen that the phase before is over
    uint32_t by, announced = 0;  // who initialised it; by a fence for the cluster: to whom has waited so often at its barrier
    uint32_t coming = 0;         // of the missing arrivals, those of cp.async.mbarrier.arrive that are under way
    std::vector<uint32_t> arrived;           // in which phase each thread of its block was here last, from 1 on
    uint64_t made;               // the mark of its initialisation
};
struct Stretch { uintptr_t to, from; uint32_t bytes; };   // from 0: beyond the tensor
struct Copy {
    std::vector<Stretch> stretches;
    uint32_t bytes, thread, group, interval, clock;
    uintptr_t barrier;           // 0: of a group
    const void *name, *site;     // of its marks among what is in flight; where it was issued
    bool read;                   // its source
    std::vector<char> held;      // what was there then
    char fill;                   // of what is beyond the tensor
    Block* issuer;
    Reduction reduction;
    uint8_t swizzle, atom;       // of a tensor copy, which has an atom
    bool of_thread;              // st.async and red.async go where the thread's own stores do
    bool arrives;                // no copy but an arrival, when those are done that its thread issued by cp.async before

    void hold() {
        if (read) return;
        read = true;
        for (const Stretch& s : stretches) {
            if (s.from) held.insert(held.end(), (char*)s.from, (char*)s.from + s.bytes);
            else held.insert(held.end(), s.bytes, fill);
        }
    }
};
struct Issuer {
    uint32_t group = 0;
    bool polls = false;          // it asked whether a phase is over, and goes on either way
    uint64_t fenced[2] = {};     // marks of its last fences between the proxies: of global memory, of shared
    laptop_error owed = {};      // its arrival out of turn, unless the copy that it announces is the better error
};
struct Asynchronous {            // of a block
    std::unordered_map<uintptr_t, Barrier> barriers;
    std::vector<Copy> copies;
    std::vector<Written> tiles;
    std::vector<Issuer> threads;
    uint32_t fenced_interval[2] = {};    // the last in which any thread fenced between the proxies
    std::shared_ptr<std::vector<struct Warpgroup>> warpgroups;
    int polls = 0;               // since something changed
};

static Asynchronous& of(Block& b) {
    if (!b.asynchronous) {
        Busy busy;
        b.asynchronous = std::make_shared<Asynchronous>();
        b.asynchronous->threads.resize(run->n_threads);
    }
    return *b.asynchronous;
}
std::shared_ptr<std::vector<Warpgroup>>& warpgroups_of(Block& b) { return of(b).warpgroups; }
static uintptr_t names = 0;
const void* new_name() { return (const void*)--names; }
static Block& owner_of(const void* p) { return peer_at(p) ? *peer_at(p) : here(); }
static bool in_cluster(const void* p) { return is_shared(p) || peer_at(p); }

void breaks_rule(const char* kind, const char* what, const void* site) {
    laptop_error e = make_error(kind, "rule", site, 5);
    e.detail = what;
    fail(e);
}

static laptop_error misuse(const char* reason, const void* barrier, const void* site) {
    laptop_error e = make_error("misused barrier", reason, site, 5);
    if (run->traced) locate(e, here(), (uintptr_t)barrier, 8);
    return e;
}
[[noreturn]] static void misused(const char* reason, const void* barrier, const void* site) { fail(misuse(reason, barrier, site)); }

static Cell* cell_of(const Found& f, uintptr_t at) {
    return f.region && f.region->cells ? &f.region->cells[(at - f.low) / f.region->grain] : nullptr;
}
static const Cell* cell_at(Thread* t, uintptr_t at) { return cell_of(found_quickly(t, at, 4), at); }

// Nobody has stored into its memory since its initialisation.
static void must_be_whole(Block& b, uintptr_t p, const Barrier& barrier) {
    for (uintptr_t at : {p, p + 4}) {
        const Cell* c = barrier.made ? cell_at(&b.threads[0], at) : nullptr;
        if (!c || c->mark[Cell::WRITER] == barrier.made) continue;
        laptop_error e = make_error("misused barrier", "reused", LAPTOP_SITE, 1);
        uint64_t mark = c->mark[Cell::WRITER], by = run->intervals[interval_of(mark)].block;      // perhaps another one
        e.who = party_of(by, thread_of(mark), c->pc[Cell::WRITER] & PLACE, 1), e.has_thread = 1;
        locate(e, b, p, 8);
        e.owner = by == b.linear ? 0 : b.linear + 1;
        fail(e);
    }
}

static Barrier& barrier_at(const void* p, const void* site, bool copies = false) {
    const laptop_error& owed = of(here()).threads[current->index].owed;
    if (owed.kind && !copies) fail(owed);
    auto& all = of(owner_of(p)).barriers;
    auto found = all.find((uintptr_t)p);
    if (found == all.end()) misused("not initialised", p, site);
    bool announced = found->second.announced && member(*current).waits >= found->second.announced;
    if (is_checked() && !peer_at(p)) must_be_whole(here(), (uintptr_t)p, found->second);
    if (!announced) touch((uintptr_t)p, 8, 0, false, site);      // whoever uses it must know that it was initialised
    return found->second;
}

void mbarrier_init(void* p, uint32_t count, const void* site) {
    if (!current) return;
    if ((uintptr_t)p % 8) misused("not aligned", p, site);
    if (!count || count > MOST) misused("wrong count", p, site);
    auto& all = of(here()).barriers;
    if (all.count((uintptr_t)p)) misused("initialised twice", p, site);
    touch((uintptr_t)p, 8, 1, false, site);
    Busy busy;
    memset(p, 0, 8);
    const Cell* c = is_checked() ? cell_at(current, (uintptr_t)p) : nullptr;
    all[(uintptr_t)p] = {count, count, 0, 0, true, current->index, 0, 0, std::vector<uint32_t>(run->n_threads), c ? c->mark[Cell::WRITER] : 0};
}

void mbarrier_announce() {
    if (!current || !here().cluster) return;
    for (auto& b : of(here()).barriers) {
        if (b.second.by == current->index) b.second.announced = member(*current).waits + 1;
    }
}

void mbarrier_inval(void* p, const void* site) {
    if (!current) return;
    barrier_at(p, site);
    touch((uintptr_t)p, 8, 1, false, site);
    Busy busy;
    of(here()).barriers.erase((uintptr_t)p);
}

static void perhaps_over(Block& block, uintptr_t p, Barrier& b) {
    if (b.missing || b.bytes) return;
    b.missing = b.expected;
    ++b.ended;
    b.seen = false;
    of(block).polls = 0, run->slices = 0;
    no_longer_in_flight(block, (const void*)p, false);
    if (run->sanitizing && block.watched && !can_follow()) end_interval(block), start_interval(block);
    wake_all_at(block, (const void*)p);
}

static void to_come(Barrier& b, int64_t bytes, const void* p, const void* site) {
    b.bytes += bytes;
    if (b.bytes > MOST || b.bytes < -(int64_t)MOST) misused("too many bytes", p, site);
}

uint64_t mbarrier_arrive(void* p, uint32_t count, uint32_t bytes, bool drop, bool of_block, const void* site) {
    if (!current) return 0;
    Barrier& b = barrier_at(p, site);
    uint64_t state = (uint64_t)b.missing << 32 | b.ended;
    note(here(), current->index, LAPTOP_ARRIVES, p, b.ended, site, nullptr, bytes);
    const char* wrong = is_checked() && !b.seen && !peer_at(p) ? "phase not seen" : !count || count > b.missing - b.coming ? "one arrival too many" : nullptr;
    if (wrong && !(bytes && is_checked())) misused(wrong, p, site);
    if (wrong) return of(here()).threads[current->index].owed = misuse(wrong, p, site), state;
    if (is_checked()) {
        fence(false);
        release_at((uintptr_t)p, of_block);
    }
    to_come(b, bytes, p, site);
    if (!peer_at(p)) b.arrived[current->index] = b.ended + 1;
    b.missing -= count;
    b.expected -= drop ? count : 0;
    perhaps_over(owner_of(p), (uintptr_t)p, b);
    return state;
}

bool mbarrier_is_last(void* p, uint32_t count, const void* site) {
    if (!current || barrier_at(p, site).missing != count) return false;
    if (is_checked()) acquire_at((uintptr_t)p);
    return true;
}

void mbarrier_expect(void* p, int64_t bytes, const void* site) {
    if (!current) return;
    Barrier& b = barrier_at(p, site);
    to_come(b, bytes, p, site);
    if (bytes < 0) perhaps_over(owner_of(p), (uintptr_t)p, b);
}

bool mbarrier_wait(void* p, uint64_t state, bool by_parity, bool blocks, bool of_block, const void* site) {
    if (!current) return true;
    if (peer_at(p)) trap("a wait at an mbarrier of another block, which may only arrive there,", site);
    Barrier* b = &barrier_at(p, site);
    Issuer& me = of(here()).threads[current->index];
    uint32_t phase = by_parity ? b->ended - ((b->ended & 1) != (state & 1)) : (uint32_t)state;
    if (!by_parity && b->ended - phase > 1) misused("stale state", p, site);
    note(here(), current->index, LAPTOP_WAIT_BEGINS, p, phase, site);
    while (b->ended == phase) {
        me.polls = !blocks;
        await_phase(p, site);
        bool polled = std::exchange(me.polls, false);
        b = &barrier_at(p, site);
        if (polled && b->ended == phase) return false;
    }
    note(here(), current->index, LAPTOP_WAIT_ENDS, p, phase, site);
    b->seen = true;
    if (is_checked()) acquire_at((uintptr_t)p, of_block);
    return true;
}

void await_the_others(const void* site) {
    Asynchronous& a = of(here());
    Issuer& me = a.threads[current->index];
    me.polls = true;
    await_phase(&me, site);
    me.polls = false;
    a.polls = 0;
}

void proxy_fence(bool global, bool shared) {
    if (!current || !is_checked()) return;
    Asynchronous& a = of(here());
    for (int is_shared = !global; is_shared <= shared; ++is_shared) {
        a.threads[current->index].fenced[is_shared] = mark_of(current);
        a.fenced_interval[is_shared] = std::max(a.fenced_interval[is_shared], here().interval);
    }
    if (current->clock < 1u << 21) ++current->clock;
    unsettle();
}

// Whether a fence lies between what a thread wrote and what is issued now: the writer's own, anyone's after a barrier of
// the block, or one of the issuer that knows of it.
static bool is_fenced(uint64_t mark, Block& by, bool is_shared) {
    const Asynchronous& a = of(by);
    uint64_t mine = of(here()).threads[current->index].fenced[is_shared];
    if (a.threads[thread_of(mark)].fenced[is_shared] >= mark || interval_of(mark) < a.fenced_interval[is_shared]) return true;
    bool one_warp = thread_of(mark) / run->warp_size == current->index / run->warp_size;
    return interval_of(mine) == interval_of(mark) && (one_warp || is_ordered_before(mark, current));
}

// The block of the cluster in which a mark was made.
static Block* block_of(uint64_t mark) {
    uint32_t linear = run->intervals[interval_of(mark)].block;
    if (linear == here().linear || !run->clustered) return linear == here().linear ? &here() : nullptr;
    for (Block* b : here().cluster->blocks) {
        if (b->linear == linear) return b;
    }
    return nullptr;
}

static Found found_in_cluster(uintptr_t at, int action, const void* site) {
    Block* peer = peer_at((const void*)at);
    return peer ? find_in_peer(*peer, at, 4, action, site) : found_quickly(current, at, 4);
}

// What a product reads must be known to who issues it, too; of a copy's source `check_range` asks that. What threads have read
// and a copy writes over with no fence in between is a note: PTX asks for one there, too, and many pipelines do without.
void must_be_fenced(uintptr_t address, size_t bytes, int action, bool must_be_known, const void* site) {
    for (uintptr_t at = address; at < address + bytes; at += 4) {
        Found f = found_in_cluster(at, action, site);
        const Cell* c = cell_of(f, at);
        for (int who : {Cell::WRITER, Cell::READER}) {
            uint64_t mark = c ? c->mark[who] : 0;
            bool reads = who == Cell::READER;
            Block* by = mark && (!reads || action == 1) ? block_of(mark) : nullptr;
            if (!by) continue;
            bool race = by != &here() ? !learnt(current, mark, by->linear) : interval_of(mark) == here().interval &&
                        thread_of(mark) != current->index && !is_ordered_before(mark, current);
            if (race ? reads || !must_be_known : c->pc[who] & BY_COPY || is_fenced(mark, *by, f.region->space == LAPTOP_IN_SHARED)) continue;
            const char* reason = race ? "" : reads ? "no proxy fence after a read" : must_be_known ? "no proxy fence for a product" : "no proxy fence";
            laptop_error e = make_error("race", reason, site, action);
            locate(e, here(), at, 4);
            add_other(e, party(&by->threads[thread_of(mark)], c->pc[who] & PLACE, !reads));
            if (!reads) fail(e);
            remark(e, reason);
        }
    }
}

const Written* written_at(uintptr_t address) {
    for (const Written& w : of(here()).tiles) {
        if (address - w.low >= w.bytes) continue;
        const Cell* c = cell_at(current, address);
        return c && c->pc[Cell::WRITER] & BY_COPY ? &w : nullptr;
    }
    return nullptr;
}

static void done_by_copy(uintptr_t address, size_t bytes, int action, const void* site) {
    for (uintptr_t at = address; at < address + bytes; at += 4) {
        Cell* c = cell_of(found_in_cluster(at, action, site), at);
        if (c) c->pc[action ? Cell::WRITER : Cell::READER] |= BY_COPY;
    }
}

void no_longer_in_flight(Block& b, const void* name, bool source_only) {
    for (auto* all : {&b.in_flight, &b.in_flight_elsewhere}) {
        auto gone = [&](const InFlight& f) { return f.barrier == name && (f.source || !source_only); };
        all->erase(std::remove_if(all->begin(), all->end(), gone), all->end());
    }
}

// Those by cp.async that its thread had issued: they may be read, and no wait of the thread asks for them.
static void copies_done(Block& b, const Copy& arrival) {
    uint64_t until = (uint64_t)arrival.interval << 32 | (uint64_t)arrival.thread << 22 | arrival.clock;
    auto done = [&](const InFlight& f) { return !f.barrier && f.thread == arrival.thread && f.mark <= until; };
    b.in_flight.erase(std::remove_if(b.in_flight.begin(), b.in_flight.end(), done), b.in_flight.end());
}

static void land(Block& b, Copy& c) {
    c.hold();
    size_t at = 0;
    for (const Stretch& s : c.stretches) {
        if (c.reduction) reduce(c.reduction, (char*)s.to, &c.held[at], s.bytes);
        else memcpy((void*)s.to, &c.held[at], s.bytes);
        at += s.bytes;
    }
    no_longer_in_flight(b, c.name, false);
    if (c.arrives) copies_done(b, c);
    if (c.issuer != &b) no_longer_in_flight(*c.issuer, c.name, false);
    auto found = of(b).barriers.find(c.barrier);
    uint32_t phase = found == of(b).barriers.end() ? c.group : found->second.ended;
    note(b, c.thread, LAPTOP_COPY_LANDED, (void*)c.barrier, phase, c.site, c.name, c.bytes);
    if (found == of(b).barriers.end()) return;
    if (run->sanitizing && b.watched) release_for(b, c.barrier, (uint64_t)c.interval << 10 | c.thread, c.clock + 1);
    found->second.bytes -= c.bytes;
    found->second.missing -= c.arrives, found->second.coming -= c.arrives;
    perhaps_over(b, c.barrier, found->second);
}

bool is_late() {
    int order = run->launch->order;
    return (is_checked() || has_timeline()) && (order == LAPTOP_FORWARD || (order == LAPTOP_SEEDED && drawn(2)));
}

// cp.async.mbarrier.arrive: an arrival that lands as a copy does. It releases the thread's other stores too, which PTX does not promise.
void mbarrier_arrive_after_copies(void* p, bool counted, const void* site) {
    if (!current) return;
    if (peer_at(p)) trap("cp.async.mbarrier.arrive at an mbarrier of another block", site);
    Barrier& b = barrier_at(p, site);
    if (is_checked() && !b.seen) misused("phase not seen", p, site);
    if (counted && b.missing == b.coming) misused("one arrival too many", p, site);
    b.missing += !counted, ++b.coming, b.arrived[current->index] = b.ended + 1;
    Busy busy;
    Copy c = {};
    c.thread = current->index, c.interval = here().interval, c.clock = current->clock, c.issuer = &here();
    c.barrier = (uintptr_t)p, c.name = c.site = site, c.arrives = true;      // of all lanes alike
    note(here(), c.thread, LAPTOP_COPY_ISSUED, p, b.ended, site, c.name, 0);
    if (is_checked()) {
        any_fence = true;
        if (current->clock < 1u << 21) ++current->clock;
        unsettle();
    }
    if (!is_late()) return land(here(), c);
    of(here()).copies.push_back(std::move(c));
}

struct Side { uintptr_t address; uint32_t bytes, rows; uint64_t step; };     // of a copy: rows of memory

static void check_side(const Side& s, int action, bool may_need_fence, const void* site) {
    update_how = 0;
    for (uint32_t i = 0; i < s.rows; ++i) {
        uintptr_t row = s.address + i * s.step;
        if (may_need_fence) must_be_fenced(row, s.bytes, action, false, site);
        check_range(row, s.bytes, action, site);
        if (action < 2 && may_need_fence) done_by_copy(row, s.bytes, action, site);
    }
}

static void put_in_flight(Block& b, const Copy& c, const Side& s, bool source, const void* site) {
    auto& all = b.shared_initialised && in_cluster((const void*)s.address) ? b.in_flight : b.in_flight_elsewhere;
    const char* reason = source ? "from bulk copy" : c.of_thread ? "to async store" : "to bulk copy";
    all.push_back({s.address, s.bytes, c.thread, 0, code_offset(site), c.name, reason, source, s.rows, s.step, c.issuer,
                   bool(c.reduction)});
}

// A thread that announced a copy before anybody has seen the end of the one before: does it write over what that brought?
static void check_refill(const Side& s, const laptop_error& owed, const void* site) {
    const Cell* c = cell_at(current, s.address);
    uint64_t mark = c ? c->mark[Cell::WRITER] : 0;
    if (!mark || !(c->pc[Cell::WRITER] & BY_COPY) || run->intervals[interval_of(mark)].block != here().linear) fail(owed);
    laptop_error e = make_error("race", "refilled", site, 1);
    locate(e, here(), s.address, 0);
    add_other(e, party(&here().threads[thread_of(mark)], c->pc[Cell::WRITER] & ~BY_COPY, 1));
    fail(e);
}

static void count_sides(const std::vector<Side>& sides, int operation, const void* site) {
    if (!run->profiling) return;
    if (sides.empty()) count_copied(operation, 0, 0, true, site);        // beyond the tensor
    for (const Side& s : sides)
        for (uint32_t i = 0; i < s.rows; ++i)
            count_copied(operation, s.address + i * s.step, s.bytes, &s == &sides[0] && !i, site);
}

// The blocks that a copy goes to: those of the mask, or the one whose address it is given.
static std::vector<Block*> targets_of(const void* to, uint32_t mask, const void* site) {
    if (!mask) return {&owner_of(to)};
    if (mask >> run->cluster_size) trap("a multicast copy to ranks that its cluster does not have,", site);
    std::vector<Block*> found;
    for (uint32_t rank = 0; rank < run->cluster_size; ++rank) {
        if (mask >> rank & 1) found.push_back(run->clustered ? here().cluster->blocks[rank] : &here());
    }
    return found;
}

static void begin_in(Block& target, Copy c, Side in_shared, int64_t further, const void* site) {
    bool loads = c.barrier;
    in_shared.address += further;
    for (Stretch& s : c.stretches) (loads ? s.to : s.from) += further;
    if (loads) c.barrier += further;
    bool late = is_late(), checked = is_checked();
    if (loads && checked) {
        auto& tiles = of(target).tiles;
        auto over = [&](const Written& w) { return w.low < in_shared.address + in_shared.bytes && in_shared.address < w.low + w.bytes; };
        tiles.erase(std::remove_if(tiles.begin(), tiles.end(), over), tiles.end());
        if (c.atom) tiles.push_back({in_shared.address, in_shared.bytes, c.swizzle, c.atom});
    }
    uint32_t phase = loads ? of(target).barriers[c.barrier].ended : c.group;
    note(here(), c.thread, LAPTOP_COPY_ISSUED, (void*)c.barrier, phase, site, c.name, c.bytes);
    if (checked) put_in_flight(target, c, in_shared, !loads, site);
    if (!late && (loads || !checked)) return land(target, c);
    if (!late) c.hold();
    for (const Stretch& s : c.stretches) memset((void*)s.to, run->poison, checked && !c.reduction ? s.bytes : 0);
    of(target).copies.push_back(std::move(c));
}

// Into shared memory its barrier counts the bytes, in each block that it goes to; out of it, it is of its thread's group.
static void begin_copy(Copy c, const Side& in_shared, const std::vector<Side>& elsewhere, uint32_t mask, const void* site) {
    Thread* t = current;
    bool loads = c.barrier;
    std::vector<Block*> targets = targets_of((void*)in_shared.address, mask, site);
    Block& given = owner_of((void*)in_shared.address);
    auto further = [&](const Block* b) { return (int64_t)(b->shared - given.shared); };
    c.thread = t->index, c.group = of(here()).threads[t->index].group, c.interval = here().interval, c.issuer = &here();
    bool pushes = loads && (c.of_thread || (elsewhere.size() && is_shared((void*)elsewhere[0].address)));
    int writes = c.reduction ? 2 : 1;
    count_sides(pushes ? std::vector<Side>{in_shared} : elsewhere, loads && !pushes ? LAPTOP_COPY_IN : LAPTOP_COPY_OUT, site);
    for (Block* b : targets) {
        if (loads) barrier_at((void*)(c.barrier + further(b)), site, true);
        if (loads && is_checked()) check_in_flight(b->in_flight, in_shared.address + further(b), in_shared.bytes, writes, site);
    }
    const laptop_error& owed = of(here()).threads[t->index].owed;
    if (is_checked() && owed.kind) check_refill(in_shared, owed, site);
    for (const Side& s : elsewhere) {
        if (is_checked()) check_side(s, loads ? 0 : writes, is_shared((void*)s.address), site);
    }
    for (Block* b : targets) {
        if (is_checked() && loads) check_side({(uintptr_t)(in_shared.address + further(b)), in_shared.bytes, 1, 0}, writes, !c.of_thread, site);
    }
    for (const Stretch& s : c.stretches) {       // what lies beyond the tensor is not stored
        if (is_checked() && !loads) check_side({s.from, s.bytes, 1, 0}, 0, true, site);
    }
    c.clock = t->clock, c.site = site;
    if (is_checked()) {
        if (t->clock < 1u << 21) ++t->clock;
        unsettle();
    }
    for (Block* b : targets) {
        c.name = new_name();
        bool last = is_checked() && b == targets.back();
        for (size_t i = 0; last && i < elsewhere.size(); ++i) put_in_flight(here(), c, elsewhere[i], loads, site);
        begin_in(*b, c, in_shared, further(b), site);
    }
}

static void check_target(const void* to, const void* barrier, const void* site) {
    if (!barrier) return;
    if (!in_cluster(to)) trap("a bulk copy to global memory, which no mbarrier counts,", site);
    if (&owner_of(to) != &owner_of(barrier)) trap("a bulk copy to another block than that of its mbarrier,", site);
}

#define OF_BULK " bytes (PTX, cp.async.bulk)."
void bulk_copy(void* to, const void* from, uint32_t bytes, void* barrier, uint32_t mask, const void* site, Reduction r) {
    if (!current) return;
    if (r) must_exist(r, barrier ? IN_CLUSTER : IN_GLOBAL, site);
    if ((uintptr_t)to % 16) breaks_rule("misaligned", "gives a bulk copy a dstMem that is no multiple of 16" OF_BULK, site);
    if ((uintptr_t)from % 16) breaks_rule("misaligned", "gives a bulk copy a srcMem that is no multiple of 16" OF_BULK, site);
    if (bytes % 16) breaks_rule("misaligned", "gives a bulk copy a size that is no multiple of 16" OF_BULK, site);
    if (is_shared(to) && is_shared(from))
        breaks_rule("assertion", "gives a bulk copy from shared memory a dstMem in that of the same block, not of another one (PTX, cp.async.bulk).", site);
    check_target(to, barrier, site);
    if (!barrier && !is_shared(from)) trap("a bulk copy of a group that is not from shared memory,", site);
    Busy busy;
    Copy c = {};
    c.bytes = bytes, c.barrier = (uintptr_t)barrier, c.reduction = r;
    c.stretches.push_back({(uintptr_t)to, (uintptr_t)from, bytes});
    Side target = {(uintptr_t)to, bytes, 1, 0}, source = {(uintptr_t)from, bytes, 1, 0};
    begin_copy(std::move(c), barrier ? target : source, {barrier ? source : target}, mask, site);
}

void store_async(void* to, const void* value, uint32_t bytes, void* barrier, const void* site, Reduction r) {
    if (!current) return;
    if (r) must_exist(r, IN_CLUSTER, site);
    if ((uintptr_t)to % bytes) breaks_rule("misaligned", "gives st.async an address that is no multiple of its size (PTX, st.async).", site);
    if (!run->clustered || !in_cluster(to)) trap("st.async or red.async to what is not in the shared memory of a cluster,", site);
    if (r && is_shared(to)) trap("red.async to the shared memory of the same block,", site);
    check_target(to, barrier, site);
    Busy busy;
    Copy c = {};
    c.bytes = bytes, c.barrier = (uintptr_t)barrier, c.reduction = r, c.of_thread = c.read = true;
    c.held.assign((const char*)value, (const char*)value + bytes);
    c.stretches.push_back({(uintptr_t)to, 0, bytes});
    begin_copy(std::move(c), {(uintptr_t)to, bytes, 1, 0}, {}, 0, site);
}

#define OF_TENSOR " (PTX, cp.async.bulk.tensor)."
static const TensorMap& map_at(const void* p, int rank, bool by_pixels, bool loads, const void* site) {
    const TensorMap& m = *(const TensorMap*)p;
    const Stack& own = current->stack;
    bool is_local = p < current->frame && (uintptr_t)p - (uintptr_t)own.low < own.bytes;
    const char* wrong = !p ? "gives a tensorMap that is null" OF_TENSOR
        : is_shared(p) || is_local ? "gives a tensorMap in shared or local memory; global, constant or parameter memory is legal" OF_TENSOR
        : (uintptr_t)p % 64 ? "gives a tensorMap whose address is no multiple of 64" OF_TENSOR
        : m.made != TensorMap::MADE ? "gives a tensorMap that cuTensorMapEncodeTiled or ...Im2col has not made" OF_TENSOR
        : m.rank != rank ? "gives a tensorMap with another number of dimensions than the instruction" OF_TENSOR
        : m.im2col != by_pixels ? "gives a tensorMap of the other mode than the instruction's, .tile or .im2col" OF_TENSOR
        : m.atom % 2 && !loads ? "stores by a tensorMap whose swizzle flips 8 bytes; only loads may" OF_TENSOR : nullptr;
    if (wrong) breaks_rule("bad descriptor", wrong, site);
    if (m.interleave == 16 && m.swizzle) not_supported("a tensor copy with slices of 16 bytes and a swizzle", site);
    return m;
}

using RowAt = std::array<int64_t, 5>;

// The rows of a tile as they follow one another in shared memory, each by its first coordinates. Interleaved, a row is a slice.
static std::vector<RowAt> rows_of_box(const TensorMap& m, const int* at) {
    std::vector<RowAt> rows;
    uint32_t n[5], i[5] = {}, count = 1, first = !m.interleave;
    for (uint32_t d = first; d < m.rank; ++d) count *= n[d] = (m.box[d] + m.steps[d] - 1) / m.steps[d];
    while (rows.size() < count) {
        RowAt row = {at[0]};
        for (uint32_t d = first; d < m.rank; ++d) row[d] = at[d] + (int64_t)i[d] * m.steps[d];
        rows.push_back(row);
        for (uint32_t d = first; d < m.rank && ++i[d] == n[d]; ++d) i[d] = 0;
    }
    return rows;
}

// By im2col: so many pixels, from one on, of the box of each image, each moved by the offsets.
static std::vector<RowAt> rows_of_pixels(const TensorMap& m, const int* at, const int* offsets, bool loads, const void* site) {
    static constexpr int FURTHEST[] = {65535, 255, 31};
    int first = !m.interleave, n = m.rank - 2;
    auto last = [&](int d) { return (int64_t)m.sizes[first + d] - 1 + m.upper[d]; };
    std::vector<RowAt> rows;
    RowAt p = {};
    std::copy(at, at + m.rank, p.begin());
    for (int d = 0; d < n; ++d) {
        const char* wrong = p[first + d] < m.lower[d] || p[first + d] > last(d) ? "gives im2col tensorCoords outside of the bounding box" OF_TENSOR
            : offsets[d] < 0 || offsets[d] > FURTHEST[n - 1] ? "gives im2colOffsets beyond 65,535 of a tensor of 3 dimensions, 255 of 4, 31 of 5" OF_TENSOR
            : !loads && (m.lower[d] < 0 || m.upper[d] > 0) ? "stores by an im2col tensorMap whose bounding box leaves the tensor" OF_TENSOR : nullptr;
        if (wrong) breaks_rule("bad descriptor", wrong, site);
    }
    while (rows.size() < m.box[1]) {
        rows.push_back(p);
        int d = 0;
        for (; d < n; ++d) rows.back()[first + d] += offsets[d];
        for (d = 0; d < n && (p[first + d] += m.steps[first + d]) > last(d); ++d) p[first + d] = m.lower[d];
        if (d == n) p[m.rank - 1] += m.steps[m.rank - 1];
    }
    return rows;
}

// What a row brings or takes, in pieces that are parted at the tensor's edges; and its side in global memory.
static void add_row(Copy& c, std::vector<Side>& rows, const TensorMap& m, const RowAt& p, char* tile, uint32_t row) {
    char* line = m.data;
    bool inside = true;
    for (int d = !m.interleave; d < m.rank; ++d) {
        inside &= p[d] >= 0 && (uint64_t)p[d] < m.sizes[d];
        line += p[d] * (int64_t)m.strides[d];
    }
    int64_t begin = m.interleave ? 0 : p[0] * m.itemsize, size = m.interleave ? row : m.sizes[0] * m.itemsize;
    int64_t low = std::max<int64_t>(begin, 0), high = std::min(begin + row, size);
    bool any = inside && low < high;
    if (any) rows.push_back({(uintptr_t)(line + low), uint32_t(high - low), 1, 0});
    uint32_t from = any ? uint32_t(low - begin) : row, to = any ? uint32_t(high - begin) : row, piece = m.atom % 2 ? 8 : 16;
    for (uint32_t byte = 0, end; byte < row; byte = end) {
        bool there = byte >= from && byte < to;
        end = std::min((byte / piece + 1) * piece, byte < from ? from : byte < to ? to : row);
        uint32_t in_shared = shared_address(tile) + byte;
        uintptr_t held = (uintptr_t)tile + byte + (swizzled(in_shared, m.swizzle, m.atom) - (int64_t)in_shared);
        uintptr_t place = there ? (uintptr_t)line + begin + byte : 0;
        if (c.barrier) c.stretches.push_back({held, place, end - byte});
        else if (there) c.stretches.push_back({place, held, end - byte});
    }
}

static void join_rows(std::vector<Side>& rows) {      // those at equal distances are one side
    for (size_t k = rows.size(); k-- > 1;) {
        Side &a = rows[k - 1], &b = rows[k];
        uint64_t step = b.address - a.address;
        if (a.bytes != b.bytes || (b.rows > 1 && b.step != step)) continue;
        a.rows = b.rows + 1, a.step = step;
        rows.erase(rows.begin() + k);
    }
}

void tensor_copy(void* shared, const void* map, const int* at, int rank, void* barrier, uint32_t mask, const void* site, uint8_t how,
                 const int* offsets) {
    if (!current) return;
    const TensorMap& m = map_at(map, rank, offsets, barrier, site);
    Reduction r = {how, m.type};
    if (r) must_exist(r, IN_TENSOR, site);
    if (!(barrier ? in_cluster(shared) : is_shared(shared))) trap("a tensor copy whose tile is not in shared memory,", site);
    if (shared_address(shared) % 128)
        breaks_rule("misaligned", "gives a tensor copy a tile in shared memory that is no multiple of 128 bytes" OF_TENSOR, site);
    if (!m.interleave && (int64_t)at[0] * m.itemsize % 16)       // no manual states it; an H100 stops with an illegal instruction
        breaks_rule("misaligned", "gives a tensor copy an innermost coordinate that is no multiple of 16 bytes: no card does that.", site);
    check_target(shared, barrier, site);
    if (!barrier && std::any_of(at, at + rank, [](int c) { return c < 0; })) trap("a tensor copy to global memory at a coordinate below 0", site);
    Busy busy;
    Copy c = {};
    c.reduction = r, c.barrier = (uintptr_t)barrier, c.fill = m.fill && barrier ? (char)0xff : 0, c.swizzle = m.swizzle, c.atom = m.atom;
    std::vector<Side> rows;
    std::vector<RowAt> places = offsets ? rows_of_pixels(m, at, offsets, barrier, site) : rows_of_box(m, at);
    uint32_t row = m.interleave ? m.interleave : m.box[0] * m.itemsize, apart = std::max<uint32_t>(row, m.swizzle);
    for (size_t k = 0; k < places.size(); ++k) add_row(c, rows, m, places[k], (char*)shared + k * apart, row);
    c.bytes = row * places.size();
    join_rows(rows);
    begin_copy(std::move(c), {(uintptr_t)shared, uint32_t(apart * places.size()), 1, 0}, rows, mask, site);
}

void bulk_commit() { if (current) ++of(here()).threads[current->index].group; }

template <class Wanted> static void land_if(Block& b, Wanted wanted) {
    Asynchronous& a = of(b);
    for (size_t i = 0; i < a.copies.size();) {
        if (!wanted(a.copies[i])) {
            ++i;
            continue;
        }
        Copy c = std::move(a.copies[i]);
        a.copies.erase(a.copies.begin() + i);
        land(b, c);
    }
}

// All but the last groups of this thread have been read, and written too unless `read` is all that is asked.
void bulk_wait(uint32_t left, bool read) {
    if (!current) return;
    uint32_t group = of(here()).threads[current->index].group;
    Busy busy;
    land_if(here(), [&](Copy& c) {
        bool mine = !c.barrier && c.thread == current->index && c.group + left < group;
        if (mine && read) c.hold(), no_longer_in_flight(here(), c.name, true);
        return mine && !read;
    });
    note(here(), current->index, LAPTOP_COPIES_WAITED, nullptr, group, LAPTOP_SITE);
}

// When nobody can go on, these land; at the end of a block all do.
static bool is_awaited(const Block& b, const Copy& c) {
    return std::any_of(b.threads.begin(), b.threads.end(), [&](const Thread& t) {
        return t.state == State::PHASE && t.awaited == (const void*)c.barrier;
    });
}

static bool deliver(Block& b, bool at_its_end) {
    if (!b.asynchronous) return false;
    Asynchronous& a = *b.asynchronous;
    for (const Issuer& t : a.threads)
        if (t.owed.kind) fail(t.owed);
    size_t before = a.copies.size();
    if (at_its_end) {
        for (auto& [p, barrier] : a.barriers) must_be_whole(b, p, barrier);
        registers_of(b, true);
        land_if(b, [](const Copy&) { return true; });
        return false;
    }
    land_if(b, [&](const Copy& c) { return is_awaited(b, c); });
    bool any = a.copies.size() < before;
    if (any) a.polls = 0;
    for (Thread& t : b.threads) {        // those that only ask may ask again
        if (a.polls >= MOST_POLLS || t.state != State::PHASE || !a.threads[t.index].polls) continue;
        wake(&t);
        any = true;
    }
    ++a.polls;
    return any;
}

// What threads wait for, for a deadlock's text: memory, byte, phase, arrivals missing and expected, bytes, 1 + whose, who arrived.
// Rather an early phase, and one that lacks nothing but bytes, or has some arrivals: the others may be its consequence.
static std::string awaited(const std::vector<Block*>& blocks) {
    const Barrier* told = nullptr;
    uintptr_t at = 0;
    auto key = [](const Barrier& b) { return std::make_pair(b.ended, (b.missing > 0) + (b.missing == b.expected)); };
    for (const Block* b : blocks) {
        for (const Thread& t : b->threads) {
            if (t.state != State::PHASE || !b->asynchronous) continue;
            auto found = b->asynchronous->barriers.find((uintptr_t)t.awaited);
            if (found == b->asynchronous->barriers.end() || (told && key(found->second) >= key(*told))) continue;
            told = &found->second, at = found->first;
        }
    }
    if (!told) return registers_of(*blocks[0], false);
    laptop_error e = {};
    e.memory = -1;
    if (run->traced) locate(e, *blocks[0], at, 8);
    std::string text = "mbarrier";
    for (int64_t n : {(int64_t)e.memory, e.offset, (int64_t)told->ended, (int64_t)told->missing, (int64_t)told->expected,
                      told->bytes, (int64_t)e.owner})
        text += " " + std::to_string(n);
    text += " ";
    for (uint32_t phase : told->arrived) text += std::to_string(phase) + ",";
    return text;
}

static const bool delivers = (seams.deliver = deliver, seams.awaited = awaited, true);
}  // namespace laptop
