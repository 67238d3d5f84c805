// cooperative_groups::memcpy_async: the group copies together, and nobody may touch the destination before wait().
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class Group>
LAPTOP_FN void laptop_copy(const Group& group, void* to, const void* from, size_t bytes, const void* site) {
    uintptr_t both = uintptr_t(to) | uintptr_t(from) | bytes;
    size_t piece = both % 16 == 0 ? 16 : both % 8 == 0 ? 8 : both % 4 == 0 ? 4 : 1;
    for (size_t at = group.thread_rank() * piece; at < bytes; at += group.size() * piece) {
        laptop::async_copy((char*)to + at, (const char*)from + at, piece, site);
        ::__builtin_memcpy((char*)to + at, (const char*)from + at, piece);
    }
    laptop::async_commit();
}
template <class Group, class To, class From>
LAPTOP_FN void memcpy_async(const Group& group, To* to, const From* from, size_t bytes) {
    laptop_copy(group, to, from, bytes, LAPTOP_SITE);
}
template <class Group>
LAPTOP_FN void wait(const Group& group) {
    laptop::async_wait(0);
    if (unsigned lanes = group.laptop_lanes())
        laptop::warp_exchange(lanes, nullptr, 0, laptop::SYNCWARP, true, LAPTOP_SITE);
    else laptop::block_barrier(false, LAPTOP_SITE);
}
template <unsigned Left, class Group>
LAPTOP_FN void wait_prior(const Group& group) {
    laptop::async_wait(Left);
    if (unsigned lanes = group.laptop_lanes())
        laptop::warp_exchange(lanes, nullptr, 0, laptop::SYNCWARP, true, LAPTOP_SITE);
    else laptop::block_barrier(false, LAPTOP_SITE);
}

}  // namespace cooperative_groups
