// Clusters: blocks that run in turns, reach each other's shared memory, and have a barrier of their own.
//
// Their shared memory lies side by side. What the sanitizer knows of it is of each block: that of the block which runs is
// in run->shared, so that its own accesses cost nothing more, and the others' with their blocks.
#include <string.h>

#include <algorithm>

#include "runtime_known.h"
#include "runtime_settled.h"

namespace laptop {

void ask_for_cluster(const uint32_t (&size)[3]) {
    uint64_t all = (uint64_t)size[0] * size[1] * size[2];
    uint32_t most = run->launch->cluster_limit ? run->launch->cluster_limit : PORTABLE_CLUSTER;
    if (!all || all > most) fail(bad_launch("cluster too large", (int64_t)all));
    for (int i = 0; i < 3; ++i) {
        run->cluster[i] = size[i];
        if (run->launch->grid[i] % size[i]) fail(bad_launch("no whole clusters", i));
    }
    run->cluster_size = (uint32_t)all;
    run->clustered = all > 1;
    if (run->clustered) run->may_loop = false, any_fence = run->sanitizing;
}

Cluster::~Cluster() {
    size_t bytes = SHARED_SPAN * blocks.size();
    if (shared) munmap(shared, bytes);
    if (initialised) munmap(initialised, bytes);
}

// The coordinates of a block of a cluster, and which one it is of all.
static uint64_t linear_of(uint64_t number, uint32_t rank) {
    uint64_t linear = 0, rows = 1;
    for (int i = 0; i < 3; ++i) {
        uint32_t size = run->cluster[i], grid = run->launch->grid[i], count = grid / size;
        linear += rows * (number % count * size + rank % size);
        number /= count, rank /= size, rows *= grid;
    }
    return linear;
}

static uintptr_t phase_key(const Cluster& c, uint64_t phase) { return 1 + 2 * c.number + phase % 2; }      // no address

// Its blocks take turns in the order of the launch.
void start_cluster(uint64_t number, std::vector<Block*>& live) {
    run->clusters.emplace_back(new Cluster);
    Cluster& c = *run->clusters.back();
    c.number = number;
    c.members.resize(run->cluster_size * run->n_threads);
    c.shared = (char*)reserve(SHARED_SPAN * run->cluster_size, true);
    if (run->traced) c.initialised = (uint8_t*)reserve(SHARED_SPAN * run->cluster_size, true);
    for (uint32_t rank = 0; rank < run->cluster_size; ++rank) {
        run->blocks.emplace_back(new Block);
        Block& b = *run->blocks.back();
        c.blocks.push_back(&b);
        b.cluster = &c, b.rank = rank;
        b.shared = c.shared + rank * SHARED_SPAN;
        if (run->traced) b.shared_initialised = c.initialised + rank * SHARED_SPAN;
    }
    for (Block* b : c.blocks) start_block(*b, linear_of(number, b->rank), linear_of(number, 0));
    std::vector<Block*> turns(c.blocks);
    if (run->launch->order == LAPTOP_REVERSE) std::reverse(turns.begin(), turns.end());
    if (run->launch->order == LAPTOP_SEEDED) std::rotate(turns.begin(), turns.begin() + drawn(run->cluster_size), turns.end());
    live.insert(live.end(), turns.begin(), turns.end());
}

void cluster_dims(unsigned x, unsigned y, unsigned z) {
    if (!current || run->cluster[0]) return;
    ask_for_cluster({x, y, z});
    if (run->clustered) start_again();           // with them
}

// which: 0 the cluster's coordinates, 1 how many clusters there are, 2 the block's coordinates in its cluster, 3 its size
unsigned in_cluster(int which, int axis) {
    const Block* b = current ? current->warp->block : nullptr;
    uint32_t size = b && run->cluster[axis] ? run->cluster[axis] : 1;
    if (which & 1) return which == 3 ? size : b ? run->launch->grid[axis] / size : 1;
    return !b ? 0 : which == 0 ? b->index[axis] / size : b->index[axis] % size;
}
unsigned rank_in_cluster() { return current ? current->warp->block->rank : 0; }
unsigned cluster_size() { return current ? run->cluster_size : 1; }

Member& member(const Thread& t) {
    const Block& b = *t.warp->block;
    return b.cluster->members[b.rank * run->n_threads + t.index];
}

// Of each block, what is known to whoever waits: all before its last barrier, and then each thread up to its arrival.
static void gather(const Cluster& c) {
    for (const Block* b : c.blocks) {
        Arrivals all = {0, c.phases, std::vector<uint32_t>(run->n_threads)};
        const Member* m = &c.members[b->rank * run->n_threads];
        for (uint32_t t = 0; t < run->n_threads; ++t) all.interval = std::max(all.interval, m[t].interval);
        for (uint32_t t = 0; t < run->n_threads; ++t) all.clocks[t] = m[t].interval == all.interval ? m[t].clock : 0;
        if (all.interval) add_arrivals(phase_key(c, c.phases), b->linear, all);
    }
}

static void perhaps_over(Cluster& c) {
    uint32_t alive = 0;
    for (const Block* b : c.blocks) alive += b->alive;
    if (!c.arrived || c.arrived < alive) return;
    if (run->sanitizing) gather(c);
    ++c.phases, c.arrived = 0, run->slices = 0;
    for (Block* b : c.blocks) wake_all_at(*b, &c);
}

void thread_left(const Thread& t) {       // and counts as arrived
    Cluster& c = *t.warp->block->cluster;
    c.arrived -= member(t).arrivals > c.phases;
    perhaps_over(c);
}

[[noreturn]] static void misuses(const char* reason, const void* site) { fail(make_error("misused barrier", reason, site, 3)); }

// Of a block that is no cluster's, the cluster of one.
static Cluster& own_cluster() {
    Block& b = *current->warp->block;
    if (!b.cluster) {
        Busy busy;
        run->clusters.emplace_back(new Cluster);
        b.cluster = run->clusters.back().get();
        b.cluster->blocks = {&b}, b.cluster->number = b.linear;
        b.cluster->members.resize(run->n_threads);
    }
    return *b.cluster;
}

void cluster_arrive(bool relaxed, const void* site) {
    if (!current) return;
    Cluster& c = own_cluster();
    Thread* t = current;
    Member& m = member(*t);
    if (m.arrivals > m.waits) misuses("arrives twice", site);
    if (pending) resolve_pending();
    if (run->sanitizing && t->warp->block->watched) {
        Busy busy;
        uint32_t clock = relaxed ? fenced_at(t) : t->clock + 1, interval = t->warp->block->interval;
        if (clock) m.interval = interval, m.clock = clock, add_what_is_known(phase_key(c, c.phases), t);
        if (t->clock < 1u << 21) ++t->clock;
        any_fence = true;
        unsettle();
    }
    m.arrivals = c.phases + 1;
    ++c.arrived;
    perhaps_over(c);
}

void cluster_wait(const void* site) {
    if (!current) return;
    Cluster& c = own_cluster();
    Member& m = member(*current);
    if (m.waits == m.arrivals) misuses("waits without arrival", site);
    while (c.phases < m.arrivals) await_phase(&c, site);
    m.waits = m.arrivals;
    Block& b = *current->warp->block;
    b.known_to_run = true;
    if (!run->sanitizing || !b.watched) return;
    Busy busy;
    know_phase(phase_key(c, m.waits - 1));
    unsettle();
}

Block* peer_at(const void* p) {
    Block& b = *current->warp->block;
    if (!run->clustered) return nullptr;
    size_t rank = ((uintptr_t)p - (uintptr_t)b.cluster->shared) / SHARED_SPAN;
    return rank < run->cluster_size && rank != b.rank ? b.cluster->blocks[rank] : nullptr;
}

void* in_block_of_cluster(const void* p, unsigned rank, const void* site) {
    if (!current) return (void*)p;
    if (rank >= run->cluster_size) trap("mapa (map_shared_rank) for a rank that its cluster does not have,", site);
    const Block* owner = is_shared(p) ? current->warp->block : peer_at(p);
    if (!owner) trap("mapa (map_shared_rank) for what is not in shared memory,", site);
    return (char*)p + (int64_t)SHARED_SPAN * ((int)rank - (int)owner->rank);
}
unsigned owner_rank(const void* p) {
    const Block* peer = current ? peer_at(p) : nullptr;
    return peer ? peer->rank : rank_in_cluster();
}

static Region region_of(const SharedArray& a) {
    Region r = a.region;
    r.cells = nullptr;
    r.grain = a.align >= 4 ? 4 : a.align == 2 ? 2 : 1;
    return r;
}

void take_over_shared(Block& b) {
    for (size_t i = 0; i < run->shared.size(); ++i)
        run->shared[i].region = i < b.regions.size() ? b.regions[i] : region_of(run->shared[i]);
    b.regions.clear();
}
void put_shared_away(Block& b) {
    for (SharedArray& a : run->shared) {
        b.regions.push_back(a.region);
        a.region = region_of(a);
    }
}

Found find_in_peer(Block& owner, uintptr_t address, size_t size, int action, const void* pc) {
    bool begun = current->warp->block->known_to_run;
    size_t at = address - (uintptr_t)owner.shared;
    const SharedArray* a = at / 128 < run->shared_at.size() ? run->shared_at[at / 128].array : nullptr;
    bool inside = a && at >= a->position && at + size <= a->position + a->bytes;
    if (!owner.alive || !begun || !inside) {
        const char* reason = !inside ? a ? "array" : "beyond shared" : begun ? "left block" : "block not known to run";
        laptop_error e = make_error(inside ? "race" : "out of bounds", reason, pc, action);
        locate(e, *current->warp->block, address, size);
        fail(e);
    }
    while (owner.regions.size() <= a->index) owner.regions.push_back(region_of(run->shared[owner.regions.size()]));
    owner.visited = true;
    return {&owner.regions[a->index], (uintptr_t)owner.shared + a->position};
}

// An access of which no thread of the block knows: it may come when the block has ended.
static void must_be_known(const Block& b, const SharedArray& a, size_t cell, int k) {
    uint64_t mark = a.region.cells[cell].mark[k];
    uint32_t block = run->intervals[interval_of(mark)].block;
    if (!mark || block == b.linear) return;
    for (const Thread& t : b.threads) {
        if (learnt(&t, mark, block)) return;
    }
    laptop_error e = error_of("race", "left block", nullptr, 0);
    e.who = party_of(block, thread_of(mark), a.region.cells[cell].pc[k] & PLACE, 0), e.has_thread = 1;
    e.memory = a.region.memory, e.offset = (int64_t)(cell * a.region.grain), e.size = a.region.grain;
    e.owner = (int32_t)b.linear + 1;
    fail(e);
}

void block_left(const Block& b) {
    if (!b.visited || !run->sanitizing || !b.watched) return;
    for (const SharedArray& a : run->shared) {
        size_t cells = a.region.cells ? a.region.bytes / a.region.grain : 0;
        for (size_t i = 0; i < cells * Cell::MARKS; ++i) must_be_known(b, a, i / Cell::MARKS, i % Cell::MARKS);
    }
}
}  // namespace laptop
