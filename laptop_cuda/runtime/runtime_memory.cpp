// The bytes that kernels may touch, and their names. In a traced run every array lives in its own stretch of an arena of
// addresses, with a guard at least as long as itself on both sides: an index gone wrong lands in a guard that knows its array.
// Shared arrays have red zones in between, of multiples of 128 bytes, so that the banks are those of the real layout.
#include <string.h>

#include <algorithm>

#include "runtime.h"
#include "runtime_settled.h"

namespace laptop {

void* reserve(size_t bytes, bool usable) {
    int access = usable ? PROT_READ | PROT_WRITE : PROT_NONE;
    void* p = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail(make_error("bad launch", "out of memory", nullptr, 0));
    return p;
}

static void map_in_place() {
    const laptop_launch& l = *run->launch;
    for (int i = 0; i < l.n_args; ++i) {
        int a = l.arg_array[i];
        if (a < 0) continue;
        const laptop_array& array = l.arrays[a];
        run->pointers[i] = array.storage < 0 ? nullptr : (char*)l.storages[array.storage].host + array.offset;
    }
}

// Stretches of tensor memory, each of them apart in the arena. Arrays that overlap, or share a sector, share one;
// two views side by side in one tensor have one each, so that an index which leaves the first is not in the second.
static void plan_storages() {
    const laptop_launch& l = *run->launch;
    std::vector<int> order;
    for (int a = 0; a < l.n_arrays; ++a) {
        if (l.arrays[a].storage >= 0) order.push_back(a);
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) {
        const laptop_array &x = l.arrays[a], &y = l.arrays[b];
        return x.storage != y.storage ? x.storage < y.storage : x.offset < y.offset;
    });
    run->storage_of.assign(l.n_arrays, 0);
    for (int a : order) {
        const laptop_array& array = l.arrays[a];
        Storage* s = run->storages.empty() ? nullptr : &run->storages.back();
        if (!s || s->host != array.storage || array.offset / 32 * 32 >= up(s->from + s->bytes, 32)) {
            run->storages.emplace_back();
            s = &run->storages.back();
            s->host = array.storage;
            s->from = array.offset;
        }
        s->bytes = std::max(s->bytes, array.offset + array.bytes - s->from);
        run->storage_of[a] = (int)run->storages.size() - 1;
    }
}

// An array of addresses holds those of the host's arrays outside a traced launch, and those of the copies inside.
static void translate_pointers(const Run& r, bool in) {
    const laptop_launch& l = *r.launch;
    for (int a = 0; a < l.n_arrays; ++a) {
        if (l.arrays[a].storage < 0 || strcmp(l.arrays[a].dtype, "pointers") != 0) continue;
        const Storage& own = r.storages[r.storage_of[a]];
        uint64_t* word = (uint64_t*)(own.data + (l.arrays[a].offset - own.from));
        for (uint64_t i = 0; i < l.arrays[a].bytes / 8; ++i) {
            for (const Storage& s : r.storages) {
                uint64_t here = s.data, there = (uint64_t)l.storages[s.host].host + s.from;
                if (!in) std::swap(here, there);
                if (word[i] - there >= s.bytes) continue;
                word[i] += here - there;
                break;
            }
        }
    }
}
void pointers_of_host(const Run& r) { if (r.traced && !r.in_place) translate_pointers(r, false); }

