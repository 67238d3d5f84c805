// Loops over the threads of a block, for the functions that regions.py writes.
#pragma once
#include <cuda_runtime.h>

// A kernel that Python turned into a function for a whole block: its body from barrier to barrier, for each thread.
// A thread's variables that outlive a barrier are in arrays over the threads, on a stack of 16 MiB.
#define LAPTOP_EACH_THREAD                                                                                  \
    for (unsigned laptop_z = 0; laptop_z < laptop_size.z; ++laptop_z)                                       \
        for (unsigned laptop_y = 0; laptop_y < laptop_size.y; ++laptop_y)                                   \
            for (unsigned laptop_x = 0; laptop_x < laptop_size.x; ++laptop_x)                               \
                if (const laptop::Index threadIdx = {laptop_x, laptop_y, laptop_z}; true)                   \
                    if (const size_t laptop_i = (size_t)(laptop_z * laptop_size.y + laptop_y) * laptop_size.x + laptop_x; true)
// The type of a thread's copy of a parameter; unary plus takes __restrict__ from a pointer.
#define LAPTOP_COPY_OF(n)                                                                                   \
    std::conditional_t<std::is_arithmetic<std::remove_cv_t<decltype(n)>>::value, std::remove_cv_t<decltype(n)>, \
                       std::remove_reference_t<decltype(+n)>>
// What an array over the threads may hold; float4 copies itself, but nothing else must happen at its beginning or end.
#define LAPTOP_FITS(T)                                                                                      \
    static_assert(sizeof(T) <= 512 && std::is_trivially_destructible<T>::value                              \
                  && std::is_trivially_default_constructible<T>::value)

// Around exchanges, warp by warp. Only machines that are counted have warps of another size.
#define LAPTOP_WARPS \
    constexpr unsigned laptop_warp = 32; const unsigned laptop_threads = laptop_size.x * laptop_size.y * laptop_size.z
#define LAPTOP_EACH_WARP for (unsigned laptop_first = 0; laptop_first < laptop_threads; laptop_first += laptop_warp)
#define LAPTOP_EACH_LANE                                                                                    \
    for (unsigned laptop_lane = 0, laptop_lanes = min(laptop_warp, laptop_threads - laptop_first);          \
         laptop_lane < laptop_lanes; ++laptop_lane)                                                         \
        if (const size_t laptop_i = laptop_first + laptop_lane; true)                                       \
            if (const laptop::Index threadIdx = laptop::index_of((unsigned)laptop_i, laptop_size); true)

namespace laptop {
LAPTOP_FN Index index_of(unsigned i, const Index& size) {
    if (size.x > i) return {i, 0, 0};
    return {i % size.x, i / size.x % size.y, i / size.x / size.y};
}

// A lane gives its value; after all have, each takes one. A lane that is not there gives what the runtime's
// undefined_value gives in plain runs.
template <class T> LAPTOP_FN void laptop_give(unsigned char* given, unsigned lane, T value) {
    static_assert(sizeof(T) <= 64, "a shuffle moves at most 64 bytes");
    ((T*)given)[lane] = value;
}
template <class T> LAPTOP_FN T taken(const unsigned char* given, unsigned lanes, unsigned source) {
    if (source < lanes) return ((const T*)given)[source];
    T undefined;
    ::memset((void*)&undefined, 0xff, sizeof(T));
    return undefined;
}
template <class T>
LAPTOP_FN T laptop_take(const unsigned char* given, int lane, unsigned lanes, int source, int width) {
    return taken<T>(given, lanes, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
LAPTOP_FN T laptop_take_up(const unsigned char* given, int lane, unsigned lanes, unsigned delta, int width) {
    int source = lane - (int)delta;
    return taken<T>(given, lanes, source < (lane & ~(width - 1)) ? lane : source);
}
template <class T>
LAPTOP_FN T laptop_take_down(const unsigned char* given, int lane, unsigned lanes, unsigned delta, int width) {
    long source = (long)lane + delta;
    return taken<T>(given, lanes, source > (lane | (width - 1)) ? lane : (int)source);
}
template <class T>
LAPTOP_FN T laptop_take_xor(const unsigned char* given, int lane, unsigned lanes, int lane_mask, int width) {
    int source = lane ^ lane_mask;
    return taken<T>(given, lanes, source > (lane | (width - 1)) || source < 0 ? lane : source);
}
}  // namespace laptop
