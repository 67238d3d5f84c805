// Inline PTX on integers that few sources name: the carry of big numbers, sums of products, and places of
// bits and bytes. Included where a source names one of them.
#pragma once
#include "ptx.h"

namespace laptop {
namespace ptx {
// `in`: the carry of an earlier instruction is added, or the borrow subtracted; `out`: this one's is kept.
template <class T> LAPTOP_FN T add_with(T a, T b, bool in, bool out) {
    typedef std::make_unsigned_t<T> U;
    bool& carry = laptop::carry_flag();
    U sum = U(a) + U(b), total = sum + (in && carry);
    if (out) carry = sum < U(a) || total < sum;
    return T(total);
}
template <class T> LAPTOP_FN T sub_with(T a, T b, bool in, bool out) {
    typedef std::make_unsigned_t<T> U;
    bool& borrow = laptop::carry_flag();
    U before = in && borrow, rest = U(a) - U(b);
    if (out) borrow = U(a) < U(b) || rest < before;
    return T(rest - before);
}
template <class T> LAPTOP_FN T mad_with(T a, T b, T c, bool upper, bool in, bool out) {
    return add_with(upper ? mul_hi(a, b) : mul(a, b), c, in, out);
}

// c and the products of the fields of a with those of b from bit `start` on
template <class A, class B> LAPTOP_FN uint32_t dot(uint32_t a, uint32_t b, uint32_t c, int start) {
    constexpr int WIDE = 8 * sizeof(A), NARROW = 8 * sizeof(B);
    for (int i = 0; i < 32 / WIDE; ++i) c += uint32_t(int(A(a >> WIDE * i)) * int(B(b >> (start + NARROW * i))));
    return c;
}

LAPTOP_FN uint32_t shift_amount(uint32_t found, int bits) { return found == ~0u ? found : bits - 1 - found; }
// The four places that a mode of prmt chooses
LAPTOP_FN uint32_t selector(int mode, uint32_t c) {
    c &= 3;
    constexpr uint32_t TABLE[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
        {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    return TABLE[mode][c];
}
}  // namespace ptx
}  // namespace laptop