static void map_arena() {
    const laptop_launch& l = *run->launch;
    plan_storages();
    size_t total = 0;
    std::vector<size_t> start;
    for (Storage& s : run->storages) {
        size_t guard = up(std::max<size_t>(s.bytes, SLOT), SLOT);
        // A different cache line for each array's start: all at multiples of a MiB would evict each other.
        size_t stagger = start.size() % 16 * 4352 + s.from % 256;     // a storage starts at a multiple of 256
        start.push_back(total + guard + stagger);
        total += guard + up(s.bytes + stagger, SLOT) + guard;
    }
    if (total == 0) return;
    char* base = (char*)reserve(total + SLOT, false);
    run->arena = up((uintptr_t)base, SLOT);
    run->arena_bytes = total;
    munmap(base, run->arena - (uintptr_t)base);
    munmap((char*)run->arena + total, (uintptr_t)base + SLOT - run->arena);
    run->storage_at.resize(total / SLOT);
    size_t slot = 0;
    for (size_t i = 0; i < run->storages.size(); ++i) {
        Storage& s = run->storages[i];
        size_t guard = up(std::max<size_t>(s.bytes, SLOT), SLOT);
        size_t slots = (2 * guard + up(s.bytes + i % 16 * 4352 + s.from % 256, SLOT)) / SLOT;
        for (size_t k = 0; k < slots; ++k) run->storage_at[slot++] = (uint32_t)i;
        s.data = run->arena + start[i];
        uintptr_t page = s.data / 65536 * 65536;
        if (s.bytes) {
            mprotect((void*)page, up(s.data + s.bytes - page, 65536), PROT_READ | PROT_WRITE);
            memcpy((void*)s.data, (char*)l.storages[s.host].host + s.from, s.bytes);
        }
        s.region.space = LAPTOP_IN_GLOBAL;
        s.region.low = s.data;
        s.region.bytes = s.bytes;
        if (l.storages[s.host].initialised && s.bytes) {
            s.region.initialised = (uint8_t*)reserve(s.bytes, true);
            memcpy(s.region.initialised, l.storages[s.host].initialised + s.from, s.bytes);
        }
    }
    for (int a = 0; a < l.n_arrays; ++a) {
        if (l.arrays[a].storage < 0) continue;
        Storage& s = run->storages[run->storage_of[a]];
        uint64_t low = s.data + (l.arrays[a].offset - s.from);
        s.views.push_back({low, low + l.arrays[a].bytes, a});
        if (l.arrays[a].itemsize < s.region.grain) s.region.grain = l.arrays[a].itemsize == 2 ? 2 : 1;
    }
    for (Storage& s : run->storages) s.region.settles = s.views.size() == 1 && s.data % 4 == 0;
    for (int i = 0; i < l.n_args; ++i) {
        int a = l.arg_array[i];
        if (a < 0 || l.arrays[a].storage < 0) continue;
        Storage& s = run->storages[run->storage_of[a]];
        run->pointers[i] = (void*)(s.data + (l.arrays[a].offset - s.from));
    }
    translate_pointers(*run, true);
}

// Values that hold addresses of arrays get those of the copies.
static void map_values() {
    const laptop_launch& l = *run->launch;
    for (int i = 0; i < l.n_addresses; ++i) {
        const laptop_address& held = l.addresses[i];
        std::vector<std::max_align_t>& value = run->values[held.argument];
        if (value.empty()) {
            value.resize(up(held.bytes, sizeof(std::max_align_t)) / sizeof(std::max_align_t));
            memcpy(value.data(), l.args[held.argument], held.bytes);
            run->args[held.argument] = value.data();
        }
        const Storage& s = run->storages[run->storage_of[held.array]];
        uint64_t address = s.data + (l.arrays[held.array].offset - s.from) + held.offset;
        memcpy((char*)value.data() + held.at, &address, sizeof(address));
    }
}

// A child of a launch from Python works on its parent's copies.
static void borrow_arena(const Run& lender) {
    run->arena = lender.arena;
    run->arena_bytes = lender.arena_bytes;
    run->storage_at = lender.storage_at;
    run->storage_of = lender.storage_of;
    run->storages = lender.storages;
    for (Storage& s : run->storages) s.region.cells = nullptr;
}

