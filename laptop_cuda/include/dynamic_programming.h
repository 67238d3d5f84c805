// Largest and smallest of sums and of threes, in one word or in two halves of it: __viaddmax_s32 and its kin. Sums wrap
// around. Included where a source names one of them.
#pragma once
#include <cstdint>

#include "cuda_runtime.h"

namespace laptop {
// The same for the only lane of a word, or for both halves.
template <class Lane, class F> LAPTOP_QUIET unsigned in_lanes(unsigned a, unsigned b, unsigned c, F f) {
    constexpr int BITS = 8 * sizeof(Lane);
    unsigned long long word = 0;
    for (int at = 0; at < 32; at += BITS) {
        auto result = (std::make_unsigned_t<Lane>)f((Lane)(a >> at), (Lane)(b >> at), (Lane)(c >> at));
        word |= (unsigned long long)result << at;
    }
    return (unsigned)word;
}
template <class Lane> LAPTOP_QUIET Lane larger(Lane x, Lane y) { return x > y ? x : y; }
template <class Lane> LAPTOP_QUIET Lane smaller(Lane x, Lane y) { return x < y ? x : y; }
template <class Lane> LAPTOP_QUIET Lane sum(Lane x, Lane y) { return (Lane)((unsigned)x + (unsigned)y); }
}  // namespace laptop

#define LAPTOP_OF_THREE(name, Word, Lane_, expression)                                                                  \
    LAPTOP_FN Word name(Word a, Word b, Word c) {                                                                       \
        using namespace laptop;                                                                                         \
        typedef Lane_ Lane;                                                                                             \
        return (Word)in_lanes<Lane>(a, b, c, [](Lane x, Lane y, Lane z) LAPTOP_QUIET -> Lane { return expression; });    \
    }
#define LAPTOP_OF_TWO(name, Word, Lane_, expression)                                                                    \
    LAPTOP_FN Word name(Word a, Word b) {                                                                               \
        using namespace laptop;                                                                                         \
        typedef Lane_ Lane;                                                                                             \
        return (Word)in_lanes<Lane>(a, b, 0, [](Lane x, Lane y, Lane) LAPTOP_QUIET -> Lane { return expression; });      \
    }
#define LAPTOP_OF_BOTH_SIGNS(name, expression)                          \
    LAPTOP_OF_THREE(name##_s32, int, int32_t, expression)               \
    LAPTOP_OF_THREE(name##_u32, unsigned, uint32_t, expression)         \
    LAPTOP_OF_THREE(name##_s16x2, unsigned, int16_t, expression)        \
    LAPTOP_OF_THREE(name##_u16x2, unsigned, uint16_t, expression)       \
    LAPTOP_OF_THREE(name##_s32_relu, int, int32_t, larger<Lane>(expression, 0))         \
    LAPTOP_OF_THREE(name##_s16x2_relu, unsigned, int16_t, larger<Lane>(expression, 0))
LAPTOP_OF_BOTH_SIGNS(__viaddmax, larger(sum(x, y), z)) LAPTOP_OF_BOTH_SIGNS(__viaddmin, smaller(sum(x, y), z))
LAPTOP_OF_BOTH_SIGNS(__vimax3, larger(larger(x, y), z))
LAPTOP_OF_BOTH_SIGNS(__vimin3, smaller(smaller(x, y), z))
LAPTOP_OF_TWO(__vimax_s32_relu, int, int32_t, larger<Lane>(larger(x, y), 0))
LAPTOP_OF_TWO(__vimin_s32_relu, int, int32_t, larger<Lane>(smaller(x, y), 0))
LAPTOP_OF_TWO(__vimax_s16x2_relu, unsigned, int16_t, larger<Lane>(larger(x, y), 0))
LAPTOP_OF_TWO(__vimin_s16x2_relu, unsigned, int16_t, larger<Lane>(smaller(x, y), 0))

// The same of two, with whether the first is the result; of halves the upper one's answer comes first.
#define LAPTOP_WITH_PLACE(name, Word, Half, how, choose)                                    \
    LAPTOP_FN Word name##32(Word a, Word b, bool* first) {                                  \
        *first = a how b;                                                                   \
        return laptop::choose(a, b);                                                        \
    }                                                                                       \
    LAPTOP_FN unsigned name##16x2(unsigned a, unsigned b, bool* high, bool* low) {          \
        *high = (Half)(a >> 16) how (Half)(b >> 16);                                        \
        *low = (Half)a how (Half)b;                                                         \
        return (*high ? a : b) & 0xffff0000u | (*low ? a : b) & 0xffffu;                    \
    }
LAPTOP_WITH_PLACE(__vibmax_s, int, int16_t, >=, larger)
LAPTOP_WITH_PLACE(__vibmax_u, unsigned, uint16_t, >=, larger)
LAPTOP_WITH_PLACE(__vibmin_s, int, int16_t, <=, smaller)
LAPTOP_WITH_PLACE(__vibmin_u, unsigned, uint16_t, <=, smaller)
#undef LAPTOP_WITH_PLACE
#undef LAPTOP_OF_BOTH_SIGNS
#undef LAPTOP_OF_TWO
#undef LAPTOP_OF_THREE
