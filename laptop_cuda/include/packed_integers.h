// Two or four integers in a word (__vadd4), sums of products, the n-th bit set. Included where a source names one.
#pragma once
#include "cuda_runtime.h"

namespace laptop {
template <class Lane, class F> LAPTOP_QUIET unsigned packed(unsigned a, unsigned b, F f) {
    constexpr int BITS = 8 * sizeof(Lane);
    unsigned word = 0;
    for (int at = 0; at < 32; at += BITS) {
        unsigned result = (unsigned)f((int)(Lane)(a >> at), (int)(Lane)(b >> at));
        word |= (result & ((1u << BITS) - 1)) << at;
    }
    return word;
}
template <class Lane> LAPTOP_QUIET int saturated(int x) {
    constexpr int lowest = std::numeric_limits<Lane>::min(), highest = std::numeric_limits<Lane>::max();
    return x < lowest ? lowest : x > highest ? highest : x;
}
template <class Lane, class F> LAPTOP_QUIET unsigned sum_of_packed(unsigned a, unsigned b, F f) {
    unsigned sum = 0;
    for (int at = 0; at < 32; at += 8 * sizeof(Lane))
        sum += (unsigned)f((int)(Lane)(a >> at), (int)(Lane)(b >> at));
    return sum;
}
}  // namespace laptop

// `x` and `y` are the two lanes in `expression`, `Lane` their type; `how` is packed or sum_of_packed.
#define LAPTOP_PACKED_OF(name, Lane_, how, expression)                                                     \
    LAPTOP_FN unsigned name(unsigned a, unsigned b) {                                                      \
        typedef Lane_ Lane;                                                                                \
        return laptop::how<Lane>(a, b, [](int x, int y) LAPTOP_QUIET { return (int)(expression); });       \
    }
