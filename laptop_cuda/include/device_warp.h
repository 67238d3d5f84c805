// Shuffles, votes and atomics, on the two primitives of engine.h: a warp rendezvous and "I will update
// these bytes". A value asked of a lane that has exited or is not in the mask is undefined in CUDA; here
// it is all ones (a NaN, -1) and the sanitizer knows of it.
#pragma once

namespace laptop {
template <class T> LAPTOP_QUIET T take(const Exchange& x, int lane) {
    T value;
    if (x.present >> lane & 1) {
        ::memcpy((void*)&value, x.slot[lane], sizeof(T));
    } else {
        ::memset((void*)&value, 0xff, sizeof(T));
    }
    return value;
}
template <class T> LAPTOP_QUIET T shuffle(unsigned mask, const T& value, int source, const void* site) {
    static_assert(sizeof(T) <= 64, "a shuffle moves at most 64 bytes");
    const Exchange& x = warp_exchange(mask, &value, sizeof(T), SHUFFLE, false, site);
    if (x.present >> source & 1) return take<T>(x, source);
    T undefined;
    undefined_value((void*)&undefined, sizeof(T), source, site);
    return undefined;
}
template <class T, class F> LAPTOP_QUIET T reduce(unsigned mask, T value, F combine, const void* site) {
    const Exchange& x = warp_exchange(mask, &value, sizeof(T), REDUCE, false, site);
    bool first = true;
    T total{};
    for (int lane = 0; lane < 32; ++lane) {
        if (!(x.present >> lane & 1)) continue;
        total = first ? take<T>(x, lane) : combine(total, take<T>(x, lane));
        first = false;
    }
    return total;
}
template <class T, class F> LAPTOP_QUIET T atomic(T* p, F change, const void* site, int how = 0) {
    will_update(p, sizeof(T), site, how);
    T old = *p;
    *p = change(old);
    if (how & COMPARES && old == T() && !(*p == old)) took_lock();
    return old;
}
}  // namespace laptop

namespace laptop {
template <class T> LAPTOP_QUIET T __shfl_of(unsigned mask, T value, int source, int width, const void* site) {
    return shuffle(mask, value, (lane_id() & ~(width - 1)) | (source & (width - 1)), site);
}
template <class T>
LAPTOP_QUIET T __shfl_up_of(unsigned mask, T value, unsigned delta, int width, const void* site) {
    int lane = lane_id(), source = lane - (int)delta;
    return shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, site);
}
template <class T>
LAPTOP_QUIET T __shfl_down_of(unsigned mask, T value, unsigned delta, int width, const void* site) {
    int lane = lane_id();
    long source = (long)lane + delta;
    return shuffle(mask, value, source > (lane | (width - 1)) ? lane : (int)source, site);
}
template <class T>
LAPTOP_QUIET T __shfl_xor_of(unsigned mask, T value, int lane_mask, int width, const void* site) {
    int lane = lane_id(), source = lane ^ lane_mask;
    return shuffle(mask, value, source > (lane | (width - 1)) || source < 0 ? lane : source, site);
}
}  // namespace laptop
// Each also without a mask, as before CUDA 9; CUDA dropped these for cards from sm_70 on. Here they take the lanes that
// are at the same call together.
#define LAPTOP_SHUFFLE(name, Second)                                                                 \
    template <class T>                                                                               \
    LAPTOP_FN T name##_sync(unsigned mask, T value, Second second, int width = warpSize) {                 \
        return laptop::name##_of(mask, value, second, width, LAPTOP_SITE);                           \
    }                                                                                                \
    template <class T>                                                                               \
    LAPTOP_FN T name(T value, Second second, int width = warpSize, int line = __builtin_LINE()) {          \
        return laptop::name##_of(laptop::converged_lanes(LAPTOP_SITE, line), value, second, width, LAPTOP_SITE); \
    }
LAPTOP_SHUFFLE(__shfl, int) LAPTOP_SHUFFLE(__shfl_up, unsigned)
LAPTOP_SHUFFLE(__shfl_down, unsigned) LAPTOP_SHUFFLE(__shfl_xor, int)
#undef LAPTOP_SHUFFLE

LAPTOP_FN void __syncwarp(unsigned mask = 0xffffffffu) {
    laptop::warp_exchange(mask, nullptr, 0, laptop::SYNCWARP, true, LAPTOP_SITE);
}
LAPTOP_FN unsigned __activemask(int line = __builtin_LINE()) { return laptop::converged_lanes(LAPTOP_SITE, line); }
namespace laptop {
struct Votes {               // lanes of those that came
    unsigned yes, present;
    LAPTOP_FN bool all() const { return yes == present; }
};
LAPTOP_FN Votes ballot(unsigned mask, bool predicate, const void* site) {
    const Exchange& x = warp_exchange(mask, &predicate, 1, VOTE, false, site);
    Votes votes = {0, x.present};
    for (int lane = 0; lane < 32; ++lane) {
        if ((x.present >> lane & 1) && x.slot[lane][0]) votes.yes |= 1u << lane;
    }
    return votes;
}
// Whose value is this lane's.
template <class T> LAPTOP_FN Votes alike(unsigned mask, const T& value, const void* site) {
    const Exchange& x = warp_exchange(mask, &value, sizeof(T), MATCH, false, site);
    Votes votes = {0, x.present};
    for (int lane = 0; lane < 32; ++lane) {
        if ((x.present >> lane & 1) && take<T>(x, lane) == value) votes.yes |= 1u << lane;
    }
    return votes;
}
}  // namespace laptop
// Each also without a mask, as the shuffles above.
#define LAPTOP_VOTE(T, name, answer)                                                                 \
    LAPTOP_FN T name##_sync(unsigned mask, int predicate) {                                          \
        laptop::Votes v = laptop::ballot(mask, predicate != 0, LAPTOP_SITE);                         \
        return answer;                                                                               \
    }                                                                                                \
    LAPTOP_FN T name(int predicate, int line = __builtin_LINE()) {                                   \
        laptop::Votes v = laptop::ballot(laptop::converged_lanes(LAPTOP_SITE, line), predicate != 0, LAPTOP_SITE); \
        return answer;                                                                               \
    }
