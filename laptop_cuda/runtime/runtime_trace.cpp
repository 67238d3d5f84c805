// From the accesses of single lanes to the requests of warps.
//
// Each lane logs its basic blocks and its accesses while it runs alone. When no lane of the warp can go on, the logs are merged
// as the hardware would have run them, in lockstep: of the blocks that come next, the one in the deepest call, then at the
// lowest address, is run by all lanes that wait for it. What a lane does between two synchronisations does not depend on when
// the others do theirs (or the program has a race), so this is exact without running anything twice. Where all logs tell the
// same path, which is nearly always, the i-th accesses of the lanes are one request.
#include <string.h>

#include <algorithm>

#include "runtime.h"

namespace laptop {

struct Request {
    uint32_t pc, size, lanes;
    int operation;
    bool asynchronous;           // a store of cp.async
    int n;
    uint64_t address[32];        // of the active lanes, packed
    uint8_t lane[32];
    const Access* access[32];
};

static Site& site_for(uint32_t pc, int operation, int32_t memory) {
    auto& table = run->site_table;
    if (table.empty() || run->sites.size() * 2 >= table.size()) {
        size_t size = std::max<size_t>(1024, table.size() * 2);
        table.assign(size, -1);
        for (size_t i = 0; i < run->sites.size(); ++i) {
            const laptop_site& s = run->sites[i].counts;
            size_t h = (s.pc * 2654435761u + s.operation * 97u + s.memory) & (size - 1);
            while (table[h] >= 0) h = (h + 1) & (size - 1);
            table[h] = (int32_t)i;
        }
    }
    size_t mask = table.size() - 1, h = (pc * 2654435761u + operation * 97u + memory) & mask;
    for (; table[h] >= 0; h = (h + 1) & mask) {
        Site& s = run->sites[table[h]];
        if (s.counts.pc == pc && s.counts.operation == operation && s.counts.memory == memory) return s;
    }
    table[h] = (int32_t)run->sites.size();
    Site s = {};
    s.counts.pc = pc, s.counts.operation = operation, s.counts.memory = memory;
    run->sites.push_back(s);
    return run->sites.back();
}

// A warp ran the block that begins here.
static void count_step(uint32_t step, int lanes) {
    uint32_t pc = step & 0xffffff;
    auto& table = run->executed_table;
    if (run->executed.size() * 2 >= table.size()) {
        table.assign(std::max<size_t>(1024, table.size() * 2), -1);
        for (size_t i = 0; i < run->executed.size(); ++i) {
            size_t h = run->executed[i].pc * 2654435761u & (table.size() - 1);
            while (table[h] >= 0) h = (h + 1) & (table.size() - 1);
            table[h] = (int32_t)i;
        }
    }
    size_t mask = table.size() - 1, h = pc * 2654435761u & mask;
    while (table[h] >= 0 && run->executed[table[h]].pc != pc) h = (h + 1) & mask;
    if (table[h] < 0) {
        table[h] = (int32_t)run->executed.size();
        run->executed.push_back({pc, 0, 0});
    }
    laptop_step& found = run->executed[table[h]];
    ++found.warps;
    found.lanes += lanes;
}

void count_barrier(const void* site) { ++site_for(code_offset(site), LAPTOP_BARRIER, -1).counts.requests; }

static bool set_bit(std::vector<uint64_t>& bits, size_t i) {
    if (i / 64 >= bits.size()) bits.resize((run->arena_bytes + (run->image_high - run->image_low)) / run->sector_bytes / 64 + 2);
    uint64_t bit = 1ull << (i % 64), old = bits[i / 64];
    bits[i / 64] = old | bit;
    return !(old & bit);
}

// Sectors of the arena first, then those of the library's own data.
static size_t sector_of(uint64_t address) {
    if (address - run->arena < run->arena_bytes) return (address - run->arena) / run->sector_bytes;
    return (run->arena_bytes + (address - run->image_low)) / run->sector_bytes;
}

static uint64_t count_sectors(const Request& r, Site& site) {
    size_t sectors[96];                          // 32 lanes, two sectors of 16 bytes each where misaligned
    int n = 0;
    bool sorted = true;
    for (int i = 0; i < r.n; ++i) {
        size_t first = sector_of(r.address[i]), last = sector_of(r.address[i] + r.size - 1);
        for (size_t s = first; s <= last; ++s) {
            if (n && sectors[n - 1] == s) continue;
            if (n && sectors[n - 1] > s) sorted = false;
            if (n < 96) sectors[n++] = s;
        }
    }
    if (!sorted) {
        std::sort(sectors, sectors + n);
        n = (int)(std::unique(sectors, sectors + n) - sectors);
    }
    auto& everywhere = run->unique[r.operation];
    for (int i = 0; i < n; ++i) {
        if (set_bit(site.unique, sectors[i])) ++site.counts.unique_sectors;
        if (set_bit(everywhere, sectors[i])) ++run->unique_count[r.operation];
    }
    return n;
}

// L1TEX serves lanes of one address one after the other: it counts a sector as often as most lanes meet at an address in it.
static uint64_t atomic_sectors(const Request& r) {
    uint64_t at[32], total = 0, most = 0, lanes = 0;
    std::sort(at, std::copy(r.address, r.address + r.n, at));
    for (int i = 0; i < r.n; ++i) {
        lanes = i && at[i] == at[i - 1] ? lanes + 1 : 1;
        most = std::max(most, lanes);
        if (i + 1 < r.n && sector_of(at[i + 1]) == sector_of(at[i])) continue;
        total += most;
        most = 0;
    }
    return total;
}

void count_copied(int operation, uintptr_t address, size_t bytes, bool is_first, const void* site) {
    int64_t offset;
    Site& s = site_for(code_offset(site), operation, bytes ? memory_at(*current->warp->block, address, &offset) : -1);
    s.counts.requests += is_first;
    s.counts.bytes += bytes;
    bool passes_l2 = bytes && !is_shared((void*)address) && !peer_at((void*)address);
    for (size_t at = sector_of(address), end = sector_of(address + bytes - 1); passes_l2 && at <= end; ++at) {
        ++s.counts.sectors;
        s.counts.unique_sectors += set_bit(s.unique, at);
        run->unique_count[operation] += set_bit(run->unique[operation], at);
    }
}

void count_product(uint64_t operations, const void* site, uint64_t shared_bytes) {
    if (!current || !run->profiling) return;
    laptop_site& counts = site_for(code_offset(site), LAPTOP_PRODUCT, -1).counts;
    ++counts.requests;
    counts.lanes += operations;
    counts.wavefronts += shared_bytes / (run->banks * run->bank_bytes);       // of whole rows of banks, in every layout
}

// Places of the lanes' bytes in shared memory. Red zones move an array by multiples of 128 bytes, which 32 banks
// of 4 bytes do not notice; on another machine the zones are taken out.
static void places_in_shared(const Request& r, const Block& b, uint64_t* at) {
    bool zones_matter = 128 % (run->banks * run->bank_bytes) != 0;
    for (int i = 0; i < r.n; ++i) {
        int64_t offset;
        int32_t memory = zones_matter ? memory_at(b, r.address[i], &offset) : -1;
        at[i] = memory < 0 ? r.address[i] : run->memories[memory].offset + offset;
    }
}

// Each active lane has the address of the lane whose number differs in this bit, or that lane is inactive.
static bool in_pairs(const Request& r, unsigned bit) {
    uint64_t of[32];
    for (int i = 0; i < r.n; ++i) of[r.lane[i]] = r.address[i];
    for (int i = 0; i < r.n; ++i) {
        unsigned other = r.lane[i] ^ bit;
        if ((r.lanes >> other & 1) && of[other] != r.address[i]) return false;
    }
    return true;
}

constexpr unsigned MOST_BANKS = 64;

static inline __attribute__((always_inline))
bool word_per_bank(const Request& r, const uint64_t* at, uint64_t width, uint64_t banks) {
    uint64_t word_in[MOST_BANKS], taken = 0;
    for (int i = 0; i < r.n; ++i) {
        uint64_t word = at[i] / width, bank = word % banks, bit = 1ull << bank;
        if ((at[i] + r.size - 1) / width != word) return false;
        if (taken & bit && (r.asynchronous || word_in[bank] != word)) return false;
        taken |= bit;
        word_in[bank] = word;
    }
    return true;
}

// Banks of words: 32 of 4 bytes unless the launch says otherwise. Lanes that ask for the same word are served
// together. Accesses of 8 bytes go in two halves of the warp, of 16 bytes in four quarters; a load of which
// lanes share addresses in pairs goes in half as many parts. Each part takes as many passes as its busiest bank.
// A store of cp.async serves lanes of one word one by one; one of 16 bytes, which goes past L1, has no conflicts.
// `Machine.bank_parts` in machine.py is the same rule without cp.async; tests/tools/test_gpu_results.py holds it to a card.
static void count_wavefronts(const Request& r, const Block& b, Site& site) {
    uint64_t at[32], width = run->bank_bytes, banks = run->banks;
    places_in_shared(r, b, at);
    unsigned lanes_a_part = r.size <= 4 ? 32 : r.size <= 8 ? 16 : 8;
    bool wide_load = lanes_a_part < 32 && r.operation == LAPTOP_SHARED_LOAD;
    if (wide_load && (in_pairs(r, 1) || in_pairs(r, 2))) lanes_a_part *= 2;
    bool usual = width == 4 && banks == 32;      // then division is a shift
    if (lanes_a_part == 32 && (usual ? word_per_bank(r, at, 4, 32) : word_per_bank(r, at, width, banks))) {
        ++site.counts.wavefronts;
        return;
    }
    int i = 0;
    while (i < r.n) {
        unsigned part = r.lane[i] / lanes_a_part, most = 1;
        uint8_t count[MOST_BANKS] = {};
        uint64_t words[MOST_BANKS][64];
        for (; i < r.n && r.lane[i] / lanes_a_part == part; ++i) {
            uint64_t last = (at[i] + r.size - 1) / width;
            for (uint64_t word = at[i] / width; word <= last; ++word) {
                unsigned bank = word % banks, k = 0;
                while (k < count[bank] && (r.asynchronous || words[bank][k] != word)) ++k;
                if (k < count[bank]) continue;
                words[bank][k] = word;
                count[bank] = (uint8_t)(k + 1);
                most = std::max(most, k + 1);
            }
        }
        if (r.asynchronous && r.size == 16) most = 1;
        site.counts.wavefronts += most;
        site.counts.excess += most - 1;
    }
}

static void keep_for_picture(const Request& r, const Warp& w, int32_t memory) {
    laptop_request kept = {r.pc, w.index, r.lanes, r.size, r.operation, memory, {}};
    std::fill(kept.offset, kept.offset + 32, -1);
    for (int i = 0; i < r.n; ++i) memory_at(*w.block, r.address[i], &kept.offset[r.lane[i]]);
    run->requests.push_back(kept);
}

static void count(const Request& r, const Warp& w) {
    int64_t offset;
    int32_t memory = memory_at(*w.block, r.address[0], &offset);
    Site& site = site_for(r.pc, r.operation, memory);
    laptop_site& c = site.counts;
    const laptop_site before = c;
    ++run->counted;
    ++c.requests;
    c.lanes += r.n;
    c.bytes += (uint64_t)r.n * r.size;
    if (r.operation == LAPTOP_SHARED_LOAD || r.operation == LAPTOP_SHARED_STORE) {
        count_wavefronts(r, *w.block, site);
    } else if (r.operation != LAPTOP_SHARED_ATOMIC) {
        c.sectors += count_sectors(r, site);
    }
    if (r.operation == LAPTOP_GLOBAL_ATOMIC) {
        c.wavefronts += atomic_sectors(r);
        for (int i = 0; i < r.n; ++i) {
            if (r.address[i] - run->arena >= run->arena_bytes) continue;
            size_t word = (r.address[i] - run->arena) / 4;
            if (run->atomic_words.empty()) run->atomic_words.resize(run->arena_bytes / 4 / 64 + 1);
            uint64_t bit = 1ull << (word % 64);
            run->atomic_word_count += !(run->atomic_words[word / 64] & bit);
            run->atomic_words[word / 64] |= bit;
        }
    }
    if (run->recording) {
        laptop_warp_step s = {};
        s.pc = r.pc, s.lanes = r.lanes, s.operation = r.operation, s.memory = memory, s.size = r.size;
        s.sectors = (uint32_t)(c.sectors - before.sectors);
        s.excess = (uint32_t)(c.excess - before.excess);
        s.wavefronts = (uint32_t)(c.wavefronts - before.wavefronts);
        record_request(w, s, r.access, r.lane, r.n);
    }
    if (w.block->linear == 0 && run->requests.size() < 4096) keep_for_picture(r, w, memory);
}

// The next accesses of some lanes, packed.
struct Cursors {
    const Access* next[32];
    const Access* end[32];
    uint32_t step[32];           // of the lane's log, where the segment begins
    uint8_t lane[32];
    int n = 0;
};

// Of the lanes' next accesses the earliest step's first in the code, which runs upwards within a step.
static uint64_t next_kind(const Cursors& c) {
    uint64_t kind = c.next[0]->kind();
    int64_t first = INT64_MAX;
    if (std::all_of(c.next, c.next + c.n, [kind](const Access* a) { return a->kind() == kind; })) return kind;
    for (int i = 0; i < c.n; ++i) {
        uint64_t one = c.next[i]->kind();
        int64_t at = ((int64_t)c.next[i]->step() - c.step[i]) * (1ll << 32) + (uint32_t)(one >> 16);
        if (at < first) first = at, kind = one;
    }
    return kind;
}

// The lanes ran the same code, so their accesses pair up in order; but a function of the headers may touch
// more in one lane than in another, so the kinds are compared.
static void count_segment(const Warp& w, Cursors& c) {
    Request r;
    while (c.n) {
        uint64_t kind = next_kind(c);
        r.lanes = 0;
        r.n = 0;
        bool some_end = false;
        for (int i = 0; i < c.n; ++i) {
            if (c.next[i]->kind() != kind) continue;
            r.address[r.n] = c.next[i]->address;
            r.access[r.n] = c.next[i];
            r.lane[r.n++] = c.lane[i];
            r.lanes |= 1u << c.lane[i];
            some_end |= ++c.next[i] == c.end[i];
        }
        uint64_t what = kind >> 16;
        r.pc = (uint32_t)what, r.size = what >> 32 & (ASYNCHRONOUS - 1), r.operation = (int)(what >> 40 & 0xff);
        r.asynchronous = what >> 32 & ASYNCHRONOUS;
        count(r, w);
        int left = some_end ? 0 : c.n;
        for (int i = 0; some_end && i < c.n; ++i) {
            if (c.next[i] == c.end[i]) continue;
            c.next[left] = c.next[i], c.end[left] = c.end[i], c.step[left] = c.step[i], c.lane[left++] = c.lane[i];
        }
        c.n = left;
    }
}

static bool same_path(const Warp& w, unsigned lanes) {
    const Log& first = *w.lanes[__builtin_ctz(lanes)]->log;
    for (unsigned l = lanes; l; l &= l - 1) {
        const Log& log = *w.lanes[__builtin_ctz(l)]->log;
        if (log.at_step || log.at_access || log.n_steps != first.n_steps) return false;
        uint32_t differs = 0;                    // in a page memcmp goes byte by byte
        for (uint32_t i = 0; i < first.n_steps; ++i) differs |= log.step[i] ^ first.step[i];
        if (differs) return false;
    }
    return true;
}

// Moves the lanes over one step (of several words if it is a meeting) and counts the accesses that belong to it.
static void advance(const Warp& w, unsigned lanes, uint32_t words) {
    Cursors c;
    for (unsigned l = lanes; l; l &= l - 1) {
        int lane = __builtin_ctz(l);
        Log& log = *w.lanes[lane]->log;
        log.at_step += words;
        uint32_t end = log.at_access;
        while (end < log.n_accesses && log.access[end].step() <= log.at_step) ++end;
        if (end == log.at_access) continue;
        c.next[c.n] = log.access + log.at_access;
        c.end[c.n] = log.access + end;
        c.step[c.n] = log.at_step;
        c.lane[c.n++] = (uint8_t)lane;
        log.at_access = end;
    }
    count_segment(w, c);
}

static void merge_diverged(Warp& w, unsigned lanes, bool force) {
    advance(w, lanes, 0);                        // what precedes the first step
    for (;;) {
        uint32_t next = BLOCK_MEETING;
        unsigned together = 0, met = 0, unfinished = 0;
        for (unsigned l = lanes; l; l &= l - 1) {
            int lane = __builtin_ctz(l);
            const Log& log = *w.lanes[lane]->log;
            if (log.at_step >= log.n_steps) {
                if ((w.full >> lane & 1) && !force) return;      // its next step decides, and is not known yet
                continue;
            }
            unfinished |= 1u << lane;
            uint32_t step = log.step[log.at_step];
            if (is_meeting(step)) {
                met |= 1u << lane;
            } else if (step <= next) {
                together = step < next ? 1u << lane : together | 1u << lane;
                next = step;
            }
        }
        if (!unfinished) return;
        unsigned passed = 0;
        for (unsigned l = met; l; l &= l - 1) {
            int lane = __builtin_ctz(l);
            const Log& log = *w.lanes[lane]->log;
            unsigned wanted = log.step[log.at_step + 1];
            if (!(passed >> lane & 1) && (((wanted & met) == wanted) || (force && !together))) {
                unsigned group = wanted & met & ~passed;
                ++run->counted;
                record_step(w, group, log.step + log.at_step);
                advance(w, group, MEETING_WORDS);
                passed |= group;
            }
        }
        if (passed) continue;
        if (!together) return;
        ++run->steps;
        run->divergent_steps += together != unfinished;
        count_step(next, __builtin_popcount(together));
        const Log& log = *w.lanes[__builtin_ctz(together)]->log;
        record_step(w, together, log.step + log.at_step);
        advance(w, together, 1);
    }
}

static uint32_t last_step(const Thread& t) {
    if (!run->profiling) return t.last_step & 0xffffff;
    const Log& log = *t.log;
    uint32_t last = 0;
    for (uint32_t i = 0; i < log.n_steps; i += is_meeting(log.step[i]) ? MEETING_WORDS : 1) {
        if (!is_meeting(log.step[i])) last = log.step[i] & 0xffffff;
    }
    return last;
}

void merge(Warp& w, bool force) {
    Busy busy;
    unsigned lanes = 0;
    for (int i = 0; i < 32; ++i) {
        const Thread* t = w.lanes[i];
        if (t && (t->log->n_steps || t->log->n_accesses || t->steps)) lanes |= 1u << i;
    }
    if (!lanes) return;
    if (run->profiling) {
        const uint64_t before = run->counted;
        if (!is_recorded(*w.block) && same_path(w, lanes)) {
            Cursors c;
            for (unsigned l = lanes; l; l &= l - 1) {
                Log& log = *w.lanes[__builtin_ctz(l)]->log;
                log.at_step = log.n_steps;
                log.at_access = log.n_accesses;
                if (!log.n_accesses) continue;
                c.next[c.n] = log.access;
                c.end[c.n] = log.access + log.n_accesses;
                c.step[c.n] = 0;
                c.lane[c.n++] = (uint8_t)__builtin_ctz(l);
            }
            const Log& path = *w.lanes[__builtin_ctz(lanes)]->log;
            run->steps += path.n_steps;
            for (uint32_t i = 0; i < path.n_steps; i += is_meeting(path.step[i]) ? MEETING_WORDS : 1) {
                if (is_meeting(path.step[i])) ++run->counted;
                else count_step(path.step[i], __builtin_popcount(lanes));
            }
            count_segment(w, c);
        } else {
            merge_diverged(w, lanes, force);
        }
        w.span += run->counted - before;
        run->longest_warp = std::max(run->longest_warp, w.span);
    }
    for (unsigned l = lanes; l; l &= l - 1) {
        Thread* t = w.lanes[__builtin_ctz(l)];
        Log& log = *t->log;
        if (run->profiling && !force && (log.at_step < log.n_steps || log.at_access < log.n_accesses)) continue;
        Block& b = *w.block;
        b.steps += log.n_steps + t->steps;
        if (run->launch->step_limit && !run->watch.limited && b.steps > run->launch->step_limit && !run->error.kind) {
            laptop_error e = error_of("timeout", "steps", t, last_step(*t), 0);
            e.offset = (int64_t)run->launch->step_limit;
            fail(e);
        }
        if (w.block->rounds) t->last_place = last_step(*t);
        t->span += log.n_accesses;
        run->longest_thread = std::max(run->longest_thread, t->span);
        log.n_steps = log.n_accesses = log.at_step = log.at_access = 0;
        t->steps = t->last_step = 0;
    }
}
}  // namespace laptop