void map_arrays() {
    const laptop_launch& l = *run->launch;
    for (int a = 0; a < l.n_arrays; ++a) {
        run->memories.push_back({l.arrays[a].name, LAPTOP_IN_GLOBAL, a, l.arrays[a].itemsize, l.arrays[a].bytes, 0});
    }
    run->pointers.assign(l.n_args, nullptr);
    run->args.assign(l.args, l.args + l.n_args);
    if (run->in_place) {
        if (run->traced) seams.map_heap();
    } else if (run->traced) {
        if (run->lender) {
            borrow_arena(*run->lender);
        } else {
            map_arena();
            map_values();
        }
    } else {
        map_in_place();
    }
    for (int i = 0; i < l.n_args; ++i) {
        if (l.arg_array[i] >= 0) run->args[i] = &run->pointers[i];
    }
}

// Only what changed: a tensor that the kernel reads may live in a file that cannot be written.
void copy_back() {
    const laptop_launch& l = *run->launch;
    pointers_of_host(*run);
    for (Storage& s : run->storages) {
        char* host = (char*)l.storages[s.host].host + s.from;
        for (size_t at = 0; at < s.bytes; at += 4096) {
            size_t n = std::min<size_t>(4096, s.bytes - at);
            if (memcmp(host + at, (char*)s.data + at, n) != 0) memcpy(host + at, (char*)s.data + at, n);
        }
        if (s.region.initialised) memcpy(l.storages[s.host].initialised + s.from, s.region.initialised, s.bytes);
    }
}

static void free_region(Region& r) {
    if (r.cells) munmap(r.cells, r.bytes * sizeof(Cell));
    r.cells = nullptr;
}

void unmap_arrays() {
    bool own = !run->in_place && !run->lender;
    for (Storage& s : run->storages) {
        free_region(s.region);
        if (s.region.initialised && own) munmap(s.region.initialised, s.region.bytes);
    }
    for (Symbol& s : run->symbols) free_region(s);
    for (SharedArray& a : run->shared) free_region(a.region);
    if (run->arena_bytes && own) munmap((void*)run->arena, run->arena_bytes);
    if (run->settled.word) munmap(run->settled.word, SETTLED_BYTES * run->settled.bytes);
}

// Room for one cell per byte, of which only touched pages exist; a grain of 4 uses the first quarter.
Cell* cells_of(Region& r) {
    if (r.cells) return r.cells;
    size_t bytes = r.bytes * sizeof(Cell);
    r.cells = (Cell*)reserve(bytes, true);
#if defined(MADV_HUGEPAGE)
    // A launch that goes once through its arrays spends half its time on the faults of small pages. An array that is
    // larger may be touched here and there only.
    if (bytes >= 8 << 20 && bytes <= 1 << 30) madvise(r.cells, bytes, MADV_HUGEPAGE);
#endif
    return r.cells;
}

void refine(Region& r) {
    Cell* cells = cells_of(r);
    for (size_t i = r.bytes; i-- > 0;) cells[i] = cells[i / r.grain];
    r.grain = 1;
}

struct Placing {                 // blocks on several cores share the list of arrays
    Busy busy;
    std::unique_lock<std::mutex> lock;
    Placing() : lock(run->placing, std::defer_lock) { if (run->shared_out) lock.lock(); }
};

static void fill_shared(Block& b) {
    if (b.shared_filled >= run->shared_used) return;
    memset(b.shared + b.shared_filled, 0xff, run->shared_used - b.shared_filled);    // NaN, -1: what nobody wrote is seen
    b.shared_filled = run->shared_used;
}

void start_shared(Block& b) {
    Placing now;
    if (!b.shared) {
        b.shared = (char*)reserve(SHARED_SPAN, true);
        if (run->traced) b.shared_initialised = (uint8_t*)reserve(SHARED_SPAN, true);
    }
    b.shared_filled = 0;
    fill_shared(b);
    if (b.shared_initialised) memset(b.shared_initialised, 0, run->shared_used);
}

void free_shared(Block& b) {
    if (b.shared && !run->clustered) munmap(b.shared, SHARED_SPAN);
    if (b.shared_initialised && !run->clustered) munmap(b.shared_initialised, SHARED_SPAN);
    for (Region& r : b.regions) free_region(r);
    if (b.settled.word) munmap(b.settled.word, SETTLED_BYTES * b.settled.bytes);
}