LAPTOP_VOTE(unsigned, __ballot, v.yes) LAPTOP_VOTE(int, __any, v.yes != 0) LAPTOP_VOTE(int, __all, v.all())
#undef LAPTOP_VOTE
LAPTOP_FN int __uni_sync(unsigned mask, int predicate) {
    laptop::Votes v = laptop::ballot(mask, predicate != 0, LAPTOP_SITE);
    return v.yes == 0 || v.all();
}
template <class T> LAPTOP_FN unsigned __match_any_sync(unsigned mask, T value) {
    return laptop::alike(mask, value, LAPTOP_SITE).yes;
}
template <class T> LAPTOP_FN unsigned __match_all_sync(unsigned mask, T value, int* all) {
    laptop::Votes same = laptop::alike(mask, value, LAPTOP_SITE);
    *all = same.all();
    return *all ? same.present : 0;
}

#define LAPTOP_REDUCE(name, expression)                                                      \
    template <class T>                                                                       \
    LAPTOP_FN T name(unsigned mask, T value) {                                               \
        static_assert(std::is_integral<T>::value, #name " takes an integer");                \
        return laptop::reduce(mask, value, [](T a, T b) -> T { return expression; }, LAPTOP_SITE); \
    }
LAPTOP_REDUCE(__reduce_add_sync, a + b) LAPTOP_REDUCE(__reduce_min_sync, a < b ? a : b)
LAPTOP_REDUCE(__reduce_max_sync, a > b ? a : b) LAPTOP_REDUCE(__reduce_and_sync, a & b)
LAPTOP_REDUCE(__reduce_or_sync, a | b) LAPTOP_REDUCE(__reduce_xor_sync, a ^ b)
#undef LAPTOP_REDUCE

#define LAPTOP_SCOPE(name) (name[sizeof name - 2] == 'k' ? laptop::OF_BLOCK : 0)      // _block
#define LAPTOP_ATOMIC(name, requirement, expression)                                         \
    template <class T>                                                                       \
    LAPTOP_FN T name(T* p, laptop::same_t<T> v) {                                            \
        static_assert(requirement, "CUDA has no " #name " for this type");                   \
        return laptop::atomic(p, [v](T old) LAPTOP_QUIET -> T { return expression; }, LAPTOP_SITE, LAPTOP_SCOPE(#name)); \
    }
#define LAPTOP_ATOMICS(suffix)                                                               \
    LAPTOP_ATOMIC(atomicAdd##suffix, std::is_arithmetic<T>::value, old + v)                  \
    LAPTOP_ATOMIC(atomicSub##suffix, std::is_integral<T>::value, old - v)                    \
    LAPTOP_ATOMIC(atomicMin##suffix, std::is_integral<T>::value, v < old ? v : old)          \
    LAPTOP_ATOMIC(atomicMax##suffix, std::is_integral<T>::value, v > old ? v : old)          \
    LAPTOP_ATOMIC(atomicAnd##suffix, std::is_integral<T>::value, old & v)                    \
    LAPTOP_ATOMIC(atomicOr##suffix, std::is_integral<T>::value, old | v)                     \
    LAPTOP_ATOMIC(atomicXor##suffix, std::is_integral<T>::value, old ^ v)                    \
    LAPTOP_ATOMIC(atomicExch##suffix, std::is_arithmetic<T>::value, ((void)old, v))          \
    LAPTOP_ATOMIC(atomicInc##suffix, std::is_unsigned<T>::value, old >= v ? 0 : old + 1)     \
    LAPTOP_ATOMIC(atomicDec##suffix, std::is_unsigned<T>::value, old == 0 || old > v ? v : old - 1) \
    template <class T>                                                                       \
    LAPTOP_FN T atomicCAS##suffix(T* p, laptop::same_t<T> compare, laptop::same_t<T> v) {    \
        static_assert(std::is_integral<T>::value && sizeof(T) > 1, "CUDA has no atomicCAS for this type"); \
        return laptop::atomic(p, [=](T old) LAPTOP_QUIET -> T { return old == compare ? v : old; }, LAPTOP_SITE, \
                              laptop::COMPARES | LAPTOP_SCOPE("CAS" #suffix));               \
    }
LAPTOP_ATOMICS() LAPTOP_ATOMICS(_block) LAPTOP_ATOMICS(_system)
#undef LAPTOP_ATOMICS
#undef LAPTOP_ATOMIC
#undef LAPTOP_SCOPE
