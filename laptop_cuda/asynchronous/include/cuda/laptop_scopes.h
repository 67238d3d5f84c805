// What <cuda/atomic>, <cuda/barrier> and <cuda/pipeline> share.
#pragma once
#include <cuda_runtime.h>

namespace cuda {
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
template <size_t Alignment> struct aligned_size_t {
    size_t value;
    LAPTOP_FN constexpr explicit aligned_size_t(size_t n) : value(n) {}
    LAPTOP_FN constexpr operator size_t() const { return value; }
};
namespace std {
using namespace ::std;
}
}  // namespace cuda

namespace laptop {
// A group copies together: its threads take pieces as wide as the addresses allow.
LAPTOP_FN void copy_in_turns(void* to, const void* from, size_t bytes, size_t rank, size_t size, const void* site,
                             const void* barrier) {
    uintptr_t both = uintptr_t(to) | uintptr_t(from) | bytes;
    size_t piece = both % 16 == 0 ? 16 : both % 8 == 0 ? 8 : both % 4 == 0 ? 4 : 1;
    for (size_t at = rank * piece; at < bytes; at += size * piece) {
        if (is_shared((char*)to + at)) {
            async_copy((char*)to + at, (const char*)from + at, piece, site, barrier);
        } else if (LAPTOP_TRACED) {
            will_read((const char*)from + at, piece, site), will_write((char*)to + at, piece, site);
        }
        copy_unseen((char*)to + at, (const char*)from + at, piece);
    }
}
}  // namespace laptop
