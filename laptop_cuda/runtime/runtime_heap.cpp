// Device memory of whole programs: what cudaMalloc returns. Each allocation has its own stretch of one range of
// addresses, with guards as wide as itself, and an address is used once: an access outside, or after cudaFree, is known
// for what it is. Launches of host code work on this memory in place.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "runtime.h"
#include "runtime_settled.h"

#if !defined(MAP_ANONYMOUS)
#define MAP_ANONYMOUS MAP_ANON
#endif
#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif

namespace laptop {

struct Allocation {
    uintptr_t low;
    size_t bytes;
    std::string name;
    unsigned itemsize;
    bool live, for_host;         // for_host: managed or pinned, which the host may write unseen
    uint8_t* initialised;
};

static std::recursive_mutex heap;                // the host may have several threads
typedef std::lock_guard<std::recursive_mutex> Lock;
constexpr size_t POISONED = 64 << 20;
static std::deque<Allocation> allocations;       // by address
static std::vector<uint32_t> allocation_at;      // for each MiB
static uintptr_t heap_base = 0;
static size_t used = 0, reserved = 0;

static bool reserve_range() {
    for (reserved = (size_t)1 << 44; reserved >= (size_t)1 << 34; reserved >>= 1) {
        void* p = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        heap_base = up((uintptr_t)p, SLOT);
        reserved -= SLOT;
        return true;
    }
    return false;
}

// "(void**)&d_x" is d_x.
static std::string tidy(const char* argument) {
    std::string name = argument ? argument : "";
    size_t comma = 0, depth = 0;
    for (; comma < name.size() && (depth || name[comma] != ','); ++comma) {
        depth += (name[comma] == '(') - (name[comma] == ')');
    }
    name.resize(comma);
    size_t cast = name.rfind("**)");
    if (cast != std::string::npos) name = name.substr(cast + 3);
    name.erase(0, name.find_first_not_of(" &("));
    while (!name.empty() && (name.back() == ' ' || name.back() == ')')) name.pop_back();
    return name.empty() ? "device memory" : name;
}

void* device_malloc(size_t bytes, const char* name, unsigned itemsize, bool for_host) {
    Busy busy;
    Lock lock(heap);
    if (!heap_base && !reserve_range()) return nullptr;
    size_t guard = up(std::max(bytes, SLOT), SLOT), stagger = allocations.size() % 16 * 4352;
    size_t span = 2 * guard + up(bytes + stagger, SLOT);
    if (bytes > reserved || span > reserved - used) return nullptr;
    Allocation a = {heap_base + used + guard + stagger, bytes, tidy(name), itemsize, true, for_host, nullptr};
    uintptr_t page = a.low / 65536 * 65536;
    if (mprotect((void*)page, up(a.low + bytes - page + 1, 65536), PROT_READ | PROT_WRITE) != 0) return nullptr;
    if (bytes <= POISONED && !for_host) memset((void*)a.low, 0xff, bytes);
    if (!for_host) {
        void* map = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        a.initialised = map == MAP_FAILED ? nullptr : (uint8_t*)map;
    }
    used += span;
    allocation_at.resize(used / SLOT, (uint32_t)allocations.size());
    allocations.push_back(a);
    return (void*)a.low;
}

static Allocation* allocation_of(const void* p) {
    uintptr_t at = (uintptr_t)p - heap_base;
    return heap_base && at < used ? &allocations[allocation_at[at / SLOT]] : nullptr;
}

bool device_free(void* p) {
    Busy busy;
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    if (!p) return true;
    if (!a || !a->live || a->low != (uintptr_t)p) return false;
    a->live = false;
    uintptr_t page = a->low / 65536 * 65536;
    size_t bytes = up(a->low + a->bytes - page + 1, 65536);
    madvise((void*)page, bytes, MADV_DONTNEED);
    mprotect((void*)page, bytes, PROT_NONE);
    if (a->initialised) munmap(a->initialised, a->bytes + 1);
    a->initialised = nullptr;
    return true;
}

Place place_of(const void* p, size_t bytes) {
    Lock lock(heap);
    const Allocation* a = allocation_of(p);
    if (!a) return Place::HOST;
    uintptr_t at = (uintptr_t)p;
    bool inside = a->live && at >= a->low && bytes <= a->bytes && at - a->low <= a->bytes - bytes;
    return !inside ? Place::OUTSIDE : a->for_host ? Place::BOTH : Place::DEVICE;
}

// In a whole program the device side of a copy is device memory or a variable of the module; elsewhere Python's arrays
// are device memory too.
bool is_device_memory(const void* p, size_t bytes) {
    Place place = place_of(p, bytes);
    if (place == Place::DEVICE || place == Place::BOTH || !is_whole_program()) return true;
    Dl_info info;
    return place == Place::HOST && dladdr(p, &info) && info.dli_fbase;
}

void host_wrote(void* p, size_t bytes) {
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    if (a && a->initialised) memset(a->initialised + ((uintptr_t)p - a->low), 1, bytes);
}

// A launch passes a pointer of a type: from then on errors count elements of it.
void device_pointer_type(const void* p, unsigned itemsize) {
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    if (a && itemsize > 1) a->itemsize = itemsize;
}

static void map_allocations(size_t first) {
    run->arena = heap_base;
    run->arena_bytes = used;
    run->storage_at.insert(run->storage_at.end(), allocation_at.begin() + run->storage_at.size(), allocation_at.end());
    for (size_t i = first; i < allocations.size(); ++i) {
        Allocation& a = allocations[i];
        run->memories.push_back({a.name.c_str(), LAPTOP_IN_GLOBAL, -1, a.itemsize, a.bytes, 0});
        Storage s;
        s.data = a.low;
        s.bytes = a.bytes;
        s.freed = !a.live;
        s.views.push_back({a.low, a.live ? a.low + a.bytes : a.low, (int32_t)run->memories.size() - 1});
        s.region.space = LAPTOP_IN_GLOBAL;
        s.region.low = a.low;
        s.region.bytes = a.bytes;
        s.region.initialised = a.initialised;
        run->storages.push_back(s);
    }
}

void map_heap() { map_allocations(0); }

// Memory that a kernel asks for is device memory. A launch from Python works on copies of its arrays, and has none.
void* kernel_malloc(size_t bytes, const void* site) {
    if (!current) return malloc(bytes);
    if (!run->in_place) not_supported("malloc or new, a heap in a kernel launched from Python,", site);
    Busy busy;
    Lock lock(heap);
    void* p = device_malloc(bytes, "heap memory");
    if (p && run->traced) map_allocations(allocations.size() - 1);
    return p;
}

void kernel_free(void* p, const void* site) {
    if (!current) return free(p);
    if (!p) return;
    if (!device_free(p)) trap("free or delete of a pointer that is not the heap's, or was freed before", site);
    if (!run->traced) return;
    unsettle();
    Storage& s = run->storages[run->storage_at[((uintptr_t)p - run->arena) / SLOT]];
    s.freed = true;
    s.region.initialised = nullptr;
    s.views[0].high = s.views[0].low;
}
}  // namespace laptop
