// What a build for the page knows of each source: made by page/hooked.py.
#pragma once
#include <stdint.h>

namespace laptop {

struct PageSymbol { const void* low; uint32_t bytes; const char* name; uint32_t constant; };
struct PageSource {
    void (*const* entries)(void**);
    const uint32_t* lines;       // by the number of a call: file << 24 | line
    uint32_t n_lines;
    const PageSymbol* symbols;
    uint32_t n_symbols;
};
extern "C" const PageSource* const laptop_sources[];
extern const PageSource* page_source;    // of the launch
}  // namespace laptop
