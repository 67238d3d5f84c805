// Host code and memory: what it opens to kernels, and where it reads or writes device memory, which ends a program on a
// card. The traced build has hooks in host code too: each place that does so is told once, and the program goes on.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include <set>

#include "programs.h"

namespace laptop {

// Memory of the host that kernels may use
// What cudaHostRegister has opened to kernels, each start with its end. What they do there is let through: it has no
// guards, and the host writes to it unseen.
static std::map<uintptr_t, uintptr_t> registered;
static std::mutex registering;
typedef std::lock_guard<std::mutex> Registering;

bool host_register(void* p, size_t bytes) {
    Busy busy;
    Registering now(registering);
    uintptr_t low = (uintptr_t)p, high = low + bytes;
    auto after = registered.lower_bound(low);
    if (after != registered.end() && after->first < high) return false;
    if (after != registered.begin() && std::prev(after)->second > low) return false;
    registered[low] = high;
    return true;
}

bool host_unregister(void* p) {
    Busy busy;
    Registering now(registering);
    return registered.erase((uintptr_t)p);
}

bool is_registered(const void* p, size_t bytes) {
    Registering now(registering);
    auto after = registered.upper_bound((uintptr_t)p);
    return after != registered.begin() && (uintptr_t)p + bytes <= std::prev(after)->second;
}

// What malloc has given the program, each start with its size.
static std::map<uintptr_t, size_t> given;
static void* give(void* p, size_t bytes) {
    Registering now(registering);
    if (p) given[(uintptr_t)p] = bytes;
    return p;
}
static void* take_back(void* p) {
    Registering now(registering);
    given.erase((uintptr_t)p);
    return p;
}
bool within_malloc(const void* p, size_t bytes) {
    Registering now(registering);
    auto after = given.upper_bound((uintptr_t)p);
    if (after == given.begin()) return true;
    size_t at = (uintptr_t)p - std::prev(after)->first, all = std::prev(after)->second;
    return at >= all || bytes <= all - at;
}

const void* program_base = nullptr;
static __thread int as_device __attribute__((tls_model("initial-exec"))) = 0;
// A kernel that fails would not take its own away.
AsDevice::AsDevice(bool is_launch) : is_launch(is_launch) {
    if (current || as_device++) return;
    order(Order::HOST_AWAITS_ALL);       // the algorithms of the headers do
    if (shuts_memory) host_waits();
}
AsDevice::~AsDevice() {
    if (!current && --as_device == 0 && shuts_memory) host_goes_on(is_launch ? Event::LAUNCHED : Event::COPIED);
}
void synchronised() { if (!current && !as_device && shuts_memory) host_goes_on(Event::SYNCHRONISED); }

// An access in a function of the standard library is one of the line that called it.
static _Unwind_Reason_Code add_caller(_Unwind_Context* context, void* to) {
    std::string& offsets = *(std::string*)to;
    int before = 0;              // the instruction, as in a function that a signal interrupted
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    Dl_info info;
    if (!dladdr((void*)pc, &info) || info.dli_fbase != program_base) return _URC_NO_REASON;
    offsets += std::to_string(pc + !!before - (uintptr_t)program_base) + " ";
    return offsets.size() < 500 ? _URC_NO_REASON : _URC_END_OF_STACK;
}
std::string callers() {
    std::string offsets;
    _Unwind_Backtrace(add_caller, &offsets);
    return offsets;
}

void touched_by_host(uintptr_t address, size_t size, int action, const void* pc) {
    static std::recursive_mutex telling;
    static std::set<const void*> told;
    constexpr size_t MOST = 100;
    laptop_memory memory;
    laptop_error e = {};
    if (!size || as_device || !is_whole_program()) return;
    bool relaxed = action & RELAXED || action == 2;          // beside what a kernel does meanwhile that is no race
    action &= ~RELAXED;
    bool outside = address - heap_base >= heap_used;
    if (outside) used_unwritten(address, size, action != 0, pc);
    if (!closed_to_host(address, size, e, memory)) return relaxed || outside ? void() : used_by_host(address, size, action != 0, pc);
    std::lock_guard<std::recursive_mutex> lock(telling);
    bool writes = action == 1 || action == 2;
    if (writes && !*e.reason) host_wrote((void*)address, size);      // no second finding in the kernel that reads it
    if (told.size() >= MOST || !told.insert(pc).second) return;
    std::string from = callers(), name = memory.name;
    memory.name = name.c_str();
    e.kind = "host access";
    e.detail = from.c_str();
    e.size = (uint32_t)size;
    e.who.action = action;
    laptop_launch none = {};
    none.kernel = "host code";
    laptop_result result = {};
    result.error = e;
    result.memories = &memory;
    result.n_memories = 1;
    result.printed = "";
    tell(&none, &result);
}

// The strings that a format follows: %p asks for no more than the pointer.
static void host_prints_strings(const char* format, const char* const* strings, size_t n, const void* site) {
    size_t argument = 0;
    for (const char* p = format; (p = strchr(p, '%')); ++p) {
        for (++p; *p && strchr("0123456789.*+- #'hlLqjzt", *p); ++p) argument += *p == '*';
        if (!*p) return;
        if (*p == '%') continue;
        if (*p == 's' && argument < n && strings[argument]) host_touches((uintptr_t)strings[argument], 1, 0, site);
        ++argument;
    }
}

static const bool watches = (seams.is_registered = is_registered, seams.touched_by_host = touched_by_host,
                             seams.host_sees = [](uintptr_t p) { return place_of((void*)p, 1) == Place::BOTH; },
                             seams.host_prints = host_prints_strings, true);
}  // namespace laptop