// Without room for it nothing is settled.
static void make_settled(Settled& s, uintptr_t low, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* p = mmap(nullptr, SETTLED_BYTES * bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p != MAP_FAILED) s = {low, bytes, (uint64_t*)p, (uint32_t(*)[2])((char*)p + SETTLED_BYTES / 2 * bytes)};
}

void settle_in(Block& b) {
    unsettle();
    settled.shared = settled.global = {};
    settled.most_steps = 0;
    settled.counts_steps = run->profiling && !run->recording;
    settled.only_counts = settled.counts_steps && !run->sanitizing && run->copiers.empty();
    settled.code = run->code;
    if (!run->traced || (run->profiling && b.watched)) return;
    settled.most_steps = b.watched ? Log::STEPS : UNWATCHED_STEPS;
    if (!b.watched) return;
    if (!b.settled.word) make_settled(b.settled, (uintptr_t)b.shared, SHARED_SPAN);
    if (!run->settled.word && run->arena_bytes) make_settled(run->settled, run->arena, run->arena_bytes);
    settled.shared = b.settled;
    settled.global = run->settled;
}

static SharedArray& place_shared(Placing& now, const char* name, int line, const char* function, size_t bytes, size_t align) {
    SharedArray a = {};
    a.name = name, a.line = line, a.function = function, a.bytes = bytes, a.align = align;
    a.offset = up(run->shared_bytes, std::max<size_t>(align, 1));
    size_t zone = up(std::max<size_t>(bytes, 1024), 128);
    // Same offset modulo 1024 as without the zones, as swizzles ask for; the next start is a zone behind the last end.
    a.position = up(run->shared_used + zone, 1024) + a.offset % 1024;
    size_t end = a.position + bytes;
    uint64_t limit = run->launch->shared_limit ? run->launch->shared_limit : 48 << 10;
    if (a.offset + bytes > limit || end + zone > SHARED_SPAN) {
        laptop_error e = make_error("bad launch", "too much shared memory", nullptr, 0);
        e.offset = (int64_t)(a.offset + bytes);
        if (now.lock.owns_lock()) now.lock.unlock();
        fail(e);
    }
    a.index = run->shared.size();
    a.region.space = LAPTOP_IN_SHARED;
    a.region.low = a.position;
    a.region.bytes = bytes;
    a.region.grain = align >= 4 ? 4 : align == 2 ? 2 : 1;
    a.region.memory = (int32_t)run->memories.size();
    run->memories.push_back({name, LAPTOP_IN_SHARED, -1, (uint32_t)align, bytes, a.offset});
    size_t old_used = run->shared_used;
    run->shared_bytes = a.offset + bytes;
    run->shared_used = up(end + zone, 128);
    run->shared_at.resize(run->shared_used / 128);
    run->shared.push_back(a);
    SharedSlot slot = {(uint32_t)a.position, (uint32_t)(a.position + bytes), &run->shared.back()};
    for (size_t i = old_used / 128; i < run->shared_at.size(); ++i) run->shared_at[i] = slot;
    return run->shared.back();
}

static void* in_block(const SharedArray& a) {
    Block& b = *current->warp->block;
    fill_shared(b);
    for (size_t i = 0; run->clustered && i < b.cluster->blocks.size(); ++i) fill_shared(*b.cluster->blocks[i]);
    return b.shared + a.position;
}

void* shared(const char* name, int line, size_t bytes, size_t align, const char* function) {
    if (!current) return nullptr;
    Placing now;
    for (SharedArray& a : run->shared) {
        if (a.line == line && a.function == function && a.name == name && a.bytes == bytes) return in_block(a);
    }
    return in_block(place_shared(now, name, line, function, bytes, align));
}