#define LAPTOP_PACKED_BOTH(name, narrow, wide, how, expression)      \
    LAPTOP_PACKED_OF(name##4, narrow, how, expression)               \
    LAPTOP_PACKED_OF(name##2, wide, how, expression)
#define LAPTOP_PACKED_S(name, expression) LAPTOP_PACKED_BOTH(name, int8_t, int16_t, packed, expression)
#define LAPTOP_PACKED_U(name, expression) LAPTOP_PACKED_BOTH(name, uint8_t, uint16_t, packed, expression)
LAPTOP_PACKED_U(__vadd, x + y) LAPTOP_PACKED_U(__vsub, x - y)
LAPTOP_PACKED_S(__vaddss, laptop::saturated<Lane>(x + y))
LAPTOP_PACKED_U(__vaddus, laptop::saturated<Lane>(x + y))
LAPTOP_PACKED_S(__vsubss, laptop::saturated<Lane>(x - y))
LAPTOP_PACKED_U(__vsubus, laptop::saturated<Lane>(x - y))
LAPTOP_PACKED_S(__vavgs, (x + y + (x + y >= 0)) >> 1)
LAPTOP_PACKED_U(__vavgu, (x + y + 1) >> 1) LAPTOP_PACKED_U(__vhaddu, (x + y) >> 1)
LAPTOP_PACKED_S(__vmaxs, x > y ? x : y)
LAPTOP_PACKED_U(__vmaxu, x > y ? x : y)
LAPTOP_PACKED_S(__vmins, x < y ? x : y)
LAPTOP_PACKED_U(__vminu, x < y ? x : y)
LAPTOP_PACKED_S(__vabsdiffs, x > y ? x - y : y - x)
LAPTOP_PACKED_U(__vabsdiffu, x > y ? x - y : y - x)
LAPTOP_PACKED_BOTH(__vsads, int8_t, int16_t, sum_of_packed, x > y ? x - y : y - x)
LAPTOP_PACKED_BOTH(__vsadu, uint8_t, uint16_t, sum_of_packed, x > y ? x - y : y - x)
#define LAPTOP_COMPARED(word, sign, how)        \
    sign(__vcmp##word, x how y ? -1 : 0)        \
    sign(__vset##word, x how y)
LAPTOP_COMPARED(eq, LAPTOP_PACKED_U, ==) LAPTOP_COMPARED(ne, LAPTOP_PACKED_U, !=)
LAPTOP_COMPARED(gts, LAPTOP_PACKED_S, >) LAPTOP_COMPARED(ges, LAPTOP_PACKED_S, >=)
LAPTOP_COMPARED(lts, LAPTOP_PACKED_S, <) LAPTOP_COMPARED(les, LAPTOP_PACKED_S, <=)
LAPTOP_COMPARED(gtu, LAPTOP_PACKED_U, >) LAPTOP_COMPARED(geu, LAPTOP_PACKED_U, >=)
LAPTOP_COMPARED(ltu, LAPTOP_PACKED_U, <) LAPTOP_COMPARED(leu, LAPTOP_PACKED_U, <=)
#undef LAPTOP_COMPARED
#undef LAPTOP_PACKED_U
#undef LAPTOP_PACKED_S
#undef LAPTOP_PACKED_BOTH
#undef LAPTOP_PACKED_OF
LAPTOP_FN unsigned __vabs4(unsigned a) { return __vabsdiffs4(a, 0); }
LAPTOP_FN unsigned __vabs2(unsigned a) { return __vabsdiffs2(a, 0); }
LAPTOP_FN unsigned __vabsss4(unsigned a) { return __vmaxs4(a, __vsubss4(0, a)); }
LAPTOP_FN unsigned __vabsss2(unsigned a) { return __vmaxs2(a, __vsubss2(0, a)); }
LAPTOP_FN unsigned __vneg4(unsigned a) { return __vsub4(0, a); }
LAPTOP_FN unsigned __vneg2(unsigned a) { return __vsub2(0, a); }
LAPTOP_FN unsigned __vnegss4(unsigned a) { return __vsubss4(0, a); }
LAPTOP_FN unsigned __vnegss2(unsigned a) { return __vsubss2(0, a); }

// Numbers of 16 bits with the lower or the upper two numbers of 8 bits.
#define LAPTOP_DOT2(Whole, Wide, Narrow, Wide2, Narrow4)                                                  \
    LAPTOP_FN Whole __dp2a_lo(Whole a, Whole b, Whole c) {                                                      \
        for (int i = 0; i < 2; ++i) c += (Whole)(Wide)(a >> 16 * i) * (Whole)(Narrow)(b >> 8 * i);              \
        return c;                                                                                               \
    }                                                                                                           \
    LAPTOP_FN Whole __dp2a_hi(Whole a, Whole b, Whole c) { return __dp2a_lo(a, b >> 16, c); }                   \
    LAPTOP_FN Whole __dp2a_lo(Wide2 a, Narrow4 b, Whole c) { return c + (Whole)a.x * b.x + (Whole)a.y * b.y; }  \
    LAPTOP_FN Whole __dp2a_hi(Wide2 a, Narrow4 b, Whole c) { return c + (Whole)a.x * b.z + (Whole)a.y * b.w; }  \
    LAPTOP_FN Whole __dp4a(Narrow4 a, Narrow4 b, Whole c) {                                                     \
        return c + (Whole)a.x * b.x + (Whole)a.y * b.y + (Whole)a.z * b.z + (Whole)a.w * b.w;                   \
    }
LAPTOP_DOT2(int, short, signed char, short2, char4)
LAPTOP_DOT2(unsigned, unsigned short, unsigned char, ushort2, uchar4)
#undef LAPTOP_DOT2

// The place of the n-th bit that is set, from `base` on upwards, or for n < 0 downwards; bit `base` itself for n = 0.
LAPTOP_FN unsigned __fns(unsigned mask, unsigned base, int n) {
    if (n == 0) return base < 32 && mask >> base & 1 ? base : ~0u;
    int left = n < 0 ? -n : n;
    for (unsigned at = base; at < 32; at += n < 0 ? -1 : 1) {
        left -= mask >> at & 1;
        if (left == 0) return at;
    }
    return ~0u;
}
