// Bytes that cudaMemcpy has brought to host memory though nobody had written them. To copy them is allowed; host code that
// uses one is a finding, as long as it still holds what cudaMalloc had put there.
#include <string.h>

#include <algorithm>

#include "programs.h"

namespace laptop {
struct Hole { uintptr_t end, from; const void* site; };  // `from`: in device memory
static std::map<uintptr_t, Hole> holes;                  // by where they begin
static std::recursive_mutex filling;
typedef std::lock_guard<std::recursive_mutex> Lock;
constexpr size_t MOST_HOLES = 4096;

static std::map<uintptr_t, Hole>::iterator first_in(uintptr_t low) {
    auto at = holes.upper_bound(low);
    return at != holes.begin() && std::prev(at)->second.end > low ? std::prev(at) : at;
}
static void fill_in(uintptr_t low, uintptr_t high) {
    for (auto at = first_in(low); at != holes.end() && at->first < high; at = first_in(low)) {
        uintptr_t start = at->first;
        Hole h = at->second;
        holes.erase(at);
        if (start < low) holes[start] = {low, h.from, h.site};
        if (h.end > high) holes[high] = {h.end, h.from + (high - start), h.site};
        if (start < low && h.end > high) return;
    }
}

void copied_out(const void* to, const void* from, size_t bytes, const void* site) {
    const uint8_t* written = device_written(from);
    Lock lock(filling);
    uintptr_t low = (uintptr_t)to;
    if (!holes.empty()) fill_in(low, low + bytes);
    if (!written || !is_sanitized()) return;
    for (const uint8_t *at = written, *end = written + bytes; holes.size() < MOST_HOLES;) {
        const uint8_t* start = (const uint8_t*)memchr(at, 0, (size_t)(end - at));
        if (!start) break;
        at = std::find_if(start, end, [](uint8_t x) { return x != 0; });
        holes[low + (size_t)(start - written)] = {low + (size_t)(at - written), (uintptr_t)from + (size_t)(start - written), site};
    }
    if (holes.empty()) return;
    unwritten_low = holes.begin()->first, unwritten_high = std::prev(holes.end())->second.end;
}

void used_unwritten(uintptr_t address, size_t size, bool writes, const void* pc) {
    Lock lock(filling);
    auto at = first_in(address);
    if (at == holes.end() || at->first >= address + size) return;
    if (writes) return fill_in(address, address + size);
    const unsigned char* now = (const unsigned char*)address;
    bool whole = size <= 8 && at->first <= address && address + size <= at->second.end;      // else a struct is copied
    if (!whole || !std::all_of(now, now + size, [](unsigned char x) { return x == 0xff; })) return;
    std::string said = "host code uses what was copied from " + element_at(at->second.from + (address - at->first));
    refused_call(said.c_str(), "never written", pc, at->second.site);
    holes.erase(at);
}
}  // namespace laptop
