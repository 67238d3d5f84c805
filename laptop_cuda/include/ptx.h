// Inline PTX as C++: the rewriter turns each instruction that it knows into a call of a function here (see ptx/).
// A PTX register is 64 bits, `reg`; `get<T>` and `put` read and write its low bytes as a type.
//
// The warp's matrix instructions are what they are on a GPU, operations of 32 lanes that meet and exchange registers.
#pragma once
#include "cuda_runtime.h"
#include "soft_float.h"

namespace laptop {
namespace ptx {

typedef unsigned long long reg;

template <class T> LAPTOP_FN T get(reg r) {
    T value;
    __builtin_memcpy((void*)&value, &r, sizeof(T));
    return value;
}
template <class T> LAPTOP_FN reg put(T value) {
    static_assert(sizeof(T) <= sizeof(reg), "an operand of inline PTX has at most 64 bits");
    reg r = 0;
    __builtin_memcpy(&r, (const void*)&value, sizeof(T));
    return r;
}

using laptop::unknown;
template <class T> LAPTOP_FN const void* place(T&& x) { return std::is_lvalue_reference<T>::value ? &x : nullptr; }
LAPTOP_FN void require(bool condition, const char* what, const void* site) { if (!condition) laptop::trap(what, site); }

template <class Format> struct small {
    uint16_t bits;
    LAPTOP_INLINE small() = default;
    LAPTOP_QUIET small(float value) : bits(Format::narrow(value)) {}
    LAPTOP_QUIET operator float() const { return Format::widen(bits); }
};
typedef small<laptop::binary16> f16;
typedef small<laptop::bfloat16> bf16;
template <class T> struct pair { T low, high; };
template <class T> LAPTOP_QUIET bool operator==(pair<T> a, pair<T> b) { return a.low == b.low && a.high == b.high; }
typedef pair<f16> f16x2;
typedef pair<bf16> bf16x2;
typedef pair<float> f32x2;
typedef pair<int16_t> s16x2;
typedef pair<uint16_t> u16x2;

// Integers wrap around: in C++ only unsigned ones do, those of 32 bits and more.
template <class T> using wrapping = std::make_unsigned_t<std::conditional_t<sizeof(T) < 4, int, T>>;
template <class T> struct arithmetic {
    typedef wrapping<T> U;
    LAPTOP_QUIET static T add(T a, T b) { return T(U(a) + U(b)); }
    LAPTOP_QUIET static T sub(T a, T b) { return T(U(a) - U(b)); }
    LAPTOP_QUIET static T mul(T a, T b) { return T(U(a) * U(b)); }
    LAPTOP_QUIET static T div(T a, T b) { return T(a / b); }
    LAPTOP_QUIET static T min(T a, T b) { return b < a ? b : a; }
    LAPTOP_QUIET static T max(T a, T b) { return a < b ? b : a; }
    LAPTOP_QUIET static T abs(T a) { return a < 0 ? neg(a) : a; }
    LAPTOP_QUIET static T neg(T a) { return T(U(0) - U(a)); }
};
// Of zeros the one with a sign is less. A number's least, largest and absolute value are found exactly in double, and
// small ones are added and multiplied in float (+a is a float then), with one rounding more.
template <class T> struct of_real {
    LAPTOP_QUIET static T add(T a, T b) { return T(a + b); }
    LAPTOP_QUIET static T sub(T a, T b) { return T(a - b); }
    LAPTOP_QUIET static T mul(T a, T b) { return T(a * b); }
    LAPTOP_QUIET static T div(T a, T b) { return T(a / b); }
    LAPTOP_QUIET static T min(T a, T b) { return +a == +b ? (__builtin_signbit(+a) ? a : b) : T(__builtin_fmin(+a, +b)); }
    LAPTOP_QUIET static T max(T a, T b) { return +a == +b ? (__builtin_signbit(+a) ? b : a) : T(__builtin_fmax(+a, +b)); }
    LAPTOP_QUIET static T abs(T a) { return T(__builtin_fabs(+a)); }
    LAPTOP_QUIET static T neg(T a) { return T(-a); }
};
template <> struct arithmetic<double> : of_real<double> {
    LAPTOP_QUIET static double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
template <> struct arithmetic<float> : of_real<float> {
    LAPTOP_QUIET static float fma(float a, float b, float c) { return fmaf(a, b, c); }
};
template <class Format> struct arithmetic<small<Format>> : of_real<small<Format>> {
    LAPTOP_QUIET static small<Format> fma(small<Format> a, small<Format> b, small<Format> c) {
        small<Format> made;
        made.bits = laptop::fused_multiply_add<Format>(a, b, c);
        return made;
    }
};
template <class E> struct arithmetic<pair<E>> {
    typedef pair<E> T;
    typedef arithmetic<E> A;
    LAPTOP_QUIET static T add(T a, T b) { return {A::add(a.low, b.low), A::add(a.high, b.high)}; }
    LAPTOP_QUIET static T sub(T a, T b) { return {A::sub(a.low, b.low), A::sub(a.high, b.high)}; }
    LAPTOP_QUIET static T mul(T a, T b) { return {A::mul(a.low, b.low), A::mul(a.high, b.high)}; }
    LAPTOP_QUIET static T fma(T a, T b, T c) { return {A::fma(a.low, b.low, c.low), A::fma(a.high, b.high, c.high)}; }
    LAPTOP_QUIET static T min(T a, T b) { return {A::min(a.low, b.low), A::min(a.high, b.high)}; }
    LAPTOP_QUIET static T max(T a, T b) { return {A::max(a.low, b.low), A::max(a.high, b.high)}; }
    LAPTOP_QUIET static T abs(T a) { return {A::abs(a.low), A::abs(a.high)}; }
    LAPTOP_QUIET static T neg(T a) { return {A::neg(a.low), A::neg(a.high)}; }
};

#define LAPTOP_ARITHMETIC(name) template <class T> LAPTOP_FN T name(T a, T b) { return arithmetic<T>::name(a, b); }
LAPTOP_ARITHMETIC(add) LAPTOP_ARITHMETIC(sub) LAPTOP_ARITHMETIC(mul) LAPTOP_ARITHMETIC(div)
LAPTOP_ARITHMETIC(min) LAPTOP_ARITHMETIC(max)
#undef LAPTOP_ARITHMETIC
template <class T> LAPTOP_FN T rem(T a, T b) { return T(a % b); }
template <class T> LAPTOP_FN T fma(T a, T b, T c) { return arithmetic<T>::fma(a, b, c); }
template <class T> LAPTOP_FN T abs(T a) { return arithmetic<T>::abs(a); }
template <class T> LAPTOP_FN T neg(T a) { return arithmetic<T>::neg(a); }
// .ftz: a subnormal number counts as zero of its sign
template <class T> LAPTOP_FN T flushed(T a) { return a; }
LAPTOP_FN float flushed(float a) { return __builtin_fabsf(a) < 0x1p-126f ? __builtin_copysignf(0.f, a) : a; }
LAPTOP_FN double flushed(double a) { return __builtin_fabs(a) < 0x1p-1022 ? __builtin_copysign(0., a) : a; }
template <class Format> LAPTOP_FN small<Format> flushed(small<Format> a) {
    if (!(a.bits & Format::infinity)) a.bits &= 0x8000;          // `infinity` is all bits of the exponent
    return a;
}
template <class E> LAPTOP_FN pair<E> flushed(pair<E> a) { return {flushed(a.low), flushed(a.high)}; }
// .relu: 0 for what is negative, and for zero of either sign; NaN stays
template <class T> LAPTOP_FN T relu(T a) { return a <= 0 ? T(0) : a; }
template <class E> LAPTOP_FN pair<E> relu(pair<E> a) { return {relu(a.low), relu(a.high)}; }
// .xorsign: with the sign that a product would have
template <class T> LAPTOP_FN T xorsign(T a, T b, T of) {
    bool negative = __builtin_signbit(float(a)) != __builtin_signbit(float(b));
    return T(__builtin_copysignf(float(of), negative ? -1.f : 1.f));
}
template <class E> LAPTOP_FN pair<E> xorsign(pair<E> a, pair<E> b, pair<E> of) {
    return {xorsign(a.low, b.low, of.low), xorsign(a.high, b.high, of.high)};
}
// min.NaN: NaN if either is
template <class T> LAPTOP_FN T with_nan(T a, T b, T otherwise) { return a != a ? a : b != b ? b : otherwise; }
template <class E> LAPTOP_FN pair<E> with_nan(pair<E> a, pair<E> b, pair<E> otherwise) {
    return {with_nan(a.low, b.low, otherwise.low), with_nan(a.high, b.high, otherwise.high)};
}
// An integer as one of another type, the nearest that this has
template <class To, class T> LAPTOP_FN To clamped(T a) {
    constexpr To lowest = To(-1) < To(0) ? To(1ull << (8 * sizeof(To) - 1)) : To(0), highest = To(~lowest);
    if (a < T(0) && (lowest == 0 || (long long)a < (long long)lowest)) return lowest;
    return a > T(0) && (unsigned long long)a > (unsigned long long)highest ? highest : To(a);
}
LAPTOP_FN uint32_t bfind(uint32_t a) { return a ? 31 - __builtin_clz(a) : ~0u; }
LAPTOP_FN uint32_t bfind(int32_t a) { return bfind(uint32_t(a < 0 ? ~a : a)); }
LAPTOP_FN uint32_t bfind(uint64_t a) { return a ? 63 - __builtin_clzll(a) : ~0u; }
LAPTOP_FN uint32_t bfind(int64_t a) { return bfind(uint64_t(a < 0 ? ~a : a)); }
template <class T> LAPTOP_FN wrapping<T> sad(T a, T b) {
    typedef wrapping<T> U;
    return a < b ? U(b) - U(a) : U(a) - U(b);
}
template <class T> LAPTOP_FN T saturate(T a) { return a != a || a < T(0) ? T(0) : a > T(1) ? T(1) : a; }
template <class E> LAPTOP_FN pair<E> saturate(pair<E> a) { return {saturate(a.low), saturate(a.high)}; }
template <class T> LAPTOP_FN T mul_hi(T a, T b) {
    typedef std::conditional_t<std::is_signed<T>::value, __int128, unsigned __int128> Wide;
    return T((Wide(a) * Wide(b)) >> (8 * sizeof(T)));
}
template <class T> struct wider;
template <> struct wider<int16_t> { typedef int32_t type; };
template <> struct wider<uint16_t> { typedef uint32_t type; };
template <> struct wider<int32_t> { typedef int64_t type; };
template <> struct wider<uint32_t> { typedef uint64_t type; };
template <class T> LAPTOP_FN typename wider<T>::type mul_wide(T a, T b) {
    return typename wider<T>::type(a) * typename wider<T>::type(b);
}
template <class T> LAPTOP_FN T shl(T a, uint32_t n) { return n >= 8 * sizeof(T) ? T(0) : T(a << n); }
template <class T> LAPTOP_FN T shr(T a, uint32_t n) { return n >= 8 * sizeof(T) ? (a < T(0) ? T(-1) : T(0)) : T(a >> n); }
template <class T> LAPTOP_FN bool compare(const char* how, T a, T b) {
    bool unordered = a != a || b != b;
    switch (how[0] * 256 + how[1]) {
        case 'e' * 256 + 'q': return how[2] == 'u' ? unordered || a == b : !unordered && a == b;
        case 'n' * 256 + 'e': return how[2] == 'u' ? unordered || a != b : !unordered && a != b;
        case 'l' * 256 + 't': case 'l' * 256 + 'o': return how[2] == 'u' ? unordered || a < b : a < b;
        case 'l' * 256 + 'e': case 'l' * 256 + 's': return how[2] == 'u' ? unordered || a <= b : a <= b;
        case 'g' * 256 + 't': case 'h' * 256 + 'i': return how[2] == 'u' ? unordered || a > b : a > b;
        case 'g' * 256 + 'e': case 'h' * 256 + 's': return how[2] == 'u' ? unordered || a >= b : a >= b;
        case 'n' * 256 + 'u': return !unordered;
        default: return unordered;               // nan
    }
}
LAPTOP_FN uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t made = 0;
    for (int i = 0; i < 8; ++i) {
        if (table >> i & 1) made |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return made;
}
template <class T> LAPTOP_FN T bfe(T a, uint32_t start, uint32_t length) {
    start &= 0xff, length &= 0xff;
    if (length == 0) return 0;
    int bits = 8 * sizeof(T);
    uint64_t wide = sizeof(T) == 4 ? uint64_t(int64_t(a)) : uint64_t(a);
    if (start >= 64) wide = std::is_signed<T>::value && a < T(0) ? ~0ull : 0;
    else wide = std::is_signed<T>::value ? uint64_t(int64_t(wide) >> start) : wide >> start;
    if (length >= uint32_t(bits)) return T(wide);
    T field = T(wide & ((1ull << length) - 1));
    return std::is_signed<T>::value && (field >> (length - 1) & 1) ? T(field | T(~0ull << length)) : field;
}
template <class T> LAPTOP_FN T bfi(T a, T b, uint32_t start, uint32_t length) {
    start &= 0xff, length &= 0xff;
    if (length == 0 || start >= 8 * sizeof(T)) return b;
    uint64_t mask = (length >= 64 ? ~0ull : (1ull << length) - 1) << start;
    return T((uint64_t(b) & ~mask) | (uint64_t(a) << start & mask));
}
LAPTOP_FN float tanh_(float x) { return tanhf(x); }
LAPTOP_FN float rcp(float x) { return 1.f / x; }
LAPTOP_FN float rsqrt_(float x) { return 1.f / sqrtf(x); }

template <class To, class From> struct convert_ {
    LAPTOP_QUIET static To of(From a, laptop::rounding) { return To(a); }
};
// NaN is 0, or the lowest number where one of the two types has 64 bits.
template <class To> LAPTOP_FN To number_of_nan(bool wide) {
    return wide || sizeof(To) == 8 ? To(1ull << (8 * sizeof(To) - 1)) : To(0);
}
template <class To, class From> struct of_float {
    LAPTOP_QUIET static To of(From a, laptop::rounding mode) {
        if constexpr (std::is_integral<To>::value) {
            return a != a ? number_of_nan<To>(sizeof(From) == 8) : laptop::to_integer<To>(a, mode);
        } else if constexpr (std::is_same<To, f16>::value || std::is_same<To, bf16>::value) {
            typedef std::conditional_t<std::is_same<To, f16>::value, laptop::binary16, laptop::bfloat16> Format;
            To made;
            made.bits = laptop::narrow<Format>(double(a), mode);
            return made;
        } else return To(a);
    }
};
template <class To> struct convert_<To, float> : of_float<To, float> {};
template <class To> struct convert_<To, double> : of_float<To, double> {};
template <class Format, class To> struct of_small {
    LAPTOP_QUIET static To of(small<Format> a, laptop::rounding mode) { return convert_<To, float>::of(a, mode); }
};
template <class To> struct convert_<To, f16> : of_small<laptop::binary16, To> {};
template <class To> struct convert_<To, bf16> : of_small<laptop::bfloat16, To> {};
template <class To, class From>
LAPTOP_FN To convert(From a, laptop::rounding mode = laptop::rounding::nearest) { return convert_<To, From>::of(a, mode); }
template <class E> LAPTOP_FN pair<E> convert_pair(float high, float low, bool relu, laptop::rounding mode) {
    return {convert<E>(relu && low <= 0 ? 0.f : low, mode), convert<E>(relu && high <= 0 ? 0.f : high, mode)};
}
LAPTOP_FN double whole(double a, laptop::rounding mode) {
    return mode == laptop::rounding::nearest ? __builtin_rint(a) : mode == laptop::rounding::down ? __builtin_floor(a)
           : mode == laptop::rounding::up    ? __builtin_ceil(a) : __builtin_trunc(a);
}
// tf32 has 10 bits after the point; .rna rounds ties away from zero, .rn to even, .rz not up.
LAPTOP_FN uint32_t to_tf32(float a, char mode, bool no_negatives) {
    uint32_t bits = laptop::bits_of(no_negatives && a <= 0 ? 0.f : a);
    if ((bits & 0x7f800000) == 0x7f800000) return bits;
    return (bits + (mode == 'a' ? 0x1000 : mode == 'n' ? 0xfff + (bits >> 13 & 1) : 0)) & ~0x1fffu;
}

LAPTOP_FN void* in_shared(reg address) { return laptop::shared_pointer((uint32_t)address); }
LAPTOP_FN void* generic(reg address) { return (void*)(uintptr_t)address; }
LAPTOP_FN void* in_block_of_cluster(const void* p, unsigned rank) { return laptop::in_block_of_cluster(p, rank, LAPTOP_SITE); }
LAPTOP_FN void cluster_arrives(bool relaxed) { laptop::cluster_arrive(relaxed, LAPTOP_SITE); }
LAPTOP_FN void cluster_waits() { laptop::cluster_wait(LAPTOP_SITE); }
// STRONG: .relaxed, .acquire, .release and .volatile, which other threads may rely on while they wait.
template <int BYTES, bool STRONG, int COUNT, bool CONSTANT = false> LAPTOP_FN void load(reg (&d)[COUNT], const void* p) {
    if (STRONG) laptop::will_communicate((void*)p, BYTES * COUNT, false, LAPTOP_SITE);
    else if (LAPTOP_TRACED) (CONSTANT ? laptop::will_read_constant : laptop::will_read)(p, BYTES * COUNT, LAPTOP_SITE);
    for (int i = 0; i < COUNT; ++i) {
        d[i] = 0;
        __builtin_memcpy(&d[i], (const char*)p + BYTES * i, BYTES);
    }
}
template <int BYTES, bool STRONG, int COUNT> LAPTOP_FN void store(void* p, const reg (&d)[COUNT]) {
    if (STRONG) laptop::will_communicate(p, BYTES * COUNT, true, LAPTOP_SITE);
    else if (LAPTOP_TRACED) laptop::will_write(p, BYTES * COUNT, LAPTOP_SITE);
    for (int i = 0; i < COUNT; ++i) __builtin_memcpy((char*)p + BYTES * i, &d[i], BYTES);
}
template <class T, class F>
LAPTOP_FN T update(void* p, int how, F change) { return laptop::atomic((T*)p, change, LAPTOP_SITE, how); }

LAPTOP_FN void copy_async(void* to, const void* from, unsigned bytes, unsigned given) {
    if (((uintptr_t)to | (given ? (uintptr_t)from : 0)) % bytes)
        laptop::trap("cp.async at an address that is not a multiple of its size", LAPTOP_SITE);
    if (given > bytes) given = bytes;
    if (given == bytes || given == 0) {
        laptop::async_copy(to, given ? from : nullptr, bytes, LAPTOP_SITE);
    } else {
        if (LAPTOP_TRACED) laptop::will_read(from, given, LAPTOP_SITE);
        laptop::async_copy(to, nullptr, bytes, LAPTOP_SITE);
    }
    laptop::copy_unseen(to, from, given);
    laptop::set_unseen((char*)to + given, 0, bytes - given);
}

// A source that names .arrive sets LAPTOP_NAMES_ARRIVE: those who arrive may be as many as are missing, whole warps in both.
LAPTOP_FN bool of_whole_block(uint32_t threads) { return !threads || threads == blockDim.x * blockDim.y * blockDim.z; }
LAPTOP_FN void barrier(uint32_t number, uint32_t threads, bool aligned) {
    if (threads % warpSize) laptop::trap("bar.sync of a number of threads that is no multiple of a warp's,", LAPTOP_SITE);
#ifdef LAPTOP_NAMES_ARRIVE
    bool whole = !threads;
#else
    bool whole = of_whole_block(threads);
#endif
    if (whole) laptop::block_barrier(false, LAPTOP_SITE, laptop::NUMBERED | aligned * laptop::ALIGNED | (number & 15));
    else laptop::partial_barrier(number & 15, threads, LAPTOP_SITE);
}
LAPTOP_FN void arrive(uint32_t number, uint32_t threads) {
    if (threads % warpSize || !threads)
        laptop::trap("bar.arrive of a number of threads that is no multiple of a warp's,", LAPTOP_SITE);
    laptop::partial_barrier(number & 15, threads, LAPTOP_SITE, false);
}
LAPTOP_FN uint32_t barrier_reduction(const char* how, uint32_t number, uint32_t threads, bool predicate, bool aligned) {
    if (!of_whole_block(threads)) laptop::not_supported("bar.red of a part of the block", LAPTOP_SITE);
    uint32_t which = laptop::NUMBERED | aligned * laptop::ALIGNED | (number & 15);
    laptop::Arrived found = laptop::block_barrier(predicate, LAPTOP_SITE, which);
    return how[0] == 'p' ? found.count : how[0] == 'a' ? found.count == found.threads : found.count > 0;
}
LAPTOP_FN uint32_t leader(uint32_t mask) {
    return __builtin_ctz(laptop::warp_exchange(mask, nullptr, 0, laptop::VOTE, false, LAPTOP_SITE).present);
}
LAPTOP_FN void sync_warp(uint32_t mask) { laptop::warp_exchange(mask, nullptr, 0, laptop::SYNCWARP, true, LAPTOP_SITE); }
LAPTOP_FN uint32_t ballot(bool predicate, uint32_t mask) { return laptop::ballot(mask, predicate, LAPTOP_SITE).yes; }
// c holds, as in PTX, the clamp in bits 0..4 and the mask of a segment in bits 8..12.
LAPTOP_FN uint32_t shuffle(const char* how, uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool* valid) {
    int lane = laptop::lane_id(), segment = c >> 8 & 31, clamp = c & 31;
    int last = (lane & segment) | (clamp & ~segment), first = lane & segment, source = 0;
    b &= 31;
    switch (how[0]) {
        case 'u': source = lane - (int)b, *valid = source >= last; break;
        case 'd': source = lane + (int)b, *valid = source <= last; break;
        case 'b': source = lane ^ (int)b, *valid = source <= last; break;
        default: source = first | ((int)b & ~segment), *valid = source <= last; break;
    }
    return laptop::shuffle(mask, a, *valid ? source : lane, LAPTOP_SITE);
}
LAPTOP_FN uint32_t redux(const char* how, uint32_t a, uint32_t mask, bool is_signed) {
    return laptop::reduce(mask, a, [=](uint32_t x, uint32_t y) LAPTOP_QUIET -> uint32_t {
        bool less = is_signed ? (int32_t)x < (int32_t)y : x < y;
        return how[0] == 'x' ? x ^ y : how[0] == 'o' ? x | y : how[1] == 'n' ? x & y : how[1] == 'd' ? x + y
             : how[1] == 'i' ? (less ? x : y) : (less ? y : x);
    }, LAPTOP_SITE);
}

LAPTOP_FN void meet(const void* value, unsigned bytes, const char* what, const void* site, laptop::Exchange& all) {
    const laptop::Exchange& x = laptop::warp_exchange(0xffffffffu, value, bytes, laptop::MMA, false, site);
    require(x.present == 0xffffffffu, what, site);
    laptop::copy_unseen(&all, &x, sizeof x);
}

// Lane l gives the 16-byte row l of the 8 x 8 pieces, and gets of each piece row l / 4, columns 2 (l % 4) and the next.
template <int COUNT, bool TRANSPOSED> LAPTOP_FN void load_matrix(reg (&d)[COUNT], reg address) {
    const void* site = LAPTOP_SITE;
    uint16_t own[8] = {}, rows[32][8];
    if (laptop::lane_id() < 8 * COUNT) {
        const void* row = laptop::shared_pointer((uint32_t)address);
        require((uintptr_t)row % 16 == 0, "ldmatrix from an address that is not a multiple of 16", site);
        if (LAPTOP_TRACED) laptop::will_read(row, 16, site);
        __builtin_memcpy(own, row, 16);
    }
    laptop::Exchange x;
    meet(own, 16, "ldmatrix without a whole warp", site, x);
    for (int lane = 0; lane < 32; ++lane) __builtin_memcpy(rows[lane], x.slot[lane], 16);
    int g = laptop::lane_id() / 4, t = laptop::lane_id() % 4;
    for (int i = 0; i < COUNT; ++i) {
        uint16_t low = TRANSPOSED ? rows[8 * i + 2 * t][g] : rows[8 * i + g][2 * t];
        uint16_t high = TRANSPOSED ? rows[8 * i + 2 * t + 1][g] : rows[8 * i + g][2 * t + 1];
        d[i] = low | uint32_t(high) << 16;
    }
}
template <int COUNT, bool TRANSPOSED> LAPTOP_FN void store_matrix(reg address, const reg (&d)[COUNT]) {
    const void* site = LAPTOP_SITE;
    uint32_t own[4] = {};
    for (int i = 0; i < COUNT; ++i) own[i] = (uint32_t)d[i];
    laptop::Exchange x;
    meet(own, 16, "stmatrix without a whole warp", site, x);
    int lane = laptop::lane_id(), piece = lane / 8, row = lane % 8;
    if (piece >= COUNT) return;
    void* to = laptop::shared_pointer((uint32_t)address);
    require((uintptr_t)to % 16 == 0, "stmatrix to an address that is not a multiple of 16", site);
    if (LAPTOP_TRACED) laptop::will_write(to, 16, site);
    uint16_t made[8];
    for (int column = 0; column < 8; ++column) {
        int r = TRANSPOSED ? column : row, c = TRANSPOSED ? row : column;
        __builtin_memcpy(&made[column], x.slot[4 * r + c / 2] + 4 * piece + 2 * (c % 2), 2);
    }
    __builtin_memcpy(to, made, 16);
}

// Lane l holds row l / 4 of 8 x 8 numbers of 16 bits, columns 2 (l % 4) and the next; it gets the same of the transpose.
LAPTOP_FN uint32_t transposed(uint32_t own) {
    laptop::Exchange x;
    meet(&own, 4, "movmatrix without a whole warp", LAPTOP_SITE, x);
    int row = laptop::lane_id() / 4, column = laptop::lane_id() % 4 * 2;
    uint16_t low, high;
    __builtin_memcpy(&low, x.slot[4 * column + row / 2] + 2 * (row % 2), 2);
    __builtin_memcpy(&high, x.slot[4 * (column + 1) + row / 2] + 2 * (row % 2), 2);
    return low | uint32_t(high) << 16;
}

// What a lane's registers hold of A (16 x K, row by row), B (K x 8, column by column) and D (16 x 8), as PTX maps them.
// `Number` says how an element is read; a register holds PER of them.
template <class Format> struct of_half {
    static constexpr int PER = 2;
    LAPTOP_QUIET static double read(uint32_t r, int i) { return Format::widen(uint16_t(r >> 16 * i)); }
};
struct of_tf32 {
    static constexpr int PER = 1;
    LAPTOP_QUIET static double read(uint32_t r, int) { return laptop::float_of(r & ~0x1fffu); }
};
template <class T> struct of_byte {
    static constexpr int PER = 4;
    LAPTOP_QUIET static double read(uint32_t r, int i) { return double(T(r >> 8 * i)); }
};

// d = a b + c. Products are exact; the K + 1 terms are added in double and rounded once: the hardware's own order is
// not documented. With two numbers of d for a lane, A has 8 rows.
template <class A, class B, int K, int ND, int NA, int NB>
LAPTOP_FN void multiply_matrices(double (&d)[ND], const reg (&a)[NA], const reg (&b)[NB], const void* site) {
    uint32_t own[NA + NB];
    for (int i = 0; i < NA; ++i) own[i] = (uint32_t)a[i];
    for (int i = 0; i < NB; ++i) own[NA + i] = (uint32_t)b[i];
    laptop::Exchange x;
    meet(own, sizeof own, "mma without a whole warp", site, x);
    if (LAPTOP_TRACED && laptop::lane_id() == 0) laptop::count_product(64ull * ND * K, site);
    constexpr int PER = A::PER, SPAN = 4 * PER;          // numbers of a row in one register of four lanes
    auto word = [&](int lane, int i) LAPTOP_QUIET {
        uint32_t bits;
        __builtin_memcpy(&bits, x.slot[lane] + 4 * i, 4);
        return bits;
    };
    int g = laptop::lane_id() / 4, t = laptop::lane_id() % 4;
    for (int i = 0; i < ND; ++i) {
        int lower = i / 2, column = 2 * t + i % 2;
        for (int k = 0; k < K; ++k) {
            int place = k % SPAN / PER, right = k / SPAN, n = k % PER;
            d[i] += A::read(word(4 * g + place, ND == 4 ? lower + 2 * right : right), n) * B::read(word(4 * column + place, NA + right), n);
        }
    }
}
template <class A, class B, int K, int NA, int NB>
LAPTOP_FN void mma_f32(reg (&d)[4], const reg (&a)[NA], const reg (&b)[NB], const reg (&c)[4]) {
    double sum[4];
    for (int i = 0; i < 4; ++i) sum[i] = get<float>(c[i]);
    multiply_matrices<A, B, K>(sum, a, b, LAPTOP_SITE);
    for (int i = 0; i < 4; ++i) d[i] = put(float(sum[i]));
}
template <class A, class B, int K, int ND, int NA, int NB>
LAPTOP_FN void mma_s32(reg (&d)[ND], const reg (&a)[NA], const reg (&b)[NB], const reg (&c)[ND], bool saturating) {
    double sum[ND];
    for (int i = 0; i < ND; ++i) sum[i] = get<int32_t>(c[i]);
    multiply_matrices<A, B, K>(sum, a, b, LAPTOP_SITE);
    for (int i = 0; i < ND; ++i)
        d[i] = put(saturating ? clamped<int32_t>((long long)sum[i]) : int32_t((long long)sum[i]));
}
template <class A, class B, int K, int NA, int NB>
LAPTOP_FN void mma_f16(reg (&d)[2], const reg (&a)[NA], const reg (&b)[NB], const reg (&c)[2]) {
    double sum[4];
    for (int i = 0; i < 4; ++i) sum[i] = laptop::binary16::widen(uint16_t(c[i / 2] >> 16 * (i % 2)));
    multiply_matrices<A, B, K>(sum, a, b, LAPTOP_SITE);
    for (int i = 0; i < 2; ++i) {
        d[i] = laptop::narrow<laptop::binary16>(sum[2 * i]) | (uint32_t)laptop::narrow<laptop::binary16>(sum[2 * i + 1]) << 16;
    }
}
}  // namespace ptx
}  // namespace laptop
