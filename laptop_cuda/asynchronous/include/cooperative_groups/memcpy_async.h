// cooperative_groups::memcpy_async: the group copies together, and nobody may touch the destination before wait().
#pragma once
#include <cooperative_groups.h>
#include <cuda/laptop_scopes.h>

namespace cooperative_groups {

template <class Group, class To, class From>
LAPTOP_FN void memcpy_async(const Group& group, To* to, const From* from, size_t bytes) {
    laptop::copy_in_turns(to, from, bytes, group.thread_rank(), group.size(), LAPTOP_SITE, nullptr);
    laptop::async_commit();
}
// From and to arrays of so many elements: the smaller number is copied.
template <class Group, class T>
LAPTOP_FN void memcpy_async(const Group& group, T* to, size_t room, const T* from, size_t count) {
    size_t bytes = (room < count ? room : count) * sizeof(T);
    laptop::copy_in_turns(to, from, bytes, group.thread_rank(), group.size(), LAPTOP_SITE, nullptr);
    laptop::async_commit();
}
template <class Group> LAPTOP_FN void wait(const Group& group) {
    laptop::async_wait(0);
    group.laptop_wait(LAPTOP_SITE);
}
template <unsigned Left, class Group> LAPTOP_FN void wait_prior(const Group& group) {
    laptop::async_wait(Left);
    group.laptop_wait(LAPTOP_SITE);
}
}  // namespace cooperative_groups
