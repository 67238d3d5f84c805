// What cp.reduce and red.async make of numbers, and of which numbers PTX has them.
#include <math.h>
#include <string.h>

#include <algorithm>

#include "runtime_asynchronous.h"
#include "soft_float.h"

namespace laptop {

enum { ADD, MIN, MAX, INC, DEC, AND, OR };       // and xor

template <class T> static T of_whole(int how, T old, T v) {
    switch (how) {
        case ADD: return T(std::make_unsigned_t<T>(old) + std::make_unsigned_t<T>(v));
        case MIN: return std::min(old, v);
        case MAX: return std::max(old, v);
        case INC: return old >= v ? 0 : old + 1;
        case DEC: return !old || old > v ? v : old - 1;
        default: return how == AND ? old & v : how == OR ? old | v : old ^ v;
    }
}

// Of zeros the one with a sign is less; NaN is neither least nor largest.
template <class T> static T of_real(int how, T old, T v) {
    if (how == ADD) return old + v;
    if (old == v) return signbit(old) == (how == MIN) ? old : v;
    return how == MIN ? fmin(old, v) : fmax(old, v);
}
template <class Format> static uint16_t of_small(int how, uint16_t old, uint16_t v) {        // sums are rounded once, to even
    return narrow<Format>(of_real<double>(how, Format::widen(old), Format::widen(v)));
}

template <class T, T (*CHANGED)(int, T, T)> static void each(int how, char* to, const char* from, uint32_t bytes) {
    for (uint32_t at = 0; at < bytes; at += sizeof(T)) {
        T old, v;
        memcpy(&old, to + at, sizeof old), memcpy(&v, from + at, sizeof v);
        old = CHANGED(how, old, v);
        memcpy(to + at, &old, sizeof old);
    }
}

enum : uint32_t { U32 = 1 << 2, S32 = 1 << 3, U64 = 1 << 4, S64 = 1 << 5, F16 = 1 << 6, F32 = 1 << 7, F64 = 1 << 8, BF16 = 1 << 9,
                  WORDS = U32 | S32, LONGS = U64 | S64, SMALL = F16 | BF16 };

// By the manual's tables; cuda::ptx adds s64 as u64.
void must_exist(Reduction r, Reduced where, const void* site) {
    uint32_t beside = where == IN_CLUSTER ? 0 : LONGS | SMALL;
    uint32_t added = where == IN_TENSOR ? U64 | F32 | SMALL : where == IN_GLOBAL ? LONGS | F32 | F64 | SMALL : LONGS;
    uint32_t takes = r.how <= MAX ? WORDS | (r.how == ADD ? added : beside) : r.how <= DEC ? U32 : WORDS | (beside & LONGS);
    if (!(takes >> r.type & 1)) not_supported("a reduction of numbers of a type that PTX does not have it for", site);
}

void reduce(Reduction r, char* to, const char* from, uint32_t bytes) {
    switch (r.type) {
        case 2: return each<uint32_t, of_whole>(r.how, to, from, bytes);
        case 3: return each<int32_t, of_whole>(r.how, to, from, bytes);
        case 4: return each<uint64_t, of_whole>(r.how, to, from, bytes);
        case 5: return each<int64_t, of_whole>(r.how, to, from, bytes);
        case 6: return each<uint16_t, of_small<binary16>>(r.how, to, from, bytes);
        case 7: return each<float, of_real>(r.how, to, from, bytes);
        case 8: return each<double, of_real>(r.how, to, from, bytes);
        default: return each<uint16_t, of_small<bfloat16>>(r.how, to, from, bytes);
    }
}
}  // namespace laptop