// The linker puts these before them in a traced program: no hook sees them, and the library's copies call them.
#define PC __builtin_return_address(0)
static void host_moves(void* to, const void* from, size_t n, const void* pc) {
    if (laptop::current) return;
    laptop::host_touches((uintptr_t)from, n, 0, pc);
    laptop::host_touches((uintptr_t)to, n, 1, pc);
}
extern "C" {
void* __wrap_memmove(void* to, const void* from, size_t n) {
    host_moves(to, from, n, PC);
    return memmove(to, from, n);
}
void* __wrap_memcpy(void* to, const void* from, size_t n) {
    host_moves(to, from, n, PC);
    return memcpy(to, from, n);
}
void* __wrap_memset(void* to, int value, size_t n) {
    if (!laptop::current) laptop::host_touches((uintptr_t)to, n, 1, PC);
    return memset(to, value, n);
}
size_t __wrap_fwrite(const void* from, size_t size, size_t n, FILE* to) {
    laptop::host_touches((uintptr_t)from, size * n, 0, PC);
    return fwrite(from, size, n, to);
}
size_t __wrap_fread(void* to, size_t size, size_t n, FILE* from) {
    laptop::host_touches((uintptr_t)to, size * n, 1, PC);
    return fread(to, size, n, from);
}
size_t __wrap_strlen(const char* s) {
    if (!laptop::current) laptop::host_touches((uintptr_t)s, 1, 0, PC);
    return strlen(s);
}
// Words that nobody would store, so that a copy of what was never set is known for one.
void* __wrap_malloc(size_t n) {
    constexpr size_t MOST = 64 << 20;
    void* p = malloc(n);
    for (size_t i = 0; p && n <= MOST && i + 4 <= n; i += 4) *(uint32_t*)((char*)p + i) = laptop::NEVER_SET;
    return laptop::give(p, n);
}
void* __wrap_calloc(size_t n, size_t size) { return laptop::give(calloc(n, size), n * size); }
void* __wrap_realloc(void* p, size_t n) { return laptop::give(realloc(laptop::take_back(p), n), n); }
void __wrap_free(void* p) {
    laptop_error e;
    laptop_memory m;
    bool on_heap = (uintptr_t)p - laptop::heap_base < laptop::heap_used;
    if (!on_heap || !laptop::closed_to_host((uintptr_t)p, 1, e, m)) return free(laptop::take_back(p));
    laptop::touched_by_host((uintptr_t)p, 1, laptop::FREES, PC);
}
}
