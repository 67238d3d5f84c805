// Device memory of whole programs: what cudaMalloc returns. Each allocation has its own stretch of one range of
// addresses, with guards as wide as itself, and an address is used once: an access outside, or after cudaFree, is known
// for what it is. Launches of host code work on this memory in place.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <mutex>

#include "programs.h"
#include "runtime_settled.h"

namespace laptop {

struct Allocation {
    uintptr_t low;
    size_t bytes;
    std::string name;
    unsigned itemsize;
    bool live, for_host;         // for_host: managed or pinned, which the host may write unseen
    bool of_kernel;              // which asked for it
    bool open_to_host;           // by the means of a library, such as thrust
    bool shut;                   // host code that touches it crashes
    uint8_t* initialised;
};

static std::recursive_mutex heap;                // the host may have several threads
typedef std::lock_guard<std::recursive_mutex> Lock;
constexpr size_t POISONED = 64 << 20;
static std::deque<Allocation> allocations;       // by address
static std::vector<uint32_t> allocation_at;      // for each MiB
static size_t reserved = 0;

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
    for (; comma < name.size() && (depth || name[comma] != ','); ++comma) depth += (name[comma] == '(') - (name[comma] == ')');
    name.resize(comma);
    size_t cast = name.rfind("**)");
    if (cast != std::string::npos) name = name.substr(cast + 3);
    name.erase(0, name.find_first_not_of(" &("));
    while (!name.empty() && (name.back() == ' ' || name.back() == ')')) name.pop_back();
    return name.empty() ? "device memory" : name;
}

struct Pages {
    void* low;
    size_t bytes;
    explicit Pages(const Allocation& a) : low((void*)(a.low / 65536 * 65536)) {
        bytes = up(a.low + a.bytes - (uintptr_t)low + 1, 65536);
    }
};

// Plain programs: shut while host code runs
// Opening and shutting takes a call of the system for each allocation, and time for each page. So what is shut again
// after the first launches, copies and synchronisations is so later only now and then, and up to a number of bytes.
bool shuts_memory = false;
static int on_device = 0;                        // threads that work on device memory now
static size_t bytes_shut = 0;
constexpr size_t MOST_BYTES_SHUT = (size_t)1 << 30;

static bool is_time_to_shut(Event event) {
    static size_t times[3] = {};
    size_t n = ++times[(int)event];
    return !on_device && (n <= 16 || !(n & (n - 1))) && bytes_shut < MOST_BYTES_SHUT;
}

static std::vector<Allocation*> shut_ones;       // some of them freed since

static void shut(Allocation& a) {
    if (a.shut || !a.live || a.for_host || a.open_to_host) return;
    Pages pages(a);
    if (mprotect(pages.low, pages.bytes, PROT_NONE) != 0) return;
    a.shut = true;
    bytes_shut += pages.bytes;
    shut_ones.push_back(&a);
}

static void unshut(Allocation& a) {
    Pages pages(a);
    if (a.shut) mprotect(pages.low, pages.bytes, PROT_READ | PROT_WRITE);
    a.shut = false;
}

void host_waits() {
    Lock lock(heap);
    if (on_device++) return;
    for (Allocation* a : shut_ones) unshut(*a);
    shut_ones.clear();
}

void host_goes_on(Event event) {
    Lock lock(heap);
    if (event != Event::SYNCHRONISED) --on_device;
    if (!is_time_to_shut(event)) return;
    for (Allocation& a : allocations) shut(a);
}

