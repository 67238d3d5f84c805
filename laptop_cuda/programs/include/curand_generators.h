// The generators of cuRAND: XORWOW (Marsaglia 2003) and Philox4x32-10 (Salmon and others 2011), with cuRAND's seeding,
// so that a seed gives the numbers that it gives on a GPU.
#pragma once
#include "cuda_runtime.h"
#include "laptop_host.h"

struct curandStateXORWOW {
    unsigned int d, v[5];
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
struct curandStatePhilox4_32_10 {
    uint4 ctr, output;
    uint2 key;
    unsigned int STATE;
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
namespace laptop {
struct OtherGenerator {                  // is not here: `touched` ends a kernel that uses one
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
inline uint32_t next(OtherGenerator&) { return 0; }
inline double uniform_double(OtherGenerator&) { return 0; }
}  // namespace laptop
struct curandStateMRG32k3a : laptop::OtherGenerator {};
struct curandStateMtgp32 : laptop::OtherGenerator {};
typedef curandStateMRG32k3a curandStateMRG32k3a_t;
typedef curandStateMtgp32 curandStateMtgp32_t;
typedef struct curandStateXORWOW curandStateXORWOW_t, curandState_t, curandState;
typedef struct curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace laptop {

LAPTOP_QUIET inline void start(curandStateXORWOW& s, uint64_t seed, uint64_t subsequence, uint64_t offset) {
    uint32_t low = 1099087573u * ((uint32_t)seed ^ 0xaad26b49u), high = 2591861531u * ((uint32_t)(seed >> 32) ^ 0xf7dcefddu);
    curandStateXORWOW made = {6615241u + high + low,
         {123456789u + low, 362436069u ^ low, 521288629u + high, 88675123u ^ high, 5783321u + low}, 0, 0, 0, 0};
    copy_unseen(&s, &made, sizeof s);
    xorwow_ahead(s.v, subsequence, 67);
    xorwow_ahead(s.v, offset, 0);
    s.d += 362437u * (uint32_t)offset;
}
LAPTOP_QUIET inline uint32_t next(curandStateXORWOW& s) {
    uint32_t t = s.v[0] ^ s.v[0] >> 2;
    for (int i = 0; i < 4; ++i) s.v[i] = s.v[i + 1];
    s.v[4] = s.v[4] ^ s.v[4] << 4 ^ t ^ t << 1;
    return s.v[4] + (s.d += 362437);
}

LAPTOP_QUIET inline uint4 philox(uint4 c, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        uint64_t a = 0xd2511f53ull * c.x, b = 0xcd9e8d57ull * c.z;
        c = uint4{(uint32_t)(b >> 32) ^ c.y ^ key.x, (uint32_t)b, (uint32_t)(a >> 32) ^ c.w ^ key.y, (uint32_t)a};
        key.x += 0x9e3779b9u, key.y += 0xbb67ae85u;
    }
    return c;
}
// The counter is one number of 128 bits; a subsequence is its upper half.
LAPTOP_QUIET inline void advance(uint4& c, uint64_t low, uint64_t high) {
    uint64_t before = c.x | (uint64_t)c.y << 32, now = before + low, upper = (c.z | (uint64_t)c.w << 32) + high + (now < before);
    c = uint4{(uint32_t)now, (uint32_t)(now >> 32), (uint32_t)upper, (uint32_t)(upper >> 32)};
}
LAPTOP_QUIET inline void start(curandStatePhilox4_32_10& s, uint64_t seed, uint64_t subsequence, uint64_t offset) {
    set_unseen(&s, 0, sizeof s);
    s.key = uint2{(uint32_t)seed, (uint32_t)(seed >> 32)};
    advance(s.ctr, offset / 4, subsequence);
    s.STATE = offset % 4;
    s.output = philox(s.ctr, s.key);
}
LAPTOP_QUIET inline uint32_t next(curandStatePhilox4_32_10& s) {
    uint32_t x = (&s.output.x)[s.STATE];
    if (++s.STATE == 4) {
        advance(s.ctr, 1, 0);
        s.output = philox(s.ctr, s.key);
        s.STATE = 0;
    }
    return x;
}
template <class S> LAPTOP_QUIET uint4 next_four(S& s) {
    uint4 x;
    x.x = next(s), x.y = next(s), x.z = next(s), x.w = next(s);
    return x;
}

LAPTOP_QUIET inline float uniform(uint32_t x) { return x * 0x1p-32f + 0x1p-33f; }                      // in (0, 1]
LAPTOP_QUIET inline double uniform53(uint32_t x, uint32_t y) { return (x ^ (uint64_t)y << 21) * 0x1p-53 + 0x1p-54; }
template <class S> LAPTOP_QUIET float2 two_normals(S& s) {                  // Box and Muller
    uint32_t x = next(s), y = next(s);
    constexpr float turn = 6.2831855f;
    float radius = ::sqrtf(-2.0f * ::logf(uniform(x))), angle = y * (0x1p-32f * turn) + 0x1p-33f * turn;
    return float2{radius * ::sinf(angle), radius * ::cosf(angle)};
}
template <class S> LAPTOP_QUIET double2 two_normals_double(S& s) {
    uint4 x = next_four(s);
    double radius = ::sqrt(-2.0 * ::log(uniform53(x.x, x.y)));
    double angle = 3.1415926535897932 * ((x.z ^ (uint64_t)x.w << 21) * 0x1p-52 + 0x1p-53);
    return double2{radius * ::sin(angle), radius * ::cos(angle)};
}
// Every second one was computed with the one before, if that was of the same kind.
enum { NORMAL = 1, LOG_NORMAL = 2 };
template <class S, class T, class Two, class F>
LAPTOP_QUIET T one_of_two(S& s, int& kind_kept, T& kept, Two two_of, int kind, F shape) {
    bool second = kind_kept == kind;
    kind_kept = second ? 0 : kind;
    if (second) return kept;
    auto two = two_of(s);
    kept = shape(two.y);
    return shape(two.x);
}
template <class S, class F> LAPTOP_QUIET float one_of_two(S& s, int kind, F shape) {
    return one_of_two(s, s.boxmuller_flag, s.boxmuller_extra, two_normals<S>, kind, shape);
}
template <class S, class F> LAPTOP_QUIET double one_of_two_double(S& s, int kind, F shape) {
    return one_of_two(s, s.boxmuller_flag_double, s.boxmuller_extra_double, two_normals_double<S>, kind, shape);
}
template <class S> LAPTOP_QUIET float normal(S& s) { return one_of_two(s, NORMAL, [](float x) LAPTOP_QUIET { return x; }); }
template <class S> LAPTOP_QUIET double normal_double(S& s) {
    return one_of_two_double(s, NORMAL, [](double x) LAPTOP_QUIET { return x; });
}
template <class S> LAPTOP_QUIET float log_normal(S& s, float mean, float stddev) {
    return one_of_two(s, LOG_NORMAL, [=](float x) LAPTOP_QUIET { return ::expf(mean + stddev * x); });
}
template <class S> LAPTOP_QUIET double log_normal_double(S& s, double mean, double stddev) {
    return one_of_two_double(s, LOG_NORMAL, [=](double x) LAPTOP_QUIET { return ::exp(mean + stddev * x); });
}
LAPTOP_QUIET inline double uniform_double(curandStateXORWOW& s) {
    uint32_t x = next(s), y = next(s);
    return uniform53(x, y);
}
LAPTOP_QUIET inline double uniform_double(curandStatePhilox4_32_10& s) { return next(s) * 0x1p-32 + 0x1p-33; }
template <class S>
LAPTOP_QUIET unsigned poisson(S& s, double lambda) {     // not by cuRAND's method: other numbers, the same distribution
    if (lambda > 64) {
        double x = lambda + ::sqrt(lambda) * normal_double(s);
        return x > 0 ? (unsigned)(x + 0.5) : 0;
    }
    double limit = ::exp(-lambda), product = uniform_double(s);
    unsigned k = 0;
    for (; product > limit; ++k) product *= uniform_double(s);
    return k;
}
}  // namespace laptop
