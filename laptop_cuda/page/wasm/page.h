// What a build for the page knows of each source: made by page/hooked.py.
#pragma once
#include <stdint.h>

#include <string>
#include <vector>

struct laptop_result;
namespace laptop {

struct PageSymbol { const void* low; uint32_t bytes; const char* name; uint32_t constant; };
struct PageSource {
    void (*const* entries)(void**);
    const uint32_t* lines;       // by the number of a call: file << 24 | line
    uint32_t n_lines;
    const PageSymbol* symbols;
    uint32_t n_symbols;
};
// Of a module, one behind the other. (Weak: none is there where the runtime is linked alone.)
extern "C" __attribute__((weak)) const PageSource __start_laptop_sources[];
extern const PageSource* page_source;    // of the launch
inline uint32_t place_of(uint32_t pc) { return pc < page_source->n_lines ? page_source->lines[pc] : 0; }
inline uint32_t number(const uint32_t (&at)[3], const uint32_t (&size)[3]) { return at[0] + size[0] * (at[1] + size[1] * at[2]); }

// JSON
using Fields = std::vector<std::pair<const char*, std::string>>;
std::string n(int64_t), quoted(const char*), list(const std::vector<std::string>&), object(const Fields&);
std::string replay_of(const laptop_result&, uint64_t most_events);
}  // namespace laptop