static bool open_memory(Allocation& a) {
    Pages pages(a);
    if (mprotect(pages.low, pages.bytes, PROT_READ | PROT_WRITE) != 0) return false;
    a.live = true;
    if (a.for_host) return true;
    if (a.bytes <= POISONED) memset((void*)a.low, 0xff, a.bytes);
    void* map = mmap(nullptr, a.bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    a.initialised = map == MAP_FAILED ? nullptr : (uint8_t*)map;
    if (shuts_memory && !on_device && bytes_shut < MOST_BYTES_SHUT) shut(a);
    return true;
}

static Allocation* reserve(size_t bytes, const char* name, unsigned itemsize, bool for_host) {
    if (!heap_base && !reserve_range()) return nullptr;
    size_t guard = up(std::max(bytes, SLOT), SLOT), stagger = allocations.size() % 16 * 4352;
    size_t span = 2 * guard + up(bytes + stagger, SLOT);
    if (bytes > reserved || span > reserved - heap_used) return nullptr;
    Allocation a = {heap_base + heap_used + guard + stagger, bytes, tidy(name), itemsize, false, for_host, current != nullptr, false, false, nullptr};
    heap_used += span;
    allocation_at.resize(heap_used / SLOT, (uint32_t)allocations.size());
    allocations.push_back(a);
    return &allocations.back();
}

static Allocation* allocation_of(const void* p) {
    uintptr_t at = (uintptr_t)p - heap_base;
    return heap_base && at < heap_used ? &allocations[allocation_at[at / SLOT]] : nullptr;
}

void* device_malloc(size_t bytes, const char* name, unsigned itemsize, bool for_host) {
    Dl_info caller;
    if (!program_base && dladdr(__builtin_return_address(0), &caller)) program_base = caller.dli_fbase;
    Busy busy;
    Lock lock(heap);
    Allocation* a = reserve(bytes, name, itemsize, for_host);
    return a && open_memory(*a) ? (void*)a->low : nullptr;
}

const char* device_free(void* p) {
    Busy busy;
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    if (!p) return nullptr;
    if (!a) return "the pointer is not one of device memory";
    if (!a->live) return "the memory was freed before";
    if (a->low != (uintptr_t)p) return "the pointer was moved: it is not the start of its memory";
    a->live = a->shut = false;
    Pages pages(*a);
    madvise(pages.low, pages.bytes, MADV_DONTNEED);
    mprotect(pages.low, pages.bytes, PROT_NONE);
    if (a->initialised) munmap(a->initialised, a->bytes + 1);
    a->initialised = nullptr;
    return nullptr;
}

size_t allocated(const void* p) {
    Lock lock(heap);
    const Allocation* a = allocation_of(p);
    return a && a->live && a->low == (uintptr_t)p ? a->bytes : 0;
}

// Of a struct some byte is written; where no kernel has told a type, 16 bytes may be one.
void leaves_device(const char* call, const void* p, size_t bytes, const void* site) {
    Lock lock(heap);
    const Allocation* a = allocation_of(p);
    if (!a || !a->initialised || !is_sanitized()) return;
    const uint8_t* flags = a->initialised + ((uintptr_t)p - a->low);
    if (const void* either = memchr(flags, EITHER, bytes))
        refused_call((std::string(call) + " copies " + element_at((uintptr_t)p + ((const uint8_t*)either - flags))).c_str(),
                     "lanes of one warp have stored different values there by one instruction, and CUDA leaves open which is last", site);
    size_t unit = a->itemsize > 1 ? a->itemsize : 16, first = ((uintptr_t)p - a->low + unit - 1) / unit * unit;
    for (size_t end = (uintptr_t)p - a->low + bytes; first + unit <= end; first += unit) {
        const uint8_t* hole = (const uint8_t*)memchr(a->initialised + first, 0, end - first);
        if (!hole) return;
        first = (hole - a->initialised) / unit * unit;
        if (first + unit > end || memchr(a->initialised + first, 1, unit)) continue;
        refused_call((std::string(call) + " copies " + element_at(a->low + first)).c_str(), "nobody has written it", site);
        return;
    }
}

Place place_of(const void* p, size_t bytes) {
    Lock lock(heap);
    const Allocation* a = allocation_of(p);
    if (!a) return is_registered(p, bytes) ? Place::BOTH : Place::HOST;
    uintptr_t at = (uintptr_t)p;
    bool inside = a->live && at >= a->low && bytes <= a->bytes && at - a->low <= a->bytes - bytes;
    return !inside ? Place::OUTSIDE : a->for_host ? Place::BOTH : Place::DEVICE;
}

static std::map<uintptr_t, laptop_memory>& device_variables() {
    static std::map<uintptr_t, laptop_memory> all;       // a program's static objects tell of theirs before main
    return all;
}
static const laptop_memory* variable_at(uintptr_t address) {
    auto after = device_variables().upper_bound(address);
    bool inside = after != device_variables().begin() && address - std::prev(after)->first < std::prev(after)->second.bytes;
    return inside ? &std::prev(after)->second : nullptr;
}

// In a whole program a copy's device side is device memory or the module's; elsewhere Python's arrays are too.
bool is_device_memory(const void* p, size_t bytes) {
    Place place = place_of(p, bytes);
    if (place == Place::DEVICE || place == Place::BOTH || !is_whole_program()) return true;
    Lock lock(heap);
    Dl_info info;
    return place == Place::HOST && (is_sanitized() ? variable_at((uintptr_t)p) != nullptr : dladdr(p, &info) && info.dli_fbase);
}

// What the host may touch from now on: a library hands it on with means of its own, as thrust does.
void open_to_host(const void* p) {
    if (current) return;
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    if (!a) return;
    unshut(*a);
    a->open_to_host = true;
}

bool device_variable(const char* name, const void* p, size_t bytes, unsigned itemsize) {
    Lock lock(heap);
    uintptr_t low = (uintptr_t)p;
    device_variables().insert({low, {name, LAPTOP_IN_MODULE, -1, itemsize, bytes, 0}});
    variables_low = variables_low ? std::min(variables_low, low) : low;
    return variables_high = std::max(variables_high, low + bytes), true;
}

bool closed_to_host(uintptr_t address, size_t size, laptop_error& e, laptop_memory& memory) {
    Lock lock(heap);
    if (const laptop_memory* variable = variable_at(address)) {
        memory = *variable;
        e.reason = "variable";
        return variable->itemsize;
    }
    const Allocation* a = allocation_of((void*)address);
    if (!a || a->for_host || a->open_to_host) return false;
    memory = {a->name.c_str(), LAPTOP_IN_GLOBAL, -1, a->itemsize, a->bytes, 0};
    e.offset = (int64_t)(address - a->low);
    e.reason = !a->live ? "freed" : place_of((void*)address, size) == Place::OUTSIDE ? "outside" : "";
    return true;
}

void host_wrote(void* p, size_t bytes, const void* from) {
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    if (!a || !a->initialised) return;
    uint8_t* written = a->initialised + ((uintptr_t)p - a->low);
    memset(written, 1, bytes);
    const Allocation* source = allocation_of(from);
    if (source && source->initialised) memcpy(written, source->initialised + ((uintptr_t)from - source->low), bytes);
    for (size_t i = -(uintptr_t)from % 4; from && !source && i + 4 <= bytes; i += 4) {
        if (*(const uint32_t*)((const char*)from + i) == NEVER_SET) memset(written + i, 0, 4);
    }
}

const uint8_t* device_written(const void* p) {
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    return a && a->initialised ? a->initialised + ((uintptr_t)p - a->low) : nullptr;
}

// A launch passes a pointer of a type: from then on errors count elements of it.
void device_pointer_type(const void* p, unsigned itemsize) {
    Busy busy;
    Lock lock(heap);
    Allocation* a = allocation_of(p);
    if (a && itemsize > 1) a->itemsize = itemsize;
}

static void map_allocations(size_t first) {
    run->arena = heap_base;
    run->arena_bytes = heap_used;
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

static const bool maps = (seams.map_heap = [] { map_allocations(0); }, true);

static void note_freed(Storage& s) {
    s.freed = true;
    s.region.initialised = nullptr;
    s.views[0].high = s.views[0].low;
}

void refresh_heap() {
    if (!run->in_place || !run->traced) return;
    Busy busy;
    Lock lock(heap);
    for (size_t i = 0; i < run->storages.size(); ++i) {
        if (!allocations[i].live) note_freed(run->storages[i]);
    }
    map_allocations(run->storages.size());
}

std::string element_at(uintptr_t address) {
    Lock lock(heap);
    const Allocation* a = allocation_of((void*)address);
    return a ? a->name + "[" + std::to_string((address - a->low) / a->itemsize) + "]" : "memory";
}
size_t device_bytes() {
    size_t sum = 0;
    for (const Allocation& a : allocations) sum += a.live ? a.bytes : 0;
    return sum;
}
void take_all_as_written() {
    for (Allocation& a : allocations) a.initialised = nullptr;
}

// Memory that a kernel asks for is device memory. A launch from Python works on copies of its arrays, and has none.
void* kernel_malloc(size_t bytes, const void* site, const char* name, unsigned itemsize) {
    if (!current) return malloc(bytes);
    if (!run->in_place) not_supported("malloc or new, a heap in a kernel launched from Python,", site);
    Busy busy;
    Lock lock(heap);
    void* p = device_malloc(bytes, name, itemsize);
    if (p && run->traced) map_allocations(allocations.size() - 1);
    return p;
}

bool is_of_kernel(const void* p) {
    Busy busy;
    Lock lock(heap);
    const Allocation* a = allocation_of(p);
    return a && a->of_kernel;
}

void kernel_free(void* p, const void* site) {
    if (!current) return free(p);
    if (!p) return;
    if (device_free(p)) trap("free or delete of a pointer that is not the heap's, or was freed before", site);
    if (!run->traced) return;
    unsettle();
    note_freed(run->storages[run->storage_at[((uintptr_t)p - run->arena) / SLOT]]);
}
}  // namespace laptop

extern "C" void laptop_shut_memory() { laptop::shuts_memory = true; }