// Every extern __shared__ declaration names the same memory; the first one's type is its grain.
void* dynamic_shared(const char* name, size_t itemsize, size_t asked) {
    if (!current) return nullptr;
    Placing now;
    for (SharedArray& a : run->shared) {
        if (!a.function) return in_block(a);
    }
    size_t position = up(run->shared_bytes, asked);
    run->shared_bytes = position;
    size_t align = std::min<size_t>(itemsize, 16);
    return in_block(place_shared(now, name, 0, nullptr, run->launch->shared_bytes, align));
}

// What is not shared memory gets an address beyond it, and that one leads nowhere.
bool is_shared(const void* p) { return current && (uintptr_t)p - (uintptr_t)current->warp->block->shared < SHARED_SPAN; }
bool is_local(const void* p) { return current && (uintptr_t)p - (uintptr_t)current->stack.low < current->stack.bytes; }
bool is_constant(const void* p) {
    auto holds = [p](const Symbol& s) { return s.constant && (uintptr_t)p - s.low < s.bytes; };
    return current && std::any_of(run->symbols.begin(), run->symbols.end(), holds);
}
uint32_t shared_address(const void* p) {
    if (!current) return 0;
    size_t at = (uintptr_t)p - (uintptr_t)current->warp->block->shared;
    const Block* peer = at < SHARED_SPAN ? nullptr : peer_at(p);
    if (peer) return (uint32_t)(SHARED_SPAN * (2 + peer->rank) + ((uintptr_t)p - (uintptr_t)peer->shared));
    return at < SHARED_SPAN ? (uint32_t)at : (uint32_t)SHARED_SPAN;
}
void* shared_pointer(uint32_t address) {
    if (address < SHARED_SPAN && current) return current->warp->block->shared + address;
    bool of_cluster = current && run->clustered && address / SHARED_SPAN - 2 < run->cluster_size;
    return of_cluster ? current->warp->block->cluster->shared + (address - 2 * SHARED_SPAN) : (void*)(uintptr_t)address;
}

static Region* module_region(Symbol& s) {
    if (s.memory < 0) {
        Busy busy;
        s.memory = (int32_t)run->memories.size();
        run->memories.push_back({s.name.c_str(), LAPTOP_IN_MODULE, -1, 0, s.bytes, 0});
    }
    return &s;
}

static void out_of_bounds(const char* reason, int memory, int64_t offset, size_t size, int action, const void* pc) {
    laptop_error e = make_error("out of bounds", reason, pc, action);
    e.memory = memory;
    e.offset = offset;
    e.size = (uint32_t)size;
    fail(e);
}

static const View& nearest_view(const Storage& s, uintptr_t address) {
    const View* best = &s.views[0];
    uint64_t distance = UINT64_MAX;
    for (const View& v : s.views) {
        uint64_t d = address < v.low ? v.low - address : address >= v.high ? address - v.high + 1 : 0;
        if (d < distance) best = &v, distance = d;
    }
    return *best;
}

static Found find_global(uintptr_t address, size_t size, int action, const void* pc) {
    Storage& s = run->storages[run->storage_at[(address - run->arena) / SLOT]];
    for (const View& v : s.views) {
        if (address >= v.low && address + size <= v.high) return {&s.region, s.data};
    }
    if (s.views.empty()) out_of_bounds("nowhere", -1, 0, size, action, pc);
    const View& v = nearest_view(s, address);
    if (s.freed) out_of_bounds("freed", v.array, (int64_t)(address - v.low), size, action, pc);
    out_of_bounds("array", v.array, (int64_t)(address - v.low), size, action, pc);
    return {};
}

static Found find_shared(uintptr_t address, size_t size, int action, const void* pc) {
    size_t at = address - (uintptr_t)current->warp->block->shared;
    if (at / 128 >= run->shared_at.size()) out_of_bounds("beyond shared", -1, 0, size, action, pc);
    SharedArray& a = *run->shared_at[at / 128].array;
    if (at < a.position || at + size > a.position + a.bytes) {
        out_of_bounds("array", a.region.memory, (int64_t)(at - a.position), size, action, pc);
    }
    return {&a.region, (uintptr_t)current->warp->block->shared + a.position};
}

