// Loops over the threads of a block, for the functions that regions/ writes.
#pragma once
#include <cuda_runtime.h>

// The start of a kernel of which Python also made a function for a whole block, which cannot have a thread's stack.
#define LAPTOP_IF_LOOPS(blocks_apart) if (laptop::loops_over_threads(blocks_apart))
#define LAPTOP_APART __attribute__((noinline))
// The function: the kernel's body from barrier to barrier, for each thread.
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

// Packs of threads that go through a region side by side: loops over the pack, in a lambda that knows how many it has.
#define LAPTOP_PACKED [&](const unsigned laptop_base, const unsigned laptop_at, const auto laptop_width) LAPTOP_INLINED
#define LAPTOP_TOGETHER [&](const unsigned laptop_at, const auto laptop_width) LAPTOP_INLINED
#define LAPTOP_INLINED __attribute__((always_inline))
#define LAPTOP_RARELY(condition) __builtin_expect_with_probability(condition, 0, 1.0)      // so that it is soon built
#define LAPTOP_EACH_PACK                                                                                    \
    for (unsigned laptop_z = 0; laptop_z < laptop_size.z; ++laptop_z)                                       \
        for (unsigned laptop_y = 0; laptop_y < laptop_size.y; ++laptop_y)                                   \
            laptop::packs(laptop_size.x, LAPTOP_PACKED
#define LAPTOP_EACH_PACK_OF_LANES                                                                           \
    if (const unsigned laptop_lanes = min(laptop_warp, laptop_threads - laptop_first); true)                \
        laptop::packs(laptop_lanes, LAPTOP_PACKED
#define LAPTOP_OF_PACK for (unsigned laptop_k = laptop_at; laptop_k < laptop_at + laptop_width; ++laptop_k)
#define LAPTOP_EACH_OF_PACK                                                                                 \
    LAPTOP_OF_PACK                                                                                          \
        if (const laptop::Index threadIdx = {laptop_base + laptop_k, laptop_y, laptop_z}; true)             \
            if (const size_t laptop_i =                                                                     \
                    (size_t)(laptop_z * laptop_size.y + laptop_y) * laptop_size.x + threadIdx.x; true)
#define LAPTOP_EACH_LANE_OF_PACK                                                                            \
    LAPTOP_OF_PACK                                                                                          \
        if (const unsigned laptop_lane = laptop_base + laptop_k; true)                                      \
            if (const size_t laptop_i = laptop_first + laptop_lane; true)                                   \
                if (const laptop::Index threadIdx = laptop::index_of((unsigned)laptop_i, laptop_size); true)

namespace laptop {
constexpr unsigned PACK = 4;
template <unsigned N> using Width = std::integral_constant<unsigned, N>;
// All of n threads: whole packs, then what is left one by one.
template <class F> LAPTOP_FN LAPTOP_INLINED void packs(unsigned n, const F& f) {
    unsigned first = 0;
    for (; n - first >= PACK; first += PACK) f(first, 0, Width<PACK>());
    for (; LAPTOP_RARELY(first < n); ++first) f(first, 0, Width<1>());
}
// An `if` of those from `at` on: all of them at once, or each that is to go.
template <unsigned N, class F>
LAPTOP_FN LAPTOP_INLINED void together(const bool (&go)[PACK], unsigned at, Width<N> width, const F& f) {
    bool all = true;
    for (unsigned k = at; k < at + N; ++k) all &= go[k];
    if (!LAPTOP_RARELY(!all)) return f(at, width);
    if constexpr (N > 1) {
        for (unsigned k = at; k < at + N; ++k) {
            if (go[k]) f(k, Width<1>());
        }
    }
}
// Whether several threads of the machine may copy a kernel's arguments at once.
template <class... P> LAPTOP_FN constexpr bool trivial(const P&...) {
    return (std::is_trivially_copy_constructible<P>::value && ...);
}
LAPTOP_FN Index own_block() {
    const uint32_t* at = this_block();
    return {at[0], at[1], at[2]};
}
LAPTOP_FN Index index_of(unsigned i, const Index& size) {
    if (size.x > i) return {i, 0, 0};
    return {i % size.x, i / size.x % size.y, i / size.x / size.y};
}

// A lane gives its value; after all have, each takes one, undefined_value's of a lane that is not there.
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
