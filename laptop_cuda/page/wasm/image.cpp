// The variables of a source, from the table beside it. Its code has no addresses: numbers of calls stand for them.
#include <algorithm>

#include "page.h"
#include "runtime.h"

extern "C" __attribute__((weak)) char __start_laptop_kernels, __stop_laptop_kernels;      // where there are variables

namespace laptop {

const PageSource* page_source = nullptr;

void read_symbols() {
    if (!run->symbols.empty()) return;
    const PageSource& source = *page_source;
    run->code = LAPTOP_PAGE_CODE;
    run->code_high = run->code + source.n_lines;
    run->image_low = (uintptr_t)&__start_laptop_kernels;
    run->image_high = (uintptr_t)&__stop_laptop_kernels;
    for (uint32_t i = 0; i < source.n_symbols; ++i) {
        const PageSymbol& s = source.symbols[i];
        Symbol symbol = {};
        symbol.low = (uintptr_t)s.low, symbol.bytes = s.bytes, symbol.name = s.name;
        symbol.constant = s.constant, symbol.writable = !s.constant;
        symbol.region.space = LAPTOP_IN_MODULE, symbol.region.constant = symbol.constant;
        symbol.region.low = symbol.low, symbol.region.bytes = symbol.bytes;
        run->symbols.push_back(symbol);
    }
    std::sort(run->symbols.begin(), run->symbols.end(), [](const Symbol& a, const Symbol& b) { return a.low < b.low; });
}
}  // namespace laptop