static Found find_module(uintptr_t address, size_t size, int action, const void* pc) {
    auto after = std::upper_bound(run->symbols.begin(), run->symbols.end(), address,
                                  [](uintptr_t a, const Symbol& s) { return a < s.low; });
    if (after != run->symbols.begin()) {
        Symbol& s = *(after - 1);
        if (address + size <= s.low + s.bytes) return {module_region(s), s.low};
        if (s.writable && address < s.low + s.bytes + 65536) {
            out_of_bounds("array", module_region(s)->memory, (int64_t)(address - s.low), size, action, pc);
        }
    }
    return {nullptr, 0};         // a string, a table of the compiler's
}

// Of the runtime's variables a kernel may read those that the headers name, and write none: others hold findings.
static bool is_index(uintptr_t address, size_t size) {
    for (const Coordinates* c : {&threadIdx, &blockIdx, &blockDim, &gridDim}) {
        if (address >= (uintptr_t)c && address + size <= (uintptr_t)(c + 1)) return true;
    }
    return address >= (uintptr_t)&warpSize && address + size <= (uintptr_t)(&warpSize + 1);
}

Found find(uintptr_t address, size_t size, int action, const void* pc) {
    if (address - (uintptr_t)current->warp->block->shared < SHARED_SPAN) return find_shared(address, size, action, pc);
    if (address - run->arena < run->arena_bytes) return find_global(address, size, action, pc);
    if (!action && is_index(address, size)) return {nullptr, 0};
    if (Block* peer = peer_at((const void*)address)) return find_in_peer(*peer, address, size, action, pc);
    if (address >= run->image_low && address < run->image_high) return find_module(address, size, action, pc);
    if (run->in_place && seams.is_registered((const void*)address, size)) return {nullptr, 0};
    for (auto& b : run->blocks) {
        for (Thread& t : b->threads) {
            if (address - (uintptr_t)t.stack.low >= STACK_BYTES) continue;
            out_of_bounds("another thread's local memory", -1, 0, size, action, pc);
        }
    }
    out_of_bounds(address < 65536 ? "null" : run->in_place ? "host memory" : "nowhere", -1, (int64_t)address, size, action, pc);
    return {nullptr, 0};
}

static const Block* owner_of(const Block& b, uintptr_t address) {
    size_t rank = run->clustered ? (address - (uintptr_t)b.cluster->shared) / SHARED_SPAN : run->cluster_size;
    return rank < run->cluster_size ? b.cluster->blocks[rank] : nullptr;
}

// The object that holds an address already known to be good, and the distance from its start.
int32_t memory_at(const Block& b, uintptr_t address, int64_t* offset) {
    if (address - run->arena < run->arena_bytes) {
        const Storage& s = run->storages[run->storage_at[(address - run->arena) / SLOT]];
        const View& v = nearest_view(s, address);
        *offset = (int64_t)(address - v.low);
        return v.array;
    }
    size_t at = address - (uintptr_t)b.shared;
    if (at >= SHARED_SPAN && owner_of(b, address)) at = (address - (uintptr_t)b.cluster->shared) % SHARED_SPAN;
    if (at < SHARED_SPAN && at / 128 < run->shared_at.size()) {
        const SharedArray& a = *run->shared_at[at / 128].array;
        *offset = (int64_t)(at - a.position);
        return a.region.memory;
    }
    for (const Symbol& s : run->symbols) {
        if (address - s.low >= s.bytes) continue;
        *offset = (int64_t)(address - s.low);
        return s.memory;
    }
    *offset = 0;
    return -1;
}

void locate(laptop_error& e, const Block& b, uintptr_t address, size_t size) {
    const Block* owner = owner_of(b, address);
    e.memory = memory_at(b, address, &e.offset);
    e.size = (uint32_t)size;
    e.owner = owner && owner != &b ? (int32_t)owner->linear + 1 : 0;
}
}  // namespace laptop
